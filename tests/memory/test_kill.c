/* The daemon is killed at named points; the next one reads what was promised. */
#include "tests/memory/place.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

enum point {
    OPENED,
    CONVERSATION,
    QUESTION,
    BEGUN,
    FLUSHED,
    FLUSHED_TWICE,
    ENDED,
    RESPONDED,
    N_POINTS
};

#define DIE_AT(p)                                                                                  \
    if (point == (p))                                                                              \
    raise(SIGKILL)

/* A turn's way through the store, in a child of ours, as far as `point`. */
static void live(enum point point)
{
    struct memory_conversation c;
    struct memory_message q, answer;
    DIE_AT(OPENED);
    c = add_conversation();
    DIE_AT(CONVERSATION);
    q = add_message(c.row, -1, MEMORY_USER, "question");
    DIE_AT(QUESTION);
    answer = begin_answer(c.row, q.row, "m");
    DIE_AT(BEGUN);
    ASSERT_OK(memory_answer_flush(here.m, answer.row, "an", 2, &here.e));
    DIE_AT(FLUSHED);
    ASSERT_OK(memory_answer_flush(here.m, answer.row, "answ", 4, &here.e));
    DIE_AT(FLUSHED_TWICE);
    const struct memory_answer end = {.row = answer.row,
                                      .status = MEMORY_COMPLETE,
                                      .text = "answer",
                                      .n_text = 6,
                                      .finish = "stop"};
    ASSERT_OK(memory_answer_end(here.m, &end, &here.e));
    DIE_AT(ENDED);
    struct memory_response r = {
        .id = "resp_1", .conversation = c.row, .answer = answer.row, .body = "{}"};
    ASSERT_OK(memory_response_add(here.m, OWNER, &r, &here.e));
    DIE_AT(RESPONDED);
}

static void expect(enum point point)
{
    static const struct {
        const char *path;
        enum memory_status status;
    } wanted[N_POINTS] = {
        [CONVERSATION] = {"", 0},
        [QUESTION] = {"question", MEMORY_STORED},
        [BEGUN] = {"question|", MEMORY_INTERRUPTED},
        [FLUSHED] = {"question|an", MEMORY_INTERRUPTED},
        [FLUSHED_TWICE] = {"question|answ", MEMORY_INTERRUPTED},
        [ENDED] = {"question|answer", MEMORY_COMPLETE},
        [RESPONDED] = {"question|answer", MEMORY_COMPLETE},
    };
    struct memory_conversations list;
    struct memory_message tip;
    struct memory_response r;
    const struct memory_page page = {.limit = 5};
    ASSERT_OK(memory_conversation_list(here.m, OWNER, &page, &list, &here.a, &here.e));
    assert_int_equal(list.n, point >= CONVERSATION);
    if (list.n == 0)
        return;
    assert_string_equal(path_text(list.v[0].tip), wanted[point].path);
    if (list.v[0].tip) {
        ASSERT_OK(memory_message_by_row(here.m, list.v[0].tip, &tip, &here.a, &here.e));
        assert_int_equal(tip.status, wanted[point].status);
    }
    int rc = memory_response_find(here.m, OWNER, "resp_1", &r, &here.a, &here.e);
    assert_int_equal(rc, point == RESPONDED ? 0 : ERR_NOTFOUND);
}

static void what_was_promised_survives_a_kill(void **state)
{
    for (enum point point = OPENED; point < N_POINTS; point++) {
        assert_int_equal(place_make_empty(state), 0);
        pid_t pid = fork();
        if (pid == 0) {
            place_open();
            live(point);
            _exit(1);
        }
        int status;
        assert_int_equal(waitpid(pid, &status, 0), pid);
        assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
        place_open();
        expect(point);
        ASSERT_OK(memory_check(here.m, &here.e));
        assert_int_equal(place_remove(state), 0);
    }
}

/* Killed at any moment: whatever was there when it happened, each conversation is a whole prefix of
 * what its child wrote. */
static void a_kill_at_any_moment_loses_no_committed_message(void **state)
{
    assert_int_equal(place_make_empty(state), 0);
    for (int round = 0; round < 10; round++) {
        int told[2];
        assert_int_equal(pipe(told), 0);
        pid_t pid = fork();
        if (pid == 0) {
            place_open();
            struct memory_conversation c = add_conversation();
            for (;;) {
                add_message(c.row, -1, MEMORY_USER, "x");
                if (write(told[1], "x", 1) != 1)
                    _exit(1);
            }
        }
        close(told[1]);
        char bytes[64];
        int64_t n_told = 0;
        while (n_told < 3 + round)
            n_told += read(told[0], bytes, 1);
        kill(pid, SIGKILL);
        int status;
        assert_int_equal(waitpid(pid, &status, 0), pid);
        ssize_t more;
        while ((more = read(told[0], bytes, sizeof(bytes))) > 0)
            n_told += more;
        close(told[0]);
        place_open();
        struct memory_conversations list;
        const struct memory_page page = {.limit = 1};
        ASSERT_OK(memory_conversation_list(here.m, OWNER, &page, &list, &here.a, &here.e));
        assert_int_equal(list.n, 1);
        assert_true(list.v[0].n_messages >= n_told && list.v[0].n_messages <= n_told + 1);
        place_close();
    }
    assert_int_equal(place_remove(state), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_was_promised_survives_a_kill),
        cmocka_unit_test(a_kill_at_any_moment_loses_no_committed_message),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
