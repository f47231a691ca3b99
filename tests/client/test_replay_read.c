/* A line of a recorded conversation: the four formats, what a turn is, and what is refused. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/buf.h"
#include "client/replay_daemon.h"
#include "client/replay_read.h"

/* Roles and texts: "s:be brief|u:hi|a:hello". */
static void assert_messages(const char *line, const char *expected)
{
    struct replay_conversation c;
    struct err e = {0};
    struct buf b;
    if (replay_read_line(line, strlen(line), &c, &e))
        fail_msg("%s: %s", line, e.text);
    buf_init(&b, 10000);
    for (size_t i = 0; i < c.n_messages; i++)
        buf_printf(&b, "%s%c:%s", i ? "|" : "", *replay_role_name(c.messages[i].role),
                   c.messages[i].text);
    assert_string_equal(b.data, expected);
    buf_done(&b);
    replay_conversation_done(&c);
}

static void four_formats_are_one_list_of_messages(void **state)
{
    (void)state;
    assert_messages("{\"messages\":[{\"role\":\"developer\",\"content\":\"be brief\"},"
                    "{\"role\":\"user\",\"content\":\"hi\"},"
                    "{\"role\":\"assistant\",\"content\":\"hello\"}]}",
                    "s:be brief|u:hi|a:hello");
    assert_messages("{\"object\":\"hearth.conversation\",\"version\":1,\"id\":\"conv_1\",\"messages"
                    "\":[{\"role\":\"user\",\"content\":\"hi\",\"created_at\":1,\"status\":"
                    "\"completed\"}]}",
                    "u:hi");
    assert_messages("{\"conversations\":[{\"from\":\"system\",\"value\":\"s\"},{\"from\":\"human\","
                    "\"value\":\"你好\"},{\"from\":\"gpt\",\"value\":\"a\"},{\"from\":\"user\","
                    "\"value\":\"u\"},{\"from\":\"chatgpt\",\"value\":\"\"}]}",
                    "s:s|u:你好|a:a|u:u|a:");
    assert_messages("{\"question_id\":81,\"turns\":[\"one\",\"two\"]}", "u:one|u:two");
    assert_messages("{\"turns\":[\"one\",\"two\"],\"reference\":[\"1\",\"2\"]}",
                    "u:one|a:1|u:two|a:2");
}

static void a_missing_or_empty_reference_is_no_answer(void **state)
{
    (void)state;
    assert_messages("{\"turns\":[\"a\",\"b\",\"c\"],\"reference\":[\"\",\"B\"]}",
                    "u:a|u:b|a:B|u:c");
    assert_messages("{\"turns\":[\"a\",\"b\"],\"reference\":[null,\"B\"]}", "u:a|u:b|a:B");
    assert_messages("{\"turns\":[\"a\"],\"reference\":null}", "u:a");
    assert_messages("{\"turns\":[\"a\"],\"reference\":[]}", "u:a");
}

static void a_content_may_be_text_parts(void **state)
{
    (void)state;
    assert_messages("{\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":"
                    "\"a\"},{\"type\":\"input_text\",\"text\":\"b\"}]}]}",
                    "u:ab");
}

static void what_cannot_be_played_is_refused_by_place(void **state)
{
    (void)state;
    const struct {
        const char *line, *why;
    } cases[] = {
        {"", "offset"},
        {"{", "offset"},
        {"nonsense", "offset"},
        {"{\"messages\":[]} x", "offset"},
        {"[]", "jq -c"},
        {"7", "no object"},
        {"{}", "neither"},
        {"{\"messages\":null}", "neither"},
        {"{\"messages\":{}}", "\"messages\" is object"},
        {"{\"messages\":[]}", "no message of a user"},
        {"{\"turns\":[]}", "no message of a user"},
        {"{\"messages\":[{\"role\":\"system\",\"content\":\"x\"}]}", "no message of a user"},
        {"{\"messages\":[{\"role\":\"user\",\"content\":\"x\"}],\"turns\":[]}", "both"},
        {"{\"messages\":[],\"messages\":[]}", "messages"},
        {"{\"messages\":[7]}", "messages[0] is no object"},
        {"{\"messages\":[{}]}", "messages[0].role is missing"},
        {"{\"messages\":[{\"role\":7,\"content\":\"x\"}]}", "messages[0].role is number"},
        {"{\"messages\":[{\"role\":\"user\",\"role\":\"user\",\"content\":\"x\"}]}", "role"},
        {"{\"messages\":[{\"role\":\"User\",\"content\":\"x\"}]}", "'User' can't be played"},
        {"{\"messages\":[{\"role\":\"tool\",\"content\":\"x\"}]}", "'tool' can't be played"},
        {"{\"messages\":[{\"role\":\"user\"}]}", "messages[0].content is missing"},
        {"{\"messages\":[{\"role\":\"user\",\"content\":7}]}", "messages[0].content is number"},
        {"{\"messages\":[{\"role\":\"user\",\"content\":\"x\"},{\"role\":\"user\",\"content\":"
         "null}]}",
         "messages[1].content is missing"},
        {"{\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"image_url\"}]}]}",
         "'image_url'; only text"},
        {"{\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"text\"}]}]}",
         "a part without"},
        {"{\"messages\":[{\"role\":\"user\",\"content\":[7]}]}", "a part without"},
        {"{\"messages\":[{\"role\":\"assistant\",\"content\":\"\",\"tool_calls\":[{}]}]}",
         "calls tools"},
        {"{\"object\":\"hearth.conversation\",\"version\":2,\"messages\":[{\"role\":\"user\","
         "\"content\":\"x\"}]}",
         "version 2"},
        {"{\"conversations\":[{\"from\":\"bing\",\"value\":\"x\"}]}",
         "conversations[0].from 'bing'"},
        {"{\"conversations\":[{\"from\":\"human\",\"content\":\"x\"}]}",
         "conversations[0].value is missing"},
        {"{\"turns\":[7]}", "turns[0] is number"},
        {"{\"turns\":[\"a\"],\"reference\":\"b\"}", "reference is string"},
        {"{\"turns\":[\"a\"],\"reference\":[\"b\",\"c\"]}", "2 answers to 1 turns"},
        {"{\"turns\":[\"a\",\"b\"],\"reference\":[\"\",7]}", "reference[1] is number"},
        {"{\"messages\":[{\"role\":\"user\",\"content\":\"\xff\"}]}", "offset"},
        {"{\"messages\":[{\"role\":\"user\",\"content\":\"\\u0000\"}]}", "offset"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct replay_conversation c = {.n_turns = 77};
        struct err e = {0};
        assert_true(replay_read_line(cases[i].line, strlen(cases[i].line), &c, &e) < 0);
        if (!strstr(e.text, cases[i].why))
            fail_msg("%s: '%s' doesn't say '%s'", cases[i].line, e.text, cases[i].why);
        assert_int_equal(c.n_turns, 77); /* untouched */
    }
}

/* Every beginning of a line is refused, and nothing leaks (the sanitizer tells). */
static void half_a_line_is_refused(void **state)
{
    (void)state;
    const char *line =
        "{\"id\":\"x\",\"conversations\":[{\"from\":\"human\",\"value\":\"a\\u00e9\"}"
        ",{\"from\":\"gpt\",\"value\":\"b\"}]}";
    struct replay_conversation c;
    struct err e;
    for (size_t n = 0; n < strlen(line); n++)
        assert_true(replay_read_line(line, n, &c, &e) < 0);
    assert_int_equal(replay_read_line(line, strlen(line), &c, &e), 0);
    replay_conversation_done(&c);
}

static void a_name_is_the_first_that_a_line_has(void **state)
{
    (void)state;
    const struct {
        const char *begin, *name;
    } cases[] = {
        {"\"id\":\"i\",\"title\":\"t\",", "t"},
        {"\"id\":\"i\",\"title\":\"\",", "i"},
        {"\"question_id\":81,", "question_id 81"},
        {"", NULL},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char line[200];
        struct replay_conversation c;
        struct err e;
        snprintf(line, sizeof line, "{%s\"turns\":[\"x\"]}", cases[i].begin);
        assert_int_equal(replay_read_line(line, strlen(line), &c, &e), 0);
        if (cases[i].name)
            assert_string_equal(c.name, cases[i].name);
        else
            assert_null(c.name);
        replay_conversation_done(&c);
    }
}

/* Questions and answers as "from-to" pairs: roles "suasu" → "0-2 2-3 3-5 5-5". */
static void assert_turns(const char *roles, bool is_each_asked, const char *expected)
{
    struct replay_message m[16];
    struct replay_conversation c = {.messages = m, .n_messages = strlen(roles)};
    char text[200] = "";
    size_t n = 0;
    for (size_t i = 0; roles[i]; i++)
        m[i] = (struct replay_message){.role = roles[i] == 's'   ? REPLAY_SYSTEM
                                               : roles[i] == 'u' ? REPLAY_USER
                                                                 : REPLAY_ASSISTANT,
                                       .is_asked = is_each_asked && roles[i] == 'u'};
    for (size_t at = 0, q; (q = replay_question_end(&c, at));) {
        size_t a = replay_answer_end(&c, q);
        n += (size_t)snprintf(text + n, sizeof text - n, "%s%zu-%zu-%zu", n ? " " : "", at, q, a);
        at = a;
    }
    assert_string_equal(text, expected);
}

static void a_turn_is_a_question_and_its_answer(void **state)
{
    (void)state;
    assert_turns("", false, "");
    assert_turns("s", false, "");
    assert_turns("u", false, "0-1-1");
    assert_turns("suaua", false, "0-2-3 3-4-5");
    assert_turns("uau", false, "0-1-2 2-3-3");
    assert_turns("uus", false, "0-3-3");        /* asked together */
    assert_turns("uaau", false, "0-1-3 3-4-4"); /* an answer in two messages */
    assert_turns("aua", false, "0-2-3");        /* a greeting is no answer */
    assert_turns("uas", false, "0-1-2");        /* nothing is asked behind it */
    assert_turns("uasua", false, "0-1-2 2-4-5");
    assert_turns("uu", true, "0-1-1 1-2-2");
    assert_turns("uaua", true, "0-1-2 2-3-4");
    assert_turns("uuau", true, "0-1-1 1-2-3 3-4-4");
}

static void assert_words(const char *text, const char *expected)
{
    char **words = NULL;
    struct err e;
    struct buf b;
    buf_init(&b, 10000);
    assert_int_equal(replay_words(text, &words, &e), 0);
    for (char **w = words; *w; w++)
        buf_printf(&b, "%s[%s]", w == words ? "" : " ", *w);
    assert_string_equal(b.data, expected);
    buf_done(&b);
    replay_words_free(words);
}

static void words_are_split_as_a_shell_does(void **state)
{
    (void)state;
    assert_words("hearthd", "[hearthd]");
    assert_words("  a\tb \n c ", "[a] [b] [c]");
    assert_words("a 'b c' \"d e\"", "[a] [b c] [d e]");
    assert_words("a'b c'd\"e\"", "[ab cde]");
    assert_words("a '' \"\" b", "[a] [] [] [b]");
    assert_words("a\\ b \\'c \\\\", "[a b] ['c] [\\]");
    assert_words("'a\\b' \"a\\b\" \"a\\\"b\" \"\\$x\"", "[a\\b] [a\\b] [a\"b] [$x]");
    assert_words("a $HOME * | > ; # ~", "[a] [$HOME] [*] [|] [>] [;] [#] [~]");
    assert_words("--x=\"1 2\" 'it'\\''s'", "[--x=1 2] [it's]");
    assert_words("a\\", "[a\\]");
}

static void words_that_a_shell_would_wait_for_are_refused(void **state)
{
    (void)state;
    const char *const bad[] = {"", "  ", "a 'b", "a \"b", "a \"b\\\"", "''", "\"\" a"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        char **words = NULL;
        struct err e;
        assert_int_equal(replay_words(bad[i], &words, &e), ERR_INVAL);
        assert_null(words);
    }
    char many[2 * 300 + 1];
    for (size_t i = 0; i < 300; i++)
        memcpy(many + 2 * i, "a ", 2);
    many[600] = 0;
    char **words = NULL;
    struct err e;
    assert_int_equal(replay_words(many, &words, &e), ERR_LIMIT);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(four_formats_are_one_list_of_messages),
        cmocka_unit_test(a_missing_or_empty_reference_is_no_answer),
        cmocka_unit_test(a_content_may_be_text_parts),
        cmocka_unit_test(what_cannot_be_played_is_refused_by_place),
        cmocka_unit_test(half_a_line_is_refused),
        cmocka_unit_test(a_name_is_the_first_that_a_line_has),
        cmocka_unit_test(a_turn_is_a_question_and_its_answer),
        cmocka_unit_test(words_are_split_as_a_shell_does),
        cmocka_unit_test(words_that_a_shell_would_wait_for_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
