/* Which terms a text gives, whatever its bytes. */
#include "tests/memory/place.h"

#include "base/clock.h"
#include "base/utf8.h"
#include "memory/segment.h"

static struct segmenter *seg;

static int make(void **state)
{
    (void)state;
    seg = segmenter_new();
    return seg ? 0 : -1;
}

static int remove_it(void **state)
{
    (void)state;
    segmenter_free(seg);
    return 0;
}

/* The terms of n bytes, joined; valid until the next call. */
static const char *terms_n(const char *text, size_t n)
{
    static char joined[1 << 16];
    struct buf b;
    buf_init(&b, sizeof(joined) - 1);
    segment_text(seg, &b, text, n);
    assert_int_equal(buf_error(&b), 0);
    memcpy(joined, b.data ? b.data : "", b.len);
    joined[b.len] = '\0';
    buf_done(&b);
    return joined;
}

static const char *terms(const char *text)
{
    return terms_n(text, strlen(text));
}

static void words_are_folded_and_stemmed(void **state)
{
    (void)state;
    assert_string_equal(terms("Running RUNS, run!"), "run run run");
    assert_string_equal(terms("café CAFÉ Cafe\xCC\x81"), "cafe cafe cafe");
    assert_string_equal(terms("Straße Ⅳ ﬁne"), "strass iv fine");
    assert_string_equal(terms("ＡＢＣ１２"), "abc12 abc 12");
    assert_string_equal(terms("Москва"), "москва");
    assert_string_equal(terms(""), "");
    assert_string_equal(terms("... -- !? \t\n"), "");
}

static void apostrophes_belong_to_names_and_not_to_grammar(void **state)
{
    (void)state;
    assert_string_equal(terms("Maria's cats' I'm you'll"), "maria cat i you");
    assert_string_equal(terms("don't don’t"), "dont dont");
    assert_string_equal(terms("O'Brien"), "obrien o brien");
    assert_string_equal(terms("O’Brien"), "obrien o brien");
}

static void what_is_joined_is_kept_whole_and_in_parts(void **state)
{
    (void)state;
    assert_string_equal(terms("INC-4471"), "inc4471 inc 4471");
    assert_string_equal(terms("inc4471"), "inc4471 inc 4471");
    assert_string_equal(terms("run-beta"), "runbeta run beta");
    assert_string_equal(terms("3.5"), "3\xEE\x80\x80"
                                      "5 3 5");
    assert_string_equal(terms("1,200"), "1\xEE\x80\x80"
                                        "200 1 200");
    assert_string_equal(terms("2024-05-17"), "2024\xEE\x80\x80"
                                             "05\xEE\x80\x80"
                                             "17 2024 05 17");
    assert_string_equal(terms("one, two"), "one two");
    assert_string_equal(terms("std::map"), "std map");
    assert_string_equal(terms("a@b.org"), "aborg a b org");
    assert_string_equal(terms("-x- _y_ 'z'"), "x y z");
}

static void chinese_gives_characters_and_pairs(void **state)
{
    (void)state;
    assert_string_equal(terms("评审会"), "评 评审 审 审会 会");
    assert_string_equal(terms("评"), "评");
    assert_string_equal(terms("评，审"), "评 审");
    assert_string_equal(terms("用run-beta评"), "用 runbeta run beta 评");
    assert_string_equal(terms("カード"), "カ カー ー ード ド");
    assert_string_equal(terms("한국"), "한 한국 국");
}

static bool count_stops(void *user, const struct segment *t)
{
    int *n = user;
    n[t->is_stop]++;
    return true;
}

static void the_commonest_words_are_marked(void **state)
{
    (void)state;
    int n[2] = {0, 0};
    const char *text = "What did the dog do? 什么";
    segment_walk(seg, text, strlen(text), count_stops, n);
    assert_int_equal(n[0], 1); /* dog */
    assert_int_equal(n[1], 7); /* what did the do, and 什 什么 么 */
}

static bool stop_at_two(void *user, const struct segment *t)
{
    (void)t;
    return ++*(int *)user < 2;
}

static void a_walk_can_be_ended(void **state)
{
    (void)state;
    int n = 0;
    segment_walk(seg, "a b c d 一二三", 18, stop_at_two, &n);
    assert_int_equal(n, 2);
}

struct span {
    const char *text;
    size_t n;
};

static bool check_term(void *user, const struct segment *t)
{
    struct span *s = user;
    assert_true(t->n > 0 && t->n <= SEGMENT_TERM_MAX);
    assert_int_equal(strlen(t->term), t->n);
    assert_true(utf8_valid(t->term, t->n, NULL));
    assert_true(t->from < t->to && t->to <= s->n);
    for (size_t i = 0; i < t->n;) {
        uint32_t cp = utf8_next(t->term, t->n, &i);
        assert_true(cp == 0xE000 || utf8_kind(cp) != UTF8_OTHER);
    }
    return true;
}

static void any_bytes_give_valid_terms(void **state)
{
    (void)state;
    unsigned seed = (unsigned)clock_us();
    static const char *const bits[] = {
        "a",  "Z", "9",  "'",        "-",     ".",        " ",
        "\0", "é", "评", "カ",       "\xFF",  "\xE8\xAF", "\xEE\x80\x80",
        "😀",  "ﷺ", "İ",  "\xCC\x81", "हिन्दी", ":"};
    print_message("seed %u\n", seed);
    for (int round = 0; round < 2000; round++) {
        char text[512];
        size_t n = 0;
        while (n < 400) {
            seed = seed * 1103515245u + 12345u;
            const char *bit = bits[(seed >> 16) % 20];
            size_t len = *bit ? strlen(bit) : 1;
            memcpy(text + n, bit, len);
            n += len;
        }
        segment_walk(seg, text, n, check_term, &(struct span){text, n});
    }
    assert_string_equal(terms_n("be\0ta", 5), "be ta");
    assert_string_equal(terms_n("b\xFFx", 3), "b x");
    assert_string_equal(terms("a\xEE\x80\x80z"), "a z"); /* the joint isn't a person's to write */
}

static void long_runs_are_cut_and_lose_nothing(void **state)
{
    (void)state;
    static char text[1000];
    memset(text, 'q', sizeof(text));
    size_t n = strlen(terms_n(text, sizeof(text)));
    assert_int_equal(n, sizeof(text) + (sizeof(text) - 1) / SEGMENT_TERM_MAX);
    for (size_t i = 1; i < sizeof(text); i += 2)
        text[i] = '-';
    assert_true(strlen(terms_n(text, sizeof(text))) >= sizeof(text));
}

/* Work grows with the text and no faster: measured in terms, not in time. */
static void no_more_than_a_megabyte_is_indexed(void **state)
{
    (void)state;
    size_t n = SEGMENT_TEXT_MAX + 1000;
    char *text = malloc(n);
    struct buf b;
    assert_non_null(text);
    for (size_t i = 0; i < n; i++)
        text[i] = i % 2 ? ' ' : 'q';
    buf_init(&b, 4 * SEGMENT_TEXT_MAX);
    segment_text(seg, &b, text, n);
    assert_int_equal(buf_error(&b), 0);
    assert_int_equal(b.len, SEGMENT_TEXT_MAX - 1);
    buf_done(&b);
    free(text);
}

/* Stems are kept from one word to the next: they are those that a new segmenter makes. */
static void a_word_has_the_same_stem_whatever_came_before(void **state)
{
    (void)state;
    static const char *const ends[] = {"",     "s",   "ing",  "ed",      "ational", "ly",
                                       "ness", "ies", "ings", "fulness", "ment",    "y"};
    unsigned seed = (unsigned)clock_wall_s();
    print_message("seed %u\n", seed);
    for (int round = 0; round < 20000; round++) {
        char word[40], kept[100];
        size_t n = 0;
        seed = seed * 1103515245u + 12345u;
        for (unsigned k = 0; k < 2 + (seed >> 16) % 3; k++)
            word[n++] = "rtlnhopeacity"[(seed >> (8 + 3 * k)) % 13];
        snprintf(word + n, sizeof(word) - n, "%s", ends[(seed >> 20) % 12]);
        const char *all = terms(word);
        const size_t n_all = strlen(all);
        assert_true(n_all < sizeof(kept));
        memcpy(kept, all, n_all + 1);
        if (round % 20 == 0) { /* a new one takes its time */
            struct segmenter *other = segmenter_new(), *was = seg;
            assert_non_null(other);
            seg = other;
            assert_string_equal(terms(word), kept);
            seg = was;
            segmenter_free(other);
        }
    }
}

static void speaker_is(const char *text, const char *name, const char *rest)
{
    size_t at, n = segment_speaker(text, strlen(text), &at);
    assert_int_equal(n, strlen(name));
    assert_memory_equal(text, name, n);
    assert_string_equal(text + at, rest);
}

static void a_speaker_stands_before_the_colon(void **state)
{
    (void)state;
    speaker_is("Maria: hello", "Maria", "hello");
    speaker_is("Dr. Li: hello", "Dr. Li", "hello");
    speaker_is("Jean-Luc O'Neill: x", "Jean-Luc O'Neill", "x");
    speaker_is("王强：你好", "王强", "你好");
    speaker_is("Maria:", "Maria", "");
    speaker_is("maria: hello", "", "maria: hello");
    speaker_is("C:\\temp", "", "C:\\temp");
    speaker_is("Well I think: no", "", "Well I think: no");
    speaker_is("Meet at 3:30", "", "Meet at 3:30");
    speaker_is(": x", "", ": x");
    speaker_is("", "", "");
    speaker_is("今天我们要说的是这件事：好", "", "今天我们要说的是这件事：好");
    speaker_is("Supercalifragilisticexpialidociousandmuchmore: x", "",
               "Supercalifragilisticexpialidociousandmuchmore: x");
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, make, remove_it)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(words_are_folded_and_stemmed),
        TEST(apostrophes_belong_to_names_and_not_to_grammar),
        TEST(what_is_joined_is_kept_whole_and_in_parts),
        TEST(chinese_gives_characters_and_pairs),
        TEST(the_commonest_words_are_marked),
        TEST(a_walk_can_be_ended),
        TEST(a_word_has_the_same_stem_whatever_came_before),
        TEST(any_bytes_give_valid_terms),
        TEST(long_runs_are_cut_and_lose_nothing),
        TEST(no_more_than_a_megabyte_is_indexed),
        TEST(a_speaker_stands_before_the_colon),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
