/*
 * Drafts by look-up: what is drafted, and when nothing is.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#include "daemon/lookup.h"

/* Rows that cost nothing, hardly anything, and as much as a pass of their own. */
static const double FREE[8] = {1, 1, 1, 1, 1, 1, 1, 1};
static const double CHEAP[8] = {1, 1.05, 1.1, 1.15, 1.2, 1.4, 1.6, 1.8};
static const double DEAR[8] = {1, 2, 3, 4, 5, 6, 7, 8};

static uint64_t state_of_chance;

static void begin_chance(void)
{
    state_of_chance = (uint64_t)time(NULL);
    print_message("seed %llu\n", (unsigned long long)state_of_chance);
}

/* xorshift64* */
static int chance(int n)
{
    state_of_chance ^= state_of_chance >> 12;
    state_of_chance ^= state_of_chance << 25;
    state_of_chance ^= state_of_chance >> 27;
    return (int)((state_of_chance * 0x2545f4914f6cdd1du >> 33) % (uint64_t)n);
}

static void push(struct ids *ids, const char *s)
{
    for (; *s; s++)
        assert_int_equal(ids_push(ids, *s), 0);
}

/* What is drafted behind the text, as text. */
static const char *drafted(struct lookup *l, const struct ids *ids, int n_max, const double *cost)
{
    static char text[LOOKUP_DRAFT_MAX + 1];
    int32_t ret[LOOKUP_DRAFT_MAX];
    const int n = lookup_draft(l, ids, n_max, cost, ret);
    for (int i = 0; i < n; i++)
        text[i] = (char)ret[i];
    text[n] = 0;
    return text;
}

static void first(const char *text, int n_max, const double *cost, const char *want)
{
    struct lookup l;
    struct ids ids;
    ids_init(&ids);
    push(&ids, text);
    lookup_init(&l, 100);
    assert_string_equal(drafted(&l, &ids, n_max, cost), want);
    lookup_done(&l);
    ids_done(&ids);
}

static void what_followed_last_time_is_drafted(void **state)
{
    (void)state;
    first("the river runs; the riv", 7, FREE, "er runs");
    first("abcX abcY abc", 1, FREE, "Y"); /* the newest place */
    first("abcdefghij Xbcdefghij", 3, FREE, " Xb");
}

static void no_more_than_asked_for(void **state)
{
    (void)state;
    first("the river runs; the riv", 2, FREE, "er");
    first("the river runs; the riv", 0, FREE, "");
    first("the river runs; the riv", -1, FREE, "");
}

static void a_loop_goes_on(void **state)
{
    (void)state;
    first("ababab", 7, FREE, "abababa");
    first("xxxx", 7, FREE, "xxxxxxx");
    first("abcabc", 7, FREE, "abcabca");
}

static void nothing_to_find_is_no_draft(void **state)
{
    (void)state;
    first("", 7, FREE, "");
    first("a", 7, FREE, "");
    first("abcdefg", 7, FREE, "");
    first("abcdea", 7, FREE, ""); /* one id says nothing */
}

static void what_would_not_pay_is_not_drafted(void **state)
{
    (void)state;
    first("the river runs; the riv", 7, DEAR, "");
    first("the river runs; the riv", 7, NULL, "");
    const double two[8] = {1, 1.05, 9, 9, 9, 9, 9, 9};
    first("the river runs; the riv", 7, two, "e");
}

static void two_ids_are_enough_only_where_that_pays(void **state)
{
    (void)state;
    struct lookup l;
    struct ids ids;
    ids_init(&ids);
    lookup_init(&l, 4000);
    first("ab1 cd2 ab", 7, CHEAP, ""); /* unknown: rather not */
    push(&ids, "ab1 cd2 ef3 gh4 ");
    drafted(&l, &ids, 7, CHEAP);
    static const char *const words[] = {"ab1", "cd2", "ef3", "gh4"};
    for (int i = 0; i < 40; i++) { /* between them other ids each time: only two are the same */
        const int32_t other = 1000 + i;
        assert_int_equal(ids_push(&ids, other), 0);
        for (const char *s = words[i * 7 % 4]; *s; s++) {
            push(&ids, (char[]){*s, 0});
            drafted(&l, &ids, 7, CHEAP);
        }
    }
    assert_int_equal(ids_push(&ids, 999), 0);
    push(&ids, "cd");
    assert_string_equal(drafted(&l, &ids, 7, CHEAP), "2");
    lookup_done(&l);
    ids_done(&ids);
}

/* An answer of random ids, which repeats pairs and triples by chance only: how many ids are
 * drafted in its second half. */
static void chance_is_found_out(void **state)
{
    (void)state;
    begin_chance();
    struct lookup l;
    struct ids ids;
    int n_early = 0, n_late = 0;
    ids_init(&ids);
    lookup_init(&l, 2000);
    for (int i = 0; i < 2000; i++) {
        int32_t ret[LOOKUP_DRAFT_MAX];
        assert_int_equal(ids_push(&ids, chance(20)), 0);
        const int n = lookup_draft(&l, &ids, 7, CHEAP, ret);
        *(i < 1000 ? &n_early : &n_late) += n;
    }
    print_message("%d drafted, then %d\n", n_early, n_late);
    assert_true(n_late <= 250); /* a match is there nearly always, right once in twenty times */
    lookup_done(&l);
    ids_done(&ids);
}

static void a_quote_is_drafted_longer_and_longer(void **state)
{
    (void)state;
    static const char text[] = "The quick brown fox jumps over the lazy dog, and then it sleeps.";
    struct lookup l;
    struct ids ids;
    int n_before = 0, n_passes = 0;
    ids_init(&ids);
    lookup_init(&l, 200);
    push(&ids, text);
    push(&ids, "|The");
    for (size_t at = 3; at < sizeof text - 1; n_passes++) {
        int32_t ret[LOOKUP_DRAFT_MAX];
        const int n = lookup_draft(&l, &ids, 7, CHEAP, ret);
        if (at < 40) {
            assert_true(n >= n_before);
            n_before = n;
        }
        for (int i = 0; i <= n && at < sizeof text - 1; i++) {
            if (i < n)
                assert_int_equal(ret[i], at + (size_t)i < sizeof text ? text[at] : ret[i]);
            assert_int_equal(ids_push(&ids, text[at++]), 0);
        }
    }
    assert_true(n_passes < (int)sizeof text / 3);
    lookup_done(&l);
    ids_done(&ids);
}

static void without_memory_nothing_is_drafted(void **state)
{
    (void)state;
    struct lookup l = {0};
    struct ids ids;
    int32_t ret[LOOKUP_DRAFT_MAX];
    ids_init(&ids);
    push(&ids, "abcabcabc");
    assert_int_equal(lookup_draft(&l, &ids, 7, FREE, ret), 0);
    lookup_done(&l);
    ids_done(&ids);
}

/* A table that is full and full of collisions drafts only what stands in the sequence, behind ids
 * that are the same. */
static void drafts_are_always_of_the_sequence(void **state)
{
    (void)state;
    begin_chance();
    for (int round = 0; round < 20; round++) {
        struct lookup l;
        struct ids ids;
        const int n_letters = 1 + chance(30);
        ids_init(&ids);
        lookup_init(&l, 1); /* far smaller than the sequence */
        for (int i = 0; i < 3000; i++) {
            int32_t ret[LOOKUP_DRAFT_MAX];
            assert_int_equal(ids_push(&ids, chance(n_letters)), 0);
            if (chance(3) == 0)
                continue;
            const int n = lookup_draft(&l, &ids, 7, FREE, ret);
            assert_in_range(n, 0, 7);
            if (n == 0)
                continue;
            assert_true(l.at > 0 && l.at < (int)ids.n);
            assert_int_equal(ret[0], ids.v[l.at]);
            const size_t n_same = l.is_back ? 1 : 2;
            assert_memory_equal(&ids.v[l.at - (int)n_same], &ids.v[ids.n - n_same],
                                n_same * sizeof *ids.v);
        }
        lookup_done(&l);
        ids_done(&ids);
    }
}

/* A text is quoted with words replaced, added and left out: how many passes are for a word alone,
 * behind the first few. */
static void who_rewrites_is_followed_again(void **state)
{
    (void)state;
    struct lookup l;
    struct ids ids;
    ids_init(&ids);
    lookup_init(&l, 400);
    push(&ids, "abcdefghijklmnopqrstuvwxyz0123456789|abcdefg");
    drafted(&l, &ids, 7, CHEAP);
    push(&ids, "H"); /* h was replaced */
    assert_string_equal(drafted(&l, &ids, 7, CHEAP), "");
    push(&ids, "i");
    assert_string_equal(drafted(&l, &ids, 3, FREE), "jkl");
    push(&ids, "jkl!"); /* something was added */
    assert_string_equal(drafted(&l, &ids, 7, CHEAP), "");
    push(&ids, "m");
    assert_string_equal(drafted(&l, &ids, 3, FREE), "nop");
    push(&ids, "nos"); /* p q r were left out */
    assert_string_equal(drafted(&l, &ids, 3, FREE), "tuv");
    push(&ids, "tuv");
    for (int i = 0; i < 20; i++) { /* something else for long: it isn't waited for */
        assert_int_equal(ids_push(&ids, 1000 + i), 0);
        drafted(&l, &ids, 7, CHEAP);
    }
    push(&ids, "x");
    assert_string_equal(drafted(&l, &ids, 3, FREE), "");
    lookup_done(&l);
    ids_done(&ids);
}

/* Somebody who knows what is drafted says something else each time, and before that repeats what
 * gives reason to draft; sometimes gives in, to be trusted again. Costs are any that grow. */
static void whatever_comes_the_account_holds(void **state)
{
    (void)state;
    begin_chance();
    for (int round = 0; round < 200; round++) {
        struct lookup l;
        struct ids ids;
        double cost[8] = {1}, spent = 0;
        const int n_letters = 2 + chance(6), n_true_in = 1 + chance(40);
        for (int k = 1; k < 8; k++)
            cost[k] = cost[k - 1] + chance(1000) / (round % 2 ? 1000.0 : 5000.0);
        ids_init(&ids);
        lookup_init(&l, 2000);
        push(&ids, "abcabcabc");
        for (const size_t n_prompt = ids.n; ids.n < 1500;) {
            int32_t ret[LOOKUP_DRAFT_MAX];
            const int n = lookup_draft(&l, &ids, 7, cost, ret);
            const bool is_true = chance(n_true_in) == 0;
            spent += cost[n];
            for (int k = 0; is_true && k < n; k++)
                assert_int_equal(ids_push(&ids, ret[k]), 0);
            int32_t other = 'a' + chance(n_letters);
            while (n > 0 && !is_true && other == ret[0])
                other = 'a' + (other - 'a' + 1) % n_letters;
            assert_int_equal(ids_push(&ids, other), 0);
            const double n_out = (double)(ids.n - n_prompt);
            assert_true(spent <= n_out + LOOKUP_CREDIT + LOOKUP_CREDIT_SHARE * n_out + 1e-6);
        }
        lookup_done(&l);
        ids_done(&ids);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_followed_last_time_is_drafted),
        cmocka_unit_test(no_more_than_asked_for),
        cmocka_unit_test(a_loop_goes_on),
        cmocka_unit_test(nothing_to_find_is_no_draft),
        cmocka_unit_test(what_would_not_pay_is_not_drafted),
        cmocka_unit_test(two_ids_are_enough_only_where_that_pays),
        cmocka_unit_test(chance_is_found_out),
        cmocka_unit_test(a_quote_is_drafted_longer_and_longer),
        cmocka_unit_test(without_memory_nothing_is_drafted),
        cmocka_unit_test(drafts_are_always_of_the_sequence),
        cmocka_unit_test(who_rewrites_is_followed_again),
        cmocka_unit_test(whatever_comes_the_account_holds),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
