/*
 * The cache and its leases, for the files of this room.
 *
 *     lease.path     n0 ─ n1 ─ n2                      pinned nodes of the tree
 *     seq.blocks    [ b0 │ b1 │ b2 │ b3 │ b4 │ b5 ]    b0–b2: n0–n2's blocks; b3–b5: private (b5
 * reserved ahead) seq.n_tokens  ───────────────────────┘           at least 32 × n_path
 */
#ifndef HEARTH_CACHE_INSIDE_H
#define HEARTH_CACHE_INSIDE_H

#include "cache/cache.h"
#include "cache/tree.h"

struct cache {
    struct kv_pool *pool;
    struct tree tree;
    struct cache_lease *leases; /* open ones, in a ring through next/prev */
    uint64_t n_found_tokens, n_missed_tokens;
    uint64_t n_evicted_blocks, n_adopted_blocks;
};

struct cache_lease {
    struct cache *cache;
    struct cache_lease *next, *prev;
    struct node *root;
    struct node **path; /* [n_path of cap_path]: path[i]->block == seq.blocks[i] */
    int n_path, cap_path;
    struct kv_seq seq;
    uint64_t who;
    int64_t cost_us_per_token; /* the last one that was told */
    bool has_asked;            /* cache_find's first call is behind it */
};

#endif
