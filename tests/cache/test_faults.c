/* One day in the cache's life, again and again, with each of its allocations failing in turn. */
#include "tests/cache/fake.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/sys.h"

#define N_IDS 400

static int n_calls, fail_at,
    fail_count; /* calls fail_at … fail_at + fail_count − 1 fail; 0: none */

static bool fails(void)
{
    n_calls++;
    return fail_at && n_calls >= fail_at && n_calls < fail_at + fail_count;
}

static void *counting_malloc(size_t n)
{
    return fails() ? NULL : malloc(n);
}

static void *counting_realloc(void *p, size_t n)
{
    return fails() ? NULL : realloc(p, n);
}

/* A turn that goes on as far as memory lets it. Returns whether every call succeeded. */
static bool turn(struct cache *c, uint64_t who, const int32_t *ids, int n, struct cache_lease **ret)
{
    const struct cache_root root = fake_root("a");
    struct cache_lease *l = NULL;
    struct cache_found found;
    struct err e;

    *ret = NULL;
    int rc = cache_lease_open(c, &root, who, &l, &e);
    fake_check(c);
    if (rc) {
        assert_int_equal(rc, ERR_NOMEM);
        return false;
    }
    struct kv_seq *s = cache_lease_seq(l);
    rc = cache_find(l, ids, n - 1, &found, &e);
    fake_check(c);
    fake_verify(s, fake_salt("a"), ids);
    const int n_had = s->n_blocks;
    int rc2 = cache_reserve(l, n - s->n_tokens, &e);
    if (rc2) {
        assert_int_equal(rc2, ERR_NOMEM);
        assert_int_equal(s->n_blocks, n_had);
    } else {
        fake_compute(s, fake_salt("a"), ids, n - s->n_tokens);
    }
    const int rc3 = cache_publish(l, ids, 100, &e);
    assert_true(!rc3 || rc3 == ERR_NOMEM);
    fake_check(c);
    fake_verify(s, fake_salt("a"), ids);
    *ret = l;
    return !rc && !rc2 && !rc3;
}

static bool a_day(struct cache *c)
{
    struct cache_lease *l[4] = {0};
    int32_t ids[4][N_IDS];
    bool is_fine = true;
    for (int i = 0; i < 4; i++) {
        for (int j = 0; j < N_IDS; j++) {
            ids[i][j] = j < 50 ? j : j + i * 1000;
        }
        is_fine &= turn(c, (uint64_t)i, ids[i], 100 + 80 * i, &l[i]);
    }
    for (int i = 0; i < 4; i++) {
        cache_lease_close(l[i], ids[i], i != 2);
        fake_check(c);
    }
    /* Enough branches under one root that tables grow, and enough blocks that some must go. */
    for (int i = 0; i < 30; i++) {
        ids[0][0] = 5000 + i;
        is_fine &= turn(c, 9, ids[0], 64 + i, &l[0]);
        cache_lease_close(l[0], ids[0], true);
        fake_check(c);
    }
    return is_fine;
}

/* The day with `count` calls failing from the `at`-th on. Returns how many calls there were. */
static int run(int at, int count)
{
    struct kv_pool *pool = fake_pool(75);
    struct cache *c = NULL;
    struct err e;
    n_calls = 0;
    fail_at = at;
    fail_count = count;
    sys.malloc = counting_malloc;
    sys.realloc = counting_realloc;
    const int rc = cache_new(pool, &c, &e);
    if (rc) {
        assert_int_equal(rc, ERR_NOMEM);
    } else {
        const bool is_fine = a_day(c);
        assert_true(at || is_fine);
        /* Afterwards it works as if nothing had been: what is asked for twice is found. */
        fail_at = 0;
        int32_t ids[N_IDS];
        for (int i = 0; i < N_IDS; i++) {
            ids[i] = 90000 + i;
        }
        fake_whole_turn(c, "a", 1, ids, 200);
        assert_int_equal(fake_whole_turn(c, "a", 1, ids, 200), 199);
        cache_free(c);
    }
    sys_reset();
    assert_int_equal(kv_pool_n_free(pool), 75);
    kv_pool_free(pool);
    return n_calls;
}

static void each_allocation_may_fail_alone(void **state)
{
    (void)state;
    const int n = run(0, 0);
    assert_true(n > 100);
    for (int at = 1; at <= n; at++) {
        run(at, 1);
    }
}

static void each_allocation_may_fail_with_all_that_follow(void **state)
{
    (void)state;
    const int n = run(0, 0);
    for (int at = 1; at <= n; at += 7) {
        run(at, 1000000);
        run(at, 4);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_allocation_may_fail_alone),
        cmocka_unit_test(each_allocation_may_fail_with_all_that_follow),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
