/* No room, no memory: an error, nothing half, and afterwards all as before. */
#include "tests/memory/place.h"

#include <signal.h>
#include <sys/resource.h>

#include "base/sys.h"

static void limit_files(rlim_t bytes)
{
    struct rlimit r;
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &r), 0);
    r.rlim_cur = bytes;
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &r), 0);
}

static void a_full_disk_is_an_error_and_loses_nothing(void **state)
{
    (void)state;
    static char text[100000];
    signal(SIGXFSZ, SIG_IGN);
    struct memory_conversation c = add_conversation();
    add_message(c.row, -1, MEMORY_USER, "before");
    memset(text, 'x', sizeof(text));
    const struct memory_new_message msg = {.conversation = c.row,
                                           .parent = c.tip,
                                           .role = MEMORY_USER,
                                           .text = text,
                                           .n_text = sizeof(text)};
    struct memory_message m = {.row = -7};
    for (rlim_t room = 64 << 10; room < (200 << 10); room += 9001) {
        limit_files(room);
        int rc = memory_message_add(here.m, &msg, &m, &here.a, &here.e);
        limit_files(RLIM_INFINITY);
        if (rc == 0)
            break;
        assert_int_equal(rc, ERR_FULL);
        assert_int_equal(m.row, -7);
        assert_int_equal(get_conversation(c.id).n_messages, 1);
    }
    struct memory_message after = add_message(c.row, -1, MEMORY_USER, "after");
    assert_non_null(strstr(path_text(after.row), "after"));
    ASSERT_OK(memory_check(here.m, &here.e));
    place_reopen();
    assert_non_null(strstr(path_text(get_conversation(c.id).tip), "after"));
}

/* The answer's last commit fails: it stays `generating`; the next start calls it interrupted. */
static void an_answer_that_finds_no_room_keeps_its_flushed_part(void **state)
{
    (void)state;
    static char text[200000];
    signal(SIGXFSZ, SIG_IGN);
    struct memory_conversation c = add_conversation();
    struct memory_message q = add_message(c.row, -1, MEMORY_USER, "q"), answer, found;
    answer = begin_answer(c.row, q.row, "m");
    ASSERT_OK(memory_answer_flush(here.m, answer.row, "part", 4, &here.e));
    memset(text, 'y', sizeof(text));
    const struct memory_answer end = {.row = answer.row,
                                      .status = MEMORY_COMPLETE,
                                      .text = text,
                                      .n_text = sizeof(text),
                                      .finish = "stop"};
    limit_files(100 << 10);
    ASSERT_ERR(memory_answer_end(here.m, &end, &here.e), ERR_FULL);
    limit_files(RLIM_INFINITY);
    place_reopen();
    ASSERT_OK(memory_message_find(here.m, OWNER, answer.id, &found, &here.a, &here.e));
    assert_int_equal(found.status, MEMORY_INTERRUPTED);
    assert_string_equal(found.text, "part");
}

static void opening_without_room_fails_and_can_be_repeated(void **state)
{
    (void)state;
    signal(SIGXFSZ, SIG_IGN);
    place_close();
    remove(here.path);
    for (rlim_t room = 0; room < (120 << 10); room += 5000) {
        struct memory *m = NULL;
        limit_files(room);
        int rc = memory_open(here.path, &m, &here.e);
        limit_files(RLIM_INFINITY);
        memory_close(m);
        if (rc == 0)
            break;
        assert_int_equal(rc, ERR_FULL);
    }
    place_open();
    add_conversation();
}

/* The arena's ceiling stands for memory. */
static void an_arena_that_is_full_fails_the_call_alone(void **state)
{
    (void)state;
    struct arena small;
    struct memory_conversation c = add_conversation();
    struct memory_message out = {.row = -7};
    struct memory_messages list;
    add_message(c.row, -1, MEMORY_USER, "a text of some length, for which there must be room");
    const struct memory_new_message msg = {
        .conversation = c.row, .role = MEMORY_USER, .text = "x", .n_text = 1};
    for (size_t room = 0; room < 400; room += 16) {
        arena_init(&small, room);
        here.e.code = 0;
        int rc = memory_path(here.m, get_conversation(c.id).tip, 10, &list, &small, &here.e);
        assert_true(rc == 0 || rc == ERR_NOMEM);
        arena_done(&small);
        arena_init(&small, 16);
        ASSERT_ERR(memory_message_add(here.m, &msg, &out, &small, &here.e), ERR_NOMEM);
        arena_done(&small);
    }
    assert_int_equal(out.row, -7);
    assert_int_equal(get_conversation(c.id).n_messages, 1);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, place_make, place_remove)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_full_disk_is_an_error_and_loses_nothing),
        TEST(an_answer_that_finds_no_room_keeps_its_flushed_part),
        TEST(opening_without_room_fails_and_can_be_repeated),
        TEST(an_arena_that_is_full_fails_the_call_alone),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
