/* Messages: the tree, paths, pages, text of any bytes. */
#include "tests/memory/place.h"

static void messages_follow_one_another(void **state)
{
    (void)state;
    struct memory_conversation c = add_conversation();
    struct memory_message a = add_message(c.row, 0, MEMORY_USER, "a");
    struct memory_message b = add_message(c.row, a.row, MEMORY_ASSISTANT, "b");
    assert_memory_equal(a.id, "msg_", 4);
    assert_string_not_equal(a.id, b.id);
    assert_int_equal(b.parent, a.row);
    assert_string_equal(path_text(b.row), "a|b");
    assert_string_equal(path_text(a.row), "a");
    assert_string_equal(path_text(0), "");
}

static void branches_have_their_own_paths(void **state)
{
    (void)state;
    struct memory_conversation c = add_conversation();
    struct memory_message a = add_message(c.row, 0, MEMORY_USER, "a");
    struct memory_message b = add_message(c.row, a.row, MEMORY_ASSISTANT, "b");
    struct memory_message b2 = add_message(c.row, a.row, MEMORY_ASSISTANT, "b2");
    struct memory_message d = add_message(c.row, b.row, MEMORY_USER, "d");
    assert_string_equal(path_text(d.row), "a|b|d");
    assert_string_equal(path_text(b2.row), "a|b2");
    assert_int_equal(get_conversation(c.id).tip, d.row);
}

static void text_is_kept_byte_for_byte_with_its_nuls(void **state)
{
    (void)state;
    static const char text[] = "before\0after\0\xF0\x9F\xA6\x99";
    struct memory_conversation c = add_conversation();
    struct memory_message m, found;
    const struct memory_new_message msg = {
        .conversation = c.row, .role = MEMORY_USER, .text = text, .n_text = sizeof(text)};
    ASSERT_OK(memory_message_add(here.m, &msg, &m, &here.a, &here.e));
    place_reopen();
    ASSERT_OK(memory_message_find(here.m, OWNER, m.id, &found, &here.a, &here.e));
    assert_int_equal(found.n_text, sizeof(text));
    assert_memory_equal(found.text, text, sizeof(text));
}

static void that_a_prompt_opened_a_thought_is_kept(void **state)
{
    (void)state;
    struct memory_conversation c = add_conversation();
    struct memory_message m[2], found;
    for (int i = 0; i < 2; i++) {
        const struct memory_new_message msg = {.conversation = c.row,
                                               .role = MEMORY_ASSISTANT,
                                               .text = "deep",
                                               .n_text = 4,
                                               .status = MEMORY_GENERATING,
                                               .is_opened = i == 1};
        ASSERT_OK(memory_message_add(here.m, &msg, &m[i], &here.a, &here.e));
        assert_int_equal(m[i].is_opened, i == 1);
    }
    place_reopen(); /* as after a kill: the answers are interrupted */
    for (int i = 0; i < 2; i++) {
        ASSERT_OK(memory_message_find(here.m, OWNER, m[i].id, &found, &here.a, &here.e));
        assert_int_equal(found.is_opened, i == 1);
        assert_int_equal(found.status, MEMORY_INTERRUPTED);
    }
}

static void empty_and_large_texts_are_texts(void **state)
{
    (void)state;
    size_t n = 9u << 20;
    char *large = malloc(n + 1);
    assert_non_null(large);
    memset(large, 'x', n);
    large[n] = '\0';
    struct memory_conversation c = add_conversation();
    struct memory_message empty = add_message(c.row, -1, MEMORY_USER, ""), found;
    struct memory_message big = add_message(c.row, -1, MEMORY_USER, large);
    ASSERT_OK(memory_message_find(here.m, OWNER, empty.id, &found, &here.a, &here.e));
    assert_int_equal(found.n_text, 0);
    assert_string_equal(found.text, "");
    ASSERT_OK(memory_message_by_row(here.m, big.row, &found, &here.a, &here.e));
    assert_int_equal(found.n_text, n);
    assert_memory_equal(found.text, large, n);
    free(large);
}

static void parent_must_be_of_the_same_conversation(void **state)
{
    (void)state;
    struct memory_conversation c = add_conversation(), d = add_conversation();
    struct memory_message other = add_message(d.row, 0, MEMORY_USER, "x"), out;
    struct memory_new_message msg = {
        .conversation = c.row, .parent = other.row, .role = MEMORY_USER, .text = "y", .n_text = 1};
    ASSERT_ERR(memory_message_add(here.m, &msg, &out, &here.a, &here.e), ERR_NOTFOUND);
    msg.parent = 12345;
    ASSERT_ERR(memory_message_add(here.m, &msg, &out, &here.a, &here.e), ERR_NOTFOUND);
    msg.parent = 0;
    msg.conversation = 777;
    ASSERT_ERR(memory_message_add(here.m, &msg, &out, &here.a, &here.e), ERR_NOTFOUND);
    msg.conversation = c.row;
    msg.role = 9;
    ASSERT_ERR(memory_message_add(here.m, &msg, &out, &here.a, &here.e), ERR_INVAL);
    assert_int_equal(get_conversation(c.id).n_messages, 0);
}

static void several_are_added_in_a_row_or_none(void **state)
{
    (void)state;
    struct memory_conversation c = add_conversation();
    struct memory_message out[3] = {{.row = -5}};
    struct memory_new_message msgs[3] = {
        {.conversation = c.row, .role = MEMORY_SYSTEM, .text = "s", .n_text = 1},
        {.role = MEMORY_USER, .text = "u", .n_text = 1},
        {.role = MEMORY_ASSISTANT,
         .text = "a",
         .n_text = 1,
         .status = MEMORY_COMPLETE,
         .model = "m"},
    };
    ASSERT_OK(memory_message_add_all(here.m, msgs, 3, out, &here.a, &here.e));
    assert_string_equal(path_text(out[2].row), "s|u|a");
    assert_int_equal(out[1].parent, out[0].row);
    msgs[2].role = 0;
    out[0].row = -5;
    ASSERT_ERR(memory_message_add_all(here.m, msgs, 3, out, &here.a, &here.e), ERR_INVAL);
    assert_int_equal(out[0].row, -5);
    assert_int_equal(get_conversation(c.id).n_messages, 3);
}

static void removed_message_gives_its_children_its_parent(void **state)
{
    (void)state;
    struct memory_conversation c = add_conversation();
    struct memory_message m[4], found;
    static const char *const texts[] = {"a", "b", "c", "d"};
    for (int i = 0; i < 4; i++)
        m[i] = add_message(c.row, -1, MEMORY_USER, texts[i]);
    struct memory_message fork = add_message(c.row, m[1].row, MEMORY_USER, "fork");
    ASSERT_OK(memory_message_remove(here.m, OWNER, m[1].id, NULL, &here.e));
    ASSERT_ERR(memory_message_remove(here.m, OWNER, m[1].id, NULL, &here.e), ERR_NOTFOUND);
    ASSERT_ERR(memory_message_find(here.m, OWNER, m[1].id, &found, &here.a, &here.e), ERR_NOTFOUND);
    assert_string_equal(path_text(m[3].row), "a|c|d");
    assert_string_equal(path_text(fork.row), "a|fork");
    ASSERT_OK(memory_message_remove(here.m, OWNER, m[0].id, NULL, &here.e));
    assert_string_equal(path_text(m[3].row), "c|d");
    assert_string_equal(path_text(fork.row), "fork");
    ASSERT_OK(memory_message_remove(here.m, OWNER, fork.id, NULL, &here.e));
    assert_int_equal(get_conversation(c.id).tip, m[3].row);
}

static void pages_show_the_newest_path_in_both_orders(void **state)
{
    (void)state;
    bool more;
    char name[8];
    struct memory_conversation c = add_conversation();
    struct memory_message m[10], left;
    assert_string_equal(page_text(c.row, NULL, 5, false, &more), "");
    assert_false(more);
    for (int i = 0; i < 6; i++) {
        snprintf(name, sizeof(name), "%d", i);
        m[i] = add_message(c.row, -1, MEMORY_USER, name);
    }
    left = m[5];
    m[5] = add_message(c.row, m[4].row, MEMORY_USER, "5b");
    assert_string_equal(page_text(c.row, NULL, 100, true, &more), "0|1|2|3|4|5b");
    assert_false(more);
    assert_string_equal(page_text(c.row, NULL, 100, false, &more), "5b|4|3|2|1|0");
    assert_string_equal(page_text(c.row, NULL, 2, false, &more), "5b|4");
    assert_true(more);
    assert_string_equal(page_text(c.row, m[4].id, 3, false, &more), "3|2|1");
    assert_true(more);
    assert_string_equal(page_text(c.row, m[1].id, 3, false, &more), "0");
    assert_false(more);
    assert_string_equal(page_text(c.row, m[0].id, 3, false, &more), "");
    assert_string_equal(page_text(c.row, NULL, 4, true, &more), "0|1|2|3");
    assert_true(more);
    assert_string_equal(page_text(c.row, m[3].id, 2, true, &more), "4|5b");
    assert_false(more);
    assert_string_equal(page_text(c.row, m[5].id, 2, true, &more), "");
    assert_string_equal(page_text(c.row, left.id, 2, false, &more), "4|3");
}

static void a_path_longer_than_allowed_is_refused(void **state)
{
    (void)state;
    struct memory_conversation c = add_conversation();
    struct memory_message m = {0};
    struct memory_messages list;
    for (int i = 0; i < 5; i++)
        m = add_message(c.row, -1, MEMORY_USER, "x");
    ASSERT_OK(memory_path(here.m, m.row, 5, &list, &here.a, &here.e));
    assert_int_equal(list.n, 5);
    ASSERT_ERR(memory_path(here.m, m.row, 4, &list, &here.a, &here.e), ERR_LIMIT);
    ASSERT_ERR(memory_path(here.m, 4711, 4, &list, &here.a, &here.e), ERR_CORRUPT);
}

static void a_piece_of_a_path_ends_where_it_began(void **state)
{
    (void)state;
    struct memory_message m[6];
    struct memory_messages list;
    struct memory_conversation c = add_conversation();
    for (int i = 0; i < 6; i++)
        m[i] = add_message(c.row, -1, MEMORY_USER, "x");
    struct memory_branch branch = {.first = m[2].row, .tip = m[4].row};
    for (int asc = 0; asc < 2; asc++) {
        struct memory_page page = {.limit = 2, .is_ascending = asc};
        ASSERT_OK(memory_branch_list(here.m, &branch, &page, &list, &here.a, &here.e));
        assert_int_equal(list.n, 2);
        assert_true(list.has_more);
        assert_int_equal(list.v[0].row, asc ? m[2].row : m[4].row);
        page.after = list.v[1].id;
        ASSERT_OK(memory_branch_list(here.m, &branch, &page, &list, &here.a, &here.e));
        assert_int_equal(list.n, 1);
        assert_false(list.has_more);
        assert_int_equal(list.v[0].row, asc ? m[4].row : m[2].row);
    }
}

static void token_ids_belong_to_message_and_render_id(void **state)
{
    (void)state;
    const uint8_t one[HASH_BYTES] = {1}, two[HASH_BYTES] = {2};
    const int32_t a[] = {1, -2, 2147483647}, b[] = {5};
    uint8_t found[HASH_BYTES];
    struct ids ids;
    ids_init(&ids);
    struct memory_conversation c = add_conversation();
    struct memory_message m = add_message(c.row, -1, MEMORY_USER, "x");
    assert_false(memory_tokens_render(here.m, m.row, found));
    ASSERT_ERR(memory_tokens_get(here.m, m.row, one, &ids, &here.e), ERR_NOTFOUND);
    ASSERT_OK(memory_tokens_set(here.m, m.row, one, a, 3, &here.e));
    ASSERT_OK(memory_tokens_set(here.m, m.row, two, b, 1, &here.e));
    ASSERT_OK(memory_tokens_get(here.m, m.row, one, &ids, &here.e));
    ASSERT_OK(memory_tokens_get(here.m, m.row, two, &ids, &here.e));
    assert_int_equal(ids.n, 4);
    assert_memory_equal(ids.v, a, sizeof(a));
    assert_int_equal(ids.v[3], 5);
    ASSERT_OK(memory_tokens_set(here.m, m.row, one, NULL, 0, &here.e));
    ASSERT_OK(memory_tokens_get(here.m, m.row, one, &ids, &here.e));
    assert_int_equal(ids.n, 4);
    assert_true(memory_tokens_render(here.m, m.row, found));
    assert_true(memory_tokens_set(here.m, 999, one, a, 3, &here.e) < 0);
    ids_done(&ids);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, place_make, place_remove)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(messages_follow_one_another),
        TEST(branches_have_their_own_paths),
        TEST(that_a_prompt_opened_a_thought_is_kept),
        TEST(text_is_kept_byte_for_byte_with_its_nuls),
        TEST(empty_and_large_texts_are_texts),
        TEST(parent_must_be_of_the_same_conversation),
        TEST(several_are_added_in_a_row_or_none),
        TEST(removed_message_gives_its_children_its_parent),
        TEST(pages_show_the_newest_path_in_both_orders),
        TEST(a_path_longer_than_allowed_is_refused),
        TEST(a_piece_of_a_path_ends_where_it_began),
        TEST(token_ids_belong_to_message_and_render_id),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
