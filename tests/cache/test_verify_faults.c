/* A verification with each of the worker's allocations failing in turn: it may prove less, never
 * anything wrong, and what is in quarantine stays there. */
#include "tests/cache/tier.h"

#include <stdlib.h>

#include "base/ids.h"
#include "base/log.h"
#include "base/sys.h"

#define N_IDS 200

static _Thread_local bool is_worker;
static int n_calls, fail_at; /* 0: none */

static bool fails(void)
{
    return is_worker && ++n_calls == fail_at;
}

static void *failing_malloc(size_t n)
{
    return fails() ? NULL : malloc(n);
}

static void *failing_realloc(void *p, size_t n)
{
    return fails() ? NULL : realloc(p, n);
}

/* No checks: a probe has references of its own. */
static void take_mail(struct tier *t)
{
    mailbox_wait(&t->box, -1);
    for (struct mail *m = mailbox_take(&t->box), *next; m; m = next) {
        next = m->next;
        cache_take_mail(t->cache, m);
    }
}

static void prove(struct tier *t, struct cache_lease *l, const struct cache_piece *piece,
                  struct cache_trace *trace)
{
    struct cache_proof *p = NULL;
    struct cache_verdicts is;
    struct err e;
    if (cache_proof_open(l, piece, &p, &e)) {
        return;
    }
    fake_compute(cache_proof_seq(p), fake_salt("a"), piece->ids - piece->n_block * KV_BLOCK,
                 piece->count);
    while (cache_proof_is_reading(p)) {
        take_mail(t);
    }
    cache_proof_close(p, &is);
    if (is.ram == CACHE_DIFFERENT || is.disk == CACHE_DIFFERENT) {
        fail_msg("call %d fails: block %d of %d is %d in RAM, %d on disk", fail_at, piece->n_block,
                 cache_lease_n_blocks(l), is.ram, is.disk);
    }
    cache_trace_prove(trace, piece->n_block);
}

static void prove_chain(struct tier *t, struct cache_trace *trace, const struct ids *ids)
{
    struct cache_lease *l = NULL;
    struct cache_found found;
    struct err e;
    const struct cache_root root = fake_root("a");
    const int n_whole = (int)ids->n / KV_BLOCK * KV_BLOCK;
    if (cache_lease_open(t->cache, &root, 1, &l, &e)) {
        return;
    }
    cache_lease_prove(l);
    if (cache_find(l, ids->v, n_whole, &found, &e) == 0 &&
        cache_reserve(l, n_whole - cache_lease_seq(l)->n_tokens, &e) == 0) {
        cache_restore(l, ids->v, n_whole);
    }
    while (cache_is_restoring(l)) {
        take_mail(t);
    }
    fake_check(t->cache);
    for (int n = 0; n * KV_BLOCK < (int)ids->n && n <= cache_lease_n_blocks(l); n++) {
        const int left = (int)ids->n - n * KV_BLOCK;
        const struct cache_piece piece = {.n_block = n,
                                          .count = left < KV_BLOCK ? left : KV_BLOCK,
                                          .ids = ids->v + n * KV_BLOCK,
                                          .has_file = true};
        if (piece.count < KV_BLOCK || n < cache_lease_n_blocks(l)) {
            prove(t, l, &piece, trace);
        }
    }
    if (cache_lease_n_blocks(l) > 2) {
        const struct cache_piece bad = {
            .n_block = 2, .count = KV_BLOCK, .ids = ids->v + 2 * KV_BLOCK};
        cache_quarantine(l, &bad);
    }
    cache_lease_close(l, NULL, false);
}

static void verify(struct tier *t, const uint8_t *names, size_t n_names)
{
    struct cache_trace *trace = NULL;
    struct ids ids;
    struct err e;
    int n_proven;
    size_t n_other;
    const struct cache_root root = fake_root("a");
    if (cache_trace_open(t->cache, &root, names, n_names, &trace, &e)) {
        return;
    }
    ids_init(&ids);
    while (cache_trace_is_reading(trace)) {
        take_mail(t);
    }
    while (cache_trace_next(trace, &ids, &n_proven, &e) == 1) {
        prove_chain(t, trace, &ids);
    }
    assert_true(cache_trace_n_missing(trace, &n_other) <= n_names);
    cache_trace_free(trace);
    ids_done(&ids);
}

static void check_quarantine(struct tier *t, const int32_t *ids)
{
    struct cache_lease *l = NULL;
    struct err e;
    const struct cache_root root = fake_root("a");
    assert_true(cache_peek(t->cache, &root, ids, N_IDS) <= 64);
    assert_int_equal(cache_lease_open(t->cache, &root, 1, &l, &e), 0);
    assert_true(cache_restorable(l, ids, N_IDS) <= 64);
    cache_lease_close(l, NULL, false);
}

static void without_memory_it_proves_less_and_nothing_wrong(void **state)
{
    (void)state;
    struct tier t;
    int32_t ids[N_IDS];
    uint8_t names[16 * HASH_BYTES];
    const struct cache_root root = fake_root("a");
    int n_rounds = 0, n_quarantines = 0;
    tier_ids(ids, N_IDS, 0);
    const size_t n_names = cache_chain(&root, ids, N_IDS, names, 16);
    for (bool is_done = false; !is_done;) {
        tier_init(&t, 32);
        t.tail_idle_ms = 0;
        tier_restart(&t);
        tier_turn(&t, "a", 1, ids, N_IDS);
        tier_settle(&t);
        tier_restart(&t);
        tier_turn(&t, "a", 1, ids, 65); /* two blocks are in RAM */
        tier_settle(&t);
        n_calls = 0;
        fail_at = ++n_rounds;
        verify(&t, names, n_names);
        const int n_called = n_calls;
        fail_at = 0;
        tier_settle(&t);
        fake_check(t.cache);
        if (cache_peek(t.cache, &root, ids, N_IDS) == 64) { /* it came so far */
            check_quarantine(&t, ids);
            n_quarantines++;
        }
        tier_done(&t);
        is_done = n_called < n_rounds; /* it never came to that one */
    }
    assert_true(n_rounds > 20 && n_quarantines > 10);
}

int main(void)
{
    log_init(LOG_LEVEL_ERROR);
    thread_set_role(THREAD_WORKER);
    is_worker = true;
    sys.malloc = failing_malloc; /* before there are other threads */
    sys.realloc = failing_realloc;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(without_memory_it_proves_less_and_nothing_wrong),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
