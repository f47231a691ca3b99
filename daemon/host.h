/*
 * A host: what the worker has of one model in memory: engine, KV pool, cache tree, and the turns
 * that run on it. Several hosts share the machine's memory (--memory), the disk tier and the
 * worker thread, which takes their steps in turn: one pass runs at a time, so that two models
 * never compete for the cores.
 *
 *     --memory   [ vectors │ weights, buffers │ KV: a window │ … ║ weights, buffers │ KV … ]
 *                                             first host         second
 *
 * Each host has the KV of one turn's window in any case; what is left is shared in equal parts,
 * and anew when one comes or goes. A pool's address space is reserved for all that the model could
 * have alone, so that its share can grow.
 */
#ifndef HEARTH_DAEMON_HOST_H
#define HEARTH_DAEMON_HOST_H

#include "cache/cache.h"
#include "daemon/batch.h"
#include "daemon/daemon.h"
#include "daemon/pressure.h"
#include "daemon/served.h"
#include "daemon/verify.h"
#include "daemon/verify_idle.h"

struct host {
    struct daemon *d;
    struct served *served;
    struct engine *engine;
    struct kv_pool *pool;
    struct cache *cache;
    int ctx;
    uint64_t fixed_bytes; /* weights and buffers */
    size_t block_bytes, n_window_blocks;
    size_t n_blocks; /* of its own share of memory, by host_load */
    struct pressure pressure;
    struct batch batch;
    struct verifier verifier;
    struct idle_verifier idle_verifier;
    struct load *leaving;   /* the order to leave, or NULL */
    int64_t leaves_at_us;   /* whatever hasn't been written then */
};

/* What a model may take. */
struct host_room {
    uint64_t memory_bytes; /* the whole budget, or what the others leave of it */
    uint64_t most_bytes;   /* what it could have alone: its pool is reserved for that */
    int ctx;               /* asked for; 0: what memory holds */
};

/* NULL: no memory. */
struct host *host_new(struct daemon *d, struct served *s);
/* Loads the model: on the worker, or on a loader thread while the worker serves others. */
int host_load(struct host *h, const struct host_room *room, struct err *e) MUST_USE;
/* Pool, cache and turns; worker, as all that follows. It shares `hub`'s disk tier, if there is one.
 * pins: all models'. */
int host_begin(struct host *h, const struct host_room *room, struct cache *hub,
               const struct load *pins, struct err *e) MUST_USE;
/* Worker: all but engine and tokenizer, which the history thread may still be using. */
void host_empty(struct host *h);
/* Frees what is left: nothing runs, the tier was left or closed. NULL is fine. */
void host_free(struct host *h);

/* Ends all turns with a 503, and what waits for the disk goes there: the daemon stops. */
void host_stop(struct host *h);
/* It is to go: what isn't on the disk yet is written. */
void host_leave(struct host *h, struct load *order);
/* Whether nothing of it is needed any more: no turns, no questions, all written or too late. */
bool host_has_left(const struct host *h);
/* Milliseconds until host_has_left wants to look at the clock; -1: not leaving. */
int host_leaves_ms(const struct host *h);

/* Milliseconds until host_slim has something to do; -1: not before something else happens. */
int host_slims_ms(const struct host *h);
/* When nothing has run for SLIM_MS: memory that a long prompt took goes back to the system. */
void host_slim(struct host *h);

/* What the hosts' pools may have now: kv_bytes in all. false: one still has more in use; call it
 * again when turns have ended. */
bool host_share(struct host *const *v, int n, uint64_t kv_bytes);

#endif
