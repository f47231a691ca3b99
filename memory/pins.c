/*
 * Pins: what a person said must stay in sight, messages and free notes; and which strategy a
 * conversation is kept with.
 *
 * A message that is pinned has no text of its own here: it is read where it stands, so that an
 * answer that was pinned while it grew is pinned whole, and a deleted one is gone.
 */
#include <string.h>

#include "base/hash.h"
#include "base/clock.h"
#include "memory/internal.h"
#include "memory/window.h"

/* What pin_read takes, in its order. */
#define PINS                                                                                       \
    "SELECT p.row, p.id, p.conversation, p.message, m.id, m.role, p.created_at,"                   \
    " ifnull(m.text, p.text) FROM pin p LEFT JOIN message m ON m.row = p.message"

static int copy_id(struct stmt *s, int column, char ret[MEMORY_ID_BYTES], struct err *e)
{
    size_t n;
    const char *id = column_text(s, column, &n);
    if (n >= MEMORY_ID_BYTES)
        return err_set(e, ERR_CORRUPT, "history: an id of %zu bytes", n);
    memcpy(ret, id, n + 1);
    return 0;
}

static int pin_read(struct stmt *s, struct memory_pin *ret, struct arena *a, struct err *e)
{
    struct memory_pin pin = {
        .row = column_int(s, 0),
        .conversation = column_int(s, 2),
        .message = column_int(s, 3),
        .role = column_int(s, 3) ? (enum memory_role)column_int(s, 5) : MEMORY_USER,
        .created_at = column_int(s, 6),
    };
    int rc = copy_id(s, 1, pin.id, e);
    if (rc == 0)
        rc = copy_id(s, 4, pin.message_id, e);
    if (rc < 0)
        return rc;
    pin.text = column_copy(s, 7, &pin.n_text, a);
    if (!pin.text)
        return memory_out(e);
    *ret = pin;
    return 0;
}

/* Binds, runs and ends s: 1 and *ret, or 0: no such pin. */
static int read_one(struct stmt *s, struct memory_pin *ret, struct arena *a, struct err *e)
{
    const int found = stmt_step(s, e);
    int rc = found == 1 ? pin_read(s, ret, a, e) : 0;
    stmt_end(s);
    return rc < 0 ? rc : found;
}

static int find_same(struct memory *m, const struct memory_new_pin *pin, struct memory_pin *ret,
                     struct arena *a, struct err *e)
{
    struct stmt *s;
    if (pin->message != 0) {
        s = db_stmt(m->db, PINS " WHERE p.message = ?1", e);
        stmt_int(s, 1, pin->message);
        return read_one(s, ret, a, e);
    }
    s = db_stmt(m->db,
                PINS " WHERE p.conversation = ?1 AND p.message IS NULL AND p.text = ?2 LIMIT 1", e);
    stmt_int(s, 1, pin->conversation);
    stmt_text(s, 2, pin->text, pin->n_text);
    return read_one(s, ret, a, e);
}

static int check_pin(struct memory *m, const struct memory_new_pin *pin, struct err *e)
{
    if (pin->message == 0 && (!pin->text || pin->n_text == 0))
        return err_set(e, ERR_INVAL, "an empty note");
    if (pin->message == 0 && pin->n_text > MEMORY_NOTE_BYTES_MAX)
        return err_set(e, ERR_LIMIT, "a note of %zu bytes: at most %d", pin->n_text,
                       MEMORY_NOTE_BYTES_MAX);
    struct stmt *s = db_stmt(m->db,
                             "SELECT (SELECT count(*) FROM pin WHERE conversation = c.row),"
                             " ?2 = 0 OR EXISTS (SELECT 1 FROM message"
                             "  WHERE row = ?2 AND conversation = c.row)"
                             " FROM conversation c WHERE c.row = ?1",
                             e);
    stmt_int(s, 1, pin->conversation);
    stmt_int(s, 2, pin->message);
    int rc = stmt_step(s, e);
    const int64_t n = rc == 1 ? column_int(s, 0) : 0;
    const bool is_member = rc == 1 && column_int(s, 1) != 0;
    stmt_end(s);
    if (rc < 0)
        return rc;
    if (rc == 0)
        return err_set(e, ERR_NOTFOUND, "the conversation was deleted");
    if (!is_member)
        return err_set(e, ERR_NOTFOUND, "message %lld is not in the conversation",
                       (long long)pin->message);
    if (n >= MEMORY_PINS_MAX)
        return err_set(e, ERR_LIMIT, "the conversation has %lld pins: at most %d", (long long)n,
                       MEMORY_PINS_MAX);
    return 0;
}

static int insert_pin(struct memory *m, const struct memory_new_pin *pin, struct memory_pin *ret,
                      struct arena *a, struct err *e)
{
    char id[MEMORY_ID_BYTES];
    int found = find_same(m, pin, ret, a, e);
    if (found != 0)
        return found < 0 ? found : 0;
    int rc = check_pin(m, pin, e);
    if (rc < 0)
        return rc;
    random_id("pin_", id);
    const bool is_note = pin->message == 0;
    struct stmt *s = db_stmt(m->db,
                             "INSERT INTO pin (id, conversation, message, created_at, text)"
                             " VALUES (?1, ?2, nullif(?3, 0), ?4, ?5)",
                             e);
    stmt_str(s, 1, id);
    stmt_int(s, 2, pin->conversation);
    stmt_int(s, 3, pin->message);
    stmt_int(s, 4, clock_wall_s());
    stmt_text(s, 5, is_note ? pin->text : "", is_note ? pin->n_text : 0);
    rc = stmt_run(s, e);
    if (rc < 0)
        return rc;
    s = db_stmt(m->db, PINS " WHERE p.row = ?1", e);
    stmt_int(s, 1, db_last_row(m->db));
    rc = read_one(s, ret, a, e);
    return rc < 0 ? rc : 0;
}

int memory_pin_add(struct memory *m, const struct memory_new_pin *pin, struct memory_pin *ret,
                   struct arena *a, struct err *e)
{
    struct memory_pin added;
    int rc = db_begin(m->db, DB_FULL, e);
    if (rc < 0)
        return rc;
    rc = db_end(m->db, insert_pin(m, pin, &added, a, e), e);
    if (rc == 0)
        *ret = added;
    return rc;
}

int memory_pin_list(struct memory *m, int64_t conversation, struct memory_pins *ret,
                    struct arena *a, struct err *e)
{
    struct memory_pin *list = arena_array(a, MEMORY_PINS_MAX, sizeof(*list));
    size_t n = 0;
    if (!list)
        return memory_out(e);
    struct stmt *s = db_stmt(m->db, PINS " WHERE p.conversation = ?1 ORDER BY p.row", e);
    stmt_int(s, 1, conversation);
    int rc;
    while ((rc = stmt_step(s, e)) == 1 && n < MEMORY_PINS_MAX) {
        rc = pin_read(s, &list[n++], a, e);
        if (rc < 0)
            break;
    }
    stmt_end(s);
    if (rc < 0)
        return rc;
    *ret = (struct memory_pins){.v = list, .n = n};
    return 0;
}

int memory_pin_remove(struct memory *m, int64_t conversation, const char *id, struct err *e)
{
    int rc = db_begin(m->db, DB_FULL, e);
    if (rc < 0)
        return rc;
    struct stmt *s = db_stmt(m->db,
                             "DELETE FROM pin WHERE conversation = ?1 AND (id = ?2 OR message ="
                             " (SELECT row FROM message WHERE id = ?2))",
                             e);
    stmt_int(s, 1, conversation);
    stmt_str(s, 2, id);
    rc = stmt_run(s, e);
    if (rc == 0 && db_n_changed(m->db) == 0)
        rc = err_set(e, ERR_NOTFOUND, "no pin '%s'", id ? id : "(none)");
    rc = db_end(m->db, rc, e);
    if (rc == 0)
        store_wipe(m);
    return rc;
}

/* ---- strategy ---- */

int memory_strategy_set(struct memory *m, int64_t conversation, enum plan_strategy strategy,
                        struct err *e)
{
    int rc = db_begin(m->db, DB_FULL, e);
    if (rc < 0)
        return rc;
    struct stmt *s = db_stmt(m->db, "UPDATE conversation SET strategy = ?2 WHERE row = ?1", e);
    stmt_int(s, 1, conversation);
    stmt_str(s, 2, plan_strategy_name(strategy));
    rc = stmt_run(s, e);
    if (rc == 0 && db_n_changed(m->db) == 0)
        rc = err_set(e, ERR_NOTFOUND, "the conversation was deleted");
    return db_end(m->db, rc, e);
}

int memory_strategy_get(struct memory *m, int64_t conversation, enum plan_strategy *ret,
                        struct err *e)
{
    enum plan_strategy strategy = PLAN_UNSET;
    struct stmt *s = db_stmt(m->db, "SELECT strategy FROM conversation WHERE row = ?1", e);
    stmt_int(s, 1, conversation);
    int rc = stmt_step(s, e);
    if (rc == 1 && !plan_strategy_parse(column_text(s, 0, NULL), &strategy))
        strategy = PLAN_UNSET;
    stmt_end(s);
    if (rc == 0)
        return err_set(e, ERR_NOTFOUND, "the conversation was deleted");
    if (rc < 0)
        return rc;
    *ret = strategy;
    return 0;
}
