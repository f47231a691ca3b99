/* Names of conversations, items, paths and clean text: what is pure of the client. */
#include <locale.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "client/conversation.h"
#include "client/term.h"

#define ID "conv_0123456789abcdef0123456789abcdef"

static json *parsed(const char *text)
{
    json *j = NULL;
    struct err e;
    assert_int_equal(json_parse(text, strlen(text), &j, &e), 0);
    return j;
}

/* ---- names ---- */

static void a_name_is_an_id_its_beginning_or_a_number(void **state)
{
    (void)state;
    const struct {
        const char *what;
        enum conversation_name kind;
        int64_t number;
    } cases[] =
        {
            {ID, NAME_WHOLE, 0},
            {"1", NAME_NUMBER, 1},
            {"999", NAME_NUMBER, 999},
            {"1000", NAME_PREFIX, 0}, /* four digits are the beginning of an id, always */
            {"0123", NAME_PREFIX, 0},
            {"conv_0123", NAME_PREFIX, 0},
            {"3f2a", NAME_PREFIX, 0},
            {"conv_3f2a", NAME_PREFIX, 0},
            {"3f2", NAME_BAD, 0},
            {"conv_3f2", NAME_BAD, 0},
            {"conv_", NAME_BAD, 0},
            {"", NAME_BAD, 0},
            {"0", NAME_BAD, 0},
            {"-1", NAME_BAD, 0},
        };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        int64_t number = 0;
        assert_int_equal(conversation_name(cases[i].what, &number), cases[i].kind);
        if (cases[i].kind == NAME_NUMBER)
            assert_int_equal(number, cases[i].number);
    }
}

static void a_beginning_is_meant_with_and_without_conv(void **state)
{
    (void)state;
    assert_true(conversation_is_meant(ID, "0123"));
    assert_true(conversation_is_meant(ID, "conv_0123"));
    assert_true(conversation_is_meant(ID, ID));
    assert_false(conversation_is_meant(ID, "1234"));
    assert_false(conversation_is_meant(ID, ID "0"));
    assert_false(conversation_is_meant(ID, "conv_1"));
    assert_false(conversation_is_meant("x", "conv_"));
}

/* ---- objects ---- */

static void a_title_is_the_persons_else_the_daemons(void **state)
{
    (void)state;
    const struct {
        const char *object, *title;
    } cases[] = {
        {"{\"metadata\":{\"title\":\"mine\"},\"hearth\":{\"title\":\"its\"}}", "mine"},
        {"{\"metadata\":{\"title\":\"\"},\"hearth\":{\"title\":\"its\"}}", "its"},
        {"{\"metadata\":{},\"hearth\":{\"title\":\"\"}}", "(untitled)"},
        {"{\"metadata\":7,\"hearth\":[]}", "(untitled)"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        json *j = parsed(cases[i].object);
        assert_string_equal(conversation_title(j), cases[i].title);
        json_free(j);
    }
}

static void an_items_text_is_its_parts_joined(void **state)
{
    (void)state;
    const struct {
        const char *item, *text;
    } cases[] = {
        {"{\"content\":\"plain\"}", "plain"},
        {"{\"content\":[{\"text\":\"a\"},{\"text\":\"b\"},{\"x\":1},7]}", "ab"},
        {"{\"content\":[]}", ""},
        {"{\"content\":null}", ""},
        {"{}", ""},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        json *j = parsed(cases[i].item);
        struct buf b;
        buf_init(&b, 100);
        buf_str(&b, "");
        item_text(j, &b);
        assert_string_equal(b.data, cases[i].text);
        buf_done(&b);
        json_free(j);
    }
}

static void a_flaw_says_why_an_answer_is_not_whole(void **state)
{
    (void)state;
    const struct {
        const char *item, *flaw;
    } cases[] = {
        {"{\"status\":\"completed\",\"hearth\":{\"status\":\"complete\"}}", NULL},
        {"{\"status\":\"completed\"}", NULL},
        {"{}", NULL},
        {"{\"status\":\"incomplete\"}", "interrupted"},
        {"{\"status\":\"incomplete\",\"hearth\":{\"status\":\"interrupted\"}}", "interrupted"},
        {"{\"status\":\"incomplete\",\"hearth\":{\"status\":\"complete\",\"finish\":\"length\"}}",
         "cut at its token limit"},
        {"{\"status\":\"incomplete\",\"hearth\":{\"status\":\"failed\"}}", "failed"},
        {"{\"status\":\"in_progress\",\"hearth\":{\"status\":\"generating\"}}", "being written"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        json *j = parsed(cases[i].item);
        if (cases[i].flaw)
            assert_string_equal(item_flaw(j), cases[i].flaw);
        else
            assert_null(item_flaw(j));
        json_free(j);
    }
}

static void a_page_has_a_next_only_with_an_id_to_go_on_from(void **state)
{
    (void)state;
    const char *without[] = {"{}", "{\"has_more\":true}", "{\"has_more\":true,\"last_id\":\"\"}",
                             "{\"has_more\":false,\"last_id\":\"x\"}"};
    for (size_t i = 0; i < sizeof without / sizeof *without; i++) {
        json *j = parsed(without[i]);
        assert_null(page_next(j));
        json_free(j);
    }
    json *j = parsed("{\"has_more\":true,\"last_id\":\"x\"}");
    char *next = page_next(j);
    assert_string_equal(next, "x");
    free(next);
    json_free(j);
    assert_null(page_next(NULL));
}

static void a_path_is_encoded(void **state)
{
    (void)state;
    const struct {
        const char *id, *path;
    } cases[] = {
        {"conv_0a-B.~", "/x/conv_0a-B.~/items"},
        {"../../health", "/x/..%2F..%2Fhealth/items"},
        {"a?b=c#d%e f&\n", "/x/a%3Fb%3Dc%23d%25e%20f%26%0A/items"},
        {"é", "/x/%C3%A9/items"},
        {"", "/x//items"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char *path = api_path("/x/", cases[i].id, "/items");
        assert_string_equal(path, cases[i].path);
        free(path);
    }
}

static void a_path_has_a_limit(void **state)
{
    (void)state;
    static char id[10000];
    memset(id, 'x', sizeof id - 1);
    assert_null(api_path("/", id, ""));
}

/* ---- clean text ---- */

#define FFFD "\xef\xbf\xbd"

static void clean_text_cannot_drive_a_terminal(void **state)
{
    (void)state;
    const struct {
        const char *text, *clean;
    } cases[] = {
        {"plain é 你好 🦙\n\tx", "plain é 你好 🦙\n\tx"},
        {"\033[2J", FFFD "[2J"},
        {"\033]0;title\a", FFFD "]0;title" FFFD},
        {"a\b\x7f", "a" FFFD FFFD},
        {"a\r\nb\rc", "a\nbc"},
        {"\xc2\x9b"
         "1m",
         FFFD "1m"}, /* CSI as one C1 character */
        {"\xc2\x80\xc2\x9f\xc2\xa0", FFFD FFFD "\xc2\xa0"},
        {"\x9b[\xff", FFFD "[" FFFD}, /* bytes that aren't UTF-8 */
        {"\xe4\xbd", FFFD},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct buf b;
        buf_init(&b, 1000);
        term_clean(&b, cases[i].text, strlen(cases[i].text));
        assert_string_equal(b.data, cases[i].clean);
        buf_done(&b);
    }
}

static void no_clean_text_holds_a_control_character(void **state)
{
    (void)state;
    for (unsigned c = 0; c < 0x100; c++) {
        struct buf b;
        char text[2] = {(char)c, 'x'}, pair[3] = {(char)0xc2, (char)c, 'x'};
        buf_init(&b, 100);
        term_clean(&b, text, sizeof text);
        term_clean(&b, pair, sizeof pair);
        for (size_t i = 0; i < b.len; i++) {
            unsigned char u = (unsigned char)b.data[i];
            assert_true(u >= 0x20 || u == '\n' || u == '\t');
            assert_int_not_equal(u, 0x7f);
            assert_false(u == 0xc2 && (unsigned char)b.data[i + 1] < 0xa0);
        }
        buf_done(&b);
    }
}

static void a_time_has_its_form(void **state)
{
    (void)state;
    char text[20];
    setenv("TZ", "UTC", 1);
    format_time(0, text);
    assert_string_equal(text, "1970-01-01 00:00");
    format_time(1769868300, text);
    assert_string_equal(text, "2026-01-31 14:05");
    format_time(1e300, text);
    assert_string_equal(text, "?");
    format_time(-1e300, text);
    assert_string_equal(text, "?");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_name_is_an_id_its_beginning_or_a_number),
        cmocka_unit_test(a_beginning_is_meant_with_and_without_conv),
        cmocka_unit_test(a_title_is_the_persons_else_the_daemons),
        cmocka_unit_test(an_items_text_is_its_parts_joined),
        cmocka_unit_test(a_flaw_says_why_an_answer_is_not_whole),
        cmocka_unit_test(a_page_has_a_next_only_with_an_id_to_go_on_from),
        cmocka_unit_test(a_path_is_encoded),
        cmocka_unit_test(a_path_has_a_limit),
        cmocka_unit_test(clean_text_cannot_drive_a_terminal),
        cmocka_unit_test(no_clean_text_holds_a_control_character),
        cmocka_unit_test(a_time_has_its_form),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
