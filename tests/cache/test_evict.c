/* Who goes when room is needed, and who never does. */
#include "tests/cache/fake.h"

#include <limits.h>
#include <string.h>

#include "cache/evict.h"

#define N_IDS 512

struct place {
    struct kv_pool *pool;
    struct cache *c;
};

static struct place small(size_t n_blocks)
{
    struct place p = {.pool = fake_pool(n_blocks)};
    struct err e;
    assert_int_equal(cache_new(p.pool, &p.c, &e), 0);
    return p;
}

static void gone(struct place *p)
{
    fake_check(p->c);
    cache_free(p->c);
    assert_int_equal(kv_pool_n_free(p->pool), kv_pool_n_blocks(p->pool));
    kv_pool_free(p->pool);
}

/* ids[i] = start + i */
static void series(int32_t *ids, int start)
{
    for (int i = 0; i < N_IDS; i++) {
        ids[i] = start + i;
    }
}

static int found_of(const struct place *p, const int32_t *ids, int n)
{
    const struct cache_root root = fake_root("a");
    return cache_peek(p->c, &root, ids, n);
}

/* One block of ids, published at a cost, and left. */
static void leave_block(struct place *p, const int32_t *ids, int64_t cost_us)
{
    const struct cache_root root = fake_root("a");
    struct cache_lease *l = NULL;
    struct err e;
    assert_int_equal(cache_lease_open(p->c, &root, 1, &l, &e), 0);
    assert_int_equal(cache_reserve(l, KV_BLOCK, &e), 0);
    fake_compute(cache_lease_seq(l), fake_salt("a"), ids, KV_BLOCK);
    assert_int_equal(cache_publish(l, ids, cost_us, &e), 0);
    cache_lease_close(l, ids, true);
    fake_check(p->c);
}

static void what_was_not_used_for_longest_goes_first(void **state)
{
    (void)state;
    struct place p = small(8);
    int32_t ids[12][N_IDS];
    for (int i = 0; i < 12; i++) {
        series(ids[i], i * 1000);
        leave_block(&p, ids[i], 100);
    }
    for (int i = 0; i < 12; i++) {
        assert_int_equal(found_of(&p, ids[i], 32), i < 4 ? 0 : 32);
    }
    gone(&p);
}

static void what_costs_more_stays_longer(void **state)
{
    (void)state;
    struct place p = small(4);
    int32_t dear[N_IDS], ids[N_IDS];
    series(dear, 500000);
    leave_block(&p, dear, 1000);
    for (int i = 0; i < 20; i++) {
        series(ids, i * 1000);
        leave_block(&p, ids, 100);
    }
    assert_int_equal(found_of(&p, dear, 32), 32);
    /* But not for ever: the clock rises with every victim. */
    for (int i = 20; i < 60; i++) {
        series(ids, i * 1000);
        leave_block(&p, ids, 100);
    }
    assert_int_equal(found_of(&p, dear, 32), 0);
    gone(&p);
}

static void a_deeper_position_costs_more(void **state)
{
    (void)state;
    struct tree t = {0};
    double before = 0;
    for (int depth = 0; depth < 300; depth++) {
        const double cost = evict_cost(&t, depth, KV_BLOCK, 0);
        assert_true(cost > before);
        assert_true(evict_cost(&t, depth, KV_BLOCK - 1, 0) < cost);
        before = cost;
    }
    assert_true(evict_cost(&t, 0, 32, 50) == 1600);
    assert_true(evict_cost(&t, 0, 32, 0) == 1600); /* unknown: as the last that was measured */
}

static void a_system_prompt_under_many_conversations_stays(void **state)
{
    (void)state;
    struct place p = small(24);
    int32_t ids[N_IDS];
    for (int i = 0; i < 60; i++) {
        series(ids, 1);
        for (int j = 128; j < N_IDS; j++) {
            ids[j] = (i + 1) * 1000 + j;
        }
        const int n_found = fake_whole_turn(p.c, "a", (uint64_t)i, ids, 300);
        assert_int_equal(n_found, i ? 128 : 0);
    }
    /* A flood of prompts that nobody repeats, twice the budget. */
    for (int i = 0; i < 6; i++) {
        int32_t once[N_IDS];
        series(once, 900000 + i * 1000);
        fake_whole_turn(p.c, "a", 99, once, 250);
    }
    assert_int_equal(found_of(&p, ids, 128), 128);
    gone(&p);
}

static void a_conversation_is_worn_away_from_its_end(void **state)
{
    (void)state;
    struct place p = small(10);
    int32_t old[N_IDS], ids[N_IDS];
    series(old, 1);
    fake_whole_turn(p.c, "a", 1, old, 200); /* six blocks and a tail */
    int before = found_of(&p, old, 200);
    assert_int_equal(before, 200);
    for (int i = 1; before; i++) {
        series(ids, i * 1000);
        leave_block(&p, ids, 0);
        const int now = found_of(&p, old, 200);
        assert_true(now == before || now == (before - 1) / KV_BLOCK * KV_BLOCK);
        assert_true(i < 100);
        before = now;
    }
    gone(&p);
}

static void leased_blocks_are_never_evicted(void **state)
{
    (void)state;
    struct place p = small(8);
    int32_t mine[N_IDS], ids[N_IDS];
    struct cache_lease *l = NULL;
    series(mine, 1);
    fake_turn(p.c, "a", 1, mine, 130, &l); /* five of eight, the last private */
    for (int i = 1; i < 30; i++) {
        series(ids, i * 1000);
        fake_whole_turn(p.c, "a", 1, ids, 90);
        fake_verify(cache_lease_seq(l), fake_salt("a"), mine);
    }
    cache_lease_close(l, mine, true);
    gone(&p);
}

static void reserve_fails_with_nothing_taken_when_all_is_leased(void **state)
{
    (void)state;
    struct place p = small(8);
    const struct cache_root root = fake_root("a");
    int32_t mine[N_IDS], ids[N_IDS];
    struct cache_lease *l = NULL, *m = NULL;
    struct err e;
    series(ids, 1000);
    fake_whole_turn(p.c, "a", 1, ids, 64); /* two that could go */
    series(mine, 1);
    fake_turn(p.c, "a", 1, mine, 130, &l); /* five */
    assert_int_equal(cache_lease_open(p.c, &root, 2, &m, &e), 0);
    assert_int_equal(cache_reserve(m, 4 * KV_BLOCK, &e), ERR_NOMEM);
    assert_non_null(strstr(e.text, "of 8 in all"));
    assert_int_equal(cache_lease_seq(m)->n_blocks, 0);
    assert_int_equal(found_of(&p, ids, 64), 64); /* nor was anything evicted for it */
    assert_int_equal(cache_reserve(m, 3 * KV_BLOCK, &e), 0);
    assert_int_equal(found_of(&p, ids, 64), 0);
    assert_int_equal(cache_reserve(m, 3 * KV_BLOCK, &e), 0); /* it has them */
    assert_int_equal(cache_reserve(m, 3 * KV_BLOCK + 1, &e), ERR_NOMEM);
    assert_int_equal(cache_reserve(m, -1, &e), ERR_LIMIT);
    assert_int_equal(cache_reserve(m, INT_MAX, &e), ERR_LIMIT);
    fake_check(p.c);
    cache_lease_close(m, NULL, false);
    cache_lease_close(l, mine, true);
    gone(&p);
}

static void reserve_evicts_no_more_than_it_needs(void **state)
{
    (void)state;
    struct place p = small(8);
    const struct cache_root root = fake_root("a");
    int32_t ids[N_IDS];
    struct cache_lease *l = NULL;
    struct cache_stats st;
    struct err e;
    series(ids, 1);
    fake_whole_turn(p.c, "a", 1, ids, 6 * KV_BLOCK);
    assert_int_equal(cache_lease_open(p.c, &root, 2, &l, &e), 0);
    assert_int_equal(cache_reserve(l, 2 * KV_BLOCK + 1, &e), 0);
    cache_stats(p.c, &st);
    assert_int_equal(st.n_evicted_blocks, 1);
    assert_int_equal(found_of(&p, ids, 6 * KV_BLOCK), 5 * KV_BLOCK);
    cache_lease_close(l, NULL, false);
    gone(&p);
}

static void a_copy_evicts_others_and_not_its_source(void **state)
{
    (void)state;
    struct place p = small(4);
    const struct cache_root root = fake_root("a");
    int32_t ids[N_IDS], other[N_IDS];
    struct cache_lease *l = NULL;
    struct cache_found found;
    struct err e;
    series(ids, 1);
    series(other, 1000);
    fake_whole_turn(p.c, "a", 1, ids, 70); /* two blocks and a tail: the cheapest of all */
    leave_block(&p, other, 100000);
    assert_int_equal(kv_pool_n_free(p.pool), 0);
    assert_int_equal(cache_lease_open(p.c, &root, 1, &l, &e), 0);
    assert_int_equal(cache_find(l, ids, 69, &found, &e), 0);
    assert_int_equal(found.n_tokens, 69);
    fake_verify(cache_lease_seq(l), fake_salt("a"), ids);
    assert_int_equal(found_of(&p, other, 32), 0);
    assert_int_equal(found_of(&p, ids, 70), 70);
    cache_lease_close(l, ids, true);
    gone(&p);
}

static void the_last_leaf_is_taken_over_instead_of_copied(void **state)
{
    (void)state;
    struct place p = small(3);
    const struct cache_root root = fake_root("a");
    int32_t ids[N_IDS];
    struct cache_lease *l = NULL, *m = NULL;
    struct cache_found found;
    struct err e;
    series(ids, 1);
    fake_whole_turn(p.c, "a", 1, ids, 70);
    assert_int_equal(fake_turn(p.c, "a", 1, ids, 70, &l), 69);
    /* Now all three are leased, one of them privately: a second turn gets what is shared, and that
     * is no error. */
    assert_int_equal(cache_lease_open(p.c, &root, 2, &m, &e), 0);
    assert_int_equal(cache_find(m, ids, 63, &found, &e), 0);
    assert_int_equal(found.n_tokens, 32);
    fake_check(p.c);
    cache_lease_close(m, ids, true);
    fake_verify(cache_lease_seq(l), fake_salt("a"), ids);
    cache_lease_close(l, ids, true);
    gone(&p);
}

static void a_budget_of_one_block_works(void **state)
{
    (void)state;
    struct place p = small(1);
    int32_t ids[N_IDS];
    series(ids, 1);
    assert_int_equal(fake_whole_turn(p.c, "a", 1, ids, 20), 0);
    assert_int_equal(fake_whole_turn(p.c, "a", 1, ids, 32), 20);
    assert_int_equal(fake_whole_turn(p.c, "a", 1, ids, 32), 31);
    series(ids, 1000);
    assert_int_equal(fake_whole_turn(p.c, "a", 1, ids, 5), 0);
    gone(&p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_was_not_used_for_longest_goes_first),
        cmocka_unit_test(what_costs_more_stays_longer),
        cmocka_unit_test(a_deeper_position_costs_more),
        cmocka_unit_test(a_system_prompt_under_many_conversations_stays),
        cmocka_unit_test(a_conversation_is_worn_away_from_its_end),
        cmocka_unit_test(leased_blocks_are_never_evicted),
        cmocka_unit_test(reserve_fails_with_nothing_taken_when_all_is_leased),
        cmocka_unit_test(reserve_evicts_no_more_than_it_needs),
        cmocka_unit_test(a_copy_evicts_others_and_not_its_source),
        cmocka_unit_test(the_last_leaf_is_taken_over_instead_of_copied),
        cmocka_unit_test(a_budget_of_one_block_works),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
