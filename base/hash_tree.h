/*
 * The hash of something large, by as many threads as there are: XXH3-128 of each leaf of 64 KiB,
 * then BLAKE2b-256 of the size and the leaves' sums in a row.
 *
 *     data    [ leaf 0 │ leaf 1 │ … │ a shorter one ]
 *     root  = BLAKE2b-256("hearth tree 2\0" │ size in 64 bits │ sum 0 │ sum 1 │ …)
 *
 * What it names are weights, so that no file's KV blocks are taken for another's. It is made
 * against accident: two files that differ have one root once in 2^128, a damaged or half-written
 * copy included. It is not made against forgery. Who makes a file whose sums are those of another,
 * which XXH3 doesn't prevent, and has it run by somebody who runs the other too, makes blocks of
 * the one be found by the other; but whoever has a file of his run as a model decides what it
 * answers anyway. In turn a first start reads weights at the memory's pace: BLAKE2b's leaves took
 * as long as packing does, and about as long as all else.
 */
#ifndef HEARTH_BASE_HASH_TREE_H
#define HEARTH_BASE_HASH_TREE_H

#include <stddef.h>
#include <stdint.h>

#include "base/hash.h"
#include "base/sum.h"

#define HASH_LEAF_BYTES ((size_t)64 << 10)

/* Leaves of n bytes; 0 of none. */
size_t hash_n_leaves(size_t n);

/* Sums leaves [first, first + count) of the n bytes of data into ret[first …][SUM_BYTES]. Different
 * leaves may be summed at the same time. */
void hash_leaves(const void *data, size_t n, size_t first, size_t count,
                 uint8_t (*ret)[SUM_BYTES]);

/* The root over the sums of all leaves of n bytes. */
void hash_root(uint8_t (*leaves)[SUM_BYTES], size_t n, uint8_t ret[HASH_BYTES]);

#endif
