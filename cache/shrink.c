/*
 * Giving back: RAM when the machine is short of it, files when the history needs their room. Worker
 * thread.
 *
 *     pool   [ live │ cached │ free ]            a turn takes: free, else the next victim's
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

size_t shrink_n_used(const struct cache *c)
{
    return kv_pool_n_used(c->pool);
}

size_t cache_room(const struct cache *c)
{
    const size_t n_writing = (size_t)c->n_writing; /* evicting such a block gives no room now */
    const size_t n_idle = c->tree.n_idle > n_writing ? c->tree.n_idle - n_writing : 0;
    const size_t n_used = shrink_n_used(c), n_max = kv_pool_n_blocks(c->pool);
    const size_t n_held = n_used - (n_idle < n_used ? n_idle : n_used);
    return n_held < n_max ? n_max - n_held : 0;
}

bool cache_set_limit(struct cache *c, size_t n_blocks)
{
    assert(thread_is(THREAD_WORKER));
    kv_pool_set_limit(c->pool, n_blocks);
    if (shrink_n_used(c) > kv_pool_n_blocks(c->pool)) {
        while (shrink_n_used(c) > kv_pool_n_blocks(c->pool) && tree_evict(&c->tree)) {
            c->n_evicted_blocks++;
        }
        (void)kv_pool_trim(c->pool);
        kv_pool_relax(c->pool);
    }
    const size_t n_free = kv_pool_n_free(c->pool);
    c->n_given_up = c->n_given_up < n_free ? c->n_given_up : n_free;
    return shrink_n_used(c) <= kv_pool_n_blocks(c->pool);
}

bool cache_has_to_give(const struct cache *c)
{
    return c->tree.n_idle > 0 || kv_pool_bytes_resident(c->pool) > kv_pool_bytes_used(c->pool);
}

void cache_shrink(struct cache *c, int divisor, struct cache_given *ret)
{
    const size_t n_wanted = (c->tree.n_idle + (size_t)divisor - 1) / (size_t)divisor;
    size_t n = 0;

    assert(thread_is(THREAD_WORKER) && divisor > 0);
    while (n < n_wanted && tree_evict(&c->tree)) {
        n++;
    }
    c->n_evicted_blocks += n;
    c->n_given_up = kv_pool_n_free(c->pool);
    *ret = (struct cache_given){.n_blocks = n, .bytes = kv_pool_trim(c->pool)};
}

bool cache_regrow(struct cache *c, int divisor)
{
    const size_t step = kv_pool_n_blocks(c->pool) / (size_t)divisor + 1;

    assert(thread_is(THREAD_WORKER) && divisor > 0);
    if (!c->n_given_up) {
        return false;
    }
    c->n_given_up -= c->n_given_up < step ? c->n_given_up : step;
    if (!c->n_given_up) {
        kv_pool_relax(c->pool);
    }
    return !c->n_given_up;
}

struct kv_block *lease_take_raw(struct cache *c)
{
    const size_t n_used = shrink_n_used(c);
    struct kv_block *b = kv_pool_n_free(c->pool) > c->n_given_up ? kv_take_raw(c->pool) : NULL;
    while (!b && tree_evict(&c->tree)) {
        c->n_evicted_blocks++;
        /* One that is still being written gives no room now. */
        b = shrink_n_used(c) < n_used ? kv_take_raw(c->pool) : NULL;
    }
    return b ? b : kv_take_raw(c->pool);
}

struct kv_block *lease_take_block(struct cache *c)
{
    struct kv_block *b = lease_take_raw(c);
    if (b) {
        kv_block_zero_from(b, 0);
    }
    return b;
}

bool cache_prepare(struct cache *c)
{
    struct disk_stats s;
    assert(thread_is(THREAD_WORKER));
    if (!c->disk || c->n_given_up > 0) {
        return false;
    }
    disk_stats(c->disk, &s);
    const size_t n = s.n_blocks < c->n_turn_blocks ? s.n_blocks : c->n_turn_blocks;
    return kv_pool_touch(c->pool, n, 1) > 0;
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
