/*
 * The life of struct turn: made from a request, asked by everyone, freed by the history thread.
 */
#include "daemon/turn.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "daemon/history.h"
#include "daemon/wire.h"

static struct turn *make(const struct history *h, const char *owner, struct cancel *cancel,
                         const char *id_prefix)
{
    struct turn *t = calloc(1, sizeof *t);
    if (!t)
        return NULL;
    const struct engine_info *info = engine_info(h->engine);
    arena_init(&t->arena, TURN_ARENA_BYTES);
    ids_init(&t->prompt);
    ids_init(&t->out);
    buf_init(&t->text, TURN_TEXT_BYTES);
    thought_init(&t->thought, TURN_TEXT_BYTES);
    t->cancel = cancel_ref(cancel);
    t->owner = arena_str(&t->arena, owner);
    t->model = arena_str(&t->arena, info->id);
    t->served = h->served;
    t->created_at = clock_wall_s();
    t->stats.miss_at_message = -1;
    t->params.sample = sample_neutral;
    t->params.use_cache = h->d->config->use_cache;
    t->window.head_at = -1;
    random_id(id_prefix, t->id);
    if (t->owner && t->model)
        return t;
    turn_free(t);
    return NULL;
}

struct turn *turn_new(const struct history *h, const struct request *r, const struct wire *wire,
                      const char *id_prefix)
{
    struct turn *t = make(h, r->owner, r->cancel, id_prefix);
    if (!t)
        return NULL;
    t->conn = r->conn;
    t->is_admitted = r->is_turn;
    t->wire = wire;
    t->stats.t_arrived = r->t_arrived_us;
    return t;
}

struct turn *turn_new_background(const struct history *h, const char *owner, struct cancel *cancel)
{
    struct turn *t = make(h, owner, cancel, "ahead_");
    if (!t)
        return NULL;
    t->is_background = true;
    t->stats.t_arrived = clock_us();
    return t;
}

void turn_free(struct turn *t)
{
    if (!t)
        return;
    cancel_unref(t->cancel);
    ids_done(&t->prompt);
    ids_done(&t->out);
    buf_done(&t->text);
    thought_done(&t->thought);
    free(t->blocks);
    arena_done(&t->arena);
    free(t);
}

void turn_flush_free(struct turn_flush *f)
{
    if (!f)
        return;
    free(f->text);
    free(f);
}

bool turn_is_canceled(const struct turn *t)
{
    return atomic_load(&t->cancel->is_set) != 0;
}

bool turn_is_warming(const struct turn *t)
{
    return t->is_background && t->max_tokens == 0;
}

void turn_fail(struct turn *t, int status, const char *code, const char *fmt, ...)
{
    char text[sizeof t->error.message];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    t->finish = TURN_FAILED;
    http_error_set(&t->error, status, code, NULL, "%s", text);
}

const char *turn_finish_reason(const struct turn *t)
{
    switch (t->finish) {
    case TURN_EOG:
    case TURN_STOPPED:
        return "stop";
    case TURN_LENGTH:
        return "length";
    default:
        return NULL;
    }
}

const char *turn_finish_word(const struct turn *t)
{
    const char *reason = turn_finish_reason(t);
    if (reason)
        return reason;
    return t->finish == TURN_CANCELED ? "canceled" : "error";
}

int turn_n_completion(const struct turn *t)
{
    return (int)t->out.n;
}

const char *turn_answer(const struct turn *t, size_t *ret_n)
{
    const struct buf *b = t->thought.stage == THOUGHT_OFF ? &t->text : &t->thought.answer;
    *ret_n = b->len;
    return b->data ? b->data : "";
}

size_t turn_n_stored_ids(const struct turn *t, const struct tok *tok)
{
    size_t at = 0, i;
    for (i = 0; i < t->out.n; i++) {
        size_t n;
        const char *piece = tok_piece(tok, t->out.v[i], &n);
        /* A control token in an answer would be a control token in the next prompt's content. */
        if (!piece || tok_is_control(tok, t->out.v[i]) || tok_is_eog(tok, t->out.v[i]))
            break;
        if (n > t->text.len - at || memcmp(piece, t->text.data + at, n) != 0)
            break;
        at += n;
    }
    return i;
}
