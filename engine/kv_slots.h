/*
 * Equal slots of memory in a row, for engine/kv.c: a section's part of all blocks.
 *
 *     first   [ slot 0 | slot 1 | … ]      slot_bytes each; reserved whole, touched slot by slot
 *     v       [ {free, next} … ]           free ones linked, last released first
 *
 * A slot that nobody holds is poisoned for AddressSanitizer: reading a block after its last unref
 * is then a report, not a wrong answer. Released last, taken first: so few pages are touched as the
 * use needs.
 */
#ifndef HEARTH_ENGINE_KV_SLOTS_H
#define HEARTH_ENGINE_KV_SLOTS_H

#include <stdbool.h>
#include <stddef.h>

#include "base/err.h"

#define HUGE_PAGE_BYTES ((size_t)2 << 20)

struct kv_slot {
    struct kv_slot *next_free;
    bool is_free;
    bool is_resident; /* its pages were touched since they last went back to the system */
};

struct kv_slots {
    unsigned char *first;
    size_t slot_bytes, n_slots;
    size_t n_free, n_resident;
    struct kv_slot *v, *free;
    bool is_slim; /* slots_slim has nothing to do: none was taken or given since it was called */
};

/* The table of n slots, all free, without memory behind them yet. ERR_NOMEM. */
int slots_init(struct kv_slots *s, size_t n, size_t slot_bytes, struct err *e) MUST_USE;
void slots_done(struct kv_slots *s);
/* They lie at `first`, [n_slots * slot_bytes], never touched so far. */
void slots_place(struct kv_slots *s, unsigned char *first);

/* A slot of anybody's bytes; at least one must be free. */
unsigned char *slots_take(struct kv_slots *s);
void slots_give(struct kv_slots *s, unsigned char *slot);
static inline size_t slots_index(const struct kv_slots *s, const unsigned char *slot)
{
    return (size_t)(slot - s->first) / s->slot_bytes;
}

/* Touches the pages of up to n of the n_ahead slots that are taken next; returns how many those
 * were. */
size_t slots_touch(struct kv_slots *s, size_t n_ahead, size_t n);
/* Gives back the pages of one free slot that has some; false: none has. */
bool slots_forget(struct kv_slots *s);
/* Gives the pages of all free slots back, and takes no huge pages until slots_relax. Returns how
 * many bytes. */
size_t slots_trim(struct kv_slots *s);
void slots_relax(struct kv_slots *s);

/* Whether more free slots have pages than twice n_keep. */
bool slots_has_slack(const struct kv_slots *s, size_t n_keep);
/* What the slot in use holds is in a free one from now on, the first from *lowest on, which moves
 * on to it; returns where. Before anything is taken or given, slots_sort is called. */
unsigned char *slots_move(struct kv_slots *s, unsigned char *slot, size_t *lowest);
/* The first free ones are taken first. */
void slots_sort(struct kv_slots *s);
/* Gives back the pages of free slots behind the first n_keep of them, as whole huge pages, so that
 * no kernel gathers them again. Sorts. Returns how many bytes. */
size_t slots_slim(struct kv_slots *s, size_t n_keep);

#endif
