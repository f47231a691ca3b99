/*
 * Leases: what a turn holds of the cache, from finding its prefix to leaving its blocks behind. See
 * cache.h and inside.h.
 *
 *     open ─► find ─► reserve ─► (pass ─► publish ─► find again while prefilling)… ─► close
 *
 * Whatever fails, the lease and the tree stay as they were before or a step further; nothing needs
 * undoing by the caller.
 */
#include <assert.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "base/sys.h"
#include "base/thread.h"
#include "cache/evict.h"
#include "cache/inside.h"

int cache_lease_open(struct cache *c, const struct cache_root *root, uint64_t who,
                     struct cache_lease **ret, struct err *e)
{
    assert(thread_is(THREAD_WORKER));
    struct cache_lease *l = sys.malloc(sizeof *l);
    if (!l) {
        return err_set(e, ERR_NOMEM, "out of memory for a turn's hold on the cache");
    }
    *l = (struct cache_lease){.cache = c, .who = who};
    const int rc = tree_root(&c->tree, root->id, &l->root, e);
    if (rc) {
        free(l);
        return rc;
    }
    tree_pin(&c->tree, l->root);
    kv_seq_init(&l->seq);
    l->next = c->leases;
    if (l->next) {
        l->next->prev = l;
    }
    c->leases = l;
    *ret = l;
    return 0;
}

struct kv_seq *cache_lease_seq(struct cache_lease *l)
{
    return &l->seq;
}

struct node *lease_end(const struct cache_lease *l)
{
    return l->n_path ? l->path[l->n_path - 1] : l->root;
}

/* Room for the path to become n blocks long. */
int lease_path_reserve(struct cache_lease *l, int n, struct err *e)
{
    if (n <= l->cap_path) {
        return 0;
    }
    const int cap = n > INT_MAX / 2 ? n : n + n / 2 + 4;
    struct node **more = sys.realloc(l->path, (size_t)cap * sizeof *more);
    if (!more) {
        return err_set(e, ERR_NOMEM, "out of memory for a path of %d KV blocks", cap);
    }
    l->path = more;
    l->cap_path = cap;
    return 0;
}

/*
 * Makes n, a child of the path's end, the next block of the path: in place of the private block
 * that stands there (bit-equal as far as it is filled, by the cache's promise), or behind the last.
 * false: no memory for the sequence's table; nothing changed.
 */
bool lease_adopt(struct cache_lease *l, struct node *n)
{
    struct kv_seq *s = &l->seq;
    struct err ignored;

    assert(n->parent == lease_end(l) && l->n_path < l->cap_path);
    tree_pin(&l->cache->tree, n); /* its reference is the sequence's */
    if (l->n_path < s->n_blocks) {
        kv_unref(s->blocks[l->n_path]);
        s->blocks[l->n_path] = n->block;
    } else if (kv_seq_push(s, n->block, &ignored)) {
        tree_unpin(&l->cache->tree, n);
        return false;
    }
    l->path[l->n_path++] = n;
    return true;
}

/*
 * A private block with the first n positions of src: a copy, or src's own block when it is the last
 * that could be evicted (the copy's place would have cost it anyway; what is pinned could not).
 * NULL when there is none to be had.
 */
static struct kv_block *take_copy(struct cache *c, struct node *src, int n)
{
    struct tree *t = &c->tree;

    tree_pin(t, src); /* not evicted for its own copy */
    struct kv_block *b = lease_take_raw(c);
    if (b) {
        kv_block_copy(b, src->block, n);
    }
    tree_unpin(t, src);
    if (!b && !src->n_leases && !src->n_held && !src->n_children && src->disk != NODE_WRITING) {
        b = tree_take(t, src);
        kv_block_zero_from(b, n);
        c->n_evicted_blocks++;
    }
    return b;
}

/* Whole blocks of ids[0, n_max) by reference, behind the path. Returns how many positions beyond
 * n_tokens came from others than `who`. */
static int find_blocks(struct cache_lease *l, const int32_t *ids, int n_max)
{
    struct cache *c = l->cache;
    int n_shared = 0;

    while (n_max - l->n_path * KV_BLOCK >= KV_BLOCK) {
        const int32_t *at = ids + (size_t)l->n_path * KV_BLOCK;
        struct node *n = tree_find_block(&c->tree, lease_end(l), at);
        if (!n || n->is_bad || !lease_adopt(l, n)) {
            break;
        }
        n->n_hits += !l->is_proof; /* a proof is no use of it */
        const int end = l->n_path * KV_BLOCK;
        if (end > l->seq.n_tokens) {
            const int n_new = end - l->seq.n_tokens;
            n_shared += n->who != l->who ? n_new : 0;
            l->seq.n_tokens = end;
        }
    }
    return n_shared;
}

/* The first positions of one more block, by copy. Returns as find_blocks. */
static int find_partial(struct cache_lease *l, const int32_t *ids, int n_max)
{
    struct cache *c = l->cache;
    struct kv_seq *s = &l->seq;
    struct err ignored;
    const int base = l->n_path * KV_BLOCK, have = s->n_tokens - base;
    const int limit = n_max - base < KV_BLOCK ? n_max - base : KV_BLOCK - 1; /* less than a block */
    int k = 0;

    if (have >= limit) { /* also when full private blocks wait to be published */
        return 0;
    }
    struct node *src = tree_find_prefix(lease_end(l), ids + base, limit, &k);
    if (k <= have || src->is_bad) {
        return 0;
    }
    const bool is_shared = src->who != l->who;
    if (l->n_path < s->n_blocks) {
        kv_block_copy(s->blocks[l->n_path], src->block, k);
        src->n_hits++;
        evict_touch(&c->tree, src);
    } else {
        src->n_hits++;
        evict_touch(&c->tree, src);
        struct kv_block *b = take_copy(c, src, k);
        if (!b) {
            return 0;
        }
        if (kv_seq_push(s, b, &ignored)) {
            kv_unref(b);
            return 0;
        }
    }
    s->n_tokens = base + k;
    return is_shared ? k - have : 0;
}

int cache_find(struct cache_lease *l, const int32_t *ids, int n_max, struct cache_found *ret,
               struct err *e)
{
    struct cache *c = l->cache;
    const int n_before = l->seq.n_tokens;

    assert(thread_is(THREAD_WORKER) && !l->reads);
    const int rc = lease_path_reserve(l, n_max / KV_BLOCK, e);
    if (rc) {
        return rc;
    }
    int n_shared = 0;
    if (n_max > n_before) {
        n_shared += find_blocks(l, ids, n_max);
        n_shared += find_partial(l, ids, n_max);
    }
    const int n = l->seq.n_tokens - n_before;
    if (!l->has_asked && !l->is_proof && n_max > n_before) {
        l->has_asked = true;
        c->n_found_tokens += (uint64_t)n;
        c->n_missed_tokens += (uint64_t)(n_max - n_before - n);
    }
    *ret = (struct cache_found){.n_tokens = n, .n_ram = n, .n_shared = n_shared};
    return 0;
}

/* What the next n_more positions go into holds nothing of somebody else's. */
static void zero_raw(struct kv_seq *s, int n_more)
{
    const int end = (s->n_tokens + n_more + KV_BLOCK - 1) / KV_BLOCK;
    for (int i = s->n_tokens / KV_BLOCK; i < end; i++) {
        if (s->blocks[i]->is_raw) {
            kv_block_zero_from(s->blocks[i], 0);
        }
    }
}

int cache_reserve(struct cache_lease *l, int n_more, struct err *e)
{
    const int rc = cache_reserve_for_disk(l, n_more, 0, e);
    if (!rc) {
        zero_raw(&l->seq, n_more);
    }
    return rc;
}

int cache_reserve_for_disk(struct cache_lease *l, int n_more, int n_disk, struct err *e)
{
    struct cache *c = l->cache;
    struct kv_seq *s = &l->seq;

    assert(thread_is(THREAD_WORKER));
    if (n_more < 0 || n_more > INT_MAX - KV_BLOCK - s->n_tokens) {
        return err_set(e, ERR_LIMIT, "%d positions more after %d", n_more, s->n_tokens);
    }
    const int n_had = s->n_blocks, n_need = (s->n_tokens + n_more + KV_BLOCK - 1) / KV_BLOCK;
    if (n_need > n_had && (size_t)(n_need - n_had) > cache_room(c)) {
        return err_set(
            e, ERR_NOMEM,
            "%d KV blocks for %d positions more: %zu are free or can be evicted, of %zu in all",
            n_need - n_had, n_more, cache_room(c), kv_pool_n_blocks(c->pool));
    }
    while (s->n_blocks < n_need) {
        const int n_before = s->n_blocks * KV_BLOCK - s->n_tokens; /* positions */
        const bool is_raw = n_before + KV_BLOCK <= n_disk;
        struct kv_block *b = is_raw ? lease_take_raw(c) : lease_take_block(c);
        assert(b); /* counted above */
        const int rc = kv_seq_push(s, b, e);
        if (!rc) {
            continue;
        }
        kv_unref(b);
        while (s->n_blocks > n_had) {
            kv_unref(s->blocks[--s->n_blocks]);
        }
        return rc;
    }
    return 0;
}

/* The tail that the disk had is inside what is kept now. */
static void drop_old_tail(struct cache_lease *l, int n_block, int count)
{
    if (l->tail_count > 0 && l->tail_block == n_block && count > l->tail_count) {
        disk_remove(l->cache->disk, l->tail_id);
        l->tail_count = 0;
    }
}

int lease_publish(struct cache_lease *l, const int32_t *ids, uint64_t who, struct node **ret,
                  struct err *e)
{
    struct tree *t = &l->cache->tree;
    struct kv_seq *s = &l->seq;
    struct node *n = NULL;
    const struct node_new w = {
        .ids = ids,
        .count = KV_BLOCK,
        .block = s->blocks[l->n_path],
        .who = who,
        .cost_us_per_token = l->cost_us_per_token,
    };

    assert(w.block->n_refs == 1 && !w.block->is_raw); /* private until now */
    const int rc = tree_add(t, lease_end(l), &w, &n, e);
    if (rc) {
        return rc;
    }
    kv_unref(w.block); /* the sequence's own reference becomes the lease's */
    tree_pin(t, n);
    l->path[l->n_path++] = n;
    *ret = n;
    return 0;
}

static int publish_block(struct cache_lease *l, const int32_t *ids, struct err *e)
{
    struct node *n = NULL;
    const int rc = lease_publish(l, ids, l->who, &n, e);
    if (!rc) {
        spill_add(l->cache, n);
        drop_old_tail(l, l->n_path - 1, KV_BLOCK);
        sample_kept(l, n);
    }
    return rc;
}

int cache_publish(struct cache_lease *l, const int32_t *ids, int64_t cost_us_per_token,
                  struct err *e)
{
    struct cache *c = l->cache;
    const int n_full = l->seq.n_tokens / KV_BLOCK;

    assert(thread_is(THREAD_WORKER));
    if (cost_us_per_token > 0) {
        l->cost_us_per_token = cost_us_per_token;
    }
    int rc = lease_path_reserve(l, n_full, e);
    while (!rc && l->n_path < n_full && !l->is_tainted) {
        const int32_t *at = ids + (size_t)l->n_path * KV_BLOCK;
        struct node *twin = tree_find_block(&c->tree, lease_end(l), at);
        if (!twin) {
            rc = publish_block(l, at, e);
            continue;
        }
        if (twin->is_bad && !lease_end(l)->is_bad) {
            break; /* ours may be sound: it stays private while that one is held */
        }
        const bool is_adopted = lease_adopt(l, twin);
        assert(is_adopted); /* needs no memory: a private block stands in its place */
        c->n_adopted_blocks += is_adopted;
    }
    return rc;
}

/* Hangs the partial block under the path's end, unless something there says as much. Having no
 * memory for it is a later miss. */
static void publish_tail(struct cache_lease *l, const int32_t *ids)
{
    struct kv_seq *s = &l->seq;
    struct err ignored;
    struct node *n = NULL;
    const int base = l->n_path * KV_BLOCK, count = s->n_tokens - base;

    if (count < 1 || count >= KV_BLOCK || lease_end(l)->is_bad || l->is_tainted) {
        return;
    }
    kv_seq_seal(s);
    const struct node_new w = {
        .ids = ids + base,
        .count = count,
        .block = s->blocks[l->n_path],
        .who = l->who,
        .cost_us_per_token = l->cost_us_per_token,
    };
    if (!tree_add(&l->cache->tree, lease_end(l), &w, &n, &ignored) && n) {
        spill_add(l->cache, n);
        drop_old_tail(l, l->n_path, count);
        sample_kept(l, n);
    }
}

void cache_lease_abandon(struct cache_lease *l)
{
    struct kv_seq *s = &l->seq;

    assert(thread_is(THREAD_WORKER));
    while (s->n_blocks > l->n_path) {
        kv_unref(s->blocks[--s->n_blocks]);
    }
    s->n_tokens = l->n_path * KV_BLOCK;
}

void lease_touch_disk(const struct cache_lease *l)
{
    for (int i = l->n_path; l->cache->disk && !l->is_proof && i-- > 0;) {
        if (l->path[i]->disk == NODE_ON_DISK) {
            disk_touch(l->cache->disk, l->path[i]->id);
        }
    }
}

/* The path's nodes go back to the tree, deepest first: used now, the front ones last, so that a
 * conversation is worn away from its end. */
static void path_release(struct cache_lease *l)
{
    struct tree *t = &l->cache->tree;
    while (l->n_path) {
        struct node *n = l->path[--l->n_path];
        if (!l->is_proof) {
            evict_touch(t, n);
        }
        tree_unpin(t, n);
        if (n->is_bad && !n->n_leases && !n->n_children) {
            tree_remove(t, n);
        }
    }
    tree_unpin(t, l->root);
    tree_prune_root(t, l->root);
    free(l->path);
}

void cache_lease_close(struct cache_lease *l, const int32_t *ids, bool keep_tail)
{
    struct cache *c;
    struct err ignored;

    if (!l) {
        return;
    }
    assert(thread_is(THREAD_WORKER));
    c = l->cache;
    restore_forget(l);
    if (ids && !cache_publish(l, ids, 0, &ignored) && keep_tail) {
        publish_tail(l, ids);
    }
    cache_lease_abandon(l);
    lease_touch_disk(l);
    path_release(l);
    l->seq.n_blocks = 0; /* the private ones went with abandon, the shared ones with the path */
    kv_seq_done(&l->seq);
    if (l->next) {
        l->next->prev = l->prev;
    }
    *(l->prev ? &l->prev->next : &c->leases) = l->next;
    free(l);
}
