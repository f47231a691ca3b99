/* The tree of KV blocks. See tree.h for its shape and rules, which tree_check.c checks. */
#include "cache/tree.h"

#include <assert.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "base/sys.h"
#include "cache/evict.h"
#include "cache/tree_inside.h"

#define FIRST_BUCKETS 64
#define FIRST_HEAP 64

/* ---- ids ---- */

void tree_id(const uint8_t parent[HASH_BYTES], const int32_t *ids, int count,
             uint8_t ret[HASH_BYTES])
{
    static const char tag[] = "hearth-kv-1";
    unsigned char bytes[sizeof tag - 1 + HASH_BYTES + 1 + KV_BLOCK * 4];
    size_t n = 0;

    assert(count >= 1 && count <= KV_BLOCK);
    memcpy(bytes, tag, sizeof tag - 1);
    n += sizeof tag - 1;
    memcpy(bytes + n, parent, HASH_BYTES);
    n += HASH_BYTES;
    bytes[n++] = (unsigned char)count;
    for (int i = 0; i < count; i++) {
        const uint32_t v = (uint32_t)ids[i];
        bytes[n++] = (unsigned char)v;
        bytes[n++] = (unsigned char)(v >> 8);
        bytes[n++] = (unsigned char)(v >> 16);
        bytes[n++] = (unsigned char)(v >> 24);
    }
    hash_of(bytes, n, ret);
}

/* ---- the table ---- */

static size_t bucket_of(const struct tree *t, const uint8_t id[HASH_BYTES])
{
    uint64_t h;
    memcpy(&h, id, sizeof h); /* the id is a hash already */
    return (size_t)h & (t->n_buckets - 1);
}

struct node *tree_find(const struct tree *t, const uint8_t id[HASH_BYTES])
{
    for (struct node *n = t->buckets[bucket_of(t, id)]; n; n = n->hash_next) {
        if (!memcmp(n->id, id, HASH_BYTES)) {
            return n;
        }
    }
    return NULL;
}

static void table_link(struct tree *t, struct node *n)
{
    struct node **b = &t->buckets[bucket_of(t, n->id)];
    n->hash_next = *b;
    *b = n;
}

static void table_unlink(struct tree *t, const struct node *n)
{
    struct node **p = &t->buckets[bucket_of(t, n->id)];
    while (*p != n) {
        p = &(*p)->hash_next;
    }
    *p = n->hash_next;
}

/* Doubles the table when it is full. Not getting the memory only makes look-ups longer. */
static void table_grow(struct tree *t)
{
    if (t->n_nodes < t->n_buckets) {
        return;
    }
    const size_t n_old = t->n_buckets, n_new = n_old * 2;
    struct node **old = t->buckets, **more = sys.malloc(n_new * sizeof *more);
    if (!more) {
        return;
    }
    memset(more, 0, n_new * sizeof *more);
    t->buckets = more;
    t->n_buckets = n_new;
    for (size_t i = 0; i < n_old; i++) {
        for (struct node *n = old[i], *next; n; n = next) {
            next = n->hash_next;
            table_link(t, n);
        }
    }
    free(old);
}

/* ---- children ---- */

int tree_ids_common(const int32_t *a, int n_a, const int32_t *b, int n_b)
{
    const int n = n_a < n_b ? n_a : n_b;
    int i = 0;
    while (i < n && a[i] == b[i]) {
        i++;
    }
    return i;
}

int tree_ids_order(const int32_t *a, int n_a, const int32_t *b, int n_b)
{
    const int k = tree_ids_common(a, n_a, b, n_b);
    if (k < n_a && k < n_b) {
        return a[k] < b[k] ? -1 : 1;
    }
    return n_a - n_b;
}

int tree_place_of(const struct node *parent, const int32_t *ids, int n)
{
    int lo = 0, hi = parent->n_children;
    while (lo < hi) {
        const int mid = lo + (hi - lo) / 2;
        const struct node *c = parent->children[mid];
        if (tree_ids_order(c->ids, c->count, ids, n) < 0) {
            lo = mid + 1;
        } else {
            hi = mid;
        }
    }
    return lo;
}

struct node *tree_find_prefix(const struct node *parent, const int32_t *ids, int n, int *ret_n)
{
    struct node *best = NULL;
    int best_n = 0;
    const int at = tree_place_of(parent, ids, n);
    /* In sorted order, shared prefixes get shorter with the distance to the place: the two
     * neighbours decide. */
    for (int i = at; i >= 0 && i >= at - 1; i--) {
        if (i == parent->n_children) {
            continue;
        }
        struct node *c = parent->children[i];
        const int k = tree_ids_common(c->ids, c->count, ids, n);
        if (k > best_n) {
            best = c;
            best_n = k;
        }
    }
    *ret_n = best_n;
    return best;
}

struct node *tree_find_block(const struct tree *t, const struct node *parent, const int32_t *ids)
{
    uint8_t id[HASH_BYTES];
    tree_id(parent->id, ids, KV_BLOCK, id);
    return tree_find(t, id);
}

static int children_reserve(struct node *parent, struct err *e)
{
    if (parent->n_children < parent->cap_children) {
        return 0;
    }
    const int cap = parent->cap_children ? parent->cap_children * 2 : 1;
    if (cap > INT_MAX / 4) {
        return err_set(e, ERR_LIMIT, "a KV block with more than %d continuations",
                       parent->cap_children);
    }
    struct node **more = sys.realloc(parent->children, (size_t)cap * sizeof *more);
    if (!more) {
        return err_set(e, ERR_NOMEM, "out of memory for the %d continuations of a KV block", cap);
    }
    parent->children = more;
    parent->cap_children = cap;
    return 0;
}

static void children_add(struct node *parent, struct node *n)
{
    const int at = tree_place_of(parent, n->ids, n->count);
    memmove(&parent->children[at + 1], &parent->children[at],
            (size_t)(parent->n_children - at) * sizeof(struct node *));
    parent->children[at] = n;
    parent->n_children++;
}

static void children_remove(struct node *parent, const struct node *n)
{
    const int at = tree_place_of(parent, n->ids, n->count);
    assert(at < parent->n_children && parent->children[at] == n);
    parent->n_children--;
    memmove(&parent->children[at], &parent->children[at + 1],
            (size_t)(parent->n_children - at) * sizeof(struct node *));
    if (!parent->n_children) {
        free(parent->children);
        parent->children = NULL;
        parent->cap_children = 0;
    }
}

/* ---- pins ---- */

static bool is_block_or_tail(const struct node *n)
{
    return n->parent != NULL;
}

bool tree_is_idle(const struct node *n)
{
    return is_block_or_tail(n) && !n->n_leases && !n->n_held;
}

/* Counts n among the idle ones (by 1), or no more (−1). */
static void count_idle(struct tree *t, const struct node *n, int by)
{
    t->n_idle += (size_t)by;
    t->n_idle_windows += n->block->window ? (size_t)by : 0;
}

/* n is held once more, and with the first time what it hangs from. */
static void hold(struct tree *t, struct node *n)
{
    for (; is_block_or_tail(n); n = n->parent) {
        const bool was_idle = tree_is_idle(n);
        if (n->n_held++ > 0) {
            return;
        }
        if (was_idle) {
            count_idle(t, n, -1);
            evict_remove(t, n);
        }
    }
}

static void let_go(struct tree *t, struct node *n)
{
    for (; is_block_or_tail(n); n = n->parent) {
        if (--n->n_held > 0) {
            return;
        }
        if (tree_is_idle(n)) {
            count_idle(t, n, 1);
        }
        if (tree_is_idle(n) && !n->n_children) {
            evict_add(t, n);
        }
    }
}

static void set_pinned(struct tree *t, struct node *n, bool is_pinned)
{
    if (n->is_pinned == is_pinned) {
        return;
    }
    n->is_pinned = is_pinned;
    if (is_pinned) {
        hold(t, n);
    } else {
        let_go(t, n);
    }
}

void tree_protect(struct tree *t, const uint8_t id[HASH_BYTES])
{
    struct node *n = tree_find(t, id);
    pins_add(&t->pins, id);
    if (n && is_block_or_tail(n)) {
        set_pinned(t, n, true);
    }
}

void tree_expose(struct tree *t, const uint8_t id[HASH_BYTES])
{
    struct node *n = tree_find(t, id);
    if (n) {
        set_pinned(t, n, false);
    }
    pins_remove(&t->pins, id); /* last: the id may be its slot's own */
}

/* ---- nodes ---- */

int tree_init(struct tree *t, struct err *e)
{
    struct node **buckets = sys.malloc(FIRST_BUCKETS * sizeof *buckets);
    if (!buckets) {
        return err_set(e, ERR_NOMEM, "out of memory for the table of KV blocks");
    }
    memset(buckets, 0, FIRST_BUCKETS * sizeof *buckets);
    *t = (struct tree){.buckets = buckets, .n_buckets = FIRST_BUCKETS};
    return 0;
}

void tree_done(struct tree *t)
{
    for (size_t i = 0; i < t->pins.n_slots; i++) {
        while (t->pins.slots[i].is_used) { /* another may move here */
            tree_expose(t, t->pins.slots[i].id);
        }
    }
    pins_done(&t->pins);
    tree_drop(t, NULL);
    assert(t->n_nodes == 0); /* a root left over is a lease left open */
    free(t->buckets);
    free(t->heap);
    *t = (struct tree){0};
}

static int heap_reserve(struct tree *t, struct err *e)
{
    if (t->n_nodes < t->cap_heap) {
        return 0;
    }
    const size_t cap = t->cap_heap ? t->cap_heap * 2 : FIRST_HEAP;
    struct node **more = sys.realloc(t->heap, cap * sizeof *more);
    if (!more) {
        return err_set(e, ERR_NOMEM, "out of memory for the order of %zu KV blocks", cap);
    }
    t->heap = more;
    t->cap_heap = cap;
    return 0;
}

/* A node in the table, not yet hung anywhere. */
static int node_new(struct tree *t, const uint8_t id[HASH_BYTES], struct node **ret, struct err *e)
{
    const int rc = heap_reserve(t, e);
    if (rc) {
        return rc;
    }
    struct node *n = sys.malloc(sizeof *n);
    if (!n) {
        return err_set(e, ERR_NOMEM, "out of memory for a node of the prefix cache");
    }
    *n = (struct node){.root = n, .depth = -1, .heap_at = NODE_NOT_IN_HEAP};
    memcpy(n->id, id, HASH_BYTES);
    table_grow(t);
    table_link(t, n);
    t->n_nodes++;
    *ret = n;
    return 0;
}

static void node_free(struct tree *t, struct node *n)
{
    table_unlink(t, n);
    t->n_nodes--;
    free(n->children);
    free(n);
}

int tree_root(struct tree *t, const uint8_t id[HASH_BYTES], struct node **ret, struct err *e)
{
    struct node *n = tree_find(t, id);
    if (n) {
        *ret = n;
        return 0;
    }
    return node_new(t, id, ret, e);
}

void tree_prune_root(struct tree *t, struct node *root)
{
    if (!root->parent && !root->n_leases && !root->n_children) {
        node_free(t, root);
    }
}

void tree_list(struct node *n, struct node_list *list)
{
    if (n->list) {
        *(n->before ? &n->before->behind : &n->list->first) = n->behind;
        *(n->behind ? &n->behind->before : &n->list->last) = n->before;
        n->list->n--;
    }
    n->list = list;
    n->behind = NULL;
    n->before = list ? list->last : NULL;
    if (list) {
        *(list->last ? &list->last->behind : &list->first) = n;
        list->last = n;
        list->n++;
    }
}

static void count_in(struct tree *t, const struct node *n, int by)
{
    *(n->count == KV_BLOCK ? &t->n_blocks : &t->n_tails) += (size_t)by;
    t->n_windows += n->block->window ? (size_t)by : 0;
    count_idle(t, n, by);
}

int tree_add(struct tree *t, struct node *parent, const struct node_new *w, struct node **ret,
             struct err *e)
{
    uint8_t id[HASH_BYTES];
    struct node *n = NULL;
    int k = 0;

    assert(!parent->parent || parent->count == KV_BLOCK);
    struct node *near = tree_find_prefix(parent, w->ids, w->count, &k);
    if (near && k == w->count) {
        assert(w->count < KV_BLOCK);
        *ret = NULL;
        return 0;
    }
    int rc = children_reserve(parent, e);
    if (rc) {
        return rc;
    }
    tree_id(parent->id, w->ids, w->count, id);
    rc = node_new(t, id, &n, e);
    if (rc) {
        return rc; /* the array's new room stays: it goes with its node */
    }
    n->parent = parent;
    n->root = parent->root;
    n->depth = parent->depth + 1;
    n->count = w->count;
    n->block = kv_ref(w->block);
    n->who = w->who;
    n->is_bad = parent->is_bad;
    memcpy(n->ids, w->ids, (size_t)w->count * sizeof *n->ids);
    n->cost_us = evict_cost(t, n->depth, n->count, w->cost_us_per_token);
    children_add(parent, n);
    count_in(t, n, 1);
    evict_remove(t, parent);
    evict_touch(t, n);
    evict_add(t, n);
    set_pinned(t, n, pins_has(&t->pins, id));
    if (near && k == near->count) {
        if (t->on_replaced) {
            t->on_replaced(t->ctx, near);
        }
        tree_remove(t, near); /* a tail that the new node begins with */
    }
    *ret = n;
    return 0;
}

struct kv_block *tree_take(struct tree *t, struct node *n)
{
    struct node *parent = n->parent;
    struct kv_block *block = n->block;

    assert(is_block_or_tail(n) && !n->n_children && !n->n_leases);
    set_pinned(t, n, false); /* the id stays among the pins */
    evict_remove(t, n);
    tree_list(n, NULL);
    tree_set_spare(t, n, false);
    children_remove(parent, n);
    count_in(t, n, -1);
    node_free(t, n);
    if (tree_is_idle(parent) && !parent->n_children) {
        evict_add(t, parent);
    }
    tree_prune_root(t, parent);
    return block;
}

void tree_remove(struct tree *t, struct node *n)
{
    kv_unref(tree_take(t, n));
}

void tree_pin(struct tree *t, struct node *n)
{
    if (n->block) {
        kv_ref(n->block);
    }
    const bool was_idle = tree_is_idle(n);
    if (n->n_leases++ == 0 && is_block_or_tail(n)) {
        t->n_leased++;
        t->n_leased_windows += n->block->window != NULL;
    }
    if (was_idle) {
        count_idle(t, n, -1);
        evict_remove(t, n);
    }
}

void tree_unpin(struct tree *t, struct node *n)
{
    assert(n->n_leases > 0);
    if (n->block) {
        kv_unref(n->block);
    }
    if (--n->n_leases == 0 && is_block_or_tail(n)) {
        t->n_leased--;
        t->n_leased_windows -= n->block->window != NULL;
    }
    if (!tree_is_idle(n)) {
        return;
    }
    count_idle(t, n, 1);
    if (!n->n_children) {
        evict_add(t, n);
    }
}

/* ---- windowed sections ---- */

static void count_window(struct tree *t, const struct node *n, int by)
{
    t->n_windows += (size_t)by;
    t->n_idle_windows += tree_is_idle(n) ? (size_t)by : 0;
    t->n_leased_windows += n->n_leases ? (size_t)by : 0;
}

void tree_set_spare(struct tree *t, struct node *n, bool is_spare)
{
    struct node_list *s = &t->spare;
    if (n->is_spare) {
        *(n->spare_before ? &n->spare_before->spare_behind : &s->first) = n->spare_behind;
        *(n->spare_behind ? &n->spare_behind->spare_before : &s->last) = n->spare_before;
        s->n--;
    }
    n->is_spare = is_spare;
    n->spare_behind = NULL;
    n->spare_before = is_spare ? s->last : NULL;
    if (is_spare) {
        *(s->last ? &s->last->spare_behind : &s->first) = n;
        s->last = n;
        s->n++;
    }
}

void tree_drop_window(struct tree *t, struct node *n)
{
    assert(n->block->window && n->count == KV_BLOCK);
    tree_set_spare(t, n, false);
    count_window(t, n, -1);
    kv_window_drop(n->block);
}

void tree_take_window(struct tree *t, struct node *n, struct kv_block *from)
{
    kv_window_move(n->block, from);
    count_window(t, n, 1);
}

bool tree_evict(struct tree *t)
{
    struct node *n = evict_next(t);
    if (!n) {
        return false;
    }
    tree_remove(t, n);
    return true;
}

/* Removes an idle leaf and every ancestor that becomes one. Returns how many went. */
static size_t drop_upwards(struct tree *t, struct node *n)
{
    size_t n_gone = 0;
    while (tree_is_idle(n) && !n->n_children) {
        struct node *parent = n->parent;
        const bool goes_on = is_block_or_tail(parent); /* a root may be freed with its last child */
        tree_remove(t, n);
        n_gone++;
        if (!goes_on) {
            break;
        }
        n = parent;
    }
    return n_gone;
}

size_t tree_drop(struct tree *t, const struct node *root)
{
    size_t n_gone = 0;
    for (size_t i = 0; i < t->n_buckets; i++) {
        struct node *n = t->buckets[i];
        while (n) {
            const bool is_victim = n->heap_at != NODE_NOT_IN_HEAP && (!root || n->root == root);
            if (is_victim) {
                n_gone += drop_upwards(t, n);
            }
            /* What went may have been anywhere in this bucket: begin it anew. */
            n = is_victim ? t->buckets[i] : n->hash_next;
        }
    }
    return n_gone;
}

/* ---- quarantine ---- */

bool tree_is_below(const struct node *n, const struct node *top)
{
    while (n && n->depth > top->depth) {
        n = n->parent;
    }
    return n == top;
}

size_t tree_count_bad(const struct tree *t, const struct node *top)
{
    size_t n_bad = 0;
    for (size_t i = 0; i < t->n_buckets; i++) {
        for (const struct node *n = t->buckets[i]; n; n = n->hash_next) {
            n_bad += n->is_bad && tree_is_below(n, top);
        }
    }
    return n_bad;
}

/* Removes n and every bad ancestor that becomes an idle leaf. */
static void drop_bad_upwards(struct tree *t, struct node *n)
{
    while (n->is_bad && !n->n_children && !n->n_leases) {
        struct node *parent = n->parent;
        const bool goes_on = parent->is_bad; /* a root never is, and may be freed */
        tree_remove(t, n);
        if (!goes_on) {
            break;
        }
        n = parent;
    }
}

void tree_drop_bad(struct tree *t)
{
    for (size_t i = 0; i < t->n_buckets; i++) {
        struct node *n = t->buckets[i];
        while (n) {
            const bool is_victim = n->is_bad && !n->n_children && !n->n_leases;
            if (is_victim) {
                drop_bad_upwards(t, n);
            }
            n = is_victim ? t->buckets[i] : n->hash_next; /* as in tree_drop */
        }
    }
}
