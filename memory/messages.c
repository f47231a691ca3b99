/*
 * Messages: the tree, its paths, pages of the current one.
 *
 * Paths are walked from the tip to the root by single look-ups of the primary key (a recursive
 * query costs three times as much). The walk ends by itself: a parent's row is always lower.
 */
#include "memory/internal.h"

#include <string.h>

#include "base/clock.h"

/* What message_read takes, in its order. */
#define MESSAGE_COLUMNS                                                                            \
    "m.row, m.parent, m.conversation, m.id, m.role, m.status, m.finish, m.model, m.created_at, "   \
    "m.text, m.is_opened"

static int message_read(struct stmt *s, struct memory_message *ret, struct arena *a,
                        struct err *e)
{
    struct memory_message msg = {
        .row = column_int(s, 0),
        .parent = column_int(s, 1),
        .conversation = column_int(s, 2),
        .role = (enum memory_role)column_int(s, 4),
        .status = (enum memory_status)column_int(s, 5),
        .created_at = column_int(s, 8),
        .is_opened = column_int(s, 10) != 0,
    };
    size_t n;
    const char *id = column_text(s, 3, &n);
    if (n >= sizeof(msg.id))
        return err_set(e, ERR_CORRUPT, "history: message %lld has an id of %zu bytes",
                       (long long)msg.row, n);
    memcpy(msg.id, id, n + 1);
    msg.finish = column_copy(s, 6, NULL, a);
    msg.model = column_copy(s, 7, NULL, a);
    msg.text = column_copy(s, 9, &msg.n_text, a);
    if (!msg.finish || !msg.model || !msg.text)
        return memory_out(e);
    *ret = msg;
    return 0;
}

/* 0, or ERR_NOTFOUND: the parent isn't in this conversation. */
static int check_parent(struct memory *m, int64_t conversation, int64_t parent, struct err *e)
{
    if (parent == 0)
        return 0;
    struct stmt *s =
        db_stmt(m->db, "SELECT 1 FROM message WHERE row = ?1 AND conversation = ?2", e);
    stmt_int(s, 1, parent);
    stmt_int(s, 2, conversation);
    int rc = stmt_step(s, e);
    stmt_end(s);
    if (rc == 0)
        return err_set(e, ERR_NOTFOUND, "the message before this one is not in the conversation");
    return rc < 0 ? rc : 0;
}

static int check_message(const struct memory_new_message *msg, struct err *e)
{
    if (msg->role < MEMORY_SYSTEM || msg->role > MEMORY_ASSISTANT)
        return err_set(e, ERR_INVAL, "role %d is none", (int)msg->role);
    if (msg->status < MEMORY_STORED || msg->status > MEMORY_FAILED)
        return err_set(e, ERR_INVAL, "status %d is none", (int)msg->status);
    return 0;
}

/* Inserts within the caller's transaction; ret->text is the caller's. The conversation's activity
 * is not touched. */
static int message_insert(struct memory *m, const struct memory_new_message *msg,
                          struct memory_message *ret, struct arena *a, struct err *e)
{
    struct memory_message out = {
        .parent = msg->parent,
        .conversation = msg->conversation,
        .role = msg->role,
        .status = msg->status,
        .finish = "",
        .created_at = clock_wall_s(),
        .n_text = msg->n_text,
        .is_opened = msg->is_opened,
    };
    random_id("msg_", out.id);
    out.model = arena_str(a, msg->model ? msg->model : "");
    out.text = arena_copy(a, msg->text ? msg->text : "", msg->text ? msg->n_text : 0);
    if (!out.model || !out.text)
        return memory_out(e);
    int rc = check_message(msg, e);
    if (rc == 0)
        rc = check_parent(m, msg->conversation, msg->parent, e);
    if (rc < 0)
        return rc;
    struct stmt *s = db_stmt(
        m->db,
        "INSERT INTO message (id, conversation, parent, role, status, model, created_at, text,"
        " is_opened) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)",
        e);
    stmt_str(s, 1, out.id);
    stmt_int(s, 2, out.conversation);
    stmt_int(s, 3, out.parent);
    stmt_int(s, 4, out.role);
    stmt_int(s, 5, out.status);
    stmt_str(s, 6, out.model);
    stmt_int(s, 7, out.created_at);
    stmt_text(s, 8, out.text, out.n_text);
    stmt_int(s, 9, out.is_opened);
    rc = stmt_run(s, e);
    if (rc < 0)
        return rc;
    out.row = db_last_row(m->db);
    if (msg->context)
        rc = context_store(m, out.row, msg->context, e);
    if (rc == 0)
        *ret = out;
    return rc;
}

/* All in one go: each savepoint costs a segment. */
static int index_messages(struct memory *m, const struct memory_message *msgs, size_t n,
                          struct arena *a, struct err *e)
{
    struct index_message *v = arena_array(a, n, sizeof(*v));
    size_t n_whole = 0;
    if (!v)
        return memory_out(e);
    for (size_t i = 0; i < n; i++)
        if (msgs[i].status != MEMORY_GENERATING)
            v[n_whole++] = (struct index_message){
                .row = msgs[i].row, .text = msgs[i].text, .n_text = msgs[i].n_text};
    return n_whole > 0 ? index_add_messages(m, v, n_whole, e) : 0;
}

static int insert_all(struct memory *m, const struct memory_new_message *msgs, size_t n,
                      struct memory_message *ret, struct arena *a, struct err *e)
{
    /* First, so that a conversation that is gone is told as that. */
    int rc = conversation_touch(m, msgs[0].conversation, e);
    for (size_t i = 0; rc == 0 && i < n; i++) {
        struct memory_new_message msg = msgs[i];
        if (i > 0) {
            msg.conversation = msgs[0].conversation;
            msg.parent = ret[i - 1].row;
        }
        rc = message_insert(m, &msg, &ret[i], a, e);
    }
    return rc < 0 ? rc : index_messages(m, ret, n, a, e);
}

int memory_message_add_all(struct memory *m, const struct memory_new_message *msgs, size_t n,
                           struct memory_message *ret, struct arena *a, struct err *e)
{
    if (n == 0)
        return 0;
    struct memory_message *added = arena_array(a, n, sizeof(*added));
    if (!added)
        return memory_out(e);
    int rc = db_begin(m->db, DB_FULL, e);
    if (rc < 0)
        return rc;
    rc = db_end(m->db, insert_all(m, msgs, n, added, a, e), e);
    if (rc == 0)
        memcpy(ret, added, n * sizeof(*added));
    return rc;
}

int memory_message_add(struct memory *m, const struct memory_new_message *msg,
                       struct memory_message *ret, struct arena *a, struct err *e)
{
    return memory_message_add_all(m, msg, 1, ret, a, e);
}

static int not_found(const char *id, struct err *e)
{
    return err_set(e, ERR_NOTFOUND, "no message '%s'", id ? id : "(none)");
}

int memory_message_find(struct memory *m, const char *owner, const char *id,
                        struct memory_message *ret, struct arena *a, struct err *e)
{
    struct stmt *s = db_stmt(m->db,
                             "SELECT " MESSAGE_COLUMNS
                             " FROM message m JOIN conversation c ON c.row = m.conversation"
                             " WHERE m.id = ?1 AND c.owner = ?2",
                             e);
    stmt_str(s, 1, id);
    stmt_str(s, 2, owner);
    int rc = stmt_step(s, e);
    if (rc == 1)
        rc = message_read(s, ret, a, e);
    else if (rc == 0)
        rc = not_found(id, e);
    stmt_end(s);
    return rc;
}

int message_delete(struct memory *m, int64_t row, struct memory_removed *gone, struct err *e)
{
    path_forget(m);
    int rc = path_saved_forget(m, row, e);
    if (rc == 0)
        rc = gone_note_message(m, row, gone, e);
    if (rc == 0)
        rc = index_remove_message(m, row, e);
    if (rc == 0)
        rc = window_forget(m, row, e);
    if (rc < 0)
        return rc;
    struct stmt *s = db_stmt(m->db,
                             "UPDATE message SET parent ="
                             " (SELECT p.parent FROM message p WHERE p.row = ?1)"
                             " WHERE parent = ?1 AND parent > 0",
                             e);
    stmt_int(s, 1, row);
    rc = stmt_run(s, e);
    if (rc < 0)
        return rc;
    s = db_stmt(m->db, "DELETE FROM message WHERE row = ?1", e);
    stmt_int(s, 1, row);
    return stmt_run(s, e);
}

static int delete_found(struct memory *m, const char *owner, const char *id,
                        struct memory_removed *gone, struct err *e)
{
    struct stmt *s =
        db_stmt(m->db,
                "SELECT m.row FROM message m JOIN conversation c ON c.row = m.conversation"
                " WHERE m.id = ?1 AND c.owner = ?2",
                e);
    stmt_str(s, 1, id);
    stmt_str(s, 2, owner);
    int rc = stmt_step(s, e);
    int64_t row = rc == 1 ? column_int(s, 0) : 0;
    stmt_end(s);
    if (rc == 0)
        return not_found(id, e);
    if (rc == 1)
        rc = gone_begin(m, gone, e);
    if (rc == 0)
        rc = message_delete(m, row, gone, e);
    return rc < 0 ? rc : gone_end(m, gone, e);
}

int memory_message_remove(struct memory *m, const char *owner, const char *id,
                          struct memory_removed *ret, struct err *e)
{
    struct memory_removed gone = {.n_messages = 1};
    int rc = db_begin(m->db, DB_FULL, e);
    if (rc < 0)
        return rc;
    rc = db_end(m->db, delete_found(m, owner, id, &gone, e), e);
    if (rc == 0)
        store_wipe(m);
    if (rc == 0 && ret)
        *ret = gone;
    else
        memory_removed_done(&gone);
    return rc;
}

/* Rows of a path, tip first. */
struct rows {
    int64_t *v; /* [cap], in the arena */
    size_t n, cap;
};

static int rows_push(struct rows *r, int64_t row, struct arena *a, struct err *e)
{
    if (r->n == r->cap) {
        size_t cap = r->cap ? r->cap * 2 : 64;
        int64_t *grown = arena_array(a, cap, sizeof(*grown));
        if (!grown)
            return memory_out(e);
        if (r->n > 0)
            memcpy(grown, r->v, r->n * sizeof(*grown));
        r->v = grown;
        r->cap = cap;
    }
    r->v[r->n++] = row;
    return 0;
}

static int broken(int64_t row, struct err *e)
{
    return err_set(e, ERR_CORRUPT, "history: message %lld is missing from its conversation's tree",
                   (long long)row);
}

int message_parent(struct memory *m, int64_t row, int64_t *ret, struct err *e)
{
    struct stmt *s = db_stmt(m->db, "SELECT parent FROM message WHERE row = ?1", e);
    stmt_int(s, 1, row);
    int rc = stmt_step(s, e);
    if (rc == 1)
        *ret = column_int(s, 0);
    stmt_end(s);
    return rc == 0 ? broken(row, e) : rc < 0 ? rc : 0;
}

int memory_message_by_row(struct memory *m, int64_t row, struct memory_message *ret,
                          struct arena *a, struct err *e)
{
    struct stmt *s =
        db_stmt(m->db, "SELECT " MESSAGE_COLUMNS " FROM message m WHERE m.row = ?1", e);
    stmt_int(s, 1, row);
    int rc = stmt_step(s, e);
    if (rc == 1)
        rc = message_read(s, ret, a, e);
    else if (rc == 0)
        rc = err_set(e, ERR_NOTFOUND, "message %lld was deleted", (long long)row);
    stmt_end(s);
    return rc;
}

/* From `tip` up while rows are above `stop`; at most max of them (ERR_LIMIT), or as many with
 * is_page. */
struct walk {
    int64_t tip, stop;
    size_t max;
    bool is_page;
};

static int walk_up(struct memory *m, const struct walk *w, struct rows *ret, struct arena *a,
                   struct err *e)
{
    int64_t row = w->tip;
    while (row > w->stop) {
        if (ret->n == w->max && w->is_page)
            return 0;
        if (ret->n == w->max)
            return err_set(e, ERR_LIMIT, "the conversation is longer than %zu messages", w->max);
        int rc = rows_push(ret, row, a, e);
        if (rc == 0)
            rc = message_parent(m, row, &row, e);
        if (rc < 0)
            return rc;
    }
    return 0;
}

static int read_path(struct memory *m, const struct walk *w, struct memory_messages *ret,
                     struct arena *a, struct err *e)
{
    struct rows rows = {0};
    int rc = walk_up(m, w, &rows, a, e);
    if (rc < 0)
        return rc;
    struct memory_message *path = arena_array(a, rows.n, sizeof(*path));
    if (!path)
        return memory_out(e);
    for (size_t i = 0; i < rows.n; i++) {
        rc = memory_message_by_row(m, rows.v[rows.n - 1 - i], &path[i], a, e);
        if (rc < 0)
            return rc;
    }
    *ret = (struct memory_messages){.v = path, .n = rows.n};
    return 0;
}

int memory_path(struct memory *m, int64_t tip, size_t max, struct memory_messages *ret,
                struct arena *a, struct err *e)
{
    int rc = db_begin_read(m->db, e);
    if (rc < 0)
        return rc;
    rc = read_path(m, &(struct walk){.tip = tip, .max = max}, ret, a, e);
    return db_end(m->db, rc, e);
}

/* The row and parent of the item that a page follows; it is in the tip's conversation. */
static int page_after(struct memory *m, int64_t tip, const char *id, int64_t ret[2], struct err *e)
{
    struct stmt *s = db_stmt(m->db,
                             "SELECT m.row, m.parent FROM message m JOIN message t ON t.row = ?2"
                             " WHERE m.id = ?1 AND m.conversation = t.conversation",
                             e);
    stmt_str(s, 1, id);
    stmt_int(s, 2, tip);
    int rc = stmt_step(s, e);
    if (rc == 1) {
        ret[0] = column_int(s, 0);
        ret[1] = column_int(s, 1);
    }
    stmt_end(s);
    if (rc == 0)
        return not_found(id, e);
    return rc < 0 ? rc : 0;
}

static int tip_of(struct memory *m, int64_t conversation, int64_t *ret, struct err *e)
{
    struct stmt *s =
        db_stmt(m->db, "SELECT ifnull(max(row), 0) FROM message WHERE conversation = ?1", e);
    stmt_int(s, 1, conversation);
    int rc = stmt_step(s, e);
    if (rc == 1)
        *ret = column_int(s, 0);
    stmt_end(s);
    return rc < 0 ? rc : 0;
}

/* The rows that a page shows, and one more if there is one; newest first. */
static int page_rows(struct memory *m, const struct memory_branch *branch,
                     const struct memory_page *page, struct rows *ret, struct arena *a,
                     struct err *e)
{
    int64_t after[2] = {0, 0}; /* row, parent */
    int64_t stop = branch->first - 1;
    int rc = page->after ? page_after(m, branch->tip, page->after, after, e) : 0;
    if (rc < 0)
        return rc;
    struct walk w = {
        .tip = branch->tip, .stop = after[0] > stop ? after[0] : stop, .max = SIZE_MAX};
    /* Newest first: up from the tip, or from above `after`, wherever in the tree that is. */
    if (!page->is_ascending)
        w = (struct walk){.tip = page->after ? after[1] : branch->tip,
                          .stop = stop,
                          .max = (size_t)page->limit + 1,
                          .is_page = true};
    return walk_up(m, &w, ret, a, e);
}

static int read_page(struct memory *m, const struct memory_branch *branch,
                     const struct memory_page *page, struct memory_messages *ret, struct arena *a,
                     struct err *e)
{
    struct rows rows = {0};
    int rc = page_rows(m, branch, page, &rows, a, e);
    if (rc < 0)
        return rc;
    size_t n = rows.n < (size_t)page->limit ? rows.n : (size_t)page->limit;
    struct memory_message *list = arena_array(a, n, sizeof(*list));
    if (!list)
        return memory_out(e);
    for (size_t i = 0; i < n; i++) {
        int64_t row = rows.v[page->is_ascending ? rows.n - 1 - i : i];
        rc = memory_message_by_row(m, row, &list[i], a, e);
        if (rc < 0)
            return rc;
    }
    *ret = (struct memory_messages){.v = list, .n = n, .has_more = rows.n > n};
    return 0;
}

int memory_branch_list(struct memory *m, const struct memory_branch *branch,
                       const struct memory_page *page, struct memory_messages *ret, struct arena *a,
                       struct err *e)
{
    if (page->limit < 1 || page->limit > MEMORY_PAGE_MAX)
        return err_set(e, ERR_INVAL, "limit is %d: from 1 to %d", page->limit, MEMORY_PAGE_MAX);
    int rc = db_begin_read(m->db, e);
    if (rc < 0)
        return rc;
    rc = read_page(m, branch, page, ret, a, e);
    return db_end(m->db, rc, e);
}

int memory_message_list(struct memory *m, int64_t conversation, const struct memory_page *page,
                        struct memory_messages *ret, struct arena *a, struct err *e)
{
    struct memory_branch branch = {.first = 1};
    int rc = tip_of(m, conversation, &branch.tip, e);
    return rc < 0 ? rc : memory_branch_list(m, &branch, page, ret, a, e);
}
