/* Packing loses nothing: a row taken out of the packed form is what the file's type defines, bit
 * for bit. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include <cmocka.h>

#include "base/sys.h"
#include "engine/mat.h"
#include "engine/quant.h"
#include "tests/engine/math/tiny.h"

/* Where a block keeps its F16 scales (random bits there could be infinite). */
static const struct {
    uint32_t id;
    int d, m; /* byte offsets; −1: none */
} types[] = {
    {QUANT_Q4_0, 0, -1},   {QUANT_Q4_1, 0, 2},    {QUANT_Q5_0, 0, -1}, {QUANT_Q5_1, 0, 2},
    {QUANT_Q8_0, 0, -1},   {QUANT_IQ4_NL, 0, -1}, {QUANT_Q4_K, 0, 2},  {QUANT_Q5_K, 0, 2},
    {QUANT_Q6_K, 208, -1}, {QUANT_Q3_K, 108, -1}, {QUANT_Q2_K, 80, 82}, {QUANT_F32, 2, -1},
    {QUANT_F16, 0, -1},    {QUANT_BF16, 0, -1},
};
#define N_TYPES (sizeof types / sizeof *types)

/* Any finite F16 (or the two high bytes of a finite F32 or BF16): normal, subnormal, zero, of
 * either sign. */
static void put_scale(struct dice *d, unsigned char *p)
{
    uint16_t h = (uint16_t)dice_u64(d);
    if ((h & 0x7c00) == 0x7c00)
        h &= 0xbfff;
    if (dice_int(d, 8) == 0)
        h &= 0x83ff;
    memcpy(p, &h, 2);
}

static unsigned char *random_blocks(struct dice *d, size_t type, size_t n)
{
    const int bytes = quant_type(types[type].id)->block_bytes;
    unsigned char *p = malloc(n * (size_t)bytes);
    assert_non_null(p);
    for (size_t i = 0; i < n * (size_t)bytes; i++)
        p[i] = (unsigned char)dice_u64(d);
    for (size_t i = 0; i < n; i++) {
        put_scale(d, p + i * (size_t)bytes + types[type].d);
        if (types[type].m >= 0)
            put_scale(d, p + i * (size_t)bytes + types[type].m);
    }
    return p;
}

/* Packs n_out random rows of a type and compares each row taken out with the file's values. */
static void check_rows(struct dice *d, size_t type, int n_out)
{
    const struct quant_type *q = quant_type(types[type].id);
    const int blocks = q->block_values == 1 ? 37 : 3, n_in = blocks * q->block_values;
    const size_t row_bytes = (size_t)blocks * (size_t)q->block_bytes;
    unsigned char *data = random_blocks(d, type, (size_t)n_out * (size_t)blocks);
    float *want = malloc((size_t)n_in * sizeof *want), *got = malloc((size_t)n_in * sizeof *got);
    struct mat m;
    struct err e = {0};
    assert_true(want && got);
    assert_int_equal(mat_pack(types[type].id, data, n_out, n_in, &m, &e), 0);
    for (int i = 0; i < n_out; i++) {
        q->dequantize(data + (size_t)i * row_bytes, want, (size_t)n_in);
        mat_row(&m, i, got);
        if (memcmp(want, got, (size_t)n_in * sizeof *want) != 0)
            fail_msg("%s: row %d of %d is not what the file says", q->name, i, n_out);
    }
    mat_done(&m);
    free(data);
    free(want);
    free(got);
}

static void rows_come_back_exactly(void **state)
{
    static const int row_counts[] = {1, 2, 3, 15, 16, 17, 33};
    (void)state;
    struct dice d = {99};
    for (size_t t = 0; t < N_TYPES; t++)
        for (size_t i = 0; i < sizeof row_counts / sizeof *row_counts; i++)
            check_rows(&d, t, row_counts[i]);
}

static void a_given_region_holds_the_same_bytes(void **state)
{
    (void)state;
    struct dice d = {3};
    unsigned char *data = random_blocks(&d, 1, 20 * 4);
    struct mat a, b;
    size_t n;
    assert_int_equal(mat_size(QUANT_Q4_1, 20, 128, &n, NULL), 0);
    void *region = mat_region_new(n);
    assert_non_null(region);
    memset(region, 0x55, n);
    const struct mat_source s = {.quant_id = QUANT_Q4_1, .n_out = 20, .n_in = 128, .data = data};
    assert_int_equal(mat_pack_at(&s, region, &a, NULL), 0);
    assert_int_equal(mat_pack(QUANT_Q4_1, data, 20, 128, &b, NULL), 0);
    assert_int_equal(a.n_bytes, n);
    assert_memory_equal(a.data, b.data, n);
    mat_done(&a);
    mat_done(&b);
    mat_region_free(region, n);
    free(data);
}

static void shapes_that_cannot_be_are_refused(void **state)
{
    (void)state;
    struct err e = {0};
    size_t n = 77;
    assert_int_equal(mat_size(16, 16, 256, &n, &e), ERR_UNSUPPORTED);
    assert_non_null(strstr(e.text, "IQ2_XXS"));
    assert_int_equal(mat_size(12345, 16, 256, &n, &e), ERR_UNSUPPORTED);
    assert_int_equal(mat_size(QUANT_Q4_1, 16, 40, &n, &e), ERR_CORRUPT);
    assert_int_equal(mat_size(QUANT_Q4_1, 0, 32, &n, &e), ERR_LIMIT);
    assert_int_equal(mat_size(QUANT_Q4_1, -5, 32, &n, &e), ERR_LIMIT);
    assert_int_equal(mat_size(QUANT_F32, INT64_MAX, INT64_MAX, &n, &e), ERR_LIMIT);
    assert_int_equal(n, 77);
}

/* A packed matrix is as large as in the file, but for scales that became bytes: Q3_K's 14.25 bytes
 * for 32 are the most, 4 % more. */
static void nothing_is_inflated(void **state)
{
    (void)state;
    for (size_t t = 0; t < N_TYPES; t++) {
        const struct quant_type *q = quant_type(types[t].id);
        size_t n;
        assert_int_equal(mat_size(q->id, 160, 1024, &n, NULL), 0);
        const size_t file = (size_t)160 * 1024 / (size_t)q->block_values * (size_t)q->block_bytes;
        assert_true(n >= file && n <= file + file * 4 / 100);
    }
}

static void *no_memory(void *addr, size_t n, int prot, int flags, int fd, off_t off)
{
    (void)addr, (void)n, (void)prot, (void)flags, (void)fd, (void)off;
    return MAP_FAILED;
}

static void no_memory_is_an_error(void **state)
{
    (void)state;
    struct err e = {0};
    struct mat m = {.n_out = 5};
    static const unsigned char data[64 * 4] = {0};
    sys.mmap = no_memory;
    assert_int_equal(mat_pack(QUANT_F32, data, 1, 64, &m, &e), ERR_NOMEM);
    sys_reset();
    assert_int_equal(m.n_out, 5);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_come_back_exactly),
        cmocka_unit_test(a_given_region_holds_the_same_bytes),
        cmocka_unit_test(nothing_is_inflated),
        cmocka_unit_test(shapes_that_cannot_be_are_refused),
        cmocka_unit_test(no_memory_is_an_error),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
