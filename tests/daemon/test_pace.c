/*
 * How many prefill rows a pass takes.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "daemon/limits.h"
#include "daemon/pace.h"

static void unmeasured_passes_are_small(void **state)
{
    (void)state;
    struct pace p = {0};
    assert_int_equal(pace_rows(&p, 0), PACE_ROWS_UNMEASURED);
    assert_int_equal(pace_rows(&p, 3), PACE_ROWS_UNMEASURED_DECODING);
}

static void alone_a_pass_lasts_the_target(void **state)
{
    (void)state;
    struct pace p = {0};
    pace_measure(&p, 32 * 1000, 0, 32); /* 1 ms a row */
    assert_int_equal(pace_rows(&p, 0), TARGET_PREFILL_PASS_MS);
}

static void running_answers_keep_their_share(void **state)
{
    (void)state;
    struct pace p = {0};
    pace_measure(&p, 512 * 500, 0, 512); /* 0.5 ms a row */
    pace_measure(&p, 8000, 1, 0);        /* 8 ms a step */
    int rows = pace_rows(&p, 1);
    double slower = 8000 / (8000 + rows * 500.0);
    assert_true(slower >= TARGET_DECODE_PACE);
    assert_true(rows >= 6); /* 8 ms / 0.7 leaves 3.4 ms */
}

static void a_slow_model_still_gets_on(void **state)
{
    (void)state;
    struct pace p = {0};
    pace_measure(&p, 20 * 1000 * 1000, 0, 32); /* 0.6 s a row */
    assert_int_equal(pace_rows(&p, 0), 1);
    pace_measure(&p, 100, 1, 0);
    assert_int_equal(pace_rows(&p, 1), 1);
}

static void a_quick_model_stays_within_the_scratch(void **state)
{
    (void)state;
    struct pace p = {0};
    pace_measure(&p, 0, 0, 512); /* below the clock's resolution */
    pace_measure(&p, 1000000, 1, 0);
    assert_int_equal(pace_rows(&p, 0), PACE_ROWS_MAX);
    assert_int_equal(pace_rows(&p, 1), PACE_ROWS_MAX);
}

static void small_and_mixed_passes_move_the_measure_little(void **state)
{
    (void)state;
    struct pace p = {0};
    pace_measure(&p, 100 * 1000, 0, 100);
    pace_measure(&p, 50 * 1000, 0, 2); /* mostly the constant part */
    assert_true(p.row_us > 999 && p.row_us < 1001);
    pace_measure(&p, 10 * 1000, 1, 0);
    pace_measure(&p, 1000 * 1000, 1, 4); /* something else had the processor */
    assert_true(p.row_us < 1200);
    pace_measure(&p, 1, 1, 4);
    assert_true(p.row_us > 900);
}

static void a_measure_follows_a_change(void **state)
{
    (void)state;
    struct pace p = {0};
    pace_measure(&p, 64 * 100, 0, 64);
    for (int i = 0; i < 30; i++)
        pace_measure(&p, 64 * 900, 0, 64);
    assert_true(p.row_us > 890 && p.row_us <= 900);
}

/* Passes of 100 rows at these depths, at 100 us a row and `slope` us more per position. */
static void read_prefix(struct pace *p, int to, double slope)
{
    for (int at = 0; at < to; at += 100)
        pace_measure_depth(p, (int64_t)(100 * (100 + slope * (at + 49.5))), 100, at + 49.5);
}

static void is_about(double got, double want)
{
    assert_true(got > 0.97 * want && got < 1.03 * want);
}

static void a_prefix_costs_what_its_depth_did(void **state)
{
    (void)state;
    struct pace p = {0};
    assert_true(pace_prefix_us(&p, 1000) <= 0);
    read_prefix(&p, 4000, 0.1);
    is_about(pace_prefix_us(&p, 100), 100 * 100 + 0.1 * 100 * 99 / 2);
    is_about(pace_prefix_us(&p, 4000), 4000 * 100 + 0.1 * 4000.0 * 3999 / 2);
    assert_true(pace_prefix_us(&p, 0) <= 0);
}

static void beyond_what_was_measured_no_more_is_claimed(void **state)
{
    (void)state;
    struct pace p = {0};
    read_prefix(&p, 1000, 0.1);
    const double at_1000 = pace_prefix_us(&p, 1000);
    const double row = (pace_prefix_us(&p, 10000) - at_1000) / 9000;
    is_about(row, 100 + 0.1 * 949.5);
}

static void without_a_spread_of_depths_a_row_costs_the_mean(void **state)
{
    (void)state;
    struct pace p = {0};
    for (int i = 0; i < 10; i++)
        pace_measure_depth(&p, 100 * 200, 100, 50 + i % 3);
    is_about(pace_prefix_us(&p, 1000), 1000 * 200);
}

static void a_falling_line_is_noise(void **state)
{
    (void)state;
    struct pace p = {0};
    read_prefix(&p, 1000, -0.09);
    const double mean = 100 - 0.09 * 499.5;
    assert_true(pace_prefix_us(&p, 10) > 0.9 * 10 * mean);
    assert_true(pace_prefix_us(&p, 1000) < 1.1 * 1000 * mean);
}

static void a_few_rows_serve_only_until_there_is_better(void **state)
{
    (void)state;
    struct pace p = {0};
    pace_measure_depth(&p, 16000, 2, 1); /* counted as if it had been 16 rows */
    is_about(pace_prefix_us(&p, 10), 10 * 1000);
    for (int i = 0; i < 5; i++)
        pace_measure_depth(&p, 512 * 100, 512, 255.5);
    pace_measure_depth(&p, 16000, 2, 1);
    is_about(pace_prefix_us(&p, 10), 10 * 105);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(unmeasured_passes_are_small),
        cmocka_unit_test(alone_a_pass_lasts_the_target),
        cmocka_unit_test(running_answers_keep_their_share),
        cmocka_unit_test(a_slow_model_still_gets_on),
        cmocka_unit_test(a_quick_model_stays_within_the_scratch),
        cmocka_unit_test(small_and_mixed_passes_move_the_measure_little),
        cmocka_unit_test(a_measure_follows_a_change),
        cmocka_unit_test(a_prefix_costs_what_its_depth_did),
        cmocka_unit_test(beyond_what_was_measured_no_more_is_claimed),
        cmocka_unit_test(without_a_spread_of_depths_a_row_costs_the_mean),
        cmocka_unit_test(a_falling_line_is_noise),
        cmocka_unit_test(a_few_rows_serve_only_until_there_is_better),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
