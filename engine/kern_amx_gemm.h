/*
 * Integer matrix products of many rows by AMX: tiles of one group of 16 columns × 16 rows. Part of
 * kern_amx.c, behind kern_impl_gemm.h, whose products of up to four rows do the rows that are left
 * over and all passes of fewer than 16.
 *
 * The sums over 32 k (or 16) are exact integers, and what is done with them is the text of
 * kern_impl_gemm.h: the same bits.
 *
 * Tiles are configured for one job and released after it, on the thread that does it: between jobs
 * the system has no tiles to save, and nothing is left to whoever runs next.
 */

/* X(i) for each row of a tile. */
#define AMX_EACH(X) \
    do {            \
        X(0);       \
        X(1);       \
        X(2);       \
        X(3);       \
        X(4);       \
        X(5);       \
        X(6);       \
        X(7);       \
        X(8);       \
        X(9);       \
        X(10);      \
        X(11);      \
        X(12);      \
        X(13);      \
        X(14);      \
        X(15);      \
    } while (0)

struct amx_accs {
    v16f f0, f1, f2, f3, f4, f5, f6, f7, f8, f9, f10, f11, f12, f13, f14, f15;
};

/* What a block multiplies its sums by: scale and minimum of 32 k, integer scales of 16. */
struct amx_by {
    v16f d, m;
    v16i low, high;
    v_pairs pairs;
};

/* A block of 32 k added to one row's accumulator; `sums` are the row's of amx_block. */
V_FN v16f amx_row(v16f f, const int32_t *sums, const struct shape sh, const struct act_block *b,
                  const struct amx_by *by)
{
    const int shift = sh.quants == QUANTS_6 ? 5 : 2; /* biases of 32 and 4 */
    const v16f d = by->d, m = by->m;
    const v_pairs pairs = by->pairs;
    v16i s = vz_bytes(sums);
    if (sh.super == 2)
        s = vi_add(vi_mul(s, by->low), vi_mul(vz_bytes(sums + 16 * AMX_ROWS), by->high));
    if (sh.super == 2 && sh.bias)
        ROW_BIAS_PAIR(f, s, b);
    else if (sh.bias)
        ROW_BIAS(f, s, b);
    ROW_SCALE(f, s, b);
    if (sh.minimum > 0)
        ROW_PLUS(f, s, b);
    else if (sh.minimum < 0 && sh.super == 1)
        ROW_MINUS(f, s, b);
    else if (sh.minimum < 0)
        ROW_MINUS_PAIR(f, s, b);
    return f;
}

/* Sums of the block at w, and what they are multiplied by; `super` is the super-block's head. */
V_FN void amx_block_k(const uint8_t *super, const uint8_t *w, const struct shape sh,
                      struct amx_block *block, struct amx_by *by)
{
    const uint16_t *head = (const uint16_t *)super;
    amx_open(w + 32, sh.quants, block);
    by->d = v_from_f16(head);
    if (sh.minimum)
        by->m = v_from_f16(head + 16);
    if (sh.super == 1) {
        by->d = v_mul(by->d, v_from_i(vi_load_u8(w)));
        by->m = v_mul(by->m, v_from_i(vi_load_u8(w + 16)));
    } else {
        vz_halves(w, sh.quants, &by->low, &by->high);
        by->pairs = v_scale_pairs(w, sh.quants);
    }
}

V_FN void amx_block_flat(const uint8_t *w, const struct shape sh, struct amx_block *block,
                         struct amx_by *by)
{
    by->d = v_from_f16((const uint16_t *)w);
    if (sh.minimum)
        by->m = v_from_f16((const uint16_t *)(w + 32));
    amx_open(w + (sh.minimum ? 64 : 32), sh.quants, block);
}

V_FN void amx_tile(const struct tile *t, const struct shape sh, struct amx_block *block)
{
    const size_t head = sh.minimum ? 64 : 32, n = (size_t)t->n_blocks,
                 step = (size_t)quants_bytes(sh.quants) + (sh.super ? 32 : head);
    const uint8_t *w = t->w, *super = w;
    const int8_t *x = t->x;
    const struct act_block *b = t->b;
    struct amx_by by;
    struct amx_accs a;
#define AMX_START(i) a.f##i = v_zero()
#define AMX_ADD(i) a.f##i = amx_row(a.f##i, block->sums[0] + 16 * (i), sh, b + (i) * n, &by)
#define AMX_END(i) v_store(t->y + (i) * t->ldy, a.f##i)
    AMX_EACH(AMX_START);
    by.d = by.m = v_zero();
    by.low = by.high = by.pairs = vz_zero();
    for (int kb = 0; kb < t->n_blocks; kb++, w += step, x += 32, b++) {
        if (sh.super && kb % 8 == 0) {
            super = w;
            w += head;
        }
        if (sh.super)
            amx_block_k(super, w, sh, block, &by);
        else
            amx_block_flat(w, sh, block, &by);
        if (sh.super == 2)
            amx_dot_halves(block, x, t->ldx);
        else
            amx_dot(block, x, t->ldx);
        AMX_EACH(AMX_ADD);
    }
    AMX_EACH(AMX_END);
}

/* Whole tiles by `tile`, the rows that are left by `rest`. */
static void amx_job(const struct gemm *g, void (*tile)(const struct tile *, struct amx_block *),
                    void (*rest)(const struct gemm *))
{
    const struct act *a = g->x;
    const int n_rows = g->n_rows / AMX_ROWS * AMX_ROWS;
    struct tile t = {.ldx = (size_t)a->n_blocks * 32, .n_blocks = a->n_blocks, .ldy = g->ldy};
    struct amx_block block;
    if (n_rows > 0)
        _tile_loadconfig(&amx_config);
    for (int c = 0; n_rows > 0 && c < g->n_groups; c++) {
        t.w = g->w->data + (size_t)(g->group0 + c) * g->w->group_bytes;
        for (int r = 0; r < n_rows; r += AMX_ROWS) {
            const size_t row = (size_t)(g->row0 + r);
            t.x = a->q + row * t.ldx;
            t.b = a->b + row * (size_t)a->n_blocks;
            t.y = g->y + 16 * c + (size_t)r * g->ldy;
            tile(&t, &block);
        }
    }
    if (n_rows > 0)
        _tile_release();
    if (n_rows == g->n_rows)
        return;
    struct gemm left = *g;
    left.row0 += n_rows;
    left.n_rows -= n_rows;
    left.y += (size_t)n_rows * g->ldy;
    rest(&left);
}

/* A tile that is compiled for one shape, its block in the caller's memory so that its own stack
 * shows what the compiler put there (tests/engine/math/spills.py); and the product made of it. */
#define GEMM_AMX(NAME, TILE, ...)                                                  \
    V_OUT void amx_tile_##NAME(const struct tile *t, struct amx_block *block)      \
    {                                                                              \
        const struct shape sh = {__VA_ARGS__};                                     \
        amx_tile(t, sh, block);                                                    \
    }                                                                              \
    static void amx_##NAME(const struct gemm *g)                                   \
    {                                                                              \
        amx_job(g, amx_tile_##NAME, gemm_##NAME);                                  \
    }
INT_PRODUCTS(GEMM_AMX)
