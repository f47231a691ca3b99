/* What requests say about thinking: see body.h. */
#include <stdio.h>
#include <string.h>

#include "daemon/body.h"
#include "daemon/history.h"

/* The request's own field of "field.member". */
static const char *param_of(const char *field, char ret[64])
{
    snprintf(ret, 64, "%.*s", (int)strcspn(field, "."), field);
    return ret;
}

int body_effort(const char *word, const char *field, enum chat_thinking *ret_value,
                struct http_error *ret)
{
    static const char *const words[] = {"none", "minimal", "low", "medium", "high", "xhigh", "max"};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (strcmp(word, words[i]) == 0) {
            *ret_value = i == 0 ? CHAT_THINKING_OFF : CHAT_THINKING_ON;
            return 0;
        }
    char param[64];
    return body_refused(ret, "invalid_value", param_of(field, param),
                        "%s: \"%.64s\" is none of none, minimal, low, medium, high, xhigh, max",
                        field, word);
}

int body_set_thinking(const struct history *h, enum chat_thinking thinking, const char *field,
                      struct turn *t, struct http_error *ret)
{
    static const struct chat_traits none = {.thinks = false};
    const struct chat *chat = h->engine ? engine_chat(h->engine) : NULL;
    const struct chat_traits *traits = chat ? chat_traits(chat) : &none;
    if (traits->has_switch)
        t->params.thinking = thinking;
    if (traits->has_switch || thinking == CHAT_THINKING_UNSET ||
        traits->thinks == (thinking == CHAT_THINKING_ON))
        return 0;
    char param[64];
    return body_refused(ret, "unsupported_parameter", param_of(field, param),
                        thinking == CHAT_THINKING_ON
                            ? "%s: the chat template of model %s knows no thinking"
                            : "%s: the chat template of model %s has no switch for thinking",
                        field, t->model);
}

/* The switches that templates have; anything else in there is refused by name. */
static int read_kwargs(const json *kwargs, enum chat_thinking *ret_value, struct http_error *ret)
{
    bool thinks = false, is_given = false;
    for (const json *i = json_first(kwargs); i; i = json_next(i)) {
        const char *key = json_key(i);
        if (strcmp(key, "enable_thinking") != 0 && strcmp(key, "thinking") != 0)
            return body_refused(ret, "unsupported_parameter", "chat_template_kwargs",
                                "chat_template_kwargs.%.64s is not supported by this server", key);
        int rc = body_bool(kwargs, key, "chat_template_kwargs", &thinks, ret);
        if (rc)
            return rc;
        is_given = is_given || json_type(i) == JSON_BOOL;
    }
    if (is_given)
        *ret_value = thinks ? CHAT_THINKING_ON : CHAT_THINKING_OFF;
    return 0;
}

int body_thinking(const json *o, const struct history *h, struct turn *t, struct http_error *ret)
{
    static const char effort_key[] = "reasoning_effort", kwargs_key[] = "chat_template_kwargs";
    enum chat_thinking thinking = CHAT_THINKING_UNSET, by_effort = CHAT_THINKING_UNSET;
    const char *effort = NULL;
    const json *kwargs = NULL;
    int rc = body_str(o, effort_key, effort_key, &effort, ret);
    if (rc == 0 && effort)
        rc = body_effort(effort, effort_key, &by_effort, ret);
    if (rc == 0)
        rc = body_object(o, kwargs_key, &kwargs, ret);
    if (rc == 0 && kwargs)
        rc = read_kwargs(kwargs, &thinking, ret);
    if (rc)
        return rc;
    return thinking ? body_set_thinking(h, thinking, kwargs_key, t, ret)
                    : body_set_thinking(h, by_effort, effort_key, t, ret);
}

const struct chat_think *body_thinking_marks(const struct history *h)
{
    const struct chat *chat = h->engine ? engine_chat(h->engine) : NULL;
    return chat ? chat_traits(chat)->think : NULL;
}
