/*
 * Continuous batching: which turns run, which rows the next pass takes, who waits for whom. Worker
 * thread only.
 *
 *   step:  end the canceled ─ admit ─ look into the cache ─ plan rows ─ reserve blocks ─
 *          pass ─ draw and send ─ publish ─ end the finished
 *
 * A run whose prefix is being read from disk takes no rows meanwhile; the others go on. When all
 * wait for the disk, the step does nothing and says so (is_stalled): the worker then sleeps until
 * there is mail.
 *
 * Of a step, a pass is the only part that takes time; everything else is between two passes.
 */
#ifndef HEARTH_DAEMON_BATCH_H
#define HEARTH_DAEMON_BATCH_H

#include "cache/cache.h"
#include "daemon/daemon.h"
#include "daemon/limits.h"
#include "daemon/pace.h"
#include "daemon/run.h"

struct batch {
    struct daemon *d;
    struct engine *engine;
    struct cache *cache;
    int parallel;
    struct run *running[LIMIT_PARALLEL]; /* oldest first */
    int n_running;
    struct run *waiting, **tail; /* FIFO; one that yielded stands at its head */
    int n_waiting;
    uint64_t n_arrived;
    bool must_end; /* the pass before was given up, and turns of it go on: the next one is not */
    bool is_full;  /* the head of the queue found no room, and nobody has left since */
    uint64_t n_prefills; /* passes with prefill rows */
    bool is_stalled; /* the last step found no rows: everybody waits for the disk */
    struct pace pace;
    int n_told_running, n_told_waiting; /* as they are in the counters */
    bool is_told_background;
};

/* Engine and cache are borrowed. */
void batch_init(struct batch *b, struct daemon *d, struct engine *engine, struct cache *cache);
/* Takes t; it comes back to the history thread when it has ended. */
void batch_add(struct batch *b, struct turn *t);
bool batch_is_idle(const struct batch *b);
/* Nothing but turns that nobody waits for, and that go on: it steps back behind other batches. */
bool batch_is_background(const struct batch *b);
/* One step. At most one pass. */
void batch_step(struct batch *b);
/* The disk has replied: what waited for it, or for room, looks again. */
void batch_wake(struct batch *b);
/* Ends all turns with a 503: the daemon stops. */
void batch_stop(struct batch *b);

/* Gives an ended turn to the history thread (also one that never ran). */
void batch_hand_back(struct daemon *d, struct turn *t);

#endif
