/* Replies of stateless chats: found by their chain, within a budget. */
#include "tests/memory/place.h"

static const uint8_t render[HASH_BYTES] = {1}, other_render[HASH_BYTES] = {2};

static void chain_of(int n, uint8_t ret[HASH_BYTES])
{
    memset(ret, 0, HASH_BYTES);
    memory_chain(ret, MEMORY_USER, (const char *)&n, sizeof(n));
}

static void put(const char *owner, int n, size_t n_ids)
{
    uint8_t chain[HASH_BYTES];
    int32_t *ids = calloc(n_ids + 1, sizeof(*ids));
    assert_non_null(ids);
    ids[0] = n;
    chain_of(n, chain);
    ASSERT_OK(memory_reply_put(here.m, owner, &(struct memory_reply_key){chain, render}, ids, n_ids,
                               &here.e));
    free(ids);
}

static bool has(const char *owner, int n)
{
    uint8_t chain[HASH_BYTES];
    struct ids ids;
    ids_init(&ids);
    chain_of(n, chain);
    int rc =
        memory_reply_get(here.m, owner, &(struct memory_reply_key){chain, render}, &ids, &here.e);
    bool is_right = rc == 0 && (ids.n == 0 || ids.v[0] == n);
    assert_true(is_right || rc == ERR_NOTFOUND);
    ids_done(&ids);
    return rc == 0;
}

static void chain_depends_on_all_that_was_said(void **state)
{
    (void)state;
    uint8_t a[HASH_BYTES] = {0}, b[HASH_BYTES] = {0}, c[HASH_BYTES] = {0}, zero[HASH_BYTES] = {0};
    memory_chain(a, MEMORY_USER, "ab", 2);
    memory_chain(b, MEMORY_ASSISTANT, "ab", 2);
    assert_memory_not_equal(a, b, HASH_BYTES);
    memory_chain(c, MEMORY_USER, "ab\0", 3);
    assert_memory_not_equal(a, c, HASH_BYTES);
    assert_memory_not_equal(a, zero, HASH_BYTES);
    /* "a" then "b" is not "ab". */
    memset(b, 0, HASH_BYTES);
    memory_chain(b, MEMORY_USER, "a", 1);
    memory_chain(b, MEMORY_USER, "b", 1);
    assert_memory_not_equal(a, b, HASH_BYTES);
    memset(b, 0, HASH_BYTES);
    memory_chain(b, MEMORY_USER, "ab", 2);
    assert_memory_equal(a, b, HASH_BYTES);
}

static void a_reply_is_found_by_owner_chain_and_render_id(void **state)
{
    (void)state;
    uint8_t chain[HASH_BYTES];
    struct ids ids;
    ids_init(&ids);
    put(OWNER, 5, 3);
    chain_of(5, chain);
    ASSERT_ERR(
        memory_reply_get(here.m, OTHER, &(struct memory_reply_key){chain, render}, &ids, &here.e),
        ERR_NOTFOUND);
    ASSERT_ERR(memory_reply_get(here.m, OWNER, &(struct memory_reply_key){chain, other_render},
                                &ids, &here.e),
               ERR_NOTFOUND);
    place_reopen();
    ASSERT_OK(
        memory_reply_get(here.m, OWNER, &(struct memory_reply_key){chain, render}, &ids, &here.e));
    assert_int_equal(ids.n, 3);
    assert_int_equal(ids.v[0], 5);
    put(OWNER, 5, 1); /* written again: the newer counts */
    ids.n = 0;
    ASSERT_OK(
        memory_reply_get(here.m, OWNER, &(struct memory_reply_key){chain, render}, &ids, &here.e));
    assert_int_equal(ids.n, 1);
    ids_done(&ids);
}

/* 1 MiB each, so that the budget holds fifteen. */
#define LARGE ((1u << 20) / 4)

static void the_budget_drops_the_oldest_use(void **state)
{
    (void)state;
    put(OTHER, 1000, LARGE);
    for (int i = 0; i < 15; i++)
        put(OWNER, i, LARGE);
    assert_true(has(OWNER, 0)); /* used: now the newest */
    put(OWNER, 15, LARGE);
    assert_true(has(OWNER, 0));
    assert_false(has(OWNER, 1));
    assert_true(has(OWNER, 2));
    place_reopen();
    put(OWNER, 16, LARGE);
    assert_false(has(OWNER, 3));
    assert_true(has(OWNER, 0));
    assert_true(has(OTHER, 1000)); /* another owner's budget is its own */
}

static void a_reply_that_would_fill_the_budget_is_not_kept(void **state)
{
    (void)state;
    put(OWNER, 1, 10);
    put(OWNER, 2, (5u << 20) / 4);
    assert_false(has(OWNER, 2));
    assert_true(has(OWNER, 1));
}

static void replacing_does_not_use_up_the_budget(void **state)
{
    (void)state;
    put(OWNER, 1, LARGE);
    for (int i = 0; i < 40; i++)
        put(OWNER, 2, LARGE);
    assert_true(has(OWNER, 1));
}

static void replies_are_dropped_on_demand(void **state)
{
    (void)state;
    put(OWNER, 1, 10);
    put(OTHER, 2, 10);
    ASSERT_OK(memory_reply_drop_all(here.m, OWNER, &here.e));
    assert_false(has(OWNER, 1));
    assert_true(has(OTHER, 2));
    put(OWNER, 3, 10);
    assert_true(has(OWNER, 3));
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, place_make, place_remove)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(chain_depends_on_all_that_was_said),
        TEST(a_reply_is_found_by_owner_chain_and_render_id),
        TEST(the_budget_drops_the_oldest_use),
        TEST(a_reply_that_would_fill_the_budget_is_not_kept),
        TEST(replacing_does_not_use_up_the_budget),
        TEST(replies_are_dropped_on_demand),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
