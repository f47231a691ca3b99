/*
 * Replies of stateless chats: what the model wrote, by the hash of all that was said up to it.
 *
 * /v1/chat/completions sends the whole history each time, as text. Its assistant messages are
 * looked up here by a hash chain over (role, text), so that they are read with the ids they were
 * generated with, and the cache knows them. A miss costs a re-encoding, nothing else; so this is a
 * cache: NORMAL, a byte budget per owner, oldest use out first, and a use that can't be noted
 * because another program is writing isn't noted.
 */
#include "memory/internal.h"

#include <string.h>

/* What a row costs beside its ids: keys, two index entries, headers. */
#define ROW_BYTES 192

void memory_chain(uint8_t chain[HASH_BYTES], enum memory_role role, const char *text, size_t n)
{
    struct hash_state s;
    unsigned char head[1 + 8] = {(unsigned char)role};
    for (int i = 0; i < 8; i++)
        head[1 + i] = (unsigned char)((uint64_t)n >> (8 * i));
    hash_init(&s);
    hash_add(&s, chain, HASH_BYTES);
    hash_add(&s, head, sizeof(head));
    hash_add(&s, text, n);
    hash_end(&s, chain);
}

struct owner {
    int64_t row, bytes, uses;
};

static int owner_find(struct memory *m, const char *name, struct owner *ret, struct err *e)
{
    struct stmt *s = db_stmt(m->db, "SELECT row, bytes, uses FROM reply_owner WHERE owner = ?1", e);
    stmt_str(s, 1, name);
    int rc = stmt_step(s, e);
    if (rc == 1)
        *ret = (struct owner){column_int(s, 0), column_int(s, 1), column_int(s, 2)};
    stmt_end(s);
    return rc == 0 ? err_set(e, ERR_NOTFOUND, "no replies of %s", name) : rc < 0 ? rc : 0;
}

static int owner_add(struct memory *m, const char *name, struct owner *ret, struct err *e)
{
    int rc = owner_find(m, name, ret, e);
    if (rc != ERR_NOTFOUND)
        return rc;
    struct stmt *s =
        db_stmt(m->db, "INSERT INTO reply_owner (owner, bytes, uses) VALUES (?1, 0, 0)", e);
    stmt_str(s, 1, name);
    rc = stmt_run(s, e);
    if (rc == 0)
        *ret = (struct owner){.row = db_last_row(m->db)};
    return rc;
}

static int owner_set(struct memory *m, const struct owner *o, struct err *e)
{
    struct stmt *s =
        db_stmt(m->db, "UPDATE reply_owner SET bytes = ?2, uses = ?3 WHERE row = ?1", e);
    stmt_int(s, 1, o->row);
    stmt_int(s, 2, o->bytes);
    stmt_int(s, 3, o->uses);
    return stmt_run(s, e);
}

/* Deletes the reply with these keys, if there; *ret_bytes: what it held. */
static int drop(struct memory *m, const struct owner *o, const uint8_t *chain,
                const uint8_t *render, int64_t *ret_bytes, struct err *e)
{
    struct stmt *s = db_stmt(m->db,
                             "DELETE FROM reply WHERE owner = ?1 AND chain = ?2 AND render = ?3"
                             " RETURNING length(ids)",
                             e);
    stmt_int(s, 1, o->row);
    stmt_blob(s, 2, chain, HASH_BYTES);
    stmt_blob(s, 3, render, HASH_BYTES);
    int rc = stmt_step(s, e);
    *ret_bytes = rc == 1 ? column_int(s, 0) + ROW_BYTES : 0;
    stmt_end(s);
    return rc < 0 ? rc : 0;
}

/* Oldest use first, until the sum fits. */
static int shrink(struct memory *m, struct owner *o, struct err *e)
{
    while (o->bytes > MEMORY_REPLY_BUDGET_BYTES) {
        struct stmt *s = db_stmt(m->db,
                                 "DELETE FROM reply WHERE rowid = (SELECT rowid FROM reply"
                                 " WHERE owner = ?1 ORDER BY used LIMIT 1) RETURNING length(ids)",
                                 e);
        stmt_int(s, 1, o->row);
        int rc = stmt_step(s, e);
        if (rc == 1)
            o->bytes -= column_int(s, 0) + ROW_BYTES;
        else
            o->bytes = 0; /* nothing is left: the sum was wrong */
        stmt_end(s);
        if (rc < 0)
            return rc;
    }
    return 0;
}

static int put(struct memory *m, const char *owner, const struct memory_reply_key *key,
               const struct ids *ids, struct err *e)
{
    struct owner o = {0};
    int64_t freed;
    int rc = owner_add(m, owner, &o, e);
    if (rc == 0)
        rc = drop(m, &o, key->chain, key->render, &freed, e);
    if (rc < 0)
        return rc;
    o.uses++;
    struct stmt *s = db_stmt(
        m->db, "INSERT INTO reply (owner, chain, render, used, ids) VALUES (?1, ?2, ?3, ?4, ?5)",
        e);
    stmt_int(s, 1, o.row);
    stmt_blob(s, 2, key->chain, HASH_BYTES);
    stmt_blob(s, 3, key->render, HASH_BYTES);
    stmt_int(s, 4, o.uses);
    stmt_blob(s, 5, ids->n > 0 ? (const void *)ids->v : "", ids->n * sizeof(*ids->v));
    rc = stmt_run(s, e);
    o.bytes += (int64_t)(ids->n * sizeof(*ids->v)) + ROW_BYTES - freed;
    if (rc == 0)
        rc = shrink(m, &o, e);
    if (rc == 0)
        rc = owner_set(m, &o, e);
    return rc;
}

int memory_reply_put(struct memory *m, const char *owner, const struct memory_reply_key *key,
                     const int32_t *ids, size_t n, struct err *e)
{
    /* One reply may not push out most of the others. */
    if (n > MEMORY_REPLY_BUDGET_BYTES / 4 / sizeof(*ids))
        return 0;
    const struct ids list = {.v = (int32_t *)ids, .n = n, .cap = n}; /* read only */
    int rc = db_begin(m->db, DB_NORMAL, e);
    if (rc < 0)
        return rc;
    return db_end(m->db, put(m, owner, key, &list, e), e);
}

static int note_use(struct memory *m, struct owner *o, const struct memory_reply_key *key,
                    struct err *e)
{
    o->uses++;
    struct stmt *s = db_stmt(
        m->db, "UPDATE reply SET used = ?4 WHERE owner = ?1 AND chain = ?2 AND render = ?3", e);
    stmt_int(s, 1, o->row);
    stmt_blob(s, 2, key->chain, HASH_BYTES);
    stmt_blob(s, 3, key->render, HASH_BYTES);
    stmt_int(s, 4, o->uses);
    int rc = stmt_run(s, e);
    return rc < 0 ? rc : owner_set(m, o, e);
}

int memory_reply_get(struct memory *m, const char *owner, const struct memory_reply_key *key,
                     struct ids *ret, struct err *e)
{
    struct owner o = {0};
    int rc = owner_find(m, owner, &o, e);
    if (rc < 0)
        return rc;
    struct stmt *s = db_stmt(
        m->db, "SELECT ids, used FROM reply WHERE owner = ?1 AND chain = ?2 AND render = ?3", e);
    stmt_int(s, 1, o.row);
    stmt_blob(s, 2, key->chain, HASH_BYTES);
    stmt_blob(s, 3, key->render, HASH_BYTES);
    size_t n_before = ret->n;
    rc = stmt_step(s, e);
    bool is_newest = rc == 1 && column_int(s, 1) == o.uses;
    if (rc == 1)
        rc = tokens_read(s, 0, ret, e);
    else if (rc == 0)
        rc = err_set(e, ERR_NOTFOUND, "no such reply");
    stmt_end(s);
    if (rc < 0) {
        ret->n = n_before;
        return rc;
    }
    struct err ignored;
    if (!is_newest && db_begin_now(m->db, &ignored) == 0)
        (void)!db_end(m->db, note_use(m, &o, key, &ignored), &ignored);
    return 0;
}

bool memory_reply_is_of_other(struct memory *m, const char *owner,
                              const struct memory_reply_key *key)
{
    struct err ignored;
    struct owner o = {0};
    if (owner_find(m, owner, &o, &ignored) < 0)
        return false;
    struct stmt *s = db_stmt(
        m->db, "SELECT 1 FROM reply WHERE owner = ?1 AND chain = ?2 AND render <> ?3 LIMIT 1",
        &ignored);
    stmt_int(s, 1, o.row);
    stmt_blob(s, 2, key->chain, HASH_BYTES);
    stmt_blob(s, 3, key->render, HASH_BYTES);
    bool is_there = stmt_step(s, &ignored) == 1;
    stmt_end(s);
    return is_there;
}

int memory_reply_drop_all(struct memory *m, const char *owner, struct err *e)
{
    int rc = db_begin(m->db, DB_NORMAL, e);
    if (rc < 0)
        return rc;
    struct stmt *s = db_stmt(m->db, "DELETE FROM reply_owner WHERE owner = ?1", e);
    stmt_str(s, 1, owner);
    rc = db_end(m->db, stmt_run(s, e), e);
    if (rc == 0)
        store_wipe(m);
    return rc;
}
