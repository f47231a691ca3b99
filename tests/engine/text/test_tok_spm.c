/*
 * SentencePiece vocabularies: golden ids of Gemma 3 (where its file is), merging against a naive
 * oracle over random vocabularies, spaces and their prefix (cases B27, B29), bytes, growth.
 */
#include <math.h>
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

static struct vocab gemma; /* tok is NULL without the model */

static struct ids encode(const struct tok *t, const char *text, size_t n, bool special)
{
    struct ids ids;
    struct err e;
    ids_init(&ids);
    if (tok_encode(t, text, n, special, &ids, &e) < 0)
        fail_msg("%s", e.text);
    return ids;
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

static void gemma3_ids_are_golden(void **state)
{
    (void)state;
    if (!gemma.tok)
        skip();
    assert_int_equal(golden_each("tokens-gemma3.jsonl", check_golden, gemma.tok), 491);
}

/* A small vocabulary: <unk> <s> </s>, 256 bytes, then what is added. */
#define SMALL_MAX 600
struct small {
    struct tok_str pieces[SMALL_MAX];
    int32_t types[SMALL_MAX];
    float scores[SMALL_MAX];
    char bytes[256][8];
    struct tok_spec spec;
};

static int32_t small_add(struct small *v, const char *piece, int32_t type, float score)
{
    const size_t i = v->spec.n_vocab++;
    assert_true(i < SMALL_MAX);
    v->pieces[i] = (struct tok_str){piece, strlen(piece)};
    v->types[i] = type;
    v->scores[i] = score;
    return (int32_t)i;
}

static void small_init(struct small *v, bool add_space)
{
    memset(v, 0, sizeof *v);
    v->spec = (struct tok_spec){.model = "llama", .pieces = v->pieces, .types = v->types,
                                .scores = v->scores, .bos = 1, .eos = 2, .eot = -1,
                                .add_bos = true, .add_space_prefix = add_space};
    small_add(v, "<unk>", TOK_UNKNOWN, 0);
    small_add(v, "<s>", TOK_CONTROL, 0);
    small_add(v, "</s>", TOK_CONTROL, 0);
    for (int b = 0; b < 256; b++) {
        snprintf(v->bytes[b], sizeof v->bytes[b], "<0x%02X>", b);
        small_add(v, v->bytes[b], TOK_BYTE, 0);
    }
}

static struct tok *small_tok(const struct small *v)
{
    struct tok *t;
    struct err e;
    if (tok_new(&v->spec, &t, &e) < 0)
        fail_msg("%s", e.text);
    return t;
}

static void assert_encodes(const struct tok *t, const char *text, const int32_t *want, size_t n)
{
    struct ids got = encode(t, text, strlen(text), false), ids = {.v = (int32_t *)want, .n = n};
    assert_ids_equal(&got, &ids, text);
    struct buf back;
    buf_init(&back, 1 << 20);
    tok_decode(t, got.v, got.n, &back);
    assert_string_equal(back.data, text);
    buf_done(&back);
    ids_done(&got);
}

static void spaces_bytes_and_their_prefix(void **state)
{
    (void)state;
    struct small v;
    small_init(&v, true);
    const int32_t sp = small_add(&v, "\xE2\x96\x81", 1, -50), a = small_add(&v, "a", 1, -60),
                  sp_a = small_add(&v, "\xE2\x96\x81" "a", 1, -3),
                  sp2 = small_add(&v, "\xE2\x96\x81\xE2\x96\x81", 1, -2),
                  user = small_add(&v, "   ", TOK_USER_DEFINED, 0);
    struct tok *t = small_tok(&v);
    assert_true(tok_adds_space(t));
    assert_encodes(t, "a", (int32_t[]){sp_a}, 1);
    assert_encodes(t, " a", (int32_t[]){sp2, a}, 2);
    assert_encodes(t, "aa", (int32_t[]){sp_a, a}, 2);
    /* é is no piece: its bytes; three spaces are the user's piece, with a space behind it */
    assert_encodes(t, "a\xC3\xA9", (int32_t[]){sp_a, 3 + 0xC3, 3 + 0xA9}, 3);
    assert_encodes(t, "a   a", (int32_t[]){sp_a, user, sp_a}, 3);
    struct ids more;
    struct err e;
    ids_init(&more);
    assert_int_equal(tok_encode_more(t, "a", 1, false, &more, &e), 0);
    assert_int_equal(more.n, 1);
    assert_int_equal(more.v[0], a);
    ids_done(&more);
    tok_free(t);
    (void)sp;
}

/* The definition: look at all neighbours, join the best, again. */
static size_t naive(const struct small *v, const char *text, size_t n, int32_t *out)
{
    size_t at[260], n_at = 0;
    for (size_t i = 0; i < n; i++)
        at[n_at++] = i;
    at[n_at] = n;
    for (;;) {
        size_t best = n_at;
        float score = -1e9f;
        for (size_t i = 0; i + 1 < n_at; i++)
            for (size_t p = 259; p < v->spec.n_vocab; p++)
                if (v->pieces[p].n == at[i + 2] - at[i] && v->scores[p] > score &&
                    memcmp(v->pieces[p].s, text + at[i], v->pieces[p].n) == 0) {
                    best = i;
                    score = v->scores[p];
                }
        if (best == n_at)
            break;
        memmove(at + best + 1, at + best + 2, (n_at - best - 1) * sizeof *at);
        n_at--;
    }
    for (size_t i = 0; i < n_at; i++) {
        out[i] = 3 + (unsigned char)text[at[i]];
        for (size_t p = v->spec.n_vocab; p-- > 259;)
            if (v->pieces[p].n == at[i + 1] - at[i] &&
                memcmp(v->pieces[p].s, text + at[i], v->pieces[p].n) == 0)
                out[i] = (int32_t)p;
    }
    return n_at;
}

static void merging_equals_the_definition(void **state)
{
    (void)state;
    uint64_t r = random_seed("spm merges");
    static char pieces[40][8];
    for (int round = 0; round < 300; round++) {
        struct small v;
        small_init(&v, false);
        for (int i = 0; i < 40; i++) {
            const size_t n = 1 + random_next(&r) % 5;
            for (size_t k = 0; k < n; k++)
                pieces[i][k] = "abc"[random_next(&r) % 3];
            pieces[i][n] = '\0';
            bool is_new = true;
            for (size_t p = 259; p < v.spec.n_vocab; p++)
                is_new = is_new && strcmp(v.pieces[p].s, pieces[i]) != 0;
            if (is_new)
                small_add(&v, pieces[i], TOK_NORMAL, -(float)(random_next(&r) % 12));
        }
        struct tok *t = small_tok(&v);
        for (int k = 0; k < 20; k++) {
            char text[201];
            int32_t want[200];
            const size_t n = 1 + random_next(&r) % 200;
            for (size_t i = 0; i < n; i++)
                text[i] = "abcd"[random_next(&r) % (k % 2 ? 3 : 4)];
            text[n] = '\0';
            struct ids ids = {.v = want, .n = naive(&v, text, n, want)};
            struct ids got = encode(t, text, n, false);
            assert_ids_equal(&got, &ids, text);
            ids_done(&got);
        }
        tok_free(t);
    }
}

/* Though their merges exist: "<", "s>" and "<s>" are pieces of ordinary letters. */
static void control_token_strings_in_text_stay_text(void **state)
{
    (void)state;
    struct small v;
    small_init(&v, false);
    small_add(&v, "s>", TOK_NORMAL, -1);
    small_add(&v, "/s>", TOK_NORMAL, -1);
    small_add(&v, "<end_of_turn>", TOK_NORMAL, -1); /* as careless converters have it */
    const int32_t eot = (int32_t)v.spec.n_vocab - 1;
    const struct tok *all[] = {small_tok(&v), gemma.tok};
    assert_true(tok_is_control(all[0], eot) && tok_is_eog(all[0], eot));
    for (size_t k = 0; k < 2 && all[k]; k++) {
        for (int32_t id = 0; id < (int32_t)tok_n_vocab(all[k]); id++) {
            size_t n;
            const char *piece = tok_piece(all[k], id, &n);
            if (!tok_is_control(all[k], id))
                continue;
            struct ids plain = encode(all[k], piece, n, false);
            struct ids sp = encode(all[k], piece, n, true);
            for (size_t i = 0; i < plain.n; i++)
                assert_false(tok_is_control(all[k], plain.v[i]));
            assert_int_equal(sp.n, 1);
            assert_int_equal(sp.v[0], id);
            ids_done(&plain);
            ids_done(&sp);
        }
    }
    tok_free((struct tok *)all[0]);
}

/* Steps of merging, counted: four times the text, at most five times the steps. None at all where a
 * run is the user's own piece: Gemma's spaces and newlines. */
static void steps_grow_with_the_text(void **state)
{
    (void)state;
    struct small v;
    small_init(&v, true);
    static const char *const own[] = {"x", "xx", "xxx", "xxxx", "7", "77", "\xE4\xBD\xA0",
                                      "\xE2\x96\x81", "\xE2\x96\x81\xE2\x96\x81"};
    for (size_t i = 0; i < sizeof own / sizeof *own; i++)
        small_add(&v, own[i], TOK_NORMAL, -(float)i);
    struct tok *small = small_tok(&v);
    const struct tok *all[] = {small, gemma.tok};
    static const char *const units[] = {"x", " ", "7", "\xE4\xBD\xA0", "\n", "word "};
    char *text = malloc(512 << 10);
    for (size_t k = 0; k < 2 && all[k]; k++)
        for (size_t u = 0; u < sizeof units / sizeof *units; u++) {
            uint64_t steps[2];
            struct err e;
            for (size_t i = 0; i < 512 << 10; i++)
                text[i] = units[u][i % strlen(units[u])];
            for (int size = 0; size < 2; size++) {
                struct ids ids;
                ids_init(&ids);
                const struct tok_str part = {text, (size_t)(size ? 512 : 128) << 10};
                assert_int_equal(tok_count_steps(all[k], part, &ids, &steps[size], &e), 0);
                ids_done(&ids);
            }
            if (steps[1] > 5 * steps[0])
                fail_msg("%zu of \"%s\": %llu steps, of four times the text %llu", k, units[u],
                         (unsigned long long)steps[0], (unsigned long long)steps[1]);
        }
    free(text);
    tok_free(small);
}

static void bad_scores_are_refused(void **state)
{
    (void)state;
    struct small v;
    struct tok *t = NULL;
    struct err e;
    small_init(&v, false);
    v.scores[5] = NAN;
    assert_int_equal(tok_new(&v.spec, &t, &e), ERR_CORRUPT);
    assert_non_null(strstr(e.text, "token 5"));
    v.spec.scores = NULL;
    assert_int_equal(tok_new(&v.spec, &t, &e), ERR_CORRUPT);
    assert_null(t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gemma3_ids_are_golden),
        cmocka_unit_test(spaces_bytes_and_their_prefix),
        cmocka_unit_test(merging_equals_the_definition),
        cmocka_unit_test(control_token_strings_in_text_stay_text),
        cmocka_unit_test(steps_grow_with_the_text),
        cmocka_unit_test(bad_scores_are_refused),
    };
    char *path = vocab_further_path("gemma-3-270m.Q4_K_M.gguf");
    if (path)
        gemma = vocab_load(path);
    free(path);
    int n_failed = cmocka_run_group_tests(tests, NULL, NULL);
    vocab_done(&gemma);
    return n_failed;
}
