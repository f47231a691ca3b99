/*
 * The hash of something large, by as many threads as there are: BLAKE2b-256 of each leaf of 64 KiB,
 * then of the size and the leaves' hashes in a row.
 *
 *     data    [ leaf 0 │ leaf 1 │ … │ a shorter one ]
 *     root  = BLAKE2b-256("hearth tree 1\0" │ size in 64 bits │ hash 0 │ hash 1 │ …)
 *
 * Four leaves at a time go through the lanes of AVX2, where the CPU has it, at twice the speed of
 * one; the hashes are the same. It isn't BLAKE2bp, whose leaves are strided by blocks: here each
 * piece of the data can be hashed by itself, whoever comes to it.
 */
#ifndef HEARTH_BASE_HASH_TREE_H
#define HEARTH_BASE_HASH_TREE_H

#include <stddef.h>
#include <stdint.h>

#include "base/hash.h"

#define HASH_LEAF_BYTES ((size_t)64 << 10)

/* Leaves of n bytes; 0 of none. */
size_t hash_n_leaves(size_t n);

/* Hashes leaves [first, first + count) of the n bytes of data into ret[first …][HASH_BYTES].
 * Different leaves may be hashed at the same time. */
void hash_leaves(const void *data, size_t n, size_t first, size_t count,
                 uint8_t (*ret)[HASH_BYTES]);
/* The same by libsodium alone: what the other must be equal to. */
void hash_leaves_plain(const void *data, size_t n, size_t first, size_t count,
                       uint8_t (*ret)[HASH_BYTES]);

/* The root over the hashes of all leaves of n bytes. */
void hash_root(uint8_t (*leaves)[HASH_BYTES], size_t n, uint8_t ret[HASH_BYTES]);

#endif
