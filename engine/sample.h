/*
 * Sampling: logits → one token. Definitions and order as in docs/SAMPLING.md (bias, repetition,
 * frequency and presence penalties, temperature, top-k, softmax, top-p, min-p, draw); temperature 0
 * is greedy (lowest id among equals). Sums in double. One seeded generator a request, one draw a
 * position: the k-th draw depends on (seed, k) alone, so that neither batch-mates, cached prefixes
 * nor speculation change it.
 */
#ifndef HEARTH_ENGINE_SAMPLE_H
#define HEARTH_ENGINE_SAMPLE_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

struct sample_bias {
    int32_t id;
    float bias;
};

struct sample_params {
    double temperature; /* 0 … 2; 0: greedy */
    double top_p;       /* (0, 1] */
    double min_p;       /* [0, 1] */
    int top_k;          /* 0: off */
    double repetition_penalty; /* > 0; 1: off */
    double presence_penalty, frequency_penalty; /* −2 … 2 */
    const struct sample_bias *bias; /* borrowed; the owner keeps it as long as the sampler */
    size_t n_bias;
    uint64_t seed;
};

/* Neutral values: temperature 1, all else off. */
extern const struct sample_params sample_neutral;

struct sampler;

/* n_vocab sizes the scratch arrays (counts of ids, candidates). */
int sampler_new(const struct sample_params *p, size_t n_vocab, struct sampler **ret,
                struct err *e) MUST_USE;
void sampler_free(struct sampler *s);
/* Tells it a prompt id or an accepted output id: penalties count them. */
void sampler_see_prompt(struct sampler *s, const int32_t *ids, size_t n);
void sampler_accept(struct sampler *s, int32_t id);

/*
 * Draws from logits[n_vocab], which are used as scratch. One NaN is never chosen (treated as −inf);
 * +inf, all NaN or all −inf: ERR_CORRUPT, "logits hold …". The position of the draw is the number
 * of tokens accepted so far.
 */
int sampler_draw(struct sampler *s, float *logits, int32_t *ret_id, struct err *e) MUST_USE;

/*
 * The distribution itself (probe, tests): probs[n_vocab] by id. And the draw for a given u in [0,
 * 1).
 */
int sampler_probs(struct sampler *s, float *logits, double *ret_probs, struct err *e) MUST_USE;
int sampler_draw_u(struct sampler *s, float *logits, double u, int32_t *ret_id,
                   struct err *e) MUST_USE;

#endif
