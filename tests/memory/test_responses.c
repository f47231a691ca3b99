/* Stored responses, and what goes with them. */
#include "tests/memory/place.h"

/* A question and its answer under `parent`, as a response. */
static int64_t respond(int64_t conversation, int64_t parent, const char *id, const char *text)
{
    struct memory_message q = add_message(conversation, parent, MEMORY_USER, text);
    struct memory_message answer = add_message(conversation, q.row, MEMORY_ASSISTANT, id);
    struct memory_response r = {.conversation = conversation,
                                .answer = answer.row,
                                .first_input = q.row,
                                .body = "{\"object\":\"response\"}"};
    snprintf(r.id, sizeof(r.id), "%s", id);
    ASSERT_OK(memory_response_add(here.m, OWNER, &r, &here.e));
    return answer.row;
}

static int64_t hidden(void)
{
    struct memory_conversation c;
    ASSERT_OK(memory_conversation_add(
        here.m, &(struct memory_new_conversation){.owner = OWNER, .is_hidden = true}, &c, &here.a,
        &here.e));
    return c.row;
}

static int64_t n_messages(void)
{
    struct memory_totals t;
    ASSERT_OK(memory_totals(here.m, &t, &here.e));
    return t.n_messages;
}

static void a_response_is_its_owners(void **state)
{
    (void)state;
    struct memory_response r;
    int64_t c = hidden(), answer = respond(c, 0, "resp_a", "q");
    ASSERT_OK(memory_response_find(here.m, OWNER, "resp_a", &r, &here.a, &here.e));
    assert_string_equal(r.id, "resp_a");
    assert_int_equal(r.answer, answer);
    assert_int_equal(r.conversation, c);
    assert_int_equal(r.first_input, answer - 1);
    assert_string_equal(r.body, "{\"object\":\"response\"}");
    ASSERT_ERR(memory_response_find(here.m, OTHER, "resp_a", &r, &here.a, &here.e), ERR_NOTFOUND);
    ASSERT_ERR(memory_response_find(here.m, OWNER, NULL, &r, &here.a, &here.e), ERR_NOTFOUND);
    ASSERT_ERR(memory_response_remove(here.m, OTHER, "resp_a", NULL, &here.e), ERR_NOTFOUND);
}

static void the_last_response_takes_its_hidden_conversation(void **state)
{
    (void)state;
    struct memory_conversation c;
    int64_t row = hidden();
    respond(row, 0, "resp_a", "q");
    ASSERT_OK(memory_response_remove(here.m, OWNER, "resp_a", NULL, &here.e));
    ASSERT_ERR(memory_conversation_by_row(here.m, row, &c, &here.a, &here.e), ERR_NOTFOUND);
    assert_int_equal(n_messages(), 0);
}

static void a_branch_goes_with_its_response_and_the_rest_stays(void **state)
{
    (void)state;
    int64_t row = hidden(), a = respond(row, 0, "resp_a", "1");
    int64_t b = respond(row, a, "resp_b", "2"), c = respond(row, a, "resp_c", "3");
    assert_string_equal(path_text(b), "1|resp_a|2|resp_b");
    ASSERT_OK(memory_response_remove(here.m, OWNER, "resp_b", NULL, &here.e));
    assert_int_equal(n_messages(), 4);
    assert_string_equal(path_text(c), "1|resp_a|3|resp_c");
    /* What c was asked with stays with c. */
    ASSERT_OK(memory_response_remove(here.m, OWNER, "resp_a", NULL, &here.e));
    assert_string_equal(path_text(c), "1|resp_a|3|resp_c");
    ASSERT_OK(memory_response_remove(here.m, OWNER, "resp_c", NULL, &here.e));
    assert_int_equal(n_messages(), 0);
}

static void a_response_of_a_conversation_leaves_its_messages(void **state)
{
    (void)state;
    struct memory_conversation c = add_conversation();
    respond(c.row, 0, "resp_a", "q");
    ASSERT_OK(memory_response_remove(here.m, OWNER, "resp_a", NULL, &here.e));
    assert_int_equal(get_conversation(c.id).n_messages, 2);
}

static void a_conversation_takes_its_responses(void **state)
{
    (void)state;
    struct memory_response r;
    struct memory_conversation c = add_conversation();
    respond(c.row, 0, "resp_a", "q");
    ASSERT_OK(memory_conversation_remove(here.m, OWNER, c.id, NULL, &here.e));
    ASSERT_ERR(memory_response_find(here.m, OWNER, "resp_a", &r, &here.a, &here.e), ERR_NOTFOUND);
}

static void a_removed_answer_takes_its_response(void **state)
{
    (void)state;
    struct memory_response r;
    struct memory_message m;
    struct memory_conversation c = add_conversation();
    int64_t answer = respond(c.row, 0, "resp_a", "q");
    ASSERT_OK(memory_message_by_row(here.m, answer, &m, &here.a, &here.e));
    ASSERT_OK(memory_message_remove(here.m, OWNER, m.id, NULL, &here.e));
    ASSERT_ERR(memory_response_find(here.m, OWNER, "resp_a", &r, &here.a, &here.e), ERR_NOTFOUND);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, place_make, place_remove)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_response_is_its_owners),
        TEST(the_last_response_takes_its_hidden_conversation),
        TEST(a_branch_goes_with_its_response_and_the_rest_stays),
        TEST(a_response_of_a_conversation_leaves_its_messages),
        TEST(a_conversation_takes_its_responses),
        TEST(a_removed_answer_takes_its_response),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
