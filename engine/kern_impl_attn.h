/*
 * Attention over one span of F16 KV blocks, and what every KV type's has in common. Part of
 * kern_impl.h.
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

/*
 * y[r][0, 16 · wide) = y[r] · scale[r] (or 0) + Σ_k a[r][k] · b[k][…], one chain over k. b is F16
 * or F32, rows ≤ 3, wide = 1 or 2 vectors. When b is F16, a cache line is fetched with each k, of
 * the AHEAD places in turn.
 */
#define AHEAD 4
struct strip {
    const float *a;
    size_t lda;
    const void *b;
    const unsigned char *const *ahead; /* [AHEAD], plus ahead_at bytes */
    size_t ahead_at;
    size_t ldb;
    int n_k;
    const float *scale; /* [rows] */
    float *y;
    size_t ldy;
};

V_FN void strip_run(const struct strip *s, const int rows, const int wide, const int is_f16,
                    const int from_y)
{
    const float *a0 = s->a, *a1 = a0 + s->lda, *a2 = a1 + s->lda;
    float *y0 = s->y, *y1 = y0 + s->ldy, *y2 = y1 + s->ldy;
    v16f p0 = v_zero(), p1 = p0, p2 = p0, q0 = p0, q1 = p0, q2 = p0;
    if (from_y) {
        v16f c = v_set1(s->scale[0]);
        p0 = v_mul(v_load(y0), c), q0 = wide > 1 ? v_mul(v_load(y0 + 16), c) : q0;
        c = rows > 1 ? v_set1(s->scale[1]) : c;
        p1 = rows > 1 ? v_mul(v_load(y1), c) : p1;
        q1 = rows > 1 && wide > 1 ? v_mul(v_load(y1 + 16), c) : q1;
        c = rows > 2 ? v_set1(s->scale[2]) : c;
        p2 = rows > 2 ? v_mul(v_load(y2), c) : p2;
        q2 = rows > 2 && wide > 1 ? v_mul(v_load(y2 + 16), c) : q2;
    }
    for (int k = 0; k < s->n_k; k++) {
        v16f c0 = v_set1(a0[k]), c1 = rows > 1 ? v_set1(a1[k]) : c0,
             c2 = rows > 2 ? v_set1(a2[k]) : c0;
        if (is_f16)
            v_prefetch(s->ahead[k % AHEAD] + s->ahead_at + 64 * (k / AHEAD));
        const size_t i = (size_t)k * s->ldb;
        if (is_f16)
            v_fma3_f16((const uint16_t *)s->b + i, rows, c0, c1, c2, &p0, &p1, &p2);
        else
            v_fma3_f32((const float *)s->b + i, rows, c0, c1, c2, &p0, &p1, &p2);
        if (wide > 1 && is_f16)
            v_fma3_f16((const uint16_t *)s->b + i + 16, rows, c0, c1, c2, &q0, &q1, &q2);
        else if (wide > 1)
            v_fma3_f32((const float *)s->b + i + 16, rows, c0, c1, c2, &q0, &q1, &q2);
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
#define STRIP_CASES(s, is_f16, from_y, wide)                                                       \
    do {                                                                                           \
        if (rows == 3)                                                                             \
            strip_run(s, 3, wide, is_f16, from_y);                                                 \
        else if (rows == 2)                                                                        \
            strip_run(s, 2, wide, is_f16, from_y);                                                 \
        else                                                                                       \
            strip_run(s, 1, wide, is_f16, from_y);                                                 \
    } while (0)

V_OUT void strip_scores_f16(const struct strip *s, int rows)
{
    STRIP_CASES(s, 1, 0, 2);
}
V_OUT void strip_scores_f32(const struct strip *s, int rows)
{
    STRIP_CASES(s, 0, 0, 2);
}

/* The strips of 32 of a row of dim values, and the half strip at its end. */
#define STRIP_ALONG(is_f16, bytes)                                                                 \
    do {                                                                                           \
        struct strip t = *s;                                                                       \
        for (int i = 0; i + 32 <= dim; i += 32, t.y += 32) {                                       \
            STRIP_CASES(&t, is_f16, 1, 2);                                                         \
            t.b = (const char *)t.b + 32 * bytes;                                                  \
            t.ahead_at += 64 * 32 / AHEAD;                                                         \
        }                                                                                          \
        if (dim % 32)                                                                              \
            STRIP_CASES(&t, is_f16, 1, 1);                                                         \
    } while (0)

V_OUT void strip_values_f16(const struct strip *s, int dim, int rows)
{
    STRIP_ALONG(1, 2);
}
V_OUT void strip_values_f32(const struct strip *s, int dim, int rows)
{
    STRIP_ALONG(0, 4);
}

/* Caps 32 scores, masks what a query may not see of them, and returns the largest. */
V_FN float attn_top(const struct attn_span *a, int pos0, int query, float *s)
{
    const int n_seen = a->pos[query] - pos0 + 1,
              n_past = a->window ? n_seen - a->window : 0; /* first positions, before the window */
    if (a->cap > 0)
        soft_cap(s, 32, a->cap);
    for (int i = 0; i < n_past && i < 32; i++)
        s[i] = ATTN_MASKED;
    for (int i = n_seen > 0 ? n_seen : 0; i < 32; i++)
        s[i] = ATTN_MASKED;
    return v_hmax(v_max(v_load(s), v_load(s + 16)));
}

/* 32 scores → weights, in place; returns their sum. */
V_FN float attn_weights(float *s, float high)
{
    const v16f h = v_set1(high), x0 = v_exp(v_sub(v_load(s), h)),
               x1 = v_exp(v_sub(v_load(s + 16), h));
    v_store(s, x0);
    v_store(s + 16, x1);
    return v_sum(v_add(x0, x1));
}

/* ---- many queries: block by block ---- */

/* Queries of one go through a block: their scores fit the first cache beside the block. A multiple
 * of 16. */
#define ATTN_CHUNK 48

/*
 * Scores → weights of n queries, in place, their m and l, and in c the factors of their acc. In
 * steps, each over all queries, since the chain of one query alone (maximum, exp, sum) is long.
 */
V_OUT void attn_softmax(const struct attn_span *a, int pos0, int q0, int n, float *s, float *c)
{
    float high[ATTN_CHUNK];
    for (int i = 0; i < n; i++) {
        const float top = attn_top(a, pos0, q0 + i, s + 32 * i), m = a->m[q0 + i];
        high[i] = top > m ? top : m;
        c[i] = m - high[i];
    }
    for (int i = n; i % 16 != 0; i++)
        c[i] = 0;
    for (int i = 0; i < n; i += 16)
        v_store(c + i, v_exp(v_load(c + i)));
    for (int i = 0; i < n; i++) {
        const float sum = attn_weights(s + 32 * i, high[i]);
        a->m[q0 + i] = high[i];
        a->l[q0 + i] = __builtin_fmaf(a->l[q0 + i], c[i], sum);
    }
}

/* Queries q0 … end − 1, at most ATTN_CHUNK, against block j, expanded into the scratch. */
V_OUT void attn_queries(const struct attn_span *a, int j, int q0, int end)
{
    const size_t dim = (size_t)a->head_dim;
    float s[ATTN_CHUNK * 32], c[ATTN_CHUNK];
    struct strip k = {.lda = dim, .b = a->scratch, .ldb = 32, .n_k = a->head_dim, .ldy = 32};
    for (int q = q0; q < end; q += 3) {
        k.a = a->q + (size_t)q * dim;
        k.y = s + 32 * (q - q0);
        strip_scores_f32(&k, end - q < 3 ? end - q : 3);
    }
    attn_softmax(a, a->pos0 + 32 * j, q0, end - q0, s, c);
    struct strip v = {.lda = 32, .b = a->scratch + 32 * dim, .ldb = dim, .n_k = 32, .ldy = dim};
    for (int q = q0; q < end; q += 3) {
        v.a = s + 32 * (q - q0);
        v.scale = c + (q - q0);
        v.y = a->acc + (size_t)q * dim;
        strip_values_f32(&v, a->head_dim, end - q < 3 ? end - q : 3);
    }
}

/* A block of K and V → scratch: K [head_dim][32], V [32][head_dim]. */
V_FN void attn_expand(const struct attn_span *a, int j)
{
    const size_t half = 32 * (size_t)a->head_dim;
    const uint16_t *kv = (const uint16_t *)a->kv[j],
                   *next = (const uint16_t *)a->kv[j + 1 < a->n_blocks ? j + 1 : j];
    for (size_t i = 0; i < 2 * half; i += 32) {
        v_prefetch(next + i);
        v_store(a->scratch + i, v_from_f16(kv + i));
        v_store(a->scratch + i + 16, v_from_f16(kv + i + 16));
    }
}

/* The same of a block of K alone, which is turned over to be V. */
V_OUT void attn_expand_latent(const struct attn_span *a, int j)
{
    const size_t dim = (size_t)a->head_dim;
    const uint16_t *kv = (const uint16_t *)a->kv[j],
                   *next = (const uint16_t *)a->kv[j + 1 < a->n_blocks ? j + 1 : j];
    float *v = a->scratch + 32 * dim;
    for (size_t d = 0; d < dim; d++) {
        float *k = a->scratch + 32 * d;
        v_prefetch(next + 32 * d);
        v_store(k, v_from_f16(kv + 32 * d));
        v_store(k + 16, v_from_f16(kv + 32 * d + 16));
        for (size_t i = 0; i < 32; i++)
            v[i * dim + d] = k[i];
    }
}

/* The same of Q8_0: scale · int8 is exact in F32, so these are the values that the block says. */
V_OUT void attn_expand_latent_q8(const struct attn_span *a, int j)
{
    const size_t dim = (size_t)a->head_dim;
    const int8_t *k8 = (const int8_t *)a->kv[j];
    const uint16_t *scales = (const uint16_t *)(a->kv[j] + 32 * dim);
    float *v = a->scratch + 32 * dim, scale[32] = {0};
    for (size_t d = 0; d < dim; d++) {
        float *k = a->scratch + 32 * d;
        if (d % 32 == 0) {
            v_store(scale, v_from_f16(scales + d));
            v_store(scale + 16, v_from_f16(scales + d + 16));
        }
        for (size_t i = 0; i < 32; i++)
            k[i] = v[i * dim + d] = scale[i] * (float)k8[32 * (d - d % 4) + 4 * i + d % 4];
    }
}

static void attn_expand_f16(const struct attn_span *a, int j)
{
    if (a->is_latent)
        attn_expand_latent(a, j);
    else
        attn_expand(a, j);
}

/* Block after block, each expanded to F32 once instead of in every strip. */
V_OUT void attn_many(const struct attn_span *a, void (*expand)(const struct attn_span *a, int j))
{
    for (int i = 0; i < a->n_q; i++)
        a->m[i] = ATTN_EMPTY, a->l[i] = 0;
    for (int j = 0; j < a->n_blocks; j++) {
        expand(a, j);
        int first = 0; /* positions ascend: the first queries may see nothing of this block */
        while (first < a->n_q && a->pos[first] < a->pos0 + 32 * j)
            first++;
        for (int q = first; q < a->n_q; q += ATTN_CHUNK)
            attn_queries(a, j, q, a->n_q - q < ATTN_CHUNK ? a->n_q : q + ATTN_CHUNK);
    }
}

/* ---- few queries: all blocks of the span in each step ---- */

/* Below this many queries. */
#define ATTN_EXPAND 9
#define ATTN_BLOCKS 8
#define ATTN_SEEN (32 * ATTN_BLOCKS)

/* What the steps hand on: each query's scores, then weights, and the factors of its acc. */
struct attn_few {
    float s[ATTN_EXPAND - 1][ATTN_SEEN];
    float c[ATTN_BLOCKS][16];
};

/* The four blocks of n at kv that j is one of: with each of them a quarter of all four is fetched,
 * since the memory answers faster from several pages at once. */
V_FN void strip_ahead(const unsigned char *const *kv, int n, int j, const unsigned char **ret)
{
    for (int i = 0; i < AHEAD; i++) {
        const int block = j / AHEAD * AHEAD + i;
        ret[i] = kv[block < n ? block : n - 1];
    }
}

V_OUT void attn_few_scores(const struct attn_span *a, struct attn_few *w)
{
    const size_t dim = (size_t)a->head_dim;
    struct strip t = {.lda = dim, .ldb = 32, .n_k = a->head_dim, .ldy = ATTN_SEEN};
    const unsigned char *ahead[AHEAD];
    t.ahead = ahead;
    for (int j = 0; j < a->n_blocks; j++) {
        t.b = a->kv[j];
        /* With the keys the values are fetched: all scores come before the first is wanted. */
        strip_ahead(a->kv, a->n_blocks, j, ahead);
        t.ahead_at = 64 * dim + 64 * (dim / AHEAD) * (size_t)(j % AHEAD);
        for (int q = 0; q < a->n_q; q += 3) {
            t.a = a->q + (size_t)q * dim;
            t.y = w->s[q] + 32 * j;
            strip_scores_f16(&t, a->n_q - q < 3 ? a->n_q - q : 3);
        }
    }
}

V_OUT void attn_few_softmax(const struct attn_span *a, struct attn_few *w, int q)
{
    float high[ATTN_BLOCKS], c[16] = {0}, m = ATTN_EMPTY, l = 0;
    for (int j = 0; j < a->n_blocks; j++) {
        const float top = attn_top(a, a->pos0 + 32 * j, q, w->s[q] + 32 * j);
        high[j] = top > m ? top : m;
        c[j] = m - high[j];
        m = high[j];
    }
    v_store(c, v_exp(v_load(c)));
    for (int j = 0; j < a->n_blocks; j++) {
        w->c[j][q] = c[j];
        l = __builtin_fmaf(l, c[j], attn_weights(w->s[q] + 32 * j, high[j]));
    }
    a->m[q] = m;
    a->l[q] = l;
}

V_OUT void attn_few_values(const struct attn_span *a, const struct attn_few *w)
{
    const size_t dim = (size_t)a->head_dim;
    struct strip t = {.lda = ATTN_SEEN, .ldb = dim, .n_k = 32, .ldy = dim};
    const unsigned char *ahead[AHEAD];
    t.ahead = ahead;
    for (int j = 0; j < a->n_blocks; j++) {
        t.b = a->kv[j] + 64 * dim;
        /* And with the values the keys of the span that comes next. */
        if (a->n_next)
            strip_ahead(a->next, a->n_next, j, ahead);
        else
            strip_ahead(a->kv, a->n_blocks, j, ahead);
        t.ahead_at = 64 * (dim / AHEAD) * (size_t)(j % AHEAD);
        for (int q = 0; q < a->n_q; q += 3) {
            t.a = w->s[q] + 32 * j;
            t.scale = w->c[j] + q;
            t.y = a->acc + (size_t)q * dim;
            strip_values_f16(&t, a->head_dim, a->n_q - q < 3 ? a->n_q - q : 3);
        }
    }
}

static void attn_span_f16(const struct attn_span *a)
{
    struct attn_few w;
    memset(a->acc, 0, (size_t)a->n_q * (size_t)a->head_dim * sizeof *a->acc);
    if (a->n_q >= ATTN_EXPAND || a->is_latent) {
        attn_many(a, attn_expand_f16);
        return;
    }
    attn_few_scores(a, &w);
    for (int q = 0; q < a->n_q; q++)
        attn_few_softmax(a, &w, q);
    attn_few_values(a, &w);
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
