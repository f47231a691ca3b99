/*
 * See verify.h. A conversation's life on the worker:
 *
 *   trace its names ─► a chain ─► open a lease: find in RAM, read from disk ─► a block a step … ─┐
 *                        ▲             ▲                                           │             │
 *                        │             └───── turns need the room: n_done says ────┘             │
 *                        └───────────────── the next chain, where to go on ──────────────────────┘
 *
 * A block that differs ends its chain: what hangs from it was computed from wrong bytes. Of the
 * other chains that go through it nothing is found any more.
 */
#include "daemon/verify.h"

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/sys.h"
#include "daemon/limits.h"
#include "daemon/served.h"
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
    v->v = calloc(n ? n : 1, sizeof *v->v);
    v->t_begun = clock_us();
    if (v->v)
        v->n = n;
    if (v->owner && v->v)
        return v;
    verify_free(v);
    return NULL;
}

void verify_free(struct verify *v)
{
    if (!v)
        return;
    for (size_t i = 0; i < v->n; i++)
        free(v->v[i].blocks);
    cancel_unref(v->cancel);
    free(v->differences);
    free(v->v);
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

static void add_difference(json *different, const struct verify *v,
                           const struct verify_difference *x)
{
    json *o = json_add(different, json_object());
    json_set_str(o, "conversation", v->v[x->one].id);
    json_set_int(o, "block", x->n_block);
    json_set_int(o, "position", (int64_t)x->n_block * KV_BLOCK);
    json_set_str(o, "where", x->is_file_only ? "file" : "block");
    json_set_int(o, "removed_blocks", x->n_gone);
}

static void reply(struct daemon *d, const struct verify *v)
{
    struct buf body;
    struct verify_one sum = {0};
    json *o = json_object();
    json *different = json_array();
    for (size_t i = 0; i < v->n; i++) {
        sum.n_checked += v->v[i].n_checked;
        sum.n_positions += v->v[i].n_positions;
        sum.n_ram += v->v[i].n_ram;
        sum.n_disk += v->v[i].n_disk;
        sum.n_missing += v->v[i].n_missing;
        sum.n_other += v->v[i].n_other;
    }
    for (size_t i = 0; i < v->n_differences; i++)
        add_difference(different, v, &v->differences[i]);
    json_set_str(o, "object", "hearth.verify");
    json_set_int(o, "conversations", (int64_t)v->n);
    json_set_int(o, "blocks", sum.n_checked);
    json_set_int(o, "positions", sum.n_positions);
    json_set_int(o, "ram", sum.n_ram);
    json_set_int(o, "disk", sum.n_disk);
    json_set_int(o, "missing", sum.n_missing);
    json_set_int(o, "other_model", sum.n_other);
    json_set_str(o, "model", v->served->id);
    json_set_str(o, "model_by", v->model_by);
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
    ids_init(&f->ids);
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
    cache_proof_close(f->proof, NULL);
    f->proof = NULL;
    cache_lease_close(f->lease, NULL, false);
    f->lease = NULL;
}

static struct verify *take_first(struct verifier *f)
{
    struct verify *v = f->first;
    let_go(f);
    cache_trace_free(f->trace);
    f->trace = NULL;
    f->has_chain = false;
    ids_done(&f->ids);
    ids_init(&f->ids);
    f->first = (struct verify *)(void *)v->mail.next;
    f->n--;
    f->at = 0;
    return v;
}

static bool is_canceled(const struct verify *v)
{
    return atomic_load(&v->cancel->is_set) != 0;
}

static bool is_waiting(const struct verifier *f)
{
    return (f->trace && cache_trace_is_reading(f->trace)) ||
           (f->lease && cache_is_restoring(f->lease)) ||
           (f->proof && cache_proof_is_reading(f->proof));
}

bool verifier_is_ready(const struct verifier *f)
{
    return f->first && !is_waiting(f);
}

void verifier_stop(struct verifier *f)
{
    while (f->first)
        verify_refuse(f->d, take_first(f), "stopping", "the daemon is stopping");
}

static void fail(struct verifier *f, const struct err *e)
{
    struct http_error error;
    log_error("verify: %s", e->text);
    http_error_set(&error, 500, e->code == ERR_NOMEM ? "out_of_memory" : "engine_error", NULL,
                   "verifying: %s", e->text);
    struct verify *v = take_first(f);
    reply_error(f->d, v->conn, &error, false);
    verify_free(v);
}

/* ---- room ---- */

/* Whether a turn's whole window could be had beside what is held. */
static bool is_roomy(const struct verifier *f)
{
    return cache_room(f->cache) >= (size_t)f->ctx / KV_BLOCK + 3;
}

void verifier_yield(struct verifier *f, bool is_batch_idle)
{
    if (f->lease && !is_batch_idle && !is_roomy(f))
        let_go(f);
}

/* Ids in whole blocks that may be held: two blocks stay free, for the comparison and for a file. */
static int n_max_of(const struct verifier *f)
{
    const size_t room = cache_room(f->cache);
    const size_t n = f->ids.n / KV_BLOCK;
    return (int)(n + 2 < room ? n : room > 2 ? room - 2 : 0) * KV_BLOCK;
}

/* ---- a chain ---- */

static struct verify_one *one_of(const struct verifier *f)
{
    return &f->first->v[f->at];
}

static void open_trace(struct verifier *f)
{
    struct cache_root root;
    struct err e;
    const struct verify_one *one = one_of(f);
    cache_root_of(engine_info(f->engine)->fingerprint, f->first->owner, &root);
    if (cache_trace_open(f->cache, &root, one->blocks, one->n_blocks, &f->trace, &e))
        fail(f, &e);
}

/* The next chain, or the next conversation. */
static void next_chain(struct verifier *f)
{
    struct err e;
    const int rc = cache_trace_next(f->trace, &f->ids, &f->n_done, &e);
    if (rc < 0) {
        fail(f, &e);
        return;
    }
    f->has_chain = rc == 1;
    f->n_proven = f->n_done;
    if (rc == 0) {
        size_t n_other;
        one_of(f)->n_missing = (int64_t)cache_trace_n_missing(f->trace, &n_other);
        one_of(f)->n_other = (int64_t)n_other;
        cache_trace_free(f->trace);
        f->trace = NULL;
        f->at++;
    }
}

static void end_chain(struct verifier *f)
{
    let_go(f);
    f->has_chain = false;
}

static void open_chain(struct verifier *f)
{
    struct cache_root root;
    struct cache_found found;
    struct err e;
    const int n_max = n_max_of(f);
    cache_root_of(engine_info(f->engine)->fingerprint, f->first->owner, &root);
    int rc = cache_lease_open(f->cache, &root, one_of(f)->who, &f->lease, &e);
    if (rc == 0) {
        cache_lease_prove(f->lease);
        rc = cache_find(f->lease, f->ids.v, n_max, &found, &e);
    }
    if (rc) {
        fail(f, &e);
        return;
    }
    f->n_path = cache_lease_n_blocks(f->lease);
    const int n = cache_restorable(f->lease, f->ids.v, n_max);
    if (n > 0 && cache_reserve(f->lease, n, &e) == 0)
        cache_restore(f->lease, f->ids.v, f->n_path * KV_BLOCK + n);
}

/* ---- a block ---- */

static void tell(struct verifier *f, bool is_file_only, int64_t n_gone)
{
    struct verify *v = f->first;
    struct verify_difference *more =
        sys.realloc(v->differences, (v->n_differences + 1) * sizeof *more);
    atomic_fetch_add(&f->d->n.verify_failed, 1);
    log_error("verify: block %d of conversation %s %s what the model computes: %s%lld blocks are "
              "removed",
              f->piece.n_block, v->v[f->at].id, is_file_only ? "has a file that is not" : "is not",
              is_file_only ? "" : "with what follows it, ", (long long)n_gone);
    if (!more) {
        log_error("verify: no memory to report it");
        return;
    }
    v->differences = more;
    more[v->n_differences++] = (struct verify_difference){
        .one = f->at, .n_block = f->piece.n_block, .is_file_only = is_file_only, .n_gone = n_gone};
}

/* The piece has been computed, and its file, if any, read. */
static void judge(struct verifier *f)
{
    struct cache_verdicts is;
    struct verify_one *one = one_of(f);
    cache_proof_close(f->proof, &is);
    f->proof = NULL;
    f->n_done++;
    if (is.ram == CACHE_ABSENT && is.disk == CACHE_ABSENT) {
        if (f->piece.count == KV_BLOCK) /* somebody else has found it bad */
            end_chain(f);
        return;
    }
    const bool is_restored = f->piece.count == KV_BLOCK && f->piece.n_block >= f->n_path;
    if (f->piece.n_block >= f->n_proven) { /* else it counts already */
        one->n_checked++;
        one->n_positions += f->piece.count;
        one->n_ram += is.ram != CACHE_ABSENT && !is_restored;
        one->n_disk += is.disk != CACHE_ABSENT || is_restored;
        atomic_fetch_add(&f->d->n.verify_blocks, 1);
        f->n_proven = f->piece.n_block + 1;
    }
    cache_trace_prove(f->trace, f->piece.n_block);
    if (is.ram == CACHE_DIFFERENT || (is.ram == CACHE_ABSENT && is.disk == CACHE_DIFFERENT)) {
        const size_t n = cache_quarantine(f->lease, &f->piece);
        tell(f, false, n > 0 ? (int64_t)n : 1);
        end_chain(f);
    } else if (is.disk == CACHE_DIFFERENT) {
        cache_discard_file(f->lease, &f->piece);
        tell(f, true, 1);
    }
}

/* Which block is next; false: the chain is at its end, or what follows isn't cached. */
static bool find_piece(struct verifier *f)
{
    const size_t at = (size_t)f->n_done * KV_BLOCK;
    const int n_blocks = cache_lease_n_blocks(f->lease);
    if (at >= f->ids.n)
        return false;
    const int count = f->ids.n - at < KV_BLOCK ? (int)(f->ids.n - at) : KV_BLOCK;
    f->piece = (struct cache_piece){
        .n_block = f->n_done,
        .count = count,
        .ids = f->ids.v + at,
        .has_file = count < KV_BLOCK || f->n_done < f->n_path,
    };
    return f->n_done < n_blocks || (count < KV_BLOCK && f->n_done == n_blocks);
}

static void check_block(struct verifier *f, bool is_batch_idle)
{
    struct err e;
    struct cache_proof *proof = NULL;
    /* What an earlier chain has proven may have lost what is needed to go on from it. */
    if (f->n_done <= cache_lease_n_blocks(f->lease))
        f->n_done = cache_proof_from(f->lease, f->n_done);
    if (!find_piece(f)) {
        end_chain(f);
        return;
    }
    if (cache_proof_open(f->lease, &f->piece, &proof, &e)) {
        if (is_batch_idle && !cache_is_busy(f->cache))
            end_chain(f); /* there will never be room: it counts as missing */
        else
            let_go(f); /* turns have all the rest; again when they gave some back */
        return;
    }
    struct engine_part part = {
        .seq = cache_proof_seq(proof), .ids = f->piece.ids, .n_ids = f->piece.count};
    const int rc = engine_pass(f->engine, &part, 1, &f->d->pass_abort, &e);
    if (rc) {
        cache_proof_close(proof, NULL);
        if (rc != ERR_CANCELED)
            fail(f, &e);
        return;
    }
    f->proof = proof;
    if (!cache_proof_is_reading(proof))
        judge(f);
}

/* ---- a step ---- */

static void go_on(struct verifier *f, bool is_batch_idle)
{
    if (is_canceled(f->first)) {
        verify_free(take_first(f));
    } else if (f->at >= f->first->n) {
        struct verify *v = take_first(f);
        reply(f->d, v);
        verify_free(v);
    } else if (!f->trace) {
        open_trace(f);
    } else if (!f->has_chain) {
        next_chain(f);
    } else if (f->proof) {
        judge(f);
    } else if (!f->lease) {
        open_chain(f);
    } else {
        check_block(f, is_batch_idle);
    }
}

void verifier_step(struct verifier *f, bool is_batch_idle)
{
    const int64_t t0 = clock_us();
    if (!verifier_is_ready(f) || (!is_batch_idle && (t0 < f->rest_until_us || !is_roomy(f))))
        return;
    go_on(f, is_batch_idle);
    const int64_t now = clock_us();
    f->rest_until_us = now + (int64_t)((double)(now - t0) * (1 - VERIFY_SHARE) / VERIFY_SHARE);
}
