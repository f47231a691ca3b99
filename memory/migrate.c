/*
 * Opening with suspicion.
 *
 *   file ─► regular, ours? ─► its header, read by us ─► SQLite, no checkpoint on close ─► accepted
 *                │ no                │ foreign, newer,        │ the same, as               backup,
 *                ▼                   ▼ garbage                ▼ the WAL has it             steps
 *             ERR_INVAL           refused; SQLite          refused,
 *                                 never opened it          bytes unchanged
 *
 * The header is looked at first because SQLite, when it opens a foreign database, may roll back a
 * journal that it finds beside it. It is asked again through SQLite, because a version that is
 * still in the WAL isn't in the header yet. The file is never opened by us once SQLite has it:
 * closing it would drop SQLite's locks (they belong to the process).
 *
 * A file of up to CHECK_BYTES_MAX is checked whole before anything is written to it. For a larger
 * one that takes too long (seconds a gigabyte): SQLite itself refuses a bad header, a file that is
 * shorter than it says, and a schema that it can't read; every statement reports what it meets
 * later.
 */
#include "memory/migrate.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/sys.h"
#include "memory/schema.h"

#define CHECK_BYTES_MAX (64 << 20)
#define HEADER_BYTES 100
#define HEADER_PAGE_SIZE 16
#define HEADER_USER_VERSION 60
#define HEADER_APPLICATION_ID 68
static const char header_magic[16] = "SQLite format 3";

struct header {
    size_t n; /* bytes that were there: 0 or HEADER_BYTES */
    uint32_t version, application;
    bool has_wal;   /* a -wal with content: the header may be old */
    bool has_pages; /* more than the header's own page */
};

/* "path" + suffix; caller frees. */
static char *with_suffix(const char *path, const char *suffix, struct err *e)
{
    size_t n = strlen(path) + strlen(suffix) + 1;
    char *s = sys.malloc(n);
    if (!s) {
        err_set(e, ERR_NOMEM, "%s: out of memory", path);
        return NULL;
    }
    snprintf(s, n, "%s%s", path, suffix);
    return s;
}

/* A new, empty file, 0600 whatever the umask; SQLite gives -wal and -shm the same mode. */
static int make_file(const char *path, struct err *e)
{
    int fd = sys.openat(AT_FDCWD, path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0)
        return err_sys(e, errno, "%s can't be made", path);
    int rc = fchmod(fd, 0600) < 0 ? err_sys(e, errno, "%s", path) : 0;
    sys.close(fd);
    return rc;
}

static int judge_kind(const char *path, const struct stat *st, struct err *e)
{
    if (!S_ISREG(st->st_mode))
        return err_set(e, ERR_INVAL, "%s is not a regular file", path);
    if (st->st_uid != geteuid() && geteuid() != 0)
        return err_set(e, ERR_INVAL, "%s belongs to user %lu, not to us (%lu)", path,
                       (unsigned long)st->st_uid, (unsigned long)geteuid());
    return 0;
}

static uint32_t be32(const unsigned char *p)
{
    return (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | p[3];
}

static int read_header(const char *path, struct header *ret, struct err *e)
{
    unsigned char bytes[HEADER_BYTES];
    int fd = sys.openat(AT_FDCWD, path, O_RDONLY | O_CLOEXEC | O_NONBLOCK, 0);
    if (fd < 0)
        return err_sys(e, errno, "%s", path);
    ssize_t n = sys.pread(fd, bytes, sizeof(bytes), 0);
    int rc = n < 0 ? err_sys(e, errno, "%s", path) : 0;
    sys.close(fd);
    if (rc < 0)
        return rc;
    if (n == 0) {
        *ret = (struct header){0};
        return 0;
    }
    if (n < HEADER_BYTES || memcmp(bytes, header_magic, sizeof(header_magic)) != 0)
        return err_set(e, ERR_CORRUPT, "%s is not a SQLite database (or its header is damaged)",
                       path);

    char *wal = with_suffix(path, "-wal", e);
    if (!wal)
        return ERR_NOMEM;
    struct stat st;
    bool has_wal = stat(wal, &st) == 0 && st.st_size > 0;
    free(wal);
    if (stat(path, &st) < 0)
        return err_sys(e, errno, "%s", path);
    /* 1 means 65,536: a file of one page has no table, whatever its size. */
    off_t page = (off_t)bytes[HEADER_PAGE_SIZE] << 8 | bytes[HEADER_PAGE_SIZE + 1];
    *ret = (struct header){.n = (size_t)n,
                           .version = be32(bytes + HEADER_USER_VERSION),
                           .application = be32(bytes + HEADER_APPLICATION_ID),
                           .has_wal = has_wal,
                           .has_pages = st.st_size > (page == 1 ? 65536 : page)};
    return 0;
}

static int judge_version(const char *path, int64_t application, int64_t version, int newest,
                         struct err *e)
{
    if (application != SCHEMA_APPLICATION_ID)
        return err_set(e, ERR_UNSUPPORTED,
                       "%s is another program's database (application id %lld, ours is %d)", path,
                       (long long)application, SCHEMA_APPLICATION_ID);
    if (version < 1)
        return err_set(e, ERR_CORRUPT, "%s has version %lld", path, (long long)version);
    if (version > newest)
        return err_set(e, ERR_UNSUPPORTED,
                       "%s is of version %lld and this program knows up to %d: it was written by a "
                       "newer hearthd",
                       path, (long long)version, newest);
    return 0;
}

/* As SQLite sees it, WAL included. *ret_version 0: nothing in it yet (also a start that was killed
 * before the first step). */
static int judge_content(struct db *db, int newest, int64_t *ret_version, struct err *e)
{
    int64_t application, version, n_tables;
    int rc = db_get_int(db, "PRAGMA application_id", &application, e);
    if (rc == 0)
        rc = db_get_int(db, "PRAGMA user_version", &version, e);
    if (rc == 0)
        rc = db_get_int(db, "SELECT count(*) FROM sqlite_schema", &n_tables, e);
    if (rc < 0)
        return rc;
    *ret_version = version;
    if (application == 0 && version == 0 && n_tables == 0)
        return 0;
    return judge_version(db_path(db), application, version, newest, e);
}

static int sync_file(const char *path, struct err *e)
{
    int fd = sys.openat(AT_FDCWD, path, O_RDONLY | O_CLOEXEC, 0);
    if (fd < 0)
        return err_sys(e, errno, "%s", path);
    int rc = sys.fsync(fd) < 0 ? err_sys(e, errno, "%s: fsync", path) : 0;
    sys.close(fd);
    return rc;
}

/* "<path>.v<N>": under a temporary name first, so that what has the name is whole. */
static int keep_copy(struct db *db, int64_t version, struct err *e)
{
    char suffix[32];
    snprintf(suffix, sizeof(suffix), ".v%lld", (long long)version);
    char *name = with_suffix(db_path(db), suffix, e);
    char *temp = name ? with_suffix(name, ".tmp", e) : NULL;
    int rc = temp ? 0 : ERR_NOMEM;
    if (rc == 0) {
        sys.unlinkat(AT_FDCWD, temp, 0); /* of a start that was killed here */
        rc = make_file(temp, e);
    }
    if (rc == 0)
        rc = db_copy(db, temp, e);
    if (rc == 0)
        rc = sync_file(temp, e);
    if (rc == 0 && sys.renameat(AT_FDCWD, temp, AT_FDCWD, name) < 0)
        rc = err_sys(e, errno, "%s: rename", name);
    if (rc < 0 && temp)
        sys.unlinkat(AT_FDCWD, temp, 0);
    free(temp);
    free(name);
    return rc < 0 ? err_prefix(e, "a copy before the migration") : 0;
}

/* All but the last step may wait for the disk until that one does: a power cut leaves one of the
 * versions between, and the next start goes on from there. */
static int run_step(struct db *db, const char *sql, int to_version, bool is_last, struct err *e)
{
    char mark[96];
    snprintf(mark, sizeof(mark), "PRAGMA application_id = %d; PRAGMA user_version = %d",
             SCHEMA_APPLICATION_ID, to_version);
    int rc = db_begin(db, is_last ? DB_FULL : DB_NORMAL, e);
    if (rc < 0)
        return rc;
    rc = db_exec(db, sql, e);
    if (rc == 0)
        rc = db_exec(db, mark, e);
    rc = db_end(db, rc, e);
    return rc < 0 ? err_prefix(e, "migration to version %d", to_version) : 0;
}

/* Files of an older time, or copied by hand, may be open to others. -wal and -shm took the
 * database's mode when they were made. */
static void close_modes(const char *path)
{
    static const char *const suffixes[] = {"", "-wal", "-shm"};
    for (int i = 0; i < 3; i++) {
        struct err ignored;
        char *name = with_suffix(path, suffixes[i], &ignored);
        if (name && chmod(name, 0600) < 0)
            errno = 0; /* not there, or not ours to change: the directory is private anyway */
        free(name);
    }
}

/* The file is there and its own header says nothing against it. */
static int open_judged(const char *path, off_t n_bytes, const struct migrate_plan *plan,
                       struct db **ret, struct err *e)
{
    struct db *db = NULL;
    int64_t version = 0;
    int rc = db_open(path, &db, e);
    if (rc == 0)
        rc = judge_content(db, plan->n_steps, &version, e);
    if (rc == 0 && n_bytes <= CHECK_BYTES_MAX)
        rc = db_check(db, e);
    if (rc == 0)
        rc = db_accept(db, e);
    if (rc == 0)
        close_modes(path);
    if (rc == 0 && version > 0 && version < plan->n_steps)
        rc = keep_copy(db, version, e);
    for (int v = (int)version; rc == 0 && v < plan->n_steps; v++)
        rc = run_step(db, plan->steps[v], v + 1, v + 1 == plan->n_steps, e);
    if (rc < 0)
        db_close(db);
    else
        *ret = db;
    return rc;
}

int migrate_open(const char *path, const struct migrate_plan *plan, struct db **ret, struct err *e)
{
    struct stat st;
    struct header h = {0};
    if (stat(path, &st) < 0) {
        if (errno != ENOENT)
            return err_sys(e, errno, "%s", path);
        int made = make_file(path, e);
        if (made < 0)
            return made;
        if (stat(path, &st) < 0)
            return err_sys(e, errno, "%s", path);
    }
    int rc = judge_kind(path, &st, e);
    if (rc == 0)
        rc = read_header(path, &h, e);
    /* Nothing in it: a file whose first step is still in the WAL, or never came. */
    bool is_blank = rc == 0 && (h.n == 0 || (h.application == 0 && h.version == 0 && !h.has_pages));
    if (rc == 0 && !h.has_wal && !is_blank)
        rc = judge_version(path, h.application, h.version, plan->n_steps, e);
    if (rc == 0)
        rc = open_judged(path, st.st_size, plan, ret, e);
    return rc;
}
