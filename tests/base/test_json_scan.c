/* The pass before cJSON: what is JSON here and what isn't, with the offset of what is wrong. */
#include "tests/base/testing.h"

#include "base/json.h"
#include "base/json_scan.h"

static void accept(const char *text, size_t n)
{
    struct err e = {0};
    json *j = NULL;
    if (json_scan(text, n, &e) != 0)
        fail_msg("%s: %s", text, e.text);
    assert_int_equal(json_parse(text, n, &j, &e), 0); /* cJSON agrees */
    assert_non_null(j);
    json_free(j);
}

static void refuse(const char *text, size_t n, int code, size_t offset)
{
    struct err e = {0};
    char where[40];
    json *j = NULL;
    snprintf(where, sizeof(where), "offset %zu: ", offset);
    int rc = json_parse(text, n, &j, &e);
    if (rc != code || strncmp(e.text, where, strlen(where)) != 0)
        fail_msg("%s: %d, %s; wanted %d, %s", text, rc, e.text, code, where);
    assert_null(j);
}

#define ACCEPT(s) accept(s, sizeof(s) - 1)
#define REFUSE(s, offset) refuse(s, sizeof(s) - 1, ERR_INVAL, offset)

static void json_is_accepted(void **state)
{
    (void)state;
    ACCEPT("null");
    ACCEPT(" \t\r\n true \t\r\n ");
    ACCEPT("\"\"");
    ACCEPT("[]");
    ACCEPT("{}");
    ACCEPT("[ ]");
    ACCEPT("{ }");
    ACCEPT("[[],{},[[]]]");
    ACCEPT("{\"\":{\"\":[1 , 2 ]} , \"b\" : false}");
    ACCEPT("\"\\\"\\\\\\/\\b\\f\\n\\r\\t\\u00e9\\uFFFF\"");
    ACCEPT("\"h\xC3\xA9 \xF0\x9F\x98\x80\"");
    ACCEPT("\"a\nb\x01\x1f\x7f\""); /* raw control characters do no harm */
}

static void what_is_not_json_is_refused_where_it_begins(void **state)
{
    (void)state;
    REFUSE("", 0);
    REFUSE("  ", 2);
    REFUSE("nul", 0);
    REFUSE("True", 0);
    REFUSE("nullx", 4);
    REFUSE("[1,]", 3);
    REFUSE("[,1]", 1);
    REFUSE("[1 2]", 3);
    REFUSE("[1", 2);
    REFUSE("[", 1);
    REFUSE("{", 1);
    REFUSE("{\"a\"", 4);
    REFUSE("{\"a\":", 5);
    REFUSE("{\"a\":1", 6);
    REFUSE("{\"a\":1,}", 7);
    REFUSE("{\"a\" 1}", 5);
    REFUSE("{a:1}", 1);
    REFUSE("{1:1}", 1);
    REFUSE("{,}", 1);
    REFUSE("[1}", 2);
    REFUSE("{\"a\":1]", 6);
    REFUSE("]", 0);
    REFUSE("\"abc", 0);
    REFUSE("\"abc\\\"", 0);
    REFUSE("'a'", 0);
    REFUSE("\"\\x\"", 1);
    REFUSE("\"\\\"", 0);
    REFUSE("\"\\", 1);
    REFUSE("\"\\u12", 1);
    REFUSE("\"\\u12g4\"", 1);
    REFUSE("NaN", 0);
    REFUSE("Infinity", 0);
    REFUSE("-Infinity", 0);
    REFUSE("[1]\f", 3); /* cJSON takes any control character as white space */
    REFUSE("\v1", 0);
    REFUSE("[1/*c*/]", 2);
}

static void what_follows_the_value_is_refused(void **state)
{
    (void)state;
    REFUSE("{} {}", 3);
    REFUSE("1 2", 2);
    REFUSE("[]]", 2);
    REFUSE("\"a\"x", 3);
    REFUSE("{}\x01", 2);
}

static void numbers_that_cjson_takes_but_json_does_not_are_refused(void **state)
{
    (void)state;
    ACCEPT("0");
    ACCEPT("-0");
    ACCEPT("-0.0e-0");
    ACCEPT("10");
    ACCEPT("1.25");
    ACCEPT("1e5");
    ACCEPT("1E+5");
    ACCEPT("1e-5");
    ACCEPT("1e400");
    REFUSE("01", 0);
    REFUSE("[00]", 1);
    REFUSE("-01", 0);
    REFUSE("1.", 0);
    REFUSE("[1.]", 1);
    REFUSE("1.e5", 0);
    REFUSE(".5", 0);
    REFUSE("+1", 0);
    REFUSE("-", 0);
    REFUSE("--1", 0);
    REFUSE("1e", 0);
    REFUSE("1e+", 0);
    REFUSE("0x10", 1);
    REFUSE("1e5.5", 3);
    REFUSE("1-1", 1);
    REFUSE("1.2.3", 3);
}

static void a_number_of_63_characters_is_the_longest(void **state)
{
    (void)state;
    char text[66];
    memset(text, '1', 64);
    text[64] = '\0';
    accept(text, 63);
    refuse(text, 64, ERR_LIMIT, 0);
}

static void nuls_are_refused_raw_and_escaped(void **state)
{
    (void)state;
    REFUSE("\"a\0b\"", 2);
    REFUSE("{}\0", 2);
    REFUSE("\0", 0);
    REFUSE("{\"k\0x\":1}", 3);
    REFUSE("\"a\\u0000b\"", 2);
    REFUSE("{\"k\\u0000x\":1}", 3);
    ACCEPT("\"\\\\u0000\"");          /* two backslashes: the text \u0000 */
    REFUSE("\"\\\\\\u0000\"", 3);     /* three */
    ACCEPT("\"\\\\\\\\u0000\"");      /* four */
    REFUSE("\"\\\\\\\\\\u0000\"", 5); /* five */
}

static void invalid_utf8_is_refused_wherever_it_is(void **state)
{
    (void)state;
    REFUSE("\"\xFF\"", 1);
    REFUSE("\"\xC0\x80\"", 1);         /* overlong NUL */
    REFUSE("\"\xC1\xBF\"", 1);         /* overlong */
    REFUSE("\"\xE0\x80\xAF\"", 1);     /* overlong */
    REFUSE("\"\xF0\x80\x80\xAF\"", 1); /* overlong */
    REFUSE("\"ab\xED\xA0\x80\"", 3);   /* a surrogate */
    REFUSE("\"\xED\xBF\xBF\"", 1);     /* a surrogate */
    REFUSE("\"\xF4\x90\x80\x80\"", 1); /* above U+10FFFF */
    REFUSE("\"\x80\"", 1);             /* a continuation alone */
    REFUSE("\"\xE4\xB8\"", 1);         /* cut */
    REFUSE("{\"\xE4\xB8\":1}", 2);     /* in a key */
    REFUSE("[1]\xFF", 3);              /* after the value */
    REFUSE("\xEF\xBB\xBF{}", 0);       /* a byte order mark is valid UTF-8, but no JSON */
    REFUSE("\"\xC3", 1);               /* cut by the end */
}

static void half_a_surrogate_pair_is_refused(void **state)
{
    (void)state;
    ACCEPT("\"\\ud83d\\ude00\"");
    ACCEPT("\"\\uD83D\\uDE00x\"");
    REFUSE("\"\\ud83d\"", 1);
    REFUSE("\"\\ud83dx\"", 1);
    REFUSE("\"a\\ude00\"", 2);
    REFUSE("\"\\ude00\\ud83d\"", 1);
    REFUSE("\"\\ud83d\\ud83d\\ude00\"", 1);
    REFUSE("\"\\ud83d\\u0041\"", 1);
    REFUSE("\"\\ud83d\\n\"", 1);
    REFUSE("\"\\ud83d\\\\ude00\"", 1);
    REFUSE("\"\\ud83d\\ude0", 1);
}

static void nesting_of_64_is_the_deepest(void **state)
{
    (void)state;
    char text[200];
    for (int depth = 60; depth < 90; depth++) {
        memset(text, '[', (size_t)depth);
        memset(text + depth, ']', (size_t)depth);
        if (depth <= 64)
            accept(text, 2 * (size_t)depth);
        else
            refuse(text, 2 * (size_t)depth, ERR_LIMIT, 64);
    }
    struct buf b;
    buf_init(&b, SIZE_MAX);
    for (int i = 0; i < 100000; i++)
        buf_str(&b, "{\"a\":[");
    refuse(b.data, b.len, ERR_LIMIT, 6 * 32);
    buf_done(&b);
}

static void a_hundred_thousand_values_are_the_most(void **state)
{
    (void)state;
    struct buf b;
    buf_init(&b, SIZE_MAX);
    buf_str(&b, "[0"); /* the array is a value too */
    for (int i = 2; i < 100000; i++)
        buf_str(&b, ",0");
    size_t n = b.len;
    buf_str(&b, "]");
    accept(b.data, b.len);
    b.data[n] = ',';
    buf_str(&b, "1]");
    refuse(b.data, b.len, ERR_LIMIT, n + 1);
    buf_clear(&b);
    buf_str(&b, "{\"k\":0"); /* keys are not counted */
    for (int i = 2; i < 100000; i++)
        buf_str(&b, ",\"k\":0");
    buf_str(&b, "}");
    accept(b.data, b.len);
    buf_done(&b);
}

/* Whatever the bytes: no crash, and a refused text leaves no tree. Sanitizers watch the exact-size
 * blocks. */
static void random_mutations_are_accepted_or_refused(void **state)
{
    (void)state;
    test_seed();
    static const char seed[] =
        "{\"a\":[1,-2.5e3,\"x\\u00e9\\ud83d\\ude00\",null],\"b\":{\"c\":true}}";
    static const char pool[] = "{}[]:,\"\\u0019aedf.-+ \n\xC3\xA9\xFF";
    int n_accepted = 0;
    for (int round = 0; round < 100000; round++) {
        size_t n = sizeof(seed) - 1;
        char *text = malloc(n);
        assert_non_null(text);
        memcpy(text, seed, n);
        for (uint32_t k = test_random(4); k > 0; k--)
            text[test_random((uint32_t)n)] = pool[test_random(sizeof(pool) - 1)];
        json *j = NULL;
        struct err e = {0};
        int rc = json_parse(text, n, &j, &e);
        assert_true((rc == 0) == (j != NULL));
        assert_true(rc == 0 || rc == ERR_INVAL);
        n_accepted += rc == 0;
        json_free(j);
        free(text);
    }
    assert_true(n_accepted > 1000);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(json_is_accepted),
        cmocka_unit_test(what_is_not_json_is_refused_where_it_begins),
        cmocka_unit_test(what_follows_the_value_is_refused),
        cmocka_unit_test(numbers_that_cjson_takes_but_json_does_not_are_refused),
        cmocka_unit_test(a_number_of_63_characters_is_the_longest),
        cmocka_unit_test(nuls_are_refused_raw_and_escaped),
        cmocka_unit_test(invalid_utf8_is_refused_wherever_it_is),
        cmocka_unit_test(half_a_surrogate_pair_is_refused),
        cmocka_unit_test(nesting_of_64_is_the_deepest),
        cmocka_unit_test(a_hundred_thousand_values_are_the_most),
        cmocka_unit_test(random_mutations_are_accepted_or_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
