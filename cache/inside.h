/*
 * The cache and its leases, for the files of this room.
 *
 *     lease.path     n0 ─ n1 ─ n2                      pinned nodes of the tree
 *     seq.blocks    [ b0 │ b1 │ b2 │ b3 │ b4 │ b5 ]    b0–b2: n0–n2's blocks; b3–b5: private (b5
 * reserved ahead) seq.n_tokens  ───────────────────────┘           at least 32 × n_path
 */
#ifndef HEARTH_CACHE_INSIDE_H
#define HEARTH_CACHE_INSIDE_H

#include "base/ids.h"
#include "cache/cache.h"
#include "cache/disk.h"
#include "cache/tree.h"

struct cache {
    struct kv_pool *pool;
    struct tree tree;
    struct cache_lease *leases; /* open ones, in a ring through next/prev */
    uint64_t n_found_tokens, n_missed_tokens;
    uint64_t n_evicted_blocks, n_adopted_blocks;
    size_t bytes_given_up; /* of the pool, that the cache doesn't grow into (shrink.c) */
    /* The disk tier (spill.c, restore.c). */
    struct disk *disk; /* NULL: none */
    int64_t tail_idle_us;
    int n_writing, n_reading; /* jobs that the disk has */
    int64_t rest_until_us;    /* a write has failed */
    size_t n_turn_blocks;     /* what pins leave in any case */
    /* Samples (sample.c): a ring of ids. */
    int sample_every;
    uint64_t n_sampling; /* restored blocks that were asked about */
    size_t first_sample, n_samples;
    uint8_t samples[CACHE_SAMPLES_MAX][HASH_BYTES];
    bool is_order_stale;      /* tails were written since the order of use was saved */
};

struct restore_job;


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
    /* Restoring (restore.c). */
    struct restore_job *reads; /* under way, in order */
    bool is_broken;            /* one failed: what comes after it is of no use */
    struct cache_found restored;
    /* The tail that the disk had: its file goes when something longer is kept. */
    uint8_t tail_id[HASH_BYTES];
    int tail_block, tail_count; /* its place, and 0: none */
    /* Windowed layers (window.c): of the path, the first so many were passed. */
    int n_passed;
    bool is_closing; /* it needs nothing any more */
    /* Proof. */
    bool is_proof;
    int proof_at; /* the block in hand */
    bool is_tainted; /* what isn't shared yet may come of a bad block: it stays private */
    bool is_sampled; /* the restored tail at sampled_block is */
    int sampled_block;
};

/* Where a block's sections are for the disk; NULL: their sizes alone. */
static inline struct record_data block_data(const struct cache *c, const struct kv_block *b)
{
    const struct kv_shape *s = kv_pool_shape(c->pool);
    return (struct record_data){.full = b ? b->data : NULL,
                                .window = b ? b->window : NULL,
                                .full_bytes = s->full_bytes,
                                .window_bytes = s->window_bytes};
}

/* lease.c, for restore.c and verify.c */
/* The path's blocks [n_path, …) of ids[0, n_max) that the tree has, put behind the path but not
 * taken; returns how many. There must be room for them. */
int lease_walk(const struct cache_lease *l, const int32_t *ids, int n_max);
/* Keeps the first n positions, n a multiple of 32 within the path; what is behind stays reserved,
 * as far as it is the lease's own. */
void lease_cut(struct cache_lease *l, int n);
struct node *lease_end(const struct cache_lease *l);
int lease_path_reserve(struct cache_lease *l, int n, struct err *e) MUST_USE;
bool lease_adopt(struct cache_lease *l, struct node *n);
/* The disk's blocks of the path are in use, the front ones last. */
void lease_touch_disk(const struct cache_lease *l);
/* Hangs the sequence's next block, full and private, under the path's end. who: computed it. */
int lease_publish(struct cache_lease *l, const int32_t *ids, uint64_t who, struct node **ret,
                  struct err *e) MUST_USE;

/* shrink.c: a block for a sequence's own use, evicting for it; NULL when leases hold all. Raw: its
 * bytes are anybody's. */
struct kv_block *lease_take_block(struct cache *c);
struct kv_block *lease_take_raw(struct cache *c);
struct kv_block *lease_take_thin(struct cache *c); /* raw */
/* b gets a windowed section, if it misses one: raw. false: leases hold all. */
bool lease_take_window(struct cache *c, struct kv_block *b);
/* Bytes that are free or could be had by evicting. */
size_t shrink_room(const struct cache *c);

/* spill.c */
/* A whole block or tail is new in the tree. Nothing without a tier. */
void spill_add(struct cache *c, struct node *n);
void spill_written(struct cache *c, struct disk_job *job);
/* restore.c */
void restore_arrived(struct cache *c, struct disk_job *job);
/* The lease closes: nothing that is still being read concerns it. */
void restore_forget(struct cache_lease *l);
/* What is being read from block n on isn't taken; first_id not NULL: if block n begins with it. */
void restore_discard(struct cache_lease *l, int n_block, const int32_t *first_id);
/* verify.c, trace.c */
void proof_arrived(struct cache *c, struct disk_job *job);
void trace_arrived(struct disk_job *job);
/* sample.c: a whole block was restored; a tail was; the sampled tail is in this node now. */
void sample_block(struct cache_lease *l, const struct node *n);
void sample_tail(struct cache_lease *l, int n_block);
void sample_kept(struct cache_lease *l, const struct node *n);


#endif
