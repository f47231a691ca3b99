/* The heap of victims. See evict.h. */
#include "cache/evict.h"

#include <assert.h>

/* Attention makes a position at 4,096 cost about twice one at 0 on the models this was written for
 * (more on small ones); it only orders victims. */
#define COST_DOUBLES_AT 4096.0
#define COST_US_UNKNOWN 1000.0

double evict_cost(struct tree *t, int depth, int count, int64_t us_per_token)
{
    if (us_per_token > 0) {
        t->us_per_token = (double)us_per_token;
    }
    const double us = t->us_per_token > 0 ? t->us_per_token : COST_US_UNKNOWN;
    const double position = (double)depth * KV_BLOCK;
    return us * count * (1.0 + position / COST_DOUBLES_AT);
}

/* 1 + log2(1 + hits), linear between powers of two: no libm, and every hit counts. */
static double use_of(uint64_t n_hits)
{
    double use = 1, x = (double)n_hits + 1;
    while (x >= 2) {
        x /= 2;
        use++;
    }
    return use + (x - 1);
}

/* What is lost with the block: nothing that wasn't decided; nothing, but room comes only when the
 * write has ended; what was computed. */
static int loss_of(const struct node *n)
{
    switch (n->disk) {
    case NODE_WRITING:
        return 1;
    case NODE_RESTING:
    case NODE_DIRTY:
        return 2;
    default:
        return 0;
    }
}

/* Of two that cost the same, the one that rested longer goes first. */
static bool goes_before(const struct node *a, const struct node *b)
{
    const int x = loss_of(a), y = loss_of(b);
    if (x != y) {
        return x < y;
    }
    return a->priority < b->priority || (a->priority == b->priority && a->used_at < b->used_at);
}

static void put(struct tree *t, size_t at, struct node *n)
{
    t->heap[at] = n;
    n->heap_at = at;
}

static void sift_up(struct tree *t, size_t at)
{
    struct node *n = t->heap[at];
    while (at > 0) {
        const size_t up = (at - 1) / 2;
        if (!goes_before(n, t->heap[up])) {
            break;
        }
        put(t, at, t->heap[up]);
        at = up;
    }
    put(t, at, n);
}

static void sift_down(struct tree *t, size_t at)
{
    struct node *n = t->heap[at];
    for (;;) {
        size_t down = 2 * at + 1;
        if (down >= t->n_heap) {
            break;
        }
        if (down + 1 < t->n_heap && goes_before(t->heap[down + 1], t->heap[down])) {
            down++;
        }
        if (!goes_before(t->heap[down], n)) {
            break;
        }
        put(t, at, t->heap[down]);
        at = down;
    }
    put(t, at, n);
}

void evict_touch(struct tree *t, struct node *n)
{
    n->priority = t->clock + n->cost_us * use_of(n->n_hits);
    n->used_at = ++t->n_uses;
    if (n->heap_at != NODE_NOT_IN_HEAP) {
        sift_down(t,
                  n->heap_at); /* a use never makes it cheaper: the clock and the hits only rise */
    }
}

void evict_add(struct tree *t, struct node *n)
{
    assert(n->heap_at == NODE_NOT_IN_HEAP && t->n_heap < t->cap_heap);
    t->n_heap++;
    put(t, t->n_heap - 1, n);
    sift_up(t, t->n_heap - 1);
}

void evict_remove(struct tree *t, struct node *n)
{
    const size_t at = n->heap_at;
    if (at == NODE_NOT_IN_HEAP) {
        return;
    }
    struct node *last = t->heap[--t->n_heap];
    n->heap_at = NODE_NOT_IN_HEAP;
    if (last != n) {
        put(t, at, last);
        sift_up(t, at);
        sift_down(t, last->heap_at);
    }
}

void evict_set_disk(struct tree *t, struct node *n, enum node_disk disk)
{
    n->disk = disk;
    if (n->heap_at != NODE_NOT_IN_HEAP) {
        sift_up(t, n->heap_at);
        sift_down(t, n->heap_at);
    }
}

struct node *evict_next(struct tree *t)
{
    if (!t->n_heap) {
        return NULL;
    }
    struct node *n = t->heap[0];
    /* A block that became a leaf late may carry a priority from before the last victim: the clock
     * never turns back. */
    if (n->priority > t->clock) {
        t->clock = n->priority;
    }
    return n;
}

int evict_check(const struct tree *t, struct err *e)
{
    if (t->cap_heap < t->n_nodes) {
        return err_set(e, ERR_CORRUPT, "the heap has room for %zu of %zu nodes", t->cap_heap,
                       t->n_nodes);
    }
    for (size_t i = 0; i < t->n_heap; i++) {
        const struct node *n = t->heap[i];
        if (n->heap_at != i) {
            return err_set(e, ERR_CORRUPT, "the leaf at place %zu of the heap thinks it is at %zu",
                           i, n->heap_at);
        }
        if (i && goes_before(n, t->heap[(i - 1) / 2])) {
            return err_set(e, ERR_CORRUPT,
                           "the leaf at place %zu of the heap is cheaper than the one above it", i);
        }
    }
    return 0;
}
