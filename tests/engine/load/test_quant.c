/* Dequantisation: bits equal the golden vectors (ggml's), whole blocks only; half precision against
 * every one of its 65,536 values. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/file.h"
#include "base/hash.h"
#include "base/json.h"
#include "engine/quant.h"

static void check_line(const json *j, unsigned char *bytes, float *got)
{
    const char *name = json_str(json_get(j, "type", NULL)),
               *hex = json_str(json_get(j, "hex", NULL));
    const json *values = json_get(j, "values", NULL);
    const struct quant_type *t = quant_type_by_name(name);
    assert_non_null(t);
    assert_ptr_equal(quant_type((uint32_t)json_double(json_get(j, "type_id", NULL))), t);
    const size_t n = json_count(values), n_bytes = strlen(hex) / 2;
    assert_int_equal(n % (size_t)t->block_values, 0);
    assert_int_equal(n_bytes, n / (size_t)t->block_values * (size_t)t->block_bytes);
    assert_true(hex_parse(hex, 2 * n_bytes, bytes, n_bytes));
    t->dequantize(bytes, got, n);
    size_t i = 0;
    for (const json *v = json_first(values); v; v = json_next(v), i++) {
        const float want = (float)json_double(v);
        if (memcmp(&want, &got[i], sizeof want) != 0) {
            fail_msg("%s value %zu: %.9g, golden has %.9g", name, i, (double)got[i], (double)want);
        }
    }
}

static void bits_equal_the_golden_vectors(void **state)
{
    (void)state;
    const char *tests = getenv("HEARTH_TESTS");
    char path[4096];
    struct buf b;
    struct err e;
    unsigned char bytes[4096];
    float got[1024];
    int n_lines = 0;
    assert_non_null(tests);
    snprintf(path, sizeof path, "%s/golden/quant.jsonl", tests);
    buf_init(&b, 1 << 20);
    assert_int_equal(file_read(path, &b, &e), 0);
    for (char *line = b.data, *end; (end = strchr(line, '\n')) != NULL; line = end + 1) {
        json *j;
        assert_int_equal(json_parse(line, (size_t)(end - line), &j, &e), 0);
        check_line(j, bytes, got);
        json_free(j);
        n_lines++;
    }
    assert_int_equal(n_lines, 39);
    buf_done(&b);
}

static void every_type_is_listed_and_found_both_ways(void **state)
{
    (void)state;
    const uint32_t ids[] = {0, 1, 2, 3, 6, 7, 8, 10, 11, 12, 13, 14, 20, 30};
    for (size_t i = 0; i < sizeof ids / sizeof *ids; i++) {
        const struct quant_type *t = quant_type(ids[i]);
        assert_non_null(t);
        assert_ptr_equal(quant_type_by_name(t->name), t);
        assert_non_null(strstr(quant_names(), t->name));
        assert_string_equal(quant_ggml_name(ids[i]), t->name);
    }
    assert_null(quant_type(250));
    assert_null(quant_type(16));
    assert_string_equal(quant_ggml_name(16), "IQ2_XXS");
    assert_string_equal(quant_ggml_name(250), "unknown");
    assert_null(quant_type_by_name("q4_1"));
}

static void f32_is_copied_as_it_is(void **state)
{
    (void)state;
    const uint32_t bits[] = {0, 0x80000000u, 1, 0x7f7fffffu, 0x3f800000u, 0xff800000u};
    float got[6];
    quant_type(QUANT_F32)->dequantize(bits, got, 6);
    assert_memory_equal(bits, got, sizeof bits);
}

static void half_precision_survives_the_round_trip(void **state)
{
    (void)state;
    for (uint32_t h = 0; h < 65536; h++) {
        const float f = quant_f16_to_f32((uint16_t)h);
        if ((h & 0x7fffu) > 0x7c00u) {
            assert_true(isnan(f));
            assert_true((quant_f32_to_f16(f) & 0x7fffu) > 0x7c00u);
        } else {
            assert_int_equal(quant_f32_to_f16(f), h);
        }
    }
}

/* The fool: the nearest of all 65,536 halves, ties to the even one. */
static uint16_t nearest_half(float f)
{
    uint16_t best = 0;
    double best_distance = INFINITY;
    for (uint32_t h = 0; h < 0x7c00u; h++) {
        const double distance = fabs((double)quant_f16_to_f32((uint16_t)h) - fabs((double)f));
        if (distance < best_distance || (distance <= best_distance && !(h & 1u))) {
            best = (uint16_t)h;
            best_distance = distance;
        }
    }
    if (fabs((double)f) >= 65520.0) { /* halfway to what would be 65536 */
        best = 0x7c00u;
    }
    return (uint16_t)(best | (signbit(f) ? 0x8000u : 0));
}

static void half_precision_rounds_to_nearest_even(void **state)
{
    (void)state;
    uint64_t s = 0x2545f4914f6cdd1du;
    printf("seed %#llx\n", (unsigned long long)s);
    for (int i = 0; i < 300; i++) {
        s = s * 6364136223846793005u + 1442695040888963407u;
        const uint16_t h = (uint16_t)(s >> 48);
        float f = quant_f16_to_f32(h & 0x7bffu),
              next = quant_f16_to_f32((uint16_t)((h & 0x7bffu) + 1));
        if (i % 3 == 0 && isfinite(next)) {
            f = (f + next) / 2; /* a tie */
        } else {
            f *= 1.0f + (float)(s >> 20 & 1023) * 0x1p-21f;
        }
        f = h & 0x8000u ? -f : f;
        assert_int_equal(quant_f32_to_f16(f), nearest_half(f));
    }
    assert_int_equal(quant_f32_to_f16(65519.99f), 0x7bff);
    assert_int_equal(quant_f32_to_f16(65520.0f), 0x7c00);
    assert_int_equal(quant_f32_to_f16(-1e30f), 0xfc00);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bits_equal_the_golden_vectors),
        cmocka_unit_test(every_type_is_listed_and_found_both_ways),
        cmocka_unit_test(f32_is_copied_as_it_is),
        cmocka_unit_test(half_precision_survives_the_round_trip),
        cmocka_unit_test(half_precision_rounds_to_nearest_even),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
