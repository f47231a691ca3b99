/*
 * The SQLite door.
 *
 * What is set here and why:
 *   - NO_CKPT_ON_CLOSE until db_accept: closing the last connection copies the WAL into the
 *     database and deletes it: a change to a file that may not be ours.
 *   - synchronous is changed between transactions only (SQLite refuses it inside), and only when it
 *     differs: FULL syncs the WAL at each commit, NORMAL at checkpoints.
 *   - secure_delete zeroes what is deleted; the WAL's old frames go with a TRUNCATE checkpoint.
 *   - NOMUTEX: one thread uses the connection.
 */
#include "memory/db.h"

#include <assert.h>
#include <errno.h>
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/sys.h"
#include "base/thread.h"

#define STMTS_MAX 192
#define WAL_MAX_BYTES "67108864"

struct stmt {
    struct db *db;
    sqlite3_stmt *handle;
    const char *sql;
    int bind_error; /* SQLITE_*, sticky until stmt_end */
};

struct db {
    sqlite3 *handle;
    char *path;
    enum db_sync sync;
    bool is_accepted;
    int n_stmts;
    struct stmt stmts[STMTS_MAX];
};

static int code_of(int sqlite_code)
{
    switch (sqlite_code & 0xff) {
    case SQLITE_NOMEM:
        return ERR_NOMEM;
    case SQLITE_BUSY:
    case SQLITE_LOCKED:
        return ERR_BUSY;
    case SQLITE_CORRUPT:
    case SQLITE_NOTADB:
        return ERR_CORRUPT;
    case SQLITE_FULL:
        return ERR_FULL;
    case SQLITE_TOOBIG:
        return ERR_LIMIT;
    case SQLITE_CONSTRAINT:
    case SQLITE_MISMATCH:
        return ERR_INVAL;
    default:
        return ERR_IO;
    }
}

/* Disk, quota, the limit of a file's size: SQLite has a code for the first only. */
static bool is_full(int errnum)
{
    return errnum == ENOSPC || errnum == EDQUOT || errnum == EFBIG;
}

/* The error of the last call on this connection. */
static int failed(struct db *db, int sqlite_code, struct err *e)
{
    const int last = errno;
    int code = code_of(sqlite_code);
    int errnum = db->handle ? sqlite3_system_errno(db->handle) : 0;
    const char *text = db->handle ? sqlite3_errmsg(db->handle) : sqlite3_errstr(sqlite_code);
    if (code == ERR_FULL)
        return err_set(e, code, "%s: no space left on the device", db->path);
    if (code == ERR_BUSY)
        return err_set(e, code, "%s is held by another program", db->path);
    if (errnum == 0 && is_full(last)) /* a commit's: SQLite has forgotten it */
        errnum = last;
    if (code == ERR_IO && is_full(errnum))
        return err_set(e, ERR_FULL, "%s: %s", db->path, strerror(errnum));
    if (code == ERR_IO && errnum != 0)
        return err_sys(e, errnum, "%s: %s", db->path, text);
    return err_set(e, code, "%s: %s", db->path, text);
}

int db_open(const char *path, struct db **ret, struct err *e)
{
    struct db *db = sys.malloc(sizeof(*db));
    if (!db)
        return err_set(e, ERR_NOMEM, "%s: out of memory", path);
    memset(db, 0, sizeof(*db));
    db->sync = DB_FULL; /* SQLite's own default */
    db->path = strdup(path);
    int rc = 0;
    if (!db->path) {
        rc = err_set(e, ERR_NOMEM, "%s: out of memory", path);
        goto done;
    }
    int flags = SQLITE_OPEN_READWRITE | SQLITE_OPEN_NOMUTEX | SQLITE_OPEN_EXRESCODE;
    int code = sqlite3_open_v2(path, &db->handle, flags, NULL);
    if (code == SQLITE_OK)
        code = sqlite3_db_config(db->handle, SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1, NULL);
    if (code == SQLITE_OK)
        code = sqlite3_busy_timeout(db->handle, DB_BUSY_MS);
    if (code != SQLITE_OK)
        rc = failed(db, code, e);
    else if (sqlite3_db_readonly(db->handle, "main") == 1)
        rc = err_set(e, ERR_IO, "%s can't be written: read-only", path);
done:
    if (rc < 0)
        db_close(db);
    else
        *ret = db;
    return rc;
}

int db_check(struct db *db, struct err *e)
{
    struct stmt *s = db_stmt(db, "PRAGMA quick_check(1)", e);
    int rc = stmt_step(s, e);
    if (rc == 1 && strcmp(column_text(s, 0, NULL), "ok") != 0)
        rc = err_set(e, ERR_CORRUPT, "%s is damaged: %s", db->path, column_text(s, 0, NULL));
    stmt_end(s);
    return rc < 0 ? rc : 0;
}

int db_accept(struct db *db, struct err *e)
{
    /* Before WAL: a new file takes its page size and layout with the first page written. */
    static const char sql[] = "PRAGMA foreign_keys = ON;"
                              "PRAGMA trusted_schema = OFF;"
                              "PRAGMA cell_size_check = ON;"
                              "PRAGMA secure_delete = ON;"
                              "PRAGMA temp_store = MEMORY;"
                              "PRAGMA journal_mode = WAL;"
                              "PRAGMA journal_size_limit = " WAL_MAX_BYTES ";";
    int rc = db_exec(db, sql, e);
    if (rc < 0)
        return rc;
    struct stmt *s = db_stmt(db, "PRAGMA journal_mode", e);
    rc = stmt_step(s, e);
    if (rc == 1 && strcmp(column_text(s, 0, NULL), "wal") != 0)
        rc = err_set(e, ERR_IO, "%s: this file system has no shared memory for SQLite's WAL",
                     db->path);
    stmt_end(s);
    if (rc < 0)
        return rc;
    int code = sqlite3_db_config(db->handle, SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 0, NULL);
    if (code == SQLITE_OK)
        code = sqlite3_db_config(db->handle, SQLITE_DBCONFIG_DEFENSIVE, 1, NULL);
    if (code != SQLITE_OK)
        return failed(db, code, e);
    db->is_accepted = true;
    return 0;
}

void db_close(struct db *db)
{
    if (!db)
        return;
    for (int i = 0; i < db->n_stmts; i++)
        sqlite3_finalize(db->stmts[i].handle);
    if (db->is_accepted) {
        struct err ignored; /* what stays in the WAL is read by the next opener */
        (void)!db_checkpoint(db, true, &ignored);
    }
    sqlite3_close(db->handle);
    free(db->path);
    free(db);
}

const char *db_path(const struct db *db)
{
    return db->path;
}

int db_exec(struct db *db, const char *sql, struct err *e)
{
    errno = 0;
    int code = sqlite3_exec(db->handle, sql, NULL, NULL, NULL);
    return code == SQLITE_OK ? 0 : failed(db, code, e);
}

int db_drop_shadows(struct db *db, const char *name, struct err *e)
{
    static const char *const suffixes[] = {"data", "idx", "content", "docsize", "config"};
    char sql[512];
    int rc = 0;
    /* Defensive mode keeps everybody's hands off these tables. */
    sqlite3_db_config(db->handle, SQLITE_DBCONFIG_DEFENSIVE, 0, NULL);
    for (int i = 0; i < 5 && rc == 0; i++) {
        snprintf(sql, sizeof(sql), "DROP TABLE IF EXISTS %s_%s", name, suffixes[i]);
        rc = db_exec(db, sql, e);
    }
    /* It is opened once more to be dropped, and for that it must have a format (4) and a structure
     * (row 10: no levels, no segments). */
    snprintf(sql, sizeof(sql),
             "CREATE TABLE %s_config (k PRIMARY KEY, v) WITHOUT ROWID;"
             "INSERT INTO %s_config VALUES ('version', 4);"
             "CREATE TABLE %s_data (id INTEGER PRIMARY KEY, block BLOB);"
             "INSERT INTO %s_data VALUES (1, x''), (10, x'00000000000000')",
             name, name, name, name);
    if (rc == 0)
        rc = db_exec(db, sql, e);
    sqlite3_db_config(db->handle, SQLITE_DBCONFIG_DEFENSIVE, 1, NULL);
    return rc;
}

int db_get_int(struct db *db, const char *sql, int64_t *ret, struct err *e)
{
    struct stmt *s = db_stmt(db, sql, e);
    int rc = stmt_step(s, e);
    if (rc == 1)
        *ret = column_int(s, 0);
    stmt_end(s);
    if (rc == 0)
        return err_set(e, ERR_NOTFOUND, "%s: no row for %s", db->path, sql);
    return rc < 0 ? rc : 0;
}

int db_begin(struct db *db, enum db_sync sync, struct err *e)
{
    if (sync != db->sync) {
        int rc = db_exec(
            db, sync == DB_FULL ? "PRAGMA synchronous = FULL" : "PRAGMA synchronous = NORMAL", e);
        if (rc < 0)
            return rc;
        db->sync = sync;
    }
    return stmt_run(db_stmt(db, "BEGIN IMMEDIATE", e), e);
}

int db_begin_now(struct db *db, struct err *e)
{
    sqlite3_busy_timeout(db->handle, 0);
    int rc = db_begin(db, DB_NORMAL, e);
    sqlite3_busy_timeout(db->handle, DB_BUSY_MS);
    return rc;
}

int db_begin_read(struct db *db, struct err *e)
{
    return stmt_run(db_stmt(db, "BEGIN", e), e);
}

int db_end(struct db *db, int rc, struct err *e)
{
    if (rc >= 0) {
        int committed = stmt_run(db_stmt(db, "COMMIT", e), e);
        if (committed < 0)
            rc = committed;
    }
    /* After some errors (no space, no memory) SQLite has rolled back by itself. */
    if (rc < 0 && !sqlite3_get_autocommit(db->handle)) {
        struct err ignored;
        (void)!stmt_run(db_stmt(db, "ROLLBACK", &ignored), &ignored);
    }
    return rc;
}

int db_checkpoint(struct db *db, bool is_truncate, struct err *e)
{
    int mode = is_truncate ? SQLITE_CHECKPOINT_TRUNCATE : SQLITE_CHECKPOINT_PASSIVE;
    sqlite3_busy_timeout(db->handle, DB_BUSY_TIDY_MS);
    errno = 0;
    int code = sqlite3_wal_checkpoint_v2(db->handle, "main", mode, NULL, NULL);
    sqlite3_busy_timeout(db->handle, DB_BUSY_MS);
    return code == SQLITE_OK ? 0 : failed(db, code, e);
}

int db_copy(struct db *db, const char *to, struct err *e)
{
    struct stmt *s = db_stmt(db, "VACUUM INTO ?1", e);
    stmt_str(s, 1, to);
    return stmt_run(s, e);
}

struct stmt *db_stmt(struct db *db, const char *sql, struct err *e)
{
    assert(thread_is(THREAD_HISTORY));
    for (int i = 0; i < db->n_stmts; i++) /* nearly always the same literal */
        if (db->stmts[i].sql == sql)
            return &db->stmts[i];
    for (int i = 0; i < db->n_stmts; i++)
        if (strcmp(db->stmts[i].sql, sql) == 0)
            return &db->stmts[i];
    if (db->n_stmts == STMTS_MAX) {
        err_set(e, ERR_LIMIT, "more than %d different statements", STMTS_MAX);
        return NULL;
    }
    struct stmt *s = &db->stmts[db->n_stmts];
    *s = (struct stmt){.db = db, .sql = sql};
    int code = sqlite3_prepare_v3(db->handle, sql, -1, SQLITE_PREPARE_PERSISTENT, &s->handle, NULL);
    if (code != SQLITE_OK) {
        failed(db, code, e);
        return NULL;
    }
    db->n_stmts++;
    return s;
}

const char *db_sql(const struct db *db, int i)
{
    return i >= 0 && i < db->n_stmts ? db->stmts[i].sql : NULL;
}

static void bound(struct stmt *s, int code)
{
    if (code != SQLITE_OK && s->bind_error == SQLITE_OK)
        s->bind_error = code;
}

void stmt_int(struct stmt *s, int i, int64_t v)
{
    if (s)
        bound(s, sqlite3_bind_int64(s->handle, i, v));
}

void stmt_str(struct stmt *s, int i, const char *v)
{
    stmt_text(s, i, v, v ? strlen(v) : 0);
}

void stmt_text(struct stmt *s, int i, const char *v, size_t n)
{
    if (s)
        bound(s, sqlite3_bind_text64(s->handle, i, v, n, SQLITE_STATIC, SQLITE_UTF8));
}

void stmt_blob(struct stmt *s, int i, const void *v, size_t n)
{
    if (s)
        bound(s, sqlite3_bind_blob64(s->handle, i, v, n, SQLITE_STATIC));
}

int stmt_step(struct stmt *s, struct err *e)
{
    if (!s)
        return e ? e->code : ERR_IO; /* db_stmt has told why */
    int code = s->bind_error;
    if (code != SQLITE_OK)
        return err_set(e, code_of(code), "%s: a value can't be stored: %s", s->db->path,
                       sqlite3_errstr(code));
    errno = 0;
    code = sqlite3_step(s->handle);
    if (code == SQLITE_ROW)
        return 1;
    return code == SQLITE_DONE ? 0 : failed(s->db, code, e);
}

int stmt_run(struct stmt *s, struct err *e)
{
    int rc = stmt_step(s, e);
    stmt_end(s);
    return rc < 0 ? rc : 0;
}

void stmt_end(struct stmt *s)
{
    if (!s)
        return;
    sqlite3_reset(s->handle); /* repeats the step's error, which has been told */
    sqlite3_clear_bindings(s->handle);
    s->bind_error = SQLITE_OK;
}

int64_t column_int(struct stmt *s, int i)
{
    return sqlite3_column_int64(s->handle, i);
}

const char *column_text(struct stmt *s, int i, size_t *ret_n)
{
    const char *text = (const char *)sqlite3_column_text(s->handle, i);
    if (ret_n)
        *ret_n = text ? (size_t)sqlite3_column_bytes(s->handle, i) : 0;
    return text ? text : "";
}

const void *column_blob(struct stmt *s, int i, size_t *ret_n)
{
    const void *data = sqlite3_column_blob(s->handle, i);
    *ret_n = data ? (size_t)sqlite3_column_bytes(s->handle, i) : 0;
    return data;
}

char *column_copy(struct stmt *s, int i, size_t *ret_n, struct arena *a)
{
    size_t n;
    const char *text = column_text(s, i, &n);
    /* SQLite has no memory for the text: not an empty one. */
    if (n == 0 && sqlite3_errcode(s->db->handle) == SQLITE_NOMEM)
        return NULL;
    if (ret_n)
        *ret_n = n;
    return arena_copy(a, text, n);
}

int64_t db_last_row(const struct db *db)
{
    return sqlite3_last_insert_rowid(db->handle);
}

int64_t db_n_changed(const struct db *db)
{
    return sqlite3_changes64(db->handle);
}
