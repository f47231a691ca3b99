/*
 * What is counted by lines is what the tokenizer gives for the whole text, whatever was counted
 * before, and however often: random texts of few lines, against tok_encode.
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

#include "daemon/counts.h"
#include "tests/scripted/vocab.h"

#define TEXT_BYTES 2000

static struct vocab *vocab;
static struct tok *tok;

static int make_tok(void **state)
{
    (void)state;
    struct err e;
    return vocab_new(&vocab, &e) || vocab_tok(vocab, &tok, &e) ? -1 : 0;
}

static int drop_tok(void **state)
{
    (void)state;
    tok_free(tok);
    vocab_free(vocab);
    return 0;
}

static int whole(const char *text, size_t n)
{
    struct ids ids;
    struct err e;
    ids_init(&ids);
    assert_int_equal(tok_encode(tok, text, n, false, &ids, &e), 0);
    const int n_tokens = (int)ids.n;
    ids_done(&ids);
    return n_tokens;
}

static unsigned next(unsigned *seed)
{
    *seed = *seed * 1103515245u + 12345u;
    return *seed >> 16;
}

/* Lines that are met again, with all that a line can begin and end with. */
static size_t write_lines(char *to, unsigned *seed)
{
    static const char *const parts[] = {"- User: \"hello\"\n", "the port is 9090\n",
                                        "User:\n", "\n",
                                        " a b\n", "\xE4\xBD\xA0\xE5\xA5\xBD\n", "- ", "x", "\xFF\n",
                                        "[From earlier]\n", "\r\n", "- 7\n"};
    const size_t n_parts = next(seed) % 20;
    size_t n = 0;
    for (size_t i = 0; i < n_parts; i++) {
        const char *part = parts[next(seed) % (sizeof parts / sizeof *parts)];
        memcpy(to + n, part, strlen(part));
        n += strlen(part);
    }
    return n;
}

static void a_count_by_lines_is_that_of_the_whole_text(void **state)
{
    (void)state;
    unsigned seed = (unsigned)time(NULL);
    char text[TEXT_BYTES];
    struct counts *c = counts_new();
    assert_non_null(c);
    assert_true(tok_cuts_lines(tok));
    print_message("seed %u\n", seed);
    for (int i = 0; i < 3000; i++) {
        const size_t n = write_lines(text, &seed);
        const int wanted = whole(text, n);
        assert_int_equal(counts_of(c, tok, text, n), wanted);
        assert_int_equal(counts_of(c, tok, text, n), wanted);
        assert_int_equal(counts_of(NULL, tok, text, n), wanted);
    }
    counts_free(c);
    counts_free(NULL);
}

/* More lines than there are places: each takes one over. */
static void lines_that_lose_their_place_are_counted_again(void **state)
{
    (void)state;
    char text[64];
    struct counts *c = counts_new();
    assert_non_null(c);
    for (int round = 0; round < 2; round++)
        for (unsigned i = 0; i < 3 * COUNTS_SLOTS; i += 7) {
            const size_t n = (size_t)snprintf(text, sizeof text, "line %u,\nand %u", i, i * i);
            assert_int_equal(counts_of(c, tok, text, n), whole(text, n));
        }
    counts_free(c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_count_by_lines_is_that_of_the_whole_text),
        cmocka_unit_test(lines_that_lose_their_place_are_counted_again),
    };
    return cmocka_run_group_tests(tests, make_tok, drop_tok);
}
