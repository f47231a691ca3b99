/*
 * Whatever happens to the files, and whichever system call fails: the blocks that are found hold
 * what was computed, the rest is a miss, and the file that was wrong is gone.
 */
#include "tests/cache/tier.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/log.h"
#include "base/sys.h"

#define N_IDS 200
#define N_WHOLE 6 /* blocks of 200 positions */
#define FILE_SIZE (4096 + 2048)

static struct tier_files files;

static bool exists(const char *path)
{
    struct stat st;
    return lstat(path, &st) == 0;
}

static void put_byte(const char *path, off_t at, unsigned char flip)
{
    unsigned char c = 0;
    const int fd = open(path, O_RDWR);
    assert_true(fd >= 0 && pread(fd, &c, 1, at) == 1);
    c ^= flip;
    assert_true(pwrite(fd, &c, 1, at) == 1);
    close(fd);
}

static void zero_file(const char *path)
{
    static const char zeros[FILE_SIZE];
    const int fd = open(path, O_WRONLY);
    assert_true(fd >= 0 && write(fd, zeros, sizeof zeros) == sizeof zeros);
    close(fd);
}

/* What is done to block k's file; `other` is that of block k + 1. */
struct fault {
    const char *name;
    void (*make)(const char *path, const char *other);
    bool stays; /* it can't be removed */
};

static void truncated(const char *path, const char *other)
{
    (void)other;
    assert_int_equal(truncate(path, 4096), 0);
}
static void truncated_within(const char *path, const char *other)
{
    (void)other;
    assert_int_equal(truncate(path, FILE_SIZE - 1), 0);
}
static void empty(const char *path, const char *other)
{
    (void)other;
    assert_int_equal(truncate(path, 0), 0);
}
static void too_long(const char *path, const char *other)
{
    (void)other;
    assert_int_equal(truncate(path, FILE_SIZE + 1), 0);
}
static void flipped(const char *path, const char *other)
{
    (void)other;
    put_byte(path, 5000, 0x10);
}
static void flipped_head(const char *path, const char *other)
{
    (void)other;
    put_byte(path, 100, 1);
}
static void zeroed(const char *path, const char *other)
{
    (void)other;
    zero_file(path);
}
static void swapped(const char *path, const char *other)
{
    char aside[300];
    snprintf(aside, sizeof aside, "%s.x", path);
    assert_int_equal(rename(path, aside), 0);
    assert_int_equal(rename(other, path), 0);
    assert_int_equal(rename(aside, other), 0);
}
static void fifo(const char *path, const char *other)
{
    (void)other;
    unlink(path);
    assert_int_equal(mkfifo(path, 0600), 0);
}
static void link_to_another(const char *path, const char *other)
{
    unlink(path);
    assert_int_equal(symlink(other, path), 0);
}
static void link_to_nothing(const char *path, const char *other)
{
    (void)other;
    unlink(path);
    assert_int_equal(symlink("/nonexistent/file", path), 0);
}
static void directory(const char *path, const char *other)
{
    (void)other;
    unlink(path);
    assert_int_equal(mkdir(path, 0700), 0);
}
static void file_for_its_folder(const char *path, const char *other)
{
    char folder[300], aside[310];
    (void)other;
    snprintf(folder, sizeof folder, "%s", path);
    *strrchr(folder, '/') = '\0';
    snprintf(aside, sizeof aside, "%s.x", folder);
    assert_int_equal(rename(folder, aside), 0);
    const int fd = open(folder, O_WRONLY | O_CREAT | O_EXCL, 0600);
    assert_true(fd >= 0);
    close(fd);
}
static void of_another_owner(const char *path, const char *other)
{
    (void)other;
    if (geteuid() == 0) {
        assert_int_equal(chown(path, 12345, 12345), 0);
    } else {
        unlink(path);
    }
}
static void gone(const char *path, const char *other)
{
    (void)other;
    unlink(path);
}

static const struct fault faults[] = {
    {"truncated", truncated, false},
    {"truncated within its block", truncated_within, false},
    {"empty", empty, false},
    {"too long", too_long, false},
    {"a bit flipped", flipped, false},
    {"a bit of the head flipped", flipped_head, false},
    {"zeroed", zeroed, false},
    {"swapped", swapped, false},
    {"a FIFO", fifo, false},
    {"a link to another", link_to_another, false},
    {"a link to nothing", link_to_nothing, false},
    {"a directory", directory, true},
    {"another owner's", of_another_owner, false},
    {"gone", gone, false},
    {"a file for its folder", file_for_its_folder, false},
};

static void fill(struct tier *t, int32_t *ids)
{
    tier_init(t, 64);
    tier_ids(ids, N_IDS, 0);
    tier_turn(t, "a", 1, ids, N_IDS);
    tier_close(t, 3000); /* with its tail */
}

/* Before the start and while it runs: the index knows the name in both cases. */
static void try_fault(const struct fault *f, int k, bool is_running)
{
    struct tier t;
    int32_t ids[N_IDS + 20], other[N_IDS];
    char path[256], next[256];
    fill(&t, ids);
    tier_ids(ids, N_IDS + 20, 0);
    tier_ids(other, N_IDS, 7777);
    const int end = (k + 1) * KV_BLOCK < N_IDS ? (k + 1) * KV_BLOCK : N_IDS;
    tier_path(&t, "a", ids, end, path, sizeof path);
    tier_path(&t, "a", ids, k ? 32 : 64, next, sizeof next);
    assert_true(exists(path));
    if (is_running) {
        tier_open(&t);
        tier_turn(&t, "b", 1, other, N_IDS);
        tier_settle(&t);
    }
    f->make(path, next);
    if (!is_running) {
        tier_open(&t);
    }
    const struct cache_found found = tier_turn(&t, "a", 1, ids, N_IDS + 20);
    const int right = f->make == swapped && k > 0 ? 0 : k * KV_BLOCK;
    if (found.n_tokens != right) {
        fail_msg("block %d %s: %d positions found, not %d", k, f->name, found.n_tokens, right);
    }
    tier_turn(&t, "b", 1, other, N_IDS); /* another conversation is as it was */
    tier_settle(&t);
    tier_sync(&t);
    struct stat st;
    if (f->stays) {
        assert_true(stat(path, &st) == 0 && S_ISDIR(st.st_mode));
    } else if (end % KV_BLOCK == 0) { /* the block was written again, under the same name */
        assert_true(lstat(path, &st) == 0 && S_ISREG(st.st_mode) && st.st_size == FILE_SIZE);
    }
    tier_restart(&t);
    int again = tier_turn(&t, "a", 1, ids, N_IDS + 20).n_tokens;
    if (f->make == swapped) { /* the other half of the pair was found out only now */
        tier_settle(&t);
        tier_restart(&t);
        again = tier_turn(&t, "a", 1, ids, N_IDS + 20).n_tokens;
    }
    const bool is_right = f->stays ? again == k * KV_BLOCK : again == 192 || again == N_IDS;
    if (!is_right) { /* N_IDS: the old tail may be there still */
        fail_msg("block %d %s: %d positions found at last", k, f->name, again);
    }
    tier_done(&t);
}

static void every_kind_of_bad_file_is_a_miss(void **state)
{
    (void)state; /* B69, B70 */
    const int blocks[] = {0, 2, N_WHOLE - 1, N_WHOLE};
    for (size_t i = 0; i < sizeof faults / sizeof *faults; i++) {
        for (size_t k = 0; k < sizeof blocks / sizeof *blocks; k++) {
            try_fault(&faults[i], blocks[k], false);
            try_fault(&faults[i], blocks[k], true);
        }
    }
}

/* ---- system calls that fail ---- */

static uint64_t seed;
static int permille; /* of the disk thread's calls fail */
static const int errnos[] = {EIO, ENOSPC, EACCES, EROFS, EMFILE, EINTR, ENOMEM, EDQUOT, EFBIG};

static bool fails(void)
{
    if (!thread_is(THREAD_DISK) || fake_below(&seed, 1000) >= permille) {
        return false;
    }
    errno = errnos[fake_below(&seed, (int)(sizeof errnos / sizeof *errnos))];
    return true;
}
static struct sys_table real;

static int bad_openat(int dir, const char *path, int flags, mode_t mode)
{
    return fails() ? -1 : real.openat(dir, path, flags, mode);
}
static ssize_t bad_pread(int fd, void *p, size_t n, off_t off)
{
    if (fails()) {
        memset(p, 0xff, n); /* NaN, where it was read into */
        return -1;
    }
    return real.pread(fd, p, n > 100 && fails() ? n / 2 : n, off);
}
static ssize_t bad_pwrite(int fd, const void *p, size_t n, off_t off)
{
    return fails() ? -1 : real.pwrite(fd, p, n > 100 && fails() ? n / 2 : n, off);
}
static int bad_close(int fd)
{
    const int rc = real.close(fd);
    return fails() ? -1 : rc;
}
static int bad_renameat(int a, const char *from, int b, const char *to)
{
    return fails() ? -1 : real.renameat(a, from, b, to);
}
static int bad_unlinkat(int dir, const char *path, int flags)
{
    return fails() ? -1 : real.unlinkat(dir, path, flags);
}
static int bad_fstat(int fd, struct stat *st)
{
    return fails() ? -1 : real.fstat(fd, st);
}
static int bad_fstatvfs(int fd, struct statvfs *st)
{
    return fails() ? -1 : real.fstatvfs(fd, st);
}
static int bad_mkdirat(int dir, const char *path, mode_t mode)
{
    return fails() ? -1 : real.mkdirat(dir, path, mode);
}
static void *bad_malloc(size_t n)
{
    return fails() ? NULL : real.malloc(n);
}

static void break_calls(void)
{
    real = sys;
    sys.openat = bad_openat;
    sys.pread = bad_pread;
    sys.pwrite = bad_pwrite;
    sys.close = bad_close;
    sys.renameat = bad_renameat;
    sys.unlinkat = bad_unlinkat;
    sys.fstat = bad_fstat;
    sys.fstatvfs = bad_fstatvfs;
    sys.mkdirat = bad_mkdirat;
    sys.malloc = bad_malloc;
}

/* tier_turn checks every position that it finds; what is found can only be less. */
static void failing_calls_never_give_a_wrong_block(void **state)
{
    (void)state;
    seed = (uint64_t)time(NULL) * 2654435761u + 1;
    print_message("seed %llu\n", (unsigned long long)seed);
    int n_found = 0;
    for (int round = 0; round < 60; round++) {
        struct tier t;
        int32_t ids[N_IDS];
        permille = 0;
        tier_init(&t, 20);
        break_calls();
        for (int life = 0; life < 4; life++) {
            permille = life % 2 ? 0 : round % 3 * 40 + 5;
            for (int i = 0; i < 6; i++) {
                tier_ids(ids, N_IDS, 1000 * fake_below(&seed, 4));
                n_found += tier_turn(&t, "a", (uint64_t)i, ids, 40 + fake_below(&seed, 160)).n_disk;
                if (fake_below(&seed, 2)) {
                    tier_settle(&t);
                }
            }
            tier_close(&t, 3000);
            permille = 0;
            tier_open(&t);
        }
        sys_reset();
        tier_done(&t);
    }
    print_message("%d positions came from disk meanwhile\n", n_found);
    assert_true(n_found > 0);
}

/* ---- no room ---- */

static int pwrite_errno;
static ssize_t full_pwrite(int fd, const void *p, size_t n, off_t off)
{
    (void)fd;
    (void)p;
    (void)n;
    (void)off;
    errno = pwrite_errno;
    return -1;
}

static void a_full_disk_is_left_alone_for_a_while(void **state)
{
    (void)state;
    const int codes[] = {ENOSPC, EDQUOT, EFBIG, EROFS, EIO};
    for (size_t i = 0; i < sizeof codes / sizeof *codes; i++) {
        struct tier t;
        int32_t ids[N_IDS];
        tier_init(&t, 64);
        pwrite_errno = codes[i];
        sys.pwrite = full_pwrite;
        tier_ids(ids, N_IDS, 0);
        tier_turn(&t, "a", 1, ids, N_IDS);
        tier_settle(&t);
        const struct cache_stats s = tier_stats(&t);
        assert_int_equal(s.n_disk_failed, 1); /* one try, not one a block */
        assert_true(s.is_disk_paused);
        assert_int_equal(s.disk_bytes, 0);
        const int due_ms = cache_due_ms(t.cache);
        assert_true(due_ms > 50000 && due_ms <= 60001);
        sys_reset();
        tier_files(&t, &files);
        assert_int_equal(files.n, 0);
        assert_int_equal(tier_turn(&t, "a", 1, ids, N_IDS).n_ram, N_IDS - 1);
        tier_done(&t);
    }
}

/* B69: a limit on the size of files, as a process meets it: half a block is written, no more. */
static void a_file_size_limit_is_no_death(void **state)
{
    (void)state;
    const pid_t child = fork();
    if (child == 0) {
        struct tier t;
        int32_t ids[N_IDS];
        const struct rlimit limit = {5000, 5000};
        signal(SIGXFSZ, SIG_IGN);
        tier_init(&t, 64);
        setrlimit(RLIMIT_FSIZE, &limit);
        tier_ids(ids, N_IDS, 0);
        tier_turn(&t, "a", 1, ids, N_IDS);
        tier_settle(&t);
        tier_files(&t, &files);
        const bool is_right = files.n == 0 && tier_stats(&t).n_disk_failed == 1;
        tier_done(&t);
        _exit(is_right ? 0 : 1);
    }
    int status = -1;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

/* ---- kill ---- */

/* The child writes until it is killed; what it leaves is right or a miss. B69 */
static void kills_at_random_points_leave_right_blocks(void **state)
{
    (void)state;
    seed = (uint64_t)time(NULL) * 2654435761u + 3;
    print_message("seed %llu\n", (unsigned long long)seed);
    struct tier t;
    int32_t ids[N_IDS];
    int n_disk = 0;
    tier_init(&t, 64);
    tier_close(&t, 0);
    for (int round = 0; round < 200; round++) {
        const pid_t child = fork();
        if (child == 0) {
            tier_open(&t);
            for (int i = 0;; i++) {
                tier_ids(ids, N_IDS, 1000 * (round * 4 + i % 4));
                tier_turn(&t, "a", 1, ids, N_IDS);
                tier_settle(&t);
            }
        }
        const struct timespec nap = {0, fake_below(&seed, 20000000)};
        nanosleep(&nap, NULL);
        kill(child, SIGKILL);
        waitpid(child, NULL, 0);
        tier_open(&t);
        for (int i = 0; i < 4; i++) {
            tier_ids(ids, N_IDS, 1000 * (round * 4 + i));
            n_disk += tier_turn(&t, "a", 1, ids, N_IDS).n_disk;
        }
        assert_int_equal(tier_stats(&t).n_disk_bad, 0); /* a rename is whole or isn't */
        tier_close(&t, 0);
    }
    print_message("%d positions came from what the killed had written\n", n_disk);
    tier_done(&t);
}

int main(void)
{
    log_init(LOG_LEVEL_ERROR);
    thread_set_role(THREAD_WORKER);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_kind_of_bad_file_is_a_miss),
        cmocka_unit_test(failing_calls_never_give_a_wrong_block),
        cmocka_unit_test(a_full_disk_is_left_alone_for_a_while),
        cmocka_unit_test(a_file_size_limit_is_no_death),
        cmocka_unit_test(kills_at_random_points_leave_right_blocks),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
