/*
 * Giving back: RAM when the machine is short of it, files when the history needs their room. Worker
 * thread.
 *
 *     pool   [ live │ cached │ free ]            a turn takes: free, else a spare windowed section
 *                                                (window.h), else the next victim's
 *                            ▲
 *                        allowed                 after cache_shrink: while more is used than this,
 *                                                the next victim's first, then free
 *
 * The ceiling is soft. It keeps the cache from growing into the memory that it has just given up; a
 * running turn gets what the budget has, whatever the ceiling says. It rises again step by step,
 * and is gone when it reaches the budget.
 */
#include <assert.h>

#include "base/sys.h"
#include "base/thread.h"
#include "cache/inside.h"
#include "cache/window.h"

size_t shrink_room(const struct cache *c)
{
    const struct kv_shape *s = kv_pool_shape(c->pool);
    const size_t n_writing = (size_t)c->n_writing; /* evicting such a block gives no room now */
    const size_t writing = n_writing * s->block_bytes;
    size_t idle = c->tree.n_idle * s->full_bytes + c->tree.n_idle_windows * s->window_bytes;
    idle = idle > writing ? idle - writing : 0;
    if (c->tree.spare.n > 0) {
        idle += window_n_spare_leased(c) * s->window_bytes;
    }
    const size_t used = kv_pool_bytes_used(c->pool), max = kv_pool_bytes_max(c->pool);
    const size_t held = used - (idle < used ? idle : used);
    return held < max ? max - held : 0;
}

size_t cache_room(const struct cache *c)
{
    return shrink_room(c) / kv_pool_shape(c->pool)->block_bytes;
}

/* The cheapest thing goes: a windowed section that somebody may miss, a block, or a section that
 * isn't on disk yet. false: leases and pins hold all. */
static bool evict(struct cache *c)
{
    if (window_evict(c, false)) {
        return true;
    }
    if (tree_evict(&c->tree)) {
        c->n_evicted_blocks++;
        return true;
    }
    return window_evict(c, true);
}

static bool is_over(const struct cache *c)
{
    return kv_pool_bytes_used(c->pool) > kv_pool_bytes_max(c->pool);
}

bool cache_set_limit(struct cache *c, size_t n_blocks)
{
    assert(thread_is(THREAD_WORKER));
    kv_pool_set_limit(c->pool, n_blocks);
    if (is_over(c)) {
        while (is_over(c) && evict(c)) {
        }
        (void)kv_pool_trim(c->pool);
        kv_pool_relax(c->pool);
    }
    const size_t n_free = kv_pool_bytes_free(c->pool);
    c->bytes_given_up = c->bytes_given_up < n_free ? c->bytes_given_up : n_free;
    return !is_over(c);
}

bool cache_has_to_give(const struct cache *c)
{
    return c->tree.n_idle > 0 || kv_pool_bytes_resident(c->pool) > kv_pool_bytes_used(c->pool);
}

void cache_shrink(struct cache *c, int divisor, struct cache_given *ret)
{
    const size_t n_wanted = (c->tree.n_idle + (size_t)divisor - 1) / (size_t)divisor;
    size_t n = 0, n_spare = (c->tree.spare.n + (size_t)divisor - 1) / (size_t)divisor;

    assert(thread_is(THREAD_WORKER) && divisor > 0);
    while (n_spare-- > 0 && window_evict(c, false)) {
    }
    while (n < n_wanted && tree_evict(&c->tree)) {
        n++;
    }
    c->n_evicted_blocks += n;
    c->bytes_given_up = kv_pool_bytes_free(c->pool);
    *ret = (struct cache_given){.n_blocks = n, .bytes = kv_pool_trim(c->pool)};
}

bool cache_regrow(struct cache *c, int divisor)
{
    const size_t n_step = kv_pool_n_blocks(c->pool) / (size_t)divisor + 1;
    const size_t step = n_step * kv_pool_shape(c->pool)->block_bytes;

    assert(thread_is(THREAD_WORKER) && divisor > 0);
    if (!c->bytes_given_up) {
        return false;
    }
    c->bytes_given_up -= c->bytes_given_up < step ? c->bytes_given_up : step;
    if (!c->bytes_given_up) {
        kv_pool_relax(c->pool);
    }
    return !c->bytes_given_up;
}

/* So many bytes of the pool can be taken now, evicting for them. */
static bool make_room(struct cache *c, size_t n_bytes)
{
    const size_t used = kv_pool_bytes_used(c->pool);
    bool is_there = kv_pool_bytes_free(c->pool) >= c->bytes_given_up + n_bytes;
    while (!is_there && evict(c)) {
        /* What is still being written gives no room now. */
        is_there = kv_pool_bytes_used(c->pool) + n_bytes <= used &&
                   kv_pool_bytes_free(c->pool) >= n_bytes;
    }
    return is_there || kv_pool_bytes_free(c->pool) >= n_bytes;
}

struct kv_block *lease_take_raw(struct cache *c)
{
    return make_room(c, kv_pool_shape(c->pool)->block_bytes) ? kv_take_raw(c->pool) : NULL;
}

struct kv_block *lease_take_thin(struct cache *c)
{
    return make_room(c, kv_pool_shape(c->pool)->full_bytes) ? kv_take_thin(c->pool) : NULL;
}

bool lease_take_window(struct cache *c, struct kv_block *b)
{
    const struct kv_shape *s = kv_pool_shape(c->pool);
    return kv_block_is_whole(b, s) || (make_room(c, s->window_bytes) && kv_window_take(b));
}

struct kv_block *lease_take_block(struct cache *c)
{
    struct kv_block *b = lease_take_raw(c);
    if (b) {
        kv_block_zero_from(b, 0);
    }
    return b;
}

/* How many blocks a turn may read from the disk: of those that RAM doesn't have. */
static size_t n_to_read(const struct cache *c)
{
    struct disk_stats s;
    if (!c->disk) {
        return 0;
    }
    disk_stats(c->disk, &s);
    const size_t n_ram = c->tree.n_blocks + c->tree.n_tails;
    const size_t n = s.n_blocks > n_ram ? s.n_blocks - n_ram : 0;
    return n < c->n_turn_blocks ? n : c->n_turn_blocks;
}

bool cache_prepare(struct cache *c)
{
    assert(thread_is(THREAD_WORKER));
    return c->bytes_given_up == 0 && kv_pool_touch(c->pool, n_to_read(c), 1) > 0;
}

/* What the next turn wants at once: room for a few hundred positions, or for what it reads. */
static struct kv_keep keep_of(const struct cache *c)
{
    const size_t n = n_to_read(c), n_window = kv_pool_n_window(c->pool);
    return (struct kv_keep){.n_full = n > KV_SPAN ? n : KV_SPAN,
                            .n_window = n > 0 && n_window > KV_SPAN ? n_window : KV_SPAN};
}

bool cache_has_slack(const struct cache *c)
{
    return !c->leases && !cache_is_busy(c) && c->bytes_given_up == 0 &&
           kv_pool_has_slack(c->pool, keep_of(c));
}

size_t cache_slim(struct cache *c)
{
    assert(thread_is(THREAD_WORKER));
    return cache_has_slack(c) ? kv_pool_slim(c->pool, keep_of(c)) : 0;
}

int cache_free_disk(struct cache *c, uint64_t n_bytes,
                    void (*on_freed)(void *ctx, uint64_t n_bytes), void *ctx, struct err *e)
{
    assert(thread_is(THREAD_WORKER));
    if (!c->disk) {
        on_freed(ctx, 0);
        return 0;
    }
    return disk_free_bytes(c->disk, n_bytes, on_freed, ctx, e);
}
