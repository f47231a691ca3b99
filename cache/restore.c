/*
 * The way back from the disk. Worker thread.
 *
 *     lease.path   n0 ─ n1 │                         in RAM, found before
 *     seq.blocks   [b0][b1]│[b2][b3][b4][b5] …       reserved: the disk thread reads into them
 *     reads                │ r2   r3   r4t           in order; r4t a tail
 *                            └ arrived: into the tree, and n_tokens grows by its positions
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

struct restore_job {
    struct disk_job job;
    struct restore_job *next;
    struct cache_lease *lease; /* NULL: closed since */
    struct kv_block *block;    /* one reference */
    int32_t ids[KV_BLOCK];
    int count, n_block; /* its place in the sequence */
    bool is_stale;      /* in quarantine since it was asked for */
};

/* The block to read into: the reserved one, unless it has positions already. NULL: none. */
static struct kv_block *target(struct cache_lease *l, int n_block)
{
    struct kv_seq *s = &l->seq;
    if (n_block >= s->n_blocks) {
        return NULL;
    }
    if (s->n_tokens > n_block * KV_BLOCK) {
        return lease_take_raw(l->cache);
    }
    return kv_ref(s->blocks[n_block]);
}

/* What is to be read, and where it stands. */
struct piece {
    const uint8_t *parent, *id;
    const int32_t *ids;
    int count, n_block;
};

/* false: no room or memory for it. */
static bool send(struct cache_lease *l, const struct piece *p, struct restore_job ***tail)
{
    struct cache *c = l->cache;
    struct kv_block *b = target(l, p->n_block);
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
    r->job.data = b->data;
    r->job.block_bytes = kv_pool_shape(c->pool)->block_bytes;
    memcpy(r->job.root, l->root->id, HASH_BYTES);
    memcpy(r->job.id, p->id, HASH_BYTES);
    **tail = r;
    *tail = &r->next;
    c->n_reading++;
    disk_push(c->disk, &r->job);
    return true;
}

/* The longest tail behind block n that the disk has, of at most n_max positions and more than
 * n_min. */
static void send_tail(struct cache_lease *l, struct piece *p, int n_max, int n_min,
                      struct restore_job ***tail)
{
    uint8_t id[HASH_BYTES];
    for (int k = n_max; k > n_min; k--) {
        tree_id(p->parent, p->ids, k, id);
        if (disk_has(l->cache->disk, id)) {
            p->id = id;
            p->count = k;
            send(l, p, tail);
            return;
        }
    }
}

bool cache_restore(struct cache_lease *l, const int32_t *ids, int n_max)
{
    struct cache *c = l->cache;
    struct err ignored;
    uint8_t parent[HASH_BYTES], id[HASH_BYTES];
    struct restore_job **tail = &l->reads;
    int n = l->n_path;

    assert(thread_is(THREAD_WORKER) && !l->reads);
    if (!c->disk || n_max <= l->seq.n_tokens || !disk_wait(c->disk) ||
        l->seq.n_tokens - n * KV_BLOCK >= KV_BLOCK || /* full private blocks aren't published yet */
        lease_path_reserve(l, n_max / KV_BLOCK, &ignored)) {
        return false;
    }
    l->is_broken = false;
    memcpy(parent, lease_end(l)->id, HASH_BYTES);
    bool goes_on = true;
    for (; goes_on && n_max - n * KV_BLOCK >= KV_BLOCK; n++) {
        const struct piece p = {parent, id, ids + (size_t)n * KV_BLOCK, KV_BLOCK, n};
        tree_id(parent, p.ids, KV_BLOCK, id);
        if (!disk_has(c->disk, id)) {
            break;
        }
        goes_on = send(l, &p, &tail);
        memcpy(parent, id, HASH_BYTES);
    }
    const int rest = n_max - n * KV_BLOCK, have = l->seq.n_tokens - n * KV_BLOCK;
    if (goes_on && rest > 0) {
        struct piece p = {parent, id, ids + (size_t)n * KV_BLOCK, 0, n};
        send_tail(l, &p, rest < KV_BLOCK ? rest : KV_BLOCK - 1, have > 0 ? have : 0, &tail);
    }
    if (!l->reads) {
        lease_touch_disk(l);
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

/* A valid block, next in order. */
static bool take(struct cache_lease *l, struct restore_job *r)
{
    struct cache *c = l->cache;
    struct kv_seq *s = &l->seq;
    const int end = r->n_block * KV_BLOCK + r->count;
    r->block->is_raw = false;
    assert(r->n_block == l->n_path && end > s->n_tokens);
    if (!(r->count == KV_BLOCK ? take_whole(l, r) : take_tail(l, r))) {
        return false;
    }
    const int n_new = end - s->n_tokens;
    s->n_tokens = end;
    l->restored.n_tokens += n_new;
    l->restored.n_disk += n_new;
    l->restored.n_shared += r->job.record.who != l->who ? n_new : 0;
    c->n_found_tokens += (uint64_t)n_new;
    c->n_missed_tokens -= c->n_missed_tokens >= (uint64_t)n_new ? (uint64_t)n_new : 0;
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
    if (l && !l->reads) {
        lease_touch_disk(l);
    }
    kv_unref(r->block);
    free(r);
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
