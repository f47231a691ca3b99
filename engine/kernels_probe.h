/*
 * What the kernels compute, as one hash: a fixed pseudo-random input through each of them. It is
 * the same on every CPU (kernels.h says why), so a build or a CPU on which it is another one has
 * broken a rule: of several instruction sets the best that keeps them all is taken.
 */
#ifndef HEARTH_ENGINE_KERNELS_PROBE_H
#define HEARTH_ENGINE_KERNELS_PROBE_H

#include <stdbool.h>

#include "base/hash.h"
#include "engine/kernels.h"

/* Adds the output bits of all of k's kernels to h; a millisecond or two. */
void kernels_probe(const struct kernels *k, struct hash_state *h);

/* Whether k gives the bits that this version of the kernels has everywhere. */
bool kernels_are_proven(const struct kernels *k);

/* The first of list[0, n) that is proven, else the last; n > 0. What is passed over, and an
 * unproven last one, is logged. */
const struct kernels *kernels_proven(const struct kernels *const *list, int n);

/* As kernels_find, but where `isa` is NULL: the best that is proven. One that was asked for by name
 * is taken as it is; if it isn't proven, that is logged. */
int kernels_find_proven(const char *isa, const struct kernels **ret, struct err *e) MUST_USE;

#endif
