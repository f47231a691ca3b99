/*
 * The fact list: newest values, properties of merged, written and parsed lists, and odd inputs.
 * HEARTH_SEED repeats a run.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/utf8.h"
#include "tests/memory/facts_data.h"

/* ---- newest values ---- */

static void the_newest_value_wins_and_tells_the_older(void **state)
{
    (void)state;
    static const struct {
        const char *first, *second, *is, *was;
    } cases[] = {
        {"The port is 8080.", "the port is now 9090", "9090", "(earlier: 8080)"},
        {"The database port is 5432.", "We changed the database port to 5433.", "5433",
         "(earlier: 5432)"},
        {"Our deadline is 3 March.", "The deadline is 10 March.", "10 March", "(earlier: 3 March)"},
        {"I live in Berlin.", "I moved to Munich.", "Munich", "(earlier: Berlin)"},
        {"my locker code is blue heron", "my locker code is red fox", "red fox",
         "(earlier: blue heron)"},
        {"Use version 2.3.1.", "The version is now 2.4.0.", "2.4.0", "(earlier: 2.3.1)"},
        {"Hi.", "The port changed from 8080 to 9090.", "9090", "(earlier: 8080)"},
        {"端口是8080。", "端口改成9090了。", "9090", "(earlier: 8080)"},
        {"我住在杭州。", "我搬到苏州了。", "苏州", "(earlier: 杭州)"},
        {"截止日期是3月14日。", "截止日期推迟到3月20日。", "3月20日", "(earlier: 3月14日)"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct arena a;
        arena_init(&a, 1 << 20);
        struct said first = say(1, cases[i].first), second = say(2, cases[i].second);
        struct facts x = extract(&a, &first, 1), y = extract(&a, &second, 1);
        struct facts list = merge(&a, &x, &y, 500);
        char *text = composed(&list);
        if (!strstr(text, cases[i].was) || list.n != 1)
            print_message("%s → %s:\n%s", cases[i].first, cases[i].second, text);
        assert_int_equal(list.n, 1);
        assert_non_null(strstr(text, cases[i].is));
        assert_non_null(strstr(text, cases[i].was));
        free(text);
        arena_done(&a);
    }
}

static void different_things_stay_beside_each_other(void **state)
{
    (void)state;
    static const char *const pairs[][2] = {
        {"The staging port is 8080.", "The production port is 9090."},
        {"Incident INC-4471 is closed.", "Incident INC-5002 is open."},
        {"The meeting is on Friday.", "The meeting is at 15:30."},
        {"I'm allergic to peanuts.", "I'm allergic to shrimp."},
        {"I like jazz.", "I like opera."},
        {"My sister is called Anna.", "My brother is called Tom."},
        {"我对花生过敏。", "我对虾过敏。"},
        {"测试环境的端口是8080。", "数据库端口是9090。"},
    };
    for (size_t i = 0; i < sizeof pairs / sizeof pairs[0]; i++) {
        struct arena a;
        arena_init(&a, 1 << 20);
        struct said v[2] = {say(1, pairs[i][0]), say(2, pairs[i][1])};
        struct facts f = extract(&a, v, 2);
        char *text = composed(&f);
        if (f.n != 2 || strstr(text, "earlier"))
            print_message("%s", text);
        assert_int_equal(f.n, 2);
        assert_null(strstr(text, "earlier"));
        free(text);
        arena_done(&a);
    }
}

static void what_else_a_fact_holds_is_not_lost_with_an_old_value(void **state)
{
    (void)state;
    struct arena a;
    arena_init(&a, 1 << 20);
    struct said v[2] = {say(1, "The gateway port 8080 and its bucket s3://acme-gw are down"),
                        say(2, "the port is now 9090")};
    struct facts f = extract(&a, v, 2);
    char *text = composed(&f);
    assert_non_null(strstr(text, "s3://acme-gw"));
    assert_non_null(strstr(text, "9090"));
    free(text);
    arena_done(&a);
}

static void the_assistant_does_not_overrule_a_person(void **state)
{
    (void)state;
    struct arena a;
    arena_init(&a, 1 << 20);
    struct said v[2] = {say(1, "The port is 8080."), say(2, "The port is 9999.")};
    v[1].role = MEMORY_ASSISTANT;
    struct facts f = extract(&a, v, 2);
    char *text = composed(&f);
    assert_non_null(strstr(text, "8080"));
    assert_null(strstr(text, "earlier"));
    free(text);
    arena_done(&a);
}

/* ---- properties ---- */

static void check_list(const struct facts *f, const struct said *v, size_t n)
{
    for (size_t i = 0; i < f->n; i++) {
        const struct fact *x = &f->v[i];
        assert_true(x->row >= 1 && (size_t)x->row <= n);
        const struct said *m = &v[x->row - 1];
        assert_non_null(memmem(m->text, m->n_text, x->text, x->n_text));
        assert_true(x->n_text > 0 && x->n_text <= FACT_BYTES_MAX);
        assert_true(utf8_valid(x->text, x->n_text, NULL));
        for (size_t k = 0; k < x->n_text; k++)
            assert_true((unsigned char)x->text[k] >= 0x20);
        for (int k = 0; k < x->n_pairs; k++)
            assert_true(x->pairs[k].value >= x->text &&
                        x->pairs[k].value + x->pairs[k].n_value <= x->text + x->n_text);
    }
}

/* Pieces of the data files, cut and mixed with bytes of all kinds. */
static size_t random_text(char *s, size_t max)
{
    size_t n = 0, most = below(max);
    while (n < most) {
        int k = (int)below(2);
        const char *from =
            below(2) ? facts[k].v[below(facts[k].n)].text : filler[k].v[below(filler[k].n)].text;
        size_t len = below(4) ? strlen(from) : below(strlen(from) + 1);
        len = len < most - n ? len : most - n;
        memcpy(s + n, from, len);
        n += len;
        for (size_t i = below(3); i > 0 && n < most; i--)
            s[n++] = below(3) ? " \n\t,.\0"[below(6)] : (char)below(256);
    }
    return n;
}

static void facts_are_substrings_of_their_messages(void **state)
{
    (void)state;
    for (int round = 0; round < 200; round++) {
        struct arena a;
        arena_init(&a, 1 << 26);
        static char texts[6][4096];
        struct said v[6];
        for (size_t i = 0; i < 6; i++) {
            size_t n = random_text(texts[i], sizeof texts[i]);
            enum memory_role role = below(2) ? MEMORY_USER : MEMORY_ASSISTANT;
            v[i] = (struct said){(int64_t)i + 1, role, texts[i], n};
        }
        struct facts f = extract(&a, v, 6);
        check_list(&f, v, 6);
        struct facts some = merge(&a, &f, NULL, below(2000));
        check_list(&some, v, 6);
        arena_done(&a);
    }
}

static bool is_in_list(const struct facts *f, const struct fact *x)
{
    for (size_t i = 0; i < f->n; i++)
        if (f->v[i].row == x->row && f->v[i].n_text == x->n_text &&
            memcmp(f->v[i].text, x->text, x->n_text) == 0)
            return true;
    return false;
}

static void merging_again_changes_nothing_and_more_room_keeps_more(void **state)
{
    (void)state;
    for (int round = 0; round < 100; round++) {
        struct arena a;
        arena_init(&a, 1 << 26);
        static char text[16384];
        size_t n = random_text(text, sizeof text), budget = below(1500);
        struct said m = {1, MEMORY_USER, text, n};
        struct facts all = extract(&a, &m, 1);
        struct facts some = merge(&a, &all, NULL, budget), again = merge(&a, &some, NULL, budget),
                     more = merge(&a, &all, NULL, budget + 200);
        struct facts merged = merge(&a, &all, NULL, SIZE_MAX), shorter;
        struct err e;
        assert_int_equal(facts_shorten(&merged, budget, &a, &shorter, &e), 0);
        char *x = composed(&some), *y = composed(&again), *z = composed(&shorter);
        assert_string_equal(x, y);
        assert_string_equal(x, z);
        assert_true(strlen(x) <= budget);
        for (size_t i = 0; i < some.n; i++)
            assert_true(is_in_list(&more, &some.v[i]));
        free(x);
        free(y);
        free(z);
        arena_done(&a);
    }
}

static void what_is_written_is_read_back_as_it_was(void **state)
{
    (void)state;
    for (int round = 0; round < 100; round++) {
        struct arena a;
        arena_init(&a, 1 << 26);
        static char text[8192];
        struct said m = {1, MEMORY_USER, text, random_text(text, sizeof text)};
        struct facts f = extract(&a, &m, 1), g;
        struct err e = {0};
        size_t n, n_again;
        char *once = written(&f, &n);
        assert_int_equal(facts_parse(once, n, &a, &g, &e), 0);
        char *twice = written(&g, &n_again);
        assert_int_equal(n, n_again);
        assert_memory_equal(once, twice, n);
        assert_int_equal(f.n, g.n);
        for (size_t i = 0; i < f.n; i++) {
            assert_int_equal(f.v[i].kind, g.v[i].kind);
            assert_int_equal(f.v[i].weight, g.v[i].weight);
            assert_int_equal(f.v[i].n_pairs, g.v[i].n_pairs);
        }
        free(once);
        free(twice);
        arena_done(&a);
    }
}

static void a_line_of_a_person_is_a_note_that_stays(void **state)
{
    (void)state;
    static const char edited[] =
        "- I moved the server to the attic\n\n"
        "the port is now 7070 {\"by\":\"user\",\"row\":3,\"kind\":\"number\",\"weight\":70,"
        "\"is\":{\"port\":\"9090\"}}\n"
        "braces {\"are\":1} no object of ours {\"x\":2}\n"
        "bad \xFF\x01 bytes\r\n";
    struct arena a;
    arena_init(&a, 1 << 20);
    struct facts f;
    struct err e = {0};
    assert_int_equal(facts_parse(edited, sizeof edited - 1, &a, &f, &e), 0);
    assert_int_equal(f.n, 4);
    assert_string_equal(f.v[0].text, "I moved the server to the attic");
    assert_int_equal(f.v[0].kind, FACT_NOTE);
    assert_int_equal(f.v[0].row, 0);
    assert_string_equal(f.v[1].text, "the port is now 7070");
    assert_int_equal(f.v[1].n_pairs, 0);
    assert_int_equal(f.v[1].row, 3);
    assert_string_equal(f.v[2].text, "braces {\"are\":1} no object of ours {\"x\":2}");
    assert_string_equal(f.v[3].text, "bad \xEF\xBF\xBD  bytes");
    struct facts few = merge(&a, &f, NULL, 45);
    assert_int_equal(few.n, 1);
    assert_string_equal(few.v[0].text, "I moved the server to the attic");
    arena_done(&a);
}

static void nothing_gives_nothing(void **state)
{
    (void)state;
    struct arena a;
    arena_init(&a, 1 << 20);
    struct said v[3] = {
        say(1, ""), {2, MEMORY_SYSTEM, "The port is 8080.", 17}, say(3, "Hi! How are you?")};
    struct facts f = extract(&a, v, 3);
    assert_int_equal(f.n, 0);
    char *text = composed(&f);
    assert_string_equal(text, "");
    free(text);
    f = merge(&a, NULL, NULL, 100);
    assert_int_equal(f.n, 0);
    arena_done(&a);
}

static void code_in_fences_is_not_said(void **state)
{
    (void)state;
    struct arena a;
    arena_init(&a, 1 << 20);
    struct said m = say(1, "Look:\n```\nport = 8080\nid = INC-1\n```\nThe port is 9090.");
    struct facts f = extract(&a, &m, 1);
    assert_int_equal(f.n, 1);
    assert_string_equal(f.v[0].text, "The port is 9090");
    arena_done(&a);
}

static void large_inputs_give_a_bounded_list(void **state)
{
    (void)state;
    size_t n = (size_t)1 << 20;
    char *text = malloc(n);
    assert_non_null(text);
    struct arena a;
    arena_init(&a, 1 << 24);
    static const char *const pieces[] = {
        "一",      "The port is 8080 and ", "((((", "1-", "a.b", "\"", "https://", "```\n", "A B ",
        "\xF0\x9F"};
    for (size_t k = 0; k < sizeof pieces / sizeof pieces[0]; k++) {
        size_t len = strlen(pieces[k]);
        for (size_t i = 0; i < n; i++)
            text[i] = pieces[k][i % len];
        struct said m = {1, MEMORY_USER, text, n};
        struct facts f = extract(&a, &m, 1);
        assert_true(f.n <= FACTS_MAX);
    }
    /* As many messages. */
    size_t n_said = 3000;
    struct said *v = calloc(n_said, sizeof *v);
    assert_non_null(v);
    for (size_t i = 0; i < n_said; i++)
        v[i] = say((int64_t)i + 1, facts[i & 1].v[i / 2 % facts[i & 1].n].text);
    struct facts f = extract(&a, v, n_said);
    assert_true(f.n > 0 && f.n <= FACTS_MAX);
    free(v);
    free(text);
    arena_done(&a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_newest_value_wins_and_tells_the_older),
        cmocka_unit_test(different_things_stay_beside_each_other),
        cmocka_unit_test(what_else_a_fact_holds_is_not_lost_with_an_old_value),
        cmocka_unit_test(the_assistant_does_not_overrule_a_person),
        cmocka_unit_test(facts_are_substrings_of_their_messages),
        cmocka_unit_test(merging_again_changes_nothing_and_more_room_keeps_more),
        cmocka_unit_test(what_is_written_is_read_back_as_it_was),
        cmocka_unit_test(a_line_of_a_person_is_a_note_that_stays),
        cmocka_unit_test(nothing_gives_nothing),
        cmocka_unit_test(code_in_fences_is_not_said),
        cmocka_unit_test(large_inputs_give_a_bounded_list),
    };
    return cmocka_run_group_tests(tests, read_data, NULL);
}
