/*
 * Many messages by their rows, each within one read: by itself each takes and gives back the
 * database's lock, which is half of what it costs.
 */
#include "memory/internal.h"

static int text_bytes(struct memory *m, int64_t row, size_t *ret, struct err *e)
{
    struct stmt *s =
        db_stmt(m->db, "SELECT length(CAST(text AS BLOB)) FROM message WHERE row = ?1", e);
    stmt_int(s, 1, row);
    int rc = stmt_step(s, e);
    *ret = rc == 1 ? (size_t)column_int(s, 0) : 0;
    stmt_end(s);
    return rc < 0 ? rc : 0;
}

static int fit(struct memory *m, const struct memory_rows_span *span, size_t *ret_n, struct err *e)
{
    size_t n_bytes = 0, n = 0;
    int rc = 0;
    while (rc == 0 && n < span->n && n_bytes < span->max_bytes) {
        size_t bytes;
        rc = text_bytes(m, span->rows[span->from_end ? span->n - 1 - n : n], &bytes, e);
        n_bytes += rc == 0 ? bytes : 0;
        n++;
    }
    *ret_n = n;
    return rc;
}

int memory_rows_fit(struct memory *m, const struct memory_rows_span *span, size_t *ret_n,
                    struct err *e)
{
    size_t n = 0;
    int rc = db_begin_read(m->db, e);
    if (rc < 0)
        return rc;
    rc = db_end(m->db, fit(m, span, &n, e), e);
    if (rc == 0)
        *ret_n = n;
    return rc;
}

static int read_span(struct memory *m, const struct memory_rows_span *span,
                     struct memory_messages *ret, struct arena *a, struct err *e)
{
    size_t n;
    int rc = fit(m, span, &n, e);
    struct memory_message *v = rc == 0 ? arena_array(a, n, sizeof(*v)) : NULL;
    const int64_t *rows = span->rows + (span->from_end && rc == 0 ? span->n - n : 0);
    if (rc == 0 && !v)
        return memory_out(e);
    for (size_t i = 0; rc == 0 && i < n; i++)
        rc = memory_message_by_row(m, rows[i], &v[i], a, e);
    if (rc == 0)
        *ret = (struct memory_messages){.v = v, .n = n};
    return rc;
}

int memory_messages_of(struct memory *m, const struct memory_rows_span *span,
                       struct memory_messages *ret, struct arena *a, struct err *e)
{
    int rc = db_begin_read(m->db, e);
    return rc < 0 ? rc : db_end(m->db, read_span(m, span, ret, a, e), e);
}
