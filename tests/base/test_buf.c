/* The buffer: growth, ceiling, sticky errors. */
#include "tests/base/testing.h"

#include "base/buf.h"

static void assert_holds(const struct buf *b, const char *data, size_t n)
{
    assert_int_equal(buf_error(b), 0);
    assert_int_equal(b->len, n);
    assert_non_null(b->data);
    assert_memory_equal(b->data, data, n);
    assert_int_equal(b->data[n], '\0');
}

static void an_empty_write_gives_a_terminated_buffer(void **state)
{
    (void)state;
    struct buf b;
    buf_init(&b, 0);
    assert_null(b.data);
    buf_add(&b, NULL, 0);
    assert_holds(&b, "", 0);
    buf_done(&b);
    buf_done(&b); /* twice does no harm */
    buf_done(NULL);
}

static void content_may_hold_nuls(void **state)
{
    (void)state;
    struct buf b;
    buf_init(&b, 100);
    buf_add(&b, "a\0b", 3);
    buf_char(&b, '\0');
    buf_str(&b, "é");
    buf_printf(&b, "%s=%d", "n", 7);
    assert_holds(&b, "a\0b\0\xC3\xA9n=7", 9);
    buf_consume(&b, 2);
    assert_holds(&b, "b\0\xC3\xA9n=7", 7);
    buf_consume(&b, 7);
    assert_holds(&b, "", 0);
    buf_consume(&b, 0);
    buf_done(&b);
}

static void the_ceiling_is_reached_but_not_passed(void **state)
{
    (void)state;
    struct buf b;
    buf_init(&b, 5);
    buf_add(&b, "12345", 5);
    assert_holds(&b, "12345", 5);
    buf_add(&b, "", 0);
    assert_int_equal(buf_error(&b), 0);
    buf_char(&b, '6');
    assert_int_equal(buf_error(&b), ERR_LIMIT);
    assert_int_equal(b.len, 5);
    buf_done(&b);
}

static void a_write_that_does_not_fit_adds_nothing_and_sticks(void **state)
{
    (void)state;
    struct buf b;
    buf_init(&b, 5);
    buf_add(&b, "123", 3);
    buf_printf(&b, "%s", "456");
    assert_int_equal(buf_error(&b), ERR_LIMIT);
    buf_char(&b, '4'); /* would fit, but the buffer has failed */
    assert_null(buf_reserve(&b, 1));
    assert_int_equal(b.len, 3);
    assert_string_equal(b.data, "123");
    assert_null(buf_take(&b, NULL));
    assert_int_equal(buf_error(&b), 0); /* empty again */
    buf_str(&b, "12345");
    assert_holds(&b, "12345", 5);
    buf_done(&b);
}

static void clear_forgets_the_error_and_keeps_the_allocation(void **state)
{
    (void)state;
    struct buf b;
    buf_init(&b, 4);
    buf_str(&b, "12345");
    assert_int_equal(buf_error(&b), ERR_LIMIT);
    buf_clear(&b);
    buf_str(&b, "1234");
    const char *data = b.data;
    buf_clear(&b);
    assert_ptr_equal(b.data, data);
    assert_holds(&b, "", 0);
    buf_done(&b);
}

static void no_length_wraps(void **state)
{
    (void)state;
    struct buf b;
    buf_init(&b, SIZE_MAX);
    buf_str(&b, "x");
    assert_null(buf_reserve(&b, SIZE_MAX));
    assert_int_equal(buf_error(&b), ERR_LIMIT);
    assert_string_equal(b.data, "x");
    buf_done(&b);
}

static void reserved_room_is_terminated_however_much_is_used(void **state)
{
    (void)state;
    struct buf b;
    buf_init(&b, 1000);
    for (size_t use = 0; use <= 100; use++) {
        buf_clear(&b);
        buf_str(&b, "ab");
        char *room = buf_reserve(&b, 100);
        assert_non_null(room);
        memset(room, 'x', use);
        b.len += use;
        assert_int_equal(b.data[b.len], '\0');
    }
    buf_done(&b);
}

static void take_moves_the_bytes(void **state)
{
    (void)state;
    struct buf b;
    size_t n = 0;
    buf_init(&b, 10);
    buf_add(&b, "a\0b", 3);
    char *taken = buf_take(&b, &n);
    assert_int_equal(n, 3);
    assert_memory_equal(taken, "a\0b", 4);
    free(taken);
    assert_null(b.data);
    taken = buf_take(&b, NULL); /* never written: an empty string */
    assert_string_equal(taken, "");
    free(taken);
    buf_done(&b);
}

static void memory_that_runs_out_sticks(void **state)
{
    (void)state;
    bool came = true;
    for (int at = 0; came; at++) {
        struct buf b;
        buf_init(&b, SIZE_MAX);
        fault_memory(at);
        size_t before = 0;
        for (int i = 0; i < 1000; i++) {
            if (!buf_error(&b))
                before = b.len;
            buf_printf(&b, "%d,", i);
        }
        came = fault_end();
        assert_int_equal(buf_error(&b), came ? ERR_NOMEM : 0);
        if (came)
            assert_int_equal(b.len, before);
        buf_done(&b);
    }
}

static void random_writes_match_an_array(void **state)
{
    (void)state;
    test_seed();
    for (int round = 0; round < 200; round++) {
        char model[2000];
        size_t n = 0;
        struct buf b;
        buf_init(&b, sizeof(model));
        while (n < 1500) {
            char piece[200];
            size_t len = test_random(sizeof(piece));
            memset(piece, (int)('a' + test_random(26)), len);
            if (test_random(4) == 0) {
                size_t cut = n ? test_random((uint32_t)n) : 0;
                buf_consume(&b, cut);
                memmove(model, model + cut, n - cut);
                n -= cut;
            }
            buf_add(&b, piece, len);
            memcpy(model + n, piece, len);
            n += len;
            assert_holds(&b, model, n);
        }
        buf_done(&b);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_empty_write_gives_a_terminated_buffer),
        cmocka_unit_test(content_may_hold_nuls),
        cmocka_unit_test(the_ceiling_is_reached_but_not_passed),
        cmocka_unit_test(a_write_that_does_not_fit_adds_nothing_and_sticks),
        cmocka_unit_test(clear_forgets_the_error_and_keeps_the_allocation),
        cmocka_unit_test(no_length_wraps),
        cmocka_unit_test(reserved_room_is_terminated_however_much_is_used),
        cmocka_unit_test(take_moves_the_bytes),
        cmocka_unit_test(memory_that_runs_out_sticks),
        cmocka_unit_test(random_writes_match_an_array),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
