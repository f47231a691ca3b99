/* Trees: look-ups, numbers both ways, building, writing, no memory. */
#include "tests/base/testing.h"

#include <locale.h>
#include <math.h>

#include "base/json.h"

#define TWO_53 9007199254740992LL

static json *parse(const char *text)
{
    json *j = NULL;
    struct err e = {0};
    if (json_parse(text, strlen(text), &j, &e) < 0)
        fail_msg("%s: %s", text, e.text);
    return j;
}

/* Writes the tree, frees it, compares. */
static void expect_text(json *j, const char *want)
{
    struct buf b;
    buf_init(&b, SIZE_MAX);
    json_write(j, &b);
    assert_int_equal(buf_error(&b), 0);
    assert_string_equal(b.data, want);
    buf_done(&b);
    json_free(j);
}

static void types_have_their_names(void **state)
{
    (void)state;
    static const struct {
        const char *text, *name;
        enum json_type type;
    } cases[] = {
        {"null", "null", JSON_NULL},     {"true", "boolean", JSON_BOOL},
        {"false", "boolean", JSON_BOOL}, {"1", "number", JSON_NUMBER},
        {"\"\"", "string", JSON_STRING}, {"[]", "array", JSON_ARRAY},
        {"{}", "object", JSON_OBJECT},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        json *j = parse(cases[i].text);
        assert_int_equal(json_type(j), cases[i].type);
        assert_string_equal(json_type_name(json_type(j)), cases[i].name);
        json_free(j);
    }
    assert_int_equal(json_type(NULL), JSON_ABSENT);
    assert_string_equal(json_type_name(JSON_ABSENT), "nothing");
    json_free(NULL);
}

static void keys_are_case_sensitive_and_null_is_absent(void **state)
{
    (void)state;
    json *j = parse("{\"Model\":1,\"model\":2,\"none\":null,\"\":3}");
    struct err e = {0};
    assert_true(json_double(json_get(j, "model", &e)) == 2);
    assert_true(json_double(json_get(j, "Model", &e)) == 1);
    assert_null(json_get(j, "MODEL", &e));
    assert_null(json_get(j, "none", &e));
    assert_true(json_double(json_get(j, "", &e)) == 3);
    assert_int_equal(e.code, 0);
    assert_null(json_get(NULL, "x", &e));
    assert_null(json_get(json_get(j, "model", NULL), "x", &e)); /* a number has no members */
    json_free(j);
}

static void a_doubled_key_is_an_error_of_the_look_up_that_meets_it(void **state)
{
    (void)state;
    json *j = parse("{\"a\":1,\"b\":2,\"\\u0061\":3,\"n\":null,\"n\":null}");
    struct err e = {0};
    assert_non_null(json_get(j, "b", &e));
    assert_int_equal(e.code, 0);
    assert_null(json_get(j, "a", &e));
    assert_int_equal(e.code, ERR_INVAL);
    assert_non_null(strstr(e.text, "\"a\""));
    assert_true(json_double(json_get(j, "a", NULL)) == 1);
    json_free(j);
}

/* The doubled key of a text, or "". */
static const char *doubled_in(const char *text)
{
    static char found[64];
    json *j = parse(text);
    const char *key = NULL;
    struct err e;
    int rc = json_check_keys(j, &key, &e);
    assert_int_equal(rc, key ? ERR_INVAL : 0);
    if (key)
        assert_non_null(strstr(e.text, key));
    snprintf(found, sizeof(found), "%s", key ? key : "");
    json_free(j);
    return found;
}

static void a_doubled_key_is_found_anywhere(void **state)
{
    (void)state;
    assert_string_equal(doubled_in("{}"), "");
    assert_string_equal(doubled_in("[]"), "");
    assert_string_equal(doubled_in("1"), "");
    assert_string_equal(doubled_in("{\"a\":{\"a\":{\"a\":1},\"b\":2},\"A\":[{\"a\":1},{\"a\":2}]}"),
                        "");
    assert_string_equal(doubled_in("{\"a\":1,\"\\u0061\":1}"), "a");
    assert_string_equal(doubled_in("{\"n\":null,\"m\":1,\"n\":null}"), "n");
    assert_string_equal(doubled_in("[[],{},[1,{\"x\":[{\"k\":1,\"l\":{},\"k\":2}]}],3]"), "k");
    assert_string_equal(doubled_in("{\"x\":{\"y\":{}},\"z\":{\"k\":[],\"k\":{}}}"), "k");
    struct buf b;
    buf_init(&b, 1000);
    for (int i = 0; i < JSON_DEPTH_MAX - 1; i++)
        buf_str(&b, "[");
    buf_str(&b, "{\"k\":1,\"k\":1}");
    for (int i = 0; i < JSON_DEPTH_MAX - 1; i++)
        buf_str(&b, "]");
    assert_string_equal(doubled_in(b.data), "k");
    buf_done(&b);
}

static void many_keys_are_checked(void **state)
{
    (void)state;
    struct buf b;
    buf_init(&b, 8u << 20);
    buf_str(&b, "{\"k1\":0");
    for (int i = 99998; i > 1; i--)
        buf_printf(&b, ",\"k%d\":0", i);
    buf_str(&b, "}");
    assert_string_equal(doubled_in(b.data), "");
    b.data[b.len - 5] = '1'; /* "k2" */
    assert_string_equal(doubled_in(b.data), "k1");
    buf_done(&b);
}

static void members_and_items_are_walked_in_order(void **state)
{
    (void)state;
    json *j = parse("{\"a\":[10,20,30],\"b\":{},\"c\":\"x\"}");
    char keys[10] = "";
    size_t n = 0;
    for (const json *it = json_first(j); it; it = json_next(it))
        keys[n++] = json_key(it)[0];
    assert_string_equal(keys, "abc");
    assert_int_equal(json_count(j), 3);
    double sum = 0;
    for (const json *it = json_first(json_get(j, "a", NULL)); it; it = json_next(it))
        sum = sum * 100 + json_double(it);
    assert_true(sum == 102030);
    assert_int_equal(json_count(json_get(j, "b", NULL)), 0);
    assert_int_equal(json_count(json_get(j, "c", NULL)), 0);
    assert_null(json_first(json_get(j, "c", NULL)));
    assert_null(json_first(NULL));
    json_free(j);
}

static void values_of_another_type_read_as_nothing(void **state)
{
    (void)state;
    json *s = parse("\"text\""), *t = parse("true"), *n = parse("1.5");
    assert_string_equal(json_str(s), "text");
    assert_null(json_str(t));
    assert_null(json_str(NULL));
    assert_true(json_bool(t));
    assert_false(json_bool(s));
    assert_false(json_bool(NULL));
    assert_true(json_double(n) == 1.5);
    assert_true(json_double(s) == 0);
    json_free(s);
    json_free(t);
    json_free(n);
}

static int int_of(const char *text, int64_t min, int64_t max, int64_t *ret, struct err *e)
{
    json *j = parse(text);
    int rc = json_int(j, "seed", min, max, ret, e);
    json_free(j);
    return rc;
}

static void integers_are_exact_up_to_2_to_the_53(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        int64_t want; /* 0: refused */
    } cases[] = {
        {"1", 1},
        {"-1", -1},
        {"2147483648", 2147483648},
        {"9007199254740991", TWO_53 - 1},
        {"-9007199254740991", -(TWO_53 - 1)},
        {"9007199254740992", 0},
        {"9007199254740993", 0},
        {"-9007199254740992", 0},
        {"18446744073709551616", 0},
        {"1.0", 1},
        {"1e3", 1000},
        {"1.5", 0},
        {"0.1", 0},
        {"-2.000001", 0},
        {"1e400", 0},
        {"-1e400", 0},
        {"true", 0},
        {"null", 0},
        {"\"1\"", 0},
        {"[1]", 0},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        int64_t got = 77;
        struct err e = {0};
        int rc = int_of(cases[i].text, INT64_MIN, INT64_MAX, &got, &e);
        assert_int_equal(rc, cases[i].want ? 0 : ERR_INVAL);
        assert_true(got == (cases[i].want ? cases[i].want : 77));
        if (rc < 0)
            assert_non_null(strstr(e.text, "seed"));
    }
}

static void errors_of_integers_name_field_value_and_range(void **state)
{
    (void)state;
    int64_t got = 0;
    struct err e;
    assert_int_equal(int_of("9", 1, 8, &got, &e), ERR_INVAL);
    assert_string_equal(e.text, "seed must be from 1 to 8; it is 9");
    assert_int_equal(int_of("0", 1, 8, &got, &e), ERR_INVAL);
    assert_int_equal(int_of("8", 1, 8, &got, &e), 0);
    assert_int_equal(int_of("1", 1, 8, &got, &e), 0);
    assert_int_equal(int_of("1.5", 1, 8, &got, &e), ERR_INVAL);
    assert_string_equal(e.text, "seed must be an integer; 1.5 is not");
    assert_int_equal(int_of("\"x\"", 1, 8, &got, &e), ERR_INVAL);
    assert_string_equal(e.text, "seed must be an integer, not string");
    assert_int_equal(int_of("9007199254740992", 0, INT64_MAX, &got, &e), ERR_INVAL);
    assert_string_equal(e.text, "seed must be from 0 to 9007199254740991; it is 9007199254740992");
    assert_int_equal(json_int(NULL, "n", 0, 1, &got, &e), ERR_INVAL);
    assert_string_equal(e.text, "n must be an integer, not nothing");
}

static void numbers_are_finite_and_within_their_range(void **state)
{
    (void)state;
    static const struct {
        const char *text, *error;
    } cases[] = {
        {"0", NULL},
        {"2", NULL},
        {"0.25", NULL},
        {"2.5", "temperature must be from 0 to 2; it is 2.5"},
        {"-1e-9", "temperature must be from 0 to 2; it is -1e-09"},
        {"1e400", "temperature is not a finite number"},
        {"false", "temperature must be a number, not boolean"},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        json *j = parse(cases[i].text);
        double got = 77;
        struct err e = {0};
        int rc = json_num(j, "temperature", 0, 2, &got, &e);
        assert_int_equal(rc, cases[i].error ? ERR_INVAL : 0);
        assert_string_equal(e.text, cases[i].error ? cases[i].error : "");
        assert_true((got == 77) == (rc < 0));
        json_free(j);
    }
}

static void integers_are_written_exactly(void **state)
{
    (void)state;
    static const int64_t cases[] = {
        0,          1,      -1,         INT32_MAX,   2147483648, 1000000000000000,
        TWO_53 - 1, TWO_53, TWO_53 + 1, -TWO_53 - 1, INT64_MAX,  INT64_MIN};
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        char want[100];
        snprintf(want, sizeof(want), "{\"n\":%lld,\"a\":[%lld]}", (long long)cases[i],
                 (long long)cases[i]);
        json *j = json_object();
        assert_non_null(json_set_int(j, "n", cases[i]));
        json_add_int(json_set(j, "a", json_array()), cases[i]);
        assert_int_equal(json_type(json_get(j, "n", NULL)), JSON_NUMBER);
        assert_true(json_double(json_get(j, "n", NULL)) == (double)cases[i]);
        json *copy = json_copy(j);
        expect_text(j, want);
        expect_text(copy, want);
    }
    expect_text(parse("9007199254740992"), "9007199254740992");
    expect_text(parse("-9007199254740991"), "-9007199254740991");
}

static void a_large_integer_of_ours_is_still_out_of_range(void **state)
{
    (void)state;
    json *j = json_object();
    int64_t got = 0;
    struct err e;
    json_set_int(j, "n", INT64_MAX);
    assert_int_equal(json_int(json_get(j, "n", NULL), "n", 0, INT64_MAX, &got, &e), ERR_INVAL);
    json_free(j);
}

static void doubles_are_written_short_and_read_back_the_same(void **state)
{
    (void)state;
    static const struct {
        double value;
        const char *want;
    } cases[] = {
        {0.1, "0.1"},
        {0.7, "0.7"},
        {1.5, "1.5"},
        {-2.5e-3, "-0.0025"},
        {1e22, "1e+22"},
        {5e-324, NULL},
        {-0.0, "-0"},
        {100, "100"},
        {1.7976931348623157e308, "1.7976931348623157e+308"},
        {0.1 + 0.2, "0.30000000000000004"},
        {INFINITY, "null"},
        {-INFINITY, "null"},
        {NAN, "null"},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        json *j = json_array();
        json_add_num(j, cases[i].value);
        char want[60];
        snprintf(want, sizeof(want), "[%s]", cases[i].want ? cases[i].want : "");
        struct buf b;
        buf_init(&b, 100);
        json_write(j, &b);
        if (cases[i].want)
            assert_string_equal(b.data, want);
        if (isfinite(cases[i].value))
            assert_true(strtod(b.data + 1, NULL) == cases[i].value);
        buf_done(&b);
        json_free(j);
    }
}

static void random_doubles_survive_writing_and_parsing(void **state)
{
    (void)state;
    test_seed();
    for (int round = 0; round < 50000; round++) {
        uint64_t bits = (uint64_t)test_random(UINT32_MAX) << 32 | test_random(UINT32_MAX);
        double d;
        memcpy(&d, &bits, sizeof(d));
        if (!isfinite(d))
            continue;
        json *j = json_array(), *back = NULL;
        struct buf b;
        buf_init(&b, 100);
        json_add_num(j, d);
        json_write(j, &b);
        assert_int_equal(json_parse(b.data, b.len, &back, NULL), 0);
        double got = json_double(json_first(back));
        assert_memory_equal(&got, &d, sizeof(d));
        buf_done(&b);
        json_free(j);
        json_free(back);
    }
}

static void a_locale_with_commas_changes_nothing(void **state)
{
    (void)state;
    static const char *const names[] = {"de_DE.UTF-8", "fr_FR.UTF-8", "de_DE"};
    const char *set = NULL;
    for (size_t i = 0; i < ARRAY_LEN(names) && !set; i++)
        set = setlocale(LC_NUMERIC, names[i]);
    json *j = parse("[1.5,-2.5e-3,0.30000000000000004]");
    expect_text(j, "[1.5,-0.0025,0.30000000000000004]");
    setlocale(LC_NUMERIC, "C");
    if (!set)
        skip(); /* no such locale here */
}

static void strings_are_escaped_and_repaired(void **state)
{
    (void)state;
    static const struct {
        const char *in;
        size_t n;
        const char *want;
    } cases[] = {
        {"", 0, "\"\""},
        {NULL, 0, "\"\""},
        {"a\"b\\c/d", 7, "\"a\\\"b\\\\c/d\""},
        {"\b\f\n\r\t\x01\x1f\x7f", 8, "\"\\b\\f\\n\\r\\t\\u0001\\u001f\x7f\""},
        {"h\xC3\xA9\xF0\x9F\x98\x80", 7, "\"h\xC3\xA9\xF0\x9F\x98\x80\""},
        {"a\xFFz", 3, "\"a\xEF\xBF\xBDz\""},
        {"\xE4\xB8", 2, "\"\xEF\xBF\xBD\""},
        {"a\0b", 3,
         "\"a\xEF\xBF\xBD"
         "b\""},
        {"\0", 1, "\"\xEF\xBF\xBD\""},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct buf b;
        buf_init(&b, 100);
        json_write_str(&b, cases[i].in, cases[i].n);
        assert_string_equal(b.data, cases[i].want);
        buf_done(&b);
        json *j = json_object();
        char want[100];
        json_set_strn(j, "s", cases[i].in, cases[i].n);
        snprintf(want, sizeof(want), "{\"s\":%s}", cases[i].want);
        expect_text(j, want);
    }
}

static void parsed_text_comes_back_equal(void **state)
{
    (void)state;
    static const char *const texts[] = {
        "null",
        "true",
        "\"\"",
        "[]",
        "{}",
        "[[],[[]],{}]",
        "{\"a\":[1,2.5,\"x\",null,true,false],\"b\":{\"c\":{}}}",
        "[[[1],2],3]",
        "{\"k\\\"\\n\":\"\xC3\xA9\"}",
    };
    for (size_t i = 0; i < ARRAY_LEN(texts); i++) {
        json *j = parse(texts[i]);
        json *copy = json_copy(j);
        expect_text(j, texts[i]);
        expect_text(copy, texts[i]);
    }
}

static void a_part_of_a_tree_is_written_alone(void **state)
{
    (void)state;
    json *j = parse("{\"a\":{\"x\":[1]},\"b\":2}");
    struct buf b;
    buf_init(&b, 100);
    json_write(json_get(j, "a", NULL), &b);
    assert_string_equal(b.data, "{\"x\":[1]}");
    buf_done(&b);
    json_free(j);
}

static void pretty_text_is_indented(void **state)
{
    (void)state;
    json *j = parse("{\"a\":[1,[2]],\"b\":{},\"c\":[]}");
    struct buf b;
    buf_init(&b, 200);
    json_write_pretty(j, &b);
    assert_string_equal(b.data, "{\n  \"a\": [\n    1,\n    [\n      2\n    ]\n  ],\n"
                                "  \"b\": {},\n  \"c\": []\n}");
    json *back = parse(b.data);
    expect_text(back, "{\"a\":[1,[2]],\"b\":{},\"c\":[]}");
    buf_done(&b);
    json_free(j);
}

static void trees_are_built(void **state)
{
    (void)state;
    json *j = json_object();
    json_set_str(j, "s", "x");
    json_set_bool(j, "t", true);
    json_set_null(j, "n");
    json *a = json_set(j, "a", json_array());
    json_add_str(a, "y");
    json_add(a, json_object());
    json_add_num(a, 0.5);
    json_set_num(j, "s", 2); /* replaces, in place */
    expect_text(j, "{\"s\":2,\"t\":true,\"n\":null,\"a\":[\"y\",{},0.5]}");
}

static void a_missing_node_is_passed_through(void **state)
{
    (void)state;
    assert_null(json_set_str(NULL, "k", "v"));
    assert_null(json_add_int(NULL, 1));
    assert_null(json_set(NULL, "k", json_object())); /* freed */
    assert_null(json_copy(NULL));
    struct buf b;
    buf_init(&b, 100);
    json_write(NULL, &b);
    assert_int_equal(buf_error(&b), ERR_NOMEM);
    buf_done(&b);
    json *j = json_object();
    assert_null(json_set(j, "lost", NULL));
    buf_init(&b, 100);
    json_write(j, &b);
    assert_int_equal(buf_error(&b), ERR_NOMEM);
    buf_done(&b);
    json_free(j);
}

static json *build(void)
{
    json *j = json_object();
    json_set_str(j, "id", "chat_1");
    json_set_int(j, "created", INT64_MAX);
    json *choices = json_set(j, "choices", json_array());
    json *choice = json_add(choices, json_object());
    json_set_strn(choice, "text", "a\xFFz", 3);
    json_set_num(choice, "p", 0.25);
    json_set_bool(choice, "done", false);
    json_set_null(choice, "finish");
    json_add_str(choices, "x");
    json_set_str(j, "id", "chat_2");
    return j;
}

static void whichever_allocation_fails_nothing_wrong_is_written(void **state)
{
    (void)state;
    bool came = true;
    int at;
    for (at = 0; came; at++) {
        struct buf b;
        buf_init(&b, SIZE_MAX);
        fault_memory(at);
        json *j = build();
        json_write(j, &b);
        came = fault_end();
        assert_int_equal(buf_error(&b), came ? ERR_NOMEM : 0);
        if (!came)
            assert_string_equal(
                b.data, "{\"id\":\"chat_2\",\"created\":9223372036854775807,\"choices\":[{\"text\":"
                        "\"a\xEF\xBF\xBDz\",\"p\":0.25,\"done\":false,\"finish\":null},\"x\"]}");
        json_free(j);
        buf_done(&b);
    }
    assert_true(at > 30);
}

static void whichever_allocation_fails_parsing_and_copying_say_so(void **state)
{
    (void)state;
    static const char text[] = "{\"a\":[1,\"x\",{\"b\":null}],\"c\":\"\\u00e9\"}";
    bool came = true;
    for (int at = 0; came; at++) {
        json *j = NULL;
        struct err e = {0};
        fault_memory(at);
        int rc = json_parse(text, sizeof(text) - 1, &j, &e);
        came = fault_end();
        assert_int_equal(rc, came ? ERR_NOMEM : 0);
        assert_true(came == !j);
        json_free(j);
    }
    came = true;
    json *j = parse(text);
    for (int at = 0; came; at++) {
        fault_memory(at);
        json *copy = json_copy(j);
        came = fault_end();
        assert_true(came == !copy);
        json_free(copy);
    }
    json_free(j);
}

static void writing_stops_at_the_ceiling_and_at_128_levels(void **state)
{
    (void)state;
    json *j = parse("[1,2,3,4,5]");
    struct buf b;
    buf_init(&b, 6);
    json_write(j, &b);
    assert_int_equal(buf_error(&b), ERR_LIMIT);
    buf_done(&b);
    json_free(j);
    for (int depth = 127; depth <= 130; depth++) {
        json *root = json_array(), *a = root;
        for (int i = 1; i < depth; i++)
            a = json_add(a, json_array());
        json_add_int(a, 1); /* `depth` open brackets around it */
        buf_init(&b, SIZE_MAX);
        json_write(root, &b);
        assert_int_equal(buf_error(&b), depth <= 128 ? 0 : ERR_LIMIT);
        buf_done(&b);
        json_free(root);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(types_have_their_names),
        cmocka_unit_test(keys_are_case_sensitive_and_null_is_absent),
        cmocka_unit_test(a_doubled_key_is_an_error_of_the_look_up_that_meets_it),
        cmocka_unit_test(a_doubled_key_is_found_anywhere),
        cmocka_unit_test(many_keys_are_checked),
        cmocka_unit_test(members_and_items_are_walked_in_order),
        cmocka_unit_test(values_of_another_type_read_as_nothing),
        cmocka_unit_test(integers_are_exact_up_to_2_to_the_53),
        cmocka_unit_test(errors_of_integers_name_field_value_and_range),
        cmocka_unit_test(numbers_are_finite_and_within_their_range),
        cmocka_unit_test(integers_are_written_exactly),
        cmocka_unit_test(a_large_integer_of_ours_is_still_out_of_range),
        cmocka_unit_test(doubles_are_written_short_and_read_back_the_same),
        cmocka_unit_test(random_doubles_survive_writing_and_parsing),
        cmocka_unit_test(a_locale_with_commas_changes_nothing),
        cmocka_unit_test(strings_are_escaped_and_repaired),
        cmocka_unit_test(parsed_text_comes_back_equal),
        cmocka_unit_test(a_part_of_a_tree_is_written_alone),
        cmocka_unit_test(pretty_text_is_indented),
        cmocka_unit_test(trees_are_built),
        cmocka_unit_test(a_missing_node_is_passed_through),
        cmocka_unit_test(whichever_allocation_fails_nothing_wrong_is_written),
        cmocka_unit_test(whichever_allocation_fails_parsing_and_copying_say_so),
        cmocka_unit_test(writing_stops_at_the_ceiling_and_at_128_levels),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
