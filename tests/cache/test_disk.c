/* What was read is found again after a restart, by whom it belongs to, within its budget. */
#include "tests/cache/tier.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/log.h"
#include "base/sys.h"

#define FILE_BYTES 8192u /* that a block of the fake pool takes: a head and 2 KiB, in pages */

static struct tier_files files;

static bool exists(const char *path)
{
    struct stat st;
    return lstat(path, &st) == 0;
}

static void all_whole_blocks_are_there_after_a_kill(void **state)
{
    (void)state;
    struct tier t;
    int32_t ids[400];
    tier_init(&t, 64);
    tier_ids(ids, 400, 0);
    assert_int_equal(tier_turn(&t, "a", 1, ids, 330).n_tokens, 0);
    tier_settle(&t);
    tier_restart(&t);
    const struct cache_found found = tier_turn(&t, "a", 1, ids, 400);
    assert_int_equal(found.n_disk, 320);
    assert_int_equal(found.n_ram, 0);
    assert_int_equal(found.n_shared, 0);
    tier_settle(&t);
    tier_restart(&t); /* nothing was written twice, and now there is more */
    assert_int_equal(tier_turn(&t, "a", 2, ids, 400).n_disk, 384);
    assert_int_equal(tier_stats(&t).n_disk_read, 12);
    tier_done(&t);
}

static void blocks_tell_who_computed_them_first(void **state)
{
    (void)state;
    struct tier t;
    int32_t ids[128];
    tier_init(&t, 64);
    tier_ids(ids, 128, 0);
    tier_turn(&t, "a", 1, ids, 100);
    tier_settle(&t);
    tier_restart(&t);
    assert_int_equal(tier_turn(&t, "a", 2, ids, 128).n_shared, 96);
    tier_done(&t);
}

static void another_owner_finds_nothing(void **state)
{
    (void)state; /* B06 */
    struct tier t;
    int32_t ids[128];
    tier_init(&t, 64);
    tier_ids(ids, 128, 0);
    tier_turn(&t, "a", 1, ids, 128);
    tier_settle(&t);
    tier_restart(&t);
    assert_int_equal(tier_turn(&t, "b", 1, ids, 128).n_tokens, 0);
    assert_int_equal(tier_turn(&t, "a", 1, ids, 128).n_disk, 96);
    tier_done(&t);
}

static void a_stop_keeps_the_tail(void **state)
{
    (void)state;
    struct tier t;
    int32_t ids[200];
    char tail[256], longer[256];
    tier_init(&t, 64);
    tier_ids(ids, 200, 0);
    tier_turn(&t, "a", 1, ids, 110);
    tier_path(&t, "a", ids, 110, tail, sizeof tail);
    tier_path(&t, "a", ids, 120, longer, sizeof longer);
    tier_settle(&t);
    assert_false(exists(tail)); /* it hasn't rested */
    tier_close(&t, 3000);
    assert_true(exists(tail));
    tier_open(&t);
    assert_int_equal(tier_turn(&t, "a", 1, ids, 120).n_disk, 110);
    tier_sync(&t);
    assert_false(exists(tail)); /* something longer was kept */
    tier_close(&t, 3000);
    assert_true(exists(longer));
    tier_open(&t);
    assert_int_equal(tier_turn(&t, "a", 1, ids, 200).n_disk, 120);
    tier_sync(&t);
    assert_false(exists(longer)); /* a whole block took its place */
    tier_done(&t);
}

static void a_rested_tail_is_written(void **state)
{
    (void)state;
    struct tier t;
    int32_t ids[200];
    char tail[256];
    tier_init(&t, 64);
    tier_close(&t, 0);
    t.tail_idle_ms = 30;
    tier_open(&t);
    tier_ids(ids, 200, 0);
    tier_turn(&t, "a", 1, ids, 110);
    tier_settle(&t);
    tier_path(&t, "a", ids, 110, tail, sizeof tail);
    while (!exists(tail)) {
        const int ms = cache_due_ms(t.cache);
        assert_true(ms >= 1 && ms <= 31);
        mailbox_wait(&t.box, ms);
        tier_settle(&t);
    }
    assert_int_equal(cache_due_ms(t.cache), -1);
    /* Replaced in RAM: its file goes too. */
    tier_turn(&t, "a", 1, ids, 200);
    tier_sync(&t);
    assert_false(exists(tail));
    tier_done(&t);
}

static void what_ram_forgets_the_disk_knows(void **state)
{
    (void)state;
    struct tier t;
    int32_t ids[200];
    tier_init(&t, 10);
    for (int round = 0; round < 3; round++) {
        for (int i = 0; i < 8; i++) {
            tier_ids(ids, 200, 1000 * i);
            const struct cache_found found = tier_turn(&t, "a", 1, ids, 200);
            assert_int_equal(found.n_tokens, round ? 192 : 0);
            tier_settle(&t);
        }
    }
    assert_int_equal(tier_stats(&t).n_disk_written, 8 * 6); /* each once */
    tier_done(&t);
}

static void two_turns_may_restore_the_same(void **state)
{
    (void)state;
    struct tier t;
    int32_t ids[300];
    tier_init(&t, 64);
    tier_ids(ids, 300, 0);
    tier_turn(&t, "a", 1, ids, 300);
    tier_settle(&t);
    tier_restart(&t);
    struct cache_lease *l[2];
    for (int i = 0; i < 2; i++) {
        l[i] = tier_begin(&t, "a", (uint64_t)i, ids, 300);
        assert_true(cache_is_restoring(l[i]));
    }
    while (cache_is_restoring(l[0]) || cache_is_restoring(l[1])) {
        tier_mail(&t);
    }
    for (int i = 0; i < 2; i++) {
        assert_int_equal(cache_lease_seq(l[i])->n_tokens, 288);
        fake_verify(cache_lease_seq(l[i]), fake_salt("a"), ids);
        cache_lease_close(l[i], ids, true);
    }
    assert_int_equal(tier_stats(&t).n_blocks, 9);
    tier_done(&t);
}

static void a_turn_may_end_while_it_restores(void **state)
{
    (void)state;
    struct tier t;
    int32_t ids[900];
    tier_init(&t, 64);
    tier_ids(ids, 900, 0);
    tier_turn(&t, "a", 1, ids, 900);
    tier_settle(&t);
    for (int i = 0; i < 20; i++) {
        tier_restart(&t);
        struct cache_lease *l = tier_begin(&t, "a", 1, ids, 900);
        for (int k = 0; k < i % 5; k++) {
            if (cache_is_restoring(l)) {
                tier_mail(&t);
            }
        }
        if (i % 2) {
            cache_lease_abandon(l);
        }
        cache_lease_close(l, ids, true);
        fake_check(t.cache);
        if (i % 3) {
            tier_settle(&t);
            assert_int_equal(tier_turn(&t, "a", 1, ids, 900).n_tokens, 896);
        }
    }
    tier_done(&t);
}

/* The part of a block that RAM has stays when the disk's whole block turns out to be no good. */
static void what_ram_gave_survives_a_bad_block(void **state)
{
    (void)state;
    struct tier t;
    int32_t ids[100], fork[100];
    char path[256];
    tier_init(&t, 64);
    tier_ids(ids, 100, 0);
    tier_ids(fork, 100, 0);
    tier_ids(fork + 50, 50, 5000);
    tier_turn(&t, "a", 1, ids, 100);
    tier_settle(&t);
    tier_restart(&t);
    tier_turn(&t, "a", 1, fork, 80); /* block 1 of another branch is in RAM now */
    tier_settle(&t);
    tier_path(&t, "a", ids, 64, path, sizeof path);
    assert_int_equal(truncate(path, 100), 0);
    const struct cache_found found = tier_turn(&t, "a", 1, ids, 100);
    assert_int_equal(found.n_ram, 50);
    assert_int_equal(found.n_tokens, 50);
    tier_done(&t);
}

static void the_budget_is_kept_in_allocated_bytes(void **state)
{
    (void)state;
    struct tier t;
    int32_t ids[200];
    tier_init(&t, 64);
    tier_close(&t, 0);
    t.bytes_max = 20 * FILE_BYTES + 4096; /* with room for one more's temporary */
    tier_open(&t);
    for (int i = 0; i < 12; i++) {
        tier_ids(ids, 200, 1000 * i);
        tier_turn(&t, "a", 1, ids, 200);
        tier_settle(&t);
        tier_files(&t, &files);
        assert_true(files.bytes <= t.bytes_max);
        assert_int_equal(tier_stats(&t).disk_bytes, files.bytes);
    }
    assert_true(files.n >= 18);
    tier_close(&t, 0);
    t.bytes_max = 5 * FILE_BYTES; /* lowered: it gives way before it serves */
    tier_open(&t);
    tier_ids(ids, 200, 90000);
    tier_turn(&t, "a", 1, ids, 10);
    tier_files(&t, &files);
    assert_true(files.bytes <= t.bytes_max && files.n >= 4);
    tier_done(&t);
}

static void the_order_of_use_outlives_a_stop(void **state)
{
    (void)state;
    struct tier t;
    int32_t ids[70];
    char path[256];
    tier_init(&t, 64);
    for (int i = 0; i < 6; i++) {
        tier_ids(ids, 70, 1000 * i);
        tier_turn(&t, "a", 1, ids, 65);
        tier_settle(&t);
    }
    tier_ids(ids, 70, 0);
    tier_turn(&t, "a", 1, ids, 65); /* the first is the newest now */
    tier_close(&t, 3000);
    t.bytes_max = 4 * FILE_BYTES;
    tier_open(&t);
    tier_turn(&t, "b", 1, ids, 10);
    tier_files(&t, &files);
    assert_int_equal(files.n, 4);
    tier_path(&t, "a", ids, 64, path, sizeof path);
    assert_true(exists(path));
    tier_path(&t, "a", ids, 32, path, sizeof path);
    assert_true(exists(path));
    tier_ids(ids, 70, 1000);
    tier_path(&t, "a", ids, 32, path, sizeof path);
    assert_false(exists(path));
    tier_done(&t);
}

static uint64_t pretended_free;

static int pretended_statvfs(int fd, struct statvfs *st)
{
    (void)fd;
    *st = (struct statvfs){.f_bavail = pretended_free / 4096, .f_frsize = 4096};
    return 0;
}

static void the_reserve_of_the_file_system_stays_free(void **state)
{
    (void)state;
    struct tier t;
    int32_t ids[200];
    tier_init(&t, 64);
    tier_close(&t, 0);
    t.reserve_bytes = 1 << 30;
    pretended_free = (1u << 30) + (1u << 20);
    sys.fstatvfs = pretended_statvfs;
    tier_open(&t);
    tier_ids(ids, 200, 0);
    tier_turn(&t, "a", 1, ids, 200);
    tier_settle(&t);
    tier_files(&t, &files);
    assert_int_equal(files.n, 6);
    /* Others fill the disk: it gives back what is missing, no more, and rests when that is not
     * enough. */
    pretended_free = 1u << 30;
    tier_ids(ids, 200, 1000);
    tier_turn(&t, "a", 1, ids, 200);
    tier_settle(&t);
    tier_files(&t, &files);
    assert_int_equal(files.n, 4);
    assert_true(tier_stats(&t).is_disk_paused);
    assert_int_equal(tier_stats(&t).n_disk_failed, 1);
    sys_reset();
    tier_done(&t);
}

static ssize_t slow_pwrite(int fd, const void *p, size_t n, off_t off)
{
    const struct timespec nap = {0, 5000000};
    nanosleep(&nap, NULL);
    return pwrite(fd, p, n, off);
}

static void a_stop_drops_what_would_take_too_long(void **state)
{
    (void)state;
    struct tier t;
    static int32_t ids[3000];
    tier_init(&t, 120);
    sys.pwrite = slow_pwrite;
    tier_ids(ids, 3000, 0);
    tier_turn(&t, "a", 1, ids, 3000);
    tier_close(&t, 50); /* ten milliseconds a block */
    sys_reset();
    tier_files(&t, &files);
    assert_true(files.n >= 1 && files.n < 93);
    tier_open(&t); /* what is there is the front of the chain, and whole */
    assert_int_equal(tier_turn(&t, "a", 1, ids, 3000).n_disk, 32 * (int)files.n);
    tier_done(&t);
}

static void a_second_daemon_does_without(void **state)
{
    (void)state;
    struct tier t;
    struct cache *other = NULL;
    struct err e;
    tier_init(&t, 64);
    struct kv_pool *pool = fake_pool(8);
    assert_int_equal(cache_new(pool, &other, &e), 0);
    const struct cache_disk_options o = {.dir = t.dir, .bytes_max = 1 << 20, .reply = &t.box};
    assert_int_equal(cache_disk_open(other, &o, &e), ERR_BUSY);
    assert_non_null(strstr(e.text, "kv/lock"));
    assert_int_equal(cache_due_ms(other), -1);
    cache_tend(other);
    cache_disk_close(other, 10);
    cache_free(other);
    kv_pool_free(pool);
    tier_done(&t);
}

static void the_folder_is_private_and_tagged_and_clean(void **state)
{
    (void)state; /* B73, B69 */
    struct tier t;
    struct stat st;
    int32_t ids[100];
    char path[512], tag[64] = "";
    tier_init(&t, 64);
    tier_ids(ids, 100, 0);
    tier_turn(&t, "a", 1, ids, 100);
    tier_close(&t, 3000);
    tier_files(&t, &files);
    assert_int_equal(files.n, 4);
    for (size_t i = 0; i < files.n; i++) {
        assert_int_equal(stat(files.paths[i], &st), 0);
        assert_int_equal(st.st_mode & 07777, 0600);
        assert_int_equal(st.st_size, 4096 + 2048);
    }
    snprintf(path, sizeof path, "%s.tmp", files.paths[0]);
    assert_int_equal(close(open(path, O_CREAT | O_WRONLY, 0600)), 0);
    tier_open(&t);
    tier_turn(&t, "b", 1, ids, 20); /* the names are read */
    tier_settle(&t);
    tier_turn(&t, "a", 1, ids, 100);
    assert_false(exists(path));
    snprintf(path, sizeof path, "%s/kv/CACHEDIR.TAG", t.dir);
    const int fd = open(path, O_RDONLY);
    assert_true(read(fd, tag, 43) == 43);
    close(fd);
    assert_string_equal(tag, "Signature: 8a477f597d28d172789f06886806bc55");
    tier_done(&t);
}

int main(void)
{
    log_init(LOG_LEVEL_ERROR);
    thread_set_role(THREAD_WORKER);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_whole_blocks_are_there_after_a_kill),
        cmocka_unit_test(blocks_tell_who_computed_them_first),
        cmocka_unit_test(another_owner_finds_nothing),
        cmocka_unit_test(a_stop_keeps_the_tail),
        cmocka_unit_test(a_rested_tail_is_written),
        cmocka_unit_test(what_ram_forgets_the_disk_knows),
        cmocka_unit_test(two_turns_may_restore_the_same),
        cmocka_unit_test(a_turn_may_end_while_it_restores),
        cmocka_unit_test(what_ram_gave_survives_a_bad_block),
        cmocka_unit_test(the_budget_is_kept_in_allocated_bytes),
        cmocka_unit_test(the_order_of_use_outlives_a_stop),
        cmocka_unit_test(the_reserve_of_the_file_system_stays_free),
        cmocka_unit_test(a_stop_drops_what_would_take_too_long),
        cmocka_unit_test(a_second_daemon_does_without),
        cmocka_unit_test(the_folder_is_private_and_tagged_and_clean),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
