/* A small random model in memory, and what it should compute: a forward pass in doubles, written
 * straight from the definition. */
#ifndef HEARTH_TESTS_TINY_H
#define HEARTH_TESTS_TINY_H

#include "engine/kv.h"
#include "engine/model.h"

/* A repeatable sequence (splitmix64). */
struct dice {
    uint64_t state;
};
uint64_t dice_u64(struct dice *d);
int dice_int(struct dice *d, int n); /* 0 … n − 1 */
float dice_unit(struct dice *d);     /* −1 … 1 */

struct tiny_shape {
    int n_vocab, n_embd, n_ff, n_layers, n_heads, n_kv_heads, head_dim, n_rot, n_ctx;
    int layout;      /* enum mat_layout of all matrices but: */
    int embd_layout; /* the tied embedding */
    /* What families add; zero: nothing. */
    bool has_bias, has_head_norms, has_post_norms, is_gelu;
    int window, window_period, unrotated_period;
    double window_base;
    float attn_cap, logit_cap, embd_scale, residual_scale, logit_scale;
};

/* Scales are such that values stay of order 1 through the layers. Free with tiny_free. */
struct model *tiny_new(const struct tiny_shape *s, uint64_t seed);
void tiny_free(struct model *m);

/* Logits [n, n_vocab] of all positions by the reference. */
void tiny_reference(const struct model *m, const int32_t *ids, int n, double *ret);

/* A sequence with blocks for n positions from the pool. */
void tiny_seq(struct kv_seq *s, struct kv_pool *p, int n);

#endif
