/*
 * The saved order of use: which blocks rested longest, over a restart.
 *
 *     "HEARTHLRU" + version 1 (16 bytes, zero-padded) | u64 n | n × first 8 bytes of an id, oldest
 *     first | BLAKE2b-256 of all before
 *
 * Pinned ones aren't in it. What was written after it was saved is in no order but that of its
 * files' times, and counts as newer. A file that isn't whole says nothing.
 */
#ifndef HEARTH_CACHE_DISK_ORDER_H
#define HEARTH_CACHE_DISK_ORDER_H

#include "base/buf.h"
#include "cache/disk_index.h"

#define DISK_ORDER_BYTES ((size_t)64 << 20)

/* An error sticks to the buffer. */
void order_write(const struct disk_index *x, struct buf *ret);
/* Sets `order` of the entries that it names; index_sort does the rest. */
void order_read(struct disk_index *x, const char *data, size_t n);

#endif
