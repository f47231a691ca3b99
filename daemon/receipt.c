/*
 * The receipt: what became of the window, told in every reply. See context.h.
 *
 * The lists name messages with their tokens. dropped and summarised hold what left since the reply
 * before this one: by a cut on the way to this answer, by one that was made ahead, while nobody
 * waited, or by hand. It is found by looking at the window as that reply had it. A list of more
 * than 2 x TURN_CHANGES_END names its first and last ones, and the reply says how many there are.
 */
#include <string.h>

#include "daemon/above.h"
#include "daemon/context.h"
#include "daemon/prepare.h"
#include "daemon/window.h"

#define FIRST_CAP 8

void receipt_add(struct turn *t, struct turn_changes *list, const char *id, int tokens)
{
    if (list->n == list->cap) {
        const size_t cap = list->cap ? 2 * list->cap : FIRST_CAP;
        struct turn_change *v = arena_array(&t->arena, cap, sizeof *v);
        if (!v)
            return;
        if (list->n > 0)
            memcpy(v, list->v, list->n * sizeof *v);
        list->v = v;
        list->cap = cap;
    }
    struct turn_change *change = &list->v[list->n++];
    memcpy(change->id, id, strnlen(id, sizeof change->id - 1) + 1);
    change->id[sizeof change->id - 1] = '\0';
    change->tokens = tokens;
}

void receipt_forget_left(struct turn *t)
{
    struct turn_receipt *r = &t->receipt;
    r->dropped.n = r->summarised.n = r->dropped.n_untold = r->summarised.n_untold = 0;
}

static void add_row(const struct context *c, struct turn_changes *list,
                    const struct memory_source *s)
{
    struct memory_message m;
    struct err e;
    if (memory_message_by_row(c->h->memory, s->row, &m, &c->t->arena, &e) == 0)
        receipt_add(c->t, list, m.id, s->tokens);
}

/* Recalled text of earlier turns that is still in the window. */
static void fill_kept(const struct context *c)
{
    struct turn *t = c->t;
    const struct turn_window *w = &t->window;
    for (size_t i = 0; i < w->n; i++) {
        const struct memory_context *x = &w->parts[i].context;
        if (x->sources == c->injected.sources)
            continue;
        for (size_t k = 0; k < x->n_sources; k++)
            if (x->sources[k].kind == MEMORY_RECALLED)
                add_row(c, &t->receipt.recalled_kept, &x->sources[k]);
    }
}

/* Every pin is in the window: in the head, before a message, or as the message that it is. */
static void fill_pinned(const struct context *c)
{
    struct memory_pins pins;
    struct err e;
    if (!c->conversation ||
        memory_pin_list(c->h->memory, c->conversation, &pins, &c->t->arena, &e))
        return;
    for (size_t i = 0; i < pins.n; i++) {
        const struct memory_pin *p = &pins.v[i];
        const int tokens = window_count(c->h, p->text, p->n_text);
        receipt_add(c->t, &c->t->receipt.pinned, p->message ? p->message_id : p->id,
                    tokens < 0 ? 0 : tokens);
    }
}

/* ---- what left ---- */

/* Its words are in the head. */
static bool is_pinned(const struct memory_pins *pins, int64_t row)
{
    for (size_t i = 0; i < pins->n; i++)
        if (pins->v[i].message == row)
            return true;
    return false;
}

static bool has_row(const struct turn_window *w, int64_t row)
{
    for (size_t i = 0; i < w->n; i++)
        if (w->rows[i] == row)
            return true;
    return false;
}

/* The window as it was under the cut before, rendered. */
static int load_before(const struct context *c, int64_t before, struct turn *old,
                       struct http_error *error)
{
    int rc = 0;
    if (c->instructions)
        rc = prepare_add(old, CHAT_SYSTEM, c->instructions, strlen(c->instructions), error);
    if (rc == 0)
        rc = window_load(c->h, old, c->tip, before, error);
    return rc ? rc : prepare_render(c->h, old, error);
}

/* By the window of the reply before: what was in it and isn't now has left, by one cut or several,
 * whoever made them. */
static void compare(const struct context *c, const struct turn *old, const struct above *above)
{
    struct turn *t = c->t;
    struct turn_receipt *r = &t->receipt;
    const struct turn_window *w = &old->window;
    struct turn_changes *list =
        context_summarises(t->window.cut.strategy) ? &r->summarised : &r->dropped;
    struct memory_pins pins = {.n = 0};
    struct err e;
    receipt_forget_left(t);
    above_tell(c->h, t, above);
    if (memory_pin_list(c->h->memory, c->conversation, &pins, &t->arena, &e))
        pins.n = 0;
    for (size_t i = 0; i < w->n; i++)
        if (w->rows[i] && !has_row(&t->window, w->rows[i]) && !is_pinned(&pins, w->rows[i]))
            receipt_add(t, list, w->parts[i].id, window_tokens(old, i));
    const int had = prepare_prefix(c->h, old), all = (int)w->starts[w->n];
    r->prefix_kept = (int)ids_common(old->prompt.v, (size_t)had, t->prompt.v, t->prompt.n);
    r->prefix_lost = had - r->prefix_kept;
    r->n_above = w->n_above;
    if (!r->is_live_cut)
        r->before = r->used + all - (int)t->window.starts[t->window.n - c->n_inputs];
}

/* Whether the newest reply above this turn's messages was read under another cut: nobody was told
 * of this one yet. An answer that has no account was imported, or the daemon was killed while it
 * came: the reply before it counts. */
static bool is_news(const struct context *c, int64_t *ret_before)
{
    int64_t last = 0;
    struct err e;
    *ret_before = MEMORY_WHOLE_PATH; /* nobody has read it here: it was imported */
    if (!c->t->window.has_cut)
        return false;
    const int rc = c->tip ? memory_turn_newest(c->h->memory, c->tip, &last, &e) : ERR_NOTFOUND;
    if (rc == ERR_NOTFOUND)
        return true;
    if (rc == 0 && last)
        *ret_before = last;
    return rc == 0 && last != c->t->window.cut.row;
}

static void fill_left(const struct context *c)
{
    struct http_error error = {.status = 0};
    int64_t before;
    if (!is_news(c, &before))
        return;
    c->t->receipt.is_ahead_cut = !c->t->receipt.is_live_cut;
    struct turn *old = turn_new_background(c->h, c->t->owner, c->t->cancel);
    struct above above = {.is_summed = context_summarises(c->t->window.cut.strategy),
                          .is_told = true};
    if (old && load_before(c, before, old, &error) == 0 &&
        above_load(c->h, old, c->tip, &above, &error) == 0)
        compare(c, old, &above);
    turn_free(old);
}

void receipt_fill(const struct context *c)
{
    fill_left(c);
    fill_kept(c);
    fill_pinned(c);
}
