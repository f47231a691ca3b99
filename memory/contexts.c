/*
 * Injected text: what is rendered before the words of a message, and where it came from.
 *
 * It is a row beside the message, never part of it: a person's words stay what they were, nothing
 * recalled is recalled again, and an answer's regeneration finds the same text. Sources are rows of
 * their own, so that a deleted message finds the contexts that quote it.
 */
#include <string.h>

#include "memory/internal.h"
#include "memory/window.h"

static int check_source(struct memory *m, int64_t message, const struct memory_source *source,
                        struct err *e)
{
    if (source->kind < MEMORY_RECALLED || source->kind > MEMORY_NOTE || source->tokens < 0)
        return err_set(e, ERR_INVAL, "a source of kind %d with %d tokens", (int)source->kind,
                       source->tokens);
    if (source->kind == MEMORY_NOTE)
        return 0;
    struct stmt *s = db_stmt(m->db,
                             "SELECT 1 FROM message q JOIN message m USING (conversation)"
                             " WHERE q.row = ?1 AND m.row = ?2",
                             e);
    stmt_int(s, 1, source->row);
    stmt_int(s, 2, message);
    int rc = stmt_step(s, e);
    stmt_end(s);
    if (rc == 0)
        return err_set(e, ERR_NOTFOUND, "message %lld, quoted, is not in the conversation",
                       (long long)source->row);
    return rc < 0 ? rc : 0;
}

static int store_source(struct memory *m, int64_t message, size_t place,
                        const struct memory_source *source, struct err *e)
{
    int rc = check_source(m, message, source, e);
    if (rc < 0)
        return rc;
    struct stmt *s = db_stmt(m->db,
                             "INSERT INTO context_source (message, place, kind, source, tokens)"
                             " VALUES (?1, ?2, ?3, ?4, ?5)",
                             e);
    stmt_int(s, 1, message);
    stmt_int(s, 2, (int64_t)place);
    stmt_int(s, 3, source->kind);
    stmt_int(s, 4, source->row);
    stmt_int(s, 5, source->tokens);
    return stmt_run(s, e);
}

static int remove_context(struct memory *m, int64_t message, struct err *e)
{
    struct stmt *s = db_stmt(m->db, "DELETE FROM message_context WHERE message = ?1", e);
    stmt_int(s, 1, message);
    return stmt_run(s, e);
}

int context_store(struct memory *m, int64_t message, const struct memory_context *c, struct err *e)
{
    const size_t n_text = c->text ? c->n_text : 0;
    if (c->n_sources > MEMORY_SOURCES_MAX)
        return err_set(e, ERR_LIMIT, "injected text has %zu sources: at most %d", c->n_sources,
                       MEMORY_SOURCES_MAX);
    int rc = remove_context(m, message, e);
    if (rc < 0 || (n_text == 0 && c->n_sources == 0))
        return rc;
    struct stmt *s =
        db_stmt(m->db,
                "INSERT INTO message_context (message, text) SELECT row, ?2 FROM message"
                " WHERE row = ?1",
                e);
    stmt_int(s, 1, message);
    stmt_text(s, 2, c->text ? c->text : "", n_text);
    rc = stmt_run(s, e);
    if (rc == 0 && db_n_changed(m->db) == 0)
        rc = err_set(e, ERR_NOTFOUND, "message %lld was deleted", (long long)message);
    for (size_t i = 0; rc == 0 && i < c->n_sources; i++)
        rc = store_source(m, message, i, &c->sources[i], e);
    return rc;
}

int memory_context_set(struct memory *m, int64_t message, const struct memory_context *c,
                       struct err *e)
{
    int rc = db_begin(m->db, DB_FULL, e);
    return rc < 0 ? rc : db_end(m->db, context_store(m, message, c, e), e);
}

static int read_sources(struct memory *m, int64_t message, struct memory_context *ret,
                        struct arena *a, struct err *e)
{
    struct memory_source list[MEMORY_SOURCES_MAX];
    size_t n = 0;
    struct stmt *s = db_stmt(
        m->db, "SELECT kind, source, tokens FROM context_source WHERE message = ?1 ORDER BY place",
        e);
    stmt_int(s, 1, message);
    int rc;
    while ((rc = stmt_step(s, e)) == 1 && n < MEMORY_SOURCES_MAX)
        list[n++] = (struct memory_source){
            .kind = (enum memory_source_kind)column_int(s, 0),
            .row = column_int(s, 1),
            .tokens = (int)column_int(s, 2),
        };
    stmt_end(s);
    if (rc < 0)
        return rc;
    struct memory_source *sources = arena_array(a, n, sizeof(*sources));
    if (!sources)
        return memory_out(e);
    memcpy(sources, list, n * sizeof(*sources));
    ret->sources = sources;
    ret->n_sources = n;
    return 0;
}

int memory_context_get(struct memory *m, int64_t message, struct memory_context *ret,
                       struct arena *a, struct err *e)
{
    struct memory_context c = {.text = NULL};
    struct stmt *s = db_stmt(m->db, "SELECT text FROM message_context WHERE message = ?1", e);
    stmt_int(s, 1, message);
    int rc = stmt_step(s, e);
    if (rc == 1)
        c.text = column_copy(s, 0, &c.n_text, a);
    stmt_end(s);
    if (rc == 1)
        rc = c.text ? read_sources(m, message, &c, a, e) : memory_out(e);
    if (rc == 0)
        *ret = c;
    return rc;
}
