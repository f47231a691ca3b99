/*
 * Whether there is memory for what an offline command is to do: weights, KV and buffers together,
 * looked at before anything is allocated for them. A model that the machine has no room for would
 * be swapped, or killed half-way, and nothing measured of it.
 */
#ifndef HEARTH_DAEMON_OFFLINE_MEMORY_H
#define HEARTH_DAEMON_OFFLINE_MEMORY_H

#include <stdint.h>

#include "base/err.h"
#include "engine/engine.h"

struct offline_memory {
    int n_seqs, n_positions; /* KV of so many sequences of so many positions; 0: none yet */
    int n_logits;            /* rows of logits that are held */
    uint64_t bytes;          /* that are there; 0: what the system says */
};

/* engine_options.may_take; ctx is a struct offline_memory. ERR_LIMIT with the numbers. */
int offline_may_take(void *ctx, const struct engine_needs *n, struct err *e) MUST_USE;

/* Of KV that a question asks for, beside a model that is there: ERR_LIMIT. */
int offline_may_take_kv(uint64_t bytes, struct err *e) MUST_USE;

#endif
