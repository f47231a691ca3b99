/*
 * Windows: which cut is in force, and what is read under it.
 *
 * A path is walked up from its tip by single look-ups, as far as the question needs: to the anchors
 * of the conversation's cuts, then to the first row of the one in force. What lies above isn't
 * touched, however long it is.
 *
 * The anchors and first rows in `cut` are no keys: when such a message is deleted, the cut goes on
 * or goes away by window_forget, and a first row that is gone is simply the next one on the path
 * (the walk compares numbers; a parent's is always lower).
 */
#include "memory/window.h"

#include <string.h>

#include "base/clock.h"
#include "memory/internal.h"
#include "memory/rows.h"

/* What cut_read takes, in its order. */
#define CUT_COLUMNS                                                                                \
    "row, conversation, anchor, first, state, strategy, created_at, system, dropped, bare, head,"  \
    " summary, facts, is_edited"

static int cut_gone(int64_t row, struct err *e)
{
    return err_set(e, ERR_NOTFOUND, "cut %lld was removed", (long long)row);
}

static int cut_read(struct stmt *s, struct memory_cut *ret, struct arena *a, struct err *e)
{
    struct memory_cut cut = {
        .row = column_int(s, 0),
        .conversation = column_int(s, 1),
        .anchor = column_int(s, 2),
        .first = column_int(s, 3),
        .state = (enum memory_cut_state)column_int(s, 4),
        .created_at = column_int(s, 6),
        .is_edited = column_int(s, 13) != 0,
    };
    if (!plan_strategy_parse(column_text(s, 5, NULL), &cut.strategy))
        cut.strategy = PLAN_UNSET;
    cut.head = column_copy(s, 10, &cut.n_head, a);
    cut.summary = column_copy(s, 11, &cut.n_summary, a);
    cut.facts = column_copy(s, 12, &cut.n_facts, a);
    if (!cut.head || !cut.summary || !cut.facts)
        return memory_out(e);
    int rc = rows_read(s, 7, &cut.system, a, e);
    if (rc == 0)
        rc = rows_read(s, 8, &cut.dropped, a, e);
    if (rc == 0)
        rc = rows_read(s, 9, &cut.bare, a, e);
    if (rc == 0)
        *ret = cut;
    return rc;
}

int memory_cut_by_row(struct memory *m, int64_t row, struct memory_cut *ret, struct arena *a,
                      struct err *e)
{
    struct stmt *s = db_stmt(m->db, "SELECT " CUT_COLUMNS " FROM cut WHERE row = ?1", e);
    stmt_int(s, 1, row);
    int rc = stmt_step(s, e);
    if (rc == 1)
        rc = cut_read(s, ret, a, e);
    else if (rc == 0)
        rc = cut_gone(row, e);
    stmt_end(s);
    return rc;
}

/* ---- adding ---- */

static int check_member(struct memory *m, int64_t conversation, int64_t message, struct err *e)
{
    struct stmt *s =
        db_stmt(m->db, "SELECT 1 FROM message WHERE row = ?1 AND conversation = ?2", e);
    stmt_int(s, 1, message);
    stmt_int(s, 2, conversation);
    int rc = stmt_step(s, e);
    stmt_end(s);
    if (rc == 0)
        return err_set(e, ERR_NOTFOUND, "message %lld is not in the conversation (any more)",
                       (long long)message);
    return rc < 0 ? rc : 0;
}

/* All of an ascending list within [from, to]. */
static bool are_within(const struct memory_rows *sorted, int64_t from, int64_t to)
{
    return sorted->n == 0 || (sorted->v[0] >= from && sorted->v[sorted->n - 1] <= to);
}

static int insert_cut(struct memory *m, const struct memory_cut *cut, struct err *e)
{
    int rc = check_member(m, cut->conversation, cut->anchor, e);
    if (rc == 0)
        rc = check_member(m, cut->conversation, cut->first, e);
    if (rc < 0)
        return rc;
    struct stmt *s = db_stmt(m->db,
                             "INSERT INTO cut (conversation, anchor, first, state, strategy,"
                             " created_at, system, dropped, bare, head, summary, facts, is_edited)"
                             " VALUES (?1, ?2, ?3, 0, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12)",
                             e);
    stmt_int(s, 1, cut->conversation);
    stmt_int(s, 2, cut->anchor);
    stmt_int(s, 3, cut->first);
    stmt_str(s, 4, plan_strategy_name(cut->strategy));
    stmt_int(s, 5, clock_wall_s());
    rows_bind(s, 6, &cut->system);
    rows_bind(s, 7, &cut->dropped);
    rows_bind(s, 8, &cut->bare);
    stmt_text(s, 9, cut->head ? cut->head : "", cut->head ? cut->n_head : 0);
    stmt_text(s, 10, cut->summary ? cut->summary : "", cut->summary ? cut->n_summary : 0);
    stmt_text(s, 11, cut->facts ? cut->facts : "", cut->facts ? cut->n_facts : 0);
    stmt_int(s, 12, cut->is_edited);
    return stmt_run(s, e);
}

/* The row lists of `cut`, sorted and checked, in *ret. */
static int sort_cut(const struct memory_cut *cut, struct memory_cut *ret, struct arena *a,
                    struct err *e)
{
    *ret = *cut;
    int rc = rows_sort(&cut->system, &ret->system, a, e);
    if (rc == 0)
        rc = rows_sort(&cut->dropped, &ret->dropped, a, e);
    if (rc == 0)
        rc = rows_sort(&cut->bare, &ret->bare, a, e);
    if (rc < 0)
        return rc;
    if (cut->first < 1 || cut->first > cut->anchor)
        return err_set(e, ERR_INVAL, "a cut keeps messages from %lld on, and its anchor is %lld",
                       (long long)cut->first, (long long)cut->anchor);
    if (!are_within(&ret->system, 1, cut->first - 1) ||
        !are_within(&ret->dropped, cut->first, cut->anchor) ||
        !are_within(&ret->bare, cut->first, cut->anchor))
        return err_set(e, ERR_INVAL, "a cut from %lld to %lld names messages elsewhere",
                       (long long)cut->first, (long long)cut->anchor);
    return 0;
}

int memory_cut_add(struct memory *m, const struct memory_cut *cut, int64_t *ret_row, struct err *e)
{
    struct memory_cut sorted;
    struct arena a;
    int64_t row = 0;
    arena_init(&a, (size_t)4 * ROWS_MAX * sizeof(int64_t));
    int rc = sort_cut(cut, &sorted, &a, e);
    if (rc == 0)
        rc = db_begin(m->db, DB_NORMAL, e);
    if (rc < 0)
        goto done;
    rc = insert_cut(m, &sorted, e);
    row = db_last_row(m->db);
    rc = db_end(m->db, rc, e);
    if (rc == 0)
        *ret_row = row;
done:
    arena_done(&a);
    return rc;
}

/* ---- changing ---- */

static int make_ready(struct memory *m, int64_t row, struct err *e)
{
    struct stmt *s = db_stmt(m->db, "UPDATE cut SET state = 1 WHERE row = ?1", e);
    stmt_int(s, 1, row);
    int rc = stmt_run(s, e);
    if (rc < 0)
        return rc;
    if (db_n_changed(m->db) == 0)
        return cut_gone(row, e);
    s = db_stmt(m->db,
                "DELETE FROM cut WHERE state = 0 AND row < ?1 AND conversation ="
                " (SELECT conversation FROM cut WHERE row = ?1)",
                e);
    stmt_int(s, 1, row);
    return stmt_run(s, e);
}

int memory_cut_ready(struct memory *m, int64_t row, struct err *e)
{
    int rc = db_begin(m->db, DB_NORMAL, e);
    return rc < 0 ? rc : db_end(m->db, make_ready(m, row, e), e);
}

int memory_cut_edit(struct memory *m, int64_t row, const struct memory_cut_edit *edit,
                    struct err *e)
{
    int rc = db_begin(m->db, DB_FULL, e);
    if (rc < 0)
        return rc;
    struct stmt *s = db_stmt(m->db,
                             "UPDATE cut SET is_edited = is_edited OR ?2 IS NOT NULL,"
                             " summary = ifnull(?2, summary),"
                             " facts = ifnull(?3, facts) WHERE row = ?1",
                             e);
    stmt_int(s, 1, row);
    stmt_text(s, 2, edit->summary, edit->n_summary);
    stmt_text(s, 3, edit->facts, edit->n_facts);
    rc = stmt_run(s, e);
    if (rc == 0 && db_n_changed(m->db) == 0)
        rc = cut_gone(row, e);
    rc = db_end(m->db, rc, e);
    if (rc == 0)
        store_wipe(m);
    return rc;
}

/* Within the caller's transaction. */
static int delete_cut(struct memory *m, int64_t row, struct err *e)
{
    struct stmt *s = db_stmt(m->db, "DELETE FROM cut WHERE row = ?1", e);
    stmt_int(s, 1, row);
    int rc = stmt_run(s, e);
    return rc == 0 && db_n_changed(m->db) == 0 ? cut_gone(row, e) : rc;
}

int memory_cut_remove(struct memory *m, int64_t row, struct err *e)
{
    int rc = db_begin(m->db, DB_NORMAL, e);
    return rc < 0 ? rc : db_end(m->db, delete_cut(m, row, e), e);
}

/* ---- finding ---- */

/* The newest cut in this state whose anchor lies on the path: its row, or 0. */
static int newest_cut(struct memory *m, struct path *p, enum memory_cut_state state, int64_t *ret,
                      struct arena *a, struct err *e)
{
    const int64_t tip = p->n > 0 ? p->rows[0] : p->next;
    struct stmt *s = db_stmt(m->db,
                             "SELECT row, anchor FROM cut WHERE state = ?2 AND conversation ="
                             " (SELECT conversation FROM message WHERE row = ?1)"
                             " ORDER BY row DESC",
                             e);
    stmt_int(s, 1, tip);
    stmt_int(s, 2, state);
    int rc, is_found = 0;
    while ((rc = stmt_step(s, e)) == 1) {
        is_found = path_holds(m, p, column_int(s, 1), a, e);
        if (is_found != 0)
            break;
    }
    if (is_found == 1)
        *ret = column_int(s, 0);
    else if (rc == 0)
        *ret = 0;
    stmt_end(s);
    if (is_found < 0)
        return is_found;
    return rc < 0 ? rc : 0;
}

static int find_cut(struct memory *m, struct path *p, enum memory_cut_state state,
                    struct memory_cut *ret, struct arena *a, struct err *e)
{
    int64_t ready = 0, prepared = 0;
    int rc = newest_cut(m, p, MEMORY_CUT_READY, &ready, a, e);
    if (rc == 0 && state == MEMORY_CUT_PREPARED)
        rc = newest_cut(m, p, MEMORY_CUT_PREPARED, &prepared, a, e);
    if (rc < 0)
        return rc;
    const int64_t row = state == MEMORY_CUT_READY ? ready : prepared > ready ? prepared : 0;
    if (row == 0)
        return err_set(e, ERR_NOTFOUND, "the conversation has no %s cut",
                       state == MEMORY_CUT_READY ? "ready" : "prepared");
    return memory_cut_by_row(m, row, ret, a, e);
}

static int find_for_tip(struct memory *m, int64_t tip, enum memory_cut_state state,
                        struct memory_cut *ret, struct arena *a, struct err *e)
{
    struct path p = {.next = tip};
    int rc = db_begin_read(m->db, e);
    return rc < 0 ? rc : db_end(m->db, find_cut(m, &p, state, ret, a, e), e);
}

int memory_cut_find(struct memory *m, int64_t tip, struct memory_cut *ret, struct arena *a,
                    struct err *e)
{
    return find_for_tip(m, tip, MEMORY_CUT_READY, ret, a, e);
}

int memory_cut_prepared(struct memory *m, int64_t tip, struct memory_cut *ret, struct arena *a,
                        struct err *e)
{
    return find_for_tip(m, tip, MEMORY_CUT_PREPARED, ret, a, e);
}

/* ---- loading ---- */

/* Which cut is wanted: 1 and *ret, or 0: none. */
static int choose_cut(struct memory *m, struct path *p, const struct memory_window_want *want,
                      struct memory_cut *ret, struct arena *a, struct err *e)
{
    if (want->cut == MEMORY_WHOLE_PATH || want->tip == 0)
        return 0;
    if (want->cut == 0) {
        int64_t row;
        int rc = newest_cut(m, p, MEMORY_CUT_READY, &row, a, e);
        if (rc < 0 || row == 0)
            return rc;
        rc = memory_cut_by_row(m, row, ret, a, e);
        return rc < 0 ? rc : 1;
    }
    int rc = memory_cut_by_row(m, want->cut, ret, a, e);
    if (rc == 0)
        rc = path_holds(m, p, ret->anchor, a, e);
    if (rc == 0)
        return err_set(e, ERR_NOTFOUND, "cut %lld is of another branch", (long long)want->cut);
    return rc;
}

/* A window while it is read: from its tip up, into the end of its arrays. */
struct loading {
    const struct memory_window_want *want;
    const struct path *path;
    struct memory_window w; /* v and contexts: [cap], its messages from `start` on */
    size_t cap, start;
    size_t n_system; /* at the beginning of the arrays, not yet beside the others */
    size_t n_bytes;
    bool has_user, has_contexts; /* contexts: some of the conversation's, or of one beside it */
};

/* Whether any message from `first` to `tip` has injected text: most conversations have none, and
 * their messages needn't be asked one by one. 1, 0 or negative. */
static int has_contexts(struct memory *m, int64_t first, int64_t tip, struct err *e)
{
    struct stmt *s = db_stmt(
        m->db, "SELECT 1 FROM message_context WHERE message >= ?1 AND message <= ?2 LIMIT 1", e);
    stmt_int(s, 1, first);
    stmt_int(s, 2, tip);
    int rc = stmt_step(s, e);
    stmt_end(s);
    return rc;
}

static bool is_kept(const struct memory_window *w, int64_t row)
{
    return row >= w->cut.first && !rows_hold(&w->cut.dropped, row);
}

static int load_message(struct memory *m, int64_t row, size_t at, struct loading *l,
                        struct arena *a, struct err *e)
{
    struct memory_message *msg = &l->w.v[at];
    struct memory_context *context = &l->w.contexts[at];
    int rc = memory_message_by_row(m, row, msg, a, e);
    if (rc == 0 && l->has_contexts && msg->role == MEMORY_USER &&
        !rows_hold(&l->w.cut.bare, row))
        rc = memory_context_get(m, row, context, a, e);
    l->n_bytes += msg->n_text + context->n_text;
    l->has_user = l->has_user || msg->role == MEMORY_USER;
    return rc;
}

/* From the tip up, until the bytes are enough. *ret_next: the place in the path of the first that
 * wasn't looked at. */
static int load_newest(struct memory *m, struct loading *l, size_t *ret_next, struct arena *a,
                       struct err *e)
{
    const struct path *p = l->path;
    const size_t max_bytes = l->want->max_bytes;
    size_t i = 0;
    for (; i < p->n && p->rows[i] >= l->w.cut.first; i++) {
        if (!is_kept(&l->w, p->rows[i]))
            continue;
        const bool is_enough = l->n_bytes >= max_bytes || l->cap - l->start >= l->want->max;
        if (max_bytes > 0 && is_enough && l->has_user)
            break;
        if (l->cap - l->start == l->want->max)
            return err_set(e, ERR_LIMIT, "the window is longer than %zu messages", l->want->max);
        int rc = load_message(m, p->rows[i], --l->start, l, a, e);
        if (rc < 0)
            return rc;
    }
    *ret_next = i;
    return 0;
}

/* Those that the cut names, without those deleted since. */
static int load_cut_system(struct memory *m, struct loading *l, struct arena *a, struct err *e)
{
    const struct memory_rows *system = &l->w.cut.system;
    for (size_t i = 0; i < system->n; i++) {
        int rc = load_message(m, system->v[i], l->n_system, l, a, e);
        if (rc < 0 && rc != ERR_NOTFOUND)
            return rc;
        l->n_system += rc == 0;
    }
    return 0;
}

/* Those of the path that were not read, from its place `next` up. */
static int load_system_above(struct memory *m, struct loading *l, size_t next, struct arena *a,
                             struct err *e)
{
    struct path seen = *l->path; /* whole: looking for a row walks no further */
    const int64_t below = l->path->rows[next];
    struct stmt *s = db_stmt(m->db,
                             "SELECT row FROM message WHERE conversation ="
                             " (SELECT conversation FROM message WHERE row = ?1) AND role = 1"
                             " AND row >= ?2 AND row <= ?1 ORDER BY row",
                             e);
    stmt_int(s, 1, below);
    stmt_int(s, 2, l->w.cut.first);
    int rc;
    while ((rc = stmt_step(s, e)) == 1) {
        const int64_t row = column_int(s, 0);
        const int on_path = is_kept(&l->w, row) ? path_holds(m, &seen, row, a, e) : 0;
        if (on_path == 0)
            continue;
        rc = on_path < 0 ? on_path : load_message(m, row, l->n_system++, l, a, e);
        if (rc < 0)
            break;
        l->w.n_above--;
    }
    stmt_end(s);
    return rc;
}

static int count_system(struct memory *m, int64_t tip, size_t *ret, struct err *e)
{
    struct stmt *s = db_stmt(m->db,
                             "SELECT count(*) FROM message WHERE conversation ="
                             " (SELECT conversation FROM message WHERE row = ?1) AND role = 1",
                             e);
    stmt_int(s, 1, tip);
    int rc = stmt_step(s, e);
    if (rc == 1)
        *ret = (size_t)column_int(s, 0);
    stmt_end(s);
    return rc < 0 ? rc : 0;
}

static int load_messages(struct memory *m, struct loading *l, struct arena *a, struct err *e)
{
    size_t next = 0, n_system = 0;
    int failed = count_system(m, l->want->tip, &n_system, e);
    if (failed)
        return failed;
    /* Not room for the whole path: of a long one the newest are read. */
    const size_t n_most = l->path->n < l->want->max ? l->path->n : l->want->max;
    l->cap = l->start = l->w.cut.system.n + n_system + n_most;
    l->w.v = arena_array(a, l->cap, sizeof(*l->w.v));
    l->w.contexts = arena_array(a, l->cap, sizeof(*l->w.contexts));
    if (!l->w.v || !l->w.contexts)
        return memory_out(e);
    int rc = load_newest(m, l, &next, a, e);
    if (rc == 0)
        rc = load_cut_system(m, l, a, e);
    for (size_t i = next; i < l->path->n; i++)
        l->w.n_above += is_kept(&l->w, l->path->rows[i]);
    if (rc == 0 && l->w.n_above > 0)
        rc = load_system_above(m, l, next, a, e);
    if (rc < 0)
        return rc;
    const size_t n = l->cap - l->start;
    memmove(l->w.v + l->n_system, l->w.v + l->start, n * sizeof(*l->w.v));
    memmove(l->w.contexts + l->n_system, l->w.contexts + l->start, n * sizeof(*l->w.contexts));
    l->w.n_system = l->n_system;
    l->w.n = l->n_system + n;
    return 0;
}

static int load(struct memory *m, const struct memory_window_want *want, struct memory_window *ret,
                struct arena *a, struct err *e)
{
    struct path p = {.next = want->tip};
    struct loading l = {.want = want, .path = &p};
    int rc = choose_cut(m, &p, want, &l.w.cut, a, e);
    if (rc < 0)
        return rc;
    l.w.has_cut = rc == 1;
    /* What the cut drops is walked, too. */
    const bool is_bounded = want->max_bytes == 0 && want->max < SIZE_MAX - ROWS_MAX;
    rc = path_walk(m, &p, l.w.cut.first, is_bounded ? want->max + l.w.cut.dropped.n : SIZE_MAX, a,
                   e);
    if (rc == 0)
        rc = has_contexts(m, l.w.cut.first, want->tip, e);
    l.has_contexts = rc == 1;
    if (rc >= 0)
        rc = load_messages(m, &l, a, e);
    if (rc == 0)
        *ret = l.w;
    return rc;
}

int memory_window(struct memory *m, const struct memory_window_want *want,
                  struct memory_window *ret, struct arena *a, struct err *e)
{
    int rc = db_begin_read(m->db, e);
    return rc < 0 ? rc : db_end(m->db, load(m, want, ret, a, e), e);
}

/* ---- a message goes ---- */

/* What a deletion asks of a cut. */
struct cut_place {
    int64_t row, anchor, first;
    struct memory_rows system, dropped;
};

/* The next cut after `after` whose anchor isn't older than the message: 1; or 0: none. */
static int next_cut(struct memory *m, int64_t message, int64_t after, struct cut_place *ret,
                    struct arena *a, struct err *e)
{
    struct cut_place cut = {.row = 0};
    struct stmt *s = db_stmt(m->db,
                             "SELECT row, anchor, first, system, dropped FROM cut"
                             " WHERE conversation = (SELECT conversation FROM message"
                             "  WHERE row = ?1)"
                             " AND anchor >= ?1 AND row > ?2 ORDER BY row LIMIT 1",
                             e);
    stmt_int(s, 1, message);
    stmt_int(s, 2, after);
    const int found = stmt_step(s, e);
    int rc = found < 0 ? found : 0;
    if (found == 1) {
        cut.row = column_int(s, 0);
        cut.anchor = column_int(s, 1);
        cut.first = column_int(s, 2);
        rc = rows_read(s, 3, &cut.system, a, e);
        if (rc == 0)
            rc = rows_read(s, 4, &cut.dropped, a, e);
    }
    stmt_end(s);
    if (rc < 0)
        return rc;
    *ret = cut;
    return found;
}

static int move_anchor(struct memory *m, const struct cut_place *cut, struct err *e)
{
    int64_t parent;
    int rc = message_parent(m, cut->anchor, &parent, e);
    if (rc < 0)
        return rc;
    if (parent < cut->first) /* nothing is left of what it kept */
        return delete_cut(m, cut->row, e);
    struct stmt *s = db_stmt(m->db, "UPDATE cut SET anchor = ?2 WHERE row = ?1", e);
    stmt_int(s, 1, cut->row);
    stmt_int(s, 2, parent);
    return stmt_run(s, e);
}

static int forget_in_cut(struct memory *m, int64_t message, const struct cut_place *cut,
                         struct arena *a, struct err *e)
{
    struct path p = {.next = cut->anchor};
    if (rows_hold(&cut->system, message)) /* it stays, and no summary has it */
        return 0;
    if (message < cut->first || rows_hold(&cut->dropped, message)) {
        int rc = path_holds(m, &p, message, a, e);
        return rc == 1 ? delete_cut(m, cut->row, e) : rc;
    }
    return message == cut->anchor ? move_anchor(m, cut, e) : 0;
}

int window_forget(struct memory *m, int64_t message, struct err *e)
{
    struct cut_place cut = {.row = 0};
    struct arena a;
    arena_init(&a, 64u << 20);
    struct stmt *s = db_stmt(m->db,
                             "DELETE FROM message_context WHERE message IN"
                             " (SELECT message FROM context_source WHERE source = ?1 AND kind < 3)",
                             e);
    stmt_int(s, 1, message);
    int rc = stmt_run(s, e);
    while (rc >= 0 && (rc = next_cut(m, message, cut.row, &cut, &a, e)) == 1)
        rc = forget_in_cut(m, message, &cut, &a, e);
    arena_done(&a);
    return rc;
}
