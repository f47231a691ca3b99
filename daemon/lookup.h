/*
 * Drafts by look-up: what followed the last time the sequence ended like this. The engine then
 * computes the drafted ids in the pass of the row before them, and what the sampler doesn't draw
 * itself is dropped: a draft changes the pace of an answer and nothing else.
 *
 *      ids   … a b c d e f … a b c ?          draft: d e f
 *                    └ slot of hash(a b c)
 *
 * A table of the places after each three ids, the newest of each; O(1) an id. It turns itself down:
 * a draft that fails halves the next one, and after failures it pauses for longer and longer.
 */
#ifndef HEARTH_DAEMON_LOOKUP_H
#define HEARTH_DAEMON_LOOKUP_H

#include <stdint.h>

#include "base/ids.h"

#define LOOKUP_GRAM 3      /* ids that must be the same */
#define LOOKUP_DRAFT_MAX 7 /* ids */
#define LOOKUP_SLOTS_MAX (1u << 15)

struct lookup {
    uint32_t *slots; /* [mask + 1] position behind the gram, 0: none; NULL: no memory, no drafts */
    uint32_t mask;
    int n_indexed;  /* ids that are in the table */
    int n_next;     /* how many it would draft */
    int pause;      /* ids until it drafts again … */
    int pause_next; /* … and how long it pauses after the next failure */
};

/* For sequences of up to n ids; at most LOOKUP_SLOTS_MAX * 4 bytes. */
void lookup_init(struct lookup *l, int n);
void lookup_done(struct lookup *l);
/* Up to n_max (<= LOOKUP_DRAFT_MAX) ids that may follow `ids`, of which only more are added from
 * call to call. Returns how many; 0: none. */
int lookup_draft(struct lookup *l, const struct ids *ids, int n_max, int32_t *ret);
/* What became of a draft. */
void lookup_tell(struct lookup *l, int n_drafted, int n_accepted);

#endif
