/* The tree, for its own two files: tree.c, and tree_check.c, which checks it. */
#ifndef HEARTH_CACHE_TREE_INSIDE_H
#define HEARTH_CACHE_TREE_INSIDE_H

#include "cache/tree.h"

/* How many first ids a and b share. */
int tree_ids_common(const int32_t *a, int n_a, const int32_t *b, int n_b);
/* Lexicographic order; a prefix stands before what it begins. */
int tree_ids_order(const int32_t *a, int n_a, const int32_t *b, int n_b);
/* The place of the first child that doesn't stand before ids[0, n). */
int tree_place_of(const struct node *parent, const int32_t *ids, int n);
/* Nobody needs it: it can go, or its children can and then it. Never a root. */
bool tree_is_idle(const struct node *n);

#endif
