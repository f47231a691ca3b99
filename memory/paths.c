/*
 * A path's rows, without its texts: which messages a branch consists of.
 *
 * The newest one is kept: the next turn's path is the same and a few rows more. It is only read
 * anew, from the index alone, when another conversation is asked for; a message's parent doesn't
 * change but when a message between them is deleted, and then it is forgotten.
 *
 * A long one (300 ns a row) is saved beside its conversation, so that the first turn after a start
 * reads but its end:
 *
 *      root ─ … … … … … … … … … ─ tip of the saved one ─ … ─ tip
 *      ╰── one blob: each row as ──╯                    ╰ walked ╯
 *          the step from the last,
 *          seven bits a byte, the lowest first; all but its last byte have the eighth bit
 *
 * It is made from the messages alone and goes, in the same transaction, when one is deleted; it is
 * written when PATHS_SAVE_ROWS of the path aren't in it, while idle and at a stop.
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
static size_t place_of(const int64_t *rows, size_t n, int64_t row)
{
    size_t lo = 0, hi = n;
    while (lo < hi) {
        const size_t mid = lo + (hi - lo) / 2;
        if (rows[mid] < row)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo < n && rows[lo] == row ? lo + 1 : 0;
}

/* From `tip` up to a row of the kept path: 1; 0: it isn't near. */
static int go_on(struct memory *m, int64_t tip, struct err *e)
{
    struct path_kept *k = &m->path;
    int64_t above[STEPS_MAX];
    size_t n = 0, at = 0;
    int64_t row = tip;
    while (k->n > 0 && row > 0 && (at = place_of(k->rows, k->n, row)) == 0) {
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
    if (k->n_saved > at)
        k->n_saved = at;
    return 1;
}

/* ---- what is saved ---- */

#define STEP_BYTES 10 /* at most, of seven bits */

struct saved {
    int64_t *rows; /* [n] ascending, in an arena */
    size_t n;
    size_t at; /* of them, the first, are of the path that is read */
};

/* Rows of a blob; those of one that can't be right are none. */
static int decode(const uint8_t *bytes, size_t n_bytes, struct saved *ret, struct arena *a,
                  struct err *e)
{
    int64_t *rows = arena_array(a, n_bytes + 1, sizeof *rows), last = 0;
    size_t n = 0;
    if (!rows)
        return memory_out(e);
    for (size_t i = 0; i < n_bytes;) {
        uint64_t step = 0;
        unsigned shift = 0;
        bool has_more = true;
        for (; has_more && i < n_bytes && shift < 7 * STEP_BYTES; shift += 7) {
            step |= (uint64_t)(bytes[i] & 0x7F) << shift;
            has_more = (bytes[i++] & 0x80) != 0;
        }
        if (has_more || step == 0 || step > (uint64_t)(INT64_MAX - last)) {
            n = 0;
            break;
        }
        last += (int64_t)step;
        rows[n++] = last;
    }
    *ret = (struct saved){.rows = rows, .n = n};
    return 0;
}

static size_t encode(const int64_t *rows, size_t n, uint8_t *to)
{
    size_t n_bytes = 0;
    int64_t last = 0;
    for (size_t i = 0; i < n; i++) {
        uint64_t step = (uint64_t)(rows[i] - last);
        for (; step > 0x7F; step >>= 7)
            to[n_bytes++] = (uint8_t)(step | 0x80);
        to[n_bytes++] = (uint8_t)step;
        last = rows[i];
    }
    return n_bytes;
}

/* Of the conversation that the message is of; n 0: none. */
static int read_saved(struct memory *m, int64_t tip, struct saved *ret, struct arena *a,
                      struct err *e)
{
    struct stmt *s = db_stmt(m->db,
                             "SELECT steps FROM path_saved WHERE conversation ="
                             " (SELECT conversation FROM message WHERE row = ?1)",
                             e);
    size_t n = 0;
    stmt_int(s, 1, tip);
    int rc = stmt_step(s, e);
    if (rc == 1) {
        const void *bytes = column_blob(s, 0, &n);
        rc = decode(bytes, n, ret, a, e);
    }
    stmt_end(s);
    return rc < 0 ? rc : 0;
}

static int insert_saved(struct memory *m, int64_t tip, const uint8_t *bytes, size_t n,
                        struct err *e)
{
    struct stmt *s = db_stmt(m->db,
                             "INSERT INTO path_saved (conversation, steps)"
                             " SELECT conversation, ?2 FROM message WHERE row = ?1"
                             " ON CONFLICT (conversation) DO UPDATE SET steps = excluded.steps",
                             e);
    stmt_int(s, 1, tip);
    stmt_blob(s, 2, bytes, n);
    return stmt_run(s, e);
}

void path_write(struct memory *m)
{
    struct path_kept *k = &m->path;
    struct err ignored; /* it only saves time */
    if (k->n == 0)
        return;
    uint8_t *bytes = sys.malloc(k->n * STEP_BYTES);
    if (!bytes)
        return;
    const size_t n_bytes = encode(k->rows, k->n, bytes);
    int rc = db_begin_now(m->db, &ignored);
    if (rc == 0) {
        rc = insert_saved(m, k->rows[k->n - 1], bytes, n_bytes, &ignored);
        rc = db_end(m->db, rc, &ignored);
    }
    /* Not again at once when it failed. */
    k->n_saved = k->n;
    free(bytes);
}

void path_save(struct memory *m)
{
    if (m->path.n - m->path.n_saved >= PATHS_SAVE_ROWS)
        path_write(m);
}

int path_saved_forget(struct memory *m, int64_t message, struct err *e)
{
    struct stmt *s = db_stmt(m->db,
                             "DELETE FROM path_saved WHERE conversation ="
                             " (SELECT conversation FROM message WHERE row = ?1)",
                             e);
    stmt_int(s, 1, message);
    return stmt_run(s, e);
}

/* ---- anew ---- */

/* From the tip up to a row of the saved path: its `at`; 0: there is none near. */
static int walk_to_saved(struct memory *m, struct path *p, struct saved *s, struct arena *a,
                         struct err *e)
{
    int rc = s->n > 0 ? path_walk(m, p, s->rows[s->n - 1] + 1, SIZE_MAX, a, e) : 0;
    for (size_t i = 0; rc == 0 && p->next > 0 && s->n > 0 && i < STEPS_MAX; i++) {
        if ((s->at = place_of(s->rows, s->n, p->next)) > 0)
            break;
        rc = path_walk(m, p, p->next, SIZE_MAX, a, e);
    }
    return rc;
}

static int read_both(struct memory *m, int64_t tip, struct arena *a, struct err *e)
{
    struct path_kept *k = &m->path;
    struct path p = {.next = tip};
    struct saved s = {.n = 0};
    int rc = read_saved(m, tip, &s, a, e);
    if (rc == 0)
        rc = walk_to_saved(m, &p, &s, a, e);
    if (rc == 0 && s.at == 0)
        rc = path_walk(m, &p, 0, SIZE_MAX, a, e);
    if (rc == 0)
        rc = make_room(k, s.at + p.n, e);
    if (rc < 0)
        return rc;
    if (s.at > 0)
        memcpy(k->rows, s.rows, s.at * sizeof *s.rows);
    for (size_t i = 0; i < p.n; i++)
        k->rows[s.at + i] = p.rows[p.n - 1 - i];
    k->n = s.at + p.n;
    k->n_saved = s.at;
    return 0;
}

static int read_anew(struct memory *m, int64_t tip, struct err *e)
{
    struct arena a;
    arena_init(&a, ARENA_BYTES);
    int rc = db_begin_read(m->db, e);
    if (rc == 0)
        rc = db_end(m->db, read_both(m, tip, &a, e), e);
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
