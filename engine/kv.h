/*
 * KV blocks: the unit in which what the model has read is held, shared, cached and (later) written
 * to disk.
 *
 *   block = 32 positions, all layers:
 *           [layer][kv_head]{ K, V }        K and V of a head take the same number of bytes
 *
 *     F16   K [head_dim][32 pos] halves
 *           V [32 pos][head_dim] halves
 *     Q8_0  K [head_dim / 4][32 pos][4] int8, then its scales [head_dim / 32][32 pos], F16
 *           V [32 pos][head_dim] int8, then its scales [head_dim / 32][32 pos], F16
 *           value = scale · int8; a scale belongs to 32 (at the end: 16) dimensions of one
 *           position, never to several positions: a position's bytes depend on nothing but its own
 *           values, so a block's don't on how it was filled
 *
 *   A latent block (MLA) has one KV head of K alone: what it adds up are the keys themselves.
 *
 * K is transposed so that a score needs no horizontal sum (lane = position); V's lanes are head
 * dimensions. Bytes of positions not yet written are zero, always: 0 × stale NaN is NaN, and stale
 * bytes are somebody's words.
 *
 * Rules of ownership
 *   1. Blocks come from one pool with a byte budget over both sections; kv_take gives a zeroed
 *      block with one reference. A windowed section that is dropped makes room for another.
 *   2. Everything here belongs to the worker thread; references are plain counts. kv_ref before
 *      use, kv_unref once.
 *   3. A full block never changes. The block being filled is private: exactly one sequence appends
 *      to it, and no one else holds it.
 *   4. A sequence's n_tokens is committed by the engine at the end of a pass. Bytes past it are
 *      garbage of an abandoned pass and are overwritten before they are read; kv_seq_seal zeroes
 *      them before a block is shared.
 *
 * This is its own small library (needs base only), because the cache may know blocks but not the
 * engine.
 */
#ifndef HEARTH_ENGINE_KV_H
#define HEARTH_ENGINE_KV_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

#define KV_BLOCK 32 /* positions a block */
#define KV_SPAN 8   /* blocks an attention span: 256 positions */

enum kv_type { KV_F16, KV_Q8_0 };
#define KV_N_TYPES 2

/* The shape of every block of a model. */
struct kv_shape {
    enum kv_type type;
    int n_layers, n_kv_heads, head_dim;
    int n_sections;     /* 1, or 2: full and windowed layers */
    bool is_latent;     /* K alone: the values are the keys' first dimensions */
    size_t head_bytes;  /* K and V of one (layer, kv_head) */
    size_t layer_bytes; /* head_bytes * n_kv_heads */
    size_t block_bytes; /* of both sections: layer_bytes * n_layers, and a bit more where all layers
                         * are windowed; a multiple of 64 */
    int window;         /* positions that a windowed layer sees, its own included; 0: one section */
    int window_period;  /* each n-th layer is a full one; 0: none is */
    size_t full_bytes, window_bytes; /* of block_bytes, each section's */
};

/* Fills the derived sizes; ERR_INVAL for counts < 1, ERR_UNSUPPORTED for an unknown type or a head
 * dimension that Q8_0 can't hold (it takes multiples of 16), ERR_LIMIT on overflow. */
int kv_shape_init(struct kv_shape *ret, enum kv_type type, int n_layers, int n_kv_heads,
                  int head_dim, struct err *e) MUST_USE;

/* The shape of compressed keys and values, `dim` of one position and layer for all heads together.
 * Errors as above. */
int kv_shape_init_latent(struct kv_shape *ret, enum kv_type type, int n_layers, int dim,
                         struct err *e) MUST_USE;

/* Makes two sections of it: of each `period` layers (0: of no number) the last sees everything, the
 * others `window` positions. Where all layers see everything it stays one section; where none does
 * the full section holds nothing. */
void kv_shape_set_window(struct kv_shape *s, int window, int period);

struct kv_block {
    unsigned char *data;   /* full_bytes, 64-byte aligned */
    unsigned char *window; /* window_bytes, the same; NULL: the block is thin, or has one section */
    int n_refs;
    bool is_raw;        /* data: of kv_take_raw, and not filled yet */
    bool is_window_raw; /* window: the same */
    struct kv_pool *pool;
};

struct kv_pool;

/* Reserves address space for n_blocks (huge pages advised; memory is touched when a block is first
 * taken, or before that by kv_pool_touch). */
int kv_pool_new(const struct kv_shape *shape, size_t n_blocks, struct kv_pool **ret,
                struct err *e) MUST_USE;
void kv_pool_free(struct kv_pool *p); /* NULL is fine; all blocks must have been released */
const struct kv_shape *kv_pool_shape(const struct kv_pool *p);
/* In whole blocks, rounded down. */
size_t kv_pool_n_blocks(const struct kv_pool *p); /* the budget: what may be taken at once */
size_t kv_pool_n_free(const struct kv_pool *p);   /* of the budget */
size_t kv_pool_n_used(const struct kv_pool *p);   /* blocks at hand, thin ones too */
/* In bytes. */
size_t kv_pool_bytes_max(const struct kv_pool *p);  /* the budget */
size_t kv_pool_bytes_used(const struct kv_pool *p); /* more than that, after a smaller limit */
size_t kv_pool_bytes_free(const struct kv_pool *p); /* of the budget */
/* Makes the budget smaller than what was reserved, or larger again, up to that. What is in use
 * stays; nothing is taken while as much is. */
void kv_pool_set_limit(struct kv_pool *p, size_t n_blocks);

/* Slots whose pages the system has to hold: those in use, and free ones that were once. */
size_t kv_pool_bytes_resident(const struct kv_pool *p);
/*
 * Gives the pages of all free slots back to the system, and takes no huge pages any more until
 * kv_pool_relax: a kernel that gathers small pages into huge ones would bring back what was given
 * up. Returns how many bytes. A huge page that a block in use has a part of goes when the system
 * next splits it, which it does when it is short of memory.
 */
size_t kv_pool_trim(struct kv_pool *p);
void kv_pool_relax(struct kv_pool *p);

/* How many free slots of each section keep their pages at rest. */
struct kv_keep {
    size_t n_full, n_window;
};
/* Whether a section has twice as many, and was used since it was last made slim. */
bool kv_pool_has_slack(const struct kv_pool *p, struct kv_keep keep);
/*
 * A step of giving back what free slots have beyond that, in whole huge pages, which stay on.
 * Windowed sections are moved together for it: what they hold is theirs, where it lies isn't.
 * Nobody may have the address of one: no pass, no read or write runs. Returns how many bytes went;
 * kv_pool_has_slack tells whether there is more to do.
 */
size_t kv_pool_slim(struct kv_pool *p, struct kv_keep keep);

/* A zeroed block with one reference, or NULL when the budget is used up. */
struct kv_block *kv_take(struct kv_pool *p);
/* The same, but its bytes are anybody's: for what a file is to be read into. Whoever does that
 * clears is_raw; before anything else uses it, kv_block_zero_from(b, 0) or kv_block_copy does. */
struct kv_block *kv_take_raw(struct kv_pool *p);
/* The same without its windowed section, where there are two. */
struct kv_block *kv_take_thin(struct kv_pool *p);
/* A thin block gets a windowed section of anybody's bytes; false: the budget is used up. Where
 * there is one section, or it has both, nothing happens. */
bool kv_window_take(struct kv_block *b) MUST_USE;
/* The block is thin from now on. Nobody may need these positions any more. */
void kv_window_drop(struct kv_block *b);
/* A thin block takes over the section of another with the same positions, which is thin then. */
void kv_window_move(struct kv_block *to, struct kv_block *from);
/* Whether all of it is there. */
static inline bool kv_block_is_whole(const struct kv_block *b, const struct kv_shape *s)
{
    return s->n_sections == 1 || b->window;
}
/* How many windowed sections a sequence's end has, at most. */
size_t kv_pool_n_window(const struct kv_pool *p);
/* Touches the pages of up to n of the n_ahead slots that are taken next, so that taking them won't
 * wait for the system to find and clear memory. Returns how many those were; 0: none is left. */
size_t kv_pool_touch(struct kv_pool *p, size_t n_ahead, size_t n);
struct kv_block *kv_ref(struct kv_block *b);
void kv_unref(struct kv_block *b); /* NULL is fine; the last one gives the slot back */

/* Copies positions [0, n) of src into dst (both of one pool) and zeroes the rest. n <= 32. What
 * dst has src must have, unless n is 0. */
void kv_block_copy(struct kv_block *dst, const struct kv_block *src, int n_positions);
/* Zeroes positions [n, 32) of what is there. */
void kv_block_zero_from(struct kv_block *b, int n_positions);
/* Zeroes what is raw, and nothing else. */
void kv_block_settle(struct kv_block *b);

/* "f16", "q8_0": as options and reports name it. */
const char *kv_type_name(enum kv_type type);
/* The type of that name, in any case; false: none. */
bool kv_type_find(const char *name, enum kv_type *ret) MUST_USE;

/* Whether a layer's positions are in the windowed section. */
static inline bool kv_is_windowed(const struct kv_shape *s, int layer)
{
    return s->window && (s->window_period == 0 || (layer + 1) % s->window_period != 0);
}
/* Where K and V of a head begin, in bytes from where their section does; a latent block has no V.
 */
static inline size_t kv_k_offset(const struct kv_shape *s, int layer, int kv_head)
{
    if (s->window) { /* its place among its kind */
        const int n_full = s->window_period ? (layer + 1) / s->window_period : 0;
        layer = kv_is_windowed(s, layer) ? layer - n_full : n_full - 1;
    }
    return (size_t)layer * s->layer_bytes + (size_t)kv_head * s->head_bytes;
}
static inline size_t kv_v_offset(const struct kv_shape *s, int layer, int kv_head)
{
    return kv_k_offset(s, layer, kv_head) + s->head_bytes / 2;
}
/* The section that a layer's positions are in; NULL: windowed, and the block is thin. */
static inline unsigned char *kv_section(const struct kv_shape *s, const struct kv_block *b,
                                        int layer)
{
    return kv_is_windowed(s, layer) ? b->window : b->data;
}

/*
 * What of a run of blocks is usable.
 *
 *     n − W        n + 1 − W           n          position n sees [n + 1 − W, n) of others
 *        │ ░ ░ ░ ░ │ ▓ ▓ ▓ ▓ ▓ ▓ ▓ ▓ ▓ │
 *                ↑ kv_window_from(n)             every block that these lie in must be whole
 */
static inline int kv_window_from(const struct kv_shape *s, int n)
{
    const int first = n + 1 - s->window;
    return first > 0 && s->window ? first / KV_BLOCK : 0;
}
/* The largest n <= n_found so that positions from n on can be computed, when all full sections of
 * [0, n_found) are there, and of the windowed ones those that `has` says, which is asked from the
 * last block on downwards, for each once, as far as need be. */
int kv_usable(const struct kv_shape *s, int n_found, bool (*has)(void *ctx, int n_block),
              void *ctx);

/* Q8_0: scales a position has in each of K and V, and where they follow the int8. */
static inline int kv_n_scales(int head_dim)
{
    return (head_dim + 31) / 32;
}
static inline size_t kv_scales_offset(int head_dim)
{
    return (size_t)head_dim * KV_BLOCK;
}

/*
 * A sequence: the blocks of one turn, in order, and how many positions are committed. blocks[i]
 * holds positions [32 i, 32 i + 32). Blocks may reach past n_tokens (reserved ahead); the one that
 * holds position n_tokens is private.
 */
struct kv_seq {
    struct kv_block **blocks;
    int n_blocks, cap_blocks;
    int n_tokens;
};

void kv_seq_init(struct kv_seq *s);
void kv_seq_done(struct kv_seq *s); /* unrefs its blocks */
/* Appends a block, taking over the caller's reference; ERR_NOMEM (the caller keeps the
 * reference). */
int kv_seq_push(struct kv_seq *s, struct kv_block *b, struct err *e) MUST_USE;
/* Positions that the blocks at hand can hold. */
static inline int kv_seq_capacity(const struct kv_seq *s)
{
    return s->n_blocks * KV_BLOCK;
}
/* Zeroes what lies past n_tokens in its block: call before sharing a partial block. */
void kv_seq_seal(struct kv_seq *s);

#endif
