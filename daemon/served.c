/* Which models are in memory: see served.h. History thread. */
#include "daemon/served_inside.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "daemon/budget.h"
#include "daemon/catalog.h"
#include "daemon/limits.h"
#include "memory/memory.h"

void load_free(struct load *l)
{
    if (!l)
        return;
    free(l->pins);
    free(l);
}

const char *served_state_name(int state)
{
    static const char *const names[] = {
        [SERVED_OUT] = "out",
        [SERVED_LOADING] = "loading",
        [SERVED_IN] = "in",
        [SERVED_LEAVING] = "leaving",
    };
    return names[state];
}

int served_state(const struct served *s)
{
    return atomic_load(&s->state);
}

bool served_is_ready(const struct served *s)
{
    return served_state(s) == SERVED_IN && !s->is_draining;
}

/* ---- the entries ---- */

struct served *served_add(struct daemon *d, const char *id, const char *path)
{
    const int n = atomic_load(&d->n_served);
    struct served *s = n < LIMIT_SERVED ? calloc(1, sizeof *s) : NULL;
    if (!s)
        return NULL;
    s->path = strdup(path);
    if (!s->path) {
        free(s);
        return NULL;
    }
    snprintf(s->id, sizeof s->id, "%s", id);
    d->served[n] = s;
    atomic_store(&d->n_served, n + 1);
    return s;
}

int served_start(struct daemon *d, struct err *e)
{
    char id[SERVED_ID_BYTES];
    catalog_id(d->config->model, id, sizeof id);
    struct served *s = served_add(d, id, d->config->model);
    if (!s)
        return err_set(e, ERR_NOMEM, "out of memory for the model");
    s->is_default = true;
    atomic_store(&s->state, SERVED_LOADING);
    return 0;
}

void served_free_all(struct daemon *d)
{
    const int n = atomic_load(&d->n_served);
    atomic_store(&d->n_served, 0);
    for (int i = 0; i < n; i++) {
        free(d->served[i]->path);
        free(d->served[i]);
        d->served[i] = NULL;
    }
}

struct served *served_of_path(const struct daemon *d, const char *path)
{
    const int n = atomic_load(&d->n_served);
    for (int i = 0; i < n; i++)
        if (strcmp(d->served[i]->path, path) == 0)
            return d->served[i];
    return NULL;
}

bool served_known(const struct served *s, struct known_model *ret)
{
    if (served_state(s) != SERVED_IN)
        return false;
    *ret = (struct known_model){.block_bytes = atomic_load(&s->block_bytes)};
    memcpy(ret->fingerprint, engine_info(s->engine)->fingerprint, HASH_BYTES);
    snprintf(ret->id, sizeof ret->id, "%s", s->id);
    return true;
}

/* It is in memory: from now on the cache may have files of it. */
static void set_in(struct history *h, struct served *s)
{
    const struct config *c = h->d->config;
    struct known_model m;
    s->used_us = clock_us();
    atomic_store(&s->state, SERVED_IN);
    atomic_fetch_add(&s->loads, 1);
    if (c->use_cache && c->disk_bytes > 0 && served_known(s, &m))
        known_add(c->cache_dir, &m);
}

void served_use(struct history *h, struct served *s)
{
    h->served = s;
    h->engine = s ? s->engine : NULL;
    h->ctx = s ? s->ctx : 0;
}

void served_use_default(struct history *h)
{
    struct served *s = h->d->served[0];
    if (!h->has_begun && atomic_load(&h->d->engine)) {
        h->has_begun = true;
        set_in(h, s);
    }
    served_use(h, served_state(s) == SERVED_IN ? s : NULL);
    h->served = s;
}

/* ---- memory ---- */

static uint64_t budget_bytes(const struct history *h)
{
    return (uint64_t)atomic_load(&h->d->n.memory_bytes_max);
}

static uint64_t vectors_bytes(const struct history *h)
{
    return (uint64_t)atomic_load(&h->d->n.vectors_bytes);
}

/* By what its file says; ERR_LIMIT: it wouldn't even fit alone. */
static int need_of_file(const struct history *h, const struct engine_summary *m, struct need *ret,
                        struct err *e)
{
    const int asked = h->d->config->ctx;
    const struct budget_request r = {
        .memory_bytes = budget_bytes(h),
        .weights_bytes = m->weights_bytes,
        .vectors_bytes = vectors_bytes(h),
        .block_bytes = (size_t)m->kv_bytes * KV_BLOCK,
        .ctx = asked < m->n_ctx_train ? asked : m->n_ctx_train, /* 0 stays 0 */
        .n_ctx_train = m->n_ctx_train,
    };
    struct budget plan;
    int rc = budget_plan(&r, &plan, e);
    if (rc)
        return rc;
    ret->ctx = plan.ctx;
    ret->bytes = m->weights_bytes + plan.buffers_bytes +
                 ((uint64_t)plan.ctx / KV_BLOCK + 2) * r.block_bytes;
    return 0;
}

int served_need(struct history *h, const struct served *s, struct need *ret, struct err *e)
{
    struct catalog_file f;
    if (s->fixed_bytes > 0) { /* it was in memory before */
        *ret = (struct need){s->fixed_bytes + s->window_bytes, s->ctx};
        return 0;
    }
    if (!catalog_find(h, s->id, &f))
        return err_set(e, ERR_NOTFOUND, "model %s: its file has gone", s->id);
    if (!f.runs)
        return err_set(e, ERR_UNSUPPORTED, "model %s: %s", s->id, f.why);
    return need_of_file(h, f.summary, ret, e);
}

/* Of all that are in memory, or on their way. */
static uint64_t held_bytes(const struct history *h, int *ret_n)
{
    const struct daemon *d = h->d;
    uint64_t sum = vectors_bytes(h);
    *ret_n = 0;
    for (int i = 0; i < atomic_load(&d->n_served); i++) {
        const struct served *s = d->served[i];
        if (served_state(s) == SERVED_OUT)
            continue;
        sum += s->fixed_bytes + s->window_bytes;
        ++*ret_n;
    }
    return sum;
}

static bool fits_beside(const struct history *h, const struct served *s, const struct need *need)
{
    int n;
    const uint64_t held = held_bytes(h, &n), all = budget_bytes(h);
    if (n == 0)
        return true;
    return !s->must_be_alone && n < h->d->config->resident && held <= all &&
           need->bytes <= all - held;
}

void served_count(struct served *s, const struct turn *t)
{
    if (t->has_waited_room || t->is_background)
        return;
    atomic_fetch_add(&s->turns, 1);
    atomic_fetch_add(&s->prompt_tokens, t->prompt.n);
    atomic_fetch_add(&s->cached_tokens, (uint64_t)t->stats.n_cached);
    atomic_fetch_add(&s->generated_tokens, t->out.n);
}

/* ---- coming and going ---- */

static int order(struct history *h, struct served *s, int kind, const struct need *need)
{
    struct err e;
    struct load *l = calloc(1, sizeof *l);
    if (!l)
        return ERR_NOMEM;
    l->mail.kind = kind;
    l->served = s;
    if (need) {
        l->ctx = need->ctx;
        l->need_bytes = need->bytes;
        if (memory_block_pins(h->memory, &l->pins, &l->n_pins, &e))
            log_warn("model %s is loaded without its pins: %s", s->id, e.text);
    }
    if (mailbox_push(&h->d->worker, &l->mail))
        return 0;
    load_free(l);
    return ERR_BUSY;
}

static void bring_in(struct history *h, struct served *s, const struct need *need)
{
    atomic_store(&s->permille, 0);
    if (order(h, s, MAIL_LOAD, need))
        return;
    atomic_store(&s->state, SERVED_LOADING);
    log_info("model %s is asked for, and loaded", s->id);
}

/* Nothing of it is out: from here on nobody but the worker knows its engine. */
static void send_away(struct history *h, struct served *s, const char *why)
{
    if (order(h, s, MAIL_UNLOAD, NULL))
        return;
    atomic_store(&s->state, SERVED_LEAVING);
    s->engine = NULL;
    log_info("model %s leaves memory: %s", s->id, why);
}

void served_loaded(struct history *h, struct load *l)
{
    struct served *s = l->served;
    const struct daemon *d = h->d;
    int n;
    if (l->rc == 0) {
        set_in(h, s);
        for (int i = 0; i < atomic_load(&d->n_served); i++)
            d->served[i]->is_draining = false; /* it was for this one */
        load_free(l);
        return;
    }
    atomic_store(&s->state, SERVED_OUT);
    (void)held_bytes(h, &n);
    if (l->rc == ERR_LIMIT && n > 0 && !s->must_be_alone) {
        log_info("model %s doesn't fit beside others: %s", s->id, l->err.text);
        s->must_be_alone = true;
        load_free(l);
        return;
    }
    if (l->rc != ERR_CANCELED)
        log_warn("model %s could not be loaded: %s", s->id, l->err.text);
    struct mail **at = &h->loading;
    while (*at) {
        struct request *r = (struct request *)*at;
        struct http_error error = {.status = 0};
        if (r->served != s) {
            at = &r->mail.next;
            continue;
        }
        *at = r->mail.next;
        served_refuse(&error, &l->err, s);
        reply_error(h->d, r->conn, &error, r->is_turn);
        request_free(r);
    }
    load_free(l);
}

void served_unloaded(struct history *h, struct load *l)
{
    struct served *s = l->served;
    (void)h;
    atomic_store(&s->state, SERVED_OUT);
    atomic_store(&s->weights_bytes, 0);
    atomic_store(&s->kv_bytes, 0);
    atomic_store(&s->kv_bytes_max, 0);
    atomic_fetch_add(&s->unloads, 1);
    s->is_draining = false;
    load_free(l);
}

/* ---- what is next ---- */

/* Of those in memory, the one that was used least recently; idle ones alone, or any. */
static struct served *oldest(const struct history *h, bool is_idle)
{
    const struct daemon *d = h->d;
    struct served *found = NULL;
    for (int i = 0; i < atomic_load(&d->n_served); i++) {
        struct served *s = d->served[i];
        if (served_state(s) != SERVED_IN || (is_idle && s->n_out > 0))
            continue;
        if (!found || s->used_us < found->used_us)
            found = s;
    }
    return found;
}

static bool is_moving(const struct history *h)
{
    const struct daemon *d = h->d;
    for (int i = 0; i < atomic_load(&d->n_served); i++) {
        const int state = served_state(d->served[i]);
        if (state == SERVED_LOADING || state == SERVED_LEAVING)
            return true;
    }
    return false;
}

/* Those whose model is there go on, in the order they came. */
static void run_ready(struct history *h)
{
    history_drop_canceled(h, &h->loading);
    struct mail **at = &h->loading;
    while (*at) {
        struct request *r = (struct request *)*at;
        if (!h->is_stopping && !served_is_ready(r->served)) {
            at = &r->mail.next;
            continue;
        }
        *at = r->mail.next;
        r->mail.next = NULL;
        history_handle(h, r);
        at = &h->loading; /* it may have grown */
    }
}

static void stop_draining(struct history *h)
{
    const struct daemon *d = h->d;
    for (int i = 0; i < atomic_load(&d->n_served); i++)
        d->served[i]->is_draining = false;
}

static int64_t idle_us(const struct history *h)
{
    return (int64_t)h->d->config->idle_unload_s * 1000000;
}

/* When a model that nobody uses leaves; 0: it stays. --model's does: the daemon is there for it. */
static int64_t leaves_at_us(const struct history *h, const struct served *s)
{
    const bool may_leave = !s->is_default && served_state(s) == SERVED_IN && s->n_out == 0;
    return may_leave && idle_us(h) > 0 ? s->used_us + idle_us(h) : 0;
}

/* Until a model has been idle for long enough. */
static int idle_due_ms(const struct history *h)
{
    const struct daemon *d = h->d;
    int64_t first = 0;
    if (is_moving(h))
        return -1; /* mail will come */
    for (int i = 0; i < atomic_load(&d->n_served); i++) {
        const int64_t at = leaves_at_us(h, d->served[i]);
        if (at > 0 && (first == 0 || at < first))
            first = at;
    }
    if (first == 0)
        return -1;
    const int64_t left_us = first - clock_us();
    return left_us > 0 ? (int)(left_us / 1000) + 1 : 0;
}

int served_due_ms(const struct history *h)
{
    if (h->is_stopping)
        return -1;
    const int idle = idle_due_ms(h), wait = served_wait_due_ms(h);
    return idle < 0 || (wait >= 0 && wait < idle) ? wait : idle;
}

static void unload_idle(struct history *h)
{
    const struct daemon *d = h->d;
    const int64_t now = clock_us();
    for (int i = 0; i < atomic_load(&d->n_served); i++) {
        const int64_t at = leaves_at_us(h, d->served[i]);
        if (at > 0 && at <= now)
            send_away(h, d->served[i], "nobody has used it for a while");
    }
}

/* s is asked for and not in memory. */
static void make_way(struct history *h, struct served *s)
{
    struct need need;
    struct err e;
    if (served_need(h, s, &need, &e)) { /* its file has changed since */
        struct load *l = calloc(1, sizeof *l);
        if (!l)
            return;
        *l = (struct load){.served = s, .rc = e.code, .err = e};
        s->must_be_alone = true; /* so that this is final */
        served_loaded(h, l);
        return;
    }
    if (fits_beside(h, s, &need)) {
        bring_in(h, s, &need);
        return;
    }
    struct served *idle = oldest(h, true), *any = oldest(h, false);
    if (idle)
        send_away(h, idle, "another model needs its room");
    else if (any)
        any->is_draining = true;
}

/* What is to come or go next. */
static void move(struct history *h)
{
    const struct request *first = (const struct request *)h->loading;
    if (!first) {
        stop_draining(h);
        unload_idle(h);
    } else if (served_state(first->served) == SERVED_IN) {
        /* drained for one that isn't wanted now */
        first->served->is_draining = false;
        run_ready(h);
    } else {
        make_way(h, first->served);
    }
}

void served_step(struct history *h)
{
    served_use_default(h);
    if (h->has_begun || h->is_stopping)
        run_ready(h);
    if (h->is_stopping)
        return;
    if (h->has_begun && !is_moving(h))
        move(h);
    served_wait_step(h); /* after its load has begun, even for who doesn't wait at all */
}
