/*
 * Drafts by look-up: what followed the last time the sequence ended like this. The engine then
 * computes the drafted ids in the pass of the row before them, and what the sampler doesn't draw
 * itself is dropped: a draft changes the pace of an answer and nothing else.
 *
 *      ids   … a b c d e f … a b c ?          draft: d e f
 *                    └ slot of hash(a b c)
 *
 * A table of the places behind each two and each three ids, the newest of each: O(1) an id. Who
 * rewrites a text leaves it and comes back: after a word that isn't the one there, one id that
 * stands a little further on is enough to go on there.
 *
 *      ids   … a b c d e f g … a b c x e ?    draft: f g       (d was replaced by x)
 *
 * How often what such a place says comes true is learned from every id of the answer, drafted or
 * not, by how long the sequence has been saying the same as there: looking takes a tenth of a
 * microsecond, only drafted rows cost. So a draft is made when its expected ids are worth more than
 * its rows' cost, as long as pays best.
 *
 * Whatever the ids are, drafts have an account, in passes: each pass with drafts takes its rows'
 * cost from it and brings what came true; 1 % of a pass comes with each id. What isn't in it can't
 * be drafted for, so with costs that are right an answer of n ids takes at most
 * n + LOOKUP_CREDIT + LOOKUP_CREDIT_SHARE * n passes. What it holds is bounded, too: winnings of a
 * quote aren't lost again behind it.
 */
#ifndef HEARTH_DAEMON_LOOKUP_H
#define HEARTH_DAEMON_LOOKUP_H

#include <stdbool.h>
#include <stdint.h>

#include "base/ids.h"

#define LOOKUP_GRAM 3      /* ids that must be the same, or 2 where that pays */
#define LOOKUP_DRAFT_MAX 7 /* ids */
#define LOOKUP_SLOTS_MAX (1u << 15)
#define LOOKUP_CLASSES 9 /* of lengths of a match */
#define LOOKUP_CREDIT 0.5 /* passes, to begin with */
#define LOOKUP_CREDIT_SHARE 0.01
#define LOOKUP_CREDIT_MAX 3.0

struct lookup {
    uint32_t *slots; /* [mask + 1] position behind the gram, 0: none; NULL: no memory, no drafts */
    uint32_t mask;
    int n_indexed; /* ids that are in the table */
    int at;        /* where the next id should stand, by what is the same before it; 0: nowhere */
    int n_match;   /* ids that are the same before it, so far as they are counted */
    bool is_back;  /* it is a place behind the one that was left: n_match counts from there */
    int left_at;   /* the id that didn't come when the answer left what it followed; 0: none */
    int n_since;   /* ids since then, that one's place included */
    double credit;    /* what drafts may cost, in passes … */
    double last_cost; /* … and the last one did; 0: there was none */
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
