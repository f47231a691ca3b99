/*
 * Integer matrix products: tiles of 16 columns × up to 3 rows over the packed groups of mat.h. Part
 * of kern_impl.h.
 *
 * v_block_*() of the vector header gives the exact sum over 32 k; what is done with it in floating
 * point is written once, here. Row counts are compile-time constants (a tile is inlined for 1, 2
 * and 3 rows), so that accumulators are registers.
 */

/* A tile's input and output: R rows of the activations, 16 columns of y. */
struct tile {
    const uint8_t *w;
    const int8_t *x;
    size_t ldx;
    const struct act_block *b; /* of row 0; row r at b + r · n_blocks */
    int n_blocks;
    float *y;
    size_t ldy;
    const uint8_t *ahead; /* with each 32 k of w, n_ahead cache lines from here are fetched */
    int n_ahead;
};

V_FN const uint8_t *tile_fetch(const uint8_t *ahead, const int n, const size_t step)
{
    for (int i = 0; i < n; i++)
        v_prefetch(ahead + 64 * i);
    return ahead + step;
}

V_FN void tile_store(const struct tile *t, const int rows, v16f f0, v16f f1, v16f f2)
{
    v_store(t->y, f0);
    if (rows > 1)
        v_store(t->y + t->ldy, f1);
    if (rows > 2)
        v_store(t->y + 2 * t->ldy, f2);
}

V_FN v16f fold(v16i s, v16f d, const struct act_block *b, v16f f)
{
    return v_fma(v_from_i(s), v_mul(d, v_set1(b->d)), f);
}

/* w = d · (q − 8) | d · q + m | d · q, a scale for each block of 32. */
V_FN void tile_flat(const struct tile *t, const int is_u4, const int has_min, const int rows)
{
    const size_t head = has_min ? 64 : 32, step = head + (is_u4 ? 256 : 512);
    const uint8_t *w = t->w;
    const int8_t *x = t->x;
    const struct act_block *b0 = t->b, *b1 = b0 + (rows > 1) * t->n_blocks,
                           *b2 = b1 + (rows > 2) * t->n_blocks;
    v16f f0 = v_zero(), f1 = f0, f2 = f0;
    const uint8_t *ahead = t->ahead;
    for (int kb = 0; kb < t->n_blocks; kb++, w += step, x += 32, b0++, b1++, b2++) {
        ahead = tile_fetch(ahead, t->n_ahead, step);
        v16i s0 = vi_set1(0), s1 = s0, s2 = s0;
        if (is_u4)
            v_block_u4(w + head, x, t->ldx, rows, &s0, &s1, &s2);
        else
            v_block_s8(w + head, x, t->ldx, rows, 8, &s0, &s1, &s2);
        if (is_u4 && !has_min) {
            s0 = vi_sub(s0, vi_set1(8 * b0->sum));
            s1 = vi_sub(s1, vi_set1(8 * b1->sum));
            s2 = vi_sub(s2, vi_set1(8 * b2->sum));
        }
        const v16f d = v_from_f16((const uint16_t *)w);
        f0 = fold(s0, d, b0, f0);
        f1 = fold(s1, d, b1, f1);
        f2 = fold(s2, d, b2, f2);
        if (has_min) {
            const v16f m = v_from_f16((const uint16_t *)(w + 32));
            f0 = v_fma(m, v_set1(b0->ds), f0);
            f1 = v_fma(m, v_set1(b1->ds), f1);
            f2 = v_fma(m, v_set1(b2->ds), f2);
        }
    }
    tile_store(t, rows, f0, f1, f2);
}

/* w = (d · s) · q − e · t: d, e for 256 k, s, t for 32. Both products are exact in F32 (11 + 8
 * bits). */
V_FN void tile_k(const struct tile *t, const int is_u4, const int rows)
{
    const size_t step = 32 + (is_u4 ? 256 : 512);
    const uint8_t *w = t->w;
    const int8_t *x = t->x;
    const struct act_block *b0 = t->b, *b1 = b0 + (rows > 1) * t->n_blocks,
                           *b2 = b1 + (rows > 2) * t->n_blocks;
    v16f f0 = v_zero(), f1 = f0, f2 = f0;
    for (int kb = 0; kb < t->n_blocks; kb += 8) {
        const uint16_t *super = (const uint16_t *)w;
        w += 64;
        for (int i = 0; i < 8; i++, w += step, x += 32, b0++, b1++, b2++) {
            v16i s0 = vi_set1(0), s1 = s0, s2 = s0;
            if (is_u4)
                v_block_u4(w + 32, x, t->ldx, rows, &s0, &s1, &s2);
            else
                v_block_s8(w + 32, x, t->ldx, rows, 8, &s0, &s1, &s2);
            const v16f d = v_mul(v_from_f16(super), v_from_i(vi_load_u8(w)));
            f0 = fold(s0, d, b0, f0);
            f1 = fold(s1, d, b1, f1);
            f2 = fold(s2, d, b2, f2);
            const v16f m = v_mul(v_from_f16(super + 16), v_from_i(vi_load_u8(w + 16)));
            f0 = v_fnma(m, v_set1(b0->ds), f0);
            f1 = v_fnma(m, v_set1(b1->ds), f1);
            f2 = v_fnma(m, v_set1(b2->ds), f2);
        }
    }
    tile_store(t, rows, f0, f1, f2);
}

/* w = (d · s) · q: the two halves' integer sums are joined by their integer scales first: at most 2
 * · 16 · 127 · 128 · 128 < 2^27, exact. */
V_FN void tile_k16(const struct tile *t, const int rows)
{
    const uint8_t *w = t->w;
    const int8_t *x = t->x;
    const struct act_block *b0 = t->b, *b1 = b0 + (rows > 1) * t->n_blocks,
                           *b2 = b1 + (rows > 2) * t->n_blocks;
    v16f f0 = v_zero(), f1 = f0, f2 = f0;
    for (int kb = 0; kb < t->n_blocks; kb += 8) {
        const v16f d = v_from_f16((const uint16_t *)w);
        w += 32;
        for (int i = 0; i < 8; i++, w += 544, x += 32, b0++, b1++, b2++) {
            v16i p0 = vi_set1(0), p1 = p0, p2 = p0, s0 = p0, s1 = p0, s2 = p0;
            v_block_s8(w + 32, x, t->ldx, rows, 4, &p0, &p1, &p2);
            v_block_s8(w + 288, x + 16, t->ldx, rows, 4, &s0, &s1, &s2);
            const v16i lo = vi_load_s8((const int8_t *)w), hi = vi_load_s8((const int8_t *)w + 16);
            f0 = fold(vi_add(vi_mul(p0, lo), vi_mul(s0, hi)), d, b0, f0);
            f1 = fold(vi_add(vi_mul(p1, lo), vi_mul(s1, hi)), d, b1, f1);
            f2 = fold(vi_add(vi_mul(p2, lo), vi_mul(s2, hi)), d, b2, f2);
        }
    }
    tile_store(t, rows, f0, f1, f2);
}

/* How far ahead of its use a stream of weights is fetched. */
#define AHEAD_BYTES 2048

/* What tile i of n of a group fetches beside its work: with several tiles a share of the next group,
 * else what comes a little later in the stream. */
V_FN void tile_plan(struct tile *t, int i, int n, const uint8_t *next, int lines)
{
    const int share = (lines + n - 1) / n;
    t->n_ahead = 0;
    if (n == 1 || (i == 0 && !next)) {
        t->ahead = t->w + AHEAD_BYTES;
        t->n_ahead = lines;
    } else if (next && i * share < lines) {
        t->ahead = next + 64 * i * share;
        t->n_ahead = share;
    }
}

/* All tiles of a job: for each group all rows, so that the group's weights stay in the first cache.
 * TILE(t, rows) is inlined with constant rows. */
#define GEMM_INT(NAME, TILE, LINES)                                                                \
    static void NAME(const struct gemm *g)                                                         \
    {                                                                                              \
        const struct act *a = g->x;                                                                \
        struct tile t = {.ldx = (size_t)a->n_blocks * 32, .n_blocks = a->n_blocks, .ldy = g->ldy}; \
        const int n_tiles = (g->n_rows + 2) / 3;                                                   \
        for (int c = 0; c < g->n_groups; c++) {                                                    \
            int r = g->n_rows, i = 0;                                                              \
            t.w = g->w->data + (size_t)(g->group0 + c) * g->w->group_bytes;                        \
            const uint8_t *next = c + 1 < g->n_groups ? t.w + g->w->group_bytes : NULL;            \
            t.x = a->q + (size_t)g->row0 * t.ldx;                                                  \
            t.b = a->b + (size_t)g->row0 * (size_t)a->n_blocks;                                    \
            t.y = g->y + 16 * c;                                                                   \
            for (; r >= 3; r -= 3, t.x += 3 * t.ldx, t.b += 3 * a->n_blocks, t.y += 3 * t.ldy) {   \
                tile_plan(&t, i++, n_tiles, next, LINES);                                          \
                TILE(&t, 3);                                                                       \
            }                                                                                      \
            tile_plan(&t, i, n_tiles, next, LINES);                                                \
            if (r == 2)                                                                            \
                TILE(&t, 2);                                                                       \
            else if (r == 1)                                                                       \
                TILE(&t, 1);                                                                       \
        }                                                                                          \
    }

#define TILE_U4_D(t, rows) tile_flat(t, 1, 0, rows)
#define TILE_U4_DM(t, rows) tile_flat(t, 1, 1, rows)
#define TILE_S8_D(t, rows) tile_flat(t, 0, 0, rows)
#define TILE_S8_DM(t, rows) tile_flat(t, 0, 1, rows)
#define TILE_U4_K(t, rows) tile_k(t, 1, rows)
#define TILE_S8_K(t, rows) tile_k(t, 0, rows)

GEMM_INT(gemm_u4_d, TILE_U4_D, 5)
GEMM_INT(gemm_u4_dm, TILE_U4_DM, 5)
GEMM_INT(gemm_u4_k, TILE_U4_K, 5)
GEMM_INT(gemm_s8_d, TILE_S8_D, 9)
GEMM_INT(gemm_s8_dm, TILE_S8_DM, 9)
GEMM_INT(gemm_s8_k, TILE_S8_K, 9)
GEMM_INT(gemm_s8_k16, tile_k16, 9)
