/*
 * A script: what the scripted engine answers to which words (the format: tests/scripted/engine.c).
 */
#ifndef HEARTH_TESTS_SCRIPTED_SCRIPT_H
#define HEARTH_TESTS_SCRIPTED_SCRIPT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "tests/scripted/vocab.h"

struct rule {
    char *when; /* NULL: the default */
    int32_t *ids;
    int64_t n_ids, repeat;
    bool is_endless, is_spread;
    int64_t nan_at, inf_at, all_nan_at, error_at, hang_at; /* -1: never */
    int64_t bad_id;                                        /* which logit is NaN or infinite */
};

struct script {
    int64_t ctx, pace_us, prefill_us_per_token, load_ms, n_layers, weights_bytes;
    char *weights;       /* part of the fingerprint: another string, another model */
    char *template_text; /* NULL: none */
    struct rule *rules;  /* the last is the default */
    size_t n_rules;
};

/* Reads a script and adds its pieces to the vocabulary. ERR_INVAL names the field. */
int script_read(const char *path, struct vocab *v, struct script **ret, struct err *e) MUST_USE;
void script_free(struct script *s);

/* The first rule whose `when` occurs in the text, else the default; *ret_end is where `when`'s
 * first occurrence ends (0 for the default). */
const struct rule *script_find(const struct script *s, const char *text, size_t n, size_t *ret_end);
/* The k-th id of a rule's answer; VOCAB_IM_END past its end. */
int32_t script_id(const struct rule *r, int64_t k);

#endif
