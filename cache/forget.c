/*
 * Forgetting what was deleted: the blocks of a conversation that no other uses. See cache.h.
 *
 * Which blocks those are the cache can't know: it has no conversations. It is told ids, and names
 * the ids of a turn's blocks when the turn ends, so that somebody else may keep account.
 *
 *     ids (sorted)   a b c d e        a ── b ── c      leaves first, then upwards while the parent
 *                                          └─── x      is one of the ids and nothing hangs from it:
 *                                                      c goes; b stays for x's sake, and so does a
 */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/sys.h"
#include "base/thread.h"
#include "cache/inside.h"

/* A file is its block, the page of head before it, and what is lost to the file system's blocks. */
#define FILE_HEAD_MAX 16384

size_t cache_lease_ids(const struct cache_lease *l, const int32_t *ids, uint8_t *ret, size_t n_max)
{
    const uint8_t *parent = l->root->id;
    size_t n = 0;

    for (int i = 0; i < l->n_path && n < n_max; i++) {
        memcpy(ret + n * HASH_BYTES, l->path[i]->id, HASH_BYTES);
        parent = ret + n++ * HASH_BYTES;
    }
    for (int at = l->n_path * KV_BLOCK; ids && at < l->seq.n_tokens && n < n_max; at += KV_BLOCK) {
        const int left = l->seq.n_tokens - at;
        tree_id(parent, ids + at, left < KV_BLOCK ? left : KV_BLOCK, ret + n * HASH_BYTES);
        parent = ret + n++ * HASH_BYTES;
    }
    return n;
}

size_t cache_chain(const struct cache_root *root, const int32_t *ids, size_t n_ids, uint8_t *ret,
                   size_t n_max)
{
    const uint8_t *parent = root->id;
    size_t n = 0;

    for (size_t at = 0; at < n_ids && n < n_max; at += KV_BLOCK) {
        const size_t left = n_ids - at;
        tree_id(parent, ids + at, left < KV_BLOCK ? (int)left : KV_BLOCK, ret + n * HASH_BYTES);
        parent = ret + n++ * HASH_BYTES;
    }
    return n;
}

static int compare(const void *a, const void *b)
{
    return memcmp(a, b, HASH_BYTES);
}

/* Out of the tree: n and those above it that are among the ids, as far as nobody needs them. */
static size_t remove_upwards(struct tree *t, struct node *n, const uint8_t *ids, size_t n_ids)
{
    size_t n_gone = 0;

    while (n && n->parent && !n->n_children && !n->n_leases) {
        struct node *parent = n->parent->parent ? n->parent : NULL; /* a root may go with n */
        tree_remove(t, n);
        n_gone++;
        n = parent && bsearch(parent->id, ids, n_ids, HASH_BYTES, compare) ? parent : NULL;
    }
    return n_gone;
}

/* What a file of the disk alone held of KV: of whoever has blocks of its size. */
static uint64_t kv_bytes_of(struct cache *const *all, size_t n_all, uint64_t file_bytes)
{
    size_t found = 0;
    for (size_t k = 0; k < n_all; k++) {
        const size_t block_bytes = kv_pool_shape(all[k]->pool)->block_bytes;
        const bool is_like = file_bytes >= block_bytes && file_bytes - block_bytes <= FILE_HEAD_MAX;
        found = is_like && block_bytes > found ? block_bytes : found;
    }
    if (found > 0 && n_all > 1) {
        return found;
    }
    return n_all > 1 ? file_bytes : kv_pool_shape(all[0]->pool)->block_bytes;
}

static bool is_in_any(struct cache *const *all, size_t n_all, const uint8_t id[HASH_BYTES])
{
    for (size_t k = 0; k < n_all; k++) {
        if (tree_find(&all[k]->tree, id)) {
            return true;
        }
    }
    return false;
}

void cache_remove_all(struct cache *const *all, size_t n_all, uint8_t *ids, size_t n,
                      struct cache_removed *ret)
{
    struct disk *disk = all[0]->disk;
    struct cache_removed gone = {0};

    assert(thread_is(THREAD_WORKER));
    qsort(ids, n, HASH_BYTES, compare);
    for (size_t i = 0; disk && i < n; i++) { /* on the disk alone */
        const uint8_t *id = ids + i * HASH_BYTES;
        uint64_t bytes;
        if (!is_in_any(all, n_all, id) && disk_find(disk, id, &bytes)) {
            gone.n_blocks++;
            gone.bytes += kv_bytes_of(all, n_all, bytes);
        }
    }
    for (size_t k = 0; k < n_all; k++) {
        struct tree *t = &all[k]->tree;
        size_t n_gone = 0;
        for (size_t i = 0; i < n; i++) {
            n_gone += remove_upwards(t, tree_find(t, ids + i * HASH_BYTES), ids, n);
        }
        gone.n_blocks += n_gone;
        gone.bytes += (uint64_t)n_gone * kv_pool_shape(all[k]->pool)->block_bytes;
    }
    /* Also those that the disk isn't known to have: they may be on their way there. */
    for (size_t i = 0; disk && i < n; i++) {
        if (!is_in_any(all, n_all, ids + i * HASH_BYTES)) {
            gone.n_failed += !disk_remove(disk, ids + i * HASH_BYTES);
            all[0]->is_order_stale = true;
        }
    }
    *ret = gone;
}

void cache_remove(struct cache *c, uint8_t *ids, size_t n, struct cache_removed *ret)
{
    cache_remove_all(&c, 1, ids, n, ret);
}

static bool is_pinned_in_any(struct cache *const *all, size_t n_all, const uint8_t id[HASH_BYTES])
{
    for (size_t k = 0; k < n_all; k++) {
        if (pins_has(&all[k]->tree.pins, id)) {
            return true;
        }
    }
    return false;
}

void cache_remove_unpinned_all(struct cache *const *all, size_t n_all, struct cache_unpinned *of)
{
    struct disk *disk = all[0]->disk;
    size_t n_left = 0;

    of->n_pinned = 0;
    for (size_t i = 0; i < of->n; i++) {
        const uint8_t *id = of->ids + i * HASH_BYTES;
        if (!is_pinned_in_any(all, n_all, id)) {
            memmove(of->ids + n_left++ * HASH_BYTES, id, HASH_BYTES);
        } else {
            of->n_pinned += is_in_any(all, n_all, id) || (disk && disk_has(disk, id));
        }
    }
    cache_remove_all(all, n_all, of->ids, n_left, &of->gone);
}

void cache_remove_unpinned(struct cache *c, uint8_t *ids, size_t n, struct cache_removed *ret,
                           size_t *ret_n_pinned)
{
    struct cache_unpinned of = {.ids = ids, .n = n};
    cache_remove_unpinned_all(&c, 1, &of);
    *ret = of.gone;
    *ret_n_pinned = of.n_pinned;
}

int cache_sync(struct cache *c, void (*on_done)(void *ctx, bool is_done), void *ctx, struct err *e)
{
    assert(thread_is(THREAD_WORKER));
    if (c->disk) {
        return disk_sync(c->disk, on_done, ctx, e);
    }
    on_done(ctx, true);
    return 0;
}

/* Adds the ids of the tree's nodes below a root (NULL: below all) to *ids. ERR_NOMEM. */
static int add_nodes(const struct cache *c, const struct cache_root *root, uint8_t **ids, size_t *n,
                     struct err *e)
{
    const struct node *top = root ? tree_find(&c->tree, root->id) : NULL;
    const size_t n_max = *n + c->tree.n_nodes;
    uint8_t *more;

    if ((root && !top) || n_max == 0) {
        return 0;
    }
    more = sys.realloc(*ids, n_max * HASH_BYTES);
    if (!more) {
        return err_set(e, ERR_NOMEM, "out of memory for the ids of %zu KV blocks", n_max);
    }
    *ids = more;
    for (size_t i = 0; i < c->tree.n_buckets; i++) {
        for (const struct node *x = c->tree.buckets[i]; x; x = x->hash_next) {
            if (x->parent && (!root || x->root == top)) {
                memcpy(more + (*n)++ * HASH_BYTES, x->id, HASH_BYTES);
            }
        }
    }
    return 0;
}

/* Sorted, each once. */
static size_t distinct(uint8_t *ids, size_t n)
{
    size_t n_left = 0;

    if (n > 0) {
        qsort(ids, n, HASH_BYTES, compare);
    }
    for (size_t i = 0; i < n; i++) {
        if (!n_left || compare(ids + (n_left - 1) * HASH_BYTES, ids + i * HASH_BYTES) != 0) {
            memmove(ids + n_left++ * HASH_BYTES, ids + i * HASH_BYTES, HASH_BYTES);
        }
    }
    return n_left;
}

/* Needs no memory. */
static size_t drop_from_ram(struct cache *c, const struct cache_root *root)
{
    struct node *top = root ? tree_find(&c->tree, root->id) : NULL;
    if (!root) {
        return tree_drop(&c->tree, NULL);
    }
    if (!top) {
        return 0;
    }
    tree_pin(&c->tree, top); /* it would go with its last child */
    const size_t n_gone = tree_drop(&c->tree, top);
    tree_unpin(&c->tree, top);
    tree_prune_root(&c->tree, top);
    return n_gone;
}

size_t cache_drop(struct cache *c, const struct cache_root *root)
{
    struct cache_removed gone = {0};
    struct err e;
    uint8_t *ids = NULL;
    size_t n = 0, n_pinned;

    assert(thread_is(THREAD_WORKER));
    int rc = c->disk ? disk_list(c->disk, root ? root->id : NULL, &ids, &n, &e) : 0;
    if (!rc) {
        rc = add_nodes(c, root, &ids, &n, &e);
    }
    if (!rc && n > 0) {
        cache_remove_unpinned(c, ids, distinct(ids, n), &gone, &n_pinned);
    } else if (rc) {
        gone.n_blocks = drop_from_ram(c, root);
    }
    free(ids);
    c->n_evicted_blocks += gone.n_blocks;
    return gone.n_blocks;
}
