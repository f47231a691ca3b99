/*
 * A path's rows, without its texts: which messages a branch consists of.
 */
#include "memory/internal.h"

#include "base/sys.h"

/* 1: two messages of the conversation have one parent. */
static int has_branches(struct memory *m, int64_t tip, struct err *e)
{
    struct stmt *s = db_stmt(m->db,
                             "SELECT 1 FROM message WHERE conversation ="
                             " (SELECT conversation FROM message WHERE row = ?1)"
                             " GROUP BY parent HAVING count(*) > 1 LIMIT 1",
                             e);
    stmt_int(s, 1, tip);
    int rc = stmt_step(s, e);
    stmt_end(s);
    return rc;
}

static int count_path(struct memory *m, int64_t tip, int64_t *ret, struct err *e)
{
    struct stmt *s = db_stmt(m->db,
                             "WITH RECURSIVE up (row, parent) AS ("
                             " SELECT row, parent FROM message WHERE row = ?1 UNION ALL"
                             " SELECT m.row, m.parent FROM up JOIN message m ON m.row = up.parent)"
                             " SELECT count(*) FROM up",
                             e);
    stmt_int(s, 1, tip);
    int rc = stmt_step(s, e);
    *ret = rc == 1 ? column_int(s, 0) : 0;
    stmt_end(s);
    return rc < 0 ? rc : 0;
}

int memory_path_rows(struct memory *m, int64_t tip, const int64_t **ret, size_t *ret_n,
                     struct arena *a, struct err *e)
{
    int64_t n_max;
    size_t n = 0;
    *ret = NULL;
    *ret_n = 0;
    int rc = has_branches(m, tip, e);
    if (rc <= 0)
        return rc;
    if ((rc = count_path(m, tip, &n_max, e)) < 0)
        return rc;
    int64_t *rows = arena_array(a, (size_t)n_max + 1, sizeof *rows);
    if (!rows)
        return memory_out(e);
    struct stmt *s = db_stmt(m->db,
                             "WITH RECURSIVE up (row, parent) AS ("
                             " SELECT row, parent FROM message WHERE row = ?1 UNION ALL"
                             " SELECT m.row, m.parent FROM up JOIN message m ON m.row = up.parent)"
                             " SELECT row FROM up ORDER BY row",
                             e);
    stmt_int(s, 1, tip);
    while ((rc = stmt_step(s, e)) == 1 && n < (size_t)n_max)
        rows[n++] = column_int(s, 0);
    stmt_end(s);
    if (rc < 0)
        return rc;
    *ret = rows;
    *ret_n = n;
    return 0;
}
