/*
 * See ahead.h.
 */
#include "daemon/ahead.h"

#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "daemon/ahead_summary.h"
#include "daemon/config.h"
#include "daemon/context.h"
#include "daemon/forget.h"
#include "daemon/prepare.h"
#include "daemon/window.h"

int ahead_jobs(const struct history *h)
{
    int n = 0;
    for (const struct ahead *a = h->aheads; a; a = a->next)
        n++;
    return n;
}

static bool is_on_it(const struct history *h, int64_t conversation)
{
    for (const struct ahead *a = h->aheads; a; a = a->next)
        if (a->conversation == conversation)
            return true;
    return false;
}

static void job_free(struct ahead *a)
{
    if (!a)
        return;
    cancel_unref(a->cancel);
    buf_done(&a->summary);
    free(a->owner);
    free(a);
}

static void job_end(struct history *h, struct ahead *a)
{
    for (struct ahead **at = &h->aheads; *at; at = &(*at)->next)
        if (*at == a) {
            *at = a->next;
            break;
        }
    job_free(a);
}

static struct ahead *job_new(struct history *h, const char *owner, int64_t conversation)
{
    struct ahead *a = calloc(1, sizeof *a);
    if (!a)
        return NULL;
    buf_init(&a->summary, AHEAD_SUMMARY_BYTES);
    a->owner = strdup(owner);
    a->cancel = cancel_new();
    a->conversation = conversation;
    if (!a->owner || !a->cancel) {
        job_free(a);
        return NULL;
    }
    a->next = h->aheads;
    h->aheads = a;
    return a;
}

void ahead_cancel(struct history *h, int64_t conversation)
{
    for (struct ahead *a = h->aheads; a; a = a->next)
        if (conversation == 0 || a->conversation == conversation)
            atomic_store(&a->cancel->is_set, 1);
}

void ahead_settle(struct history *h, const struct ahead *a, const struct turn *t)
{
    struct err e;
    struct memory_removed gone;
    const bool is_deleted = atomic_load(&a->cancel->is_set) != 0;
    int rc = 0;
    if (a->conversation == 0 || t->n_blocks == 0)
        return;
    if (!is_deleted)
        rc = memory_blocks_add(h->memory, a->conversation, t->blocks, t->n_blocks, &e);
    else if ((rc = memory_blocks_gone(h->memory, t->blocks, t->n_blocks, &gone, &e)) == 0)
        forget_removed(h, &gone);
    if (rc)
        log_warn("%zu blocks that were read ahead are in no account: %s", t->n_blocks, e.text);
}

/* ---- warming ---- */

/* The row that the conversation has gone on to since the job began; 0: none, or an answer is being
 * written, which looks after it when it ends. */
static int64_t tip_since(struct history *h, const struct ahead *a)
{
    struct memory_conversation c;
    struct memory_message tip;
    struct arena arena;
    struct err e;
    arena_init(&arena, TURN_ARENA_BYTES);
    int rc = memory_conversation_by_row(h->memory, a->conversation, &c, &arena, &e);
    if (rc == 0 && c.tip)
        rc = memory_message_by_row(h->memory, c.tip, &tip, &arena, &e);
    const bool is_since = rc == 0 && c.tip != a->anchor && tip.status != MEMORY_GENERATING;
    arena_done(&arena);
    return is_since ? c.tip : 0;
}

static int warm_done(struct history *h, struct turn *t, struct err *e)
{
    struct ahead *a = t->api;
    int rc = 0;
    const bool is_warm = t->finish == TURN_LENGTH && !turn_is_canceled(t);
    const int64_t conversation = a->conversation, tip = is_warm && a->cut ? tip_since(h, a) : 0;
    if (is_warm && a->cut)
        rc = memory_cut_ready(h->memory, a->cut, e);
    if (rc == ERR_NOTFOUND) /* deleted meanwhile */
        rc = 0;
    ahead_settle(h, a, t);
    job_end(h, a);
    if (tip && rc == 0 && !h->is_stopping)
        ahead_warm(h, t->owner, conversation, tip);
    return rc;
}

/* The window's own segments, without the head of an answer. */
static int warm(struct history *h, struct ahead *a, struct http_error *error)
{
    struct turn *t = turn_new_background(h, a->owner, a->cancel);
    if (!t)
        return ERR_NOMEM;
    int rc = window_load(h, t, a->anchor, a->cut, error);
    if (rc == 0)
        rc = prepare_render(h, t, error);
    if (rc == 0 && (int)t->window.starts[t->window.n] > h->ctx - 1) {
        http_error_set(error, 400, "context_length_exceeded", NULL, "the cut's window is too long");
        rc = ERR_LIMIT;
    }
    if (rc) {
        turn_free(t);
        return rc;
    }
    t->prompt.n = t->window.starts[t->window.n];
    t->who = (uint64_t)a->conversation;
    t->api = a;
    t->on_end = warm_done;
    history_submit(h, t);
    return 0;
}

void ahead_warm(struct history *h, const char *owner, int64_t conversation, int64_t tip)
{
    struct http_error error = {.status = 0};
    if (is_on_it(h, conversation) || ahead_jobs(h) >= AHEAD_JOBS_MAX)
        return;
    struct ahead *a = job_new(h, owner, conversation);
    if (!a)
        return;
    a->anchor = tip;
    if (warm(h, a, &error)) {
        log_warn("a window could not be read ahead: %s", error.message);
        job_end(h, a);
    }
}

/* ---- an answer without its thought ---- */

/* A copy in a's arena: the turn it is of ends first. */
static int copy_message(struct turn *to, const struct chat_message *m, struct http_error *error)
{
    const char *text = arena_copy(&to->arena, m->text, m->n_text);
    const struct ids ids = {.v = (int32_t *)m->ids, .n = m->n_ids};
    int rc = text ? prepare_add(to, m->role, text, m->n_text, error) : ERR_NOMEM;
    return rc ? rc : prepare_set_ids(to, to->window.n - 1, &ids, error);
}

/* The window with the answer, as far as it is the same in the next turn: up to its user message. */
static int fill_strip(struct history *h, struct turn *to, const struct turn *t,
                      struct http_error *error)
{
    struct chat_message answer = {.role = CHAT_ASSISTANT, .text = t->text.data,
                                  .n_text = t->text.len};
    const struct chat_message next = {.role = CHAT_USER, .text = "x", .n_text = 1};
    int rc = 0;
    if (!t->store.is_on)
        answer.text = turn_answer(t, &answer.n_text); /* that is what the client has */
    for (size_t i = 0; i < t->window.n && rc == 0; i++)
        rc = copy_message(to, &t->window.v[i], error);
    if (rc == 0)
        rc = copy_message(to, &answer, error);
    if (rc == 0)
        rc = copy_message(to, &next, error);
    to->began_at = t->began_at || !t->store.is_on ? t->began_at : t->created_at;
    to->params.thinking = t->params.thinking;
    to->who = t->who;
    return rc ? rc : prepare_render(h, to, error);
}

void ahead_strip(struct history *h, const struct turn *t)
{
    struct http_error error = {.status = 0};
    const int64_t conversation = t->store.is_on ? t->store.conversation : 0;
    if (t->thought.reasoning.len == 0 || t->window.n == 0 || !t->params.use_cache ||
        t->finish == TURN_FAILED || t->store.has_failed || h->is_stopping ||
        ahead_jobs(h) >= AHEAD_JOBS_MAX || (conversation && is_on_it(h, conversation)))
        return;
    struct ahead *a = job_new(h, t->owner, conversation);
    struct turn *to = a ? turn_new_background(h, a->owner, a->cancel) : NULL;
    int rc = to ? fill_strip(h, to, t, &error) : ERR_NOMEM;
    const size_t n = rc == 0 ? to->window.starts[to->window.n - 1] : 0;
    if (rc || n == 0 || n > (size_t)h->ctx - 1) {
        turn_free(to);
        if (a)
            job_end(h, a);
        return;
    }
    to->prompt.n = n;
    to->api = a;
    to->on_end = warm_done;
    history_submit(h, to);
}

/* ---- the cut ---- */

/* Plans and stores the cut, and begins to read what it leaves. */
static int cut(struct history *h, struct ahead *a, struct http_error *error)
{
    struct memory_cut made;
    struct err e;
    struct turn *t = turn_new_background(h, a->owner, a->cancel);
    if (!t)
        return ERR_NOMEM;
    const struct context_cut request = {
        .h = h,
        .t = t,
        .conversation = a->conversation,
        .anchor = a->anchor,
        .strategy = a->strategy,
        .budget = context_budget(h, a->max_tokens),
        .summary = a->summary.len > 0 ? a->summary.data : NULL,
        .n_summary = a->summary.len,
    };
    int rc = window_load(h, t, a->anchor, 0, error);
    if (rc == 0)
        rc = prepare_render(h, t, error);
    if (rc == 0)
        rc = context_cut_make(&request, &made, error);
    if (rc == 0 && (rc = memory_cut_add(h->memory, &made, &a->cut, &e)))
        http_error_from(error, &e);
    turn_free(t);
    if (rc == 0)
        rc = warm(h, a, error);
    if (rc == ERR_LIMIT && a->cut && memory_cut_remove(h->memory, a->cut, &e))
        log_warn("a cut that is too long could not be removed: %s", e.text);
    return rc;
}

void ahead_cut(struct history *h, struct ahead *a)
{
    struct http_error error = {.status = 0};
    int rc = atomic_load(&a->cancel->is_set) ? ERR_CANCELED : cut(h, a, &error);
    if (rc == 0)
        return;
    /* What doesn't fit now may fit when the next message is there, with a smaller head. */
    if (rc != ERR_NOTFOUND && rc != ERR_CANCELED && rc != ERR_LIMIT)
        log_warn("a cut could not be made ahead: %s", error.message);
    job_end(h, a);
}

/* ---- whether ---- */

/* What each turn of the window added: from a question to the next one. */
static int typical(const struct turn *t, struct arena *a, int *ret, struct err *e)
{
    const struct turn_window *w = &t->window;
    int *turns = arena_array(a, w->n + 1, sizeof *turns);
    size_t n = 0, begin = 0;
    bool has_begun = false;
    if (!turns)
        return err_set(e, ERR_NOMEM, "out of memory");
    for (size_t i = 0; i < w->n; i++) {
        if (w->v[i].role != CHAT_USER)
            continue;
        if (has_begun)
            turns[n++] = (int)(w->starts[i] - begin);
        begin = w->starts[i];
        has_begun = true;
    }
    if (has_begun)
        turns[n++] = (int)(t->prompt.n + t->out.n - begin);
    return plan_typical(turns, n, ret, a, e);
}

/* Whether a cut came into force while the answer was written, made ready or by hand: what the turn
 * has read isn't the next one's window then. */
static bool is_cut_since(const struct history *h, const struct turn *t)
{
    struct memory_cut cut;
    struct arena a;
    struct err e;
    arena_init(&a, TURN_ARENA_BYTES);
    const int rc = memory_cut_find(h->memory, t->store.answer.row, &cut, &a, &e);
    const bool is = rc == 0 && cut.row != (t->window.has_cut ? t->window.cut.row : 0);
    arena_done(&a);
    return is;
}

/* Tokens of the window in force up to the answer; < 0: an error. */
static int count_window(struct history *h, const struct turn *t)
{
    struct http_error error = {.status = 0};
    struct turn *now = turn_new_background(h, t->owner, t->cancel);
    int n = now ? window_load(h, now, t->store.answer.row, 0, &error) : ERR_NOMEM;
    if (n == 0)
        n = prepare_render(h, now, &error);
    if (n == 0)
        n = (int)now->window.starts[now->window.n];
    turn_free(now);
    return n;
}

static bool must_cut(const struct history *h, const struct turn *t, int n_window)
{
    struct arena a;
    struct err e;
    int next = 0;
    const struct plan_budget budget = context_budget(h, t->params.max_tokens);
    arena_init(&a, TURN_ARENA_BYTES);
    int rc = typical(t, &a, &next, &e);
    arena_done(&a);
    return rc == 0 && n_window >= 0 && plan_needs_cut(&budget, n_window, next);
}

void ahead_consider(struct history *h, const struct turn *t)
{
    const struct turn_store *s = &t->store;
    if (t->params.context <= PLAN_ERROR || !s->is_on || s->has_failed || h->is_stopping ||
        !t->params.use_cache || t->finish == TURN_FAILED || t->window.n == 0)
        return;
    if (is_on_it(h, s->conversation) || ahead_jobs(h) >= AHEAD_JOBS_MAX)
        return;
    const bool is_new = is_cut_since(h, t);
    if (!must_cut(h, t, is_new ? count_window(h, t) : (int)(t->prompt.n + t->out.n))) {
        if (is_new) /* this turn's messages aren't read behind the new head yet */
            ahead_warm(h, t->owner, s->conversation, s->answer.row);
        return;
    }
    struct ahead *a = job_new(h, t->owner, s->conversation);
    if (!a)
        return;
    a->anchor = s->answer.row;
    a->strategy = t->params.context;
    a->max_tokens = t->params.max_tokens;
    if (ahead_is_by_model(h, a->strategy))
        ahead_summarise(h, a);
    else
        ahead_cut(h, a);
}
