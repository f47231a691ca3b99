/*
 * Proof: a block is computed again from its predecessors as found, and its bytes are compared, in
 * RAM and on disk. Worker thread; the file is read by the disk thread meanwhile.
 *
 *     lease.path   n0 ─ n1 ─ n2 ─ n3          as found
 *     probe        [b0][b1][ x ]              x: fresh; a pass over n2's ids fills it
 *                            ├ compared with the node of that name: n2, or a tail behind n1
 *                            └ compared with its file
 *
 * When each block is what its predecessors give, the whole chain is what the model computes.
 *
 * Quarantine: what is bad, and what may come of it, can't be found from now on.
 *
 *     P ─┬─ X bad ── c ── d        X and all that hangs from it, in RAM and on disk;
 *        ├─ x' begins as X does    its first positions may be copies of X's: the same;
 *        └─ a lease's own block    may be one too: that lease shares nothing more
 *
 * What no lease holds goes at once, the rest when its last lease closes: a running turn keeps what
 * it has read. Reads under way are discarded when they arrive; the disk finds nothing until what
 * hangs from X is removed there (disk_purge.h), and no write of X that is still on its way is found
 * before its removal.
 */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/sys.h"
#include "base/thread.h"
#include "cache/evict.h"
#include "cache/inside.h"
#include "cache/window.h"

struct proof_job {
    struct disk_job job;
    struct cache_proof *proof; /* NULL: closed since */
    struct kv_block *block;
};

struct cache_proof {
    struct cache *cache;
    uint8_t id[HASH_BYTES];
    struct kv_seq probe;
    int n_block, count;
    struct proof_job *reading; /* NULL: none under way */
    struct kv_block *file;     /* its bytes; NULL: none were read */
};

/* ---- what there is ---- */

void cache_lease_prove(struct cache_lease *l)
{
    l->is_proof = true;
}

int cache_lease_n_blocks(const struct cache_lease *l)
{
    return l->n_path;
}

int cache_proof_from(const struct cache_lease *l, int n_block)
{
    const struct window_run run = {.end = n_block > 0 ? l->path[n_block - 1] : l->root};
    assert(n_block <= l->n_path);
    return window_usable_run(l->cache, &run) / KV_BLOCK;
}

int cache_restorable(const struct cache_lease *l, const int32_t *ids, int n_max)
{
    const struct cache *c = l->cache;
    uint8_t id[HASH_BYTES], next[HASH_BYTES];
    int n = l->n_path;

    if (!c->disk || !disk_wait(c->disk)) {
        return 0;
    }
    memcpy(id, lease_end(l)->id, HASH_BYTES);
    for (; n_max - n * KV_BLOCK >= KV_BLOCK; n++) {
        tree_id(id, ids + (size_t)n * KV_BLOCK, KV_BLOCK, next);
        if (!disk_has(c->disk, next)) {
            break;
        }
        memcpy(id, next, HASH_BYTES);
    }
    return (n - l->n_path) * KV_BLOCK;
}

/* ---- a proof ---- */

static const struct node *parent_of(const struct cache_lease *l, int n_block)
{
    assert(n_block >= 0 && n_block <= l->n_path);
    return n_block ? l->path[n_block - 1] : l->root;
}

static int probe_open(struct cache_lease *l, int n_block, struct kv_seq *ret, struct err *e)
{
    struct kv_block **blocks = sys.malloc(((size_t)n_block + 1) * sizeof *blocks);
    struct kv_block *fresh = blocks ? lease_take_block(l->cache) : NULL;
    if (!fresh) {
        free(blocks);
        return err_set(e, ERR_NOMEM, "no KV block is free to prove another with");
    }
    for (int i = 0; i < n_block; i++) {
        blocks[i] = kv_ref(l->path[i]->block);
    }
    blocks[n_block] = fresh;
    kv_seq_init(ret);
    ret->blocks = blocks;
    ret->n_blocks = ret->cap_blocks = n_block + 1;
    ret->n_tokens = n_block * KV_BLOCK;
    return 0;
}

/* false: no memory or room now. */
static bool ask_file(struct cache_proof *p, const struct cache_lease *l)
{
    struct cache *c = p->cache;
    struct kv_block *b = lease_take_block(c);
    struct proof_job *j = b ? sys.malloc(sizeof *j) : NULL;
    if (!j) {
        kv_unref(b);
        return false;
    }
    *j = (struct proof_job){.proof = p, .block = b};
    j->job.op = DISK_PROVE;
    j->job.cache = c;
    j->job.data = block_data(c, b);
    memcpy(j->job.root, l->root->id, HASH_BYTES);
    memcpy(j->job.id, p->id, HASH_BYTES);
    p->reading = j;
    c->n_reading++;
    disk_push(c->disk, &j->job);
    return true;
}

int cache_proof_open(struct cache_lease *l, const struct cache_piece *piece,
                     struct cache_proof **ret, struct err *e)
{
    struct cache *c = l->cache;
    assert(thread_is(THREAD_WORKER) && piece->count >= 1 && piece->count <= KV_BLOCK);
    if (cache_proof_from(l, piece->n_block) < piece->n_block) {
        return err_set(e, ERR_NOTFOUND, "windowed layers before block %d aren't there",
                       piece->n_block);
    }
    l->proof_at = piece->n_block;
    struct cache_proof *p = sys.malloc(sizeof *p);
    if (!p) {
        return err_set(e, ERR_NOMEM, "out of memory for a proof");
    }
    *p = (struct cache_proof){.cache = c, .n_block = piece->n_block, .count = piece->count};
    tree_id(parent_of(l, piece->n_block)->id, piece->ids, piece->count, p->id);
    int rc = probe_open(l, piece->n_block, &p->probe, e);
    if (rc) {
        free(p);
        return rc;
    }
    if (piece->has_file && c->disk && disk_has(c->disk, p->id) && !ask_file(p, l)) {
        cache_proof_close(p, NULL);
        return err_set(e, ERR_NOMEM, "no KV block is free to read a file into");
    }
    *ret = p;
    return 0;
}

struct kv_seq *cache_proof_seq(struct cache_proof *p)
{
    return &p->probe;
}

bool cache_proof_is_reading(const struct cache_proof *p)
{
    return p->reading != NULL;
}

void proof_arrived(struct cache *c, struct disk_job *job)
{
    struct proof_job *j = (struct proof_job *)(void *)job;
    struct cache_proof *p = j->proof;
    c->n_reading--;
    if (p) {
        p->reading = NULL;
    }
    if (p && job->rc == 0) {
        p->file = j->block;
    } else {
        kv_unref(j->block);
    }
    free(j);
}

/* All that is there: of a thin block, its full layers. */
static enum cache_verdict judge(const struct cache_proof *p, const struct kv_block *found)
{
    const struct kv_shape *s = kv_pool_shape(p->cache->pool);
    const struct kv_block *right = p->probe.blocks[p->n_block];
    if (!found) {
        return CACHE_ABSENT;
    }
    const bool is_same =
        memcmp(right->data, found->data, s->full_bytes) == 0 &&
        (!found->window || memcmp(right->window, found->window, s->window_bytes) == 0);
    return is_same ? CACHE_SAME : CACHE_DIFFERENT;
}

void cache_proof_close(struct cache_proof *p, struct cache_verdicts *ret)
{
    if (!p) {
        return;
    }
    assert(thread_is(THREAD_WORKER));
    struct node *n = tree_find(&p->cache->tree, p->id);
    if (ret) {
        assert(p->probe.n_tokens == p->n_block * KV_BLOCK + p->count);
        kv_seq_seal(&p->probe);
        ret->ram = judge(p, n && !n->is_bad ? n->block : NULL);
        ret->disk = judge(p, p->file);
        if (ret->ram == CACHE_SAME) { /* the next proof needs what it lacks */
            window_fill(p->cache, n, p->probe.blocks[p->n_block]);
        }
    }
    if (p->reading) {
        p->reading->proof = NULL;
        atomic_store(&p->reading->job.is_canceled, true);
    }
    kv_unref(p->file);
    kv_seq_done(&p->probe);
    free(p);
}

/* ---- quarantine ---- */

static bool is_suspect(const struct node *n, const struct node *parent, const struct record *bad)
{
    const struct node *top = n;
    while (top && top->parent != parent) {
        top = top->parent;
    }
    return top && top->ids[0] == bad->ids[0];
}

static void put_away(struct cache *c, struct node *n)
{
    n->is_bad = true;
    tree_list(n, NULL); /* never written any more */
    if (n->disk == NODE_RESTING || n->disk == NODE_DIRTY) {
        evict_set_disk(&c->tree, n, NODE_ONLY_RAM);
    }
    if (c->disk) {
        (void)!disk_remove(c->disk, n->id); /* after a write that is under way */
    }
}

/* What leases have of it, or are reading. */
static void warn_leases(struct cache *c, const struct node *parent, const struct record *bad)
{
    for (struct cache_lease *l = c->leases; l; l = l->next) {
        const int at = parent->depth + 1;
        const bool has_parent = at == 0 ? l->root == parent
                                        : at <= l->n_path && l->path[at - 1] == parent;
        if (memcmp(l->root->id, bad->root, HASH_BYTES) != 0) {
            continue;
        }
        if (has_parent && l->n_path == at && l->seq.n_tokens > at * KV_BLOCK) {
            l->is_tainted = true;
        }
        if (has_parent && at < l->n_path && l->path[at]->is_bad) {
            restore_discard(l, l->n_path, NULL);
        } else {
            restore_discard(l, at, &bad->ids[0]);
        }
    }
}

size_t cache_quarantine(struct cache_lease *l, const struct cache_piece *piece)
{
    struct cache *c = l->cache;
    const struct node *parent = parent_of(l, piece->n_block);
    struct record bad = {.count = piece->count};
    uint8_t id[HASH_BYTES];
    size_t n_bad = 0;

    assert(thread_is(THREAD_WORKER));
    memcpy(bad.root, l->root->id, HASH_BYTES);
    memcpy(bad.parent, parent->id, HASH_BYTES);
    memcpy(bad.ids, piece->ids, (size_t)piece->count * sizeof *piece->ids);
    record_id(&bad, id);
    for (size_t i = 0; i < c->tree.n_buckets; i++) {
        for (struct node *n = c->tree.buckets[i]; n; n = n->hash_next) {
            if (n->parent && !n->is_bad && is_suspect(n, parent, &bad)) {
                put_away(c, n);
                n_bad++;
            }
        }
    }
    if (c->disk) {
        (void)!disk_remove(c->disk, id);
        disk_purge(c->disk, &bad, kv_pool_shape(c->pool)->block_bytes);
        c->is_order_stale = true;
    }
    warn_leases(c, parent, &bad);
    tree_drop_bad(&c->tree);
    return n_bad;
}

void cache_discard_file(struct cache_lease *l, const struct cache_piece *piece)
{
    struct cache *c = l->cache;
    uint8_t id[HASH_BYTES];
    tree_id(parent_of(l, piece->n_block)->id, piece->ids, piece->count, id);
    struct node *n = tree_find(&c->tree, id);
    if (!c->disk || !disk_remove(c->disk, id)) {
        return;
    }
    if (n && !n->is_bad && n->disk == NODE_ON_DISK) {
        evict_set_disk(&c->tree, n, NODE_ONLY_RAM);
        spill_add(c, n); /* written again, after the removal */
    }
}
