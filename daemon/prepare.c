/*
 * From messages to a prompt that fits: see prepare.h.
 */
#include "daemon/prepare.h"

#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "daemon/began.h"
#include "daemon/limits.h"
#include "daemon/rendered.h"

static int from_err(struct http_error *ret, const struct err *e)
{
    http_error_from(ret, e);
    return e->code;
}

#define PROMPT_END_IDS 16 /* a tag and the white space behind it */
#define PROMPT_END_BYTES 65536
#define WINDOW_FIRST_CAP 16

/* Room for one more message; arrays double within the arena, which keeps the old ones until the
 * turn ends. */
static int window_grow(struct turn *t, struct http_error *ret)
{
    struct turn_window *w = &t->window;
    if (w->n < w->cap)
        return 0;
    if (w->n >= LIMIT_MESSAGES) {
        http_error_set(ret, 400, "context_length_exceeded", "messages",
                       "a window holds at most %d messages", LIMIT_MESSAGES);
        return ERR_LIMIT;
    }
    size_t cap = w->cap ? 2 * w->cap : (size_t)WINDOW_FIRST_CAP;
    struct chat_message *v = arena_array(&t->arena, cap, sizeof *v);
    int64_t *rows = arena_array(&t->arena, cap, sizeof *rows);
    struct turn_part *parts = arena_array(&t->arena, cap, sizeof *parts);
    if (!v || !rows || !parts)
        return http_out_of_memory(ret, "the turn");
    if (w->n > 0) {
        memcpy(v, w->v, w->n * sizeof *v);
        memcpy(rows, w->rows, w->n * sizeof *rows);
        memcpy(parts, w->parts, w->n * sizeof *parts);
    }
    w->v = v;
    w->rows = rows;
    w->parts = parts;
    w->cap = cap;
    return 0;
}

int prepare_add(struct turn *t, enum chat_role role, const char *text, size_t n_text,
                struct http_error *ret_error)
{
    int rc = window_grow(t, ret_error);
    if (rc)
        return rc;
    t->window.v[t->window.n] = (struct chat_message){.role = role, .text = text, .n_text = n_text};
    t->window.rows[t->window.n] = 0;
    t->window.parts[t->window.n] = (struct turn_part){.text = text, .n_text = n_text};
    t->window.n++;
    return 0;
}

int prepare_set_ids(struct turn *t, size_t i, const struct ids *ids, struct http_error *ret)
{
    if (ids->n == 0)
        return 0;
    int32_t *copy = arena_array(&t->arena, ids->n, sizeof *copy);
    if (!copy)
        return http_out_of_memory(ret, "the turn");
    memcpy(copy, ids->v, ids->n * sizeof *copy);
    t->window.v[i].ids = copy;
    t->window.v[i].n_ids = ids->n;
    return 0;
}

enum memory_role prepare_role(enum chat_role role)
{
    switch (role) {
    case CHAT_SYSTEM:
        return MEMORY_SYSTEM;
    case CHAT_ASSISTANT:
        return MEMORY_ASSISTANT;
    default:
        return MEMORY_USER;
    }
}

/* The ids of window message i, an assistant's, by the chain up to and with it. They only save
 * reading: whatever keeps them from being found, the text is there. */
static int reply_ids(struct history *h, struct turn *t, size_t i, struct http_error *ret)
{
    struct err e;
    struct ids ids;
    static struct log_limit limit = {.burst = 3};
    ids_init(&ids);
    const struct memory_reply_key key = {.chain = t->store.chain,
                                         .render = engine_info(h->engine)->render_id};
    int rc = memory_reply_get(h->memory, t->owner, &key, &ids, &e);
    if (rc && rc != ERR_NOTFOUND && log_allowed(&limit))
        log_warn("the token ids of a reply could not be looked up: %s", e.text);
    rc = rc ? 0 : prepare_set_ids(t, i, &ids, ret);
    ids_done(&ids);
    return rc;
}

int prepare_replies(struct history *h, struct turn *t, struct http_error *ret_error)
{
    return prepare_replies_of(h, t, NULL, ret_error);
}

int prepare_replies_of(struct history *h, struct turn *t, const bool *wanted,
                       struct http_error *ret_error)
{
    for (size_t i = 0; i < t->window.n; i++) {
        const struct chat_message *m = &t->window.v[i];
        memory_chain(t->store.chain, prepare_role(m->role), m->text, m->n_text);
        if (m->role == CHAT_USER && t->who == 0)
            memcpy(&t->who, t->store.chain,
                   sizeof t->who); /* a stateless conversation is how it began */
        const bool is_wanted = m->role == CHAT_ASSISTANT && (!wanted || wanted[i]);
        int rc = is_wanted ? reply_ids(h, t, i, ret_error) : 0;
        if (rc)
            return rc;
    }
    t->store.is_reply = true;
    return 0;
}

int prepare_check_text(const struct history *h, const char *what, const char *text, size_t n,
                       struct http_error *ret_error)
{
    size_t at = tok_unspellable(engine_tok(h->engine), text, n);
    if (at == n)
        return 0;
    http_error_set(ret_error, 400, "invalid_value", NULL,
                   "%s holds the byte 0x%02X at offset %zu, which model %s has no token for: it "
                   "would be left out of what the model reads; remove it",
                   what, (unsigned char)text[at], at, engine_info(h->engine)->id);
    return ERR_INVAL;
}

static int check_window(const struct history *h, const struct turn *t, struct http_error *ret)
{
    for (size_t i = 0; i < t->window.n; i++) {
        const struct chat_message *m = &t->window.v[i];
        char what[64];
        if (tok_unspellable(engine_tok(h->engine), m->text, m->n_text) == m->n_text)
            continue;
        snprintf(what, sizeof what, "message %zu of %zu", i + 1, t->window.n);
        const int rc = prepare_check_text(h, what, m->text, m->n_text, ret);
        ret->param = "messages";
        return rc;
    }
    return 0;
}

/* What a template is told as the time: when the conversation began. */
static int64_t time_of(struct history *h, const struct turn *t)
{
    if (t->began_at || t->store.is_on)
        return t->began_at ? t->began_at : t->created_at;
    return began_at(&h->began, t->owner, t->window.v, t->window.n, t->created_at);
}

/* Whether the prompt leaves a thought open. */
static bool ends_in_tag(const struct history *h, const struct turn *t,
                        const struct chat_think *marks)
{
    const struct tok *tok = engine_tok(h->engine);
    size_t i = t->prompt.n > PROMPT_END_IDS ? t->prompt.n - PROMPT_END_IDS : 0, n;
    struct buf end;
    buf_init(&end, PROMPT_END_BYTES);
    for (; i < t->prompt.n; i++) {
        const char *piece = tok_piece(tok, t->prompt.v[i], &n);
        buf_add(&end, piece ? piece : "", piece ? n : 0);
    }
    const bool is = !end.error && end.len > 0 && thought_is_opened(marks, end.data, end.len);
    buf_done(&end);
    return is;
}

int prepare_render(struct history *h, struct turn *t, struct http_error *ret_error)
{
    const struct chat *chat = engine_chat(h->engine);
    struct err e;
    if (!chat) {
        http_error_set(ret_error, 400, "unsupported_parameter", "messages",
                       "model %s has no chat template; /v1/completions works, or start hearthd "
                       "with --chat-template",
                       t->model);
        return ERR_UNSUPPORTED;
    }
    if (t->window.n == 0) {
        http_error_set(ret_error, 400, "invalid_value", "messages",
                       "there is no message to answer");
        return ERR_INVAL;
    }
    int rc = check_window(h, t, ret_error);
    if (rc)
        return rc;
    t->window.starts = arena_array(&t->arena, t->window.n + 1, sizeof *t->window.starts);
    if (!t->window.starts)
        return http_out_of_memory(ret_error, "the turn");
    t->prompt.n = 0;
    struct chat_rendering to = {
        .ids = &t->prompt, .starts = t->window.starts, .thinking = t->params.thinking};
    if (chat_traits(chat)->tells_time)
        to.now = time_of(h, t);
    if (rendered_window(&h->rendered, chat, t->window.v, t->window.n, &to, &e))
        return from_err(ret_error, &e);
    if (chat_traits(chat)->thinks && !t->is_background)
        thought_start(&t->thought, chat_traits(chat)->think,
                      ends_in_tag(h, t, chat_traits(chat)->think));
    return 0;
}

int prepare_prompt(struct history *h, struct turn *t, struct http_error *ret_error)
{
    int rc = prepare_render(h, t, ret_error);
    return rc ? rc : prepare_fit(h, t, ret_error);
}

int prepare_prefix(const struct history *h, const struct turn *t)
{
    const struct tok *tok = engine_tok(h->engine);
    const struct turn_window *w = &t->window;
    size_t n = w->n;
    while (n > 0 && w->v[n - 1].role != CHAT_ASSISTANT)
        n--;
    if (n == 0)
        return 0;
    /* The template goes on behind the token that ended the answer. */
    size_t end = w->starts[n];
    while (end > w->starts[n - 1] && !tok_is_eog(tok, t->prompt.v[end - 1]))
        end--;
    return (int)(end > w->starts[n - 1] ? end : w->starts[n]);
}

int prepare_fit(struct history *h, struct turn *t, struct http_error *ret_error)
{
    int ctx = h->ctx;
    if (t->prompt.n == 0) {
        http_error_set(ret_error, 400, "invalid_value", "prompt",
                       "the prompt has no tokens; at least one is needed");
        return ERR_INVAL;
    }
    if (t->prompt.n > (size_t)ctx - 1) {
        http_error_set(
            ret_error, 400, "context_length_exceeded", t->window.n > 0 ? "messages" : "prompt",
            "the prompt has %zu tokens; the window has %d, of which the prompt may take %d",
            t->prompt.n, ctx, ctx - 1);
        return ERR_LIMIT;
    }
    int n = (int)t->prompt.n, left = ctx - n;
    t->max_tokens =
        t->params.max_tokens > 0 && t->params.max_tokens < left ? t->params.max_tokens : left;
    struct turn_receipt *r = &t->receipt; /* its lists may be filled already */
    r->limit = ctx;
    r->used = r->before = r->after = n;
    r->reserved = t->max_tokens;
    r->prefix_kept = prepare_prefix(h, t);
    r->prefix_lost = 0;
    return 0;
}

int prepare_store(struct history *h, struct turn *t, const struct prepare_place *place,
                  struct http_error *ret_error)
{
    struct err e;
    struct turn_store *s = &t->store;
    size_t n = place->n;
    struct memory_new_message *all = arena_array(&t->arena, n + 1, sizeof *all);
    struct memory_message *added = arena_array(&t->arena, n + 1, sizeof *added);
    if (!all || !added)
        return http_out_of_memory(ret_error, "the turn");
    if (n > 0)
        memcpy(all, place->messages, n * sizeof *all);
    /* The answer's row comes in the same transaction: a refused request has stored nothing. */
    all[n] = (struct memory_new_message){.role = MEMORY_ASSISTANT,
                                         .text = "",
                                         .model = t->model,
                                         .status = MEMORY_GENERATING,
                                         .is_opened = t->thought.stage == THOUGHT_OPEN};
    all[0].conversation = place->conversation;
    all[0].parent = place->parent; /* each of the others follows the one before it */
    if (memory_message_add_all(h->memory, all, n + 1, added, &t->arena, &e))
        return from_err(ret_error, &e);
    s->inputs = added;
    s->n_inputs = n;
    s->answer = added[n];
    s->conversation = place->conversation;
    t->who = (uint64_t)place->conversation;
    s->is_on = true;
    return 0;
}
