/*
 * Files. Everything that touches the disk goes through the system-call table, so that tests make
 * each call fail in turn.
 *
 * file_write leaves either the old file or the whole new one, whatever fails: temporary name beside
 * it, fsync, rename, fsync of the directory (a rename survives a power cut only with its
 * directory).
 */
#include "base/file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/sys.h"

#define READ_BYTES ((size_t)64 << 10)
#define TEMP_TRIES 16

static int open_error(struct err *e, const char *path)
{
    int code = errno == ENOENT || errno == ENOTDIR ? ERR_NOTFOUND : ERR_IO;
    err_sys(e, errno, "%s", path);
    if (code == ERR_NOTFOUND && e)
        e->code = code;
    return code;
}

/* One pread at `off` into the buffer; 0 at the end of the file, 1 when there may be more. */
static int read_some(int fd, const char *path, off_t off, struct buf *b, struct err *e)
{
    size_t room = b->max - b->len;
    size_t want = room < READ_BYTES ? room : READ_BYTES;
    char over; /* a full buffer still has to see the end of the file */
    char *to = want > 0 ? buf_reserve(b, want) : &over;
    if (!to)
        return err_set(e, buf_error(b), "%s: out of memory", path);
    ssize_t got;
    do
        got = sys.pread(fd, to, want > 0 ? want : 1, off);
    while (got < 0 && errno == EINTR);
    if (got < 0)
        return err_sys(e, errno, "%s", path);
    if (got > 0 && want == 0)
        return err_set(e, ERR_LIMIT, "%s is longer than %zu bytes", path, b->max);
    b->len += (size_t)got;
    return got > 0;
}

int file_read(const char *path, struct buf *ret, struct err *e)
{
    if (buf_error(ret))
        return err_set(e, buf_error(ret), "%s: the buffer has failed before", path);
    /* O_NONBLOCK: a FIFO of that name must not hang us; it then fails in pread. */
    int fd = sys.openat(AT_FDCWD, path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK, 0);
    if (fd < 0)
        return open_error(e, path);
    size_t before = ret->len;
    off_t off = 0;
    int rc;
    do {
        size_t len = ret->len;
        rc = read_some(fd, path, off, ret, e);
        off += (off_t)(ret->len - len);
    } while (rc > 0);
    sys.close(fd);
    if (rc < 0 && ret->data) {
        ret->len = before;
        ret->data[before] = '\0';
    }
    return rc;
}

static int write_all(int fd, const char *path, const char *p, size_t n, struct err *e)
{
    while (n > 0) {
        ssize_t done = sys.write(fd, p, n);
        if (done < 0 && errno == EINTR)
            continue;
        if (done < 0)
            return err_sys(e, errno, "%s: writing", path);
        if (done == 0)
            return err_set(e, ERR_IO, "%s: writing: nothing was taken", path);
        p += done;
        n -= (size_t)done;
    }
    return 0;
}

/* Opens a new file beside `path`, whose name is written to temp. The number keeps threads apart,
 * the pid processes; a name that a killed process of the same pid left is passed over. */
static int open_temp(const char *path, char *temp, size_t n_temp, struct err *e)
{
    static atomic_uint counter;
    int fd = -1;
    for (int i = 0; i < TEMP_TRIES && fd < 0; i++) {
        snprintf(temp, n_temp, "%s.%ld-%u.tmp", path, (long)getpid(),
                 atomic_fetch_add(&counter, 1));
        fd = sys.openat(AT_FDCWD, temp, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
        if (fd < 0 && errno != EEXIST)
            break;
    }
    if (fd < 0)
        return open_error(e, temp);
    return fd;
}

static int sync_parent(const char *path, struct err *e)
{
    char *dir = strdup(path);
    if (!dir)
        return err_set(e, ERR_NOMEM, "%s: out of memory", path);
    char *slash = strrchr(dir, '/');
    if (slash == dir)
        slash++;
    if (slash)
        *slash = '\0';
    int rc = 0;
    const char *name = slash ? dir : ".";
    int fd = sys.openat(AT_FDCWD, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC, 0);
    if (fd < 0)
        rc = open_error(e, name);
    else if (sys.fsync(fd) < 0 && errno != EINVAL) /* EINVAL: a file system without it */
        rc = err_sys(e, errno, "%s: fsync", name);
    if (fd >= 0)
        sys.close(fd);
    free(dir);
    return rc;
}

static int write_whole(const char *path, const void *data, size_t n, bool is_synced,
                       struct err *e)
{
    size_t n_temp = strlen(path) + 48;
    char *temp = sys.malloc(n_temp);
    if (!temp)
        return err_set(e, ERR_NOMEM, "%s: out of memory", path);
    int fd = open_temp(path, temp, n_temp, e);
    if (fd < 0) {
        free(temp);
        return fd;
    }
    int rc = write_all(fd, temp, data, n, e);
    if (rc == 0 && is_synced && sys.fsync(fd) < 0)
        rc = err_sys(e, errno, "%s: fsync", temp);
    if (sys.close(fd) < 0 && rc == 0)
        rc = err_sys(e, errno, "%s: close", temp);
    if (rc == 0 && sys.renameat(AT_FDCWD, temp, AT_FDCWD, path) < 0)
        rc = err_sys(e, errno, "%s: rename", path);
    if (rc < 0)
        sys.unlinkat(AT_FDCWD, temp, 0);
    else if (is_synced)
        rc = sync_parent(path, e);
    free(temp);
    return rc;
}

int file_write(const char *path, const void *data, size_t n, struct err *e)
{
    return write_whole(path, data, n, true, e);
}

int file_write_unsynced(const char *path, const void *data, size_t n, struct err *e)
{
    return write_whole(path, data, n, false, e);
}

/* mkdir of `path` and its parents; those that exist are left alone. `path` is written to and
 * restored. */
static int make_parents(char *path, struct err *e)
{
    for (char *p = path + 1;; p++) {
        if (*p != '/' && *p != '\0')
            continue;
        char end = *p;
        *p = '\0';
        int rc = mkdir(path, 0700);
        int errnum = errno;
        struct stat st;
        if (rc < 0 && errnum != EEXIST && stat(path, &st) < 0)
            return err_sys(e, errnum, "%s: mkdir", path);
        *p = end;
        if (end == '\0')
            return 0;
    }
}

int dir_make_private(const char *path, struct err *e)
{
    if (path[0] == '\0')
        return err_set(e, ERR_INVAL, "a directory's name is empty");
    char *copy = strdup(path);
    if (!copy)
        return err_set(e, ERR_NOMEM, "%s: out of memory", path);
    int rc = make_parents(copy, e);
    free(copy);
    if (rc < 0)
        return rc;
    /* Opened once and asked once: what is judged is what is there, also when the name is a link. */
    int fd = sys.openat(AT_FDCWD, path, O_PATH | O_CLOEXEC, 0);
    if (fd < 0)
        return open_error(e, path);
    struct stat st;
    if (sys.fstat(fd, &st) < 0)
        rc = err_sys(e, errno, "%s", path);
    else if (!S_ISDIR(st.st_mode))
        rc = err_set(e, ERR_INVAL, "%s is not a directory", path);
    else if (st.st_uid != geteuid() && st.st_uid != 0)
        rc = err_set(e, ERR_INVAL, "%s belongs to user %lu, not to us (%lu) or root", path,
                     (unsigned long)st.st_uid, (unsigned long)geteuid());
    else if (st.st_mode & 022)
        rc = err_set(e, ERR_INVAL, "%s has mode %04o: others may write there; chmod go-w it", path,
                     (unsigned)st.st_mode & 07777);
    sys.close(fd);
    return rc;
}

int lock_take(const char *path, int *ret_fd, struct err *e)
{
    int fd =
        sys.openat(AT_FDCWD, path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0600);
    if (fd < 0)
        return open_error(e, path);
    int rc;
    do
        rc = flock(fd, LOCK_EX | LOCK_NB);
    while (rc < 0 && errno == EINTR);
    if (rc == 0) {
        *ret_fd = fd;
        return 0;
    }
    rc = errno == EWOULDBLOCK ? err_set(e, ERR_BUSY, "%s is locked by another process", path)
                              : err_sys(e, errno, "%s: flock", path);
    sys.close(fd);
    return rc;
}

void lock_release(int fd)
{
    if (fd >= 0)
        sys.close(fd);
}
