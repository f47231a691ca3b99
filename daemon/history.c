/*
 * The history thread: its mailbox, the table of routes, one turn at a time per conversation, and
 * the end of every turn. See history.h.
 *
 *   claims:   conversation 7 (held)  ── waiting: request, request …
 *             conversation 9 (free)  ── waiting: request
 *
 * A request waits there, whole, and its handler starts again from the beginning once the turn
 * before it has ended. Between two mails nobody waits behind a free claim.
 *
 * While the model loads, requests that need it wait in a list of their own, in the order they came.
 * Turns among them are bounded by the loop's admission, the others (/tokenize …) by as many again.
 */
#include "daemon/history.h"

#include <semaphore.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/paths.h"
#include "daemon/account.h"
#include "daemon/ahead_import.h"
#include "daemon/body.h"
#include "daemon/catalog.h"
#include "daemon/counts.h"
#include "daemon/embedder.h"
#include "daemon/forget.h"
#include "daemon/keep.h"
#include "daemon/limits.h"
#include "daemon/rendered.h"
#include "daemon/began.h"
#include "daemon/resent_book.h"
#include "daemon/room.h"
#include "daemon/served.h"
#include "daemon/turn_end.h"
#include "memory/search.h"
#include "daemon/wire.h"
#include "daemon/worker.h"

#define IDLE_MS 2000 /* so long without mail, and the write-ahead log is checkpointed */
#define PIECE_REST_MS 20 /* between two pieces of old messages that are indexed */
#define PIECE_LATEST_MS 200 /* and at most, however much mail comes */

struct claim {
    struct claim *next;
    int64_t conversation;
    bool is_held;
    struct mail *waiting, **tail; /* requests */
};

/* One daemon a process, so one of these. Written by history_start before the thread begins, then
 * the thread's. */
static struct {
    struct history h;
    pthread_t thread;
    sem_t opened; /* at 1 for good once rc and err are known */
    struct mail wake;      /* MAIL_WAKE: one is enough, it says nothing but "look" */
    atomic_bool is_waking; /* it is on its way */
    int rc;                /* of memory_open */
    struct err err;
    char *path;
} self;

/* A client that has gone gets no work done; its place in the queue is given back by an empty last
 * reply, which the loop drops. */
static void drop_request(struct history *h, struct request *r)
{
    struct buf none;
    buf_init(&none, 16);
    if (r->is_turn)
        reply_post_last(h->d, REPLY_WHOLE, r->conn, 499, &none);
    request_free(r);
}

struct mail **history_drop_canceled(struct history *h, struct mail **at)
{
    while (*at) {
        struct request *r = (struct request *)*at;
        if (!atomic_load(&r->cancel->is_set)) {
            at = &r->mail.next;
            continue;
        }
        *at = r->mail.next;
        drop_request(h, r);
    }
    return at;
}

/* ---- while the model loads ---- */

enum need {
    ANY_STATE,
    ASKS_MODEL,    /* 503 while it loads: who asks for it wants to know, like /health */
    MAY_USE_MODEL, /* the path's conversation's, if it is in memory: nobody waits */
    OF_PATH,       /* waits while it loads: what the query names, or the path's conversation's */
    CHOOSES_MODEL, /* waits; the handler chooses, by the body */
    NEEDS_WORKER,  /* waits for --model's, the first time: from then on there is a cache */
};

int history_park(struct history *h, struct request *r, struct served *s, struct http_error *ret)
{
    const struct config *c = h->d->config;
    struct mail **end = history_drop_canceled(h, &h->loading);
    int n_others = 0;
    for (struct mail *m = h->loading; m; m = m->next)
        n_others += !((struct request *)m)->is_turn;
    if (!r->is_turn && n_others >= c->parallel + c->queue) {
        http_error_set(ret, 503, "model_loading", NULL, "model %s is being loaded (%d %%)", s->id,
                       atomic_load(&s->permille) / 10);
        return ERR_BUSY;
    }
    r->served = s;
    r->mail.next = NULL;
    if (r->t_parked_us == 0)
        r->t_parked_us = clock_us();
    *end = &r->mail;
    return PARKED;
}

/* Before --model's is there for the first time. */
static int no_model_yet(struct history *h, struct request *r, enum need need,
                        struct http_error *ret)
{
    if (need != ASKS_MODEL) {
        if (need == CHOOSES_MODEL)
            r->wants_stream = body_wants_stream(r);
        return history_park(h, r, h->d->served[0], ret);
    }
    http_error_set(ret, 503, "model_loading", NULL, "the model is being loaded (%d %%)",
                   atomic_load(&h->d->load_permille) / 10);
    return ERR_BUSY;
}

/* ---- routes ---- */

static const struct route {
    const char *method, *path;
    history_handler handle;
    enum need need;
} routes[] = {
    {"POST", "/v1/chat/completions", api_chat, CHOOSES_MODEL},
    {"POST", "/v1/completions", api_completions, CHOOSES_MODEL},
    {"GET", "/v1/models", api_models, ASKS_MODEL},
    {"GET", "/v1/models/{*}", api_model, ASKS_MODEL},
    {"GET", "/v1/hearth/models", api_catalog, ANY_STATE},
    {"GET", "/v1/hearth/status", api_status, ANY_STATE},
    {"GET", "/v1/hearth/stats", api_stats, ANY_STATE},
    {"GET", "/v1/hearth/conversations/{}/savings", api_savings, ANY_STATE},
    {"GET", "/v1/hearth/conversations/{}/context", api_context_get, OF_PATH},
    {"POST", "/v1/hearth/conversations/{}/context", api_context_set, ANY_STATE},
    {"GET", "/v1/hearth/conversations/{}/dropped", api_dropped, OF_PATH},
    {"POST", "/v1/hearth/conversations/{}/cut", api_cut, OF_PATH},
    {"GET", "/v1/hearth/conversations/{}/summary", api_summary_get, MAY_USE_MODEL},
    {"POST", "/v1/hearth/conversations/{}/summary", api_summary_set, OF_PATH},
    {"GET", "/v1/hearth/conversations/{}/pins", api_pin_list, OF_PATH},
    {"POST", "/v1/hearth/conversations/{}/pins", api_pin_add, OF_PATH},
    {"DELETE", "/v1/hearth/conversations/{}/pins/{}", api_pin_remove, ANY_STATE},
    {"GET", "/v1/hearth/search", api_search, ANY_STATE},
    {"POST", "/v1/hearth/search", api_search, ANY_STATE},
    {"POST", "/v1/hearth/verify", api_verify, CHOOSES_MODEL},
    {"GET", "/v1/hearth/cache", api_cache_list, NEEDS_WORKER},
    {"POST", "/v1/hearth/cache/drop", api_cache_drop, NEEDS_WORKER},
    {"POST", "/v1/hearth/cache/pin", api_cache_pin, CHOOSES_MODEL},
    {"POST", "/v1/hearth/cache/unpin", api_cache_unpin, NEEDS_WORKER},
    {"POST", "/v1/responses", api_response_create, CHOOSES_MODEL},
    {"POST", "/v1/responses/input_tokens", api_input_tokens, CHOOSES_MODEL},
    {"GET", "/v1/responses/{}", api_response_get, ANY_STATE},
    {"DELETE", "/v1/responses/{}", api_response_delete, ANY_STATE},
    {"GET", "/v1/responses/{}/input_items", api_response_input_items, ANY_STATE},
    {"POST", "/v1/conversations", api_conversation_create, ANY_STATE},
    {"GET", "/v1/conversations", api_conversation_list, ANY_STATE},
    {"GET", "/v1/conversations/{}", api_conversation_get, ANY_STATE},
    {"POST", "/v1/conversations/{}", api_conversation_update, ANY_STATE},
    {"DELETE", "/v1/conversations/{}", api_conversation_delete, ANY_STATE},
    {"POST", "/v1/conversations/{}/items", api_item_create, ANY_STATE},
    {"GET", "/v1/conversations/{}/items", api_item_list, ANY_STATE},
    {"GET", "/v1/conversations/{}/items/{}", api_item_get, ANY_STATE},
    {"DELETE", "/v1/conversations/{}/items/{}", api_item_delete, ANY_STATE},
    {"POST", "/tokenize", api_tokenize, CHOOSES_MODEL},
    {"POST", "/v1/embeddings", api_embeddings, ANY_STATE},
};

/* Whether path has pattern's form; what stands at each {} (at least one byte, no '/') and at {*}
 * (at least one byte, to the end) goes to args and points into path. */
static bool route_matches(const char *pattern, char *path, struct route_args *args)
{
    args->n = 0;
    while (*pattern && *path) {
        if (pattern[0] == '{' && pattern[1] == '*') {
            args->v[args->n++] = path;
            return true;
        }
        if (pattern[0] == '{') {
            size_t n = strcspn(path, "/");
            if (n == 0)
                return false;
            args->v[args->n++] = path;
            path += n;
            pattern += 2;
            continue;
        }
        if (*pattern++ != *path++)
            return false;
    }
    return !*pattern && !*path;
}

/* The arguments end at the next '/': they are cut after the match, as a failed match must leave the
 * path whole. What {*} took stays as it is. */
static void route_cut(const char *pattern, struct route_args *args)
{
    if (strchr(pattern, '*'))
        return;
    for (int i = 0; i < args->n; i++) {
        char *end = strchr(args->v[i], '/');
        if (end)
            *end = '\0';
    }
}

static int not_found(const struct request *r, bool is_known_path, struct http_error *ret)
{
    if (is_known_path)
        http_error_set(ret, 405, "method_not_allowed", NULL, "%s is not a method of %s", r->method,
                       r->path);
    else
        http_error_set(ret, 404, "not_found", NULL, "there is nothing at %s", r->path);
    return ERR_NOTFOUND;
}

/* With the model that the route is about; args are cut. */
static int call_handler(struct history *h, struct request *r, const struct route *route,
                        const struct route_args *args, struct http_error *ret)
{
    int rc = 0;
    if (route->need == OF_PATH)
        rc = served_choose_path(h, r, args->v[0], ret);
    else if (route->need == MAY_USE_MODEL)
        served_use_path(h, r, args->v[0]);
    return rc ? rc : route->handle(h, r, args, ret);
}

static int call_route(struct history *h, struct request *r, struct http_error *ret)
{
    bool is_known_path = false;
    for (size_t i = 0; i < sizeof routes / sizeof *routes; i++) {
        struct route_args args;
        if (!route_matches(routes[i].path, r->path, &args))
            continue;
        is_known_path = true;
        if (strcmp(routes[i].method, r->method) != 0)
            continue;
        if (routes[i].need != ANY_STATE && routes[i].need != MAY_USE_MODEL && !h->has_begun)
            return no_model_yet(h, r, routes[i].need, ret);
        /* A parked request comes back here: the handler gets a copy of the path to cut. */
        char *path = strdup(r->path);
        if (!path)
            return http_out_of_memory(ret, "the request");
        route_matches(routes[i].path, path, &args);
        route_cut(routes[i].path, &args);
        const int rc = call_handler(h, r, &routes[i], &args, ret);
        free(path);
        return rc;
    }
    return not_found(r, is_known_path, ret);
}

void history_handle(struct history *h, struct request *r)
{
    struct http_error error = {.status = 0};
    int rc;
    served_use_default(h);
    if (atomic_load(&r->cancel->is_set) && r->is_turn) {
        drop_request(h, r);
        return;
    }
    if (h->is_stopping) {
        http_error_set(&error, 503, "stopping", NULL, "the daemon is stopping");
        rc = ERR_BUSY;
    } else {
        rc = call_route(h, r, &error);
    }
    if (rc == PARKED)
        return;
    if (rc < 0 && error.is_full && !r->has_waited_room) {
        r->has_waited_room = true;
        if (room_ask(h, &r->mail))
            return;
    }
    if (rc < 0) {
        if (error.status == 0)
            http_error_set(&error, 500, NULL, NULL, "the request failed (%s)", err_name(rc));
        reply_error(h->d, r->conn, &error, r->is_turn);
    }
    request_free(r);
}

/* ---- claims ---- */

static struct claim *claim_find(struct history *h, int64_t conversation)
{
    struct claim *c = h->claims;
    while (c && c->conversation != conversation)
        c = c->next;
    return c;
}

bool history_claim(struct history *h, int64_t conversation, struct request *r, bool *ret_is_parked)
{
    struct claim *c = claim_find(h, conversation);
    *ret_is_parked = false;
    if (c && c->is_held) {
        r->mail.next = NULL;
        *c->tail = &r->mail;
        c->tail = &r->mail.next;
        *ret_is_parked = true;
        return false;
    }
    if (!c) {
        c = calloc(1, sizeof *c);
        if (!c)
            return false;
        c->conversation = conversation;
        c->tail = &c->waiting;
        c->next = h->claims;
        h->claims = c;
    }
    c->is_held = true;
    return true;
}

void history_release(struct history *h, int64_t conversation)
{
    struct claim *c = claim_find(h, conversation);
    if (c)
        c->is_held = false;
}

static struct request *claim_pop(struct claim *c)
{
    struct mail *m = c->waiting;
    if (!m)
        return NULL;
    c->waiting = m->next;
    if (!c->waiting)
        c->tail = &c->waiting;
    m->next = NULL;
    return (struct request *)m;
}

static void claim_drop_canceled(struct history *h, struct claim *c)
{
    c->tail = history_drop_canceled(h, &c->waiting);
}

/* Lets go on who waits behind a conversation that has become free; frees claims that nobody holds
 * or waits for. */
static void run_claims(struct history *h)
{
    struct claim **at = &h->claims;
    while (*at) {
        struct claim *c = *at;
        claim_drop_canceled(h, c);
        if (c->is_held) {
            at = &c->next;
            continue;
        }
        struct request *r = claim_pop(c);
        if (r) {
            history_handle(h, r);
            at = &h->claims; /* the handler may have added claims: begin anew */
            continue;
        }
        *at = c->next;
        free(c);
    }
}

/* ---- replies and turns ---- */

void history_reply(struct history *h, const struct request *r, int status, struct buf *body)
{
    if (r->is_turn)
        reply_post_last(h->d, REPLY_WHOLE, r->conn, status, body);
    else
        reply_post(h->d, REPLY_WHOLE, r->conn, status, body);
}

void history_reply_json(struct history *h, const struct request *r, int status, json *j)
{
    struct buf body;
    buf_init(&body, WIRE_BODY_BYTES);
    json_write(j, &body);
    json_free(j);
    history_reply(h, r, status, &body);
}

void history_submit(struct history *h, struct turn *t)
{
    t->stats.t_submitted = clock_us();
    if (!t->is_background)
        atomic_fetch_add(&h->d->n.turns_started, 1);
    if (t->params.is_stream) {
        struct buf b;
        buf_init(&b, WIRE_BODY_BYTES);
        t->wire->begin(t, &b);
        reply_post(h->d, REPLY_STREAM_BEGIN, t->conn, 200, &b);
    }
    t->mail.kind = MAIL_TURN;
    h->n_turns_out++;
    t->served->n_out++;
    const bool is_background = t->is_background;
    if (mailbox_push(&h->d->worker, &t->mail)) {
        if ((!is_background && atomic_load(&h->d->n.is_background)) ||
            atomic_load(&h->d->is_proving))
            worker_interrupt(h->d); /* nobody waits for the pass that is under way */
        return;
    }
    h->n_turns_out--;
    t->served->n_out--;
    turn_fail(t, 503, "stopping", "the daemon is stopping");
    turn_end(h, t);
}

/* ---- the thread ---- */

static void handle_all(struct history *h, struct mail *m);

static void end_turn(struct history *h, struct turn *t)
{
    struct served *s = t->served;
    h->n_turns_out--;
    s->n_out--;
    served_use(h, s);
    served_count(s, t);
    turn_end(h, t);
    s->used_us = clock_us();
}

static void handle_mail(struct history *h, struct mail *m)
{
    switch (m->kind) {
    case MAIL_REQUEST:
        history_handle(h, (struct request *)m);
        break;
    case MAIL_TURN_FLUSH:
        turn_flush(h, (struct turn_flush *)m);
        break;
    case MAIL_TURN_DONE:
        end_turn(h, (struct turn *)m);
        break;
    case MAIL_FORGOTTEN:
        forget_done(h, (struct forget *)m);
        break;
    case MAIL_KEPT:
        keep_done(h, (struct keep *)m);
        break;
    case MAIL_ROOM_MADE: /* who waited for it is handled once more */
        handle_all(h, room_take(h, m));
        break;
    case MAIL_EMBEDDED:
        embedder_done(h, (struct embed_job *)m);
        break;
    case MAIL_LOADED:
        served_loaded(h, (struct load *)m);
        break;
    case MAIL_UNLOADED:
        served_unloaded(h, (struct load *)m);
        break;
    case MAIL_STOP:
        h->is_stopping = true;
        embedder_abort();
        free(m);
        break;
    case MAIL_WAKE: /* who wakes us from here on gets another look */
        atomic_store(&self.is_waking, false);
        break;
    default:
        log_error("history: mail of unknown kind %d", m->kind);
        free(m);
    }
}

static void handle_all(struct history *h, struct mail *m)
{
    served_step(h); /* before those who come now */
    while (m) {
        struct mail *next = m->next;
        m->next = NULL;
        served_use_default(h);
        handle_mail(h, m);
        served_step(h);
        run_claims(h);
        atomic_fetch_add(&h->d->n.history_ticks, 1);
        m = next;
    }
}

/* Whether more is to be done at once, piece by piece, while no mail comes. */
static bool has_work(const struct history *h)
{
    return memory_has_work(h->memory) || embedder_has_work(h) || ahead_import_has_work(h);
}

/* One who asks again and again must not keep it from ever being done. */
static void work_late(struct history *h, int64_t *t_piece)
{
    if (ahead_import_is_due(h))
        ahead_import_work(h);
    if (!has_work(h) || clock_us() - *t_piece < PIECE_LATEST_MS * 1000)
        return;
    memory_idle(h->memory);
    embedder_work(h);
    ahead_import_work(h);
    *t_piece = clock_us();
}

/* Until the next piece, the checkpoint, or a model that has been idle for long. */
static int rest_ms(const struct history *h, bool is_checkpointed)
{
    const int own = is_checkpointed ? -1 : has_work(h) ? PIECE_REST_MS : IDLE_MS;
    const int served = served_due_ms(h);
    return own < 0 || (served >= 0 && served < own) ? served : own;
}

static void serve(struct history *h)
{
    bool is_checkpointed = !has_work(h);
    int64_t t_piece = clock_us();
    while (!h->is_stopping || h->n_turns_out > 0 || h->n_embeds_out > 0) {
        struct mail *m = mailbox_take(&h->d->history);
        if (m) {
            handle_all(h, m);
            is_checkpointed = false;
            work_late(h, &t_piece);
            continue;
        }
        atomic_store(&h->d->n.history_parked, 1);
        mailbox_wait(&h->d->history, rest_ms(h, is_checkpointed));
        atomic_store(&h->d->n.history_parked, 0);
        served_step(h);
        m = mailbox_take(&h->d->history);
        if (m) {
            handle_all(h, m);
            is_checkpointed = false;
            work_late(h, &t_piece);
        } else if (!is_checkpointed) {
            memory_idle(h->memory);
            embedder_work(h);
            ahead_import_work(h);
            t_piece = clock_us();
            is_checkpointed = !has_work(h);
        }
    }
    embedder_stop();
    mailbox_close(&h->d->history);
    handle_all(h, mailbox_take(&h->d->history)); /* refused, each with a 503 */
}

/* With the pins for the worker, which waits for them. */
static int open_memory(struct history *h)
{
    struct daemon *d = h->d;
    int rc = memory_open(self.path, &h->memory, &self.err);
    if (rc == 0)
        rc = memory_block_pins(h->memory, &d->pins, &d->n_pins, &self.err);
    if (rc == 0)
        rc = embedder_start(d, &self.err);
    if (rc < 0) {
        memory_close(h->memory);
        h->memory = NULL;
    }
    return rc;
}

static void *run(void *arg)
{
    struct history *h = arg;
    self.rc = open_memory(h);
    if (self.rc)
        mailbox_close(&h->d->history); /* before anyone can know, and post */
    sem_post(&self.opened);
    if (self.rc)
        return NULL;
    h->counts = counts_new();
    forget_replay(h);
    serve(h);
    account_free(h->account);
    catalog_free(h->catalog);
    began_free(h->began);
    resent_book_free(h->resent);
    rendered_free(h->rendered);
    counts_free(h->counts);
    ahead_import_free(h);
    memory_close(h->memory);
    struct mail *m = calloc(1, sizeof *m);
    if (!m) {
        log_error("history: out of memory while stopping");
        return NULL;
    }
    m->kind = MAIL_STOPPED;
    if (!mailbox_push(&h->d->loop, m))
        free(m);
    return NULL;
}

int history_start(struct daemon *d, struct err *e)
{
    self.h = (struct history){.d = d};
    self.path = path_join(d->config->state_dir, "history.db");
    if (!self.path)
        return err_set(e, ERR_NOMEM, "history: out of memory");
    sem_init(&self.opened, 0, 0);
    const int rc = thread_start(&self.thread, THREAD_HISTORY, run, &self.h, e);
    if (rc)
        free(self.path);
    return rc;
}

int history_opened(struct err *e)
{
    while (sem_wait(&self.opened) != 0)
        ; /* a signal */
    sem_post(&self.opened); /* for who asks next */
    if (self.rc && e)
        *e = self.err;
    return self.rc;
}

void history_wake(struct daemon *d)
{
    if (atomic_exchange(&self.is_waking, true))
        return;
    self.wake = (struct mail){.kind = MAIL_WAKE};
    if (!mailbox_push(&d->history, &self.wake))
        atomic_store(&self.is_waking, false); /* it has ended */
}

void history_join(struct daemon *d)
{
    (void)d;
    pthread_join(self.thread, NULL); /* the semaphore stays: the worker may look at it yet */
    free(self.path);
    self.path = NULL;
}
