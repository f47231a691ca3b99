/* The set of pinned ids. See pins.h. */
#include "cache/pins.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/sys.h"

#define FIRST_SLOTS 64

void pins_done(struct pins *p)
{
    free(p->slots);
    *p = (struct pins){0};
}

static size_t home_of(const struct pins *p, const uint8_t id[HASH_BYTES])
{
    uint64_t h;
    memcpy(&h, id, sizeof h); /* the id is a hash already */
    return (size_t)h & (p->n_slots - 1);
}

/* Its slot, or the free one where it would go. There is always a free one. */
static size_t place_of(const struct pins *p, const uint8_t id[HASH_BYTES])
{
    size_t at = home_of(p, id);
    while (p->slots[at].is_used && memcmp(p->slots[at].id, id, HASH_BYTES) != 0) {
        at = (at + 1) & (p->n_slots - 1);
    }
    return at;
}

int pins_reserve(struct pins *p, size_t n_more, struct err *e)
{
    const struct pins old = *p;
    size_t n_slots = old.n_slots ? old.n_slots : FIRST_SLOTS;
    while (n_slots / 2 < old.n + n_more) {
        n_slots *= 2;
    }
    if (n_slots == old.n_slots) {
        return 0;
    }
    struct pin_slot *slots = sys.malloc(n_slots * sizeof *slots);
    if (!slots) {
        return err_set(e, ERR_NOMEM, "out of memory for %zu pinned KV blocks", old.n + n_more);
    }
    memset(slots, 0, n_slots * sizeof *slots);
    *p = (struct pins){.slots = slots, .n_slots = n_slots, .n = old.n};
    for (size_t i = 0; i < old.n_slots; i++) {
        if (old.slots[i].is_used) {
            p->slots[place_of(p, old.slots[i].id)] = old.slots[i];
        }
    }
    free(old.slots);
    return 0;
}

bool pins_has(const struct pins *p, const uint8_t id[HASH_BYTES])
{
    return p->n > 0 && p->slots[place_of(p, id)].is_used;
}

bool pins_add(struct pins *p, const uint8_t id[HASH_BYTES])
{
    struct pin_slot *s;
    assert(p->n_slots / 2 > p->n || pins_has(p, id));
    s = &p->slots[place_of(p, id)];
    if (s->is_used) {
        return false;
    }
    memcpy(s->id, id, HASH_BYTES);
    s->is_used = true;
    p->n++;
    return true;
}

/* Whether the id at `at` may move to the hole: its home isn't behind the hole. Cyclic. */
static bool may_fill(const struct pins *p, size_t at, size_t hole)
{
    const size_t mask = p->n_slots - 1, home = home_of(p, p->slots[at].id);
    return ((at - home) & mask) >= ((at - hole) & mask);
}

bool pins_remove(struct pins *p, const uint8_t id[HASH_BYTES])
{
    if (!pins_has(p, id)) {
        return false;
    }
    const size_t mask = p->n_slots - 1;
    size_t hole = place_of(p, id);
    p->slots[hole].is_used = false;
    p->n--;
    /* Those that stand right behind must not be cut off from their home. */
    for (size_t at = (hole + 1) & mask; p->slots[at].is_used; at = (at + 1) & mask) {
        if (may_fill(p, at, hole)) {
            p->slots[hole] = p->slots[at];
            p->slots[at].is_used = false;
            hole = at;
        }
    }
    return true;
}
