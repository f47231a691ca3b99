/* Conversations: owners, what is derived from messages, lists. */
#include "tests/memory/place.h"

static void new_conversation_is_empty_and_its_owners(void **state)
{
    (void)state;
    struct memory_conversation c, again;
    ASSERT_OK(memory_conversation_add(
        here.m,
        &(struct memory_new_conversation){.owner = OWNER, .metadata = "{\"topic\":\"tea\"}"}, &c,
        &here.a, &here.e));
    assert_memory_equal(c.id, "conv_", 5);
    assert_int_equal(strlen(c.id), 5 + 32);
    assert_int_equal(c.n_messages, 0);
    assert_int_equal(c.tip, 0);
    assert_string_equal(c.title, "");
    assert_string_equal(c.model, "");
    again = get_conversation(c.id);
    assert_int_equal(again.row, c.row);
    assert_string_equal(again.metadata, "{\"topic\":\"tea\"}");
    assert_true(again.created_at > 1700000000);
}

static void another_owners_conversation_is_not_found(void **state)
{
    (void)state;
    struct memory_conversation c = add_conversation(), out;
    struct memory_message m = add_message(c.row, -1, MEMORY_USER, "secret"), found;
    struct memory_removed n = {.n_messages = 7};
    ASSERT_ERR(memory_conversation_find(here.m, OTHER, c.id, &out, &here.a, &here.e), ERR_NOTFOUND);
    ASSERT_ERR(memory_conversation_remove(here.m, OTHER, c.id, &n, &here.e), ERR_NOTFOUND);
    ASSERT_ERR(memory_message_find(here.m, OTHER, m.id, &found, &here.a, &here.e), ERR_NOTFOUND);
    ASSERT_ERR(memory_message_remove(here.m, OTHER, m.id, NULL, &here.e), ERR_NOTFOUND);
    assert_int_equal(n.n_messages, 7);
    assert_int_equal(get_conversation(c.id).n_messages, 1);
}

static void ids_that_are_none_are_not_found(void **state)
{
    (void)state;
    static const char *const ids[] = {"",      "conv_", "conv_0", "'; DROP TABLE message; --",
                                      "msg_é", NULL};
    struct memory_conversation c;
    struct memory_message m;
    add_conversation();
    for (size_t i = 0; i < sizeof(ids) / sizeof(*ids); i++) {
        ASSERT_ERR(memory_conversation_find(here.m, OWNER, ids[i], &c, &here.a, &here.e),
                   ERR_NOTFOUND);
        ASSERT_ERR(memory_message_find(here.m, OWNER, ids[i], &m, &here.a, &here.e), ERR_NOTFOUND);
    }
    ASSERT_ERR(memory_conversation_by_row(here.m, 99, &c, &here.a, &here.e), ERR_NOTFOUND);
    ASSERT_ERR(memory_conversation_set(here.m, 99, "x", NULL, &here.e), ERR_NOTFOUND);
}

static void title_is_the_first_question_until_one_is_set(void **state)
{
    (void)state;
    struct memory_conversation c = add_conversation();
    add_message(c.row, -1, MEMORY_SYSTEM, "Be brief.");
    assert_string_equal(get_conversation(c.id).title, "");
    add_message(c.row, -1, MEMORY_USER, "\n  Why is the sky blue? \nAnd the sea?");
    assert_string_equal(get_conversation(c.id).title, "Why is the sky blue?");
    ASSERT_OK(memory_conversation_set(here.m, c.row, "Sky", NULL, &here.e));
    assert_string_equal(get_conversation(c.id).title, "Sky");
    ASSERT_OK(memory_conversation_set(here.m, c.row, NULL, "{\"a\":\"b\"}", &here.e));
    assert_string_equal(get_conversation(c.id).title, "Sky");
    assert_string_equal(get_conversation(c.id).metadata, "{\"a\":\"b\"}");
    ASSERT_OK(memory_conversation_set(here.m, c.row, "", NULL, &here.e));
    assert_string_equal(get_conversation(c.id).title, "Why is the sky blue?");
}

static void long_title_is_cut_between_characters(void **state)
{
    (void)state;
    char text[4000] = "";
    struct memory_conversation c = add_conversation();
    for (size_t i = 0; i < 900; i++)
        memcpy(text + 3 * i, "猫", 4);
    add_message(c.row, -1, MEMORY_USER, text);
    const char *title = get_conversation(c.id).title;
    assert_int_equal(strlen(title), 60 * 3);
    assert_memory_equal(title, text, 60 * 3);
}

static void model_and_tip_are_the_newest_messages(void **state)
{
    (void)state;
    struct memory_conversation c = add_conversation();
    struct memory_message answer, question = add_message(c.row, -1, MEMORY_USER, "q");
    answer = begin_answer(c.row, question.row, "model-a");
    assert_string_equal(get_conversation(c.id).model, "model-a");
    assert_int_equal(get_conversation(c.id).tip, answer.row);
    struct memory_message edit = add_message(c.row, 0, MEMORY_USER, "another");
    assert_int_equal(get_conversation(c.id).tip, edit.row);
    assert_int_equal(get_conversation(c.id).n_messages, 3);
}

static const char *list_text(const char *owner, const struct memory_page *page, bool *ret_more)
{
    struct memory_conversations list;
    struct buf b;
    ASSERT_OK(memory_conversation_list(here.m, owner, page, &list, &here.a, &here.e));
    buf_init(&b, 10000);
    buf_str(&b, "");
    *ret_more = list.has_more;
    for (size_t i = 0; i < list.n; i++)
        buf_printf(&b, "%s%s", i ? "|" : "", list.v[i].title);
    const char *s = arena_copy(&here.a, b.data, b.len);
    buf_done(&b);
    return s;
}

static void lists_go_by_last_use_in_both_orders(void **state)
{
    (void)state;
    static const char *const titles[] = {"a", "b", "c", "d", "e"};
    struct memory_conversation c[5], hidden, foreign;
    bool more;
    for (int i = 0; i < 5; i++) {
        c[i] = add_conversation();
        ASSERT_OK(memory_conversation_set(here.m, c[i].row, titles[i], NULL, &here.e));
    }
    ASSERT_OK(memory_conversation_add(
        here.m, &(struct memory_new_conversation){.owner = OWNER, .is_hidden = true}, &hidden,
        &here.a, &here.e));
    ASSERT_OK(memory_conversation_add(here.m, &(struct memory_new_conversation){.owner = OTHER},
                                      &foreign, &here.a, &here.e));
    add_message(c[1].row, -1, MEMORY_USER, "hello");
    assert_string_equal(list_text(OWNER, &(struct memory_page){.limit = 100}, &more), "b|e|d|c|a");
    assert_false(more);
    assert_string_equal(list_text(OWNER, &(struct memory_page){.limit = 2}, &more), "b|e");
    assert_true(more);
    assert_string_equal(
        list_text(OWNER, &(struct memory_page){.limit = 2, .after = c[4].id}, &more), "d|c");
    assert_true(more);
    assert_string_equal(
        list_text(OWNER, &(struct memory_page){.limit = 2, .after = c[2].id}, &more), "a");
    assert_false(more);
    assert_string_equal(
        list_text(OWNER, &(struct memory_page){.limit = 3, .is_ascending = true}, &more), "a|c|d");
    assert_true(more);
    assert_string_equal(
        list_text(OWNER, &(struct memory_page){.limit = 2, .is_ascending = true, .after = c[3].id},
                  &more),
        "e|b");
    assert_false(more);
    assert_string_equal(list_text("uid:5", &(struct memory_page){.limit = 2}, &more), "");
}

static void pages_have_a_size_and_a_start_that_exists(void **state)
{
    (void)state;
    static const int limits[] = {0, -1, 101, INT32_MAX};
    struct memory_conversation c = add_conversation();
    struct memory_conversations list;
    struct memory_messages messages;
    for (size_t i = 0; i < 4; i++) {
        struct memory_page page = {.limit = limits[i]};
        ASSERT_ERR(memory_conversation_list(here.m, OWNER, &page, &list, &here.a, &here.e),
                   ERR_INVAL);
        ASSERT_ERR(memory_message_list(here.m, c.row, &page, &messages, &here.a, &here.e),
                   ERR_INVAL);
    }
    struct memory_page page = {.limit = 5, .after = c.id};
    ASSERT_ERR(memory_conversation_list(here.m, OTHER, &page, &list, &here.a, &here.e),
               ERR_NOTFOUND);
    ASSERT_ERR(memory_message_list(here.m, c.row, &page, &messages, &here.a, &here.e),
               ERR_NOTFOUND);
}

static void removed_conversation_takes_all_along(void **state)
{
    (void)state;
    const uint8_t render[HASH_BYTES] = {1};
    const int32_t ids[] = {1, 2, 3};
    struct memory_conversation keep = add_conversation(), c = add_conversation();
    struct memory_totals totals;
    struct memory_removed n;
    add_message(keep.row, -1, MEMORY_USER, "stays");
    for (int i = 0; i < 10; i++) {
        struct memory_message m = add_message(c.row, -1, MEMORY_USER, "goes");
        ASSERT_OK(memory_tokens_set(here.m, m.row, render, ids, 3, &here.e));
    }
    ASSERT_OK(memory_conversation_remove(here.m, OWNER, c.id, &n, &here.e));
    assert_int_equal(n.n_messages, 10);
    ASSERT_ERR(memory_conversation_remove(here.m, OWNER, c.id, &n, &here.e), ERR_NOTFOUND);
    ASSERT_OK(memory_totals(here.m, &totals, &here.e));
    assert_int_equal(totals.n_conversations, 1);
    assert_int_equal(totals.n_messages, 1);
    assert_true(totals.file_bytes > 0);
    ASSERT_OK(memory_check(here.m, &here.e));
}

static void everything_is_there_after_a_restart(void **state)
{
    (void)state;
    struct memory_conversation c = add_conversation();
    add_message(c.row, -1, MEMORY_USER, "question");
    add_message(c.row, -1, MEMORY_ASSISTANT, "answer");
    ASSERT_OK(memory_conversation_set(here.m, c.row, "Title", "{\"k\":\"v\"}", &here.e));
    place_reopen();
    struct memory_conversation again = get_conversation(c.id);
    assert_string_equal(again.title, "Title");
    assert_string_equal(again.metadata, "{\"k\":\"v\"}");
    assert_string_equal(again.model, "test-model");
    assert_string_equal(path_text(again.tip), "question|answer");
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, place_make, place_remove)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(new_conversation_is_empty_and_its_owners),
        TEST(another_owners_conversation_is_not_found),
        TEST(ids_that_are_none_are_not_found),
        TEST(title_is_the_first_question_until_one_is_set),
        TEST(long_title_is_cut_between_characters),
        TEST(model_and_tip_are_the_newest_messages),
        TEST(lists_go_by_last_use_in_both_orders),
        TEST(pages_have_a_size_and_a_start_that_exists),
        TEST(removed_conversation_takes_all_along),
        TEST(everything_is_there_after_a_restart),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
