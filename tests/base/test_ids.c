/* Token id lists. */
#include "tests/base/testing.h"

#include "base/ids.h"

static void ids_keep_what_was_added_in_order(void **state)
{
    (void)state;
    struct ids a;
    ids_init(&a);
    for (int32_t i = 0; i < 1000; i++)
        assert_int_equal(ids_push(&a, i), 0);
    int32_t more[300];
    for (int32_t i = 0; i < 300; i++)
        more[i] = 1000 + i;
    assert_int_equal(ids_add(&a, more, 300), 0);
    assert_int_equal(ids_add(&a, NULL, 0), 0);
    assert_int_equal(a.n, 1300);
    for (int32_t i = 0; i < 1300; i++)
        assert_int_equal(a.v[i], i);
    ids_done(&a);
    assert_int_equal(a.n, 0);
    ids_done(&a);
    ids_done(NULL);
}

static void a_failed_call_leaves_the_list_alone(void **state)
{
    (void)state;
    struct ids a;
    int32_t one = 1;
    ids_init(&a);
    assert_int_equal(ids_push(&a, 5), 0);
    assert_int_equal(ids_add(&a, &one, IDS_MAX), ERR_LIMIT);
    assert_int_equal(ids_add(&a, &one, SIZE_MAX), ERR_LIMIT);
    int32_t many[100] = {0};
    fault_memory(0);
    int rc = ids_add(&a, many, 100);
    assert_true(fault_end());
    assert_int_equal(rc, ERR_NOMEM);
    assert_int_equal(a.n, 1);
    assert_int_equal(a.v[0], 5);
    ids_done(&a);
}

static void ids_common_counts_the_common_prefix(void **state)
{
    (void)state;
    const int32_t a[] = {1, 2, 3, 4}, b[] = {1, 2, 9, 4};
    assert_int_equal(ids_common(a, 4, b, 4), 2);
    assert_int_equal(ids_common(a, 4, a, 4), 4);
    assert_int_equal(ids_common(a, 4, a, 3), 3);
    assert_int_equal(ids_common(a, 1, a, 4), 1);
    assert_int_equal(ids_common(NULL, 0, a, 4), 0);
    assert_int_equal(ids_common(a + 2, 2, b, 4), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ids_keep_what_was_added_in_order),
        cmocka_unit_test(a_failed_call_leaves_the_list_alone),
        cmocka_unit_test(ids_common_counts_the_common_prefix),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
