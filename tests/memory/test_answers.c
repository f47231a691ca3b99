/* Answers: begun, flushed, ended once. */
#include "tests/memory/place.h"

static const uint8_t render[HASH_BYTES] = {9};
static const int32_t ids[] = {10, 20, 30};

static struct memory_message begin(struct memory_conversation *ret)
{
    struct memory_message answer;
    *ret = add_conversation();
    struct memory_message q = add_message(ret->row, -1, MEMORY_USER, "q");
    answer = begin_answer(ret->row, q.row, "model");
    return answer;
}

static struct memory_answer end_of(const struct memory_message *answer)
{
    return (struct memory_answer){
        .row = answer->row,
        .status = MEMORY_COMPLETE,
        .text = "whole",
        .n_text = 5,
        .finish = "stop",
        .render = render,
        .ids = ids,
        .n_ids = 3,
    };
}

static void an_answer_grows_and_ends(void **state)
{
    (void)state;
    struct memory_conversation c;
    struct memory_message answer = begin(&c), found;
    assert_int_equal(answer.status, MEMORY_GENERATING);
    ASSERT_OK(memory_answer_flush(here.m, answer.row, "wh", 2, &here.e));
    ASSERT_OK(memory_message_find(here.m, OWNER, answer.id, &found, &here.a, &here.e));
    assert_string_equal(found.text, "wh");
    assert_int_equal(found.status, MEMORY_GENERATING);
    struct memory_turn turn = {.prompt_tokens = 7,
                               .completion_tokens = 3,
                               .cached_tokens = 4,
                               .cached_ram = 4,
                               .computed_tokens = 3,
                               .queue_us = 1,
                               .restore_us = 2,
                               .prefill_us = 3,
                               .ttft_us = 4,
                               .decode_us = 5,
                               .saved_us = 6,
                               .cached_disk = 8,
                               .cached_shared = 9,
                               .miss_reason = "evicted",
                               .finish = "stop"};
    struct memory_answer end = end_of(&answer);
    end.turn = &turn;
    ASSERT_OK(memory_answer_end(here.m, &end, &here.e));
    place_reopen();
    ASSERT_OK(memory_message_find(here.m, OWNER, answer.id, &found, &here.a, &here.e));
    assert_string_equal(found.text, "whole");
    assert_string_equal(found.finish, "stop");
    assert_string_equal(found.model, "model");
    assert_int_equal(found.status, MEMORY_COMPLETE);
    struct ids got;
    ids_init(&got);
    ASSERT_OK(memory_tokens_get(here.m, answer.row, render, &got, &here.e));
    assert_int_equal(got.n, 3);
    ids_done(&got);
    struct memory_turn t;
    ASSERT_OK(memory_turn_get(here.m, answer.row, &t, &here.a, &here.e));
    assert_int_equal(t.conversation, c.row);
    assert_int_equal(t.prompt_tokens, 7);
    assert_int_equal(t.cached_disk, 8);
    assert_int_equal(t.cached_shared, 9);
    assert_int_equal(t.ttft_us, 4);
    assert_int_equal(t.decode_us, 5);
    assert_int_equal(t.saved_us, 6);
    assert_string_equal(t.miss_reason, "evicted");
    ASSERT_ERR(memory_turn_get(here.m, answer.parent, &t, &here.a, &here.e), ERR_NOTFOUND);
}

/* What a chat was before it was brought in has no statistics, and neither has another branch. */
static void the_newest_turn_of_a_path_is_of_that_path(void **state)
{
    (void)state;
    struct memory_turn turn = {.finish = "stop"};
    int64_t cut = -1;
    const struct memory_conversation c = add_conversation();
    const struct memory_message root = add_message(c.row, 0, MEMORY_USER, "q");
    ASSERT_ERR(memory_turn_newest(here.m, root.row, &cut, &here.e), ERR_NOTFOUND);
    int64_t answers[3], parents[3] = {root.row, 0, root.row}; /* the third is a branch */
    for (int i = 0; i < 3; i++) {
        if (i == 1)
            parents[1] = add_message(c.row, answers[0], MEMORY_USER, "and").row;
        const struct memory_message answer = begin_answer(c.row, parents[i], "m");
        struct memory_answer end = end_of(&answer);
        turn.cut = 10 + i;
        end.turn = &turn;
        ASSERT_OK(memory_answer_end(here.m, &end, &here.e));
        answers[i] = answer.row;
    }
    const int64_t after = add_message(c.row, answers[1], MEMORY_ASSISTANT, "brought in").row;
    ASSERT_OK(memory_turn_newest(here.m, after, &cut, &here.e));
    assert_int_equal(cut, 11);
    ASSERT_OK(memory_turn_newest(here.m, parents[1], &cut, &here.e));
    assert_int_equal(cut, 10);
    ASSERT_OK(memory_turn_newest(here.m, answers[2], &cut, &here.e));
    assert_int_equal(cut, 12);
    ASSERT_ERR(memory_turn_newest(here.m, root.row, &cut, &here.e), ERR_NOTFOUND);
    assert_int_equal(cut, 12);
}

static void an_answer_ends_once(void **state)
{
    (void)state;
    struct memory_conversation c;
    struct memory_message answer = begin(&c), found;
    struct memory_answer end = end_of(&answer);
    ASSERT_OK(memory_answer_end(here.m, &end, &here.e));
    end.text = "other";
    ASSERT_ERR(memory_answer_end(here.m, &end, &here.e), ERR_NOTFOUND);
    ASSERT_ERR(memory_answer_flush(here.m, answer.row, "late", 4, &here.e), ERR_NOTFOUND);
    ASSERT_OK(memory_message_find(here.m, OWNER, answer.id, &found, &here.a, &here.e));
    assert_string_equal(found.text, "whole");
    end.status = MEMORY_GENERATING;
    ASSERT_ERR(memory_answer_end(here.m, &end, &here.e), ERR_INVAL);
}

static void an_answer_whose_conversation_went_is_told_so(void **state)
{
    (void)state;
    struct memory_conversation c;
    struct memory_message answer = begin(&c);
    struct memory_turn turn = {.finish = "stop"};
    struct memory_answer end = end_of(&answer);
    end.turn = &turn;
    ASSERT_OK(memory_conversation_remove(here.m, OWNER, c.id, NULL, &here.e));
    ASSERT_ERR(memory_answer_flush(here.m, answer.row, "x", 1, &here.e), ERR_NOTFOUND);
    ASSERT_ERR(memory_answer_end(here.m, &end, &here.e), ERR_NOTFOUND);
    /* Not even with a new message in the database may the old row number mean something. */
    struct memory_conversation d = add_conversation();
    struct memory_message m = add_message(d.row, -1, MEMORY_USER, "new");
    assert_true(m.row > answer.row);
    const struct memory_new_message late = {
        .conversation = c.row, .role = MEMORY_ASSISTANT, .text = "", .status = MEMORY_GENERATING};
    ASSERT_ERR(memory_message_add(here.m, &late, &m, &here.a, &here.e), ERR_NOTFOUND);
}

static void what_was_being_written_is_interrupted_after_a_restart(void **state)
{
    (void)state;
    struct memory_conversation c;
    struct memory_message answer = begin(&c), found;
    ASSERT_OK(memory_answer_flush(here.m, answer.row, "half an ans", 11, &here.e));
    place_reopen();
    ASSERT_OK(memory_message_find(here.m, OWNER, answer.id, &found, &here.a, &here.e));
    assert_int_equal(found.status, MEMORY_INTERRUPTED);
    assert_string_equal(found.text, "half an ans");
    place_reopen();
    struct memory_answer end = end_of(&answer);
    ASSERT_ERR(memory_answer_end(here.m, &end, &here.e), ERR_NOTFOUND);
}

static void the_end_is_all_or_nothing(void **state)
{
    (void)state;
    struct memory_conversation c;
    struct memory_message answer = begin(&c), found;
    struct memory_response r = {.conversation = c.row, .answer = answer.row, .body = "{}"};
    snprintf(r.id, sizeof(r.id), "resp_1");
    ASSERT_OK(memory_response_add(here.m, OWNER, &r, &here.e));
    struct memory_answer end = end_of(&answer);
    end.response = &r; /* the same id a second time */
    end.owner = OWNER;
    assert_true(memory_answer_end(here.m, &end, &here.e) < 0);
    ASSERT_OK(memory_message_find(here.m, OWNER, answer.id, &found, &here.a, &here.e));
    assert_int_equal(found.status, MEMORY_GENERATING);
    snprintf(r.id, sizeof(r.id), "resp_2");
    ASSERT_OK(memory_answer_end(here.m, &end, &here.e));
    ASSERT_OK(memory_response_find(here.m, OWNER, "resp_2", &r, &here.a, &here.e));
    assert_int_equal(r.answer, answer.row);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, place_make, place_remove)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(an_answer_grows_and_ends),
        TEST(the_newest_turn_of_a_path_is_of_that_path),
        TEST(an_answer_ends_once),
        TEST(an_answer_whose_conversation_went_is_told_so),
        TEST(what_was_being_written_is_interrupted_after_a_restart),
        TEST(the_end_is_all_or_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
