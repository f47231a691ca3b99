/*
 * Products of float matrices, by OpenBLAS (the only file that includes cblas.h is blas.c), for what
 * makes no promise about bits: embeddings and the search in them. A language model's forward pass
 * never comes here.
 *
 * From any thread, one product at a time: Debian's serial OpenBLAS is built without locks of its
 * own. Products are a few milliseconds, so that is how long a thread may wait for another one's.
 */
#ifndef HEARTH_BASE_BLAS_H
#define HEARTH_BASE_BLAS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* C [m, n] = scale × A [m, k] × B. Rows are contiguous, a_step, b_step, c_step floats apart. */
struct blas_product {
    const float *a; /* [m, k] */
    const float *b; /* [n, k], or [k, n] with is_b_upright */
    float *c;       /* [m, n] */
    int m, n, k;
    int a_step, b_step, c_step;
    float scale;
    bool is_b_upright;
    bool is_added; /* to what C holds */
};
void blas_multiply(const struct blas_product *p);

/* y [n_rows] = A [n_rows, n_columns] × x [n_columns] */
void blas_apply(const float *a, int n_rows, int n_columns, const float *x, float *y);

/* The same numbers as floats: what a product takes. */
void blas_widen(const int8_t *from, size_t n, float *to);

#endif
