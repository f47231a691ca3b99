/*
 * Token ids through the engine for the offline commands: a sequence with its own blocks, fed in
 * slices, alone or beside others, fresh or on the blocks of an earlier request.
 */
#ifndef HEARTH_DAEMON_OFFLINE_PASS_H
#define HEARTH_DAEMON_OFFLINE_PASS_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "engine/engine.h"

#define OFFLINE_CHUNK 512    /* ids a pass, unless told otherwise */
#define OFFLINE_BATCH_MAX 64 /* sequences beside */
#define OFFLINE_ROWS_AT_ONCE 32 /* whose logits are held: n_vocab floats each */

struct offline_pass {
    struct engine *engine;
    const int32_t *ids; /* [n_ids] */
    int n_ids;
    int chunk;    /* ids a pass, >= 1 */
    int n_cached; /* so many are prefilled by an earlier request; < n_ids */
    int n_batch;  /* random sequences that decode a token in each pass */
};

/* The logits after the last id, ret[n_vocab]. ERR_INVAL, and the errors of engine_pass. */
int offline_last_logits(const struct offline_pass *p, float *ret, struct err *e) MUST_USE;

/* Calls on_row for every position in order with its logits[n_vocab]; a non-zero answer stops. Cold,
 * alone. */
typedef int (*offline_row_fn)(void *ctx, int position, const float *logits, struct err *e);
int offline_all_logits(const struct offline_pass *p, offline_row_fn on_row, void *ctx,
                       struct err *e) MUST_USE;

/* log Σ exp(x[i]), of n values, in double. */
double offline_log_sum_exp(const float *x, int n);

#endif
