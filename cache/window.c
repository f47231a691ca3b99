/* Which windowed sections stay. See window.h. Worker thread. */
#include "cache/window.h"

#include "cache/evict.h"

static const struct kv_shape *shape_of(const struct cache *c)
{
    return kv_pool_shape(c->pool);
}

/* Blocks that W positions before a boundary lie in. */
static int n_window_blocks(const struct kv_shape *s)
{
    return (s->window + KV_BLOCK - 1) / KV_BLOCK;
}

int window_from(const struct cache_lease *l)
{
    const struct kv_shape *s = shape_of(l->cache);
    return kv_window_from(s, (l->is_proof ? l->proof_at : l->n_path) * KV_BLOCK);
}

/* Whether a lease sees it, or it is held for a moment: to be copied from. */
static bool is_needed(const struct cache *c, const struct node *n)
{
    int n_paths = 0;
    for (const struct cache_lease *l = n->n_leases ? c->leases : NULL; l; l = l->next) {
        if (n->depth >= l->n_path || l->path[n->depth] != n) {
            continue;
        }
        if (!l->is_closing && n->depth >= window_from(l)) {
            return true;
        }
        n_paths++;
    }
    return n->n_leases > n_paths;
}

/* Whether somebody may go on from so near behind n that it would need n. */
static bool is_before_end(const struct kv_shape *s, const struct node *n)
{
    for (int i = n_window_blocks(s); i >= 0; i--) {
        if (n->n_children != 1) {
            return true;
        }
        n = n->children[0];
    }
    return false;
}

static bool is_passed(const struct cache *c, const struct node *n)
{
    return n->block->window && n->count == KV_BLOCK && n->disk != NODE_WRITING &&
           !is_needed(c, n) && !is_before_end(shape_of(c), n);
}

void window_pass(struct cache *c, struct node *n)
{
    if (!is_passed(c, n)) {
        return;
    }
    if (n->disk == NODE_ON_DISK) {
        tree_drop_window(&c->tree, n);
    } else if (!n->n_held) { /* nobody takes from what is pinned */
        tree_set_spare(&c->tree, n, true);
    }
}

void window_pass_lease(struct cache_lease *l)
{
    const int near = l->n_path - 1 - n_window_blocks(shape_of(l->cache)); /* the path's own end */
    const int end = window_from(l) < near ? window_from(l) : near;
    for (; l->n_passed < end; l->n_passed++) {
        window_pass(l->cache, l->path[l->n_passed]);
    }
}

void window_release(struct cache_lease *l)
{
    if (shape_of(l->cache)->n_sections == 1) {
        return;
    }
    l->is_closing = true;
    for (int i = 0; i < l->n_path; i++) {
        window_pass(l->cache, l->path[i]);
    }
}

static bool may_go(const struct cache *c, const struct node *n, bool is_last_resort)
{
    const bool is_waiting = c->disk && (n->disk == NODE_DIRTY || n->disk == NODE_RESTING) &&
                            !disk_is_paused(c->disk);
    return is_passed(c, n) && !n->n_held && (is_last_resort || !is_waiting);
}

bool window_evict(struct cache *c, bool is_last_resort)
{
    struct tree *t = &c->tree;
    for (struct node *n = t->spare.first, *next; n; n = next) {
        next = n->spare_behind;
        if (may_go(c, n, is_last_resort)) {
            if (n->disk == NODE_DIRTY || n->disk == NODE_RESTING) {
                evict_set_disk(t, n, NODE_ONLY_RAM); /* a thin block has no file */
                tree_list(n, NULL);
            }
            tree_drop_window(t, n);
            return true;
        }
        if (!is_passed(c, n)) {
            tree_set_spare(t, n, false); /* until it is passed again */
        }
    }
    return false;
}

size_t window_n_spare_leased(const struct cache *c)
{
    size_t n_spare = 0;
    for (const struct node *n = c->tree.spare.first; n; n = n->spare_behind) {
        n_spare += n->n_leases > 0 && may_go(c, n, true);
    }
    return n_spare;
}

void window_fill(struct cache *c, struct node *n, struct kv_block *from)
{
    if (!from->window || n->block->window) {
        return;
    }
    tree_take_window(&c->tree, n, from);
    if (n->disk == NODE_ONLY_RAM) {
        spill_add(c, n); /* it lost its place there when it lost this */
    }
}

static bool has_window(void *ctx, int n_block)
{
    const struct cache_lease *l = ctx;
    const struct kv_block *b = l->seq.blocks[n_block];
    return b->window && !b->is_window_raw;
}

int window_usable(struct cache_lease *l)
{
    return kv_usable(shape_of(l->cache), l->seq.n_tokens, has_window, l);
}

/* *ctx: the last block asked for, or one behind it. */
static bool node_has_window(void *ctx, int n_block)
{
    const struct node **at = ctx;
    while ((*at)->depth > n_block) {
        *at = (*at)->parent;
    }
    return (*at)->block->window != NULL;
}

int window_usable_run(const struct cache *c, const struct window_run *r)
{
    const struct kv_shape *s = shape_of(c);
    const int n = (r->end->depth + 1) * KV_BLOCK;
    const struct node *at = r->end;
    const int n_use = kv_usable(s, n, node_has_window, &at);
    return n_use + (n_use == n && r->part && kv_block_is_whole(r->part->block, s) ? r->k : 0);
}
