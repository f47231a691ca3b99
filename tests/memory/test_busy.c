/* Another program holds the database. */
#include "tests/memory/place.h"

#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "memory/db.h"

struct holder {
    pid_t pid;
    int go; /* closing it ends the hold */
};

/* A child runs `sql`, says so, and stays until told to end or hold_ms are over (-1: never). */
static struct holder hold(const char *sql, int hold_ms)
{
    int ready[2], go[2];
    assert_int_equal(pipe(ready), 0);
    assert_int_equal(pipe(go), 0);
    pid_t pid = fork();
    if (pid == 0) {
        struct db *db;
        struct err e;
        close(go[1]);
        if (db_open(here.path, &db, &e) < 0 || db_exec(db, sql, &e) < 0)
            _exit(1);
        if (write(ready[1], "r", 1) != 1)
            _exit(2);
        struct pollfd p = {.fd = go[0], .events = POLLIN};
        poll(&p, 1, hold_ms);
        _exit(0);
    }
    char c;
    close(ready[1]);
    close(go[0]);
    assert_int_equal(read(ready[0], &c, 1), 1);
    close(ready[0]);
    return (struct holder){.pid = pid, .go = go[1]};
}

static void release(struct holder h)
{
    int status;
    close(h.go);
    assert_int_equal(waitpid(h.pid, &status, 0), h.pid);
    assert_int_equal(status, 0);
}

static void a_short_hold_is_waited_for(void **state)
{
    (void)state;
    struct memory_conversation c = add_conversation();
    struct holder h = hold("BEGIN IMMEDIATE", 3000);
    int64_t t = clock_ms();
    add_message(c.row, -1, MEMORY_USER, "after 3 s");
    print_message("waited %lld ms\n", (long long)(clock_ms() - t));
    release(h);
    assert_string_equal(path_text(get_conversation(c.id).tip), "after 3 s");
}

static void a_long_hold_is_busy_and_stores_nothing(void **state)
{
    (void)state;
    struct memory_conversation c = add_conversation(), out;
    struct memory_message m;
    const struct memory_new_message msg = {
        .conversation = c.row, .role = MEMORY_USER, .text = "x", .n_text = 1};
    struct holder h = hold("BEGIN IMMEDIATE", -1);
    ASSERT_ERR(memory_message_add(here.m, &msg, &m, &here.a, &here.e), ERR_BUSY);
    /* Reading goes on meanwhile. */
    ASSERT_OK(memory_conversation_find(here.m, OWNER, c.id, &out, &here.a, &here.e));
    assert_int_equal(out.n_messages, 0);
    release(h);
    ASSERT_OK(memory_message_add(here.m, &msg, &m, &here.a, &here.e));
    assert_int_equal(get_conversation(c.id).n_messages, 1);
}

static void finding_a_reply_waits_for_nobody(void **state)
{
    (void)state;
    const uint8_t chain[HASH_BYTES] = {1}, render[HASH_BYTES] = {2}, second[HASH_BYTES] = {3};
    const int32_t ids[] = {4};
    struct ids got;
    ids_init(&got);
    ASSERT_OK(memory_reply_put(here.m, OWNER, &(struct memory_reply_key){chain, render}, ids, 1,
                               &here.e));
    ASSERT_OK(memory_reply_put(here.m, OWNER, &(struct memory_reply_key){second, render}, ids, 1,
                               &here.e));
    struct holder h = hold("BEGIN IMMEDIATE", -1);
    ASSERT_OK(
        memory_reply_get(here.m, OWNER, &(struct memory_reply_key){chain, render}, &got, &here.e));
    release(h);
    assert_int_equal(got.n, 1);
    ids_done(&got);
}

static void a_reader_delays_the_wiping_and_not_the_delete(void **state)
{
    (void)state;
    struct memory_conversation c = add_conversation();
    add_message(c.row, -1, MEMORY_USER, "XYZZYPLUGH");
    struct holder h = hold("BEGIN; SELECT count(*) FROM message", -1);
    ASSERT_OK(memory_conversation_remove(here.m, OWNER, c.id, NULL, &here.e));
    assert_true(memory_has_remains(here.m));
    assert_true(files_hold("XYZZYPLUGH"));
    release(h);
    memory_idle(here.m);
    assert_false(memory_has_remains(here.m));
    assert_false(files_hold("XYZZYPLUGH"));
}

static void another_program_may_read_and_write_between(void **state)
{
    (void)state;
    struct memory_conversation c = add_conversation();
    struct memory_message m = add_message(c.row, -1, MEMORY_USER, "one");
    struct holder h = hold("UPDATE message SET text = 'two'", 0);
    release(h);
    assert_string_equal(path_text(m.row), "two");
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, place_make, place_remove)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_short_hold_is_waited_for),
        TEST(a_long_hold_is_busy_and_stores_nothing),
        TEST(finding_a_reply_waits_for_nobody),
        TEST(a_reader_delays_the_wiping_and_not_the_delete),
        TEST(another_program_may_read_and_write_between),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
