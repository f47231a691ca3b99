/* The element-wise part of an embedding model: plain loops that any compiler makes vectors of. */
#ifndef HEARTH_ENGINE_EMBED_MATH_H
#define HEARTH_ENGINE_EMBED_MATH_H

#include <stddef.h>

/* Each row of x [n_rows, n] plus b [n]. */
void embed_add_bias(float *x, size_t n_rows, size_t n, const float *b);
/* x / 2 × (1 + erf(x / √2)), within 4e-7 × max(1, |x|). */
void embed_gelu(float *x, size_t n);
/* A row to weights that sum to 1. */
void embed_softmax(float *x, size_t n);
/* Each row of x [n_rows, n] (plus that of `add`, if not NULL) to mean 0 and variance 1, then × w +
 * b. */
struct embed_rows {
    float *x;
    const float *add;
    size_t n_rows, n;
};
void embed_layer_norm(struct embed_rows r, const float *w, const float *b, float eps);

#endif
