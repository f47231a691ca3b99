/* What a replay measured, turn by turn, and the sums and percentiles over turns. */
#ifndef HEARTH_CLIENT_REPLAY_STATS_H
#define HEARTH_CLIENT_REPLAY_STATS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

#define REPLAY_UNKNOWN (-1) /* of a count that the server didn't tell */

/* One answered turn. Counts are tokens, REPLAY_UNKNOWN where the server doesn't say. */
struct replay_turn {
    size_t conversation, turn; /* both from 1 */
    size_t restarts;           /* of the daemon before this turn */
    bool is_restored;          /* a restart lies between it and its conversation's turn before */
    int64_t prompt, cached, ram, disk, shared, computed, written;
    int64_t ttft_us;   /* sent to first text; REPLAY_UNKNOWN: no text came */
    int64_t decode_us; /* first text to last text */
    int64_t total_us;  /* sent to the end of the reply */
    double saved_ms;   /* by the server's account; NaN: not told */
    char finish[24];   /* why it ended */
    char answer[17];   /* the text's hash, 16 hex digits: equal texts, equal digits */
};

/* Of several turns. Each sum is over those that told it: REPLAY_UNKNOWN (NaN) when none did. */
struct replay_sum {
    size_t n;
    int64_t prompt, cached, ram, disk, shared, computed, written;
    double hit_rate;                 /* cached of prompt, over turns that told both; 0 … 1 */
    double ttft_p50_ms, ttft_p95_ms; /* NaN: no turn brought text */
    double tokens_per_s;             /* written after the first, by the time they took */
    double saved_ms;
};

/*
 * The p-th percentile (0 … 100) of n ascending values, interpolated between the two nearest (as
 * NumPy does: rank p/100 × (n − 1)). NaN when n is 0.
 */
double replay_percentile(const double *ascending, size_t n, double p);

/* Over the turns with this number; turn 0: over all. ERR_NOMEM. */
int replay_sum(const struct replay_turn *turns, size_t n, size_t turn, struct replay_sum *ret,
               struct err *e) MUST_USE;
/* The highest turn number; 0 when n is 0. */
size_t replay_last_turn(const struct replay_turn *turns, size_t n);

#endif
