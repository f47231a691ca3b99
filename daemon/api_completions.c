/*
 * POST /v1/completions: a prompt as text or as token ids, continued. No template, no history. Text
 * never yields control tokens; ids may be any of the vocabulary.
 */
#include <string.h>

#include "daemon/body.h"
#include "daemon/history.h"
#include "daemon/prepare.h"
#include "daemon/served.h"
#include "daemon/wire.h"

static const struct body_refusal refusals[] = {
    {"n", NEUTRAL_ONE},         {"best_of", NEUTRAL_ONE},  {"echo", NEUTRAL_FALSE},
    {"logprobs", NEUTRAL_NONE}, {"suffix", NEUTRAL_EMPTY},
};

static int add_text(const char *text, const struct history *h, struct turn *t,
                    struct http_error *ret)
{
    const struct tok *tok = engine_tok(h->engine);
    struct err e;
    int rc = prepare_check_text(h, "prompt", text, strlen(text), ret);
    if (rc) {
        ret->param = "prompt";
        return rc;
    }
    if (tok_bos(tok) >= 0 && ids_push(&t->prompt, tok_bos(tok)))
        rc = err_set(&e, ERR_NOMEM, "out of memory for the prompt");
    if (rc == 0)
        rc = tok_encode(tok, text, strlen(text), false, &t->prompt, &e);
    return rc ? body_error(ret, &e, "prompt") : 0;
}

static int add_ids(const json *list, const struct history *h, struct turn *t,
                   struct http_error *ret)
{
    int n_vocab = engine_info(h->engine)->n_vocab;
    for (const json *it = json_first(list); it; it = json_next(it)) {
        struct err e;
        int64_t id;
        if (json_type(it) != JSON_NUMBER)
            return body_refused(ret, "invalid_type", "prompt",
                                "prompt: a list holds token ids only, %s given",
                                json_type_name(json_type(it)));
        if (json_int(it, "prompt", 0, n_vocab - 1, &id, &e))
            return body_error(ret, &e, "prompt");
        if (ids_push(&t->prompt, (int32_t)id))
            return http_out_of_memory(ret, "the prompt");
    }
    return 0;
}

/* A string, ids, or a list with one of either: several prompts in one request are several choices,
 * and n is 1. */
static int read_prompt(const json *o, const struct history *h, struct turn *t,
                       struct http_error *ret)
{
    struct err e = {0};
    const json *p = json_get(o, "prompt", &e);
    if (e.code)
        return body_error(ret, &e, "prompt");
    if (!p)
        return body_refused(ret, "invalid_value", "prompt",
                            "prompt is missing; a string or a list of token ids is needed");
    const json *first = json_type(p) == JSON_ARRAY ? json_first(p) : NULL;
    bool is_nested = json_type(first) == JSON_STRING || json_type(first) == JSON_ARRAY;
    if (is_nested && json_count(p) > 1)
        return body_refused(ret, "unsupported_parameter", "prompt",
                            "prompt: %zu prompts in one request are not supported; send one each",
                            json_count(p));
    if (is_nested)
        p = first;
    if (json_type(p) == JSON_STRING)
        return add_text(json_str(p), h, t, ret);
    if (json_type(p) == JSON_ARRAY)
        return add_ids(p, h, t, ret);
    return body_refused(ret, "invalid_type", "prompt",
                        "prompt: string or list of token ids expected, %s given",
                        json_type_name(json_type(p)));
}

static int read_body(const json *o, const struct history *h, const struct request *r,
                     struct turn *t, struct http_error *ret)
{
    int rc;
    if ((rc = body_refuse(o, refusals, sizeof refusals / sizeof *refusals, ret)) ||
        (rc = body_params(o, h, r, t, ret)) ||
        (rc = body_max_tokens(o, "max_tokens", &t->params.max_tokens, ret)) ||
        (rc = read_prompt(o, h, t, ret)))
        return rc;
    return 0;
}

int api_completions(struct history *h, struct request *r, const struct route_args *args,
                    struct http_error *ret)
{
    (void)args;
    json *o = NULL;
    struct turn *t = NULL;
    int rc = body_parse(r, &o, ret);
    if (rc)
        return rc;
    if ((rc = served_choose_body(h, r, o, ret)) != HANDLED)
        goto done;
    t = turn_new(h, r, &wire_completion, "cmpl-");
    if (!t) {
        rc = http_out_of_memory(ret, "the turn");
        goto done;
    }
    if ((rc = read_body(o, h, r, t, ret)) || (rc = prepare_fit(h, t, ret)))
        goto done;
    history_submit(h, t);
    t = NULL;
done:
    turn_free(t);
    json_free(o);
    return rc;
}
