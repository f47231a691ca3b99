/*
 * A set of block ids: which are pinned. Plain data; the tree has one, the disk tier another under
 * its mutex.
 *
 *     slots: [ · | id | id | · | id ]    open addressing, at most half full; a slot's place is the
 *                                        id's first bytes, or right behind
 */
#ifndef HEARTH_CACHE_PINS_H
#define HEARTH_CACHE_PINS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/hash.h"

struct pin_slot {
    uint8_t id[HASH_BYTES];
    bool is_used;
};

/* All zero is the empty set. */
struct pins {
    struct pin_slot *slots; /* [n_slots], a power of two */
    size_t n_slots, n;
};

void pins_done(struct pins *p);
/* Room for n_more: as many pins_add can't fail. ERR_NOMEM: nothing changed. */
int pins_reserve(struct pins *p, size_t n_more, struct err *e) MUST_USE;
/* Room is there. true: it is new. */
bool pins_add(struct pins *p, const uint8_t id[HASH_BYTES]);
/* false: it isn't there. */
bool pins_remove(struct pins *p, const uint8_t id[HASH_BYTES]);
bool pins_has(const struct pins *p, const uint8_t id[HASH_BYTES]);

#endif
