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

#include "base/thread.h"
#include "cache/inside.h"

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

void cache_remove(struct cache *c, uint8_t *ids, size_t n, struct cache_removed *ret)
{
    size_t n_gone = 0;

    assert(thread_is(THREAD_WORKER));
    qsort(ids, n, HASH_BYTES, compare);
    for (size_t i = 0; c->disk && i < n; i++) { /* on the disk alone */
        const uint8_t *id = ids + i * HASH_BYTES;
        n_gone += !tree_find(&c->tree, id) && disk_has(c->disk, id);
    }
    for (size_t i = 0; i < n; i++) {
        n_gone += remove_upwards(&c->tree, tree_find(&c->tree, ids + i * HASH_BYTES), ids, n);
    }
    /* Also those that the disk isn't known to have: they may be on their way there. */
    for (size_t i = 0; c->disk && i < n; i++) {
        if (!tree_find(&c->tree, ids + i * HASH_BYTES)) {
            disk_remove(c->disk, ids + i * HASH_BYTES);
            c->is_order_stale = true;
        }
    }
    *ret = (struct cache_removed){
        .n_blocks = n_gone,
        .bytes = (uint64_t)n_gone * kv_pool_shape(c->pool)->block_bytes,
    };
}
