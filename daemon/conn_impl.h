/*
 * The inside of a connection: shared by conn.c (libevent, life and death), conn_request.c (what
 * becomes of requests) and conn_answer.c (what is said). Loop thread only.
 *
 * What goes wrong sets the state to CONN_DEAD; the connection is freed when the callback that came
 * into these files ends, and not before.
 */
#ifndef HEARTH_DAEMON_CONN_IMPL_H
#define HEARTH_DAEMON_CONN_IMPL_H

#include "daemon/conn.h"
#include "daemon/gate.h"
#include "daemon/http.h"
#include "daemon/respond.h"

struct bufferevent;
struct event;

enum conn_state {
    CONN_IDLE,
    CONN_READING,
    CONN_WAITING,
    CONN_STREAMING,
    CONN_CLOSING,
    CONN_LINGER,
    CONN_DEAD
};

struct conn {
    struct net *net;
    struct bufferevent *bev;
    struct event *timer;
    uint64_t number; /* of the current request */
    int slot;
    enum conn_state state;

    bool is_tcp;
    char peer[OWNER_BYTES];       /* counted for the limit a peer */
    char unix_owner[OWNER_BYTES]; /* Unix: "uid:N", or "" */
    char denied[ERR_TEXT_BYTES];  /* Unix: why not, or "" */
    char key_owner[OWNER_BYTES];  /* TCP: of the last request's key */
    bool is_spare;                /* one too many: gets a 503 and goes */

    struct http *http;
    struct gate_pass pass;
    bool is_skipping; /* this request has had its answer; its body is dropped */
    bool has_eof;
    bool keep_alive; /* after the current answer */
    bool is_head, can_stream;
    bool has_place;   /* in net->sched */
    size_t n_counted; /* of the body, in net->n_body_bytes */
    size_t n_lingered;
    struct cancel *cancel;
};

/* conn.c */
void conn_arm(struct conn *c, int ms);
void conn_disarm(struct conn *c);
size_t conn_output_bytes(const struct conn *c);
void conn_send(struct conn *c, const void *data, size_t n);
void conn_send_owned(struct conn *c, char *body, size_t n); /* takes body */
/* Flushes, lingers, and goes. */
void conn_begin_closing(struct conn *c);
/* How many other connections this peer or key has. */
int conn_count_peer(const struct net *net, const struct conn *c, const char *name);

/* conn_request.c */
void conn_on_head(struct conn *c);
void conn_on_request(struct conn *c);
/* Ceilings that depend on more than this request, while its body comes. */
void conn_check_ceilings(struct conn *c);

/* conn_answer.c */
/* Counts what this connection's body holds in memory. */
void conn_count_body(struct conn *c, size_t n);
/* The client has gone: whoever works for it is told. */
void conn_cancel(struct conn *c);
void conn_answer_buf(struct conn *c, struct respond *r, struct buf *body); /* takes body's bytes */
void conn_answer_error(struct conn *c, const struct http_error *bad);
/* The error is the last thing that this connection hears. */
void conn_answer_and_close(struct conn *c, const struct http_error *bad);
/* Sends what history or worker have replied; r->body may be taken. */
void conn_answer_reply(struct conn *c, struct reply *r);
/* The error as a stream's last event. */
void conn_fail_stream(struct conn *c, const struct http_error *error);

#endif
