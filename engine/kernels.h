/*
 * The arithmetic of the forward pass: one table of functions for each instruction set, all with the
 * same bits.
 *
 * How the bits are kept (DESIGN.md, "Invariant arithmetic"):
 *   1. Lanes are outputs. Each output of a matrix product is one chain of fused multiply-adds over
 *      the k-blocks in ascending order; row tiles, tails, vector width and threads decide only who
 *      computes an output, never how.
 *            acc = fma(float(Σ w·x), d_w · d_x, acc)        the sum over 32 k is an exact integer
 *            acc = fma(m_w, d_x · Σ x, acc)                 types with a minimum
 *   2. Sums over lanes (norm, softmax, Σ exp) go to sixteen partials, element i to partial i mod
 *      16, then 16 → 8 → 4 → 2 → 1. Tails are padded with zeros.
 *   3. exp is our own: exp(0) = 1 exactly, 0 exactly below −87. No libm.
 *   4. Activations are quantised per row and 32 columns: d = max|x| / 127, q = nearest-even(x ·
 *      (127 / max|x|)) within ±127, d kept as F32.
 *   5. Attention works by spans of 256 positions, each from an empty (m, l, acc), block by block;
 *      spans merge in ascending order. A masked position is an exact identity, so that it doesn't
 *      matter which spans outside a window are gone through. Q8_0's products are exact integer sums
 *      of a block (kern_impl_attn_q8.h).
 *   6. Round to nearest, subnormals kept: numerics_enter() before, numerics_leave() after, on every
 *      thread.
 *
 * One source (kern_impl*.h) over a small vector header (vec_c.h, vec_avx2.h, vec_avx512.h) compiled
 * once for each: kern_c.c, kern_c_fma.c (the same with FMA instructions), kern_avx2.c,
 * kern_avx512.c; and kern_amx.c, which is the latter with tiles for products of 16 rows and more.
 */
#ifndef HEARTH_ENGINE_KERNELS_H
#define HEARTH_ENGINE_KERNELS_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "engine/kv.h"
#include "engine/mat.h"

/* What a row's 32 activations were quantised by. */
struct act_block {
    float d;     /* scale */
    float ds;    /* d · sum, rounded once: multiplies a weight block's minimum */
    int32_t sum;   /* of the 32 int8 */
    int32_t first; /* of the first 16 of them */
};

/* Activations [rows, n_in]: as int8 (q, b) for quantised matrices, as F32 (f) for the others;
 * either may be NULL when no matrix wants it. */
struct act {
    int n_in;
    int n_blocks;     /* of 32, of a row: n_in / 32 rounded up; rows of q are 32 · n_blocks bytes
                       * apart */
    size_t ldf;       /* floats from row to row of f: a multiple of 16, the tail is zero */
    int8_t *q;
    struct act_block *b; /* [rows, n_blocks] */
    float *f;
};

/* Rows [row0, row0 + n_rows) of x times column groups [group0, group0 + n_groups) of w: y[(row −
 * row0) · ldy + column − 16 · group0]. Columns past n_out give 0. */
struct gemm {
    const struct mat *w;
    int group0, n_groups;
    const struct act *x;
    int row0, n_rows;
    float *y;
    size_t ldy;
};

/* One span of one KV head against a tile of queries (query = row and head: the heads that share the
 * KV head sit side by side). */
struct attn_span {
    int head_dim;
    int n_q;
    const float *q;    /* [n_q, head_dim], scaled. F16, and latent blocks of any type */
    const int16_t *q16; /* Q8_0: the same as quantize_q writes them, and their scales */
    const float *qd;
    const int *pos;    /* [n_q]: positions up to and with this one are seen */
    int window;        /* positions that a query sees, its own included; 0: all before it */
    float cap;         /* score → cap · tanh(score / cap); 0: as it is */
    int pos0;          /* of its first block that may be seen: a multiple of 32 */
    int n_blocks;      /* 1 … 8 */
    const unsigned char *const *kv; /* [n_blocks]: K and V of the head, as kv.h has them */
    const unsigned char *const *next; /* [n_next ≤ 8]: of the span that comes next; only fetched */
    int n_next;
    int is_latent;     /* K alone, and its values are K's own dimensions */
    float *m, *l;      /* [n_q] written: maximum and Σ exp */
    float *acc;        /* [n_q, head_dim] written: Σ exp · v */
    float *scratch;    /* [64 · head_dim], 64-byte aligned */
};

/* m of a span that has seen nothing. Not −inf: −inf − −inf is NaN. A masked score lies far below
 * it. */
#define ATTN_EMPTY (-1e30f)

struct kernels {
    const char *name;
    void (*gemm[MAT_N_LAYOUTS])(const struct gemm *g);
    /* y[n] = x · w / sqrt(mean(x²) + eps) */
    void (*rms_norm)(const float *x, const float *w, int n, float eps, float *y);
    /* n_blocks × 32 floats → int8 and their blocks */
    void (*quantize)(const float *x, int n_blocks, int8_t *q, struct act_block *b);
    /* y[i] = silu(gate[i]) · up[i]; n a multiple of 16 */
    void (*silu_mul)(const float *gate, const float *up, int n, float *y);
    /* The same with gelu, in its form with tanh (arXiv 1606.08415). */
    void (*gelu_mul)(const float *gate, const float *up, int n, float *y);
    /* x[i] = cap · tanh(x[i] / cap); n a multiple of 16 */
    void (*soft_cap)(float *x, int n, float cap);
    /* Rotates pairs (2i, 2i + 1) by cs[n / 2][cos, sin], then multiplies by scale; n even. */
    void (*rope)(float *x, const float *cs, int n, float scale);
    /* y += x; n any */
    void (*add)(float *y, const float *x, int n);
    void (*to_f16)(const float *x, int n, uint16_t *y); /* n a multiple of 16 */
    void (*exp)(const float *x, int n, float *y);       /* n a multiple of 16; for tests and the
                                                         * numerics probe */
    /* Queries for Q8_0 keys, n_q rows of head_dim (a multiple of 16) floats: per 32 dims (the last
     * 16 padded with zeros) d = max|x| / 32767 and 15 bits, q = nearest-even(x · (32767 / max|x|));
     * 16-bit products cost the same, and 8 bits here would be most of Q8_0's error. q16 [n_q,
     * n_scales · 32], of each four dims 0 2 1 3; qd [n_q, n_scales]. */
    void (*quantize_q)(const float *q, int n_q, int head_dim, int16_t *q16, float *qd);
    void (*attn_span[KV_N_TYPES])(const struct attn_span *a);
    /* Merges a later span's (m2, l2, acc2) into (m, l, acc). */
    void (*attn_merge)(float *m, float *l, float *acc, const float *later_ml, const float *acc2,
                       int head_dim);
    /* out = acc / l */
    void (*attn_finish)(float l, const float *acc, int head_dim, float *out);
};

extern const struct kernels kernels_c, kernels_c_fma, kernels_avx2, kernels_avx512, kernels_amx;

/*
 * "c", "avx2", "avx512", "amx", or NULL for the best that this CPU has. "c" uses the CPU's FMA
 * instruction if there is one (the same bits as libm's fmaf, many times faster). ERR_INVAL names
 * what the CPU lacks, or the known names. Where there is AMX, the system is asked to allow its
 * tiles to this process.
 */
int kernels_find(const char *name, const struct kernels **ret, struct err *e) MUST_USE;

/* What this CPU and its system can run. */
struct kernels_cpu {
    int fma, avx2;
    const char *lacks_avx512; /* of what avx512 needs, the first that isn't there; NULL: nothing */
    const char *lacks_amx;    /* likewise */
};
struct kernels_cpu kernels_cpu(void);
/* kernels_find for a CPU as described; for tests of the choice. */
int kernels_pick(const char *name, const struct kernels_cpu *cpu, const struct kernels **ret,
                 struct err *e) MUST_USE;

/* The rounding mode that the bits need; returns what was set before, for numerics_leave. */
uint32_t numerics_enter(void);
void numerics_leave(uint32_t before);

#endif
