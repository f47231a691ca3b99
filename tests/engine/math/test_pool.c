/* The pool: each item once, everything written before is seen, and after; with any number of
 * threads, and with threads that come too late. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <xmmintrin.h>

#include <cmocka.h>

#include "base/clock.h"
#include "engine/kernels.h"
#include "engine/pool.h"

struct sums {
    int n, round;
    int *in, *out; /* plain memory: the pool orders it */
    atomic_int used[64];
    int busy[64];
};

static void add_item(void *ctx, int item, int thread)
{
    struct sums *s = ctx;
    atomic_fetch_add(&s->used[thread], 1);
    s->busy[thread]++;
    s->out[item] += s->in[item] + s->round;
}

static void each_item_runs_once_and_is_seen(void **state)
{
    (void)state;
    for (int threads = 1; threads <= 5; threads++) {
        struct pool *p;
        struct err e = {0};
        struct sums s = {0};
        assert_int_equal(pool_new(threads, &p, &e), 0);
        assert_int_equal(pool_n_threads(p), threads);
        s.in = calloc(1000, sizeof *s.in);
        s.out = calloc(1000, sizeof *s.out);
        assert_true(s.in && s.out);
        int64_t want = 0, got = 0;
        const struct pool_ahead ahead[2] = {
            {.from = {(void *)s.in, (void *)s.out}, .n_streams = 2, .n_lines = 60},
            {.from = {(void *)s.in}, .n_streams = 1, .n_lines = 10, .thread_bytes = 640}};
        for (s.round = 0; s.round < 2000; s.round++) {
            const int n = s.round % 7 == 0 ? 1000 : s.round % 13;
            for (int i = 0; i < n; i++) {
                s.in[i] = i;
                want += i + s.round;
            }
            pool_set_ahead(p, s.round % 3 ? &ahead[s.round % 2] : NULL); /* of no account */
            pool_run(p, add_item, &s, n);
            /* now and then long enough for the threads to fall asleep */
            if (s.round % 500 == 0)
                nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
        }
        for (int i = 0; i < 1000; i++)
            got += s.out[i];
        assert_true(got == want);
        for (int i = 0; i < 64; i++) {
            assert_int_equal(s.busy[i], atomic_load(&s.used[i]));
            assert_true(i < threads || s.busy[i] == 0);
        }
        free(s.in);
        free(s.out);
        pool_free(p);
    }
}

static void read_mode(void *ctx, int item, int thread)
{
    unsigned *mode = ctx;
    (void)item;
    mode[thread] = _mm_getcsr() & 0xffc0;
}

static void threads_round_to_nearest_and_keep_subnormals(void **state)
{
    (void)state;
    struct pool *p;
    struct err e = {0};
    unsigned mode[3] = {0x1f80, 0x1f80, 0x1f80};
    const unsigned before = _mm_getcsr();
    _mm_setcsr(before |
               0x8040); /* a library has set flush-to-zero on the thread that starts the pool */
    assert_int_equal(pool_new(3, &p, &e), 0);
    const uint32_t saved = numerics_enter();
    for (int i = 0; i < 200; i++)
        pool_run(p, read_mode, mode, 64);
    numerics_leave(saved);
    assert_int_equal(_mm_getcsr() & 0x8040, 0x8040); /* the caller's own is back */
    _mm_setcsr(before);
    for (int i = 0; i < 3; i++)
        assert_int_equal(mode[i], 0x1f80);
    pool_free(p);
}

static int64_t cpu_us(void)
{
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (int64_t)t.tv_sec * 1000000 + t.tv_nsec / 1000;
}

static void nobody_runs_between_runs(void **state)
{
    (void)state;
    struct pool *p;
    struct err e = {0};
    unsigned mode[64];
    assert_int_equal(pool_new(4, &p, &e), 0);
    pool_run(p, read_mode, mode, 64);
    nanosleep(&(struct timespec){.tv_nsec = 5000000}, NULL);
    const int64_t before = cpu_us();
    nanosleep(&(struct timespec){.tv_nsec = 50000000}, NULL);
    assert_true(cpu_us() - before <
                5000); /* 4 spinning threads would use at least one core for 50 ms */
    pool_free(p);
}

static void counts_that_cannot_be_are_refused(void **state)
{
    (void)state;
    struct pool *p = NULL;
    struct err e = {0};
    assert_int_equal(pool_new(0, &p, &e), ERR_INVAL);
    assert_int_equal(pool_new(POOL_THREADS_MAX + 1, &p, &e), ERR_INVAL);
    assert_null(p);
    pool_free(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_item_runs_once_and_is_seen),
        cmocka_unit_test(threads_round_to_nearest_and_keep_subnormals),
        cmocka_unit_test(nobody_runs_between_runs),
        cmocka_unit_test(counts_that_cannot_be_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
