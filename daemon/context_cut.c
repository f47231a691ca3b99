/*
 * A cut: from a rendered window to the row that is stored. See context.h, and plan.h for what
 * leaves.
 */
#include "daemon/context.h"

#include <string.h>

#include "daemon/above.h"
#include "daemon/window.h"
#include "memory/facts.h"
#include "memory/said.h"

/* The window as the plan sees it. A message gives one item, or two: what was injected into it, and
 * itself. */
struct cutting {
    const struct context_cut *c;
    struct memory_pins pins;
    struct plan_item *items; /* [n] */
    size_t *messages;        /* [n] index into the window; SIZE_MAX: of no message */
    size_t n;
    struct plan plan;
    struct above above;
    struct said *left; /* [n_left] */
    size_t n_left;
};

#define NO_MESSAGE SIZE_MAX

static void add_item(struct cutting *k, size_t message, struct plan_item item)
{
    if (item.tokens < 0)
        item.tokens = 0;
    k->items[k->n] = item;
    k->messages[k->n++] = message;
}

static bool is_pinned(const struct cutting *k, int64_t row)
{
    for (size_t i = 0; i < k->pins.n && row; i++)
        if (k->pins.v[i].message == row)
            return true;
    return false;
}

/* User turns from message i (not counted) to the window's end. */
static int age_of(const struct turn_window *w, size_t i)
{
    int n = 0;
    for (size_t k = i + 1; k < w->n; k++)
        n += w->v[k].role == CHAT_USER;
    return n;
}

static int value_of(const struct turn_window *w, size_t i, int tokens, int age)
{
    const struct plan_text text = {
        .kind = w->v[i].role == CHAT_USER ? PLAN_USER : PLAN_ASSISTANT,
        .is_reply = w->v[i].role == CHAT_USER && i > 0 && w->v[i - 1].role == CHAT_ASSISTANT &&
                    plan_asks(w->parts[i - 1].text, w->parts[i - 1].n_text),
        .text = w->parts[i].text,
        .n_text = w->parts[i].n_text,
        .tokens = tokens,
        .age = age,
    };
    return plan_value(&text);
}

/* What of a message's segment isn't its own words. */
static int injected_tokens(const struct turn_part *p)
{
    int n = 0;
    for (size_t i = 0; i < p->context.n_sources; i++)
        n += p->context.sources[i].tokens;
    return n;
}

static void add_system(struct cutting *k, size_t i)
{
    const struct turn_window *w = &k->c->t->window;
    const int all = window_tokens(k->c->t, i);
    const bool has_head = (int)i == w->head_at;
    const int head = has_head ? window_count(k->c->h, w->cut.head, w->cut.n_head) : 0;
    add_item(k, i, (struct plan_item){.kind = PLAN_SYSTEM, .tokens = all - head});
    if (has_head)
        add_item(k, NO_MESSAGE, (struct plan_item){.kind = PLAN_HEAD, .tokens = head});
}

static void add_message(struct cutting *k, size_t i, int age)
{
    const struct turn_window *w = &k->c->t->window;
    const int all = window_tokens(k->c->t, i);
    const bool is_user = w->v[i].role == CHAT_USER;
    const int injected = is_user ? injected_tokens(&w->parts[i]) : 0;
    if (injected > 0)
        add_item(k, i, (struct plan_item){.kind = PLAN_RECALLED, .tokens = injected});
    add_item(k, i,
             (struct plan_item){.kind = is_user ? PLAN_USER : PLAN_ASSISTANT,
                                .is_pinned = is_pinned(k, w->rows[i]),
                                .tokens = all - injected,
                                .value = value_of(w, i, all - injected, age)});
}

/* "- Assistant: " and the line's end; its share of the heading. */
#define PIN_LINE_TOKENS 8

/* Notes, and pinned messages that left before, are items of their own: they stay in the head. */
static void add_pins(struct cutting *k)
{
    const struct turn_window *w = &k->c->t->window;
    for (size_t i = 0; i < k->pins.n; i++) {
        const struct memory_pin *p = &k->pins.v[i];
        bool is_here = false;
        for (size_t m = 0; m < w->n && p->message; m++)
            is_here = is_here || w->rows[m] == p->message;
        if (!is_here)
            add_item(k, NO_MESSAGE,
                     (struct plan_item){.kind = PLAN_PIN,
                                        .is_pinned = true,
                                        .tokens = window_count(k->c->h, p->text, p->n_text) +
                                                  PIN_LINE_TOKENS});
    }
}

static int make_items(struct cutting *k, struct http_error *ret)
{
    struct turn *t = k->c->t;
    const struct turn_window *w = &t->window;
    struct err e;
    if (memory_pin_list(k->c->h->memory, k->c->conversation, &k->pins, &t->arena, &e)) {
        http_error_from(ret, &e);
        return e.code;
    }
    const size_t cap = 2 * w->n + k->pins.n + 2;
    k->items = arena_array(&t->arena, cap, sizeof *k->items);
    k->messages = arena_array(&t->arena, cap, sizeof *k->messages);
    k->plan.stays = arena_array(&t->arena, cap, sizeof *k->plan.stays);
    if (!k->items || !k->messages || !k->plan.stays)
        return http_out_of_memory(ret, "the cut of a window");
    /* BOS, a template's own system text, and the generation prompt. */
    const size_t around = w->starts[0] + (t->prompt.n - w->starts[w->n]);
    add_item(k, NO_MESSAGE, (struct plan_item){.kind = PLAN_SYSTEM, .tokens = (int)around});
    add_pins(k);
    int age = age_of(w, 0) + (w->n > 0 && w->v[0].role == CHAT_USER);
    for (size_t i = 0; i < w->n; i++) {
        age -= w->v[i].role == CHAT_USER;
        if (w->v[i].role == CHAT_SYSTEM)
            add_system(k, i);
        else
            add_message(k, i, age);
    }
    return 0;
}

/* ---- from the plan to rows ---- */

static int rows_init(struct cutting *k, struct memory_rows *r, size_t n_more)
{
    r->v = arena_array(&k->c->t->arena, k->c->t->window.n + n_more + 1, sizeof *r->v);
    r->n = 0;
    return r->v ? 0 : ERR_NOMEM;
}

static void rows_add(struct memory_rows *r, int64_t row)
{
    if (row && (r->n == 0 || r->v[r->n - 1] != row))
        r->v[r->n++] = row;
}

static bool is_message(const struct plan_item *item)
{
    return item->kind == PLAN_USER || item->kind == PLAN_ASSISTANT;
}

/* The first stored message of the turns that stay; without one the anchor: leave_anchor. */
static int64_t first_of(struct cutting *k, size_t *ret_item)
{
    const struct turn_window *w = &k->c->t->window;
    for (size_t i = k->plan.first; i < k->n; i++)
        if (is_message(&k->items[i]) && w->rows[k->messages[i]]) {
            *ret_item = i;
            return w->rows[k->messages[i]];
        }
    *ret_item = k->n;
    return k->c->anchor;
}

static void leave(struct cutting *k, size_t i)
{
    struct turn *t = k->c->t;
    const size_t m = k->messages[i];
    const struct turn_part *p = &t->window.parts[m];
    struct turn_receipt *r = &t->receipt;
    k->left[k->n_left++] = (struct said){
        .row = t->window.rows[m],
        .role = t->window.v[m].role == CHAT_USER ? MEMORY_USER : MEMORY_ASSISTANT,
        .text = p->text,
        .n_text = p->n_text,
    };
    receipt_add(t, context_summarises(k->c->strategy) ? &r->summarised : &r->dropped, p->id,
                k->items[i].tokens);
}

/* What the cut before this one took out of the middle, of what this one still reaches: it doesn't
 * come back. */
static void carry_on(const struct memory_rows *old, int64_t first, struct memory_rows *to)
{
    for (size_t i = 0; i < old->n; i++)
        if (old->v[i] >= first)
            rows_add(to, old->v[i]);
}

/* Where nothing stored stays, the anchor leaves with the rest; a system message stays even then. */
static void leave_anchor(const struct cutting *k, struct memory_cut *cut)
{
    for (size_t i = 0; i < k->n; i++)
        if (is_message(&k->items[i]) && k->c->t->window.rows[k->messages[i]] == cut->first)
            rows_add(&cut->dropped, cut->first);
}

/* Messages: stay where they are, leave, or go on in the head as pins. */
static int sort_messages(struct cutting *k, struct memory_cut *cut)
{
    const struct turn_window *w = &k->c->t->window;
    const struct memory_cut *old = &w->cut;
    size_t first;
    if (rows_init(k, &cut->system, 0) ||
        rows_init(k, &cut->dropped, w->has_cut ? old->dropped.n : 0) ||
        rows_init(k, &cut->bare, w->has_cut ? old->bare.n : 0))
        return ERR_NOMEM;
    cut->first = first_of(k, &first);
    if (w->has_cut) {
        carry_on(&old->dropped, cut->first, &cut->dropped);
        carry_on(&old->bare, cut->first, &cut->bare);
    }
    if (first == k->n)
        leave_anchor(k, cut);
    for (size_t i = 0; i < k->n; i++) {
        if (k->messages[i] == NO_MESSAGE)
            continue;
        const int64_t row = w->rows[k->messages[i]];
        const bool stays = k->plan.stays[i], is_above = i < first;
        if (k->items[i].kind == PLAN_SYSTEM && row < cut->first)
            rows_add(&cut->system, row);
        else if (k->items[i].kind == PLAN_RECALLED && !is_above && !stays)
            rows_add(&cut->bare, row);
        else if (is_message(&k->items[i]) && !stays && !is_above)
            rows_add(&cut->dropped, row);
        if (is_message(&k->items[i]) && !stays)
            leave(k, i);
    }
    return 0;
}

/* Pins that the head must name: all but the messages that stay where they are. */
static void head_pins(struct cutting *k, const struct memory_cut *cut, struct memory_pins *ret)
{
    const struct turn_window *w = &k->c->t->window;
    ret->n = 0;
    for (size_t i = 0; i < k->pins.n; i++) {
        const struct memory_pin *p = &k->pins.v[i];
        bool is_kept = false;
        for (size_t m = 0; m < w->n && p->message >= cut->first && p->message; m++)
            is_kept = is_kept || w->rows[m] == p->message;
        if (!is_kept)
            ret->v[ret->n++] = *p;
    }
}

/* The summary as it is stored isn't the one in the head. */
static bool is_edited(const struct turn_window *w)
{
    const struct context_lines lines = {"", w->cut.summary, w->cut.n_summary};
    return w->has_cut && w->cut.is_edited && w->cut.n_summary > 0 &&
           context_summarises(w->cut.strategy) &&
           !context_has_lines(w->cut.head, w->cut.n_head, &lines);
}

/* What stands above the window leaves first. */
static int leave_above(struct cutting *k, struct http_error *ret)
{
    const struct context_cut *c = k->c;
    struct above *a = &k->above;
    a->is_summed = context_summarises(c->strategy);
    int rc = above_load(c->h, c->t, c->anchor, a, ret);
    if (rc)
        return rc;
    const size_t n = a->n - a->n_dropped;
    k->left = arena_array(&c->t->arena, n + c->t->window.n + 1, sizeof *k->left);
    if (!k->left)
        return http_out_of_memory(ret, "the cut of a window");
    if (n > 0)
        memcpy(k->left, a->said, n * sizeof *k->left);
    k->n_left = n;
    above_tell(c->h, c->t, a);
    return 0;
}

static int make_head(struct cutting *k, struct memory_cut *cut, struct http_error *ret)
{
    const struct context_cut *c = k->c;
    const struct turn_window *w = &c->t->window;
    struct memory_pins pins = {.n = 0};
    const int64_t *path;
    size_t n_path = 0;
    struct err e;
    if (memory_path_rows(c->h->memory, c->anchor, &path, &n_path, &e)) {
        http_error_from(ret, &e);
        return e.code;
    }
    const size_t n_opening =
        n_path < CONTEXT_OPENING_MESSAGES ? n_path : CONTEXT_OPENING_MESSAGES;
    pins.v = arena_array(&c->t->arena, k->pins.n + 1, sizeof *pins.v);
    if (!pins.v)
        return http_out_of_memory(ret, "the cut of a window");
    head_pins(k, cut, &pins);
    const struct context_head head = {
        .left = k->left,
        .n_left = k->n_left,
        .opening = n_opening > 0 ? path[n_opening - 1] : 0,
        .pins = &pins,
        .old_summary = w->has_cut ? w->cut.summary : NULL,
        .n_old_summary = w->has_cut ? w->cut.n_summary : 0,
        .is_edited = is_edited(w),
        .old_facts = w->has_cut ? w->cut.facts : NULL,
        .n_old_facts = w->has_cut ? w->cut.n_facts : 0,
        .summary = c->summary,
        .n_summary = c->n_summary,
        .strategy = c->strategy,
        .max_tokens = k->plan.head_tokens,
    };
    if (context_head_make(c->h, &c->t->arena, &head, cut, &e) == 0) {
        /* Handed on without having got into the head: it still is a person's. */
        cut->is_edited = head.is_edited && cut->summary == head.old_summary;
        return 0;
    }
    http_error_from(ret, &e);
    return e.code;
}

int context_wished_head(const struct history *h, enum plan_strategy s)
{
    int n = 0;
    if (context_keeps_facts(s))
        n += context_share(h, CONTEXT_FACTS_PERCENT, CONTEXT_FACTS_TOKENS_MAX);
    if (context_summarises(s))
        n += context_share(h, CONTEXT_SUMMARY_PERCENT, CONTEXT_SUMMARY_TOKENS_MAX);
    return n;
}

int context_cut_make(const struct context_cut *c, struct memory_cut *ret,
                     struct http_error *ret_error)
{
    struct cutting k = {.c = c};
    struct plan_budget budget = c->budget;
    struct err e;
    *ret = (struct memory_cut){
        .conversation = c->conversation, .anchor = c->anchor, .strategy = c->strategy};
    int rc = make_items(&k, ret_error);
    if (rc)
        return rc;
    budget.head_tokens = context_wished_head(c->h, c->strategy) - c->head_less;
    if (budget.head_tokens < 0)
        budget.head_tokens = 0;
    const struct plan_window window = {.v = k.items, .n = k.n};
    if ((rc = plan_cut(&window, &budget, c->strategy, &k.plan, &c->t->arena, &e))) {
        http_error_set(ret_error, 400, rc == ERR_LIMIT ? "context_length_exceeded" : "plan_failed",
                       "input", "%s", e.text);
        return rc;
    }
    if (!k.plan.is_cut)
        return ERR_NOTFOUND;
    receipt_forget_left(c->t);
    if ((rc = leave_above(&k, ret_error)))
        return rc;
    if (sort_messages(&k, ret))
        return http_out_of_memory(ret_error, "the cut of a window");
    return make_head(&k, ret, ret_error);
}
