/*
 * What the cache's tests share: a pool of tiny blocks and a stand-in for the engine, whose "KV" at
 * a position is a hash of the owner and of every id up to it. A position that was taken from the
 * wrong block, place or owner shows at once.
 */
#ifndef HEARTH_TESTS_CACHE_FAKE_H
#define HEARTH_TESTS_CACHE_FAKE_H

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "cache/cache.h"

/* Two layers, two heads, dimension 4: 2,048 bytes a block. */
struct kv_pool *fake_pool(size_t n_blocks);
/* Positions that the first of the two layers sees; 0: all, as the other. With a period of 0 the
 * other sees no more either. Before fake_pool. */
extern int fake_window, fake_period;

/* The engine's pass: writes the KV of ids[seq->n_tokens, + n) under `salt` and commits it. */
void fake_compute(struct kv_seq *seq, uint64_t salt, const int32_t *ids, int n);
/* An abandoned pass: rubbish in every position that the sequence's blocks have past n_tokens; not
 * committed. */
void fake_scribble(struct kv_seq *seq);
/* Fails the test unless every committed position that is there holds what fake_compute writes;
 * fake_compute, unless all is there that the next position sees. */
void fake_verify(const struct kv_seq *seq, uint64_t salt, const int32_t *ids);
/* Fails the test unless the block that holds the last committed position is zero past it (after
 * cache_find, before a pass). */
void fake_verify_rest(const struct kv_seq *seq);

/* Fails the test unless what a pass up to position n writes to is zero, and no rubbish. */
void fake_verify_blank(const struct kv_seq *seq, int n);
/* Fills every free slot with rubbish, as blocks that others had would leave it. */
void fake_spoil(struct kv_pool *pool);

struct cache_root fake_root(const char *owner);
uint64_t fake_salt(const char *owner);

uint64_t fake_random(uint64_t *state);
int fake_below(uint64_t *state, int n); /* 0 … n − 1 */

/* cache_check, failing the test with its text. */
void fake_check(const struct cache *c);
/* Blocks that the cache has in the tree. */
size_t fake_in_tree(const struct cache *c);

/* Opens a lease, finds, computes the rest of ids[0, n) and publishes: a whole turn but its close.
 * Returns what was found. */
int fake_turn(struct cache *c, const char *owner, uint64_t who, const int32_t *ids, int n,
              struct cache_lease **ret);
/* The same, closed with its tail. */
int fake_whole_turn(struct cache *c, const char *owner, uint64_t who, const int32_t *ids, int n);

#endif
