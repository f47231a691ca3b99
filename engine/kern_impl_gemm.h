/*
 * Integer matrix products: tiles of 16 columns × up to 3 rows over the packed groups of mat.h. Part
 * of kern_impl.h.
 *
 * v_block_*() of the vector header gives the exact sum over 32 k; what is done with it in floating
 * point is written once, here. Row counts are compile-time constants (a tile is inlined for 1, 2
 * and 3 rows), so that sums are registers.
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

/*
 * A tile's state: the integer sums of the block in work, and the accumulators f of its first KEPT
 * rows. Three rows of signed 8 bits leave no registers for them: there y itself accumulates, and
 * waits in the first cache between blocks.
 */
struct state {
    v16i s0, s1, s2;
    v16f f0, f1, f2;
};
#define KEPT(is_u4, rows) ((is_u4) || (rows) < 3 ? (rows) : 0)

V_FN void tile_start(const struct tile *t, struct state *st, const int rows, const int kept)
{
    st->f0 = st->f1 = st->f2 = v_zero();
    for (int r = kept; r < rows; r++)
        v_store(t->y + (size_t)r * t->ldy, v_zero());
}

V_FN void tile_store(const struct tile *t, const struct state *st, const int kept)
{
    if (kept > 0)
        v_store(t->y, st->f0);
    if (kept > 1)
        v_store(t->y + t->ldy, st->f1);
    if (kept > 2)
        v_store(t->y + 2 * t->ldy, st->f2);
}

/* What a block's columns have in common: scale and minimum, and the minimum's sign (0: none). */
struct columns {
    v16f d, m;
    int sign;
};

/* f += d · b->d · s ± m · b->ds */
V_FN v16f fold(v16f f, v16i s, const struct act_block *b, const struct columns *c)
{
    f = v_fma(v_from_i(s), v_mul(c->d, v_set1(b->d)), f);
    if (c->sign > 0)
        f = v_fma(c->m, v_set1(b->ds), f);
    else if (c->sign < 0)
        f = v_fnma(c->m, v_set1(b->ds), f);
    return f;
}

/* All rows' f; b is the block of the first row's activations. */
V_FN void tile_fold(const struct tile *t, struct state *st, const int rows, const int kept,
                    const struct columns *c, const struct act_block *b)
{
    const struct act_block *b1 = b + t->n_blocks, *b2 = b1 + t->n_blocks;
    float *y1 = t->y + t->ldy, *y2 = y1 + t->ldy;
    if (kept > 0)
        st->f0 = fold(st->f0, st->s0, b, c);
    else
        v_store(t->y, fold(v_load(t->y), st->s0, b, c));
    if (kept > 1)
        st->f1 = fold(st->f1, st->s1, b1, c);
    else if (rows > 1)
        v_store(y1, fold(v_load(y1), st->s1, b1, c));
    if (kept > 2)
        st->f2 = fold(st->f2, st->s2, b2, c);
    else if (rows > 2)
        v_store(y2, fold(v_load(y2), st->s2, b2, c));
}

V_FN void block_sums(const uint8_t *w, const int8_t *x, size_t ldx, const int is_u4, const int rows,
                     struct state *s)
{
    s->s0 = s->s1 = s->s2 = vi_set1(0);
    if (is_u4)
        v_block_u4(w, x, ldx, rows, &s->s0, &s->s1, &s->s2);
    else
        v_block_s8(w, x, ldx, rows, &s->s0, &s->s1, &s->s2);
}

/* w = d · (q − 8) | d · q + m | d · q, a scale for each block of 32. */
V_FN void tile_flat(const struct tile *t, const int is_u4, const int has_min, const int rows)
{
    const size_t head = has_min ? 64 : 32, step = head + (is_u4 ? 256 : 512);
    const uint8_t *w = t->w, *ahead = t->ahead;
    const int8_t *x = t->x;
    const struct act_block *b = t->b;
    struct state s;
    const int kept = KEPT(is_u4, rows);
    tile_start(t, &s, rows, kept);
    for (int kb = 0; kb < t->n_blocks; kb++, w += step, x += 32, b++) {
        ahead = tile_fetch(ahead, t->n_ahead, step);
        block_sums(w + head, x, t->ldx, is_u4, rows, &s);
        if (is_u4 && !has_min) {
            s.s0 = vi_sub(s.s0, vi_set1(8 * b[0].sum));
            if (rows > 1)
                s.s1 = vi_sub(s.s1, vi_set1(8 * b[t->n_blocks].sum));
            if (rows > 2)
                s.s2 = vi_sub(s.s2, vi_set1(8 * b[2 * t->n_blocks].sum));
        }
        struct columns c = {.d = v_from_f16((const uint16_t *)w), .sign = has_min};
        c.m = has_min ? v_from_f16((const uint16_t *)(w + 32)) : c.d;
        tile_fold(t, &s, rows, kept, &c, b);
    }
    tile_store(t, &s, kept);
}

/* w = (d · s) · q − e · t: d, e for 256 k, s, t for 32. Both products are exact in F32 (11 + 8
 * bits). */
V_FN void tile_k(const struct tile *t, const int is_u4, const int rows)
{
    const size_t step = 32 + (is_u4 ? 256 : 512);
    const uint8_t *w = t->w, *ahead = t->ahead;
    const int8_t *x = t->x;
    const struct act_block *b = t->b;
    struct state s;
    const int kept = KEPT(is_u4, rows);
    tile_start(t, &s, rows, kept);
    for (int kb = 0; kb < t->n_blocks; kb += 8) {
        const uint16_t *super = (const uint16_t *)w;
        w += 64;
        for (int i = 0; i < 8; i++, w += step, x += 32, b++) {
            ahead = tile_fetch(ahead, t->n_ahead, step);
            block_sums(w + 32, x, t->ldx, is_u4, rows, &s);
            const struct columns c = {
                .d = v_mul(v_from_f16(super), v_from_i(vi_load_u8(w))),
                .m = v_mul(v_from_f16(super + 16), v_from_i(vi_load_u8(w + 16))),
                .sign = -1};
            tile_fold(t, &s, rows, kept, &c, b);
        }
    }
    tile_store(t, &s, kept);
}

/* w = (d · s) · q: the two halves' integer sums are joined by their integer scales first: at most 2
 * · 16 · 127 · 128 · 128 < 2^27, exact. */
V_FN void tile_k16(const struct tile *t, const int rows)
{
    const uint8_t *w = t->w, *ahead = t->ahead;
    const int8_t *x = t->x;
    const struct act_block *b = t->b;
    struct state s;
    const int kept = KEPT(0, rows);
    tile_start(t, &s, rows, kept);
    for (int kb = 0; kb < t->n_blocks; kb += 8) {
        const uint16_t *super = (const uint16_t *)w;
        w += 32;
        for (int i = 0; i < 8; i++, w += 544, x += 32, b++) {
            s.s0 = s.s1 = s.s2 = vi_set1(0);
            ahead = tile_fetch(ahead, t->n_ahead, 544);
            v_block_s8_scaled(w + 32, (const int8_t *)w, x, t->ldx, rows, &s.s0, &s.s1, &s.s2);
            const v16f d = v_from_f16(super);
            tile_fold(t, &s, rows, kept, &(struct columns){d, d, 0}, b);
        }
    }
    tile_store(t, &s, kept);
}

/* How far ahead of its use a stream of weights is fetched. */
#define AHEAD_BYTES 2048

/* What tile i of n of a group fetches beside its work: with several tiles a share of the next
 * group, else what comes a little later in the stream. */
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
