/*
 * See window.h.
 */
#include "daemon/window.h"

#include <string.h>

#include "base/log.h"
#include "daemon/counts.h"
#include "daemon/limits.h"
#include "daemon/prepare.h"

/* Of text, more than a token usually stands for. */
#define TOKEN_BYTES 8

enum chat_role window_role(enum memory_role role)
{
    switch (role) {
    case MEMORY_SYSTEM:
        return CHAT_SYSTEM;
    case MEMORY_ASSISTANT:
        return CHAT_ASSISTANT;
    case MEMORY_USER:
        break;
    }
    return CHAT_USER;
}

/* The ids an answer was generated with, if they are of this model; else the text speaks for itself.
 */
static int load_ids(struct history *h, struct turn *t, const struct memory_message *m,
                    struct http_error *ret)
{
    struct err e;
    struct ids ids;
    uint8_t other[HASH_BYTES];
    const uint8_t *render = engine_info(h->engine)->render_id;
    ids_init(&ids);
    int rc = memory_tokens_get(h->memory, m->row, render, &ids, &e);
    if (rc == 0)
        rc = prepare_set_ids(t, t->window.n - 1, &ids, ret);
    else if (rc == ERR_NOTFOUND)
        rc = 0;
    else
        http_error_from(ret, &e);
    if (rc == 0 && ids.n == 0 && memory_tokens_render(h->memory, m->row, other) &&
        memcmp(other, render, sizeof other) != 0)
        t->window.is_other_model = true;
    /* Models of one family share ids: then only the name tells. The newest answer's counts. */
    t->window.is_of_sibling =
        rc == 0 && ids.n > 0 && m->model && strcmp(m->model, engine_info(h->engine)->id) != 0;
    ids_done(&ids);
    return rc;
}

/* a, a blank line, b. NULL: no memory. */
static char *join(struct arena *arena, const struct turn_part *a, const char *b, size_t n_b)
{
    const size_t gap = a->n_text > 0 ? 2 : 0;
    char *text = arena_array(arena, a->n_text + gap + n_b + 1, 1);
    if (!text)
        return NULL;
    memcpy(text, a->text, a->n_text);
    memcpy(text + a->n_text, "\n\n", gap);
    memcpy(text + a->n_text + gap, b, n_b);
    return text;
}

int window_add_head(struct history *h, struct turn *t, struct http_error *ret_error)
{
    struct turn_window *w = &t->window;
    const struct memory_cut *cut = &w->cut;
    int rc = 0;
    if (cut->n_head == 0)
        return 0;
    if (w->n == 0 || w->v[w->n - 1].role != CHAT_SYSTEM) {
        const struct chat *chat = engine_chat(h->engine);
        const char *standing = chat ? chat_default_system(chat) : NULL;
        if (!standing)
            standing = "";
        rc = prepare_add(t, CHAT_SYSTEM, standing, strlen(standing), ret_error);
    }
    if (rc)
        return rc;
    const size_t at = w->n - 1;
    const char *text = join(&t->arena, &w->parts[at], cut->head, cut->n_head);
    if (!text)
        return http_out_of_memory(ret_error, "the window");
    w->v[at].text = text;
    w->v[at].n_text = w->parts[at].n_text + (w->parts[at].n_text > 0 ? 2 : 0) + cut->n_head;
    w->head_at = (int)at;
    return 0;
}

int window_inject(struct turn *t, size_t i, const struct memory_context *context,
                  struct http_error *ret_error)
{
    struct turn_part *p = &t->window.parts[i];
    if (!context->text || context->n_text == 0)
        return 0;
    char *text = arena_array(&t->arena, context->n_text + p->n_text + 1, 1);
    if (!text)
        return http_out_of_memory(ret_error, "the window");
    memcpy(text, context->text, context->n_text);
    memcpy(text + context->n_text, p->text, p->n_text);
    p->context = *context;
    t->window.v[i].text = text;
    t->window.v[i].n_text = context->n_text + p->n_text;
    return 0;
}

static int add_message(struct history *h, struct turn *t, const struct memory_message *m,
                       const struct memory_context *context, struct http_error *ret)
{
    const bool is_answer = m->role == MEMORY_ASSISTANT;
    if (is_answer && (m->n_text == 0 || m->status == MEMORY_GENERATING))
        return 0;
    int rc = prepare_add(t, window_role(m->role), m->text, m->n_text, ret);
    if (rc)
        return rc;
    const size_t at = t->window.n - 1;
    t->window.rows[at] = m->row;
    memcpy(t->window.parts[at].id, m->id, sizeof m->id);
    if (is_answer)
        return load_ids(h, t, m, ret);
    return m->role == MEMORY_USER ? window_inject(t, at, context, ret) : 0;
}

/* Tokens of the newest messages, counted until there are more than the model takes. */
static bool is_too_long(const struct history *h, const struct memory_window *w)
{
    int n = 0;
    for (size_t i = w->n; i > w->n_system && n <= h->ctx; i--) {
        const int n_tokens = window_count(h, w->v[i - 1].text, w->v[i - 1].n_text);
        n += n_tokens > 0 ? n_tokens : 0;
    }
    return n > h->ctx;
}

/* The newest messages first: of a long conversation without a cut what stands further up is left
 * where it is, as soon as they alone are too many. */
static int read_window(struct history *h, struct turn *t, struct memory_window_want want,
                       struct memory_window *ret, struct http_error *ret_error)
{
    struct err e;
    want.max = LIMIT_MESSAGES / 2;
    want.max_bytes = (size_t)h->ctx * TOKEN_BYTES;
    do {
        if (memory_window(h->memory, &want, ret, &t->arena, &e)) {
            http_error_from(ret_error, &e);
            return e.code;
        }
        want.max_bytes *= 8;
    } while (ret->n_above > 0 && ret->n - ret->n_system < want.max && !is_too_long(h, ret));
    return 0;
}

int window_load(struct history *h, struct turn *t, int64_t tip, int64_t cut,
                struct http_error *ret_error)
{
    struct memory_window found = {.n = 0};
    const struct memory_window_want want = {.tip = tip, .cut = cut};
    t->window.head_at = -1;
    if (tip == 0)
        return 0;
    int rc = read_window(h, t, want, &found, ret_error);
    if (rc)
        return rc;
    t->window.n_above = found.n_above;
    t->began_at = found.n > 0 ? found.v[0].created_at : 0;
    t->window.above_to = found.n > found.n_system ? found.v[found.n_system].row : tip;
    t->window.has_cut = found.has_cut;
    t->window.cut = found.cut;
    for (size_t i = 0; i < found.n_system && rc == 0; i++)
        rc = add_message(h, t, &found.v[i], &found.contexts[i], ret_error);
    if (rc == 0 && found.has_cut)
        rc = window_add_head(h, t, ret_error);
    for (size_t i = found.n_system; i < found.n && rc == 0; i++)
        rc = add_message(h, t, &found.v[i], &found.contexts[i], ret_error);
    return rc;
}

void window_clear(struct turn *t)
{
    t->window.n = 0;
    t->window.n_above = 0;
    t->window.has_cut = false;
    t->window.head_at = -1;
    t->window.is_other_model = false;
    t->window.is_of_sibling = false;
}

int window_tokens(const struct turn *t, size_t i)
{
    return (int)(t->window.starts[i + 1] - t->window.starts[i]);
}

int window_count(const struct history *h, const char *text, size_t n)
{
    if (!h->engine) /* still being loaded */
        return ERR_BUSY;
    return counts_of(h->counts, engine_tok(h->engine), text, n);
}
