/*
 * Request bodies: JSON → parameters, the same rules for every endpoint. Null is absent; unknown
 * fields are ignored; a wrong type or range is a 400 that names the field (error.param), the value
 * and the limit; a field that OpenAI has and Hearth hasn't is a 400 unsupported_parameter, unless
 * its value is the one that changes nothing.
 *
 * Each function returns 0 or a negative code with *ret filled.
 */
#ifndef HEARTH_DAEMON_BODY_H
#define HEARTH_DAEMON_BODY_H

#include "base/arena.h"
#include "base/json.h"
#include "daemon/request.h"
#include "daemon/turn.h"

/* The body as an object: caller frees with json_free. 400 invalid_json with the offset; an empty
 * body or another type than an object likewise. */
int body_parse(const struct request *r, json **ret_json, struct http_error *ret) MUST_USE;
/* Whether it says "stream": true, before anybody reads it; what is wrong with it is told later. */
bool body_wants_stream(const struct request *r);

/* Both ends belong to it; whole numbers are exact up to JSON_INT_MAX. */
struct body_range {
    double min, max;
};

/* Typed fields of an object; `field` names key in messages ("metadata.x"). Absent or null: 0 and
 * *ret_value untouched. */
int body_str(const json *o, const char *key, const char *field, const char **ret_value,
             struct http_error *ret) MUST_USE;
int body_bool(const json *o, const char *key, const char *field, bool *ret_value,
              struct http_error *ret) MUST_USE;
int body_int(const json *o, const char *key, struct body_range range, int64_t *ret_value,
             struct http_error *ret) MUST_USE;
int body_num(const json *o, const char *key, struct body_range range, double *ret_value,
             struct http_error *ret) MUST_USE;
/* An object or array member, or NULL with 0 when absent. */
int body_object(const json *o, const char *key, const json **ret_value,
                struct http_error *ret) MUST_USE;
int body_array(const json *o, const char *key, const json **ret_value,
               struct http_error *ret) MUST_USE;

/* What is known and not implemented. `neutral` says which value is as good as absent. */
enum body_neutral {
    NEUTRAL_NONE,      /* any value is refused */
    NEUTRAL_FALSE,     /* false */
    NEUTRAL_ONE,       /* the number 1 */
    NEUTRAL_ZERO,      /* the number 0 */
    NEUTRAL_EMPTY,     /* [], {}, "" */
    NEUTRAL_TEXT,      /* {"type": "text"} or {"format": {"type": "text"}} */
    NEUTRAL_NO_TOOL,   /* "none" or "auto" */
    NEUTRAL_TEXT_ONLY, /* ["text"] */
    NEUTRAL_MEDIUM,    /* "medium" */
};
struct body_refusal {
    const char *key;
    enum body_neutral neutral;
};
int body_refuse(const json *o, const struct body_refusal *list, size_t n,
                struct http_error *ret) MUST_USE;

/*
 * temperature 0 … 2, top_p 0 … 1 (0 counts as the smallest), min_p, top_k, repetition_penalty,
 * presence_penalty, frequency_penalty, logit_bias, seed (0 … 2^53 − 1; absent: random) →
 * t->params.sample; stop → stops; stream, stream_options → is_stream, include_usage; hearth →
 * use_cache, context; model's type. All that the APIs share but the length's name. can_stream false
 * (HTTP/1.0) refuses stream: true. Strings and arrays go to the arena.
 */
int body_params(const json *o, const struct history *h, const struct request *r, struct turn *t,
                struct http_error *ret) MUST_USE;
/*
 * Whether to think, into params.thinking: `reasoning_effort` ("none": no; "minimal" … "high": yes),
 * or `chat_template_kwargs`: {"enable_thinking": bool} (or "thinking"), which counts when both are
 * there. What the model's template can't do is a 400: to stop a model that always thinks, to make
 * one think that doesn't.
 */
int body_thinking(const json *o, const struct history *h, struct turn *t,
                  struct http_error *ret) MUST_USE;
/* An effort's word; `field` names it. */
int body_effort(const char *word, const char *field, enum chat_thinking *ret_value,
                struct http_error *ret) MUST_USE;
/* The marks of thinking of the model that is loaded; NULL: none. Static. */
const struct chat_think *body_thinking_marks(const struct history *h);
/* Sets params.thinking if the model's template can do so. */
int body_set_thinking(const struct history *h, enum chat_thinking thinking, const char *field,
                      struct turn *t, struct http_error *ret) MUST_USE;
/* A token limit under `key`: a whole number from 1 on; more than the window leaves is clamped
 * later. Absent: *ret_value untouched. */
int body_max_tokens(const json *o, const char *key, int *ret_value,
                    struct http_error *ret) MUST_USE;

struct body_text {
    const char *s; /* arena */
    size_t n;
};
/*
 * Content: a string, or an array of parts {"type": "text" | "input_text" | "output_text", "text":
 * …}, joined. null or absent: ret_text->s is NULL and the caller decides. Other part types: 400
 * unsupported_parameter. `field` names the message in errors: "messages[3]".
 */
int body_content(const json *message, const char *field, struct arena *a,
                 struct body_text *ret_text, struct http_error *ret) MUST_USE;
/* What a message says beside its text: calls of tools, audio, a refusal, a thought that isn't an
 * assistant's. None of it can be kept, so it is a 400 unsupported_parameter unless empty. */
int body_refuse_in_message(const json *message, const char *field, enum chat_role role,
                           struct http_error *ret) MUST_USE;
/* "system" and "developer", "user", "assistant". "tool" and "function" are 400
 * unsupported_parameter, others 400. */
int body_role(const json *message, const char *field, enum chat_role *ret_role,
              struct http_error *ret) MUST_USE;
/* `messages` of chat completions into the turn's window. */
int body_messages(const json *o, struct turn *t, struct http_error *ret) MUST_USE;

/* http_error for a library error that says which field: status 400 (500 for ERR_NOMEM) and param
 * (copied). Returns e->code. */
int body_error(struct http_error *ret, const struct err *e, const char *param);
/* A 400 with a code and a param (copied): returns ERR_INVAL. */
int body_refused(struct http_error *ret, const char *code, const char *param, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));

#endif
