/*
 * Which restored blocks are to be proven when there is time: every N-th that comes from the disk,
 * the first after the start as number 1. Worker thread.
 *
 *     restored   1 2 3 4 5 6 7 8 9 …        N = 4
 *     sampled    ^       ^       ^          names in a ring; who is gone by then is passed over
 *
 * A restored tail is nobody's block yet: when its number is up, the block that its lease makes of
 * it is sampled. Restoring in order to prove doesn't count: the proof is under way.
 */
#include <stdlib.h>
#include <string.h>

#include "cache/inside.h"

void cache_set_samples(struct cache *c, int every)
{
    c->sample_every = every;
}

static bool is_next(struct cache *c, const struct cache_lease *l)
{
    return c->sample_every > 0 && !l->is_proof &&
           c->n_sampling++ % (uint64_t)c->sample_every == 0;
}

static void push(struct cache *c, const struct node *n)
{
    if (c->n_samples < CACHE_SAMPLES_MAX) { /* else one of the next ones */
        const size_t at = (c->first_sample + c->n_samples++) % CACHE_SAMPLES_MAX;
        memcpy(c->samples[at], n->id, HASH_BYTES);
    }
}

void sample_block(struct cache_lease *l, const struct node *n)
{
    /* What is older than a window can't be computed from what was restored. */
    if (cache_proof_from(l, n->depth) == n->depth && is_next(l->cache, l)) {
        push(l->cache, n);
    }
}

void sample_tail(struct cache_lease *l, int n_block)
{
    if (is_next(l->cache, l)) {
        l->is_sampled = true;
        l->sampled_block = n_block;
    }
}

void sample_kept(struct cache_lease *l, const struct node *n)
{
    if (l->is_sampled && n->depth == l->sampled_block) {
        l->is_sampled = false;
        push(l->cache, n);
    }
}

bool cache_has_sample(const struct cache *c)
{
    return c->n_samples > 0;
}

/* The ids of n's path. ERR_NOMEM. */
static int path_ids(const struct node *n, struct ids *ret)
{
    const size_t n_ids = (size_t)n->depth * KV_BLOCK + (size_t)n->count;
    int rc = 0;
    for (ret->n = 0; ret->n < n_ids && !rc;) {
        rc = ids_push(ret, 0);
    }
    for (; n->parent && !rc; n = n->parent) {
        memcpy(ret->v + (size_t)n->depth * KV_BLOCK, n->ids, (size_t)n->count * sizeof *n->ids);
    }
    return rc;
}

bool cache_take_sample(struct cache *c, struct cache_sample *ret, struct ids *ret_ids)
{
    while (c->n_samples > 0) {
        const struct node *n = tree_find(&c->tree, c->samples[c->first_sample]);
        c->first_sample = (c->first_sample + 1) % CACHE_SAMPLES_MAX;
        c->n_samples--;
        if (!n || !n->parent || n->is_bad || path_ids(n, ret_ids)) {
            continue;
        }
        const struct node *root = n;
        while (root->parent) {
            root = root->parent;
        }
        memcpy(ret->root.id, root->id, HASH_BYTES);
        memcpy(ret->id, n->id, HASH_BYTES);
        ret->n_block = n->depth;
        ret->count = n->count;
        return true;
    }
    return false;
}
