/* Sums of what the cache saved: they grow with each turn, and outlive what they are of. */
#include "tests/memory/place.h"

#include "memory/db.h"
#include "memory/migrate.h"
#include "memory/schema.h"

static const struct memory_turn one = {
    .prompt_tokens = 100,
    .completion_tokens = 10,
    .cached_tokens = 60,
    .cached_ram = 40,
    .cached_disk = 20,
    .cached_shared = 30,
    .computed_tokens = 40,
    .queue_us = 1,
    .restore_us = 2,
    .prefill_us = 3,
    .ttft_us = 4,
    .decode_us = 5,
    .saved_us = 6000,
    .finish = "stop",
    .miss_at = -1,
};

/* A question and an answer that ended with these statistics. */
static struct memory_message add_turn(const struct memory_conversation *c, const char *reason,
                                      int miss_at, int64_t miss_message)
{
    struct memory_message q = add_message(c->row, -1, MEMORY_USER, "why");
    struct memory_message a = begin_answer(c->row, q.row, "m");
    struct memory_turn t = one;
    t.miss_reason = reason;
    t.miss_at = miss_at;
    t.miss_message = miss_message;
    const struct memory_answer end = {
        .row = a.row, .status = MEMORY_COMPLETE, .text = "so", .n_text = 2, .turn = &t};
    ASSERT_OK(memory_answer_end(here.m, &end, &here.e));
    return a;
}

static struct memory_savings of_conversation(int64_t row)
{
    struct memory_savings s;
    ASSERT_OK(memory_savings_of_conversation(here.m, row, &s, &here.e));
    return s;
}

static struct memory_savings of_owner(const char *owner)
{
    struct memory_savings s;
    ASSERT_OK(memory_savings_of_owner(here.m, owner, &s, &here.e));
    return s;
}

static int64_t n_missed(const struct memory_savings *s, const char *reason)
{
    for (size_t i = 0; i < s->n_misses; i++)
        if (strcmp(s->misses[i].reason, reason) == 0)
            return s->misses[i].n;
    return 0;
}

static void is_n_turns(const struct memory_savings *s, int64_t n)
{
    assert_int_equal(s->turns, n);
    assert_int_equal(s->prompt_tokens, 100 * n);
    assert_int_equal(s->completion_tokens, 10 * n);
    assert_int_equal(s->cached_ram, 40 * n);
    assert_int_equal(s->cached_disk, 20 * n);
    assert_int_equal(s->cached_shared, 30 * n);
    assert_int_equal(s->computed_tokens, 40 * n);
    assert_int_equal(s->restore_us, 2 * n);
    assert_int_equal(s->prefill_us, 3 * n);
    assert_int_equal(s->saved_us, 6000 * n);
}

static void nothing_is_all_zero(void **state)
{
    (void)state;
    struct memory_conversation c = add_conversation();
    struct memory_savings s = of_conversation(c.row), o = of_owner(OWNER);
    is_n_turns(&s, 0);
    is_n_turns(&o, 0);
    assert_int_equal(o.since, 0);
    assert_int_equal(s.n_misses + o.n_misses, 0);
}

static void sums_grow_with_each_turn_and_by_owner(void **state)
{
    (void)state;
    struct memory_conversation c = add_conversation(), d = add_conversation();
    struct memory_message a = add_turn(&c, NULL, -1, 0);
    add_turn(&c, "evicted", 0, a.row);
    add_turn(&c, "evicted", -1, 0);
    add_turn(&d, "new", 0, 0);
    ASSERT_OK(memory_savings_add(here.m, OWNER, &one, &here.e)); /* a stateless one */
    ASSERT_OK(memory_savings_add(here.m, OTHER, &one, &here.e));
    struct memory_savings s = of_conversation(c.row), o = of_owner(OWNER), other = of_owner(OTHER);
    is_n_turns(&s, 3);
    is_n_turns(&o, 5);
    is_n_turns(&other, 1);
    assert_int_equal(n_missed(&s, "evicted"), 2);
    assert_int_equal(n_missed(&s, "new"), 0);
    assert_int_equal(n_missed(&o, "evicted"), 2);
    assert_int_equal(n_missed(&o, "new"), 1);
    assert_true(o.since > 0);
}

static void sums_outlive_messages_conversations_and_a_restart(void **state)
{
    (void)state;
    struct memory_conversation c = add_conversation();
    add_turn(&c, "new", 0, 0);
    struct memory_message a = add_turn(&c, NULL, -1, 0);
    struct db *db;
    int64_t n;
    place_close(); /* the row goes as a deleted message goes: whatever removes one */
    ASSERT_OK(db_open(here.path, &db, &here.e));
    ASSERT_OK(db_accept(db, &here.e));
    char sql[80];
    snprintf(sql, sizeof(sql), "DELETE FROM message WHERE row = %lld", (long long)a.row);
    ASSERT_OK(db_exec(db, sql, &here.e));
    ASSERT_OK(db_get_int(db, "SELECT count(*) FROM turn", &n, &here.e));
    assert_int_equal(n, 1);
    db_close(db);
    place_open();
    struct memory_savings s = of_conversation(c.row);
    is_n_turns(&s, 2);
    ASSERT_OK(memory_conversation_remove(here.m, OWNER, c.id, NULL, &here.e));
    s = of_conversation(c.row);
    is_n_turns(&s, 0);
    assert_int_equal(s.n_misses, 0);
    s = of_owner(OWNER);
    is_n_turns(&s, 2);
    assert_int_equal(n_missed(&s, "new"), 1);
}

static void a_failed_end_counts_nothing(void **state)
{
    (void)state;
    struct memory_conversation c = add_conversation();
    struct memory_message q = add_message(c.row, -1, MEMORY_USER, "why");
    struct memory_message a = begin_answer(c.row, q.row, "m");
    struct memory_response r = {.conversation = c.row, .answer = a.row, .body = "{}"};
    snprintf(r.id, sizeof(r.id), "resp_1");
    ASSERT_OK(memory_response_add(here.m, OWNER, &r, &here.e));
    const struct memory_answer end = {.row = a.row,
                                      .status = MEMORY_COMPLETE,
                                      .turn = &one,
                                      .response = &r, /* the same id again: refused */
                                      .owner = OWNER};
    assert_true(memory_answer_end(here.m, &end, &here.e) < 0);
    struct memory_savings s = of_conversation(c.row), o = of_owner(OWNER);
    is_n_turns(&s, 0);
    is_n_turns(&o, 0);
}

static void a_turn_knows_where_it_missed(void **state)
{
    (void)state;
    struct memory_conversation c = add_conversation();
    struct memory_message first = add_message(c.row, -1, MEMORY_USER, "first");
    struct memory_message a = add_turn(&c, "changed", 3, first.row), b = add_turn(&c, NULL, -1, 0);
    struct memory_message d = add_turn(&c, "off", -1, 0);
    struct memory_page page = {.limit = 2};
    struct memory_turns got;
    ASSERT_OK(memory_turn_list(here.m, c.row, &page, &got, &here.a, &here.e));
    assert_int_equal(got.n, 2);
    assert_true(got.has_more);
    assert_string_equal(got.v[0].answer_id, d.id);
    assert_string_equal(got.v[0].turn.miss_reason, "off");
    assert_int_equal(got.v[0].turn.miss_at, -1);
    assert_string_equal(got.v[1].answer_id, b.id);
    assert_null(got.v[1].turn.miss_reason);
    page.after = got.v[1].answer_id;
    ASSERT_OK(memory_turn_list(here.m, c.row, &page, &got, &here.a, &here.e));
    assert_int_equal(got.n, 1);
    assert_false(got.has_more);
    assert_string_equal(got.v[0].answer_id, a.id);
    assert_int_equal(got.v[0].turn.miss_at, 3);
    assert_string_equal(got.v[0].miss_id, first.id);
    page.after = "msg_none";
    ASSERT_ERR(memory_turn_list(here.m, c.row, &page, &got, &here.a, &here.e), ERR_NOTFOUND);
    page = (struct memory_page){.limit = MEMORY_PAGE_MAX + 1};
    ASSERT_ERR(memory_turn_list(here.m, c.row, &page, &got, &here.a, &here.e), ERR_INVAL);
}

static void the_window_is_that_of_the_last_turn_that_said_one(void **state)
{
    (void)state;
    struct memory_conversation c = add_conversation();
    const uint8_t *got = (const uint8_t *)"x";
    size_t n = 1;
    ASSERT_OK(memory_window_get(here.m, c.row, &here.a, &got, &n, &here.e));
    assert_int_equal(n, 0);
    for (int i = 0; i < 3; i++) {
        struct memory_message q = add_message(c.row, -1, MEMORY_USER, "why");
        struct memory_message a = begin_answer(c.row, q.row, "m");
        const uint8_t bytes[16] = {(uint8_t)(i + 1)};
        const struct memory_answer end = {.row = a.row,
                                          .status = MEMORY_COMPLETE,
                                          .turn = &one,
                                          .window = i < 2 ? bytes : NULL,
                                          .n_window_bytes = i < 2 ? 8 * (size_t)(i + 1) : 0};
        ASSERT_OK(memory_answer_end(here.m, &end, &here.e));
    }
    ASSERT_OK(memory_window_get(here.m, c.row, &here.a, &got, &n, &here.e));
    assert_int_equal(n, 16);
    assert_int_equal(got[0], 2);
}

static void those_that_saved_most_come_first(void **state)
{
    (void)state;
    int64_t rows[2];
    size_t n;
    struct memory_conversation c = add_conversation(), d = add_conversation(),
                               e = add_conversation();
    add_turn(&c, NULL, -1, 0);
    for (int i = 0; i < 3; i++)
        add_turn(&d, NULL, -1, 0);
    for (int i = 0; i < 2; i++)
        add_turn(&e, NULL, -1, 0);
    ASSERT_OK(memory_savings_top(here.m, OWNER, rows, 2, &n, &here.e));
    assert_int_equal(n, 2);
    assert_int_equal(rows[0], d.row);
    assert_int_equal(rows[1], e.row);
    ASSERT_OK(memory_savings_top(here.m, OTHER, rows, 2, &n, &here.e));
    assert_int_equal(n, 0);
}

/* Version 2 had turns and no sums. */
static void the_turns_of_version_2_are_summed(void **state)
{
    (void)state;
    const struct migrate_plan old = {.steps = schema_steps, .n_steps = 2};
    struct db *db;
    place_close();
    remove(here.path);
    ASSERT_OK(migrate_open(here.path, &old, &db, &here.e));
    ASSERT_OK(db_exec(db,
                      "INSERT INTO conversation (id, owner, activity, created_at, updated_at)"
                      " VALUES ('conv_old', '" OWNER "', 1, 2, 3), ('conv_two', '" OTHER
                      "', 1, 2, 3);"
                      "INSERT INTO message (id, conversation, role, status, created_at, text)"
                      " VALUES ('a', 1, 3, 2, 7, ''), ('b', 1, 3, 2, 5, ''), ('c', 2, 3, 2, 9, '');"
                      "INSERT INTO turn SELECT row, 100, 10, 60, 40, 20, 30, 40, 1, 2, 3, 4, 5,"
                      " 6000, CASE row WHEN 1 THEN 'new' END, 'stop' FROM message",
                      &here.e));
    db_close(db);
    place_open();
    struct memory_conversation c = get_conversation("conv_old");
    struct memory_savings s = of_conversation(c.row), o = of_owner(OWNER), other = of_owner(OTHER);
    is_n_turns(&s, 2);
    is_n_turns(&o, 2);
    is_n_turns(&other, 1);
    assert_int_equal(o.since, 5);
    assert_int_equal(n_missed(&s, "new"), 1);
    assert_int_equal(n_missed(&o, "new"), 1);
    assert_int_equal(other.n_misses, 0);
    add_turn(&c, "new", 0, 0);
    o = of_owner(OWNER);
    is_n_turns(&o, 3);
    assert_int_equal(n_missed(&o, "new"), 2);
    struct memory_turn t;
    ASSERT_OK(memory_turn_get(here.m, 1, &t, &here.a, &here.e));
    assert_string_equal(t.miss_reason, "new");
    assert_int_equal(t.miss_at, -1); /* nobody noted it then */
}

static void another_models_reply_is_known_as_such(void **state)
{
    (void)state;
    const uint8_t chain[HASH_BYTES] = {1}, mine[HASH_BYTES] = {2}, theirs[HASH_BYTES] = {3};
    const int32_t ids[] = {4, 5};
    const struct memory_reply_key key = {.chain = chain, .render = mine},
                                  other = {.chain = chain, .render = theirs};
    assert_false(memory_reply_is_of_other(here.m, OWNER, &key));
    ASSERT_OK(memory_reply_put(here.m, OWNER, &key, ids, 2, &here.e));
    assert_false(memory_reply_is_of_other(here.m, OWNER, &key));
    assert_true(memory_reply_is_of_other(here.m, OWNER, &other));
    assert_false(memory_reply_is_of_other(here.m, OTHER, &other));
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, place_make, place_remove)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(nothing_is_all_zero),
        TEST(sums_grow_with_each_turn_and_by_owner),
        TEST(sums_outlive_messages_conversations_and_a_restart),
        TEST(a_failed_end_counts_nothing),
        TEST(a_turn_knows_where_it_missed),
        TEST(the_window_is_that_of_the_last_turn_that_said_one),
        TEST(those_that_saved_most_come_first),
        TEST(the_turns_of_version_2_are_summed),
        TEST(another_models_reply_is_known_as_such),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
