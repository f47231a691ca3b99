/*
 * The models that have left KV in the cache directory, in memory now or not: what "all of an
 * owner's" means to hearth cache. A root on the disk is a hash of model and owner, so that whose it
 * is can't be read from its name.
 *
 *     <cache-dir>/models      a line each, the one loaded last first:
 *                             fingerprint (64 hex digits), bytes of a block, name
 *
 * Like all that lies there it may be lost: files of a model that isn't listed age out by
 * themselves.
 */
#ifndef HEARTH_DAEMON_KNOWN_H
#define HEARTH_DAEMON_KNOWN_H

#include <stddef.h>
#include <stdint.h>

#include "base/hash.h"

#define KNOWN_MAX 256 /* lines; the oldest go */
#define KNOWN_ID_BYTES 256

struct known_model {
    uint8_t fingerprint[HASH_BYTES];
    uint64_t block_bytes;
    char id[KNOWN_ID_BYTES];
};

struct known {
    struct known_model *v; /* [n], owned; NULL without memory */
    size_t n;
};

/* What the directory's file says; lines that say nothing are passed over. dir NULL: none. */
void known_read(const char *dir, struct known *ret);
/* m becomes the first line. What can't be written is logged, and everything else works. */
void known_add(const char *dir, const struct known_model *m);
void known_done(struct known *k);

#endif
