/*
 * How a turn ends: the answer is durable before the last event says so, and a reply that could not
 * be stored says that instead.
 */
#include "daemon/turn_end.h"

#include "base/log.h"
#include "daemon/account.h"
#include "daemon/ahead.h"
#include "daemon/forget.h"
#include "daemon/room.h"
#include "daemon/served.h"
#include "daemon/wire.h"

static enum memory_status status_of(const struct turn *t)
{
    if (turn_finish_reason(t))
        return MEMORY_COMPLETE;
    /* The daemon's stop (503) cuts an answer like a client that leaves; other failures are the
     * turn's own. */
    return t->finish == TURN_CANCELED || t->error.status == 503 ? MEMORY_INTERRUPTED
                                                                : MEMORY_FAILED;
}

/* The row of the message in the window that position `at` of the turn belongs to, 0: it isn't
 * stored. Moves *i on. */
static int64_t row_at(const struct turn *t, size_t at, size_t *i)
{
    const struct turn_window *w = &t->window;
    const size_t n_before = w->n - t->store.n_inputs;
    while (*i < w->n && w->starts[*i + 1] <= at)
        ++*i;
    if (*i == w->n)
        return t->store.answer.row;
    return *i >= n_before ? t->store.inputs[*i - n_before].row : w->rows[*i];
}

/* In which message each of the turn's blocks ends; NULL: not known. */
static const int64_t *block_messages(struct turn *t)
{
    size_t i = 0;
    if (!t->window.starts || t->n_blocks == 0 || t->window.n < t->store.n_inputs)
        return NULL;
    int64_t *rows = arena_array(&t->arena, t->n_blocks, sizeof *rows);
    for (size_t b = 0; rows && b < t->n_blocks; b++)
        rows[b] = row_at(t, (b + 1) * KV_BLOCK - 1, &i);
    return rows;
}

static int store_answer(struct history *h, struct turn *t, struct err *e)
{
    struct memory_turn statistics = account_statistics(t);
    struct memory_answer answer = {
        .row = t->store.answer.row,
        .status = status_of(t),
        .text = t->text.data ? t->text.data : "",
        .n_text = t->text.len,
        .finish = turn_finish_word(t),
        .render = engine_info(h->engine)->render_id,
        .ids = t->out.v,
        .n_ids = turn_n_stored_ids(t, engine_tok(h->engine)),
        .turn = &statistics,
        .blocks = t->blocks,
        .block_messages = block_messages(t),
        .n_blocks = t->n_blocks,
    };
    answer.window = account_window(t, &answer.n_window_bytes);
    return memory_answer_end(h->memory, &answer, e);
}

/* The conversation was deleted while its answer was written: what the deletion couldn't remove, as
 * the turn held it, goes now. */
static void forget_late(struct history *h, struct turn *t)
{
    struct err e;
    struct memory_removed gone;
    if (t->n_blocks > 0 &&
        memory_blocks_gone(h->memory, t->blocks, t->n_blocks, &gone, &e) == 0)
        forget_removed(h, &gone);
}

/* A stateless client sends the text back as its history: the chain with the answer in it leads to
 * the ids. Nothing that the reply speaks of depends on it, so the reply goes first; the client's
 * next request is handled after this one in any case. */
static void store_reply(struct history *h, struct turn *t)
{
    struct err e;
    static struct log_limit limit = {.burst = 3};
    size_t n = t->store.is_reply ? turn_n_stored_ids(t, engine_tok(h->engine)) : 0;
    const bool has_all = t->thought.reasoning.len == 0 || t->api; /* else the answer alone */
    if (n == 0 || !has_all)
        return;
    memory_chain(t->store.chain, MEMORY_ASSISTANT, t->text.data, t->text.len);
    const struct memory_reply_key key = {.chain = t->store.chain,
                                         .render = engine_info(h->engine)->render_id};
    if (memory_reply_put(h->memory, t->owner, &key, t->out.v, n, &e) && log_allowed(&limit))
        log_warn("the token ids of a reply could not be stored: %s", e.text);
}

/* The disk is full, and the turn waits, once, for what the disk cache gives: it is the caller's no
 * more. */
static bool waits_for_room(struct history *h, struct turn *t, const struct err *e)
{
    if (e->code != ERR_FULL || t->has_waited_room)
        return false;
    t->has_waited_room = true;
    if (!room_ask(h, &t->mail))
        return false;
    h->n_turns_out++; /* it comes back as the worker gave it */
    t->served->n_out++;
    return true;
}

/* false: the turn waits and is ended later. */
static bool store(struct history *h, struct turn *t)
{
    struct err e;
    const bool is_wanted = t->store.is_on && !t->store.is_answered;
    const int rc = is_wanted ? store_answer(h, t, &e) : 0;
    t->store.is_answered |= is_wanted && rc == 0;
    if (rc) {
        if (waits_for_room(h, t, &e))
            return false;
        t->store.has_failed = t->store.is_uncounted = true;
        if (e.code == ERR_NOTFOUND) { /* deleted meanwhile */
            log_info("the answer %s isn't stored: %s", t->store.answer.id, e.text);
            forget_late(h, t);
        } else {
            log_error("the answer %s could not be stored: %s", t->store.answer.id, e.text);
        }
    }
    if (t->on_end && t->on_end(h, t, &e)) {
        if (waits_for_room(h, t, &e))
            return false;
        log_error("%s could not be stored: %s", t->id, e.text);
        t->store.has_failed = true;
    }
    return true;
}

static void reply(struct history *h, struct turn *t)
{
    struct daemon *d = h->d;
    struct buf b;
    enum reply_kind kind = t->params.is_stream ? REPLY_STREAM_END : REPLY_WHOLE;
    buf_init(&b, WIRE_BODY_BYTES);
    if (t->finish == TURN_FAILED && !t->params.is_stream) {
        wire_error(t, &b);
        reply_error_body(d, t->conn, t->error.status, &b, t->is_admitted);
        return;
    }
    if (t->finish == TURN_FAILED)
        t->wire->fail(t, &b);
    else if (t->finish != TURN_CANCELED && t->params.is_stream)
        t->wire->end(t, &b);
    else if (t->finish != TURN_CANCELED)
        t->wire->whole(t, &b);
    int status =
        t->finish == TURN_CANCELED && !t->params.is_stream ? 499 : 200; /* nobody reads a 499 */
    if (t->is_admitted)
        reply_post_last(d, kind, t->conn, status, &b);
    else
        reply_post(d, kind, t->conn, status, &b);
}

static void tell_log(const struct turn *t)
{
    const struct turn_stats *s = &t->stats;
    log_debug(
        "%s for %s: %s, %zu + %d tokens, %d cached, %d computed, first after %.1f ms, %d yields",
        t->id, t->owner, turn_finish_word(t), t->prompt.n, turn_n_completion(t), s->n_cached,
        s->n_computed, s->t_first ? wire_ms(s->t_first - s->t_arrived) : 0.0, s->n_yields);
}

/* Nobody waits for it. */
static void background_end(struct history *h, struct turn *t)
{
    struct err e;
    tell_log(t);
    if (t->on_end && t->on_end(h, t, &e))
        log_warn("%s: %s", t->id, e.text);
    turn_free(t);
}

void turn_end(struct history *h, struct turn *t)
{
    if (t->is_background) {
        background_end(h, t);
        return;
    }
    if (!t->has_waited_room)
        account_turn(h, t);
    if (!store(h, t))
        return;
    reply(h, t);
    store_reply(h, t);
    if (!t->store.is_on || t->store.is_uncounted)
        account_stateless(h, t);
    tell_log(t);
    ahead_consider(h, t);
    ahead_strip(h, t);
    atomic_fetch_add(&h->d->n.turns_done, 1);
    if (t->store.is_claimed)
        history_release(h, t->store.conversation);
    turn_free(t);
}

void turn_flush(struct history *h, struct turn_flush *f)
{
    struct err e;
    static struct log_limit limit = {.burst = 3};
    const struct turn_store *s = &f->turn->store;
    if (s->is_on && memory_answer_flush(h->memory, s->answer.row, f->text, f->n_text, &e)) {
        if (e.code == ERR_FULL)
            (void)room_ask(h, NULL); /* so that there is some by the turn's end */
        if (log_allowed(&limit))
            log_warn("a partial answer could not be stored: %s", e.text);
    }
    turn_flush_free(f);
}
