/* Whether the rules of tree.h hold, for tests: every node, the order of children,
 * ids, references, what is held, and the accounts. */
#include <string.h>

#include "cache/evict.h"
#include "cache/tree_inside.h"

static int check_pin(const struct tree *t, const struct node *n, struct err *e)
{
    int n_held = n->is_pinned;
    for (int i = 0; i < n->n_children; i++) {
        n_held += n->children[i]->n_held > 0;
    }
    if (n->is_pinned != pins_has(&t->pins, n->id) || n_held != n->n_held) {
        return err_set(e, ERR_CORRUPT, "a block at depth %d is%s pinned and held %d times, not %d",
                       n->depth, n->is_pinned ? "" : "n't", n->n_held, n_held);
    }
    return 0;
}

static int check_children(const struct node *n, struct err *e)
{
    for (int i = 0; i < n->n_children; i++) {
        const struct node *c = n->children[i];
        if (c->parent != n || c->depth != n->depth + 1) {
            return err_set(e, ERR_CORRUPT,
                           "child %d of a node at depth %d names another parent or depth (%d)", i,
                           n->depth, c->depth);
        }
        if (!i) {
            continue;
        }
        const struct node *before = n->children[i - 1];
        const int k = tree_ids_common(before->ids, before->count, c->ids, c->count);
        if (tree_ids_order(before->ids, before->count, c->ids, c->count) >= 0 ||
            k == before->count) {
            return err_set(
                e, ERR_CORRUPT,
                "children %d and %d at depth %d are out of order, equal or one begins the other",
                i - 1, i, c->depth);
        }
    }
    return 0;
}

static int check_root(const struct node *n, struct err *e)
{
    if (n->count || n->block || n->depth != -1 || n->heap_at != NODE_NOT_IN_HEAP) {
        return err_set(e, ERR_CORRUPT, "a root with %d ids, depth %d", n->count, n->depth);
    }
    if (!n->n_children && !n->n_leases) {
        return err_set(e, ERR_CORRUPT, "a root that nothing hangs from and nobody leases");
    }
    return check_children(n, e);
}

static int check_node(const struct tree *t, const struct node *n, struct err *e)
{
    uint8_t id[HASH_BYTES];
    const struct node *p = n->parent;

    if (!p) {
        return check_root(n, e);
    }
    if (n->count < 1 || n->count > KV_BLOCK || (p->parent && p->count != KV_BLOCK) ||
        (n->count < KV_BLOCK && n->n_children)) {
        return err_set(e, ERR_CORRUPT, "a node of %d ids with %d children under one of %d ids",
                       n->count, n->n_children, p->count);
    }
    const int at = tree_place_of(p, n->ids, n->count);
    if (at >= p->n_children || p->children[at] != n) {
        return err_set(e, ERR_CORRUPT, "a node at depth %d isn't among its parent's children",
                       n->depth);
    }
    tree_id(p->id, n->ids, n->count, id);
    if (memcmp(id, n->id, HASH_BYTES) || tree_find(t, id) != n) {
        return err_set(e, ERR_CORRUPT,
                       "the id of a node at depth %d isn't that of its path, or is there twice",
                       n->depth);
    }
    if (n->is_spare && (!n->block->window || n->count < KV_BLOCK)) {
        return err_set(e, ERR_CORRUPT, "a block at depth %d is spare and thin, or a tail",
                       n->depth);
    }
    const int n_writes = n->disk == NODE_WRITING;
    if (!n->block || n->block->n_refs != 1 + n->n_leases + n_writes) {
        return err_set(e, ERR_CORRUPT, "a block at depth %d has %d references, and %d leases",
                       n->depth, n->block ? n->block->n_refs : 0, n->n_leases);
    }
    if (!n->list != (n->disk != NODE_DIRTY && n->disk != NODE_RESTING)) {
        return err_set(e, ERR_CORRUPT, "a block at depth %d is in the wrong list for the disk",
                       n->depth);
    }
    if (n->n_leases > p->n_leases && p->parent) {
        return err_set(e, ERR_CORRUPT, "a block at depth %d has more leases than the one before it",
                       n->depth);
    }
    const int rc = check_pin(t, n, e);
    if (rc) {
        return rc;
    }
    const bool is_victim = !n->n_children && tree_is_idle(n);
    if (is_victim != (n->heap_at < t->n_heap && t->heap[n->heap_at] == n)) {
        return err_set(
            e, ERR_CORRUPT,
            "a block at depth %d with %d children, %d leases is at place %zu of the heap", n->depth,
            n->n_children, n->n_leases, n->heap_at);
    }
    return check_children(n, e);
}

int tree_check(const struct tree *t, struct err *e)
{
    size_t n_nodes = 0, n_blocks = 0, n_tails = 0, n_idle = 0, n_children = 0, n_roots = 0;
    size_t n_leased = 0, n_windows = 0, n_idle_windows = 0, n_leased_windows = 0, n_spare = 0;
    for (size_t i = 0; i < t->n_buckets; i++) {
        for (const struct node *n = t->buckets[i]; n; n = n->hash_next) {
            const int rc = check_node(t, n, e);
            if (rc) {
                return rc;
            }
            n_nodes++;
            n_roots += !n->parent;
            n_children += (size_t)n->n_children;
            n_blocks += n->count == KV_BLOCK;
            n_tails += n->parent && n->count < KV_BLOCK;
            n_idle += tree_is_idle(n);
            n_leased += n->parent && n->n_leases;
            n_spare += n->is_spare;
            if (n->parent && n->block->window) {
                n_windows++;
                n_idle_windows += tree_is_idle(n);
                n_leased_windows += n->n_leases > 0;
            }
        }
    }
    if (n_nodes != t->n_nodes || n_blocks != t->n_blocks || n_tails != t->n_tails ||
        n_idle != t->n_idle) {
        return err_set(e, ERR_CORRUPT,
                       "counted %zu nodes, %zu blocks, %zu tails, %zu idle; the account says %zu, "
                       "%zu, %zu, %zu",
                       n_nodes, n_blocks, n_tails, n_idle, t->n_nodes, t->n_blocks, t->n_tails,
                       t->n_idle);
    }
    if (n_leased != t->n_leased) {
        return err_set(e, ERR_CORRUPT, "counted %zu leased nodes, the account says %zu", n_leased,
                       t->n_leased);
    }
    if (n_windows != t->n_windows || n_idle_windows != t->n_idle_windows ||
        n_leased_windows != t->n_leased_windows || n_spare != t->spare.n) {
        return err_set(e, ERR_CORRUPT,
                       "counted %zu windowed sections, %zu idle, %zu leased, %zu spare; the "
                       "account says %zu, %zu, %zu, %zu",
                       n_windows, n_idle_windows, n_leased_windows, n_spare, t->n_windows,
                       t->n_idle_windows, t->n_leased_windows, t->spare.n);
    }
    if (n_children != n_nodes - n_roots) {
        return err_set(e, ERR_CORRUPT, "%zu nodes hang from others, of %zu that aren't roots",
                       n_children, n_nodes - n_roots);
    }
    return evict_check(t, e);
}
