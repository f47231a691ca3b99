/* What is deleted is in none of the three files any more. */
#include "tests/memory/place.h"

#define WORDS 200

/* A text of several hundred bytes in which one word is this message's own. */
static void text_of(int i, char ret[1200])
{
    int n = snprintf(ret, 1200, "zq%06dqz ", i);
    for (int k = 0; k < (i * 37) % 1000; k++)
        ret[n++] = (char)('a' + (i + k) % 26);
    ret[n] = '\0';
}

static bool held(int i)
{
    char word[16];
    snprintf(word, sizeof(word), "zq%06dqz", i);
    return files_hold(word);
}

static void a_deleted_conversation_leaves_no_word(void **state)
{
    (void)state;
    struct memory_conversation c[4];
    char text[1200];
    for (int i = 0; i < 4; i++)
        c[i] = add_conversation();
    for (int i = 0; i < WORDS; i++) {
        text_of(i, text);
        add_message(c[i % 4].row, -1, i % 8 < 4 ? MEMORY_USER : MEMORY_ASSISTANT, text);
    }
    ASSERT_OK(memory_conversation_remove(here.m, OWNER, c[1].id, NULL, &here.e));
    ASSERT_OK(memory_conversation_remove(here.m, OWNER, c[2].id, NULL, &here.e));
    for (int i = 0; i < WORDS; i++)
        assert_int_equal(held(i), i % 4 == 0 || i % 4 == 3);
    place_close();
    for (int i = 0; i < WORDS; i++)
        assert_int_equal(held(i), i % 4 == 0 || i % 4 == 3);
}

static void a_deleted_message_leaves_no_word(void **state)
{
    (void)state;
    struct memory_conversation c = add_conversation();
    struct memory_message m[WORDS];
    char text[1200];
    for (int i = 0; i < WORDS; i++) {
        text_of(i, text);
        m[i] = add_message(c.row, -1, MEMORY_USER, text);
    }
    for (int i = 0; i < WORDS; i += 3)
        ASSERT_OK(memory_message_remove(here.m, OWNER, m[i].id, NULL, &here.e));
    for (int i = 0; i < WORDS; i++)
        assert_int_equal(held(i), i % 3 != 0);
    assert_int_equal(get_conversation(c.id).n_messages, WORDS - (WORDS + 2) / 3);
}

static void a_flushed_answer_leaves_no_word_of_its_growing(void **state)
{
    (void)state;
    struct memory_conversation c = add_conversation();
    struct memory_message q = add_message(c.row, -1, MEMORY_USER, "q"), answer;
    char text[12000] = "";
    answer = begin_answer(c.row, q.row, "m");
    for (int i = 0; i < 20; i++) {
        size_t n = strlen(text);
        text_of(i, text + n);
        ASSERT_OK(memory_answer_flush(here.m, answer.row, text, strlen(text), &here.e));
    }
    const struct memory_answer end = {.row = answer.row,
                                      .status = MEMORY_COMPLETE,
                                      .text = text,
                                      .n_text = strlen(text),
                                      .finish = "stop"};
    ASSERT_OK(memory_answer_end(here.m, &end, &here.e));
    struct memory_response r = {
        .id = "resp_1", .conversation = c.row, .answer = answer.row, .body = text};
    ASSERT_OK(memory_response_add(here.m, OWNER, &r, &here.e));
    ASSERT_OK(memory_conversation_remove(here.m, OWNER, c.id, NULL, &here.e));
    for (int i = 0; i < 20; i++)
        assert_false(held(i));
}

static void a_deleted_response_leaves_no_word(void **state)
{
    (void)state;
    struct memory_conversation c;
    ASSERT_OK(memory_conversation_add(
        here.m, &(struct memory_new_conversation){.owner = OWNER, .is_hidden = true}, &c, &here.a,
        &here.e));
    struct memory_message q = add_message(c.row, -1, MEMORY_USER, "zq000001qz");
    struct memory_message a = add_message(c.row, -1, MEMORY_ASSISTANT, "zq000002qz");
    struct memory_response r = {.id = "resp_1",
                                .conversation = c.row,
                                .answer = a.row,
                                .first_input = q.row,
                                .body = "zq000003qz"};
    ASSERT_OK(memory_response_add(here.m, OWNER, &r, &here.e));
    assert_true(held(1) && held(2) && held(3));
    ASSERT_OK(memory_response_remove(here.m, OWNER, "resp_1", NULL, &here.e));
    assert_false(held(1) || held(2) || held(3));
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, place_make, place_remove)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_deleted_conversation_leaves_no_word),
        TEST(a_deleted_message_leaves_no_word),
        TEST(a_flushed_answer_leaves_no_word_of_its_growing),
        TEST(a_deleted_response_leaves_no_word),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
