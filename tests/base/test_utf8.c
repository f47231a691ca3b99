/* UTF-8 against an oracle that decodes by arithmetic and tries every completion of a prefix. */
#include "tests/base/testing.h"

#include "base/utf8.h"

#define FFFD "\xEF\xBF\xBD"

/* Length of the one character that s[0, n) is exactly, or 0. */
static size_t oracle_char(const unsigned char *s, size_t n)
{
    static const uint32_t least[] = {0, 0, 0x80, 0x800, 0x10000};
    if (n == 1)
        return s[0] < 0x80;
    if (n < 2 || n > 4 || (uint32_t)s[0] >> (7 - n) != (1u << (n + 1)) - 2)
        return 0;
    uint32_t cp = s[0] & ((1u << (7 - n)) - 1);
    for (size_t i = 1; i < n; i++) {
        if (s[i] >> 6 != 2)
            return 0;
        cp = cp << 6 | (s[i] & 63u);
    }
    bool is_bad = cp < least[n] || (cp >= 0xD800 && cp < 0xE000) || cp > 0x10FFFF;
    return is_bad ? 0 : n;
}

/* true when some bytes after s[0, n) make a character of it. */
static bool oracle_prefix(const unsigned char *s, size_t n)
{
    for (size_t len = n + 1; len <= 4; len++) {
        unsigned char t[4] = {0x80, 0x80, 0x80, 0x80};
        memcpy(t, s, n);
        for (int second = 0x80; second < 0xC0; second++) {
            t[n] = (unsigned char)second; /* only the second byte has ranges of its own */
            if (oracle_char(t, len))
                return true;
        }
    }
    return false;
}

static size_t oracle_step(const unsigned char *s, size_t n, bool *ok)
{
    for (size_t len = 1; len <= 4 && len <= n; len++)
        if ((*ok = oracle_char(s, len) > 0))
            return len;
    size_t bad = 1;
    while (bad < 3 && bad < n && oracle_prefix(s, bad + 1))
        bad++;
    return bad;
}

static size_t oracle_complete(const unsigned char *s, size_t n)
{
    for (size_t back = 1; back <= 3 && back <= n; back++)
        if (oracle_prefix(s + n - back, back))
            return n - back;
    return n;
}

static void oracle_repair(struct buf *b, const unsigned char *s, size_t n)
{
    for (size_t i = 0; i < n;) {
        bool ok;
        size_t step = oracle_step(s + i, n - i, &ok);
        buf_add(b, ok ? (const char *)s + i : FFFD, ok ? step : 3);
        i += step;
    }
}

/* Bytes that meet the borders of the encoding much more often than chance. */
static unsigned char border_byte(void)
{
    static const unsigned char borders[] = {0x00, 0x41, 0x7F, 0x80, 0x8F, 0x90, 0x9F, 0xA0, 0xBF,
                                            0xC0, 0xC1, 0xC2, 0xDF, 0xE0, 0xE1, 0xEC, 0xED, 0xEE,
                                            0xEF, 0xF0, 0xF1, 0xF3, 0xF4, 0xF5, 0xF8, 0xFE, 0xFF};
    return test_random(3) ? borders[test_random(ARRAY_LEN(borders))]
                          : (unsigned char)test_random(256);
}

static void compare_with_oracle(const unsigned char *s, size_t n)
{
    size_t bad = SIZE_MAX, want_bad = SIZE_MAX;
    for (size_t i = 0; i < n && want_bad == SIZE_MAX;) {
        bool ok;
        size_t step = oracle_step(s + i, n - i, &ok);
        if (!ok)
            want_bad = i;
        i += step;
    }
    assert_int_equal(utf8_valid((const char *)s, n, &bad), want_bad == SIZE_MAX);
    assert_true(bad == want_bad);
    assert_int_equal(utf8_complete((const char *)s, n), oracle_complete(s, n));

    struct buf got, want;
    buf_init(&got, SIZE_MAX);
    buf_init(&want, SIZE_MAX);
    utf8_repair(&got, (const char *)s, n);
    oracle_repair(&want, s, n);
    assert_int_equal(got.len, want.len);
    if (got.len > 0)
        assert_memory_equal(got.data, want.data, got.len);
    assert_true(got.len == 0 || utf8_valid(got.data, got.len, NULL));
    buf_done(&got);
    buf_done(&want);
}

static void random_bytes_match_the_oracle(void **state)
{
    (void)state;
    test_seed();
    for (int round = 0; round < 60000; round++) {
        unsigned char s[24];
        size_t n = test_random(sizeof(s) + 1);
        for (size_t i = 0; i < n; i++)
            s[i] = border_byte();
        compare_with_oracle(s, n);
    }
}

static void every_two_and_three_bytes_match_the_oracle(void **state)
{
    (void)state;
    static const unsigned char third[] = {0x00, 0x7F, 0x80, 0xBF, 0xC0, 0xE1};
    for (unsigned a = 0; a < 256; a++) {
        for (unsigned b = 0; b < 256; b++) {
            for (size_t c = 0; c < sizeof(third); c++) {
                const unsigned char s[] = {(unsigned char)a, (unsigned char)b, third[c]};
                bool ok, want_ok;
                size_t step = utf8_step((const char *)s, 3, &ok);
                assert_int_equal(step, oracle_step(s, 3, &want_ok));
                assert_int_equal(ok, want_ok);
            }
        }
    }
}

static void every_code_point_goes_both_ways(void **state)
{
    (void)state;
    for (uint32_t cp = 0; cp <= 0x10FFFF; cp++) {
        if (cp == 0xD800)
            cp = 0xE000;
        char s[4];
        size_t n = (size_t)utf8_put(s, cp), i = 0;
        if (!utf8_valid(s, n, NULL) || utf8_next(s, n, &i) != cp || i != n)
            fail_msg("U+%04X", cp);
    }
}

/* What a sender does: hold back what may still become a character, repair the rest. */
static void stream(struct buf *out, const char *s, const size_t *cuts, size_t n_cuts)
{
    struct buf held;
    buf_init(&held, SIZE_MAX);
    size_t from = 0;
    for (size_t k = 0; k < n_cuts; k++) {
        buf_add(&held, s + from, cuts[k] - from);
        from = cuts[k];
        size_t n = k + 1 < n_cuts ? utf8_complete(held.data, held.len) : held.len;
        utf8_repair(out, held.data, n);
        buf_consume(&held, n);
        assert_true(held.len <= 3);
    }
    buf_done(&held);
}

static void every_split_of_a_stream_gives_the_same_text(void **state)
{
    (void)state;
    static const char text[] = "a\xC3\xA9\xE4\xB8\xAD\xF0\x9F\x98\x80" /* é 中 😀 */
                               "\xE4\xB8z\xF0\x9F\x98\xFF\x80\xC0\x80\xED\xA0\x80\xF4\x90\x80\x80"
                               "\xF0\x9F\xC3\xA9\xE4";
    size_t n = sizeof(text) - 1;
    struct buf whole, parts;
    buf_init(&whole, SIZE_MAX);
    buf_init(&parts, SIZE_MAX);
    utf8_repair(&whole, text, n);
    for (size_t i = 0; i <= n; i++) {
        for (size_t k = i; k <= n; k++) {
            buf_clear(&parts);
            stream(&parts, text, (size_t[]){i, k, n}, 3);
            assert_string_equal(parts.data, whole.data);
        }
    }
    size_t each[64];
    for (size_t i = 0; i < n; i++)
        each[i] = i + 1;
    buf_clear(&parts);
    stream(&parts, text, each, n);
    assert_string_equal(parts.data, whole.data);
    buf_done(&whole);
    buf_done(&parts);
}

static void ill_formed_parts_are_replaced_as_the_standard_says(void **state)
{
    (void)state;
    /* Unicode 15, tables 3-8 to 3-11 */
    static const struct {
        const char *in, *out;
    } cases[] = {
        {"\xC0\xAF\xE0\x80\xBF\xF0\x81\x82\x41", FFFD FFFD FFFD FFFD FFFD FFFD FFFD FFFD "A"},
        {"\xED\xA0\x80\xED\xBF\xBF\xED\xAF\x41", FFFD FFFD FFFD FFFD FFFD FFFD FFFD FFFD "A"},
        {"\xF4\x91\x92\x93\xFF\x41\x80\xBF\x42", FFFD FFFD FFFD FFFD FFFD "A" FFFD FFFD "B"},
        {"\xE1\x80\xE2\xF0\x91\x92\xF1\xBF\x41", FFFD FFFD FFFD FFFD "A"},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct buf b;
        buf_init(&b, 100);
        utf8_repair(&b, cases[i].in, strlen(cases[i].in));
        assert_string_equal(b.data, cases[i].out);
        buf_done(&b);
    }
}

static void widths_are_terminal_columns(void **state)
{
    (void)state;
    static const struct {
        const char *s;
        size_t width;
    } cases[] = {{"", 0}, {"abc", 3}, {"é", 1}, {"e\xCC\x81", 1}, {"中文", 4}, {"😀", 2}};
    for (size_t i = 0; i < ARRAY_LEN(cases); i++)
        assert_int_equal(utf8_width(cases[i].s, strlen(cases[i].s)), cases[i].width);
}

static void a_nul_is_a_character(void **state)
{
    (void)state;
    assert_true(utf8_valid("a\0b", 3, NULL));
    assert_int_equal(utf8_complete("a\0", 2), 2);
    size_t i = 1;
    assert_int_equal(utf8_next("a\0b", 3, &i), 0);
    assert_int_equal(i, 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(random_bytes_match_the_oracle),
        cmocka_unit_test(every_two_and_three_bytes_match_the_oracle),
        cmocka_unit_test(every_code_point_goes_both_ways),
        cmocka_unit_test(every_split_of_a_stream_gives_the_same_text),
        cmocka_unit_test(ill_formed_parts_are_replaced_as_the_standard_says),
        cmocka_unit_test(widths_are_terminal_columns),
        cmocka_unit_test(a_nul_is_a_character),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
