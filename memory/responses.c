/*
 * Stored responses: resp_… → its answer, and the object that was sent.
 *
 * A response that named no conversation lives in a hidden one, which a chain of
 * previous_response_id shares:
 *
 *      hidden conversation:  1 user ── 2 answer (resp_a) ── 3 user ── 4 answer (resp_b)
 *                                                      ╰── 5 user ── 6 answer (resp_c)
 *
 * Removing resp_b takes 4 and 3 along (nobody else can name them), removing resp_a takes only its
 * row while b or c live: they were asked with its text. With the last response the conversation
 * goes.
 */
#include "memory/internal.h"

#include <stdlib.h>

#include <string.h>

int response_insert(struct memory *m, const char *owner, const struct memory_response *r,
                    struct err *e)
{
    struct stmt *s =
        db_stmt(m->db,
                "INSERT INTO response (id, owner, conversation, answer, is_in_conversation, body,"
                " first_input) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)",
                e);
    stmt_str(s, 1, r->id);
    stmt_str(s, 2, owner);
    stmt_int(s, 3, r->conversation);
    stmt_int(s, 4, r->answer);
    stmt_int(s, 5, r->is_in_conversation);
    stmt_str(s, 6, r->body);
    stmt_int(s, 7, r->first_input > 0 ? r->first_input : r->answer);
    return stmt_run(s, e);
}

int memory_response_add(struct memory *m, const char *owner, const struct memory_response *r,
                        struct err *e)
{
    int rc = db_begin(m->db, DB_FULL, e);
    if (rc < 0)
        return rc;
    return db_end(m->db, response_insert(m, owner, r, e), e);
}

static int not_found(const char *id, struct err *e)
{
    return err_set(e, ERR_NOTFOUND, "no response '%s'", id ? id : "(none)");
}

int memory_response_find(struct memory *m, const char *owner, const char *id,
                         struct memory_response *ret, struct arena *a, struct err *e)
{
    struct stmt *s =
        db_stmt(m->db,
                "SELECT id, conversation, answer, is_in_conversation, body, first_input"
                " FROM response"
                " WHERE id = ?1 AND owner = ?2",
                e);
    stmt_str(s, 1, id);
    stmt_str(s, 2, owner);
    int rc = stmt_step(s, e);
    if (rc == 1) {
        struct memory_response r = {
            .conversation = column_int(s, 1),
            .answer = column_int(s, 2),
            .is_in_conversation = column_int(s, 3) != 0,
            .first_input = column_int(s, 5),
            .body = column_copy(s, 4, NULL, a),
        };
        size_t n;
        const char *text = column_text(s, 0, &n);
        if (n < sizeof(r.id))
            memcpy(r.id, text, n + 1);
        rc = r.body ? 0 : memory_out(e);
        if (rc == 0)
            *ret = r;
    } else if (rc == 0) {
        rc = not_found(id, e);
    }
    stmt_end(s);
    return rc;
}

struct found {
    int64_t row, conversation, answer;
    bool is_hidden;
};

static int find(struct memory *m, const char *owner, const char *id, struct found *ret,
                struct err *e)
{
    struct stmt *s = db_stmt(m->db,
                             "SELECT r.row, r.conversation, r.answer, c.is_hidden"
                             " FROM response r JOIN conversation c ON c.row = r.conversation"
                             " WHERE r.id = ?1 AND r.owner = ?2",
                             e);
    stmt_str(s, 1, id);
    stmt_str(s, 2, owner);
    int rc = stmt_step(s, e);
    if (rc == 1)
        *ret = (struct found){.row = column_int(s, 0),
                              .conversation = column_int(s, 1),
                              .answer = column_int(s, 2),
                              .is_hidden = column_int(s, 3) != 0};
    stmt_end(s);
    return rc == 0 ? not_found(id, e) : rc < 0 ? rc : 0;
}

/* The parent of `row` when nobody needs that message: no child, no response. 0: it is needed (or
 * isn't there). */
static int unneeded(struct memory *m, int64_t row, int64_t *ret_parent, bool *ret_is, struct err *e)
{
    struct stmt *s =
        db_stmt(m->db,
                "SELECT parent FROM message WHERE row = ?1"
                " AND NOT EXISTS (SELECT 1 FROM message c WHERE c.parent = ?1 AND c.parent > 0)"
                " AND NOT EXISTS (SELECT 1 FROM response r WHERE r.answer = ?1)",
                e);
    stmt_int(s, 1, row);
    int rc = stmt_step(s, e);
    *ret_is = rc == 1;
    if (rc == 1)
        *ret_parent = column_int(s, 0);
    stmt_end(s);
    return rc < 0 ? rc : 0;
}

/* From the answer up to the first message that another response stands on. */
static int prune(struct memory *m, int64_t row, struct memory_removed *gone, struct err *e)
{
    while (row > 0) {
        int64_t parent = 0;
        bool is_unneeded;
        int rc = unneeded(m, row, &parent, &is_unneeded, e);
        if (rc < 0 || !is_unneeded)
            return rc;
        rc = message_delete(m, row, gone, e);
        if (rc < 0)
            return rc;
        row = parent;
    }
    return 0;
}

/* The hidden conversation, when it has no response left. */
static int remove_hidden(struct memory *m, int64_t row, struct memory_removed *ret, struct err *e)
{
    struct stmt *s = db_stmt(m->db, "SELECT 1 FROM response WHERE conversation = ?1", e);
    stmt_int(s, 1, row);
    int rc = stmt_step(s, e);
    stmt_end(s);
    if (rc != 0)
        return rc < 0 ? rc : 0;
    rc = gone_note_conversation(m, row, ret, e);
    if (rc == 0)
        rc = index_remove_conversation(m, row, e);
    if (rc < 0)
        return rc;
    s = db_stmt(m->db, "DELETE FROM conversation WHERE row = ?1 AND is_hidden = 1", e);
    stmt_int(s, 1, row);
    return stmt_run(s, e);
}

static int remove_found(struct memory *m, const struct found *f, struct memory_removed *ret,
                        struct err *e)
{
    struct stmt *s = db_stmt(m->db, "DELETE FROM response WHERE row = ?1", e);
    stmt_int(s, 1, f->row);
    int rc = stmt_run(s, e);
    if (rc < 0 || !f->is_hidden)
        return rc;
    s = db_stmt(m->db, "SELECT count(*) FROM message WHERE conversation = ?1", e);
    stmt_int(s, 1, f->conversation);
    rc = stmt_step(s, e);
    const int64_t n_before = rc == 1 ? column_int(s, 0) : 0;
    stmt_end(s);
    if (rc < 0)
        return rc;
    rc = gone_begin(m, ret, e);
    if (rc == 0)
        rc = prune(m, f->answer, ret, e);
    if (rc < 0)
        return rc;
    s = db_stmt(m->db, "SELECT count(*) FROM message WHERE conversation = ?1", e);
    stmt_int(s, 1, f->conversation);
    rc = stmt_step(s, e);
    ret->n_messages = rc == 1 ? n_before - column_int(s, 0) : 0;
    stmt_end(s);
    if (rc >= 0)
        rc = remove_hidden(m, f->conversation, ret, e);
    return rc < 0 ? rc : gone_end(m, ret, e);
}

int memory_response_remove(struct memory *m, const char *owner, const char *id,
                           struct memory_removed *ret, struct err *e)
{
    struct found f = {0};
    struct memory_removed gone = {.n_messages = 0};
    int rc = db_begin(m->db, DB_FULL, e);
    if (rc < 0)
        return rc;
    rc = find(m, owner, id, &f, e);
    if (rc == 0)
        rc = remove_found(m, &f, &gone, e);
    rc = db_end(m->db, rc, e);
    if (rc == 0)
        store_wipe(m);
    if (rc == 0 && ret)
        *ret = gone;
    else
        memory_removed_done(&gone);
    return rc;
}
