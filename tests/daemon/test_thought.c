/* Thoughts told apart from answers, however the text is cut into pieces. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#include "daemon/thought.h"

/* What their templates spell. */
#define MAGISTRAL "'[THINK]' + block['thinking'] + '[/THINK]'"
#define COMMAND "<|START_THINKING|>{{ x }}<|END_THINKING|>"
#define SEED "'<seed:think>' '</seed:think>'"
#define HARMONY "<|channel|>analysis<|message|> <|end|>"
#define GEMMA "'<|channel>thought\\n' '<channel|>'"
#define KIMI "\xE2\x97\x81think\xE2\x96\xB7 \xE2\x97\x81/think\xE2\x96\xB7"
#define APRIEL "Here are my reasoning steps:\\n [BEGIN FINAL RESPONSE]"

static const struct {
    bool is_open;
    const char *text, *reasoning, *answer;
    const char *source; /* what a template says; NULL: <think> */
} cases[] = {
    {false, "<think>\nA\n</think>\n\nB", "A", "B"},
    {false, " \n<think>A</think>B ", "A", "B "},
    {false, "B", "", "B"},
    {false, " B", "", " B"},
    {false, "<thin", "", "<thin"},
    {false, "<thing>B", "", "<thing>B"},
    {false, "B <think>A</think>", "", "B <think>A</think>"},
    {false, "", "", ""},
    {false, " \n", "", " \n"},
    {false, "<think>\n\n</think>\n\nB", "", "B"},
    {false, "<think>A", "A", ""},
    {false, "<think>A\n</thi", "A\n</thi", ""},
    {false, "<think>A </think x </think>\nB</think>C", "A </think x", "B</think>C"},
    {false, "<think>a\n\nb</think>  \n ", "a\n\nb", ""},
    {true, "A\n</think>\n\nB", "A", "B"},
    {true, "\nA", "A", ""},
    {true, "</think>B", "", "B"},
    {true, "<think>A</think>B", "<think>A", "B"},
    {false, "<think>\xC3\xA9</think>\xE9\x9B\xA8", "\xC3\xA9", "\xE9\x9B\xA8"},
    {false, "[THINK]A[/THINK]B", "A", "B", MAGISTRAL},
    {false, "<think>A</think>B", "", "<think>A</think>B", MAGISTRAL},
    {false, "<|START_THINKING|>A<|END_THINKING|>B", "A", "B", COMMAND},
    {true, "A</seed:think>\nB", "A", "B", SEED},
    {false, "<|channel|>analysis<|message|>A<|end|><|start|>assistant<|channel|>final<|message|>B",
     "A", "B", HARMONY},
    {false, "<|channel|>final<|message|>B", "", "B", HARMONY},
    {false, "<|channel|>analysis<|message|>A<|end|>B", "A", "B", HARMONY},
    {false, "<|channel|>analysis<|message|>A<|end|><|start|>assist", "A", "<|start|>assist",
     HARMONY},
    {false, "<|channel>thought\nA\n<channel|>B", "A", "B", GEMMA},
    {false, "\xE2\x97\x81think\xE2\x96\xB7" "A\xE2\x97\x81/think\xE2\x96\xB7" "B", "A", "B",
     KIMI},
    {true, "A\n[BEGIN FINAL RESPONSE]\nB", "A", "B", APRIEL},
    {false, "<reasoning>A</reasoning>B", "A", "B", "<reasoning> </reasoning>"},
};
#define N_CASES (sizeof cases / sizeof *cases)

static void assert_part(const struct buf *got, const char *want, const char *text)
{
    if (got->len != strlen(want) || (got->len > 0 && memcmp(got->data, want, got->len) != 0))
        fail_msg("%s: \"%.*s\" instead of \"%s\"", text, (int)got->len,
                 got->len > 0 ? got->data : "", want);
}

/* In pieces of 1 to max bytes. */
static void check(size_t i, size_t max, unsigned *seed)
{
    struct thought t;
    const char *s = cases[i].text;
    size_t left = strlen(s), n_given = 0;
    thought_init(&t, 1 << 16);
    thought_start(&t, chat_think_of(cases[i].source ? cases[i].source : "<think>"),
                  cases[i].is_open);
    while (left > 0) {
        size_t n = 1 + (size_t)rand_r(seed) % max;
        n = n < left ? n : left;
        thought_push(&t, s, n, false);
        assert_true(t.reasoning.len + t.answer.len >= n_given); /* nothing is taken back */
        n_given = t.reasoning.len + t.answer.len;
        s += n;
        left -= n;
    }
    thought_push(&t, "", 0, true);
    assert_part(&t.reasoning, cases[i].reasoning, cases[i].text);
    assert_part(&t.answer, cases[i].answer, cases[i].text);
    thought_done(&t);
}

static void pieces_dont_matter(void **state)
{
    (void)state;
    unsigned seed = (unsigned)time(NULL);
    print_message("seed %u\n", seed);
    for (size_t i = 0; i < N_CASES; i++)
        for (size_t max = 1; max <= 64; max++)
            check(i, max, &seed);
}

static void off_tells_nothing_apart(void **state)
{
    (void)state;
    struct thought t;
    thought_init(&t, 1 << 16);
    thought_push(&t, "<think>a</think>b", 17, true);
    assert_int_equal(t.reasoning.len + t.answer.len + t.held.len, 0);
    thought_done(&t);
}

static void prompts_may_end_in_the_tag(void **state)
{
    (void)state;
    const struct chat_think *k = chat_think_of("</think>");
    assert_true(thought_is_opened(k, "assistant\n<think>\n", 18));
    assert_true(thought_is_opened(k, "<think>", 7));
    assert_false(thought_is_opened(k, "<think>\n\n</think>\n\n", 19));
    assert_false(thought_is_opened(k, "think>", 6));
    assert_false(thought_is_opened(k, "", 0));
}

static void a_family_has_marks_of_its_own(void **state)
{
    (void)state;
    assert_null(chat_think_of("{{ messages }}"));
    assert_null(chat_think_of("[THINK]")); /* no end of it */
    assert_string_equal(chat_think_of("<think></think>[THINK][/THINK]")->close, "[/THINK]");
    assert_string_equal(chat_think_of("</think><reasoning></reasoning>")->open, "<think>");
    const struct chat_think *k = chat_think_of(HARMONY);
    assert_true(thought_is_tag(k, "<|start|>", 9)); /* a control token of its tags */
    assert_false(thought_is_tag(k, "<|return|>", 10));
}

/* Whole texts split as they do when they come piece by piece. */
static void whole_texts_split_alike(void **state)
{
    (void)state;
    for (size_t i = 0; i < N_CASES; i++) {
        const char *source = cases[i].source ? cases[i].source : "<think>";
        struct chat_split split;
        const bool is = chat_think_split(chat_think_of(source), cases[i].text,
                                         strlen(cases[i].text), &split);
        if (!strstr(cases[i].text, "</thi") || cases[i].reasoning[0] == '\0')
            continue;
        assert_true(is);
        assert_int_equal(split.n_answer, strlen(cases[i].answer));
        assert_memory_equal(split.answer, cases[i].answer, split.n_answer);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pieces_dont_matter),
        cmocka_unit_test(off_tells_nothing_apart),
        cmocka_unit_test(prompts_may_end_in_the_tag),
        cmocka_unit_test(a_family_has_marks_of_its_own),
        cmocka_unit_test(whole_texts_split_alike),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
