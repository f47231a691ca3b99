/* The sampler: the golden distributions and draws, the shortcuts against the plain definition,
 * seeds, and logits that are no numbers. */
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

#include "engine/sample.h"
#include "tests/engine/text/vocab.h"

#define MAX_VOCAB 4096

static struct sampler *make(const struct sample_params *p, size_t n)
{
    struct sampler *s = NULL;
    struct err e;
    if (sampler_new(p, n, &s, &e) < 0)
        fail_msg("%s", e.text);
    return s;
}

struct golden_case {
    float logits[MAX_VOCAB];
    size_t n;
    struct sample_bias bias[64];
    struct sample_params p;
    struct ids prompt, output;
};

static double number(const json *params, const char *key, double otherwise)
{
    const json *v = json_get(params, key, NULL);
    return v ? json_double(v) : otherwise;
}

static void read_case(const json *j, struct golden_case *c)
{
    const json *params = json_get(j, "params", NULL);
    memset(c, 0, sizeof *c);
    for (const json *it = json_first(json_get(j, "logits", NULL)); it; it = json_next(it))
        c->logits[c->n++] = json_type(it) == JSON_NULL ? -INFINITY : (float)json_double(it);
    c->p = sample_neutral;
    c->p.temperature = number(params, "temperature", 1);
    c->p.top_k = (int)number(params, "top_k", 0);
    c->p.top_p = number(params, "top_p", 1);
    c->p.min_p = number(params, "min_p", 0);
    c->p.repetition_penalty = number(params, "repetition_penalty", 1);
    c->p.presence_penalty = number(params, "presence_penalty", 0);
    c->p.frequency_penalty = number(params, "frequency_penalty", 0);
    c->p.bias = c->bias;
    for (const json *it = json_first(json_get(params, "logit_bias", NULL)); it; it = json_next(it))
        c->bias[c->p.n_bias++] =
            (struct sample_bias){(int32_t)strtol(json_key(it), NULL, 10), (float)json_double(it)};
    c->prompt = ids_of_json(json_get(j, "prompt_tokens", NULL));
    c->output = ids_of_json(json_get(j, "output_tokens", NULL));
}

static struct sampler *sampler_of(const struct golden_case *c)
{
    struct sampler *s = make(&c->p, c->n);
    sampler_see_prompt(s, c->prompt.v, c->prompt.n);
    for (size_t i = 0; i < c->output.n; i++)
        sampler_accept(s, c->output.v[i]);
    return s;
}

static void check_golden(const struct offline_line *l, void *ctx)
{
    struct golden_case c;
    double probs[MAX_VOCAB];
    float x[MAX_VOCAB];
    struct err e;
    size_t *n_draws = ctx, i = 0;
    read_case(l->root, &c);
    struct sampler *s = sampler_of(&c);
    memcpy(x, c.logits, sizeof x);
    assert_int_equal(sampler_probs(s, x, probs, &e), 0);
    for (const json *it = json_first(json_get(l->root, "probs", NULL)); it; it = json_next(it), i++)
        if (!(fabs(probs[i] - json_double(it)) <= 1e-6))
            fail_msg("probability of %zu: %.9g, golden %.9g", i, probs[i], json_double(it));
    assert_int_equal(i, c.n);
    for (const json *it = json_first(json_get(l->root, "draws", NULL)); it; it = json_next(it)) {
        int32_t id = -1;
        const json *u = json_first(it);
        memcpy(x, c.logits, sizeof x);
        assert_int_equal(sampler_draw_u(s, x, json_double(u), &id, &e), 0);
        assert_int_equal(id, (int)json_double(json_next(u)));
        ++*n_draws;
    }
    sampler_free(s);
    ids_done(&c.prompt);
    ids_done(&c.output);
}

static void golden_distributions_and_draws(void **state)
{
    (void)state;
    size_t n_draws = 0;
    assert_int_equal(golden_each("sampling.jsonl", check_golden, &n_draws), 47);
    assert_true(n_draws > 200);
}

static double random_unit(uint64_t *r)
{
    return (double)(random_next(r) >> 11) * 0x1p-53;
}

/* Logits of several shapes: spread, flat, with ties, with −inf. */
static void random_logits(uint64_t *r, float *x, size_t n)
{
    int shape = (int)(random_next(r) % 5);
    for (size_t i = 0; i < n; i++) {
        double v =
            (random_unit(r) + random_unit(r) + random_unit(r) - 1.5) * (shape == 1 ? 0.01 : 12);
        if (shape == 2)
            v = floor(v);
        if (shape == 3)
            v *= 20;
        x[i] = shape == 4 && random_next(r) % 3 ? -INFINITY : (float)v;
    }
    x[random_next(r) % n] = 3.25f;
}

static struct sample_params random_params(uint64_t *r)
{
    struct sample_params p = sample_neutral;
    static const double temperatures[] = {1, 0.7, 0.05, 2, 1.3};
    p.temperature = temperatures[random_next(r) % 5];
    if (random_next(r) % 2)
        p.top_p = 0.05 + 0.95 * random_unit(r);
    if (random_next(r) % 3 == 0)
        p.min_p = random_unit(r) * 0.3;
    if (random_next(r) % 3 == 0)
        p.top_k = 1 + (int)(random_next(r) % 300);
    return p;
}

struct order {
    float x;
    int id;
};

static int by_order(const void *a, const void *b)
{
    const struct order *x = a, *y = b;
    if (x->x != y->x)
        return x->x > y->x ? -1 : 1;
    return x->id - y->id;
}

/* The definition: sort everything, libm's exp, sums in long double. Returns the kept ones. */
static size_t by_definition(const struct sample_params *p, const float *x, size_t n,
                            struct order *o, long double *prob)
{
    for (size_t i = 0; i < n; i++)
        o[i] = (struct order){x[i], (int)i};
    qsort(o, n, sizeof *o, by_order);
    size_t kept = p->top_k > 0 && (size_t)p->top_k < n ? (size_t)p->top_k : n;
    long double sum = 0, run = 0;
    for (size_t i = 0; i < kept; i++)
        sum += prob[i] = expl(((long double)o[i].x - o[0].x) / p->temperature);
    for (size_t i = 0; i < kept; i++)
        prob[i] /= sum;
    for (size_t i = 0; p->top_p < 1 && i < kept; i++) {
        run += prob[i];
        if (run >= p->top_p)
            kept = i + 1;
    }
    for (size_t i = 0; p->min_p > 0 && i < kept; i++)
        if (prob[i] < p->min_p * prob[0])
            kept = i;
    sum = 0;
    for (size_t i = 0; i < kept; i++)
        sum += prob[i];
    for (size_t i = 0; i < kept; i++)
        prob[i] /= sum;
    return kept;
}

/* Skips draws within 1e-9 of a boundary: there rounding may decide. */
static void check_draw(struct sampler *s, const float *logits, size_t n, const struct order *o,
                       const long double *prob, size_t kept, double u)
{
    float x[MAX_VOCAB];
    long double run = 0;
    int32_t id = -1;
    struct err e;
    size_t i = 0;
    for (; i < kept; i++) {
        run += prob[i];
        if (fabsl(run - u) < 1e-9)
            return;
        if (u < run)
            break;
    }
    i = i < kept ? i : kept - 1;
    memcpy(x, logits, n * sizeof *x);
    assert_int_equal(sampler_draw_u(s, x, u, &id, &e), 0);
    if (id != o[i].id)
        fail_msg("u %.17g: drew %d, by definition %d (place %zu of %zu)", u, id, o[i].id, i, kept);
}

static void shortcuts_equal_the_definition(void **state)
{
    (void)state;
    uint64_t r = random_seed("sample");
    static float logits[MAX_VOCAB], x[MAX_VOCAB];
    static struct order o[MAX_VOCAB];
    static long double prob[MAX_VOCAB];
    static double got[MAX_VOCAB];
    for (int round = 0; round < 400; round++) {
        size_t n = 1 + random_next(&r) % (MAX_VOCAB - 1);
        struct sample_params p = random_params(&r);
        struct err e;
        random_logits(&r, logits, n);
        size_t kept = by_definition(&p, logits, n, o, prob);
        struct sampler *s = make(&p, n);
        memcpy(x, logits, n * sizeof *x);
        assert_int_equal(sampler_probs(s, x, got, &e), 0);
        for (size_t i = 0; i < n; i++)
            if (fabsl(got[o[i].id] - (i < kept ? prob[i] : 0)) > 1e-9L)
                fail_msg("round %d place %zu of %zu: %g, by definition %Lg", round, i, kept,
                         got[o[i].id], i < kept ? prob[i] : 0);
        for (int k = 0; k < 20; k++)
            check_draw(s, logits, n, o, prob, kept, random_unit(&r));
        check_draw(s, logits, n, o, prob, kept, 0);
        sampler_free(s);
    }
}

static void a_draw_depends_on_seed_and_position_alone(void **state)
{
    (void)state;
    struct sample_params p = sample_neutral;
    float logits[1000], x[1000];
    int32_t first[64], id;
    struct err e;
    int n_same_43 = 0, n_same_0 = 0;
    for (int i = 0; i < 1000; i++)
        logits[i] = (float)(i % 17) * 0.1f;
    for (int run = 0; run < 5; run++) {
        static const uint64_t seeds[] = {42, 42, 42, 43, 0};
        p.seed = seeds[run];
        struct sampler *s = make(&p, 1000);
        for (int k = 0; k < 64; k++) {
            memcpy(x, logits, sizeof x);
            assert_int_equal(sampler_draw(s, x, &id, &e), 0);
            memcpy(x, logits, sizeof x);
            int32_t again;
            assert_int_equal(sampler_draw(s, x, &again, &e), 0);
            assert_int_equal(id, again); /* nothing accepted: the same position */
            if (run == 0)
                first[k] = id;
            else if (run < 3)
                assert_int_equal(id, first[k]);
            n_same_43 += run == 3 && id == first[k];
            n_same_0 += run == 4 && id == first[k];
            sampler_accept(s, id);
        }
        sampler_free(s);
    }
    assert_true(n_same_43 < 8 && n_same_0 < 8);
}

static void draws_of_a_seed_are_uniform(void **state)
{
    (void)state;
    struct sample_params p = sample_neutral;
    int count[8] = {0};
    struct err e;
    p.seed = 12345;
    struct sampler *s = make(&p, 8);
    for (int k = 0; k < 8000; k++) {
        float x[8] = {0};
        int32_t id;
        assert_int_equal(sampler_draw(s, x, &id, &e), 0);
        count[id]++;
        sampler_accept(s, id);
    }
    for (int i = 0; i < 8; i++)
        assert_in_range(count[i], 850, 1150); /* 5 standard deviations */
    sampler_free(s);
}

/* The parameter sets of the ways through the sampler. */
static struct sample_params way(int i)
{
    struct sample_params p = sample_neutral;
    if (i == 0)
        p.temperature = 0;
    if (i == 1)
        p.top_k = 5;
    if (i == 2)
        p.min_p = 0.05;
    if (i == 3)
        p.top_p = 0.9;
    return p;
}
#define N_WAYS 5

static void one_nan_is_never_chosen(void **state)
{
    (void)state;
    static const size_t places[] = {0, 50, 99};
    for (int w = 0; w < N_WAYS; w++)
        for (size_t k = 0; k < 3; k++) {
            struct sample_params p = way(w);
            struct sampler *s = make(&p, 100);
            for (int i = 0; i < 50; i++) {
                float x[100] = {0};
                int32_t id;
                struct err e;
                x[places[k]] = NAN;
                assert_int_equal(sampler_draw_u(s, x, i / 50.0, &id, &e), 0);
                assert_in_range(id, 0, 99);
                assert_int_not_equal(id, places[k]);
            }
            sampler_free(s);
        }
}

static void infinity_and_no_number_at_all_are_errors(void **state)
{
    (void)state;
    static const size_t places[] = {0, 50, 99};
    for (int w = 0; w < N_WAYS; w++) {
        struct sample_params p = way(w);
        struct sampler *s = make(&p, 100);
        float x[100];
        int32_t id = -7;
        double probs[100];
        struct err e;
        for (size_t k = 0; k < 3; k++) {
            memset(x, 0, sizeof x);
            x[places[k]] = INFINITY;
            assert_int_equal(sampler_draw(s, x, &id, &e), ERR_CORRUPT);
            assert_non_null(strstr(e.text, "+infinity"));
        }
        for (int i = 0; i < 100; i++)
            x[i] = NAN;
        assert_int_equal(sampler_draw(s, x, &id, &e), ERR_CORRUPT);
        for (int i = 0; i < 100; i++)
            x[i] = -INFINITY;
        assert_int_equal(sampler_probs(s, x, probs, &e), ERR_CORRUPT);
        assert_int_equal(id, -7);
        sampler_free(s);
    }
}

static void minus_infinity_is_never_drawn_even_where_sums_run_out(void **state)
{
    (void)state;
    for (int w = 0; w < N_WAYS; w++) {
        struct sample_params p = way(w);
        struct sampler *s = make(&p, 100);
        float x[100];
        int32_t id;
        struct err e;
        for (int i = 0; i < 100; i++)
            x[i] = i == 3 || i == 97 ? 1 : -INFINITY;
        assert_int_equal(sampler_draw_u(s, x, 0x1.fffffffffffffp-1, &id, &e), 0);
        assert_int_equal(id, w == 0 ? 3 : 97);
        sampler_free(s);
    }
}

static void parameters_out_of_range_are_refused_by_name(void **state)
{
    (void)state;
    struct sampler *s = NULL;
    struct err e;
    struct sample_bias bias = {100, 1};
    struct sample_params bad[8];
    static const char *const names[] = {
        "temperature",      "top_p",     "top_p", "min_p", "top_k", "repetition_penalty",
        "presence_penalty", "logit_bias"};
    for (int i = 0; i < 8; i++)
        bad[i] = sample_neutral;
    bad[0].temperature = NAN;
    bad[1].top_p = 0;
    bad[2].top_p = 1.5;
    bad[3].min_p = -0.1;
    bad[4].top_k = -1;
    bad[5].repetition_penalty = 0;
    bad[6].presence_penalty = 2.5;
    bad[7].bias = &bias;
    bad[7].n_bias = 1;
    for (int i = 0; i < 8; i++) {
        assert_int_equal(sampler_new(&bad[i], 100, &s, &e), ERR_INVAL);
        assert_non_null(strstr(e.text, names[i]));
        assert_null(s);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(golden_distributions_and_draws),
        cmocka_unit_test(shortcuts_equal_the_definition),
        cmocka_unit_test(a_draw_depends_on_seed_and_position_alone),
        cmocka_unit_test(draws_of_a_seed_are_uniform),
        cmocka_unit_test(one_nan_is_never_chosen),
        cmocka_unit_test(infinity_and_no_number_at_all_are_errors),
        cmocka_unit_test(minus_infinity_is_never_drawn_even_where_sums_run_out),
        cmocka_unit_test(parameters_out_of_range_are_refused_by_name),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
