/*
 * The order of victims: a binary heap of the leaves that no lease holds, after
 * GreedyDual-Size-Frequency (Cherkasova, HPL-98-69).
 *
 *     priority = clock + cost to recompute × use          set whenever the node is used
 *     clock    = the priority of the last victim           so that what isn't used any more grows
 * old by itself
 *
 * Before all that stands what is lost with a block: first go those that the disk has, or will never
 * have; then those being written, which give room when the write has ended; and only when there are
 * no others, those that still wait for a slow disk.
 *
 * use = 1 + log2(1 + hits): a system prompt under a hundred conversations outlives eight turnovers
 * of the budget, not a hundred. Every block takes the same bytes, so a tail of 3 positions, at a
 * tenth of the cost, goes long before a block. Cost is the measured one a position where the caller
 * knows it; it grows with the position, since attention does.
 *
 * O(log leaves) each; nothing here allocates.
 */
#ifndef HEARTH_CACHE_EVICT_H
#define HEARTH_CACHE_EVICT_H

#include "cache/tree.h"

/* The cost of a new node, in µs. us_per_token 0: as the last that was measured. */
double evict_cost(struct tree *t, int depth, int count, int64_t us_per_token);
/* Counts a use now. Works on members of the heap and others. */
void evict_touch(struct tree *t, struct node *n);
void evict_add(struct tree *t, struct node *n);    /* must not be in the heap */
void evict_remove(struct tree *t, struct node *n); /* not being in it is fine */
/* Where else the node is, from now on: the only way to change it. */
void evict_set_disk(struct tree *t, struct node *n, enum node_disk disk);
/* The next victim, or NULL. Moves the clock to it. The caller takes it out of the tree. */
struct node *evict_next(struct tree *t);
/* ERR_CORRUPT when the order or the places are wrong. */
int evict_check(const struct tree *t, struct err *e) MUST_USE;

#endif
