/*
 * The store as a whole: opening, closing, tidying up. What it holds is in conversations.c,
 * messages.c, answers.c, tokens.c, responses.c and replies.c, the only writers of their tables;
 * SQLite is behind db.c.
 */
#include "memory/memory.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/sys.h"
#include "memory/internal.h"
#include "memory/migrate.h"
#include "memory/schema.h"
#include "memory/vectors.h"
#include "memory/search.h"

int memory_out(struct err *e)
{
    return err_set(e, ERR_NOMEM, "history: out of memory");
}

/* What they had written so far is found from now on. */
static int index_unfinished(struct memory *m, struct err *e)
{
    int rc;
    struct stmt *s = db_stmt(m->db, "SELECT row, text FROM message WHERE status = 1", e);
    while ((rc = stmt_step(s, e)) == 1) {
        struct index_message msg = {.row = column_int(s, 0)};
        msg.text = column_text(s, 1, &msg.n_text);
        rc = index_add_messages(m, &msg, 1, e);
        if (rc < 0)
            break;
    }
    stmt_end(s);
    return rc;
}

/* Whoever was answering when the daemon died isn't any more. */
static int mark_interrupted(struct memory *m, struct err *e)
{
    int64_t n;
    int rc = db_get_int(m->db, "SELECT count(*) FROM message WHERE status = 1", &n, e);
    if (rc < 0 || n == 0)
        return rc;
    rc = db_begin(m->db, DB_FULL, e);
    if (rc < 0)
        return rc;
    rc = index_unfinished(m, e);
    if (rc < 0)
        return db_end(m->db, rc, e);
    struct stmt *s =
        db_stmt(m->db, "UPDATE message SET status = ?1, finish = 'error' WHERE status = 1", e);
    stmt_int(s, 1, MEMORY_INTERRUPTED);
    return db_end(m->db, stmt_run(s, e), e);
}

int memory_open(const char *path, struct memory **ret, struct err *e)
{
    static const struct migrate_plan plan = {.steps = schema_steps, .n_steps = SCHEMA_VERSION};
    struct memory *m = sys.malloc(sizeof(*m));
    if (!m)
        return memory_out(e);
    *m = (struct memory){.db = NULL};
    int rc = migrate_open(path, &plan, &m->db, e);
    if (rc == 0)
        rc = index_open(m, e);
    if (rc == 0)
        rc = mark_interrupted(m, e);
    if (rc < 0)
        memory_close(m);
    else
        *ret = m;
    return rc;
}

void memory_close(struct memory *m)
{
    if (!m)
        return;
    index_close(m);
    vectors_close(m);
    path_save(m);
    path_forget(m);
    db_close(m->db);
    free(m);
}

void store_wipe(struct memory *m)
{
    struct err ignored;
    index_tidy(m);
    m->has_remains = db_checkpoint(m->db, true, &ignored) < 0 || m->index.has_removed;
}

void memory_idle(struct memory *m)
{
    struct err ignored;
    if (m->has_remains || m->index.has_removed)
        store_wipe(m);
    path_save(m);
    index_work(m);
    if (!memory_has_work(m))
        (void)!db_checkpoint(m->db, false, &ignored);
}

bool memory_has_work(const struct memory *m)
{
    return (m->index.is_damaged || m->index.fill > 0) && !m->index.is_resting;
}

bool memory_has_remains(const struct memory *m)
{
    return m->has_remains;
}

static int64_t file_bytes(const char *path)
{
    static const char *const suffixes[] = {"", "-wal", "-shm"};
    int64_t sum = 0;
    for (int i = 0; i < 3; i++) {
        char name[4096 + 8];
        struct stat st;
        int n = snprintf(name, sizeof(name), "%s%s", path, suffixes[i]);
        /* stat, never open: closing a descriptor of ours would drop SQLite's locks. */
        if (n > 0 && (size_t)n < sizeof(name) && stat(name, &st) == 0)
            sum += st.st_size;
    }
    return sum;
}

int memory_totals(struct memory *m, struct memory_totals *ret, struct err *e)
{
    struct memory_totals t = {0};
    int rc = db_get_int(m->db, "SELECT count(*) FROM conversation WHERE is_hidden = 0",
                        &t.n_conversations, e);
    if (rc == 0)
        rc = db_get_int(m->db, "SELECT ifnull(sum(n_messages), 0) FROM conversation",
                        &t.n_messages, e);
    if (rc < 0)
        return rc;
    t.file_bytes = file_bytes(db_path(m->db));
    *ret = t;
    return 0;
}

int memory_check(struct memory *m, struct err *e)
{
    return db_check(m->db, e);
}
