/*
 * Which conversation uses which blocks of the prefix cache. The blocks are opaque here: 32 bytes
 * each, told with an answer, told back when their last conversation goes.
 */
#include "memory/internal.h"

#include <stdlib.h>
#include <string.h>

#include "base/sys.h"

int blocks_insert(struct memory *m, const struct memory_answer *answer, struct err *e)
{
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < answer->n_blocks; i++) {
        struct stmt *s = db_stmt(m->db,
                                 "INSERT OR IGNORE INTO block_use (conversation, block)"
                                 " SELECT conversation, ?2 FROM message WHERE row = ?1",
                                 e);
        stmt_int(s, 1, answer->row);
        stmt_blob(s, 2, answer->blocks + i * HASH_BYTES, HASH_BYTES);
        rc = stmt_run(s, e);
    }
    return rc;
}

static int count(struct memory *m, int64_t conversation, int64_t *ret, struct err *e)
{
    struct stmt *s = db_stmt(m->db, "SELECT count(*) FROM block_use WHERE conversation = ?1", e);
    stmt_int(s, 1, conversation);
    int rc = stmt_step(s, e);
    *ret = rc == 1 ? column_int(s, 0) : 0;
    stmt_end(s);
    return rc < 0 ? rc : 0;
}

int blocks_only_of(struct memory *m, int64_t conversation, struct memory_removed *ret,
                   struct err *e)
{
    int64_t n_max;
    size_t n = 0;
    int rc = count(m, conversation, &n_max, e);
    if (rc < 0 || n_max == 0)
        return rc;
    uint8_t *blocks = sys.malloc((size_t)n_max * HASH_BYTES);
    if (!blocks)
        return memory_out(e);
    struct stmt *s =
        db_stmt(m->db,
                "SELECT b.block FROM block_use b WHERE b.conversation = ?1 AND NOT EXISTS"
                " (SELECT 1 FROM block_use o WHERE o.block = b.block AND o.conversation <> ?1)"
                " ORDER BY b.block",
                e);
    stmt_int(s, 1, conversation);
    while ((rc = stmt_step(s, e)) == 1 && n < (size_t)n_max) {
        size_t n_bytes;
        const void *block = column_blob(s, 0, &n_bytes);
        if (n_bytes == HASH_BYTES) /* what else somebody put there names no block */
            memcpy(blocks + n++ * HASH_BYTES, block, HASH_BYTES);
    }
    stmt_end(s);
    if (rc < 0) {
        free(blocks);
        return rc;
    }
    ret->blocks = blocks;
    ret->n_blocks = n;
    return 0;
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
