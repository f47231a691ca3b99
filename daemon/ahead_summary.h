/*
 * Summaries by the model, for cuts that are made ahead: see ahead.h. The inside of both files.
 */
#ifndef HEARTH_DAEMON_AHEAD_SUMMARY_H
#define HEARTH_DAEMON_AHEAD_SUMMARY_H

#include "base/buf.h"
#include "daemon/history.h"
#include "daemon/turn.h"
#include "memory/plan.h"

#define AHEAD_SUMMARY_BYTES (64u << 10)

/* A cut on its way. History thread; a turn of the background points to it by `api`. */
struct ahead {
    struct ahead *next;
    char *owner;
    int64_t conversation, anchor; /* rows */
    enum plan_strategy strategy;
    int max_tokens;               /* as the last turn asked */
    struct cancel *cancel;
    struct buf summary; /* what the model wrote so far; empty: sentences are picked */
    int n_tries;
    size_t n_chunks; /* of messages that leave, summed up */
    int64_t cut;     /* row, 0: not stored yet */
};

/* Whether the configured summariser for this strategy is the model. */
bool ahead_is_by_model(const struct history *h, enum plan_strategy s);
/* Asks the model; ends in ahead_cut, with or without a summary. */
void ahead_summarise(struct history *h, struct ahead *a);
/* ahead.c: what a turn of the job has left in the cache is the conversation's, and goes with it: at
 * once, where the job was canceled because words of it were deleted. At the end of each turn. */
void ahead_settle(struct history *h, const struct ahead *a, const struct turn *t);
/* ahead.c: goes on with the cut. The job ends with it. */
void ahead_cut(struct history *h, struct ahead *a);

#endif
