/*
 * Segments of a template that is no ChatML: found by rendering, kept only if proven.
 *
 *      … e_i ][ after | before ][ b_i+1 …        what stands between two contents is cut at an edge
 *           of a control token (chat_window.c's boundary): behind it the next segment begins
 *
 * before(previous role, role) and after(role) are read off synthetic chats; the marks say where the
 * contents are. What opens a window (BOS, a default system text, today's date, a system text that
 * goes into the first user message) is not guessed: the template prints it anew, for the first
 * message, or the first two. So a chat's segments are
 *
 *      opening by the template, { before content after }*
 *
 * A chat with two roles in a row that give no clean cut has none; chat_is_segments says so, and it
 * is rendered whole. The proof compares text and ids of both ways, for chats of many shapes, with
 * contents of white space, of thinking and tool markup, and with every string that the template
 * itself holds; at two dates. Anything that differs: no segments at all.
 */
#include <stdlib.h>
#include <string.h>

#include "engine/chat_impl.h"
#include "engine/template.h"

#define TEXT_BYTES_MAX ((size_t)16 << 20)
#define PROBE_MESSAGES_MAX 8
#define LITERAL_BYTES_MAX 200
#define LATER_SECONDS (400 * 86400 + 5 * 3600)

/* Roles of the chats that segments are read off, and that they are proven with. */
static const char *const shapes[] = {"u",     "su",    "ua",   "uau",   "suau", "uauau", "suauaua",
                                     "uu",    "uua",   "uaau", "au",    "usu",  "uasu",  "s",
                                     "suasu", "uauua", "sua",  "uasau", "ssu",  "suaus"};
#define N_SHAPES (sizeof shapes / sizeof *shapes)

static enum chat_role role_of(char c)
{
    return c == 's' ? CHAT_SYSTEM : c == 'u' ? CHAT_USER : CHAT_ASSISTANT;
}

/* Sets a piece, or finds that it is another one elsewhere. */
static int learn(struct chat_piece *p, const char *s, size_t n)
{
    if (p->is_set && (p->n != n || memcmp(p->text, s, n) != 0))
        p->is_bad = true;
    if (p->is_set || p->is_bad)
        return 0;
    p->text = malloc(n + 1);
    if (!p->text)
        return ERR_NOMEM;
    memcpy(p->text, s, n);
    p->text[n] = 0;
    p->n = n;
    p->is_set = true;
    return 0;
}

/* Where message i's bytes are, if they are in one piece. */
static bool span_of(const struct chat_text *t, size_t i, size_t *ret_from, size_t *ret_to)
{
    const char mark = (char)(1 + i % TEMPLATE_MARKS);
    const char *from = t->marks.len > 0 ? memchr(t->marks.data, mark, t->marks.len) : NULL;
    if (!from)
        return false;
    *ret_from = (size_t)(from - t->marks.data);
    for (*ret_to = *ret_from; *ret_to < t->marks.len && t->marks.data[*ret_to] == mark;)
        ++*ret_to;
    return !memchr(t->marks.data + *ret_to, mark, t->marks.len - *ret_to);
}

static bool is_markup(const struct chat_text *t, size_t from, size_t to)
{
    for (size_t i = from; i < to; i++)
        if (t->marks.data[i])
            return false;
    return true;
}

/* Reads what stands before message i and behind the one before it. */
static int learn_joint(struct chat_derived *d, const struct chat_message *m, size_t i,
                       const struct chat_text *t, size_t end)
{
    size_t from, to;
    struct chat_piece *before = &d->before[m[i - 1].role][m[i].role];
    bool is_clean = span_of(t, i, &from, &to) && from >= end && t->starts[i] >= end &&
                    t->starts[i] <= from && is_markup(t, end, from);
    if (!is_clean) {
        before->is_bad = true;
        return 0;
    }
    int rc = learn(&d->after[m[i - 1].role], t->text.data + end, t->starts[i] - end);
    return rc < 0 ? rc : learn(before, t->text.data + t->starts[i], from - t->starts[i]);
}

static size_t make_shape(const char *shape, struct chat_message *m)
{
    static const char *const words[PROBE_MESSAGES_MAX] = {"Amber",  "basalt", "Cobalt", "dune",
                                                          "Ember9", "fjord",  "Garnet", "haze"};
    size_t n = strlen(shape);
    for (size_t i = 0; i < n; i++)
        m[i] = (struct chat_message){
            .role = role_of(shape[i]), .text = words[i], .n_text = strlen(words[i])};
    return n;
}

/* Reads the pieces off one chat; one that the template doesn't take teaches nothing. */
static int learn_from(const struct chat *c, struct chat_derived *d, const char *shape,
                      struct chat_text *t)
{
    struct chat_message m[PROBE_MESSAGES_MAX];
    struct err e = {0};
    size_t n = make_shape(shape, m), end = 0, from;
    if (strchr(shape + 1, 's') && !c->takes.late_system)
        return 0; /* it is moved about, and no segment */
    int rc = chat_window_text(c, m, n, &(struct chat_ask){.prompt = true}, t, &e);
    if (rc < 0)
        return rc == ERR_NOMEM ? rc : 0;
    d->opens[m[0].role] = true;
    for (size_t i = 0; i < n && rc == 0; i++) {
        rc = i > 0 ? learn_joint(d, m, i, t, end) : 0;
        if (!span_of(t, i, &from, &end))
            return rc;
    }
    if (rc < 0 || m[n - 1].role != CHAT_USER || t->starts[n] < end ||
        !is_markup(t, end, t->text.len))
        return rc;
    rc = learn(&d->after[m[n - 1].role], t->text.data + end, t->starts[n] - end);
    return rc < 0 ? rc : learn(&d->prompt, t->text.data + t->starts[n], t->text.len - t->starts[n]);
}

/* Which sides of a role's content the template trims: those of a content with white space. */
static int learn_trims(const struct chat *c, struct chat_derived *d, struct chat_text *t)
{
    static const char text[] = " \n\t a \n\t ";
    static const struct chat_message m[] = {
        {.role = CHAT_USER, .text = text, .n_text = sizeof text - 1},
        {.role = CHAT_ASSISTANT, .text = text, .n_text = sizeof text - 1},
        {.role = CHAT_SYSTEM, .text = text, .n_text = sizeof text - 1},
        {.role = CHAT_USER, .text = text, .n_text = sizeof text - 1}};
    struct err e = {0};
    const bool has_late = chat_piece_is_good(&d->before[CHAT_ASSISTANT][CHAT_SYSTEM]);
    size_t from, to, n = has_late ? 4 : 2;
    int rc = chat_window_text(c, m, n, &(struct chat_ask){.prompt = true}, t, &e);
    for (size_t i = 0; i < n && rc == 0; i++) {
        if (!span_of(t, i, &from, &to))
            return ERR_UNSUPPORTED;
        const char *s = t->text.data;
        d->trims[m[i].role] = (s[from] == 'a' ? 1 : 0) | (s[to - 1] == 'a' ? 2 : 0);
    }
    return rc;
}

/* ---- the proof ---- */

struct proof {
    struct chat *c;
    struct chat_text whole;
    struct buf text;
    struct ids whole_ids, ids;
    size_t starts[PROBE_MESSAGES_MAX + 1];
    size_t n; /* chats compared */
    struct err e;
};

/* 0: equal, or the chat has no segments. */
static int prove(struct proof *p, const struct chat_message *m, size_t n, int64_t now)
{
    struct chat_rendering own = {.ids = &p->ids, .text = &p->text, .starts = p->starts, .now = now};
    const struct chat_ask ask = {.prompt = true, .now = now};
    if (!chat_is_segments(p->c, m, n))
        return 0;
    p->whole_ids.n = p->ids.n = 0;
    buf_clear(&p->text);
    int rc = chat_window_text(p->c, m, n, &ask, &p->whole, &p->e);
    if (rc == 0)
        rc = chat_window_ids(p->c, m, &p->whole, true, &p->whole_ids, &p->e);
    if (rc < 0) /* segments must not hide the template's refusal */
        return rc == ERR_NOMEM ? rc : ERR_UNSUPPORTED;
    rc = chat_render(p->c, m, n, true, &own, &p->e);
    if (rc < 0)
        return rc;
    p->n++;
    bool is_equal = p->text.len == p->whole.text.len && p->ids.n == p->whole_ids.n &&
                    memcmp(p->text.data, p->whole.text.data, p->text.len) == 0 &&
                    ids_common(p->ids.v, p->ids.n, p->whole_ids.v, p->ids.n) == p->ids.n;
    bool has_blank = false; /* whole windows can only guess where that is */
    for (size_t i = 0; i < n; i++)
        has_blank = has_blank || jinja_is_blank(m[i].text, m[i].n_text);
    for (size_t i = 0; i <= n && is_equal && !has_blank; i++)
        is_equal = p->starts[i] == p->whole.starts[i];
    return is_equal ? 0 : ERR_UNSUPPORTED;
}

/* Orders of roles beside system, user, assistant, user, …: without them there still are segments.
 * Whether the shape has any that were taken for good until now. */
static bool drop_rare(struct chat_derived *d, const char *shape)
{
    bool has = false;
    for (; shape[1]; shape++) {
        const bool is_usual = strncmp(shape, "su", 2) == 0 || strncmp(shape, "ua", 2) == 0 ||
                              strncmp(shape, "au", 2) == 0;
        struct chat_piece *before = &d->before[role_of(shape[0])][role_of(shape[1])];
        if (is_usual || !chat_piece_is_good(before))
            continue;
        before->is_bad = has = true;
    }
    return has;
}

/* One content as all that is said, and as all that two of the three say. */
static int prove_said(struct proof *p, const char *shape, const char *s, size_t n)
{
    struct chat_message m[PROBE_MESSAGES_MAX];
    int rc = 0;
    for (enum chat_role not = CHAT_NONE; not <= CHAT_ASSISTANT && rc == 0; not ++) {
        size_t n_m = make_shape(shape, m);
        for (size_t i = 0; i < n_m; i++)
            if (m[i].role != not ) {
                m[i].text = s;
                m[i].n_text = n;
            }
        rc = prove(p, m, n_m, 0);
    }
    return rc == ERR_UNSUPPORTED && drop_rare(p->c->derived, shape) ? 0 : rc;
}

static int prove_content(struct proof *p, const char *s, size_t n)
{
    static const char *const said_in[] = {"uauau", "suau", "suasuau", "uuaasu"};
    int rc = 0;
    for (size_t i = 0; i < sizeof said_in / sizeof *said_in && rc == 0; i++)
        rc = prove_said(p, said_in[i], s, n);
    return rc;
}

static int prove_shapes(struct proof *p)
{
    struct chat_message m[PROBE_MESSAGES_MAX];
    int rc = 0;
    for (size_t i = 0; i < N_SHAPES && rc == 0; i++) {
        size_t n = make_shape(shapes[i], m);
        rc = prove(p, m, n, 0);
        if (rc == 0)
            rc = prove(p, m, n, p->c->now + LATER_SECONDS);
        if (rc == ERR_UNSUPPORTED && drop_rare(p->c->derived, shapes[i]))
            rc = 0;
    }
    return rc;
}

static int prove_contents(struct proof *p)
{
    static const char *const contents[] = {"",
                                           " ",
                                           "\n",
                                           "\n\n u\t",
                                           "  a\r\n",
                                           " \n s \n ",
                                           "\xC2\xA0x\xE3\x80\x80",
                                           "0",
                                           "{{ messages }} {% if x %}",
                                           "\xC3\xA9 \xE9\x9B\xA8 'q' \"w\" \\n",
                                           "/no_think a",
                                           "<think>\nhm\n</think>\n\nb",
                                           "</think>",
                                           "a </think> b",
                                           "<tool_response>\nc\n</tool_response>",
                                           "<tool_call>\n{}\n</tool_call>",
                                           "[INST] d [/INST]",
                                           "<|channel|>x<|message|>y",
                                           "</s>"};
    char digits[LITERAL_BYTES_MAX * 8];
    int rc = 0;
    for (size_t i = 0; i < sizeof contents / sizeof *contents && rc == 0; i++)
        rc = prove_content(p, contents[i], strlen(contents[i]));
    memset(digits, '7', sizeof digits); /* one that is long */
    return rc < 0 ? rc : prove_content(p, digits, sizeof digits);
}

/* The string within, at the beginning and at the end of what is said, all in one chat. */
static int prove_literal(struct proof *p, const char *shape, const struct jinja_str *s, size_t turn)
{
    struct chat_message m[PROBE_MESSAGES_MAX];
    char text[LITERAL_BYTES_MAX + 2];
    const size_t n = make_shape(shape, m);
    text[0] = 'x';
    memcpy(text + 1, s->s, s->n);
    text[s->n + 1] = 'y';
    for (size_t i = 0; i < n; i++) {
        const bool is_begin = (i + turn) % 3 == 1, is_end = (i + turn) % 3 == 2;
        m[i].text = text + is_begin;
        m[i].n_text = s->n + 2 - is_begin - is_end;
    }
    int rc = prove(p, m, n, 0);
    return rc == ERR_UNSUPPORTED && drop_rare(p->c->derived, shape) ? 0 : rc;
}

/* What the template may look for in contents, it holds as a string. */
static int prove_literals(struct proof *p)
{
    const struct jinja *j = p->c->jinja;
    struct jinja_str s;
    int rc = 0;
    for (size_t i = 0; rc == 0 && jinja_literal(j, i, &s); i++) {
        if (s.n == 0 || s.n > LITERAL_BYTES_MAX)
            continue;
        rc = prove_literal(p, "uauau", &s, 0);
        if (rc == 0)
            rc = prove_literal(p, "suaau", &s, 1);
        if (rc == 0)
            rc = prove_literal(p, "usuau", &s, 2);
    }
    return rc;
}

static int derive(struct chat *c, struct chat_derived *d)
{
    struct proof p = {.c = c};
    int rc = 0;
    chat_text_init(&p.whole, TEXT_BYTES_MAX);
    buf_init(&p.text, TEXT_BYTES_MAX);
    ids_init(&p.ids);
    ids_init(&p.whole_ids);
    for (size_t i = 0; i < N_SHAPES && rc == 0; i++)
        rc = learn_from(c, d, shapes[i], &p.whole);
    d->folds_system = !chat_piece_is_good(&d->before[CHAT_SYSTEM][CHAT_USER]);
    if (rc == 0 && (!chat_piece_is_good(&d->prompt) || !chat_piece_is_good(&d->after[CHAT_USER]) ||
                    !chat_piece_is_good(&d->after[CHAT_ASSISTANT])))
        rc = ERR_UNSUPPORTED;
    if (rc == 0)
        rc = learn_trims(c, d, &p.whole);
    c->derived = d;
    if (rc == 0)
        rc = prove_shapes(&p);
    if (rc == 0)
        rc = prove_contents(&p);
    if (rc == 0)
        rc = prove_literals(&p);
    const struct chat_message talk[] = {
        {.role = CHAT_USER}, {.role = CHAT_ASSISTANT}, {.role = CHAT_USER}};
    if (rc == 0 && (p.n == 0 || !chat_is_segments(c, talk, 3)))
        rc = ERR_UNSUPPORTED;
    c->derived = NULL;
    chat_text_done(&p.whole);
    buf_done(&p.text);
    ids_done(&p.ids);
    ids_done(&p.whole_ids);
    return rc;
}

int chat_derive(struct chat *c, struct err *e)
{
    struct chat_derived *d = calloc(1, sizeof *d);
    int rc = d ? derive(c, d) : ERR_NOMEM;
    if (rc == 0) {
        c->derived = d;
        return 0;
    }
    chat_derived_free(d);
    return rc == ERR_NOMEM ? err_set(e, rc, "no memory for the chat format") : 0;
}
