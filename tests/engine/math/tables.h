/* All kernels there are to compare: plain C, this CPU's, and those of other CPUs over models of
 * their instructions. Included by one file of each test. */
#ifndef HEARTH_TESTS_TABLES_H
#define HEARTH_TESTS_TABLES_H

#include "engine/kernels.h"
#include "tests/engine/math/tiny.h"

#define SEED 20240607 /* of all that is random here; a failure says which case */

extern const struct kernels kernels_avx512_model, kernels_amx_model;

#define TABLES_MAX 7
extern const struct kernels *tables[TABLES_MAX];
extern int n_tables;
/* The definition. */
static const struct kernels *const c = &kernels_c;

/* Fills tables[], and sets the rounding mode. */
void tables_init(void);

/* Floats of all kinds: of order 1, large, tiny, subnormal, zeros of both signs. */
float any_float(struct dice *d);
void fill(struct dice *d, float *x, size_t n);
/* Fails, naming k and what, unless n bytes are equal. */
void same(const char *what, const struct kernels *k, const void *a, const void *b, size_t n);

#endif
