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

/* Into `ret`; how many. */
static size_t blocks_of(const char *letters, uint8_t ret[BLOCKS_MAX * HASH_BYTES])
{
    size_t n = strlen(letters);
    for (size_t i = 0; i < n; i++)
        block_of(letters[i], ret + i * HASH_BYTES);
    return n;
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
    if (gone->batch)
        ASSERT_OK(memory_gone_done(here.m, gone->batch, &here.e));
    memory_removed_done(gone);
}

/* The letters of ids, sorted; freed. */
static const char *letters_of(uint8_t *ids, size_t n)
{
    static char text[BLOCKS_MAX + 1];
    memset(text, 0, sizeof(text));
    for (size_t i = 0; i < n; i++) {
        size_t at = i;
        for (; at > 0 && text[at - 1] > (char)ids[i * HASH_BYTES]; at--)
            text[at] = text[at - 1];
        text[at] = (char)ids[i * HASH_BYTES];
    }
    free(ids);
    return text;
}

/* A turn under `parent`: a question and an answer, whose blocks are `letters` and end in the
 * messages of `rows`: 'p' the parent, 'q', 'a'. */
struct turn_rows {
    struct memory_message q, a;
};

static struct turn_rows turn(int64_t conversation, int64_t parent, const char *letters,
                             const int64_t *ends)
{
    uint8_t blocks[BLOCKS_MAX * HASH_BYTES];
    int64_t rows[BLOCKS_MAX];
    struct turn_rows t;
    t.q = add_message(conversation, parent, MEMORY_USER, "q");
    t.a = begin_answer(conversation, t.q.row, "m");
    const struct memory_answer end = {.row = t.a.row,
                                      .status = MEMORY_COMPLETE,
                                      .text = "a",
                                      .n_text = 1,
                                      .blocks = blocks,
                                      .block_messages = rows,
                                      .n_blocks = blocks_of(letters, blocks)};
    for (size_t i = 0; i < end.n_blocks; i++)
        rows[i] = ends[i] == -2 ? t.q.row : ends[i] == -3 ? t.a.row : ends[i];
    ASSERT_OK(memory_answer_end(here.m, &end, &here.e));
    return t;
}
#define IN_QUESTION (-2)
#define IN_ANSWER (-3)

static const char *gone_letters(struct memory_removed *gone)
{
    const char *text = letters_of(gone->blocks, gone->n_blocks);
    gone->blocks = NULL;
    ASSERT_OK(memory_gone_done(here.m, gone->batch, &here.e));
    memory_removed_done(gone);
    return text;
}

/*
 *      s system ── q1 ── a1 ── q2 ── a2
 *                          ╰── q3 ── a3
 *      blocks: S T (s), u (q1), v (a1), w (q2), x (a2), y (q3), z (a3)
 */
static void a_message_takes_along_what_ends_in_it_and_below(void **state)
{
    (void)state;
    struct memory_conversation c = add_conversation(), other = add_conversation();
    struct memory_removed gone;
    struct memory_message s = add_message(c.row, 0, MEMORY_SYSTEM, "s");
    struct turn_rows t1 = turn(c.row, s.row, "STuv",
                               (int64_t[]){s.row, s.row, IN_QUESTION, IN_ANSWER});
    int64_t before[] = {s.row, s.row, t1.q.row, t1.a.row, IN_QUESTION, IN_ANSWER};
    struct turn_rows t2 = turn(c.row, t1.a.row, "STuvwx", before);
    turn(c.row, t1.a.row, "STuvyz", before);
    ASSERT_OK(memory_message_remove(here.m, OWNER, t2.q.id, &gone, &here.e));
    assert_int_equal(gone.n_messages, 1);
    assert_string_equal(gone_letters(&gone), "wx");
    answer(other.row, "STu");
    ASSERT_OK(memory_message_remove(here.m, OWNER, t1.q.id, &gone, &here.e));
    assert_string_equal(gone_letters(&gone), "vyz"); /* u is the other's too */
    for (const char *l = "vwxyz"; *l; l++)
        assert_false(held(*l));
    ASSERT_OK(memory_message_remove(here.m, OWNER, s.id, &gone, &here.e));
    assert_string_equal(gone_letters(&gone), "");
    ASSERT_OK(memory_conversation_remove(here.m, OWNER, other.id, &gone, &here.e));
    assert_string_equal(gone_letters(&gone), "STu");
}

static void blocks_of_unknown_ends_go_with_any_message(void **state)
{
    (void)state;
    struct memory_conversation c = add_conversation();
    struct memory_removed gone;
    struct memory_message s = add_message(c.row, 0, MEMORY_SYSTEM, "s");
    answer(c.row, "Sx"); /* as version 4 left them */
    struct turn_rows t = turn(c.row, -1, "Sxy", (int64_t[]){s.row, s.row, IN_ANSWER});
    ASSERT_OK(memory_message_remove(here.m, OWNER, t.a.id, &gone, &here.e));
    assert_string_equal(gone_letters(&gone), "y");
    answer(c.row, "k");
    ASSERT_OK(memory_message_remove(here.m, OWNER, t.q.id, &gone, &here.e));
    assert_string_equal(gone_letters(&gone), "k");
}

static void the_journal_keeps_what_isn_t_confirmed(void **state)
{
    (void)state;
    struct memory_conversation a = add_conversation(), b = add_conversation(),
                               c = add_conversation();
    struct memory_removed gone, again;
    answer(a.row, "xy");
    answer(b.row, "z");
    ASSERT_OK(memory_gone_read(here.m, &gone, &here.e));
    assert_int_equal(gone.n_blocks, 0);
    ASSERT_OK(memory_conversation_remove(here.m, OWNER, a.id, &gone, &here.e));
    memory_removed_done(&gone);
    ASSERT_OK(memory_conversation_remove(here.m, OWNER, b.id, &gone, &here.e));
    assert_string_equal(gone_letters(&gone), "z"); /* confirms its own */
    place_reopen();
    answer(c.row, "y"); /* computed again meanwhile */
    ASSERT_OK(memory_gone_read(here.m, &again, &here.e));
    memory_removed_done(&again);
    place_reopen(); /* killed once more */
    ASSERT_OK(memory_gone_read(here.m, &again, &here.e));
    assert_int_equal(again.n_unpinned, 0);
    assert_string_equal(gone_letters(&again), "x");
    ASSERT_OK(memory_gone_read(here.m, &gone, &here.e));
    assert_int_equal(gone.n_blocks, 0);
    assert_false(held('x') && held('z'));
}

static void a_deletion_that_fails_leaves_no_journal(void **state)
{
    (void)state;
    struct memory_conversation c = add_conversation();
    struct memory_removed gone;
    answer(c.row, "x");
    ASSERT_ERR(memory_conversation_remove(here.m, OTHER, c.id, &gone, &here.e), ERR_NOTFOUND);
    ASSERT_ERR(memory_message_remove(here.m, OWNER, "msg_none", &gone, &here.e), ERR_NOTFOUND);
    ASSERT_OK(memory_gone_read(here.m, &gone, &here.e));
    assert_int_equal(gone.n_blocks, 0);
}

static void blocks_that_come_too_late_are_in_the_journal(void **state)
{
    (void)state;
    struct memory_conversation c = add_conversation();
    uint8_t ids[BLOCKS_MAX * HASH_BYTES];
    struct memory_removed gone, again;
    answer(c.row, "b");
    ASSERT_OK(memory_blocks_gone(here.m, ids, blocks_of("abc", ids), &gone, &here.e));
    assert_string_equal(letters_of(gone.blocks, gone.n_blocks), "ac");
    place_reopen();
    ASSERT_OK(memory_gone_read(here.m, &again, &here.e));
    assert_string_equal(gone_letters(&again), "ac");
}

/* ---- pins ---- */

static void set_pins(int64_t conversation, const char *letters, const char *want_unpinned)
{
    uint8_t ids[BLOCKS_MAX * HASH_BYTES], model[HASH_BYTES] = {7};
    struct memory_removed gone;
    const size_t n = blocks_of(letters, ids);
    const struct memory_block_pin pin = {.blocks = ids, .n = n, .model = model};
    ASSERT_OK(memory_block_pin_set(here.m, conversation, &pin, &gone, &here.e));
    assert_string_equal(letters_of(gone.unpinned, gone.n_unpinned), want_unpinned);
    free(gone.blocks);
}

static const char *all_pins(void)
{
    static char text[BLOCKS_MAX + 1];
    struct memory_block_pinned *pins = NULL;
    size_t n = 0;
    memset(text, 0, sizeof(text));
    ASSERT_OK(memory_block_pins(here.m, &pins, &n, &here.e));
    for (size_t i = 0; i < n; i++) {
        text[i] = (char)pins[i].block[0];
        assert_int_equal(pins[i].model[0], 7);
    }
    free(pins);
    return text;
}

static void pins_are_a_conversation_s_and_stay(void **state)
{
    (void)state;
    struct memory_conversation a = add_conversation(), b = add_conversation();
    struct memory_removed gone;
    int64_t n;
    set_pins(a.row, "SPx", "");
    set_pins(b.row, "SP", "");
    place_reopen();
    assert_string_equal(all_pins(), "SPxSP");
    ASSERT_OK(memory_block_pin_count(here.m, a.row, &n, &here.e));
    assert_int_equal(n, 3);
    answer(a.row, "SPxy");
    ASSERT_OK(memory_conversation_remove(here.m, OWNER, a.id, &gone, &here.e));
    assert_string_equal(letters_of(gone.unpinned, gone.n_unpinned), "x");
    gone.unpinned = NULL;
    assert_string_equal(gone_letters(&gone), "xy"); /* S and P are b's, which only pins them */
    assert_string_equal(all_pins(), "SP");
    set_pins(b.row, "S", "PS"); /* instead of: who pins S again tells so afterwards */
    set_pins(b.row, "", "S");
    assert_string_equal(all_pins(), "");
}

static void a_message_s_pins_go_with_it(void **state)
{
    (void)state;
    struct memory_conversation c = add_conversation();
    struct memory_removed gone;
    struct memory_message s = add_message(c.row, 0, MEMORY_SYSTEM, "s");
    struct turn_rows t = turn(c.row, s.row, "Sx", (int64_t[]){s.row, IN_ANSWER});
    set_pins(c.row, "Sx", "");
    ASSERT_OK(memory_message_remove(here.m, OWNER, t.a.id, &gone, &here.e));
    assert_string_equal(letters_of(gone.unpinned, gone.n_unpinned), "x");
    gone.unpinned = NULL;
    assert_string_equal(gone_letters(&gone), "x");
    assert_string_equal(all_pins(), "S");
    ASSERT_OK(memory_message_remove(here.m, OWNER, s.id, &gone, &here.e));
    gone_letters(&gone);
    assert_string_equal(all_pins(), "");
}

static void a_conversation_s_blocks_are_told(void **state)
{
    (void)state;
    struct memory_conversation a = add_conversation(), b = add_conversation();
    uint8_t *ids = NULL;
    size_t n = 0;
    answer(a.row, "Sxy");
    answer(a.row, "Sxz");
    set_pins(a.row, "Sp", "");
    answer(b.row, "S");
    ASSERT_OK(memory_blocks_of(here.m, a.row, false, &ids, &n, &here.e));
    assert_string_equal(letters_of(ids, n), "Spxyz");
    ASSERT_OK(memory_blocks_of(here.m, a.row, true, &ids, &n, &here.e));
    assert_string_equal(letters_of(ids, n), "pxyz");
    ASSERT_OK(memory_blocks_of(here.m, b.row, true, &ids, &n, &here.e));
    assert_int_equal(n, 0);
    assert_null(ids);
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

static int64_t hidden_response(int64_t conversation, const char *id, const char *letters,
                               const int64_t *ends)
{
    struct memory_response r = {.conversation = conversation, .body = "{}"};
    struct turn_rows t = turn(conversation, -1, letters, ends);
    r.answer = t.a.row;
    r.first_input = t.q.row;
    snprintf(r.id, sizeof(r.id), "%s", id);
    ASSERT_OK(memory_response_add(here.m, OWNER, &r, &here.e));
    return r.answer;
}

static void a_hidden_conversation_gives_them_with_its_responses(void **state)
{
    (void)state;
    struct memory_conversation c, other = add_conversation();
    struct memory_removed gone;
    ASSERT_OK(memory_conversation_add(
        here.m, &(struct memory_new_conversation){.owner = OWNER, .is_hidden = true}, &c, &here.a,
        &here.e));
    int64_t first =
        hidden_response(c.row, "resp_1", "Sa", (int64_t[]){IN_QUESTION, IN_ANSWER});
    hidden_response(c.row, "resp_2", "Sabd",
                    (int64_t[]){first - 1, first, IN_QUESTION, IN_ANSWER});
    answer(other.row, "S");
    ASSERT_OK(memory_response_remove(here.m, OWNER, "resp_2", &gone, &here.e));
    assert_int_equal(gone.n_messages, 2);
    assert_gone(&gone, "bd");
    ASSERT_OK(memory_response_remove(here.m, OWNER, "resp_1", &gone, &here.e));
    assert_int_equal(gone.n_messages, 2);
    assert_gone(&gone, "a");
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
        TEST(a_hidden_conversation_gives_them_with_its_responses),
        TEST(unused_ones_are_told_from_used),
        TEST(an_answer_that_ends_too_late_leaves_none),
        TEST(a_message_takes_along_what_ends_in_it_and_below),
        TEST(blocks_of_unknown_ends_go_with_any_message),
        TEST(the_journal_keeps_what_isn_t_confirmed),
        TEST(a_deletion_that_fails_leaves_no_journal),
        TEST(blocks_that_come_too_late_are_in_the_journal),
        TEST(pins_are_a_conversation_s_and_stay),
        TEST(a_message_s_pins_go_with_it),
        TEST(a_conversation_s_blocks_are_told),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
