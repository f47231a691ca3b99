/*
 * Several caches on one disk tier, as several models in one daemon are: who comes and who leaves,
 * in which order, with a kill in between; budgets that change; orders that are about all of them.
 * Owner "a" stands for one model's blocks, "b" for another's.
 */
#include "tests/cache/tier.h"

#include <signal.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/log.h"
#include "cache/record.h"

#define N_IDS 160 /* five blocks */
#define N_BLOCKS 5
#define FOUND (N_IDS - KV_BLOCK) /* the last position is always computed, and so is its block */

static struct tier_files files;

static size_t chain(const char *owner, const int32_t *ids, uint8_t *ret)
{
    const struct cache_root root = fake_root(owner);
    return cache_chain(&root, ids, N_IDS, ret, N_BLOCKS);
}

static int n_files(const struct tier *t, const char *owner, const int32_t *ids)
{
    int n = 0;
    for (int i = KV_BLOCK; i <= N_IDS; i += KV_BLOCK) {
        char path[256];
        struct stat st;
        tier_path(t, owner, ids, i, path, sizeof path);
        n += lstat(path, &st) == 0;
    }
    return n;
}

/* All that was asked of the disk has been done. */
static void on_sync(void *ctx, bool is_done)
{
    assert_true(is_done);
    *(bool *)ctx = true;
}

static void sync_all(struct tier *t)
{
    struct err e;
    bool is_told = false;
    assert_int_equal(cache_sync(t->cache, on_sync, &is_told, &e), 0);
    while (!is_told) {
        tier_mail(t);
    }
}

/* ---- coming and leaving ---- */

static void each_writes_and_finds_its_own(void **state)
{
    (void)state;
    struct tier one, two;
    int32_t ids[N_IDS];
    tier_init(&one, 40);
    tier_share(&two, &one, 40);
    tier_ids(ids, N_IDS, 0);
    tier_turn(&one, "a", 1, ids, N_IDS);
    assert_int_equal(tier_turn(&two, "b", 1, ids, N_IDS).n_tokens, 0); /* the same ids, others' */
    tier_settle(&one);
    tier_settle(&two);
    assert_int_equal(n_files(&one, "a", ids), N_BLOCKS);
    assert_int_equal(n_files(&one, "b", ids), N_BLOCKS);
    tier_leave(&two);
    tier_close(&one, 0);
    tier_open(&one);
    tier_share(&two, &one, 40);
    cache_wait_disk(two.cache);
    assert_int_equal(tier_turn(&two, "b", 1, ids, N_IDS).n_disk, FOUND);
    assert_int_equal(tier_turn(&one, "a", 1, ids, N_IDS).n_disk, FOUND);
    tier_leave(&two);
    tier_done(&one);
}

static void who_left_finds_its_files_when_it_comes_back(void **state)
{
    (void)state;
    struct tier one, two;
    int32_t ids[N_IDS];
    tier_init(&one, 40);
    tier_ids(ids, N_IDS, 0);
    for (int i = 0; i < 3; i++) {
        tier_share(&two, &one, 40);
        cache_wait_disk(two.cache);
        assert_int_equal(tier_turn(&two, "b", 1, ids, N_IDS).n_disk, i ? FOUND : 0);
        cache_rest(two.cache);
        while (cache_is_busy(two.cache) || cache_has_waiting(two.cache)) {
            tier_mail(&two);
            cache_tend(two.cache);
        }
        tier_leave(&two);
        assert_int_equal(n_files(&one, "b", ids), N_BLOCKS);
        tier_turn(&one, "a", 1, ids, N_IDS); /* the tier goes on */
        tier_settle(&one);
    }
    assert_int_equal(n_files(&one, "a", ids), N_BLOCKS);
    tier_done(&one);
}

static void the_one_that_opened_the_tier_may_leave_first(void **state)
{
    (void)state;
    struct tier one, two;
    int32_t ids[N_IDS];
    tier_init(&one, 40);
    tier_share(&two, &one, 40);
    tier_ids(ids, N_IDS, 0);
    cache_disk_leave(one.cache);
    assert_false(cache_has_waiting(one.cache));
    tier_turn(&one, "a", 1, ids, N_IDS); /* in RAM alone, from here on */
    tier_turn(&two, "b", 1, ids, N_IDS);
    tier_settle(&two);
    assert_int_equal(n_files(&one, "a", ids), 0);
    assert_int_equal(n_files(&one, "b", ids), N_BLOCKS);
    cache_disk_close(two.cache, 3000);
    cache_free(two.cache);
    kv_pool_free(two.pool);
    tier_done(&one);
}

/* The stop of a daemon: no mail any more, all rest, then close one after the other. */
static void what_waits_is_written_when_all_close(void **state)
{
    (void)state;
    struct tier one, two;
    int32_t ids[N_IDS + 7];
    tier_init(&one, 40);
    tier_share(&two, &one, 40);
    tier_ids(ids, N_IDS + 7, 0);
    tier_turn(&one, "a", 1, ids, N_IDS + 7); /* with tails */
    tier_turn(&two, "b", 1, ids, N_IDS + 7);
    mailbox_close(&one.box);
    for (struct mail *m = mailbox_take(&one.box), *next; m; m = next) {
        next = m->next;
        cache_take_mail(one.cache, m);
    }
    cache_rest(one.cache);
    cache_rest(two.cache);
    cache_disk_close(one.cache, 3000);
    cache_disk_close(two.cache, 3000);
    tier_files(&one, &files);
    assert_int_equal(files.n, 2 * (N_BLOCKS + 1));
    cache_free(two.cache);
    kv_pool_free(two.pool);
    tier_done(&one);
}

/* ---- a kill ---- */

/* Writes for both, and is killed while much of it is on its way. Never returns. */
static void write_and_die(struct tier *one, int first, int n_mails)
{
    struct tier two;
    int32_t ids[N_IDS];
    tier_open(one);
    tier_share(&two, one, 200);
    cache_wait_disk(two.cache);
    for (int i = 0; i < 8; i++) {
        tier_ids(ids, N_IDS, first + 1000 * i);
        tier_turn(one, "a", 1, ids, N_IDS);
        tier_turn(&two, "b", 1, ids, N_IDS);
    }
    cache_rest(one->cache);
    cache_rest(two.cache);
    for (int i = 0; i < n_mails && cache_is_busy(one->cache); i++) {
        tier_mail(one); /* several together, where this thread comes late */
    }
    kill(getpid(), SIGKILL);
}

static void a_kill_while_both_write_leaves_nothing_wrong(void **state)
{
    (void)state;
    struct tier one, two;
    int32_t ids[N_IDS];
    tier_init(&one, 400);
    for (int round = 0; round < 6; round++) {
        tier_close(&one, 0);
        const pid_t child = fork();
        assert_true(child >= 0);
        if (child == 0) {
            write_and_die(&one, 100000 * round, round * 3);
        }
        int status;
        assert_int_equal(waitpid(child, &status, 0), child);
        assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
        tier_open(&one);
        tier_share(&two, &one, 200);
        cache_wait_disk(two.cache);
        for (int i = 0; i < 8; i++) { /* whatever is found, every position is checked */
            tier_ids(ids, N_IDS, 100000 * round + 1000 * i);
            tier_turn(&one, "a", 1, ids, N_IDS);
            tier_turn(&two, "b", 1, ids, N_IDS);
        }
        assert_int_equal(tier_stats(&one).n_disk_bad, 0); /* a torn file has its first name still */
        tier_settle(&one);
        tier_settle(&two);
        tier_leave(&two);
    }
    tier_done(&one);
}

/* ---- budgets ---- */

static void a_smaller_limit_evicts_what_nobody_leases(void **state)
{
    (void)state;
    struct tier t;
    int32_t ids[N_IDS];
    tier_init(&t, 40);
    for (int i = 0; i < 6; i++) {
        tier_ids(ids, N_IDS, 1000 * i);
        tier_turn(&t, "a", 1, ids, N_IDS);
        tier_settle(&t);
    }
    assert_int_equal(tier_stats(&t).n_blocks, 30);
    assert_true(cache_set_limit(t.cache, 12));
    assert_int_equal(tier_stats(&t).n_blocks, 12);
    assert_int_equal(tier_stats(&t).bytes_max, 12 * tier_stats(&t).block_bytes);
    fake_check(t.cache);
    tier_files(&t, &files);
    assert_int_equal(files.n, 30); /* the disk keeps them */
    tier_ids(ids, N_IDS, 0);
    assert_int_equal(tier_turn(&t, "a", 1, ids, N_IDS).n_tokens, FOUND);
    assert_true(tier_stats(&t).n_blocks <= 12);
    assert_true(cache_set_limit(t.cache, 40)); /* and it may grow again */
    for (int i = 0; i < 6; i++) {
        tier_ids(ids, N_IDS, 1000 * i);
        tier_turn(&t, "a", 1, ids, N_IDS);
        tier_settle(&t);
    }
    assert_int_equal(tier_stats(&t).n_blocks, 30);
    tier_done(&t);
}

static void what_is_leased_is_waited_for(void **state)
{
    (void)state;
    struct tier t;
    int32_t ids[N_IDS];
    struct cache_lease *l = NULL;
    tier_init(&t, 40);
    cache_disk_close(t.cache, 0);
    tier_ids(ids, N_IDS, 0);
    fake_turn(t.cache, "a", 1, ids, N_IDS, &l);
    assert_false(cache_set_limit(t.cache, 3));
    assert_int_equal(tier_stats(&t).n_blocks, N_BLOCKS);
    fake_verify(cache_lease_seq(l), fake_salt("a"), ids);
    assert_false(cache_set_limit(t.cache, 3)); /* asking again changes nothing */
    cache_lease_close(l, NULL, false);
    assert_true(cache_set_limit(t.cache, 3));
    assert_true(tier_stats(&t).n_blocks <= 3);
    fake_check(t.cache);
    tier_done(&t);
}

static void a_limit_beyond_the_pool_s_own_is_the_pool_s(void **state)
{
    (void)state;
    struct tier t;
    tier_init(&t, 10);
    const uint64_t most = tier_stats(&t).bytes_max;
    assert_true(cache_set_limit(t.cache, 5));
    assert_true(tier_stats(&t).bytes_max < most);
    assert_true(cache_set_limit(t.cache, 10));
    assert_int_equal(tier_stats(&t).bytes_max, most);
    fake_check(t.cache);
    tier_done(&t);
}

/* ---- orders about all ---- */

/* hub: without blocks of its own, as the daemon's. */
struct three {
    struct tier one, two, hub;
    struct cache *all[3]; /* the hub first */
    int32_t ids[N_IDS];
    uint8_t a[N_BLOCKS * HASH_BYTES], b[N_BLOCKS * HASH_BYTES];
};

/* Both have their five blocks in RAM and on disk. */
static void three_init(struct three *k)
{
    tier_init(&k->one, 40);
    tier_share(&k->two, &k->one, 40);
    tier_share(&k->hub, &k->one, 1);
    k->all[0] = k->hub.cache;
    k->all[1] = k->one.cache;
    k->all[2] = k->two.cache;
    tier_ids(k->ids, N_IDS, 0);
    tier_turn(&k->one, "a", 1, k->ids, N_IDS);
    tier_turn(&k->two, "b", 1, k->ids, N_IDS);
    tier_settle(&k->one);
    tier_settle(&k->two);
    assert_int_equal(chain("a", k->ids, k->a), N_BLOCKS);
    assert_int_equal(chain("b", k->ids, k->b), N_BLOCKS);
}

static void three_done(struct three *k)
{
    if (k->two.cache) {
        tier_leave(&k->two);
    }
    tier_leave(&k->hub);
    tier_done(&k->one);
}

static void both_of(const struct three *k, uint8_t *ret)
{
    memcpy(ret, k->a, sizeof k->a);
    memcpy(ret + sizeof k->a, k->b, sizeof k->b);
}

static void a_count_is_of_all(void **state)
{
    (void)state;
    struct three k;
    struct cache_count count;
    uint8_t ids[2 * N_BLOCKS * HASH_BYTES];
    three_init(&k);
    const uint64_t block_bytes = tier_stats(&k.one).block_bytes;
    both_of(&k, ids);
    cache_count_all(k.all, 3, ids, 2 * N_BLOCKS, &count);
    assert_int_equal(count.n_present, 2 * N_BLOCKS);
    assert_int_equal(count.n_ram, 2 * N_BLOCKS);
    assert_int_equal(count.n_disk, 2 * N_BLOCKS);
    assert_int_equal(count.ram_bytes, 2 * N_BLOCKS * block_bytes);
    assert_true(count.disk_bytes >= 2 * N_BLOCKS * block_bytes);
    tier_leave(&k.two);
    cache_count_all(k.all, 2, ids, 2 * N_BLOCKS, &count); /* b's are on the disk alone */
    assert_int_equal(count.n_present, 2 * N_BLOCKS);
    assert_int_equal(count.n_ram, N_BLOCKS);
    assert_int_equal(count.n_disk, 2 * N_BLOCKS);
    three_done(&k);
}

static void a_removal_reaches_all_and_the_disk(void **state)
{
    (void)state;
    struct three k;
    struct cache_removed gone;
    uint8_t ids[2 * N_BLOCKS * HASH_BYTES];
    three_init(&k);
    both_of(&k, ids);
    cache_remove_all(k.all, 3, ids, 2 * N_BLOCKS, &gone);
    assert_int_equal(gone.n_blocks, 2 * N_BLOCKS);
    assert_int_equal(gone.n_failed, 0);
    assert_int_equal(gone.bytes, 2 * N_BLOCKS * tier_stats(&k.one).block_bytes);
    sync_all(&k.hub);
    tier_files(&k.one, &files);
    assert_int_equal(files.n, 0);
    assert_int_equal(fake_in_tree(k.one.cache) + fake_in_tree(k.two.cache), 0);
    three_done(&k);
}

static void a_removal_reaches_files_of_who_has_left(void **state)
{
    (void)state;
    struct three k;
    struct cache_removed gone;
    three_init(&k);
    tier_leave(&k.two);
    cache_remove_all(k.all, 2, k.b, N_BLOCKS, &gone);
    assert_int_equal(gone.n_blocks, N_BLOCKS);
    sync_all(&k.hub);
    assert_int_equal(n_files(&k.one, "b", k.ids), 0);
    assert_int_equal(n_files(&k.one, "a", k.ids), N_BLOCKS);
    three_done(&k);
}

static void what_any_of_them_has_pinned_stays(void **state)
{
    (void)state;
    struct three k;
    struct err e;
    uint8_t ids[2 * N_BLOCKS * HASH_BYTES];
    three_init(&k);
    assert_int_equal(cache_pin(k.two.cache, k.b, 2, &e), 0);
    assert_int_equal(cache_hold(k.hub.cache, k.a, 1, &e), 0); /* no ceiling, with one block */
    both_of(&k, ids);
    struct cache_unpinned of = {.ids = ids, .n = 2 * N_BLOCKS};
    cache_remove_unpinned_all(k.all, 3, &of);
    assert_int_equal(of.n_pinned, 3);
    assert_int_equal(of.gone.n_blocks, 2 * N_BLOCKS - 3);
    sync_all(&k.hub);
    assert_int_equal(n_files(&k.one, "a", k.ids), 1);
    assert_int_equal(n_files(&k.one, "b", k.ids), 2);
    fake_check(k.one.cache);
    fake_check(k.two.cache);
    three_done(&k);
}

/* ---- holding ---- */

/* Far more than the disk may have. */
static void flood(struct tier *t)
{
    int32_t ids[N_IDS];
    for (int i = 1; i < 12; i++) {
        tier_ids(ids, N_IDS, 100000 * i);
        tier_turn(t, "a", 9, ids, N_IDS);
        tier_settle(t);
    }
}

static void what_is_held_outlives_the_one_that_read_it(void **state)
{
    (void)state;
    struct three k;
    struct err e;
    const struct cache_root root = fake_root("b");
    three_init(&k);
    tier_leave(&k.two);
    tier_leave(&k.hub);
    tier_close(&k.one, 3000);
    k.one.bytes_max = 12 * (record_bytes(2048) + 4096);
    tier_open(&k.one);
    cache_wait_disk(k.one.cache);
    tier_share(&k.hub, &k.one, 1);
    assert_int_equal(cache_hold(k.hub.cache, k.b, 3, &e), 0);
    assert_int_equal(cache_hold(k.hub.cache, k.b, 3, &e), 0); /* twice is once */
    flood(&k.one);
    assert_int_equal(n_files(&k.one, "b", k.ids), 3);
    assert_int_equal(cache_drop(k.hub.cache, &root), 0);
    sync_all(&k.hub);
    assert_int_equal(n_files(&k.one, "b", k.ids), 3);
    tier_share(&k.two, &k.one, 40); /* it comes back, and finds them */
    assert_int_equal(tier_turn(&k.two, "b", 1, k.ids, N_IDS).n_disk, 3 * KV_BLOCK);
    tier_settle(&k.two);
    tier_leave(&k.two);
    cache_unpin(k.hub.cache, k.b, 3);
    flood(&k.one);
    assert_int_equal(n_files(&k.one, "b", k.ids), 0);
    three_done(&k);
}

static void a_drop_by_the_hub_takes_what_one_that_has_left_wrote(void **state)
{
    (void)state;
    struct three k;
    struct cache_usage u;
    const struct cache_root root = fake_root("b");
    three_init(&k);
    tier_leave(&k.two);
    cache_usage(k.hub.cache, &root, &u);
    assert_int_equal(u.n_disk, N_BLOCKS);
    assert_int_equal(u.n_ram, 0);
    assert_int_equal(cache_drop(k.hub.cache, &root), N_BLOCKS);
    sync_all(&k.hub);
    assert_int_equal(n_files(&k.one, "b", k.ids), 0);
    assert_int_equal(n_files(&k.one, "a", k.ids), N_BLOCKS);
    cache_usage(k.hub.cache, &root, &u);
    assert_int_equal(u.n_disk, 0);
    three_done(&k);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_writes_and_finds_its_own),
        cmocka_unit_test(who_left_finds_its_files_when_it_comes_back),
        cmocka_unit_test(the_one_that_opened_the_tier_may_leave_first),
        cmocka_unit_test(what_waits_is_written_when_all_close),
        cmocka_unit_test(a_kill_while_both_write_leaves_nothing_wrong),
        cmocka_unit_test(a_smaller_limit_evicts_what_nobody_leases),
        cmocka_unit_test(what_is_leased_is_waited_for),
        cmocka_unit_test(a_limit_beyond_the_pool_s_own_is_the_pool_s),
        cmocka_unit_test(a_count_is_of_all),
        cmocka_unit_test(a_removal_reaches_all_and_the_disk),
        cmocka_unit_test(a_removal_reaches_files_of_who_has_left),
        cmocka_unit_test(what_any_of_them_has_pinned_stays),
        cmocka_unit_test(what_is_held_outlives_the_one_that_read_it),
        cmocka_unit_test(a_drop_by_the_hub_takes_what_one_that_has_left_wrote),
    };
    log_init(LOG_LEVEL_ERROR);
    thread_set_role(THREAD_WORKER);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
