/*
 * Attention over one span of Q8_0 KV blocks (layout: kv.h). Part of kern_impl.h.
 *
 *   s[pos]  = Σ_b kd[b][pos] · qd[b] · (Σ_32 dims q16 · k8)     a chain over the b of 32 dims
 *   t  = max of s, m' = max(m, t), c = exp(m − m'), e = exp(s − t), f = exp(t − m')
 *   l  = l · c + f · Σ e
 *   w[b][pos] = rint(e[pos] · (vd[b][pos] · 32767 / vmax[b]))   16 bits; vmax: of what is seen
 *   acc[dim] = acc[dim] · c + (f · vmax[b] / 32767) · (Σ_32 pos w[b] · v8)
 *
 * So both products are exact sums of integers, at twice the pace of floats; one more exponential
 * a query and block is what it costs that a block's weights are relative to its own largest. They
 * have 15 bits, of which vmax may take some where V's scales differ: rounding V to 8 bits costs
 * more. A query's vmax is over what it sees, or its bits would depend on who has written behind it.
 *
 * A masked position has e = 0 exactly and a wholly masked block f = 0 and c = 1.
 */

_Static_assert(32L * 127 * 32767 <= INT32_MAX, "a block's integer sums fit 32 bits");

/* Where the parts of a head's block are. */
struct q8_head {
    const int8_t *k, *v;
    const uint16_t *kd, *vd; /* [scales][32] F16 */
};

V_FN struct q8_head q8_head(const unsigned char *kv, int head_dim)
{
    const size_t values = 32 * (size_t)head_dim, scales = 32 * (size_t)((head_dim + 31) / 32);
    struct q8_head h = {.k = (const int8_t *)kv};
    h.kd = (const uint16_t *)(kv + values);
    kv += values + 2 * scales;
    h.v = (const int8_t *)kv;
    h.vd = (const uint16_t *)(kv + values);
    return h;
}

/*
 * Up to 3 rows against one block. Scores: x the queries, y [rows][32]. Values: x the weights
 * [rows][32], y 16 dims of acc.
 */
struct q8_tile {
    const int8_t *b, *ahead; /* K or V as stored; lines of the next one are fetched meanwhile */
    const int16_t *open;     /* or opened into pairs */
    const void *kd;          /* K's scales: F16 as stored, F32 when opened */
    const int16_t *x;
    size_t ldx;
    int head_dim;
    const float *qd;           /* [rows, scales]: the queries' */
    const float *scale, *c;    /* values: factors of the sums and of y, [rows] */
    float *y;
    size_t ldy;
};

V_FN void q8_scores(const struct q8_tile *t, const int rows, const int is_open)
{
    const int n = (t->head_dim + 31) / 32;
    for (int h = 0; h < 2; h++) {
        v16f f0 = v_zero(), f1 = f0, f2 = f0;
        for (int b = 0; b < n; b++) {
            const int n4 = t->head_dim - 32 * b < 32 ? 4 : 8;
            const int16_t *x = t->x + 32 * b;
            v16i s0 = vi_set1(0), s1 = s0, s2 = s0;
            v16f d;
            if (is_open) {
                v_dot_s16(t->open + 1024 * b + 32 * h, 64, x, t->ldx, 2 * n4, rows, &s0, &s1, &s2);
                d = v_load((const float *)t->kd + 32 * b + 16 * h);
            } else {
                const int at = 1024 * b + 64 * h;
                v_dot_k(t->b + at, t->ahead + at, x, t->ldx, n4, rows, &s0, &s1, &s2);
                d = v_from_f16((const uint16_t *)t->kd + 32 * b + 16 * h);
            }
            f0 = v_fma(v_from_i(s0), v_mul(d, v_set1(t->qd[b])), f0);
            if (rows > 1)
                f1 = v_fma(v_from_i(s1), v_mul(d, v_set1(t->qd[n + b])), f1);
            if (rows > 2)
                f2 = v_fma(v_from_i(s2), v_mul(d, v_set1(t->qd[2 * n + b])), f2);
        }
        v_store(t->y + 16 * h, f0);
        if (rows > 1)
            v_store(t->y + t->ldy + 16 * h, f1);
        if (rows > 2)
            v_store(t->y + 2 * t->ldy + 16 * h, f2);
    }
}

V_FN void q8_value(const struct q8_tile *t, v16i s, const int r)
{
    float *y = t->y + (size_t)r * t->ldy;
    v_store(y, v_fma(v_from_i(s), v_set1(t->scale[r]), v_mul(v_load(y), v_set1(t->c[r]))));
}

V_FN void q8_values(const struct q8_tile *t, const int rows, const int is_open)
{
    const size_t dim = (size_t)t->head_dim;
    v16i s0 = vi_set1(0), s1 = s0, s2 = s0;
    if (is_open)
        v_dot_s16(t->open, 2 * dim, t->x, 32, 16, rows, &s0, &s1, &s2);
    else
        v_dot_v(t->b, t->ahead, dim, t->x, 32, rows, &s0, &s1, &s2);
    q8_value(t, s0, 0);
    if (rows > 1)
        q8_value(t, s1, 1);
    if (rows > 2)
        q8_value(t, s2, 2);
}

/* Picks the inlined variant. */
#define Q8_CASES(FN, t, rows, is_open) \
    do {                               \
        if ((rows) >= 3)               \
            FN(t, 3, is_open);         \
        else if ((rows) == 2)          \
            FN(t, 2, is_open);         \
        else                           \
            FN(t, 1, is_open);         \
    } while (0)

V_OUT void q8_scores_open(const struct q8_tile *t, int rows) { Q8_CASES(q8_scores, t, rows, 1); }
V_OUT void q8_scores_stored(const struct q8_tile *t, int rows) { Q8_CASES(q8_scores, t, rows, 0); }
V_OUT void q8_values_open(const struct q8_tile *t, int rows) { Q8_CASES(q8_values, t, rows, 1); }
V_OUT void q8_values_stored(const struct q8_tile *t, int rows) { Q8_CASES(q8_values, t, rows, 0); }

/* V's 32 scales → factors of a block's weights, of which the first n_seen positions count; returns
 * the factor of the sums: vmax / 32767. */
V_FN float q8_factors(const float *vd, int n_seen, float *t)
{
    v16f x0 = v_load(vd), x1 = v_load(vd + 16);
    if (n_seen < 32) {
        float seen[32] = {0};
        memcpy(seen, vd, (n_seen > 0 ? (size_t)n_seen : 0) * sizeof *seen);
        x0 = v_load(seen), x1 = v_load(seen + 16);
    }
    const float top = v_hmax(v_max(x0, x1));
    const v16f by = v_set1(top > 0 ? 32767.0f / top : 0);
    v_store(t, v_mul(x0, by));
    v_store(t + 16, v_mul(x1, by));
    return top / 32767.0f;
}

V_FN void q8_weights(const float *e, const float *t, int16_t *w)
{
    v_to_s16(w, v_mul(v_load(e), v_load(t)));
    v_to_s16(w + 16, v_mul(v_load(e + 16), v_load(t + 16)));
}

static void quantize_q(const float *q, int n_q, int head_dim, int16_t *q16, float *qd)
{
    for (int i = 0; i < n_q; i++, q += head_dim)
        for (int at = 0; at < head_dim; at += 32, q16 += 32, qd++) {
            const v16f x0 = v_load(q + at),
                       x1 = head_dim - at < 32 ? v_zero() : v_load(q + at + 16);
            const float top = v_hmax(v_max(v_abs(x0), v_abs(x1)));
            /* So small that 32767 / top would overflow: no score has any of it. */
            const v16f by = v_set1(top < 1e-30f ? 0 : 32767.0f / top);
            int16_t w[32];
            v_to_s16(w, v_mul(x0, by));
            v_to_s16(w + 16, v_mul(x1, by));
            for (int k = 0; k < 32; k += 4) { /* pairs as v_open_k makes them */
                q16[k] = w[k], q16[k + 1] = w[k + 2];
                q16[k + 2] = w[k + 1], q16[k + 3] = w[k + 3];
            }
            *qd = top < 1e-30f ? 0 : top / 32767.0f;
        }
}

/* ---- many queries: block by block, each opened once ---- */

struct q8_block {
    int16_t *k, *v;        /* [dim / 2][32 pos][2], [16][dim][2] */
    float kd[8][32];
    float vd[8][32], vt[8][32], vs[8]; /* V's scales; factors when all positions are seen */
};

V_OUT void q8_open_block(struct q8_block *b, const unsigned char *kv, const unsigned char *next,
                         int head_dim)
{
    const size_t dim = (size_t)head_dim;
    const struct q8_head h = q8_head(kv, head_dim);
    for (size_t d = 0; d < dim; d += 4) {
        v_prefetch(next + 64 * d / 2), v_prefetch(next + 64 * d / 2 + 64);
        v_open_k(h.k + 32 * d, b->k + 32 * d, 64);
        v_open_k(h.k + 32 * d + 64, b->k + 32 * d + 32, 64);
    }
    next += (const unsigned char *)h.v - kv;
    for (size_t i = 0; i < 32; i += 2)
        for (size_t d = 0; d < dim; d += 16) {
            v_prefetch(next + i * dim + 2 * d);
            v_open_v(h.v + i * dim + d, h.v + (i + 1) * dim + d, b->v + i * dim + 2 * d);
        }
    for (int i = 0; i < (head_dim + 31) / 32; i++) {
        for (int k = 0; k < 32; k += 16) {
            v_store(b->kd[i] + k, v_from_f16(h.kd + 32 * i + k));
            v_store(b->vd[i] + k, v_from_f16(h.vd + 32 * i + k));
        }
        b->vs[i] = q8_factors(b->vd[i], 32, b->vt[i]);
    }
}

/* A chunk of queries' scores and what becomes of them. */
struct q8_chunk {
    int pos0, q0, n;
    float s[ATTN_CHUNK * 32];
    float c[ATTN_CHUNK], f[ATTN_CHUNK], top[ATTN_CHUNK], scale[ATTN_CHUNK];
    int16_t w[ATTN_CHUNK * 32];
};

/* Scores → e, in place; m and l, and c and f. As attn_softmax in steps over all queries. */
V_OUT void q8_softmax(const struct attn_span *a, struct q8_chunk *w)
{
    float *m = a->m + w->q0, *l = a->l + w->q0;
    float high[ATTN_CHUNK];
    for (int i = 0; i < w->n; i++) {
        w->top[i] = attn_top(a, w->pos0, w->q0 + i, w->s + 32 * i);
        high[i] = w->top[i] > m[i] ? w->top[i] : m[i];
        w->c[i] = m[i] - high[i];
        w->f[i] = w->top[i] - high[i];
    }
    for (int i = w->n; i % 16 != 0; i++)
        w->c[i] = w->f[i] = 0;
    for (int i = 0; i < w->n; i += 16) {
        v_store(w->c + i, v_exp(v_load(w->c + i)));
        v_store(w->f + i, v_exp(v_load(w->f + i)));
    }
    for (int i = 0; i < w->n; i++) {
        const float sum = attn_weights(w->s + 32 * i, w->top[i]);
        m[i] = high[i];
        l[i] = __builtin_fmaf(l[i], w->c[i], sum * w->f[i]);
    }
}

/* A chunk's weights for the i-th 32 dims. */
V_OUT void q8_chunk_weights(const struct attn_span *a, const struct q8_block *b, int i,
                            struct q8_chunk *w)
{
    for (int q = 0; q < w->n; q++) {
        const int n_seen = a->pos[w->q0 + q] - w->pos0 + 1;
        float own[32], by = b->vs[i];
        if (n_seen < 32)
            by = q8_factors(b->vd[i], n_seen, own);
        q8_weights(w->s + 32 * q, n_seen < 32 ? own : b->vt[i], w->w + 32 * q);
        w->scale[q] = by * w->f[q];
    }
}

V_OUT void q8_queries(const struct attn_span *a, const struct q8_block *b, struct q8_chunk *w)
{
    const int n = (a->head_dim + 31) / 32;
    const size_t dim = (size_t)a->head_dim;
    struct q8_tile t = {.open = b->k,
                        .kd = b->kd,
                        .ldx = 32 * (size_t)n,
                        .head_dim = a->head_dim,
                        .y = w->s,
                        .ldy = 32};
    for (int q = 0; q < w->n; q += 3, t.y += 3 * 32) {
        t.x = a->q16 + (size_t)(w->q0 + q) * t.ldx;
        t.qd = a->qd + (w->q0 + q) * n;
        q8_scores_open(&t, w->n - q);
    }
    q8_softmax(a, w);
    t.ldy = dim;
    for (int d = 0; d < a->head_dim; d += 16) {
        if (d % 32 == 0)
            q8_chunk_weights(a, b, d / 32, w);
        t.open = b->v + 2 * d;
        for (int q = 0; q < w->n; q += 3) {
            t.x = w->w + 32 * q;
            t.scale = w->scale + q, t.c = w->c + q;
            t.y = a->acc + (size_t)(w->q0 + q) * dim + d;
            q8_values_open(&t, w->n - q);
        }
    }
}

V_OUT void q8_many(const struct attn_span *a)
{
    int16_t *const pairs = (int16_t *)a->scratch;
    struct q8_block b = {.k = pairs, .v = pairs + 32 * a->head_dim};
    struct q8_chunk w;
    for (int i = 0; i < a->n_q; i++)
        a->m[i] = ATTN_EMPTY, a->l[i] = 0;
    for (int j = 0; j < a->n_blocks; j++) {
        q8_open_block(&b, a->kv[j], a->kv[j + 1 < a->n_blocks ? j + 1 : j], a->head_dim);
        w.pos0 = a->pos0 + 32 * j;
        int first = 0; /* positions ascend: the first queries may see nothing of this block */
        while (first < a->n_q && a->pos[first] < w.pos0)
            first++;
        for (w.q0 = first; w.q0 < a->n_q; w.q0 += ATTN_CHUNK) {
            w.n = a->n_q - w.q0 < ATTN_CHUNK ? a->n_q - w.q0 : ATTN_CHUNK;
            q8_queries(a, &b, &w);
        }
    }
}

/* ---- few queries: all blocks of the span in each step, as they are stored ---- */

struct q8_few {
    float s[ATTN_EXPAND - 1][ATTN_SEEN];
    float c[ATTN_BLOCKS][16], f[ATTN_BLOCKS][16];
    int16_t w[ATTN_EXPAND - 1][32];
};

V_OUT void q8_few_scores(const struct attn_span *a, struct q8_few *w)
{
    const int n = (a->head_dim + 31) / 32;
    struct q8_tile t = {.ldx = 32 * (size_t)n, .head_dim = a->head_dim, .ldy = ATTN_SEEN};
    for (int j = 0; j < a->n_blocks; j++) {
        const struct q8_head h = q8_head(a->kv[j], a->head_dim);
        t.b = h.k, t.kd = h.kd;
        /* Behind the last K the first V is wanted. */
        t.ahead = j + 1 < a->n_blocks ? q8_head(a->kv[j + 1], a->head_dim).k
                                      : q8_head(a->kv[0], a->head_dim).v;
        for (int q = 0; q < a->n_q; q += 3) {
            t.x = a->q16 + (size_t)q * t.ldx;
            t.qd = a->qd + q * n;
            t.y = w->s[q] + 32 * j;
            q8_scores_stored(&t, a->n_q - q);
        }
    }
}

V_OUT void q8_few_softmax(const struct attn_span *a, struct q8_few *w, int q)
{
    float top[ATTN_BLOCKS], x[2 * ATTN_BLOCKS] = {0}, m = ATTN_EMPTY, l = 0;
    for (int j = 0; j < a->n_blocks; j++) {
        top[j] = attn_top(a, a->pos0 + 32 * j, q, w->s[q] + 32 * j);
        const float high = top[j] > m ? top[j] : m;
        x[j] = m - high;
        x[ATTN_BLOCKS + j] = top[j] - high;
        m = high;
    }
    v_store(x, v_exp(v_load(x)));
    for (int j = 0; j < a->n_blocks; j++) {
        const float sum = attn_weights(w->s[q] + 32 * j, top[j]);
        w->c[j][q] = x[j];
        w->f[j][q] = x[ATTN_BLOCKS + j];
        l = __builtin_fmaf(l, x[j], sum * x[ATTN_BLOCKS + j]);
    }
    a->m[q] = m;
    a->l[q] = l;
}

/* Weights of block j for 32 dims, whose V scales are vd; scale: the factors of the sums. */
V_OUT void q8_few_weights(const struct attn_span *a, struct q8_few *w, int j, const uint16_t *vd,
                          float *scale)
{
    float d[32], all[32], own[32];
    v_store(d, v_from_f16(vd));
    v_store(d + 16, v_from_f16(vd + 16));
    const float by = q8_factors(d, 32, all);
    for (int q = 0; q < a->n_q; q++) {
        const int n_seen = a->pos[q] - a->pos0 - 32 * j + 1;
        scale[q] = (n_seen < 32 ? q8_factors(d, n_seen, own) : by) * w->f[j][q];
        q8_weights(w->s[q] + 32 * j, n_seen < 32 ? own : all, w->w[q]);
    }
}

V_OUT void q8_few_values(const struct attn_span *a, struct q8_few *w)
{
    const size_t dim = (size_t)a->head_dim;
    struct q8_tile t = {.ldx = 32, .head_dim = a->head_dim, .ldy = dim};
    float scale[ATTN_EXPAND - 1];
    for (int j = 0; j < a->n_blocks; j++) {
        const struct q8_head h = q8_head(a->kv[j], a->head_dim),
                             next = q8_head(a->kv[j + 1 < a->n_blocks ? j + 1 : j], a->head_dim);
        for (int d = 0; d < a->head_dim; d += 16) {
            if (d % 32 == 0)
                q8_few_weights(a, w, j, h.vd + d, scale);
            t.b = h.v + d, t.ahead = next.v + d;
            for (int q = 0; q < a->n_q; q += 3) {
                t.x = w->w[q];
                t.scale = scale + q, t.c = w->c[j] + q;
                t.y = a->acc + (size_t)q * dim + d;
                q8_values_stored(&t, a->n_q - q);
            }
        }
    }
}

static void attn_span_q8(const struct attn_span *a)
{
    struct q8_few w;
    memset(a->acc, 0, (size_t)a->n_q * (size_t)a->head_dim * sizeof *a->acc);
    if (a->is_latent) { /* one row for all heads: there are many queries, in floats */
        attn_many(a, attn_expand_latent_q8);
        return;
    }
    if (a->n_q >= ATTN_EXPAND) {
        q8_many(a);
        return;
    }
    q8_few_scores(a, &w);
    for (int q = 0; q < a->n_q; q++)
        q8_few_softmax(a, &w, q);
    q8_few_values(a, &w);
}
