/*
 * The worker thread: loads the model, then turns mail into steps of the batch. See worker.h; how
 * turns run together is batch.h's.
 */
#include "daemon/worker.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/paths.h"
#include "daemon/batch.h"
#include "daemon/budget.h"
#include "daemon/embedder.h"
#include "daemon/config.h"
#include "daemon/forget.h"
#include "daemon/keep.h"
#include "daemon/limits.h"
#include "daemon/pressure.h"
#include "daemon/request.h"
#include "daemon/room.h"
#include "daemon/verify.h"
#include "daemon/verify_idle.h"

/* One daemon a process, so one of these. */
static struct {
    struct daemon *d;
    pthread_t thread;
    struct engine *engine; /* the worker's until its thread ends, then worker_join's */
} self;

struct work {
    struct daemon *d;
    struct engine *engine;
    struct kv_pool *pool;
    struct cache *cache;
    struct pressure pressure;
    struct batch batch;
    struct verifier verifier;
    struct idle_verifier idle_verifier;
    bool is_stopping;
};

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

/* ---- loading ---- */

static void on_progress(void *ctx, double done)
{
    struct daemon *d = ctx;
    atomic_store(&d->load_permille, (int)(done * 1000));
    atomic_fetch_add(&d->n.worker_ticks, 1);
}

static int open_engine(struct work *w, uint64_t memory_bytes, struct err *e)
{
    const struct config *c = w->d->config;
    char *fingerprints = c->cache_dir ? path_join(c->cache_dir, "fingerprints") : NULL;
    struct engine_options o = {
        .model_path = c->model,
        .chat_template = c->chat_template,
        .isa = c->isa,
        .n_threads = c->threads,
        .n_ctx = c->ctx > 0 ? c->ctx : DEFAULT_CTX,
        .kv_type = c->kv_type,
        .skip_nfc = c->skip_nfc,
        .memory_bytes = memory_bytes,
        .fingerprint_cache = fingerprints,
        .on_progress = on_progress,
        .progress_ctx = w->d,
        .abort = &w->d->load_abort,
    };
    int rc = engine_open(&o, &w->engine, e);
    free(fingerprints);
    return rc;
}

/* Before the disk tier learns what it has, and trims it. */
static void set_pins(struct work *w, size_t n_turn_blocks)
{
    struct daemon *d = w->d;
    const uint8_t *model = engine_info(w->engine)->fingerprint;
    size_t n_refused = 0;
    struct err e, why;
    cache_set_turn_blocks(w->cache, n_turn_blocks);
    for (size_t i = 0; i < d->n_pins; i++) {
        if (memcmp(d->pins[i].model, model, HASH_BYTES) == 0 &&
            cache_pin(w->cache, d->pins[i].block, 1, &e)) {
            n_refused++;
            why = e;
        }
    }
    if (n_refused > 0)
        log_warn("%zu stored pins have no effect in this run: %s", n_refused, why.text);
    free(d->pins);
    d->pins = NULL;
    d->n_pins = 0;
}

/* The names on the disk are known: a mail, so that the counters are looked at. */
static void on_known(void *ctx, bool is_done)
{
    (void)ctx;
    (void)is_done;
}

/* Without it all else works; why there is none is said once. */
static void open_disk(struct work *w)
{
    const struct config *c = w->d->config;
    const bool is_auto = c->disk_bytes == CONFIG_DISK_AUTO;
    struct cache_disk_options o = {
        .dir = c->cache_dir,
        .bytes_max = is_auto ? DEFAULT_DISK_BYTES : c->disk_bytes,
        .percent_max = is_auto ? DEFAULT_DISK_PERCENT : 0,
        .reserve_bytes = c->disk_reserve_bytes,
        .tail_idle_ms = DISK_TAIL_IDLE_MS,
        .reply = &w->d->worker,
        .reply_kind = MAIL_DISK,
    };
    struct err e;
    if (!c->use_cache || !c->cache_dir || c->disk_bytes == 0)
        return;
    if (cache_disk_open(w->cache, &o, &e))
        log_warn("no disk cache in this run: %s", e.text);
    else
        (void)!cache_sync(w->cache, on_known, NULL, &e);
}

/* The largest pass, and what each running turn has of logits: the engine's, and the sampler's
 * copies and candidates. */
static uint64_t pass_bytes(const struct work *w)
{
    const uint64_t n_vocab = (uint64_t)engine_info(w->engine)->n_vocab;
    const int parallel = w->d->config->parallel;
    return engine_pass_bytes(w->engine, PACE_ROWS_MAX + parallel) +
           (uint64_t)parallel * LOOKUP_SLOTS_MAX * sizeof(uint32_t) +
           (uint64_t)parallel * n_vocab * (6 + LOOKUP_DRAFT_MAX) * sizeof(float);
}

static void tell_budget(struct work *w, const struct budget_request *r, const struct budget *budget)
{
    struct counters *n = &w->d->n;
    const struct engine_info *info = engine_info(w->engine);
    const uint64_t kv_bytes = (uint64_t)budget->n_blocks * r->block_bytes;
    atomic_store(&n->weights_bytes, r->weights_bytes);
    atomic_store(&n->vectors_bytes, r->vectors_bytes);
    atomic_store(&n->buffers_bytes, budget->buffers_bytes);
    atomic_store(&n->kv_bytes_max, kv_bytes);
    atomic_store(&n->kv_allowed_bytes, kv_bytes);
    log_info("model %s (%s, %s, %.1f M parameters), %s, %d threads; ctx %d, memory %.0f MiB: "
             "weights %.0f, buffers %.0f, KV %.0f",
             info->id, info->arch, info->quant, (double)info->n_params / 1e6, info->isa,
             info->n_threads, budget->ctx, (double)r->memory_bytes / (1 << 20),
             (double)r->weights_bytes / (1 << 20), (double)budget->buffers_bytes / (1 << 20),
             (double)kv_bytes / (1 << 20));
}

static int load(struct work *w, struct err *e)
{
    struct daemon *d = w->d;
    struct budget budget;
    uint64_t vectors_bytes;
    uint64_t memory_bytes = d->config->memory_bytes ? d->config->memory_bytes : budget_default();
    atomic_store(&d->n.memory_bytes_max, memory_bytes);
    int rc = open_engine(w, memory_bytes, e);
    if (rc)
        return rc;
    const struct engine_info *info = engine_info(w->engine);
    struct budget_request request = {
        .memory_bytes = memory_bytes,
        .weights_bytes = info->weights_bytes,
        .vectors_bytes = embedder_bytes(d->config, memory_bytes, &vectors_bytes),
        .pass_bytes = pass_bytes(w),
        .block_bytes = info->kv.block_bytes,
        .ctx = d->config->ctx,
        .n_ctx_train = info->n_ctx_train,
    };
    if ((rc = budget_plan(&request, &budget, e)) ||
        (rc = kv_pool_new(&info->kv, budget.n_blocks, &w->pool, e)) ||
        (rc = cache_new(w->pool, &w->cache, e)))
        return rc;
    set_pins(w, (size_t)budget.ctx / KV_BLOCK + 2);
    open_disk(w);
    pressure_init(&w->pressure, NULL);
    d->ctx = budget.ctx;
    tell_budget(w, &request, &budget);
    return 0;
}

/* What a failed load has made, and what a finished worker leaves; the engine stays for worker_join.
 */
static void unload(struct work *w)
{
    cache_free(w->cache);
    kv_pool_free(w->pool);
    w->cache = NULL;
    w->pool = NULL;
}

/* The states are set in this order so that whoever sees READY sees engine and ctx too. A stop that
 * came meanwhile stays. */
static bool load_and_tell(struct work *w)
{
    struct err e;
    struct daemon *d = w->d;
    int expected = DAEMON_LOADING;
    if (load(w, &e)) {
        snprintf(d->load_error, sizeof d->load_error, "%s", e.text);
        unload(w);
        atomic_compare_exchange_strong(&d->state, &expected, DAEMON_FAILED);
        tell_loop(d, MAIL_READY);
        return false;
    }
    batch_init(&w->batch, d, w->engine, w->cache);
    verifier_init(&w->verifier, d, w->engine, w->cache);
    idle_verifier_init(&w->idle_verifier, d, w->engine, w->cache);
    atomic_store(&d->load_permille, 1000);
    atomic_store(&d->engine, w->engine);
    atomic_compare_exchange_strong(&d->state, &expected, DAEMON_READY);
    tell_loop(d, MAIL_READY);
    return true;
}

/* ---- serving ---- */

static void handle_mail(struct work *w, struct mail *m, bool is_loaded)
{
    struct turn *t = (struct turn *)m;
    switch (m->kind) {
    case MAIL_TURN:
        if (is_loaded && !w->is_stopping) {
            batch_add(&w->batch, t);
        } else {
            turn_fail(t, 503, "stopping", "the daemon is stopping");
            batch_hand_back(w->d, t);
        }
        break;
    case MAIL_FORGET:
        forget_run(w->d, w->cache, (struct forget *)m);
        if (is_loaded)
            batch_wake(&w->batch);
        break;
    case MAIL_KEEP:
        if (is_loaded && !w->is_stopping)
            keep_run(w->d, w->engine, w->cache, (struct keep *)m);
        else
            keep_refuse(w->d, (struct keep *)m);
        if (is_loaded)
            batch_wake(&w->batch);
        break;
    case MAIL_ROOM:
        room_make(w->cache, m);
        break;
    case MAIL_VERIFY:
        if (is_loaded && !w->is_stopping)
            verifier_add(&w->verifier, (struct verify *)m);
        else
            verify_refuse(w->d, (struct verify *)m, "stopping", "the daemon is stopping");
        break;
    case MAIL_DISK:
        cache_take_mail(w->cache, m);
        batch_wake(&w->batch);
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

static void take_mail(struct work *w, bool is_loaded)
{
    struct mail *m = mailbox_take(&w->d->worker);
    while (m) {
        struct mail *next = m->next;
        m->next = NULL;
        handle_mail(w, m, is_loaded);
        m = next;
    }
}

/* What is new or due goes to the disk, what the machine is short of to the system; then the
 * counters. */
static void tend_cache(struct work *w)
{
    struct cache_stats s;
    struct counters *n = &w->d->n;
    cache_tend(w->cache);
    pressure_tend(&w->pressure, w->cache, n);
    cache_stats(w->cache, &s);
    atomic_store(&n->kv_blocks, s.n_blocks + s.n_tails);
    atomic_store(&n->kv_bytes, s.bytes_used);
    atomic_store(&n->kv_evicted, s.n_evicted_blocks);
    atomic_store(&n->kv_cached_bytes, s.bytes_cached);
    atomic_store(&n->kv_allowed_bytes, s.bytes_allowed);
    atomic_store(&n->kv_resident_bytes, s.bytes_resident);
    if (!s.has_disk)
        return;
    atomic_store(&n->disk_blocks, s.disk_blocks);
    atomic_store(&n->disk_bytes, s.disk_bytes);
    atomic_store(&n->disk_bytes_max, s.disk_bytes_max);
    atomic_store(&n->disk_waiting, s.n_disk_waiting);
    atomic_store(&n->disk_read, s.n_disk_read);
    atomic_store(&n->disk_written, s.n_disk_written);
    atomic_store(&n->disk_bytes_written, s.disk_bytes_written);
    atomic_store(&n->disk_removed, s.n_disk_removed);
    atomic_store(&n->disk_bad, s.n_disk_bad);
    atomic_store(&n->disk_failed, s.n_disk_failed);
    atomic_store(&n->disk_paused, s.is_disk_paused);
}

/* The sooner of two timeouts, -1 being none. */
static int sooner(int a, int b)
{
    return a < 0 || (b >= 0 && b < a) ? b : a;
}

/* Waits until there is something to do: mail, or what is due. */
static void rest(struct work *w, bool is_loaded)
{
    struct daemon *d = w->d;
    int due_ms = -1;
    if (is_loaded) {
        idle_verifier_note(&w->idle_verifier, batch_is_idle(&w->batch));
        due_ms = sooner(cache_due_ms(w->cache), idle_verifier_due_ms(&w->idle_verifier));
        due_ms = sooner(due_ms, pressure_due_ms(&w->pressure, w->cache));
    }
    const bool is_batch_waiting = !is_loaded || batch_is_idle(&w->batch) || w->batch.is_stalled;
    const bool is_proving = is_loaded && verifier_is_ready(&w->verifier);
    const bool is_idle = is_loaded && batch_is_idle(&w->batch) && !is_proving;
    if (is_batch_waiting && !is_proving && due_ms != 0 && !(is_idle && cache_prepare(w->cache))) {
        atomic_store(&d->n.worker_parked, 1);
        mailbox_wait(&d->worker, due_ms);
        atomic_store(&d->n.worker_parked, 0);
    }
}

/* When no turn runs, blocks are verified. From before the mail is taken a turn that comes
 * interrupts that. */
static void verify(struct work *w, bool is_told)
{
    const bool is_idle = batch_is_idle(&w->batch);
    if (is_idle && !is_told)
        return; /* the batch has become idle just now */
    verifier_step(&w->verifier, is_idle);
    if (is_idle && !verifier_is_ready(&w->verifier))
        idle_verifier_step(&w->idle_verifier);
}

static void serve(struct work *w, bool is_loaded)
{
    struct daemon *d = w->d;
    while (!w->is_stopping) {
        rest(w, is_loaded);
        const bool is_told = is_loaded && batch_is_idle(&w->batch);
        atomic_store(&d->is_proving, is_told);
        if (is_told)
            atomic_store(&d->pass_abort, 0); /* before mail and flags are read: worker.h */
        take_mail(w, is_loaded);
        atomic_fetch_add(&d->n.worker_ticks, 1);
        if (is_loaded)
            verifier_yield(&w->verifier, batch_is_idle(&w->batch));
        if (is_loaded && !w->is_stopping && !batch_is_idle(&w->batch))
            batch_step(&w->batch);
        if (is_loaded && !w->is_stopping)
            verify(w, is_told);
        atomic_store(&d->is_proving, 0);
        if (is_loaded)
            tend_cache(w);
    }
    mailbox_close(&d->worker);
    take_mail(w, is_loaded);
    if (is_loaded) {
        batch_stop(&w->batch);
        verifier_stop(&w->verifier);
        idle_verifier_stop(&w->idle_verifier);
        cache_disk_close(w->cache, LIMIT_DISK_STOP_MS);
    }
}

static void *run(void *arg)
{
    struct daemon *d = arg;
    struct work w = {.d = d};
    bool is_loaded = load_and_tell(&w);
    serve(&w, is_loaded);
    unload(&w);
    self.engine = w.engine;
    tell_loop(d, MAIL_STOPPED);
    return NULL;
}

int worker_start(struct daemon *d, struct err *e)
{
    self.d = d;
    self.engine = NULL;
    return thread_start(&self.thread, THREAD_WORKER, run, d, e);
}

void worker_join(struct daemon *d)
{
    pthread_join(self.thread, NULL);
    atomic_store(&d->engine, NULL);
    engine_close(self.engine);
    self.engine = NULL;
}
