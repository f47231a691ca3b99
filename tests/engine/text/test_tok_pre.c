/*
 * Pre-tokenizers: pieces equal those of the models' own patterns (tests/golden/pretok.jsonl, made
 * by tests/reference/pretok.py), and every line of the table takes long texts in one go.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "engine/tok_impl.h"
#include "tests/engine/text/vocab.h"

/* The pieces of one text, each followed by a byte that no UTF-8 has. */
struct pieces {
    char *s;
    size_t n, n_pieces, n_bytes;
};

static int take_piece(void *ctx, const char *piece, size_t n, struct err *e)
{
    (void)e;
    struct pieces *p = ctx;
    if (p->s) {
        memcpy(p->s + p->n, piece, n);
        p->s[p->n + n] = '\xFF';
        p->n += n + 1;
    }
    p->n_pieces++;
    p->n_bytes += n;
    return 0;
}

static void cut(const char *pre, struct tok_str text, struct pieces *p)
{
    struct split *split;
    struct split_run *run;
    struct err e;
    if (split_new(pre, &split, &e) < 0 || split_run_new(split, &run, &e) < 0 ||
        split_text(run, text, take_piece, p, &e) < 0)
        fail_msg("%s: %s", pre, e.text);
    split_run_free(run);
    split_free(split);
}

static void check_golden(const struct offline_line *l, void *ctx)
{
    (void)ctx;
    size_t n, n_pre;
    char *text = offline_str(l, json_get(l->root, "text", NULL), &n);
    char *pre = offline_str(l, json_get(l->root, "pre", NULL), &n_pre);
    struct pieces got = {.s = malloc(2 * n + 1)}, want = {.s = malloc(2 * n + 1)};
    for (const json *it = json_first(json_get(l->root, "pieces", NULL)); it; it = json_next(it)) {
        size_t len;
        char *piece = offline_str(l, it, &len);
        take_piece(&want, piece, len, NULL);
        free(piece);
    }
    cut(pre, (struct tok_str){text, n}, &got);
    if (got.n != want.n || memcmp(got.s, want.s, got.n) != 0)
        fail_msg("%s: \"%s\"\n  is  %.*s\n  not %.*s", pre, text, (int)got.n, got.s, (int)want.n,
                 want.s);
    free(got.s);
    free(want.s);
    free(text);
    free(pre);
}

static void pieces_are_those_of_the_models_own_patterns(void **state)
{
    (void)state;
    assert_true(golden_each("pretok.jsonl", check_golden, NULL) > 500);
}

/* Quadratic time would not end within the test's limit: 128 KiB squared is 10^10, 500 times. */
static void every_pre_tokenizer_takes_long_texts_in_linear_time(void **state)
{
    (void)state;
    static const char *const units[] = {"x",  "X",   " ",  "7",  "\n", "\xE4\xBD\xA0", "xX",
                                        "7x", " \n", ". ", "'",  "\x01", "e\xCC\x81", "\xCC\x81"};
    const size_t n = (size_t)128 << 10;
    char *text = malloc(n + 1);
    for (size_t u = 0; u < sizeof units / sizeof *units; u++) {
        const size_t len = strlen(units[u]), whole = n / len * len;
        for (size_t i = 0; i < whole; i++)
            text[i] = units[u][i % len];
        text[whole] = 'a'; /* what a run is followed by decides how far it is gone back over */
        const struct pre_def *def;
        for (size_t i = 0; (def = pre_at(i)); i++) {
            char name[64];
            struct pieces p = {0};
            snprintf(name, sizeof name, "%.*s", (int)strcspn(def->names, " "), def->names);
            cut(name, (struct tok_str){text, whole + 1}, &p);
            assert_int_equal(p.n_bytes, whole + 1);
        }
    }
    free(text);
}

static unsigned next(unsigned *seed)
{
    *seed = *seed * 1103515245u + 12345u;
    return *seed >> 16;
}

/* Appends a few of these; what is hard is what stands beside the newline. */
static size_t add_any(char *to, size_t n, size_t n_units, unsigned *seed)
{
    static const char *const units[] = {
        "a",  "B",  " ",    "7",  "\n", "\r", ".", "/",           "-",            "'s",
        "\"", "1234", "\t", "=(", "[",  "X",  "\xE4\xBD\xA0", "\xE3\x80\x82", "e\xCC\x81",
        "\xE3\x80\x80", "\xC2\xA0"};
    for (size_t i = 0; i < n_units; i++) {
        const char *unit = units[next(seed) % (sizeof units / sizeof *units)];
        memcpy(to + n, unit, strlen(unit));
        n += strlen(unit);
    }
    return n;
}

/* Two lines as tok_cuts_lines has them: *ret_cut is where the second begins. */
static size_t two_lines(char *to, size_t *ret_cut, unsigned *seed)
{
    static const char ends[] = "aZ9.:\"')}/-!", begins[] = "aZ9-[";
    size_t n = add_any(to, 0, next(seed) % 8, seed);
    to[n++] = ends[next(seed) % (sizeof ends - 1)];
    to[n++] = '\n';
    *ret_cut = n;
    to[n++] = begins[next(seed) % (sizeof begins - 1)];
    return add_any(to, n, next(seed) % 8, seed);
}

static bool is_cut_between(const char *pre, const char *text, size_t n, size_t at)
{
    char whole[256], parts[256];
    struct pieces a = {.s = whole}, b = {.s = parts};
    cut(pre, (struct tok_str){text, n}, &a);
    cut(pre, (struct tok_str){text, at}, &b);
    cut(pre, (struct tok_str){text + at, n - at}, &b);
    return a.n == b.n && memcmp(whole, parts, a.n) == 0;
}

static void lines_are_cut_by_every_pre_tokenizer_but_those_that_span_them(void **state)
{
    (void)state;
    const struct pre_def *def;
    unsigned seed = 20261130;
    print_message("seed %u\n", seed);
    for (size_t i = 0; (def = pre_at(i)); i++) {
        char name[64], text[128];
        size_t n_joined = 0, at;
        snprintf(name, sizeof name, "%.*s", (int)strcspn(def->names, " "), def->names);
        for (int k = 0; k < 300; k++) {
            const size_t n = two_lines(text, &at, &seed);
            const bool is_cut = is_cut_between(name, text, n, at);
            if (!is_cut && !(def->flags & PRE_SPANS_LINES))
                fail_msg("%s: \"%.*s\" goes on in the next line", name, (int)n, text);
            n_joined += !is_cut;
        }
        assert_int_equal(n_joined > 0, (def->flags & PRE_SPANS_LINES) != 0);
    }
}

static void all_names_of_a_line_are_found(void **state)
{
    (void)state;
    assert_ptr_equal(pre_find("llama3"), pre_find("llama-bpe"));
    assert_ptr_equal(pre_find("jina-v2-de"), pre_find("gpt-2"));
    assert_non_null(pre_find("jina-v2-code"));
    assert_null(pre_find("jina-v2"));
    assert_null(pre_find(""));
    assert_null(pre_find("gpt-2 phi-2"));
    assert_true(pre_find("llama-bpe")->flags & PRE_IGNORE_MERGES);
    assert_true(tok_pre_adds_bos("tekken"));
    assert_false(tok_pre_adds_bos("qwen2"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pieces_are_those_of_the_models_own_patterns),
        cmocka_unit_test(every_pre_tokenizer_takes_long_texts_in_linear_time),
        cmocka_unit_test(lines_are_cut_by_every_pre_tokenizer_but_those_that_span_them),
        cmocka_unit_test(all_names_of_a_line_are_found),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
