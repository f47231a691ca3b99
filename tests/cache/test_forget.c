/* What is removed is gone from RAM and disk, and nothing else is. */
#include "tests/cache/tier.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "base/log.h"
#include "cache/tree.h"

#define IDS_MAX 64

static bool has_file(const struct tier *t, const int32_t *ids, int n)
{
    char path[256];
    struct stat st;
    tier_path(t, "a", ids, n, path, sizeof path);
    return lstat(path, &st) == 0;
}

/* The ids of the blocks of ids[0, n), counted from the root. */
static size_t chain(const int32_t *ids, int n, uint8_t *ret)
{
    const struct cache_root root = fake_root("a");
    const uint8_t *parent = root.id;
    size_t n_ids = 0;
    for (int at = 0; at < n; at += KV_BLOCK) {
        tree_id(parent, ids + at, n - at < KV_BLOCK ? n - at : KV_BLOCK, ret + n_ids * HASH_BYTES);
        parent = ret + n_ids++ * HASH_BYTES;
    }
    return n_ids;
}

static struct cache_removed remove_ids(struct tier *t, const int32_t *ids, int n, size_t from)
{
    uint8_t all[IDS_MAX * HASH_BYTES];
    struct cache_removed gone;
    const size_t n_all = chain(ids, n, all);
    cache_remove(t->cache, all + from * HASH_BYTES, n_all - from, &gone);
    assert_int_equal(gone.bytes, gone.n_blocks * kv_pool_shape(t->pool)->block_bytes);
    fake_check(t->cache);
    return gone;
}

static int found(const struct tier *t, const int32_t *ids, int n)
{
    const struct cache_root root = fake_root("a");
    return cache_peek(t->cache, &root, ids, n);
}

static void a_lease_names_its_blocks_and_its_tail(void **state)
{
    (void)state;
    struct tier t;
    int32_t ids[150];
    uint8_t want[IDS_MAX * HASH_BYTES], got[IDS_MAX * HASH_BYTES];
    tier_init(&t, 64);
    tier_ids(ids, 150, 0);
    tier_turn(&t, "a", 1, ids, 100);
    struct cache_lease *l = tier_begin(&t, "a", 1, ids, 150);
    struct kv_seq *s = cache_lease_seq(l);
    assert_int_equal(s->n_tokens, 100);
    fake_compute(s, fake_salt("a"), ids, 50); /* 3 blocks are shared, one isn't yet, and a tail */
    assert_int_equal(chain(ids, 150, want), 5);
    assert_int_equal(cache_lease_ids(l, NULL, got, IDS_MAX), 3);
    assert_memory_equal(got, want, 3 * HASH_BYTES);
    assert_int_equal(cache_lease_ids(l, ids, got, 4), 4);
    assert_int_equal(cache_lease_ids(l, ids, got, IDS_MAX), 5);
    assert_memory_equal(got, want, 5 * HASH_BYTES);
    cache_lease_close(l, ids, true);
    for (size_t i = 0; i < 5; i++) {
        struct cache_removed gone;
        cache_remove(t.cache, got + (4 - i) * HASH_BYTES, 1, &gone);
        assert_int_equal(gone.n_blocks, 1); /* these are the tree's own ids */
    }
    tier_done(&t);
}

static void what_another_hangs_from_stays(void **state)
{
    (void)state;
    struct tier t;
    int32_t a[200], b[200];
    tier_init(&t, 64);
    tier_ids(a, 200, 0);
    tier_ids(b, 200, 0);
    tier_ids(b + 96, 104, 5000); /* three blocks are common */
    tier_turn(&t, "a", 1, a, 200);
    tier_turn(&t, "a", 2, b, 170);
    assert_int_equal(remove_ids(&t, a, 200, 0).n_blocks, 4);
    assert_int_equal(found(&t, a, 200), 96);
    assert_int_equal(found(&t, b, 170), 170);
    assert_int_equal(remove_ids(&t, a, 200, 0).n_blocks, 0);
    assert_int_equal(remove_ids(&t, b, 170, 3).n_blocks, 3);
    assert_int_equal(found(&t, b, 170), 96);
    assert_int_equal(remove_ids(&t, b, 96, 0).n_blocks, 3);
    assert_int_equal(tier_stats(&t).n_blocks + tier_stats(&t).n_tails, 0);
    tier_done(&t);
}

static void what_a_turn_leases_stays_until_it_ends(void **state)
{
    (void)state;
    struct tier t;
    int32_t ids[120];
    tier_init(&t, 64);
    tier_ids(ids, 120, 0);
    tier_turn(&t, "a", 1, ids, 120);
    tier_settle(&t);
    struct cache_lease *l = tier_begin(&t, "a", 1, ids, 70);
    assert_int_equal(remove_ids(&t, ids, 120, 0).n_blocks, 2); /* the third, and the tail */
    tier_sync(&t);
    assert_int_equal(found(&t, ids, 120), 64);
    assert_true(has_file(&t, ids, 32) && has_file(&t, ids, 64));
    assert_false(has_file(&t, ids, 96));
    cache_lease_close(l, ids, false);
    assert_int_equal(remove_ids(&t, ids, 120, 0).n_blocks, 2);
    tier_sync(&t);
    assert_false(has_file(&t, ids, 32) || has_file(&t, ids, 64));
    tier_done(&t);
}

static void files_go_too_also_those_of_the_disk_alone(void **state)
{
    (void)state;
    struct tier t;
    int32_t a[200], b[200];
    tier_init(&t, 64);
    tier_ids(a, 200, 0);
    tier_ids(b, 200, 0);
    tier_ids(b + 64, 136, 5000);
    tier_turn(&t, "a", 1, a, 200);
    tier_turn(&t, "a", 1, b, 200);
    tier_close(&t, 3000); /* with the tails */
    tier_open(&t);
    tier_turn(&t, "a", 1, a, 96); /* a part of it in RAM, all on disk */
    tier_settle(&t);
    assert_true(has_file(&t, a, 200) && has_file(&t, b, 200));
    assert_int_equal(remove_ids(&t, a, 200, 2).n_blocks, 5);
    tier_sync(&t);
    for (int n = 96; n <= 200; n += 32) {
        assert_false(has_file(&t, a, n));
    }
    assert_false(has_file(&t, a, 200));
    for (int n = 32; n <= 192; n += 32) {
        assert_true(has_file(&t, b, n));
    }
    assert_true(has_file(&t, b, 200));
    tier_done(&t);
}

static void a_block_on_its_way_to_the_disk_goes_after_it(void **state)
{
    (void)state;
    struct tier t;
    struct tier_files files;
    int32_t ids[200];
    tier_init(&t, 64);
    tier_ids(ids, 200, 0);
    tier_turn(&t, "a", 1, ids, 200); /* tended: all whole blocks have been sent, none is back */
    assert_int_equal(remove_ids(&t, ids, 200, 0).n_blocks, 7);
    tier_settle(&t);
    tier_sync(&t);
    tier_files(&t, &files);
    assert_int_equal(files.n, 1); /* of tier_sync itself */
    assert_int_equal(tier_turn(&t, "a", 1, ids, 200).n_tokens, 0);
    tier_done(&t);
}

static void without_a_tier_and_with_unknown_ids_nothing_breaks(void **state)
{
    (void)state;
    struct tier t;
    int32_t ids[64];
    struct cache_removed gone = {.n_blocks = 7};
    uint8_t none[1] = {0};
    tier_init(&t, 16);
    cache_disk_close(t.cache, 0);
    tier_ids(ids, 64, 0);
    tier_turn(&t, "a", 1, ids, 64);
    cache_remove(t.cache, none, 0, &gone);
    assert_int_equal(gone.n_blocks, 0);
    tier_ids(ids + 32, 32, 700);
    assert_int_equal(remove_ids(&t, ids, 64, 0).n_blocks, 0); /* its first is still hung from */
    tier_done(&t);
}

int main(void)
{
    log_init(LOG_LEVEL_ERROR);
    thread_set_role(THREAD_WORKER);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_lease_names_its_blocks_and_its_tail),
        cmocka_unit_test(what_another_hangs_from_stays),
        cmocka_unit_test(what_a_turn_leases_stays_until_it_ends),
        cmocka_unit_test(files_go_too_also_those_of_the_disk_alone),
        cmocka_unit_test(a_block_on_its_way_to_the_disk_goes_after_it),
        cmocka_unit_test(without_a_tier_and_with_unknown_ids_nothing_breaks),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
