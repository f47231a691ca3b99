/*
 * What is put before a person's words: pins that the window doesn't show yet, and quotes of what
 * left it. See context.h.
 *
 *     [To keep in mind]
 *     - User: I'm allergic to peanuts
 *
 *     [From earlier in this conversation]
 *     - User, 2026-03-09: "…"
 *
 *     What can I have as a snack?
 *
 * A pin acts at once, here, and moves to the head at the next cut. Recall begins when something has
 * left the window; what is in it, or was quoted in it, is never quoted again. Of the hits those are
 * taken, in order, that have to do with the question: a quote that doesn't help costs the room of a
 * turn. The first that is too long is cut to what is left, and ends them.
 */
#include "daemon/context.h"

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "daemon/embedder.h"
#include "daemon/window.h"
#include "memory/facts.h"
#include "memory/relevance.h"
#include "memory/vectors.h"

#define QUOTES_MAX 16
#define INJECTED_BYTES_MAX (256u << 10)

struct injection {
    struct context *c;
    size_t at; /* the message of the window */
    struct memory_pins pins;
    struct buf text;
    struct memory_source *sources; /* [n], room for MEMORY_SOURCES_MAX */
    size_t n;
};

static void add_source(struct injection *in, enum memory_source_kind kind, int64_t row, int tokens)
{
    if (in->n < MEMORY_SOURCES_MAX)
        in->sources[in->n++] =
            (struct memory_source){.kind = kind, .row = row, .tokens = tokens};
}

/* ---- what the window has ---- */

static bool has_source(const struct turn_part *p, enum memory_source_kind kind, int64_t row)
{
    for (size_t i = 0; i < p->context.n_sources; i++)
        if (p->context.sources[i].kind == kind && p->context.sources[i].row == row)
            return true;
    return false;
}

static bool window_has(const struct turn_window *w, enum memory_source_kind kind, int64_t row)
{
    for (size_t i = 0; i < w->n; i++)
        if (has_source(&w->parts[i], kind, row))
            return true;
    return false;
}

static bool window_has_message(const struct turn_window *w, int64_t row)
{
    for (size_t i = 0; i < w->n; i++)
        if (w->rows[i] == row)
            return true;
    return false;
}

static bool is_in_window(const struct turn_window *w, const struct memory_pin *pin)
{
    const struct context_lines lines = {context_pin_prefix(pin), pin->text, pin->n_text};
    if (w->has_cut && context_has_lines(w->cut.head, w->cut.n_head, &lines))
        return true;
    if (pin->message)
        return window_has_message(w, pin->message) || window_has(w, MEMORY_PINNED, pin->message);
    return window_has(w, MEMORY_NOTE, pin->row);
}

/* ---- pins ---- */

static void add_pin(struct injection *in, const struct memory_pin *pin)
{
    const size_t begin = in->text.len;
    if (in->n == 0)
        buf_str(&in->text, "[To keep in mind]\n");
    buf_str(&in->text, "- ");
    if (pin->message)
        buf_printf(&in->text, "%s: ", context_speaker(pin->role));
    buf_add(&in->text, pin->text, pin->n_text);
    buf_char(&in->text, '\n');
    if (buf_error(&in->text))
        return;
    const int tokens =
        window_count(in->c->h, in->text.data + begin, in->text.len - begin);
    add_source(in, pin->message ? MEMORY_PINNED : MEMORY_NOTE,
               pin->message ? pin->message : pin->row, tokens < 0 ? 0 : tokens);
}

static int add_pins(struct injection *in, struct http_error *ret)
{
    struct context *c = in->c;
    const struct memory_pins *pins = &in->pins;
    struct err e;
    if (memory_pin_list(c->h->memory, c->conversation, &in->pins, &c->t->arena, &e)) {
        http_error_from(ret, &e);
        return e.code;
    }
    for (size_t i = 0; i < pins->n; i++)
        if (!is_in_window(&c->t->window, &pins->v[i]))
            add_pin(in, &pins->v[i]);
    if (in->n > 0)
        buf_char(&in->text, '\n');
    return 0;
}

/* ---- edits ---- */

#define KEEP "[To keep in mind] "
#define RIGHT "[The summary at the beginning is out of date; this is right]\n"

/* Whether the head, or what was put before a message since, says it; each has a prefix of its own.
 */
static bool is_said(const struct turn_window *w, const char *text, size_t n, bool is_fact)
{
    const struct context_lines in_head = {is_fact ? "- " : "", text, n},
                               since = {is_fact ? KEEP : "", text, n};
    if (n == 0 || context_has_lines(w->cut.head, w->cut.n_head, &in_head))
        return true;
    for (size_t i = 0; i < w->n; i++) {
        const struct memory_context *c = &w->parts[i].context;
        if (context_has_lines(c->text, c->n_text, &since))
            return true;
    }
    return false;
}

/* Whether any line of the list may be a person's: only then it is worth reading, which takes
 * milliseconds for a long one. All others end with an object that names another kind. */
static bool has_notes(const char *text, size_t n)
{
    static const char note[] = "\"kind\":\"note\"";
    for (size_t i = 0; i < n;) {
        const char *end = memchr(text + i, '\n', n - i);
        const size_t len = end ? (size_t)(end - text) - i : n - i;
        if (len > 0 && (text[i + len - 1] != '}' || memmem(text + i, len, note, sizeof note - 1)))
            return true;
        i += len + 1;
    }
    return false;
}

/* What a larger window took may be too long for this one: better that a turn doesn't read it than
 * that there is no turn; the receipt tells. It stays stored, and a cut takes of it what fits. */
static bool has_room(struct injection *in, const char *text, size_t n, int *left)
{
    const int n_tokens = window_count(in->c->h, text, n);
    static struct log_limit limit = {.burst = 3};
    if (n_tokens <= *left) {
        *left -= n_tokens > 0 ? n_tokens : 0;
        return true;
    }
    in->c->t->receipt.edits_unread += n_tokens;
    if (log_allowed(&limit))
        log_warn("%d tokens of a summary or facts are too long for the window: they aren't read",
                 n_tokens);
    return false;
}

static int add_fact_notes(struct injection *in, int left, struct http_error *ret)
{
    const struct turn_window *w = &in->c->t->window;
    struct facts facts = {.n = 0};
    struct err e;
    if (!has_notes(w->cut.facts, w->cut.n_facts))
        return 0;
    if (facts_parse(w->cut.facts, w->cut.n_facts, &in->c->t->arena, &facts, &e)) {
        http_error_from(ret, &e);
        return e.code;
    }
    for (size_t i = 0; i < facts.n; i++) {
        const struct fact *f = &facts.v[i];
        if (f->kind != FACT_NOTE || is_said(w, f->text, f->n_text, true) ||
            !has_room(in, f->text, f->n_text, &left))
            continue;
        buf_str(&in->text, KEEP);
        buf_add(&in->text, f->text, f->n_text);
        buf_str(&in->text, "\n\n");
    }
    return 0;
}

/* A person's edit of summary or facts acts here until the next cut takes it into the head. */
static int add_edits(struct injection *in, struct http_error *ret)
{
    const struct turn_window *w = &in->c->t->window;
    const size_t begin = in->text.len;
    int left = context_share(in->c->h, CONTEXT_PINS_PERCENT, 0);
    if (!w->has_cut)
        return 0;
    if (w->cut.is_edited && context_summarises(w->cut.strategy) &&
        !is_said(w, w->cut.summary, w->cut.n_summary, false) &&
        has_room(in, w->cut.summary, w->cut.n_summary, &left)) {
        buf_str(&in->text, RIGHT);
        buf_add(&in->text, w->cut.summary, w->cut.n_summary);
        buf_str(&in->text, "\n\n");
    }
    int rc = add_fact_notes(in, left, ret);
    if (rc || in->text.len == begin || buf_error(&in->text))
        return rc;
    const int n = window_count(in->c->h, in->text.data + begin, in->text.len - begin);
    add_source(in, MEMORY_NOTE, 0, n < 0 ? 0 : n);
    return 0;
}

/* ---- recall ---- */

static int by_row(const void *a, const void *b)
{
    const int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

/* Rows that are in the window, pinned (each pin is: in its head, or before a message) or quoted in
 * it, ascending. NULL: no memory. */
static int64_t *rows_present(const struct injection *in, size_t *ret_n)
{
    const struct context *c = in->c;
    const struct turn_window *w = &c->t->window;
    size_t n = 0, cap = w->n + in->pins.n;
    for (size_t i = 0; i < w->n; i++)
        cap += w->parts[i].context.n_sources;
    int64_t *rows = arena_array(&c->t->arena, cap + 1, sizeof *rows);
    if (!rows)
        return NULL;
    for (size_t i = 0; i < w->n; i++) {
        const struct memory_context *context = &w->parts[i].context;
        if (w->rows[i])
            rows[n++] = w->rows[i];
        for (size_t k = 0; k < context->n_sources; k++)
            if (context->sources[k].kind != MEMORY_NOTE)
                rows[n++] = context->sources[k].row;
    }
    for (size_t i = 0; i < in->pins.n; i++)
        if (in->pins.v[i].message)
            rows[n++] = in->pins.v[i].message;
    qsort(rows, n, sizeof *rows, by_row);
    *ret_n = n;
    return rows;
}

static int recalled_tokens(const struct turn_window *w)
{
    int n = 0;
    for (size_t i = 0; i < w->n; i++)
        for (size_t k = 0; k < w->parts[i].context.n_sources; k++)
            if (w->parts[i].context.sources[k].kind == MEMORY_RECALLED)
                n += w->parts[i].context.sources[k].tokens;
    return n;
}

/* As many of the hits as the budget takes, in rank order. */
static void add_quotes(struct injection *in, const struct memory_query *q,
                       const struct memory_hits *hits, int budget)
{
    struct context *c = in->c;
    struct context_quote quotes[QUOTES_MAX];
    const struct context_quoting asked = {.h = c->h, .q = q, .hits = hits, .budget = budget};
    const size_t n = context_quote(&asked, &in->text, quotes, QUOTES_MAX);
    for (size_t i = 0; i < n; i++) {
        const struct memory_hit *hit = &hits->v[quotes[i].hit];
        add_source(in, MEMORY_RECALLED, hit->row, quotes[i].tokens);
        receipt_add(c->t, &c->t->receipt.recalled_new, hit->id, quotes[i].tokens);
    }
}

/* By words, and by meaning where there is an embedding model. */
static int recall(struct context *c, const struct memory_query *q, struct memory_hits *ret,
                  struct err *e)
{
    float *vector = embedder_query(c->h, q);
    int rc = memory_recall_both(c->h->memory, q, vector, ret, &c->t->arena, e);
    free(vector);
    return rc;
}

/* An error of recall never fails the turn: there is less to read then, and the log says so. */
static void add_recall(struct injection *in)
{
    struct context *c = in->c;
    const struct turn_window *w = &c->t->window;
    const struct turn_part *question = &w->parts[in->at];
    struct memory_query q = {
        .owner = c->t->owner,
        .conversation = c->conversation,
        .text = question->text,
        .n_text = question->n_text,
        .now = clock_wall_s(),
        .limit = QUOTES_MAX,
    };
    struct memory_hits hits = {.n = 0};
    struct err e;
    static struct log_limit limit = {.burst = 3};
    const int all = context_share(c->h, CONTEXT_RECALL_ALL_PERCENT, 0);
    int budget = relevance_share(q.text, q.n_text, all) - recalled_tokens(w);
    const int for_turn = context_share(c->h, CONTEXT_RECALL_TURN_PERCENT, 0);
    if (budget > for_turn)
        budget = for_turn;
    if (!w->has_cut || budget <= 0)
        return;
    q.exclude = rows_present(in, &q.n_exclude);
    int rc = q.exclude ? memory_path_rows(c->h->memory, c->tip, &q.only, &q.n_only, &e)
                       : err_set(&e, ERR_NOMEM, "out of memory");
    if (rc == 0)
        rc = recall(c, &q, &hits, &e);
    if (rc && log_allowed(&limit))
        log_warn("nothing could be recalled: %s", e.text);
    c->t->receipt.is_recall_partial = rc != 0 || hits.is_partial || hits.is_damaged;
    if (rc == 0)
        add_quotes(in, &q, &hits, budget);
}

int context_inject(struct context *c, size_t at, struct http_error *ret_error)
{
    struct injection in = {.c = c, .at = at};
    int rc = 0;
    c->t->receipt.recalled_new.n = 0;
    c->t->receipt.edits_unread = 0;
    in.sources = arena_array(&c->t->arena, MEMORY_SOURCES_MAX, sizeof *in.sources);
    if (!in.sources)
        return http_out_of_memory(ret_error, "the turn's context");
    buf_init(&in.text, INJECTED_BYTES_MAX);
    rc = add_pins(&in, ret_error);
    if (rc == 0)
        rc = add_edits(&in, ret_error);
    if (rc == 0 && context_recalls(c->strategy) && !c->is_recall_off)
        add_recall(&in);
    if (rc == 0 && buf_error(&in.text))
        rc = http_out_of_memory(ret_error, "the turn's context");
    if (rc == 0 && in.n > 0) {
        char *text = arena_copy(&c->t->arena, in.text.data, in.text.len);
        c->injected = (struct memory_context){
            .text = text, .n_text = in.text.len, .sources = in.sources, .n_sources = in.n};
        rc = text ? window_inject(c->t, at, &c->injected, ret_error)
                  : http_out_of_memory(ret_error, "the turn's context");
    }
    buf_done(&in.text);
    return rc;
}
