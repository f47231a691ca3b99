/* Percentiles and sums of a replay, against values worked out by hand and against a fool. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include <cmocka.h>

#include "client/replay_stats.h"

#define U REPLAY_UNKNOWN

static struct replay_turn unknown(size_t turn)
{
    return (struct replay_turn){.turn = turn,
                                .prompt = U,
                                .cached = U,
                                .ram = U,
                                .disk = U,
                                .shared = U,
                                .computed = U,
                                .written = U,
                                .ttft_us = U,
                                .saved_ms = NAN};
}

static void a_percentile_lies_between_its_neighbours(void **state)
{
    (void)state;
    const double v[] = {10, 20, 30, 40, 50};
    assert_true(isnan(replay_percentile(v, 0, 50)));
    assert_true(replay_percentile(v, 1, 0) == 10);
    assert_true(replay_percentile(v, 1, 95) == 10);
    assert_true(replay_percentile(v, 2, 50) == 15);
    assert_true(replay_percentile(v, 5, 0) == 10);
    assert_true(replay_percentile(v, 5, 50) == 30);
    assert_true(replay_percentile(v, 5, 25) == 20);
    assert_true(replay_percentile(v, 5, 100) == 50);
    assert_true(fabs(replay_percentile(v, 5, 95) - 48) < 1e-9);
    assert_true(fabs(replay_percentile(v, 4, 95) - 38.5) < 1e-9);
}

static void a_percentile_splits_the_values_where_it_says(void **state)
{
    (void)state;
    unsigned short seed[3] = {(unsigned short)time(NULL), 1, 2};
    printf("seed %u\n", seed[0]);
    double v[200];
    for (int round = 0; round < 200; round++) {
        size_t n = 1 + (size_t)(erand48(seed) * 199);
        double p = 100 * erand48(seed);
        for (size_t i = 0; i < n; i++)
            v[i] = (i ? v[i - 1] : 0) + erand48(seed);
        double x = replay_percentile(v, n, p);
        size_t below = 0;
        while (below < n && v[below] < x)
            below++;
        /* as many values below as the rank says, give or take the one it lies beside */
        assert_true(fabs((double)below - p / 100 * (double)(n - 1)) <= 1);
    }
}

static void a_sum_is_over_what_was_told(void **state)
{
    (void)state;
    struct replay_turn t[3] = {unknown(1), unknown(1), unknown(2)};
    struct replay_sum s;
    struct err e;
    t[0].prompt = 100;
    t[0].cached = 0;
    t[1].prompt = 50; /* its cached is not known: no part of the rate */
    t[2].prompt = 300;
    t[2].cached = 200;
    t[2].ram = 150;
    t[2].saved_ms = 7;
    assert_int_equal(replay_sum(t, 3, 0, &s, &e), 0);
    assert_int_equal(s.n, 3);
    assert_int_equal(s.prompt, 450);
    assert_int_equal(s.cached, 200);
    assert_int_equal(s.ram, 150);
    assert_int_equal(s.disk, U);
    assert_true(fabs(s.hit_rate - 0.5) < 1e-9);
    assert_true(s.saved_ms == 7);
    assert_true(isnan(s.ttft_p50_ms) && isnan(s.tokens_per_s));
    assert_int_equal(replay_sum(t, 3, 1, &s, &e), 0);
    assert_int_equal(s.n, 2);
    assert_int_equal(s.prompt, 150);
    assert_true(s.hit_rate == 0 && isnan(s.saved_ms));
    assert_int_equal(replay_sum(t, 3, 9, &s, &e), 0);
    assert_int_equal(s.n, 0);
    assert_true(isnan(s.hit_rate));
    assert_int_equal(replay_sum(t, 0, 0, &s, &e), 0);
    assert_int_equal(s.n, 0);
    assert_int_equal(replay_last_turn(t, 3), 2);
    assert_int_equal(replay_last_turn(t, 0), 0);
}

static void times_come_in_milliseconds_and_unsorted(void **state)
{
    (void)state;
    struct replay_turn t[4] = {unknown(1), unknown(1), unknown(1), unknown(1)};
    struct replay_sum s;
    struct err e;
    t[0].ttft_us = 30000;
    t[1].ttft_us = 10000;
    t[3].ttft_us = 20000; /* t[2] brought no text */
    assert_int_equal(replay_sum(t, 4, 1, &s, &e), 0);
    assert_true(s.ttft_p50_ms == 20);
    assert_true(fabs(s.ttft_p95_ms - 29) < 1e-9);
}

static void the_pace_is_that_after_the_first_token(void **state)
{
    (void)state;
    struct replay_turn t[3] = {unknown(1), unknown(1), unknown(1)};
    struct replay_sum s;
    struct err e;
    t[0].written = 11; /* ten in one second */
    t[0].decode_us = 1000000;
    t[1].written = 31; /* thirty in another */
    t[1].decode_us = 1000000;
    t[2].written = 1; /* no pace */
    assert_int_equal(replay_sum(t, 3, 0, &s, &e), 0);
    assert_true(fabs(s.tokens_per_s - 20) < 1e-9);
    assert_int_equal(s.written, 43);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_percentile_lies_between_its_neighbours),
        cmocka_unit_test(a_percentile_splits_the_values_where_it_says),
        cmocka_unit_test(a_sum_is_over_what_was_told),
        cmocka_unit_test(times_come_in_milliseconds_and_unsorted),
        cmocka_unit_test(the_pace_is_that_after_the_first_token),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
