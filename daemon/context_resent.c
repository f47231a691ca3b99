/*
 * The window of a conversation that isn't stored: its client sends the whole of it with each
 * request. See context.h, and memory/fold.h for how the list is folded into a window.
 *
 *     list ─► rendered once, as text ─► it has room? as it is
 *                                  └──► fold: what is in, the head, quotes ─► rendered again
 *
 * The cuts must fall at the same places in the next request, whose list only goes on. So all that
 * the fold reads is the same then:
 *
 *   - Tokens are those of the texts, not of the ids that an answer was generated with: these are
 *     known or not, and only replace the text when the window is rendered.
 *   - The reserve for the answer is the configured share. A request that asks for more (max_tokens)
 *     gets it, in steps of an eighth of the window: clients that ask for the same each time, and
 *     for little now and then, keep their window.
 *   - Quotes have no date and don't look at the clock.
 *
 * What a list came to at its newest cut is kept in a book (daemon/resent_book.h), where the next
 * request goes on. One that was never seen costs as much as all of its cuts: each makes a head.
 *
 * Messages have no ids; the receipt names them by their place in the request: "#3".
 */
#include "daemon/context.h"

#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "daemon/prepare.h"
#include "daemon/resent_book.h"
#include "daemon/window.h"
#include "memory/facts.h"
#include "memory/fold.h"
#include "memory/search.h"

#define RESERVE_STEPS 8
#define QUOTES_BYTES_MAX (256u << 10)
/* What a text takes beside its own tokens where it is joined to another: a blank line; and the
 * markup of a system message that wouldn't be there without the head. */
#define JOINT_TOKENS 2
#define MARKUP_TOKENS 8

struct resent {
    struct history *h;
    struct turn *t;
    size_t n_before;
    struct chat_message *v;     /* [n] the list, as it came */
    struct fold_message *said;  /* [n] */
    size_t n;
    struct fold fold;
};

/* ---- the hands of the fold ---- */

static int make_head(void *user, const struct fold_leaving *l, struct arena *a,
                     struct fold_head *ret, struct err *e)
{
    const struct resent *s = user;
    const struct memory_pins no_pins = {.n = 0};
    struct memory_cut cut = {.n_head = 0};
    struct facts *list = arena_array(a, 1, sizeof *list);
    if (!list)
        return err_set(e, ERR_NOMEM, "out of memory for the head of a window");
    const struct context_head in = {
        .left = l->v,
        .n_left = l->n,
        .opening = CONTEXT_OPENING_MESSAGES,
        .pins = &no_pins,
        .old_summary = l->old ? l->old->summary : NULL,
        .n_old_summary = l->old ? l->old->n_summary : 0,
        .old_facts = l->old ? l->old->facts : NULL,
        .n_old_facts = l->old ? l->old->n_facts : 0,
        .old_list = l->old ? l->old->kept : NULL,
        .ret_list = list,
        .strategy = s->t->params.context,
        .max_tokens = l->max_tokens,
    };
    int rc = context_head_make(s->h, a, &in, &cut, e);
    const int n = rc == 0 && cut.n_head > 0 ? window_count(s->h, cut.head, cut.n_head) : 0;
    if (rc || n < 0)
        return rc ? rc : err_set(e, n, "the head of a window can't be counted");
    /* They may be the old ones, handed on, which end before this head does. */
    cut.summary = arena_copy(a, cut.summary ? cut.summary : "", cut.n_summary);
    cut.facts = arena_copy(a, cut.facts ? cut.facts : "", cut.n_facts);
    if (!cut.summary || !cut.facts)
        return err_set(e, ERR_NOMEM, "out of memory for the head of a window");
    *ret = (struct fold_head){
        .text = cut.head,
        .n_text = cut.n_head,
        .tokens = n > 0 ? n + JOINT_TOKENS + (s->v[0].role == CHAT_SYSTEM ? 0 : MARKUP_TOKENS) : 0,
        .summary = cut.summary,
        .n_summary = cut.n_summary,
        .facts = cut.facts,
        .n_facts = cut.n_facts,
        .kept = list,
    };
    return 0;
}

/* As hits of a search, whose rows are places in the list, plus 1. */
static void to_hits(const struct resent *s, const struct fold_recall *r, struct memory_hit *v,
                    struct memory_hits *ret)
{
    for (size_t i = 0; i < r->n; i++) {
        const struct fold_message *m = &s->said[r->hits[i].text];
        v[i] = (struct memory_hit){
            .row = (int64_t)r->hits[i].text + 1,
            .role = m->role,
            .text = m->text,
            .n_text = m->n_text,
            .score = r->hits[i].score,
            .why = r->hits[i].has_terms ? MEMORY_WHY_TERMS : MEMORY_WHY_NEIGHBOUR,
        };
    }
    *ret = (struct memory_hits){.v = v, .n = r->n};
}

static int make_quotes(void *user, const struct fold_recall *r, struct arena *a,
                       struct fold_quotes *ret, struct err *e)
{
    const struct resent *s = user;
    const struct fold_message *question = &s->said[r->message];
    const struct memory_query q = {.owner = s->t->owner,
                                   .text = question->text,
                                   .n_text = question->n_text,
                                   .limit = FOLD_QUOTES_MAX};
    struct memory_hit v[FOLD_QUOTES_MAX];
    struct memory_hits hits;
    struct context_quote quotes[FOLD_QUOTES_MAX];
    struct buf text;
    to_hits(s, r, v, &hits);
    const struct context_quoting asked = {
        .h = s->h, .q = &q, .hits = &hits, .budget = r->max_tokens - JOINT_TOKENS,
        .index = r->index};
    buf_init(&text, QUOTES_BYTES_MAX);
    const size_t n = context_quote(&asked, &text, quotes, FOLD_QUOTES_MAX);
    int rc = buf_error(&text);
    const int tokens = rc == 0 && n > 0 ? window_count(s->h, text.data, text.len) : 0;
    const char *copy = rc == 0 && n > 0 ? arena_copy(a, text.data, text.len) : NULL;
    if (rc == 0 && tokens >= 0 && copy) {
        *ret = (struct fold_quotes){
            .text = copy, .n_text = text.len, .tokens = tokens + JOINT_TOKENS, .n = n};
        for (size_t i = 0; i < n; i++) {
            ret->v[i] = r->hits[quotes[i].hit].text;
            ret->each[i] = quotes[i].tokens;
        }
    } else if (rc || n > 0) {
        rc = err_set(e, ERR_NOMEM, "out of memory for quotes");
    }
    buf_done(&text);
    return rc;
}

/* ---- the rules ---- */

/* What is kept free for the answer: see above. */
static struct plan_budget budget_of(const struct resent *s)
{
    struct plan_budget b = context_budget(s->h, 0);
    const int step = b.limit / RESERVE_STEPS > 0 ? b.limit / RESERVE_STEPS : 1;
    const int asked = s->t->params.max_tokens < b.limit ? s->t->params.max_tokens : b.limit;
    if (asked > b.reserve)
        b.reserve = (asked + step - 1) / step * step;
    return b;
}

/* Of the rules, of who asks and of each beginning of the list. NULL: no memory. */
static uint8_t (*chains_of(const struct resent *s, const struct fold_rules *r))[HASH_BYTES]
{
    uint8_t chain[HASH_BYTES] = {0};
    uint8_t(*v)[HASH_BYTES] = arena_array(&s->t->arena, s->n, sizeof *v);
    const int rules[] = {(int)r->strategy,  r->budget.limit, r->budget.reserve, r->budget.target,
                         r->budget.head_tokens, r->around,   r->recall_turn,    r->recall_all,
                         (int)s->n_before};
    memory_chain(chain, MEMORY_SYSTEM, s->t->owner, strlen(s->t->owner));
    memory_chain(chain, MEMORY_SYSTEM, (const char *)rules, sizeof rules);
    memory_chain(chain, MEMORY_SYSTEM, (const char *)engine_info(s->h->engine)->render_id,
                 HASH_BYTES);
    for (size_t i = 0; v && i < s->n; i++) {
        memory_chain(chain, s->said[i].role, s->said[i].text, s->said[i].n_text);
        memcpy(v[i], chain, HASH_BYTES);
    }
    return v;
}

/* From where the list's newest known beginning left off. */
static int fold_from_book(struct resent *s, const struct fold_input *in, struct err *e)
{
    uint8_t(*chains)[HASH_BYTES] = chains_of(s, &in->rules);
    size_t n_bytes = 0;
    if (!chains)
        return err_set(e, ERR_NOMEM, "out of memory for the window");
    for (size_t i = 0; i < s->n; i++)
        n_bytes += s->said[i].n_text;
    struct fold_state *state = resent_book_take(s->h->resent, chains, s->n);
    int rc = fold_on(in, &state, &s->t->arena, &s->fold, e);
    if (state)
        resent_book_keep(&s->h->resent, chains, state, n_bytes);
    return rc;
}

static int fold_list(struct resent *s, struct http_error *ret)
{
    struct turn *t = s->t;
    const struct turn_window *w = &t->window;
    const enum plan_strategy strategy = t->params.context;
    struct err e;
    s->said = arena_array(&t->arena, s->n, sizeof *s->said);
    if (!s->said)
        return http_out_of_memory(ret, "the window");
    for (size_t i = 0; i < s->n; i++)
        s->said[i] = (struct fold_message){.role = prepare_role(s->v[i].role),
                                           .text = s->v[i].text,
                                           .n_text = s->v[i].n_text,
                                           .tokens = window_tokens(t, i)};
    struct fold_input in = {
        .v = s->said,
        .n = s->n,
        .rules = {.strategy = strategy,
                  .budget = budget_of(s),
                  .around = (int)(w->starts[0] + (t->prompt.n - w->starts[w->n]))},
        .hands = {.head = make_head, .quote = make_quotes, .user = s},
    };
    in.rules.budget.head_tokens = context_wished_head(s->h, strategy);
    if (context_recalls(strategy)) {
        in.rules.recall_turn = context_share(s->h, CONTEXT_RECALL_TURN_PERCENT, 0);
        in.rules.recall_all = context_share(s->h, CONTEXT_RECALL_ALL_PERCENT, 0);
    }
    int rc = fold_from_book(s, &in, &e);
    if (rc == ERR_LIMIT)
        http_error_set(ret, 400, "context_length_exceeded", "messages", "%s", e.text);
    else if (rc)
        http_error_from(ret, &e);
    return rc;
}

/* ---- the window ---- */

/* A message of the list, with its ids unless they are to be left out. */
static int add_slot(const struct resent *s, struct turn *t, const struct fold_slot *slot,
                    bool with_ids, struct http_error *ret)
{
    const struct chat_message *m = &s->v[slot->message];
    const struct memory_context quotes = {.text = slot->quotes.text,
                                          .n_text = slot->quotes.n_text};
    int rc = prepare_add(t, m->role, m->text, m->n_text, ret);
    if (rc)
        return rc;
    const size_t at = t->window.n - 1;
    if (with_ids) {
        t->window.v[at].ids = m->ids;
        t->window.v[at].n_ids = m->n_ids;
    }
    return window_inject(t, at, &quotes, ret);
}

/* The window in t, rendered. */
static int build(const struct resent *s, const struct fold_window *w, struct turn *t, bool with_ids,
                 struct http_error *ret)
{
    size_t i = 0;
    int rc = 0;
    window_clear(t);
    t->window.cap = 0; /* the list stays as it is */
    t->window.has_cut = w->has_cut;
    t->window.cut =
        (struct memory_cut){.head = w->head.text, .n_head = w->head.n_text};
    for (; rc == 0 && i < w->n && s->v[w->v[i].message].role == CHAT_SYSTEM; i++)
        rc = add_slot(s, t, &w->v[i], with_ids, ret);
    if (rc == 0)
        rc = window_add_head(s->h, t, ret);
    for (; rc == 0 && i < w->n; i++)
        rc = add_slot(s, t, &w->v[i], with_ids, ret);
    return rc ? rc : prepare_render(s->h, t, ret);
}

/* With the ids of the answers in it: those that they were generated with, if the prompt fits with
 * them; the fold has counted the texts. */
static int build_now(struct resent *s, struct http_error *ret)
{
    struct turn *t = s->t;
    bool *wanted = arena_array(&t->arena, s->n, sizeof *wanted);
    if (!wanted)
        return http_out_of_memory(ret, "the window");
    for (size_t i = 0; i < s->fold.now.n; i++)
        wanted[s->fold.now.v[i].message] = true;
    for (size_t i = 0; s->fold.is_cut_now && i < s->fold.before.n; i++)
        wanted[s->fold.before.v[i].message] = true;
    int rc = prepare_replies_of(s->h, t, wanted, ret);
    if (rc == 0)
        rc = build(s, &s->fold.now, t, true, ret);
    if (rc == 0 && (int)t->prompt.n >= s->h->ctx)
        rc = build(s, &s->fold.now, t, false, ret);
    return rc;
}

/* ---- the receipt ---- */

static void add_change(struct resent *s, struct turn_changes *list, size_t message, int tokens)
{
    char id[MEMORY_ID_BYTES];
    snprintf(id, sizeof id, "#%zu", message + 1 - s->n_before);
    receipt_add(s->t, list, id, tokens);
}

/* What the window of the turn before was, for the account of the prefix. Without it nothing is told
 * of that. */
static void compare(struct resent *s)
{
    struct turn_receipt *r = &s->t->receipt;
    struct http_error error = {.status = 0};
    struct turn *old = turn_new_background(s->h, s->t->owner, s->t->cancel);
    if (old && build(s, &s->fold.before, old, true, &error) == 0) {
        const int had = prepare_prefix(s->h, old);
        r->before = (int)old->prompt.n;
        r->prefix_kept = (int)ids_common(old->prompt.v, (size_t)had, s->t->prompt.v,
                                         s->t->prompt.n);
        r->prefix_lost = had - r->prefix_kept;
    }
    turn_free(old);
}

/* Who resends everything has no reply before this one, as far as we know: what is told is all of
 * the list that isn't in the window, whenever it left. */
static void account(struct resent *s)
{
    struct turn_receipt *r = &s->t->receipt;
    const struct fold_window *w = &s->fold.now;
    struct turn_changes *left =
        context_summarises(s->t->params.context) ? &r->summarised : &r->dropped;
    size_t next = 0;
    for (size_t i = 0; i < s->n; i++) {
        if (next < w->n && w->v[next].message == i) {
            next++;
            continue;
        }
        add_change(s, left, i, s->said[i].tokens);
    }
    for (size_t i = 0; i < w->n; i++) {
        const struct fold_quotes *q = &w->v[i].quotes;
        struct turn_changes *list = i + 1 == w->n ? &r->recalled_new : &r->recalled_kept;
        for (size_t k = 0; k < q->n; k++)
            add_change(s, list, q->v[k], q->each[k]);
    }
    r->is_live_cut = s->fold.is_cut_now;
    if (r->is_live_cut)
        compare(s);
}

/* ---- */

static int resend(struct resent *s, struct http_error *ret)
{
    int rc = fold_list(s, ret);
    if (rc == 0)
        rc = build_now(s, ret);
    if (rc == 0)
        rc = prepare_fit(s->h, s->t, ret);
    if (rc == 0)
        account(s);
    return rc;
}

static int window_of_list(struct resent *s, struct http_error *ret)
{
    const struct plan_budget budget = budget_of(s);
    int rc = 0;
    if (s->t->params.context != PLAN_ERROR) {
        rc = prepare_render(s->h, s->t, ret);
        if (rc)
            return rc;
        if ((int)s->t->prompt.n > plan_room(&budget))
            return resend(s, ret);
    }
    rc = prepare_replies(s->h, s->t, ret);
    return rc ? rc : prepare_prompt(s->h, s->t, ret);
}

int context_resent(struct history *h, struct turn *t, size_t n_before, struct http_error *ret_error)
{
    struct resent s = {
        .h = h, .t = t, .n_before = n_before, .v = t->window.v, .n = t->window.n};
    const int64_t began = clock_us();
    const int rc = window_of_list(&s, ret_error);
    t->stats.plan_us = clock_us() - began;
    return rc;
}
