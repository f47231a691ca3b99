/* Rendering by derived segments: see chat_derive.c. */
#include <stdlib.h>
#include <string.h>

#include "engine/chat_impl.h"
#include "engine/template.h"

#define TEXT_BYTES_MAX ((size_t)64 << 20)

bool chat_piece_is_good(const struct chat_piece *p)
{
    return p->is_set && !p->is_bad;
}

bool chat_is_segments(const struct chat *c, const struct chat_message *m, size_t n)
{
    const struct chat_derived *d = c->derived;
    if (!d)
        return !c->jinja;
    const size_t first = chat_opening(c, m, n);
    for (size_t i = first; i < n; i++)
        if (!chat_piece_is_good(&d->before[m[i - 1].role][m[i].role]) ||
            !chat_piece_is_good(&d->after[m[i].role]))
            return false;
    if (n == 0 || n < first || !d->opens[m[0].role] || m[n - 1].role != CHAT_USER)
        return false;
    const enum chat_role opener = m[first - 1].role;
    return opener == CHAT_USER || chat_piece_is_good(&d->before[opener][CHAT_USER]);
}

size_t chat_opening(const struct chat *c, const struct chat_message *m, size_t n)
{
    return c->derived && c->derived->folds_system && n > 0 && m[0].role == CHAT_SYSTEM ? 2 : 1;
}

void chat_derived_free(struct chat_derived *d)
{
    if (!d)
        return;
    for (size_t i = 0; i < CHAT_ROLES; i++) {
        free(d->after[i].text);
        for (size_t k = 0; k < CHAT_ROLES; k++)
            free(d->before[i][k].text);
    }
    free(d->prompt.text);
    free(d);
}

/* ---- a segment ---- */

static int add_part(struct chat_text *t, const char *s, size_t n, uint8_t mark)
{
    buf_add(&t->text, s, n);
    char *marks = buf_reserve(&t->marks, n + 1);
    if (!marks || buf_error(&t->text) < 0)
        return ERR_LIMIT;
    memset(marks, mark, n);
    t->marks.len += n;
    return 0;
}

static int segment_text(const struct chat *c, const struct chat_message *m, enum chat_role prev,
                        struct chat_text *ret, struct err *e)
{
    const struct chat_derived *d = c->derived;
    const struct chat_piece *before = &d->before[prev][m->role], *after = &d->after[m->role];
    if (!chat_piece_is_good(before) || !chat_piece_is_good(after))
        return err_set(e, ERR_UNSUPPORTED, "no segment of the role %s behind %s",
                       chat_role_name(m->role), chat_role_name(prev));
    const struct jinja_str content = {.s = m->text ? m->text : "", .n = m->n_text};
    const struct jinja_str kept = jinja_strip_space(&content, d->trims[m->role]);
    int rc = add_part(ret, before->text, before->n, 0);
    if (rc == 0)
        rc = add_part(ret, kept.s, kept.n, 1);
    if (rc == 0)
        rc = add_part(ret, after->text, after->n, 0);
    return rc < 0 ? err_set(e, rc, "a message of %zu bytes", m->n_text) : 0;
}

/* Cuts what t must end with off it. */
static int cut_end(struct chat_text *t, const char *s, size_t n, struct err *e)
{
    if (t->text.len < n || memcmp(t->text.data + t->text.len - n, s, n) != 0)
        return err_set(e, ERR_INVAL,
                       "the model's chat template prints this chat's beginning "
                       "otherwise than it does others'");
    t->text.len -= n;
    t->marks.len -= n;
    return 0;
}

/* The text of the first segment: by the template, less what it prints behind it. */
static int opening_text(const struct chat *c, const struct chat_message *m, size_t n, int64_t now,
                        struct chat_text *ret, struct err *e)
{
    const struct chat_ask ask = {.prompt = true, .now = now};
    const struct chat_derived *d = c->derived;
    const struct chat_piece *before = &d->before[m[n - 1].role][CHAT_USER],
                            *after = &d->after[CHAT_USER];
    struct chat_message v[3] = {m[0]};
    if (n == 2)
        v[1] = m[1];
    const bool is_alone = v[n - 1].role != CHAT_USER; /* templates expect more behind it */
    v[n] = (struct chat_message){.role = CHAT_USER, .text = "x", .n_text = 1};
    int rc = chat_window_text(c, v, n + is_alone, &ask, ret, e);
    if (rc == 0)
        rc = cut_end(ret, d->prompt.text, d->prompt.n, e);
    if (rc == 0 && is_alone)
        rc = cut_end(ret, after->text, after->n, e);
    if (rc == 0 && is_alone)
        rc = cut_end(ret, "x", 1, e);
    if (rc == 0 && is_alone)
        rc = cut_end(ret, before->text, before->n, e);
    if (rc < 0)
        return rc;
    ret->n = n;
    ret->starts[n] = ret->text.len;
    for (size_t i = n; i > 0; i--) /* of a blank message it was a guess */
        if (ret->starts[i - 1] > ret->starts[i])
            ret->starts[i - 1] = ret->starts[i];
    return 0;
}

/* Appends to the ids and the text of *ret; starts are n + 1 indices of ids, or NULL. */
static int put_opening(const struct chat *c, const struct chat_message *m, size_t n,
                       struct chat_rendering *ret, struct chat_text *t, struct err *e)
{
    int rc = opening_text(c, m, n, ret->now, t, e);
    if (rc == 0 && ret->text)
        buf_add(ret->text, t->text.data ? t->text.data : "", t->text.len);
    if (rc == 0)
        rc = chat_window_ids(c, m, t, true, ret->ids, e);
    if (rc == 0 && ret->starts)
        memcpy(ret->starts, t->starts, (n + 1) * sizeof *ret->starts);
    return rc;
}

int chat_derived_open(const struct chat *c, const struct chat_message *m, size_t n,
                      struct chat_rendering *ret, struct err *e)
{
    struct chat_text t;
    chat_text_init(&t, TEXT_BYTES_MAX);
    int rc = put_opening(c, m, n, ret, &t, e);
    chat_text_done(&t);
    return rc;
}

/* One segment; its text too if `text` isn't NULL. */
static int put_segment(const struct chat *c, const struct chat_message *m, enum chat_role prev,
                       struct chat_text *t, struct chat_rendering *ret, struct err *e)
{
    size_t *starts = t->starts ? t->starts : calloc(2, sizeof *starts);
    if (!starts)
        return err_set(e, ERR_NOMEM, "no memory for the chat");
    buf_clear(&t->text);
    buf_clear(&t->marks);
    t->starts = starts;
    t->n = 1;
    int rc = segment_text(c, m, prev, t, e);
    starts[0] = 0;
    starts[1] = t->text.len;
    if (rc == 0 && ret->text)
        buf_add(ret->text, t->text.data, t->text.len);
    return rc < 0 ? rc : chat_window_ids(c, m, t, false, ret->ids, e);
}

int chat_derived_segment(const struct chat *c, const struct chat_message *m, enum chat_role prev,
                         struct ids *ret, struct err *e)
{
    struct chat_text t;
    struct chat_rendering to = {.ids = ret};
    chat_text_init(&t, TEXT_BYTES_MAX);
    int rc = put_segment(c, m, prev, &t, &to, e);
    chat_text_done(&t);
    return rc;
}

int chat_derived_end(const struct chat *c, bool had_eog, struct ids *ret, struct err *e)
{
    struct ids ids;
    struct chat_text t;
    size_t starts[2] = {0};
    const struct chat_piece *after = &c->derived->after[CHAT_ASSISTANT];
    const struct chat_message none = {.role = CHAT_ASSISTANT, .text = ""};
    chat_text_init(&t, TEXT_BYTES_MAX);
    ids_init(&ids);
    int rc = add_part(&t, after->text, after->n, 0);
    t.starts = starts;
    if (rc == 0)
        rc = chat_window_ids(c, &none, &t, false, &ids, e);
    const size_t skip = had_eog && ids.n > 0 && tok_is_eog(c->tok, ids.v[0]);
    if (rc == 0 && (rc = ids_add(ret, ids.v + skip, ids.n - skip)) < 0)
        rc = err_set(e, rc, "no room for token ids");
    t.starts = NULL;
    chat_text_done(&t);
    ids_done(&ids);
    return rc;
}

int chat_derived_window(const struct chat *c, const struct chat_message *m, size_t n,
                        struct chat_rendering *ret, struct err *e)
{
    struct chat_text t;
    const size_t first = chat_opening(c, m, n);
    struct buf prompt;
    buf_init(&prompt, TEXT_BYTES_MAX);
    chat_text_init(&t, TEXT_BYTES_MAX);
    int rc = put_opening(c, m, first, ret, &t, e);
    chat_text_done(&t);
    chat_text_init(&t, TEXT_BYTES_MAX);
    for (size_t i = first; i < n && rc == 0; i++) {
        if (ret->starts)
            ret->starts[i] = ret->ids->n;
        rc = put_segment(c, &m[i], m[i - 1].role, &t, ret, e);
    }
    if (ret->starts)
        ret->starts[n] = ret->ids->n;
    if (rc == 0)
        rc = chat_prompt_of(c, ret->text ? &prompt : NULL, ret->ids, e);
    if (rc == 0 && ret->text) {
        buf_add(ret->text, prompt.data ? prompt.data : "", prompt.len);
        rc = buf_error(ret->text);
        if (rc < 0)
            rc = err_set(e, rc, "no room for the rendered text");
    }
    chat_text_done(&t);
    buf_done(&prompt);
    return rc;
}
