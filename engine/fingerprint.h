/*
 * A small file that remembers the hashes of weights by the identity of their file, because hashing
 * an 8B model takes seconds:
 *
 *     hearth-weights-3 DEVICE INODE SIZE MTIME_NS CTIME_NS HASH CHECK
 *
 * A line a file, the newest first, at most 32. The number is the kind of hash: 1 was one chain over
 * all bytes, 2 was over trees of BLAKE2b, 3 is over trees of XXH3 (base/hash_tree.h). A file that
 * is known by an old one keeps it, and what was cached under it.
 *
 * CHECK is the start of the hash of what stands before it: a damaged line is a line that isn't
 * there. The change time can't be set by anyone but the kernel, so any write to the weights ends
 * the entry; a file that changed less than two seconds ago is not remembered, since a second change
 * might fall into the same tick. A cache: whatever goes wrong with it costs the time to hash, never
 * the start.
 */
#ifndef HEARTH_ENGINE_FINGERPRINT_H
#define HEARTH_ENGINE_FINGERPRINT_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/stat.h>

/* true and the hash when the file at `path` (NULL: never) knows this identity. */
bool fingerprint_recall(const char *path, const struct stat *st, uint8_t ret[32]);
void fingerprint_remember(const char *path, const struct stat *st, const uint8_t hash[32]);

#endif
