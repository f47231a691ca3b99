/*
 * SQLite behind a small door: the only file that includes sqlite3.h is db.c.
 *
 * One connection, used by one thread. Statements are prepared once and kept for the connection's
 * life, found again by their SQL:
 *
 *     struct stmt *s = db_stmt(db, "SELECT text FROM message WHERE row = ?1", e);
 *     stmt_int(s, 1, row);
 *     int rc = stmt_step(s, e);          1: a row, 0: none (any more), or an error
 *     … column_text(s, 0, &n) …          borrowed until the next step or end
 *     stmt_end(s);
 *
 * Failures of db_stmt (NULL) and of binding stick: stmt_step then reports them, so that a caller
 * checks once. Every write stands between db_begin and db_end; a begin takes the write lock at once
 * (BEGIN IMMEDIATE), because a read that turns into a write can't wait for anybody.
 */
#ifndef HEARTH_MEMORY_DB_H
#define HEARTH_MEMORY_DB_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/err.h"

/* How long a write waits for another program that holds the database, before ERR_BUSY. Longer than
 * the 3 s that a person's open transaction is forgiven, shorter than the 5 s that stopping may
 * take. */
#define DB_BUSY_MS 4000
/* A checkpoint that only tidies up waits less: everybody's turn stands still meanwhile. */
#define DB_BUSY_TIDY_MS 200

struct db;
struct stmt;

enum db_sync {
    DB_NORMAL, /* a power cut may lose it, a crash of the daemon doesn't */
    DB_FULL,   /* on disk when db_end returns */
};

/*
 * Opens an existing file. Until db_accept, closing leaves its bytes (and those of its -wal) as they
 * are. ERR_NOTFOUND, ERR_IO (not writable …), ERR_CORRUPT, ERR_BUSY.
 */
int db_open(const char *path, struct db **ret, struct err *e) MUST_USE;
/* The file is ours: WAL, secure_delete, foreign keys and the limits are set. */
int db_accept(struct db *db, struct err *e) MUST_USE;
/* SQLite's quick_check: seconds a gigabyte. ERR_CORRUPT. */
int db_check(struct db *db, struct err *e) MUST_USE;
/* NULL is fine. An accepted database is checkpointed (TRUNCATE), if no other program is in the
 * way. */
void db_close(struct db *db);
const char *db_path(const struct db *db);

/* Drops the tables behind an FTS5 table that SQLite itself can't drop any more, so that DROP TABLE
 * works. Within a transaction. `name`: letters and underscores. */
int db_drop_shadows(struct db *db, const char *name, struct err *e) MUST_USE;

/* Statements without parameters or rows. Several may be joined by ';'. */
int db_exec(struct db *db, const char *sql, struct err *e) MUST_USE;
/* The first column of the first row of a statement without parameters; ERR_NOTFOUND without
 * rows. */
int db_get_int(struct db *db, const char *sql, int64_t *ret, struct err *e) MUST_USE;

int db_begin(struct db *db, enum db_sync sync, struct err *e) MUST_USE;
/* As db_begin, but ERR_BUSY at once when another program is writing. */
int db_begin_now(struct db *db, struct err *e) MUST_USE;
/* Several reads of one moment; also ten times as fast as each by itself. db_end ends it. */
int db_begin_read(struct db *db, struct err *e) MUST_USE;
/* rc >= 0: commits and returns rc, or the commit's error. rc < 0: rolls back and returns rc. */
int db_end(struct db *db, int rc, struct err *e) MUST_USE;

/* The WAL's pages into the database: TRUNCATE (nothing of them stays in the -wal) or PASSIVE.
 * ERR_BUSY when a reader is in the way. */
int db_checkpoint(struct db *db, bool is_truncate, struct err *e) MUST_USE;
/* A consistent copy of the database into the file `to`, which must be empty or not exist. */
int db_copy(struct db *db, const char *to, struct err *e) MUST_USE;

/* `sql` must live as long as the connection (a literal). NULL: *e says why; the calls below take
 * NULL. */
struct stmt *db_stmt(struct db *db, const char *sql, struct err *e);
/* The i-th statement that was prepared so far, for tests; NULL: there are no more. */
const char *db_sql(const struct db *db, int i);
/* Parameters, from 1. A NULL text or blob binds NULL; bytes are borrowed until stmt_end. */
void stmt_int(struct stmt *s, int i, int64_t v);
void stmt_str(struct stmt *s, int i, const char *v);
void stmt_text(struct stmt *s, int i, const char *v, size_t n);
void stmt_blob(struct stmt *s, int i, const void *v, size_t n);
int stmt_step(struct stmt *s, struct err *e) MUST_USE;
/* Steps a statement that gives no rows and ends it: 0 or an error. */
int stmt_run(struct stmt *s, struct err *e) MUST_USE;
void stmt_end(struct stmt *s);

/* Columns, from 0. */
int64_t column_int(struct stmt *s, int i);
/* Never NULL. *ret_n may be NULL; the bytes may hold NULs. */
const char *column_text(struct stmt *s, int i, size_t *ret_n);
const void *column_blob(struct stmt *s, int i, size_t *ret_n); /* NULL when empty */
/* A copy in the arena; NULL: no memory. */
char *column_copy(struct stmt *s, int i, size_t *ret_n, struct arena *a);

int64_t db_last_row(const struct db *db);
int64_t db_n_changed(const struct db *db); /* by the last statement, without cascades */

#endif
