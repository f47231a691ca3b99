/* WordPiece: which pieces a text becomes, and what no text can do. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/clock.h"
#include "engine/tok_wordpiece.h"

/* clang-format off */
static const char *const own[] = {"[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "un", "##aff",
    "##able", "the", "!", "-", "'", "s", "it", "cafe", "##s", "\xE4\xB8\xAD", "\xE6\x96\x87",
    "\xE3\x81\x82", "##\xE3\x81\x84", "strasse", "a", "##a", "aa", "##aaa", "\xF0\x9F\x98\x80",
    "[", "]", "cls", "$", "5", "\xE2\x82\xAC", "##5", "\xE1\x84\x80", "##\xE1\x85\xA1", "i", "##i"};
static const char *const llama[] = {"[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]",
    "\xE2\x96\x81un", "aff", "able", "\xE2\x96\x81the", "\xE2\x96\x81!", "\xE2\x96\x81-",
    "\xE2\x96\x81'", "\xE2\x96\x81s", "\xE2\x96\x81it", "\xE2\x96\x81" "cafe", "s"};
/* clang-format on */

static struct wordpiece *make(const char *const *v, size_t n)
{
    struct tok_str pieces[64];
    struct wordpiece_spec spec = {pieces, NULL, n, -1, -1, -1, -1};
    struct wordpiece *w = NULL;
    struct err e;
    for (size_t i = 0; i < n; i++)
        pieces[i] = (struct tok_str){v[i], strlen(v[i])};
    assert_int_equal(wordpiece_new(&spec, &w, &e), 0);
    return w;
}
#define MAKE(v) make(v, sizeof(v) / sizeof(*(v)))

/* "5 6 7": what the text becomes. */
static const char *encode(const struct wordpiece *w, const char *text, size_t n, size_t max,
                          size_t *ret_used)
{
    static char out[4096];
    struct ids ids;
    size_t used, at = 0;
    ids_init(&ids);
    assert_int_equal(wordpiece_encode(w, (struct tok_str){text, n}, max, &ids, &used), 0);
    assert_true(ids.n <= max && used <= n);
    out[0] = '\0';
    for (size_t i = 0; i < ids.n && at < sizeof out - 12; i++)
        at += (size_t)snprintf(out + at, sizeof out - at, i ? " %d" : "%d", ids.v[i]);
    ids_done(&ids);
    if (ret_used)
        *ret_used = used;
    return out;
}

static void words_become_their_longest_pieces(void **state)
{
    (void)state;
    static const struct {
        const char *text, *want;
    } cases[] = {
        {"unaffable", "5 6 7"},
        {"UnAffAble THE", "5 6 7 8"},
        {"the!the", "8 9 8"},
        {"it's", "13 11 12"},
        {"--", "10 10"},
        {"caf\xC3\xA9", "14"},            /* composed */
        {"cafe\xCC\x81s", "14 15"},       /* a combining accent */
        {"\xE4\xB8\xAD\xE6\x96\x87", "16 17"}, /* each ideograph a word */
        {"the\xE4\xB8\xADthe", "8 16 8"},
        {"\xE3\x81\x82\xE3\x81\x84", "18 19"}, /* kana aren't */
        {"stra\xC3\x9F" "e", "1"},             /* lower case of sharp s is itself */
        {"strasse", "20"},
        {"\xF0\x9F\x98\x80", "25"},
        {"\xF0\x9F\x98\x80\xE2\x80\x8D", "25"}, /* a joiner is nothing */
        {"[CLS]", "26 28 27"},                  /* text, never the token */
        {"$5", "29 30"},
        {"\xE2\x82\xAC" "5", "31 32"}, /* the euro sign is no punctuation */
        {"\xEA\xB0\x80", "33 34"},     /* Hangul by its letters */
        {"\xC4\xB0", "35"},            /* I with a dot */
        {"aaaaaa", "23 24 22"},
        {"zzz", "1"},
        {"unz the", "1 8"}, /* the whole word is unknown */
        {"", ""},
        {" \t\r\n\xC2\xA0\xE3\x80\x80\xE2\x80\xA8", ""},
        {"the\xE3\x80\x80the", "8 8"},
        {"t\xC2\xADhe", "8"}, /* a soft hyphen is nothing */
        {"t\x01he", "8"},
        {"t\xFFhe", "8"},
        {"t\xEF\xBF\xBDhe", "8"},
    };
    struct wordpiece *w = MAKE(own);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const char *got = encode(w, cases[i].text, strlen(cases[i].text), 100, NULL);
        if (strcmp(got, cases[i].want) != 0)
            fail_msg("\"%s\": %s, not %s", cases[i].text, got, cases[i].want);
    }
    assert_string_equal(encode(w, "t\0he", 4, 100, NULL), "8");
    wordpiece_free(w);
}

static void both_spellings_of_a_vocabulary_are_read(void **state)
{
    (void)state;
    struct wordpiece *w = MAKE(llama);
    static const char text[] = "Unaffable! It's caf\xC3\xA9s";
    assert_string_equal(encode(w, text, sizeof text - 1, 100, NULL), "5 6 7 9 13 11 12 14 15");
    assert_int_equal(wordpiece_cls(w), 2);
    assert_int_equal(wordpiece_sep(w), 3);
    wordpiece_free(w);
}

static void a_word_of_more_than_100_characters_is_unknown(void **state)
{
    (void)state;
    struct wordpiece *w = MAKE(own);
    char text[512];
    memset(text, 'a', sizeof text);
    assert_string_not_equal(encode(w, text, 100, 200, NULL), "1");
    assert_string_equal(encode(w, text, 101, 200, NULL), "1");
    text[150] = ' ';
    text[151] = '\xE4', text[152] = '\xB8', text[153] = '\xAD';
    assert_string_equal(encode(w, text, 154, 200, NULL), "1 16");
    wordpiece_free(w);
}

static void what_does_not_fit_is_where_the_next_part_begins(void **state)
{
    (void)state;
    struct wordpiece *w = MAKE(own);
    static const char text[] = "the unaffable the";
    size_t used;
    assert_string_equal(encode(w, text, sizeof text - 1, 2, &used), "8 5");
    assert_int_equal(used, 3); /* the second word again, whole */
    assert_string_equal(encode(w, text + used, sizeof text - 1 - used, 100, &used), "5 6 7 8");
    assert_string_equal(encode(w, text + 4, sizeof text - 5, 2, &used), "5 6");
    assert_int_equal(used, 9); /* a word that fits nowhere is left behind */
    assert_string_equal(encode(w, "the the", 7, 2, &used), "8 8");
    assert_int_equal(used, 7);
    wordpiece_free(w);
}

/* Cut at any place and filled with anything, a text is walked to its end, in linear time. */
static void any_bytes_are_taken(void **state)
{
    (void)state;
    const uint64_t seed = (uint64_t)clock_us();
    uint64_t x = seed;
    print_message("seed %llu\n", (unsigned long long)seed);
    struct wordpiece *w = MAKE(own);
    static const char alphabet[] = "aunbl !\xE4\xB8\xAD\xF0\x9F\x98\x80\xCC\x81\xFF\x00\xE1\xEA";
    for (int round = 0; round < 2000; round++) {
        char text[300];
        const size_t n = (size_t)(round % 300);
        for (size_t i = 0; i < n; i++) {
            x = x * 6364136223846793005u + 1442695040888963407u;
            const char usual = alphabet[(x >> 33) % (sizeof alphabet - 1)];
            text[i] = (x >> 60) == 0 ? (char)(x >> 40) : usual;
        }
        char *exact = malloc(n + 1); /* for the sanitizer */
        assert_non_null(exact);
        memcpy(exact, text, n);
        size_t used, at = 0, n_parts = 0;
        encode(w, exact, n, 100000, &used);
        assert_int_equal(used, n);
        while (at < n && n_parts++ <= n) {
            encode(w, exact + at, n - at, 3, &used);
            assert_true(used > 0);
            at += used;
        }
        assert_int_equal(at, n);
        free(exact);
    }
    struct ids ids;
    size_t used;
    const size_t large = 4 << 20;
    char *text = malloc(large);
    assert_non_null(text);
    memset(text, 'a', large);
    ids_init(&ids);
    assert_int_equal(wordpiece_encode(w, (struct tok_str){text, large}, large, &ids, &used), 0);
    assert_int_equal(ids.n, 1);
    for (size_t i = 99; i < large; i += 100)
        text[i] = ' ';
    assert_int_equal(wordpiece_encode(w, (struct tok_str){text, large}, large, &ids, &used), 0);
    assert_true(ids.n > large / 5);
    ids_done(&ids);
    free(text);
    wordpiece_free(w);
}

static void a_vocabulary_without_its_special_pieces_is_refused(void **state)
{
    (void)state;
    static const char *const names[] = {"[CLS]", "[SEP]", "[UNK]"};
    for (size_t k = 0; k < 3; k++) {
        struct tok_str pieces[8];
        struct wordpiece_spec spec = {pieces, NULL, 5, -1, -1, -1, -1};
        struct wordpiece *w = NULL;
        struct err e = {0};
        for (size_t i = 0; i < 5; i++)
            pieces[i] = (struct tok_str){strcmp(own[i], names[k]) ? own[i] : "x", 1};
        for (size_t i = 0; i < 5; i++)
            pieces[i].n = strlen(pieces[i].s);
        assert_int_equal(wordpiece_new(&spec, &w, &e), ERR_CORRUPT);
        assert_non_null(strstr(e.text, names[k]));
        assert_null(w);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(words_become_their_longest_pieces),
        cmocka_unit_test(both_spellings_of_a_vocabulary_are_read),
        cmocka_unit_test(a_word_of_more_than_100_characters_is_unknown),
        cmocka_unit_test(what_does_not_fit_is_where_the_next_part_begins),
        cmocka_unit_test(any_bytes_are_taken),
        cmocka_unit_test(a_vocabulary_without_its_special_pieces_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
