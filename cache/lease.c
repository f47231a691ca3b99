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
#include "cache/window.h"

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

int lease_walk(const struct cache_lease *l, const int32_t *ids, int n_max)
{
    const struct node *at = lease_end(l);
    int n = l->n_path;
    for (; n_max - n * KV_BLOCK >= KV_BLOCK; n++) {
        struct node *next =
            tree_find_block(&l->cache->tree, at, ids + (size_t)n * KV_BLOCK);
        if (!next || next->is_bad) {
            break;
        }
        l->path[n] = next;
        at = next;
    }
    return n - l->n_path;
}

void lease_cut(struct cache_lease *l, int n)
{
    struct kv_seq *s = &l->seq;
    const int n_path = l->n_path, n_keep = n / KV_BLOCK;
    assert(n % KV_BLOCK == 0 && n_keep <= n_path);
    if (s->n_tokens > n_path * KV_BLOCK) {
        kv_block_zero_from(s->blocks[n_path], 0); /* positions that have lost what they follow */
    }
    for (int i = n_path; i-- > n_keep;) {
        struct node *gone = l->path[i];
        tree_unpin(&l->cache->tree, gone); /* its reference was the sequence's */
        if (gone->is_bad && !gone->n_leases && !gone->n_children) {
            tree_remove(&l->cache->tree, gone);
        }
    }
    memmove(s->blocks + n_keep, s->blocks + n_path,
            (size_t)(s->n_blocks - n_path) * sizeof *s->blocks);
    s->n_blocks -= n_path - n_keep;
    s->n_tokens = n;
    l->n_path = n_keep;
    l->n_passed = l->n_passed < n_keep ? l->n_passed : n_keep;
    l->is_sampled = false;
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

/* How far ids[0, n_max) can be found so that what comes behind can be computed: where a windowed
 * section that it would need is missing, less far than the blocks go. */
static int usable(const struct cache_lease *l, const int32_t *ids, int n_max)
{
    const struct kv_shape *shape = kv_pool_shape(l->cache->pool);
    if (shape->n_sections == 1 || l->is_proof) {
        return n_max; /* a proof fills in what is missing */
    }
    const int n = l->n_path + lease_walk(l, ids, n_max), base = n * KV_BLOCK;
    const int rest = n_max - base < KV_BLOCK ? n_max - base : KV_BLOCK - 1;
    struct window_run run = {.end = n > l->n_path ? l->path[n - 1] : lease_end(l)};
    run.part = tree_find_prefix(run.end, ids + base, rest, &run.k);
    return window_usable_run(l->cache, &run);
}

/* Whole blocks of ids[0, n_max) by reference, behind the path. Returns how many positions beyond
 * n_tokens came from others than `who`. */
static int find_blocks(struct cache_lease *l, const int32_t *ids, int n_max)
{
    int n_shared = 0;

    const int n_end = l->n_path + lease_walk(l, ids, n_max);
    while (l->n_path < n_end) {
        struct node *n = l->path[l->n_path];
        if (!lease_adopt(l, n)) {
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
    if (k <= have || src->is_bad || !kv_block_is_whole(src->block, kv_pool_shape(c->pool))) {
        return 0;
    }
    const bool is_shared = src->who != l->who;
    if (l->n_path < s->n_blocks) {
        tree_pin(&c->tree, src); /* not evicted for its own copy */
        const bool is_whole = lease_take_window(c, s->blocks[l->n_path]);
        tree_unpin(&c->tree, src);
        if (!is_whole) {
            return 0;
        }
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
    const int n_use = n_max > n_before ? usable(l, ids, n_max) : 0;
    if (n_use > n_before) {
        n_shared += find_blocks(l, ids, n_use);
        n_shared += n_use > l->n_path * KV_BLOCK ? find_partial(l, ids, n_max) : 0;
        window_pass_lease(l);
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

/* What the next n_more positions go into is whole, and holds nothing of somebody else's. */
static int make_ready(struct cache_lease *l, int n_more, struct err *e)
{
    const struct kv_seq *s = &l->seq;
    const int end = (s->n_tokens + n_more + KV_BLOCK - 1) / KV_BLOCK;
    for (int i = s->n_tokens / KV_BLOCK; i < end; i++) {
        if (!lease_take_window(l->cache, s->blocks[i])) {
            return err_set(e, ERR_NOMEM,
                           "windowed layers of %d positions more: running turns hold all of the "
                           "%.1f MiB",
                           n_more, (double)kv_pool_bytes_max(l->cache->pool) / (1 << 20));
        }
        kv_block_settle(s->blocks[i]);
    }
    return 0;
}

int cache_reserve(struct cache_lease *l, int n_more, struct err *e)
{
    struct kv_seq *s = &l->seq;
    const int n_had = s->n_blocks;
    int rc = cache_reserve_for_disk(l, n_more, 0, e);
    if (!rc) {
        rc = make_ready(l, n_more, e);
    }
    while (rc && s->n_blocks > n_had) {
        kv_unref(s->blocks[--s->n_blocks]);
    }
    return rc;
}

/*
 * Of n blocks that a lease takes, so many get their windowed sections at once: those that are
 * computed first. Before the others are, what these hold has been passed. Those that come from the
 * disk get theirs when it is known whether they need any (restore.c).
 */
static int n_whole_of(const struct cache_lease *l, int n, int n_from_disk)
{
    const struct kv_shape *s = kv_pool_shape(l->cache->pool);
    const int n_window = s->window / KV_BLOCK + 2;
    if (s->n_sections == 1) {
        return n - n_from_disk; /* whole is what raw isn't */
    }
    return n - n_from_disk < n_window ? n - n_from_disk : n_window;
}

/* One block for what is reserved. NULL: leases hold all. */
static struct kv_block *take_reserved(struct cache *c, bool is_from_disk, bool is_whole)
{
    if (kv_pool_shape(c->pool)->n_sections == 1) {
        return is_from_disk ? lease_take_raw(c) : lease_take_block(c);
    }
    return is_whole ? lease_take_raw(c) : lease_take_thin(c); /* make_ready zeroes them */
}

int cache_reserve_for_disk(struct cache_lease *l, int n_more, int n_disk, struct err *e)
{
    struct cache *c = l->cache;
    struct kv_seq *s = &l->seq;

    assert(thread_is(THREAD_WORKER));
    if (n_more < 0 || n_more > INT_MAX - KV_BLOCK - s->n_tokens) {
        return err_set(e, ERR_LIMIT, "%d positions more after %d", n_more, s->n_tokens);
    }
    const struct kv_shape *shape = kv_pool_shape(c->pool);
    const int n_had = s->n_blocks, n_need = (s->n_tokens + n_more + KV_BLOCK - 1) / KV_BLOCK;
    if (n_need <= n_had) {
        return 0;
    }
    int n_from_disk = (s->n_tokens + n_disk) / KV_BLOCK - n_had;
    n_from_disk = n_from_disk < 0 ? 0 : n_from_disk < n_need - n_had ? n_from_disk : n_need - n_had;
    int n_whole = n_whole_of(l, n_need - n_had, n_from_disk);
    if ((size_t)(n_need - n_had) * shape->full_bytes + (size_t)n_whole * shape->window_bytes >
        shrink_room(c)) {
        return err_set(
            e, ERR_NOMEM,
            "%d KV blocks for %d positions more: %zu are free or can be evicted, of %zu in all",
            n_need - n_had, n_more, cache_room(c), kv_pool_n_blocks(c->pool));
    }
    while (s->n_blocks < n_need) {
        const bool is_from_disk = s->n_blocks - n_had < n_from_disk;
        struct kv_block *b = take_reserved(c, is_from_disk, !is_from_disk && n_whole-- > 0);
        const int rc = b ? kv_seq_push(s, b, e)
                         : err_set(e, ERR_NOMEM, "%d KV blocks, of %d, can't be had",
                                   n_need - s->n_blocks, n_need - n_had);
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
        window_fill(c, twin, l->seq.blocks[l->n_path]);
        const bool is_adopted = lease_adopt(l, twin);
        assert(is_adopted); /* needs no memory: a private block stands in its place */
        c->n_adopted_blocks += is_adopted;
    }
    window_pass_lease(l);
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

static void drop_private(struct cache_lease *l)
{
    struct kv_seq *s = &l->seq;
    while (s->n_blocks > l->n_path) {
        kv_unref(s->blocks[--s->n_blocks]);
    }
    s->n_tokens = l->n_path * KV_BLOCK;
}

void cache_lease_abandon(struct cache_lease *l)
{
    assert(thread_is(THREAD_WORKER));
    drop_private(l);
    if (!l->is_proof && window_usable(l) < l->seq.n_tokens) {
        lease_cut(l, window_usable(l));
    }
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
    drop_private(l);
    lease_touch_disk(l);
    window_release(l);
    path_release(l);
    l->seq.n_blocks = 0; /* the private ones went with abandon, the shared ones with the path */
    kv_seq_done(&l->seq);
    if (l->next) {
        l->next->prev = l->prev;
    }
    *(l->prev ? &l->prev->next : &c->leases) = l->next;
    free(l);
}
