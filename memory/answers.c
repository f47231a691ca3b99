/*
 * Answers while and after they are written.
 *
 *      begin: generating ──► flush, flush … ──► end: complete | interrupted | failed
 *                       ╰──► the daemon dies ──► interrupted, at the next open
 *
 * It begins as a message of status MEMORY_GENERATING, in the transaction that stores its question:
 * either both are there or the request was refused. Flushes are NORMAL: they survive a crash of the
 * daemon, and the fsync of each would be felt. The end is FULL and carries all that belongs to the
 * answer (token ids, statistics, the stored response) in one transaction.
 */
#include "memory/internal.h"

static int gone(int64_t row, struct err *e)
{
    return err_set(e, ERR_NOTFOUND, "answer %lld has ended or was deleted", (long long)row);
}

int memory_answer_flush(struct memory *m, int64_t row, const char *text, size_t n_text,
                        struct err *e)
{
    int rc = db_begin(m->db, DB_NORMAL, e);
    if (rc < 0)
        return rc;
    struct stmt *s =
        db_stmt(m->db, "UPDATE message SET text = ?2 WHERE row = ?1 AND status = 1", e);
    stmt_int(s, 1, row);
    stmt_text(s, 2, text ? text : "", n_text);
    rc = stmt_run(s, e);
    if (rc == 0 && db_n_changed(m->db) == 0)
        rc = gone(row, e);
    return db_end(m->db, rc, e);
}

static int set_message(struct memory *m, const struct memory_answer *answer, struct err *e)
{
    struct stmt *s = db_stmt(m->db,
                             "UPDATE message SET text = ?2, status = ?3, finish = ?4"
                             " WHERE row = ?1 AND status = 1",
                             e);
    stmt_int(s, 1, answer->row);
    stmt_text(s, 2, answer->text ? answer->text : "", answer->n_text);
    stmt_int(s, 3, answer->status);
    stmt_str(s, 4, answer->finish ? answer->finish : "");
    int rc = stmt_run(s, e);
    if (rc == 0 && db_n_changed(m->db) == 0)
        rc = gone(answer->row, e);
    return rc;
}

static int insert_turn(struct memory *m, int64_t answer, const struct memory_turn *t, struct err *e)
{
    struct stmt *s = db_stmt(m->db,
                             "INSERT INTO turn VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10,"
                             " ?11, ?12, ?13, ?14, ?15, ?16)",
                             e);
    const int64_t values[] = {
        answer,         t->prompt_tokens, t->completion_tokens, t->cached_tokens, t->cached_ram,
        t->cached_disk, t->cached_shared, t->computed_tokens,   t->queue_us,      t->restore_us,
        t->prefill_us,  t->ttft_us,       t->decode_us,         t->saved_us,
    };
    const int n = (int)(sizeof(values) / sizeof(values[0]));
    for (int i = 0; i < n; i++)
        stmt_int(s, i + 1, values[i]);
    stmt_str(s, n + 1, t->miss_reason);
    stmt_str(s, n + 2, t->finish ? t->finish : "");
    return stmt_run(s, e);
}

int memory_answer_end(struct memory *m, const struct memory_answer *answer, struct err *e)
{
    if (answer->status < MEMORY_COMPLETE || answer->status > MEMORY_FAILED)
        return err_set(e, ERR_INVAL, "an answer doesn't end with status %d", (int)answer->status);
    int rc = db_begin(m->db, DB_FULL, e);
    if (rc < 0)
        return rc;
    rc = set_message(m, answer, e);
    if (rc == 0 && answer->n_ids > 0)
        rc = tokens_insert(m, answer->row, answer->render, answer->ids, answer->n_ids, e);
    if (rc == 0 && answer->turn)
        rc = insert_turn(m, answer->row, answer->turn, e);
    if (rc == 0 && answer->n_blocks > 0)
        rc = blocks_insert(m, answer, e);
    if (rc == 0 && answer->response)
        rc = response_insert(m, answer->owner, answer->response, e);
    return db_end(m->db, rc, e);
}

int memory_turn_get(struct memory *m, int64_t answer, struct memory_turn *ret, struct arena *a,
                    struct err *e)
{
    struct stmt *s =
        db_stmt(m->db,
                "SELECT m.conversation, t.prompt_tokens, t.completion_tokens, t.cached_tokens,"
                " t.cached_ram, t.cached_disk, t.cached_shared, t.computed_tokens, t.queue_us,"
                " t.restore_us, t.prefill_us, t.ttft_us, t.decode_us, t.saved_us, t.miss_reason,"
                " t.finish, t.miss_reason IS NULL"
                " FROM turn t JOIN message m ON m.row = t.answer WHERE t.answer = ?1",
                e);
    stmt_int(s, 1, answer);
    int rc = stmt_step(s, e);
    if (rc == 1) {
        struct memory_turn t = {
            .conversation = column_int(s, 0),
            .answer = answer,
            .prompt_tokens = (int)column_int(s, 1),
            .completion_tokens = (int)column_int(s, 2),
            .cached_tokens = (int)column_int(s, 3),
            .cached_ram = (int)column_int(s, 4),
            .cached_disk = (int)column_int(s, 5),
            .cached_shared = (int)column_int(s, 6),
            .computed_tokens = (int)column_int(s, 7),
            .queue_us = column_int(s, 8),
            .restore_us = column_int(s, 9),
            .prefill_us = column_int(s, 10),
            .ttft_us = column_int(s, 11),
            .decode_us = column_int(s, 12),
            .saved_us = column_int(s, 13),
        };
        bool has_reason = column_int(s, 16) == 0;
        const char *reason = column_copy(s, 14, NULL, a);
        t.miss_reason = has_reason ? reason : NULL;
        t.finish = column_copy(s, 15, NULL, a);
        rc = reason && t.finish ? 0 : memory_out(e);
        if (rc == 0)
            *ret = t;
    } else if (rc == 0) {
        rc = err_set(e, ERR_NOTFOUND, "no statistics of message %lld", (long long)answer);
    }
    stmt_end(s);
    return rc;
}
