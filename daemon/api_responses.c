/*
 * /v1/responses: an answer, and where it is kept.
 *
 *      conversation           the new messages go to its end, or under hearth.parent; one turn at
 *                             a time
 *      previous_response_id   they become a branch under that response's answer; several may run
 *      neither                a hidden conversation of its own, so that it can be continued
 *      store: false           nothing is kept
 *
 * A stored response is its message (in memory's tree) plus the object that was sent. `instructions`
 * are read as a first system message, for this response alone.
 */
#include <stdlib.h>
#include <string.h>

#include "daemon/ahead.h"
#include "daemon/body.h"
#include "daemon/context.h"
#include "daemon/forget.h"
#include "daemon/history.h"
#include "daemon/items.h"
#include "daemon/limits.h"
#include "daemon/prepare.h"
#include "daemon/response.h"
#include "daemon/window.h"
#include "daemon/served.h"
#include "daemon/wire.h"

static const struct body_refusal refusals[] = {
    {"tools", NEUTRAL_EMPTY},
    {"tool_choice", NEUTRAL_NO_TOOL},
    {"background", NEUTRAL_FALSE},
    {"prompt", NEUTRAL_NONE},
    {"text", NEUTRAL_TEXT},
    {"response_format", NEUTRAL_TEXT},
    {"top_logprobs", NEUTRAL_ZERO},
    {"logprobs", NEUTRAL_FALSE},
    {"include", NEUTRAL_EMPTY},
    {"max_tool_calls", NEUTRAL_NONE},
    {"n", NEUTRAL_ONE},
    {"context_management", NEUTRAL_EMPTY},
    {"moderation", NEUTRAL_NONE},
    {"modalities", NEUTRAL_TEXT_ONLY},
};

/* One request, while the history thread prepares it. */
struct ask {
    struct history *h;
    struct request *r;
    const json *body;
    struct turn *t;
    struct response *api; /* = t->api */
    const char *parent;   /* hearth.parent: a message id, "root", or NULL */
    struct items input;
    int64_t conversation; /* row; 0: none yet */
    int64_t tip;          /* row under which the input goes; 0: at the root */
    bool is_counting;     /* input_tokens: nothing is stored or claimed */
    enum { TRUNCATION_UNSET, TRUNCATION_AUTO, TRUNCATION_DISABLED } truncation;
    struct context context;
};

/* ---- fields ---- */

/* reasoning and text.verbosity: objects whose members may all be null, as clients send them. */
static int refuse_inner(const json *o, const char *key, const char *inner, struct http_error *ret)
{
    const json *object = NULL;
    int rc = body_object(o, key, &object, ret);
    if (rc || !object)
        return rc;
    const json *j = json_get(object, inner, NULL);
    if (!j || (json_type(j) == JSON_STRING && strcmp(json_str(j), "medium") == 0 &&
               strcmp(key, "text") == 0))
        return 0;
    return body_refused(ret, "unsupported_parameter", key,
                        "%s.%s is not supported by this server; leave it out", key, inner);
}

static int read_refused(const json *o, struct http_error *ret)
{
    int rc;
    if ((rc = body_refuse(o, refusals, sizeof(refusals) / sizeof(*refusals), ret)) ||
        (rc = refuse_inner(o, "reasoning", "summary", ret)))
        return rc;
    return refuse_inner(o, "text", "verbosity", ret);
}

/* reasoning.effort: whether to think. */
static int read_effort(struct ask *ask, struct http_error *ret)
{
    static const char field[] = "reasoning.effort";
    enum chat_thinking thinking = CHAT_THINKING_UNSET;
    const json *object = NULL;
    const char *effort = NULL;
    int rc = body_object(ask->body, "reasoning", &object, ret);
    if (rc == 0 && object)
        rc = body_str(object, "effort", field, &effort, ret);
    if (rc == 0 && effort)
        rc = body_effort(effort, field, &thinking, ret);
    return rc ? rc : body_set_thinking(ask->h, thinking, field, ask->t, ret);
}

static int read_truncation(struct ask *ask, struct http_error *ret)
{
    const char *truncation = NULL;
    int rc = body_str(ask->body, "truncation", "truncation", &truncation, ret);
    if (rc || !truncation)
        return rc;
    ask->truncation =
        strcmp(truncation, "auto") == 0 ? TRUNCATION_AUTO : TRUNCATION_DISABLED;
    if (ask->truncation == TRUNCATION_AUTO || strcmp(truncation, "disabled") == 0)
        return 0;
    return body_refused(ret, "invalid_value", "truncation",
                        "truncation: \"%.64s\" is neither auto nor disabled", truncation);
}

/* `conversation`: an id, or {"id"}. */
static int read_conversation(const json *o, const char **ret, struct http_error *ret_error)
{
    const json *j = json_get(o, "conversation", NULL);
    if (json_type(j) != JSON_OBJECT)
        return body_str(o, "conversation", "conversation", ret, ret_error);
    int rc = body_str(j, "id", "conversation.id", ret, ret_error);
    if (rc || *ret)
        return rc;
    return body_refused(ret_error, "invalid_value", "conversation.id",
                        "conversation.id is missing");
}

static int read_input(struct ask *ask, struct http_error *ret)
{
    const json *j = json_get(ask->body, "input", NULL);
    if (!j)
        return 0;
    if (json_type(j) == JSON_STRING)
        return items_of_text(json_str(j), &ask->t->arena, &ask->input, ret);
    if (json_type(j) == JSON_ARRAY)
        return items_parse(j, &(struct items_rule){"input", LIMIT_MESSAGES}, &ask->t->arena,
                           &ask->input, ret);
    return body_refused(ret, "invalid_type", "input",
                        "input: string or array of items expected, %s given",
                        json_type_name(json_type(j)));
}

static int read_parent(struct ask *ask, struct http_error *ret)
{
    const json *hearth = NULL;
    int rc = body_object(ask->body, "hearth", &hearth, ret);
    if (rc || !hearth)
        return rc;
    rc = body_str(hearth, "parent", "hearth.parent", &ask->parent, ret);
    if (rc || !ask->parent || ask->api->conversation)
        return rc;
    return body_refused(ret, "invalid_value", "hearth.parent",
                        "hearth.parent names a message of `conversation`, which is missing");
}

static int check_together(const struct response *api, struct http_error *ret)
{
    if (api->conversation && api->previous)
        return body_refused(ret, "invalid_value", "previous_response_id",
                            "conversation and previous_response_id can't be used together");
    if (api->conversation && !api->is_stored)
        return body_refused(
            ret, "invalid_value", "store",
            "store: false, but the items of a conversation are stored: leave one of the two out");
    return 0;
}

/* Strings of the body outlive it as copies in the turn's arena. */
static int keep(struct ask *ask, const char **s, struct http_error *ret)
{
    if (!*s)
        return 0;
    *s = arena_str(&ask->t->arena, *s);
    return *s ? 0 : http_out_of_memory(ret, "the request");
}

static int read_body(struct ask *ask, struct http_error *ret)
{
    struct response *api = ask->api;
    const json *o = ask->body;
    int rc;
    if ((rc = read_refused(o, ret)) || (rc = read_truncation(ask, ret)) ||
        (rc = body_params(o, ask->h, ask->r, ask->t, ret)) || (rc = read_effort(ask, ret)) ||
        (rc = body_max_tokens(o, "max_output_tokens", &ask->t->params.max_tokens, ret)) ||
        (rc = read_conversation(o, &api->conversation, ret)) ||
        (rc = body_str(o, "previous_response_id", "previous_response_id", &api->previous, ret)) ||
        (rc = body_str(o, "instructions", "instructions", &api->instructions, ret)) ||
        (rc = body_bool(o, "store", "store", &api->is_stored, ret)) ||
        (rc = metadata_parse(o, &ask->t->arena, &api->metadata, ret)) ||
        (rc = check_together(api, ret)) || (rc = read_parent(ask, ret)) ||
        (rc = read_input(ask, ret)))
        return rc;
    if ((rc = keep(ask, &api->conversation, ret)) || (rc = keep(ask, &api->previous, ret)) ||
        (rc = keep(ask, &api->instructions, ret)))
        return rc;
    return 0;
}

/* ---- where it goes ---- */

static int find_parent(struct ask *ask, struct http_error *ret)
{
    struct err e;
    struct memory_message m = {0};
    if (strcmp(ask->parent, "root") == 0) {
        ask->tip = 0;
        return 0;
    }
    if (memory_message_find(ask->h->memory, ask->r->owner, ask->parent, &m, &ask->t->arena, &e))
        return items_error(ret, &e, "hearth.parent");
    if (m.conversation != ask->conversation) {
        http_error_set(ret, 404, "not_found", "hearth.parent", "no message '%s' in %s", ask->parent,
                       ask->api->conversation);
        return ERR_NOTFOUND;
    }
    ask->tip = m.row;
    return 0;
}

/* PARKED: another turn runs there, and this request waits behind it. */
static int find_conversation(struct ask *ask, struct http_error *ret)
{
    struct err e;
    struct memory_conversation c = {0};
    bool is_parked;
    if (memory_conversation_find(ask->h->memory, ask->r->owner, ask->api->conversation, &c,
                                 &ask->t->arena, &e))
        return items_error(ret, &e, "conversation");
    ask->conversation = c.row;
    ask->tip = c.tip;
    if (ask->is_counting)
        return ask->parent ? find_parent(ask, ret) : 0;
    if (!history_claim(ask->h, c.row, ask->r, &is_parked))
        return is_parked ? PARKED : http_out_of_memory(ret, "the request");
    ask->t->store.is_claimed = true;
    ask->t->store.conversation = c.row;
    return ask->parent ? find_parent(ask, ret) : 0;
}

static int find_previous(struct ask *ask, struct http_error *ret)
{
    struct err e;
    struct memory_response previous = {0};
    if (memory_response_find(ask->h->memory, ask->r->owner, ask->api->previous, &previous,
                             &ask->t->arena, &e)) {
        items_error(ret, &e, "previous_response_id");
        if (e.code == ERR_NOTFOUND)
            http_error_set(ret, 404, "previous_response_not_found", "previous_response_id",
                           "no response '%.64s' (one made with store: false can't be continued)",
                           ask->api->previous);
        return e.code;
    }
    ask->conversation = previous.conversation;
    ask->tip = previous.answer;
    return 0;
}

static int locate(struct ask *ask, struct http_error *ret)
{
    if (ask->api->conversation)
        return find_conversation(ask, ret);
    return ask->api->previous ? find_previous(ask, ret) : 0;
}

/* ---- what the model reads ---- */

/* Whether there is something to answer: this turn's input, or (a regeneration, items that were
 * added) a stored question. */
static int check_question(struct ask *ask, struct http_error *ret)
{
    struct err e;
    struct memory_message tip;
    if (ask->input.n > 0)
        return 0;
    if (ask->tip &&
        memory_message_by_row(ask->h->memory, ask->tip, &tip, &ask->t->arena, &e) == 0 &&
        tip.role == MEMORY_USER)
        return 0;
    return body_refused(ret, "invalid_value", "input", "input is missing%s",
                        ask->tip ? ", and what was said so far doesn't end with a question" : "");
}

/* `truncation` speaks of the context as hearth.context does, which says more. */
static enum plan_strategy strategy_of(const struct ask *ask)
{
    const enum plan_strategy own = context_strategy(ask->h, ask->conversation);
    if (ask->t->params.context != PLAN_UNSET)
        return ask->t->params.context;
    if (ask->truncation == TRUNCATION_DISABLED)
        return PLAN_ERROR;
    return ask->truncation == TRUNCATION_AUTO && own == PLAN_ERROR ? PLAN_AUTO : own;
}

/* Nothing is stored, and nothing was: the input is all there is. */
static bool is_stateless(const struct ask *ask)
{
    return !ask->api->is_stored && ask->conversation == 0 && ask->tip == 0;
}

static int render_stateless(struct ask *ask, struct http_error *ret)
{
    struct turn *t = ask->t;
    const char *instructions = ask->api->instructions;
    int rc = 0;
    if (t->params.context == PLAN_UNSET)
        t->params.context = ask->truncation == TRUNCATION_AUTO ? PLAN_AUTO : PLAN_ERROR;
    if (instructions)
        rc = prepare_add(t, CHAT_SYSTEM, instructions, strlen(instructions), ret);
    for (size_t i = 0; rc == 0 && i < ask->input.n; i++) {
        const struct memory_new_message *m = &ask->input.v[i];
        rc = prepare_add(t, window_role(m->role), m->text, m->n_text, ret);
    }
    return rc ? rc : context_resent(ask->h, t, instructions != NULL, ret);
}

static int render_stored(struct ask *ask, struct http_error *ret)
{
    ask->context = (struct context){
        .h = ask->h,
        .t = ask->t,
        .strategy = strategy_of(ask),
        .conversation = ask->conversation,
        .tip = ask->tip,
        .instructions = ask->api->instructions,
        .inputs = ask->input.v,
        .n_inputs = ask->input.n,
        .is_counting = ask->is_counting,
    };
    return context_prepare(&ask->context, ret);
}

static int render(struct ask *ask, struct http_error *ret)
{
    int rc = check_question(ask, ret);
    if (rc == 0)
        rc = is_stateless(ask) ? render_stateless(ask, ret) : render_stored(ask, ret);
    if (rc < 0 && ret->param && strcmp(ret->param, "messages") == 0)
        ret->param = "input"; /* what the field is called here */
    return rc;
}

/* ---- storing ---- */

/* After the answer is stored; whatever became of it, a client that saw the id can ask for it. */
static int store_response(struct history *h, struct turn *t, struct err *e)
{
    const struct response *api = t->api;
    struct buf body;
    if (t->store.has_failed)
        return 0; /* said already, and there is no answer to point at */
    buf_init(&body, WIRE_BODY_BYTES);
    json *o = response_json(t, true);
    json_write(o, &body);
    json_free(o);
    struct memory_response r = {
        .conversation = t->store.conversation,
        .answer = t->store.answer.row,
        .first_input = t->store.n_inputs > 0 ? t->store.inputs[0].row : 0,
        .is_in_conversation = api->conversation != NULL,
        .body = body.data,
    };
    memcpy(r.id, t->id, strlen(t->id) + 1);
    int rc = buf_error(&body);
    if (rc)
        rc = err_set(e, rc, "the response object can't be written: %s", err_name(rc));
    else
        rc = memory_response_add(h->memory, t->owner, &r, e);
    buf_done(&body);
    return rc;
}

static int store(struct ask *ask, struct http_error *ret)
{
    struct err e;
    struct memory_conversation hidden = {0};
    const struct memory_new_conversation new = {.owner = ask->r->owner, .is_hidden = true};
    struct turn *t = ask->t;
    random_id("msg_", ask->api->item_id);
    if (!ask->api->is_stored)
        return 0;
    if (ask->conversation == 0 &&
        memory_conversation_add(ask->h->memory, &new, &hidden, &t->arena, &e))
        return items_error(ret, &e, NULL);
    if (ask->context.injected.text)
        ask->input.v[ask->input.n - 1].context = &ask->context.injected;
    struct prepare_place place = {
        .conversation = ask->conversation ? ask->conversation : hidden.row,
        .parent = ask->tip,
        .messages = ask->input.v,
        .n = ask->input.n,
    };
    int rc = prepare_store(ask->h, t, &place, ret);
    if (rc && hidden.row) /* nothing of a refused request stays */
        (void)!memory_conversation_remove(ask->h->memory, ask->r->owner, hidden.id, NULL, &e);
    if (rc)
        return rc;
    memcpy(ask->api->item_id, t->store.answer.id, sizeof(ask->api->item_id));
    t->on_end = store_response;
    return 0;
}

/* ---- POST /v1/responses, …/input_tokens ---- */

static int ask_init(struct ask *ask, struct history *h, struct request *r, const json *body,
                    struct http_error *ret)
{
    *ask = (struct ask){.h = h, .r = r, .body = body};
    ask->t = turn_new(h, r, &wire_response, "resp_");
    if (!ask->t)
        return http_out_of_memory(ret, "the request");
    ask->api = arena_alloc(&ask->t->arena, sizeof(*ask->api));
    if (!ask->api)
        return http_out_of_memory(ret, "the request");
    ask->api->is_stored = true;
    ask->t->api = ask->api;
    return 0;
}

/* An unfinished ask: its conversation is free again. */
static void ask_done(struct ask *ask)
{
    if (ask->t && ask->t->store.is_claimed)
        history_release(ask->h, ask->t->store.conversation);
    turn_free(ask->t);
}

int api_response_create(struct history *h, struct request *r, const struct route_args *args,
                        struct http_error *ret)
{
    (void)args;
    json *body = NULL;
    struct ask ask = {0};
    int rc;
    if ((rc = body_parse(r, &body, ret)))
        return rc;
    if ((rc = served_choose_body(h, r, body, ret)) != HANDLED ||
        (rc = ask_init(&ask, h, r, body, ret)) || (rc = read_body(&ask, ret)) ||
        (rc = locate(&ask, ret)) || (rc = render(&ask, ret)) || (rc = store(&ask, ret)))
        goto done;
    history_submit(h, ask.t);
    ask.t = NULL;
done:
    ask_done(&ask);
    json_free(body);
    return rc;
}

int api_input_tokens(struct history *h, struct request *r, const struct route_args *args,
                     struct http_error *ret)
{
    (void)args;
    json *body = NULL;
    struct ask ask = {0};
    int rc;
    if ((rc = body_parse(r, &body, ret)))
        return rc;
    if ((rc = served_choose_body(h, r, body, ret)) != HANDLED ||
        (rc = ask_init(&ask, h, r, body, ret)))
        goto done;
    ask.is_counting = true;
    if ((rc = read_body(&ask, ret)) || (rc = locate(&ask, ret)))
        goto done;
    rc = render(&ask, ret);
    if (rc == ERR_LIMIT && ask.t->prompt.n > 0)
        rc = 0; /* more than fits is a count as well */
    if (rc < 0)
        goto done;
    json *o = json_object();
    json_set_str(o, "object", "response.input_tokens");
    json_set_int(o, "input_tokens", (int64_t)ask.t->prompt.n);
    history_reply_json(h, r, 200, o);
done:
    ask_done(&ask);
    json_free(body);
    return rc;
}

/* ---- stored responses ---- */

/* A response that is asked for; the arena ends with the request. */
struct stored {
    struct arena arena;
    struct memory_response r;
};

/* arena_done whatever comes of it. */
static int find(struct history *h, const struct request *r, const char *id, struct stored *ret,
                struct http_error *ret_error)
{
    struct err e;
    arena_init(&ret->arena, ITEMS_ARENA_BYTES);
    int rc = memory_response_find(h->memory, r->owner, id, &ret->r, &ret->arena, &e);
    return rc ? items_error(ret_error, &e, "response_id") : 0;
}

int api_response_get(struct history *h, struct request *r, const struct route_args *args,
                     struct http_error *ret)
{
    struct stored found;
    struct buf body;
    char *stream = NULL;
    if (request_query(r, "stream", &stream) == 0 && strcmp(stream, "true") == 0) {
        free(stream);
        return body_refused(ret, "unsupported_parameter", "stream",
                            "a stored response is not streamed again");
    }
    free(stream);
    int rc = find(h, r, args->v[0], &found, ret);
    if (rc == 0) {
        buf_init(&body, WIRE_BODY_BYTES);
        buf_str(&body, found.r.body);
        history_reply(h, r, 200, &body);
    }
    arena_done(&found.arena);
    return rc;
}

int api_response_delete(struct history *h, struct request *r, const struct route_args *args,
                        struct http_error *ret)
{
    struct err e;
    struct memory_removed gone;
    struct stored found;
    int rc = find(h, r, args->v[0], &found, ret);
    if (rc == 0 && !found.r.is_in_conversation) /* else its messages stay */
        ahead_cancel(h, found.r.conversation);
    arena_done(&found.arena);
    if (rc)
        return rc;
    if (memory_response_remove(h->memory, r->owner, args->v[0], &gone, &e))
        return items_error(ret, &e, "response_id");
    json *o = json_object();
    json_set_str(o, "id", args->v[0]);
    json_set_str(o, "object", "response");
    json_set_bool(o, "deleted", true);
    forget_and_reply(h, r, o, NULL, &gone);
    return HANDLED;
}

static int list_input(struct history *h, const struct request *r, struct stored *found,
                      struct http_error *ret)
{
    struct arena *a = &found->arena;
    struct err e;
    struct memory_page page;
    struct memory_message answer;
    struct memory_messages list;
    int rc = items_page(r, a, &page, ret);
    if (rc)
        return rc;
    if (memory_message_by_row(h->memory, found->r.answer, &answer, a, &e))
        return items_error(ret, &e, "response_id");
    struct memory_branch branch = {.first = found->r.first_input, .tip = answer.parent};
    if (memory_branch_list(h->memory, &branch, &page, &list, a, &e))
        return items_error(ret, &e, "after");
    json *data = json_array();
    for (size_t i = 0; i < list.n; i++)
        json_add(data, item_json(&list.v[i], body_thinking_marks(h)));
    history_reply_json(h, r, 200, list_json(data, list.has_more));
    return HANDLED;
}

int api_response_input_items(struct history *h, struct request *r, const struct route_args *args,
                             struct http_error *ret)
{
    struct stored found;
    int rc = find(h, r, args->v[0], &found, ret);
    if (rc == 0)
        rc = list_input(h, r, &found, ret);
    arena_done(&found.arena);
    return rc;
}
