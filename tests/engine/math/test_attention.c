/* Attention of every instruction set against plain C, for both KV types: equal bits whatever the
 * tile of queries; and plain C against softmax in doubles. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "engine/f16.h"
#include "tests/engine/math/tables.h"

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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(attention_equals_c_and_each_query_alone),
        cmocka_unit_test(attention_sees_nothing_behind_its_position),
        cmocka_unit_test(attention_is_softmax),
        cmocka_unit_test(merging_equals_c),
    };
    tables_init();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
