/*
 * Pinned blocks, and accounts of what the cache has. See cache.h.
 *
 *     pins      the ids, a set; whose they are, somebody else knows
 *     tree      a pinned node isn't a victim, nor is what it hangs from
 *     disk      a pinned file isn't trimmed
 *
 * A block needs not be there to be pinned: it is protected when it appears.
 */
#include <assert.h>

#include "base/thread.h"
#include "cache/inside.h"
#include "cache/record.h"

/* At most one block of so many of a tier's budget may be pinned: what turns need comes from the
 * others. */
#define PIN_SHARE 2

struct ceiling {
    size_t n_max;
    const char *of;
    uint64_t bytes; /* of the tier's budget */
};

static struct ceiling pin_ceiling(const struct cache *c)
{
    const size_t block_bytes = kv_pool_shape(c->pool)->block_bytes;
    const size_t n_blocks = kv_pool_n_blocks(c->pool);
    const size_t spare = n_blocks > c->n_turn_blocks ? n_blocks - c->n_turn_blocks : 0;
    struct ceiling top = {.n_max = n_blocks / PIN_SHARE,
                          .of = "--memory",
                          .bytes = (uint64_t)n_blocks * block_bytes};
    top.n_max = spare < top.n_max ? spare : top.n_max;
    if (c->disk) {
        struct disk_stats s;
        disk_stats(c->disk, &s);
        const uint64_t n_disk = s.bytes_max / PIN_SHARE / record_bytes(block_bytes);
        if (s.bytes_max > 0 && n_disk < top.n_max) { /* 0: not known yet */
            top = (struct ceiling){.n_max = (size_t)n_disk, .of = "--disk", .bytes = s.bytes_max};
        }
    }
    return top;
}

void cache_set_turn_blocks(struct cache *c, size_t n_blocks)
{
    c->n_turn_blocks = n_blocks;
}

static int check_ceiling(const struct cache *c, size_t n_new, struct err *e)
{
    const struct ceiling top = pin_ceiling(c);
    const size_t n_pinned = c->tree.pins.n;
    if (n_new == 0 || (n_new <= top.n_max && n_pinned <= top.n_max - n_new)) {
        return 0;
    }
    return err_set(e, ERR_LIMIT,
                   "%zu KV blocks more can't be pinned: %zu are, and at most %zu may be, of the "
                   "%.1f MiB that %s gives",
                   n_new, n_pinned, top.n_max, (double)top.bytes / (1 << 20), top.of);
}

static size_t count_new(const struct cache *c, const uint8_t *ids, size_t n)
{
    size_t n_new = 0;
    for (size_t i = 0; i < n; i++) {
        n_new += !pins_has(&c->tree.pins, ids + i * HASH_BYTES);
    }
    return n_new;
}

int cache_pin(struct cache *c, const uint8_t *ids, size_t n, struct err *e)
{
    assert(thread_is(THREAD_WORKER));
    const int rc = check_ceiling(c, count_new(c, ids, n), e);
    return rc ? rc : cache_hold(c, ids, n, e);
}

int cache_hold(struct cache *c, const uint8_t *ids, size_t n, struct err *e)
{
    assert(thread_is(THREAD_WORKER));
    int rc = pins_reserve(&c->tree.pins, count_new(c, ids, n), e);
    if (!rc && c->disk) {
        rc = disk_pin(c->disk, ids, n, e);
    }
    for (size_t i = 0; !rc && i < n; i++) {
        tree_protect(&c->tree, ids + i * HASH_BYTES);
    }
    return rc;
}

void cache_unpin(struct cache *c, const uint8_t *ids, size_t n)
{
    assert(thread_is(THREAD_WORKER));
    for (size_t i = 0; i < n; i++) {
        tree_expose(&c->tree, ids + i * HASH_BYTES);
    }
    if (c->disk) {
        disk_unpin(c->disk, ids, n);
    }
}

void cache_wait_disk(struct cache *c)
{
    assert(thread_is(THREAD_WORKER));
    if (c->disk) {
        (void)disk_wait(c->disk); /* without it there is nothing on disk */
    }
}

/* What a node takes in RAM. */
static uint64_t bytes_of(const struct cache *c, const struct node *n)
{
    const struct kv_shape *s = kv_pool_shape(c->pool);
    return s->full_bytes + (n->block->window ? s->window_bytes : 0);
}

/* Counts the id's node and pin, wherever they are. false: it isn't in RAM. */
static bool count_node(struct cache *const *all, size_t n_all, const uint8_t *id,
                       struct cache_count *k)
{
    bool is_there = false, is_pinned = false;
    for (size_t i = 0; i < n_all; i++) {
        const struct node *node = tree_find(&all[i]->tree, id);
        is_pinned = is_pinned || pins_has(&all[i]->tree.pins, id);
        if (!node || node->is_bad) {
            continue;
        }
        k->n_ram++;
        k->ram_bytes += bytes_of(all[i], node);
        is_there = true;
    }
    k->n_pinned += is_pinned;
    return is_there;
}

void cache_count_all(struct cache *const *all, size_t n_all, const uint8_t *ids, size_t n,
                     struct cache_count *ret)
{
    struct disk *disk = all[0]->disk;
    struct cache_count k = {0};

    assert(thread_is(THREAD_WORKER));
    for (size_t i = 0; i < n; i++) {
        const uint8_t *id = ids + i * HASH_BYTES;
        uint64_t bytes = 0;
        const bool is_on_disk = disk && disk_find(disk, id, &bytes);
        const bool is_in_ram = count_node(all, n_all, id, &k);
        k.n_disk += is_on_disk;
        k.disk_bytes += bytes;
        k.n_present += is_on_disk || is_in_ram;
    }
    *ret = k;
}

void cache_count(struct cache *c, const uint8_t *ids, size_t n, struct cache_count *ret)
{
    cache_count_all(&c, 1, ids, n, ret);
}

void cache_usage(const struct cache *c, const struct cache_root *root, struct cache_usage *ret)
{
    const struct node *top = tree_find(&c->tree, root->id);
    struct cache_usage u = {0};

    assert(thread_is(THREAD_WORKER));
    for (size_t i = 0; top && i < c->tree.n_buckets; i++) {
        for (const struct node *n = c->tree.buckets[i]; n; n = n->hash_next) {
            if (n->root != top || n == top) {
                continue;
            }
            u.n_ram++;
            u.n_ram_tails += n->count < KV_BLOCK;
            u.n_ram_pinned += n->is_pinned;
            u.ram_bytes += bytes_of(c, n);
        }
    }
    if (c->disk) {
        disk_usage(c->disk, root->id, &u);
    }
    u.n_pins = c->tree.pins.n;
    u.n_pins_max = pin_ceiling(c).n_max;
    *ret = u;
}
