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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_monotonic_clock_never_goes_back),
        cmocka_unit_test(units_agree),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
