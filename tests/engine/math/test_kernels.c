/* Every kernel of every instruction set against plain C: equal bits at odd sizes, for ordinary and
 * extreme numbers; and plain C against the definitions. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <math.h>

#include <cmocka.h>

#include "engine/f16.h"
#include "engine/kernels.h"
#include "tests/engine/math/tiny.h"

#define SEED 20240607 /* of all that is random here; a failure says which case */

extern const struct kernels kernels_avx512_model;
static const struct kernels *tables[5];
static int n_tables;

static const struct kernels *const c = &kernels_c;

/* Floats of all kinds: of order 1, large, tiny, subnormal, zeros of both signs. */
static float any_float(struct dice *d)
{
    const float x = dice_unit(d);
    switch (dice_int(d, 12)) {
    case 0:
        return x * 1e-38f * 1e-3f;
    case 1:
        return x * 1e-30f;
    case 2:
        return x * 1e6f;
    case 3:
        return x > 0 ? 0.0f : -0.0f;
    default:
        return x * 4;
    }
}

static void fill(struct dice *d, float *x, size_t n)
{
    for (size_t i = 0; i < n; i++)
        x[i] = any_float(d);
}

static void same(const char *what, const struct kernels *k, const void *a, const void *b, size_t n)
{
    if (memcmp(a, b, n) != 0)
        fail_msg("%s (%s%s) differs from C's", what, k->name,
                 k == &kernels_avx512_model ? ", model" : "");
}

/* ---- element-wise ---- */

static void elements_equal_c(void **state)
{
    (void)state;
    struct dice d = {SEED};
    float x[80], w[80], a[80], b[80];
    uint16_t ha[80], hb[80];
    for (int t = 0; t < n_tables; t++) {
        const struct kernels *k = tables[t];
        for (int rep = 0; rep < 2000; rep++) {
            const int n = 1 + dice_int(&d, 80), n16 = n & ~15, n2 = n & ~1;
            fill(&d, x, 80);
            fill(&d, w, 80);
            memset(a, 0, sizeof a), memset(b, 0, sizeof b);
            k->rms_norm(x, w, n, 1e-5f, a), c->rms_norm(x, w, n, 1e-5f, b);
            same("rms_norm", k, a, b, sizeof a);
            k->silu_mul(x, w, n16, a), c->silu_mul(x, w, n16, b);
            same("silu_mul", k, a, b, sizeof a);
            k->rope(a, w, n2, 0.125f), c->rope(b, w, n2, 0.125f);
            same("rope", k, a, b, sizeof a);
            k->add(a, x, n), c->add(b, x, n);
            same("add", k, a, b, sizeof a);
            memset(ha, 0, sizeof ha), memset(hb, 0, sizeof hb);
            k->to_f16(x, n16, ha), c->to_f16(x, n16, hb);
            same("to_f16", k, ha, hb, sizeof ha);
        }
    }
}

static void exp_equals_c_and_is_near_exp(void **state)
{
    (void)state;
    float x[16], a[16], b[16];
    double worst = 0;
    for (uint32_t bits = 0; bits < 0xff800000; bits += 16 * 977) {
        for (uint32_t i = 0; i < 16; i++) {
            x[i] = f32_of_bits(bits + 977 * i);
            if (isnan(x[i]))
                x[i] = -87;
        }
        c->exp(x, 16, b);
        for (int t = 0; t < n_tables; t++) {
            tables[t]->exp(x, 16, a);
            same("exp", tables[t], a, b, sizeof a);
        }
        for (int i = 0; i < 16; i++) {
            if (x[i] < -87)
                assert_true(b[i] == 0 && !signbit(b[i]));
            else if (x[i] < 88)
                worst = fmax(worst, fabs((double)b[i] / exp((double)x[i]) - 1));
        }
    }
    print_message("exp: largest relative error %.2e\n", worst);
    assert_true(worst < 2.5e-7);
}

static void exp_is_exact_where_masking_needs_it(void **state)
{
    (void)state;
    const float x[16] = {0,      -0.0f,   -87,      nextafterf(-87, -88),
                         -88,    -1e30f,  -3e38f,   -INFINITY,
                         88,     1000,    INFINITY, NAN,
                         1e-45f, -1e-45f, -86.99f,  0.5f};
    float y[16];
    for (int t = 0; t < n_tables; t++) {
        tables[t]->exp(x, 16, y);
        assert_true(y[0] == 1 && y[1] == 1 && y[12] == 1 && y[13] == 1);
        assert_true(y[2] > 0);
        for (int i = 3; i < 8; i++)
            assert_true(y[i] == 0);
        assert_true(y[8] == y[9] && y[9] == y[10]);
        assert_true(isnan(y[11]));
    }
}

static void f16_rounds_to_nearest_even_and_back(void **state)
{
    (void)state;
    struct dice d = {SEED};
    for (uint32_t h = 0; h < 0x10000; h++) {
        const float f = f16_to_f32((uint16_t)h);
        if (!isnan(f))
            assert_int_equal(f32_to_f16(f), h);
    }
    for (int i = 0; i < 200000; i++) {
        const float f = f32_of_bits((uint32_t)dice_u64(&d) & 0xc7ffffff),
                    r = f16_to_f32(f32_to_f16(f));
        if (isinf(r))
            continue;
        const float up = f16_to_f32((uint16_t)(f32_to_f16(fabsf(f)) + 1)), gap = up - fabsf(r);
        assert_true(fabsf(f - r) <= gap / 2 || isinf(up));
    }
}

static void quantize_equals_c_and_the_definition(void **state)
{
    (void)state;
    struct dice d = {SEED};
    float x[96];
    int8_t qa[96], qb[96];
    struct act_block ba[3], bb[3];
    for (int rep = 0; rep < 3000; rep++) {
        fill(&d, x, 96);
        if (rep % 5 == 0) /* ties: multiples of half a step */
            for (int i = 0; i < 96; i++)
                x[i] = i % 32 == 0 ? 127 : (float)(dice_int(&d, 509) - 254) / 2;
        if (rep % 97 == 0)
            memset(x, 0, sizeof x);
        c->quantize(x, 3, qb, bb);
        for (int t = 0; t < n_tables; t++) {
            tables[t]->quantize(x, 3, qa, ba);
            same("quantize", tables[t], qa, qb, sizeof qa);
            same("quantize", tables[t], ba, bb, sizeof ba);
        }
        for (int i = 0; i < 96; i += 32) {
            float amax = 0;
            int sum = 0, first = 0;
            for (int k = i; k < i + 32; k++)
                amax = fmaxf(amax, fabsf(x[k]));
            for (int k = i; k < i + 32; k++) {
                assert_int_equal(qb[k], amax < 1e-30f ? 0 : lrintf(x[k] * (127 / amax)));
                assert_in_range(qb[k] + 127, 0, 254);
                sum += qb[k];
                first += k - i < 16 ? qb[k] : 0;
            }
            assert_int_equal(bb[i / 32].sum, sum);
            assert_int_equal(bb[i / 32].first, first);
            assert_true(bb[i / 32].d == (amax < 1e-30f ? 0 : amax / 127));
        }
    }
}

static void queries_equal_c_and_the_definition(void **state)
{
    (void)state;
    struct dice d = {SEED};
    float x[3 * 80], da[9], db[9];
    int16_t qa[9 * 32], qb[9 * 32];
    for (int rep = 0; rep < 2000; rep++) {
        const int dim = 16 * (1 + dice_int(&d, 5)), n = kv_n_scales(dim);
        fill(&d, x, 3 * 80);
        if (rep % 97 == 0)
            memset(x, 0, sizeof x);
        c->quantize_q(x, 3, dim, qb, db);
        for (int t = 0; t < n_tables; t++) {
            tables[t]->quantize_q(x, 3, dim, qa, da);
            same("quantize_q", tables[t], qa, qb, (size_t)(3 * n * 32) * sizeof *qa);
            same("quantize_q's scales", tables[t], da, db, (size_t)(3 * n) * sizeof *da);
        }
        for (int i = 0; i < 3 * n * 32; i++) {
            static const int order[4] = {0, 2, 1, 3};
            const int block = i / 32, k = block % n * 32 + i % 32 / 4 * 4 + order[i % 4];
            const float want = k < dim ? x[block / n * dim + k] : 0;
            assert_in_range(qb[i] + 32767, 0, 65534);
            assert_true(fabsf(want - db[block] * (float)qb[i]) <= 0.51f * db[block] + 1e-30f);
        }
    }
}

/* ---- products ---- */

struct product_case {
    struct mat w;
    struct act x;
    int rows;
};

static void product_open(struct product_case *p, struct dice *d, int layout, int n_out, int n_in,
                         int rows)
{
    const size_t n_blocks = (size_t)n_in / 32, n = (size_t)rows * (size_t)n_in;
    p->rows = rows;
    assert_int_equal(mat_random(layout, n_out, n_in, dice_u64(d), &p->w), 0);
    p->x = (struct act){.n_in = n_in,
                        .n_blocks = (int)n_blocks,
                        .ldf = (size_t)n_in,
                        .q = malloc(n),
                        .b = malloc((size_t)rows * n_blocks * sizeof(struct act_block)),
                        .f = malloc(n * sizeof(float))};
    assert_true(p->x.q && p->x.b && p->x.f);
    for (size_t i = 0; i < n; i++)
        p->x.f[i] = dice_int(d, 50) ? dice_unit(d) : any_float(d);
    c->quantize(p->x.f, rows * (int)n_blocks, p->x.q, p->x.b);
}

static void product_close(struct product_case *p)
{
    mat_done(&p->w);
    free(p->x.q);
    free(p->x.b);
    free(p->x.f);
}

/* All rows, or rows [row0, row0 + n), into y [n, 16 · groups]. */
static void product_run(const struct product_case *p, const struct kernels *k, int row0, int n,
                        float *y)
{
    const int groups = mat_n_groups(&p->w);
    k->gemm[p->w.layout](&(struct gemm){.w = &p->w,
                                        .n_groups = groups,
                                        .x = &p->x,
                                        .row0 = row0,
                                        .n_rows = n,
                                        .y = y,
                                        .ldy = 16 * (size_t)groups});
}

static void products_equal_c_for_any_number_of_rows(void **state)
{
    (void)state;
    static const int row_counts[] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 31, 32, 33, 48, 49, 50};
    struct dice d = {SEED};
    for (int layout = 0; layout < MAT_N_LAYOUTS; layout++)
        for (size_t i = 0; i < sizeof row_counts / sizeof *row_counts; i++) {
            struct product_case p;
            const int rows = row_counts[i], n_out = 1 + dice_int(&d, 70),
                      n_in = 256 * (1 + dice_int(&d, 2));
            product_open(&p, &d, layout, n_out, n_in, rows);
            const size_t width = 16 * (size_t)mat_n_groups(&p.w),
                         bytes = (size_t)rows * width * sizeof(float);
            float *want = malloc(bytes), *got = malloc(bytes);
            assert_true(want && got);
            product_run(&p, c, 0, rows, want);
            for (int t = 0; t < n_tables; t++) {
                product_run(&p, tables[t], 0, rows, got);
                same("product", tables[t], got, want, bytes);
                for (int r = 0; r < rows; r++)
                    product_run(&p, tables[t], r, 1, got + (size_t)r * width);
                same("product row by row", tables[t], got, want, bytes);
            }
            for (int r = 0; r < rows; r++)
                for (size_t k = (size_t)n_out; k < width; k++)
                    assert_true(want[(size_t)r * width + k] == 0);
            free(want);
            free(got);
            product_close(&p);
        }
}

/* The reference itself: Σ over k of the dequantised weight times the (quantised) activation, in
 * doubles. */
static void products_are_what_they_say(void **state)
{
    (void)state;
    struct dice d = {SEED};
    for (int layout = 0; layout < MAT_N_LAYOUTS; layout++) {
        struct product_case p;
        enum { OUT = 40, IN = 512, ROWS = 4 };
        float y[ROWS * 48], w[IN];
        product_open(&p, &d, layout, OUT, IN, ROWS);
        product_run(&p, c, 0, ROWS, y);
        for (int i = 0; i < OUT; i++) {
            float largest = 0;
            mat_row(&p.w, i, w);
            for (int k = 0; k < IN; k++)
                largest = fmaxf(largest, fabsf(w[k]));
            for (int r = 0; r < ROWS; r++) {
                double sum = 0, size = 0;
                for (int k = 0; k < IN; k++) {
                    const double q = (double)p.x.q[r * IN + k] * (double)p.x.b[(r * IN + k) / 32].d,
                                 x = mat_wants_float(&p.w) ? (double)p.x.f[r * IN + k] : q;
                    sum += (double)w[k] * x;
                    size += fabs((double)largest *
                                 x); /* a weight near 0 may be the difference of two large terms */
                }
                if (fabs((double)y[r * 48 + i] - sum) > 2e-6 * size)
                    fail_msg("layout %d, row %d, column %d: %g, not %g", layout, r, i,
                             (double)y[r * 48 + i], sum);
            }
        }
        product_close(&p);
    }
}

static int is_super(int layout)
{
    return layout == MAT_U4_K || layout == MAT_U5_K || layout == MAT_U6_K16 ||
           layout == MAT_U3_K16 || layout == MAT_U2_K16;
}

/* All quants one byte, all activations ±127: C's sums must be everyone's. */
static void check_extreme(struct dice *d, int layout, int byte, int sign)
{
    struct product_case p;
    float want[16 * 4], got[16 * 4];
    product_open(&p, d, layout, 16, 256, 4);
    for (size_t i = 64; i < p.w.n_bytes; i++) /* the simple layouts keep their scales */
        if (is_super(layout) || i % (p.w.group_bytes / 8) >= 64)
            p.w.data[i] = (unsigned char)byte;
    for (size_t i = 0; i < 4 * 256; i++)
        p.x.q[i] = (int8_t)(127 * sign);
    for (size_t i = 0; i < 4 * 8; i++)
        p.x.b[i] = (struct act_block){
            .d = 0.5f,
            .sum = 127 * 32 * sign,
            .first = 127 * 16 * sign,
            .ds = 0.5f * 127 * 32 * (float)sign};
    product_run(&p, c, 0, 4, want);
    for (int t = 0; t < n_tables; t++) {
        product_run(&p, tables[t], 0, 4, got);
        for (int i = 0; i < 64; i++)
            assert_true(got[i] == want[i] || (isnan(got[i]) && isnan(want[i])));
    }
    product_close(&p);
}

/* The largest quants there are, against the largest activations: nothing saturates. */
static void extreme_quants_do_not_saturate(void **state)
{
    static const int bytes[] = {0x7f, 0x80, 0xff};
    (void)state;
    struct dice d = {SEED};
    for (int layout = 0; layout < MAT_F32; layout++)
        for (size_t i = 0; i < 2 * sizeof bytes / sizeof *bytes; i++)
            check_extreme(&d, layout, bytes[i / 2], i % 2 ? 1 : -1);
}

/* ---- attention ---- */

struct attn_case {
    enum kv_type type;
    struct kv_shape shape;
    struct attn_span a;
    const unsigned char *blocks[8];
    int pos[64];
    float *q, *acc, m[64], l[64];
    float *k, *v; /* what the blocks hold, as floats: [n_blocks · 32, dim] */
};

static void *need(size_t n)
{
    void *p = aligned_alloc(64, (n + 63) / 64 * 64);
    assert_non_null(p);
    return p;
}

/* Puts x [dim] into a block as position i of K or V (`part` 0, 1), by the layouts of kv.h alone,
 * and gives back what was rounded to. */
static void attn_put(const struct attn_case *t, unsigned char *block, int part, int i, float *x)
{
    const int dim = t->a.head_dim;
    unsigned char *to = block + (part ? kv_v_offset(&t->shape, 0, 0) : 0);
    float padded[160] = {0};
    int8_t q[160];
    struct act_block b[5];
    memcpy(padded, x, (size_t)dim * sizeof *x);
    c->quantize(padded, kv_n_scales(dim), q, b);
    for (int d = 0; d < dim; d++) {
        const int k_at = t->type == KV_F16 ? d * 32 + i : d / 4 * 128 + 4 * i + d % 4,
                  at = part ? i * dim + d : k_at;
        if (t->type == KV_F16) {
            const uint16_t h = f32_to_f16(x[d]);
            memcpy(to + 2 * at, &h, 2);
            x[d] = f16_to_f32(h);
        } else {
            const uint16_t h = f32_to_f16(b[d / 32].d);
            to[at] = (unsigned char)q[d];
            memcpy(to + 32 * dim + 2 * (d / 32 * 32 + i), &h, 2);
            x[d] = f16_to_f32(h) * (float)q[d];
        }
    }
}

static void attn_queries_open(struct attn_case *t, struct dice *d)
{
    const int dim = t->a.head_dim, n_q = t->a.n_q, n = kv_n_scales(dim);
    int16_t *q16 = need((size_t)(n_q * n) * 32 * sizeof *q16);
    float *qd = need((size_t)(n_q * n) * sizeof *qd);
    for (int i = 0; i < n_q * dim; i++)
        t->q[i] = dice_unit(d) * 3;
    c->quantize_q(t->q, n_q, dim, q16, qd);
    t->a.q16 = q16;
    t->a.qd = qd;
}

static void attn_open(struct attn_case *t, struct dice *d, int dim, int n_q, int n_blocks)
{
    assert_int_equal(kv_shape_init(&t->shape, t->type, 1, 1, dim, NULL), 0);
    t->q = need((size_t)dim * (size_t)n_q * sizeof *t->q);
    t->acc = need((size_t)dim * (size_t)n_q * sizeof *t->acc);
    t->k = need((size_t)(dim * 32 * n_blocks) * sizeof(float));
    t->v = need((size_t)(dim * 32 * n_blocks) * sizeof(float));
    t->a = (struct attn_span){.head_dim = dim,
                              .n_q = n_q,
                              .q = t->q,
                              .pos = t->pos,
                              .pos0 = 256,
                              .n_blocks = n_blocks,
                              .kv = t->blocks,
                              .m = t->m,
                              .l = t->l,
                              .acc = t->acc,
                              .scratch = need((size_t)dim * 64 * sizeof(float))};
    for (int i = 0; i < dim * 32 * n_blocks; i++) {
        t->k[i] = dice_unit(d) * (dice_int(d, 20) ? 1 : 1e-6f);
        t->v[i] = dice_unit(d) * (i / dim % 3 ? 1 : 0.02f); /* scales that differ, and zeros */
        t->v[i] = i / dim % 7 ? t->v[i] : 0;
    }
    for (int b = 0; b < n_blocks; b++) {
        unsigned char *block = need(t->shape.block_bytes);
        memset(block, 0, t->shape.block_bytes);
        for (int i = 0; i < 32; i++) {
            attn_put(t, block, 0, i, t->k + (b * 32 + i) * dim);
            attn_put(t, block, 1, i, t->v + (b * 32 + i) * dim);
        }
        t->blocks[b] = block;
    }
    attn_queries_open(t, d);
    int pos = 256 + dice_int(d, 32 * n_blocks);
    for (int i = n_q - 1; i >= 0; i--) {
        t->pos[i] = pos;
        pos = pos > 0 && dice_int(d, 2) ? pos - 1 : pos;
    }
}

static void attn_close(struct attn_case *t)
{
    for (int b = 0; b < t->a.n_blocks; b++)
        free((void *)(uintptr_t)t->blocks[b]);
    free(t->q);
    free(t->acc);
    free(t->k);
    free(t->v);
    free((void *)(uintptr_t)t->a.q16);
    free((void *)(uintptr_t)t->a.qd);
    free(t->a.scratch);
}

/* The i-th query of a span, with its own results. */
static struct attn_span one_query(const struct attn_span *a, int i)
{
    struct attn_span one = *a;
    const int n = kv_n_scales(a->head_dim);
    one.n_q = 1, one.q += i * a->head_dim, one.pos += i, one.m += i, one.l += i;
    one.acc += i * a->head_dim, one.q16 += i * n * 32, one.qd += i * n;
    return one;
}

static void check_attention(struct dice *d, enum kv_type type)
{
    struct attn_case t = {.type = type};
    const int dim = 16 * (1 + dice_int(d, 8)), n_q = 1 + dice_int(d, 20),
              n_blocks = 1 + dice_int(d, 8);
    attn_open(&t, d, dim, n_q, n_blocks);
    const size_t bytes = (size_t)dim * (size_t)n_q * sizeof(float);
    float *acc = need(bytes), m[64], l[64];
    c->attn_span[type](&t.a);
    memcpy(acc, t.acc, bytes), memcpy(m, t.m, sizeof m), memcpy(l, t.l, sizeof l);
    for (int k = 0; k < n_tables; k++) {
        tables[k]->attn_span[type](&t.a);
        same("attention", tables[k], t.acc, acc, bytes);
        same("attention's maxima", tables[k], t.m, m, (size_t)n_q * sizeof *m);
        same("attention's sums", tables[k], t.l, l, (size_t)n_q * sizeof *l);
        memset(t.acc, 0xff, bytes);
        for (int i = 0; i < n_q; i++) {
            struct attn_span one = one_query(&t.a, i);
            one.n_blocks = 0; /* only as far as it sees */
            while (one.n_blocks < n_blocks && t.pos[i] >= 256 + 32 * one.n_blocks)
                one.n_blocks++;
            if (one.n_blocks > 0)
                tables[k]->attn_span[type](&one);
            else
                memcpy(one.acc, acc + i * dim, (size_t)dim * sizeof *acc);
        }
        same("attention query by query", tables[k], t.acc, acc, bytes);
        same("its sums", tables[k], t.l, l, (size_t)n_q * sizeof *l);
    }
    free(acc);
    attn_close(&t);
}

static void attention_equals_c_and_each_query_alone(void **state)
{
    (void)state;
    struct dice d = {SEED};
    for (int rep = 0; rep < 120; rep++)
        check_attention(&d, rep % 2 ? KV_Q8_0 : KV_F16);
}

/* What lies behind the last position that a query sees is not there for it: neither K nor V, nor
 * Q8_0's scales. */
static void attention_sees_nothing_behind_its_position(void **state)
{
    (void)state;
    struct dice d = {SEED};
    for (int rep = 0; rep < 60; rep++) {
        struct attn_case t = {.type = rep % 2 ? KV_Q8_0 : KV_F16};
        const int dim = 16 * (1 + dice_int(&d, 8)), n_q = 1 + dice_int(&d, 20);
        attn_open(&t, &d, dim, n_q, 2);
        const size_t bytes = (size_t)dim * (size_t)n_q * sizeof(float);
        float *acc = need(bytes), x[160];
        tables[n_tables - 1]->attn_span[t.type](&t.a);
        memcpy(acc, t.acc, bytes);
        for (int i = t.pos[n_q - 1] - 256 + 1; i < 64; i++)
            for (int part = 0; part < 2; part++) {
                for (int k = 0; k < dim; k++)
                    x[k] = dice_unit(&d) * 50;
                attn_put(&t, (unsigned char *)(uintptr_t)t.blocks[i / 32], part, i % 32, x);
            }
        tables[n_tables - 1]->attn_span[t.type](&t.a);
        assert_memory_equal(acc, t.acc, bytes);
        free(acc);
        attn_close(&t);
    }
}

/* Softmax over the rounded K and V in doubles. */
static void check_softmax(enum kv_type type, int dim, int n_q, double bound)
{
    struct dice d = {SEED};
    struct attn_case t = {.type = type};
    float out[160];
    double worst = 0;
    attn_open(&t, &d, dim, n_q, 3);
    for (int i = 0; i < n_q; i++)
        t.pos[i] = 256 + 95 - 4 * (n_q - 1 - i);
    c->attn_span[type](&t.a);
    for (int i = 0; i < n_q; i++) {
        double p[96], sum = 0;
        const int seen = t.pos[i] - 256 + 1;
        for (int s = 0; s < seen; s++) {
            p[s] = 0;
            for (int k = 0; k < dim; k++)
                p[s] += (double)t.q[i * dim + k] * (double)t.k[s * dim + k];
            sum += p[s] = exp(p[s]);
        }
        c->attn_finish(t.l[i], t.acc + i * dim, dim, out);
        for (int k = 0; k < dim; k++) {
            double want = 0;
            for (int s = 0; s < seen; s++)
                want += p[s] / sum * (double)t.v[s * dim + k];
            worst = fmax(worst, fabs((double)out[k] - want));
        }
    }
    print_message("%s, dimension %d: largest error %.1e\n", kv_type_name(type), dim, worst);
    assert_true(worst < bound);
    attn_close(&t);
}

static void attention_is_softmax(void **state)
{
    (void)state;
    for (int n_q = 5; n_q <= 20; n_q += 15) {
        check_softmax(KV_F16, 48, n_q, 1e-5);
        check_softmax(KV_Q8_0, 48, n_q, 3e-4);
        check_softmax(KV_Q8_0, 64, n_q, 3e-4);
        check_softmax(KV_Q8_0, 16, n_q, 3e-4);
    }
}

static void merging_equals_c(void **state)
{
    (void)state;
    struct dice d = {SEED};
    float a[64], b[64], x[64], fa[64], fb[64];
    for (int rep = 0; rep < 500; rep++) {
        float ma = dice_unit(&d) * 20, la = 1 + dice_unit(&d),
              ml[2] = {dice_unit(&d) * 100, 1.5f + dice_unit(&d)}, mb = ma, lb = la;
        fill(&d, a, 64);
        fill(&d, x, 64);
        memcpy(b, a, sizeof b);
        c->attn_merge(&mb, &lb, b, ml, x, 64);
        c->attn_finish(lb, b, 64, fb);
        for (int t = 0; t < n_tables; t++) {
            float m = ma, l = la, y[64];
            memcpy(y, a, sizeof y);
            tables[t]->attn_merge(&m, &l, y, ml, x, 64);
            tables[t]->attn_finish(l, y, 64, fa);
            assert_true(m == mb && l == lb);
            same("merge", tables[t], y, b, sizeof y);
            same("finish", tables[t], fa, fb, sizeof fa);
        }
    }
}

/* ---- choice ---- */

static void the_best_is_chosen_and_what_is_not_there_is_refused(void **state)
{
    (void)state;
    const struct kernels_cpu old = {.lacks_avx512 = "AVX2"},
                             middle = {.fma = 1, .avx2 = 1, .lacks_avx512 = "AVX512-VNNI"},
                             new = {.fma = 1, .avx2 = 1};
    const struct kernels *k = NULL;
    struct err e = {0};
    assert_int_equal(kernels_pick(NULL, &old, &k, &e), 0);
    assert_ptr_equal(k, &kernels_c);
    assert_int_equal(kernels_pick("c", &new, &k, &e), 0);
    assert_ptr_equal(k, &kernels_c_fma);
    assert_int_equal(kernels_pick(NULL, &middle, &k, &e), 0);
    assert_ptr_equal(k, &kernels_avx2);
    assert_int_equal(kernels_pick("avx512", &middle, &k, &e), ERR_INVAL);
    assert_string_equal(e.text, "isa avx512: this CPU lacks AVX512-VNNI; its best is avx2");
    assert_ptr_equal(k, &kernels_avx2);
    assert_int_equal(kernels_pick("avx2", &old, &k, &e), ERR_INVAL);
    assert_int_equal(kernels_pick(NULL, &new, &k, &e), 0);
    assert_string_equal(k->name, "avx512");
    assert_int_equal(kernels_pick("sse9", &new, &k, &e), ERR_INVAL);
    assert_string_equal(e.text, "isa sse9: unknown; known are c, avx2, avx512");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(elements_equal_c),
        cmocka_unit_test(exp_equals_c_and_is_near_exp),
        cmocka_unit_test(exp_is_exact_where_masking_needs_it),
        cmocka_unit_test(f16_rounds_to_nearest_even_and_back),
        cmocka_unit_test(quantize_equals_c_and_the_definition),
        cmocka_unit_test(queries_equal_c_and_the_definition),
        cmocka_unit_test(products_equal_c_for_any_number_of_rows),
        cmocka_unit_test(products_are_what_they_say),
        cmocka_unit_test(extreme_quants_do_not_saturate),
        cmocka_unit_test(attention_equals_c_and_each_query_alone),
        cmocka_unit_test(attention_sees_nothing_behind_its_position),
        cmocka_unit_test(attention_is_softmax),
        cmocka_unit_test(merging_equals_c),
        cmocka_unit_test(the_best_is_chosen_and_what_is_not_there_is_refused),
    };
    const struct kernels *k;
    tables[n_tables++] = &kernels_c;
    if (kernels_find("c", &k, NULL) == 0 && k != &kernels_c)
        tables[n_tables++] = k;
    if (kernels_find("avx2", &k, NULL) == 0)
        tables[n_tables++] = k;
    tables[n_tables++] = &kernels_avx512_model;
    if (kernels_find("avx512", &k, NULL) == 0)
        tables[n_tables++] = k;
    numerics_enter();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
