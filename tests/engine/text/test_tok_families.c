/*
 * Small vocabularies cut out of the families' own, and the ids that independent programs give to
 * hard texts (tests/golden/families.jsonl, made by tests/reference/families.py).
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

#include "engine/tok.h"
#include "engine/tok_impl.h"
#include "tests/engine/text/vocab.h"

/* A vocabulary of the file; all of it is the line's to free. */
struct family {
    char *name, *pre;
    struct tok_str *pieces, *merges;
    int32_t *types;
    float *scores;
    size_t n_pieces, n_merges;
    struct tok *tok;
};

static struct tok_str *strings(const struct offline_line *l, const char *key, size_t *ret_n)
{
    const json *array = json_get(l->root, key, NULL);
    const size_t n = array ? json_count(array) : 0;
    struct tok_str *s = calloc(n + 1, sizeof *s);
    size_t i = 0;
    for (const json *it = array ? json_first(array) : NULL; it; it = json_next(it), i++)
        s[i].s = offline_str(l, it, &s[i].n);
    *ret_n = n;
    return s;
}

static void free_strings(struct tok_str *s, size_t n)
{
    for (size_t i = 0; i < n; i++)
        free((char *)s[i].s);
    free(s);
}

static void family_init(struct family *f, const struct offline_line *l)
{
    size_t n, i = 0;
    struct err e;
    *f = (struct family){.name = offline_str(l, json_get(l->root, "family", NULL), &n)};
    const json *pre = json_get(l->root, "pre", NULL), *scores = json_get(l->root, "scores", NULL);
    f->pre = pre ? offline_str(l, pre, &n) : NULL;
    f->pieces = strings(l, "pieces", &f->n_pieces);
    f->merges = strings(l, "merges", &f->n_merges);
    f->types = calloc(f->n_pieces, sizeof *f->types);
    f->scores = calloc(f->n_pieces, sizeof *f->scores);
    const json *it = json_first(json_get(l->root, "types", NULL));
    for (; it; it = json_next(it))
        f->types[i++] = (int32_t)json_double(it);
    assert_int_equal(i, f->n_pieces);
    it = scores ? json_first(scores) : NULL;
    for (i = 0; it; it = json_next(it))
        f->scores[i++] = (float)json_double(it);
    const struct tok_spec spec = {.model = pre ? "gpt2" : "llama", .pre = f->pre,
                                  .pieces = f->pieces, .types = f->types,
                                  .n_vocab = f->n_pieces, .merges = f->merges,
                                  .n_merges = f->n_merges, .bos = -1, .eos = -1, .eot = -1,
                                  .scores = scores ? f->scores : NULL, .unk = scores ? 0 : -1,
                                  .add_space_prefix = scores != NULL};
    if (tok_new(&spec, &f->tok, &e) < 0)
        fail_msg("%s: %s", f->name, e.text);
}

static void family_done(struct family *f)
{
    tok_free(f->tok);
    free_strings(f->pieces, f->n_pieces);
    free_strings(f->merges, f->n_merges);
    free(f->types);
    free(f->scores);
    free(f->name);
    free(f->pre);
}

static void check_case(const struct family *f, const struct offline_line *l, const json *one)
{
    size_t n;
    struct err e;
    struct ids got, want = ids_of_json(json_next(json_first(one)));
    char *text = offline_str(l, json_first(one), &n), what[256];
    ids_init(&got);
    assert_int_equal(tok_encode(f->tok, text, n, false, &got, &e), 0);
    snprintf(what, sizeof what, "%s: \"%.200s\"", f->name, text);
    assert_ids_equal(&got, &want, what);
    ids_done(&got);
    ids_done(&want);
    free(text);
}

static void check_family(const struct offline_line *l, void *ctx)
{
    struct family f;
    family_init(&f, l);
    const json *cases = json_get(l->root, "cases", NULL);
    assert_true(json_count(cases) > 30);
    for (const json *it = json_first(cases); it; it = json_next(it))
        check_case(&f, l, it);
    *(size_t *)ctx += json_count(cases);
    family_done(&f);
}

static void ids_are_those_of_the_families_own_tokenizers(void **state)
{
    (void)state;
    size_t n_cases = 0;
    assert_true(golden_each("families.jsonl", check_family, &n_cases) >= 14);
    assert_true(n_cases > 600);
}

static size_t add(char *text, size_t at, const char *s, size_t n)
{
    memcpy(text + at, s, n);
    return at + n;
}

/* Its spelling inside of itself, behind any other piece: no way of writing it gives it. */
static void forge(const struct family *f, size_t id, uint64_t *seed)
{
    const struct tok_str *s = &f->pieces[id], *other = &f->pieces[random_next(seed) % f->n_pieces];
    const size_t cut = random_next(seed) % (s->n + 1);
    char *text = malloc(2 * s->n + other->n + 1);
    struct err e;
    struct ids ids;
    ids_init(&ids);
    size_t n = add(text, 0, other->s, other->n);
    n = add(text, n, s->s, cut);
    n = add(text, n, s->s, s->n);
    n = add(text, n, s->s + cut, s->n - cut);
    assert_int_equal(tok_encode(f->tok, text, n, false, &ids, &e), 0);
    for (size_t i = 0; i < ids.n; i++)
        if (tok_is_control(f->tok, ids.v[i]))
            fail_msg("%s: \"%.*s\" gives control token %d", f->name, (int)n, text, ids.v[i]);
    ids.n = 0;
    assert_int_equal(tok_encode(f->tok, s->s, s->n, true, &ids, &e), 0);
    assert_int_equal(ids.n, 1); /* a template's markup does */
    assert_int_equal(ids.v[0], id);
    ids_done(&ids);
    free(text);
}

static void forge_all(const struct offline_line *l, void *ctx)
{
    struct family f;
    uint64_t *seed = ctx;
    family_init(&f, l);
    for (size_t i = 0; i < f.n_pieces; i++)
        for (int n = 0; n < 200 && tok_is_control(f.tok, (int32_t)i); n++)
            forge(&f, i, seed);
    family_done(&f);
}

static void no_familys_control_tokens_come_from_text(void **state)
{
    (void)state;
    uint64_t seed = random_seed("families");
    golden_each("families.jsonl", forge_all, &seed);
}

/* The steps of merging 128 KiB of one thing are at most 2.5 times those of 64 KiB. */
static void check_growth(const struct family *f, const char *unit)
{
    const size_t len = strlen(unit), n = ((size_t)128 << 10) / len * len;
    char *text = malloc(n);
    uint64_t steps[2] = {0, 0};
    struct err e;
    for (size_t i = 0; i < n; i++)
        text[i] = unit[i % len];
    for (size_t half = 0; half < 2; half++) {
        struct ids ids;
        ids_init(&ids);
        const struct tok_str t = {text, n / (2 - half)};
        assert_int_equal(tok_count_steps(f->tok, t, &ids, &steps[half], &e), 0);
        assert_true(ids.n > 0 || *unit == '\xFF'); /* a few lack tokens of bytes that no text has */
        ids_done(&ids);
    }
    if (steps[1] * 2 > steps[0] * 5 + 1000)
        fail_msg("%s: \"%s\" takes %llu steps, half of it %llu", f->name, unit,
                 (unsigned long long)steps[1], (unsigned long long)steps[0]);
    free(text);
}

static void grow_all(const struct offline_line *l, void *ctx)
{
    static const char *const units[] = {
        "x", "_", " ", "7", "\n", "\xE4\xBD\xA0", "a\xCC\x81", "\xF0\x9F\x98\x80", "the", "\xFF"};
    struct family f;
    (void)ctx;
    family_init(&f, l);
    for (size_t i = 0; i < sizeof units / sizeof *units; i++)
        check_growth(&f, units[i]);
    family_done(&f);
}

static void long_runs_of_one_thing_take_steps_in_proportion(void **state)
{
    (void)state;
    golden_each("families.jsonl", grow_all, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ids_are_those_of_the_families_own_tokenizers),
        cmocka_unit_test(no_familys_control_tokens_come_from_text),
        cmocka_unit_test(long_runs_of_one_thing_take_steps_in_proportion),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
