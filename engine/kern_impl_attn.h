/*
 * Attention over one span of KV blocks. Part of kern_impl.h.
 *
 *   scores  s[pos]  = Σ_dim q[dim] · K[dim][pos]         lanes are positions, one chain over dim
 *   m' = max(m, s), c = exp(m − m'), p = exp(s − m')     per block of 32
 *   l  = l · c + Σ p                                     sixteen partials and the tree
 *   acc[dim] = acc[dim] · c + Σ_pos p[pos] · V[pos][dim] lanes are dim, one chain over positions
 *
 * A masked position has p = 0 exactly and a wholly masked block c = 1, so both leave the state as
 * it was. Both products have one shape, rows of coefficients times [k][32] values, and share one
 * tile of 3 rows × 32 lanes: 12 accumulators in 16 registers.
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

V_FN void strip_run(const struct strip *s, const int rows, const int wide, const int is_f16,
                    const int from_y)
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
        v16f c0 = v_set1(a0[k]), c1 = rows > 1 ? v_set1(a1[k]) : c0,
             c2 = rows > 2 ? v_set1(a2[k]) : c0;
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
#define STRIP_CASES(is_f16, from_y, wide)                                                          \
    do {                                                                                           \
        if (rows == 3)                                                                             \
            strip_run(s, 3, wide, is_f16, from_y);                                                 \
        else if (rows == 2)                                                                        \
            strip_run(s, 2, wide, is_f16, from_y);                                                 \
        else                                                                                       \
            strip_run(s, 1, wide, is_f16, from_y);                                                 \
    } while (0)

static void strip_scores_f16(const struct strip *s, int rows)
{
    STRIP_CASES(1, 0, 2);
}
static void strip_scores_f32(const struct strip *s, int rows)
{
    STRIP_CASES(0, 0, 2);
}
static void strip_values_f16(const struct strip *s, int rows)
{
    STRIP_CASES(1, 1, 2);
}
static void strip_values_f32(const struct strip *s, int rows)
{
    STRIP_CASES(0, 1, 2);
}
static void strip_half_f16(const struct strip *s, int rows)
{
    STRIP_CASES(1, 1, 1);
}
static void strip_half_f32(const struct strip *s, int rows)
{
    STRIP_CASES(0, 1, 1);
}

/* One block as the strips read it: F16 where it lies, or F32 once expanded for many queries. */
struct attn_block {
    const void *k, *v;
    int is_f16;
    int pos0;
};

/*
 * Scores → weights of one query, in place, and its l; c becomes the factor for its acc. Many
 * queries one after the other: their chains don't wait for each other.
 */
V_FN float attn_softmax(const struct attn_span *a, int pos0, int query, float *s)
{
    const int n_seen = a->pos[query] - pos0 + 1;
    for (int i = n_seen > 0 ? n_seen : 0; i < 32; i++)
        s[i] = ATTN_MASKED;
    v16f x0 = v_load(s), x1 = v_load(s + 16);
    const float m = a->m[query], top = v_hmax(v_max(x0, x1)), high = top > m ? top : m;
    a->m[query] = high;
    const v16f h = v_set1(high);
    x0 = v_exp(v_sub(x0, h));
    x1 = v_exp(v_sub(x1, h));
    v_store(s, x0);
    v_store(s + 16, x1);
    const float sum = v_sum(v_add(x0, x1));
    if (high > m) { /* else the factor is exp(0) = 1, and everything stays as it is */
        const float c = v_first(v_exp(v_set1(m - high)));
        a->l[query] = __builtin_fmaf(a->l[query], c, sum);
        return c;
    }
    a->l[query] += sum;
    return 1;
}

/* Queries of one go through a block: their scores fit the first cache beside the block. */
#define ATTN_CHUNK 48

/* acc of up to three queries += p · V, by strips of 32 dimensions. */
V_FN void attn_values(const struct attn_span *a, const struct attn_block *b, const float *s, int q0,
                      int rows)
{
    const size_t dim = (size_t)a->head_dim, bytes = b->is_f16 ? 2 : 4;
    struct strip t = {.a = s, .lda = 32, .ldb = dim, .n_k = 32, .ldy = dim};
    for (size_t i = 0; i < dim; i += 32) {
        t.b = (const char *)b->v + i * bytes;
        t.y = a->acc + (size_t)q0 * dim + i;
        if (i + 32 <= dim)
            (b->is_f16 ? strip_values_f16 : strip_values_f32)(&t, rows);
        else
            (b->is_f16 ? strip_half_f16 : strip_half_f32)(&t, rows);
    }
}

/* Queries q0 … end − 1, at most ATTN_CHUNK, against one block. */
static void attn_queries(const struct attn_span *a, const struct attn_block *b, int q0, int end)
{
    const size_t dim = (size_t)a->head_dim;
    float s[ATTN_CHUNK * 32];
    struct strip t = {.lda = dim, .b = b->k, .ldb = 32, .n_k = a->head_dim, .ldy = 32};
    for (int q = q0; q < end; q += 3) {
        t.a = a->q + (size_t)q * dim;
        t.y = s + 32 * (q - q0);
        (b->is_f16 ? strip_scores_f16 : strip_scores_f32)(&t, end - q < 3 ? end - q : 3);
    }
    for (int q = q0; q < end; q++) {
        const float c = attn_softmax(a, b->pos0, q, s + 32 * (q - q0));
        float *acc = a->acc + (size_t)q * dim;
        for (size_t i = 0; c != 1 && i < dim; i += 16)
            v_store(acc + i, v_mul(v_load(acc + i), v_set1(c)));
    }
    for (int q = q0; q < end; q += 3)
        attn_values(a, b, s + 32 * (q - q0), q, end - q < 3 ? end - q : 3);
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
        int first = 0; /* positions ascend: the first queries may see nothing of this block */
        while (first < a->n_q && a->pos[first] < b.pos0)
            first++;
        for (int q = first; q < a->n_q; q += ATTN_CHUNK)
            attn_queries(a, &b, q, a->n_q - q < ATTN_CHUNK ? a->n_q : q + ATTN_CHUNK);
    }
}

static void attn_merge(float *m, float *l, float *acc, const float *later_ml, const float *acc2,
                       int head_dim)
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
