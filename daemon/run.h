/*
 * A run: what the worker keeps of a turn while it runs it. Worker thread only.
 *
 *      ids      [ prompt ………………………………… | out … ]      what the sequence holds or is about to
 *      seq      [ n_tokens committed ……… ]
 *                                        └ pending: 1 row when decoding, more while reading the
 *                                          prompt (or reading it again after a yield)
 *
 * One rule covers both phases: a pass takes some of the pending ids; when it takes the last, the
 * row's logits give the next id.
 */
#ifndef HEARTH_DAEMON_RUN_H
#define HEARTH_DAEMON_RUN_H

#include "cache/cache.h"
#include "daemon/daemon.h"
#include "daemon/lookup.h"
#include "daemon/turn.h"
#include "engine/sample.h"
#include "engine/stop.h"

struct run {
    struct run *next; /* in the queue of those that wait */
    struct turn *t;
    struct daemon *d;
    struct engine *engine;
    uint64_t order; /* of arrival: the youngest has the largest */
    struct cache_root root;
    struct cache_lease *lease; /* NULL while waiting */
    struct ids ids;
    struct sampler *sampler; /* keeps its place over a yield, and so do stop and ids */
    struct stop *stop;
    float *logits;    /* [n_vocab], [1 + LOOKUP_DRAFT_MAX, n_vocab] once there was a draft */
    bool has_draft_rows;
    struct lookup lookup;
    int n_rows;       /* of the pass that is being made */
    int n_drafts;     /* and, behind the pending id, so many drafted ones */
    int32_t row_ids[1 + LOOKUP_DRAFT_MAX]; /* both */
    int n_published;  /* blocks */
    bool is_awaiting; /* another turn is computing its prefix, or the disk is reading it */
    bool has_asked_disk;
    int64_t t_restore; /* when reading began, 0: nothing is being read */
    size_t n_flushed; /* bytes of the text that the database has */
    int64_t t_flushed;
};

/* Takes over neither t nor engine. NULL: t has failed (turn_fail) for lack of memory or a parameter
 * the sampler refuses. */
struct run *run_new(struct daemon *d, struct engine *engine, struct turn *t);
/* Closes the lease (keeping nothing) and frees; not the turn. NULL is fine. */
void run_free(struct run *r);

/* Opens the lease, finds what is cached and reserves blocks for the rest of the prompt. ERR_NOMEM:
 * no room now; the lease is closed again. */
int run_start(struct run *r, struct cache *c, struct err *e) MUST_USE;
/* Looks into the cache for more of the pending ids. */
void run_find(struct run *r);
/* Asks the disk for what RAM lacks, once a start: true when something is on its way. */
bool run_restore(struct run *r);
/* Whether the disk still reads for it; the first time that it doesn't, counts what came. */
bool run_is_restoring(struct run *r);
/* Gives what it has to the tree. The run can be started again. */
void run_leave(struct run *r);
/* Takes nothing of its unpublished blocks into the tree: what they hold isn't to be trusted. */
void run_abandon(struct run *r);

struct kv_seq *run_seq(const struct run *r);
int run_pending(const struct run *r);

/* Of a run that decodes: drafts what may follow its pending id, into row_ids and n_drafts, where
 * that pays (`cost`: see lookup_draft; NULL: not now). */
void run_draft(struct run *r, const double *cost);
/* After a pass that took the run's last pending id: draws the next one from r->logits, sends what
 * may be sent, and sets t->finish when that was the end. A warming turn ends there. While what was
 * drawn is what was drafted, the next row's follows; rows of other drafts are taken back. */
void run_draw(struct run *r);
/* Shares the blocks that the pass has filled. */
void run_publish(struct run *r, int64_t cost_us_per_token);
/* Sends the text so far to the database when the last time is long enough ago. */
void run_flush(struct run *r);

#endif
