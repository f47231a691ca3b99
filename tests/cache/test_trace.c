/* Which chains names make, and which restored blocks are sampled. */
#include "tests/cache/tier.h"

#include <string.h>

#include "base/ids.h"
#include "base/log.h"

#define N_IDS 200 /* six whole blocks and a tail */

/* ---- chains from names ---- */

static struct cache_trace *trace_of(struct tier *t, const uint8_t *names, size_t n)
{
    struct cache_trace *ret = NULL;
    struct err e;
    const struct cache_root root = fake_root("a");
    assert_int_equal(cache_trace_open(t->cache, &root, names, n, &ret, &e), 0);
    while (cache_trace_is_reading(ret)) {
        tier_mail(t);
    }
    return ret;
}

static void names_alone_give_all_branches(void **state)
{
    (void)state;
    struct tier t;
    struct err e;
    struct ids got;
    const struct cache_root root = fake_root("a");
    int32_t ids[N_IDS], branch[N_IDS];
    uint8_t names[32 * HASH_BYTES];
    size_t n_other;
    tier_init(&t, 64);
    t.tail_idle_ms = 0;
    tier_restart(&t);
    tier_ids(ids, N_IDS, 0);
    tier_ids(branch, N_IDS, 0);
    branch[130] = 7777;
    tier_turn(&t, "a", 1, ids, 100); /* leaves a tail that the next turn replaces */
    tier_turn(&t, "a", 1, ids, N_IDS);
    tier_turn(&t, "a", 1, branch, N_IDS);
    tier_settle(&t);
    size_t n = cache_chain(&root, ids, 100, names, 32);
    n += cache_chain(&root, ids, N_IDS, names + n * HASH_BYTES, 32 - n);
    n += cache_chain(&root, branch, N_IDS, names + n * HASH_BYTES, 32 - n);
    memset(names + n++ * HASH_BYTES, 0x5a, HASH_BYTES); /* evicted, say */
    for (int round = 0; round < 3; round++) {
        bool has_seen[2] = {false, false};
        int n_proven = -1, n_before = 0;
        ids_init(&got);
        struct cache_trace *c = trace_of(&t, names, n);
        while (cache_trace_next(c, &got, &n_proven, &e) == 1) {
            assert_int_equal(got.n, N_IDS);
            assert_int_equal(n_proven, n_before); /* both have four blocks in common */
            n_before = 4;
            has_seen[got.v[130] == 7777] = true;
            const int32_t *expected = got.v[130] == 7777 ? branch : ids;
            assert_memory_equal(got.v, expected, sizeof ids);
            for (int i = 0; i < 7; i++) {
                cache_trace_prove(c, i);
            }
        }
        assert_true(has_seen[0] && has_seen[1]);
        assert_int_equal(cache_trace_n_missing(c, &n_other), 1);
        assert_int_equal(n_other, 0);
        cache_trace_free(c);
        ids_done(&got);
        if (round == 0) {
            tier_restart(&t); /* now the heads of files say it */
        } else {
            tier_turn(&t, "a", 1, ids, 96); /* and now both */
        }
    }
    tier_done(&t);
}

static void a_trace_can_be_given_up_and_needs_the_right_root(void **state)
{
    (void)state;
    struct tier t;
    struct err e;
    struct ids got;
    size_t n_other;
    int n_proven;
    const struct cache_root root = fake_root("b");
    int32_t ids[N_IDS];
    uint8_t names[16 * HASH_BYTES];
    tier_init(&t, 64);
    tier_ids(ids, N_IDS, 0);
    tier_turn(&t, "b", 1, ids, 192);
    tier_settle(&t);
    const size_t n = cache_chain(&root, ids, 192, names, 16);
    ids_init(&got);
    struct cache_trace *c = trace_of(&t, names, n); /* of "a" */
    assert_int_equal(cache_trace_next(c, &got, &n_proven, &e), 0);
    assert_int_equal(cache_trace_n_missing(c, &n_other), n);
    cache_trace_free(c);
    tier_restart(&t);
    c = trace_of(&t, names, n); /* now only the disk has them */
    assert_int_equal(cache_trace_next(c, &got, &n_proven, &e), 0);
    assert_int_equal(cache_trace_n_missing(c, &n_other), 0);
    assert_int_equal(n_other, n);
    cache_trace_free(c);
    assert_int_equal(cache_trace_open(t.cache, &root, names, n, &c, &e), 0);
    assert_true(cache_trace_is_reading(c));
    cache_trace_free(c);
    cache_trace_free(NULL);
    ids_done(&got);
    tier_sync(&t);
    assert_int_equal(tier_turn(&t, "b", 1, ids, N_IDS).n_disk, 192); /* and they are still there */
    tier_done(&t);
}

/* ---- samples ---- */

static void every_nth_restored_block_is_sampled_from_the_first_on(void **state)
{
    (void)state;
    struct tier t;
    struct ids got;
    struct cache_sample s;
    int32_t ids[N_IDS];
    tier_init(&t, 64);
    tier_ids(ids, N_IDS, 0);
    tier_turn(&t, "a", 1, ids, N_IDS);
    tier_settle(&t);
    tier_restart(&t);
    ids_init(&got);
    cache_set_samples(t.cache, 4);
    assert_false(cache_has_sample(t.cache));
    tier_turn(&t, "a", 1, ids, N_IDS);
    assert_true(cache_take_sample(t.cache, &s, &got));
    assert_int_equal(s.n_block, 0);
    assert_true(cache_take_sample(t.cache, &s, &got));
    assert_int_equal(s.n_block, 4);
    assert_int_equal(s.count, KV_BLOCK);
    assert_int_equal(got.n, 160);
    assert_memory_equal(got.v, ids, 160 * sizeof *ids);
    assert_false(cache_take_sample(t.cache, &s, &got));
    tier_turn(&t, "a", 1, ids, N_IDS); /* in RAM: nothing is restored */
    assert_false(cache_has_sample(t.cache));
    ids_done(&got);
    tier_done(&t);
}

static void a_restored_tail_is_sampled_in_what_it_becomes(void **state)
{
    (void)state;
    struct tier t;
    struct ids got;
    struct cache_sample s;
    int32_t ids[N_IDS];
    tier_init(&t, 64);
    t.tail_idle_ms = 0;
    tier_restart(&t);
    tier_ids(ids, N_IDS, 0);
    tier_turn(&t, "a", 1, ids, 40);
    tier_settle(&t);
    tier_restart(&t);
    ids_init(&got);
    cache_set_samples(t.cache, 1);
    tier_turn(&t, "a", 1, ids, 50);
    assert_true(cache_take_sample(t.cache, &s, &got));
    assert_int_equal(s.n_block, 0);
    assert_true(cache_take_sample(t.cache, &s, &got));
    assert_int_equal(s.n_block, 1);
    assert_int_equal(s.count, 18);
    assert_int_equal(got.n, 50);
    cache_set_samples(t.cache, 0);
    cache_drop(t.cache, NULL);
    tier_turn(&t, "a", 1, ids, 50);
    assert_false(cache_has_sample(t.cache));
    ids_done(&got);
    tier_done(&t);
}

int main(void)
{
    log_init(LOG_LEVEL_ERROR);
    thread_set_role(THREAD_WORKER);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names_alone_give_all_branches),
        cmocka_unit_test(a_trace_can_be_given_up_and_needs_the_right_root),
        cmocka_unit_test(every_nth_restored_block_is_sampled_from_the_first_on),
        cmocka_unit_test(a_restored_tail_is_sampled_in_what_it_becomes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
