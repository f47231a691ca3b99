/*
 * What the cache was worth: sums over turns, for each conversation's life and for each owner for
 * good.
 *
 *      turn ──memory_answer_end──► conversation_savings + conversation_miss     go with it
 *        ╰────────────────────────► owner_savings + owner_miss                  stay
 *      stateless turn ─memory_savings_add─► owner_savings + owner_miss
 *
 * The sums are written in the transaction that stores the answer: they can't differ from the rows
 * of `turn`, unless a message (and so its turn) was deleted since, and then they remember it.
 */
#include "memory/internal.h"
#include "memory/schema.h"

#include <stdio.h>
#include <string.h>

#include "base/clock.h"

#define N_SUMS 10

#define ADD_TO_SUMS                                                                                \
    " DO UPDATE SET turns = turns + 1,"                                                            \
    " prompt_tokens = prompt_tokens + excluded.prompt_tokens,"                                     \
    " completion_tokens = completion_tokens + excluded.completion_tokens,"                         \
    " cached_ram = cached_ram + excluded.cached_ram,"                                              \
    " cached_disk = cached_disk + excluded.cached_disk,"                                           \
    " cached_shared = cached_shared + excluded.cached_shared,"                                     \
    " computed_tokens = computed_tokens + excluded.computed_tokens,"                               \
    " restore_us = restore_us + excluded.restore_us,"                                              \
    " prefill_us = prefill_us + excluded.prefill_us, saved_us = saved_us + excluded.saved_us"

/* A turn as values for SCHEMA_SUM_NAMES, from parameter 3 on. */
static void bind_sums(struct stmt *s, const struct memory_turn *t)
{
    const int64_t values[N_SUMS] = {
        1,
        t->prompt_tokens,
        t->completion_tokens,
        t->cached_ram,
        t->cached_disk,
        t->cached_shared,
        t->computed_tokens,
        t->restore_us,
        t->prefill_us,
        t->saved_us,
    };
    for (int i = 0; i < N_SUMS; i++)
        stmt_int(s, 3 + i, values[i]);
}

static int add_owner(struct memory *m, const char *owner, const struct memory_turn *t,
                     struct err *e)
{
    struct stmt *s = db_stmt(m->db,
                             "INSERT INTO owner_savings (owner, since," SCHEMA_SUM_NAMES ")"
                             " VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12)"
                             " ON CONFLICT (owner)" ADD_TO_SUMS,
                             e);
    stmt_str(s, 1, owner);
    stmt_int(s, 2, clock_wall_s());
    bind_sums(s, t);
    int rc = stmt_run(s, e);
    if (rc < 0 || !t->miss_reason)
        return rc;
    s = db_stmt(m->db,
                "INSERT INTO owner_miss VALUES (?1, ?2, 1)"
                " ON CONFLICT (owner, reason) DO UPDATE SET n = n + 1",
                e);
    stmt_str(s, 1, owner);
    stmt_str(s, 2, t->miss_reason);
    return stmt_run(s, e);
}

static int add_conversation(struct memory *m, int64_t row, const struct memory_answer *answer,
                            struct err *e)
{
    const struct memory_turn *t = answer->turn;
    struct stmt *s = db_stmt(m->db,
                             "INSERT INTO conversation_savings (conversation, window,"
                             SCHEMA_SUM_NAMES ")"
                             " VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12)"
                             " ON CONFLICT (conversation)" ADD_TO_SUMS
                             ", window = CASE ?13 WHEN 1 THEN excluded.window ELSE window END",
                             e);
    stmt_int(s, 1, row);
    stmt_blob(s, 2, answer->window ? (const void *)answer->window : "", answer->n_window_bytes);
    bind_sums(s, t);
    stmt_int(s, 13, answer->window != NULL);
    int rc = stmt_run(s, e);
    if (rc < 0 || !t->miss_reason)
        return rc;
    s = db_stmt(m->db,
                "INSERT INTO conversation_miss VALUES (?1, ?2, 1)"
                " ON CONFLICT (conversation, reason) DO UPDATE SET n = n + 1",
                e);
    stmt_int(s, 1, row);
    stmt_str(s, 2, t->miss_reason);
    return stmt_run(s, e);
}

int savings_add_answer(struct memory *m, const struct memory_answer *answer, struct err *e)
{
    char owner[512];
    struct stmt *s = db_stmt(m->db,
                             "SELECT c.row, c.owner FROM message m JOIN conversation c"
                             " ON c.row = m.conversation WHERE m.row = ?1",
                             e);
    stmt_int(s, 1, answer->row);
    int rc = stmt_step(s, e);
    int64_t row = rc == 1 ? column_int(s, 0) : 0;
    size_t n = 0;
    const char *name = rc == 1 ? column_text(s, 1, &n) : "";
    bool is_whole = n < sizeof(owner);
    memcpy(owner, is_whole ? name : "", is_whole ? n + 1 : 1);
    stmt_end(s);
    if (rc < 0)
        return rc;
    if (rc == 0)
        return err_set(e, ERR_NOTFOUND, "the answer's conversation was deleted");
    if (!is_whole)
        return err_set(e, ERR_CORRUPT, "history: an owner's name has %zu bytes", n);
    rc = add_conversation(m, row, answer, e);
    return rc < 0 ? rc : add_owner(m, owner, answer->turn, e);
}

int memory_savings_add(struct memory *m, const char *owner, const struct memory_turn *t,
                       struct err *e)
{
    int rc = db_begin(m->db, DB_NORMAL, e);
    if (rc < 0)
        return rc;
    return db_end(m->db, add_owner(m, owner, t, e), e);
}

static void count_miss(struct memory_savings *s, const char *reason)
{
    size_t i = 0;
    while (i < s->n_misses && strcmp(s->misses[i].reason, reason) != 0)
        i++;
    if (i == MEMORY_REASONS_MAX)
        return;
    if (i == s->n_misses) {
        snprintf(s->misses[i].reason, sizeof(s->misses[i].reason), "%s", reason);
        s->misses[i].n = 0;
        s->n_misses++;
    }
    s->misses[i].n++;
}

void memory_savings_count(struct memory_savings *s, const struct memory_turn *t)
{
    s->turns++;
    s->prompt_tokens += t->prompt_tokens;
    s->completion_tokens += t->completion_tokens;
    s->cached_ram += t->cached_ram;
    s->cached_disk += t->cached_disk;
    s->cached_shared += t->cached_shared;
    s->computed_tokens += t->computed_tokens;
    s->restore_us += t->restore_us;
    s->prefill_us += t->prefill_us;
    s->saved_us += t->saved_us;
    if (t->miss_reason)
        count_miss(s, t->miss_reason);
}

/* The row of sums, with `since` in front; ends s. No row: zeros. */
static int read_sums(struct stmt *s, struct memory_savings *ret, struct err *e)
{
    int rc = stmt_step(s, e);
    *ret = (struct memory_savings){.since = 0};
    if (rc == 1) {
        int64_t *const to[] = {
            &ret->since,           &ret->turns,       &ret->prompt_tokens, &ret->completion_tokens,
            &ret->cached_ram,      &ret->cached_disk, &ret->cached_shared, &ret->computed_tokens,
            &ret->restore_us,      &ret->prefill_us,  &ret->saved_us,
        };
        for (int i = 0; i <= N_SUMS; i++)
            *to[i] = column_int(s, i);
    }
    stmt_end(s);
    return rc < 0 ? rc : 0;
}

/* (reason, n) rows; ends s. */
static int read_misses(struct stmt *s, struct memory_savings *ret, struct err *e)
{
    int rc;
    while ((rc = stmt_step(s, e)) == 1 && ret->n_misses < MEMORY_REASONS_MAX) {
        size_t n;
        const char *reason = column_text(s, 0, &n);
        if (n >= sizeof(ret->misses[0].reason))
            continue; /* no word of ours */
        memcpy(ret->misses[ret->n_misses].reason, reason, n + 1);
        ret->misses[ret->n_misses++].n = column_int(s, 1);
    }
    stmt_end(s);
    return rc < 0 ? rc : 0;
}

int memory_savings_of_conversation(struct memory *m, int64_t conversation,
                                   struct memory_savings *ret, struct err *e)
{
    struct memory_savings found;
    struct stmt *s = db_stmt(m->db,
                             "SELECT 0," SCHEMA_SUM_NAMES
                             " FROM conversation_savings WHERE conversation = ?1",
                             e);
    stmt_int(s, 1, conversation);
    int rc = read_sums(s, &found, e);
    if (rc < 0)
        return rc;
    s = db_stmt(m->db,
                "SELECT reason, n FROM conversation_miss WHERE conversation = ?1"
                " ORDER BY reason",
                e);
    stmt_int(s, 1, conversation);
    rc = read_misses(s, &found, e);
    if (rc == 0)
        *ret = found;
    return rc;
}

int memory_savings_of_owner(struct memory *m, const char *owner, struct memory_savings *ret,
                            struct err *e)
{
    struct memory_savings found;
    struct stmt *s = db_stmt(
        m->db, "SELECT since," SCHEMA_SUM_NAMES " FROM owner_savings WHERE owner = ?1", e);
    stmt_str(s, 1, owner);
    int rc = read_sums(s, &found, e);
    if (rc < 0)
        return rc;
    s = db_stmt(m->db, "SELECT reason, n FROM owner_miss WHERE owner = ?1 ORDER BY reason", e);
    stmt_str(s, 1, owner);
    rc = read_misses(s, &found, e);
    if (rc == 0)
        *ret = found;
    return rc;
}

int memory_savings_top(struct memory *m, const char *owner, int64_t *ret_rows, size_t max,
                       size_t *ret_n, struct err *e)
{
    struct stmt *s = db_stmt(m->db,
                             "SELECT c.row FROM conversation_savings s JOIN conversation c"
                             " ON c.row = s.conversation WHERE c.owner = ?1 AND c.is_hidden = 0"
                             " ORDER BY s.saved_us DESC, c.row DESC LIMIT ?2",
                             e);
    size_t n = 0;
    int rc;
    stmt_str(s, 1, owner);
    stmt_int(s, 2, (int64_t)max);
    while ((rc = stmt_step(s, e)) == 1 && n < max)
        ret_rows[n++] = column_int(s, 0);
    stmt_end(s);
    if (rc < 0)
        return rc;
    *ret_n = n;
    return 0;
}

int memory_window_get(struct memory *m, int64_t conversation, struct arena *a, const uint8_t **ret,
                      size_t *ret_n, struct err *e)
{
    struct stmt *s =
        db_stmt(m->db, "SELECT window FROM conversation_savings WHERE conversation = ?1", e);
    stmt_int(s, 1, conversation);
    int rc = stmt_step(s, e);
    size_t n = 0;
    const void *bytes = rc == 1 ? column_blob(s, 0, &n) : NULL;
    const uint8_t *copy = bytes ? (const uint8_t *)arena_copy(a, bytes, n) : NULL;
    stmt_end(s);
    if (rc < 0)
        return rc;
    if (bytes && !copy)
        return memory_out(e);
    *ret = copy;
    *ret_n = copy ? n : 0;
    return 0;
}
