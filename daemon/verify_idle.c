/* See verify_idle.h. */
#include "daemon/verify_idle.h"

#include "base/clock.h"
#include "base/log.h"
#include "daemon/limits.h"

void idle_verifier_init(struct idle_verifier *v, struct daemon *d, struct engine *engine,
                        struct cache *cache)
{
    *v = (struct idle_verifier){.d = d, .engine = engine, .cache = cache};
    ids_init(&v->ids);
    cache_set_samples(cache, d->config->verify_every);
}

void idle_verifier_note(struct idle_verifier *v, bool is_batch_idle)
{
    if (!is_batch_idle)
        v->idle_since_us = 0;
    else if (v->idle_since_us == 0)
        v->idle_since_us = clock_us();
}

int idle_verifier_due_ms(const struct idle_verifier *v)
{
    if (v->idle_since_us == 0 || !(v->has_sample || cache_has_sample(v->cache)))
        return -1;
    const int64_t left_us = v->idle_since_us + VERIFY_IDLE_MS * 1000 - clock_us();
    return left_us > 0 ? (int)(left_us / 1000) + 1 : 0;
}

static void forget(struct idle_verifier *v)
{
    v->has_sample = false;
    ids_done(&v->ids);
    ids_init(&v->ids);
}

void idle_verifier_stop(struct idle_verifier *v)
{
    forget(v);
}

static void judge(struct idle_verifier *v, struct cache_lease *l, const struct cache_piece *piece,
                  const struct cache_verdicts *is)
{
    char name[2 * HASH_BYTES + 1];
    if (is->ram == CACHE_ABSENT)
        return;
    atomic_fetch_add(&v->d->n.verify_idle_blocks, 1);
    if (is->ram == CACHE_SAME)
        return;
    const size_t n = cache_quarantine(l, piece);
    hex_write(v->sample.id, HASH_BYTES, name);
    atomic_fetch_add(&v->d->n.verify_idle_failed, 1);
    log_error("verify: block %.16s…, positions %d to %d, came from the disk and is not what the "
              "model computes: with what follows it, %zu blocks are removed",
              name, piece->n_block * KV_BLOCK, piece->n_block * KV_BLOCK + piece->count - 1, n);
}

/* The sample in a lease of its own. false: interrupted; again later. */
static bool prove(struct idle_verifier *v, struct cache_lease *l)
{
    const struct cache_sample *s = &v->sample;
    struct cache_found found;
    struct cache_verdicts is;
    struct cache_proof *proof = NULL;
    struct err e;
    const struct cache_piece piece = {
        .n_block = s->n_block, .count = s->count, .ids = v->ids.v + (size_t)s->n_block * KV_BLOCK};
    /* A whole block is on the path too: it isn't evicted for its own proof. */
    const int n_find = (int)(v->ids.n / KV_BLOCK) * KV_BLOCK;
    cache_lease_prove(l);
    if (cache_find(l, v->ids.v, n_find, &found, &e) || cache_lease_n_blocks(l) < s->n_block ||
        cache_proof_open(l, &piece, &proof, &e))
        return true; /* gone, or no room for it: another one will do */
    struct engine_part part = {
        .seq = cache_proof_seq(proof), .ids = piece.ids, .n_ids = piece.count};
    const int rc = engine_pass(v->engine, &part, 1, &v->d->pass_abort, &e);
    if (rc == ERR_CANCELED)
        log_debug("verify: an idle check gives way to a turn");
    else if (rc)
        log_error("verify: a pass failed: %s", e.text);
    cache_proof_close(proof, rc ? NULL : &is);
    if (rc == 0)
        judge(v, l, &piece, &is);
    return rc != ERR_CANCELED;
}

void idle_verifier_step(struct idle_verifier *v)
{
    struct cache_lease *l = NULL;
    struct err e;
    if (idle_verifier_due_ms(v) != 0)
        return;
    v->has_sample = v->has_sample || cache_take_sample(v->cache, &v->sample, &v->ids);
    if (!v->has_sample)
        return;
    const bool is_done =
        cache_lease_open(v->cache, &v->sample.root, 0, &l, &e) != 0 || prove(v, l);
    cache_lease_close(l, NULL, false);
    if (is_done)
        forget(v);
}
