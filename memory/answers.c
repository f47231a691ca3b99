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
#include "memory/rows.h"

#define ARENA_BYTES ((size_t)1 << 30)

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
                             " ?11, ?12, ?13, ?14, ?15, ?16, ?17, ?18, ?19)",
                             e);
    const bool has_place = t->miss_reason && t->miss_at >= 0;
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
    if (has_place) /* NULL otherwise */
        stmt_int(s, n + 3, t->miss_at);
    if (has_place && t->miss_message > 0)
        stmt_int(s, n + 4, t->miss_message);
    stmt_int(s, n + 5, t->cut);
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
    const struct index_message text = {
        .row = answer->row, .text = answer->text ? answer->text : "", .n_text = answer->n_text};
    if (rc == 0)
        rc = index_add_messages(m, &text, 1, e);
    if (rc == 0 && answer->n_ids > 0)
        rc = tokens_insert(m, answer->row, answer->render, answer->ids, answer->n_ids, e);
    if (rc == 0 && answer->turn)
        rc = insert_turn(m, answer->row, answer->turn, e);
    if (rc == 0 && answer->turn)
        rc = savings_add_answer(m, answer, e);
    if (rc == 0 && answer->n_blocks > 0)
        rc = blocks_insert(m, answer, e);
    if (rc == 0 && answer->response)
        rc = response_insert(m, answer->owner, answer->response, e);
    return db_end(m->db, rc, e);
}

/* The columns of turn_read. */
#define TURN_COLUMNS                                                                               \
    "m.conversation, m.row, t.prompt_tokens, t.completion_tokens, t.cached_tokens, t.cached_ram,"  \
    " t.cached_disk, t.cached_shared, t.computed_tokens, t.queue_us, t.restore_us, t.prefill_us,"  \
    " t.ttft_us, t.decode_us, t.saved_us, t.miss_reason, t.finish, t.miss_reason IS NULL,"         \
    " ifnull(t.miss_at, -1), ifnull(t.miss_message, 0), t.cut"
#define N_TURN_COLUMNS 21

static int turn_read(struct stmt *s, struct memory_turn *ret, struct arena *a, struct err *e)
{
    struct memory_turn t = {
        .conversation = column_int(s, 0),
        .answer = column_int(s, 1),
        .prompt_tokens = (int)column_int(s, 2),
        .completion_tokens = (int)column_int(s, 3),
        .cached_tokens = (int)column_int(s, 4),
        .cached_ram = (int)column_int(s, 5),
        .cached_disk = (int)column_int(s, 6),
        .cached_shared = (int)column_int(s, 7),
        .computed_tokens = (int)column_int(s, 8),
        .queue_us = column_int(s, 9),
        .restore_us = column_int(s, 10),
        .prefill_us = column_int(s, 11),
        .ttft_us = column_int(s, 12),
        .decode_us = column_int(s, 13),
        .saved_us = column_int(s, 14),
        .miss_at = (int)column_int(s, 18),
        .miss_message = column_int(s, 19),
        .cut = column_int(s, 20),
    };
    bool has_reason = column_int(s, 17) == 0;
    const char *reason = column_copy(s, 15, NULL, a);
    t.miss_reason = has_reason ? reason : NULL;
    t.finish = column_copy(s, 16, NULL, a);
    if (!reason || !t.finish)
        return memory_out(e);
    *ret = t;
    return 0;
}

int memory_turn_get(struct memory *m, int64_t answer, struct memory_turn *ret, struct arena *a,
                    struct err *e)
{
    struct stmt *s = db_stmt(m->db,
                             "SELECT " TURN_COLUMNS
                             " FROM turn t JOIN message m ON m.row = t.answer WHERE t.answer = ?1",
                             e);
    stmt_int(s, 1, answer);
    int rc = stmt_step(s, e);
    if (rc == 1)
        rc = turn_read(s, ret, a, e);
    else if (rc == 0)
        rc = err_set(e, ERR_NOTFOUND, "no statistics of message %lld", (long long)answer);
    stmt_end(s);
    return rc;
}

/* Whether any of its turns was ever counted: of a conversation that was brought in nothing needs
 * to be looked through. 1, 0 or negative. */
static int has_turns(struct memory *m, int64_t message, struct err *e)
{
    struct stmt *s = db_stmt(m->db,
                             "SELECT 1 FROM conversation_savings WHERE conversation ="
                             " (SELECT conversation FROM message WHERE row = ?1)",
                             e);
    stmt_int(s, 1, message);
    int rc = stmt_step(s, e);
    stmt_end(s);
    return rc;
}

/* 1: found, 0: none. */
static int find_newest(struct memory *m, int64_t tip, int64_t *ret_cut, struct arena *a,
                       struct err *e)
{
    struct path p = {.next = tip};
    int rc = has_turns(m, tip, e), on_path = 0;
    if (rc <= 0)
        return rc;
    struct stmt *s = db_stmt(m->db,
                             "SELECT m.row, t.cut FROM message m CROSS JOIN turn t"
                             " ON t.answer = m.row WHERE m.conversation ="
                             " (SELECT conversation FROM message WHERE row = ?1)"
                             " AND m.row <= ?1 ORDER BY m.row DESC",
                             e);
    stmt_int(s, 1, tip);
    while (on_path == 0 && (rc = stmt_step(s, e)) == 1)
        on_path = path_holds(m, &p, column_int(s, 0), a, e);
    if (on_path == 1)
        *ret_cut = column_int(s, 1);
    stmt_end(s);
    return on_path != 0 ? on_path : rc;
}

int memory_turn_newest(struct memory *m, int64_t tip, int64_t *ret_cut, struct err *e)
{
    struct arena a;
    int64_t cut = 0;
    arena_init(&a, ARENA_BYTES);
    int rc = db_begin_read(m->db, e);
    if (rc == 0)
        rc = db_end(m->db, find_newest(m, tip, &cut, &a, e), e);
    arena_done(&a);
    if (rc < 0)
        return rc;
    if (rc == 0)
        return err_set(e, ERR_NOTFOUND, "no turn was read up to message %lld", (long long)tip);
    *ret_cut = cut;
    return 0;
}

static int entry_read(struct stmt *s, struct memory_turn_entry *ret, struct arena *a, struct err *e)
{
    struct memory_turn_entry t = {.created_at = column_int(s, N_TURN_COLUMNS + 1)};
    int rc = turn_read(s, &t.turn, a, e);
    if (rc)
        return rc;
    t.answer_id = column_copy(s, N_TURN_COLUMNS, NULL, a);
    t.miss_id = column_copy(s, N_TURN_COLUMNS + 2, NULL, a);
    if (!t.answer_id || !t.miss_id)
        return memory_out(e);
    *ret = t;
    return 0;
}

/* The row of the answer that the page follows. */
static int turns_start(struct memory *m, int64_t conversation, const struct memory_page *page,
                       int64_t *ret, struct err *e)
{
    *ret = page->is_ascending ? 0 : INT64_MAX;
    if (!page->after)
        return 0;
    struct stmt *s =
        db_stmt(m->db, "SELECT row FROM message WHERE id = ?1 AND conversation = ?2", e);
    stmt_str(s, 1, page->after);
    stmt_int(s, 2, conversation);
    int rc = stmt_step(s, e);
    if (rc == 1)
        *ret = column_int(s, 0);
    else if (rc == 0)
        rc = err_set(e, ERR_NOTFOUND, "no message '%s' in the conversation", page->after);
    stmt_end(s);
    return rc < 0 ? rc : 0;
}

#define TURN_ENTRIES                                                                               \
    "SELECT " TURN_COLUMNS ", m.id, m.created_at,"                                                 \
    " ifnull((SELECT x.id FROM message x WHERE x.row = t.miss_message), '')"                       \
    " FROM message m JOIN turn t ON t.answer = m.row WHERE m.conversation = ?1 AND m.row "

int memory_turn_list(struct memory *m, int64_t conversation, const struct memory_page *page,
                     struct memory_turns *ret, struct arena *a, struct err *e)
{
    int64_t start;
    size_t n = 0;
    if (page->limit < 1 || page->limit > MEMORY_PAGE_MAX)
        return err_set(e, ERR_INVAL, "limit is %d: from 1 to %d", page->limit, MEMORY_PAGE_MAX);
    int rc = turns_start(m, conversation, page, &start, e);
    if (rc < 0)
        return rc;
    struct memory_turn_entry *list = arena_array(a, (size_t)page->limit, sizeof(*list));
    if (!list)
        return memory_out(e);
    struct stmt *s =
        page->is_ascending ? db_stmt(m->db, TURN_ENTRIES "> ?2 ORDER BY m.row LIMIT ?3", e)
                           : db_stmt(m->db, TURN_ENTRIES "< ?2 ORDER BY m.row DESC LIMIT ?3", e);
    stmt_int(s, 1, conversation);
    stmt_int(s, 2, start);
    stmt_int(s, 3, page->limit + 1);
    while ((rc = stmt_step(s, e)) == 1 && n < (size_t)page->limit)
        if ((rc = entry_read(s, &list[n++], a, e)) < 0)
            break;
    stmt_end(s);
    if (rc < 0)
        return rc;
    *ret = (struct memory_turns){.v = list, .n = n, .has_more = rc == 1};
    return 0;
}
