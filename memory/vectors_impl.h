/* What vectors.c keeps and vectors_search.c reads. */
#ifndef HEARTH_MEMORY_VECTORS_IMPL_H
#define HEARTH_MEMORY_VECTORS_IMPL_H

#include <string.h>

#include "base/hash.h"
#include "memory/internal.h"
#include "memory/vectors.h"

#define VECTORS_FRESH 64
#define VECTOR_SCALE 4194304.0f /* stored scales are whole multiples of 2^-22 */

struct vector_row {
    int64_t message, parent, conversation;
    uint64_t owner; /* vectors_owner */
    float scale;
};

struct vectors {
    struct vectors_model model;
    struct vector_row *rows; /* [n], room for cap, in no order; a message's parts may be apart */
    int8_t *data;            /* [n, dim] */
    size_t n, cap;
    int64_t to_load; /* vectors of messages up to this one may be in the table only */
    int64_t oldest;  /* older messages have no room; 0: all have */
    int64_t todo;    /* messages up to this one may have no vector */
    int64_t fresh[VECTORS_FRESH]; /* and these */
    size_t n_fresh;
    bool is_cut, is_resting;
};

static inline uint64_t vectors_owner(const char *owner)
{
    uint8_t hash[HASH_BYTES];
    uint64_t h;
    hash_of(owner, strlen(owner), hash);
    memcpy(&h, hash, sizeof h);
    return h;
}

/* Reads about `max` more vectors into RAM, the newest first. */
int vectors_load(struct memory *m, size_t max, struct err *e) MUST_USE;

#endif
