/* Which blocks go with a conversation: those that no other uses, each once. */
#include "tests/memory/place.h"

#define BLOCKS_MAX 16

/* A block that the letter stands for; the letter is found in the files by its 32 times. */
static void block_of(char letter, uint8_t ret[HASH_BYTES])
{
    memset(ret, letter, HASH_BYTES);
}

static bool held(char letter)
{
    char word[HASH_BYTES + 1] = "";
    memset(word, letter, HASH_BYTES);
    return files_hold(word);
}

/* An answer that leaves the blocks of `letters` behind. Returns its row. */
static int64_t answer(int64_t conversation, const char *letters)
{
    uint8_t blocks[BLOCKS_MAX * HASH_BYTES];
    struct memory_message q = add_message(conversation, -1, MEMORY_USER, "q");
    struct memory_message a = begin_answer(conversation, q.row, "m");
    const struct memory_answer end = {.row = a.row,
                                      .status = MEMORY_COMPLETE,
                                      .text = "a",
                                      .n_text = 1,
                                      .blocks = blocks,
                                      .n_blocks = strlen(letters)};
    for (size_t i = 0; letters[i]; i++)
        block_of(letters[i], blocks + i * HASH_BYTES);
    ASSERT_OK(memory_answer_end(here.m, &end, &here.e));
    return a.row;
}

/* Compares and frees. */
static void assert_gone(struct memory_removed *gone, const char *letters)
{
    assert_int_equal(gone->n_blocks, strlen(letters));
    for (size_t i = 0; letters[i]; i++) {
        uint8_t want[HASH_BYTES];
        block_of(letters[i], want);
        assert_memory_equal(gone->blocks + i * HASH_BYTES, want, HASH_BYTES);
    }
    free(gone->blocks);
}

static void a_conversation_takes_along_what_no_other_uses(void **state)
{
    (void)state;
    struct memory_conversation a = add_conversation(), b = add_conversation();
    struct memory_removed gone;
    answer(a.row, "SPx");
    answer(b.row, "SPu");
    answer(a.row, "SPxyz");
    answer(a.row, "SPxyzw");
    ASSERT_OK(memory_conversation_remove(here.m, OWNER, a.id, &gone, &here.e));
    assert_int_equal(gone.n_messages, 6);
    assert_gone(&gone, "wxyz");
    for (const char *c = "wxyz"; *c; c++)
        assert_false(held(*c));
    assert_true(held('S') && held('P') && held('u'));
    place_reopen();
    ASSERT_OK(memory_conversation_remove(here.m, OWNER, b.id, &gone, &here.e));
    assert_gone(&gone, "PSu");
    assert_false(held('S') || held('P') || held('u'));
}

static void a_conversation_without_blocks_gives_none(void **state)
{
    (void)state;
    struct memory_conversation c = add_conversation();
    struct memory_removed gone;
    answer(c.row, "");
    ASSERT_OK(memory_conversation_remove(here.m, OWNER, c.id, &gone, &here.e));
    assert_int_equal(gone.n_messages, 2);
    assert_int_equal(gone.n_blocks, 0);
    assert_null(gone.blocks);
}

static int64_t hidden_response(int64_t conversation, const char *id, const char *letters)
{
    struct memory_response r = {.conversation = conversation, .body = "{}"};
    r.answer = answer(conversation, letters);
    r.first_input = r.answer - 1;
    snprintf(r.id, sizeof(r.id), "%s", id);
    ASSERT_OK(memory_response_add(here.m, OWNER, &r, &here.e));
    return r.answer;
}

static void a_hidden_conversation_gives_them_with_its_last_response(void **state)
{
    (void)state;
    struct memory_conversation c, other = add_conversation();
    struct memory_removed gone;
    ASSERT_OK(memory_conversation_add(
        here.m, &(struct memory_new_conversation){.owner = OWNER, .is_hidden = true}, &c, &here.a,
        &here.e));
    hidden_response(c.row, "resp_1", "Sa");
    hidden_response(c.row, "resp_2", "Sab");
    answer(other.row, "S");
    ASSERT_OK(memory_response_remove(here.m, OWNER, "resp_2", &gone, &here.e));
    assert_int_equal(gone.n_messages, 2);
    assert_gone(&gone, "");
    ASSERT_OK(memory_response_remove(here.m, OWNER, "resp_1", &gone, &here.e));
    assert_int_equal(gone.n_messages, 2);
    assert_gone(&gone, "ab");
}

static void unused_ones_are_told_from_used(void **state)
{
    (void)state;
    struct memory_conversation c = add_conversation();
    uint8_t ids[4 * HASH_BYTES], want[HASH_BYTES];
    size_t n = 99;
    answer(c.row, "bd");
    for (int i = 0; i < 4; i++)
        block_of((char)('a' + i), ids + i * HASH_BYTES);
    ASSERT_OK(memory_blocks_unused(here.m, ids, 4, &n, &here.e));
    assert_int_equal(n, 2);
    block_of('a', want);
    assert_memory_equal(ids, want, HASH_BYTES);
    block_of('c', want);
    assert_memory_equal(ids + HASH_BYTES, want, HASH_BYTES);
    ASSERT_OK(memory_blocks_unused(here.m, ids, 0, &n, &here.e));
    assert_int_equal(n, 0);
}

static void an_answer_that_ends_too_late_leaves_none(void **state)
{
    (void)state;
    struct memory_conversation c = add_conversation();
    struct memory_message q = add_message(c.row, -1, MEMORY_USER, "q");
    struct memory_message a = begin_answer(c.row, q.row, "m");
    uint8_t block[HASH_BYTES];
    size_t n = 0;
    const struct memory_answer end = {
        .row = a.row, .status = MEMORY_COMPLETE, .blocks = block, .n_blocks = 1};
    block_of('k', block);
    ASSERT_OK(memory_conversation_remove(here.m, OWNER, c.id, NULL, &here.e));
    ASSERT_ERR(memory_answer_end(here.m, &end, &here.e), ERR_NOTFOUND);
    ASSERT_OK(memory_blocks_unused(here.m, block, 1, &n, &here.e));
    assert_int_equal(n, 1);
    assert_false(held('k'));
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, place_make, place_remove)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_conversation_takes_along_what_no_other_uses),
        TEST(a_conversation_without_blocks_gives_none),
        TEST(a_hidden_conversation_gives_them_with_its_last_response),
        TEST(unused_ones_are_told_from_used),
        TEST(an_answer_that_ends_too_late_leaves_none),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
