/* The element-wise kernels of every instruction set against plain C: equal bits at odd sizes, for
 * ordinary and extreme numbers; and plain C against the definitions. And which kernels are
 * chosen. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <math.h>

#include <cmocka.h>

#include "engine/f16.h"
#include "tests/engine/math/tables.h"

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

/* ---- choice ---- */

static void the_best_is_chosen_and_what_is_not_there_is_refused(void **state)
{
    (void)state;
    const struct kernels_cpu old = {.lacks_avx512 = "AVX2", .lacks_amx = "AVX2"},
                             middle = {.fma = 1,
                                       .avx2 = 1,
                                       .lacks_avx512 = "AVX512-VNNI",
                                       .lacks_amx = "AVX512-VNNI"},
                             new = {.fma = 1, .avx2 = 1, .lacks_amx = "AMX-INT8"},
                             newest = {.fma = 1, .avx2 = 1};
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
    assert_string_equal(e.text, "isa avx2: this CPU lacks AVX2, FMA or F16C; its best is c");
    assert_int_equal(kernels_pick(NULL, &new, &k, &e), 0);
    assert_ptr_equal(k, &kernels_avx512);
    assert_int_equal(kernels_pick("amx", &new, &k, &e), ERR_INVAL);
    assert_string_equal(e.text, "isa amx: this CPU lacks AMX-INT8; its best is avx512");
    assert_int_equal(kernels_pick(NULL, &newest, &k, &e), 0);
    assert_ptr_equal(k, &kernels_amx);
    assert_string_equal(k->name, "amx");
    assert_int_equal(kernels_pick("avx512", &newest, &k, &e), 0);
    assert_string_equal(k->name, "avx512");
    assert_int_equal(kernels_pick("sse9", &new, &k, &e), ERR_INVAL);
    assert_string_equal(e.text, "isa sse9: unknown; known are c, avx2, avx512, amx");
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
        cmocka_unit_test(the_best_is_chosen_and_what_is_not_there_is_refused),
    };
    tables_init();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
