/*
 * Conversations: who owns what, by name, by last use.
 *
 * What can be told from the messages isn't stored beside them: count, tip (the newest row), model
 * (of the newest answer) and, while nobody has set one, the title (the first line of the first user
 * message) are asked for when a conversation is read. So none of them can be wrong, and a deleted
 * message leaves no word in a title.
 */
#include "memory/internal.h"

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/utf8.h"

#define TITLE_CHARS 60
#define TITLE_SOURCE "400" /* characters of the message that are looked at */

#define CONVERSATION_COLUMNS                                                                       \
    "c.row, c.id, c.title, c.metadata, c.is_hidden, c.created_at, c.updated_at,"                   \
    " c.n_messages,"                                                                               \
    " (SELECT ifnull(max(m.row), 0) FROM message m WHERE m.conversation = c.row),"                 \
    " (SELECT m.model FROM message m WHERE m.conversation = c.row AND m.role = 3"                  \
    "   ORDER BY m.row DESC LIMIT 1),"                                                             \
    " CASE c.title WHEN '' THEN (SELECT substr(m.text, 1, " TITLE_SOURCE ") FROM message m"        \
    "   WHERE m.conversation = c.row AND m.role = 2 ORDER BY m.row LIMIT 1) END"

static const char *nothing_named(const char *id)
{
    return id ? id : "(none)";
}

/* The first line with something in it, white space at its ends taken off, cut at TITLE_CHARS
 * characters. */
static char *derive_title(const char *text, size_t n, struct arena *a)
{
    size_t from = 0;
    while (from < n && (unsigned char)text[from] <= ' ')
        from++;
    size_t to = from;
    for (int chars = 0; to < n && (unsigned char)text[to] >= ' ' && chars < TITLE_CHARS; chars++) {
        bool is_ok;
        to += utf8_step(text + to, n - to, &is_ok);
    }
    while (to > from && text[to - 1] == ' ')
        to--;
    return arena_copy(a, text + from, to - from);
}

static int conversation_read(struct stmt *s, struct memory_conversation *ret, struct arena *a,
                             struct err *e)
{
    struct memory_conversation c = {
        .row = column_int(s, 0),
        .is_hidden = column_int(s, 4) != 0,
        .created_at = column_int(s, 5),
        .updated_at = column_int(s, 6),
        .n_messages = column_int(s, 7),
        .tip = column_int(s, 8),
    };
    size_t n;
    const char *id = column_text(s, 1, &n);
    if (n >= sizeof(c.id))
        return err_set(e, ERR_CORRUPT, "history: conversation %lld has an id of %zu bytes",
                       (long long)c.row, n);
    memcpy(c.id, id, n + 1);
    c.title = column_copy(s, 2, &n, a);
    if (c.title && n == 0) {
        const char *text = column_text(s, 10, &n);
        c.title = derive_title(text, n, a);
    }
    c.metadata = column_copy(s, 3, NULL, a);
    c.model = column_copy(s, 9, NULL, a);
    if (!c.title || !c.metadata || !c.model)
        return memory_out(e);
    *ret = c;
    return 0;
}

/* Ends s. */
static int read_one(struct stmt *s, const char *id, struct memory_conversation *ret,
                    struct arena *a, struct err *e)
{
    int rc = stmt_step(s, e);
    if (rc == 1)
        rc = conversation_read(s, ret, a, e);
    else if (rc == 0)
        rc = err_set(e, ERR_NOTFOUND, "no conversation '%s'", nothing_named(id));
    stmt_end(s);
    return rc;
}

int memory_conversation_by_row(struct memory *m, int64_t row, struct memory_conversation *ret,
                               struct arena *a, struct err *e)
{
    struct stmt *s =
        db_stmt(m->db, "SELECT " CONVERSATION_COLUMNS " FROM conversation c WHERE c.row = ?1", e);
    stmt_int(s, 1, row);
    return read_one(s, NULL, ret, a, e);
}

int memory_conversation_find(struct memory *m, const char *owner, const char *id,
                             struct memory_conversation *ret, struct arena *a, struct err *e)
{
    struct stmt *s = db_stmt(
        m->db,
        "SELECT " CONVERSATION_COLUMNS " FROM conversation c WHERE c.id = ?1 AND c.owner = ?2", e);
    stmt_str(s, 1, id);
    stmt_str(s, 2, owner);
    return read_one(s, id, ret, a, e);
}

int memory_conversation_add(struct memory *m, const struct memory_new_conversation *new,
                            struct memory_conversation *ret, struct arena *a, struct err *e)
{
    char id[MEMORY_ID_BYTES];
    random_id("conv_", id);
    int rc = db_begin(m->db, DB_FULL, e);
    if (rc < 0)
        return rc;
    struct stmt *s = db_stmt(m->db,
                             "INSERT INTO conversation (id, owner, metadata, is_hidden, "
                             "created_at, updated_at, activity)"
                             " VALUES (?1, ?2, ?3, ?4, ?5, ?5,"
                             " (SELECT ifnull(max(activity), 0) + 1 FROM conversation WHERE owner "
                             "= ?2 AND is_hidden = ?4))",
                             e);
    stmt_str(s, 1, id);
    stmt_str(s, 2, new->owner);
    stmt_str(s, 3, new->metadata ? new->metadata : "{}");
    stmt_int(s, 4, new->is_hidden);
    stmt_int(s, 5, clock_wall_s());
    rc = stmt_run(s, e);
    struct memory_conversation c = {0};
    if (rc == 0)
        rc = memory_conversation_by_row(m, db_last_row(m->db), &c, a, e);
    rc = db_end(m->db, rc, e);
    if (rc == 0)
        *ret = c;
    return rc;
}

int conversation_touch(struct memory *m, int64_t row, struct err *e)
{
    struct stmt *s =
        db_stmt(m->db,
                "UPDATE conversation SET updated_at = max(updated_at, ?2), activity ="
                " (SELECT max(o.activity) + 1 FROM conversation o"
                "  WHERE o.owner = conversation.owner AND o.is_hidden = conversation.is_hidden)"
                " WHERE row = ?1",
                e);
    stmt_int(s, 1, row);
    stmt_int(s, 2, clock_wall_s());
    int rc = stmt_run(s, e);
    if (rc == 0 && db_n_changed(m->db) == 0)
        rc = err_set(e, ERR_NOTFOUND, "the conversation was deleted");
    return rc;
}

int memory_conversation_set(struct memory *m, int64_t row, const char *title, const char *metadata,
                            struct err *e)
{
    int rc = db_begin(m->db, DB_FULL, e);
    if (rc < 0)
        return rc;
    struct stmt *s = db_stmt(m->db,
                             "UPDATE conversation SET title = ifnull(?2, title),"
                             " metadata = ifnull(?3, metadata),"
                             " updated_at = max(updated_at, ?4) WHERE row = ?1",
                             e);
    stmt_int(s, 1, row);
    stmt_str(s, 2, title);
    stmt_str(s, 3, metadata);
    stmt_int(s, 4, clock_wall_s());
    rc = stmt_run(s, e);
    if (rc == 0 && db_n_changed(m->db) == 0)
        rc = err_set(e, ERR_NOTFOUND, "the conversation was deleted");
    return db_end(m->db, rc, e);
}

static int delete_found(struct memory *m, const char *owner, const char *id,
                        struct memory_removed *ret, struct err *e)
{
    struct stmt *s =
        db_stmt(m->db,
                "SELECT row, n_messages FROM conversation WHERE id = ?1 AND owner = ?2",
                e);
    stmt_str(s, 1, id);
    stmt_str(s, 2, owner);
    int rc = stmt_step(s, e);
    int64_t row = rc == 1 ? column_int(s, 0) : 0;
    ret->n_messages = rc == 1 ? column_int(s, 1) : 0;
    stmt_end(s);
    if (rc == 0)
        return err_set(e, ERR_NOTFOUND, "no conversation '%s'", nothing_named(id));
    if (rc == 1)
        rc = gone_begin(m, ret, e);
    if (rc == 0)
        rc = gone_note_conversation(m, row, ret, e);
    if (rc == 0)
        rc = index_remove_conversation(m, row, e);
    if (rc < 0)
        return rc;
    s = db_stmt(m->db, "DELETE FROM conversation WHERE row = ?1", e);
    stmt_int(s, 1, row);
    rc = stmt_run(s, e);
    return rc < 0 ? rc : gone_end(m, ret, e);
}

int memory_conversation_remove(struct memory *m, const char *owner, const char *id,
                               struct memory_removed *ret, struct err *e)
{
    struct memory_removed gone = {.n_messages = 0};
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

/* Where the page starts: the named conversation's place in the order. */
static int page_start(struct memory *m, const char *owner, const struct memory_page *page,
                      int64_t *ret, struct err *e)
{
    if (!page->after) {
        *ret = page->is_ascending ? INT64_MIN : INT64_MAX;
        return 0;
    }
    struct stmt *s = db_stmt(
        m->db, "SELECT activity FROM conversation WHERE id = ?1 AND owner = ?2 AND is_hidden = 0",
        e);
    stmt_str(s, 1, page->after);
    stmt_str(s, 2, owner);
    int rc = stmt_step(s, e);
    if (rc == 1)
        *ret = column_int(s, 0);
    else if (rc == 0)
        rc = err_set(e, ERR_NOTFOUND, "no conversation '%s'", page->after);
    stmt_end(s);
    return rc < 0 ? rc : 0;
}

int memory_conversation_list(struct memory *m, const char *owner, const struct memory_page *page,
                             struct memory_conversations *ret, struct arena *a, struct err *e)
{
    static const char newest[] = "SELECT " CONVERSATION_COLUMNS " FROM conversation c"
                                 " WHERE c.owner = ?1 AND c.is_hidden = 0 AND c.activity < ?2"
                                 " ORDER BY c.activity DESC LIMIT ?3";
    static const char oldest[] = "SELECT " CONVERSATION_COLUMNS " FROM conversation c"
                                 " WHERE c.owner = ?1 AND c.is_hidden = 0 AND c.activity > ?2"
                                 " ORDER BY c.activity LIMIT ?3";
    int64_t start = 0;
    if (page->limit < 1 || page->limit > MEMORY_PAGE_MAX)
        return err_set(e, ERR_INVAL, "limit is %d: from 1 to %d", page->limit, MEMORY_PAGE_MAX);
    int rc = page_start(m, owner, page, &start, e);
    if (rc < 0)
        return rc;
    struct memory_conversation *list = arena_array(a, (size_t)page->limit, sizeof(*list));
    if (!list)
        return memory_out(e);
    struct stmt *s = db_stmt(m->db, page->is_ascending ? oldest : newest, e);
    stmt_str(s, 1, owner);
    stmt_int(s, 2, start);
    stmt_int(s, 3, page->limit + 1);
    size_t n = 0;
    while ((rc = stmt_step(s, e)) == 1 && n < (size_t)page->limit) {
        rc = conversation_read(s, &list[n++], a, e);
        if (rc < 0)
            break;
    }
    stmt_end(s);
    if (rc < 0)
        return rc;
    *ret = (struct memory_conversations){.v = list, .n = n, .has_more = rc == 1};
    return 0;
}
