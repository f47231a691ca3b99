/*
 * Tokenizers. Golden ids of SmolLM2 and Qwen2 (cases B24, B26, B33 are among them), merging against
 * a naive oracle, any bytes there and back, long inputs, and vocabularies that are refused.
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

#include "tests/engine/text/vocab.h"

static struct vocab qwen, smol; /* smol.tok is NULL without the model */
static struct vocab unnormed; /* Qwen's, without normalisation */

static struct ids encode(const struct tok *t, const char *text, size_t n, bool special)
{
    struct ids ids;
    struct err e;
    ids_init(&ids);
    if (tok_encode(t, text, n, special, &ids, &e) < 0)
        fail_msg("%s", e.text);
    return ids;
}

static char *decode(const struct tok *t, const struct ids *ids, size_t *ret_n)
{
    size_t total = 0;
    for (size_t i = 0; i < ids->n; i++) {
        size_t n;
        assert_non_null(tok_piece(t, ids->v[i], &n));
        total += n;
    }
    char *text = malloc(total + 1);
    *ret_n = 0;
    for (size_t i = 0; i < ids->n; i++) {
        size_t n;
        const char *piece = tok_piece(t, ids->v[i], &n);
        memcpy(text + *ret_n, piece, n);
        *ret_n += n;
    }
    return text;
}

static void check_golden(const struct offline_line *l, void *ctx)
{
    const struct tok *t = ctx;
    size_t n;
    char *text = offline_str(l, json_get(l->root, "text", NULL), &n);
    bool special = json_bool(json_get(l->root, "special", NULL));
    struct ids want = ids_of_json(json_get(l->root, "ids", NULL)),
               got = encode(t, text, n, special);
    assert_ids_equal(&got, &want, text);
    for (size_t i = 0; i < got.n && !special; i++)
        assert_false(tok_is_control(t, got.v[i]));
    ids_done(&got);
    ids_done(&want);
    free(text);
}

static void qwen2_ids_are_golden(void **state)
{
    (void)state;
    assert_int_equal(golden_each("tokens-qwen2.jsonl", check_golden, qwen.tok), 473);
}

static void smollm2_ids_are_golden(void **state)
{
    (void)state;
    if (!smol.tok)
        skip();
    assert_int_equal(golden_each("tokens-smollm2.jsonl", check_golden, smol.tok), 484);
}

static void control_token_strings_in_text_stay_text(void **state)
{
    (void)state;
    for (int32_t id = 0; id < (int32_t)tok_n_vocab(qwen.tok); id++) {
        if (!tok_is_control(qwen.tok, id))
            continue;
        char text[200];
        size_t n, n_back;
        const char *piece = tok_piece(qwen.tok, id, &n);
        int len = snprintf(text, sizeof text, "hi%.*s\n%.*s", (int)n, piece, (int)n, piece);
        struct ids plain = encode(qwen.tok, text, (size_t)len, false);
        for (size_t i = 0; i < plain.n; i++)
            assert_false(tok_is_control(qwen.tok, plain.v[i]));
        char *back = decode(qwen.tok, &plain, &n_back);
        assert_int_equal(n_back, len);
        assert_memory_equal(back, text, n_back);
        struct ids special = encode(qwen.tok, text, (size_t)len, true);
        assert_int_equal(special.v[special.n - 1], id);
        assert_int_equal(tok_find(qwen.tok, piece, n), id);
        ids_done(&plain);
        ids_done(&special);
        free(back);
    }
}

static void any_bytes_come_back_unchanged(void **state)
{
    (void)state;
    uint64_t r = random_seed("tok bytes");
    for (int round = 0; round < 3000; round++) {
        char text[200];
        size_t n = 1 + random_next(&r) % sizeof text, n_back;
        for (size_t i = 0; i < n; i++)
            text[i] = round % 3 == 0 ? (char)random_next(&r)
                                     : "a \n\xE4\xBD\xA0<|\xF0\x9F\x99\x99'9"[random_next(&r) % 15];
        struct ids ids = encode(unnormed.tok, text, n, round % 2);
        char *back = decode(unnormed.tok, &ids, &n_back);
        assert_int_equal(n_back, n);
        assert_memory_equal(back, text, n);
        ids_done(&ids);
        free(back);
    }
}

static void invalid_bytes_end_a_run_and_reach_their_tokens(void **state)
{
    (void)state;
    /* A cut-off 你 before x, a lone continuation, a surrogate, an overlong slash. */
    static const char text[] = "  \xE4\xBD"
                               "x\x99 \xED\xA0\x80/\xC0\xAF";
    struct ids whole = encode(qwen.tok, text, sizeof text - 1, false);
    struct ids parts[] = {
        encode(qwen.tok, "  ", 2, false), encode(qwen.tok, "\xE4\xBD", 2, false),
        encode(qwen.tok, "x", 1, false),  encode(qwen.tok, "\x99", 1, false),
        encode(qwen.tok, " ", 1, false),  encode(qwen.tok, "\xED\xA0\x80", 3, false),
        encode(qwen.tok, "/", 1, false),  encode(qwen.tok, "\xC0\xAF", 2, false)};
    struct ids want;
    ids_init(&want);
    for (size_t i = 0; i < 8; i++) {
        assert_int_equal(ids_add(&want, parts[i].v, parts[i].n), 0);
        ids_done(&parts[i]);
    }
    assert_ids_equal(&whole, &want, "parts");
    ids_done(&whole);
    ids_done(&want);
}

/* ---- a small vocabulary: letters a–h and random merges, against the definition ---- */

#define TOY_LETTERS 8
#define TOY_MERGES 60

struct toy {
    char piece[TOY_LETTERS + TOY_MERGES][64];
    char merge[TOY_MERGES][64];
    struct tok_str pieces[TOY_LETTERS + TOY_MERGES], merges[TOY_MERGES];
    int32_t types[TOY_LETTERS + TOY_MERGES];
    int left[TOY_MERGES], right[TOY_MERGES];
    struct tok *tok;
};

static void toy_init(struct toy *toy, uint64_t *r)
{
    struct err e;
    memset(toy, 0, sizeof *toy);
    for (int i = 0; i < TOY_LETTERS; i++)
        toy->piece[i][0] = (char)('a' + i);
    for (int m = 0; m < TOY_MERGES;) {
        int at = TOY_LETTERS + m, left = (int)(random_next(r) % (uint64_t)at),
            right = (int)(random_next(r) % (uint64_t)at);
        if (random_next(r) % 3)
            left %= TOY_LETTERS;
        bool is_new = strlen(toy->piece[left]) + strlen(toy->piece[right]) < 12;
        snprintf(toy->piece[at], sizeof toy->piece[at], "%.20s%.20s", toy->piece[left],
                 toy->piece[right]);
        for (int i = 0; i < at; i++)
            is_new = is_new && strcmp(toy->piece[i], toy->piece[at]) != 0;
        if (!is_new)
            continue;
        snprintf(toy->merge[m], sizeof toy->merge[m], "%.20s %.20s", toy->piece[left],
                 toy->piece[right]);
        toy->merges[m] = (struct tok_str){toy->merge[m], strlen(toy->merge[m])};
        toy->left[m] = left;
        toy->right[m] = right;
        m++;
    }
    for (int i = 0; i < TOY_LETTERS + TOY_MERGES; i++) {
        toy->pieces[i] = (struct tok_str){toy->piece[i], strlen(toy->piece[i])};
        toy->types[i] = TOK_NORMAL;
    }
    struct tok_spec spec = {.model = "gpt2",
                            .pre = "gpt-2",
                            .pieces = toy->pieces,
                            .types = toy->types,
                            .n_vocab = TOY_LETTERS + TOY_MERGES,
                            .merges = toy->merges,
                            .n_merges = TOY_MERGES,
                            .bos = -1,
                            .eos = -1,
                            .eot = -1};
    if (tok_new(&spec, &toy->tok, &e) < 0)
        fail_msg("%s", e.text);
}

/* Join the first pair of the lowest rank, again and again. */
static struct ids toy_oracle(const struct toy *toy, const char *text, size_t n)
{
    struct ids ids;
    ids_init(&ids);
    for (size_t i = 0; i < n; i++)
        assert_int_equal(ids_push(&ids, text[i] - 'a'), 0);
    for (int m = 0; m < TOY_MERGES;) {
        size_t i = 0;
        while (i + 1 < ids.n && !(ids.v[i] == toy->left[m] && ids.v[i + 1] == toy->right[m]))
            i++;
        if (i + 1 >= ids.n) {
            m++;
            continue;
        }
        ids.v[i] = TOY_LETTERS + m;
        memmove(ids.v + i + 1, ids.v + i + 2, (ids.n - i - 2) * sizeof *ids.v);
        ids.n--;
        m = 0;
    }
    return ids;
}

static void merging_equals_the_definition_at_all_lengths(void **state)
{
    (void)state;
    uint64_t r = random_seed("tok merges");
    for (int round = 0; round < 60; round++) {
        struct toy toy;
        toy_init(&toy, &r);
        for (int k = 0; k < 20; k++) {
            char text[600];
            size_t n = 1 + random_next(&r) % (k % 2 ? 60 : sizeof text - 1);
            unsigned n_letters = 1 + (unsigned)(random_next(&r) % TOY_LETTERS);
            for (size_t i = 0; i < n; i++)
                text[i] = (char)('a' + random_next(&r) % n_letters);
            struct ids got = encode(toy.tok, text, n, false), want = toy_oracle(&toy, text, n);
            assert_ids_equal(&got, &want, "toy");
            ids_done(&got);
            ids_done(&want);
        }
        tok_free(toy.tok);
    }
}

/* What ids they give is compared with the oracle at smaller sizes. */
static void long_runs_are_encoded_and_come_back(void **state)
{
    (void)state;
    static const struct {
        const char *unit;
        size_t times;
    } runs[] = {{"x", 524288},   {"_", 524288},     {"\xE4\xB8\xAD", 200000},
                {" ", 200000},   {"7", 200000},     {"\n", 1048576},
                {"\n ", 300000}, {"<|im_", 100000}, {"\xFF", 300000}};
    for (size_t k = 0; k < sizeof runs / sizeof *runs; k++) {
        size_t len = strlen(runs[k].unit), n = len * runs[k].times, n_back;
        char *text = malloc(n + 1);
        for (size_t i = 0; i < n; i++)
            text[i] = runs[k].unit[i % len];
        struct ids ids = encode(qwen.tok, text, n, true);
        char *back = decode(qwen.tok, &ids, &n_back);
        assert_int_equal(n_back, n);
        assert_memory_equal(back, text, n);
        ids_done(&ids);
        free(back);
        free(text);
    }
}

/* ---- small vocabularies by hand ---- */

struct hand {
    struct tok_str pieces[300];
    int32_t types[300];
    char bytes[256][3];
    struct tok_spec spec;
};

/* All printable ASCII bytes as tokens, then what is added. */
static void hand_init(struct hand *h)
{
    memset(h, 0, sizeof *h);
    h->spec = (struct tok_spec){.model = "gpt2",
                                .pre = "gpt-2",
                                .pieces = h->pieces,
                                .types = h->types,
                                .bos = -1,
                                .eos = -1,
                                .eot = -1};
    for (int c = '!'; c <= '~'; c++) {
        h->bytes[c][0] = (char)c;
        h->pieces[h->spec.n_vocab] = (struct tok_str){h->bytes[c], 1};
        h->types[h->spec.n_vocab++] = TOK_NORMAL;
    }
}

static int32_t hand_add(struct hand *h, const char *piece, int32_t type)
{
    h->pieces[h->spec.n_vocab] = (struct tok_str){piece, strlen(piece)};
    h->types[h->spec.n_vocab] = type;
    return (int32_t)h->spec.n_vocab++;
}

static void special_tokens_match_leftmost_then_longest(void **state)
{
    (void)state;
    struct hand h;
    struct tok *t;
    struct err e;
    hand_init(&h);
    int32_t a = hand_add(&h, "<t>", TOK_USER_DEFINED), b = hand_add(&h, "<t><t>", TOK_USER_DEFINED);
    int32_t c = hand_add(&h, "<t>!", TOK_CONTROL), d = hand_add(&h, "t><t><", TOK_CONTROL);
    assert_int_equal(tok_new(&h.spec, &t, &e), 0);
    struct ids plain = encode(t, "x<t><t><t>!", 11, false),
               special = encode(t, "x<t><t><t>!", 11, true);
    int32_t x = tok_find(t, "x", 1), bang = tok_find(t, "!", 1);
    struct ids want_plain = {(int32_t[]){x, b, a, bang}, 4, 4},
               want_special = {(int32_t[]){x, b, c}, 3, 3};
    assert_ids_equal(&plain, &want_plain, "user-defined only");
    assert_ids_equal(&special, &want_special, "control ones too");
    struct ids inner = encode(t, "t><t><", 6, true);
    assert_int_equal(inner.v[0], d);
    ids_done(&plain);
    ids_done(&special);
    ids_done(&inner);
    tok_free(t);
}

static void a_byte_without_a_token_gives_none(void **state)
{
    (void)state;
    struct hand h;
    struct tok *t;
    struct err e;
    hand_init(&h);
    assert_int_equal(tok_new(&h.spec, &t, &e), 0);
    struct ids got = encode(t,
                            "a\x04"
                            "b\xF1",
                            4, false);
    struct ids want = {(int32_t[]){tok_find(t, "a", 1), tok_find(t, "b", 1)}, 2, 2};
    assert_ids_equal(&got, &want, "missing bytes");
    assert_int_equal(tok_unspellable(t, "ab\x04", 3), 2);
    assert_int_equal(tok_unspellable(t, "\xF1", 1), 0);
    assert_int_equal(tok_unspellable(t, "ab", 2), 2);
    assert_int_equal(tok_unspellable(t, "", 0), 0);
    ids_done(&got);
    tok_free(t);
}

static void a_merge_whose_result_is_no_token_falls_back_to_bytes(void **state)
{
    (void)state;
    struct hand h;
    struct tok *t;
    struct err e;
    hand_init(&h);
    int32_t abc = hand_add(&h, "abc", TOK_NORMAL);
    static const struct tok_str merges[] = {{"a b", 3}, {"ab c", 4}, {"x y", 3}};
    h.spec.merges = merges;
    h.spec.n_merges = 3;
    assert_int_equal(tok_new(&h.spec, &t, &e), 0);
    struct ids got = encode(t, "abcabdxy", 8, false);
    struct ids want = {(int32_t[]){abc, tok_find(t, "a", 1), tok_find(t, "b", 1),
                                   tok_find(t, "d", 1), tok_find(t, "x", 1), tok_find(t, "y", 1)},
                       6, 6};
    assert_ids_equal(&got, &want, "fallback");
    ids_done(&got);
    tok_free(t);
}

static void refused(struct hand *h, int code, const char *word)
{
    struct tok *t = NULL;
    struct err e = {0};
    assert_int_equal(tok_new(&h->spec, &t, &e), code);
    assert_null(t);
    if (!strstr(e.text, word))
        fail_msg("\"%s\" doesn't name \"%s\"", e.text, word);
}

static void bad_vocabularies_are_refused_by_name(void **state)
{
    (void)state;
    struct hand h;
    static const struct tok_str no_space[] = {{"ab", 2}}, half[] = {{"a ", 2}}, empty[] = {{"", 0}};
    hand_init(&h);
    h.spec.model = "t5";
    refused(&h, ERR_UNSUPPORTED, "t5");
    hand_init(&h);
    h.spec.pre = "qwen99";
    refused(&h, ERR_UNSUPPORTED, "qwen99");
    refused(&h, ERR_UNSUPPORTED, "llama-bpe, ");
    h.spec.pre = "qwen2 megrez";
    refused(&h, ERR_UNSUPPORTED, "qwen2 megrez");
    hand_init(&h);
    h.spec.eos = (int32_t)h.spec.n_vocab;
    refused(&h, ERR_CORRUPT, "eos");
    hand_init(&h);
    h.spec.bos = -2;
    refused(&h, ERR_CORRUPT, "bos");
    hand_init(&h);
    h.types[3] = 7;
    refused(&h, ERR_CORRUPT, "type 7");
    hand_init(&h);
    hand_add(&h, "", TOK_NORMAL);
    refused(&h, ERR_CORRUPT, "0 bytes");
    hand_init(&h);
    hand_add(&h, "<s>", TOK_CONTROL);
    hand_add(&h, "<s>", TOK_USER_DEFINED);
    refused(&h, ERR_CORRUPT, "<s>");
    h.spec.n_vocab = 0;
    refused(&h, ERR_CORRUPT, "0 tokens");
    hand_init(&h);
    h.spec.n_merges = 1;
    h.spec.merges = no_space;
    refused(&h, ERR_CORRUPT, "merge 0");
    h.spec.merges = half;
    refused(&h, ERR_CORRUPT, "merge 0");
    h.spec.merges = empty;
    refused(&h, ERR_CORRUPT, "merge 0");
}

static void ends_of_generation_are_known(void **state)
{
    (void)state;
    assert_true(tok_is_eog(qwen.tok, tok_find(qwen.tok, "<|im_end|>", 10)));
    assert_true(tok_is_eog(qwen.tok, tok_find(qwen.tok, "<|endoftext|>", 13)));
    assert_false(tok_is_eog(qwen.tok, tok_find(qwen.tok, "<|im_start|>", 12)));
    assert_false(tok_is_eog(qwen.tok, -1));
    assert_false(tok_is_eog(qwen.tok, 1 << 30));
    assert_int_equal(tok_bos(qwen.tok), -1); /* it has one, but doesn't add it */
    size_t n = 1;
    assert_null(tok_piece(qwen.tok, (int32_t)tok_n_vocab(qwen.tok), &n));
    assert_int_equal(n, 0);
}

/* As Command R's and DeepSeek Coder's own files have them. */
static void user_defined_marks_are_control_tokens(void **state)
{
    (void)state;
    static const char *const marks[] = {"<|START_OF_TURN_TOKEN|>", "<|User|>",
                                        "<\xEF\xBD\x9CUser\xEF\xBD\x9C>"};
    static const char *const others[] = {"<think>", "<|tool_call>", "<||>", "<|>", "  ", "|>"};
    struct hand h;
    struct tok *t;
    struct err e;
    hand_init(&h);
    for (size_t i = 0; i < sizeof marks / sizeof *marks; i++)
        hand_add(&h, marks[i], TOK_USER_DEFINED);
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        hand_add(&h, others[i], TOK_USER_DEFINED);
    assert_int_equal(tok_new(&h.spec, &t, &e), 0);
    for (size_t i = 0; i < sizeof marks / sizeof *marks; i++) {
        struct ids ids;
        ids_init(&ids);
        assert_true(tok_is_control(t, tok_find(t, marks[i], strlen(marks[i]))));
        assert_int_equal(tok_encode(t, marks[i], strlen(marks[i]), false, &ids, &e), 0);
        for (size_t k = 0; k < ids.n; k++)
            assert_false(tok_is_control(t, ids.v[k]));
        ids_done(&ids);
    }
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        assert_false(tok_is_control(t, tok_find(t, others[i], strlen(others[i]))));
    tok_free(t);
}

/* A base model's end in the metadata of a chat model, and one that only the metadata knows. */
static void all_ends_end_whatever_the_metadata_says(void **state)
{
    (void)state;
    struct hand h;
    struct tok *t;
    struct err e;
    hand_init(&h);
    const int32_t text = hand_add(&h, "<|endoftext|>", TOK_CONTROL);
    const int32_t im = hand_add(&h, "<|im_end|>", TOK_USER_DEFINED);
    const int32_t own = hand_add(&h, "</answer>", TOK_USER_DEFINED);
    const int32_t eom = hand_add(&h, "[DONE]", TOK_NORMAL);
    const int32_t plain = hand_add(&h, "<b>", TOK_USER_DEFINED);
    h.spec.eos = text;
    h.spec.eot = own;
    h.spec.ends = &eom;
    h.spec.n_ends = 1;
    assert_int_equal(tok_new(&h.spec, &t, &e), 0);
    const int32_t all[] = {text, im, own, eom};
    for (size_t i = 0; i < 4; i++)
        assert_true(tok_is_eog(t, all[i]) && tok_is_control(t, all[i]));
    assert_false(tok_is_eog(t, plain) || tok_is_control(t, plain));
    tok_free(t);
}

static void the_fingerprint_covers_what_decides_ids(void **state)
{
    (void)state;
    struct hand h;
    struct tok *t;
    struct err e;
    uint8_t first[32], other[32];
    static const struct tok_str merges[] = {{"a b", 3}};
    for (int change = 0; change < 6; change++) {
        hand_init(&h);
        hand_add(&h, change == 1 ? "ac" : "ab", TOK_NORMAL);
        h.types[0] = change == 2 ? TOK_UNUSED : TOK_NORMAL;
        h.spec.pre = change == 3 ? "smollm" : "gpt-2";
        h.spec.merges = merges;
        h.spec.n_merges = change == 4 ? 0 : 1;
        h.spec.eos = change == 5 ? 7 : -1;
        assert_int_equal(tok_new(&h.spec, &t, &e), 0);
        tok_fingerprint(t, change == 0 ? first : other);
        tok_free(t);
        if (change > 0)
            assert_memory_not_equal(first, other, sizeof first);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(qwen2_ids_are_golden),
        cmocka_unit_test(smollm2_ids_are_golden),
        cmocka_unit_test(control_token_strings_in_text_stay_text),
        cmocka_unit_test(any_bytes_come_back_unchanged),
        cmocka_unit_test(invalid_bytes_end_a_run_and_reach_their_tokens),
        cmocka_unit_test(merging_equals_the_definition_at_all_lengths),
        cmocka_unit_test(long_runs_are_encoded_and_come_back),
        cmocka_unit_test(special_tokens_match_leftmost_then_longest),
        cmocka_unit_test(a_byte_without_a_token_gives_none),
        cmocka_unit_test(a_merge_whose_result_is_no_token_falls_back_to_bytes),
        cmocka_unit_test(bad_vocabularies_are_refused_by_name),
        cmocka_unit_test(ends_of_generation_are_known),
        cmocka_unit_test(user_defined_marks_are_control_tokens),
        cmocka_unit_test(all_ends_end_whatever_the_metadata_says),
        cmocka_unit_test(the_fingerprint_covers_what_decides_ids),
    };
    qwen = vocab_load(vocab_qwen2_path());
    unnormed = vocab_load_plain(vocab_qwen2_path());
    if (vocab_model_path())
        smol = vocab_load(vocab_model_path());
    int n_failed = cmocka_run_group_tests(tests, NULL, NULL);
    vocab_done(&qwen);
    vocab_done(&smol);
    vocab_done(&unnormed);
    return n_failed;
}
