/* See ahead_import.h. */
#include "daemon/ahead_import.h"

#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "daemon/above.h"
#include "daemon/context.h"
#include "daemon/prepare.h"
#include "daemon/window.h"

/* Beside what above.h sums up, what a window holds: both are read from the same place on. */
#define START_BYTES(h) (ABOVE_BYTES + (size_t)(h)->ctx * 16)

struct ahead_import {
    struct ahead_import *next;
    char *owner;
    int64_t conversation;
    size_t n_bytes; /* that were added since its newest piece */
};

static void job_free(struct ahead_import *a)
{
    free(a->owner);
    free(a);
}

void ahead_import_free(struct history *h)
{
    while (h->imports) {
        struct ahead_import *a = h->imports;
        h->imports = a->next;
        job_free(a);
    }
}

void ahead_import_note(struct history *h, const char *owner, int64_t conversation, size_t n_bytes)
{
    struct ahead_import **at = &h->imports;
    int n = 0;
    while (*at && (*at)->conversation != conversation) {
        at = &(*at)->next;
        n++;
    }
    if (*at) {
        (*at)->n_bytes += n_bytes;
        return;
    }
    struct ahead_import *a = n < AHEAD_IMPORTS_MAX ? calloc(1, sizeof *a) : NULL;
    if (a && !(a->owner = strdup(owner))) {
        free(a);
        a = NULL;
    }
    if (!a)
        return; /* its first turn cuts */
    a->conversation = conversation;
    a->n_bytes = n_bytes;
    *at = a;
}

bool ahead_import_has_work(const struct history *h)
{
    return h->imports && h->engine && h->n_turns_out == 0 && !h->is_stopping;
}

/* More than a window. */
static size_t piece_bytes(const struct history *h)
{
    return AHEAD_IMPORT_PIECE_BYTES + (size_t)h->ctx * 4;
}

/* The first of those that have most to do. */
static struct ahead_import **next_job(struct history *h)
{
    struct ahead_import **best = &h->imports;
    for (struct ahead_import **at = &h->imports; *at; at = &(*at)->next)
        if ((*at)->n_bytes > (*best)->n_bytes && (*at)->n_bytes >= piece_bytes(h))
            best = at;
    return best;
}

bool ahead_import_is_due(const struct history *h)
{
    if (!ahead_import_has_work(h))
        return false;
    for (const struct ahead_import *a = h->imports; a; a = a->next)
        if (a->n_bytes >= piece_bytes(h))
            return true;
    return false;
}

/* ---- a piece ---- */

struct piece {
    struct history *h;
    const struct ahead_import *job;
    struct turn *t;
    int64_t tip, anchor;
    int64_t base; /* the cut to go on from: one that is prepared; 0: the one in force */
    enum plan_strategy strategy;
};

static size_t place_of(const int64_t *rows, size_t n, int64_t row)
{
    size_t i = 0;
    while (i < n && rows[i] < row)
        i++;
    return i;
}

/* The place in the path from which on nothing was looked at: behind the anchor of the cut that is
 * there, or, without one, what is too old to be summed up. */
static int begin_of(struct piece *p, const int64_t *rows, size_t n, size_t *ret, struct err *e)
{
    struct memory_cut cut;
    const struct memory_rows_span newest = {
        .rows = rows, .n = n, .max_bytes = START_BYTES(p->h), .from_end = true};
    size_t n_newest;
    int rc = memory_cut_prepared(p->h->memory, p->tip, &cut, &p->t->arena, e);
    if (rc == 0 && cut.strategy == p->strategy)
        p->base = cut.row;
    else if (rc == 0 || rc == ERR_NOTFOUND)
        rc = memory_cut_find(p->h->memory, p->tip, &cut, &p->t->arena, e);
    if (rc == 0) {
        *ret = place_of(rows, n, cut.anchor + 1);
        return 0;
    }
    if (rc != ERR_NOTFOUND)
        return rc;
    rc = memory_rows_fit(p->h->memory, &newest, &n_newest, e);
    *ret = rc == 0 ? n - n_newest : 0;
    return rc;
}

/* The piece's last message. */
static int choose_anchor(struct piece *p, struct err *e)
{
    const int64_t *rows;
    size_t n, begin = 0, n_piece = 0;
    int rc = memory_path_rows(p->h->memory, p->tip, &rows, &n, e);
    if (rc == 0)
        rc = begin_of(p, rows, n, &begin, e);
    if (rc)
        return rc;
    const struct memory_rows_span piece = {
        .rows = rows + begin,
        .n = n - begin,
        .max_bytes = piece_bytes(p->h)};
    rc = memory_rows_fit(p->h->memory, &piece, &n_piece, e);
    p->anchor = rc == 0 && n_piece > 0 ? rows[begin + n_piece - 1] : p->tip;
    return rc;
}

/* Stores it instead of the one that it goes on from. */
static int store(struct piece *p, const struct memory_cut *cut, struct err *e)
{
    int64_t row;
    int rc = memory_cut_add(p->h->memory, cut, &row, e);
    if (rc == 0 && p->base)
        rc = memory_cut_remove(p->h->memory, p->base, e);
    return rc;
}

static int cut(struct piece *p, struct http_error *error)
{
    struct memory_cut made;
    struct err e;
    const struct context_cut request = {
        .h = p->h,
        .t = p->t,
        .conversation = p->job->conversation,
        .anchor = p->anchor,
        .strategy = p->strategy,
        .budget = context_budget(p->h, 0),
    };
    int rc = window_load(p->h, p->t, p->anchor, p->base, error);
    if (rc == 0)
        rc = prepare_render(p->h, p->t, error);
    const bool fits = rc == 0 && p->t->window.n_above == 0 &&
                      (int)p->t->prompt.n <= plan_room(&request.budget);
    if (rc == 0 && fits && p->anchor == p->tip)
        return ERR_NOTFOUND;
    if (rc == 0)
        rc = context_cut_make(&request, &made, error);
    if (rc == 0 && (rc = store(p, &made, &e)))
        http_error_from(error, &e);
    return rc;
}

static int find_tip(struct piece *p, struct err *e)
{
    struct memory_conversation c;
    int rc = memory_conversation_by_row(p->h->memory, p->job->conversation, &c, &p->t->arena, e);
    if (rc == 0) {
        p->tip = c.tip;
        p->strategy = context_strategy(p->h, c.row);
    }
    return rc;
}

/* 0: there may be more. */
static int work(struct piece *p)
{
    struct http_error error = {.status = 0};
    struct err e;
    int rc = find_tip(p, &e);
    if (rc == 0 && (p->tip == 0 || p->strategy <= PLAN_ERROR))
        return ERR_NOTFOUND;
    if (rc == 0)
        rc = choose_anchor(p, &e);
    if (rc) {
        if (rc != ERR_NOTFOUND) /* it was deleted */
            log_warn("an imported conversation could not be looked at: %s", e.text);
        return rc;
    }
    rc = cut(p, &error);
    if (rc && rc != ERR_NOTFOUND && rc != ERR_LIMIT)
        log_warn("an imported conversation could not be cut ahead: %s", error.message);
    return rc;
}

void ahead_import_work(struct history *h)
{
    if (!ahead_import_has_work(h))
        return;
    struct ahead_import **at = next_job(h), *a = *at;
    struct cancel *cancel = cancel_new();
    struct piece p = {.h = h, .job = a};
    p.t = cancel ? turn_new_background(h, a->owner, cancel) : NULL;
    const int rc = p.t ? work(&p) : ERR_NOMEM;
    turn_free(p.t);
    if (cancel)
        cancel_unref(cancel);
    *at = a->next;
    if (rc) {
        job_free(a);
        return;
    }
    a->n_bytes -= a->n_bytes < piece_bytes(h) ? a->n_bytes : piece_bytes(h);
    /* Others have their turn before the next piece. */
    struct ahead_import **end = &h->imports;
    while (*end)
        end = &(*end)->next;
    a->next = NULL;
    *end = a;
}
