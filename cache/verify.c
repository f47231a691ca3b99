/*
 * Proof: a block of a lease is computed again from its predecessors as found, and the bytes are
 * compared. Worker thread.
 *
 *     lease.path   n0 ─ n1 ─ n2 ─ n3          as found
 *     probe        [b0][b1][ x ]              x: fresh; a pass over n2's ids fills it
 *                            └ compared with b2
 *
 * When each block is what its predecessors give, the whole chain is what the model computes.
 *
 * Quarantine: the block and all that hangs from it can't be found from now on. What no lease holds
 * goes at once, the rest when its last lease closes: a running turn keeps what it has read.
 */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/sys.h"
#include "base/thread.h"
#include "cache/evict.h"
#include "cache/inside.h"

int cache_lease_n_blocks(const struct cache_lease *l)
{
    return l->n_path;
}

size_t cache_room(const struct cache *c)
{
    const size_t n_writing = (size_t)c->n_writing;
    return kv_pool_n_free(c->pool) + (c->tree.n_idle > n_writing ? c->tree.n_idle - n_writing : 0);
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

int cache_probe_open(struct cache_lease *l, int n_block, struct kv_seq *ret, struct err *e)
{
    struct kv_block *fresh;
    struct kv_block **blocks;

    assert(thread_is(THREAD_WORKER) && n_block >= 0 && n_block < l->n_path);
    blocks = sys.malloc(((size_t)n_block + 1) * sizeof *blocks);
    if (!blocks) {
        return err_set(e, ERR_NOMEM, "out of memory for a sequence of %d KV blocks", n_block + 1);
    }
    fresh = lease_take_block(l->cache);
    if (!fresh) {
        free(blocks);
        return err_set(e, ERR_NOMEM, "no KV block is free to verify another with");
    }
    for (int i = 0; i < n_block; i++) {
        blocks[i] = kv_ref(l->seq.blocks[i]);
    }
    blocks[n_block] = fresh;
    kv_seq_init(ret);
    ret->blocks = blocks;
    ret->n_blocks = ret->cap_blocks = n_block + 1;
    ret->n_tokens = n_block * KV_BLOCK;
    return 0;
}

bool cache_probe_close(struct cache_lease *l, struct kv_seq *s)
{
    const int n = s->n_blocks - 1;
    const size_t n_bytes = kv_pool_shape(l->cache->pool)->block_bytes;
    const bool is_same = s->n_tokens == s->n_blocks * KV_BLOCK &&
                         memcmp(s->blocks[n]->data, l->path[n]->block->data, n_bytes) == 0;
    assert(thread_is(THREAD_WORKER));
    kv_seq_done(s);
    return is_same;
}

/* Whole blocks and tails of ids[0, n) behind n_block of them, wherever they were computed. */
static void remove_files(struct cache *c, const struct node *bad, const int32_t *ids, int n)
{
    uint8_t parent[HASH_BYTES], id[HASH_BYTES];
    memcpy(parent, bad->id, HASH_BYTES);
    for (int at = (bad->depth + 1) * KV_BLOCK; at < n; at += KV_BLOCK) {
        for (int count = 1; count <= KV_BLOCK && count <= n - at; count++) {
            tree_id(parent, ids + at, count, id);
            if (disk_has(c->disk, id)) {
                disk_remove(c->disk, id);
            }
        }
        memcpy(parent, id, HASH_BYTES); /* of all 32, or this was the last */
    }
}

size_t cache_quarantine(struct cache_lease *l, int n_block, const int32_t *ids, int n_ids)
{
    struct cache *c = l->cache;
    struct node *bad = l->path[n_block];

    assert(thread_is(THREAD_WORKER) && n_block < l->n_path);
    for (size_t i = 0; i < c->tree.n_buckets; i++) {
        for (struct node *n = c->tree.buckets[i]; n; n = n->hash_next) {
            if (!tree_is_below(n, bad)) {
                continue;
            }
            n->is_bad = true;
            tree_list(n, NULL); /* never written any more */
            if (n->disk == NODE_RESTING || n->disk == NODE_DIRTY) {
                evict_set_disk(&c->tree, n, NODE_ONLY_RAM);
            }
            if (c->disk) {
                disk_remove(c->disk, n->id); /* after a write that is under way */
            }
        }
    }
    if (c->disk) {
        remove_files(c, bad, ids, n_ids);
    }
    const size_t n_gone = tree_count_bad(&c->tree, bad);
    tree_drop_bad(&c->tree);
    return n_gone;
}
