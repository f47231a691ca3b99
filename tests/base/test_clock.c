/* Clocks: units and order. */
#include "tests/base/testing.h"

#include "base/clock.h"

static void the_monotonic_clock_never_goes_back(void **state)
{
    (void)state;
    int64_t last = clock_us();
    for (int i = 0; i < 10000; i++) {
        int64_t now = clock_us();
        assert_true(now >= last);
        last = now;
    }
}

static void units_agree(void **state)
{
    (void)state;
    int64_t before = clock_us(), ms = clock_ms(), after = clock_us();
    assert_in_range(ms, before / 1000, after / 1000);
    int64_t wall = (int64_t)time(NULL);
    assert_in_range(clock_wall_s(), wall - 1, wall + 10);
}

/* Waiting takes none, work does. */
static void processor_time_is_of_work(void **state)
{
    (void)state;
    const int64_t before = clock_cpu_us();
    volatile unsigned n = 0;
    while (clock_cpu_us() < before + 2000)
        n++;
    assert_true(n > 0);
    const int64_t wall = clock_us(), cpu = clock_cpu_us();
    nanosleep(&(struct timespec){.tv_nsec = 50 * 1000 * 1000}, NULL);
    assert_true(clock_us() - wall >= 50000);
    assert_true(clock_cpu_us() - cpu < 40000);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_monotonic_clock_never_goes_back),
        cmocka_unit_test(units_agree),
        cmocka_unit_test(processor_time_is_of_work),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
