/*
 * Attention over one span of KV blocks. Part of kern_impl.h.
 *
 *   scores  s[pos]  = Σ_dim q[dim] · K[dim][pos]        lanes are positions, one chain over the dimensions
 *   m' = max(m, s), c = exp(m − m'), p = exp(s − m')    per block of 32
 *   l  = l · c + Σ p                                    sixteen partials and the tree
 *   acc[dim] = acc[dim] · c + Σ_pos p[pos] · V[pos][dim]   lanes are dimensions, one chain over the positions
 *
 * A masked position has p = 0 exactly and a wholly masked block c = 1, so both leave the state as it was. Both products have one shape, rows of coefficients times
 * [k][32] values, and share one tile of 3 rows × 32 lanes: 12 accumulators in 16 registers.
 */

/* Far below ATTN_EMPTY: exp(masked − m) is 0 whatever m is. */
#define ATTN_MASKED (-3e38f)

/* y[r][0, 16·wide) (+)= Σ_k a[r][k] · b[k][…]: b is F16 or F32, rows ≤ 3, wide = 1 or 2 vectors. */
struct strip {
    const float *a;
    size_t lda;
    const void *b;
    size_t ldb;
    int n_k;
    float *y;
    size_t ldy;
};

V_FN v16f strip_load(const void *b, size_t i, const int is_f16)
{
    return is_f16 ? v_from_f16((const uint16_t *)b + i) : v_load((const float *)b + i);
}

V_FN void strip_run(const struct strip *s, const int rows, const int wide, const int is_f16, const int from_y)
{
    const float *a0 = s->a, *a1 = a0 + s->lda, *a2 = a1 + s->lda;
    float *y0 = s->y, *y1 = y0 + s->ldy, *y2 = y1 + s->ldy;
    v16f p0 = v_zero(), p1 = p0, p2 = p0, q0 = p0, q1 = p0, q2 = p0;
    if (from_y) {
        p0 = v_load(y0), q0 = wide > 1 ? v_load(y0 + 16) : q0;
        p1 = rows > 1 ? v_load(y1) : p1, q1 = rows > 1 && wide > 1 ? v_load(y1 + 16) : q1;
        p2 = rows > 2 ? v_load(y2) : p2, q2 = rows > 2 && wide > 1 ? v_load(y2 + 16) : q2;
    }
    for (int k = 0; k < s->n_k; k++) {
        v16f c0 = v_set1(a0[k]), c1 = rows > 1 ? v_set1(a1[k]) : c0, c2 = rows > 2 ? v_set1(a2[k]) : c0;
        v16f b = strip_load(s->b, (size_t)k * s->ldb, is_f16);
        p0 = v_fma(c0, b, p0);
        p1 = rows > 1 ? v_fma(c1, b, p1) : p1;
        p2 = rows > 2 ? v_fma(c2, b, p2) : p2;
        if (wide > 1) {
            b = strip_load(s->b, (size_t)k * s->ldb + 16, is_f16);
            q0 = v_fma(c0, b, q0);
            q1 = rows > 1 ? v_fma(c1, b, q1) : q1;
            q2 = rows > 2 ? v_fma(c2, b, q2) : q2;
        }
    }
    v_store(y0, p0);
    if (wide > 1)
        v_store(y0 + 16, q0);
    if (rows > 1)
        v_store(y1, p1);
    if (rows > 1 && wide > 1)
        v_store(y1 + 16, q1);
    if (rows > 2)
        v_store(y2, p2);
    if (rows > 2 && wide > 1)
        v_store(y2 + 16, q2);
}

/* Picks the inlined variant. */
#define STRIP_CASES(is_f16, from_y, wide)                  \
    do {                                                   \
        if (rows == 3)                                     \
            strip_run(s, 3, wide, is_f16, from_y);         \
        else if (rows == 2)                                \
            strip_run(s, 2, wide, is_f16, from_y);         \
        else                                               \
            strip_run(s, 1, wide, is_f16, from_y);         \
    } while (0)

static void strip_scores_f16(const struct strip *s, int rows) { STRIP_CASES(1, 0, 2); }
static void strip_scores_f32(const struct strip *s, int rows) { STRIP_CASES(0, 0, 2); }
static void strip_values_f16(const struct strip *s, int rows) { STRIP_CASES(1, 1, 2); }
static void strip_values_f32(const struct strip *s, int rows) { STRIP_CASES(0, 1, 2); }
static void strip_half_f16(const struct strip *s, int rows) { STRIP_CASES(1, 1, 1); }
static void strip_half_f32(const struct strip *s, int rows) { STRIP_CASES(0, 1, 1); }

/* One block as the strips read it: F16 where it lies, or F32 once expanded for many queries. */
struct attn_block {
    const void *k, *v;
    int is_f16;
    int pos0;
};

/* Scores → weights of up to 3 queries; the state's m and l, and c for its acc. True when some c isn't 1. */
V_FN int attn_softmax(const struct attn_span *a, const struct attn_block *b, int q0, int rows, float *s, float *c)
{
    float diff[16] = {0};
    for (int r = 0; r < rows; r++) {
        float *x = s + 32 * r;
        const int n_seen = a->pos[q0 + r] - b->pos0 + 1;
        for (int i = n_seen > 0 ? n_seen : 0; i < 32; i++)
            x[i] = ATTN_MASKED;
        v16f x0 = v_load(x), x1 = v_load(x + 16);
        float m = a->m[q0 + r], high = v_hmax(v_max(x0, x1));
        high = high > m ? high : m;
        diff[r] = m - high;
        a->m[q0 + r] = high;
        v16f h = v_set1(high);
        v_store(x, v_exp(v_sub(x0, h)));
        v_store(x + 16, v_exp(v_sub(x1, h)));
    }
    v_store(c, v_exp(v_load(diff)));
    int changed = 0;
    for (int r = 0; r < rows; r++) {
        float *l = &a->l[q0 + r], sum = v_sum(v_add(v_load(s + 32 * r), v_load(s + 32 * r + 16)));
        *l = __builtin_fmaf(*l, c[r], sum);
        changed |= c[r] != 1.0f;
    }
    return changed;
}

/* Queries q0 … q0 + rows − 1 against one block. */
V_FN void attn_queries(const struct attn_span *a, const struct attn_block *b, int q0, int rows)
{
    const size_t dim = (size_t)a->head_dim;
    float s[3 * 32], c[16], *acc = a->acc + (size_t)q0 * dim;
    struct strip t = {.a = a->q + (size_t)q0 * dim, .lda = dim, .b = b->k, .ldb = 32, .n_k = a->head_dim, .y = s, .ldy = 32};
    (b->is_f16 ? strip_scores_f16 : strip_scores_f32)(&t, rows);
    if (attn_softmax(a, b, q0, rows, s, c))
        for (int r = 0; r < rows; r++)
            for (size_t i = 0; i < dim; i += 16)
                v_store(acc + (size_t)r * dim + i, v_mul(v_load(acc + (size_t)r * dim + i), v_set1(c[r])));
    t = (struct strip){.a = s, .lda = 32, .b = b->v, .ldb = dim, .n_k = 32, .y = acc, .ldy = dim};
    for (size_t i = 0; i < dim; i += 32) {
        t.b = b->is_f16 ? (const void *)((const uint16_t *)b->v + i) : (const void *)((const float *)b->v + i);
        t.y = acc + i;
        if (i + 32 <= dim)
            (b->is_f16 ? strip_values_f16 : strip_values_f32)(&t, rows);
        else
            (b->is_f16 ? strip_half_f16 : strip_half_f32)(&t, rows);
    }
}

/* From this many queries on a block is expanded to F32 once instead of in every strip. */
#define ATTN_EXPAND 9

static void attn_span(const struct attn_span *a)
{
    const size_t half = 32 * (size_t)a->head_dim;
    memset(a->acc, 0, (size_t)a->n_q * (size_t)a->head_dim * sizeof *a->acc);
    for (int i = 0; i < a->n_q; i++)
        a->m[i] = ATTN_EMPTY, a->l[i] = 0;
    for (int j = 0; j < a->n_blocks; j++) {
        const uint16_t *kv = (const uint16_t *)a->kv[j];
        struct attn_block b = {.k = kv, .v = kv + half, .is_f16 = 1, .pos0 = a->pos0 + 32 * j};
        if (a->n_q >= ATTN_EXPAND) {
            for (size_t i = 0; i < 2 * half; i += 16)
                v_store(a->scratch + i, v_from_f16(kv + i));
            b.k = a->scratch, b.v = a->scratch + half, b.is_f16 = 0;
        }
        for (int q = 0; q < a->n_q; q += 3) {
            int rows = a->n_q - q < 3 ? a->n_q - q : 3;
            if (a->pos[q + rows - 1] >= b.pos0) /* positions ascend: else all of them are masked */
                attn_queries(a, &b, q, rows);
        }
    }
}

static void attn_merge(float *m, float *l, float *acc, const float *later_ml, const float *acc2, int head_dim)
{
    float high = later_ml[0] > *m ? later_ml[0] : *m;
    float diff[16] = {*m - high, later_ml[0] - high}, c[16];
    v_store(c, v_exp(v_load(diff)));
    *m = high;
    *l = __builtin_fmaf(*l, c[0], later_ml[1] * c[1]);
    const v16f c0 = v_set1(c[0]), c1 = v_set1(c[1]);
    for (int i = 0; i < head_dim; i += 16)
        v_store(acc + i, v_fma(v_load(acc + i), c0, v_mul(v_load(acc2 + i), c1)));
}

static void attn_finish(float l, const float *acc, int head_dim, float *out)
{
    const v16f inverse = v_set1(1.0f / l);
    for (int i = 0; i < head_dim; i += 16)
        v_store(out + i, v_mul(v_load(acc + i), inverse));
}
