/* The probe's questions to the sampler: the distribution of given logits, and draws from it. */
#include "daemon/offline_probe.h"

#include <errno.h>
#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "engine/sample.h"

/* ---- sample ---- */

struct sampling {
    struct sample_params params;
    struct sample_bias *bias;
    float *logits, *scratch; /* [n] */
    double *probs;           /* [n] */
    size_t n;
    struct ids prompt, output;
};

static int take_number(const struct offline_line *l, const char *name, double *ret, struct err *e)
{
    const json *v = json_get(json_get(l->root, "params", NULL), name, e);
    v = v ? v : json_get(l->root, name, e);
    return v ? json_num(v, name, -DBL_MAX, DBL_MAX, ret, e) : 0;
}

static int read_params(const struct offline_line *l, struct sample_params *p, struct err *e)
{
    double top_k = 0, seed = 0;
    const struct {
        const char *name;
        double *ret;
    } numbers[] = {{"temperature", &p->temperature},
                   {"top_p", &p->top_p},
                   {"min_p", &p->min_p},
                   {"top_k", &top_k},
                   {"seed", &seed},
                   {"repetition_penalty", &p->repetition_penalty},
                   {"presence_penalty", &p->presence_penalty},
                   {"frequency_penalty", &p->frequency_penalty}};
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        int rc = take_number(l, numbers[i].name, numbers[i].ret, e);
        if (rc < 0)
            return rc;
    }
    if (!(top_k >= 0 && top_k <= INT32_MAX) || top_k != floor(top_k))
        return err_set(e, ERR_INVAL, "top_k is %g, it must be a whole number from 0", top_k);
    p->top_k = (int)top_k;
    p->seed = seed >= 0 && seed <= (double)JSON_INT_MAX ? (uint64_t)seed : 0;
    return 0;
}

/* {"7": 1.5} */
static int read_bias(const struct offline_line *l, struct sampling *s, struct err *e)
{
    const json *o = json_get(json_get(l->root, "params", NULL), "logit_bias", e);
    o = o ? o : json_get(l->root, "logit_bias", e);
    if (!o)
        return 0;
    s->bias = calloc(json_count(o) + 1, sizeof *s->bias);
    if (!s->bias)
        return err_set(e, ERR_NOMEM, "no memory for logit_bias");
    for (const json *it = json_first(o); it; it = json_next(it)) {
        char *end = NULL;
        const char *key = json_key(it);
        errno = 0;
        long id = key ? strtol(key, &end, 10) : -1;
        double bias;
        int rc = json_num(it, "logit_bias", -1e30, 1e30, &bias, e);
        if (rc == 0 && (errno || !key || !*key || *end || id < 0 || id > INT32_MAX))
            rc = err_set(e, ERR_INVAL, "logit_bias for \"%s\"", key ? key : "");
        if (rc < 0)
            return rc;
        s->bias[s->params.n_bias++] = (struct sample_bias){(int32_t)id, (float)bias};
    }
    s->params.bias = s->bias;
    return 0;
}

static int read_logits(const struct offline_line *l, struct sampling *s, struct err *e)
{
    const json *a = json_get(l->root, "logits", e);
    s->n = json_count(a);
    if (json_type(a) != JSON_ARRAY || s->n == 0)
        return err_set(e, ERR_INVAL, "logits must be an array of numbers and nulls");
    s->logits = malloc(s->n * sizeof *s->logits);
    s->scratch = malloc(s->n * sizeof *s->scratch);
    s->probs = malloc(s->n * sizeof *s->probs);
    if (!s->logits || !s->scratch || !s->probs)
        return err_set(e, ERR_NOMEM, "no memory for %zu logits", s->n);
    size_t i = 0;
    for (const json *it = json_first(a); it; it = json_next(it), i++) {
        double v = -INFINITY;
        int rc = json_type(it) == JSON_NULL ? 0 : json_num(it, "logits", -FLT_MAX, FLT_MAX, &v, e);
        if (rc < 0)
            return rc;
        s->logits[i] = (float)v;
    }
    return 0;
}

static int draw(const struct offline_line *l, struct sampling *s, struct sampler *sampler,
                json *answer, struct err *e)
{
    const json *asked = json_get(l->root, "draws", e);
    int rc = 0;
    if (!asked)
        return 0;
    json *list = json_array();
    for (const json *it = json_first(asked); it && rc == 0; it = json_next(it)) {
        double u;
        int32_t id;
        rc = json_num(it, "draws", 0, 1, &u, e);
        memcpy(s->scratch, s->logits, s->n * sizeof *s->logits);
        if (rc == 0)
            rc = sampler_draw_u(sampler, s->scratch, u, &id, e);
        if (rc == 0)
            probe_add_pair(list, u, id);
    }
    json_set(answer, "draws", list);
    return rc;
}

static int run_sampler(const struct offline_line *l, struct sampling *s, json *answer,
                       struct err *e)
{
    struct sampler *sampler;
    int rc = sampler_new(&s->params, s->n, &sampler, e);
    if (rc < 0)
        return rc;
    sampler_see_prompt(sampler, s->prompt.v, s->prompt.n);
    for (size_t i = 0; i < s->output.n; i++)
        sampler_accept(sampler, s->output.v[i]);
    memcpy(s->scratch, s->logits, s->n * sizeof *s->logits);
    rc = sampler_probs(sampler, s->scratch, s->probs, e);
    if (rc == 0) {
        json *list = json_array();
        for (size_t i = 0; i < s->n; i++)
            json_add_num(list, s->probs[i]);
        json_set(answer, "probs", list);
        rc = draw(l, s, sampler, answer, e);
    }
    sampler_free(sampler);
    return rc;
}

int probe_op_sample(struct probe *p, const struct offline_line *l, json *answer, struct err *e)
{
    (void)p;
    struct sampling s = {.params = sample_neutral};
    ids_init(&s.prompt);
    ids_init(&s.output);
    int rc = read_params(l, &s.params, e);
    if (rc == 0)
        rc = read_bias(l, &s, e);
    if (rc == 0)
        rc = read_logits(l, &s, e);
    if (rc == 0 && json_get(l->root, "prompt_tokens", NULL))
        rc = probe_take_ids(l->root, "prompt_tokens", &s.prompt, e);
    if (rc == 0 && json_get(l->root, "output_tokens", NULL))
        rc = probe_take_ids(l->root, "output_tokens", &s.output, e);
    if (rc == 0)
        rc = run_sampler(l, &s, answer, e);
    free(s.bias);
    free(s.logits);
    free(s.scratch);
    free(s.probs);
    ids_done(&s.prompt);
    ids_done(&s.output);
    return rc;
}
