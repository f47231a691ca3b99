/* Paths' rows as they are kept from turn to turn, and that no statement of a turn reads all of a
 * conversation. */
#include "tests/memory/place.h"

#include <stdio.h>
#include <unistd.h>

#include "memory/internal.h"
#include "memory/migrate.h"
#include "memory/schema.h"
#include "memory/search.h"
#include "memory/window.h"

#define N_MAX 400

/* parents[row] of a conversation whose rows begin at 1; 0: a first message, -1: deleted. */
struct fool {
    int64_t parents[N_MAX + 1];
    int64_t n;
};

static void assert_path(const struct fool *f, int64_t tip)
{
    const int64_t *rows;
    size_t n;
    ASSERT_OK(memory_path_rows(here.m, tip, &rows, &n, &here.e));
    for (int64_t row = tip; row > 0; row = f->parents[row]) {
        assert_true(n > 0);
        assert_int_equal(rows[--n], row);
    }
    assert_int_equal(n, 0);
}

static int64_t any_row(const struct fool *f, unsigned *seed)
{
    for (;;) {
        const int64_t row = 1 + rand_r(seed) % f->n;
        if (f->parents[row] >= 0)
            return row;
    }
}

static void delete(struct fool *f, const struct memory_message *m)
{
    ASSERT_OK(memory_message_remove(here.m, OWNER, m->id, NULL, &here.e));
    for (int64_t i = 1; i <= f->n; i++)
        if (f->parents[i] == m->row)
            f->parents[i] = f->parents[m->row];
    f->parents[m->row] = -1;
}

static void a_path_has_the_rows_that_a_walk_finds(void **state)
{
    (void)state;
    struct fool f = {.n = 0};
    struct memory_message all[N_MAX + 1];
    unsigned seed = (unsigned)getpid();
    print_message("seed %u\n", seed);
    const struct memory_conversation c = add_conversation();
    int64_t parent = 0;
    while (f.n < N_MAX) {
        const struct memory_message m = add_message(c.row, parent, MEMORY_USER, "x");
        all[m.row] = m;
        f.n = m.row;
        f.parents[m.row] = parent;
        if (f.n > 10 && rand_r(&seed) % 20 == 0)
            delete (&f, &all[any_row(&f, &seed)]);
        const int64_t tip = rand_r(&seed) % 4 && f.parents[m.row] >= 0 ? m.row : any_row(&f, &seed);
        assert_path(&f, tip);
        if (rand_r(&seed) % 10 == 0)
            path_write(here.m);
        if (rand_r(&seed) % 5 == 0)
            path_forget(here.m); /* as a start does */
        /* Mostly on, sometimes from elsewhere: an edit. */
        parent = rand_r(&seed) % 10 && f.parents[m.row] >= 0 ? m.row : any_row(&f, &seed);
    }
}

static void two_conversations_have_their_own(void **state)
{
    (void)state;
    const int64_t *rows;
    size_t n;
    const struct memory_conversation a = add_conversation(), b = add_conversation();
    int64_t tip_a = 0, tip_b = 0;
    for (int i = 0; i < 100; i++) {
        tip_a = add_message(a.row, tip_a, MEMORY_USER, "a").row;
        tip_b = add_message(b.row, tip_b, MEMORY_USER, "b").row;
        ASSERT_OK(memory_path_rows(here.m, i % 3 ? tip_a : tip_b, &rows, &n, &here.e));
        assert_int_equal(n, i + 1);
        assert_int_equal(rows[n - 1], i % 3 ? tip_a : tip_b);
        assert_int_equal(rows[0], i % 3 ? 1 : 2);
    }
}

/* What of a turn touches the database, once. */
/* As many as are worth it; the newest row. */
static int64_t add_long(int64_t conversation)
{
    static struct memory_new_message all[PATHS_SAVE_ROWS];
    static struct memory_message added[PATHS_SAVE_ROWS];
    struct arena a;
    arena_init(&a, 64u << 20);
    for (size_t i = 0; i < PATHS_SAVE_ROWS; i++)
        all[i] = (struct memory_new_message){
            .role = MEMORY_USER, .text = "x", .n_text = 1};
    all[0].conversation = conversation;
    ASSERT_OK(memory_message_add_all(here.m, all, PATHS_SAVE_ROWS, added, &a, &here.e));
    arena_done(&a);
    return added[PATHS_SAVE_ROWS - 1].row;
}

static void start_again(void)
{
    place_close();
    place_open();
}

static size_t length_of_path(int64_t tip)
{
    const int64_t *rows;
    size_t n;
    ASSERT_OK(memory_path_rows(here.m, tip, &rows, &n, &here.e));
    for (size_t i = 0; i < n; i++)
        assert_int_equal(rows[i], tip - (int64_t)(n - 1 - i));
    return n;
}

static void a_start_reads_only_the_end_of_a_long_path(void **state)
{
    (void)state;
    const struct memory_conversation c = add_conversation();
    int64_t tip = add_long(c.row);
    assert_int_equal(length_of_path(tip), PATHS_SAVE_ROWS);
    start_again();
    tip = add_message(c.row, tip, MEMORY_ASSISTANT, "y").row;
    assert_int_equal(length_of_path(tip), PATHS_SAVE_ROWS + 1);
    assert_int_equal(here.m->path.n_saved, PATHS_SAVE_ROWS);
}

static void what_is_saved_of_a_path_goes_with_a_message_of_it(void **state)
{
    (void)state;
    const struct memory_conversation c = add_conversation();
    const int64_t tip = add_long(c.row), other = add_message(c.row, tip, MEMORY_USER, "y").row;
    const struct memory_message last = add_message(c.row, other, MEMORY_USER, "z");
    struct memory_message m;
    struct arena a;
    int64_t n;
    arena_init(&a, 1u << 20);
    length_of_path(last.row);
    start_again();
    ASSERT_OK(db_get_int(here.m->db, "SELECT count(*) FROM path_saved", &n, &here.e));
    assert_int_equal(n, 1);
    ASSERT_OK(memory_message_by_row(here.m, other, &m, &a, &here.e));
    ASSERT_OK(memory_message_remove(here.m, OWNER, m.id, NULL, &here.e));
    ASSERT_OK(db_get_int(here.m->db, "SELECT count(*) FROM path_saved", &n, &here.e));
    assert_int_equal(n, 0);
    const int64_t *rows;
    size_t n_rows;
    ASSERT_OK(memory_path_rows(here.m, last.row, &rows, &n_rows, &here.e));
    assert_int_equal(n_rows, PATHS_SAVE_ROWS + 1);
    assert_int_equal(rows[n_rows - 2], tip);
    arena_done(&a);
}

static void a_saved_path_that_can_not_be_right_is_none(void **state)
{
    (void)state;
    static const char *const steps[] = {"x''", "x'00'", "x'80'", "x'FFFFFFFFFFFFFFFFFFFF'",
                                        "x'FFFFFFFFFFFFFFFF7F01'", "x'0180'", "x'010100'"};
    const struct memory_conversation c = add_conversation();
    const int64_t tip = add_long(c.row);
    for (size_t i = 0; i < sizeof steps / sizeof steps[0]; i++) {
        char sql[200];
        length_of_path(tip);
        path_write(here.m);
        snprintf(sql, sizeof sql, "UPDATE path_saved SET steps = %s", steps[i]);
        ASSERT_OK(db_exec(here.m->db, sql, &here.e));
        path_forget(here.m);
        assert_int_equal(length_of_path(tip), PATHS_SAVE_ROWS);
        assert_int_equal(here.m->path.n_saved, 0);
    }
}

static void do_a_turn(const struct memory_conversation *c, int64_t tip)
{
    struct memory_window w;
    struct memory_pins pins;
    struct memory_hits hits;
    const int64_t *rows;
    struct memory_cut cut = {.conversation = c->row, .anchor = tip, .first = tip};
    const struct memory_window_want want = {.tip = tip, .max = 1000, .max_bytes = 10};
    int64_t row;
    get_conversation(c->id);
    ASSERT_OK(memory_window(here.m, &want, &w, &here.a, &here.e));
    ASSERT_OK(memory_cut_add(here.m, &cut, &row, &here.e));
    ASSERT_OK(memory_cut_ready(here.m, row, &here.e));
    ASSERT_OK(memory_window(here.m, &want, &w, &here.a, &here.e));
    ASSERT_OK(memory_pin_list(here.m, c->row, &pins, &here.a, &here.e));
    struct memory_query q = {.owner = OWNER,
                             .conversation = c->row,
                             .text = "which snack was it",
                             .n_text = 18,
                             .limit = 5};
    ASSERT_OK(memory_path_rows(here.m, tip, &q.only, &q.n_only, &here.e));
    rows = q.only;
    assert_non_null(rows);
    ASSERT_OK(memory_recall(here.m, &q, &hits, &here.a, &here.e));
    q.only = NULL;
    ASSERT_OK(memory_recall(here.m, &q, &hits, &here.a, &here.e));
    add_message(c->row, tip, MEMORY_USER, "and a snack");
}

/* Of a statement's plan: a table is read from end to end. Virtual ones are, by their own index. */
static bool scans(const char *sql)
{
    char explain[4096];
    bool is_found = false;
    struct db *db;
    const int n = snprintf(explain, sizeof explain, "EXPLAIN QUERY PLAN %s", sql);
    assert_in_range(n, 1, sizeof explain - 1);
    ASSERT_OK(db_open(here.path, &db, &here.e));
    struct stmt *s = db_stmt(db, explain, &here.e);
    while (s && stmt_step(s, &here.e) == 1) {
        const char *step = column_text(s, 3, NULL);
        if (strstr(step, "TEMP B-TREE") ||
            (strncmp(step, "SCAN ", 5) == 0 && !strstr(step, "VIRTUAL TABLE") &&
             strncmp(step, "SCAN CONSTANT", 13) != 0)) {
            print_message("%s\n    %s\n", step, sql);
            is_found = true;
        }
    }
    stmt_end(s);
    db_close(db);
    return is_found;
}

static void no_statement_of_a_turn_scans_a_table(void **state)
{
    (void)state;
    const char *sql[256];
    int n_opening = 0, n_scans = 0;
    while (db_sql(here.m->db, n_opening))
        n_opening++;
    int n = n_opening;
    const struct memory_conversation c = add_conversation();
    int64_t tip = add_message(c.row, 0, MEMORY_SYSTEM, "be kind").row;
    for (int i = 0; i < 50; i++)
        tip = add_message(c.row, tip, MEMORY_USER, "a snack of nuts").row;
    do_a_turn(&c, tip);
    while (n < 256 && (sql[n] = db_sql(here.m->db, n)))
        n++;
    assert_in_range(n - n_opening, 20, 255);
    for (int i = n_opening; i < n; i++) {
        const bool is_looked_at = !strncmp(sql[i], "SELECT", 6) || !strncmp(sql[i], "UPDATE", 6);
        /* By the whole table's end, which an index gives; SQLite calls that a scan or a search. */
        const bool is_end = strstr(sql[i], "max(row)") || strstr(sql[i], "min(row)");
        n_scans += is_looked_at && !is_end && scans(sql[i]);
    }
    assert_int_equal(n_scans, 0);
}

static void a_conversation_of_version_8_has_its_count(void **state)
{
    (void)state;
    const struct migrate_plan old = {.steps = schema_steps, .n_steps = 8};
    struct db *db;
    ASSERT_OK(migrate_open(here.path, &old, &db, &here.e));
    ASSERT_OK(db_exec(db,
                      "INSERT INTO conversation (id, owner, activity, created_at, updated_at)"
                      " VALUES ('conv_old', '" OWNER "', 1, 2, 3), ('conv_two', '" OWNER
                      "', 2, 2, 3);"
                      "INSERT INTO message (id, conversation, parent, role, status, created_at,"
                      " text) VALUES ('msg_1', 1, 0, 2, 0, 2, 'q0'), ('msg_2', 1, 1, 3, 2, 2,"
                      " 'a0'), ('msg_3', 1, 2, 2, 0, 2, 'q1');"
                      "INSERT INTO cut (conversation, anchor, first, state, strategy, created_at,"
                      " system, dropped, bare, head, summary, facts) VALUES"
                      " (1, 3, 3, 1, 'auto', 2, x'', x'', x'', 'S: said', 'said', ''),"
                      " (1, 3, 3, 1, 'auto', 2, x'', x'', x'', 'S: said', 'mine', '')",
                      &here.e));
    db_close(db);
    place_open();
    struct memory_cut cut;
    assert_int_equal(get_conversation("conv_old").n_messages, 3);
    assert_int_equal(get_conversation("conv_two").n_messages, 0);
    add_message(1, 3, MEMORY_USER, "q2");
    assert_int_equal(get_conversation("conv_old").n_messages, 4);
    ASSERT_OK(memory_cut_by_row(here.m, 1, &cut, &here.a, &here.e));
    assert_false(cut.is_edited);
    ASSERT_OK(memory_cut_by_row(here.m, 2, &cut, &here.a, &here.e));
    assert_true(cut.is_edited);
}

static void an_edited_summary_is_marked_and_facts_alone_are_not(void **state)
{
    (void)state;
    struct memory_cut cut = {.summary = "s", .n_summary = 1};
    const struct memory_conversation c = add_conversation();
    int64_t row;
    cut.conversation = c.row;
    cut.anchor = cut.first = add_message(c.row, 0, MEMORY_USER, "x").row;
    ASSERT_OK(memory_cut_add(here.m, &cut, &row, &here.e));
    ASSERT_OK(memory_cut_edit(here.m, row, &(struct memory_cut_edit){.facts = "f", .n_facts = 1},
                              &here.e));
    ASSERT_OK(memory_cut_by_row(here.m, row, &cut, &here.a, &here.e));
    assert_false(cut.is_edited);
    ASSERT_OK(memory_cut_edit(
        here.m, row, &(struct memory_cut_edit){.summary = "t", .n_summary = 1}, &here.e));
    ASSERT_OK(memory_cut_by_row(here.m, row, &cut, &here.a, &here.e));
    assert_true(cut.is_edited);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, place_make, place_remove)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_path_has_the_rows_that_a_walk_finds),
        TEST(two_conversations_have_their_own),
        TEST(a_start_reads_only_the_end_of_a_long_path),
        TEST(what_is_saved_of_a_path_goes_with_a_message_of_it),
        TEST(a_saved_path_that_can_not_be_right_is_none),
        TEST(no_statement_of_a_turn_scans_a_table),
        cmocka_unit_test_setup_teardown(a_conversation_of_version_8_has_its_count,
                                        place_make_empty, place_remove),
        TEST(an_edited_summary_is_marked_and_facts_alone_are_not),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
