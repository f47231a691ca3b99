/*
 * Integer matrix products: tiles of one group of 16 columns × up to 4 rows over the packed groups
 * of mat.h. Part of kern_impl.h.
 *
 * v_dot*() of the vector header gives the exact sums over 32 k; what is done with them in floating
 * point is written once, here. Row counts, quants and layouts are compile-time constants: a tile is
 * inlined for each, and its sums are registers.
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

/* What a layout is made of (mat.h). All constants. */
struct shape {
    int quants;  /* enum quants */
    int bias;    /* w is of q − bias */
    int minimum; /* 1: + m; −1: − e · t; 0: none */
    int super;   /* d, e are of 256 k; 1: with scales of 32, 2: of 16 */
};

V_FN const uint8_t *tile_fetch(const uint8_t *ahead, const int n, const size_t step)
{
    for (int i = 0; i < n; i++)
        v_prefetch(ahead + 64 * i);
    return ahead + step;
}

/*
 * The accumulators of a tile's rows: registers where they find room beside the products
 * (V_KEPT_ROWS), else y itself accumulates, and waits in the first cache between blocks.
 */
struct accs {
    v16f f0, f1;
    v16f f2, f3;
};
#define KEPT(rows) ((rows) <= V_KEPT_ROWS)

V_FN void accs_store(const struct accs *a, float *y, size_t ldy, const int rows)
{
    v_store(y, a->f0);
    if (rows > 1)
        v_store(y + ldy, a->f1);
    if (rows > 2)
        v_store(y + 2 * ldy, a->f2);
    if (rows > 3)
        v_store(y + 3 * ldy, a->f3);
}

V_FN void accs_load(struct accs *a, const float *y, size_t ldy, const int rows)
{
    a->f0 = v_load(y);
    if (rows > 1)
        a->f1 = v_load(y + ldy);
    if (rows > 2)
        a->f2 = v_load(y + 2 * ldy);
    if (rows > 3)
        a->f3 = v_load(y + 3 * ldy);
}

V_FN void tile_start(const struct tile *t, struct accs *a, const int rows)
{
    a->f0 = a->f1 = a->f2 = a->f3 = v_zero();
    if (!KEPT(rows))
        accs_store(a, t->y, t->ldy, rows);
}

V_FN void tile_end(const struct tile *t, const struct accs *a, const int rows)
{
    if (KEPT(rows))
        accs_store(a, t->y, t->ldy, rows);
}

/* X(f, s, b) for each row: its accumulator, its sum, its block (the first row's is b; the others'
 * lie n blocks apart). */
#define EACH_ROW(X)                      \
    do {                                 \
        X(a->f0, s.s0, b);               \
        if (rows > 1)                    \
            X(a->f1, s.s1, (b + n));     \
        if (rows > 2)                    \
            X(a->f2, s.s2, (b + 2 * n)); \
        if (rows > 3)                    \
            X(a->f3, s.s3, (b + 3 * n)); \
    } while (0)

/* s −= bias · Σ x */
#define ROW_BIAS(f, s, b) s = vi_sub(s, vi_set1(sh.bias * (b)->sum))
/* s −= bias · (scales · Σ x of 16 k each) */
#define ROW_BIAS_PAIR(f, s, b) \
    s = vi_sub(s, vi_shl(v_pair_dot(pairs, (b)->first, (b)->sum - (b)->first), shift))
/* f += d · b->d · s */
#define ROW_SCALE(f, s, b) f = v_fma(v_from_i(s), v_mul(d, v_set1((b)->d)), f)
/* f ± m · b->ds */
#define ROW_PLUS(f, s, b) f = v_fma(m, v_set1((b)->ds), f)
#define ROW_MINUS(f, s, b) f = v_fnma(m, v_set1((b)->ds), f)
/* f −= m · b->d · (minima · Σ x of 16 k each) */
#define ROW_MINUS_PAIR(f, s, b)                                                               \
    f = v_fnma(v_from_i(v_pair_dot(pairs, (b)->first, (b)->sum - (b)->first)),                \
               v_mul(m, v_set1((b)->d)), f)

/* Where a block finds what: `super` is read by super-blocks only. */
struct place {
    const uint8_t *super, *w;
    const int8_t *x;
    const struct act_block *b;
};

V_FN size_t head_bytes(const struct shape sh)
{
    return sh.minimum ? 64 : 32;
}

/* Bytes from a block of 32 k to the next; before each eighth of a super-block lies its head. */
V_FN size_t step_bytes(const struct shape sh)
{
    return (sh.super ? 32 : head_bytes(sh)) + (size_t)quants_bytes(sh.quants);
}

/* w = d · (q − bias) | d · q + m: scale and minimum for each block of 32. */
V_FN void block_flat(const struct tile *t, const struct shape sh, const int rows, struct place p,
                     struct accs *a)
{
    const size_t n = (size_t)t->n_blocks;
    const struct act_block *b = p.b;
    struct sums s;
    v_dot(p.w + head_bytes(sh), sh.quants, p.x, t->ldx, rows, &s);
    if (sh.bias)
        EACH_ROW(ROW_BIAS);
    if (!KEPT(rows))
        accs_load(a, t->y, t->ldy, rows);
    const v16f d = v_from_f16((const uint16_t *)p.w);
    EACH_ROW(ROW_SCALE);
    if (sh.minimum) {
        const v16f m = v_from_f16((const uint16_t *)(p.w + 32));
        EACH_ROW(ROW_PLUS);
    }
}

V_FN void tile_flat(const struct tile *t, const struct shape sh, const int rows)
{
    const size_t step = step_bytes(sh);
    const uint8_t *ahead = t->ahead;
    struct place p = {.w = t->w, .x = t->x, .b = t->b};
    struct accs a;
    tile_start(t, &a, rows);
    for (int kb = 0; kb < t->n_blocks; kb++, p.w += step, p.x += 32, p.b++) {
        ahead = tile_fetch(ahead, t->n_ahead, step);
        block_flat(t, sh, rows, p, &a);
        if (!KEPT(rows))
            accs_store(&a, t->y, t->ldy, rows);
    }
    tile_end(t, &a, rows);
}

/* w = (d · s) · q − e · t: d, e for 256 k, s, t for 32. Both products are exact in F32 (11 + 8
 * bits). */
V_FN void block_k(const struct tile *t, const struct shape sh, const int rows, struct place p,
                  struct accs *a)
{
    const size_t n = (size_t)t->n_blocks;
    const struct act_block *b = p.b;
    const uint16_t *super = (const uint16_t *)p.super;
    struct sums s;
    v_dot(p.w + 32, sh.quants, p.x, t->ldx, rows, &s);
    if (!KEPT(rows))
        accs_load(a, t->y, t->ldy, rows);
    const v16f d = v_mul(v_from_f16(super), v_from_i(vi_load_u8(p.w)));
    EACH_ROW(ROW_SCALE);
    const v16f m = v_mul(v_from_f16(super + 16), v_from_i(vi_load_u8(p.w + 16)));
    EACH_ROW(ROW_MINUS);
}

/* w = (d · s) · (q − bias) | (d · s) · q − (e · t), s, t for 16 k: the two halves' integer sums are
 * joined by their integer scales first: at most 2 · 16 · 127 · 128 · 128 < 2^27, exact. */
V_FN void block_k16(const struct tile *t, const struct shape sh, const int rows, struct place p,
                    struct accs *a)
{
    const size_t n = (size_t)t->n_blocks;
    const struct act_block *b = p.b;
    const uint16_t *super = (const uint16_t *)p.super;
    const int shift = sh.quants == QUANTS_6 ? 5 : 2; /* biases of 32 and 4 */
    struct sums s;
    v_dot_scaled(p.w + 32, sh.quants, p.w, p.x, t->ldx, rows, &s);
    const v_pairs pairs = v_scale_pairs(p.w, sh.quants);
    if (sh.bias)
        EACH_ROW(ROW_BIAS_PAIR);
    if (!KEPT(rows))
        accs_load(a, t->y, t->ldy, rows);
    const v16f d = v_from_f16(super);
    EACH_ROW(ROW_SCALE);
    if (sh.minimum) {
        const v16f m = v_from_f16(super + 16);
        EACH_ROW(ROW_MINUS_PAIR);
    }
}

V_FN void tile_super(const struct tile *t, const struct shape sh, const int rows)
{
    const size_t head = head_bytes(sh), step = step_bytes(sh);
    const uint8_t *ahead = t->ahead;
    struct place p = {.w = t->w, .x = t->x, .b = t->b};
    struct accs a;
    tile_start(t, &a, rows);
    for (int kb = 0; kb < t->n_blocks; kb += 8) {
        p.super = p.w;
        p.w += head;
        for (int i = 0; i < 8; i++, p.w += step, p.x += 32, p.b++) {
            ahead = tile_fetch(ahead, t->n_ahead, step);
            if (sh.super == 1)
                block_k(t, sh, rows, p, &a);
            else
                block_k16(t, sh, rows, p, &a);
            if (!KEPT(rows))
                accs_store(&a, t->y, t->ldy, rows);
        }
    }
    tile_end(t, &a, rows);
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

/* Groups that a single row goes through side by side, a block of each in turn: as many as have
 * their sums in registers. */
#define STREAMS 3

/*
 * One row against n groups, `apart` groups from each other. The memory answers several streams
 * faster than one (29 GB/s instead of 23 with two threads), and the processor sees each of
 * them coming: asking for lines by hand only takes its place.
 */
V_FN void row_streams(const struct gemm *g, const struct shape sh, const int n, int group,
                      int apart)
{
    const struct act *x = g->x;
    const struct tile t = {.n_blocks = x->n_blocks};
    const size_t step = step_bytes(sh), group_bytes = g->w->group_bytes;
    struct place p[STREAMS];
    float *y = g->y + 16 * group;
    v16f f[STREAMS];
#pragma GCC unroll 4
    for (int i = 0; i < n; i++) {
        p[i].super = p[i].w =
            g->w->data + (size_t)(g->group0 + group + i * apart) * group_bytes;
        f[i] = v_zero();
    }
    for (int kb = 0; kb < t.n_blocks; kb++) {
#pragma GCC unroll 4
        for (int i = 0; i < n; i++) {
            struct accs a = {.f0 = f[i]};
            p[i].x = x->q + (size_t)g->row0 * 32 * (size_t)t.n_blocks + 32 * kb;
            p[i].b = x->b + (size_t)g->row0 * (size_t)t.n_blocks + kb;
            if (sh.super && kb % 8 == 0) {
                p[i].super = p[i].w;
                p[i].w += head_bytes(sh);
            }
            if (sh.super == 2)
                block_k16(&t, sh, 1, p[i], &a);
            else if (sh.super)
                block_k(&t, sh, 1, p[i], &a);
            else
                block_flat(&t, sh, 1, p[i], &a);
            p[i].w += step;
            f[i] = a.f0;
            __asm__ volatile("" ::: "memory"); /* nothing of the next stream comes before */
        }
    }
#pragma GCC unroll 4
    for (int i = 0; i < n; i++)
        v_store(y + 16 * i * apart, f[i]);
}

/* All groups of a job of one row: three thirds side by side, then what is left. Scales of 16 k
 * leave registers for two. */
V_FN void gemm_row(const struct gemm *g, const struct shape sh)
{
    const int n = sh.super == 2 ? 2 : STREAMS, apart = g->n_groups / n;
    for (int c = 0; c < apart; c++)
        row_streams(g, sh, n, c, apart);
    int c = n * apart;
    if (c + 2 <= g->n_groups) {
        row_streams(g, sh, 2, c, 1);
        c += 2;
    }
    if (c < g->n_groups)
        row_streams(g, sh, 1, c, 1);
}

/* A tile and its share of the fetching. */
#define TILE_RUN(TILE, rows)                       \
    do {                                           \
        tile_plan(&t, i++, n_tiles, next, lines);  \
        TILE(&t, sh, rows);                        \
    } while (0)

/* All tiles of a job: for each group all rows, so that the group's weights stay in the first cache.
 * TILE is inlined with constant rows. */
#define GEMM_INT(NAME, TILE, ...)                                                                  \
    static void gemm_##NAME(const struct gemm *g)                                                  \
    {                                                                                              \
        const struct shape sh = {__VA_ARGS__};                                                     \
        const int head = sh.minimum || sh.super ? 64 : 32,                                         \
                  lines = (quants_bytes(sh.quants) + head + 63) / 64;                              \
        const struct act *a = g->x;                                                                \
        if (g->n_rows == 1) {                                                                      \
            gemm_row(g, sh);                                                                       \
            return;                                                                                \
        }                                                                                          \
        struct tile t = {.ldx = (size_t)a->n_blocks * 32, .n_blocks = a->n_blocks, .ldy = g->ldy}; \
        const int n_tiles = (g->n_rows + 3) / 4;                                                   \
        for (int c = 0; c < g->n_groups; c++) {                                                    \
            int r = g->n_rows, i = 0;                                                              \
            t.w = g->w->data + (size_t)(g->group0 + c) * g->w->group_bytes;                        \
            const uint8_t *next = c + 1 < g->n_groups ? t.w + g->w->group_bytes : NULL;            \
            t.x = a->q + (size_t)g->row0 * t.ldx;                                                  \
            t.b = a->b + (size_t)g->row0 * (size_t)a->n_blocks;                                    \
            t.y = g->y + 16 * c;                                                                   \
            for (; r >= 4; r -= 4, t.x += 4 * t.ldx, t.b += 4 * a->n_blocks, t.y += 4 * t.ldy)     \
                TILE_RUN(TILE, 4);                                                                 \
            if (r == 3)                                                                            \
                TILE_RUN(TILE, 3);                                                                 \
            else if (r == 2)                                                                       \
                TILE_RUN(TILE, 2);                                                                 \
            else if (r == 1)                                                                       \
                TILE_RUN(TILE, 1);                                                                 \
        }                                                                                          \
    }

/* X(name, tile, shape) for each layout of integers. */
#define INT_PRODUCTS(X)                                                  \
    X(u4_d, tile_flat, .quants = QUANTS_4, .bias = 8)                    \
    X(u4_dm, tile_flat, .quants = QUANTS_4, .minimum = 1)                \
    X(u4_k, tile_super, .quants = QUANTS_4, .minimum = -1, .super = 1)   \
    X(nl_d, tile_flat, .quants = QUANTS_NL, .bias = V_S8_BIAS)           \
    X(u5_d, tile_flat, .quants = QUANTS_5, .bias = 16)                   \
    X(u5_dm, tile_flat, .quants = QUANTS_5, .minimum = 1)                \
    X(u5_k, tile_super, .quants = QUANTS_5, .minimum = -1, .super = 1)   \
    X(s8_d, tile_flat, .quants = QUANTS_8, .bias = V_S8_BIAS)            \
    X(u6_k16, tile_super, .quants = QUANTS_6, .bias = 32, .super = 2)    \
    X(u3_k16, tile_super, .quants = QUANTS_3, .bias = 4, .super = 2)     \
    X(u2_k16, tile_super, .quants = QUANTS_2, .minimum = -1, .super = 2)

INT_PRODUCTS(GEMM_INT)
