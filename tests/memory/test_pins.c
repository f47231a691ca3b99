/* Pins of messages and notes, and a conversation's strategy. */
#include "tests/memory/place.h"

#include "memory/db.h"
#include "memory/window.h"

static struct memory_pin pin_note(int64_t conversation, const char *text)
{
    struct memory_pin pin;
    const struct memory_new_pin new = {
        .conversation = conversation, .text = text, .n_text = strlen(text)};
    ASSERT_OK(memory_pin_add(here.m, &new, &pin, &here.a, &here.e));
    return pin;
}

static struct memory_pin pin_message(const struct memory_message *m)
{
    struct memory_pin pin;
    const struct memory_new_pin new = {.conversation = m->conversation, .message = m->row};
    ASSERT_OK(memory_pin_add(here.m, &new, &pin, &here.a, &here.e));
    return pin;
}

/* The texts of a conversation's pins, joined by '|'. */
static const char *pins_of(int64_t conversation)
{
    static char text[4096];
    struct memory_pins list;
    size_t n = 0;
    ASSERT_OK(memory_pin_list(here.m, conversation, &list, &here.a, &here.e));
    text[0] = '\0';
    for (size_t i = 0; i < list.n && n < sizeof(text); i++)
        n += (size_t)snprintf(text + n, sizeof(text) - n, i ? "|%s" : "%s", list.v[i].text);
    return text;
}

static void messages_and_notes_are_pinned_in_order(void **state)
{
    (void)state;
    struct memory_conversation c = add_conversation(), other = add_conversation();
    struct memory_message q = add_message(c.row, -1, MEMORY_USER, "question");
    struct memory_message a = add_message(c.row, -1, MEMORY_ASSISTANT, "answer");
    struct memory_pin of_a = pin_message(&a);
    struct memory_pin note = pin_note(c.row, "peanuts");
    struct memory_pin of_q = pin_message(&q);
    pin_note(other.row, "elsewhere");
    assert_string_equal(pins_of(c.row), "answer|peanuts|question");
    assert_string_equal(of_a.message_id, a.id);
    assert_int_equal(of_a.role, MEMORY_ASSISTANT);
    assert_int_equal(of_q.role, MEMORY_USER);
    assert_int_equal(note.message, 0);
    assert_string_equal(note.message_id, "");
    assert_memory_equal(note.id, "pin_", 4);
    assert_true(note.created_at > 0);
    place_reopen();
    assert_string_equal(pins_of(c.row), "answer|peanuts|question");
    assert_string_equal(pins_of(other.row), "elsewhere");
}

static void what_is_pinned_already_is_found_again(void **state)
{
    (void)state;
    struct memory_conversation c = add_conversation(), other = add_conversation();
    struct memory_message q = add_message(c.row, -1, MEMORY_USER, "question");
    struct memory_pin first = pin_message(&q), note = pin_note(c.row, "n");
    assert_string_equal(pin_message(&q).id, first.id);
    assert_string_equal(pin_note(c.row, "n").id, note.id);
    assert_string_not_equal(pin_note(other.row, "n").id, note.id);
    assert_string_not_equal(pin_note(c.row, "question").id, first.id); /* a note like a message */
    assert_string_equal(pins_of(c.row), "question|n|question");
}

static void pins_go_by_their_id_or_their_message_s(void **state)
{
    (void)state;
    struct memory_conversation c = add_conversation(), other = add_conversation();
    struct memory_message q = add_message(c.row, -1, MEMORY_USER, "question");
    struct memory_pin of_q = pin_message(&q), note = pin_note(c.row, "zq000001qz");
    ASSERT_ERR(memory_pin_remove(here.m, other.row, note.id, &here.e), ERR_NOTFOUND);
    ASSERT_ERR(memory_pin_remove(here.m, c.row, "pin_no", &here.e), ERR_NOTFOUND);
    ASSERT_ERR(memory_pin_remove(here.m, c.row, NULL, &here.e), ERR_NOTFOUND);
    ASSERT_OK(memory_pin_remove(here.m, c.row, note.id, &here.e));
    assert_false(files_hold("zq000001qz"));
    ASSERT_OK(memory_pin_remove(here.m, c.row, q.id, &here.e));
    ASSERT_ERR(memory_pin_remove(here.m, c.row, of_q.id, &here.e), ERR_NOTFOUND);
    assert_string_equal(pins_of(c.row), "");
    pin_message(&q); /* and again */
    assert_string_equal(pins_of(c.row), "question");
}

static void a_pin_reads_its_message_as_it_is(void **state)
{
    (void)state;
    struct memory_conversation c = add_conversation();
    struct memory_message q = add_message(c.row, -1, MEMORY_USER, "q");
    struct memory_message a = begin_answer(c.row, q.row, "m");
    pin_message(&a);
    assert_string_equal(pins_of(c.row), "");
    const struct memory_answer end = {
        .row = a.row, .status = MEMORY_COMPLETE, .text = "whole", .n_text = 5};
    ASSERT_OK(memory_answer_end(here.m, &end, &here.e));
    assert_string_equal(pins_of(c.row), "whole");
    ASSERT_OK(memory_message_remove(here.m, OWNER, a.id, NULL, &here.e));
    assert_string_equal(pins_of(c.row), "");
}

static void a_note_may_hold_a_nul(void **state)
{
    (void)state;
    struct memory_conversation c = add_conversation();
    struct memory_pins list;
    struct memory_pin pin;
    const struct memory_new_pin new = {.conversation = c.row, .text = "a\0b", .n_text = 3};
    ASSERT_OK(memory_pin_add(here.m, &new, &pin, &here.a, &here.e));
    ASSERT_OK(memory_pin_list(here.m, c.row, &list, &here.a, &here.e));
    assert_int_equal(list.v[0].n_text, 3);
    assert_memory_equal(list.v[0].text, "a\0b", 3);
    assert_string_not_equal(pin_note(c.row, "a").id, pin.id);
}

static void what_can_not_be_pinned_is_refused(void **state)
{
    (void)state;
    static char large[MEMORY_NOTE_BYTES_MAX + 1];
    struct memory_conversation c = add_conversation(), other = add_conversation();
    struct memory_message q = add_message(other.row, -1, MEMORY_USER, "q");
    struct memory_pin pin = {.row = 77};
    struct memory_new_pin new = {.conversation = c.row, .message = q.row};
    ASSERT_ERR(memory_pin_add(here.m, &new, &pin, &here.a, &here.e), ERR_NOTFOUND);
    new = (struct memory_new_pin){.conversation = c.row, .text = "", .n_text = 0};
    ASSERT_ERR(memory_pin_add(here.m, &new, &pin, &here.a, &here.e), ERR_INVAL);
    memset(large, 'x', sizeof(large));
    new = (struct memory_new_pin){.conversation = c.row, .text = large, .n_text = sizeof(large)};
    ASSERT_ERR(memory_pin_add(here.m, &new, &pin, &here.a, &here.e), ERR_LIMIT);
    new.n_text--;
    new.conversation = 99999;
    ASSERT_ERR(memory_pin_add(here.m, &new, &pin, &here.a, &here.e), ERR_NOTFOUND);
    assert_int_equal(pin.row, 77);
    new.conversation = c.row;
    ASSERT_OK(memory_pin_add(here.m, &new, &pin, &here.a, &here.e));
}

static void pins_have_a_limit(void **state)
{
    (void)state;
    struct memory_conversation c = add_conversation();
    struct memory_pin pin;
    char text[16];
    for (int i = 0; i < MEMORY_PINS_MAX; i++) {
        snprintf(text, sizeof(text), "n%d", i);
        pin_note(c.row, text);
    }
    const struct memory_new_pin new = {.conversation = c.row, .text = "more", .n_text = 4};
    ASSERT_ERR(memory_pin_add(here.m, &new, &pin, &here.a, &here.e), ERR_LIMIT);
    assert_non_null(strstr(here.e.text, "256"));
    pin_note(c.row, "n7"); /* has a place already */
    ASSERT_OK(memory_pin_remove(here.m, c.row, pin_note(c.row, "n0").id, &here.e));
    ASSERT_OK(memory_pin_add(here.m, &new, &pin, &here.a, &here.e));
}

static void a_conversation_keeps_its_strategy(void **state)
{
    (void)state;
    struct memory_conversation c = add_conversation(), other = add_conversation();
    enum plan_strategy s = PLAN_ERROR;
    ASSERT_OK(memory_strategy_get(here.m, c.row, &s, &here.e));
    assert_int_equal(s, PLAN_UNSET);
    for (int i = PLAN_UNSET; i < PLAN_N_STRATEGIES; i++) {
        ASSERT_OK(memory_strategy_set(here.m, c.row, (enum plan_strategy)i, &here.e));
        place_reopen();
        ASSERT_OK(memory_strategy_get(here.m, c.row, &s, &here.e));
        assert_int_equal(s, i);
    }
    ASSERT_OK(memory_strategy_get(here.m, other.row, &s, &here.e));
    assert_int_equal(s, PLAN_UNSET);
    ASSERT_ERR(memory_strategy_set(here.m, 99999, PLAN_AUTO, &here.e), ERR_NOTFOUND);
    s = PLAN_WINDOW;
    ASSERT_ERR(memory_strategy_get(here.m, 99999, &s, &here.e), ERR_NOTFOUND);
    assert_int_equal(s, PLAN_WINDOW);
}

static void a_strategy_of_another_time_is_none(void **state)
{
    (void)state;
    struct memory_conversation c = add_conversation();
    struct db *db;
    enum plan_strategy s = PLAN_ERROR;
    place_close();
    ASSERT_OK(db_open(here.path, &db, &here.e));
    ASSERT_OK(db_exec(db, "UPDATE conversation SET strategy = 'clairvoyant'", &here.e));
    db_close(db);
    place_open();
    ASSERT_OK(memory_strategy_get(here.m, c.row, &s, &here.e));
    assert_int_equal(s, PLAN_UNSET);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, place_make, place_remove)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(messages_and_notes_are_pinned_in_order),
        TEST(what_is_pinned_already_is_found_again),
        TEST(pins_go_by_their_id_or_their_message_s),
        TEST(a_pin_reads_its_message_as_it_is),
        TEST(a_note_may_hold_a_nul),
        TEST(what_can_not_be_pinned_is_refused),
        TEST(pins_have_a_limit),
        TEST(a_conversation_keeps_its_strategy),
        TEST(a_strategy_of_another_time_is_none),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
