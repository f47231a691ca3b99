/*
 * What is stored of an answer's token ids, and what a turn's end is called.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "daemon/turn.h"
#include "tests/scripted/vocab.h"

static struct vocab *vocab;
static struct tok *tok;

static int make_tok(void **state)
{
    (void)state;
    struct err e;
    if (vocab_new(&vocab, &e))
        return -1;
    return vocab_tok(vocab, &tok, &e);
}

static int drop_tok(void **state)
{
    (void)state;
    tok_free(tok);
    vocab_free(vocab);
    return 0;
}

/* How many of the ids are kept beside the text. */
static size_t kept(const int32_t *ids, size_t n, const char *text)
{
    struct turn t = {0};
    ids_init(&t.out);
    buf_init(&t.text, 1000);
    buf_str(&t.text, text);
    assert_int_equal(ids_add(&t.out, ids, n), 0);
    size_t r = turn_n_stored_ids(&t, tok);
    ids_done(&t.out);
    buf_done(&t.text);
    return r;
}

static void ids_whose_bytes_were_all_sent_are_kept(void **state)
{
    (void)state;
    static const int32_t abc[] = {'a', 'b', 'c', VOCAB_IM_END};
    assert_int_equal(kept(abc, 4, "abc"), 3);
    assert_int_equal(kept(abc, 4, "ab"), 2); /* a stop string, or what a cancel held back */
    assert_int_equal(kept(abc, 4, ""), 0);
    assert_int_equal(kept(abc, 3, "abcd"), 3);
    assert_int_equal(kept(abc, 3, "xbc"), 0);
    assert_int_equal(kept(abc, 0, "abc"), 0);
}

static void half_a_character_is_not_kept(void **state)
{
    (void)state;
    static const int32_t ids[] = {'a', 0xf0, 0x9f};
    assert_int_equal(kept(ids, 3, "a"), 1);
    static const int32_t repaired[] = {'a', 0x99, 'b'};
    assert_int_equal(kept(repaired, 3,
                          "a\xef\xbf\xbd"
                          "b"),
                     1); /* sent as U+FFFD */
}

static void control_tokens_are_never_kept(void **state)
{
    (void)state;
    static const int32_t ids[] = {'a', VOCAB_IM_START, 'b'};
    assert_int_equal(kept(ids, 3, "ab"), 1);
    assert_int_equal(kept(ids, 3, "a<|im_start|>b"), 1);
}

static void a_token_cut_by_the_text_is_not_kept(void **state)
{
    (void)state;
    struct err e;
    int32_t id;
    assert_int_equal(vocab_add(vocab, " the", 4, &id, &e), 0);
    const int32_t ids[] = {'a', id};
    assert_int_equal(kept(ids, 2, "a t"), 1);
    assert_int_equal(kept(ids, 2, "a the"), 2);
}

static void every_end_has_a_word(void **state)
{
    (void)state;
    static const struct {
        enum turn_finish finish;
        const char *reason, *word;
    } ends[] = {
        {TURN_EOG, "stop", "stop"},        {TURN_STOPPED, "stop", "stop"},
        {TURN_LENGTH, "length", "length"}, {TURN_CANCELED, NULL, "canceled"},
        {TURN_FAILED, NULL, "error"},
    };
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++) {
        struct turn t = {.finish = ends[i].finish};
        if (ends[i].reason)
            assert_string_equal(turn_finish_reason(&t), ends[i].reason);
        else
            assert_null(turn_finish_reason(&t));
        assert_string_equal(turn_finish_word(&t), ends[i].word);
    }
}

static void a_failure_says_why(void **state)
{
    (void)state;
    struct turn t = {0};
    turn_fail(&t, 503, "stopping", "the %s stops", "daemon");
    assert_int_equal(t.finish, TURN_FAILED);
    assert_int_equal(t.error.status, 503);
    assert_string_equal(t.error.code, "stopping");
    assert_string_equal(t.error.message, "the daemon stops");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ids_whose_bytes_were_all_sent_are_kept),
        cmocka_unit_test(half_a_character_is_not_kept),
        cmocka_unit_test(control_tokens_are_never_kept),
        cmocka_unit_test(a_token_cut_by_the_text_is_not_kept),
        cmocka_unit_test(every_end_has_a_word),
        cmocka_unit_test(a_failure_says_why),
    };
    return cmocka_run_group_tests(tests, make_tok, drop_tok);
}
