/*
 * Windowed sections: which of them the tree keeps. Private to the cache room.
 *
 *     position n sees          [n + 1 − W, n]
 *     a lease at n needs       the sections of the blocks that these lie in; no older ones
 *     an end: a leaf, a fork   somebody goes on from there: the same is kept before it
 *
 *     n0 ─ n1 ─ n2 ─ n3 ─ n4 ─ n5 ─ n6 (fork) ─┬─ n7 ─ n8 ─ tail        W: about two blocks
 *     ·    ·    ·    ▓    ▓    ▓    ▓          │  ▓    ▓    ▓
 *                                              └─ m7 ▓
 *
 * What is neither (·) was passed. Once it is on disk it goes at once: who forks there reads it
 * back (restore.c). Where there is no disk, or it isn't written yet, it is spare: the first thing
 * to go when room is needed, before whole blocks, what was passed longest ago first. So nothing
 * that the budget could keep is read twice: a section goes either when it can be had back, or when
 * something else would have to go, at the price of a whole block.
 */
#ifndef HEARTH_CACHE_WINDOW_H
#define HEARTH_CACHE_WINDOW_H

#include "cache/inside.h"

/* n's windowed section isn't needed any more, perhaps: it goes, or becomes spare, or neither. */
void window_pass(struct cache *c, struct node *n);
/* The same for what a lease has left behind since. */
void window_pass_lease(struct cache_lease *l);
/* The same for all of its path, when the lease holds it no more: before its nodes are released. */
void window_release(struct cache_lease *l);
/* One spare section goes, for room. is_last_resort: also one that isn't written yet, whose file is
 * given up with it. false: there is none. */
bool window_evict(struct cache *c, bool is_last_resort);
/* How many of leased nodes could go so. */
size_t window_n_spare_leased(const struct cache *c);
/* How many of a lease's positions are usable: all, or a multiple of 32. */
int window_usable(struct cache_lease *l);
/* The first block of the path whose windowed section the lease needs, also when it gives up what
 * it has behind the path. */
int window_from(const struct cache_lease *l);
/* A node that was computed again, or proven, gets the section that it misses. */
void window_fill(struct cache *c, struct node *n, struct kv_block *from);

/* How much of a run of nodes is usable: `end` is the last (or a root), and maybe `part`, a child,
 * gives k positions more by copy. It is counted only where the run is usable without it, since
 * there may be no block for the copy. */
struct window_run {
    const struct node *end, *part;
    int k;
};
int window_usable_run(const struct cache *c, const struct window_run *r);

#endif
