/*
 * Token ids of messages. They belong to (message, render id): another model's tokenizer or template
 * makes other ids of the same text, and neither overwrites the other.
 */
#include "memory/internal.h"

#include <string.h>

#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "ids are stored as they lie in memory, little-endian"
#endif

int tokens_insert(struct memory *m, int64_t message, const uint8_t *render, const int32_t *ids,
                  size_t n, struct err *e)
{
    struct stmt *s = db_stmt(m->db,
                             "INSERT INTO message_tokens (message, render, ids) VALUES (?1, ?2, ?3)"
                             " ON CONFLICT (message, render) DO UPDATE SET ids = excluded.ids",
                             e);
    stmt_int(s, 1, message);
    stmt_blob(s, 2, render, HASH_BYTES);
    /* Not NULL: no ids are an empty blob. */
    stmt_blob(s, 3, n > 0 ? (const void *)ids : "", n * sizeof(*ids));
    return stmt_run(s, e);
}

int tokens_read(struct stmt *s, int column, struct ids *ret, struct err *e)
{
    size_t n;
    const unsigned char *bytes = column_blob(s, column, &n);
    if (n % sizeof(int32_t) != 0)
        return err_set(e, ERR_CORRUPT, "history: token ids of %zu bytes", n);
    for (size_t i = 0; i < n; i += sizeof(int32_t)) {
        int32_t id;
        memcpy(&id, bytes + i, sizeof(id)); /* SQLite's bytes may be unaligned */
        int rc = ids_push(ret, id);
        if (rc < 0)
            return err_set(e, rc, "history: token ids: %s", err_name(rc));
    }
    return 0;
}

int memory_tokens_get(struct memory *m, int64_t message, const uint8_t render[HASH_BYTES],
                      struct ids *ret, struct err *e)
{
    struct stmt *s =
        db_stmt(m->db, "SELECT ids FROM message_tokens WHERE message = ?1 AND render = ?2", e);
    stmt_int(s, 1, message);
    stmt_blob(s, 2, render, HASH_BYTES);
    size_t n_before = ret->n;
    int rc = stmt_step(s, e);
    if (rc == 1)
        rc = tokens_read(s, 0, ret, e);
    else if (rc == 0)
        rc = err_set(e, ERR_NOTFOUND, "message %lld has no ids of this model", (long long)message);
    stmt_end(s);
    if (rc < 0)
        ret->n = n_before;
    return rc;
}

int memory_tokens_set(struct memory *m, int64_t message, const uint8_t render[HASH_BYTES],
                      const int32_t *ids, size_t n, struct err *e)
{
    int rc = db_begin(m->db, DB_NORMAL, e);
    if (rc < 0)
        return rc;
    return db_end(m->db, tokens_insert(m, message, render, ids, n, e), e);
}

bool memory_tokens_render(struct memory *m, int64_t message, uint8_t ret[HASH_BYTES])
{
    struct err ignored;
    struct stmt *s =
        db_stmt(m->db, "SELECT render FROM message_tokens WHERE message = ?1 LIMIT 1", &ignored);
    stmt_int(s, 1, message);
    bool is_found = stmt_step(s, &ignored) == 1;
    if (is_found) {
        size_t n;
        const void *render = column_blob(s, 0, &n);
        is_found = n == HASH_BYTES;
        if (is_found)
            memcpy(ret, render, HASH_BYTES);
    }
    stmt_end(s);
    return is_found;
}
