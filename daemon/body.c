/*
 * Request bodies: see body.h. The order of checks is the order in which a person would want to hear
 * about them: is it JSON, is a field refused, is its type right, is its value in range.
 */
#include "daemon/body.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "daemon/history.h"
#include "daemon/limits.h"
#include "daemon/prepare.h"

/* A value that is shown in an error is cut to this. */
#define SHOWN_BYTES 64

static void param_set(struct http_error *ret, const char *param)
{
    if (!param) {
        ret->param = NULL;
        return;
    }
    snprintf(ret->param_text, sizeof ret->param_text, "%s", param);
    ret->param = ret->param_text;
}

int body_refused(struct http_error *ret, const char *code, const char *param, const char *fmt, ...)
{
    char text[sizeof ret->message];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    http_error_set(ret, 400, code, NULL, "%s", text);
    param_set(ret, param);
    return ERR_INVAL;
}

int body_error(struct http_error *ret, const struct err *e, const char *param)
{
    if (e->code == ERR_NOMEM) {
        http_error_from(ret, e);
        return e->code;
    }
    http_error_set(ret, 400, "invalid_value", NULL, "%s", e->text);
    param_set(ret, param);
    return e->code;
}

static int wrong_type(struct http_error *ret, const char *field, const char *wanted,
                      const json *got)
{
    return body_refused(ret, "invalid_type", field, "%s: %s expected, %s given", field, wanted,
                        json_type_name(json_type(got)));
}

int body_parse(const struct request *r, json **ret_json, struct http_error *ret)
{
    struct err e;
    json *j;
    if (r->n_body == 0)
        return body_refused(ret, "invalid_json", NULL,
                            "the request has no body; a JSON object is expected");
    int rc = json_parse(r->body, r->n_body, &j, &e);
    if (rc == ERR_NOMEM)
        return http_out_of_memory(ret, "the request");
    if (rc)
        return body_refused(ret, "invalid_json", NULL, "the body is not JSON that can be read: %s",
                            e.text);
    if (json_type(j) != JSON_OBJECT) {
        body_refused(ret, "invalid_json", NULL, "the body is a JSON %s; an object is expected",
                     json_type_name(json_type(j)));
        json_free(j);
        return ERR_INVAL;
    }
    const char *key = NULL;
    if ((rc = json_check_keys(j, &key, &e))) { /* which of the two is meant? */
        rc = rc == ERR_NOMEM ? http_out_of_memory(ret, "the request") : body_error(ret, &e, key);
        json_free(j);
        return rc;
    }
    *ret_json = j;
    return 0;
}

bool body_wants_stream(const struct request *r)
{
    json *o;
    struct http_error ignored;
    if (body_parse(r, &o, &ignored))
        return false;
    const bool wants = json_bool(json_get(o, "stream", NULL));
    json_free(o);
    return wants;
}

/* ---- typed fields ---- */

/* The member, NULL when absent or null. */
static int member(const json *o, const char *key, const json **ret_value, struct http_error *ret)
{
    struct err e = {0};
    const json *j = json_get(o, key, &e);
    if (e.code)
        return body_error(ret, &e, key);
    *ret_value = j;
    return 0;
}

static int member_of(const json *o, const char *key, enum json_type type, const json **ret_value,
                     struct http_error *ret)
{
    const json *j = NULL;
    int rc = member(o, key, &j, ret);
    if (rc)
        return rc;
    if (j && json_type(j) != type)
        return wrong_type(ret, key, json_type_name(type), j);
    *ret_value = j;
    return 0;
}

int body_object(const json *o, const char *key, const json **ret_value, struct http_error *ret)
{
    return member_of(o, key, JSON_OBJECT, ret_value, ret);
}

int body_array(const json *o, const char *key, const json **ret_value, struct http_error *ret)
{
    return member_of(o, key, JSON_ARRAY, ret_value, ret);
}

int body_str(const json *o, const char *key, const char *field, const char **ret_value,
             struct http_error *ret)
{
    const json *j = NULL;
    int rc = member(o, key, &j, ret);
    if (rc || !j)
        return rc;
    if (json_type(j) != JSON_STRING)
        return wrong_type(ret, field, "string", j);
    *ret_value = json_str(j);
    return 0;
}

int body_bool(const json *o, const char *key, const char *field, bool *ret_value,
              struct http_error *ret)
{
    const json *j = NULL;
    int rc = member(o, key, &j, ret);
    if (rc || !j)
        return rc;
    if (json_type(j) != JSON_BOOL)
        return wrong_type(ret, field, "true or false", j);
    *ret_value = json_bool(j);
    return 0;
}

int body_int(const json *o, const char *key, struct body_range range, int64_t *ret_value,
             struct http_error *ret)
{
    struct err e;
    const json *j = NULL;
    int rc = member(o, key, &j, ret);
    if (rc || !j)
        return rc;
    if (json_type(j) != JSON_NUMBER)
        return wrong_type(ret, key, "whole number", j);
    rc = json_int(j, key, (int64_t)range.min, (int64_t)range.max, ret_value, &e);
    return rc ? body_error(ret, &e, key) : 0;
}

int body_num(const json *o, const char *key, struct body_range range, double *ret_value,
             struct http_error *ret)
{
    struct err e;
    const json *j = NULL;
    int rc = member(o, key, &j, ret);
    if (rc || !j)
        return rc;
    if (json_type(j) != JSON_NUMBER)
        return wrong_type(ret, key, "number", j);
    rc = json_num(j, key, range.min, range.max, ret_value, &e);
    return rc ? body_error(ret, &e, key) : 0;
}

/* ---- known, and not implemented ---- */

static bool is_text_format(const json *j)
{
    const json *type = json_get(j, "type", NULL);
    const json *format = json_get(j, "format", NULL);
    if (format && json_type(format) != JSON_OBJECT)
        return false;
    if (format)
        type = json_get(format, "type", NULL);
    return !type || (json_type(type) == JSON_STRING && strcmp(json_str(type), "text") == 0);
}

static bool is_str(const json *j, const char *s)
{
    return json_type(j) == JSON_STRING && strcmp(json_str(j), s) == 0;
}

static bool is_neutral(const json *j, enum body_neutral neutral)
{
    enum json_type type = json_type(j);
    switch (neutral) {
    case NEUTRAL_NONE:
        return false;
    case NEUTRAL_FALSE:
        return type == JSON_BOOL && !json_bool(j);
    case NEUTRAL_ONE:
        return type == JSON_NUMBER && json_double(j) == 1;
    case NEUTRAL_ZERO:
        return type == JSON_NUMBER && json_double(j) == 0;
    case NEUTRAL_EMPTY:
        return is_str(j, "") || ((type == JSON_ARRAY || type == JSON_OBJECT) && json_count(j) == 0);
    case NEUTRAL_TEXT:
        return type == JSON_OBJECT && is_text_format(j);
    case NEUTRAL_NO_TOOL:
        return is_str(j, "none") || is_str(j, "auto");
    case NEUTRAL_MEDIUM:
        return is_str(j, "medium");
    case NEUTRAL_TEXT_ONLY:
        return type == JSON_ARRAY && json_count(j) == 1 && is_str(json_first(j), "text");
    }
    return false;
}

int body_refuse(const json *o, const struct body_refusal *list, size_t n, struct http_error *ret)
{
    for (size_t i = 0; i < n; i++) {
        const json *j = NULL;
        int rc = member(o, list[i].key, &j, ret);
        if (rc)
            return rc;
        if (j && !is_neutral(j, list[i].neutral))
            return body_refused(
                ret, "unsupported_parameter", list[i].key,
                "%s is not supported by this server (with this value); leave it out", list[i].key);
    }
    return 0;
}

/* ---- parameters that all APIs share ---- */

static int read_bias(const json *o, const struct history *h, struct turn *t, struct http_error *ret)
{
    const json *map = NULL;
    int rc = body_object(o, "logit_bias", &map, ret);
    if (rc || !map || json_count(map) == 0)
        return rc;
    size_t n = json_count(map), i = 0;
    if (n > LIMIT_LOGIT_BIAS)
        return body_refused(ret, "invalid_value", "logit_bias",
                            "logit_bias: %zu entries, at most %d are taken", n, LIMIT_LOGIT_BIAS);
    struct sample_bias *bias = arena_array(&t->arena, n, sizeof *bias);
    if (!bias)
        return http_out_of_memory(ret, "the request");
    int n_vocab = engine_info(h->engine)->n_vocab;
    for (const json *it = json_first(map); it; it = json_next(it), i++) {
        struct err e;
        double value;
        char *end;
        const char *key = json_key(it);
        long id = strtol(key, &end, 10);
        if (*key < '0' || *key > '9' || *end || id < 0 || id >= n_vocab)
            return body_refused(ret, "invalid_value", "logit_bias",
                                "logit_bias: \"%.*s\" is not a token id of this model (0 … %d)",
                                SHOWN_BYTES, key, n_vocab - 1);
        if (json_type(it) != JSON_NUMBER)
            return wrong_type(ret, "logit_bias", "number", it);
        if (json_num(it, "logit_bias", -100, 100, &value, &e))
            return body_error(ret, &e, "logit_bias");
        bias[i] = (struct sample_bias){.id = (int32_t)id, .bias = (float)value};
    }
    t->params.sample.bias = bias;
    t->params.sample.n_bias = n;
    return 0;
}

static int read_sampling(const json *o, const struct history *h, struct turn *t,
                         struct http_error *ret)
{
    static const struct body_range share = {0, 1}, penalty = {-2, 2}, any_k = {-1, 1 << 30};
    struct sample_params *p = &t->params.sample;
    int64_t top_k = p->top_k, seed = (int64_t)(random_u64() & JSON_INT_MAX);
    int rc;
    if ((rc = body_num(o, "temperature", (struct body_range){0, 2}, &p->temperature, ret)) ||
        (rc = body_num(o, "top_p", share, &p->top_p, ret)) ||
        (rc = body_num(o, "min_p", share, &p->min_p, ret)) ||
        (rc = body_int(o, "top_k", any_k, &top_k, ret)) ||
        (rc = body_num(o, "repetition_penalty", (struct body_range){0.01, 100},
                       &p->repetition_penalty, ret)) ||
        (rc = body_num(o, "presence_penalty", penalty, &p->presence_penalty, ret)) ||
        (rc = body_num(o, "frequency_penalty", penalty, &p->frequency_penalty, ret)) ||
        (rc = body_int(o, "seed", (struct body_range){0, JSON_INT_MAX}, &seed, ret)))
        return rc;
    if (p->top_p < 1e-9)
        p->top_p = 1e-9; /* 0 keeps the likeliest token alone, and so does this */
    p->top_k = top_k < 0 ? 0 : (int)top_k;
    p->seed = (uint64_t)seed;
    return read_bias(o, h, t, ret);
}

static int add_stop(const json *j, struct turn *t, struct http_error *ret)
{
    struct turn_params *p = &t->params;
    if (json_type(j) != JSON_STRING)
        return wrong_type(ret, "stop", "string, or array of strings", j);
    size_t n = strlen(json_str(j));
    if (n == 0 || n > LIMIT_STOP_BYTES)
        return body_refused(ret, "invalid_value", "stop",
                            "stop: a string of %zu bytes; 1 … %d are taken", n, LIMIT_STOP_BYTES);
    const char *copy = arena_copy(&t->arena, json_str(j), n);
    if (!copy)
        return http_out_of_memory(ret, "the request");
    p->stops[p->n_stops] = copy;
    p->stop_lengths[p->n_stops++] = n;
    return 0;
}

static int read_stops(const json *o, struct turn *t, struct http_error *ret)
{
    const json *j = NULL;
    struct turn_params *p = &t->params;
    int rc = member(o, "stop", &j, ret);
    if (rc || !j)
        return rc;
    size_t n = json_type(j) == JSON_ARRAY ? json_count(j) : 1;
    if (n > LIMIT_STOPS)
        return body_refused(ret, "invalid_value", "stop", "stop: %zu strings, at most %d are taken",
                            n, LIMIT_STOPS);
    p->stops = arena_array(&t->arena, n, sizeof *p->stops);
    p->stop_lengths = arena_array(&t->arena, n, sizeof *p->stop_lengths);
    if (!p->stops || !p->stop_lengths)
        return http_out_of_memory(ret, "the request");
    if (json_type(j) != JSON_ARRAY)
        return add_stop(j, t, ret);
    for (const json *it = json_first(j); it && !rc; it = json_next(it))
        rc = add_stop(it, t, ret);
    return rc;
}

static int read_stream(const json *o, const struct request *r, struct turn *t,
                       struct http_error *ret)
{
    const json *options = NULL;
    int rc;
    if ((rc = body_bool(o, "stream", "stream", &t->params.is_stream, ret)) ||
        (rc = body_object(o, "stream_options", &options, ret)))
        return rc;
    if (t->params.is_stream && !r->can_stream)
        return body_refused(ret, "unsupported_parameter", "stream",
                            "stream: HTTP/1.0 has no chunked transfer, so a cut stream would look "
                            "whole; use HTTP/1.1");
    if (!options)
        return 0;
    rc = body_bool(options, "include_usage", "stream_options.include_usage",
                   &t->params.include_usage, ret);
    t->params.include_usage = t->params.include_usage && t->params.is_stream;
    return rc;
}

static int read_hearth(const json *o, struct turn *t, struct http_error *ret)
{
    const json *hearth = NULL;
    const char *context = NULL;
    bool use_cache = true;
    int rc;
    if ((rc = body_object(o, "hearth", &hearth, ret)) || !hearth)
        return rc;
    if ((rc = body_bool(hearth, "cache", "hearth.cache", &use_cache, ret)) ||
        (rc = body_bool(hearth, "window", "hearth.window", &t->params.shows_window, ret)) ||
        (rc = body_str(hearth, "context", "hearth.context", &context, ret)))
        return rc;
    t->params.use_cache = t->params.use_cache && use_cache;
    if (!context || plan_strategy_parse(context, &t->params.context))
        return 0;
    return body_refused(ret, "invalid_value", "hearth.context",
                        "hearth.context: \"%.*s\" is no strategy; these are: %s", SHOWN_BYTES,
                        context, plan_strategy_names());
}

int body_params(const json *o, const struct history *h, const struct request *r, struct turn *t,
                struct http_error *ret)
{
    const char *model = NULL, *user = NULL;
    int rc;
    if ((rc = body_str(o, "model", "model", &model, ret)) ||
        (rc = body_str(o, "user", "user", &user, ret)) || (rc = read_sampling(o, h, t, ret)) ||
        (rc = read_stops(o, t, ret)) || (rc = read_stream(o, r, t, ret)) ||
        (rc = read_hearth(o, t, ret)))
        return rc;
    return 0;
}

int body_max_tokens(const json *o, const char *key, int *ret_value, struct http_error *ret)
{
    int64_t v = 0;
    int rc = body_int(o, key, (struct body_range){1, JSON_INT_MAX}, &v, ret);
    if (rc || v == 0)
        return rc;
    *ret_value = v > INT32_MAX ? INT32_MAX : (int)v;
    return 0;
}

/* ---- messages ---- */

static bool is_text_part(const char *type)
{
    return strcmp(type, "text") == 0 || strcmp(type, "input_text") == 0 ||
           strcmp(type, "output_text") == 0;
}

/* A thought before an answer: items.c reads it, the text is without. */
static bool is_thought(const json *part)
{
    const char *type = json_str(json_get(part, "type", NULL));
    return type && strcmp(type, "reasoning_text") == 0;
}

static int part_text(const json *part, const char *field, const char **ret_text,
                     struct http_error *ret)
{
    const char *type = NULL;
    int rc;
    *ret_text = NULL;
    if (json_type(part) != JSON_OBJECT)
        return wrong_type(ret, field, "object with type and text", part);
    if ((rc = body_str(part, "type", field, &type, ret)))
        return rc;
    if (!type)
        return body_refused(ret, "invalid_value", field, "%s: a part without a type", field);
    if (!is_text_part(type))
        return body_refused(ret, "unsupported_parameter", field,
                            "%s: parts of type \"%.*s\" are not supported; text is", field,
                            SHOWN_BYTES, type);
    if ((rc = body_str(part, "text", field, ret_text, ret)))
        return rc;
    return *ret_text
               ? 0
               : body_refused(ret, "invalid_value", field, "%s: a text part without text", field);
}

static int join_parts(const json *parts, const char *field, struct arena *a,
                      struct body_text *ret_text, struct http_error *ret)
{
    const char *text;
    size_t n = 0;
    for (const json *it = json_first(parts); it; it = json_next(it)) {
        if (it == json_first(parts) && is_thought(it))
            continue;
        int rc = part_text(it, field, &text, ret);
        if (rc)
            return rc;
        n += strlen(text);
    }
    char *s = arena_alloc(a, n + 1), *at = s;
    if (!s)
        return http_out_of_memory(ret, "the request");
    for (const json *it = json_first(parts); it; it = json_next(it)) {
        if (it == json_first(parts) && is_thought(it))
            continue;
        int rc = part_text(it, field, &text, ret);
        if (rc)
            return rc;
        size_t n_text = strlen(text);
        memcpy(at, text, n_text);
        at += n_text;
    }
    *ret_text = (struct body_text){s, n};
    return 0;
}

int body_content(const json *message, const char *field, struct arena *a,
                 struct body_text *ret_text, struct http_error *ret)
{
    char name[SHOWN_BYTES];
    const json *j = NULL;
    snprintf(name, sizeof name, "%s.content", field);
    *ret_text = (struct body_text){0};
    int rc = member(message, "content", &j, ret);
    if (rc) {
        param_set(ret, name);
        return rc;
    }
    if (!j)
        return 0;
    if (json_type(j) == JSON_ARRAY)
        return join_parts(j, name, a, ret_text, ret);
    if (json_type(j) != JSON_STRING)
        return wrong_type(ret, name, "string or array of parts", j);
    size_t n = strlen(json_str(j));
    const char *s = arena_copy(a, json_str(j), n);
    if (!s)
        return http_out_of_memory(ret, "the request");
    *ret_text = (struct body_text){s, n};
    return 0;
}

int body_role(const json *message, const char *field, enum chat_role *ret_role,
              struct http_error *ret)
{
    static const struct {
        const char *name;
        enum chat_role role;
    } roles[] = {{"system", CHAT_SYSTEM},
                 {"developer", CHAT_SYSTEM},
                 {"user", CHAT_USER},
                 {"assistant", CHAT_ASSISTANT}};
    char name[SHOWN_BYTES];
    const char *role = NULL;
    snprintf(name, sizeof name, "%s.role", field);
    int rc = body_str(message, "role", name, &role, ret);
    if (rc)
        return rc;
    if (!role)
        return body_refused(ret, "invalid_value", name,
                            "%s is missing; system, developer, user or assistant is expected",
                            name);
    for (size_t i = 0; i < sizeof roles / sizeof *roles; i++)
        if (strcmp(role, roles[i].name) == 0) {
            *ret_role = roles[i].role;
            return 0;
        }
    bool is_tool = strcmp(role, "tool") == 0 || strcmp(role, "function") == 0;
    return body_refused(ret, is_tool ? "unsupported_parameter" : "invalid_value", name,
                        "%s: \"%.*s\" is not %s; system, developer, user and assistant are", name,
                        SHOWN_BYTES, role, is_tool ? "supported" : "a role");
}

int body_refuse_in_message(const json *message, const char *field, enum chat_role role,
                           struct http_error *ret)
{
    static const struct body_refusal refusals[] = {{"tool_calls", NEUTRAL_EMPTY},
                                                   {"function_call", NEUTRAL_NONE},
                                                   {"audio", NEUTRAL_NONE},
                                                   {"refusal", NEUTRAL_EMPTY}};
    char name[SHOWN_BYTES];
    int rc = body_refuse(message, refusals, sizeof refusals / sizeof *refusals, ret);
    if (rc && ret->param) {
        snprintf(name, sizeof name, "%.39s.%.23s", field, ret->param);
        param_set(ret, name);
    }
    const json *content = rc ? NULL : json_get(message, "content", NULL);
    const json *first = json_type(content) == JSON_ARRAY ? json_first(content) : NULL;
    if (role == CHAT_ASSISTANT || !first || !is_thought(first))
        return rc;
    snprintf(name, sizeof name, "%.39s.content", field);
    return body_refused(ret, "unsupported_parameter", name,
                        "%s: parts of type reasoning_text are an assistant's", name);
}

static int add_message(const json *message, const char *field, struct turn *t,
                       struct http_error *ret)
{
    enum chat_role role;
    struct body_text text;
    int rc;
    if (json_type(message) != JSON_OBJECT)
        return wrong_type(ret, field, "object", message);
    if ((rc = body_role(message, field, &role, ret)) ||
        (rc = body_refuse_in_message(message, field, role, ret)) ||
        (rc = body_content(message, field, &t->arena, &text, ret)))
        return rc;
    if (!text.s && role != CHAT_ASSISTANT)
        return body_refused(ret, "invalid_value", field, "%s has no content", field);
    return prepare_add(t, role, text.s ? text.s : "", text.n, ret);
}

int body_messages(const json *o, struct turn *t, struct http_error *ret)
{
    const json *messages = NULL;
    size_t i = 0;
    int rc = body_array(o, "messages", &messages, ret);
    if (rc)
        return rc;
    if (!messages || json_count(messages) == 0)
        return body_refused(ret, "invalid_value", "messages", "messages %s; at least one is needed",
                            messages ? "is empty" : "is missing");
    if (json_count(messages) > LIMIT_MESSAGES)
        return body_refused(ret, "invalid_value", "messages",
                            "messages: %zu of them, at most %d are taken", json_count(messages),
                            LIMIT_MESSAGES);
    for (const json *it = json_first(messages); it; it = json_next(it), i++) {
        char field[SHOWN_BYTES];
        snprintf(field, sizeof field, "messages[%zu]", i);
        if ((rc = add_message(it, field, t, ret)))
            return rc;
    }
    return 0;
}
