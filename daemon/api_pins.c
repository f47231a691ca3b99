/*
 * Pins: what never leaves a conversation's window. /v1/hearth/conversations/{}/pins
 *
 *      GET                  {"object": "list", "data": [pin]}, "tokens", "limit"
 *      POST                 {"message": ID} or {"text": NOTE} → the pin; what is pinned already is
 *                           found again
 *      DELETE pins/{}       by the pin's id, or its message's
 *
 *      pin                  {"id", "message": ID | null, "role", "text", "tokens", "created_at"}
 *
 * Tokens are the model's that answered last in the conversation, or the one's that ?model= names;
 * the replies to GET and POST say which ("model", "model_by").
 *
 * All pins of a conversation together may take a quarter of the window.
 */
#include <string.h>

#include "daemon/body.h"
#include "daemon/call.h"
#include "daemon/context.h"
#include "daemon/items.h"
#include "daemon/prepare.h"
#include "daemon/served.h"
#include "daemon/window.h"

static int tokens_of(const struct call *k, const char *text, size_t n)
{
    const int tokens = window_count(k->h, text, n);
    return tokens < 0 ? 0 : tokens;
}

static json *pin_json(const struct call *k, const struct memory_pin *p)
{
    json *o = json_object();
    json_set_str(o, "id", p->id);
    json_set_str(o, "object", "hearth.pin");
    if (p->message)
        json_set_str(o, "message", p->message_id);
    else
        json_set_null(o, "message");
    json_set_str(o, "role",
                 p->role == MEMORY_ASSISTANT ? "assistant"
                 : p->role == MEMORY_SYSTEM  ? "system"
                                             : "user");
    json_set_strn(o, "text", p->text, p->n_text);
    json_set_int(o, "tokens", tokens_of(k, p->text, p->n_text));
    json_set_int(o, "created_at", p->created_at);
    return o;
}

/* ---- GET ---- */

static int list(struct call *k, struct http_error *ret)
{
    struct memory_pins pins;
    struct err e;
    int64_t tokens = 0;
    if (memory_pin_list(k->h->memory, k->c.row, &pins, &k->arena, &e))
        return items_error(ret, &e, NULL);
    json *data = json_array();
    for (size_t i = 0; i < pins.n; i++) {
        json_add(data, pin_json(k, &pins.v[i]));
        tokens += tokens_of(k, pins.v[i].text, pins.v[i].n_text);
    }
    json *o = list_json(data, false);
    served_name(k->h, o);
    json_set_int(o, "tokens", tokens);
    json_set_int(o, "limit", context_share(k->h, CONTEXT_PINS_PERCENT, 0));
    history_reply_json(k->h, k->r, 200, o);
    return HANDLED;
}

int api_pin_list(struct history *h, struct request *r, const struct route_args *args,
                 struct http_error *ret)
{
    struct call k;
    call_init(&k, h, r);
    int rc = call_conversation(&k, args->v[0], ret);
    if (rc == 0)
        rc = list(&k, ret);
    call_done(&k);
    return rc;
}

/* ---- POST ---- */

static int find_message(struct call *k, const char *id, struct memory_new_pin *pin,
                        struct http_error *ret)
{
    struct memory_message m;
    struct err e;
    if (memory_message_find(k->h->memory, k->r->owner, id, &m, &k->arena, &e))
        return items_error(ret, &e, "message");
    if (m.conversation != k->c.row) {
        http_error_set(ret, 404, "not_found", "message", "no message '%.64s' in %s", id, k->c.id);
        return ERR_NOTFOUND;
    }
    pin->message = m.row;
    pin->text = m.text;
    pin->n_text = m.n_text;
    return 0;
}

static int check_room(struct call *k, const struct memory_new_pin *pin, struct http_error *ret)
{
    struct memory_pins pins;
    struct err e;
    const int limit = context_share(k->h, CONTEXT_PINS_PERCENT, 0);
    int64_t tokens = 0;
    if (memory_pin_list(k->h->memory, k->c.row, &pins, &k->arena, &e))
        return items_error(ret, &e, NULL);
    for (size_t i = 0; i < pins.n; i++)
        tokens += tokens_of(k, pins.v[i].text, pins.v[i].n_text);
    const int new = tokens_of(k, pin->text, pin->n_text);
    if (tokens + new <= limit)
        return 0;
    return body_refused(ret, "pins_too_long", pin->message ? "message" : "text",
                        "pins may take %d tokens, a quarter of the window; there are %lld, and "
                        "this one has %d",
                        limit, (long long)tokens, new);
}

static int add(struct call *k, struct http_error *ret)
{
    const char *message = NULL, *text = NULL;
    struct memory_new_pin pin = {.conversation = k->c.row};
    struct memory_pin added;
    struct err e;
    int rc;
    if (!k->body)
        return body_refused(ret, "invalid_value", "text", "message or text is expected");
    if ((rc = body_str(k->body, "message", "message", &message, ret)) ||
        (rc = body_str(k->body, "text", "text", &text, ret)))
        return rc;
    if (!message == !text)
        return body_refused(ret, "invalid_value", "text", "either message or text is expected");
    if (message && (rc = find_message(k, message, &pin, ret)))
        return rc;
    if (text) {
        pin.text = text;
        pin.n_text = strlen(text);
        if ((rc = prepare_check_text(k->h, "text", text, pin.n_text, ret)))
            return rc;
    }
    if ((rc = check_room(k, &pin, ret)))
        return rc;
    if (memory_pin_add(k->h->memory, &pin, &added, &k->arena, &e))
        return items_error(ret, &e, message ? "message" : "text");
    json *o = pin_json(k, &added);
    served_name(k->h, o);
    history_reply_json(k->h, k->r, 200, o);
    return HANDLED;
}

int api_pin_add(struct history *h, struct request *r, const struct route_args *args,
                struct http_error *ret)
{
    struct call k;
    call_init(&k, h, r);
    int rc = call_conversation(&k, args->v[0], ret);
    if (rc == 0)
        rc = add(&k, ret);
    call_done(&k);
    return rc;
}

/* ---- DELETE ---- */

int api_pin_remove(struct history *h, struct request *r, const struct route_args *args,
                   struct http_error *ret)
{
    struct call k;
    struct err e;
    call_init(&k, h, r);
    int rc = call_conversation(&k, args->v[0], ret);
    if (rc == 0 && memory_pin_remove(h->memory, k.c.row, args->v[1], &e))
        rc = items_error(ret, &e, "pin_id");
    if (rc == 0) {
        json *o = json_object();
        json_set_str(o, "id", args->v[1]);
        json_set_str(o, "object", "hearth.pin");
        json_set_bool(o, "deleted", true);
        history_reply_json(h, r, 200, o);
    }
    call_done(&k);
    return rc;
}
