/* Proof and quarantine: what a probe compares, and who still finds a block that was not right. */
#include "tests/cache/tier.h"

#include <string.h>

#include "base/log.h"

#define N_IDS 200 /* six whole blocks and a tail */

static const uint64_t other_salt = 12345; /* another model's bytes */

static struct cache_piece piece_of(const int32_t *ids, int n_ids, int n_block)
{
    const int left = n_ids - n_block * KV_BLOCK;
    return (struct cache_piece){.n_block = n_block,
                                .count = left < KV_BLOCK ? left : KV_BLOCK,
                                .ids = ids + n_block * KV_BLOCK,
                                .has_file = true};
}

/* Computes block n of ids[0, n_ids), in the lease, again. */
static struct cache_verdicts prove(struct tier *t, struct cache_lease *l, const int32_t *ids,
                                   int n_ids, int n, uint64_t salt)
{
    const struct cache_piece piece = piece_of(ids, n_ids, n);
    struct cache_proof *p = NULL;
    struct cache_verdicts ret;
    struct err e;
    assert_int_equal(cache_proof_open(l, &piece, &p, &e), 0);
    assert_int_equal(cache_proof_seq(p)->n_tokens, n * KV_BLOCK);
    fake_compute(cache_proof_seq(p), salt, ids, piece.count);
    while (cache_proof_is_reading(p)) {
        tier_mail(t);
    }
    cache_proof_close(p, &ret);
    return ret;
}

static void quarantine(struct cache_lease *l, const int32_t *ids, int n_block, size_t n_expected)
{
    const struct cache_piece piece = piece_of(ids, N_IDS, n_block);
    assert_int_equal(cache_quarantine(l, &piece), n_expected);
}

static void a_proof_tells_right_bytes_from_wrong_ones(void **state)
{
    (void)state;
    struct tier t;
    int32_t ids[N_IDS];
    tier_init(&t, 64);
    tier_ids(ids, N_IDS, 0);
    tier_turn(&t, "a", 1, ids, N_IDS);
    struct cache_lease *l = tier_begin(&t, "a", 1, ids, N_IDS - 8);
    assert_int_equal(cache_lease_n_blocks(l), 5);
    for (int n = 0; n < 5; n++) {
        assert_int_equal(prove(&t, l, ids, N_IDS, n, fake_salt("a")).ram, CACHE_SAME);
        assert_int_equal(prove(&t, l, ids, N_IDS, n, other_salt).ram, CACHE_DIFFERENT);
    }
    cache_lease_close(l, NULL, false);
    fake_check(t.cache);
    tier_done(&t);
}

static void a_proof_can_be_given_up(void **state)
{
    (void)state;
    struct tier t;
    struct cache_proof *p = NULL;
    struct err e;
    int32_t ids[N_IDS];
    tier_init(&t, 64);
    tier_ids(ids, N_IDS, 0);
    tier_turn(&t, "a", 1, ids, N_IDS);
    tier_settle(&t);
    struct cache_lease *l = tier_begin(&t, "a", 1, ids, N_IDS);
    const struct cache_piece piece = piece_of(ids, N_IDS, 1);
    assert_int_equal(cache_proof_open(l, &piece, &p, &e), 0);
    assert_true(cache_proof_is_reading(p));
    cache_proof_close(p, NULL); /* its pass was canceled, its file is on the way */
    cache_proof_close(NULL, NULL);
    cache_lease_close(l, NULL, false);
    tier_settle(&t);
    fake_check(t.cache);
    tier_done(&t);
}

static void quarantine_takes_all_that_follows_and_its_files(void **state)
{
    (void)state;
    struct tier t;
    static struct tier_files files;
    const struct cache_root root = fake_root("a");
    int32_t ids[N_IDS], branch[N_IDS];
    tier_init(&t, 64);
    tier_ids(ids, N_IDS, 0);
    tier_ids(branch, N_IDS, 0);
    branch[130] = 7777; /* parts in the fifth block */
    tier_turn(&t, "a", 1, ids, N_IDS);
    tier_turn(&t, "a", 2, branch, N_IDS);
    tier_settle(&t);
    struct cache_lease *l = tier_begin(&t, "a", 1, ids, N_IDS);
    quarantine(l, ids, 2, 2 + 2 + 2 + 2); /* and two tails */
    assert_int_equal(cache_peek(t.cache, &root, ids, N_IDS), 64);
    fake_check(t.cache);
    cache_lease_close(l, NULL, false);
    fake_check(t.cache);
    assert_int_equal(fake_in_tree(t.cache), 2);
    tier_sync(&t);
    tier_files(&t, &files);
    assert_int_equal(files.n, 2 + 1); /* tier_sync's own */
    assert_int_equal(tier_turn(&t, "a", 1, ids, N_IDS).n_tokens, 64); /* computed anew */
    tier_settle(&t);
    tier_restart(&t);
    assert_int_equal(tier_turn(&t, "a", 1, ids, N_IDS).n_disk, 192);
    tier_done(&t);
}

static void a_running_turn_keeps_its_blocks_and_spreads_nothing(void **state)
{
    (void)state;
    struct tier t;
    struct err e;
    const struct cache_root root = fake_root("a");
    int32_t ids[N_IDS];
    tier_init(&t, 64);
    tier_ids(ids, N_IDS, 0);
    tier_turn(&t, "a", 1, ids, 100);
    struct cache_lease *running = NULL, *sound = NULL, *l = NULL;
    assert_int_equal(fake_turn(t.cache, "a", 1, ids, 130, &running), 100);
    l = tier_begin(&t, "a", 1, ids, 100);
    quarantine(l, ids, 1, 3);
    cache_lease_close(l, NULL, false);
    fake_check(t.cache);
    fake_verify(cache_lease_seq(running), fake_salt("a"), ids);
    /* The one goes on, and publishes what nobody finds; another computes the same, which stays its
     * own while the bad one is held. */
    assert_int_equal(cache_reserve(running, 70, &e), 0);
    fake_compute(cache_lease_seq(running), fake_salt("a"), ids, 70);
    assert_int_equal(cache_publish(running, ids, 0, &e), 0);
    assert_int_equal(cache_peek(t.cache, &root, ids, N_IDS), 32);
    assert_int_equal(fake_turn(t.cache, "a", 2, ids, 150, &sound), 32);
    fake_check(t.cache);
    assert_int_equal(cache_peek(t.cache, &root, ids, N_IDS), 32);
    cache_lease_close(running, ids, true);
    fake_check(t.cache);
    cache_lease_close(sound, ids, true);
    fake_check(t.cache);
    assert_int_equal(cache_peek(t.cache, &root, ids, N_IDS), 150);
    tier_sync(&t);
    tier_done(&t);
}

static void restorable_counts_what_the_disk_has_behind_the_path(void **state)
{
    (void)state;
    struct tier t;
    struct err e;
    const struct cache_root root = fake_root("a");
    struct cache_lease *l = NULL;
    int32_t ids[N_IDS];
    tier_init(&t, 64);
    tier_ids(ids, N_IDS, 0);
    tier_turn(&t, "a", 1, ids, N_IDS);
    tier_settle(&t);
    tier_restart(&t);
    assert_int_equal(cache_lease_open(t.cache, &root, 1, &l, &e), 0);
    assert_int_equal(cache_restorable(l, ids, N_IDS), 192);
    assert_int_equal(cache_restorable(l, ids, 95), 64);
    assert_int_equal(cache_restorable(l, ids + 1, N_IDS - 1), 0);
    cache_lease_close(l, NULL, false);
    tier_done(&t);
}

int main(void)
{
    log_init(LOG_LEVEL_ERROR);
    thread_set_role(THREAD_WORKER);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_proof_tells_right_bytes_from_wrong_ones),
        cmocka_unit_test(a_proof_can_be_given_up),
        cmocka_unit_test(quarantine_takes_all_that_follows_and_its_files),
        cmocka_unit_test(a_running_turn_keeps_its_blocks_and_spreads_nothing),
        cmocka_unit_test(restorable_counts_what_the_disk_has_behind_the_path),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
