/*
 * Which blocks the disk has: a table by id, and the order of use. Plain data; the caller locks.
 *
 *     oldest ⇄ … ⇄ newest           victims are taken from the oldest
 *     bad: in the table, in no order   something stands under the name that isn't ours to use
 *     pinned: the same                 nobody's victim
 */
#ifndef HEARTH_CACHE_DISK_INDEX_H
#define HEARTH_CACHE_DISK_INDEX_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/hash.h"

#define DISK_ROOT_CHARS 16 /* hex digits of a root in a directory's name */

struct disk_entry {
    uint8_t id[HASH_BYTES];
    struct disk_entry *hash_next, *older, *newer;
    uint64_t bytes; /* allocated */
    int64_t order;  /* for index_sort: mtime, or a place in the saved order */
    char root[DISK_ROOT_CHARS + 1];
    bool is_bad;
    bool is_leaving; /* its removal has been asked for */
    bool is_pinned;
};

struct disk_index {
    struct disk_entry **buckets; /* [n_buckets], a power of two */
    size_t n_buckets, n_entries, n_bad, n_pinned;
    struct disk_entry *oldest, *newest;
    uint64_t bytes; /* of all entries */
};

int index_init(struct disk_index *x, struct err *e) MUST_USE;
void index_done(struct disk_index *x);
/* Borrowed, or NULL. */
struct disk_entry *index_find(const struct disk_index *x, const uint8_t id[HASH_BYTES]);
/* The first whose id begins with these 8 bytes, or NULL (the saved order keeps no more). */
struct disk_entry *index_find_prefix(const struct disk_index *x, const uint8_t prefix[8]);
/* A new entry, the newest. The id must not be there. ERR_NOMEM. */
int index_add(struct disk_index *x, const uint8_t id[HASH_BYTES], const char *root,
              struct disk_entry **ret, struct err *e) MUST_USE;
void index_set_bytes(struct disk_index *x, struct disk_entry *n, uint64_t bytes);
void index_remove(struct disk_index *x, struct disk_entry *n);
/* Used now. */
void index_touch(struct disk_index *x, struct disk_entry *n);
/* Puts n right before `next` in the order: it goes sooner. A block is of no use without
 * the one it follows. */
void index_place(struct disk_index *x, struct disk_entry *n, struct disk_entry *next);
/* Takes it out of the order, or puts it back as the newest. A bad one stays as it is. */
void index_set_pinned(struct disk_index *x, struct disk_entry *n, bool is_pinned);
void index_mark_bad(struct disk_index *x, struct disk_entry *n);
/* Orders all by `order`. Without memory for it the order stays as it is. */
void index_sort(struct disk_index *x);

#endif
