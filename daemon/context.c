/*
 * See context.h: the order of steps, and the numbers that steer them.
 */
#include "daemon/context.h"

#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "daemon/config.h"
#include "daemon/prepare.h"
#include "daemon/window.h"

/* ---- policy ---- */

bool context_recalls(enum plan_strategy s)
{
    return s == PLAN_RETRIEVE || s == PLAN_AUTO;
}

bool context_summarises(enum plan_strategy s)
{
    return s == PLAN_SUMMARISE || s == PLAN_AUTO;
}

bool context_keeps_facts(enum plan_strategy s)
{
    return s == PLAN_SUMMARISE || s == PLAN_RETRIEVE || s == PLAN_AUTO;
}

int context_share(const struct history *h, int percent, int tokens_max)
{
    const int n = (int)((int64_t)h->ctx * percent / 100);
    return tokens_max > 0 && n > tokens_max ? tokens_max : n;
}

struct plan_budget context_budget(const struct history *h, int max_tokens)
{
    const int share = context_share(h, h->d->config->answer_reserve, 0);
    return (struct plan_budget){
        .limit = h->ctx - 1,
        .reserve = max_tokens > 0 ? max_tokens : share,
    };
}

enum plan_strategy context_strategy(const struct history *h, int64_t conversation)
{
    struct err e;
    enum plan_strategy s = PLAN_UNSET;
    static struct log_limit limit = {.burst = 3};
    if (conversation && memory_strategy_get(h->memory, conversation, &s, &e) && log_allowed(&limit))
        log_warn("a conversation's strategy could not be read: %s", e.text);
    if (s == PLAN_UNSET && !plan_strategy_parse(h->d->config->context, &s))
        s = PLAN_ERROR;
    return s;
}

/* ---- the steps ---- */

/* The window under a cut (memory_window_want.cut), with this turn's messages behind it. */
static int load(struct context *c, int64_t cut, struct http_error *ret)
{
    struct turn *t = c->t;
    int rc = 0;
    window_clear(t);
    if (c->instructions)
        rc = prepare_add(t, CHAT_SYSTEM, c->instructions, strlen(c->instructions), ret);
    if (rc == 0)
        rc = window_load(c->h, t, c->tip, cut, ret);
    for (size_t i = 0; rc == 0 && i < c->n_inputs; i++) {
        const struct memory_new_message *m = &c->inputs[i];
        rc = prepare_add(t, window_role(m->role), m->text, m->n_text, ret);
    }
    return rc;
}

/* The newest message, if it is a person's and came with this turn; else the window's length. */
static size_t question_of(const struct context *c)
{
    const struct turn_window *w = &c->t->window;
    const bool is_new = c->n_inputs > 0 && w->n > 0 && w->v[w->n - 1].role == CHAT_USER;
    return is_new ? w->n - 1 : w->n;
}

static int load_and_render(struct context *c, int64_t cut, struct http_error *ret)
{
    int rc = load(c, cut, ret);
    const size_t at = rc == 0 ? question_of(c) : 0;
    c->injected = (struct memory_context){.text = NULL};
    if (rc == 0 && at < c->t->window.n && c->conversation)
        rc = context_inject(c, at, ret);
    /* A client that sends its own copy of what was said: our words in it are read as the tokens we
     * wrote. */
    if (rc == 0 && c->tip == 0 && !c->conversation)
        rc = prepare_replies(c->h, c->t, ret);
    return rc ? rc : prepare_render(c->h, c->t, ret);
}

static bool fits(const struct context *c, int n_tokens)
{
    const struct plan_budget b = context_budget(c->h, c->t->params.max_tokens);
    return c->t->window.n_above == 0 && n_tokens <= plan_room(&b);
}

/* A cut that was being made ready: better than to make another; not of another strategy, whose head
 * may hold what this one lets go. */
static int use_prepared(struct context *c, bool *ret_has, struct http_error *ret)
{
    struct memory_cut cut;
    struct err e;
    *ret_has = false;
    int rc = memory_cut_prepared(c->h->memory, c->tip, &cut, &c->t->arena, &e);
    if (rc == 0 && cut.strategy != c->strategy)
        return 0;
    if (rc == 0)
        rc = memory_cut_ready(c->h->memory, cut.row, &e);
    if (rc == ERR_NOTFOUND)
        return 0;
    if (rc) {
        http_error_from(ret, &e);
        return rc;
    }
    *ret_has = true;
    return load_and_render(c, 0, ret);
}

/* The window as it would have been, for the receipt's account of the prefix. */
struct before {
    struct ids ids;
    int n_prefix; /* of it, what the turn before had */
};

static int keep_old(struct context *c, struct before *old, struct http_error *ret)
{
    old->n_prefix = prepare_prefix(c->h, c->t);
    c->t->receipt.n_above = c->t->window.n_above;
    if (ids_add(&old->ids, c->t->prompt.v, c->t->prompt.n) == 0)
        return 0;
    return http_out_of_memory(ret, "the window");
}

/* *ret_over: tokens by which the cut's window is too long; it is not in force then. What a plan
 * can't count is its own heading, and what will be quoted in the window that it leaves. */
static int cut_once(struct context *c, int head_less, int *ret_over, struct http_error *ret)
{
    struct memory_cut cut;
    struct err e;
    int64_t row;
    const struct context_cut request = {
        .head_less = head_less,
        .h = c->h,
        .t = c->t,
        .conversation = c->conversation,
        .anchor = c->tip,
        .strategy = c->strategy,
        .budget = context_budget(c->h, c->t->params.max_tokens),
    };
    int rc = context_cut_make(&request, &cut, ret);
    if (rc)
        return rc;
    if (memory_cut_add(c->h->memory, &cut, &row, &e)) {
        http_error_from(ret, &e);
        return e.code;
    }
    rc = load_and_render(c, row, ret);
    /* It is in force from here on; a request that is refused all the same leaves no trace of it. */
    const bool is_good = rc == 0 && (int)c->t->prompt.n <= request.budget.limit;
    *ret_over = rc == 0 ? (int)c->t->prompt.n - request.budget.limit : 0;
    if (is_good && memory_cut_ready(c->h->memory, row, &e)) {
        http_error_from(ret, &e);
        return e.code;
    }
    if (!is_good && memory_cut_remove(c->h->memory, row, &e))
        log_warn("a cut that isn't used could not be removed: %s", e.text);
    return rc;
}

#define CUT_TRIES 3

/* Where little may leave, the head gives way, and at last the quotes. */
static int cut_now(struct context *c, struct http_error *ret)
{
    int over = 0, less = 0;
    int rc = cut_once(c, 0, &over, ret);
    for (int i = 1; rc == 0 && over > 0 && i < CUT_TRIES; i++) {
        const bool is_last = i == CUT_TRIES - 1;
        less = is_last ? c->h->ctx : less + over;
        if ((rc = load_and_render(c, 0, ret)))
            return rc;
        c->is_recall_off = is_last;
        rc = cut_once(c, less, &over, ret);
    }
    return rc == 0 && over > 0 ? ERR_LIMIT : rc;
}

/* Cuts when the window is too long; ERR_NOTFOUND of the plan means that nothing can leave. */
static int shorten(struct context *c, struct before *old, struct http_error *ret)
{
    bool has_prepared = false;
    int rc = keep_old(c, old, ret);
    if (rc == 0)
        rc = use_prepared(c, &has_prepared, ret);
    if (rc || (has_prepared && fits(c, (int)c->t->prompt.n)))
        return rc;
    c->t->receipt.is_live_cut = true;
    rc = cut_now(c, ret);
    if (rc == 0)
        return 0;
    c->t->receipt.is_live_cut = false;
    if (rc != ERR_NOTFOUND && rc != ERR_LIMIT)
        return rc;
    /* As it was; whether it fits without the reserve is for prepare_fit to say. */
    return load_and_render(c, 0, ret);
}

static void account(struct context *c, const struct before *old)
{
    struct turn *t = c->t;
    const size_t n = (size_t)old->n_prefix;
    if (old->ids.n > 0) {
        t->receipt.before = (int)old->ids.n;
        t->receipt.prefix_kept = (int)ids_common(old->ids.v, n, t->prompt.v, t->prompt.n);
        t->receipt.prefix_lost = old->n_prefix - t->receipt.prefix_kept;
    }
    receipt_fill(c);
}

/* A window that wasn't loaded whole has more tokens than the model takes. */
static int check_whole(const struct context *c, struct http_error *ret)
{
    const struct turn *t = c->t;
    if (t->window.n_above == 0)
        return 0;
    http_error_set(ret, 400, "context_length_exceeded", "messages",
                   "the newest %zu messages have %zu tokens, and %zu stand above them; the window "
                   "has %d, of which the prompt may take %d",
                   t->window.n, t->prompt.n, t->window.n_above, c->h->ctx, c->h->ctx - 1);
    return ERR_LIMIT;
}

int context_prepare(struct context *c, struct http_error *ret_error)
{
    struct turn *t = c->t;
    struct before old = {.n_prefix = 0};
    const int64_t began = clock_us();
    ids_init(&old.ids);
    t->params.context = c->strategy;
    int rc = load_and_render(c, 0, ret_error);
    const bool may_cut = !c->is_counting && c->tip != 0 && c->strategy != PLAN_ERROR;
    if (rc == 0 && may_cut && !fits(c, (int)t->prompt.n))
        rc = shorten(c, &old, ret_error);
    if (rc == 0)
        rc = check_whole(c, ret_error);
    if (rc == 0)
        rc = prepare_fit(c->h, t, ret_error);
    if (rc == 0)
        account(c, &old);
    ids_done(&old.ids);
    t->stats.plan_us = clock_us() - began;
    return rc;
}
