/* Error texts: codes, cuts, repair, NULL. */
#include "tests/base/testing.h"

#include "base/err.h"
#include "base/utf8.h"

static void assert_sane(const struct err *e)
{
    size_t n = strnlen(e->text, ERR_TEXT_BYTES);
    assert_true(n < ERR_TEXT_BYTES);
    assert_true(utf8_valid(e->text, n, NULL));
}

static void err_set_writes_code_and_text_and_returns_the_code(void **state)
{
    (void)state;
    struct err e = {0};
    assert_int_equal(err_set(&e, ERR_LIMIT, "ctx is %d, more than %d", 9000, 8192), ERR_LIMIT);
    assert_int_equal(e.code, ERR_LIMIT);
    assert_string_equal(e.text, "ctx is 9000, more than 8192");
}

static void a_missing_err_is_allowed_everywhere(void **state)
{
    (void)state;
    assert_int_equal(err_set(NULL, ERR_BUSY, "x"), ERR_BUSY);
    assert_int_equal(err_sys(NULL, ENOENT, "x"), ERR_IO);
    assert_int_equal(err_sys(NULL, ENOMEM, "x"), ERR_NOMEM);
    assert_int_equal(err_prefix(NULL, "x"), 0);
}

static void err_sys_appends_the_reason(void **state)
{
    (void)state;
    struct err e;
    assert_int_equal(err_sys(&e, ENOSPC, "%s: writing", "/var/x"), ERR_IO);
    assert_string_equal(e.text, "/var/x: writing: No space left on device");
    assert_int_equal(err_sys(&e, ENOMEM, "map"), ERR_NOMEM);
    assert_int_equal(e.code, ERR_NOMEM);
}

static void err_prefix_keeps_code_and_text(void **state)
{
    (void)state;
    struct err e;
    err_set(&e, ERR_CORRUPT, "block 3: checksum");
    assert_int_equal(err_prefix(&e, "%s", "file.kv"), ERR_CORRUPT);
    assert_string_equal(e.text, "file.kv: block 3: checksum");
}

static void arguments_may_point_into_the_old_text(void **state)
{
    (void)state;
    struct err e;
    err_set(&e, ERR_IO, "inner");
    err_set(&e, ERR_INVAL, "outer (%s)", e.text);
    assert_string_equal(e.text, "outer (inner)");
}

static void a_long_text_is_cut_between_characters_and_marked(void **state)
{
    (void)state;
    static const char *const units[] = {"x", "é", "中", "😀", "a\xFF", "\xE4\xB8"};
    for (size_t u = 0; u < ARRAY_LEN(units); u++) {
        char text[3000] = "";
        size_t len = strlen(units[u]), repaired = 0;
        struct buf b;
        for (size_t n = 0; (n + 1) * len < sizeof(text); n++) {
            buf_init(&b, SIZE_MAX);
            utf8_repair(&b, text, n * len);
            repaired = b.len;
            struct err e;
            err_set(&e, ERR_INVAL, "%s", text);
            assert_sane(&e);
            size_t kept = strlen(e.text);
            if (repaired < ERR_TEXT_BYTES && n * len < ERR_TEXT_BYTES)
                assert_string_equal(e.text, b.data ? b.data : "");
            else {
                assert_string_equal(e.text + kept - 3, "...");
                assert_true(kept >= ERR_TEXT_BYTES - 8);
                assert_memory_equal(e.text, b.data, kept - 3);
            }
            buf_done(&b);
            memcpy(text + n * len, units[u], len + 1);
        }
    }
}

static void random_bytes_leave_valid_text(void **state)
{
    (void)state;
    test_seed();
    for (int round = 0; round < 3000; round++) {
        char raw[1500];
        size_t n = test_random(sizeof(raw));
        for (size_t i = 0; i < n; i++)
            raw[i] = (char)(1 + test_random(255));
        raw[n] = '\0';
        struct err e;
        err_set(&e, ERR_INVAL, "%s", raw);
        assert_sane(&e);
        err_prefix(&e, "%s", raw);
        assert_sane(&e);
        err_sys(&e, EACCES, "%s", raw);
        assert_sane(&e);
    }
}

static void every_code_has_a_name(void **state)
{
    (void)state;
    for (int code = ERR_FULL; code < 0; code++)
        assert_string_not_equal(err_name(code), "unknown");
    assert_string_equal(err_name(ERR_NOMEM), "nomem");
    assert_string_equal(err_name(ERR_UNSUPPORTED), "unsupported");
    assert_string_equal(err_name(ERR_FULL), "full");
    assert_string_equal(err_name(0), "ok");
    assert_string_equal(err_name(ERR_FULL - 1), "unknown");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(err_set_writes_code_and_text_and_returns_the_code),
        cmocka_unit_test(a_missing_err_is_allowed_everywhere),
        cmocka_unit_test(err_sys_appends_the_reason),
        cmocka_unit_test(err_prefix_keeps_code_and_text),
        cmocka_unit_test(arguments_may_point_into_the_old_text),
        cmocka_unit_test(a_long_text_is_cut_between_characters_and_marked),
        cmocka_unit_test(random_bytes_leave_valid_text),
        cmocka_unit_test(every_code_has_a_name),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
