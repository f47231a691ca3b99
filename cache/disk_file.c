/* The files of the disk tier. See disk_file.h. */
#include "cache/disk_file.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/sys.h"

#define ST_BLOCK 512u /* the unit of st_blocks, whatever the file system's is */

void disk_file_name(const struct disk_place *p, const char *ending, char ret[DISK_NAME_BYTES])
{
    char hex[2 * HASH_BYTES + 1];
    hex_write(p->id, HASH_BYTES, hex);
    snprintf(ret, DISK_NAME_BYTES, "%s/%.2s/%s%s", p->root, hex, hex, ending);
}

/* The system had no room for the call itself: that says nothing about the file. */
static bool is_passing(int errnum)
{
    return errnum == EMFILE || errnum == ENFILE || errnum == ENOMEM || errnum == EAGAIN;
}

static int bad(struct err *e, int errnum, const char *what)
{
    const int code = is_passing(errnum) ? ERR_BUSY : ERR_CORRUPT;
    err_sys(e, errnum, "%s", what);
    if (e) {
        e->code = code;
    }
    return code;
}

/* ---- reading ---- */

static int check_file(int fd, size_t block_bytes, struct err *e)
{
    struct stat st;
    if (sys.fstat(fd, &st) < 0) {
        return bad(e, errno, "fstat");
    }
    if (!S_ISREG(st.st_mode)) {
        return err_set(e, ERR_CORRUPT, "it is no regular file");
    }
    if (st.st_uid != geteuid()) {
        return err_set(e, ERR_CORRUPT, "it belongs to user %lu, not to us (%lu)",
                       (unsigned long)st.st_uid, (unsigned long)geteuid());
    }
    if (st.st_size < 0 || (uintmax_t)st.st_size != record_bytes(block_bytes)) {
        return err_set(e, ERR_CORRUPT, "it has %lld bytes, not %zu", (long long)st.st_size,
                       record_bytes(block_bytes));
    }
    return 0;
}

int disk_file_open_head(const struct disk_place *p, size_t block_bytes, int *ret_fd, struct err *e)
{
    char name[DISK_NAME_BYTES];
    disk_file_name(p, ".kv", name);
    const int fd = sys.openat(p->dir, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0);
    if (fd < 0 && errno == ENOENT) {
        return err_set(e, ERR_NOTFOUND, "it is gone");
    }
    if (fd < 0) {
        return bad(e, errno, "it can't be opened");
    }
    const int rc = check_file(fd, block_bytes, e);
    if (rc) {
        sys.close(fd);
        return rc;
    }
    *ret_fd = fd;
    return 0;
}

int disk_file_open(const struct disk_place *p, const struct record_data *d, int *ret_fd,
                   struct err *e)
{
    const int rc = disk_file_open_head(p, record_block_bytes(d), ret_fd, e);
    if (rc) {
        return rc;
    }
    /* Advice; to the end (0), where all of it is wanted. */
    const off_t n = d->window_bytes == 0 || d->window
                        ? 0
                        : (off_t)(RECORD_HEAD_BYTES + d->full_bytes);
    (void)sys.fadvise(*ret_fd, 0, n, POSIX_FADV_WILLNEED);
    return 0;
}

static int read_all(int fd, void *to, size_t n, off_t off, struct err *e)
{
    unsigned char *p = to;
    while (n > 0) {
        const ssize_t got = sys.pread(fd, p, n, off);
        if (got < 0 && errno == EINTR) {
            continue;
        }
        if (got < 0) {
            return bad(e, errno, "it can't be read");
        }
        if (got == 0) {
            return err_set(e, ERR_CORRUPT, "it ends at byte %lld", (long long)off);
        }
        p += got;
        n -= (size_t)got;
        off += got;
    }
    return 0;
}

int disk_file_read(int fd, const struct record_name *name, const struct record_data *d,
                   struct record *ret, struct err *e)
{
    const off_t window_at = (off_t)(RECORD_HEAD_BYTES + d->full_bytes);
    unsigned char head[RECORD_HEAD_BYTES];
    int rc = read_all(fd, head, sizeof head, 0, e);
    if (!rc && d->full) {
        rc = read_all(fd, d->full, d->full_bytes, RECORD_HEAD_BYTES, e);
    }
    if (!rc && d->window) {
        rc = read_all(fd, d->window, d->window_bytes, window_at, e);
    }
    if (!rc) {
        rc = record_parse(name, head, d, ret, e);
    }
    return rc;
}

void disk_file_forget(const struct disk_place *p)
{
    char name[DISK_NAME_BYTES];
    disk_file_name(p, ".kv", name);
    const int fd = sys.openat(p->dir, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0);
    if (fd >= 0) {
        (void)sys.fadvise(fd, 0, 0, POSIX_FADV_DONTNEED); /* advice */
        sys.close(fd);
    }
}

int disk_file_read_head(int fd, const struct record_name *name, struct record *ret, struct err *e)
{
    unsigned char head[RECORD_HEAD_BYTES];
    const int rc = read_all(fd, head, sizeof head, 0, e);
    return rc ? rc : record_parse_head(name, head, ret, e);
}

/* ---- writing ---- */

static int write_all(int fd, const void *from, size_t n, off_t off, struct err *e)
{
    const unsigned char *p = from;
    while (n > 0) {
        const ssize_t done = sys.pwrite(fd, p, n, off);
        if (done < 0 && errno == EINTR) {
            continue;
        }
        if (done <= 0) {
            return err_sys(e, done < 0 ? errno : ENOSPC, "writing");
        }
        p += done;
        n -= (size_t)done;
        off += done;
    }
    return 0;
}

/* What stands there and is no directory goes: the name is the tier's, as a block's is. */
static int make_dir(int dir, const char *name, struct err *e)
{
    struct stat st;
    if (sys.mkdirat(dir, name, 0700) == 0) {
        return 0;
    }
    if (errno != EEXIST) {
        return err_sys(e, errno, "mkdir %s", name);
    }
    if (sys.fstatat(dir, name, &st, 0) == 0 && S_ISDIR(st.st_mode)) {
        return 0;
    }
    if (sys.unlinkat(dir, name, 0) < 0 || sys.mkdirat(dir, name, 0700) < 0) {
        return err_sys(e, errno, "mkdir %s", name);
    }
    return 0;
}

/* The two directories on the way to a file. */
static int make_dirs(const struct disk_place *p, struct err *e)
{
    char dir[DISK_NAME_BYTES];
    const int rc = make_dir(p->dir, p->root, e);
    snprintf(dir, sizeof dir, "%s/%02x", p->root, p->id[0]);
    return rc ? rc : make_dir(p->dir, dir, e);
}

/* An earlier temporary of that name, or whatever it is. ERR_CORRUPT: it can't go, and the name
 * can't be used. */
static int clear_temp(const struct disk_place *p, const char *name, struct err *e)
{
    if (sys.unlinkat(p->dir, name, 0) == 0 || errno == ENOENT ||
        (errno == EISDIR && sys.unlinkat(p->dir, name, AT_REMOVEDIR) == 0)) {
        return 0;
    }
    const int code = errno == ENOTEMPTY || errno == EEXIST ? ERR_CORRUPT : ERR_IO;
    err_sys(e, errno, "removing what has its temporary name");
    if (e) {
        e->code = code;
    }
    return code;
}

static int create(const struct disk_place *p, const char *name, int *ret_fd, struct err *e)
{
    const int flags = O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC;
    int rc = 0;
    int fd = sys.openat(p->dir, name, flags, 0600);
    if (fd < 0 && (errno == ENOENT || errno == ENOTDIR || errno == ELOOP)) {
        rc = make_dirs(p, e);
    } else if (fd < 0 && errno == EEXIST) {
        rc = clear_temp(p, name, e);
    } else if (fd < 0) {
        return err_sys(e, errno, "making it");
    }
    if (rc) {
        return rc;
    }
    if (fd < 0) {
        fd = sys.openat(p->dir, name, flags, 0600);
    }
    if (fd < 0) {
        return err_sys(e, errno, "making it");
    }
    *ret_fd = fd;
    return 0;
}

/* The bytes and the size they take; the descriptor is closed in any case, and close is where some
 * file systems say that there was no room. */
static int fill(int fd, const struct record *r, const struct record_data *d, uint64_t *ret_bytes,
                struct err *e)
{
    const off_t window_at = (off_t)(RECORD_HEAD_BYTES + d->full_bytes);
    unsigned char head[RECORD_HEAD_BYTES];
    struct stat st;
    record_write(r, d, head);
    int rc = write_all(fd, head, sizeof head, 0, e);
    if (!rc) {
        rc = write_all(fd, d->full, d->full_bytes, RECORD_HEAD_BYTES, e);
    }
    if (!rc && d->window_bytes > 0) {
        rc = write_all(fd, d->window, d->window_bytes, window_at, e);
    }
    if (!rc && sys.fstat(fd, &st) < 0) {
        rc = err_sys(e, errno, "fstat");
    }
    if (sys.close(fd) < 0 && !rc) {
        rc = err_sys(e, errno, "close");
    }
    if (!rc) {
        const uint64_t allocated = (uint64_t)st.st_blocks * ST_BLOCK;
        /* 0: not yet placed. */
        *ret_bytes = allocated > 0 ? allocated : record_bytes(record_block_bytes(d));
    }
    return rc;
}

int disk_file_write(const struct disk_place *p, const struct record *r,
                    const struct record_data *d, uint64_t *ret_bytes, struct err *e)
{
    char temp[DISK_NAME_BYTES], name[DISK_NAME_BYTES];
    uint64_t bytes = 0;
    int fd = -1;
    disk_file_name(p, ".tmp", temp);
    disk_file_name(p, ".kv", name);
    int rc = create(p, temp, &fd, e);
    if (rc) {
        return rc;
    }
    rc = fill(fd, r, d, &bytes, e);
    if (!rc && sys.renameat(p->dir, temp, p->dir, name) < 0) {
        const int errnum = errno;
        rc = err_sys(e, errnum, "rename");
        if (errnum == EISDIR || errnum == ENOTEMPTY || errnum == EEXIST) {
            rc = ERR_CORRUPT;
        }
    }
    if (rc) {
        (void)sys.unlinkat(p->dir, temp, 0);
        return rc;
    }
    *ret_bytes = bytes;
    return 0;
}

int disk_file_put(int dir, const char *name, const void *data, size_t n, struct err *e)
{
    char temp[DISK_NAME_BYTES];
    snprintf(temp, sizeof temp, "%s.tmp", name);
    (void)sys.unlinkat(dir, temp, 0);
    const int flags = O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC;
    const int fd = sys.openat(dir, temp, flags, 0600);
    if (fd < 0) {
        return err_sys(e, errno, "%s", temp);
    }
    int rc = write_all(fd, data, n, 0, e);
    if (sys.close(fd) < 0 && !rc) {
        rc = err_sys(e, errno, "%s: close", temp);
    }
    if (!rc && sys.renameat(dir, temp, dir, name) < 0) {
        rc = err_sys(e, errno, "%s: rename", name);
    }
    if (rc) {
        (void)sys.unlinkat(dir, temp, 0);
    }
    return rc;
}

int disk_file_remove(const struct disk_place *p, struct err *e)
{
    char name[DISK_NAME_BYTES];
    disk_file_name(p, ".kv", name);
    /* ENOTDIR, ELOOP: something else is in a directory's place, and the file is gone with it. */
    if (sys.unlinkat(p->dir, name, 0) < 0 && errno != ENOENT && errno != ENOTDIR &&
        errno != ELOOP) {
        return err_sys(e, errno, "%s can't be removed", name);
    }
    return 0;
}

/* ---- what is there at the start ---- */

static bool is_hex(const char *s, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (!((s[i] >= '0' && s[i] <= '9') || (s[i] >= 'a' && s[i] <= 'f'))) {
            return false;
        }
    }
    return true;
}

static bool ends_in(const char *s, const char *ending)
{
    const size_t n = strlen(s), m = strlen(ending);
    return n >= m && strcmp(s + n - m, ending) == 0;
}

/* NULL: not a directory that can be listed. Takes the descriptor's place. */
static DIR *list(int dir, const char *name)
{
    const int fd =
        sys.openat(dir, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0);
    DIR *d = fd >= 0 ? fdopendir(fd) : NULL;
    if (fd >= 0 && !d) {
        sys.close(fd);
    }
    return d;
}

/* In 64 bits of nanoseconds, which end in 2262; file systems go further. */
static int64_t stamp_ns(const struct timespec *t)
{
    const int64_t max_s = INT64_MAX / 1000000000 - 1;
    const int64_t s = t->tv_sec > max_s ? max_s : t->tv_sec < -max_s ? -max_s : t->tv_sec;
    return s * 1000000000 + t->tv_nsec;
}

/* One name in a directory of two digits. */
static int see(int dir, const char *root, const char *name, struct disk_index *x, struct err *e)
{
    uint8_t id[HASH_BYTES];
    struct disk_entry *n = NULL;
    struct stat st;
    if (ends_in(name, ".tmp")) {
        (void)sys.unlinkat(dir, name, 0);
        return 0;
    }
    if (strlen(name) != 2 * HASH_BYTES + 3 || !ends_in(name, ".kv") ||
        !is_hex(name, 2 * HASH_BYTES) || !hex_parse(name, 2 * HASH_BYTES, id, HASH_BYTES) ||
        index_find(x, id)) {
        return 0;
    }
    const int rc = index_add(x, id, root, &n, e);
    if (!rc && sys.fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) == 0) {
        index_set_bytes(x, n, (uint64_t)st.st_blocks * ST_BLOCK);
        n->order = stamp_ns(&st.st_mtim);
    }
    return rc;
}

static int scan_files(int dir, const char *root, const char *name, struct disk_index *x,
                      struct err *e)
{
    DIR *d = list(dir, name);
    const size_t n_before = x->n_entries;
    int rc = 0;
    if (!d) {
        return 0;
    }
    for (const struct dirent *f; !rc && (f = readdir(d));) {
        rc = see(dirfd(d), root, f->d_name, x, e);
    }
    closedir(d);
    if (!rc && x->n_entries == n_before) {
        (void)sys.unlinkat(dir, name, AT_REMOVEDIR); /* fails where something foreign is in it */
    }
    return rc;
}

static int scan_root(int dir, const char *root, struct disk_index *x, struct err *e)
{
    DIR *d = list(dir, root);
    const size_t n_before = x->n_entries;
    int rc = 0;
    if (!d) {
        return 0;
    }
    for (const struct dirent *f; !rc && (f = readdir(d));) {
        if (strlen(f->d_name) == 2 && is_hex(f->d_name, 2)) {
            rc = scan_files(dirfd(d), root, f->d_name, x, e);
        }
    }
    closedir(d);
    if (!rc && x->n_entries == n_before) {
        (void)sys.unlinkat(dir, root, AT_REMOVEDIR);
    }
    return rc;
}

int disk_file_scan(int dir, struct disk_index *x, struct err *e)
{
    DIR *d = list(dir, ".");
    int rc = 0;
    if (!d) {
        return err_sys(e, errno, "listing it");
    }
    for (const struct dirent *f; !rc && (f = readdir(d));) {
        if (strlen(f->d_name) == DISK_ROOT_CHARS && is_hex(f->d_name, DISK_ROOT_CHARS)) {
            rc = scan_root(dirfd(d), f->d_name, x, e);
        } else if (ends_in(f->d_name, ".tmp")) {
            (void)sys.unlinkat(dirfd(d), f->d_name, 0);
        }
    }
    closedir(d);
    return rc;
}
