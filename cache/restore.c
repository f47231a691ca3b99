/*
 * The way back from the disk. Worker thread.
 *
 *     lease.path   n0 ─ n1 │                         in RAM, found before
 *     seq.blocks   [b0][b1]│[b2][b3][b4][b5] …       reserved: the disk thread reads into them
 *     reads                │ r2   r3   r4t           in order; r4t a tail
 *                            └ arrived: into the tree, and n_tokens grows by its positions
 *
 * Of a block older than what the end of the run sees, its windowed section isn't read (window.h).
 * And where the tree has blocks that are thin, but must not be, these alone are read:
 *
 *     lease.path   n0 ─ n1 ─ n2 ─ n3 │               n2, n3: taken at once, thin; w2, w3 on their
 *     reads                  w2   w3 │ r4            way; then r4, as above
 *
 * All reads are sent at once, so that the disk thread needs nobody between two of them. The ids of
 * the chain are computed, and the index of names says which are there: nothing is read to find out.
 *
 * A read that fails breaks the run: those behind it are canceled, and the lease is restoring until
 * all have returned, since until then their blocks may still be written to. A block that holds
 * rubbish is zeroed before anybody else sees it.
 */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/sys.h"
#include "base/thread.h"
#include "cache/evict.h"
#include "cache/inside.h"
#include "cache/window.h"

struct restore_job {
    struct disk_job job;
    struct restore_job *next;
    struct cache_lease *lease; /* NULL: closed since */
    struct kv_block *block;    /* one reference */
    int32_t ids[KV_BLOCK];
    int count, n_block; /* its place in the sequence */
    bool is_stale;      /* in quarantine since it was asked for */
};

/* What is to be read, and where it stands. */
struct piece {
    const uint8_t *parent, *id;
    const int32_t *ids;
    int count, n_block;
    bool has_full, has_window; /* which sections */
};

/* The block to read into: the reserved one, unless it has positions already or is the tree's. NULL:
 * none. */
static struct kv_block *target(struct cache_lease *l, const struct piece *p)
{
    struct kv_seq *s = &l->seq;
    struct kv_block *b = NULL;
    if (p->n_block < s->n_blocks || !p->has_full) {
        const bool is_taken =
            p->n_block >= s->n_blocks || s->n_tokens > p->n_block * KV_BLOCK || !p->has_full;
        b = is_taken ? lease_take_thin(l->cache) : kv_ref(s->blocks[p->n_block]);
    }
    if (b && p->has_window && !lease_take_window(l->cache, b)) {
        kv_unref(b);
        return NULL;
    }
    if (b && !p->has_window) {
        kv_window_drop(b); /* reserved for what would be computed */
    }
    return b;
}

/* false: no room or memory for it. */
static bool send(struct cache_lease *l, const struct piece *p, struct restore_job ***tail)
{
    struct cache *c = l->cache;
    struct kv_block *b = target(l, p);
    struct restore_job *r = b ? sys.malloc(sizeof *r) : NULL;
    if (!r) {
        kv_unref(b);
        return false;
    }
    *r = (struct restore_job){
        .lease = l, .block = b, .count = p->count, .n_block = p->n_block};
    memcpy(r->ids, p->ids, (size_t)p->count * sizeof *p->ids);
    r->job.op = DISK_READ;
    r->job.cache = c;
    r->job.data = block_data(c, b);
    r->job.data.full = p->has_full ? r->job.data.full : NULL;
    r->job.data.window = p->has_window ? r->job.data.window : NULL;
    memcpy(r->job.root, l->root->id, HASH_BYTES);
    memcpy(r->job.id, p->id, HASH_BYTES);
    **tail = r;
    *tail = &r->next;
    c->n_reading++;
    disk_push(c->disk, &r->job);
    return true;
}

/* Positions that a restore has brought; is_read: their windowed section, or all of them. */
static void count(struct cache_lease *l, int n_new, bool is_read, uint64_t who)
{
    struct cache *c = l->cache;
    l->restored.n_tokens += n_new;
    *(is_read ? &l->restored.n_disk : &l->restored.n_ram) += n_new;
    l->restored.n_shared += who != l->who ? n_new : 0;
    c->n_found_tokens += (uint64_t)n_new;
    c->n_missed_tokens -= c->n_missed_tokens >= (uint64_t)n_new ? (uint64_t)n_new : 0;
}

/* Of these, the last ones are lost again. */
static void uncount(struct cache_lease *l, int n_lost)
{
    struct cache_found *f = &l->restored;
    n_lost = n_lost < f->n_tokens ? n_lost : f->n_tokens;
    f->n_tokens -= n_lost;
    const int n_read = n_lost < f->n_disk ? n_lost : f->n_disk;
    f->n_disk -= n_read;
    f->n_ram -= n_lost - n_read;
    f->n_shared = f->n_shared < f->n_tokens ? f->n_shared : f->n_tokens;
    l->cache->n_found_tokens -= (uint64_t)n_lost;
    l->cache->n_missed_tokens += (uint64_t)n_lost;
}

/* ---- what to read ---- */

/* What there is behind the lease's path. */
struct plan {
    struct cache_lease *lease;
    const int32_t *ids;
    int n_ram, n_whole; /* whole blocks: of these the tree has so many, the disk the others */
    int n_tail;         /* positions of a tail behind them, on disk */
    int n_use;          /* positions to be had */
    uint8_t end_id[HASH_BYTES], tail_id[HASH_BYTES];
};

/* The longest tail behind the last block that the disk has, of at most n_max positions and more
 * than n_min. */
static void find_tail(struct plan *p, int n_max, int n_min)
{
    for (int k = n_max; k > n_min && !p->n_tail; k--) {
        tree_id(p->end_id, p->ids + (size_t)p->n_whole * KV_BLOCK, k, p->tail_id);
        p->n_tail = disk_has(p->lease->cache->disk, p->tail_id) ? k : 0;
    }
}

/* Whether block n's windowed section is there or on disk. */
static bool has_window(void *ctx, int n)
{
    const struct plan *p = ctx;
    const struct node *node = n < p->n_ram ? p->lease->path[n] : NULL;
    return !node || node->block->window || disk_has(p->lease->cache->disk, node->id);
}

static void make_plan(struct plan *p, int n_max)
{
    struct cache_lease *l = p->lease;
    uint8_t id[HASH_BYTES];
    const int n_path = l->n_path;
    p->n_ram = n_path;
    if (kv_pool_shape(l->cache->pool)->n_sections > 1) { /* else all of these were found before */
        p->n_ram += lease_walk(l, p->ids, n_max);
    }
    const struct node *end = p->n_ram > n_path ? l->path[p->n_ram - 1] : lease_end(l);
    memcpy(p->end_id, end->id, HASH_BYTES);
    for (p->n_whole = p->n_ram; n_max - p->n_whole * KV_BLOCK >= KV_BLOCK; p->n_whole++) {
        tree_id(p->end_id, p->ids + (size_t)p->n_whole * KV_BLOCK, KV_BLOCK, id);
        if (!disk_has(l->cache->disk, id)) {
            break;
        }
        memcpy(p->end_id, id, HASH_BYTES);
    }
    const int rest = n_max - p->n_whole * KV_BLOCK, have = l->seq.n_tokens - p->n_whole * KV_BLOCK;
    if (rest > 0) {
        find_tail(p, rest < KV_BLOCK ? rest : KV_BLOCK - 1, have > 0 ? have : 0);
    }
    p->n_use = p->n_whole * KV_BLOCK;
    if (!l->is_proof) {
        p->n_use = kv_usable(kv_pool_shape(l->cache->pool), p->n_use, has_window, p);
    }
    if (p->n_use == p->n_whole * KV_BLOCK) {
        p->n_use += p->n_tail;
    }
}

/* ---- asking for it ---- */

/* The tree's blocks are taken now, so that they stay. false: no memory for all. */
static bool take_nodes(const struct plan *p, int from)
{
    struct cache_lease *l = p->lease;
    const int end = p->n_use / KV_BLOCK < p->n_ram ? p->n_use / KV_BLOCK : p->n_ram;
    while (l->n_path < end) {
        struct node *n = l->path[l->n_path];
        if (!lease_adopt(l, n)) {
            return false;
        }
        n->n_hits += !l->is_proof;
        const int n_new = l->n_path * KV_BLOCK - l->seq.n_tokens;
        if (n_new > 0) {
            l->seq.n_tokens += n_new;
            count(l, n_new, n->depth >= from && !n->block->window, n->who);
        }
    }
    return true;
}

/* What the end sees of windowed layers, of nodes that are thin. */
static bool send_windows(const struct plan *p, int from, struct restore_job ***tail)
{
    struct cache_lease *l = p->lease;
    for (int i = from; i < l->n_path && kv_pool_shape(l->cache->pool)->n_sections > 1; i++) {
        const struct node *n = l->path[i];
        const struct piece one = {
            .id = n->id, .ids = n->ids, .count = KV_BLOCK, .n_block = i, .has_window = true};
        if (!n->block->window && !l->is_proof && !send(l, &one, tail)) {
            return false;
        }
    }
    return true;
}

static bool send_blocks(struct plan *p, int from, struct restore_job ***tail)
{
    struct cache_lease *l = p->lease;
    const bool has_windows = kv_pool_shape(l->cache->pool)->n_sections > 1;
    uint8_t parent[HASH_BYTES], id[HASH_BYTES];
    memcpy(parent, lease_end(l)->id, HASH_BYTES);
    for (int n = l->n_path; n < p->n_use / KV_BLOCK; n++) {
        const struct piece one = {.parent = parent,
                                  .id = id,
                                  .ids = p->ids + (size_t)n * KV_BLOCK,
                                  .count = KV_BLOCK,
                                  .n_block = n,
                                  .has_full = true,
                                  .has_window = has_windows && n >= from};
        tree_id(parent, one.ids, KV_BLOCK, id);
        if (!send(l, &one, tail)) {
            return false;
        }
        memcpy(parent, id, HASH_BYTES);
    }
    return true;
}

static void send_tail(struct plan *p, struct restore_job ***tail)
{
    const struct piece one = {.id = p->tail_id,
                              .ids = p->ids + (size_t)p->n_whole * KV_BLOCK,
                              .count = p->n_tail,
                              .n_block = p->n_whole,
                              .has_full = true,
                              .has_window = kv_pool_shape(p->lease->cache->pool)->n_sections > 1};
    (void)!send(p->lease, &one, tail);
}

/* Nothing is on its way any more. What lacks something in front of it is given up. */
static void settle(struct cache_lease *l)
{
    const int n = l->is_proof ? l->seq.n_tokens : window_usable(l);
    if (n < l->seq.n_tokens) {
        const int n_lost = l->seq.n_tokens - n;
        lease_cut(l, n);
        uncount(l, n_lost);
    }
    window_pass_lease(l);
    lease_touch_disk(l);
}

bool cache_restore(struct cache_lease *l, const int32_t *ids, int n_max)
{
    struct cache *c = l->cache;
    struct err ignored;
    struct restore_job **tail = &l->reads;
    struct plan p = {.lease = l, .ids = ids};

    assert(thread_is(THREAD_WORKER) && !l->reads);
    if (!c->disk || n_max <= l->seq.n_tokens || !disk_wait(c->disk) ||
        l->seq.n_tokens - l->n_path * KV_BLOCK >= KV_BLOCK || /* full ones aren't published yet */
        lease_path_reserve(l, n_max / KV_BLOCK, &ignored)) {
        return false;
    }
    l->is_broken = false;
    make_plan(&p, n_max);
    if (p.n_use > l->seq.n_tokens) {
        const int from = l->is_proof ? 0 : kv_window_from(kv_pool_shape(c->pool), p.n_use);
        if (take_nodes(&p, from) && send_windows(&p, from, &tail) &&
            send_blocks(&p, from, &tail) && p.n_use > p.n_whole * KV_BLOCK) {
            send_tail(&p, &tail);
        }
    }
    if (!l->reads) {
        settle(l);
    }
    return l->reads != NULL;
}

bool cache_is_restoring(const struct cache_lease *l)
{
    return l->reads != NULL;
}

struct cache_found cache_take_restored(struct cache_lease *l)
{
    const struct cache_found found = l->restored;
    l->restored = (struct cache_found){0};
    return found;
}

/* The block that was read stands in the sequence, as a private one; the job's reference is gone. */
static void put_block(struct cache_lease *l, struct restore_job *r)
{
    struct kv_block **at = &l->seq.blocks[r->n_block];
    kv_unref(*at); /* of the two to the reserved block, or the other block's only one */
    *at = r->block;
    r->block = NULL;
}

static bool take_whole(struct cache_lease *l, struct restore_job *r)
{
    struct cache *c = l->cache;
    struct err ignored;
    struct node *n = tree_find(&c->tree, r->job.id);
    if (n) {
        window_fill(c, n, r->block);
        return !n->is_bad && lease_adopt(l, n); /* another turn was quicker */
    }
    put_block(l, r);
    if (lease_publish(l, r->ids, r->job.record.who, &n, &ignored)) {
        return false;
    }
    evict_set_disk(&c->tree, n, NODE_ON_DISK);
    if (r->job.record.cost_us > 0) {
        n->cost_us = (double)r->job.record.cost_us;
        evict_touch(&c->tree, n);
    }
    sample_block(l, n);
    return true;
}

static bool take_tail(struct cache_lease *l, struct restore_job *r)
{
    put_block(l, r);
    memcpy(l->tail_id, r->job.id, HASH_BYTES);
    l->tail_block = r->n_block;
    l->tail_count = r->count;
    sample_tail(l, r->n_block);
    disk_touch(l->cache->disk, r->job.id);
    return true;
}

/* The section that a block of the path lacked, unless somebody else was quicker. */
static bool take_window(struct cache_lease *l, struct restore_job *r)
{
    r->block->is_window_raw = false;
    window_fill(l->cache, l->path[r->n_block], r->block);
    return true;
}

/* A valid block, next in order. */
static bool take(struct cache_lease *l, struct restore_job *r)
{
    struct kv_seq *s = &l->seq;
    const int end = r->n_block * KV_BLOCK + r->count;
    if (!r->job.data.full) {
        return take_window(l, r);
    }
    r->block->is_raw = r->block->is_window_raw = false;
    assert(r->n_block == l->n_path && end > s->n_tokens);
    if (!(r->count == KV_BLOCK ? take_whole(l, r) : take_tail(l, r))) {
        return false;
    }
    const int n_new = end - s->n_tokens;
    s->n_tokens = end;
    count(l, n_new, true, r->job.record.who);
    return true;
}

static void cancel_reads(struct cache_lease *l)
{
    l->is_broken = true;
    for (struct restore_job *r = l->reads; r; r = r->next) {
        atomic_store(&r->job.is_canceled, true);
    }
}

void restore_arrived(struct cache *c, struct disk_job *job)
{
    struct restore_job *r = (struct restore_job *)(void *)job;
    struct cache_lease *l = r->lease;
    c->n_reading--;
    if (l) {
        assert(l->reads == r); /* the disk thread reads in order */
        l->reads = r->next;
    }
    if (l && !(job->rc == 0 && !l->is_broken && !r->is_stale && take(l, r))) {
        cancel_reads(l);
        const int n = r->n_block;
        if (n >= l->n_path && n < l->seq.n_blocks && l->seq.n_tokens <= n * KV_BLOCK) {
            kv_block_zero_from(l->seq.blocks[n], 0); /* rubbish, or about to be */
        }
    }
    kv_unref(r->block);
    free(r);
    if (l && !l->reads) {
        settle(l);
    }
}

void restore_discard(struct cache_lease *l, int n_block, const int32_t *first_id)
{
    struct restore_job *r = l->reads;
    while (r && r->n_block < n_block) {
        r = r->next;
    }
    if (!r || (first_id && (r->n_block != n_block || r->ids[0] != *first_id))) {
        return;
    }
    for (; r; r = r->next) {
        r->is_stale = true;
        atomic_store(&r->job.is_canceled, true);
    }
}

void restore_forget(struct cache_lease *l)
{
    cancel_reads(l);
    while (l->reads) {
        struct restore_job *r = l->reads;
        l->reads = r->next;
        r->lease = NULL;
        r->next = NULL;
    }
}
