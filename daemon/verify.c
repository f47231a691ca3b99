/*
 * See verify.h. A chain's life on the worker:
 *
 *   open a lease ─ find in RAM ─ read from disk ─ a block a step … ─ close
 *         ▲                                             │ turns need the room
 *         └─────────────────────────────────────────────┘ n_checked says where to go on
 *
 * The first block that differs ends a chain: what hangs from it was computed from wrong bytes.
 */
#include "daemon/verify.h"

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "daemon/limits.h"
#include "daemon/wire.h"

/* ---- the job ---- */

struct verify *verify_new(const struct request *r, size_t n)
{
    struct verify *v = calloc(1, sizeof *v);
    if (!v)
        return NULL;
    v->mail.kind = MAIL_VERIFY;
    v->conn = r->conn;
    v->cancel = cancel_ref(r->cancel);
    v->owner = strdup(r->owner);
    v->chains = calloc(n ? n : 1, sizeof *v->chains);
    v->t_begun = clock_us();
    if (v->chains)
        v->n = n;
    for (size_t i = 0; i < v->n; i++)
        ids_init(&v->chains[i].ids);
    if (v->owner && v->chains)
        return v;
    verify_free(v);
    return NULL;
}

void verify_free(struct verify *v)
{
    if (!v)
        return;
    for (size_t i = 0; i < v->n; i++)
        ids_done(&v->chains[i].ids);
    cancel_unref(v->cancel);
    free(v->chains);
    free(v->owner);
    free(v);
}

void verify_refuse(struct daemon *d, struct verify *v, const char *code, const char *text)
{
    struct http_error error;
    http_error_set(&error, 503, code, NULL, "%s", text);
    reply_error(d, v->conn, &error, false);
    verify_free(v);
}

static void add_difference(json *different, const struct verify_chain *c)
{
    json *o = json_add(different, json_object());
    json_set_str(o, "conversation", c->id);
    json_set_int(o, "block", c->n_checked - 1);
    json_set_int(o, "position", (int64_t)(c->n_checked - 1) * KV_BLOCK);
    json_set_int(o, "removed_blocks", c->n_gone);
}

static void reply(struct daemon *d, const struct verify *v)
{
    struct buf body;
    int64_t n_checked = 0, n_ram = 0, n_disk = 0, n_missing = 0;
    json *o = json_object();
    json *different = json_array();
    for (size_t i = 0; i < v->n; i++) {
        const struct verify_chain *c = &v->chains[i];
        n_checked += c->n_checked;
        n_ram += c->n_ram;
        n_disk += c->n_disk;
        n_missing += ((int64_t)c->ids.n / KV_BLOCK - c->n_cached) * KV_BLOCK;
        if (c->n_gone > 0)
            add_difference(different, c);
    }
    json_set_str(o, "object", "hearth.verify");
    json_set_int(o, "conversations", (int64_t)v->n);
    json_set_int(o, "blocks", n_checked);
    json_set_int(o, "ram", n_ram);
    json_set_int(o, "disk", n_disk);
    json_set_int(o, "missing", n_missing);
    json_set(o, "different", different);
    json_set_bool(o, "has_more", v->has_more);
    json_set_int(o, "ms", (clock_us() - v->t_begun) / 1000);
    buf_init(&body, WIRE_BODY_BYTES);
    json_write(o, &body);
    json_free(o);
    reply_post(d, REPLY_WHOLE, v->conn, 200, &body);
}

/* ---- the queue ---- */

void verifier_init(struct verifier *f, struct daemon *d, struct engine *engine,
                   struct cache *cache)
{
    *f = (struct verifier){.d = d, .engine = engine, .cache = cache};
}

void verifier_add(struct verifier *f, struct verify *v)
{
    struct verify **at = &f->first;
    if (f->n >= LIMIT_VERIFY_QUEUE) {
        verify_refuse(f->d, v, "overloaded", "too many verifications at once; try again later");
        return;
    }
    while (*at)
        at = (struct verify **)(void *)&(*at)->mail.next;
    v->mail.next = NULL;
    *at = v;
    f->n++;
}

static void let_go(struct verifier *f)
{
    cache_lease_close(f->lease, NULL, false);
    f->lease = NULL;
}

static struct verify *take_first(struct verifier *f)
{
    struct verify *v = f->first;
    let_go(f);
    f->first = (struct verify *)(void *)v->mail.next;
    f->n--;
    f->at = 0;
    return v;
}

static bool is_canceled(const struct verify *v)
{
    return atomic_load(&v->cancel->is_set) != 0;
}

bool verifier_is_ready(const struct verifier *f)
{
    return f->first && !(f->lease && cache_is_restoring(f->lease));
}

void verifier_stop(struct verifier *f)
{
    while (f->first)
        verify_refuse(f->d, take_first(f), "stopping", "the daemon is stopping");
}

/* ---- room ---- */

/* Whether a turn's whole window could be had beside what is held. */
static bool is_roomy(const struct verifier *f)
{
    return cache_room(f->cache) >= (size_t)f->d->ctx / KV_BLOCK + 2;
}

void verifier_yield(struct verifier *f, bool is_batch_idle)
{
    if (f->lease && !is_batch_idle && !is_roomy(f))
        let_go(f);
}

/* ---- a chain ---- */

/* Ids that may be held: one block stays free for the comparison. */
static int n_max_of(const struct verifier *f, const struct verify_chain *c)
{
    const size_t room = cache_room(f->cache);
    const size_t n = c->ids.n / KV_BLOCK;
    return (int)(n < room ? n : room ? room - 1 : 0) * KV_BLOCK;
}

/* false: it can't be had now. */
static bool open_chain(struct verifier *f, struct verify_chain *c)
{
    struct cache_root root;
    struct cache_found found;
    struct err e;
    const int n_max = n_max_of(f, c);
    cache_root_of(engine_info(f->engine)->fingerprint, f->first->owner, &root);
    if (cache_lease_open(f->cache, &root, c->who, &f->lease, &e)) {
        log_warn("verify: %s", e.text);
        return false;
    }
    if (cache_find(f->lease, c->ids.v, n_max, &found, &e)) {
        log_warn("verify: %s", e.text);
        let_go(f);
        return false;
    }
    f->n_path = cache_lease_n_blocks(f->lease);
    const int n = cache_restorable(f->lease, c->ids.v, n_max);
    if (n > 0 && cache_reserve(f->lease, n, &e) == 0)
        cache_restore(f->lease, c->ids.v, f->n_path * KV_BLOCK + n);
    return true;
}

/* Goes on to the next chain, or answers. */
static void end_chain(struct verifier *f)
{
    let_go(f);
    if (++f->at < f->first->n)
        return;
    struct verify *v = take_first(f);
    reply(f->d, v);
    verify_free(v);
}

static void quarantine(struct verifier *f, struct verify_chain *c, int n_block)
{
    c->n_gone = (int)cache_quarantine(f->lease, n_block, c->ids.v, (int)c->ids.n);
    atomic_fetch_add(&f->d->n.verify_failed, 1);
    log_error("verify: block %d of conversation %s is not what the model computes: it and what "
              "follows it, %d blocks, are removed",
              n_block, c->id, c->n_gone);
    end_chain(f);
}

/* Computes the chain's next block and compares it. */
static void check_block(struct verifier *f, struct verify_chain *c)
{
    struct kv_seq probe;
    struct err e;
    const int n = c->n_checked;
    if (cache_probe_open(f->lease, n, &probe, &e)) {
        let_go(f); /* turns have all the rest; again when they gave some back */
        return;
    }
    struct engine_part part = {
        .seq = &probe,
        .ids = c->ids.v + (size_t)n * KV_BLOCK,
        .n_ids = KV_BLOCK,
    };
    const int rc = engine_pass(f->engine, &part, 1, &f->d->pass_abort, &e);
    const bool is_same = cache_probe_close(f->lease, &probe);
    if (rc == ERR_CANCELED)
        return;
    if (rc) {
        log_error("verify: a pass failed: %s", e.text);
        struct http_error error;
        http_error_set(&error, 500, "engine_error", NULL, "the engine failed: %s", e.text);
        struct verify *v = take_first(f);
        reply_error(f->d, v->conn, &error, false);
        verify_free(v);
        return;
    }
    c->n_checked++;
    *(n < f->n_path ? &c->n_ram : &c->n_disk) += 1;
    atomic_fetch_add(&f->d->n.verify_blocks, 1);
    if (!is_same)
        quarantine(f, c, n);
}

void verifier_step(struct verifier *f, bool is_batch_idle)
{
    const int64_t t0 = clock_us();
    if (!verifier_is_ready(f) || (!is_batch_idle && (t0 < f->rest_until_us || !is_roomy(f))))
        return;
    if (is_batch_idle)
        atomic_store(&f->d->pass_abort, 0); /* before the flag is read: worker.h */
    if (is_canceled(f->first)) {
        verify_free(take_first(f));
        return;
    }
    struct verify_chain *c = f->at < f->first->n ? &f->first->chains[f->at] : NULL;
    if (!c) { /* there is no conversation at all */
        end_chain(f);
        return;
    }
    if (!f->lease) {
        if (!open_chain(f, c))
            verify_refuse(f->d, take_first(f), "out_of_memory", "no memory to verify with");
        return;
    }
    c->n_cached = cache_lease_n_blocks(f->lease);
    if (c->n_checked >= c->n_cached)
        end_chain(f);
    else
        check_block(f, c);
    const int64_t now = clock_us();
    f->rest_until_us = now + (int64_t)((double)(now - t0) * (1 - VERIFY_SHARE) / VERIFY_SHARE);
}
