/*
 * Chats in re-render mode: the model's own template prints the whole window each turn.
 *
 *      messages ─► conformed to what the template takes ─► text, and a mark on each byte that came
 *      from a message ─► control tokens where the markup spells them; what lies between two of them
 *      is one run, encoded without special tokens
 *
 * A control token is taken only where none of its bytes came from a message, so that nothing a
 * person wrote becomes one, and neither does what markup and content spell together. That holds
 * whatever the template does to the content (trims it, splits it, quotes it): the marks follow the
 * bytes through the interpreter.
 *
 * What a template can't take is conformed, by what it did with synthetic chats when it was loaded:
 * without a system role the system text goes before the next user message; system messages in mid
 * chat likewise; where roles must alternate, neighbours of one role become one message. Between
 * texts so joined is a blank line. A message of a person that the template leaves out is an error,
 * never a silent loss.
 */
#include <stdlib.h>
#include <string.h>

#include "engine/chat_impl.h"
#include "engine/template.h"

#define RUN_BYTES_MAX ((size_t)512 << 20)
#define TEXT_BYTES_MAX ((size_t)64 << 20)

struct window {
    const struct chat *c;
    const struct chat_message *m;
    size_t n;
    struct arena arena;
    struct chat_text *t;
    struct template_message *v; /* conformed */
    size_t n_v;
    size_t next; /* the message whose text comes next */
    struct err *e;
};

void chat_text_init(struct chat_text *t, size_t max)
{
    *t = (struct chat_text){.n = 0};
    buf_init(&t->text, max);
    buf_init(&t->marks, max);
}

void chat_text_done(struct chat_text *t)
{
    buf_done(&t->text);
    buf_done(&t->marks);
    free(t->starts);
    *t = (struct chat_text){.n = 0};
}

static int nomem(struct err *e)
{
    return err_set(e, ERR_NOMEM, "no memory for the chat");
}

/* What was thought before an answer goes into a field of its own, as templates that don't know
 * <think> want it: in the answer they would leave it for ever. */
static int split_off(struct window *w, struct template_message *to, struct jinja_str *text)
{
    const struct chat_think *k = w->c->traits.think;
    struct chat_split split;
    struct jinja_value thought;
    if (to->role != CHAT_ASSISTANT || !k || chat_think_is_common(k) ||
        !chat_think_split(k, text->s, text->n, &split))
        return 0;
    *text = (struct jinja_str){.s = split.answer, .n = split.n_answer};
    if (split.n_thought == 0 || to->thought.n > 0)
        return 0;
    if (jinja_marked(&w->arena, split.thought, split.n_thought, TEMPLATE_MARK_THOUGHT, &thought) <
        0)
        return nomem(w->e);
    to->thought = thought.str;
    return 0;
}

/* Joins m[i]'s text to a conformed message. */
static int join(struct window *w, struct template_message *to, size_t i)
{
    struct jinja_str text = {.s = w->m[i].text ? w->m[i].text : "", .n = w->m[i].n_text};
    if (split_off(w, to, &text) < 0)
        return w->e->code;
    const size_t gap = to->content.n > 0 && text.n > 0 ? 2 : 0, n = to->content.n;
    char *s = arena_alloc(&w->arena, n + gap + text.n + 1);
    uint8_t *marks = arena_alloc(&w->arena, n + gap + text.n + 1);
    if (!s || !marks)
        return nomem(w->e);
    if (n > 0) {
        memcpy(s, to->content.s, n);
        memcpy(marks, to->content.marks, n);
    }
    memcpy(s + n, "\n\n", gap);
    if (text.n > 0)
        memcpy(s + n + gap, text.s, text.n);
    memset(marks + n, (int)(1 + i % TEMPLATE_MARKS), gap + text.n);
    to->content = (struct jinja_str){.s = s, .n = n + gap + text.n, .marks = marks};
    return 0;
}

/* The system messages of m[from, to) go into a conformed message. */
static int join_systems(struct window *w, struct template_message *to, size_t from, size_t end)
{
    int rc = 0;
    for (size_t k = from; rc == 0 && k < end; k++)
        rc = w->m[k].role == CHAT_SYSTEM ? join(w, to, k) : 0;
    return rc;
}

/* The messages as the template takes them. A system message that it doesn't take waits for the next
 * user message. */
static int conform(struct window *w)
{
    const struct chat_takes *takes = &w->c->takes;
    size_t waits = w->n; /* the first one that waits; n: none */
    int rc = 0;
    w->v = arena_array(&w->arena, w->n + 1, sizeof *w->v);
    if (!w->v)
        return nomem(w->e);
    for (size_t i = 0; rc == 0 && i < w->n; i++) {
        enum chat_role role = w->m[i].role;
        struct template_message *last = w->n_v > 0 ? &w->v[w->n_v - 1] : NULL, *to = last;
        const bool is_late = role == CHAT_SYSTEM && last && !takes->late_system;
        const bool joins = last && last->role == role && (takes->alternation || is_late);
        if (!joins && (is_late || (role == CHAT_SYSTEM && !takes->system))) {
            waits = waits < w->n ? waits : i;
            continue;
        }
        if (!joins) {
            to = &w->v[w->n_v++];
            to->role = role;
        }
        if (role == CHAT_USER && waits < w->n) {
            rc = join_systems(w, to, waits, i);
            waits = w->n;
        }
        rc = rc == 0 ? join(w, to, i) : rc;
    }
    if (rc < 0 || waits == w->n)
        return rc;
    struct template_message *to = &w->v[w->n_v++]; /* no user message follows: it becomes one */
    to->role = CHAT_USER;
    return join_systems(w, to, waits, w->n);
}

/* The control token that the markup spells at i, its length; -1: none. */
static int32_t control_at(const struct window *w, size_t i, size_t *ret_n)
{
    const struct chat_control *v = w->c->controls;
    const char *s = w->t->text.data + i;
    const size_t left = w->t->text.len - i;
    int32_t best = -1;
    *ret_n = 0;
    for (size_t k = w->c->first_control[(unsigned char)*s];
         k < w->c->first_control[(unsigned char)*s + 1]; k++) {
        bool is = v[k].n <= left && v[k].n > *ret_n && memcmp(v[k].s, s, v[k].n) == 0;
        for (size_t b = 0; is && b < v[k].n; b++)
            is = w->t->marks.data[i + b] == 0;
        if (is) {
            best = v[k].id;
            *ret_n = v[k].n;
        }
    }
    return best;
}

/* Where the share of what follows begins in markup [from, to): behind the end of the turn at the
 * next control token, else at the first control token; (size_t)-1: there is none. */
static size_t boundary(const struct window *w, size_t from, size_t to)
{
    size_t first = (size_t)-1, behind = (size_t)-1, n;
    for (size_t i = from; i < to; i += n) {
        int32_t id = control_at(w, i, &n);
        if (id < 0) {
            n = 1;
            continue;
        }
        if (behind != (size_t)-1)
            return i;
        if (tok_is_eog(w->c->tok, id))
            behind = i + n;
        else if (first == (size_t)-1 && !(i == 0 && id == tok_bos_token(w->c->tok)))
            first = i;
    }
    return behind != (size_t)-1 ? behind : first;
}

/* Finds each message's bytes in the text, and from them the shares. */
static int find_shares(struct window *w)
{
    size_t at = 0, end = 0;
    for (size_t i = 0; i <= w->n; i++)
        w->t->starts[i] = (size_t)-1;
    for (size_t i = 0; i < w->n; i++) {
        const uint8_t mark = (uint8_t)(1 + i % TEMPLATE_MARKS);
        const char *hit =
            at < w->t->text.len ? memchr(w->t->marks.data + at, mark, w->t->text.len - at) : NULL;
        bool is_blank = jinja_is_blank(w->m[i].text, w->m[i].n_text);
        if (!hit && !is_blank && w->m[i].role != CHAT_ASSISTANT &&
            !(w->t->text.len > 0 && memchr(w->t->marks.data, mark, w->t->text.len)))
            return err_set(w->e, ERR_INVAL,
                           "the model's chat template leaves out message %zu of %zu (%s)", i + 1,
                           w->n, chat_role_name(w->m[i].role));
        if (!hit)
            continue;
        size_t begin = (size_t)(hit - w->t->marks.data);
        w->t->starts[i] = boundary(w, end, begin);
        for (at = begin; at < w->t->text.len && (uint8_t)w->t->marks.data[at] == mark; at++)
            ;
        end = at;
    }
    size_t tail = boundary(w, end, w->t->text.len);
    w->t->starts[w->n] = tail == (size_t)-1 ? w->t->text.len : tail;
    for (size_t i = w->n; i > 0; i--)
        if (w->t->starts[i - 1] == (size_t)-1 || w->t->starts[i - 1] > w->t->starts[i])
            w->t->starts[i - 1] = i == 1 ? 0 : w->t->starts[i];
    return 0;
}

/* The answer that text[from, to) is the beginning or all of, with the ids it was generated with. */
static const struct chat_message *answer_at(struct window *w, size_t from, size_t to)
{
    const uint8_t mark = (uint8_t)w->t->marks.data[from];
    for (size_t i = w->next; i < w->n; i++) {
        const struct chat_message *m = &w->m[i];
        if (1 + i % TEMPLATE_MARKS != mark)
            continue;
        w->next = i;
        bool is = m->role == CHAT_ASSISTANT && m->ids && to - from <= m->n_text &&
                  memcmp(m->text, w->t->text.data + from, to - from) == 0;
        return is ? m : NULL;
    }
    return NULL;
}

/* Text between two control tokens. */
static int put_run(struct window *w, size_t from, size_t to, struct ids *ret)
{
    const struct tok *tok = w->c->tok;
    int rc = 0;
    bool is_start = true;
    for (size_t i = from, end; rc == 0 && i < to; i = end) {
        const char mark = w->t->marks.data[i];
        for (end = i; end < to && w->t->marks.data[end] == mark; end++)
            ;
        const struct chat_message *m = mark ? answer_at(w, i, end) : NULL;
        if (!m)
            continue;
        struct chat_message part = *m;
        part.n_text = end - i;
        size_t covered, n_ids = chat_usable_ids(w->c, &part, &covered);
        if (n_ids == 0)
            continue;
        if (i > from)
            rc = is_start
                     ? tok_encode(tok, w->t->text.data + from, i - from, false, ret, w->e)
                     : tok_encode_more(tok, w->t->text.data + from, i - from, false, ret, w->e);
        if (rc == 0 && (rc = ids_add(ret, m->ids, n_ids)) < 0)
            rc = nomem(w->e);
        is_start = false;
        from = i + covered;
    }
    if (rc < 0 || from == to)
        return rc;
    return is_start ? tok_encode(tok, w->t->text.data + from, to - from, false, ret, w->e)
                    : tok_encode_more(tok, w->t->text.data + from, to - from, false, ret, w->e);
}

static bool is_space(char c)
{
    return c == ' ' || (c >= '\t' && c <= '\r');
}

/* The ids; starts become indices into them. */
static int put_text(struct window *w, struct ids *ret)
{
    const struct tok *tok = w->c->tok;
    size_t from = 0, n, share = 0;
    int rc = 0;
    for (size_t i = 0; rc == 0 && i <= w->t->text.len; i += n) {
        int32_t id = i < w->t->text.len ? control_at(w, i, &n) : -1;
        const bool is_edge = id >= 0 || i == w->t->text.len ||
                             (share <= w->n && w->t->starts[share] == i && i == from);
        n = id >= 0 ? n : 1;
        if (!is_edge)
            continue;
        if (from < i)
            rc = put_run(w, from, i, ret);
        for (; rc == 0 && share <= w->n && w->t->starts[share] <= i; share++)
            w->t->starts[share] = ret->n;
        if (rc < 0 || id < 0) {
            from = i;
            continue;
        }
        if ((rc = ids_push(ret, id)) < 0)
            rc = nomem(w->e);
        while (tok_strips_after(tok, id) && i + n < w->t->text.len &&
               is_space(w->t->text.data[i + n]))
            n++;
        from = i + n;
    }
    return rc;
}

/* Once, at the beginning of the ids from `base` on: if the model wants it and the template hasn't
 * printed it. */
static int put_bos(struct window *w, size_t base, struct ids *ret)
{
    int32_t bos = tok_bos(w->c->tok);
    if (bos < 0 || (ret->n > base && ret->v[base] == bos))
        return 0;
    if (ids_push(ret, bos) < 0)
        return nomem(w->e);
    memmove(ret->v + base + 1, ret->v + base, (ret->n - base - 1) * sizeof *ret->v);
    ret->v[base] = bos;
    for (size_t i = 0; i <= w->n; i++)
        w->t->starts[i]++;
    return 0;
}

int chat_window_text(const struct chat *c, const struct chat_message *m, size_t n,
                     const struct chat_ask *ask, struct chat_text *ret, struct err *e)
{
    struct err own = {0};
    struct window w = {.c = c, .m = m, .n = n, .t = ret, .e = e ? e : &own};
    struct template_args a = {.add_generation_prompt = ask->prompt, .thinking = ask->thinking};
    size_t *starts = realloc(ret->starts, (n + 1) * sizeof *starts);
    if (!starts)
        return nomem(w.e);
    ret->starts = starts;
    ret->n = n;
    buf_clear(&ret->text);
    buf_clear(&ret->marks);
    arena_init(&w.arena, RUN_BYTES_MAX);
    int rc = conform(&w);
    a.messages = w.v;
    a.n_messages = w.n_v;
    a.bos = c->bos;
    a.eos = c->eos;
    a.now = ask->now ? ask->now : c->now;
    if (rc == 0)
        rc = template_run(c->jinja, &a, &w.arena, &ret->text, &ret->marks, w.e);
    arena_done(&w.arena);
    return rc < 0 ? rc : find_shares(&w);
}

int chat_window_ids(const struct chat *c, const struct chat_message *m, struct chat_text *t,
                    bool is_opening, struct ids *ret, struct err *e)
{
    struct err own = {0};
    struct window w = {.c = c, .m = m, .n = t->n, .t = t, .e = e ? e : &own};
    const size_t base = ret->n;
    int rc = put_text(&w, ret);
    return rc < 0 || !is_opening ? rc : put_bos(&w, base, ret);
}

int chat_window(const struct chat *c, const struct chat_message *m, size_t n,
                bool add_generation_prompt, struct chat_rendering *ret, struct err *e)
{
    const struct chat_ask ask = {
        .prompt = add_generation_prompt, .now = ret->now, .thinking = ret->thinking};
    struct chat_text t;
    chat_text_init(&t, TEXT_BYTES_MAX);
    int rc = chat_window_text(c, m, n, &ask, &t, e);
    if (rc == 0 && ret->ids)
        rc = chat_window_ids(c, m, &t, true, ret->ids, e);
    if (rc == 0 && ret->text) {
        buf_add(ret->text, t.text.data ? t.text.data : "", t.text.len);
        if (buf_error(ret->text) < 0)
            rc = err_set(e, buf_error(ret->text), "no room for the rendered text");
    }
    if (rc == 0 && ret->starts)
        memcpy(ret->starts, t.starts, (n + 1) * sizeof *ret->starts);
    chat_text_done(&t);
    return rc;
}

int chat_prompt_of(const struct chat *c, struct buf *ret_text, struct ids *ret, struct err *e)
{
    const struct chat_message m = {.role = CHAT_USER, .text = "x", .n_text = 1};
    struct chat_text t;
    struct ids ids;
    ids_init(&ids);
    chat_text_init(&t, TEXT_BYTES_MAX);
    int rc = chat_window_text(c, &m, 1, &(struct chat_ask){.prompt = true}, &t, e);
    if (rc == 0 && ret_text)
        buf_add(ret_text, t.text.data + t.starts[1], t.text.len - t.starts[1]);
    if (rc == 0)
        rc = chat_window_ids(c, &m, &t, true, &ids, e);
    if (rc == 0 && ids_add(ret, ids.v + t.starts[1], ids.n - t.starts[1]) < 0)
        rc = nomem(e);
    chat_text_done(&t);
    ids_done(&ids);
    return rc;
}

static int compare_controls(const void *a, const void *b)
{
    const struct chat_control *x = a, *y = b;
    return ((unsigned char)x->s[0] > (unsigned char)y->s[0]) -
           ((unsigned char)x->s[0] < (unsigned char)y->s[0]);
}

static int list_controls(struct chat *c, struct err *e)
{
    size_t n = 0, len, k = 0;
    for (size_t i = 0; i < tok_n_vocab(c->tok); i++)
        n += tok_is_control(c->tok, (int32_t)i);
    c->controls = calloc(n + 1, sizeof *c->controls);
    if (!c->controls)
        return nomem(e);
    for (size_t i = 0; i < tok_n_vocab(c->tok); i++) {
        const char *s = tok_piece(c->tok, (int32_t)i, &len);
        if (tok_is_control(c->tok, (int32_t)i) && len > 0)
            c->controls[k++] = (struct chat_control){.s = s, .n = len, .id = (int32_t)i};
    }
    qsort(c->controls, k, sizeof *c->controls, compare_controls);
    for (size_t i = 0, at = 0; i <= 256; i++) {
        while (at < k && (unsigned char)c->controls[at].s[0] < i)
            at++;
        c->first_control[i] = at;
    }
    return 0;
}

#define SAY(r, t)                                                                                  \
    {                                                                                              \
        .role = (r), .text = (t), .n_text = sizeof(t) - 1                                          \
    }

/* Whether the template prints these messages, each of them. */
static bool takes(const struct chat *c, const struct chat_message *m, size_t n, struct err *e)
{
    struct buf text;
    struct chat_rendering to = {.text = &text};
    buf_init(&text, TEMPLATE_BYTES_MAX);
    int rc = chat_window(c, m, n, true, &to, e);
    buf_done(&text);
    return rc == 0;
}

/*
 * Takes the template if it prints a plain chat; finds what it doesn't take.
 */
int chat_window_open(struct chat *c, struct err *e)
{
    static const struct chat_message plain[] = {SAY(CHAT_USER, "one"), SAY(CHAT_ASSISTANT, "two"),
                                                SAY(CHAT_USER, "three")},
                                     system[] = {SAY(CHAT_SYSTEM, "s"), SAY(CHAT_USER, "u")},
                                     late[] = {SAY(CHAT_USER, "u"), SAY(CHAT_ASSISTANT, "a"),
                                               SAY(CHAT_SYSTEM, "s"), SAY(CHAT_USER, "w")},
                                     twice[] = {SAY(CHAT_USER, "u"), SAY(CHAT_USER, "w")};
    c->takes = (struct chat_takes){.system = true, .late_system = true};
    int rc = list_controls(c, e);
    if (rc < 0)
        return rc;
    if (!takes(c, plain, 1, e) || !takes(c, plain, 3, e))
        return e->code;
    struct err no;
    bool has_system = takes(c, system, 2, &no), has_late = takes(c, late, 4, &no),
         has_twice = takes(c, twice, 2, &no);
    c->takes = (struct chat_takes){
        .system = has_system, .late_system = has_system && has_late, .alternation = !has_twice};
    return takes(c, system, 2, e) && takes(c, late, 4, e) && takes(c, twice, 2, e) ? 0 : e->code;
}
