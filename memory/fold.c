/*
 * See fold.h.
 *
 * A window lives in the arena of the cut that began it: slots, head, quotes, and the scratch of its
 * making. The next cut takes a new arena and copies what stays; the one before is kept, as it may
 * be asked for, and goes with the cut after that. So the memory is that of two windows, however
 * long the list is.
 */
#include "memory/fold.h"

#include <stdlib.h>
#include <string.h>

#include "base/sys.h"
#include "memory/relevance.h"

#define CUT_ARENA_BYTES (64u << 20)
#define SLOTS_FIRST 64

struct fold_state {
    struct arena arena;
    struct fold_window now, before; /* now: without what came behind the cut */
    size_t cut_at, n_cuts, mark;
    struct bm25 *index; /* or NULL */
};

struct folding {
    const struct fold_input *in;
    struct arena arena;        /* of `w` */
    struct fold_window w;
    size_t cap;                /* of w.v */
    int recalled;              /* tokens of quotes in the window */
    int64_t fixed;             /* tokens that never leave: system messages and `around` */
    struct arena arena_before; /* of `before` */
    struct fold_window before;
    size_t cut_at;             /* the message at which the newest cut was made */
    size_t n_cuts;
    size_t n_at_cut;           /* slots of w, and … */
    size_t mark_at_cut;        /* … the index, when it had been made */
    bool *is_quoted;           /* [in->n] in the window */
    struct bm25 *index;        /* of what left; NULL: nothing is recalled */
    struct arena *a;           /* the caller's */
};

static int out_of_memory(struct err *e)
{
    return err_set(e, ERR_NOMEM, "out of memory for the window of a list of messages");
}

static bool is_user(const struct folding *f, size_t message)
{
    return f->in->v[message].role == MEMORY_USER;
}

/* ---- slots ---- */

static int push(struct folding *f, const struct fold_slot *slot, struct err *e)
{
    struct fold_window *w = &f->w;
    if (w->n == f->cap) {
        const size_t cap = f->cap ? 2 * f->cap : SLOTS_FIRST;
        struct fold_slot *v = arena_array(&f->arena, cap, sizeof(*v));
        if (!v)
            return out_of_memory(e);
        if (w->n > 0)
            memcpy(v, w->v, w->n * sizeof(*v));
        w->v = v;
        f->cap = cap;
    }
    w->v[w->n++] = *slot;
    return 0;
}

static void set_quoted(struct folding *f, const struct fold_quotes *q, bool is_in)
{
    for (size_t i = 0; i < q->n; i++)
        f->is_quoted[q->v[i]] = is_in;
}

static void unquote(struct folding *f, struct fold_slot *slot)
{
    set_quoted(f, &slot->quotes, false);
    f->w.tokens -= slot->quotes.tokens;
    f->recalled -= slot->quotes.tokens;
    slot->quotes = (struct fold_quotes){.text = NULL};
}

/* ---- recall ---- */

static int least(int a, int b)
{
    return a < b ? a : b;
}

/* Quotes for the newest message, of at most max_tokens. */
static int recall(struct folding *f, int max_tokens, struct err *e)
{
    const struct fold_rules *r = &f->in->rules;
    struct fold_slot *slot = &f->w.v[f->w.n - 1];
    const struct fold_message *m = &f->in->v[slot->message];
    struct bm25_hit hits[FOLD_QUOTES_MAX];
    struct fold_quotes quotes = {.text = NULL};
    const int all = relevance_share(m->text, m->n_text, r->recall_all);
    max_tokens = least(least(r->recall_turn, all - f->recalled), max_tokens);
    if (!f->w.has_cut || !f->index || max_tokens <= 0)
        return 0;
    int rc = bm25_read(f->index, slot->message, m->text, m->n_text, e);
    if (rc)
        return rc;
    const struct fold_recall ask = {
        .message = slot->message,
        .hits = hits,
        .n = bm25_ask(f->index, slot->message, f->is_quoted, hits, FOLD_QUOTES_MAX),
        .max_tokens = max_tokens,
        .index = f->index,
    };
    rc = ask.n > 0 ? f->in->hands.quote(f->in->hands.user, &ask, &f->arena, &quotes, e) : 0;
    if (rc || quotes.n == 0)
        return rc;
    slot->quotes = quotes;
    set_quoted(f, &quotes, true);
    f->w.tokens += quotes.tokens;
    f->recalled += quotes.tokens;
    return 0;
}

/* ---- a cut ---- */

#define NO_SLOT SIZE_MAX

struct cutting {
    struct plan_item *items; /* [n] */
    size_t *slots;           /* [n] whose item it is, NO_SLOT: of none */
    size_t n;
    struct plan plan;
    struct said *left; /* [n_left] */
    size_t n_left;
};

static void add_item(struct cutting *k, size_t slot, struct plan_item item)
{
    k->items[k->n] = item;
    k->slots[k->n++] = slot;
}

static enum plan_kind kind_of(const struct fold_message *m)
{
    return m->role == MEMORY_SYSTEM      ? PLAN_SYSTEM
           : m->role == MEMORY_ASSISTANT ? PLAN_ASSISTANT
                                         : PLAN_USER;
}

static void add_slot(const struct folding *f, struct cutting *k, size_t i, int age)
{
    const enum plan_strategy s = f->in->rules.strategy;
    const struct fold_slot *slot = &f->w.v[i];
    const struct fold_message *m = &f->in->v[slot->message];
    struct plan_item item = {.kind = kind_of(m), .tokens = m->tokens};
    const struct fold_message *before = slot->message > 0 ? m - 1 : NULL;
    const struct plan_text text = {.kind = item.kind,
                                   .is_reply = item.kind == PLAN_USER && before &&
                                               before->role == MEMORY_ASSISTANT &&
                                               plan_asks(before->text, before->n_text),
                                   .text = m->text,
                                   .n_text = m->n_text,
                                   .tokens = m->tokens,
                                   .age = age};
    if (slot->quotes.tokens > 0)
        add_item(k, i, (struct plan_item){.kind = PLAN_RECALLED, .tokens = slot->quotes.tokens});
    if (item.kind != PLAN_SYSTEM && (s == PLAN_PRUNE || s == PLAN_AUTO))
        item.value = plan_value(&text);
    add_item(k, i, item);
}

/* The window as the plan sees it; scratch and results are of the new cut's arena. */
static int make_items(const struct folding *f, struct cutting *k, struct arena *a, struct err *e)
{
    const size_t cap = 2 * f->w.n + 2;
    int age = 0;
    *k = (struct cutting){.items = arena_array(a, cap, sizeof(*k->items)),
                          .slots = arena_array(a, cap, sizeof(*k->slots)),
                          .plan.stays = arena_array(a, cap, sizeof(*k->plan.stays)),
                          .left = arena_array(a, f->w.n + 1, sizeof(*k->left))};
    if (!k->items || !k->slots || !k->plan.stays || !k->left)
        return out_of_memory(e);
    add_item(k, NO_SLOT, (struct plan_item){.kind = PLAN_SYSTEM, .tokens = f->in->rules.around});
    if (f->w.has_cut)
        add_item(k, NO_SLOT, (struct plan_item){.kind = PLAN_HEAD, .tokens = f->w.head.tokens});
    for (size_t i = 0; i < f->w.n; i++)
        age += is_user(f, f->w.v[i].message);
    for (size_t i = 0; i < f->w.n; i++) {
        /* Turns behind it: what stands before the first of them is a turn of its own. */
        age -= is_user(f, f->w.v[i].message);
        add_slot(f, k, i, age);
    }
    return 0;
}

/* What leaves can be found from now on. */
static int leave(struct folding *f, struct cutting *k, size_t message, struct err *e)
{
    const struct fold_message *m = &f->in->v[message];
    k->left[k->n_left++] = (struct said){
        .row = (int64_t)message + 1, .role = m->role, .text = m->text, .n_text = m->n_text};
    if (!f->index)
        return 0;
    int rc = bm25_read(f->index, message, m->text, m->n_text, e);
    return rc ? rc : bm25_add(f->index, message, e);
}

/* A slot goes on into the window of the new arena, which is f's by now. */
static int carry(struct folding *f, const struct fold_slot *old, bool with_quotes, struct err *e)
{
    struct fold_slot slot = *old;
    if (!with_quotes)
        slot.quotes = (struct fold_quotes){.text = NULL};
    else if (slot.quotes.text)
        slot.quotes.text = arena_copy(&f->arena, slot.quotes.text, slot.quotes.n_text);
    if (with_quotes && old->quotes.text && !slot.quotes.text)
        return out_of_memory(e);
    set_quoted(f, &slot.quotes, true);
    f->recalled += slot.quotes.tokens;
    f->w.tokens += slot.quotes.tokens + f->in->v[slot.message].tokens;
    return push(f, &slot, e);
}

/* The new window's slots, by the plan; f->w is the new one, empty. */
static int take_over(struct folding *f, struct cutting *k, struct err *e)
{
    const struct fold_window *old = &f->before;
    bool has_quotes = false; /* the slot's quotes, which stand before it, stay */
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < k->n; i++) {
        if (k->slots[i] == NO_SLOT)
            continue;
        const struct fold_slot *slot = &old->v[k->slots[i]];
        if (k->items[i].kind == PLAN_RECALLED) {
            has_quotes = k->plan.stays[i];
            continue;
        }
        rc = k->plan.stays[i] ? carry(f, slot, has_quotes, e) : leave(f, k, slot->message, e);
        has_quotes = false;
    }
    return rc;
}

/* The window goes to `before`, and a new one is begun in the arena *a, which is taken. */
static void begin(struct folding *f, struct arena *a)
{
    for (size_t i = 0; i < f->w.n; i++)
        set_quoted(f, &f->w.v[i].quotes, false);
    arena_done(&f->arena_before);
    f->arena_before = f->arena;
    f->before = f->w;
    f->arena = *a;
    f->w = (struct fold_window){.has_cut = true, .tokens = f->in->rules.around};
    f->cap = 0;
    f->recalled = 0;
}

/* Nothing is changed when nothing can leave. ERR_LIMIT: nothing can, and the newest turn is too
 * long. */
static int cut(struct folding *f, size_t at, struct err *e)
{
    const struct fold_rules *r = &f->in->rules;
    struct cutting k;
    struct arena a;
    arena_init(&a, CUT_ARENA_BYTES);
    int rc = make_items(f, &k, &a, e);
    const struct plan_window window = {.v = k.items, .n = k.n};
    if (rc == 0)
        rc = plan_cut(&window, &r->budget, r->strategy, &k.plan, &a, e);
    if (rc || !k.plan.is_cut) {
        arena_done(&a);
        return rc;
    }
    begin(f, &a);
    f->cut_at = at;
    f->n_cuts++;
    if ((rc = take_over(f, &k, e)))
        return rc;
    const struct fold_leaving leaving = {.v = k.left,
                                         .n = k.n_left,
                                         .old = f->before.has_cut ? &f->before.head : NULL,
                                         .max_tokens = k.plan.head_tokens};
    rc = f->in->hands.head(f->in->hands.user, &leaving, &f->arena, &f->w.head, e);
    f->w.tokens += f->w.head.tokens;
    f->n_at_cut = f->w.n;
    f->mark_at_cut = f->index ? bm25_mark(f->index) : 0;
    return rc;
}

/* ---- the fold ---- */

/* A message that a turn begins with, or the last one. */
static int settle(struct folding *f, size_t at, struct err *e)
{
    const struct plan_budget *b = &f->in->rules.budget;
    const bool is_last = at + 1 == f->in->n, asks = is_user(f, at);
    const int room = asks ? plan_room(b) : b->limit;
    int rc = asks ? recall(f, b->limit, e) : 0;
    if (rc || f->w.tokens <= room)
        return rc;
    unquote(f, &f->w.v[f->w.n - 1]);
    rc = cut(f, at, e);
    /* Who asked then was told so; the list goes on all the same, if it ever can. */
    if (rc == ERR_LIMIT && !is_last && f->fixed <= b->limit)
        rc = 0;
    return rc == 0 && asks ? recall(f, room - f->w.tokens, e) : rc;
}

/* Quotes and heads are copied out of the cuts' arenas. */
static int copy_text(struct arena *a, const char **text, size_t n)
{
    if (*text)
        *text = arena_copy(a, *text, n);
    return *text || n == 0 ? 0 : ERR_NOMEM;
}

/* A window whose first n slots are w's. */
static int copy_window(struct arena *a, const struct fold_window *w, size_t n,
                       struct fold_window *ret)
{
    struct fold_head *h = &ret->head;
    *ret = *w;
    h->kept = NULL;
    ret->n = n;
    ret->v = arena_array(a, n + 1, sizeof(*ret->v));
    if (!ret->v)
        return ERR_NOMEM;
    if (n > 0)
        memcpy(ret->v, w->v, n * sizeof(*ret->v));
    int rc = copy_text(a, &h->text, h->n_text);
    rc = rc ? rc : copy_text(a, &h->summary, h->n_summary);
    rc = rc ? rc : copy_text(a, &h->facts, h->n_facts);
    for (size_t i = 0; rc == 0 && i < n; i++)
        rc = copy_text(a, &ret->v[i].quotes.text, ret->v[i].quotes.n_text);
    return rc;
}

/* ---- states ---- */

void fold_state_free(struct fold_state *s)
{
    if (!s)
        return;
    arena_done(&s->arena);
    bm25_free(s->index);
    free(s);
}

size_t fold_state_at(const struct fold_state *s)
{
    return s->cut_at;
}

/* NULL: no cut, or one that a longer list wouldn't make, or no memory. Takes the index. */
static struct fold_state *save(struct folding *f)
{
    if (f->n_cuts == 0 || !is_user(f, f->cut_at))
        return NULL;
    struct fold_state *s = sys.malloc(sizeof(*s));
    if (!s)
        return NULL;
    *s = (struct fold_state){.cut_at = f->cut_at,
                             .n_cuts = f->n_cuts,
                             .mark = f->mark_at_cut,
                             .index = f->index};
    f->index = NULL;
    arena_init(&s->arena, CUT_ARENA_BYTES);
    if (copy_window(&s->arena, &f->w, f->n_at_cut, &s->now) ||
        copy_window(&s->arena, &f->before, f->before.n, &s->before)) {
        fold_state_free(s);
        return NULL;
    }
    /* Quotes of the message that it was made for came afterwards. */
    s->now.v[s->now.n - 1].quotes = (struct fold_quotes){.text = NULL};
    return s;
}

/* Goes on where s stood; it is taken. */
static int resume(struct folding *f, struct fold_state *s, struct err *e)
{
    int rc = copy_window(&f->arena, &s->now, s->now.n, &f->w);
    rc = rc ? rc : copy_window(&f->arena_before, &s->before, s->before.n, &f->before);
    f->cap = f->w.n;
    f->cut_at = s->cut_at;
    f->n_cuts = s->n_cuts;
    f->n_at_cut = f->w.n;
    f->mark_at_cut = s->mark;
    f->index = s->index;
    s->index = NULL;
    fold_state_free(s);
    if (rc)
        return out_of_memory(e);
    f->w.tokens = f->in->rules.around + f->w.head.tokens;
    for (size_t i = 0; i < f->w.n; i++) {
        set_quoted(f, &f->w.v[i].quotes, true);
        f->recalled += f->w.v[i].quotes.tokens;
        f->w.tokens += f->w.v[i].quotes.tokens + f->in->v[f->w.v[i].message].tokens;
    }
    for (size_t i = 0; i <= f->cut_at; i++)
        f->fixed += f->in->v[i].role == MEMORY_SYSTEM ? f->in->v[i].tokens : 0;
    if (!f->index)
        return 0;
    bm25_rewind(f->index, f->mark_at_cut, f->cut_at);
    return bm25_resize(f->index, f->in->n, e);
}

/* ---- */

static size_t last_question(const struct fold_input *in)
{
    size_t i = in->n;
    while (i > 0 && in->v[i - 1].role != MEMORY_USER)
        i--;
    return i > 0 ? i - 1 : 0;
}

static int run(struct folding *f, struct fold_state *from, struct err *e)
{
    const struct fold_input *in = f->in;
    const struct fold_rules *r = &in->rules;
    size_t i = 0;
    int rc = 0;
    f->is_quoted = arena_array(f->a, in->n, sizeof(*f->is_quoted));
    if (!f->is_quoted) {
        fold_state_free(from);
        return out_of_memory(e);
    }
    if (from) {
        i = from->cut_at + 1;
        rc = resume(f, from, e);
        rc = rc ? rc : recall(f, plan_room(&r->budget) - f->w.tokens, e);
    } else if (r->recall_turn > 0) {
        f->index = bm25_new(in->n);
        rc = f->index ? 0 : out_of_memory(e);
    }
    for (; rc == 0 && i < in->n; i++) {
        const struct fold_slot slot = {.message = i};
        rc = push(f, &slot, e);
        f->w.tokens += in->v[i].tokens;
        f->fixed += in->v[i].role == MEMORY_SYSTEM ? in->v[i].tokens : 0;
        if (rc == 0 && (is_user(f, i) || i + 1 == in->n))
            rc = settle(f, i, e);
    }
    return rc;
}

int fold_on(const struct fold_input *in, struct fold_state **state, struct arena *a,
            struct fold *ret, struct err *e)
{
    struct folding f = {
        .in = in, .a = a, .w.tokens = in->rules.around, .fixed = in->rules.around};
    struct fold result = {.n_cuts = 0};
    struct fold_state *from = *state;
    *state = NULL;
    arena_init(&f.arena, CUT_ARENA_BYTES);
    arena_init(&f.arena_before, CUT_ARENA_BYTES);
    int rc = run(&f, from, e);
    if (rc == 0) {
        result.n_cuts = f.n_cuts;
        result.is_cut_now = f.n_cuts > 0 && f.cut_at >= last_question(in);
        if (copy_window(a, &f.w, f.w.n, &result.now) ||
            (result.is_cut_now && copy_window(a, &f.before, f.before.n, &result.before)))
            rc = out_of_memory(e);
    }
    if (rc == 0)
        *state = save(&f);
    bm25_free(f.index);
    arena_done(&f.arena);
    arena_done(&f.arena_before);
    if (rc == 0)
        *ret = result;
    return rc;
}

int fold(const struct fold_input *in, struct arena *a, struct fold *ret, struct err *e)
{
    struct fold_state *state = NULL;
    int rc = fold_on(in, &state, a, ret, e);
    fold_state_free(state);
    return rc;
}
