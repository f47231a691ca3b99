/*
 * A path's rows, without its texts: which messages a branch consists of.
 *
 * The newest one is kept: the next turn's path is the same and a few rows more. It is only read
 * anew, from the index alone, when another conversation is asked for; a message's parent doesn't
 * change but when a message between them is deleted, and then it is forgotten.
 */
#include "memory/internal.h"

#include <stdlib.h>
#include <string.h>

#include "base/sys.h"
#include "memory/rows.h"

/* Rows above a tip that are looked up one by one, to get to the path that is kept. */
#define STEPS_MAX 64
#define ARENA_BYTES ((size_t)1 << 30)

void path_forget(struct memory *m)
{
    free(m->path.rows);
    m->path = (struct path_kept){.n = 0};
}

static int make_room(struct path_kept *k, size_t n, struct err *e)
{
    if (n <= k->cap)
        return 0;
    const size_t cap = n + n / 2 + STEPS_MAX;
    int64_t *rows = sys.realloc(k->rows, cap * sizeof *rows);
    if (!rows)
        return memory_out(e);
    k->rows = rows;
    k->cap = cap;
    return 0;
}

/* Where `row` stands, counted from 1; 0: nowhere. */
static size_t place_of(const struct path_kept *k, int64_t row)
{
    size_t lo = 0, hi = k->n;
    while (lo < hi) {
        const size_t mid = lo + (hi - lo) / 2;
        if (k->rows[mid] < row)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo < k->n && k->rows[lo] == row ? lo + 1 : 0;
}

/* From `tip` up to a row of the kept path: 1; 0: it isn't near. */
static int go_on(struct memory *m, int64_t tip, struct err *e)
{
    struct path_kept *k = &m->path;
    int64_t above[STEPS_MAX];
    size_t n = 0, at = 0;
    int64_t row = tip;
    while (k->n > 0 && row > 0 && (at = place_of(k, row)) == 0) {
        if (n == STEPS_MAX)
            return 0;
        above[n++] = row;
        int rc = message_parent(m, row, &row, e);
        if (rc < 0)
            return rc;
    }
    int rc = at > 0 ? make_room(k, at + n, e) : 0;
    if (rc < 0 || at == 0)
        return rc;
    for (size_t i = 0; i < n; i++)
        k->rows[at + i] = above[n - 1 - i];
    k->n = at + n;
    return 1;
}

static int read_anew(struct memory *m, int64_t tip, struct err *e)
{
    struct path_kept *k = &m->path;
    struct path p = {.next = tip};
    struct arena a;
    arena_init(&a, ARENA_BYTES);
    int rc = path_walk(m, &p, 0, SIZE_MAX, &a, e);
    if (rc == 0)
        rc = make_room(k, p.n, e);
    if (rc == 0) {
        for (size_t i = 0; i < p.n; i++)
            k->rows[i] = p.rows[p.n - 1 - i];
        k->n = p.n;
    }
    arena_done(&a);
    return rc;
}

int memory_path_rows(struct memory *m, int64_t tip, const int64_t **ret, size_t *ret_n,
                     struct err *e)
{
    int rc = go_on(m, tip, e);
    if (rc == 0)
        rc = read_anew(m, tip, e);
    if (rc < 0)
        return rc;
    *ret = m->path.rows;
    *ret_n = m->path.n;
    return 0;
}
