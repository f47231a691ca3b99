/*
 * Pre-tokenizers: how a model's training cut text into pieces before merging. The one file that
 * knows PCRE2, interpreted, never compiled to machine code (no writable and executable pages in
 * this process).
 *
 * A pre-tokenizer is data: one or two patterns, each cutting what the one before it gave. As the
 * training code does, a look-ahead sees no further than the piece that its stage is cutting.
 * Sources: the `tokenizer.json` files of the models and llama.cpp's table of the same names.
 *
 * Written for linear time: every repeat is possessive where that changes nothing, white space is
 * spelt out (PCRE2's \s also has U+180E), and "white space up to the last newline" is a possessive
 * group instead of \s*[\r\n]+, which would go back over each run of blanks. Letters and numbers are
 * those of PCRE2's Unicode tables.
 */
#include "engine/tok_impl.h"

#include <stdlib.h>
#include <string.h>

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#define SPLIT_STAGES_MAX 2
#define SPLIT_MATCH_LIMIT                                                                          \
    100000000u /* steps a piece: an 8 MiB piece takes less than a fifth of them */
#define SPLIT_HEAP_LIMIT_KIB 65536u

/* White space as in Unicode's White_Space property; NOT_NL without CR and LF. */
#define WS_BUT_NL                                                                                  \
    "\\x{9}\\x{b}\\x{c}\\x{20}\\x{85}\\x{a0}\\x{1680}\\x{2000}-\\x{200a}\\x{2028}\\x{2029}\\x{"    \
    "202f}\\x{205f}\\x{3000}"
#define WS WS_BUT_NL "\\r\\n"
#define WS_TAIL "[" WS "]+(?![^" WS "])|[" WS "]++"

#define GPT2 "'(?:s|t|re|ve|m|ll|d)| ?\\p{L}++| ?\\p{N}++| ?[^" WS "\\p{L}\\p{N}]++|" WS_TAIL
#define QWEN2                                                                                      \
    "'(?:[sS]|[tT]|[rR][eE]|[vV][eE]|[mM]|[lL][lL]|[dD])|[^\\r\\n\\p{L}\\p{N}]?\\p{L}++|\\p{N}| "  \
    "?[^" WS "\\p{L}\\p{N}]++[\\r\\n]*+|(?:[" WS_BUT_NL "]*+[\\r\\n]++)++|" WS_TAIL

static const struct split_def {
    const char *name;
    const char *stages[SPLIT_STAGES_MAX + 1];
    const char *text; /* all stages, for the fingerprint */
} split_defs[] = {
    {"gpt-2", {GPT2}, GPT2},
    {"smollm", {"\\p{N}|\\P{N}++", GPT2}, "\\p{N}|\\P{N}++;" GPT2}, /* digits one by one first */
    {"qwen2", {QWEN2}, QWEN2},
};

struct split {
    const struct split_def *def;
    pcre2_code *code[SPLIT_STAGES_MAX];
    int n_stages;
};

struct split_run {
    const struct split *split;
    pcre2_match_data *data[SPLIT_STAGES_MAX];
    pcre2_match_context *context;
    size_t len[SPLIT_STAGES_MAX]; /* of the piece at hand, by stage */
    split_piece_fn on_piece;
    void *ctx;
};

static const struct split_def *find_def(const char *name)
{
    for (size_t i = 0; i < sizeof split_defs / sizeof *split_defs; i++)
        if (strcmp(split_defs[i].name, name) == 0)
            return &split_defs[i];
    return NULL;
}

int split_new(const char *pre, struct split **ret, struct err *e)
{
    const struct split_def *def = find_def(pre);
    if (!def)
        return err_set(e, ERR_UNSUPPORTED,
                       "pre-tokenizer \"%s\" is not supported (known: gpt-2, smollm, qwen2)", pre);
    struct split *s = calloc(1, sizeof *s);
    if (!s)
        return err_set(e, ERR_NOMEM, "no memory for the pre-tokenizer");
    s->def = def;
    for (; def->stages[s->n_stages]; s->n_stages++) {
        int code;
        PCRE2_SIZE at;
        s->code[s->n_stages] =
            pcre2_compile((PCRE2_SPTR)def->stages[s->n_stages], PCRE2_ZERO_TERMINATED,
                          PCRE2_UTF | PCRE2_ANCHORED | PCRE2_NO_UTF_CHECK, &code, &at, NULL);
        if (s->code[s->n_stages])
            continue;
        split_free(s);
        return err_set(e, ERR_NOMEM, "pre-tokenizer \"%s\": PCRE2 error %d at %zu of the pattern",
                       pre, code, (size_t)at);
    }
    *ret = s;
    return 0;
}

void split_free(struct split *s)
{
    if (!s)
        return;
    for (int i = 0; i < SPLIT_STAGES_MAX; i++)
        pcre2_code_free(s->code[i]);
    free(s);
}

const char *split_definition(const struct split *s)
{
    return s->def->text;
}

int split_run_new(const struct split *s, struct split_run **ret, struct err *e)
{
    struct split_run *r = calloc(1, sizeof *r);
    if (!r)
        return err_set(e, ERR_NOMEM, "no memory for the pre-tokenizer");
    r->split = s;
    r->context = pcre2_match_context_create(NULL);
    bool is_whole = r->context != NULL;
    for (int i = 0; i < s->n_stages; i++) {
        r->data[i] = pcre2_match_data_create(1, NULL);
        is_whole = is_whole && r->data[i];
    }
    if (!is_whole) {
        split_run_free(r);
        return err_set(e, ERR_NOMEM, "no memory for the pre-tokenizer");
    }
    pcre2_set_match_limit(r->context, SPLIT_MATCH_LIMIT);
    pcre2_set_heap_limit(r->context, SPLIT_HEAP_LIMIT_KIB);
    *ret = r;
    return 0;
}

void split_run_free(struct split_run *r)
{
    if (!r)
        return;
    for (int i = 0; i < SPLIT_STAGES_MAX; i++)
        pcre2_match_data_free(r->data[i]);
    pcre2_match_context_free(r->context);
    free(r);
}

/* Length of the piece at text[at], by the stage's pattern. */
static int next_piece(struct split_run *r, int stage, struct tok_str text, size_t at, struct err *e)
{
    int rc = pcre2_match(r->split->code[stage], (PCRE2_SPTR)text.s, text.n, at, PCRE2_NO_UTF_CHECK,
                         r->data[stage], r->context);
    if (rc == PCRE2_ERROR_NOMEMORY)
        return err_set(e, ERR_NOMEM, "no memory to cut a text of %zu bytes", text.n);
    if (rc < 0 && rc != PCRE2_ERROR_NOMATCH)
        return err_set(e, ERR_LIMIT, "pre-tokenizer \"%s\": PCRE2 error %d at byte %zu of %zu",
                       r->split->def->name, rc, at, text.n);
    size_t end = rc < 0 ? at : pcre2_get_ovector_pointer(r->data[stage])[1];
    /* The patterns match anything; should one not, a byte alone is a piece and nothing is lost. */
    r->len[stage] = end > at ? end - at : 1;
    return 0;
}

/* Depth is the number of stages, not the input's length. */
static int split_stage(struct split_run *r, int stage, struct tok_str text, struct err *e)
{
    if (stage == r->split->n_stages)
        return r->on_piece(r->ctx, text.s, text.n, e);
    for (size_t at = 0; at < text.n; at += r->len[stage]) {
        int rc = next_piece(r, stage, text, at, e);
        if (rc == 0)
            rc = split_stage(r, stage + 1, (struct tok_str){text.s + at, r->len[stage]}, e);
        if (rc < 0)
            return rc;
    }
    return 0;
}

int split_text(struct split_run *r, struct tok_str text, split_piece_fn on_piece, void *ctx,
               struct err *e)
{
    r->on_piece = on_piece;
    r->ctx = ctx;
    return split_stage(r, 0, text, e);
}
