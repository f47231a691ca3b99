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
    return kv_pool_n_blocks(c->pool) - kv_pool_n_free(c->pool);
}

bool cache_has_to_give(const struct cache *c)
{
    return c->tree.n_idle > 0 || kv_pool_n_resident(c->pool) > shrink_n_used(c);
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
    c->n_given_up = kv_pool_n_blocks(c->pool) - shrink_n_used(c);
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

/* A block for a sequence's own use, evicting for it; NULL when all are held by leases. */
struct kv_block *lease_take_block(struct cache *c)
{
    const size_t n_allowed = kv_pool_n_blocks(c->pool) - c->n_given_up;
    const size_t n_used = shrink_n_used(c);
    struct kv_block *b = n_used < n_allowed ? kv_take(c->pool) : NULL;
    while (!b && tree_evict(&c->tree)) {
        c->n_evicted_blocks++;
        /* One that is still being written gives no room now. */
        b = shrink_n_used(c) < n_used ? kv_take(c->pool) : NULL;
    }
    return b ? b : kv_take(c->pool);
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
