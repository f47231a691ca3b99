/*
 * The worker thread: brings models in and out, and turns mail into steps of their batches. See
 * worker.h; how turns run together is batch.h's, what one model has is host.h's.
 *
 *     hosts   [ default │ another │ … ]      one pass at a time, in turn
 *     hub     a cache without a model: it has the disk tier whatever comes and goes, and what is
 *             to be removed there
 */
#include "daemon/worker.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "daemon/budget.h"
#include "daemon/forget.h"
#include "daemon/history.h"
#include "daemon/host.h"
#include "daemon/hub.h"
#include "daemon/keep.h"
#include "daemon/limits.h"
#include "daemon/request.h"
#include "daemon/room.h"
#include "daemon/tally.h"

struct work {
    struct daemon *d;
    struct host *hosts[LIMIT_RESIDENT];
    int n_hosts;
    int next; /* whose step is next */
    struct cache *hub;
    struct kv_pool *hub_pool;
    /* A model that is to come: its order, and the thread that loads it once there is room. */
    struct load *load;
    struct host *coming;
    struct host_room room;
    pthread_t loader;
    bool is_loader_started;
    bool is_stopping;
};

/* One daemon a process, so one of these. Engines and tokenizers are in use by the history thread
 * until it has ended: they are freed by worker_join. */
static struct {
    pthread_t thread;
    struct work w;
} self;

void worker_interrupt(struct daemon *d)
{
    atomic_store(&d->pass_abort, 1);
}

static void tell_loop(struct daemon *d, int kind)
{
    struct mail *m = calloc(1, sizeof *m);
    if (!m) {
        log_error("worker: out of memory for a message to the loop");
        return;
    }
    m->kind = kind;
    if (!mailbox_push(&d->loop, m))
        free(m);
}

/* ---- memory ---- */

static uint64_t memory_bytes(const struct work *w)
{
    return (uint64_t)atomic_load(&w->d->n.memory_bytes_max);
}

/* Of weights and buffers; with the windows that nobody may take from the hosts. */
static uint64_t fixed_bytes(const struct work *w, bool with_windows)
{
    uint64_t sum = 0;
    for (int i = 0; i < w->n_hosts; i++) {
        const struct host *h = w->hosts[i];
        sum += h->fixed_bytes;
        sum += with_windows ? h->n_window_blocks * h->block_bytes : 0;
    }
    return sum;
}

/* What is left for KV is shared, `taken` bytes of it being for a model that comes. */
static bool share_memory(struct work *w, uint64_t taken)
{
    taken += fixed_bytes(w, false) + (uint64_t)atomic_load(&w->d->n.vectors_bytes);
    const uint64_t all = memory_bytes(w);
    return host_share(w->hosts, w->n_hosts, all > taken ? all - taken : 0);
}

static void add_host(struct work *w, struct host *h)
{
    h->served->host = h;
    w->hosts[w->n_hosts++] = h;
    (void)share_memory(w, 0);
}

/* ---- the start ---- */

/* --model's, before anything is served. */
static int load_default(struct work *w, struct err *e)
{
    struct daemon *d = w->d;
    const uint64_t bytes = d->config->memory_bytes ? d->config->memory_bytes : budget_default();
    const struct host_room room = {bytes, bytes, d->config->ctx};
    struct load pins = {0};
    struct host *h = host_new(d, d->served[0]);
    atomic_store(&d->n.memory_bytes_max, bytes);
    if (!h)
        return err_set(e, ERR_NOMEM, "out of memory for the model");
    int rc = host_load(h, &room, e);
    if (rc == 0)
        rc = history_opened(e); /* what comes now needs its pins, which weren't there before */
    if (rc == 0) {
        pins.pins = d->pins;
        pins.n_pins = d->n_pins;
    }
    if (rc == 0)
        rc = hub_open(d, &w->hub_pool, &w->hub, e);
    if (rc == 0)
        rc = host_begin(h, &room, w->hub, &pins, e);
    if (rc) {
        host_free(h);
        return rc;
    }
    add_host(w, h);
    free(d->pins);
    d->pins = NULL;
    d->n_pins = 0;
    d->ctx = h->ctx;
    snprintf(d->model_id, sizeof d->model_id, "%s", engine_info(h->engine)->id);
    return 0;
}

/* The states are set in this order so that whoever sees READY sees engine and ctx too. A stop that
 * came meanwhile stays. */
static void load_and_tell(struct work *w)
{
    struct err e;
    struct daemon *d = w->d;
    int expected = DAEMON_LOADING;
    if (load_default(w, &e)) {
        snprintf(d->load_error, sizeof d->load_error, "%s", e.text);
        atomic_compare_exchange_strong(&d->state, &expected, DAEMON_FAILED);
        tell_loop(d, MAIL_READY);
        return;
    }
    atomic_store(&d->load_permille, 1000);
    atomic_store(&d->engine, w->hosts[0]->engine);
    tally(d, w->hosts, w->n_hosts, w->hub);
    atomic_compare_exchange_strong(&d->state, &expected, DAEMON_READY);
    tell_loop(d, MAIL_READY);
}

/* ---- models that come ---- */

static void tell_history(struct daemon *d, struct load *l, int kind)
{
    l->mail = (struct mail){.kind = kind};
    if (!mailbox_push(&d->history, &l->mail))
        load_free(l);
}

static void *load_run(void *arg)
{
    struct work *w = arg;
    struct load *l = w->load;
    l->rc = host_load(w->coming, &w->room, &l->err);
    l->mail = (struct mail){.kind = MAIL_LOADED};
    (void)!mailbox_push(&w->d->worker, &l->mail); /* refused: the worker joins us, and looks */
    return NULL;
}

static void end_load(struct work *w, int rc)
{
    struct load *l = w->load;
    l->rc = rc;
    if (rc)
        host_free(w->coming);
    w->load = NULL;
    w->coming = NULL;
    w->is_loader_started = false;
    (void)share_memory(w, 0);
    tell_history(w->d, l, MAIL_LOADED);
}

/* The loader begins when what the others have beyond their shares is free. */
static void try_load(struct work *w)
{
    struct load *l = w->load;
    if (!l || w->is_loader_started || !share_memory(w, l->need_bytes))
        return;
    const bool is_alone = w->n_hosts == 0;
    const uint64_t all = memory_bytes(w), others = fixed_bytes(w, true);
    w->room = (struct host_room){
        .memory_bytes = all > others ? all - others : 1,
        .most_bytes = all,
        .ctx = is_alone && w->d->config->ctx == 0 ? 0 : l->ctx,
    };
    const int rc = thread_start(&w->loader, THREAD_LOADER, load_run, w, &l->err);
    if (rc)
        end_load(w, rc);
    else
        w->is_loader_started = true;
}

static void begin_load(struct work *w, struct load *l)
{
    w->load = l;
    w->coming = host_new(w->d, l->served);
    if (!w->coming)
        end_load(w, err_set(&l->err, ERR_NOMEM, "out of memory for the model"));
    else if (w->n_hosts == LIMIT_RESIDENT)
        end_load(w, err_set(&l->err, ERR_LIMIT, "%d models are in memory", w->n_hosts));
    else
        try_load(w);
}

/* The loader is done. */
static void take_loaded(struct work *w, struct load *l)
{
    pthread_join(w->loader, NULL);
    int rc = l->rc;
    if (rc == 0 && w->is_stopping)
        rc = err_set(&l->err, ERR_CANCELED, "the daemon is stopping");
    if (rc == 0)
        rc = host_begin(w->coming, &w->room, w->hub, l, &l->err);
    if (rc == 0) {
        add_host(w, w->coming);
        tally(w->d, w->hosts, w->n_hosts, w->hub);
    }
    end_load(w, rc);
}

/* ---- models that go ---- */

static void remove_host(struct work *w, int i)
{
    struct host *h = w->hosts[i];
    struct load *l = h->leaving;
    if (cache_has_waiting(h->cache))
        log_info("model %s leaves before all of its KV was written", h->served->id);
    cache_disk_leave(h->cache);
    h->served->host = NULL;
    host_free(h);
    w->n_hosts--;
    memmove(&w->hosts[i], &w->hosts[i + 1], (size_t)(w->n_hosts - i) * sizeof *w->hosts);
    (void)share_memory(w, 0);
    tell_history(w->d, l, MAIL_UNLOADED);
}

static void let_leave(struct work *w)
{
    for (int i = w->n_hosts - 1; i >= 0; i--)
        if (host_has_left(w->hosts[i]))
            remove_host(w, i);
}

/* ---- mail ---- */

static size_t all_caches(const struct work *w, struct cache *ret[1 + LIMIT_RESIDENT])
{
    size_t n = 0;
    if (w->hub)
        ret[n++] = w->hub;
    for (int i = 0; i < w->n_hosts; i++)
        ret[n++] = w->hosts[i]->cache;
    return n;
}

static void wake_batches(struct work *w)
{
    for (int i = 0; i < w->n_hosts; i++)
        batch_wake(&w->hosts[i]->batch);
}

static void take_turn(struct work *w, struct turn *t)
{
    struct host *h = t->served->host;
    if (h && !w->is_stopping) {
        batch_add(&h->batch, t);
        return;
    }
    turn_fail(t, 503, "stopping", "the daemon is stopping");
    batch_hand_back(w->d, t);
}

static void take_keep(struct work *w, struct keep *k)
{
    const struct keep_caches caches = {w->hub, w->hosts, w->n_hosts};
    const bool has_model = !k->served || k->served->host;
    if (w->hub && has_model && !w->is_stopping)
        keep_run(w->d, &caches, k);
    else
        keep_refuse(w->d, k);
    wake_batches(w);
}

static void take_verify(struct work *w, struct verify *v)
{
    struct host *h = v->served->host;
    if (h && !w->is_stopping)
        verifier_add(&h->verifier, v);
    else
        verify_refuse(w->d, v, "stopping", "the daemon is stopping");
}

static void take_forget(struct work *w, struct forget *f)
{
    struct cache *all[1 + LIMIT_RESIDENT];
    forget_run(w->d, all, all_caches(w, all), f);
    wake_batches(w);
}

static void handle_mail(struct work *w, struct mail *m)
{
    switch (m->kind) {
    case MAIL_TURN:
        take_turn(w, (struct turn *)m);
        break;
    case MAIL_FORGET:
        take_forget(w, (struct forget *)m);
        break;
    case MAIL_KEEP:
        take_keep(w, (struct keep *)m);
        break;
    case MAIL_ROOM:
        room_make(w->hub, m);
        break;
    case MAIL_VERIFY:
        take_verify(w, (struct verify *)m);
        break;
    case MAIL_DISK:
        cache_take_mail(w->hub, m);
        wake_batches(w);
        break;
    case MAIL_LOAD:
        begin_load(w, (struct load *)m);
        break;
    case MAIL_LOADED:
        take_loaded(w, (struct load *)m);
        break;
    case MAIL_UNLOAD:
        host_leave(((struct load *)m)->served->host, (struct load *)m);
        break;
    case MAIL_STOP:
        w->is_stopping = true;
        free(m);
        break;
    default:
        log_error("worker: mail of unknown kind %d", m->kind);
        free(m);
    }
}

static void take_mail(struct work *w)
{
    struct mail *m = mailbox_take(&w->d->worker);
    while (m) {
        struct mail *next = m->next;
        m->next = NULL;
        handle_mail(w, m);
        m = next;
    }
}

/* What is new or due goes to the disk, what the machine is short of to the system; then the
 * counters. */
static void tend_caches(struct work *w)
{
    if (!w->hub)
        return;
    for (int i = 0; i < w->n_hosts; i++) {
        cache_tend(w->hosts[i]->cache);
        pressure_tend(&w->hosts[i]->pressure, w->hosts[i]->cache, &w->d->n);
        host_slim(w->hosts[i]);
    }
    tally(w->d, w->hosts, w->n_hosts, w->hub);
}

/* ---- serving ---- */

/* The sooner of two timeouts, -1 being none. */
static int sooner(int a, int b)
{
    return a < 0 || (b >= 0 && b < a) ? b : a;
}

static bool are_idle(const struct work *w)
{
    for (int i = 0; i < w->n_hosts; i++)
        if (!batch_is_idle(&w->hosts[i]->batch))
            return false;
    return true;
}

/* Whether host i's turns go on now: those that nobody waits for stand back behind other models'. */
static bool has_turns(const struct work *w, int i)
{
    const struct batch *b = &w->hosts[i]->batch;
    if (batch_is_idle(b))
        return false;
    for (int k = 0; k < w->n_hosts && batch_is_background(b); k++) {
        const struct batch *other = &w->hosts[k]->batch;
        if (k != i && !batch_is_idle(other) && !batch_is_background(other))
            return false;
    }
    return true;
}

static bool can_step(const struct work *w)
{
    for (int i = 0; i < w->n_hosts; i++)
        if (has_turns(w, i) && !w->hosts[i]->batch.is_stalled)
            return true;
    return false;
}

static bool can_verify(const struct work *w)
{
    for (int i = 0; i < w->n_hosts; i++)
        if (verifier_is_ready(&w->hosts[i]->verifier))
            return true;
    return false;
}

static bool prepare_some(const struct work *w)
{
    for (int i = 0; i < w->n_hosts; i++)
        if (!w->hosts[i]->leaving && cache_prepare(w->hosts[i]->cache))
            return true;
    return false;
}

static int due_ms(struct work *w, bool is_idle)
{
    int ms = -1;
    for (int i = 0; i < w->n_hosts; i++) {
        struct host *h = w->hosts[i];
        idle_verifier_note(&h->idle_verifier, is_idle);
        ms = sooner(ms, cache_due_ms(h->cache));
        ms = sooner(ms, idle_verifier_due_ms(&h->idle_verifier));
        ms = sooner(ms, pressure_due_ms(&h->pressure, h->cache));
        ms = sooner(ms, host_slims_ms(h));
        ms = sooner(ms, host_leaves_ms(h));
    }
    return ms;
}

/* Waits until there is something to do: mail, or what is due. */
static void rest(struct work *w)
{
    struct daemon *d = w->d;
    const bool is_idle = are_idle(w), is_proving = can_verify(w);
    const int ms = due_ms(w, is_idle);
    if (can_step(w) || is_proving || ms == 0 || (is_idle && w->hub && prepare_some(w)))
        return;
    atomic_store(&d->n.worker_parked, 1);
    mailbox_wait(&d->worker, ms);
    atomic_store(&d->n.worker_parked, 0);
}

/* One pass, of the model whose turn it is. A batch that waits for the disk makes none. */
static void step(struct work *w)
{
    for (int k = 0; k < w->n_hosts; k++) {
        const int i = (w->next + k) % w->n_hosts;
        if (!has_turns(w, i))
            continue;
        batch_step(&w->hosts[i]->batch);
        if (w->hosts[i]->batch.is_stalled)
            continue;
        w->next = i + 1;
        return;
    }
}

/* When no turn runs, blocks are verified. From before the mail is taken a turn that comes
 * interrupts that. */
static void verify(struct work *w, bool is_told)
{
    const bool is_idle = are_idle(w);
    if (is_idle && !is_told)
        return; /* the batches have become idle just now */
    for (int i = 0; i < w->n_hosts; i++)
        verifier_step(&w->hosts[i]->verifier, is_idle);
    for (int i = 0; i < w->n_hosts && is_idle && !can_verify(w); i++)
        idle_verifier_step(&w->hosts[i]->idle_verifier);
}

static void serve(struct work *w)
{
    struct daemon *d = w->d;
    while (!w->is_stopping) {
        rest(w);
        const bool is_told = are_idle(w);
        atomic_store(&d->is_proving, is_told);
        if (is_told)
            atomic_store(&d->pass_abort, 0); /* before mail and flags are read: worker.h */
        take_mail(w);
        atomic_fetch_add(&d->n.worker_ticks, 1);
        for (int i = 0; i < w->n_hosts; i++)
            verifier_yield(&w->hosts[i]->verifier, are_idle(w));
        if (!w->is_stopping)
            step(w);
        if (!w->is_stopping)
            verify(w, is_told);
        atomic_store(&d->is_proving, 0);
        let_leave(w);
        try_load(w);
        tend_caches(w);
    }
}

/* Nothing is loaded any more, all turns end, what waits goes to the disk. */
static void stop(struct work *w)
{
    mailbox_close(&w->d->worker);
    take_mail(w);
    if (w->is_loader_started)
        take_loaded(w, w->load);
    else if (w->load)
        end_load(w, err_set(&w->load->err, ERR_CANCELED, "the daemon is stopping"));
    for (int i = 0; i < w->n_hosts; i++)
        host_stop(w->hosts[i]);
    for (int i = 0; i < w->n_hosts; i++)
        cache_disk_close(w->hosts[i]->cache, LIMIT_DISK_STOP_MS);
    if (w->hub)
        cache_disk_close(w->hub, LIMIT_DISK_STOP_MS);
}

static void *run(void *arg)
{
    struct work *w = arg;
    load_and_tell(w);
    serve(w);
    stop(w);
    for (int i = 0; i < w->n_hosts; i++)
        host_empty(w->hosts[i]);
    cache_free(w->hub);
    kv_pool_free(w->hub_pool);
    tell_loop(w->d, MAIL_STOPPED);
    return NULL;
}

int worker_start(struct daemon *d, struct err *e)
{
    self.w = (struct work){.d = d};
    const int rc = thread_start(&self.thread, THREAD_WORKER, run, &self.w, e);
    if (rc)
        mailbox_close(&d->worker);
    return rc;
}

void worker_join(struct daemon *d)
{
    pthread_join(self.thread, NULL);
    atomic_store(&d->engine, NULL);
    for (int i = 0; i < self.w.n_hosts; i++)
        host_free(self.w.hosts[i]);
    self.w.n_hosts = 0;
}
