/* Which blocks the disk has. See disk_index.h. */
#include "cache/disk_index.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/sys.h"

#define FIRST_BUCKETS 1024

int index_init(struct disk_index *x, struct err *e)
{
    struct disk_entry **buckets = sys.malloc(FIRST_BUCKETS * sizeof *buckets);
    if (!buckets) {
        return err_set(e, ERR_NOMEM, "out of memory for the index of the disk tier");
    }
    memset(buckets, 0, FIRST_BUCKETS * sizeof *buckets);
    *x = (struct disk_index){.buckets = buckets, .n_buckets = FIRST_BUCKETS};
    return 0;
}

void index_done(struct disk_index *x)
{
    for (size_t i = 0; i < x->n_buckets; i++) {
        while (x->buckets[i]) {
            struct disk_entry *n = x->buckets[i];
            x->buckets[i] = n->hash_next;
            free(n);
        }
    }
    free(x->buckets);
    *x = (struct disk_index){0};
}

/* The id is a hash already; its first 8 bytes decide, so that a prefix finds its bucket. */
static struct disk_entry **bucket_of(const struct disk_index *x, const uint8_t *id)
{
    uint64_t h;
    memcpy(&h, id, sizeof h);
    return &x->buckets[h & (x->n_buckets - 1)];
}

struct disk_entry *index_find(const struct disk_index *x, const uint8_t id[HASH_BYTES])
{
    struct disk_entry *n = *bucket_of(x, id);
    while (n && memcmp(n->id, id, HASH_BYTES) != 0) {
        n = n->hash_next;
    }
    return n;
}

struct disk_entry *index_find_prefix(const struct disk_index *x, const uint8_t prefix[8])
{
    struct disk_entry *n = *bucket_of(x, prefix);
    while (n && memcmp(n->id, prefix, 8) != 0) {
        n = n->hash_next;
    }
    return n;
}

/* Doubles the table when it is full. Not getting the memory only makes look-ups longer. */
static void grow(struct disk_index *x)
{
    struct disk_index old = *x;
    if (x->n_entries < x->n_buckets) {
        return;
    }
    struct disk_entry **more = sys.malloc(2 * old.n_buckets * sizeof *more);
    if (!more) {
        return;
    }
    memset(more, 0, 2 * old.n_buckets * sizeof *more);
    x->buckets = more;
    x->n_buckets = 2 * old.n_buckets;
    for (size_t i = 0; i < old.n_buckets; i++) {
        for (struct disk_entry *n = old.buckets[i], *next; n; n = next) {
            next = n->hash_next;
            struct disk_entry **b = bucket_of(x, n->id);
            n->hash_next = *b;
            *b = n;
        }
    }
    free(old.buckets);
}

static bool is_ordered(const struct disk_entry *n)
{
    return !n->is_bad && !n->is_pinned;
}

static void order_unlink(struct disk_index *x, struct disk_entry *n)
{
    *(n->older ? &n->older->newer : &x->oldest) = n->newer;
    *(n->newer ? &n->newer->older : &x->newest) = n->older;
    n->older = n->newer = NULL;
}

static void order_append(struct disk_index *x, struct disk_entry *n)
{
    n->older = x->newest;
    n->newer = NULL;
    *(x->newest ? &x->newest->newer : &x->oldest) = n;
    x->newest = n;
}

int index_add(struct disk_index *x, const uint8_t id[HASH_BYTES], const char *root,
              struct disk_entry **ret, struct err *e)
{
    struct disk_entry *n = sys.malloc(sizeof *n);
    if (!n) {
        return err_set(e, ERR_NOMEM, "out of memory for the index of the disk tier");
    }
    *n = (struct disk_entry){0};
    memcpy(n->id, id, HASH_BYTES);
    memcpy(n->root, root, DISK_ROOT_CHARS);
    grow(x);
    struct disk_entry **b = bucket_of(x, id);
    n->hash_next = *b;
    *b = n;
    x->n_entries++;
    order_append(x, n);
    if (ret) {
        *ret = n;
    }
    return 0;
}

void index_set_bytes(struct disk_index *x, struct disk_entry *n, uint64_t bytes)
{
    x->bytes = x->bytes - n->bytes + bytes;
    n->bytes = bytes;
}

void index_remove(struct disk_index *x, struct disk_entry *n)
{
    struct disk_entry **p = bucket_of(x, n->id);
    while (*p != n) {
        p = &(*p)->hash_next;
    }
    *p = n->hash_next;
    x->n_bad -= n->is_bad;
    x->n_pinned -= n->is_pinned;
    if (is_ordered(n)) {
        order_unlink(x, n);
    }
    x->bytes -= n->bytes;
    x->n_entries--;
    free(n);
}

void index_touch(struct disk_index *x, struct disk_entry *n)
{
    if (!is_ordered(n)) {
        return;
    }
    order_unlink(x, n);
    order_append(x, n);
}

void index_set_pinned(struct disk_index *x, struct disk_entry *n, bool is_pinned)
{
    if (n->is_bad || n->is_pinned == is_pinned) {
        return;
    }
    if (is_pinned) {
        order_unlink(x, n);
        x->n_pinned++;
    } else {
        order_append(x, n);
        x->n_pinned--;
    }
    n->is_pinned = is_pinned;
}

void index_place(struct disk_index *x, struct disk_entry *n, struct disk_entry *next)
{
    if (!is_ordered(n) || !is_ordered(next) || n == next) {
        return;
    }
    order_unlink(x, n);
    n->newer = next;
    n->older = next->older;
    *(next->older ? &next->older->newer : &x->oldest) = n;
    next->older = n;
}

void index_mark_bad(struct disk_index *x, struct disk_entry *n)
{
    if (n->is_bad) {
        return;
    }
    index_set_pinned(x, n, false);
    order_unlink(x, n);
    n->is_bad = true;
    x->n_bad++;
}

static int by_order(const void *a, const void *b)
{
    const struct disk_entry *const *x = a, *const *y = b;
    return ((*x)->order > (*y)->order) - ((*x)->order < (*y)->order);
}

void index_sort(struct disk_index *x)
{
    const size_t n = x->n_entries - x->n_bad - x->n_pinned;
    struct disk_entry **all = n ? sys.malloc(n * sizeof(struct disk_entry *)) : NULL;
    size_t i = 0;
    if (!all) {
        return;
    }
    for (struct disk_entry *m = x->oldest; m; m = m->newer) {
        all[i++] = m;
    }
    assert(i == n);
    qsort(all, n, sizeof *all, by_order);
    x->oldest = x->newest = NULL;
    for (i = 0; i < n; i++) {
        order_append(x, all[i]);
    }
    free(all);
}
