/* Options and numbers (client/options.h). */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "client/options.h"
#include "tests/client/commands.h"

static void parse_int_takes_whole_numbers_in_range(void **state)
{
    (void)state;
    int64_t n = 77;
    assert_true(parse_int("0", 0, 10, &n));
    assert_int_equal(n, 0);
    assert_true(parse_int("10", 0, 10, &n));
    assert_int_equal(n, 10);
    assert_true(parse_int("-3", -3, 3, &n));
    assert_int_equal(n, -3);
    assert_true(parse_int("9007199254740991", 0, JSON_INT_MAX, &n));
    assert_true(n == JSON_INT_MAX);
}

static void parse_int_refuses_everything_else_and_leaves_the_result(void **state)
{
    (void)state;
    const char *bad[] = {"",    "11", "-1",  "1.0", "1e1", " 1",
                         "+1",  "1 ", "0x1", "a",   "-",   "99999999999999999999",
                         "1\n", "--1"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        int64_t n = 77;
        assert_false(parse_int(bad[i], 0, 10, &n));
        assert_int_equal(n, 77);
    }
}

static void parse_num_takes_decimal_numbers_in_range(void **state)
{
    (void)state;
    double v;
    assert_true(parse_num("0.7", 0, 2, &v));
    assert_true(v == 0.7);
    assert_true(parse_num("2", 0, 2, &v));
    assert_true(v == 2);
    assert_true(parse_num("1e-3", 0, 2, &v));
    assert_true(v == 1e-3);
    assert_true(parse_num(".5", 0, 2, &v));
    assert_true(v == 0.5);
    assert_true(parse_num("-0", 0, 2, &v));
}

static void parse_num_refuses_everything_else_and_leaves_the_result(void **state)
{
    (void)state;
    const char *bad[] = {"",   "2.1", "-0.1", "nan", "inf",   "0x1",  " 1",
                         "1 ", "0,7", "1e",   "+1",  "1e999", "-inf", "1.2.3"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        double v = 77;
        assert_false(parse_num(bad[i], 0, 2, &v));
        assert_true(v == 77);
    }
}

static char *written(const struct ask_options *o, const char *max_tokens_name)
{
    json *body = json_object();
    struct buf b;
    buf_init(&b, 4096);
    ask_options_write(o, body, max_tokens_name);
    json_write(body, &b);
    json_free(body);
    return buf_take(&b, NULL);
}

static void what_was_not_given_is_not_written(void **state)
{
    (void)state;
    struct ask_options o;
    ask_options_init(&o);
    char *text = written(&o, "max_tokens");
    assert_string_equal(text, "{\"model\":\"default\"}");
    free(text);
}

static void what_was_given_is_written(void **state)
{
    (void)state;
    struct ask_options o;
    const struct command *ask = command_find("ask");
    ask_options_init(&o);
    assert_int_equal(ask_options_take(&o, ask, OPT_TEMPERATURE, "0"), 0);
    assert_int_equal(ask_options_take(&o, ask, OPT_TOP_P, "0.5"), 0);
    assert_int_equal(ask_options_take(&o, ask, OPT_SEED, "9007199254740991"), 0);
    assert_int_equal(ask_options_take(&o, ask, OPT_MAX_TOKENS, "7"), 0);
    assert_int_equal(ask_options_take(&o, ask, OPT_CONTEXT, "error"), 0);
    assert_int_equal(ask_options_take(&o, ask, OPT_MODEL, "m"), 0);
    char *text = written(&o, "max_output_tokens");
    assert_string_equal(text, "{\"temperature\":0,\"top_p\":0.5,\"seed\":9007199254740991,"
                              "\"max_output_tokens\":7,\"model\":\"m\","
                              "\"hearth\":{\"context\":\"error\"}}");
    free(text);
}

static void a_number_out_of_range_names_the_range(void **state)
{
    (void)state;
    struct ask_options o;
    ask_options_init(&o);
    assert_int_equal(ask_options_take(&o, NULL, OPT_TEMPERATURE, "3"), EXIT_USAGE);
    assert_string_equal(usage_text, "--temperature 3: a number from 0 to 2");
    assert_true(isnan(o.temperature));
    assert_int_equal(ask_options_take(&o, NULL, OPT_MAX_TOKENS, "0"), EXIT_USAGE);
    assert_int_equal(o.max_tokens, -1);
}

static void the_file_comes_before_the_client_and_the_person_before_both(void **state)
{
    (void)state;
    struct ask_options o;
    struct err e;
    json *sampling;
    const char text[] = "{\"temperature\":0.2,\"top_p\":null,\"min_p\":\"x\"}";
    assert_int_equal(json_parse(text, strlen(text), &sampling, &e), 0);
    ask_options_init(&o);
    ask_options_default(&o, sampling);
    assert_true(o.temperature == 0.2 && o.top_p == 1 && o.min_p == 0.05);
    assert_true(o.repetition_penalty == 1.1);
    ask_options_init(&o);
    o.temperature = 0;
    ask_options_default(&o, sampling);
    assert_true(o.temperature == 0);
    ask_options_init(&o);
    ask_options_default(&o, NULL);
    assert_true(o.temperature == 0.7);
    json_free(sampling);
}

/* ---- options_read ---- */

struct taken {
    int n, value[8];
    const char *arg[8];
};

static int take(void *ctx, int value, const char *arg)
{
    struct taken *t = ctx;
    t->value[t->n] = value;
    t->arg[t->n++] = arg;
    return value == OPT_SEED ? EXIT_USAGE : 0;
}

/* The words behind "ask"; NULL ends them. Returns options_read's result. */
static int read_words(const char *name, const char **words, struct taken *t, int *ret_first)
{
    static char *argv[10];
    struct client c = {0};
    struct options_reader reader = {&c, command_find(name), take, t};
    int argc = 0;
    *t = (struct taken){0};
    argv[argc++] = (char *)(uintptr_t)name;
    while (words[argc - 1]) {
        argv[argc] = (char *)(uintptr_t)words[argc - 1];
        argc++;
    }
    argv[argc] = NULL;
    int code = options_read(&reader, argc, argv, ret_first);
    for (int i = *ret_first; !code && i < argc; i++)
        words[i - *ret_first] = argv[i];
    return code;
}

static void options_stand_anywhere_and_arguments_stay_in_order(void **state)
{
    (void)state;
    const char *words[] = {"one", "--top-p", "0.5", "two", "--seed=7", "three", NULL};
    struct taken t;
    int first = 0;
    words[4] = "--min-p=0.1";
    assert_int_equal(read_words("ask", words, &t, &first), 0);
    assert_int_equal(t.n, 2);
    assert_int_equal(t.value[0], OPT_TOP_P);
    assert_string_equal(t.arg[0], "0.5");
    assert_int_equal(t.value[1], OPT_MIN_P);
    assert_int_equal(first, 4);
    assert_string_equal(words[0], "one");
    assert_string_equal(words[2], "three");
}

static void what_follows_two_dashes_is_text(void **state)
{
    (void)state;
    const char *words[] = {"--", "--top-p", NULL};
    struct taken t;
    int first = 0;
    assert_int_equal(read_words("ask", words, &t, &first), 0);
    assert_int_equal(t.n, 0);
    assert_string_equal(words[0], "--top-p");
}

static void a_wrong_option_is_named(void **state)
{
    (void)state;
    const struct {
        const char *words[3], *text;
    } cases[] = {
        {{"--nope", NULL}, "ask has no option --nope (text that begins with - goes after --)"},
        {{"-xy", NULL}, "ask has no option -x (text that begins with - goes after --)"},
        {{"--all", NULL}, "ask has no option --all (text that begins with - goes after --)"},
        {{"--top-p", NULL}, "--top-p needs a value"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const char *words[] = {cases[i].words[0], NULL, NULL};
        struct taken t;
        int first = 77;
        assert_int_equal(read_words("ask", words, &t, &first), EXIT_USAGE);
        assert_string_equal(usage_text, cases[i].text);
        assert_int_equal(first, 77);
    }
}

static void what_take_refuses_ends_the_reading(void **state)
{
    (void)state;
    const char *words[] = {"--seed", "1", "--top-p", "1", NULL};
    struct taken t;
    int first;
    assert_int_equal(read_words("ask", words, &t, &first), EXIT_USAGE);
    assert_int_equal(t.n, 1);
}

static void a_command_has_its_own_options(void **state)
{
    (void)state;
    const char *words[] = {"--all", NULL}, *others[] = {"--seed", "1", NULL};
    struct taken t;
    int first;
    assert_int_equal(read_words("export", words, &t, &first), 0);
    assert_int_equal(t.n, 1);
    assert_int_equal(read_words("export", others, &t, &first), EXIT_USAGE);
}

static void a_commands_own_option_hides_the_common_one(void **state)
{
    (void)state;
    const char *words[] = {"--json", "out.json", "in.jsonl", NULL}, *bare[] = {"--json", NULL};
    struct taken t;
    int first;
    assert_int_equal(read_words("replay", words, &t, &first), 0);
    assert_int_equal(t.n, 1); /* with its value, and not as the common flag */
    assert_int_equal(first, 3);
    assert_int_equal(read_words("replay", bare, &t, &first), EXIT_USAGE);
    assert_int_equal(read_words("export", bare, &t, &first), 0);
    assert_int_equal(t.n, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(parse_int_takes_whole_numbers_in_range),
        cmocka_unit_test(parse_int_refuses_everything_else_and_leaves_the_result),
        cmocka_unit_test(parse_num_takes_decimal_numbers_in_range),
        cmocka_unit_test(parse_num_refuses_everything_else_and_leaves_the_result),
        cmocka_unit_test(what_was_not_given_is_not_written),
        cmocka_unit_test(what_was_given_is_written),
        cmocka_unit_test(a_number_out_of_range_names_the_range),
        cmocka_unit_test(the_file_comes_before_the_client_and_the_person_before_both),
        cmocka_unit_test(options_stand_anywhere_and_arguments_stay_in_order),
        cmocka_unit_test(what_follows_two_dashes_is_text),
        cmocka_unit_test(a_wrong_option_is_named),
        cmocka_unit_test(what_take_refuses_ends_the_reading),
        cmocka_unit_test(a_command_has_its_own_options),
        cmocka_unit_test(a_commands_own_option_hides_the_common_one),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
