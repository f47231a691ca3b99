/* A conversation of 10,000 messages: it opens, lists and goes. Times are printed, not judged. */
#include "tests/memory/place.h"

#include <time.h>

#include "base/clock.h"
#include "memory/window.h"

#define MANY 10000
#define BATCH 500

static int64_t t_before, cpu_before;

static int64_t cpu_us(void)
{
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (int64_t)t.tv_sec * 1000000 + t.tv_nsec / 1000;
}

static void lap(const char *what)
{
    int64_t now = clock_us(), cpu = cpu_us();
    print_message("%-28s %7.1f ms, %7.1f ms CPU\n", what, (double)(now - t_before) / 1000,
                  (double)(cpu - cpu_before) / 1000);
    t_before = clock_us();
    cpu_before = cpu_us();
}

static void ten_thousand_messages_are_one_conversation(void **state)
{
    (void)state;
    static struct memory_new_message msgs[BATCH];
    static struct memory_message added[BATCH];
    static char text[400];
    struct memory_conversation c = add_conversation();
    struct memory_messages list;
    int64_t parent = 0;
    struct memory_removed n_removed;
    memset(text, 't', sizeof(text) - 1);
    t_before = clock_us();
    cpu_before = cpu_us();
    for (int i = 0; i < MANY / BATCH; i++) {
        for (int k = 0; k < BATCH; k++)
            msgs[k] = (struct memory_new_message){.conversation = c.row,
                                                  .parent = k ? 0 : parent,
                                                  .role = k % 2 ? MEMORY_ASSISTANT : MEMORY_USER,
                                                  .text = text,
                                                  .n_text = sizeof(text) - 1};
        ASSERT_OK(memory_message_add_all(here.m, msgs, BATCH, added, &here.a, &here.e));
        parent = added[BATCH - 1].row;
    }
    lap("10,000 added");
    place_reopen();
    lap("opened");
    ASSERT_OK(memory_path(here.m, get_conversation(c.id).tip, MANY, &list, &here.a, &here.e));
    assert_int_equal(list.n, MANY);
    lap("path of 10,000");
    struct memory_window window;
    struct memory_window_want want = {.tip = get_conversation(c.id).tip, .max = MANY};
    ASSERT_OK(memory_window(here.m, &want, &window, &here.a, &here.e));
    assert_int_equal(window.n, MANY);
    lap("window of 10,000");
    struct memory_page page = {.limit = 20};
    ASSERT_OK(memory_message_list(here.m, c.row, &page, &list, &here.a, &here.e));
    lap("newest page");
    page.is_ascending = true;
    ASSERT_OK(memory_message_list(here.m, c.row, &page, &list, &here.a, &here.e));
    assert_true(list.has_more);
    lap("oldest page");
    struct memory_totals totals;
    ASSERT_OK(memory_totals(here.m, &totals, &here.e));
    lap("totals");
    ASSERT_OK(memory_conversation_remove(here.m, OWNER, c.id, &n_removed, &here.e));
    assert_int_equal(n_removed.n_messages, MANY);
    lap("removed");
}

/* Longer than what is walked by single look-ups, with another branch begun at each message. */
static void a_long_path_leaves_the_branches_beside_it_out(void **state)
{
    (void)state;
    enum { LENGTH = 300 };
    struct memory_conversation c = add_conversation();
    int64_t on_path[LENGTH], tip = 0;
    for (int i = 0; i < LENGTH; i++) {
        enum memory_role role = i % 2 ? MEMORY_ASSISTANT : MEMORY_USER;
        if (i % 3 == 0)
            add_message(c.row, tip, role, "before");
        on_path[i] = tip = add_message(c.row, tip, role, "on it").row;
        add_message(c.row, tip, role, "beside");
    }
    struct memory_window window;
    struct memory_window_want want = {.tip = tip, .max = LENGTH};
    ASSERT_OK(memory_window(here.m, &want, &window, &here.a, &here.e));
    assert_int_equal(window.n, LENGTH);
    for (int i = 0; i < LENGTH; i++)
        assert_int_equal(window.v[i].row, on_path[i]);
    want.max = LENGTH - 1;
    ASSERT_ERR(memory_window(here.m, &want, &window, &here.a, &here.e), ERR_LIMIT);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_long_path_leaves_the_branches_beside_it_out, place_make,
                                        place_remove),
        cmocka_unit_test_setup_teardown(ten_thousand_messages_are_one_conversation, place_make,
                                        place_remove),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
