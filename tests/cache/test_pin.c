/*
 * Pinned blocks are nobody's victims, in RAM and on disk, within a ceiling; a drop takes the rest.
 * Then random turns, pins and drops beside a plain list of what is pinned.
 *
 *     test_pin [seed]
 */
#include "tests/cache/tier.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/log.h"
#include "base/sys.h"
#include "cache/inside.h"
#include "cache/record.h"

#define BLOCKS_MAX 40

static uint64_t the_seed;

static size_t chain(const char *owner, const int32_t *ids, int n, uint8_t *ret)
{
    const struct cache_root root = fake_root(owner);
    return cache_chain(&root, ids, (size_t)n, ret, BLOCKS_MAX);
}

static void pin(struct tier *t, const int32_t *ids, int n)
{
    uint8_t all[BLOCKS_MAX * HASH_BYTES];
    struct err e;
    const size_t n_all = chain("a", ids, n, all);
    if (cache_pin(t->cache, all, n_all, &e)) {
        fail_msg("%s", e.text);
    }
    fake_check(t->cache);
}

static void unpin(struct tier *t, const int32_t *ids, int n)
{
    uint8_t all[BLOCKS_MAX * HASH_BYTES];
    cache_unpin(t->cache, all, chain("a", ids, n, all));
    fake_check(t->cache);
}

static int found(const struct tier *t, const int32_t *ids, int n)
{
    const struct cache_root root = fake_root("a");
    return cache_peek(t->cache, &root, ids, n);
}

static bool has_file(const struct tier *t, const int32_t *ids, int n)
{
    char path[256];
    struct stat st;
    tier_path(t, "a", ids, n, path, sizeof path);
    return lstat(path, &st) == 0;
}

/* Other conversations, far more than there is room for. */
static void flood(struct tier *t, int n)
{
    int32_t ids[160];
    for (int i = 0; i < n; i++) {
        tier_ids(ids, 160, 100000 + 1000 * i);
        tier_turn(t, "a", 9, ids, 160);
        tier_settle(t);
    }
}

static void pinned_blocks_stay_in_ram(void **state)
{
    (void)state;
    struct tier t;
    int32_t ids[128];
    tier_init(&t, 20);
    cache_disk_close(t.cache, 0);
    tier_ids(ids, 128, 0);
    tier_turn(&t, "a", 1, ids, 128);
    pin(&t, ids, 96);
    flood(&t, 20);
    assert_int_equal(found(&t, ids, 128), 96);
    unpin(&t, ids, 96);
    flood(&t, 20);
    assert_int_equal(found(&t, ids, 128), 0);
    tier_done(&t);
}

static void a_block_that_isn_t_there_is_protected_when_it_comes(void **state)
{
    (void)state;
    struct tier t;
    int32_t ids[128];
    tier_init(&t, 20);
    cache_disk_close(t.cache, 0);
    tier_ids(ids, 128, 0);
    pin(&t, ids, 96);
    pin(&t, ids, 96); /* twice is once */
    tier_turn(&t, "a", 1, ids, 128);
    flood(&t, 20);
    assert_int_equal(found(&t, ids, 128), 96);
    tier_done(&t);
}

static void pinned_files_are_not_trimmed_also_over_a_restart(void **state)
{
    (void)state;
    struct tier t;
    int32_t ids[128];
    uint8_t all[BLOCKS_MAX * HASH_BYTES];
    struct err e;
    tier_init(&t, 64);
    tier_ids(ids, 128, 0);
    tier_turn(&t, "a", 1, ids, 128);
    tier_close(&t, 3000);
    t.bytes_max = 14 * (record_bytes(2048) + 4096);
    t.n_blocks = 14;
    /* Told before the tier opens, as a start does. */
    struct tier early = t;
    early.pool = fake_pool(early.n_blocks);
    assert_int_equal(cache_new(early.pool, &early.cache, &e), 0);
    assert_int_equal(cache_pin(early.cache, all, chain("a", ids, 96, all), &e), 0);
    const struct cache_disk_options o = {
        .dir = t.dir, .bytes_max = t.bytes_max, .reply = &early.box, .reply_kind = 7};
    assert_int_equal(mailbox_init(&early.box, &e), 0);
    assert_int_equal(cache_disk_open(early.cache, &o, &e), 0);
    flood(&early, 12);
    for (int n = 32; n <= 96; n += 32) {
        assert_true(has_file(&early, ids, n));
    }
    assert_false(has_file(&early, ids, 128));
    struct cache_usage u;
    const struct cache_root root = fake_root("a");
    cache_usage(early.cache, &root, &u);
    assert_int_equal(u.n_disk_pinned, 3);
    assert_int_equal(u.n_ram_pinned, 0);
    assert_true(u.disk_bytes <= t.bytes_max && u.n_disk > 3);
    unpin(&early, ids, 96);
    flood(&early, 12);
    assert_false(has_file(&early, ids, 32));
    tier_done(&early);
}

static void more_than_half_is_refused_with_the_numbers(void **state)
{
    (void)state;
    struct tier t;
    int32_t ids[BLOCKS_MAX * KV_BLOCK];
    uint8_t all[BLOCKS_MAX * HASH_BYTES];
    struct err e;
    tier_init(&t, 20);
    tier_ids(ids, BLOCKS_MAX * KV_BLOCK, 0);
    chain("a", ids, BLOCKS_MAX * KV_BLOCK, all);
    assert_int_equal(cache_pin(t.cache, all, 11, &e), ERR_LIMIT);
    assert_non_null(strstr(e.text, "11 KV blocks more"));
    assert_non_null(strstr(e.text, "at most 10 may be"));
    assert_non_null(strstr(e.text, "--memory"));
    assert_int_equal(cache_pin(t.cache, all, 10, &e), 0);
    assert_int_equal(cache_pin(t.cache, all, 10, &e), 0); /* nothing new */
    assert_int_equal(cache_pin(t.cache, all + 10 * HASH_BYTES, 1, &e), ERR_LIMIT);
    cache_unpin(t.cache, all, 10);
    cache_set_turn_blocks(t.cache, 16);
    assert_int_equal(cache_pin(t.cache, all, 5, &e), ERR_LIMIT);
    assert_int_equal(cache_pin(t.cache, all, 4, &e), 0);
    tier_done(&t);
}

static void the_disk_has_its_own_ceiling(void **state)
{
    (void)state;
    struct tier t;
    int32_t ids[BLOCKS_MAX * KV_BLOCK];
    uint8_t all[BLOCKS_MAX * HASH_BYTES];
    struct err e;
    tier_init(&t, 40);
    tier_close(&t, 0);
    t.bytes_max = 10 * record_bytes(2048);
    tier_open(&t);
    assert_true(disk_wait(t.cache->disk));
    tier_ids(ids, BLOCKS_MAX * KV_BLOCK, 0);
    chain("a", ids, BLOCKS_MAX * KV_BLOCK, all);
    assert_int_equal(cache_pin(t.cache, all, 6, &e), ERR_LIMIT);
    assert_non_null(strstr(e.text, "--disk"));
    assert_int_equal(cache_pin(t.cache, all, 5, &e), 0);
    tier_done(&t);
}

static void turns_are_refused_room_that_only_pins_have(void **state)
{
    (void)state;
    struct tier t;
    int32_t ids[KV_BLOCK * 12];
    struct err e;
    struct cache_lease *l;
    const struct cache_root root = fake_root("a");
    tier_init(&t, 20);
    cache_disk_close(t.cache, 0);
    tier_ids(ids, KV_BLOCK * 12, 0);
    tier_turn(&t, "a", 1, ids, KV_BLOCK * 10);
    pin(&t, ids, KV_BLOCK * 10);
    assert_int_equal(cache_room(t.cache), 10);
    assert_int_equal(cache_lease_open(t.cache, &root, 0, &l, &e), 0);
    assert_int_equal(cache_reserve(l, KV_BLOCK * 11, &e), ERR_NOMEM);
    assert_int_equal(cache_reserve(l, KV_BLOCK * 10, &e), 0);
    fake_check(t.cache);
    cache_lease_close(l, NULL, false);
    tier_done(&t);
}

static void a_drop_takes_ram_and_disk_but_what_is_pinned(void **state)
{
    (void)state;
    struct tier t;
    int32_t a[128], b[128];
    const struct cache_root of_a = fake_root("a"), of_b = fake_root("b");
    tier_init(&t, 64);
    tier_ids(a, 128, 0);
    tier_ids(b, 128, 5000);
    tier_turn(&t, "a", 1, a, 128);
    tier_turn(&t, "b", 2, a, 128);
    tier_settle(&t);
    tier_close(&t, 3000);
    tier_open(&t);
    assert_true(disk_wait(t.cache->disk));
    tier_turn(&t, "a", 1, b, 128); /* these four in RAM and on their way, a's other on disk alone */
    pin(&t, a, 64);
    assert_int_equal(cache_drop(t.cache, &of_a), 2 + 4);
    tier_sync(&t);
    assert_true(has_file(&t, a, 32) && has_file(&t, a, 64));
    assert_false(has_file(&t, a, 96) || has_file(&t, b, 32) || has_file(&t, b, 128));
    struct cache_usage u;
    cache_usage(t.cache, &of_b, &u);
    assert_int_equal(u.n_disk, 4); /* the other owner's */
    unpin(&t, a, 64);
    assert_int_equal(cache_drop(t.cache, &of_a), 2);
    assert_true(cache_drop(t.cache, NULL) >= 4);
    tier_sync(&t);
    assert_false(has_file(&t, a, 32));
    cache_usage(t.cache, &of_b, &u);
    assert_int_equal(u.n_disk + u.n_ram, 0);
    tier_done(&t);
}

struct told {
    int n;
    bool is_done;
};

static void tell(void *ctx, bool is_done)
{
    struct told *told = ctx;
    told->n++;
    told->is_done = is_done;
}

static void a_sync_is_told_after_the_files_have_gone(void **state)
{
    (void)state;
    struct tier t;
    int32_t ids[128];
    uint8_t all[BLOCKS_MAX * HASH_BYTES];
    struct told told = {0};
    struct cache_removed gone;
    struct err e;
    tier_init(&t, 64);
    tier_ids(ids, 128, 0);
    tier_turn(&t, "a", 1, ids, 128);
    pin(&t, ids, 128);
    cache_remove(t.cache, all, chain("a", ids, 128, all), &gone); /* pins or not */
    assert_int_equal(gone.n_blocks, 4);
    assert_int_equal(cache_sync(t.cache, tell, &told, &e), 0);
    while (!told.n) {
        tier_mail(&t);
    }
    assert_true(told.is_done);
    assert_false(has_file(&t, ids, 32) || has_file(&t, ids, 128));
    cache_disk_close(t.cache, 0);
    assert_int_equal(cache_sync(t.cache, tell, &told, &e), 0);
    assert_int_equal(told.n, 2);
    tier_done(&t);
}

/* ---- beside a plain list ---- */

#define N_CHAINS 12
#define CHAIN_BLOCKS 6

struct model {
    bool is_pinned[N_CHAINS][CHAIN_BLOCKS];
    bool was_there[N_CHAINS][CHAIN_BLOCKS]; /* once in RAM while pinned */
};

static void chain_of(int k, int32_t *ids)
{
    /* Pairs share their first three blocks. */
    tier_ids(ids, CHAIN_BLOCKS * KV_BLOCK, 1000 * (k / 2));
    if (k % 2) {
        tier_ids(ids + 3 * KV_BLOCK, 3 * KV_BLOCK, 500000 + 1000 * k);
    }
}

static size_t n_pinned(const struct model *m)
{
    size_t n = 0;
    for (int k = 0; k < N_CHAINS; k++) {
        for (int i = 0; i < CHAIN_BLOCKS; i++) {
            const bool is_twin = k % 2 && i < 3; /* counted with its pair */
            n += m->is_pinned[k][i] && !is_twin;
        }
    }
    return n;
}

static void set_model(struct model *m, int k, int i, bool to)
{
    m->is_pinned[k][i] = to;
    if (i < 3) {
        m->is_pinned[k ^ 1][i] = to;
    }
}

static size_t n_new_of(const struct model *m, int k, int from, int to)
{
    size_t n = 0;
    for (int i = from; i < to; i++) {
        n += !m->is_pinned[k][i];
    }
    return n;
}

static void random_pin(struct cache *c, struct model *m, uint64_t *rng, size_t n_max)
{
    int32_t ids[CHAIN_BLOCKS * KV_BLOCK];
    uint8_t all[BLOCKS_MAX * HASH_BYTES];
    struct err e;
    const int k = fake_below(rng, N_CHAINS), from = fake_below(rng, 4) ? 0 : fake_below(rng, 5);
    const int to = from + 1 + fake_below(rng, CHAIN_BLOCKS - from);
    const bool is_pin = fake_below(rng, 2);
    chain_of(k, ids);
    chain("a", ids, CHAIN_BLOCKS * KV_BLOCK, all);
    if (!is_pin) {
        cache_unpin(c, all + from * HASH_BYTES, (size_t)(to - from));
    } else {
        const bool fits = n_pinned(m) + n_new_of(m, k, from, to) <= n_max ||
                          n_new_of(m, k, from, to) == 0;
        const int rc = cache_pin(c, all + from * HASH_BYTES, (size_t)(to - from), &e);
        assert_int_equal(rc, fits ? 0 : ERR_LIMIT);
        if (rc) {
            return;
        }
    }
    for (int i = from; i < to; i++) {
        set_model(m, k, i, is_pin);
    }
}

/* What is pinned and was there is there; and no pin but the model's counts. */
static void compare(struct cache *c, struct model *m)
{
    int32_t ids[CHAIN_BLOCKS * KV_BLOCK];
    uint8_t all[BLOCKS_MAX * HASH_BYTES];
    for (int k = 0; k < N_CHAINS; k++) {
        chain_of(k, ids);
        chain("a", ids, CHAIN_BLOCKS * KV_BLOCK, all);
        for (int i = 0; i < CHAIN_BLOCKS; i++) {
            struct cache_count n;
            cache_count(c, all + i * HASH_BYTES, 1, &n);
            assert_int_equal(n.n_pinned, m->is_pinned[k][i]);
            if (m->is_pinned[k][i] && m->was_there[k][i]) {
                assert_int_equal(n.n_ram, 1);
            }
            m->was_there[k][i] = m->is_pinned[k][i] && n.n_ram;
        }
    }
}

/* false: the pins leave no room, as a pin in a chain's middle holds what stands before it. */
static bool turn(struct cache *c, const int32_t *ids, int n)
{
    const struct cache_root root = fake_root("a");
    struct cache_found got;
    struct cache_lease *l;
    struct err e;
    assert_int_equal(cache_lease_open(c, &root, 0, &l, &e), 0);
    assert_int_equal(cache_find(l, ids, n - 1, &got, &e), 0);
    const int left = n - cache_lease_seq(l)->n_tokens;
    const size_t room = cache_room(c);
    const int n_need = (n + KV_BLOCK - 1) / KV_BLOCK - cache_lease_seq(l)->n_blocks;
    const bool fits = cache_reserve(l, left, &e) == 0;
    assert_int_equal(fits, n_need <= (int)room);
    if (fits) {
        fake_compute(cache_lease_seq(l), fake_salt("a"), ids, left);
    }
    cache_lease_close(l, ids, true);
    return fits;
}

static void random_pins_agree_with_a_list(void **state)
{
    (void)state;
    struct kv_pool *pool = fake_pool(34);
    uint64_t rng = the_seed * 0x9e3779b97f4a7c15u + 1;
    int32_t ids[CHAIN_BLOCKS * KV_BLOCK];
    const struct cache_root root = fake_root("a");
    struct model m = {0};
    struct cache *c;
    struct err e;
    int n_held = 0, n_refused = 0;
    assert_int_equal(cache_new(pool, &c, &e), 0);
    for (int step = 0; step < 4000; step++) {
        const int what = fake_below(&rng, 40);
        if (what < 20) {
            random_pin(c, &m, &rng, 17);
        } else if (what < 39) {
            const int k = fake_below(&rng, N_CHAINS);
            chain_of(k, ids);
            n_refused += !turn(c, ids, KV_BLOCK * (1 + fake_below(&rng, CHAIN_BLOCKS)) -
                                           fake_below(&rng, 2));
        } else {
            cache_drop(c, fake_below(&rng, 2) ? &root : NULL);
        }
        fake_check(c);
        compare(c, &m);
        n_held += n_pinned(&m) > 10;
    }
    print_message("%d turns found no room\n", n_refused);
    assert_true(n_held > 100 && n_refused < 1000);
    cache_free(c);
    assert_int_equal(kv_pool_n_free(pool), 34);
    kv_pool_free(pool);
}

static void a_set_agrees_with_a_list(void **state)
{
    (void)state;
    struct pins p = {0};
    uint64_t rng = the_seed + 77;
    bool has[500] = {false};
    size_t n = 0;
    struct err e;
    for (int step = 0; step < 20000; step++) {
        uint8_t id[HASH_BYTES] = {0};
        const int k = fake_below(&rng, 500);
        id[0] = (uint8_t)(k % 7 * 36); /* many in one place */
        id[20] = (uint8_t)k;
        id[21] = (uint8_t)(k >> 8);
        assert_int_equal(pins_has(&p, id), has[k]);
        const bool add = fake_below(&rng, 1000) < (step / 2000 % 2 ? 300 : 700);
        if (add) {
            assert_int_equal(pins_reserve(&p, 1, &e), 0);
            assert_int_equal(pins_add(&p, id), !has[k]);
        } else {
            assert_int_equal(pins_remove(&p, id), has[k]);
        }
        n = n + (add && !has[k]) - (!add && has[k]);
        has[k] = add;
        assert_int_equal(p.n, n);
    }
    pins_done(&p);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pinned_blocks_stay_in_ram),
        cmocka_unit_test(a_block_that_isn_t_there_is_protected_when_it_comes),
        cmocka_unit_test(pinned_files_are_not_trimmed_also_over_a_restart),
        cmocka_unit_test(more_than_half_is_refused_with_the_numbers),
        cmocka_unit_test(the_disk_has_its_own_ceiling),
        cmocka_unit_test(turns_are_refused_room_that_only_pins_have),
        cmocka_unit_test(a_drop_takes_ram_and_disk_but_what_is_pinned),
        cmocka_unit_test(a_sync_is_told_after_the_files_have_gone),
        cmocka_unit_test(random_pins_agree_with_a_list),
        cmocka_unit_test(a_set_agrees_with_a_list),
    };
    log_init(LOG_LEVEL_ERROR);
    thread_set_role(THREAD_WORKER);
    the_seed = argc > 1 ? strtoull(argv[1], NULL, 10) : random_u64() % 1000000007u;
    print_message("seed %llu\n", (unsigned long long)the_seed);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
