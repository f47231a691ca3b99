/*
 * Pre-tokenizers at work: how a model's training cut text into pieces before merging. The one file
 * that knows PCRE2, interpreted, never compiled to machine code (no writable and executable pages
 * in this process). The patterns are data, in tok_pre.c.
 *
 * A pre-tokenizer is a row of stages, each cutting what the one before it gave. What a stage's
 * pattern matches is a piece, and so is what lies between two matches:
 *
 *     "abc 12!"  ─ \p{N} ─►  "abc " "1" "2" "!"  ─ GPT-2's ─►  "abc" " " "1" "2" "!"
 *
 * As the training code does, a look-around sees no further than the piece that its stage is
 * cutting.
 */
#include "engine/tok_impl.h"

#include <stdlib.h>
#include <string.h>

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#define SPLIT_MATCH_LIMIT                                                                          \
    100000000u /* steps a piece: an 8 MiB piece takes less than a fifth of them */
#define SPLIT_HEAP_LIMIT_KIB 65536u

struct split {
    const struct pre_def *def;
    pcre2_code *code[PRE_STAGES_MAX];
    bool is_threes[PRE_STAGES_MAX]; /* what matches is cut again, in threes from its end */
    int n_stages;
};

struct split_run {
    const struct split *split;
    pcre2_match_data *data[PRE_STAGES_MAX];
    pcre2_match_context *context;
    split_piece_fn on_piece;
    void *ctx;
};

/* Names the first of each line of the table, as far as there is room. */
static int refuse(const char *pre, struct err *e)
{
    char known[ERR_TEXT_BYTES - 120];
    size_t n = 0;
    const struct pre_def *def;
    for (size_t i = 0; (def = pre_at(i)); i++) {
        const size_t len = strcspn(def->names, " ");
        if (n + len + 3 > sizeof known)
            break;
        memcpy(known + n, def->names, len);
        memcpy(known + n + len, ", ", 3);
        n += len + 2;
    }
    known[n > 2 ? n - 2 : 0] = '\0';
    return err_set(e, ERR_UNSUPPORTED, "pre-tokenizer \"%.60s\" is not supported (known: %s%s)",
                   pre, known, def ? " …" : "");
}

static int compile(struct split *s, int stage, struct err *e)
{
    const char *pattern = s->def->stages[stage];
    int code;
    PCRE2_SIZE at;
    s->is_threes[stage] = strncmp(pattern, PRE_THREES, strlen(PRE_THREES)) == 0;
    if (s->is_threes[stage])
        pattern += strlen(PRE_THREES);
    s->code[stage] = pcre2_compile((PCRE2_SPTR)pattern, PCRE2_ZERO_TERMINATED,
                                   PCRE2_UTF | PCRE2_NO_UTF_CHECK, &code, &at, NULL);
    return s->code[stage] ? 0
                          : err_set(e, ERR_NOMEM,
                                    "pre-tokenizer \"%.60s\": PCRE2 error %d at %zu of pattern %d",
                                    s->def->names, code, (size_t)at, stage + 1);
}

int split_new(const char *pre, struct split **ret, struct err *e)
{
    const struct pre_def *def = pre_find(pre);
    if (!def)
        return refuse(pre, e);
    struct split *s = calloc(1, sizeof *s);
    if (!s)
        return err_set(e, ERR_NOMEM, "no memory for the pre-tokenizer");
    s->def = def;
    for (; s->n_stages < PRE_STAGES_MAX && def->stages[s->n_stages]; s->n_stages++) {
        int rc = compile(s, s->n_stages, e);
        if (rc < 0) {
            split_free(s);
            return rc;
        }
    }
    *ret = s;
    return 0;
}

void split_free(struct split *s)
{
    if (!s)
        return;
    for (int i = 0; i < PRE_STAGES_MAX; i++)
        pcre2_code_free(s->code[i]);
    free(s);
}

const struct pre_def *split_def(const struct split *s)
{
    return s->def;
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
    for (int i = 0; i < PRE_STAGES_MAX; i++)
        pcre2_match_data_free(r->data[i]);
    pcre2_match_context_free(r->context);
    free(r);
}

/* Where the stage's pattern next matches, from `at` on: [*ret_from, *ret_to); none: both text.n. */
static int next_match(struct split_run *r, int stage, struct tok_str text, size_t at,
                      size_t ret_span[2], struct err *e)
{
    int rc = pcre2_match(r->split->code[stage], (PCRE2_SPTR)text.s, text.n, at, PCRE2_NO_UTF_CHECK,
                         r->data[stage], r->context);
    if (rc == PCRE2_ERROR_NOMEMORY)
        return err_set(e, ERR_NOMEM, "no memory to cut a text of %zu bytes", text.n);
    if (rc < 0 && rc != PCRE2_ERROR_NOMATCH)
        return err_set(e, ERR_LIMIT, "pre-tokenizer \"%.60s\": PCRE2 error %d at byte %zu of %zu",
                       r->split->def->names, rc, at, text.n);
    const PCRE2_SIZE *span = pcre2_get_ovector_pointer(r->data[stage]);
    ret_span[0] = rc < 0 ? text.n : span[0];
    ret_span[1] = rc < 0 ? text.n : span[1];
    /* No pattern matches the empty string; should one, the rest is one piece and nothing is
     * lost. */
    if (ret_span[1] <= at)
        ret_span[0] = ret_span[1] = text.n;
    return 0;
}

static size_t n_chars(struct tok_str text)
{
    size_t n = 0;
    for (size_t i = 0; i < text.n; i++)
        n += (text.s[i] & 0xC0) != 0x80;
    return n;
}

/* The bytes of the first `chars` characters. */
static size_t chars_bytes(struct tok_str text, size_t chars)
{
    size_t n = 0;
    while (n < text.n && ((text.s[n] & 0xC0) == 0x80 || chars-- > 0))
        n++;
    return n;
}

static int split_stage(struct split_run *r, int stage, struct tok_str text, struct err *e);

static int split_match(struct split_run *r, int stage, struct tok_str match, struct err *e)
{
    if (!r->split->is_threes[stage])
        return split_stage(r, stage + 1, match, e);
    int rc = 0;
    size_t group = n_chars(match) % 3;
    for (group = group ? group : 3; match.n > 0 && rc == 0; group = 3) {
        const size_t n = chars_bytes(match, group);
        rc = split_stage(r, stage + 1, (struct tok_str){match.s, n}, e);
        match.s += n;
        match.n -= n;
    }
    return rc;
}

/* Depth is the number of stages, not the input's length. */
static int split_stage(struct split_run *r, int stage, struct tok_str text, struct err *e)
{
    if (stage == r->split->n_stages)
        return r->on_piece(r->ctx, text.s, text.n, e);
    size_t span[2] = {0, 0};
    for (size_t at = 0; at < text.n; at = span[1]) {
        int rc = next_match(r, stage, text, at, span, e);
        if (rc == 0 && span[0] > at)
            rc = split_stage(r, stage + 1, (struct tok_str){text.s + at, span[0] - at}, e);
        if (rc == 0 && span[1] > span[0])
            rc = split_match(r, stage, (struct tok_str){text.s + span[0], span[1] - span[0]}, e);
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
