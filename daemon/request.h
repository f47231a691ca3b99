/*
 * A request on its way from the loop, and a reply on its way back. Both are mails and move by
 * ownership; nothing here is shared but the cancel flag.
 *
 * A connection is known by its number: the loop looks it up when a reply arrives, and a reply to
 * one that has gone is dropped.
 */
#ifndef HEARTH_DAEMON_REQUEST_H
#define HEARTH_DAEMON_REQUEST_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/thread.h"
#include "daemon/daemon.h"

/* Set by the loop when the client has gone (or the daemon stops), read by whoever works for it. Two
 * holders: connection and request or turn. */
struct cancel {
    atomic_int is_set;
    atomic_int n_refs;
};
struct cancel *cancel_new(void); /* one reference; NULL: no memory */
struct cancel *cancel_ref(struct cancel *c);
void cancel_unref(struct cancel *c);

struct request {
    struct mail mail;     /* to the history thread: MAIL_REQUEST */
    uint64_t conn;        /* who gets the reply */
    char method[8];       /* "GET", "POST", "DELETE" … */
    char *path;           /* percent-decoded, without the query */
    char *query;          /* raw, "" if none */
    char *body;           /* n_body bytes and a NUL */
    size_t n_body;
    char *owner;          /* "uid:1000" or "key:name" */
    bool can_stream;      /* HTTP/1.1: chunked is understood */
    bool is_turn;         /* counts as running or queued: admitted by sched, released by its last
                           * reply */
    struct cancel *cancel;
    int64_t t_arrived_us;
    bool has_waited_room; /* daemon/room.h: it found the disk full once */
    struct served *served; /* in history.loading: the model that it waits for */
    bool wants_stream;     /* the body's "stream", once somebody has looked */
    int64_t t_parked_us;   /* since when it has waited for a model, 0: it hasn't */
    int64_t t_told_us;     /* when it was told so last */
};
void request_free(struct request *r); /* NULL is fine */

/* A query parameter's decoded value: 0, or ERR_NOTFOUND. Caller frees. */
int request_query(const struct request *r, const char *name, char **ret);

/* Kinds of mail, over all mailboxes. */
enum mail_kind {
    MAIL_REQUEST = 1,  /* loop → history: struct request */
    MAIL_TURN,         /* history → worker: struct turn, ready to run */
    MAIL_TURN_FLUSH,   /* worker → history: partial answer */
    MAIL_TURN_DONE,    /* worker → history: struct turn, ended */
    MAIL_FORGET,       /* history → worker: struct forget, blocks of what was deleted */
    MAIL_FORGOTTEN,    /* worker → history: the same, done */
    MAIL_ROOM,         /* history → worker: the disk is full (daemon/room.h) */
    MAIL_ROOM_MADE,    /* worker → history: the same, done */
    MAIL_KEEP,         /* history → worker: struct keep, accounts of blocks and orders about them */
    MAIL_KEPT,         /* worker → history: the same, done */
    MAIL_REPLY,        /* any → loop: struct reply */
    MAIL_READY,        /* worker → loop: the state changed (loaded or failed) */
    MAIL_DISK,         /* disk → worker: a read or write is done (cache_take_mail) */
    MAIL_WAKE,         /* any → history: look at who waits (history_wake; not to be freed) */
    MAIL_VERIFY,       /* history → worker: struct verify */
    MAIL_EMBED,        /* history → embedder: struct embed_job */
    MAIL_EMBEDDED,     /* embedder → history: the same, done */
    MAIL_LOAD,         /* history → worker: struct load, a model is to come */
    MAIL_LOADED,       /* loader → worker → history: the same, it is there or failed */
    MAIL_UNLOAD,       /* history → worker: struct load, a model is to go */
    MAIL_UNLOADED,     /* worker → history: the same, it has gone */
    MAIL_STOP,         /* loop → history, worker: finish and end */
    MAIL_STOPPED,      /* history, worker → loop */
};

enum reply_kind {
    REPLY_WHOLE,        /* status, body: the entire answer */
    REPLY_STREAM_BEGIN, /* 200, text/event-stream, chunked; body (may be empty) is the first data */
    REPLY_STREAM_DATA,  /* more */
    REPLY_STREAM_END,   /* body (may be empty), then the last chunk */
};

struct reply {
    struct mail mail;
    enum reply_kind kind;
    uint64_t conn;
    int status;
    const char *content_type; /* static; NULL: application/json */
    int retry_after_s;        /* 0: no header */
    char *body;               /* owned */
    size_t n_body;
    bool ends_turn;           /* this turn's last reply: its place in the queue is free again */
};

void reply_free(struct reply *r); /* the loop's, once it is sent; NULL is fine */

/* Each takes `body`'s bytes (buf_take) and posts to d->loop. Out of memory: the connection gets a
 * plain 500 by the loop (conn is closed), logged. */
void reply_post(struct daemon *d, enum reply_kind kind, uint64_t conn, int status,
                struct buf *body);
/* with ends_turn */
void reply_post_last(struct daemon *d, enum reply_kind kind, uint64_t conn, int status,
                     struct buf *body);

/*
 * OpenAI's error object: {"error":{"message","type","param","code"}}. `type` follows from the
 * status ("invalid_request_error", "not_found_error", "server_error", "overloaded_error" …).
 */
struct http_error {
    int status;
    const char *code;  /* "context_length_exceeded" …, or NULL: null */
    const char *param; /* or NULL: null. Static, or param_text: such a struct is not copied */
    char param_text[64];
    char message[512];
    bool is_full; /* the disk had no room for it (daemon/room.h) */
};
void http_error_set(struct http_error *h, int status, const char *code, const char *param,
                    const char *fmt, ...) __attribute__((format(printf, 5, 6)));
/* From a library's error: NOTFOUND 404, INVAL 400, LIMIT 400, UNSUPPORTED 400, BUSY 503, NOMEM and
 * others 500 (FULL with code disk_full). */
void http_error_from(struct http_error *h, const struct err *e);
/* 500 out_of_memory, "out of memory for `what`". Returns ERR_NOMEM. */
int http_out_of_memory(struct http_error *h, const char *what);
void http_error_write(const struct http_error *h, struct buf *body);
void reply_error(struct daemon *d, uint64_t conn, const struct http_error *h, bool ends_turn);
/* The same with a body that holds more than the error; takes its bytes. */
void reply_error_body(struct daemon *d, uint64_t conn, int status, struct buf *body,
                      bool ends_turn);

#endif
