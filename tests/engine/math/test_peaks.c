/* The bench's limits: they are measured, whatever the threads and kernels, and refuse what isn't
 * there. No figure is judged: the machine may be busy. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "engine/peaks.h"

static void every_limit_is_measured(void **state)
{
    (void)state;
    for (int threads = 1; threads <= 3; threads += 2) {
        struct peaks p = {0};
        struct err e = {0};
        assert_int_equal(peaks_measure(threads, NULL, &p, &e), 0);
        assert_true(p.read_bytes_per_s > 0 && p.int_ops_per_s > 0 && p.float_ops_per_s > 0);
    }
}

static void what_is_not_there_is_refused_by_name(void **state)
{
    (void)state;
    struct peaks p = {1, 2, 3};
    struct err e = {0};
    assert_int_equal(peaks_measure(1, "abacus", &p, &e), ERR_INVAL);
    assert_non_null(strstr(e.text, "abacus"));
    assert_int_equal(peaks_measure(-1, NULL, &p, &e), ERR_INVAL);
    assert_true(p.read_bytes_per_s == 1 && p.int_ops_per_s == 2 && p.float_ops_per_s == 3);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_limit_is_measured),
        cmocka_unit_test(what_is_not_there_is_refused_by_name),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
