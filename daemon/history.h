/*
 * The history thread: the only one that touches the database, and the place for everything that may
 * be slow before the model — parsing, loading the window, planning, rendering, tokenising. It takes
 * requests from the loop, answers those that need no model, makes turns of the others, and ends the
 * turns that come back.
 *
 * Handlers (daemon/api_*.c) are listed in one table in history.c. A handler either answers, or
 * submits a turn, or is parked behind its conversation's running turn, or returns an error, which
 * the router then answers in OpenAI's shape. Requests that need the model wait until it is loaded.
 * The router frees the request unless it was parked.
 */
#ifndef HEARTH_DAEMON_HISTORY_H
#define HEARTH_DAEMON_HISTORY_H

#include "base/json.h"
#include "daemon/daemon.h"
#include "daemon/request.h"
#include "daemon/turn.h"
#include "memory/memory.h"

struct served;

struct history {
    struct daemon *d;
    struct memory *memory;
    /* The model of the request or turn in hand (daemon/served.h): the default one, or what was
     * chosen. engine is NULL while it isn't in memory; never so in handlers of routes that need it,
     * once they have chosen. */
    struct served *served;
    struct engine *engine;
    int ctx;               /* positions a turn of it may have */
    const char *model_by;  /* who named it: "request", "conversation", "default" */
    bool has_begun;        /* the default model was loaded */
    struct mail *loading;  /* requests that wait for a model, oldest first */
    struct account *account; /* daemon/account.h; NULL: before the first turn */
    struct began *began;        /* daemon/began.h; NULL: nothing in it */
    struct resent_book *resent; /* daemon/resent_book.h; NULL: nothing in it */
    struct rendered *rendered; /* daemon/rendered.h; NULL: nothing in it */
    struct counts *counts;     /* daemon/counts.h; NULL: nothing is kept */
    struct catalog *catalog; /* daemon/catalog.h; NULL: nobody has asked yet */
    struct ahead *aheads;   /* cuts on their way (daemon/ahead.h) */
    struct ahead_import *imports; /* that grew without turns (daemon/ahead_import.h) */
    struct claim *claims;  /* conversations with a running turn, and who waits behind it */
    int n_embeds_out;      /* jobs at the embedder */
    bool is_embedding;     /* one of them is of messages */
    bool has_vectors;      /* the memory knows the embedding model */
    int n_turns_out;       /* at the worker, and deletions that are there */
    struct mail *for_room; /* requests and turns that the disk had no room for (daemon/room.h) */
    bool is_room_asked;
    bool is_stopping;
};

/*
 * Starts the thread, which opens <state_dir>/history.db (the directory exists, the lock is held);
 * history_opened says how that went. The mailboxes of `d` are initialised. Stopping: post MAIL_STOP
 * to d->history. The thread ends when every turn it gave to
 * the worker has come back (so the worker gets its MAIL_STOP before, or at the same time); it
 * closes its mailbox, closes the database and posts MAIL_STOPPED (mail allocated with malloc; the
 * loop frees it). Later pushes are refused.
 */
int history_start(struct daemon *d, struct err *e) MUST_USE;
/* Waits until the database is open and d->pins are there; memory_open's error, and then the thread
 * has nothing more to do and is to be joined. From any thread, as often as one likes: the model is
 * loaded meanwhile. */
int history_opened(struct err *e) MUST_USE;
/* The model is loaded, or a client has gone: who waits is looked at. From any thread; takes no
 * memory, so it can't fail. */
void history_wake(struct daemon *d);
/* Waits for the thread's end. Call before worker_join. */
void history_join(struct daemon *d);

/* What a handler returns; a negative code means *ret holds the error to answer. */
#define HANDLED 0
#define PARKED 1

/* "/v1/conversations/{}/items/{}": what stood at each {}. */
struct route_args {
    const char *v[2];
    int n;
};
typedef int (*history_handler)(struct history *h, struct request *r, const struct route_args *args,
                               struct http_error *ret);

/* Routes are declared in history.c; one line each: {"POST", "/v1/chat/completions", api_chat,
 * needs_model}. */
int api_chat(struct history *h, struct request *r, const struct route_args *args,
             struct http_error *ret);
int api_completions(struct history *h, struct request *r, const struct route_args *args,
                    struct http_error *ret);
int api_catalog(struct history *h, struct request *r, const struct route_args *args,
                struct http_error *ret);
int api_models(struct history *h, struct request *r, const struct route_args *args,
               struct http_error *ret);
int api_model(struct history *h, struct request *r, const struct route_args *args,
              struct http_error *ret);
int api_status(struct history *h, struct request *r, const struct route_args *args,
               struct http_error *ret);

/* api_responses.c */
int api_response_create(struct history *h, struct request *r, const struct route_args *args,
                        struct http_error *ret);
int api_input_tokens(struct history *h, struct request *r, const struct route_args *args,
                     struct http_error *ret);
int api_response_get(struct history *h, struct request *r, const struct route_args *args,
                     struct http_error *ret);
int api_response_delete(struct history *h, struct request *r, const struct route_args *args,
                        struct http_error *ret);
int api_response_input_items(struct history *h, struct request *r, const struct route_args *args,
                             struct http_error *ret);
/* api_conversations.c */
int api_conversation_create(struct history *h, struct request *r, const struct route_args *args,
                            struct http_error *ret);
int api_conversation_list(struct history *h, struct request *r, const struct route_args *args,
                          struct http_error *ret);
int api_conversation_get(struct history *h, struct request *r, const struct route_args *args,
                         struct http_error *ret);
int api_conversation_update(struct history *h, struct request *r, const struct route_args *args,
                            struct http_error *ret);
int api_conversation_delete(struct history *h, struct request *r, const struct route_args *args,
                            struct http_error *ret);
int api_item_create(struct history *h, struct request *r, const struct route_args *args,
                    struct http_error *ret);
int api_item_list(struct history *h, struct request *r, const struct route_args *args,
                  struct http_error *ret);
int api_item_get(struct history *h, struct request *r, const struct route_args *args,
                 struct http_error *ret);
int api_item_delete(struct history *h, struct request *r, const struct route_args *args,
                    struct http_error *ret);
/* api_tokenize.c */
int api_tokenize(struct history *h, struct request *r, const struct route_args *args,
                 struct http_error *ret);

/* api_stats.c */
int api_stats(struct history *h, struct request *r, const struct route_args *args,
              struct http_error *ret);
int api_savings(struct history *h, struct request *r, const struct route_args *args,
                struct http_error *ret);

/* api_cache.c */
int api_cache_list(struct history *h, struct request *r, const struct route_args *args,
                   struct http_error *ret);
int api_cache_drop(struct history *h, struct request *r, const struct route_args *args,
                   struct http_error *ret);
int api_cache_pin(struct history *h, struct request *r, const struct route_args *args,
                  struct http_error *ret);
int api_cache_unpin(struct history *h, struct request *r, const struct route_args *args,
                    struct http_error *ret);
/* api_verify.c */
int api_verify(struct history *h, struct request *r, const struct route_args *args,
               struct http_error *ret);

/* Answers r with a JSON tree (taken, freed) or with bytes (taken). Both count as r's last reply. */
void history_reply_json(struct history *h, const struct request *r, int status, json *j);
void history_reply(struct history *h, const struct request *r, int status, struct buf *body);

/*
 * One turn at a time per conversation: true, and the conversation is the caller's until
 * history_release (or until the turn with store.is_claimed ends). False: r now waits behind the
 * running turn and its handler will be called again from the start; return PARKED. ERR_NOMEM is a
 * false with r not parked: *is_parked tells.
 */
bool history_claim(struct history *h, int64_t conversation, struct request *r, bool *ret_is_parked);
void history_release(struct history *h, int64_t conversation);

/* Takes those out of a list of requests whose clients have gone; returns its end. */
struct mail **history_drop_canceled(struct history *h, struct mail **at);
/* Calls the handler of a request, and takes it. */
void history_handle(struct history *h, struct request *r);
/* r waits for the model: PARKED. Turns among them are bounded by the loop's admission, the others
 * here: then a 503. */
int history_park(struct history *h, struct request *r, struct served *s, struct http_error *ret);

/* Hands a prepared turn over: sends wire->begin when it streams, then gives it to the worker. Takes
 * t. The request has had its answer then. */
void history_submit(struct history *h, struct turn *t);

/* api_embeddings.c */
int api_embeddings(struct history *h, struct request *r, const struct route_args *args,
                   struct http_error *ret);
/* api_context.c, api_pins.c, api_search.c */
int api_context_get(struct history *h, struct request *r, const struct route_args *args,
                    struct http_error *ret);
int api_context_set(struct history *h, struct request *r, const struct route_args *args,
                    struct http_error *ret);
int api_cut(struct history *h, struct request *r, const struct route_args *args,
            struct http_error *ret);
int api_summary_get(struct history *h, struct request *r, const struct route_args *args,
                    struct http_error *ret);
int api_summary_set(struct history *h, struct request *r, const struct route_args *args,
                    struct http_error *ret);
int api_dropped(struct history *h, struct request *r, const struct route_args *args,
                struct http_error *ret) MUST_USE;
int api_pin_list(struct history *h, struct request *r, const struct route_args *args,
                 struct http_error *ret);
int api_pin_add(struct history *h, struct request *r, const struct route_args *args,
                struct http_error *ret);
int api_pin_remove(struct history *h, struct request *r, const struct route_args *args,
                   struct http_error *ret);
int api_search(struct history *h, struct request *r, const struct route_args *args,
               struct http_error *ret);

#endif
