/*
 * Which conversation uses which blocks of the prefix cache. The blocks are opaque here: 32 bytes
 * each, told with an answer, told back when nobody uses them any more.
 *
 * A use names the message that the block ends in. A block holds all that was read up to its end, so
 * a message that goes takes along what ends in it, and what ends below it in the tree:
 *
 *     messages   1 system ── 2 user ── 3 answer ── 4 user ── 5 answer
 *     blocks     [ a ][ b ][ c    ][ d ][ e      ][ f   ][ g ]
 *     ends in      1    1     2      3      4        5     5         2 goes: c d e f g go
 *
 * What is to leave the cache is written to block_gone in the transaction that deletes the rows, and
 * stays there until the cache has confirmed it.
 */
#include "memory/internal.h"

#include <stdlib.h>
#include <string.h>

#include "base/sys.h"

#define FIRST_IDS 64
#define BELOW                                                                                      \
    "WITH RECURSIVE below (row) AS (SELECT ?2 UNION ALL SELECT c.row FROM message c"               \
    " JOIN below b ON c.parent = b.row WHERE c.parent > 0) "
/* The uses that a message's end takes along; ?1 conversation, ?2 message. */
#define USES_BELOW                                                                                 \
    "conversation = ?1 AND (message = -1 OR message IN (SELECT row FROM below))"

void memory_removed_done(struct memory_removed *r)
{
    free(r->blocks);
    free(r->unpinned);
    *r = (struct memory_removed){0};
}

/* Takes the first column of all rows, ids. Ends s. */
static int read_ids(struct stmt *s, uint8_t **ret, size_t *ret_n, struct err *e)
{
    uint8_t *ids = NULL;
    size_t n = 0, cap = 0;
    int rc;
    while ((rc = stmt_step(s, e)) == 1) {
        size_t n_bytes;
        const void *id = column_blob(s, 0, &n_bytes);
        if (n_bytes != HASH_BYTES) /* what else somebody put there names no block */
            continue;
        if (n == cap) {
            cap = cap ? 2 * cap : FIRST_IDS;
            uint8_t *more = sys.realloc(ids, cap * HASH_BYTES);
            if (!more) {
                rc = memory_out(e);
                break;
            }
            ids = more;
        }
        memcpy(ids + n++ * HASH_BYTES, id, HASH_BYTES);
    }
    stmt_end(s);
    if (rc < 0) {
        free(ids);
        return rc;
    }
    *ret = ids;
    *ret_n = n;
    return 0;
}

static int run_2(struct memory *m, const char *sql, int64_t a, int64_t b, struct err *e)
{
    struct stmt *s = db_stmt(m->db, sql, e);
    stmt_int(s, 1, a);
    stmt_int(s, 2, b);
    return stmt_run(s, e);
}

/* ---- uses ---- */

int blocks_insert(struct memory *m, const struct memory_answer *answer, struct err *e)
{
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < answer->n_blocks; i++) {
        struct stmt *s = db_stmt(m->db,
                                 "INSERT OR IGNORE INTO block_use (conversation, block, message)"
                                 " SELECT conversation, ?2, ?3 FROM message WHERE row = ?1",
                                 e);
        stmt_int(s, 1, answer->row);
        stmt_blob(s, 2, answer->blocks + i * HASH_BYTES, HASH_BYTES);
        stmt_int(s, 3, answer->block_messages ? answer->block_messages[i] : -1);
        rc = stmt_run(s, e);
    }
    return rc;
}

int memory_blocks_add(struct memory *m, int64_t conversation, const uint8_t *blocks, size_t n,
                      struct err *e)
{
    int rc = db_begin(m->db, DB_NORMAL, e);
    if (rc < 0)
        return rc;
    for (size_t i = 0; rc == 0 && i < n; i++) {
        struct stmt *s = db_stmt(m->db,
                                 "INSERT OR IGNORE INTO block_use (conversation, block, message)"
                                 " SELECT row, ?2, -1 FROM conversation WHERE row = ?1",
                                 e);
        stmt_int(s, 1, conversation);
        stmt_blob(s, 2, blocks + i * HASH_BYTES, HASH_BYTES);
        rc = stmt_run(s, e);
    }
    return db_end(m->db, rc, e);
}

int memory_blocks_unused(struct memory *m, uint8_t *ids, size_t n, size_t *ret_n, struct err *e)
{
    size_t n_unused = 0;
    int rc = db_begin_read(m->db, e);
    if (rc < 0)
        return rc;
    for (size_t i = 0; rc >= 0 && i < n; i++) {
        struct stmt *s = db_stmt(m->db, "SELECT 1 FROM block_use WHERE block = ?1 LIMIT 1", e);
        stmt_blob(s, 1, ids + i * HASH_BYTES, HASH_BYTES);
        rc = stmt_step(s, e);
        stmt_end(s);
        if (rc == 0)
            memmove(ids + n_unused++ * HASH_BYTES, ids + i * HASH_BYTES, HASH_BYTES);
    }
    rc = db_end(m->db, rc, e);
    if (rc < 0)
        return rc;
    *ret_n = n_unused;
    return 0;
}

int memory_blocks_of(struct memory *m, int64_t conversation, bool is_only, uint8_t **ret,
                     size_t *ret_n, struct err *e)
{
    struct stmt *s =
        db_stmt(m->db,
                "SELECT b.block FROM (SELECT block FROM block_use WHERE conversation = ?1 UNION"
                " SELECT block FROM block_pin WHERE conversation = ?1) b"
                " WHERE ?2 = 0 OR NOT (EXISTS (SELECT 1 FROM block_use o WHERE o.block = b.block"
                "   AND o.conversation <> ?1)"
                " OR EXISTS (SELECT 1 FROM block_pin o WHERE o.block = b.block"
                "   AND o.conversation <> ?1)) ORDER BY b.block",
                e);
    stmt_int(s, 1, conversation);
    stmt_int(s, 2, is_only);
    return read_ids(s, ret, ret_n, e);
}

/* ---- what goes ---- */

int gone_begin(struct memory *m, struct memory_removed *gone, struct err *e)
{
    return db_get_int(m->db, "SELECT ifnull(max(batch), 0) + 1 FROM block_gone", &gone->batch, e);
}

/* The conversation's pins of what is noted, as far as nobody else has them, and then all its pins
 * of what is noted. A message's removal may note some of them, the next some more. */
static int take_pins(struct memory *m, int64_t conversation, struct memory_removed *gone,
                     struct err *e)
{
    uint8_t *ids = NULL;
    size_t n = 0;
    struct stmt *s =
        db_stmt(m->db,
                "SELECT p.block FROM block_pin p JOIN block_gone g ON g.block = p.block"
                " WHERE p.conversation = ?1 AND g.batch = ?2 AND NOT EXISTS"
                " (SELECT 1 FROM block_pin o WHERE o.block = p.block AND o.conversation <> ?1)",
                e);
    stmt_int(s, 1, conversation);
    stmt_int(s, 2, gone->batch);
    int rc = read_ids(s, &ids, &n, e);
    if (rc < 0 || n == 0)
        return rc;
    uint8_t *all = sys.realloc(gone->unpinned, (gone->n_unpinned + n) * HASH_BYTES);
    if (all) {
        memcpy(all + gone->n_unpinned * HASH_BYTES, ids, n * HASH_BYTES);
        gone->unpinned = all;
        gone->n_unpinned += n;
    }
    free(ids);
    return all ? 0 : memory_out(e);
}

int gone_note_conversation(struct memory *m, int64_t conversation, struct memory_removed *gone,
                           struct err *e)
{
    int rc = run_2(m,
                   "INSERT OR REPLACE INTO block_gone (block, batch)"
                   " SELECT block, ?2 FROM block_use WHERE conversation = ?1 UNION"
                   " SELECT block, ?2 FROM block_pin WHERE conversation = ?1",
                   conversation, gone->batch, e);
    return rc < 0 ? rc : take_pins(m, conversation, gone, e);
}

int gone_note_message(struct memory *m, int64_t row, struct memory_removed *gone, struct err *e)
{
    struct stmt *s = db_stmt(m->db, "SELECT conversation FROM message WHERE row = ?1", e);
    stmt_int(s, 1, row);
    int rc = stmt_step(s, e);
    const int64_t conversation = rc == 1 ? column_int(s, 0) : 0;
    stmt_end(s);
    if (rc <= 0)
        return rc;
    s = db_stmt(m->db,
                BELOW "INSERT OR REPLACE INTO block_gone (block, batch)"
                      " SELECT DISTINCT block, ?3 FROM block_use WHERE " USES_BELOW,
                e);
    stmt_int(s, 1, conversation);
    stmt_int(s, 2, row);
    stmt_int(s, 3, gone->batch);
    rc = stmt_run(s, e);
    if (rc == 0)
        rc = run_2(m, BELOW "DELETE FROM block_use WHERE " USES_BELOW, conversation, row, e);
    /* A pin of what the conversation doesn't use may be of these words too. */
    if (rc == 0)
        rc = run_2(m,
                   "INSERT OR REPLACE INTO block_gone (block, batch)"
                   " SELECT block, ?2 FROM block_pin WHERE conversation = ?1",
                   conversation, gone->batch, e);
    if (rc == 0)
        rc = run_2(m,
                   "DELETE FROM block_gone WHERE batch = ?2 AND EXISTS (SELECT 1 FROM block_use u"
                   " WHERE u.conversation = ?1 AND u.block = block_gone.block)",
                   conversation, gone->batch, e);
    if (rc == 0)
        rc = take_pins(m, conversation, gone, e);
    if (rc == 0)
        rc = run_2(m,
                   "DELETE FROM block_pin WHERE conversation = ?1 AND block IN"
                   " (SELECT block FROM block_gone WHERE batch = ?2)",
                   conversation, gone->batch, e);
    return rc;
}

/* What is used or pinned isn't gone. */
static int gone_filter(struct memory *m, int64_t batch, struct err *e)
{
    return run_2(m,
                 "DELETE FROM block_gone WHERE batch = ?1 AND ?2 = 0 AND"
                 " (EXISTS (SELECT 1 FROM block_use u WHERE u.block = block_gone.block)"
                 " OR EXISTS (SELECT 1 FROM block_pin p WHERE p.block = block_gone.block))",
                 batch, 0, e);
}

int gone_end(struct memory *m, struct memory_removed *gone, struct err *e)
{
    int rc = gone_filter(m, gone->batch, e);
    if (rc < 0)
        return rc;
    struct stmt *s =
        db_stmt(m->db, "SELECT block FROM block_gone WHERE batch = ?1 ORDER BY block", e);
    stmt_int(s, 1, gone->batch);
    return read_ids(s, &gone->blocks, &gone->n_blocks, e);
}

static int note_ids(struct memory *m, const uint8_t *ids, size_t n, int64_t batch, struct err *e)
{
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < n; i++) {
        struct stmt *s = db_stmt(
            m->db, "INSERT OR REPLACE INTO block_gone (block, batch) VALUES (?1, ?2)", e);
        stmt_blob(s, 1, ids + i * HASH_BYTES, HASH_BYTES);
        stmt_int(s, 2, batch);
        rc = stmt_run(s, e);
    }
    return rc;
}

int memory_blocks_gone(struct memory *m, const uint8_t *ids, size_t n, struct memory_removed *ret,
                       struct err *e)
{
    struct memory_removed gone = {0};
    int rc = db_begin(m->db, DB_FULL, e);
    if (rc < 0)
        return rc;
    rc = gone_begin(m, &gone, e);
    if (rc == 0)
        rc = note_ids(m, ids, n, gone.batch, e);
    if (rc == 0)
        rc = gone_end(m, &gone, e);
    rc = db_end(m->db, rc, e);
    if (rc < 0)
        memory_removed_done(&gone);
    else
        *ret = gone;
    return rc;
}

int memory_gone_read(struct memory *m, struct memory_removed *ret, struct err *e)
{
    struct memory_removed gone = {0};
    int64_t n;
    int rc = db_get_int(m->db, "SELECT count(*) FROM block_gone", &n, e);
    if (rc < 0 || n == 0) {
        if (rc == 0)
            *ret = gone;
        return rc;
    }
    rc = db_begin(m->db, DB_FULL, e);
    if (rc < 0)
        return rc;
    rc = gone_begin(m, &gone, e);
    if (rc == 0)
        rc = run_2(m, "UPDATE block_gone SET batch = ?1 WHERE batch < ?2", gone.batch, gone.batch,
                   e);
    if (rc == 0)
        rc = gone_end(m, &gone, e);
    rc = db_end(m->db, rc, e);
    if (rc < 0)
        memory_removed_done(&gone);
    else
        *ret = gone;
    return rc;
}

int memory_gone_done(struct memory *m, int64_t batch, struct err *e)
{
    int rc = db_begin(m->db, DB_NORMAL, e);
    if (rc < 0)
        return rc;
    rc = run_2(m, "DELETE FROM block_gone WHERE batch = ?1 AND ?2 = 0", batch, 0, e);
    rc = db_end(m->db, rc, e);
    if (rc == 0)
        store_wipe(m);
    return rc;
}

/* ---- pins ---- */

/* The pins that only this conversation has. */
static int pins_only_of(struct memory *m, int64_t conversation, struct memory_removed *ret,
                        struct err *e)
{
    struct stmt *s =
        db_stmt(m->db,
                "SELECT p.block FROM block_pin p WHERE p.conversation = ?1 AND NOT EXISTS"
                " (SELECT 1 FROM block_pin o WHERE o.block = p.block AND o.conversation <> ?1)",
                e);
    stmt_int(s, 1, conversation);
    return read_ids(s, &ret->unpinned, &ret->n_unpinned, e);
}

static int insert_pins(struct memory *m, int64_t conversation,
                       const struct memory_block_pin *pin, struct err *e)
{
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < pin->n; i++) {
        struct stmt *s = db_stmt(m->db,
                                 "INSERT INTO block_pin (conversation, place, block, model)"
                                 " VALUES (?1, ?2, ?3, ?4)",
                                 e);
        stmt_int(s, 1, conversation);
        stmt_int(s, 2, (int64_t)i);
        stmt_blob(s, 3, pin->blocks + i * HASH_BYTES, HASH_BYTES);
        stmt_blob(s, 4, pin->model, HASH_BYTES);
        rc = stmt_run(s, e);
    }
    return rc;
}

int memory_block_pin_set(struct memory *m, int64_t conversation,
                         const struct memory_block_pin *pin, struct memory_removed *ret,
                         struct err *e)
{
    struct memory_removed gone = {0};
    int rc = db_begin(m->db, DB_FULL, e);
    if (rc < 0)
        return rc;
    rc = pins_only_of(m, conversation, &gone, e);
    if (rc == 0)
        rc = run_2(m, "DELETE FROM block_pin WHERE conversation = ?1 AND ?2 = 0", conversation, 0,
                   e);
    if (rc == 0)
        rc = insert_pins(m, conversation, pin, e);
    rc = db_end(m->db, rc, e);
    if (rc < 0)
        memory_removed_done(&gone);
    else
        *ret = gone;
    return rc;
}

int memory_block_pin_get(struct memory *m, int64_t conversation, uint8_t **ret, size_t *ret_n,
                         uint8_t ret_model[HASH_BYTES], struct err *e)
{
    struct stmt *s =
        db_stmt(m->db, "SELECT model FROM block_pin WHERE conversation = ?1 LIMIT 1", e);
    stmt_int(s, 1, conversation);
    int rc = stmt_step(s, e);
    size_t n = 0;
    const void *model = rc == 1 ? column_blob(s, 0, &n) : NULL;
    memset(ret_model, 0, HASH_BYTES);
    if (n == HASH_BYTES)
        memcpy(ret_model, model, HASH_BYTES);
    stmt_end(s);
    if (rc < 0)
        return rc;
    s = db_stmt(m->db, "SELECT block FROM block_pin WHERE conversation = ?1 ORDER BY place", e);
    stmt_int(s, 1, conversation);
    return read_ids(s, ret, ret_n, e);
}

int memory_block_pin_count(struct memory *m, int64_t conversation, int64_t *ret, struct err *e)
{
    struct stmt *s = db_stmt(m->db, "SELECT count(*) FROM block_pin WHERE conversation = ?1", e);
    stmt_int(s, 1, conversation);
    int rc = stmt_step(s, e);
    if (rc == 1)
        *ret = column_int(s, 0);
    stmt_end(s);
    return rc < 0 ? rc : 0;
}

int memory_block_pins(struct memory *m, struct memory_block_pinned **ret, size_t *ret_n,
                      struct err *e)
{
    struct memory_block_pinned *pins = NULL;
    int64_t n_max;
    size_t n = 0;
    int rc = db_get_int(m->db, "SELECT count(*) FROM block_pin", &n_max, e);
    if (rc < 0)
        return rc;
    if (n_max > 0 && !(pins = sys.malloc((size_t)n_max * sizeof(*pins))))
        return memory_out(e);
    struct stmt *s =
        db_stmt(m->db, "SELECT model, block FROM block_pin ORDER BY conversation, place", e);
    while ((rc = stmt_step(s, e)) == 1 && n < (size_t)n_max) {
        size_t n_model, n_block;
        const void *model = column_blob(s, 0, &n_model), *block = column_blob(s, 1, &n_block);
        if (n_model != HASH_BYTES || n_block != HASH_BYTES)
            continue;
        memcpy(pins[n].model, model, HASH_BYTES);
        memcpy(pins[n++].block, block, HASH_BYTES);
    }
    stmt_end(s);
    if (rc < 0) {
        free(pins);
        return rc;
    }
    *ret = pins;
    *ret_n = n;
    return 0;
}
