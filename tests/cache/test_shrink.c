/* What the cache gives when the machine is short of memory, or the history of disk: in which order,
 * how far, and that it doesn't take it back at once. */
#include "tests/cache/tier.h"

#include <sys/stat.h>

#include "base/log.h"

#define N_IDS 160 /* five blocks */

static struct tier_files files;

static int peek(const struct tier *t, const int32_t *ids, int n)
{
    const struct cache_root root = fake_root("a");
    return cache_peek(t->cache, &root, ids, n);
}

/* A turn of whole blocks, without a tail. */
static void read_blocks(struct tier *t, int32_t *ids, int n_blocks, int first)
{
    tier_ids(ids, n_blocks * KV_BLOCK, first);
    tier_turn(t, "a", 1, ids, n_blocks * KV_BLOCK);
}

/* Replies to writes stay in the mailbox: as if the disk were slow. */
static void what_still_waits_for_the_disk_goes_last(void **state)
{
    (void)state;
    struct tier t;
    int32_t old[N_IDS], dear[N_IDS], fresh[20][KV_BLOCK];
    tier_init(&t, 40);
    read_blocks(&t, old, 5, 0);
    read_blocks(&t, dear, 5, 1000);
    for (int i = 0; i < 9; i++) { /* worth more than all that comes */
        tier_turn(&t, "a", 1, dear, N_IDS);
    }
    tier_settle(&t);
    for (int i = 0; i < 20; i++) {
        read_blocks(&t, fresh[i], 1, 2000 + 100 * i);
    }
    const struct cache_stats before = tier_stats(&t);
    assert_int_equal(before.n_disk_waiting, 20); /* more than the first places of the heap */
    struct cache_given given;
    cache_shrink(t.cache, 3, &given); /* ten of thirty: all that the disk has, and not one more */
    assert_int_equal(given.n_blocks, 10);
    assert_int_equal(peek(&t, old, N_IDS), 0);
    assert_int_equal(peek(&t, dear, N_IDS), 0);
    for (int i = 0; i < 20; i++) {
        assert_int_equal(peek(&t, fresh[i], KV_BLOCK), KV_BLOCK);
    }
    fake_check(t.cache);
    cache_shrink(t.cache, 1, &given); /* and when there is nothing else, they go */
    assert_int_equal(given.n_blocks, 20);
    assert_int_equal(tier_stats(&t).n_blocks, 0);
    tier_settle(&t);
    tier_restart(&t);
    const struct cache_found found = tier_turn(&t, "a", 1, dear, N_IDS);
    assert_int_equal(found.n_disk, N_IDS - 1 - (N_IDS - 1) % KV_BLOCK);
    tier_done(&t);
}

static void files_stay_and_are_found_again(void **state)
{
    (void)state;
    struct tier t;
    int32_t ids[N_IDS + 10];
    struct cache_given given;
    tier_init(&t, 20);
    read_blocks(&t, ids, 5, 0);
    tier_settle(&t);
    cache_shrink(t.cache, 1, &given);
    assert_int_equal(given.n_blocks, 5);
    assert_int_equal(tier_stats(&t).bytes_cached, 0);
    assert_int_equal(tier_stats(&t).bytes_resident, 0);
    assert_false(cache_has_to_give(t.cache));
    tier_files(&t, &files);
    assert_int_equal(files.n, 5);
    tier_ids(ids, N_IDS + 10, 0);
    const struct cache_found found = tier_turn(&t, "a", 1, ids, N_IDS + 10);
    assert_int_equal(found.n_disk, N_IDS);
    tier_done(&t);
}

/* As much as a turn's window, and not beyond what the disk has; nothing while memory is short. */
static void memory_is_made_ready_for_what_the_disk_has(void **state)
{
    (void)state;
    struct tier t;
    int32_t ids[N_IDS];
    struct cache_given given;
    tier_init(&t, 20);
    cache_set_turn_blocks(t.cache, 4);
    kv_pool_trim(t.pool);
    assert_false(cache_prepare(t.cache)); /* it has nothing */
    assert_int_equal(tier_stats(&t).bytes_resident, 0);
    read_blocks(&t, ids, 2, 0);
    tier_settle(&t);
    const size_t block = tier_stats(&t).block_bytes;
    for (int n_blocks = 2; n_blocks <= 5; n_blocks += 3) {
        read_blocks(&t, ids, n_blocks, 0);
        tier_settle(&t);
        tier_restart(&t);
        cache_set_turn_blocks(t.cache, 4);
        kv_pool_trim(t.pool);
        tier_mail(&t); /* its names are known: that wakes the worker */
        while (cache_prepare(t.cache)) {
        }
        assert_int_equal(tier_stats(&t).bytes_resident, (n_blocks < 4 ? 2 : 4) * block);
    }
    cache_shrink(t.cache, 1, &given);
    assert_int_equal(given.bytes, 4 * block);
    assert_false(cache_prepare(t.cache));
    assert_int_equal(tier_stats(&t).bytes_resident, 0);
    while (!cache_regrow(t.cache, 8)) {
    }
    assert_true(cache_prepare(t.cache));
    tier_done(&t);
}

/* What RAM has is read from no disk. */
static void no_memory_is_made_ready_for_what_ram_has(void **state)
{
    (void)state;
    struct tier t;
    int32_t ids[N_IDS];
    tier_init(&t, 20);
    cache_set_turn_blocks(t.cache, 10);
    read_blocks(&t, ids, 5, 0);
    tier_settle(&t);
    const size_t block = tier_stats(&t).block_bytes;
    assert_int_equal(tier_stats(&t).disk_blocks, 5);
    kv_pool_trim(t.pool);
    assert_false(cache_prepare(t.cache));
    assert_int_equal(tier_stats(&t).bytes_resident, 5 * block);
    tier_done(&t);
}

static void what_was_given_up_is_not_taken_back_at_once(void **state)
{
    (void)state;
    struct tier t;
    int32_t ids[N_IDS];
    struct cache_given given;
    tier_init(&t, 40);
    const size_t block = tier_stats(&t).block_bytes;
    for (int i = 0; i < 8; i++) {
        read_blocks(&t, ids, 5, 1000 * i);
        tier_settle(&t);
    }
    assert_int_equal(tier_stats(&t).bytes_cached, 40 * block);
    assert_int_equal(tier_stats(&t).bytes_allowed, 40 * block);
    cache_shrink(t.cache, 4, &given);
    assert_int_equal(given.n_blocks, 10);
    assert_int_equal(tier_stats(&t).bytes_allowed, 30 * block);
    for (int i = 0; i < 8; i++) { /* nothing but new conversations: room is made of old ones */
        read_blocks(&t, ids, 5, 50000 + 1000 * i);
        tier_settle(&t);
        assert_int_equal(tier_stats(&t).bytes_used, 30 * block);
        assert_int_equal(tier_stats(&t).bytes_resident, 30 * block);
        assert_int_equal(peek(&t, ids, N_IDS), N_IDS);
    }
    int n_steps = 1;
    for (; !cache_regrow(t.cache, 8); n_steps++) {
        const size_t allowed = tier_stats(&t).bytes_allowed;
        assert_true(allowed > 30 * block && allowed < 40 * block);
    }
    assert_int_equal(n_steps, 2); /* 40 / 8 + 1 blocks each */
    assert_int_equal(tier_stats(&t).bytes_allowed, 40 * block);
    assert_false(cache_regrow(t.cache, 8)); /* there is nothing to end */
    for (int i = 0; i < 2; i++) {
        read_blocks(&t, ids, 5, 90000 + 1000 * i);
        tier_settle(&t);
    }
    assert_int_equal(tier_stats(&t).bytes_used, 40 * block);
    tier_done(&t);
}

static void a_running_turn_gets_what_the_budget_has(void **state)
{
    (void)state;
    struct tier t;
    int32_t ids[20 * KV_BLOCK];
    struct cache_given given;
    struct err e;
    tier_init(&t, 20);
    read_blocks(&t, ids, 5, 0);
    tier_settle(&t);
    cache_shrink(t.cache, 1, &given);
    assert_int_equal(tier_stats(&t).bytes_allowed, 0);
    tier_ids(ids, 20 * KV_BLOCK, 7000);
    struct cache_lease *l = tier_begin(&t, "a", 1, ids, 20 * KV_BLOCK);
    assert_int_equal(cache_lease_seq(l)->n_blocks, 20);
    assert_int_equal(tier_stats(&t).bytes_cached, 0); /* all of it is live */
    assert_int_equal(tier_stats(&t).bytes_used, tier_stats(&t).bytes_max);
    cache_shrink(t.cache, 1, &given); /* and stays what it has */
    assert_int_equal(given.n_blocks, 0);
    fake_compute(cache_lease_seq(l), fake_salt("a"), ids, 20 * KV_BLOCK);
    assert_int_equal(cache_publish(l, ids, 0, &e), 0);
    fake_verify(cache_lease_seq(l), fake_salt("a"), ids);
    cache_lease_close(l, ids, true);
    assert_int_equal(tier_stats(&t).bytes_cached, tier_stats(&t).bytes_max);
    fake_check(t.cache);
    tier_settle(&t);
    tier_done(&t);
}

/* ---- the disk ---- */

struct freed {
    int n_calls;
    uint64_t n_bytes;
};

static void on_freed(void *ctx, uint64_t n_bytes)
{
    struct freed *f = ctx;
    f->n_calls++;
    f->n_bytes = n_bytes;
}

static void await(struct tier *t, const struct freed *f)
{
    while (!f->n_calls) {
        tier_mail(t);
    }
}

static void the_disk_gives_what_rested_longest_and_rests(void **state)
{
    (void)state;
    struct tier t;
    struct err e;
    struct freed f = {0};
    int32_t ids[N_IDS];
    char path[200];
    struct stat st;
    tier_init(&t, 64);
    for (int i = 0; i < 4; i++) {
        read_blocks(&t, ids, 5, 1000 * i);
        tier_settle(&t);
    }
    tier_files(&t, &files);
    const uint64_t before = files.bytes, each = files.bytes / files.n;
    assert_int_equal(cache_free_disk(t.cache, 3 * each, on_freed, &f, &e), 0);
    await(&t, &f);
    assert_int_equal(f.n_bytes, 3 * each);
    tier_files(&t, &files);
    assert_int_equal(files.bytes, before - 3 * each);
    assert_int_equal(tier_stats(&t).disk_bytes, files.bytes);
    tier_ids(ids, N_IDS, 0);
    tier_path(&t, "a", ids, N_IDS, path, sizeof path);
    assert_int_equal(stat(path, &st), -1); /* of the oldest, from its end */
    tier_path(&t, "a", ids, KV_BLOCK, path, sizeof path);
    assert_int_equal(stat(path, &st), 0);
    assert_true(tier_stats(&t).is_disk_paused);
    const uint64_t n_written = tier_stats(&t).n_disk_written;
    read_blocks(&t, ids, 5, 77000); /* what comes now would take the room again */
    tier_settle(&t);
    assert_int_equal(tier_stats(&t).n_disk_written, n_written);
    f = (struct freed){0};
    assert_int_equal(cache_free_disk(t.cache, UINT64_MAX, on_freed, &f, &e), 0);
    await(&t, &f);
    assert_int_equal(f.n_bytes, before - 3 * each); /* all there is */
    tier_files(&t, &files);
    assert_int_equal(files.n, 0);
    tier_done(&t);
}

static void the_answer_comes_when_the_tier_ends_or_is_not_there(void **state)
{
    (void)state;
    struct tier t;
    struct err e;
    struct freed f = {0}, g = {0};
    int32_t ids[N_IDS];
    tier_init(&t, 64);
    read_blocks(&t, ids, 5, 0);
    tier_settle(&t);
    assert_int_equal(cache_free_disk(t.cache, 1, on_freed, &f, &e), 0);
    mailbox_close(&t.box);
    for (struct mail *m = mailbox_take(&t.box), *next; m; m = next) {
        next = m->next;
        cache_take_mail(t.cache, m);
    }
    cache_disk_close(t.cache, 0);
    assert_int_equal(f.n_calls, 1);
    assert_true(f.n_bytes > 0);
    assert_int_equal(cache_free_disk(t.cache, 1, on_freed, &g, &e), 0);
    assert_int_equal(g.n_calls, 1);
    assert_int_equal(g.n_bytes, 0);
    tier_done(&t);
}

int main(void)
{
    log_init(LOG_LEVEL_ERROR);
    thread_set_role(THREAD_WORKER);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_still_waits_for_the_disk_goes_last),
        cmocka_unit_test(files_stay_and_are_found_again),
        cmocka_unit_test(memory_is_made_ready_for_what_the_disk_has),
        cmocka_unit_test(no_memory_is_made_ready_for_what_ram_has),
        cmocka_unit_test(what_was_given_up_is_not_taken_back_at_once),
        cmocka_unit_test(a_running_turn_gets_what_the_budget_has),
        cmocka_unit_test(the_disk_gives_what_rested_longest_and_rests),
        cmocka_unit_test(the_answer_comes_when_the_tier_ends_or_is_not_there),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
