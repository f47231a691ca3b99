/* The matrix products of every instruction set against plain C: equal bits for any number of rows
 * and columns, and for the largest numbers; and plain C against the definition. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/engine/math/amx_count.h"
#include "tests/engine/math/tables.h"

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
    enum { ROWS = 20 }; /* a tile of AMX and one of vectors */
    struct product_case p;
    float want[16 * ROWS], got[16 * ROWS];
    product_open(&p, d, layout, 16, 256, ROWS);
    for (size_t i = 64; i < p.w.n_bytes; i++) /* the simple layouts keep their scales */
        if (is_super(layout) || i % (p.w.group_bytes / 8) >= 64)
            p.w.data[i] = (unsigned char)byte;
    for (size_t i = 0; i < ROWS * 256; i++)
        p.x.q[i] = (int8_t)(127 * sign);
    for (size_t i = 0; i < ROWS * 8; i++)
        p.x.b[i] = (struct act_block){
            .d = 0.5f,
            .sum = 127 * 32 * sign,
            .first = 127 * 16 * sign,
            .ds = 0.5f * 127 * 32 * (float)sign};
    product_run(&p, c, 0, ROWS, want);
    for (int t = 0; t < n_tables; t++) {
        product_run(&p, tables[t], 0, ROWS, got);
        for (int i = 0; i < 16 * ROWS; i++)
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

/* Sixteen rows and more go by tiles, in one configuration for the job, and it is given back; fewer
 * never touch them. That they equal C's is checked above. */
static void many_rows_go_by_tiles_which_are_released(void **state)
{
    (void)state;
    static const struct {
        int rows, jobs, tiles;
    } cases[] = {{1, 0, 0}, {15, 0, 0}, {16, 1, 1}, {31, 1, 1}, {32, 1, 2}, {49, 1, 3}};
    enum { GROUPS = 3, BLOCKS = 8 };
    struct dice d = {SEED};
    for (int layout = 0; layout < MAT_F32; layout++)
        for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
            const int halves = layout >= MAT_U6_K16 ? 2 : 1;
            struct product_case p;
            float y[49 * 16 * GROUPS];
            product_open(&p, &d, layout, 16 * GROUPS - 5, 32 * BLOCKS, cases[i].rows);
            amx_model_jobs = amx_model_products = 0;
            product_run(&p, &kernels_amx_model, 0, cases[i].rows, y);
            assert_int_equal(amx_model_jobs, cases[i].jobs);
            assert_int_equal(amx_model_products, cases[i].tiles * GROUPS * BLOCKS * halves);
            assert_false(amx_model_has_tiles());
            product_close(&p);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(products_equal_c_for_any_number_of_rows),
        cmocka_unit_test(products_are_what_they_say),
        cmocka_unit_test(extreme_quants_do_not_saturate),
        cmocka_unit_test(many_rows_go_by_tiles_which_are_released),
    };
    tables_init();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
