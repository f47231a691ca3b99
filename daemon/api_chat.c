/*
 * POST /v1/chat/completions: stateless. The whole conversation comes with the request and no
 * conversation is made; only the ids of each answer are kept, by a hash chain over what led to it,
 * so that the client's copy of our own words is read as the tokens we wrote. What doesn't fit the
 * window is refused, unless hearth.context asks for a strategy (daemon/context_resent.c).
 */
#include "daemon/body.h"
#include "daemon/context.h"
#include "daemon/history.h"
#include "daemon/served.h"
#include "daemon/wire.h"

static const struct body_refusal refusals[] = {
    {"tools", NEUTRAL_EMPTY},           {"tool_choice", NEUTRAL_NO_TOOL},
    {"functions", NEUTRAL_EMPTY},       {"function_call", NEUTRAL_NO_TOOL},
    {"response_format", NEUTRAL_TEXT},  {"logprobs", NEUTRAL_FALSE},
    {"top_logprobs", NEUTRAL_ZERO},     {"n", NEUTRAL_ONE},
    {"modalities", NEUTRAL_TEXT_ONLY},  {"audio", NEUTRAL_NONE},
    {"prediction", NEUTRAL_NONE},       {"web_search_options", NEUTRAL_NONE},
    {"verbosity", NEUTRAL_MEDIUM},
};

/* max_tokens is the old name of max_completion_tokens; both may be given, and the newer counts. */
static int read_limit(const json *o, struct turn *t, struct http_error *ret)
{
    int rc = body_max_tokens(o, "max_tokens", &t->params.max_tokens, ret);
    return rc ? rc : body_max_tokens(o, "max_completion_tokens", &t->params.max_tokens, ret);
}

static int read_body(const json *o, const struct history *h, const struct request *r,
                     struct turn *t, struct http_error *ret)
{
    int rc;
    if ((rc = body_refuse(o, refusals, sizeof refusals / sizeof *refusals, ret)) ||
        (rc = body_params(o, h, r, t, ret)) || (rc = body_thinking(o, h, t, ret)) ||
        (rc = read_limit(o, t, ret)) || (rc = body_messages(o, t, ret)))
        return rc;
    return 0;
}

int api_chat(struct history *h, struct request *r, const struct route_args *args,
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
    t = turn_new(h, r, &wire_chat, "chatcmpl-");
    if (!t) {
        rc = http_out_of_memory(ret, "the turn");
        goto done;
    }
    if ((rc = read_body(o, h, r, t, ret)))
        goto done;
    if (t->params.context == PLAN_UNSET)
        t->params.context = PLAN_ERROR;
    if ((rc = context_resent(h, t, 0, ret)))
        goto done;
    history_submit(h, t);
    t = NULL;
done:
    turn_free(t);
    json_free(o);
    return rc;
}
