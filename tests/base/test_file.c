/* Files: whole or not at all, whichever call fails. */
#include "tests/base/testing.h"

#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/file.h"

static char dir[64];
static char path[128];

static int make_dir(void **state)
{
    (void)state;
    snprintf(dir, sizeof(dir), "/tmp/hearth-file-XXXXXX");
    if (!mkdtemp(dir))
        return -1;
    snprintf(path, sizeof(path), "%s/file", dir);
    return 0;
}

static int remove_dir(void **state)
{
    (void)state;
    sys_reset();
    DIR *d = opendir(dir);
    for (const struct dirent *f; (f = readdir(d));)
        if (f->d_name[0] != '.')
            unlinkat(dirfd(d), f->d_name, 0);
    closedir(d);
    return rmdir(dir);
}

static int n_files(void)
{
    int n = 0;
    DIR *d = opendir(dir);
    for (const struct dirent *f; (f = readdir(d));)
        n += f->d_name[0] != '.';
    closedir(d);
    return n;
}

static void expect_content(const char *want)
{
    struct buf b;
    struct err e;
    buf_init(&b, 1000);
    assert_int_equal(file_read(path, &b, &e), 0);
    assert_string_equal(b.data, want);
    buf_done(&b);
}

/* Every call of the table counted, the planned one failing; a failing close closes all the same, as
 * Linux's does. */
static int faulty_openat(int at, const char *name, int flags, mode_t mode)
{
    return fault_now() ? -1 : openat(at, name, flags, mode);
}
static ssize_t faulty_pread(int fd, void *p, size_t n, off_t off)
{
    return fault_now() ? -1 : pread(fd, p, n, off);
}
static ssize_t faulty_write(int fd, const void *p, size_t n)
{
    return fault_now() ? -1 : write(fd, p, n > 3 ? 3 : n); /* and in small pieces */
}
static int faulty_fsync(int fd)
{
    return fault_now() ? -1 : fsync(fd);
}
static int faulty_close(int fd)
{
    int rc = close(fd);
    return fault_now() ? -1 : rc;
}
static int faulty_renameat(int a, const char *from, int b, const char *to)
{
    return fault_now() ? -1 : renameat(a, from, b, to);
}
static int faulty_fstat(int fd, struct stat *st)
{
    return fault_now() ? -1 : fstat(fd, st);
}

static void fault_files(int at, int errnum)
{
    fault_memory(at);
    fault_errno = errnum;
    sys.openat = faulty_openat;
    sys.pread = faulty_pread;
    sys.write = faulty_write;
    sys.fsync = faulty_fsync;
    sys.close = faulty_close;
    sys.renameat = faulty_renameat;
    sys.fstat = faulty_fstat;
}

static void a_written_file_is_private_and_reads_back(void **state)
{
    (void)state;
    struct err e;
    struct stat st;
    mode_t old = umask(0);
    assert_int_equal(file_write(path, "first", 5, &e), 0);
    umask(old);
    expect_content("first");
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_mode & 07777, 0600);
    assert_int_equal(file_write(path, "", 0, &e), 0);
    expect_content("");
    assert_int_equal(n_files(), 1);
}

static void whichever_call_fails_the_file_is_old_or_whole(void **state)
{
    (void)state;
    struct err e;
    bool came = true;
    int n_old = 0, n_new = 0;
    for (int at = 0; came; at++) {
        assert_int_equal(file_write(path, "old", 3, &e), 0);
        e = (struct err){0};
        fault_files(at, EIO);
        int rc = file_write(path, "new content", 11, &e);
        came = fault_end();
        assert_int_equal(rc < 0, came && fault_at != -1 && e.code != 0);
        struct buf b;
        buf_init(&b, 100);
        assert_int_equal(file_read(path, &b, NULL), 0);
        bool is_new = strcmp(b.data, "new content") == 0;
        assert_true(is_new || strcmp(b.data, "old") == 0);
        assert_true(is_new || rc < 0);
        if (rc < 0) {
            assert_true(rc == ERR_IO || rc == ERR_NOMEM);
            assert_non_null(strstr(e.text, dir));
        }
        n_new += is_new;
        n_old += !is_new;
        assert_int_equal(n_files(), 1); /* no temporary file stays */
        buf_done(&b);
    }
    assert_true(n_old >= 8 && n_new >= 2);
}

static char order[200];
static int noted_openat(int at, const char *name, int flags, mode_t mode)
{
    strncat(order, flags & O_DIRECTORY ? "dir " : "open ", 10);
    return openat(at, name, flags, mode);
}
static ssize_t noted_write(int fd, const void *p, size_t n)
{
    strncat(order, "write ", 10);
    return write(fd, p, n);
}
static int noted_fsync(int fd)
{
    strncat(order, "fsync ", 10);
    return fsync(fd);
}
static int noted_close(int fd)
{
    strncat(order, "close ", 10);
    return close(fd);
}
static int noted_renameat(int a, const char *from, int b, const char *to)
{
    strncat(order, "rename ", 10);
    return renameat(a, from, b, to);
}

static void the_bytes_are_on_disk_before_the_name(void **state)
{
    (void)state;
    struct err e;
    sys.openat = noted_openat;
    sys.write = noted_write;
    sys.fsync = noted_fsync;
    sys.close = noted_close;
    sys.renameat = noted_renameat;
    order[0] = '\0';
    assert_int_equal(file_write(path, "content", 7, &e), 0);
    sys_reset();
    assert_string_equal(order, "open write fsync close rename dir fsync close ");
}

static void a_cache_is_written_whole_without_a_wait_for_the_disk(void **state)
{
    (void)state;
    struct err e;
    struct buf b;
    sys.openat = noted_openat;
    sys.write = noted_write;
    sys.fsync = noted_fsync;
    sys.close = noted_close;
    sys.renameat = noted_renameat;
    order[0] = '\0';
    assert_int_equal(file_write_unsynced(path, "other", 5, &e), 0);
    sys_reset();
    assert_string_equal(order, "open write close rename ");
    buf_init(&b, 100);
    assert_int_equal(file_read(path, &b, &e), 0);
    assert_int_equal(b.len, 5);
    buf_done(&b);
}

static void interrupted_calls_are_made_again(void **state)
{
    (void)state;
    struct err e;
    fault_files(2, EINTR); /* malloc, openat, then the first write */
    int rc = file_write(path, "content", 7, &e);
    assert_true(fault_end());
    assert_int_equal(rc, 0);
    expect_content("content");
    struct buf b;
    buf_init(&b, 100);
    buf_add(&b, "", 0);
    assert_non_null(buf_reserve(&b, 100)); /* so that no allocation is counted */
    fault_files(1, EINTR);
    rc = file_read(path, &b, &e);
    assert_true(fault_end());
    assert_int_equal(rc, 0);
    assert_string_equal(b.data, "content");
    buf_done(&b);
}

static void no_space_names_the_file_and_the_reason(void **state)
{
    (void)state;
    struct err e;
    fault_files(2, ENOSPC);
    int rc = file_write(path, "content", 7, &e);
    assert_true(fault_end());
    assert_int_equal(rc, ERR_IO);
    assert_non_null(strstr(e.text, "No space left on device"));
    assert_int_equal(n_files(), 0);
}

static void leftovers_of_a_killed_process_are_passed_over(void **state)
{
    (void)state;
    struct err e;
    assert_int_equal(file_write(path, "x", 1, &e), 0);
    for (int k = 0; k < 300; k++) { /* the next few names of our own pid, with a gap now and then */
        char name[200];
        snprintf(name, sizeof(name), "%s.%ld-%d.tmp", path, (long)getpid(), k);
        int fd = k % 10 == 9 ? -1 : open(name, O_CREAT | O_WRONLY, 0600);
        if (fd >= 0) {
            assert_int_equal(write(fd, "leftover", 8), 8);
            close(fd);
        }
    }
    assert_int_equal(file_write(path, "y", 1, &e), 0);
    expect_content("y");
}

static void a_missing_directory_is_not_found(void **state)
{
    (void)state;
    struct err e;
    char nowhere[200];
    snprintf(nowhere, sizeof(nowhere), "%s/no/file", dir);
    assert_int_equal(file_write(nowhere, "x", 1, &e), ERR_NOTFOUND);
    assert_non_null(strstr(e.text, nowhere));
}

static void a_whole_file_is_appended_up_to_the_ceiling(void **state)
{
    (void)state;
    struct err e;
    static char data[200000];
    for (size_t i = 0; i < sizeof(data); i++)
        data[i] = (char)(i * 7 / 3);
    static const size_t sizes[] = {0, 1, 4095, 65535, 65536, 65537, 131072, 200000};
    for (size_t i = 0; i < ARRAY_LEN(sizes); i++) {
        struct buf b;
        assert_int_equal(file_write(path, data, sizes[i], &e), 0);
        buf_init(&b, sizes[i] + 2);
        buf_str(&b, "ab");
        assert_int_equal(file_read(path, &b, &e), 0);
        assert_int_equal(b.len, sizes[i] + 2);
        assert_memory_equal(b.data + 2, data, sizes[i]);
        assert_int_equal(b.data[b.len], '\0');
        buf_done(&b);
        if (sizes[i] == 0)
            continue;
        buf_init(&b, sizes[i] + 1);
        buf_str(&b, "ab");
        assert_int_equal(file_read(path, &b, &e), ERR_LIMIT);
        assert_non_null(strstr(e.text, path));
        assert_string_equal(b.data, "ab"); /* as it was */
        buf_done(&b);
    }
}

static void whichever_call_fails_a_read_changes_nothing(void **state)
{
    (void)state;
    struct err e;
    assert_int_equal(file_write(path, "content", 7, &e), 0);
    bool came = true;
    for (int at = 0; came; at++) {
        struct buf b;
        buf_init(&b, 1000);
        buf_str(&b, "ab");
        fault_files(at, EIO);
        int rc = file_read(path, &b, &e);
        came = fault_end();
        if (rc < 0)
            assert_true(rc == ERR_IO || rc == ERR_NOMEM);
        assert_string_equal(b.data, rc < 0 ? "ab" : "abcontent");
        assert_true(came || rc == 0);
        buf_done(&b);
    }
}

static void what_is_no_file_does_not_read(void **state)
{
    (void)state;
    struct err e;
    struct buf b;
    buf_init(&b, 1000);
    assert_int_equal(file_read(path, &b, &e), ERR_NOTFOUND);
    assert_non_null(strstr(e.text, path));
    assert_int_equal(file_read(dir, &b, &e), ERR_IO);
    assert_int_equal(mkfifo(path, 0600), 0);
    assert_int_equal(file_read(path, &b, &e), ERR_IO); /* and doesn't hang */
    buf_done(&b);
}

static void a_lock_has_one_holder(void **state)
{
    (void)state;
    struct err e;
    int fd = -1, second = -1;
    struct stat st;
    mode_t old = umask(0);
    assert_int_equal(lock_take(path, &fd, &e), 0);
    umask(old);
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_mode & 07777, 0600);
    assert_int_equal(lock_take(path, &second, &e), ERR_BUSY);
    assert_non_null(strstr(e.text, path));
    assert_int_equal(second, -1);
    pid_t child = fork();
    if (child == 0)
        _exit(lock_take(path, &second, &e) == ERR_BUSY ? 0 : 1);
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    lock_release(fd);
    assert_int_equal(lock_take(path, &second, &e), 0);
    lock_release(second);
    lock_release(-1);
    assert_int_equal(n_files(), 1); /* never unlinked */
}

static void a_holder_that_is_killed_frees_the_lock(void **state)
{
    (void)state;
    int ready[2];
    struct err e;
    char c;
    assert_int_equal(pipe(ready), 0);
    pid_t child = fork();
    if (child == 0) {
        int fd;
        if (lock_take(path, &fd, &e) < 0 || write(ready[1], "x", 1) != 1)
            _exit(1);
        for (;;)
            pause();
    }
    assert_int_equal(read(ready[0], &c, 1), 1);
    int fd = -1;
    assert_int_equal(lock_take(path, &fd, &e), ERR_BUSY);
    kill(child, SIGKILL);
    waitpid(child, NULL, 0);
    assert_int_equal(lock_take(path, &fd, &e), 0);
    lock_release(fd);
    close(ready[0]);
    close(ready[1]);
}

static void a_lock_is_not_taken_through_a_link_or_in_a_missing_directory(void **state)
{
    (void)state;
    struct err e;
    int fd = -1;
    assert_int_equal(symlink("/tmp/elsewhere", path), 0);
    assert_int_equal(lock_take(path, &fd, &e), ERR_IO);
    char nowhere[200];
    snprintf(nowhere, sizeof(nowhere), "%s/no/lock", dir);
    assert_int_equal(lock_take(nowhere, &fd, &e), ERR_NOTFOUND);
    assert_int_equal(fd, -1);
}

static void missing_parents_are_made_private(void **state)
{
    (void)state;
    struct err e;
    char deep[200], mid[200], top[200];
    snprintf(top, sizeof(top), "%s/a", dir);
    snprintf(mid, sizeof(mid), "%s/a/b", dir);
    snprintf(deep, sizeof(deep), "%s/a//b/c/", dir);
    mode_t old = umask(0);
    assert_int_equal(dir_make_private(deep, &e), 0);
    assert_int_equal(dir_make_private(deep, &e), 0); /* again */
    umask(old);
    struct stat st;
    const char *each[] = {top, mid, deep};
    for (int i = 0; i < 3; i++) {
        assert_int_equal(stat(each[i], &st), 0);
        assert_int_equal(st.st_mode & 07777, 0700);
    }
    for (int i = 2; i >= 0; i--)
        rmdir(each[i]);
}

static void a_directory_that_others_may_write_to_is_refused(void **state)
{
    (void)state;
    static const struct {
        mode_t mode;
        int rc;
    } cases[] = {{0700, 0},         {0755, 0},          {0750, 0},         {0500, 0},
                 {0777, ERR_INVAL}, {0775, ERR_INVAL},  {0770, ERR_INVAL}, {0757, ERR_INVAL},
                 {0702, ERR_INVAL}, {01777, ERR_INVAL}, {02770, ERR_INVAL}};
    struct err e;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        char mode[16];
        snprintf(mode, sizeof(mode), "mode %04o", (unsigned)cases[i].mode);
        assert_int_equal(chmod(dir, cases[i].mode), 0);
        assert_int_equal(dir_make_private(dir, &e), cases[i].rc);
        if (cases[i].rc) {
            assert_non_null(strstr(e.text, mode));
            assert_non_null(strstr(e.text, dir));
        }
    }
    chmod(dir, 0700);
}

static void what_is_not_our_directory_is_refused(void **state)
{
    (void)state;
    struct err e;
    assert_int_equal(dir_make_private("", &e), ERR_INVAL);
    assert_int_equal(file_write(path, "x", 1, &e), 0);
    assert_int_equal(dir_make_private(path, &e), ERR_INVAL);
    assert_non_null(strstr(e.text, "not a directory"));
    char below[200];
    snprintf(below, sizeof(below), "%s/sub", path);
    assert_int_equal(dir_make_private(below, &e), ERR_IO);
    if (geteuid() == 0) {
        assert_int_equal(chown(dir, 12345, 12345), 0);
        assert_int_equal(dir_make_private(dir, &e), ERR_INVAL);
        assert_non_null(strstr(e.text, "12345"));
        assert_int_equal(chown(dir, 0, 0), 0);
    }
    assert_int_equal(dir_make_private("/", &e), 0); /* root's, and not writable by others */
}

static void a_directory_that_can_not_be_judged_is_refused(void **state)
{
    (void)state;
    struct err e;
    for (int at = 0; at < 2; at++) { /* openat, fstat */
        fault_files(at, EIO);
        int rc = dir_make_private(dir, &e);
        assert_true(fault_end());
        assert_int_equal(rc, ERR_IO);
    }
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, make_dir, remove_dir)
    const struct CMUnitTest tests[] = {
        TEST(a_written_file_is_private_and_reads_back),
        TEST(whichever_call_fails_the_file_is_old_or_whole),
        TEST(the_bytes_are_on_disk_before_the_name),
        TEST(a_cache_is_written_whole_without_a_wait_for_the_disk),
        TEST(interrupted_calls_are_made_again),
        TEST(no_space_names_the_file_and_the_reason),
        TEST(leftovers_of_a_killed_process_are_passed_over),
        TEST(a_missing_directory_is_not_found),
        TEST(a_whole_file_is_appended_up_to_the_ceiling),
        TEST(whichever_call_fails_a_read_changes_nothing),
        TEST(what_is_no_file_does_not_read),
        TEST(a_lock_has_one_holder),
        TEST(a_holder_that_is_killed_frees_the_lock),
        TEST(a_lock_is_not_taken_through_a_link_or_in_a_missing_directory),
        TEST(missing_parents_are_made_private),
        TEST(a_directory_that_others_may_write_to_is_refused),
        TEST(what_is_not_our_directory_is_refused),
        TEST(a_directory_that_can_not_be_judged_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
