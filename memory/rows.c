/* Lists of message rows: sorted blobs, and paths that are walked up as far as they are needed. */
#include "memory/rows.h"

#include <stdlib.h>
#include <string.h>

#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "rows are stored as they lie in memory, little-endian"
#endif

static int by_row(const void *a, const void *b)
{
    const int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

int rows_sort(const struct memory_rows *rows, struct memory_rows *ret, struct arena *a,
              struct err *e)
{
    if (rows->n > ROWS_MAX)
        return err_set(e, ERR_LIMIT, "a cut names %zu messages: at most %d", rows->n, ROWS_MAX);
    int64_t *v = arena_array(a, rows->n, sizeof(*v));
    if (!v)
        return memory_out(e);
    if (rows->n > 0) {
        memcpy(v, rows->v, rows->n * sizeof(*v));
        qsort(v, rows->n, sizeof(*v), by_row);
    }
    *ret = (struct memory_rows){.v = v, .n = rows->n};
    return 0;
}

void rows_bind(struct stmt *s, int i, const struct memory_rows *sorted)
{
    /* Not NULL: no rows are an empty blob. */
    stmt_blob(s, i, sorted->n > 0 ? (const void *)sorted->v : "", sorted->n * sizeof(int64_t));
}

int rows_read(struct stmt *s, int column, struct memory_rows *ret, struct arena *a, struct err *e)
{
    size_t n;
    const void *bytes = column_blob(s, column, &n);
    if (n % sizeof(int64_t) != 0)
        return err_set(e, ERR_CORRUPT, "history: a list of rows of %zu bytes", n);
    int64_t *v = arena_alloc(a, n);
    if (!v)
        return memory_out(e);
    if (n > 0)
        memcpy(v, bytes, n);
    *ret = (struct memory_rows){.v = v, .n = n / sizeof(int64_t)};
    return 0;
}

bool memory_rows_hold(const struct memory_rows *sorted, int64_t row)
{
    return rows_hold(sorted, row);
}

bool rows_hold(const struct memory_rows *sorted, int64_t row)
{
    return sorted->n > 0 && bsearch(&row, sorted->v, sorted->n, sizeof(row), by_row);
}

static int path_push(struct path *p, int64_t row, struct arena *a, struct err *e)
{
    if (p->n == p->cap) {
        size_t cap = p->cap ? p->cap * 2 : 64;
        int64_t *grown = arena_array(a, cap, sizeof(*grown));
        if (!grown)
            return memory_out(e);
        if (p->n > 0)
            memcpy(grown, p->rows, p->n * sizeof(*grown));
        p->rows = grown;
        p->cap = cap;
    }
    p->rows[p->n++] = row;
    return 0;
}

/* Steps by single look-ups before the rest is read in one go: what a window usually needs. */
#define STEPS_MAX 32

static int too_long(size_t max, struct err *e)
{
    return err_set(e, ERR_LIMIT, "the window is longer than %zu messages", max);
}

/* The rest of the path down to `first`, from all of the conversation's messages there: those of
 * other branches are stepped over. Stops where a parent is missing. */
static int path_scan(struct memory *m, struct path *p, int64_t first, size_t max, struct arena *a,
                     struct err *e)
{
    struct stmt *s = db_stmt(m->db,
                             "SELECT row, parent FROM message WHERE conversation ="
                             " (SELECT conversation FROM message WHERE row = ?1)"
                             " AND row <= ?1 AND row >= ?2 ORDER BY row DESC",
                             e);
    stmt_int(s, 1, p->next);
    stmt_int(s, 2, first);
    int rc;
    while ((rc = stmt_step(s, e)) == 1 && p->next > 0 && p->next >= first) {
        if (column_int(s, 0) != p->next)
            continue;
        rc = p->n >= max ? too_long(max, e) : path_push(p, p->next, a, e);
        if (rc < 0)
            break;
        p->next = column_int(s, 1);
    }
    stmt_end(s);
    return rc < 0 ? rc : 0;
}

int path_walk(struct memory *m, struct path *p, int64_t first, size_t max, struct arena *a,
              struct err *e)
{
    for (size_t steps = 0; p->next > 0 && p->next >= first; steps++) {
        int rc = steps == STEPS_MAX ? path_scan(m, p, first, max, a, e) : 0;
        if (rc < 0 || p->next == 0 || p->next < first)
            return rc;
        if (p->n >= max)
            return too_long(max, e);
        rc = path_push(p, p->next, a, e);
        if (rc == 0)
            rc = message_parent(m, p->next, &p->next, e);
        if (rc < 0)
            return rc;
    }
    return 0;
}

int path_holds(struct memory *m, struct path *p, int64_t row, struct arena *a, struct err *e)
{
    int rc = path_walk(m, p, row, SIZE_MAX, a, e);
    if (rc < 0)
        return rc;
    for (size_t low = 0, high = p->n; low < high;) { /* rows fall */
        const size_t middle = low + (high - low) / 2;
        if (p->rows[middle] == row)
            return 1;
        if (p->rows[middle] > row)
            low = middle + 1;
        else
            high = middle;
    }
    return 0;
}
