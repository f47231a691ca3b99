/*
 * Ranking in memory, against a fool that counts anew for every question. HEARTH_SEED repeats a run.
 */
#include "tests/memory/place.h"

#include <math.h>
#include <time.h>

#include "memory/bm25.h"
#include "memory/search.h"

#define TEXTS 24
#define ROUNDS 200

static uint64_t random_state;

/* splitmix64 */
static int below(int n)
{
    uint64_t z = random_state += 0x9E3779B97F4A7C15u;
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9u;
    z = (z ^ z >> 27) * 0x94D049BB133111EBu;
    return (int)((z ^ z >> 31) % (unsigned)n);
}

static void read_all(struct bm25 *b, const char *const *texts, size_t n)
{
    struct err e;
    for (size_t i = 0; i < n; i++)
        assert_int_equal(bm25_read(b, i, texts[i], strlen(texts[i]), &e), 0);
}

static void add_first(struct bm25 *b, size_t n)
{
    struct err e;
    for (size_t i = 0; i < n; i++)
        assert_int_equal(bm25_add(b, i, &e), 0);
}

static void what_shares_words_is_found(void **state)
{
    (void)state;
    static const char *const texts[] = {
        "I'm allergic to peanuts, by the way.", "Good to know.", "The train leaves at nine.",
        "Then be early.", "我对花生过敏。", "好的，记住了。", "Are peanuts a problem for me?",
        "花生可以吃吗？"};
    struct bm25 *b = bm25_new(8);
    struct bm25_hit hits[4];
    assert_non_null(b);
    read_all(b, texts, 8);
    assert_int_equal(bm25_ask(b, 6, NULL, hits, 4), 0); /* nothing was added */
    add_first(b, 6);
    assert_true(bm25_ask(b, 6, NULL, hits, 4) >= 2);
    assert_int_equal(hits[0].text, 0);
    assert_true(hits[0].has_terms);
    assert_int_equal(hits[1].text, 1); /* beside it */
    assert_false(hits[1].has_terms);
    assert_true(bm25_ask(b, 7, NULL, hits, 4) >= 1);
    assert_int_equal(hits[0].text, 4);
    bm25_free(b);
}

static void each_text_once_and_never_the_question_nor_what_is_skipped(void **state)
{
    (void)state;
    static const char *const texts[] = {"The port is 9090.", "The PORT is 9090!", "which port",
                                        "A port in Spain.", "Which port?", "the port is 9090"};
    bool skip[6] = {false};
    struct bm25 *b = bm25_new(6);
    struct bm25_hit hits[6];
    read_all(b, texts, 6);
    add_first(b, 4);
    assert_int_equal(bm25_ask(b, 4, skip, hits, 6), 2);
    assert_true(hits[0].text == 1 || hits[1].text == 1); /* the newer of the two */
    assert_true(hits[0].text == 3 || hits[1].text == 3);
    skip[0] = true; /* shown already, whichever of them */
    assert_int_equal(bm25_ask(b, 4, skip, hits, 6), 1);
    assert_int_equal(hits[0].text, 3);
    assert_int_equal(bm25_ask(b, 5, NULL, hits, 1), 1);
    bm25_free(b);
}

static void a_text_of_nothing_finds_nothing(void **state)
{
    (void)state;
    static const char *const texts[] = {"words of some kind", "", "?!…", "the of and"};
    struct bm25 *b = bm25_new(4);
    struct bm25_hit hits[4];
    read_all(b, texts, 4);
    add_first(b, 1);
    assert_int_equal(bm25_ask(b, 1, NULL, hits, 4), 0);
    assert_int_equal(bm25_ask(b, 2, NULL, hits, 4), 0);
    assert_int_equal(bm25_ask(b, 3, NULL, hits, 4), 1); /* stop words, when there is nothing else */
    bm25_free(b);
}

/* ---- against the fool ---- */

static const char *const words[] = {"harbour", "copper", "violin", "meadow", "anchor",
                                    "pepper",  "lantern", "orbit", "gravel", "saffron"};
#define WORDS (sizeof(words) / sizeof(words[0]))

static int counts[TEXTS][WORDS]; /* how often each word stands in each text */
static bool is_added[TEXTS];

static void make_text(int i, char *ret, size_t size)
{
    size_t n = 0;
    memset(counts[i], 0, sizeof(counts[i]));
    ret[0] = '\0';
    /* A number of its own: no two texts are the same. */
    n += (size_t)snprintf(ret + n, size - n, "%d", 1000 + i);
    for (int k = 1 + below(8); k > 0; k--) {
        int w = below(WORDS);
        counts[i][w]++;
        n += (size_t)snprintf(ret + n, size - n, " %s", words[w]);
    }
}

static int length_of(int i)
{
    int n = 1;
    for (size_t w = 0; w < WORDS; w++)
        n += counts[i][w];
    return n;
}

static double own_of(int query, int i)
{
    const struct memory_weights *w = &memory_weights_default;
    double score = 0, n = 0;
    for (int k = 0; k < TEXTS; k++)
        n += is_added[k];
    for (size_t t = 0; t <= WORDS; t++) {
        const bool is_word = t < WORDS; /* else the text's number, which no other has */
        double df = !is_word, tf = is_word ? counts[i][t] : i == query;
        for (int k = 0; is_word && k < TEXTS; k++)
            df += is_added[k] && counts[k][t] > 0;
        if ((is_word && counts[query][t] == 0) || df == 0 || !is_added[i])
            continue;
        score += log(1 + (n - df + 0.5) / (df + 0.5)) * tf * (w->k1 + 1) /
                 (tf + w->k1 * (1 - w->b + w->b * length_of(i) / 20));
    }
    return score;
}

/* Few enough texts that all hits share with their neighbours. */
static double score_of(int query, int i)
{
    const struct memory_weights *w = &memory_weights_default;
    if (!is_added[i] || i == query)
        return 0;
    double score = own_of(query, i);
    if (i + 1 < TEXTS)
        score += w->before * own_of(query, i + 1);
    if (i > 0)
        score += w->after * own_of(query, i - 1);
    return score;
}

static void check_question(struct bm25 *b, int query)
{
    struct bm25_hit hits[TEXTS];
    size_t n = bm25_ask(b, (size_t)query, NULL, hits, TEXTS), n_expected = 0;
    for (int i = 0; i < TEXTS; i++)
        n_expected += score_of(query, i) > 0;
    assert_int_equal(n, n_expected);
    for (size_t i = 0; i < n; i++) {
        const double expected = score_of(query, (int)hits[i].text);
        assert_true(fabs(hits[i].score - expected) < 1e-9);
        assert_true(i == 0 || hits[i - 1].score >= hits[i].score);
        assert_int_equal(hits[i].has_terms, own_of(query, (int)hits[i].text) > 0);
    }
}

static void random_texts_are_ranked_as_the_fool_does(void **state)
{
    (void)state;
    struct err e;
    char text[256];
    for (int round = 0; round < ROUNDS; round++) {
        struct bm25 *b = bm25_new(TEXTS);
        memset(is_added, 0, sizeof(is_added));
        for (int i = 0; i < TEXTS; i++) {
            make_text(i, text, sizeof(text));
            assert_int_equal(bm25_read(b, (size_t)i, text, strlen(text), &e), 0);
        }
        for (int k = 0; k < TEXTS; k++) {
            int i = below(TEXTS);
            assert_int_equal(bm25_add(b, (size_t)i, &e), 0);
            is_added[i] = true;
            check_question(b, below(TEXTS));
        }
        bm25_free(b);
    }
}

int main(void)
{
    const char *seed = getenv("HEARTH_SEED");
    random_state = seed ? strtoull(seed, NULL, 10) : (uint64_t)time(NULL);
    print_message("HEARTH_SEED=%llu\n", (unsigned long long)random_state);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_shares_words_is_found),
        cmocka_unit_test(each_text_once_and_never_the_question_nor_what_is_skipped),
        cmocka_unit_test(a_text_of_nothing_finds_nothing),
        cmocka_unit_test(random_texts_are_ranked_as_the_fool_does),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
