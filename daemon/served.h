/*
 * The models that one daemon serves: --model's, and those in the models' directories that run. The
 * history thread decides which of them are in memory; the worker brings them in and out.
 *
 *                 somebody asks                  loaded
 *        OUT ───────MAIL_LOAD──────► LOADING ───MAIL_LOADED───► IN
 *         ▲                             │ failed: who waits is    │ nobody uses it, and
 *         ├─────────────────────────────╯ told                    │ room is wanted, or
 *         ╰──────────MAIL_UNLOADED────── LEAVING ◄──MAIL_UNLOAD───╯ --idle-unload
 *
 * A request whose model isn't in waits in history.loading, whole, in the order they came
 * (served_wait.c); its handler starts again once the model is there. One model is loaded at a
 * time. When the next one doesn't fit beside the others, the one that rested longest leaves; when
 * all are busy, the one that was used least recently is drained: its running turns go on to their
 * ends, and who asks for it meanwhile waits in line behind the model that was asked for before. So
 * no model starves, and one with turns in progress never leaves.
 *
 * What of a model is used elsewhere (engine, tokenizer) belongs to whoever has a turn of it out:
 * n_out says how many those are.
 */
#ifndef HEARTH_DAEMON_SERVED_H
#define HEARTH_DAEMON_SERVED_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/json.h"
#include "base/thread.h"
#include "daemon/history.h"
#include "daemon/known.h"
#include "daemon/request.h"

#define SERVED_ID_BYTES 256

enum served_state { SERVED_OUT, SERVED_LOADING, SERVED_IN, SERVED_LEAVING };

struct host;

struct served {
    char id[SERVED_ID_BYTES]; /* const once others can see it, as is the path */
    char *path;
    bool is_default;
    _Atomic int state;    /* enum served_state; the history thread's */
    _Atomic int permille; /* LOADING: how far */
    /* Of turns that ended. */
    _Atomic uint64_t turns, prompt_tokens, cached_tokens, generated_tokens;
    _Atomic uint64_t loads, unloads;
    _Atomic uint64_t weights_bytes, kv_bytes, kv_bytes_max; /* while IN */
    _Atomic uint64_t block_bytes; /* of KV; once it was loaded */
    /* Set by the worker before it says that the model is in. */
    struct engine *engine;
    int ctx;
    uint64_t fixed_bytes;  /* weights and buffers */
    uint64_t window_bytes; /* KV of one turn's window: what it has in any case */
    struct host *host;     /* the worker's */
    /* The history thread's. */
    int n_out;             /* turns and questions at the worker */
    bool is_draining;      /* nothing new begins */
    bool must_be_alone;    /* it didn't fit beside another */
    int64_t used_us;
};

/* An order to the worker, and its answer: MAIL_LOAD, MAIL_LOADED; MAIL_UNLOAD, MAIL_UNLOADED. */
struct load {
    struct mail mail;
    struct served *served;
    int ctx;             /* positions a turn is to have; 0: what memory holds */
    uint64_t need_bytes; /* weights, buffers and a window, as far as that is known before */
    struct memory_block_pinned *pins; /* [n_pins], all models'; owned */
    size_t n_pins;
    int rc;
    struct err err;
};
void load_free(struct load *l); /* NULL is fine */

/* --model's: the first. ERR_NOMEM. Before the worker begins. */
int served_start(struct daemon *d, struct err *e) MUST_USE;
void served_free_all(struct daemon *d);

/* From here on handlers work with s (NULL: with none): history.served, engine, ctx. */
void served_use(struct history *h, struct served *s);
/* What every mail begins with: the default model if it is in. */
void served_use_default(struct history *h);

/*
 * The model that a request names: HANDLED, and served_use was called; PARKED, r waits for it and
 * its handler is called again from the start; or an error. name NULL, "" and "default": --model's.
 * Any other name is one when it is the only model; else 404 model_not_found.
 */
int served_choose(struct history *h, struct request *r, const char *name,
                  struct http_error *ret) MUST_USE;
/* The same for a body with a "model". */
int served_choose_body(struct history *h, struct request *r, const json *body,
                       struct http_error *ret) MUST_USE;
/* The same for a query with one, or the default. */
int served_choose_query(struct history *h, struct request *r, struct http_error *ret) MUST_USE;
/* The same for a query with one, or else the model that answered last in the conversation. */
int served_choose_conversation(struct history *h, struct request *r,
                               const struct memory_conversation *c,
                               struct http_error *ret) MUST_USE;
/* The same for the conversation of that id, or its error. */
int served_choose_path(struct history *h, struct request *r, const char *id,
                       struct http_error *ret) MUST_USE;
/* The conversation's model while it is in memory, else none: nobody waits. */
void served_use_path(struct history *h, const struct request *r, const char *id);
/* What the cache calls a model that is in memory; false: it isn't. */
bool served_known(const struct served *s, struct known_model *ret);
/* "model", "model_by" of a reply: whose tokens it tells, and who named that model. */
void served_name(const struct history *h, json *reply);

/* A turn of it has come back; one that waits for room to be stored comes twice, and counts once. */
void served_count(struct served *s, const struct turn *t);
/* What the worker has done. Both take l. */
void served_loaded(struct history *h, struct load *l);
void served_unloaded(struct history *h, struct load *l);
/* After every mail: lets go on who waited, and orders what is to come or go next. */
void served_step(struct history *h);
/* Milliseconds until a model has been idle for long enough, or somebody who waits is to hear of it,
 * for mailbox_wait; -1: neither will be. */
int served_due_ms(const struct history *h);

/* The entry of a model that is known, or NULL. */
struct served *served_of_path(const struct daemon *d, const char *path);
const char *served_state_name(int state);

#endif
