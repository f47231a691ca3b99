/*
 * The full-text index: one row of message_fts for each message that is whole.
 *
 *      message_fts   rowid = message.row
 *                    scope   "o<hash of the owner> c<conversation>"
 *                    terms   the message's text as segment.h gives it
 *      search_state  segmenter: SEGMENT_VERSION that filled it; fill: rows 1 … fill are still to do
 *
 *      1 ············ fill │ fill + 1 ············ newest
 *      to be filled, from  │ indexed with their messages
 *      the right, in pieces│
 *
 * An ordinary FTS5 table with a built-in tokenizer, so that any program with SQLite can read, write
 * and check the file; no triggers. Writes stand in a savepoint of their own: FTS5 flushes when that
 * is released, so that damage shows there, where the message can still be kept without its terms,
 * and not at the commit.
 *
 * Deleting: FTS5 (before 3.42) leaves the words of deleted rows in old segments until these are
 * merged, so a deletion is followed by 'optimize'. When that can't be done, the whole index goes.
 */
#include "memory/index.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "base/sys.h"
#include "memory/internal.h"
#include "memory/schema.h"
#include "memory/vectors.h"

#define PIECE_ROWS 200
#define PIECE_BYTES ((size_t)256 << 10)
/* Terms can be three times the text (each CJK character twice, joined words twice). */
#define TERMS_MAX (SEGMENT_TEXT_MAX * 4)

void index_owner_scope(const char *owner, char ret[INDEX_SCOPE_BYTES])
{
    uint8_t hash[HASH_BYTES];
    hash_of(owner, strlen(owner), hash);
    ret[0] = 'o';
    hex_write(hash, 16, ret + 1);
}

void index_conversation_scope(int64_t row, char ret[INDEX_SCOPE_BYTES])
{
    snprintf(ret, INDEX_SCOPE_BYTES, "c%lld", (long long)row);
}

/* A page of nonsense may ask SQLite for more bytes than it ever gives out, which it calls out of
 * memory, too: it isn't, when there is plenty. */
#define PLENTY ((size_t)4 << 20)

static bool is_memory_short(void)
{
    void *p = sys.malloc(PLENTY);
    const bool is_short = !p;
    free(p);
    return is_short;
}

bool index_failed(struct memory *m, int rc)
{
    if (rc >= 0 || rc == ERR_FULL || rc == ERR_BUSY || (rc == ERR_NOMEM && is_memory_short()))
        return false;
    m->index.is_damaged = true;
    return true;
}

/* 0, also for damage. */
static int forgive(struct memory *m, int rc)
{
    return index_failed(m, rc) ? 0 : rc;
}

static int insert(struct memory *m, const struct index_message *msg, struct err *e)
{
    char owner[INDEX_SCOPE_BYTES] = "", conversation[INDEX_SCOPE_BYTES] = "";
    char scope[2 * INDEX_SCOPE_BYTES];
    struct stmt *s = db_stmt(m->db,
                             "SELECT c.owner, c.row FROM message m JOIN conversation c"
                             " ON c.row = m.conversation WHERE m.row = ?1",
                             e);
    stmt_int(s, 1, msg->row);
    int rc = stmt_step(s, e);
    if (rc == 1) {
        index_owner_scope(column_text(s, 0, NULL), owner);
        index_conversation_scope(column_int(s, 1), conversation);
    }
    stmt_end(s);
    if (rc <= 0)
        return rc;
    int n = snprintf(scope, sizeof(scope), "%s %s", owner, conversation);
    struct buf *terms = &m->index.terms;
    buf_clear(terms);
    segment_text(m->index.segmenter, terms, msg->text, msg->n_text);
    rc = buf_error(terms);
    if (rc < 0)
        return memory_out(e);
    /* REPLACE: an answer may have begun before the index was reset and ended since. */
    s = db_stmt(m->db,
                "INSERT OR REPLACE INTO message_fts (rowid, scope, terms) VALUES (?1, ?2, ?3)", e);
    stmt_int(s, 1, msg->row);
    stmt_text(s, 2, scope, (size_t)n);
    stmt_text(s, 3, terms->data ? terms->data : "", terms->len);
    return stmt_run(s, e);
}

/* Ends the savepoint. Damage while FTS5 flushes its terms shows here. */
static int release(struct memory *m, int rc, struct err *e)
{
    if (rc >= 0)
        rc = stmt_run(db_stmt(m->db, "RELEASE search", e), e);
    if (rc >= 0)
        return rc;
    struct err ignored; /* after some errors the whole transaction is gone, and it with it */
    (void)!stmt_run(db_stmt(m->db, "ROLLBACK TO search", &ignored), &ignored);
    (void)!stmt_run(db_stmt(m->db, "RELEASE search", &ignored), &ignored);
    return rc;
}

/* Pages that have lost their bytes are whole to FTS5: of messages that nobody can find. So what the
 * table has first and last must be found by its scope. */
static int check_ends(struct memory *m, struct err *e)
{
    struct stmt *s =
        db_stmt(m->db,
                "SELECT 1 FROM message_fts k WHERE k.rowid IN"
                " ((SELECT rowid FROM message_fts ORDER BY rowid LIMIT 1),"
                "  (SELECT rowid FROM message_fts ORDER BY rowid DESC LIMIT 1))"
                " AND NOT EXISTS (SELECT 1 FROM message_fts f"
                "  WHERE f.message_fts MATCH 'scope : (' || k.scope || ')' AND f.rowid = k.rowid)",
                e);
    const int rc = stmt_step(s, e);
    stmt_end(s);
    return rc == 1 ? err_set(e, ERR_CORRUPT, "the index doesn't find what it has") : rc;
}

/* Not at the opening: what is noticed then is made good before anybody is told of it. */
void index_check(struct memory *m)
{
    struct err ignored;
    if (m->index.is_checked || m->index.is_damaged)
        return;
    const int rc = check_ends(m, &ignored);
    m->index.is_checked = rc == 0;
    (void)index_failed(m, rc);
}

int index_add_messages(struct memory *m, const struct index_message *v, size_t n, struct err *e)
{
    m->index.is_resting = false;
    for (size_t i = 0; i < n; i++)
        vectors_note_message(m, v[i].row);
    if (m->index.is_damaged)
        return 0; /* the reset will find them */
    struct err first = {0};
    int rc = stmt_run(db_stmt(m->db, "SAVEPOINT search", e), e);
    if (rc < 0)
        return rc;
    for (size_t i = 0; rc >= 0 && i < n; i++)
        rc = insert(m, &v[i], &first);
    rc = release(m, rc, &first);
    if (rc < 0 && e)
        *e = first;
    return forgive(m, rc);
}

static int remove_by(struct memory *m, const char *sql, int64_t row, struct err *e)
{
    m->index.has_removed = true;
    if (m->index.is_damaged)
        return 0;
    struct err first = {0};
    int rc = stmt_run(db_stmt(m->db, "SAVEPOINT search", e), e);
    if (rc < 0)
        return rc;
    struct stmt *s = db_stmt(m->db, sql, &first);
    stmt_int(s, 1, row);
    rc = release(m, stmt_run(s, &first), &first);
    if (rc < 0 && e)
        *e = first;
    return forgive(m, rc);
}

int index_remove_message(struct memory *m, int64_t row, struct err *e)
{
    vectors_forget_message(m, row);
    return remove_by(m, "DELETE FROM message_fts WHERE rowid = ?1", row, e);
}

int index_remove_conversation(struct memory *m, int64_t row, struct err *e)
{
    vectors_forget_conversation(m, row);
    return remove_by(m,
                     "DELETE FROM message_fts WHERE rowid IN"
                     " (SELECT row FROM message WHERE conversation = ?1)",
                     row, e);
}

/* Within a transaction. */
static int make_empty(struct memory *m, struct err *e)
{
    int rc = db_exec(m->db, "DROP TABLE IF EXISTS message_fts;" SCHEMA_SEARCH, e);
    if (rc < 0)
        return rc;
    struct stmt *s = db_stmt(m->db,
                             "INSERT OR REPLACE INTO search_state (row, segmenter, fill)"
                             " SELECT 1, ?1, ifnull(max(row), 0) FROM message",
                             e);
    stmt_int(s, 1, SEGMENT_VERSION);
    return stmt_run(s, e);
}

static int read_state(struct memory *m, int64_t *ret_segmenter, struct err *e)
{
    struct stmt *s = db_stmt(m->db, "SELECT segmenter, fill FROM search_state WHERE row = 1", e);
    int rc = stmt_step(s, e);
    *ret_segmenter = rc == 1 ? column_int(s, 0) : 0;
    if (rc == 1)
        m->index.fill = column_int(s, 1);
    stmt_end(s);
    return rc < 0 ? rc : 0;
}

/* Throws the index away; it is filled again in pieces. */
static int reset(struct memory *m, struct err *e)
{
    int64_t ignored;
    int rc = db_begin(m->db, DB_NORMAL, e);
    if (rc < 0)
        return rc;
    rc = make_empty(m, e);
    if (rc < 0 && rc != ERR_BUSY && rc != ERR_FULL) {
        /* A table of FTS5's is gone or unreadable, and with it the way to drop the others. */
        struct err second;
        if (db_drop_shadows(m->db, "message_fts", &second) == 0)
            rc = make_empty(m, e);
    }
    rc = db_end(m->db, rc, e);
    if (rc == 0)
        rc = read_state(m, &ignored, e);
    if (rc == 0)
        m->index.is_damaged = false;
    return rc;
}

int index_open(struct memory *m, struct err *e)
{
    int64_t segmenter = 0;
    buf_init(&m->index.terms, TERMS_MAX);
    m->index.segmenter = segmenter_new();
    if (!m->index.segmenter)
        return memory_out(e);
    int rc = read_state(m, &segmenter, e);
    if (rc == 0 && segmenter != SEGMENT_VERSION)
        rc = reset(m, e);
    /* Without its index the history still opens. */
    return forgive(m, rc);
}

void index_close(struct memory *m)
{
    segmenter_free(m->index.segmenter);
    buf_done(&m->index.terms);
}

void index_tidy(struct memory *m)
{
    struct err ignored;
    if (!m->index.has_removed)
        return;
    int rc = m->index.is_damaged ? ERR_CORRUPT : db_begin(m->db, DB_NORMAL, &ignored);
    if (rc == 0) {
        struct stmt *s =
            db_stmt(m->db, "INSERT INTO message_fts (message_fts) VALUES ('optimize')", &ignored);
        rc = db_end(m->db, stmt_run(s, &ignored), &ignored);
    }
    if (index_failed(m, rc))
        rc = reset(m, &ignored);
    m->index.has_removed = rc < 0;
}

/* Indexes rows from `fill` down; *ret_fill: what is left. Within a transaction. */
static int fill_piece(struct memory *m, int64_t *ret_fill, struct err *e)
{
    size_t n_bytes = 0;
    int rc = 0, n_rows = 0;
    int64_t fill = m->index.fill;
    struct stmt *s = db_stmt(m->db,
                             "SELECT row, text FROM message"
                             " WHERE row <= ?1 AND status <> 1 ORDER BY row DESC LIMIT ?2",
                             e);
    stmt_int(s, 1, fill);
    stmt_int(s, 2, PIECE_ROWS);
    while (n_bytes < PIECE_BYTES && (rc = stmt_step(s, e)) == 1) {
        struct index_message msg = {.row = column_int(s, 0)};
        msg.text = column_text(s, 1, &msg.n_text);
        rc = insert(m, &msg, e);
        if (rc < 0)
            break;
        fill = msg.row - 1;
        n_bytes += msg.n_text;
        n_rows++;
    }
    stmt_end(s);
    if (rc < 0)
        return rc;
    *ret_fill = n_rows < PIECE_ROWS && n_bytes < PIECE_BYTES ? 0 : fill;
    s = db_stmt(m->db, "UPDATE search_state SET fill = ?1 WHERE row = 1", e);
    stmt_int(s, 1, *ret_fill);
    return stmt_run(s, e);
}

void index_work(struct memory *m)
{
    struct err ignored;
    int64_t fill = m->index.fill;
    if (m->index.is_resting)
        return;
    if (m->index.is_damaged) {
        m->index.is_resting = reset(m, &ignored) < 0;
        return;
    }
    if (fill == 0)
        return;
    int rc = db_begin_now(m->db, &ignored);
    if (rc == 0)
        rc = db_end(m->db, fill_piece(m, &fill, &ignored), &ignored);
    if (rc == 0)
        m->index.fill = fill;
    else if (!index_failed(m, rc))
        m->index.is_resting = true; /* no room, or somebody else is writing */
}
