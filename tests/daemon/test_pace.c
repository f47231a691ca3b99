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

static const uint64_t NOBODY = 0, SOME = 1, OTHERS = 2;

static void read(struct pace *p, int64_t us, int n, double depth)
{
    pace_measure(p, &(struct pace_pass){.us = us, .n_prefill = n, .depth = depth});
}

static void answer(struct pace *p, int64_t us)
{
    pace_measure(p, &(struct pace_pass){.us = us, .n_decoding = 1});
}

/* One pass of a machine where an answer's row takes decode_us and a prefill row row_us more, beside
 * the answers `who`. Returns its prefill rows. */
static int step(struct pace *p, uint64_t who, int64_t decode_us, int64_t row_us)
{
    const double us = pace_begin(p, who, true);
    const int n = pace_rows(p, us, 0, 1 << 20);
    pace_measure(p, &(struct pace_pass){.us = decode_us + n * row_us,
                                        .n_decoding = 1,
                                        .n_prefill = n,
                                        .rows_us = pace_rows_us(p, 0, n)});
    return n;
}

static void unmeasured_passes_are_small(void **state)
{
    (void)state;
    struct pace p = {0};
    double us = pace_begin(&p, NOBODY, true);
    assert_int_equal(pace_rows(&p, us, 0, 1000), PACE_ROWS_UNMEASURED);
    assert_int_equal(pace_rows(&p, us, 0, 7), 7);
    us = pace_begin(&p, SOME, true);
    assert_int_equal(pace_rows(&p, us, 0, 1000), 0); /* first, what the answers take */
    answer(&p, 8000);
    us = pace_begin(&p, SOME, true);
    assert_int_equal(pace_rows(&p, us, 0, 1000), PACE_ROWS_UNMEASURED_DECODING);
}

static void alone_a_pass_lasts_the_target(void **state)
{
    (void)state;
    struct pace p = {0};
    read(&p, 32 * 1000, 32, 16); /* 1 ms a row */
    const double us = pace_begin(&p, NOBODY, true);
    assert_int_equal(pace_rows(&p, us, 0, 1000), TARGET_PREFILL_PASS_MS);
}

static void deep_in_a_prompt_a_pass_has_fewer_rows(void **state)
{
    (void)state;
    struct pace p = {0};
    for (int at = 0; at < 4000; at += 100)
        read(&p, (int64_t)(100 * (500 + 0.5 * (at + 50))), 100, at + 50); /* + 0.5 us a position */
    const double us = pace_begin(&p, NOBODY, true);
    assert_in_range(pace_rows(&p, us, 0, 1000), 225, 275); /* 0.5 … 0.63 ms a row */
    assert_in_range(pace_rows(&p, us, 4000, 1000), 55, 60); /* 2.5 ms */
    assert_in_range(pace_rows(&p, us, 8000, 1000), 30, 34); /* 4.5 ms: nobody was there yet */
}

static void running_answers_keep_their_share(void **state)
{
    (void)state;
    for (int64_t row_us = 100; row_us <= 40000; row_us = row_us * 3 / 2) {
        struct pace p = {0};
        int n_rows = 0, n_passes = 600;
        int64_t us = 0;
        read(&p, 64 * row_us / 2, 64, 32); /* it costs more than that beside answers */
        for (int i = 0; i < n_passes; i++) {
            const int n = step(&p, SOME, 8000, row_us);
            us += 8000 + n * row_us;
            n_rows += n;
        }
        const double pace = 8000.0 * n_passes / (double)us;
        assert_true(pace >= 0.7);
        if (row_us <= 8000) /* and the prompt gets what is left, but for passes that measure */
            assert_true(pace < TARGET_DECODE_PACE + 0.06);
        assert_true(n_rows > 0);
    }
}

static void cheap_rows_ride_in_nearly_every_pass(void **state)
{
    (void)state;
    struct pace p = {0};
    int n_with = 0;
    read(&p, 64 * 400, 64, 32);
    for (int i = 0; i < 100; i++)
        n_with += step(&p, SOME, 8000, 400) > 0;
    assert_in_range(n_with, 80, 92); /* of PACE_MIXED_MAX + 1 one is without */
}

static void dear_rows_are_saved_up_for(void **state)
{
    (void)state;
    struct pace p = {0};
    int n_with = 0, n_rows = 0;
    read(&p, 64 * 18000, 64, 32);
    for (int i = 0; i < 300; i++) {
        const int n = step(&p, SOME, 8000, 18000);
        assert_true(n == 0 || n >= PACE_ROWS_LEAST);
        n_with += n > 0;
        n_rows += n;
    }
    assert_true(n_with > 5);
    assert_true(n_rows <= (n_with + 1) * (PACE_ROWS_LEAST + 1));
}

static void a_slow_model_still_gets_on(void **state)
{
    (void)state;
    struct pace p = {0};
    read(&p, 20 * 1000 * 1000, 32, 16); /* 0.6 s a row */
    double us = pace_begin(&p, NOBODY, true);
    assert_int_equal(pace_rows(&p, us, 0, 1000), 1);
    int n_rows = 0;
    for (int i = 0; i < 400; i++)
        n_rows += step(&p, SOME, 100000, 600000);
    assert_in_range(n_rows, 12, 20); /* 40 s of answers pay for 0.6 s each */
}

static void a_quick_model_stays_within_the_scratch(void **state)
{
    (void)state;
    struct pace p = {0};
    read(&p, 0, 512, 256); /* below the clock's resolution */
    double us = pace_begin(&p, NOBODY, true);
    assert_int_equal(pace_rows(&p, us, 0, 100000), PACE_ROWS_MAX);
    pace_begin(&p, SOME, true);
    answer(&p, 1000000);
    us = pace_begin(&p, SOME, true);
    assert_int_equal(pace_rows(&p, us, 0, 100000), PACE_ROWS_MAX);
}

static void a_stall_of_the_machine_is_no_debt_for_ever(void **state)
{
    (void)state;
    struct pace p = {0};
    read(&p, 64 * 500, 64, 32);
    for (int i = 0; i < 50; i++)
        step(&p, SOME, 8000, 500);
    while (step(&p, SOME, 8000, 500) == 0) {
    }
    const double us = pace_begin(&p, SOME, true);
    if (us > 0)
        pace_measure(&p, &(struct pace_pass){.us = 10 * 1000 * 1000,
                                             .n_decoding = 1,
                                             .n_prefill = 4,
                                             .rows_us = pace_rows_us(&p, 0, 4)});
    int n_without = 0;
    while (step(&p, SOME, 8000, 500) == 0)
        n_without++;
    assert_true(n_without < 1000000 / (8000 / TARGET_DECODE_PACE - 8000) + 10);
}

static void credit_is_not_gathered_while_nobody_reads(void **state)
{
    (void)state;
    struct pace p = {0};
    read(&p, 64 * 500, 64, 32);
    for (int i = 0; i < 1000; i++) {
        assert_true(pace_begin(&p, SOME, false) <= 0);
        answer(&p, 8000);
    }
    assert_true(pace_begin(&p, SOME, true) <= 8000);
}

static void other_answers_are_measured_anew(void **state)
{
    (void)state;
    struct pace p = {0};
    read(&p, 64 * 500, 64, 32);
    for (int i = 0; i < 20; i++)
        step(&p, SOME, 50000, 500);
    assert_int_equal(step(&p, OTHERS, 8000, 500), 0);
    assert_true(p.decode_us < 8001);
}

static void drafts_cost_what_they_were_measured_to(void **state)
{
    (void)state;
    struct pace p = {0};
    double cost[1 + LOOKUP_DRAFT_MAX];
    pace_begin(&p, SOME, false);
    assert_false(pace_drafts(&p, 100, cost)); /* what does one row take? */
    for (int i = 0; i < 4; i++)
        answer(&p, 10000);
    assert_true(pace_drafts(&p, 100, cost));
    assert_true(cost[1] > 1 && cost[7] > cost[1]);
    assert_true(pace_drafts(&p, 8000, cost)); /* deeper, more */
    assert_true(cost[7] > 2);
    for (int i = 0; i < 30; i++)
        pace_measure(&p, &(struct pace_pass){.us = i == 20 ? 900000 : 15000,
                                             .n_decoding = 1,
                                             .n_drafts = 3,
                                             .answer_depth = 100});
    assert_true(pace_drafts(&p, 100, cost));
    assert_true(cost[3] > 1.3 && cost[3] < 1.7);
    for (int k = 1; k <= LOOKUP_DRAFT_MAX; k++)
        assert_true(cost[k] >= cost[k - 1]);
    pace_measure(&p, &(struct pace_pass){.us = 15000, .n_decoding = 1, .n_drafts = 3});
    assert_false(pace_drafts(&p, 100, cost)); /* it is time to see one row again */
    answer(&p, 10000);
    assert_true(pace_drafts(&p, 100, cost));
}

/* Three of four passes wait for the processor, for ten times as long as they take. */
static void other_work_on_the_machine_makes_no_draft_dearer(void **state)
{
    (void)state;
    struct pace p = {0};
    double cost[1 + LOOKUP_DRAFT_MAX];
    pace_begin(&p, SOME, false);
    for (int i = 0; i < 40; i++)
        pace_measure(&p, &(struct pace_pass){.us = i % 4 == 0 ? 10000 : 100000,
                                             .cpu_us = i % 2 ? 16000 : 11500,
                                             .n_decoding = 1,
                                             .n_drafts = i < 8 || i % 2 == 0 ? 0 : 3,
                                             .answer_depth = 100});
    assert_true(pace_drafts(&p, 100, cost));
    assert_true(cost[1] < 1.2 && cost[3] > 1.1 && cost[3] < 1.5);
}

/* Passes of 100 rows at these depths, at 100 us a row and `slope` us more per position. */
static void read_prefix(struct pace *p, int to, double slope)
{
    for (int at = 0; at < to; at += 100)
        read(p, (int64_t)(100 * (100 + slope * (at + 49.5))), 100, at + 49.5);
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
        read(&p, 100 * 200, 100, 50 + i % 3);
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
    read(&p, 16000, 2, 1); /* counted as if it had been 16 rows */
    is_about(pace_prefix_us(&p, 10), 10 * 1000);
    for (int i = 0; i < 5; i++)
        read(&p, 512 * 100, 512, 255.5);
    read(&p, 16000, 2, 1);
    is_about(pace_prefix_us(&p, 10), 10 * 105);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(unmeasured_passes_are_small),
        cmocka_unit_test(alone_a_pass_lasts_the_target),
        cmocka_unit_test(deep_in_a_prompt_a_pass_has_fewer_rows),
        cmocka_unit_test(running_answers_keep_their_share),
        cmocka_unit_test(cheap_rows_ride_in_nearly_every_pass),
        cmocka_unit_test(dear_rows_are_saved_up_for),
        cmocka_unit_test(a_slow_model_still_gets_on),
        cmocka_unit_test(a_quick_model_stays_within_the_scratch),
        cmocka_unit_test(a_stall_of_the_machine_is_no_debt_for_ever),
        cmocka_unit_test(credit_is_not_gathered_while_nobody_reads),
        cmocka_unit_test(other_answers_are_measured_anew),
        cmocka_unit_test(drafts_cost_what_they_were_measured_to),
        cmocka_unit_test(other_work_on_the_machine_makes_no_draft_dearer),
        cmocka_unit_test(a_prefix_costs_what_its_depth_did),
        cmocka_unit_test(beyond_what_was_measured_no_more_is_claimed),
        cmocka_unit_test(without_a_spread_of_depths_a_row_costs_the_mean),
        cmocka_unit_test(a_falling_line_is_noise),
        cmocka_unit_test(a_few_rows_serve_only_until_there_is_better),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
