/* The cache as a whole: made, asked, emptied, checked. What a turn does with it is in lease.c. See
 * cache.h. */
#include "cache/cache.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/sys.h"
#include "base/thread.h"
#include "cache/inside.h"
#include "cache/window.h"

void cache_root_of(const uint8_t model[HASH_BYTES], const char *owner, struct cache_root *ret)
{
    static const char tag[] = "hearth-root-1";
    struct hash_state s;
    hash_init(&s);
    hash_add(&s, tag, sizeof tag - 1);
    hash_add(&s, model, HASH_BYTES);
    hash_add(&s, owner, strlen(owner)); /* last and alone, so its length needs no saying */
    hash_end(&s, ret->id);
}

int cache_new(struct kv_pool *pool, struct cache **ret, struct err *e)
{
    struct cache *c = sys.malloc(sizeof *c);
    if (!c) {
        return err_set(e, ERR_NOMEM, "out of memory for the prefix cache");
    }
    *c = (struct cache){.pool = pool};
    const int rc = tree_init(&c->tree, e);
    if (rc) {
        free(c);
        return rc;
    }
    *ret = c;
    return 0;
}

void cache_free(struct cache *c)
{
    if (!c) {
        return;
    }
    assert(!c->leases);
    if (c->disk && disk_is_shared(c->disk)) {
        cache_disk_leave(c);
    }
    cache_disk_close(c, 0);
    tree_done(&c->tree);
    free(c);
}

int cache_peek(const struct cache *c, const struct cache_root *root, const int32_t *ids, int n)
{
    const struct node *at = tree_find(&c->tree, root->id);
    int n_found = 0, k = 0;

    if (!at) {
        return 0;
    }
    struct window_run run = {0};
    while (n - n_found >= KV_BLOCK) {
        const struct node *next = tree_find_block(&c->tree, at, ids + n_found);
        if (!next || next->is_bad) {
            break;
        }
        at = next;
        n_found += KV_BLOCK;
    }
    const int rest = n - n_found;
    if (rest > 0) {
        const struct node *next =
            tree_find_prefix(at, ids + n_found, rest < KV_BLOCK ? rest : KV_BLOCK, &k);
        run.k = next && !next->is_bad ? k : 0;
        run.part = next;
    }
    run.end = at;
    return window_usable_run(c, &run);
}

static void disk_part(struct disk *d, struct cache_stats *ret)
{
    struct disk_stats s;
    disk_stats(d, &s);
    ret->has_disk = true;
    ret->is_disk_paused = s.is_paused;
    ret->disk_blocks = s.n_blocks;
    ret->disk_bytes = s.bytes;
    ret->disk_bytes_max = s.bytes_max;
    ret->n_disk_read = s.n_read;
    ret->n_disk_written = s.n_written;
    ret->n_disk_removed = s.n_removed;
    ret->n_disk_bad = s.n_bad;
    ret->n_disk_failed = s.n_failed;
    ret->disk_bytes_written = s.bytes_written;
}

void cache_stats(const struct cache *c, struct cache_stats *ret)
{
    const struct kv_shape *s = kv_pool_shape(c->pool);
    const struct tree *t = &c->tree;
    *ret = (struct cache_stats){
        .n_blocks = c->tree.n_blocks,
        .n_tails = c->tree.n_tails,
        .n_windows = t->n_windows,
        .block_bytes = s->block_bytes,
        .bytes_used = kv_pool_bytes_used(c->pool),
        .bytes_max = kv_pool_bytes_max(c->pool),
        .bytes_cached = (t->n_blocks + t->n_tails - t->n_leased) * s->full_bytes +
                        (t->n_windows - t->n_leased_windows) * s->window_bytes,
        .bytes_allowed = kv_pool_bytes_max(c->pool) - c->bytes_given_up,
        .bytes_resident = kv_pool_bytes_resident(c->pool),
        .n_found_tokens = c->n_found_tokens,
        .n_missed_tokens = c->n_missed_tokens,
        .n_evicted_blocks = c->n_evicted_blocks,
        .n_adopted_blocks = c->n_adopted_blocks,
    };
    if (c->disk) {
        disk_part(c->disk, ret);
        ret->n_disk_waiting = c->tree.dirty.n + (size_t)c->n_writing;
    }
}

/* ---- checks ---- */

static int check_lease(const struct cache_lease *l, struct err *e)
{
    const struct kv_seq *s = &l->seq;
    const struct node *parent = l->root;

    if (l->n_path > s->n_blocks || s->n_tokens < l->n_path * KV_BLOCK ||
        s->n_tokens > kv_seq_capacity(s)) {
        return err_set(e, ERR_CORRUPT, "a lease of %d shared of %d blocks with %d positions",
                       l->n_path, s->n_blocks, s->n_tokens);
    }
    for (int i = 0; i < l->n_path; i++) {
        const struct node *n = l->path[i];
        if (n->parent != parent || n->block != s->blocks[i] || n->count != KV_BLOCK) {
            return err_set(e, ERR_CORRUPT, "block %d of a lease isn't the tree's", i);
        }
        parent = n;
    }
    /* What the next position sees is there, unless it is on its way. */
    const struct kv_shape *shape = kv_pool_shape(l->cache->pool);
    const int first = l->reads || l->is_proof ? s->n_blocks : kv_window_from(shape, s->n_tokens);
    for (int i = first; i < s->n_blocks && i * KV_BLOCK < s->n_tokens; i++) {
        if (!kv_block_is_whole(s->blocks[i], shape)) {
            return err_set(e, ERR_CORRUPT, "block %d of a lease with %d positions is thin", i,
                           s->n_tokens);
        }
    }
    for (int i = l->n_path; i < s->n_blocks; i++) {
        const int n_refs = s->blocks[i]->n_refs; /* one more while the disk reads into it */
        if (n_refs != 1 && !(l->reads && n_refs == 2)) {
            return err_set(e, ERR_CORRUPT, "private block %d of a lease has %d references", i,
                           n_refs);
        }
    }
    return 0;
}

/* How many open leases have n on their path. */
static int count_leases(const struct cache *c, const struct node *n)
{
    int n_leases = 0;
    for (const struct cache_lease *l = c->leases; l; l = l->next) {
        n_leases += n->parent ? n->depth < l->n_path && l->path[n->depth] == n : l->root == n;
    }
    return n_leases;
}

int cache_check(const struct cache *c, struct err *e)
{
    size_t n_private = 0;
    int rc = tree_check(&c->tree, e);

    for (const struct cache_lease *l = c->leases; !rc && l; l = l->next) {
        rc = check_lease(l, e);
        n_private += (size_t)(l->seq.n_blocks - l->n_path);
    }
    for (size_t i = 0; !rc && i < c->tree.n_buckets; i++) {
        for (const struct node *n = c->tree.buckets[i]; !rc && n; n = n->hash_next) {
            if (n->n_leases != count_leases(c, n)) {
                rc = err_set(e, ERR_CORRUPT, "a node at depth %d counts %d leases of %d", n->depth,
                             n->n_leases, count_leases(c, n));
            }
        }
    }
    /* Others may take blocks of the pool too, so there may be more in use than the cache knows of,
     * never fewer. */
    const size_t n_known = c->tree.n_blocks + c->tree.n_tails + n_private;
    const size_t n_used = kv_pool_n_used(c->pool);
    if (!rc && n_known > n_used) {
        rc = err_set(e, ERR_CORRUPT, "the cache and its leases hold %zu blocks, the pool gave %zu",
                     n_known, n_used);
    }
    return rc;
}
