/*
 * Drafts by look-up: what followed the last time the sequence ended like this. The engine then
 * computes the drafted ids in the pass of the row before them, and what the sampler doesn't draw
 * itself is dropped: a draft changes the pace of an answer and nothing else.
 *
 *      ids   … a b c d e f … a b c ?          draft: d e f
 *                    └ slot of hash(a b c)
 *
 * A table of the places behind each two and each three ids, the newest of each: O(1) an id. How
 * often what such a place says comes true is learned from every id of the answer, drafted or not,
 * by how long the sequence has been saying the same as there: looking is free, only drafted rows
 * cost. So a draft is made when its expected ids are worth more than its rows' measured cost, as
 * long as pays best, and an answer that never repeats anything is never slowed down by trying.
 */
#ifndef HEARTH_DAEMON_LOOKUP_H
#define HEARTH_DAEMON_LOOKUP_H

#include <stdint.h>

#include "base/ids.h"

#define LOOKUP_GRAM 3      /* ids that must be the same, or 2 where that pays */
#define LOOKUP_DRAFT_MAX 7 /* ids */
#define LOOKUP_SLOTS_MAX (1u << 15)
#define LOOKUP_CLASSES 7 /* of lengths of a match */

struct lookup {
    uint32_t *slots; /* [mask + 1] position behind the gram, 0: none; NULL: no memory, no drafts */
    uint32_t mask;
    int n_indexed; /* ids that are in the table */
    int at;        /* where the next id should stand, by what is the same before it; 0: nowhere */
    int n_match;   /* ids that are the same before it, so far as they are counted */
    float hits[LOOKUP_CLASSES], trials[LOOKUP_CLASSES]; /* of late */
};

/* For sequences of up to n ids; at most LOOKUP_SLOTS_MAX * 4 bytes. */
void lookup_init(struct lookup *l, int n);
void lookup_done(struct lookup *l);
/*
 * Up to n_max (<= LOOKUP_DRAFT_MAX) ids that may follow `ids`, of which only more are added from
 * call to call; those of the first call count as what was there before. cost[k]: what k drafts take
 * by none, [1 + n_max]; NULL: none is made, the ids are only seen. Returns how many; 0: none, or
 * none that would pay.
 */
int lookup_draft(struct lookup *l, const struct ids *ids, int n_max, const double *cost,
                 int32_t *ret);

#endif
