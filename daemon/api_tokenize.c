/*
 * POST /tokenize: what a text, or a whole chat, is in tokens.
 *
 *      {"content": "…"[, "add_special": bool, "with_pieces": bool]}  → {"tokens": [id …], "count"}
 *      {"messages": [{"role", "content"}, …][, "add_generation_prompt": bool]}
 *
 * "text" and "prompt" are taken for "content". Text never gives control tokens; a chat has those of
 * its template. With pieces each token is {"id", "piece"}, and the piece is an array of bytes when
 * it isn't UTF-8 by itself.
 */
#include <string.h>

#include "base/utf8.h"
#include "daemon/body.h"
#include "daemon/history.h"
#include "daemon/served.h"
#include "daemon/wire.h"

struct ask {
    const json *body;
    const char *content;
    const json *messages;
    bool add_special, with_pieces, add_generation_prompt;
};

static int read_ask(const json *o, struct ask *ret, struct http_error *ret_error)
{
    static const char *const names[] = {"content", "text", "prompt"};
    int rc = 0;
    ret->body = o;
    ret->add_generation_prompt = true;
    for (size_t i = 0; i < sizeof(names) / sizeof(*names) && !rc && !ret->content; i++)
        rc = body_str(o, names[i], names[i], &ret->content, ret_error);
    if (rc || (rc = body_array(o, "messages", &ret->messages, ret_error)) ||
        (rc = body_bool(o, "add_special", "add_special", &ret->add_special, ret_error)) ||
        (rc = body_bool(o, "with_pieces", "with_pieces", &ret->with_pieces, ret_error)) ||
        (rc = body_bool(o, "add_generation_prompt", "add_generation_prompt",
                        &ret->add_generation_prompt, ret_error)))
        return rc;
    if (!ret->content == !ret->messages)
        return body_refused(ret_error, "invalid_value", "content",
                            "one of content and messages is expected");
    return 0;
}

static int encode_text(const struct history *h, const struct ask *ask, struct ids *ret,
                       struct http_error *ret_error)
{
    struct err e;
    const struct tok *tok = engine_tok(h->engine);
    int32_t bos = tok_bos(tok);
    int rc = ask->add_special && bos >= 0 ? ids_push(ret, bos) : 0;
    if (rc)
        err_set(&e, rc, "tokenize: %s", err_name(rc));
    else
        rc = tok_encode(tok, ask->content, strlen(ask->content), false, ret, &e);
    if (rc)
        http_error_from(ret_error, &e);
    return rc;
}

/* The messages come through the same reader as a chat's, into a turn that is never run. */
static int encode_chat(const struct history *h, const struct ask *ask,
                       struct turn *t, struct ids *ret, struct http_error *ret_error)
{
    struct err e;
    const struct chat *chat = engine_chat(h->engine);
    int rc = body_messages(ask->body, t, ret_error);
    if (rc)
        return rc;
    if (!chat)
        return body_refused(ret_error, "unsupported_parameter", "messages",
                            "model %s has no chat template", t->model);
    struct chat_rendering to = {.ids = ret};
    rc = chat_render(chat, t->window.v, t->window.n, ask->add_generation_prompt, &to, &e);
    if (rc)
        http_error_from(ret_error, &e);
    return rc;
}

static void add_piece(json *tokens, const struct tok *tok, int32_t id)
{
    size_t n;
    const char *piece = tok_piece(tok, id, &n);
    json *o = json_add(tokens, json_object());
    json_set_int(o, "id", id);
    if (utf8_valid(piece, n, NULL) && !memchr(piece, '\0', n)) {
        json_set_strn(o, "piece", piece, n);
        return;
    }
    json *bytes = json_set(o, "piece", json_array());
    for (size_t i = 0; i < n; i++)
        json_add_int(bytes, (unsigned char)piece[i]);
}

static void reply_ids(struct history *h, const struct request *r, const struct ask *ask,
                      const struct ids *ids)
{
    struct buf body;
    buf_init(&body, WIRE_BODY_BYTES);
    if (ask->with_pieces) {
        json *o = json_object();
        json *tokens = json_set(o, "tokens", json_array());
        for (size_t i = 0; i < ids->n; i++)
            add_piece(tokens, engine_tok(h->engine), ids->v[i]);
        json_set_int(o, "count", (int64_t)ids->n);
        history_reply_json(h, r, 200, o);
        return;
    }
    /* By hand: half a megabyte of text is 100,000 numbers. */
    buf_str(&body, "{\"tokens\":[");
    for (size_t i = 0; i < ids->n; i++)
        buf_printf(&body, i ? ",%d" : "%d", (int)ids->v[i]);
    buf_printf(&body, "],\"count\":%zu}", ids->n);
    history_reply(h, r, 200, &body);
}

int api_tokenize(struct history *h, struct request *r, const struct route_args *args,
                 struct http_error *ret)
{
    (void)args;
    json *o = NULL;
    struct turn *t = NULL;
    struct ask ask = {0};
    struct ids ids;
    ids_init(&ids);
    int rc = body_parse(r, &o, ret);
    if (rc == 0)
        rc = read_ask(o, &ask, ret);
    if (rc == 0)
        rc = served_choose_body(h, r, o, ret);
    if (rc != HANDLED)
        goto done;
    if (ask.content) {
        rc = encode_text(h, &ask, &ids, ret);
    } else if (!(t = turn_new(h, r, &wire_chat, "tok-"))) {
        rc = http_out_of_memory(ret, "the request");
    } else {
        rc = encode_chat(h, &ask, t, &ids, ret);
    }
    if (rc == 0)
        reply_ids(h, r, &ask, &ids);
done:
    turn_free(t);
    ids_done(&ids);
    json_free(o);
    return rc;
}
