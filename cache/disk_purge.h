/*
 * What hangs from a bad block, among the files of its root: found by their heads, since names don't
 * tell of parents. Disk thread; a head a step, so that reads can come in between.
 *
 *     X bad      ids of the same root, with their parents      P ─┬─ X ── c ── d    X, c, d go
 *                                                                 ├─ x'            x' begins as X
 *                                                                 └─ Y             does: its first
 *                                                                                  positions may be
 *     orphan (its parent isn't on disk): who knows; it goes       copies, so it goes; Y stays
 *
 * A file whose head can't be read goes too.
 */
#ifndef HEARTH_CACHE_DISK_PURGE_H
#define HEARTH_CACHE_DISK_PURGE_H

#include "cache/disk_index.h"
#include "cache/record.h"

struct purge_block {
    uint8_t id[HASH_BYTES], parent[HASH_BYTES];
    int32_t first_id; /* token */
    enum { PURGE_UNREAD, PURGE_UNKNOWN, PURGE_SOUND, PURGE_BAD } state;
};

struct purge {
    struct record bad; /* root, parent, ids and count */
    size_t block_bytes;
    struct purge_block *v; /* [n], in order of ids */
    size_t n, at;
    size_t n_gone; /* the caller's */
};

/* The ids of the root that the index knows now. ERR_NOMEM. */
int purge_init(struct purge *p, const struct disk_index *x, const struct record *bad,
               size_t block_bytes, struct err *e) MUST_USE;
void purge_done(struct purge *p);
/* Reads one head; false: all are read, and it is decided who goes. */
bool purge_read(struct purge *p, int dir);
/* The next that goes, or NULL: that was the last. Borrowed. */
const uint8_t *purge_next(struct purge *p);

#endif
