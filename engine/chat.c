/*
 * Chat rendering, the ChatML family:
 *
 *      head?  { <|im_start|> role \n content <|im_end|> \n }*  [ <|im_start|> assistant \n ]
 *
 * `head` is what a template prints before everything (a BOS token, or nothing). A template may
 * begin with a system message of its own when the chat has none; its text is found by rendering,
 * not in a table of models.
 *
 * The ids of a window are the segments' ids in a row. chat_load.c finds the head and the default
 * system text, and proves both.
 */
#include "engine/chat.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "engine/chat_impl.h"
#include "engine/template.h"

/* A body is at most 8 MiB. */
#define RUN_BYTES_MAX ((size_t)64 << 20)

const char *chat_role_name(enum chat_role role)
{
    switch (role) {
    case CHAT_SYSTEM:
        return "system";
    case CHAT_USER:
        return "user";
    case CHAT_ASSISTANT:
        return "assistant";
    case CHAT_NONE:
        break;
    }
    return "";
}

static int push(struct ids *ids, int32_t id, struct err *e)
{
    int rc = ids_push(ids, id);
    return rc < 0 ? err_set(e, rc, "no room for token ids") : 0;
}

static int encode(const struct chat *c, const char *text, size_t n, struct ids *ret, struct err *e)
{
    return tok_encode(c->tok, text, n, false, ret, e);
}

/*
 * How many of the message's ids can stand for the beginning of its text, and how many bytes they
 * cover. A control token ends it: content has none.
 */
size_t chat_usable_ids(const struct chat *c, const struct chat_message *m, size_t *ret_bytes)
{
    size_t n = 0;
    *ret_bytes = 0;
    if (m->role != CHAT_ASSISTANT || !m->ids)
        return 0;
    for (; n < m->n_ids && !tok_is_control(c->tok, m->ids[n]); n++) {
        size_t len;
        const char *piece = tok_piece(c->tok, m->ids[n], &len);
        if (!piece || len > m->n_text - *ret_bytes || memcmp(piece, m->text + *ret_bytes, len) != 0)
            break;
        *ret_bytes += len;
    }
    return n;
}

/* "role\n" and the content as one run between two control tokens. */
static int put_run(const struct chat *c, const struct chat_message *m, struct ids *ret,
                   struct err *e)
{
    struct buf run;
    buf_init(&run, RUN_BYTES_MAX);
    buf_str(&run, chat_role_name(m->role));
    buf_char(&run, '\n');
    buf_add(&run, m->text, m->n_text);
    int rc = buf_error(&run);
    rc = rc < 0 ? err_set(e, rc, "a message of %zu bytes", m->n_text)
                : encode(c, run.data, run.len, ret, e);
    buf_done(&run);
    return rc;
}

static int segments_only(struct err *e)
{
    return err_set(e, ERR_UNSUPPORTED, "this chat template has no segments; it prints whole chats");
}

int chat_generation_prompt(const struct chat *c, struct ids *ret, struct err *e)
{
    if (c->jinja)
        return chat_prompt_of(c, NULL, ret, e);
    size_t n_before = ret->n;
    int rc = push(ret, c->open, e);
    if (rc == 0)
        rc = encode(c, "assistant\n", 10, ret, e);
    if (rc < 0)
        ret->n = n_before;
    return rc;
}

int chat_end_of_turn(const struct chat *c, bool had_eog, struct ids *ret, struct err *e)
{
    if (c->jinja)
        return c->derived ? chat_derived_end(c, had_eog, ret, e) : segments_only(e);
    size_t n_before = ret->n;
    int rc = had_eog ? 0 : push(ret, c->close, e);
    if (rc == 0)
        rc = encode(c, CHAT_AFTER_CLOSE, strlen(CHAT_AFTER_CLOSE), ret, e);
    if (rc < 0)
        ret->n = n_before;
    return rc;
}

static int put_message(const struct chat *c, const struct chat_message *m, struct ids *ret,
                       struct err *e)
{
    size_t covered;
    size_t n_ids = chat_usable_ids(c, m, &covered);
    int rc = 0;
    if (n_ids > 0) {
        rc = chat_generation_prompt(c, ret, e);
        if (rc == 0 && (rc = ids_add(ret, m->ids, n_ids)) < 0)
            rc = err_set(e, rc, "no room for token ids");
        if (rc == 0)
            rc = encode(c, m->text + covered, m->n_text - covered, ret, e);
    } else {
        rc = push(ret, c->open, e);
        if (rc == 0)
            rc = put_run(c, m, ret, e);
    }
    return rc < 0 ? rc : chat_end_of_turn(c, false, ret, e);
}

/* What comes before the first message: BOS, the template's head, the default system message. */
static int put_start(const struct chat *c, const struct chat_message *first, struct ids *ret,
                     struct err *e)
{
    int32_t bos = tok_bos(c->tok);
    int rc = 0;
    if (bos >= 0 && (c->head.n == 0 || c->head.v[0] != bos))
        rc = push(ret, bos, e);
    if (rc == 0 && (rc = ids_add(ret, c->head.v, c->head.n)) < 0)
        rc = err_set(e, rc, "no room for token ids");
    if (rc < 0 || !c->default_system || !first || first->role == CHAT_SYSTEM)
        return rc;
    struct chat_message system = {
        .role = CHAT_SYSTEM, .text = c->default_system, .n_text = c->n_default_system};
    return put_message(c, &system, ret, e);
}

int chat_open_window(const struct chat *c, const struct chat_message *m,
                     struct chat_rendering *ret, struct err *e)
{
    const size_t n = chat_opening(c, m, 2), n_ids = ret->ids->n;
    int rc = 0;
    if (c->derived)
        return chat_derived_open(c, m, n, ret, e);
    if (c->jinja)
        return segments_only(e);
    rc = put_start(c, m, ret->ids, e);
    if (ret->starts)
        ret->starts[0] = ret->ids->n;
    if (rc == 0)
        rc = put_message(c, m, ret->ids, e);
    if (ret->starts)
        ret->starts[1] = ret->ids->n;
    if (rc < 0)
        ret->ids->n = n_ids;
    return rc;
}

int chat_segment(const struct chat *c, const struct chat_message *m, enum chat_role prev,
                 struct ids *ret, struct err *e)
{
    assert(m->role != CHAT_NONE);
    size_t n_before = ret->n;
    int rc = c->jinja && !c->derived ? segments_only(e) : 0;
    if (prev == CHAT_NONE && rc == 0)
        return chat_open_window(c, m, &(struct chat_rendering){.ids = ret}, e);
    if (rc == 0)
        rc = c->derived ? chat_derived_segment(c, m, prev, ret, e) : put_message(c, m, ret, e);
    if (rc < 0)
        ret->n = n_before;
    return rc;
}

void chat_text_message(const struct chat_message *m, struct buf *to)
{
    buf_str(to, CHAT_OPEN);
    buf_str(to, chat_role_name(m->role));
    buf_char(to, '\n');
    buf_add(to, m->text, m->n_text);
    buf_str(to, CHAT_CLOSE CHAT_AFTER_CLOSE);
}

static void text_window(const struct chat *c, const struct chat_message *m, size_t n,
                        bool add_generation_prompt, struct buf *to)
{
    buf_add(to, c->head_text, c->n_head_text);
    if (c->default_system && n > 0 && m[0].role != CHAT_SYSTEM) {
        struct chat_message system = {
            .role = CHAT_SYSTEM, .text = c->default_system, .n_text = c->n_default_system};
        chat_text_message(&system, to);
    }
    for (size_t i = 0; i < n; i++)
        chat_text_message(&m[i], to);
    if (add_generation_prompt)
        buf_str(to, CHAT_OPEN "assistant\n");
}

static int ids_window(const struct chat *c, const struct chat_message *m, size_t n,
                      struct chat_rendering *ret, struct err *e)
{
    int rc = put_start(c, n > 0 ? &m[0] : NULL, ret->ids, e);
    for (size_t i = 0; i < n && rc == 0; i++) {
        if (ret->starts)
            ret->starts[i] = ret->ids->n;
        rc = put_message(c, &m[i], ret->ids, e);
    }
    if (ret->starts)
        ret->starts[n] = ret->ids->n;
    return rc;
}

int chat_render(const struct chat *c, const struct chat_message *m, size_t n,
                bool add_generation_prompt, struct chat_rendering *ret, struct err *e)
{
    size_t n_ids = ret->ids->n, n_text = ret->text ? ret->text->len : 0;
    const bool is_derived = c->derived && add_generation_prompt &&
                            ret->thinking == CHAT_THINKING_UNSET && chat_is_segments(c, m, n);
    int rc = is_derived ? chat_derived_window(c, m, n, ret, e)
             : c->jinja ? chat_window(c, m, n, add_generation_prompt, ret, e)
                      : ids_window(c, m, n, ret, e);
    if (rc == 0 && !c->jinja && add_generation_prompt)
        rc = chat_generation_prompt(c, ret->ids, e);
    if (rc == 0 && !c->jinja && ret->text) {
        text_window(c, m, n, add_generation_prompt, ret->text);
        rc = buf_error(ret->text);
        if (rc < 0)
            rc = err_set(e, rc, "no room for the rendered text");
    }
    if (rc < 0) {
        ret->ids->n = n_ids;
        if (ret->text && buf_error(ret->text) == 0)
            ret->text->len = n_text;
    }
    return rc;
}

void chat_free(struct chat *c)
{
    if (!c)
        return;
    ids_done(&c->head);
    chat_derived_free(c->derived);
    jinja_free(c->jinja);
    free(c->controls);
    free(c->head_text);
    free(c->default_system);
    free(c->own_text);
    free(c);
}

const struct chat_traits *chat_traits(const struct chat *c)
{
    return &c->traits;
}

const char *chat_family(const struct chat *c)
{
    return c->family ? c->family : c->jinja ? "template" : CHAT_FAMILY;
}

enum chat_mode chat_mode(const struct chat *c)
{
    return c->jinja && !c->derived ? CHAT_RERENDER : CHAT_SEGMENTS;
}

const char *chat_default_system(const struct chat *c)
{
    return c->default_system;
}

void chat_render_id(const struct chat *c, uint8_t ret[32])
{
    memcpy(ret, c->render_id, HASH_BYTES);
}
