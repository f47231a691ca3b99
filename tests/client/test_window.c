/* What is pure of the window (client/window.h): the bar, the receipt's line, lists of facts. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#include "client/window.h"

/* ---- the bar ---- */

static int sum(const int *columns)
{
    int n = 0;
    for (int i = 0; i < BAR_KINDS; i++)
        n += columns[i];
    return n;
}

static void an_empty_window_is_free_from_end_to_end(void **state)
{
    (void)state;
    const int64_t tokens[BAR_KINDS] = {0};
    int columns[BAR_KINDS];
    bar_columns(tokens, 20, columns);
    assert_int_equal(columns[BAR_FREE], 20);
    assert_int_equal(sum(columns), 20);
}

static void shares_are_exact_where_they_come_out_even(void **state)
{
    (void)state;
    const int64_t tokens[BAR_KINDS] = {[BAR_SYSTEM] = 100, [BAR_TURNS] = 500, [BAR_FREE] = 400};
    int columns[BAR_KINDS];
    bar_columns(tokens, 50, columns);
    assert_int_equal(columns[BAR_SYSTEM], 5);
    assert_int_equal(columns[BAR_TURNS], 25);
    assert_int_equal(columns[BAR_FREE], 20);
}

static void what_is_there_at_all_is_seen(void **state)
{
    (void)state;
    const int64_t tokens[BAR_KINDS] = {1, 1, 1, 1, 1, 1, 100000};
    int columns[BAR_KINDS];
    bar_columns(tokens, 20, columns);
    for (int i = 0; i < BAR_FREE; i++)
        assert_int_equal(columns[i], 1);
    assert_int_equal(columns[BAR_FREE], 14);
}

static void too_few_columns_are_shared_all_the_same(void **state)
{
    (void)state;
    const int64_t tokens[BAR_KINDS] = {5, 5, 5, 5, 5, 5, 5};
    int columns[BAR_KINDS];
    bar_columns(tokens, 3, columns);
    assert_int_equal(sum(columns), 3);
    bar_columns(tokens, 1, columns);
    assert_int_equal(sum(columns), 1);
}

static uint64_t next(uint64_t *seed)
{
    *seed = *seed * 6364136223846793005u + 1442695040888963407u;
    return *seed >> 33;
}

/* Against the definition: the sum, nobody who isn't there, everybody who is, nearness. */
static void any_bar_is_full_and_near_to_its_shares(void **state)
{
    (void)state;
    uint64_t seed = (uint64_t)time(NULL);
    print_message("seed %llu\n", (unsigned long long)seed);
    for (int round = 0; round < 20000; round++) {
        int64_t tokens[BAR_KINDS], total = 0;
        int columns[BAR_KINDS];
        const int n = 1 + (int)(next(&seed) % 200);
        for (int i = 0; i < BAR_KINDS; i++) {
            tokens[i] = next(&seed) % 3 ? (int64_t)(next(&seed) % 1000) : 0;
            total += tokens[i];
        }
        bar_columns(tokens, n, columns);
        assert_int_equal(sum(columns), n);
        for (int i = 0; i < BAR_KINDS && total; i++) {
            const double exact = (double)tokens[i] / (double)total * n;
            assert_true(columns[i] >= 0);
            if (!tokens[i])
                assert_int_equal(columns[i], 0);
            if (n >= 2 * BAR_KINDS && tokens[i])
                assert_true(columns[i] >= 1);
            assert_true(columns[i] > exact - 1 - BAR_KINDS && columns[i] < exact + 2);
        }
    }
}

static void unknown_kinds_are_turns(void **state)
{
    (void)state;
    assert_int_equal(bar_kind_of("template"), BAR_SYSTEM);
    assert_int_equal(bar_kind_of("system"), BAR_SYSTEM);
    assert_int_equal(bar_kind_of("summary"), BAR_SUMMARY);
    assert_int_equal(bar_kind_of("message"), BAR_TURNS);
    assert_int_equal(bar_kind_of("novelty"), BAR_TURNS);
    assert_int_equal(bar_kind_of("free"), BAR_TURNS);
    assert_int_equal(bar_kind_of(NULL), BAR_TURNS);
}

/* ---- the receipt ---- */

static json *parsed(const char *text)
{
    json *j = NULL;
    struct err e;
    if (text)
        assert_int_equal(json_parse(text, strlen(text), &j, &e), 0);
    return j;
}

static void says(const char *receipt, const char *before, const char *line)
{
    struct buf b;
    json *r = parsed(receipt), *old = parsed(before);
    buf_init(&b, 4096);
    buf_str(&b, "");
    receipt_write(r, old, &b);
    assert_string_equal(b.data, line);
    buf_done(&b);
    json_free(old);
    json_free(r);
}

static void nothing_is_said_of_nothing(void **state)
{
    (void)state;
    says(NULL, NULL, "");
    says("{}", NULL, "");
    says("{\"strategy\":\"auto\",\"dropped\":[],\"summarised\":[],\"recalled_new\":[],"
         "\"recalled_kept\":[{\"id\":\"msg_1\",\"tokens\":9}],\"pinned\":[{\"id\":\"p\",\"tokens\":"
         "3}],\"before\":90,\"after\":90,\"prefix_kept\":90,\"prefix_lost\":0}",
         NULL, "");
    says("{\"dropped\":null,\"summarised\":3,\"recalled_new\":\"x\",\"cut\":7}", NULL, "");
}

static void what_left_is_counted(void **state)
{
    (void)state;
    says("{\"dropped\":[{\"id\":\"a\",\"tokens\":12}]}", NULL,
         "1 message (12 tokens) left the window");
    says("{\"summarised\":[{\"id\":\"a\",\"tokens\":12},{\"id\":\"b\",\"tokens\":400}]}", NULL,
         "2 messages (412 tokens) left the window, summed up");
    says("{\"dropped\":[{\"id\":\"c\",\"tokens\":1}],\"summarised\":[{\"id\":\"a\",\"tokens\":2}]}",
         NULL, "2 messages (3 tokens) left the window, 1 of them summed up");
}

static void a_shortened_list_is_counted_by_what_it_stands_for(void **state)
{
    (void)state;
    says("{\"dropped\": [{\"id\": \"a\", \"tokens\": 10}], \"shortened\": {\"dropped\": 2000}}",
         NULL, "2000 messages (more than 10 tokens) left the window");
}

static void everything_stands_in_one_line(void **state)
{
    (void)state;
    says("{\"dropped\":[{\"id\":\"a\",\"tokens\":12}],\"recalled_new\":[{\"id\":\"b\",\"tokens\":"
         "5},{\"id\":\"c\",\"tokens\":6}],\"cut\":\"live\",\"prefix_lost\":80,"
         "\"recall_partial\":true}",
         NULL,
         "1 message (12 tokens) left the window; 2 recalled (11 tokens); cut on the way, 80 tokens "
         "lost their place; not everything could be searched");
    says("{\"cut\":\"ahead\",\"prefix_lost\":80}", NULL, "cut ahead");
    says("{\"edits_unread\":40}", NULL, "40 tokens of your summary and facts have no room here");
    says("{\"prefix_lost\":80}", NULL, "the beginning changed, 80 tokens lost their place");
}

static void pins_are_news_against_the_reply_before(void **state)
{
    (void)state;
    const char *one = "{\"pinned\":[{\"id\":\"p\",\"tokens\":3}]}",
               *two = "{\"pinned\":[{\"id\":\"p\",\"tokens\":3},{\"id\":\"q\",\"tokens\":3}]}";
    says(two, NULL, "");
    says(two, two, "");
    says(two, one, "1 pinned");
    says(one, two, "");
    says(two, "{\"pinned\":[]}", "2 pinned");
    says(two, "{}", "");
}

/* ---- facts ---- */

#define PORT "the port is 9090 {\"by\":\"user\",\"row\":12,\"is\":{\"port\":\"9090\"}}"
#define BRACES "use {\"by\": x} always"

static void lists(void (*write)(const char *, struct buf *), const char *in, const char *out)
{
    struct buf b;
    buf_init(&b, 4096);
    buf_str(&b, "");
    write(in, &b);
    assert_string_equal(b.data, out);
    buf_done(&b);
}

static void people_see_the_words_of_facts(void **state)
{
    (void)state;
    lists(fact_lines_bare, "", "");
    lists(fact_lines_bare, PORT, "the port is 9090");
    lists(fact_lines_bare, PORT "\n\n" BRACES "\nmine\n", "the port is 9090\n\n" BRACES "\nmine\n");
    lists(fact_lines_bare, "}\n{}\n {\"by\":}", "}\n{}\n");
}

static void rejoined(const char *edited, const char *old, const char *out)
{
    struct buf b;
    buf_init(&b, 4096);
    buf_str(&b, "");
    fact_lines_rejoin(edited, old, &b);
    assert_string_equal(b.data, out);
    buf_done(&b);
}

static void lines_that_come_back_get_their_objects_again(void **state)
{
    (void)state;
    rejoined("", PORT, "");
    rejoined("the port is 9090", PORT, PORT);
    rejoined("mine\nthe port is 9090\n", "x\n" PORT "\ny", "mine\n" PORT "\n");
    rejoined("the port is 9091", PORT, "the port is 9091");
    rejoined("the port is 909", PORT, "the port is 909");
    rejoined(PORT, PORT, PORT);
    rejoined("\n\n", "\n" PORT, "\n\n");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_empty_window_is_free_from_end_to_end),
        cmocka_unit_test(shares_are_exact_where_they_come_out_even),
        cmocka_unit_test(what_is_there_at_all_is_seen),
        cmocka_unit_test(too_few_columns_are_shared_all_the_same),
        cmocka_unit_test(any_bar_is_full_and_near_to_its_shares),
        cmocka_unit_test(unknown_kinds_are_turns),
        cmocka_unit_test(nothing_is_said_of_nothing),
        cmocka_unit_test(what_left_is_counted),
        cmocka_unit_test(a_shortened_list_is_counted_by_what_it_stands_for),
        cmocka_unit_test(everything_stands_in_one_line),
        cmocka_unit_test(pins_are_news_against_the_reply_before),
        cmocka_unit_test(people_see_the_words_of_facts),
        cmocka_unit_test(lines_that_come_back_get_their_objects_again),
    };
    return cmocka_run_group_tests_name("client/window", tests, NULL, NULL);
}
