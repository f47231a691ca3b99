/*
 * What surrounds the files of the disk tier: another owner's under our names, things in the folder
 * that aren't ours, any time stamp, that nothing is ever synced, and when what was read leaves the
 * page cache. B69.
 */
#include "tests/cache/tier.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/sys.h"
#include "cache/disk.h"

#define N_IDS 200
#define N_WHOLE 6 /* blocks of 200 positions */
#define PATH_MAX_ 512

static struct tier_files files;

static bool exists(const char *path)
{
    struct stat st;
    return lstat(path, &st) == 0;
}

static void write_file(const char *path, const char *text)
{
    const int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    assert_true(fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text));
    close(fd);
}

/* "kv/<root of a>", and below it. */
static void path_of_root(const struct tier *t, const char *owner, const char *below, char *ret)
{
    const struct cache_root root = fake_root(owner);
    char hex[17];
    hex_write(root.id, 8, hex);
    snprintf(ret, PATH_MAX_, "%s/kv/%s%s", t->dir, hex, below);
}

/* ---- owners ---- */

/* The same ids of two owners: whole files of one under the other's names, in both directions. */
static void another_owner_s_file_under_our_name_is_a_miss(void **state)
{
    (void)state; /* B06, B71 */
    for (int is_running = 0; is_running < 2; is_running++) {
        struct tier t;
        int32_t ids[N_IDS];
        char a[256], b[256], aside[300];
        tier_init(&t, 64);
        tier_ids(ids, N_IDS, 0);
        tier_turn(&t, "uid:1001", 1, ids, N_IDS);
        tier_turn(&t, "key:1001", 1, ids, N_IDS);
        tier_close(&t, 3000);
        if (is_running) {
            tier_open(&t);
            tier_turn(&t, "nobody", 1, ids, 10); /* the names are known */
        }
        for (int n = KV_BLOCK; n <= N_IDS; n += n + KV_BLOCK > N_IDS && n < N_IDS ? N_IDS - n
                                                                                 : KV_BLOCK) {
            tier_path(&t, "uid:1001", ids, n, a, sizeof a);
            tier_path(&t, "key:1001", ids, n, b, sizeof b);
            snprintf(aside, sizeof aside, "%s.x", a);
            assert_true(!rename(a, aside) && !rename(b, a) && !rename(aside, b));
        }
        if (!is_running) {
            tier_open(&t);
        }
        assert_int_equal(tier_turn(&t, "uid:1001", 1, ids, N_IDS).n_tokens, 0);
        assert_int_equal(tier_turn(&t, "key:1001", 1, ids, N_IDS).n_tokens, 0);
        assert_true(tier_stats(&t).n_disk_bad >= 2);
        tier_done(&t);
    }
}

/* ---- things in the folder ---- */

struct thing {
    const char *name, *at; /* below kv/ or, with a leading ':', below the root's folder */
    void (*make)(const char *path);
};

static void a_file(const char *path)
{
    write_file(path, "somebody's");
}
static void an_empty_file(const char *path)
{
    write_file(path, "");
}
static void a_long_file(const char *path)
{
    a_file(path);
    assert_int_equal(truncate(path, (off_t)1 << 36), 0);
}
static void a_fifo(const char *path)
{
    assert_int_equal(mkfifo(path, 0600), 0);
}
static void a_folder(const char *path)
{
    assert_int_equal(mkdir(path, 0700), 0);
}
static void a_link_to_nothing(const char *path)
{
    assert_int_equal(symlink("/nonexistent/place", path), 0);
}
static void a_link_to_itself(const char *path)
{
    assert_int_equal(symlink(path, path), 0);
}

static const struct thing things[] = {
    {"rubbish for the order", "order", a_file},
    {"nothing in the order", "order", an_empty_file},
    {"an order without end", "order", a_long_file},
    {"a FIFO for the order", "order", a_fifo},
    {"a folder for the order", "order", a_folder},
    {"a link for the order", "order", a_link_to_nothing},
    {"a folder for the order's temporary", "order.tmp", a_folder},
    {"a folder for the tag", "CACHEDIR.TAG", a_folder},
    {"a link for the tag", "CACHEDIR.TAG", a_link_to_nothing},
    {"a FIFO among the roots", "0123456789abcdef", a_fifo},
    {"a file among the roots", "0123456789abcdef", a_file},
    {"a file in the root's place", ":", a_file},
    {"a FIFO in the root's place", ":", a_fifo},
    {"a link in the root's place", ":", a_link_to_itself},
    {"a file in each folder's place", ":/*", a_file},
    {"a FIFO in each folder's place", ":/*", a_fifo},
    {"a link in each folder's place", ":/*", a_link_to_itself},
    {"a folder in each temporary's place", ":/*/*", a_folder},
};

/* Puts it where the first whole block of ids would be written ("*": its folder, "*" twice: its
 * temporary), or at the place that the thing says. */
static void put_thing(const struct tier *t, const struct thing *x, const int32_t *ids)
{
    char path[PATH_MAX_], file[256];
    if (x->at[0] != ':') {
        snprintf(path, sizeof path, "%s/kv/%s", t->dir, x->at);
        unlink(path);
        x->make(path);
        return;
    }
    tier_path(t, "a", ids, KV_BLOCK, file, sizeof file);
    path_of_root(t, "a", "", path);
    if (strcmp(x->at, ":") != 0) {
        assert_int_equal(mkdir(path, 0700), 0);
        *strrchr(file, '/') = '\0';
        snprintf(path, sizeof path, "%s", file);
    }
    if (strcmp(x->at, ":/*/*") == 0) {
        assert_int_equal(mkdir(path, 0700), 0);
        tier_path(t, "a", ids, KV_BLOCK, file, sizeof file);
        *strrchr(file, '.') = '\0';
        snprintf(path, sizeof path, "%s.tmp", file);
    }
    x->make(path);
}

/* Nothing hangs, nothing is wrong, and one odd name doesn't keep the others from being written. */
static void things_in_the_folder_that_are_not_ours_do_no_harm(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof things / sizeof *things; i++) {
        struct tier t;
        int32_t ids[N_IDS], other[N_IDS];
        tier_init(&t, 64);
        tier_ids(ids, N_IDS, 0);
        tier_ids(other, N_IDS, 5000);
        tier_close(&t, 0);
        put_thing(&t, &things[i], ids);
        tier_open(&t);
        tier_turn(&t, "a", 1, ids, N_IDS);
        tier_turn(&t, "b", 1, other, N_IDS);
        tier_settle(&t);
        const struct cache_stats s = tier_stats(&t);
        if (s.is_disk_paused || s.n_disk_failed) {
            fail_msg("%s: the tier rests", things[i].name);
        }
        tier_close(&t, 3000);
        tier_open(&t);
        assert_int_equal(tier_turn(&t, "b", 1, other, N_IDS).n_disk, N_WHOLE * KV_BLOCK);
        const int n = tier_turn(&t, "a", 1, ids, N_IDS).n_disk;
        if (things[i].at[0] != ':' && n != N_WHOLE * KV_BLOCK) {
            fail_msg("%s: %d positions were found", things[i].name, n);
        }
        tier_done(&t);
    }
}

/* What stands where the tier itself would be: there is none then, and the text says why. */
static void what_is_no_folder_of_ours_is_no_tier(void **state)
{
    (void)state;
    static const struct {
        const char *at;
        void (*make)(const char *path);
    } cases[] = {
        {"kv", a_file}, {"kv", a_fifo}, {"kv", a_link_to_itself}, {"kv/lock", a_folder},
        {"kv/lock", a_link_to_nothing},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char dir[] = "/tmp/hearth-tier-XXXXXX", path[PATH_MAX_];
        struct mailbox box;
        struct cache *c = NULL;
        struct err e = {0};
        int32_t ids[N_IDS];
        assert_non_null(mkdtemp(dir));
        snprintf(path, sizeof path, "%s/kv", dir);
        if (strcmp(cases[i].at, "kv") != 0) {
            assert_int_equal(mkdir(path, 0700), 0);
        }
        snprintf(path, sizeof path, "%s/%s", dir, cases[i].at);
        cases[i].make(path);
        struct kv_pool *pool = fake_pool(16);
        assert_int_equal(mailbox_init(&box, &e), 0);
        assert_int_equal(cache_new(pool, &c, &e), 0);
        const struct cache_disk_options o = {.dir = dir, .bytes_max = 1 << 20, .reply = &box};
        assert_true(cache_disk_open(c, &o, &e) < 0);
        assert_non_null(strstr(e.text, "kv"));
        tier_ids(ids, N_IDS, 0);
        assert_int_equal(fake_whole_turn(c, "a", 1, ids, N_IDS), 0);
        assert_int_equal(fake_whole_turn(c, "a", 1, ids, N_IDS), N_IDS - 1);
        cache_disk_close(c, 10);
        cache_free(c);
        kv_pool_free(pool);
        mailbox_done(&box);
        assert_true(unlink(path) == 0 || rmdir(path) == 0);
        snprintf(path, sizeof path, "%s/kv", dir);
        rmdir(path);
        assert_int_equal(rmdir(dir), 0);
    }
}

/* ---- the clock ---- */

static void set_times(const struct tier *t, int64_t seconds)
{
    const struct timespec at[2] = {{seconds, 999999999}, {seconds, 999999999}};
    tier_files(t, &files);
    for (size_t i = 0; i < files.n; i++) {
        assert_int_equal(utimensat(AT_FDCWD, files.paths[i], at, 0), 0);
    }
}

/* Stamps of before 1970 and of after 2262 (64 bits of nanoseconds end there): all is found. */
static void any_time_stamp_is_fine(void **state)
{
    (void)state;
    static const int64_t stamps[] = {0, -2000000000, 2147483647, 13000000000, INT64_MAX / 2};
    for (size_t i = 0; i < sizeof stamps / sizeof *stamps; i++) {
        struct tier t;
        int32_t ids[N_IDS];
        char order[PATH_MAX_];
        tier_init(&t, 64);
        tier_ids(ids, N_IDS, 0);
        tier_turn(&t, "a", 1, ids, N_IDS);
        tier_close(&t, 3000);
        snprintf(order, sizeof order, "%s/kv/order", t.dir);
        assert_int_equal(unlink(order), 0); /* or they aren't looked at */
        set_times(&t, stamps[i]);
        tier_open(&t);
        assert_int_equal(tier_turn(&t, "a", 1, ids, N_IDS).n_disk, N_WHOLE * KV_BLOCK);
        tier_done(&t);
    }
}

/* Without the saved order the stamps decide what goes; however far in the future, a later one is
 * later. */
static void a_stamp_in_the_far_future_is_not_the_oldest(void **state)
{
    (void)state;
    struct tier t;
    int32_t ids[N_IDS];
    char path[PATH_MAX_];
    tier_init(&t, 64);
    tier_ids(ids, N_IDS, 0);
    tier_turn(&t, "a", 1, ids, N_WHOLE * KV_BLOCK);
    tier_settle(&t);
    set_times(&t, 13000000000); /* 2381 */
    tier_ids(ids, N_IDS, 5000);
    tier_turn(&t, "a", 1, ids, N_WHOLE * KV_BLOCK);
    tier_close(&t, 3000);
    snprintf(path, sizeof path, "%s/kv/order", t.dir);
    assert_int_equal(unlink(path), 0);
    tier_files(&t, &files);
    t.bytes_max = files.bytes / 2;
    tier_open(&t);
    tier_turn(&t, "b", 1, ids, 10); /* the names are known */
    tier_ids(ids, N_IDS, 0);
    for (int n = KV_BLOCK; n <= N_WHOLE * KV_BLOCK; n += KV_BLOCK) {
        tier_path(&t, "a", ids, n, path, sizeof path);
        assert_true(exists(path));
    }
    tier_done(&t);
}

/* ---- syncing ---- */

static int n_synced;
static int counting_fsync(int fd)
{
    n_synced += thread_is(THREAD_DISK);
    return fsync(fd);
}

/* A commit of the history beside it would wait for all that is dirty. */
static void the_disk_thread_never_syncs(void **state)
{
    (void)state;
    struct tier t;
    int32_t ids[N_IDS];
    n_synced = 0;
    sys.fsync = counting_fsync;
    tier_init(&t, 20);
    t.tail_idle_ms = 1;
    for (int life = 0; life < 3; life++) {
        for (int i = 0; i < 8; i++) {
            tier_ids(ids, N_IDS, 1000 * i);
            tier_turn(&t, "a", 1, ids, 100 + 10 * i);
            tier_turn(&t, "a", 1, ids, N_IDS);
            tier_sync(&t);
        }
        tier_close(&t, 3000);
        t.bytes_max = 20 * 8192;
        tier_open(&t);
    }
    assert_true(tier_turn(&t, "a", 1, ids, N_IDS).n_disk > 0);
    tier_done(&t);
    sys_reset();
    assert_int_equal(n_synced, 0);
}

/* ---- leaving the page cache ---- */

/* The disk thread's; the test looks when it has been told that all are forgotten. */
static struct {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    int64_t read_at_us;  /* the last read */
    int64_t least_us;    /* between a read and what was forgotten after it */
    size_t n_forgotten;
    ino_t inodes[TIER_FILES_MAX];
} seen = {.lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};

static ssize_t noting_pread(int fd, void *p, size_t n, off_t off)
{
    const ssize_t got = pread(fd, p, n, off);
    pthread_mutex_lock(&seen.lock);
    seen.read_at_us = clock_us();
    pthread_mutex_unlock(&seen.lock);
    return got;
}

static int noting_fadvise(int fd, off_t off, off_t n, int advice)
{
    struct stat st;
    if (advice == POSIX_FADV_DONTNEED && fstat(fd, &st) == 0) {
        pthread_mutex_lock(&seen.lock);
        const int64_t us = clock_us() - seen.read_at_us;
        seen.least_us = us < seen.least_us ? us : seen.least_us;
        assert_true(seen.n_forgotten < TIER_FILES_MAX);
        seen.inodes[seen.n_forgotten++] = st.st_ino;
        pthread_cond_broadcast(&seen.changed);
        pthread_mutex_unlock(&seen.lock);
    }
    return posix_fadvise(fd, off, n, advice);
}

static void watch_pages(void)
{
    seen.n_forgotten = 0;
    seen.least_us = INT64_MAX;
    sys.pread = noting_pread;
    sys.fadvise = noting_fadvise;
}

static void wait_forgotten(size_t n)
{
    pthread_mutex_lock(&seen.lock);
    while (seen.n_forgotten < n) {
        pthread_cond_wait(&seen.changed, &seen.lock);
    }
    pthread_mutex_unlock(&seen.lock);
}

static int by_inode(const void *a, const void *b)
{
    const ino_t x = *(const ino_t *)a, y = *(const ino_t *)b;
    return (x > y) - (x < y);
}

/* n_blocks are written, the cache starts anew and restores them all; then each has left once. */
static int64_t restore_and_forget(int n_blocks)
{
    struct tier t;
    const int n = n_blocks * KV_BLOCK;
    int32_t *ids = malloc(((size_t)n + 1) * sizeof *ids);
    assert_non_null(ids);
    tier_ids(ids, n + 1, 1);
    tier_init(&t, (size_t)n_blocks + 8);
    tier_turn(&t, "a", 1, ids, n);
    tier_settle(&t);
    watch_pages();
    tier_restart(&t);
    assert_int_equal(tier_turn(&t, "a", 1, ids, n + 1).n_disk, n);
    wait_forgotten((size_t)n_blocks);
    tier_done(&t);
    sys_reset();
    free(ids);
    assert_int_equal(seen.n_forgotten, n_blocks);
    qsort(seen.inodes, seen.n_forgotten, sizeof *seen.inodes, by_inode);
    for (size_t i = 1; i < seen.n_forgotten; i++) {
        assert_true(seen.inodes[i - 1] != seen.inodes[i]);
    }
    return seen.least_us;
}

static void what_was_read_leaves_the_page_cache_when_nobody_waits(void **state)
{
    (void)state;
    assert_true(restore_and_forget(6) >= (int64_t)DISK_REST_MS * 1000);
}

static void more_than_may_wait_for_that_leaves_too(void **state)
{
    (void)state;
    restore_and_forget(DISK_RESTING_MAX + 30);
}

/* Between the read and the leaving anything may come to stand under a name. */
static void no_link_is_followed_to_leave_the_page_cache(void **state)
{
    (void)state;
    struct tier t;
    struct stat other;
    int32_t ids[N_IDS];
    char path[300], aside[100];
    tier_ids(ids, N_IDS, 1);
    tier_init(&t, 20);
    tier_turn(&t, "a", 1, ids, 4 * KV_BLOCK);
    tier_settle(&t);
    watch_pages();
    tier_restart(&t);
    assert_int_equal(tier_turn(&t, "a", 1, ids, 4 * KV_BLOCK + 1).n_disk, 4 * KV_BLOCK);
    snprintf(aside, sizeof aside, "%s/aside", t.dir);
    write_file(aside, "somebody's");
    assert_int_equal(stat(aside, &other), 0);
    for (int k = 1; k < 4; k++) {
        tier_path(&t, "a", ids, k * KV_BLOCK, path, sizeof path);
        assert_int_equal(unlink(path), 0);
        assert_int_equal(k == 1   ? symlink(aside, path)
                         : k == 2 ? mkfifo(path, 0600)
                                  : 0,
                         0);
    }
    tier_path(&t, "a", ids, 4 * KV_BLOCK, path, sizeof path);
    wait_forgotten(2); /* the FIFO and the last, which was read after those */
    assert_true(seen.inodes[0] != other.st_ino && seen.inodes[1] != other.st_ino);
    assert_int_equal(stat(path, &other), 0);
    assert_true(seen.inodes[1] == other.st_ino);
    tier_done(&t);
    sys_reset();
}

int main(void)
{
    log_init(LOG_LEVEL_ERROR);
    thread_set_role(THREAD_WORKER);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(another_owner_s_file_under_our_name_is_a_miss),
        cmocka_unit_test(things_in_the_folder_that_are_not_ours_do_no_harm),
        cmocka_unit_test(what_is_no_folder_of_ours_is_no_tier),
        cmocka_unit_test(any_time_stamp_is_fine),
        cmocka_unit_test(a_stamp_in_the_far_future_is_not_the_oldest),
        cmocka_unit_test(the_disk_thread_never_syncs),
        cmocka_unit_test(what_was_read_leaves_the_page_cache_when_nobody_waits),
        cmocka_unit_test(more_than_may_wait_for_that_leaves_too),
        cmocka_unit_test(no_link_is_followed_to_leave_the_page_cache),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
