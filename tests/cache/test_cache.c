/* The prefix cache, claim by claim. The walk through everything at once is in test_random.c. */
#include "tests/cache/fake.h"

#include <string.h>

#define N_IDS 512

struct place {
    struct kv_pool *pool;
    struct cache *c;
    int32_t ids[N_IDS];
};

static int set_up(void **state)
{
    static struct place p;
    struct err e;
    p = (struct place){.pool = fake_pool(64)};
    assert_int_equal(cache_new(p.pool, &p.c, &e), 0);
    for (int i = 0; i < N_IDS; i++) {
        p.ids[i] = 1000 + i;
    }
    *state = &p;
    return 0;
}

static int tear_down(void **state)
{
    struct place *p = *state;
    fake_check(p->c);
    cache_free(p->c);
    assert_int_equal(kv_pool_n_free(p->pool), 64); /* every reference was given back */
    kv_pool_free(p->pool);
    return 0;
}

static void an_empty_cache_finds_nothing(void **state)
{
    struct place *p = *state;
    const struct cache_root root = fake_root("a");
    assert_int_equal(cache_peek(p->c, &root, p->ids, 100), 0);
    assert_int_equal(fake_whole_turn(p->c, "a", 1, p->ids, 100), 0);
    assert_int_equal(cache_peek(p->c, &root, p->ids, 0), 0);
}

static void the_same_prompt_is_found_but_for_its_last_token(void **state)
{
    struct place *p = *state;
    for (int n = 1; n <= 130; n++) {
        const int first = fake_whole_turn(p->c, "a", 1, p->ids, n);
        assert_int_equal(first, n - 1); /* what the shorter one left, n - 1 long */
        assert_int_equal(fake_whole_turn(p->c, "a", 1, p->ids, n), n - 1);
    }
}

static void n_max_is_respected_at_block_borders(void **state)
{
    struct place *p = *state;
    const struct cache_root root = fake_root("a");
    fake_whole_turn(p->c, "a", 1, p->ids, 200);
    for (int n_max = 0; n_max <= 200; n_max++) {
        struct cache_lease *l = NULL;
        struct cache_found found;
        struct err e;
        assert_int_equal(cache_lease_open(p->c, &root, 1, &l, &e), 0);
        assert_int_equal(cache_peek(p->c, &root, p->ids, n_max), n_max);
        assert_int_equal(cache_find(l, p->ids, n_max, &found, &e), 0);
        assert_int_equal(found.n_tokens, n_max);
        assert_int_equal(found.n_ram, n_max);
        assert_int_equal(cache_lease_seq(l)->n_tokens, n_max);
        fake_verify(cache_lease_seq(l), fake_salt("a"), p->ids);
        fake_check(p->c);
        cache_lease_close(l, p->ids, false);
    }
}

static void ids_that_differ_in_the_last_place_only_share_the_rest(void **state)
{
    struct place *p = *state;
    static const int lens[] = {1, 2, 31, 32, 33, 63, 64, 65, 96};
    for (size_t i = 0; i < sizeof lens / sizeof *lens; i++) {
        const int n = lens[i];
        int32_t other[N_IDS];
        memcpy(other, p->ids, sizeof other);
        other[n - 1]++;
        fake_whole_turn(p->c, "a", 1, p->ids, n);
        const struct cache_root root = fake_root("a");
        assert_int_equal(cache_peek(p->c, &root, other, n), n - 1);
        assert_int_equal(fake_whole_turn(p->c, "a", 2, other, n), n - 1);
        assert_int_equal(cache_peek(p->c, &root, p->ids, n), n);
        assert_int_equal(cache_peek(p->c, &root, other, n), n);
        cache_drop(p->c, NULL);
    }
}

static void owners_and_models_never_share(void **state)
{
    struct place *p = *state;
    const struct cache_root a = fake_root("uid:1000"), b = fake_root("uid:1001");
    const uint8_t other_model[HASH_BYTES] = {8};
    struct cache_root c;
    cache_root_of(other_model, "uid:1000", &c);
    fake_whole_turn(p->c, "uid:1000", 1, p->ids, 100);
    assert_int_equal(cache_peek(p->c, &a, p->ids, 100), 100);
    assert_int_equal(cache_peek(p->c, &b, p->ids, 100), 0);
    assert_int_equal(cache_peek(p->c, &c, p->ids, 100), 0);
    assert_int_equal(fake_whole_turn(p->c, "uid:1001", 2, p->ids, 100), 0);
    assert_int_equal(fake_in_tree(p->c), 8); /* each has its own */
    assert_int_equal(cache_drop(p->c, &a), 4);
    assert_int_equal(cache_peek(p->c, &b, p->ids, 100), 100);
}

static void eight_turns_with_one_system_prompt_hold_it_once(void **state)
{
    struct place *p = *state;
    struct cache_lease *l[8];
    int32_t ids[8][N_IDS];
    for (int i = 0; i < 8; i++) {
        memcpy(ids[i], p->ids, sizeof ids[i]);
        for (int j = 160; j < N_IDS; j++) {
            ids[i][j] = (i + 1) * 10000 + j;
        }
        const int n_found = fake_turn(p->c, "a", (uint64_t)i + 1, ids[i], 200, &l[i]);
        assert_int_equal(n_found, i ? 160 : 0);
    }
    assert_int_equal(64 - kv_pool_n_free(p->pool), 5 + 8 * 2);
    for (int i = 0; i < 8; i++) {
        cache_lease_close(l[i], ids[i], true);
    }
    assert_int_equal(fake_in_tree(p->c), 5 + 8 * 2);
}

static void what_another_conversation_computed_is_counted_as_shared(void **state)
{
    struct place *p = *state;
    const struct cache_root root = fake_root("a");
    struct cache_lease *l = NULL;
    struct cache_found found;
    struct cache_stats st;
    struct err e;
    int32_t ids[N_IDS];
    memcpy(ids, p->ids, sizeof ids);
    ids[64] = 7;
    fake_whole_turn(p->c, "a", 1, p->ids, 80); /* who 1: two blocks and a tail */
    fake_whole_turn(p->c, "a", 2, ids, 100);   /* who 2: the third block and a tail */
    assert_int_equal(cache_lease_open(p->c, &root, 2, &l, &e), 0);
    assert_int_equal(cache_find(l, ids, 100, &found, &e), 0);
    assert_int_equal(found.n_tokens, 100);
    assert_int_equal(found.n_shared, 64);
    cache_lease_close(l, ids, true);
    cache_stats(p->c, &st);
    assert_int_equal(st.n_found_tokens, 64 + 100);
    assert_int_equal(st.n_missed_tokens, 79 + 35);
}

static void a_tail_goes_when_something_longer_begins_with_it(void **state)
{
    struct place *p = *state;
    struct cache_stats st;
    fake_whole_turn(p->c, "a", 1, p->ids, 5);
    fake_whole_turn(p->c, "a", 1, p->ids, 20);
    cache_stats(p->c, &st);
    assert_int_equal(st.n_tails, 1); /* 20 replaced 5 */
    fake_whole_turn(p->c, "a", 1, p->ids, 10);
    cache_stats(p->c, &st);
    assert_int_equal(st.n_tails, 1); /* 10 is in 20 */
    fake_whole_turn(p->c, "a", 1, p->ids, 32);
    cache_stats(p->c, &st);
    assert_int_equal(st.n_tails, 0); /* the block replaced 20 */
    assert_int_equal(st.n_blocks, 1);
    fake_whole_turn(p->c, "a", 1, p->ids, 31);
    assert_int_equal(fake_in_tree(p->c), 1);
}

static void a_forked_tail_stays_beside_the_other(void **state)
{
    struct place *p = *state;
    const struct cache_root root = fake_root("a");
    int32_t fork[N_IDS];
    memcpy(fork, p->ids, sizeof fork);
    fork[40] = 1;
    fake_whole_turn(p->c, "a", 1, p->ids, 50);
    assert_int_equal(fake_whole_turn(p->c, "a", 1, fork, 45), 40);
    assert_int_equal(cache_peek(p->c, &root, p->ids, 50), 50);
    assert_int_equal(cache_peek(p->c, &root, fork, 45), 45);
}

static void a_turn_closed_without_its_tail_leaves_whole_blocks(void **state)
{
    struct place *p = *state;
    const struct cache_root root = fake_root("a");
    struct cache_lease *l = NULL;
    fake_turn(p->c, "a", 1, p->ids, 50, &l);
    cache_lease_close(l, p->ids, false);
    assert_int_equal(cache_peek(p->c, &root, p->ids, 50), 32);
}

static void a_tail_holds_zeros_past_its_end(void **state)
{
    struct place *p = *state;
    struct cache_lease *l = NULL;
    fake_turn(p->c, "a", 1, p->ids, 3, &l);
    fake_scribble(cache_lease_seq(l)); /* an abandoned pass */
    struct kv_block *b = kv_ref(cache_lease_seq(l)->blocks[0]);
    kv_unref(b); /* only looked at: the tree will hold it */
    cache_lease_close(l, p->ids, true);
    const struct kv_shape *s = kv_pool_shape(p->pool);
    for (size_t i = 3 * (size_t)s->head_dim * 2; i < s->head_bytes / 2; i++) {
        assert_int_equal(b->data[kv_v_offset(s, 1, 1) + i], 0);
    }
}

static void a_prefilling_turn_adopts_what_another_published_meanwhile(void **state)
{
    struct place *p = *state;
    const struct cache_root root = fake_root("a");
    struct cache_lease *slow = NULL, *quick = NULL;
    struct cache_found found;
    struct err e;
    assert_int_equal(cache_lease_open(p->c, &root, 1, &slow, &e), 0);
    assert_int_equal(cache_reserve(slow, 128, &e), 0);
    fake_compute(cache_lease_seq(slow), fake_salt("a"), p->ids,
                 40); /* one block and eight positions */
    assert_int_equal(cache_publish(slow, p->ids, 0, &e), 0);
    assert_int_equal(fake_turn(p->c, "a", 2, p->ids, 110, &quick), 32);
    const size_t n_free = kv_pool_n_free(p->pool);
    assert_int_equal(cache_find(slow, p->ids, 127, &found, &e), 0);
    assert_int_equal(found.n_tokens, 96 - 40);
    assert_int_equal(found.n_shared, 96 - 40);
    assert_int_equal(kv_pool_n_free(p->pool),
                     n_free + 2); /* its own two went back: half-filled and reserved */
    fake_verify(cache_lease_seq(slow), fake_salt("a"), p->ids);
    fake_check(p->c);
    cache_lease_close(quick, p->ids, true);
    assert_int_equal(cache_find(slow, p->ids, 127, &found, &e), 0);
    assert_int_equal(found.n_tokens, 110 - 96); /* the tail, into the block reserved for it */
    fake_compute(cache_lease_seq(slow), fake_salt("a"), p->ids, 128 - 110);
    assert_int_equal(cache_publish(slow, p->ids, 0, &e), 0);
    fake_verify(cache_lease_seq(slow), fake_salt("a"), p->ids);
    cache_lease_close(slow, p->ids, true);
    assert_int_equal(fake_in_tree(p->c), 4);
}

static void full_private_blocks_are_adopted_by_find_too(void **state)
{
    struct place *p = *state;
    const struct cache_root root = fake_root("a");
    struct cache_lease *slow = NULL, *quick = NULL;
    struct cache_found found;
    struct err e;
    assert_int_equal(cache_lease_open(p->c, &root, 1, &slow, &e), 0);
    assert_int_equal(cache_reserve(slow, 100, &e), 0);
    fake_compute(cache_lease_seq(slow), fake_salt("a"), p->ids, 70); /* not published */
    assert_int_equal(cache_find(slow, p->ids, 99, &found, &e), 0);
    assert_int_equal(found.n_tokens, 0);
    fake_turn(p->c, "a", 2, p->ids, 40, &quick);
    assert_int_equal(cache_find(slow, p->ids, 99, &found, &e), 0);
    assert_int_equal(found.n_tokens, 0); /* nothing new, but the twin is shared now */
    assert_ptr_equal(cache_lease_seq(slow)->blocks[0], cache_lease_seq(quick)->blocks[0]);
    fake_check(p->c);
    cache_lease_close(quick, p->ids, true);
    cache_lease_close(slow, p->ids, true);
}

static void twins_computed_side_by_side_become_one(void **state)
{
    struct place *p = *state;
    const struct cache_root root = fake_root("a");
    struct cache_lease *l[2];
    struct cache_stats st;
    struct err e;
    for (int i = 0; i < 2; i++) {
        assert_int_equal(cache_lease_open(p->c, &root, (uint64_t)i, &l[i], &e), 0);
        assert_int_equal(cache_reserve(l[i], 96, &e), 0);
        fake_compute(cache_lease_seq(l[i]), fake_salt("a"), p->ids, 96);
    }
    for (int i = 0; i < 2; i++) {
        assert_int_equal(cache_publish(l[i], p->ids, 10, &e), 0);
        assert_int_equal(cache_publish(l[i], p->ids, 10, &e), 0); /* again: nothing to do */
        fake_check(p->c);
    }
    assert_int_equal(64 - kv_pool_n_free(p->pool), 3);
    cache_stats(p->c, &st);
    assert_int_equal(st.n_adopted_blocks, 3);
    assert_int_equal(st.bytes_used, 3 * st.block_bytes);
    cache_lease_close(l[0], p->ids, true);
    fake_verify(cache_lease_seq(l[1]), fake_salt("a"), p->ids);
    cache_lease_close(l[1], p->ids, true);
}

static void nothing_of_an_abandoned_turn_enters_the_tree(void **state)
{
    struct place *p = *state;
    const struct cache_root root = fake_root("a");
    struct cache_lease *l = NULL;
    struct err e;
    fake_whole_turn(p->c, "a", 1, p->ids, 40);
    fake_turn(p->c, "a", 1, p->ids, 70, &l); /* two blocks shared, six positions private */
    assert_int_equal(cache_reserve(l, 60, &e), 0);
    fake_scribble(cache_lease_seq(l));
    cache_lease_seq(l)->n_tokens = 130; /* committed, and not a number */
    cache_lease_abandon(l);
    fake_check(p->c);
    assert_int_equal(cache_lease_seq(l)->n_tokens, 64);
    cache_lease_close(l, p->ids, true);
    assert_int_equal(cache_peek(p->c, &root, p->ids, 200), 64);
}

static void a_lease_that_did_nothing_leaves_nothing(void **state)
{
    struct place *p = *state;
    const struct cache_root root = fake_root("nobody");
    struct cache_lease *l = NULL;
    struct err e;
    assert_int_equal(cache_lease_open(p->c, &root, 1, &l, &e), 0);
    fake_check(p->c);
    cache_lease_close(l, NULL, true);
    cache_lease_close(NULL, NULL, true);
    assert_int_equal(fake_in_tree(p->c), 0);
}

static void drop_leaves_what_is_leased(void **state)
{
    struct place *p = *state;
    const struct cache_root root = fake_root("a");
    struct cache_lease *l = NULL;
    fake_whole_turn(p->c, "a", 1, p->ids, 300);
    fake_whole_turn(p->c, "bb", 1, p->ids, 100);
    fake_turn(p->c, "a", 1, p->ids, 70, &l);
    assert_int_equal(cache_drop(p->c, &root), 10 - 2);
    assert_int_equal(cache_peek(p->c, &root, p->ids, 300), 64);
    fake_verify(cache_lease_seq(l), fake_salt("a"), p->ids);
    cache_lease_close(l, p->ids, true);
    assert_int_equal(cache_drop(p->c, &root), 3);
    assert_int_equal(cache_drop(p->c, &root), 0);
    assert_int_equal(cache_drop(p->c, NULL), 4);
}

static void a_thousand_branches_of_one_block_are_told_apart(void **state)
{
    struct place *p = *state;
    struct kv_pool *pool = fake_pool(1100);
    struct cache *c = NULL;
    struct err e;
    const struct cache_root root = fake_root("a");
    assert_int_equal(cache_new(pool, &c, &e), 0);
    for (int i = 0; i < 1000; i++) {
        p->ids[32 + i % 32] = i * 7919 % 1009; /* the place of the fork moves too */
        struct cache_lease *l = NULL;
        fake_turn(c, "a", 1, p->ids, 64, &l);
        cache_lease_close(l, p->ids, true);
        assert_int_equal(cache_peek(c, &root, p->ids, 64), 64);
    }
    cache_free(c);
    assert_int_equal(kv_pool_n_free(pool), 1100);
    kv_pool_free(pool);
}

#define T(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        T(an_empty_cache_finds_nothing),
        T(the_same_prompt_is_found_but_for_its_last_token),
        T(n_max_is_respected_at_block_borders),
        T(ids_that_differ_in_the_last_place_only_share_the_rest),
        T(owners_and_models_never_share),
        T(eight_turns_with_one_system_prompt_hold_it_once),
        T(what_another_conversation_computed_is_counted_as_shared),
        T(a_tail_goes_when_something_longer_begins_with_it),
        T(a_forked_tail_stays_beside_the_other),
        T(a_turn_closed_without_its_tail_leaves_whole_blocks),
        T(a_tail_holds_zeros_past_its_end),
        T(a_prefilling_turn_adopts_what_another_published_meanwhile),
        T(full_private_blocks_are_adopted_by_find_too),
        T(twins_computed_side_by_side_become_one),
        T(nothing_of_an_abandoned_turn_enters_the_tree),
        T(a_lease_that_did_nothing_leaves_nothing),
        T(drop_leaves_what_is_leased),
        T(a_thousand_branches_of_one_block_are_told_apart),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
