/*
 * Products of sixteen rows by AMX's tiles of int8, beside the vectors of vec_avx512.h. Part of
 * kern_amx.c; only instructions that tests/engine/math/amx_model.h has in C.
 *
 *   sums[row][column] = Σ over k of x[row][k] · q[k][column]
 *
 *   tile    rows × bytes
 *   sums    16 × 64    int32 of 16 columns
 *   x       16 × 32    int8 of 32 k, as they lie in the activations
 *   w        8 × 64    the eight vectors of quants.h, opened: row j, byte 4 c + i is column c,
 *                      k = 4 j + i, which is how the instruction wants it
 *
 * and for quants with scales of 16 k the same of each half, x of 16 bytes and w of four rows, with
 * sums of their own. Only half of what a tile can hold is used: a block of 32 k has its own scale.
 *
 * tdpbsud multiplies signed x with unsigned w and adds four products to each int32 without
 * saturation: the quants and biases are those of v_dot (vec_avx512_dot.h).
 */
#ifndef HEARTH_ENGINE_VEC_AMX_H
#define HEARTH_ENGINE_VEC_AMX_H

#define AMX_ROWS 16

/* Literals, because they become parts of the instructions' names. */
#define T_SUMS 0
#define T_SUMS_LATER 1
#define T_X 2
#define T_W 3
#define T_X_HALF 4
#define T_W_HALF 5

/* What ldtilecfg reads (Intel's manual, volume 1, chapter 18). Palette 1: eight tiles of at most 16
 * rows and 64 bytes. */
struct amx_config {
    uint8_t palette, start_row, reserved[14];
    uint16_t row_bytes[16];
    uint8_t rows[16];
};
_Static_assert(sizeof(struct amx_config) == 64, "as the instruction reads it");

static const struct amx_config amx_config = {
    .palette = 1,
    .row_bytes = {64, 64, 32, 64, 16, 64},
    .rows = {16, 16, 16, 8, 16, 4},
};

/* A block's quants, opened, and the sums of sixteen rows, of both halves where there are two. */
struct amx_block {
    _Alignas(64) uint8_t q[512];
    _Alignas(64) int32_t sums[2][AMX_ROWS * 16]; /* of 32 k: the first alone */
};

/* Tiles are read from and written to memory behind the compiler's back. */
#define AMX_MEMORY() __asm__ volatile("" ::: "memory")

#define AMX_OPEN(j) _mm512_storeu_si512(b->q + 64 * (j), VZ_QUANTS(w, kind, j))
V_FN void amx_open(const uint8_t *w, const int kind, struct amx_block *b)
{
    const v16i table = vz_table();
    AMX_OPEN(0);
    AMX_OPEN(1);
    AMX_OPEN(2);
    AMX_OPEN(3);
    AMX_OPEN(4);
    AMX_OPEN(5);
    AMX_OPEN(6);
    AMX_OPEN(7);
}

/* The sums over 32 k of the opened quants with sixteen rows of x, ldx bytes apart. */
V_FN void amx_dot(struct amx_block *b, const int8_t *x, size_t ldx)
{
    AMX_MEMORY();
    _tile_zero(T_SUMS);
    _tile_loadd(T_X, x, ldx);
    _tile_loadd(T_W, b->q, 64);
    _tile_dpbsud(T_SUMS, T_X, T_W);
    _tile_stored(T_SUMS, b->sums[0], 64);
    AMX_MEMORY();
}

/* Of each 16 k. */
V_FN void amx_dot_halves(struct amx_block *b, const int8_t *x, size_t ldx)
{
    AMX_MEMORY();
    _tile_zero(T_SUMS);
    _tile_loadd(T_X_HALF, x, ldx);
    _tile_loadd(T_W_HALF, b->q, 64);
    _tile_dpbsud(T_SUMS, T_X_HALF, T_W_HALF);
    _tile_stored(T_SUMS, b->sums[0], 64);
    _tile_zero(T_SUMS_LATER);
    _tile_loadd(T_X_HALF, x + 16, ldx);
    _tile_loadd(T_W_HALF, b->q + 256, 64);
    _tile_dpbsud(T_SUMS_LATER, T_X_HALF, T_W_HALF);
    _tile_stored(T_SUMS_LATER, b->sums[1], 64);
    AMX_MEMORY();
}

#endif
