/* One model in memory: see host.h. */
#include "daemon/host.h"

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/paths.h"
#include "daemon/budget.h"
#include "daemon/config.h"
#include "daemon/embedder.h"
#include "daemon/limits.h"
#include "daemon/request.h"

struct host *host_new(struct daemon *d, struct served *s)
{
    struct host *h = calloc(1, sizeof *h);
    if (!h)
        return NULL;
    h->d = d;
    h->served = s;
    return h;
}

/* ---- loading ---- */

static void on_progress(void *ctx, double done)
{
    struct host *h = ctx;
    const int permille = (int)(done * 1000);
    atomic_store(&h->served->permille, permille);
    if (h->served->is_default && !atomic_load(&h->d->engine))
        atomic_store(&h->d->load_permille, permille);
    atomic_fetch_add(&h->d->n.worker_ticks, 1);
}

/* The largest pass, and what each running turn has of logits: the engine's, and the sampler's
 * copies and candidates. */
static uint64_t pass_bytes(const struct daemon *d, const struct engine_needs *n)
{
    const uint64_t parallel = (uint64_t)d->config->parallel;
    return n->pass_bytes + parallel * LOOKUP_SLOTS_MAX * sizeof(uint32_t) +
           parallel * (uint64_t)n->n_vocab * (6 + LOOKUP_DRAFT_MAX) * sizeof(float);
}

static int plan(struct host *h, const struct host_room *room, const struct engine_needs *n,
                struct budget *ret, struct err *e)
{
    uint64_t vectors_bytes;
    const struct budget_request request = {
        .memory_bytes = room->memory_bytes,
        .weights_bytes = n->weights_bytes,
        .vectors_bytes =
            embedder_bytes(h->d->config, atomic_load(&h->d->n.memory_bytes_max), &vectors_bytes),
        .pass_bytes = pass_bytes(h->d, n),
        .block_bytes = n->kv.block_bytes,
        .ctx = room->ctx,
        .n_ctx_train = n->n_ctx_train,
    };
    const int rc = budget_plan(&request, ret, e);
    if (rc)
        return rc;
    h->fixed_bytes = n->weights_bytes + ret->buffers_bytes;
    h->block_bytes = n->kv.block_bytes;
    atomic_store(&h->d->n.vectors_bytes, request.vectors_bytes);
    return 0;
}

struct taking {
    struct host *h;
    const struct host_room *room;
    struct budget budget;
};

/* Weights, buffers and a window fit, or it isn't begun. */
static int may_take(void *ctx, const struct engine_needs *n, struct err *e)
{
    struct taking *t = ctx;
    return plan(t->h, t->room, n, &t->budget, e);
}

int host_load(struct host *h, const struct host_room *room, struct err *e)
{
    struct taking taking = {.h = h, .room = room};
    const struct config *c = h->d->config;
    char *fingerprints = c->cache_dir ? path_join(c->cache_dir, "fingerprints") : NULL;
    struct engine_options o = {
        .model_path = h->served->path,
        .chat_template = config_template_of(c, h->served->id, h->served->is_default),
        .isa = c->isa,
        .n_threads = c->threads,
        .n_ctx = c->ctx > 0 ? c->ctx : DEFAULT_CTX,
        .kv_type = c->kv_type,
        .skip_nfc = c->skip_nfc,
        .memory_bytes = room->memory_bytes,
        .fingerprint_cache = fingerprints,
        .on_progress = on_progress,
        .progress_ctx = h,
        .passed = &h->d->n.layers,
        .abort = &h->d->load_abort,
        .pass_rows = PACE_ROWS_MAX + c->parallel,
        .may_take = may_take,
        .may_take_ctx = &taking,
    };
    int rc = engine_open(&o, &h->engine, e);
    h->ctx = taking.budget.ctx;
    h->n_blocks = taking.budget.n_blocks;
    free(fingerprints);
    return rc;
}

/* ---- beginning ---- */

/* Those of its own. */
static void set_pins(struct host *h, struct cache *hub, const struct load *all)
{
    const uint8_t *model = engine_info(h->engine)->fingerprint;
    const struct memory_block_pinned *pins = all->pins;
    size_t n_refused = 0;
    struct err e, why;
    cache_set_turn_blocks(h->cache, h->n_window_blocks);
    for (size_t i = 0; i < all->n_pins; i++) {
        if (memcmp(pins[i].model, model, HASH_BYTES) == 0 &&
            cache_pin(h->cache, pins[i].block, 1, &e)) {
            cache_unpin(hub, pins[i].block, 1);
            n_refused++;
            why = e;
        }
    }
    if (n_refused > 0)
        log_warn("%zu stored pins have no effect in this run: %s", n_refused, why.text);
}

static void tell(const struct host *h, uint64_t memory_bytes, uint64_t kv_bytes)
{
    const struct engine_info *info = engine_info(h->engine);
    log_info("model %s (%s, %s, %.1f M parameters), %s, %d threads; ctx %d, memory %.0f MiB: "
             "weights %.0f, buffers %.0f, KV %.0f",
             info->id, info->arch, info->quant, (double)info->n_params / 1e6, info->isa,
             info->n_threads, h->ctx, (double)memory_bytes / (1 << 20),
             (double)info->weights_bytes / (1 << 20),
             (double)(h->fixed_bytes - info->weights_bytes) / (1 << 20),
             (double)kv_bytes / (1 << 20));
}

/* Where the history thread finds it. */
static void tell_served(const struct host *h)
{
    struct served *s = h->served;
    s->engine = h->engine;
    s->ctx = h->ctx;
    s->fixed_bytes = h->fixed_bytes;
    s->window_bytes = (uint64_t)h->n_window_blocks * h->block_bytes;
    atomic_store(&s->block_bytes, h->block_bytes);
    atomic_store(&s->weights_bytes, engine_info(h->engine)->weights_bytes);
}

int host_begin(struct host *h, const struct host_room *room, struct cache *hub,
               const struct load *pins, struct err *e)
{
    struct cache_stats stats;
    int rc;
    const uint64_t more = room->most_bytes - room->memory_bytes;
    const size_t n_blocks = h->n_blocks + (size_t)(more / h->block_bytes);
    h->n_window_blocks = (size_t)h->ctx / KV_BLOCK + 2;
    if ((rc = kv_pool_new(&engine_info(h->engine)->kv, n_blocks, &h->pool, e)) ||
        (rc = cache_new(h->pool, &h->cache, e)))
        return rc;
    cache_stats(hub, &stats);
    if (stats.has_disk)
        cache_disk_share(h->cache, hub);
    set_pins(h, hub, pins);
    pressure_init(&h->pressure, NULL);
    batch_init(&h->batch, h->d, h->engine, h->cache);
    verifier_init(&h->verifier, h->d, h->engine, h->cache);
    h->verifier.ctx = h->ctx;
    idle_verifier_init(&h->idle_verifier, h->d, h->engine, h->cache);
    tell_served(h);
    tell(h, room->memory_bytes, (uint64_t)h->n_blocks * h->block_bytes);
    return 0;
}

void host_empty(struct host *h)
{
    load_free(h->leaving);
    cache_free(h->cache);
    kv_pool_free(h->pool);
    h->leaving = NULL;
    h->cache = NULL;
    h->pool = NULL;
}

void host_free(struct host *h)
{
    if (!h)
        return;
    cache_free(h->cache);
    kv_pool_free(h->pool);
    engine_close(h->engine);
    free(h);
}

/* ---- ending ---- */

void host_stop(struct host *h)
{
    batch_stop(&h->batch);
    verifier_stop(&h->verifier);
    idle_verifier_stop(&h->idle_verifier);
    cache_rest(h->cache);
}

void host_leave(struct host *h, struct load *order)
{
    h->leaving = order;
    h->leaves_at_us = clock_us() + LIMIT_DISK_STOP_MS * 1000;
    idle_verifier_stop(&h->idle_verifier);
    cache_set_samples(h->cache, 0);
    cache_rest(h->cache);
}

bool host_has_left(const struct host *h)
{
    return h->leaving && batch_is_idle(&h->batch) && h->verifier.n == 0 &&
           !cache_is_busy(h->cache) &&
           (clock_us() >= h->leaves_at_us || !cache_has_waiting(h->cache));
}

int host_leaves_ms(const struct host *h)
{
    if (!h->leaving)
        return -1;
    const int64_t left_us = h->leaves_at_us - clock_us();
    return left_us > 0 ? (int)(left_us / 1000) + 1 : -1; /* then it is mail that we wait for */
}

/* ---- memory ---- */

int host_slims_ms(const struct host *h)
{
    if (h->idle_verifier.idle_since_us == 0 || !cache_has_slack(h->cache))
        return -1;
    const int64_t left_us = h->idle_verifier.idle_since_us + SLIM_MS * 1000 - clock_us();
    return left_us > 0 ? (int)(left_us / 1000) + 1 : 0;
}

void host_slim(struct host *h)
{
    if (host_slims_ms(h) != 0)
        return;
    const size_t n = cache_slim(h->cache);
    if (n > 0)
        log_debug("model %s: %.1f MiB of free KV go back to the system", h->served->id,
                  (double)n / (1 << 20));
}

bool host_share(struct host *const *v, int n, uint64_t kv_bytes)
{
    uint64_t least = 0;
    bool fits = true;
    for (int i = 0; i < n; i++)
        least += (uint64_t)v[i]->n_window_blocks * v[i]->block_bytes;
    const uint64_t spare = kv_bytes > least && n > 0 ? (kv_bytes - least) / (uint64_t)n : 0;
    for (int i = 0; i < n; i++) {
        const size_t n_blocks = v[i]->n_window_blocks + (size_t)(spare / v[i]->block_bytes);
        fits &= cache_set_limit(v[i]->cache, n_blocks);
    }
    return fits;
}
