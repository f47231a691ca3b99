/* Matrix products with weights as they are in the file, F32, F16 or BF16, and F32 activations: one
 * chain of FMAs over k for each output. Part of kern_impl.h. */

V_FN v16f weights16(const unsigned char *w, const int layout)
{
    if (layout == MAT_F32)
        return v_load((const float *)w);
    return layout == MAT_F16 ? v_from_f16((const uint16_t *)w) : v_from_bf16((const uint16_t *)w);
}

/* 16 columns × up to 4 rows. */
V_FN void tile_float(const struct gemm *g, const unsigned char *w, const float *x, float *y,
                     const int layout, const int rows)
{
    const size_t step = layout == MAT_F32 ? 64 : 32, ldx = g->x->ldf;
    const int n = g->x->n_in;
    v16f f0 = v_zero(), f1 = f0, f2 = f0, f3 = f0;
    for (int k = 0; k < n; k++, w += step, x++) {
        v16f v = weights16(w, layout);
        f0 = v_fma(v, v_set1(x[0]), f0);
        if (rows > 1)
            f1 = v_fma(v, v_set1(x[ldx]), f1);
        if (rows > 2)
            f2 = v_fma(v, v_set1(x[2 * ldx]), f2);
        if (rows > 3)
            f3 = v_fma(v, v_set1(x[3 * ldx]), f3);
    }
    v_store(y, f0);
    if (rows > 1)
        v_store(y + g->ldy, f1);
    if (rows > 2)
        v_store(y + 2 * g->ldy, f2);
    if (rows > 3)
        v_store(y + 3 * g->ldy, f3);
}

V_FN void gemm_float(const struct gemm *g, const int layout)
{
    const size_t ldx = g->x->ldf;
    for (int c = 0; c < g->n_groups; c++) {
        const unsigned char *w = g->w->data + (size_t)(g->group0 + c) * g->w->group_bytes;
        const float *x = g->x->f + (size_t)g->row0 * ldx;
        float *y = g->y + 16 * c;
        int r = g->n_rows;
        for (; r >= 4; r -= 4, x += 4 * ldx, y += 4 * g->ldy)
            tile_float(g, w, x, y, layout, 4);
        if (r == 3)
            tile_float(g, w, x, y, layout, 3);
        else if (r == 2)
            tile_float(g, w, x, y, layout, 2);
        else if (r == 1)
            tile_float(g, w, x, y, layout, 1);
    }
}

static void gemm_f32(const struct gemm *g) { gemm_float(g, MAT_F32); }
static void gemm_f16(const struct gemm *g) { gemm_float(g, MAT_F16); }
static void gemm_bf16(const struct gemm *g) { gemm_float(g, MAT_BF16); }
