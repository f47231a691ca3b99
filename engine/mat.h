/*
 * A weight matrix as the kernels read it: repacked at load into groups of 16 output columns, so
 * that a vector lane is an output and the reduction over k is one chain of FMAs.
 *
 *   y[row, col] = sum over k-blocks of x[row, k-block] · W[col, k-block]
 *
 * W is [n_out, n_in], as in the GGUF (dims[0] = n_in).
 */
#ifndef HEARTH_ENGINE_MAT_H
#define HEARTH_ENGINE_MAT_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

/*
 * A group of 16 columns is contiguous and holds its k-blocks of 32 in order. c = column, f16/u8/s8
 * = stored type, always dequantising to exactly what the file's type does:
 *
 *   U4_D     d f16[16] · q 4 bits                w = d · (q − 8)                   Q4_0
 *   U4_DM    d f16[16] · m f16[16] · q 4 bits    w = d · q + m                     Q4_1
 *   U4_K     per 8 blocks: d f16[16] · e f16[16],
 *            then 8 × { s u8[16] · t u8[16] · q 4 bits }
 *                                                w = (d · s) · q − (e · t)         Q4_K
 *   NL_D     d f16[16] · q 4 bits                w = d · table[q]                  IQ4_NL
 *   U5_D     d f16[16] · q 5 bits                w = d · (q − 16)                  Q5_0
 *   U5_DM    d f16[16] · m f16[16] · q 5 bits    w = d · q + m                     Q5_1
 *   U5_K     as U4_K with q 5 bits               w = (d · s) · q − (e · t)         Q5_K
 *   S8_D     d f16[16] · q s8                    w = d · q                         Q8_0
 *   U6_K16   per 8 blocks: d f16[16],
 *            then 8 × { s s8[16][2] · q 6 bits } w = (d · s) · (q − 32), s for
 *                                                16 k each                         Q6_K
 *   U3_K16   the same with q 3 bits              w = (d · s) · (q − 4)             Q3_K
 *   U2_K16   per 8 blocks: d f16[16] · e f16[16],
 *            then 8 × { st u8[16][2] · q 2 bits }
 *                                                w = (d · s) · q − (e · t), s the low, t
 *                                                the high half of st, 16 k each    Q2_K
 *   F32, F16, BF16       [k][16]                 w = itself (activations stay F32)
 *
 * How q lies in its 16 × 32 values, quants.h draws. Nothing takes more bytes than in the file but
 * the scales of Q3_K, Q4_K and Q5_K, which become bytes.
 */
enum mat_layout {
    MAT_U4_D, MAT_U4_DM, MAT_U4_K, MAT_NL_D, MAT_U5_D, MAT_U5_DM, MAT_U5_K, MAT_S8_D, MAT_U6_K16,
    MAT_U3_K16, MAT_U2_K16, MAT_F32, MAT_F16, MAT_BF16, MAT_N_LAYOUTS
};

struct mat {
    int n_out, n_in;
    int layout;          /* enum mat_layout: which kernel */
    unsigned char *data; /* packed, 64-byte aligned, huge pages advised */
    size_t n_bytes;
    size_t group_bytes;  /* of 16 columns */
    size_t map_bytes;    /* what mat_done gives back */
};

static inline int mat_n_groups(const struct mat *m)
{
    return (m->n_out + 15) / 16;
}
/* Reads activations as F32 rather than as int8. */
static inline int mat_wants_float(const struct mat *m)
{
    return m->layout >= MAT_F32;
}

/* Bytes that packing will need (for the memory check before anything is allocated). ERR_UNSUPPORTED
 * names the type. */
int mat_size(uint32_t quant_id, int64_t n_out, int64_t n_in, size_t *ret, struct err *e) MUST_USE;
/* Packs rows of a GGML type into memory of its own. */
int mat_pack(uint32_t quant_id, const void *data, int64_t n_out, int64_t n_in, struct mat *ret,
             struct err *e) MUST_USE;
void mat_done(struct mat *m); /* memory given to mat_pack_at stays the caller's */

/* What mat_pack_at packs. */
struct mat_source {
    uint32_t quant_id;
    int64_t n_out, n_in;
    const void *data;
};
/*
 * Packs into `memory`, mat_size() bytes, 64-byte aligned, owned by the caller: many matrices can
 * then share one region of huge pages, which single matrices of less than 2 MiB can't have. Errors
 * as mat_size.
 */
int mat_pack_at(const struct mat_source *s, void *memory, struct mat *ret, struct err *e) MUST_USE;
/* The same in parts that threads can share: first what ret is, then groups of 16 columns of it. */
int mat_plan_at(const struct mat_source *s, void *memory, struct mat *ret, struct err *e) MUST_USE;
void mat_pack_groups(const struct mat_source *s, const struct mat *m, int group0, int n_groups);
/* A matrix of pseudo-random quants and scales (2^−8 and below) of a layout, n_in a multiple of 256:
 * for the numerics probe, tests and bench. ERR_NOMEM. */
int mat_random(int layout, int n_out, int n_in, uint64_t seed, struct mat *ret) MUST_USE;
/* A region for it: zeroed, huge pages advised; NULL when the system has none. mat_region_free(NULL,
 * 0) is fine. */
void *mat_region_new(size_t n_bytes);
void mat_region_free(void *region, size_t n_bytes);

/* Row `i` of W, dequantised exactly as the file has it: embedding look-up from the packed form.
 * ret[n_in]. */
void mat_row(const struct mat *m, int i, float *ret);

#endif
