/*
 * The extractive summary. HEARTH_SEED repeats a run.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#include "base/buf.h"
#include "base/utf8.h"
#include "memory/extract.h"

static uint64_t random_state;

/* splitmix64 */
static size_t below(size_t n)
{
    uint64_t z = random_state += 0x9E3779B97F4A7C15u;
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9u;
    z = (z ^ z >> 27) * 0x94D049BB133111EBu;
    return (size_t)((z ^ z >> 31) % n);
}

static int set_up(void **state)
{
    (void)state;
    const char *seed = getenv("HEARTH_SEED");
    random_state = seed ? strtoull(seed, NULL, 0) : (uint64_t)time(NULL);
    print_message("HEARTH_SEED=%llu\n", (unsigned long long)random_state);
    return 0;
}

static struct said user(int64_t row, const char *text)
{
    return (struct said){row, MEMORY_USER, text, strlen(text)};
}

static struct said assistant(int64_t row, const char *text)
{
    return (struct said){row, MEMORY_ASSISTANT, text, strlen(text)};
}

static struct extract_ranked rank(struct arena *a, const struct said *v, size_t n, const char *old)
{
    struct extract_input in = {v, n, old, old ? strlen(old) : 0};
    struct extract_ranked r;
    struct err e = {0};
    assert_int_equal(extract_rank(&in, 0, a, &r, &e), 0);
    return r;
}

static char *compose(const struct extract_ranked *r, size_t n_take)
{
    struct buf b;
    buf_init(&b, SIZE_MAX);
    buf_str(&b, "");
    extract_compose(r, n_take, &b);
    return buf_take(&b, NULL);
}

static const char *const talk[] = {
    "Hi! How are you?",
    "Hello! I'm fine, thank you. How can I help?",
    "By the way, I'm allergic to peanuts, so never put them into a recipe. What could I cook?",
    "How about a risotto? It needs rice, stock, onions and a little wine.",
    "Our garden in Lisbon has 14 tomato plants, and the tomatoes are ripe since 3 August.",
    "Then a tomato risotto with basil is the obvious choice for your ripe tomatoes.",
    "Cool, thanks!",
    "You're welcome!",
    "The neighbours want to buy tomatoes too, I ask 4 euros a kilogram.",
    "Tomatoes from a garden are worth 4 euros. Thank you for telling me.",
};
#define N_TALK (sizeof talk / sizeof talk[0])

static void read_talk(struct said v[N_TALK])
{
    for (size_t i = 0; i < N_TALK; i++)
        v[i] = i % 2 ? assistant((int64_t)i + 1, talk[i]) : user((int64_t)i + 1, talk[i]);
}

static void what_says_something_comes_before_chat(void **state)
{
    (void)state;
    struct arena a;
    struct said v[N_TALK];
    arena_init(&a, 1 << 20);
    read_talk(v);
    struct extract_ranked r = rank(&a, v, N_TALK, NULL);
    char *best = compose(&r, 4);
    assert_non_null(strstr(best, "allergic to peanuts"));
    assert_non_null(strstr(best, "14 tomato plants"));
    for (size_t i = 0; i < 6; i++) {
        assert_null(strstr(r.v[i].text, "How are you"));
        assert_null(strstr(r.v[i].text, "thanks"));
        assert_null(strstr(r.v[i].text, "welcome"));
    }
    free(best);
    arena_done(&a);
}

static void speakers_and_the_order_of_time_are_kept(void **state)
{
    (void)state;
    struct arena a;
    arena_init(&a, 1 << 20);
    struct said v[3] = {user(1, "The red boat sank in 1990. It was never found."),
                        assistant(2, "The lake there is 40 metres deep."),
                        user(3, "我的船叫海鸥号。它有12米长。")};
    struct extract_ranked r = rank(&a, v, 3, NULL);
    assert_int_equal(r.n, 5);
    char *text = compose(&r, 5);
    assert_string_equal(text, "User: The red boat sank in 1990. It was never found.\n"
                              "Assistant: The lake there is 40 metres deep.\n"
                              "User: 我的船叫海鸥号。 它有12米长。\n");
    /* Read back as the old summary it is the same again. */
    struct extract_ranked again = rank(&a, NULL, 0, text);
    char *twice = compose(&again, again.n);
    assert_string_equal(twice, text);
    assert_int_equal(again.v[0].row, 0);
    free(twice);
    free(text);
    arena_done(&a);
}

static void sentences_without_an_end_stay_apart(void **state)
{
    (void)state;
    struct arena a;
    arena_init(&a, 1 << 20);
    struct said v[2] = {user(1, "the port is now 9090"), user(2, "we moved to the new office")};
    struct extract_ranked r = rank(&a, v, 2, NULL);
    char *text = compose(&r, 2);
    assert_string_equal(text, "User: the port is now 9090\nUser: we moved to the new office\n");
    free(text);
    arena_done(&a);
}

static void the_same_words_come_once(void **state)
{
    (void)state;
    struct arena a;
    arena_init(&a, 1 << 20);
    struct said v[3] = {user(1, "The ship sails at noon."), user(2, "the ship  sails at noon!"),
                        user(3, "船在中午出发。船在中午出发！")};
    struct extract_ranked r = rank(&a, v, 3, "User: The ship sails at noon.\n");
    assert_int_equal(r.n, 2);
    arena_done(&a);
}

static void the_old_summary_lives_on(void **state)
{
    (void)state;
    char *summary = NULL;
    for (int round = 0; round < 5; round++) {
        struct arena a;
        arena_init(&a, 1 << 20);
        char texts[12][80];
        struct said v[13];
        size_t n = 0;
        if (round == 0)
            v[n++] = user(1, "I'm allergic to peanuts, please never suggest them to me.");
        for (int i = 0; i < 12; i++, n++) {
            snprintf(texts[i], sizeof texts[i], "What do you know about subject %c%d?", 'a' + i,
                     round);
            v[n] = user((int64_t)n + 1, texts[i]);
        }
        struct extract_ranked r = rank(&a, v, n, summary);
        free(summary);
        summary = compose(&r, extract_fit(&r, 300));
        arena_done(&a);
    }
    assert_non_null(strstr(summary, "allergic to peanuts"));
    free(summary);
}

static void fitting_keeps_within_the_bytes_and_grows_with_them(void **state)
{
    (void)state;
    struct arena a;
    struct said v[N_TALK];
    arena_init(&a, 1 << 20);
    read_talk(v);
    struct extract_ranked r = rank(&a, v, N_TALK, "A person wrote this line.\n");
    size_t last = 0;
    for (size_t max = 0; max < 1500; max += 7) {
        size_t n = extract_fit(&r, max);
        char *text = compose(&r, n);
        assert_true(strlen(text) <= max);
        assert_true(n >= last);
        last = n;
        free(text);
    }
    assert_int_equal(last, r.n);
    struct extract_input in = {v, N_TALK, NULL, 0};
    struct extract_ranked few;
    struct err e;
    assert_int_equal(extract_rank(&in, 3, &a, &few, &e), 0);
    assert_int_equal(few.n, 3);
    arena_done(&a);
}

static void nothing_gives_nothing(void **state)
{
    (void)state;
    struct arena a;
    arena_init(&a, 1 << 20);
    struct said v[3] = {user(1, ""), {2, MEMORY_SYSTEM, "Be kind.", 8}, user(3, " \n\t ... ---")};
    struct extract_ranked r = rank(&a, v, 3, "");
    assert_int_equal(r.n, 0);
    assert_int_equal(extract_fit(&r, 100), 0);
    char *text = compose(&r, 10);
    assert_string_equal(text, "");
    free(text);
    r = rank(&a, NULL, 0, NULL);
    assert_int_equal(r.n, 0);
    arena_done(&a);
}

static void long_sentences_are_cut_and_say_so(void **state)
{
    (void)state;
    struct arena a;
    char text[900];
    arena_init(&a, 1 << 20);
    for (size_t i = 0; i + 6 < sizeof text; i += 6)
        memcpy(text + i, "wordy ", 7);
    struct said v[1] = {user(1, text)};
    struct extract_ranked r = rank(&a, v, 1, NULL);
    assert_int_equal(r.n, 1);
    assert_true(r.v[0].n_text <= EXTRACT_SENTENCE_BYTES_MAX);
    assert_memory_equal(r.v[0].text + r.v[0].n_text - 3, "…", 3);
    arena_done(&a);
}

static void random_bytes_give_valid_text_twice_the_same(void **state)
{
    (void)state;
    for (int round = 0; round < 60; round++) {
        static char text[2][3000];
        struct said v[2];
        struct arena a;
        arena_init(&a, 1 << 22);
        for (size_t k = 0; k < 2; k++) {
            size_t n = below(sizeof text[k]);
            for (size_t i = 0; i < n; i++)
                text[k][i] = below(3) ? "abc de. 天\n"[below(12)] : (char)below(256);
            v[k] = (struct said){(int64_t)k + 1, k ? MEMORY_ASSISTANT : MEMORY_USER, text[k], n};
        }
        struct extract_ranked r = rank(&a, v, 2, "old line"), s = rank(&a, v, 2, "old line");
        char *x = compose(&r, r.n / 2), *y = compose(&s, s.n / 2);
        assert_string_equal(x, y);
        assert_true(utf8_valid(x, strlen(x), NULL));
        for (size_t i = 0; i < r.n; i++) {
            assert_true(r.v[i].score > 0 && (!i || r.v[i].score <= r.v[i - 1].score));
            assert_true(r.v[i].score == s.v[i].score);
        }
        free(x);
        free(y);
        arena_done(&a);
    }
}

static void large_inputs_stay_bounded(void **state)
{
    (void)state;
    size_t n = (size_t)8 << 20;
    char *text = malloc(n);
    assert_non_null(text);
    for (size_t i = 0; i < n; i++)
        text[i] = i % 60 == 59 ? '\n' : (char)('a' + i * 7919 % 26);
    size_t n_said = 64;
    struct said v[64];
    for (size_t i = 0; i < n_said; i++)
        v[i] = (struct said){(int64_t)i + 1, MEMORY_USER, text + i * (n / 64), n / 64};
    struct arena a;
    arena_init(&a, EXTRACT_SENTENCES_MAX * (size_t)(EXTRACT_SENTENCE_BYTES_MAX + 96));
    struct extract_input in = {v, n_said, NULL, 0};
    struct extract_ranked r;
    struct err e = {0};
    assert_int_equal(extract_rank(&in, 0, &a, &r, &e), 0);
    assert_true(r.n > 0 && r.n <= EXTRACT_SENTENCES_MAX);
    arena_done(&a);
    free(text);
}

static void a_small_arena_is_an_error(void **state)
{
    (void)state;
    struct arena a;
    struct said v[N_TALK];
    struct extract_ranked r = {NULL, 77};
    struct err e = {0};
    arena_init(&a, 64);
    read_talk(v);
    struct extract_input in = {v, N_TALK, NULL, 0};
    assert_int_equal(extract_rank(&in, 0, &a, &r, &e), ERR_NOMEM);
    assert_int_equal(r.n, 77);
    arena_done(&a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_says_something_comes_before_chat),
        cmocka_unit_test(speakers_and_the_order_of_time_are_kept),
        cmocka_unit_test(sentences_without_an_end_stay_apart),
        cmocka_unit_test(the_same_words_come_once),
        cmocka_unit_test(the_old_summary_lives_on),
        cmocka_unit_test(fitting_keeps_within_the_bytes_and_grows_with_them),
        cmocka_unit_test(nothing_gives_nothing),
        cmocka_unit_test(long_sentences_are_cut_and_say_so),
        cmocka_unit_test(random_bytes_give_valid_text_twice_the_same),
        cmocka_unit_test(large_inputs_stay_bounded),
        cmocka_unit_test(a_small_arena_is_an_error),
    };
    return cmocka_run_group_tests(tests, set_up, NULL);
}
