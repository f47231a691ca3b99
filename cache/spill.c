/*
 * The way to the disk: what of the tree isn't there yet, and who writes it when. Worker thread.
 *
 *     a whole block ──────────────► dirty ──► written, WRITES_MAX at a time ──► on disk
 *     a tail ──► resting ──5 s──►     ▲                    │
 *                                     └──── failed ────────┘ (all wait DISK_PAUSE_MS)
 *
 * A block that is being written keeps one reference more, so that its bytes stay until the reply,
 * also when its node is evicted meanwhile. What can't be sent now stays in its list, which costs
 * nothing; cache_tend tries again.
 */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/sys.h"
#include "base/thread.h"
#include "cache/evict.h"
#include "cache/inside.h"
#include "cache/window.h"

#define WRITES_MAX 16 /* on their way to the disk: as many blocks can't be evicted for room */

struct spill_job {
    struct disk_job job;
    struct kv_block *block;
};

/* The file of a tail that something longer has replaced; also when it is only about to be written:
 * the disk keeps their order. */
static void on_replaced(void *ctx, const struct node *tail)
{
    struct cache *c = ctx;
    if (c->disk && (tail->disk == NODE_ON_DISK || tail->disk == NODE_WRITING)) {
        disk_remove(c->disk, tail->id);
    }
}

static void set_dirty(struct cache *c, struct node *n)
{
    evict_set_disk(&c->tree, n, NODE_DIRTY);
    tree_list(n, &c->tree.dirty);
}

void spill_add(struct cache *c, struct node *n)
{
    if (!c->disk || n->is_bad || !kv_block_is_whole(n->block, kv_pool_shape(c->pool))) {
        return;
    }
    if (n->count == KV_BLOCK) {
        set_dirty(c, n);
        return;
    }
    evict_set_disk(&c->tree, n, NODE_RESTING);
    n->due_us = clock_us() + c->tail_idle_us;
    tree_list(n, &c->tree.resting);
}

static const struct node *root_of(const struct node *n)
{
    while (n->parent) {
        n = n->parent;
    }
    return n;
}

/* false: no memory, now. */
static bool send(struct cache *c, struct node *n)
{
    struct spill_job *s;
    if (disk_has(c->disk, n->id)) { /* it was there before it was computed again */
        evict_set_disk(&c->tree, n, NODE_ON_DISK);
        tree_list(n, NULL);
        window_pass(c, n);
        return true;
    }
    s = sys.malloc(sizeof *s);
    if (!s) {
        return false;
    }
    *s = (struct spill_job){.block = kv_ref(n->block)};
    struct disk_job *j = &s->job;
    j->op = DISK_WRITE;
    j->cache = c;
    j->data = block_data(c, n->block);
    j->record.count = n->count;
    j->record.who = n->who;
    j->record.cost_us = n->cost_us > 0 ? (uint64_t)n->cost_us : 0;
    memcpy(j->record.ids, n->ids, sizeof n->ids);
    memset(j->record.ids + n->count, 0, (size_t)(KV_BLOCK - n->count) * sizeof *n->ids);
    memcpy(j->record.parent, n->parent->id, HASH_BYTES);
    memcpy(j->record.root, root_of(n)->id, HASH_BYTES);
    memcpy(j->root, j->record.root, HASH_BYTES);
    memcpy(j->id, n->id, HASH_BYTES);
    evict_set_disk(&c->tree, n, NODE_WRITING);
    tree_list(n, NULL);
    c->n_writing++;
    c->is_order_stale = true;
    disk_push(c->disk, j);
    return true;
}

static void send_some(struct cache *c, int n_max)
{
    if (clock_us() < c->rest_until_us) {
        return;
    }
    while (c->tree.dirty.first && c->n_writing < n_max && send(c, c->tree.dirty.first)) {
    }
}

void spill_written(struct cache *c, struct disk_job *job)
{
    struct spill_job *s = (struct spill_job *)(void *)job;
    struct node *n = tree_find(&c->tree, job->id);
    c->n_writing--;
    /* The node may have gone, and may even have come again with another block. */
    if (n && n->disk == NODE_WRITING && n->block == s->block) {
        evict_set_disk(&c->tree, n, job->rc == 0 ? NODE_ON_DISK : NODE_ONLY_RAM);
        if (job->rc && job->rc != ERR_UNSUPPORTED && !n->is_bad) {
            set_dirty(c, n);
        }
        window_pass(c, n);
    }
    if (job->rc && job->rc != ERR_UNSUPPORTED && job->rc != ERR_CANCELED) {
        c->rest_until_us = clock_us() + (int64_t)DISK_PAUSE_MS * 1000;
    }
    kv_unref(s->block);
    free(s);
}

void cache_take_mail(struct cache *c, struct mail *m)
{
    struct disk_job *job = (struct disk_job *)(void *)m;
    assert(thread_is(THREAD_WORKER));
    c = job->cache ? job->cache : c;
    if (job->op == DISK_READ) {
        restore_arrived(c, job);
    } else if (job->op == DISK_PROVE) {
        proof_arrived(c, job);
    } else if (job->op == DISK_HEAD) {
        trace_arrived(job);
    } else if (job->op == DISK_SYNC) {
        job->on_done(job->ctx, job->rc == 0);
        free(job);
    } else if (job->op == DISK_FREE) {
        job->on_freed(job->ctx, job->n_bytes);
        free(job);
    } else {
        spill_written(c, job);
    }
}

void cache_tend(struct cache *c)
{
    struct tree *t = &c->tree;
    assert(thread_is(THREAD_WORKER));
    if (!c->disk) {
        return;
    }
    if (t->resting.first) {
        const int64_t now = clock_us();
        while (t->resting.first && t->resting.first->due_us <= now) {
            set_dirty(c, t->resting.first);
        }
    }
    if (t->dirty.first) {
        send_some(c, WRITES_MAX);
    }
    /* Everybody rests and all is written: a good moment to save what a kill would lose. */
    if (c->is_order_stale && !t->resting.first && !t->dirty.first && !c->n_writing && !c->leases) {
        c->is_order_stale = false;
        disk_save_order(c->disk);
    }
}

int cache_due_ms(const struct cache *c)
{
    const struct tree *t = &c->tree;
    int64_t due_us = INT64_MAX;
    if (!c->disk) {
        return -1;
    }
    if (t->resting.first) {
        due_us = t->resting.first->due_us;
    }
    if (t->dirty.first && !c->n_writing && c->rest_until_us < due_us) {
        due_us = c->rest_until_us;
    }
    if (due_us == INT64_MAX) {
        return -1;
    }
    const int64_t left_us = due_us - clock_us();
    return left_us > 0 ? (int)(left_us / 1000) + 1 : 1;
}

bool cache_is_busy(const struct cache *c)
{
    return c->n_writing > 0 || c->n_reading > 0;
}

/* Only so that the worker wakes, for cache_prepare. */
static void on_known(void *ctx, bool is_done)
{
    (void)ctx;
    (void)is_done;
}

int cache_disk_open(struct cache *c, const struct cache_disk_options *o, struct err *e)
{
    assert(thread_is(THREAD_WORKER) && !c->disk);
    const int rc = disk_open(o, &c->tree.pins, &c->disk, e);
    if (rc) {
        c->disk = NULL;
        return rc;
    }
    c->tail_idle_us = (int64_t)o->tail_idle_ms * 1000;
    c->tree.on_replaced = on_replaced;
    c->tree.ctx = c;
    struct err ignored;
    (void)!disk_sync(c->disk, on_known, NULL, &ignored); /* without memory the next mail wakes it */
    return 0;
}

void cache_disk_share(struct cache *c, struct cache *with)
{
    assert(thread_is(THREAD_WORKER) && !c->disk && with->disk);
    c->disk = disk_ref(with->disk);
    c->tail_idle_us = with->tail_idle_us;
    c->tree.on_replaced = on_replaced;
    c->tree.ctx = c;
}

void cache_rest(struct cache *c)
{
    assert(thread_is(THREAD_WORKER));
    while (c->tree.resting.first) {
        set_dirty(c, c->tree.resting.first);
    }
    if (c->disk && !disk_has_ended(c->disk)) {
        send_some(c, INT32_MAX);
    }
}

bool cache_has_waiting(const struct cache *c)
{
    return c->disk && (c->tree.resting.first || c->tree.dirty.first || c->n_writing > 0);
}

void cache_disk_leave(struct cache *c)
{
    assert(thread_is(THREAD_WORKER) && !c->leases && !cache_is_busy(c));
    if (c->disk && c->is_order_stale) {
        disk_save_order(c->disk);
    }
    disk_unref(c->disk);
    c->disk = NULL;
}

void cache_disk_close(struct cache *c, int ms)
{
    struct mail *jobs = NULL;
    assert(thread_is(THREAD_WORKER));
    if (!c->disk) {
        return;
    }
    assert(!c->leases);
    if (ms > 0) {
        cache_rest(c);
    }
    disk_end(c->disk, ms, &jobs);
    for (struct mail *m = jobs, *next; m; m = next) {
        next = m->next;
        cache_take_mail(c, m);
    }
    disk_unref(c->disk);
    c->disk = NULL;
}
