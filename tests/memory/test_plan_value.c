/* What a message is worth, in English and Chinese. */
#include "tests/memory/place.h"

#include "memory/plan.h"

static int value(const char *text)
{
    const struct plan_text t = {
        .kind = PLAN_USER, .text = text, .n_text = strlen(text), .tokens = (int)strlen(text) / 4};
    return plan_value(&t);
}

static int value_as_reply(const char *text)
{
    const struct plan_text t = {
        .kind = PLAN_USER, .is_reply = true, .text = text, .n_text = strlen(text), .tokens = 3};
    return plan_value(&t);
}

static void chit_chat_is_worth_nothing(void **state)
{
    (void)state;
    static const char *const texts[] = {
        "",
        "   \n",
        "ok",
        "OK!",
        "Thanks!",
        "thank you so much :)",
        "Hello there",
        "hi!!!",
        "Good morning, everyone",
        "haha",
        "Hahahaha 😂",
        "😂😂",
        "👍",
        "Got it, thanks.",
        "Bye bye!",
        "You’re welcome! Let me know if you need anything else.",
        "You're welcome! Is there anything else I can help you with today?",
        "How are you doing today?",
        "I'm fine, thank you. And you?",
        "No problem, happy to help!",
        "Great, sounds good. See you later!",
        "Yes.",
        "no",
        "你好",
        "你好！",
        "您好，请问有什么可以帮您？",
        "谢谢你",
        "谢谢，辛苦了！",
        "好的，谢谢",
        "好的好的",
        "哈哈哈哈",
        "嗯嗯，知道了。",
        "不客气！还有什么可以帮您的吗？",
        "再见，晚安~",
        "早上好呀",
        "謝謝",
        "明白了，非常感谢！",
        "OK，谢谢",
        "是的。"};
    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++)
        if (value(texts[i]) != 5)
            fail_msg("'%s' is worth %d", texts[i], value(texts[i]));
}

static void what_is_said_beside_a_greeting_counts(void **state)
{
    (void)state;
    static const char *const texts[] = {
        "Thanks! By the way, I'm allergic to peanuts.",
        "ok, the port is 8443",
        "Hello, my name is Bruno and I live in Lisbon.",
        "Never mention my sister again.",
        "Sure, remember that the deadline is Friday",
        "the bucket is called eu-archive-7",
        "How do I reverse a linked list in C without recursion?",
        "我对花生过敏",
        "谢谢！对了，我叫王伟，住在杭州。",
        "好的，会议改到星期三下午三点",
        "帮我写一首关于秋天的诗",
        "密码是 hunter2",
        "INC-4471",
        "8443",
    };
    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++)
        if (value(texts[i]) < 50)
            fail_msg("'%s' is worth %d", texts[i], value(texts[i]));
}

static void very_short_talk_is_worth_little(void **state)
{
    (void)state;
    assert_int_equal(value("blue whales"), 20);
    assert_int_equal(value("tell more"), 20);
    assert_int_equal(value("蓝色的"), 20);
    assert_int_equal(value("Thanks, professor"), 15);
    assert_true(value("blue whales") < PLAN_VALUE_LOW);
}

static void a_short_answer_to_a_question_is_worth_as_much_as_any(void **state)
{
    (void)state;
    assert_int_equal(value("yes"), 5);
    assert_true(value_as_reply("yes") >= 50);
    assert_true(value_as_reply("No.") >= 50);
    assert_true(value_as_reply("blue whales") >= 50);
    assert_true(value_as_reply("是的") >= 50);
    assert_int_equal(value_as_reply("thanks"), 5);
    assert_int_equal(value_as_reply("谢谢"), 5);
}

static void signs_of_facts_add_up(void **state)
{
    (void)state;
    int plain = value("tell me a long story about a fox and a hedgehog in the wood");
    int number = value("tell me a long story about 3 foxes and a hedgehog in the wood");
    int more = value("I never eat meat, and Bruno comes on Friday 12 with bruno@example.org");
    assert_int_equal(plain, 50);
    assert_int_equal(number, 58);
    assert_int_equal(more, 90);
}

/* A log of about 4 * n bytes, or prose. */
static const char *lines(const char *line, int n)
{
    static char text[20000];
    size_t used = 0, n_line = strlen(line);
    for (int i = 0; i < n && used + n_line + 1 < sizeof(text); i++, used += n_line)
        memcpy(text + used, line, n_line);
    text[used] = '\0';
    return text;
}

static int value_at(enum plan_kind kind, const char *text, int tokens, int age)
{
    const struct plan_text t = {
        .kind = kind, .text = text, .n_text = strlen(text), .tokens = tokens, .age = age};
    return plan_value(&t);
}

static void old_bulk_is_worth_little_and_new_bulk_is_not(void **state)
{
    (void)state;
    const char *log = lines("2026-11-30 01:02:03 [warn] 17 retries on 10.0.0.1\n", 50);
    assert_int_equal(value_at(PLAN_RESULT, log, 900, PLAN_FAR), 10);
    assert_int_equal(value_at(PLAN_USER, log, 900, PLAN_FAR), 10);
    assert_true(value_at(PLAN_RESULT, log, 900, PLAN_FAR - 1) >= 50);
    assert_true(value_at(PLAN_RESULT, log, PLAN_BULKY_TOKENS - 1, 50) >= 50);
    const char *prose = lines("Once there was a fox who lived with a hedgehog in the wood.\n", 50);
    assert_true(value_at(PLAN_ASSISTANT, prose, 900, 50) >= 50);
    assert_int_equal(value_at(PLAN_RESULT, prose, 900, 50), 10);
    const char *chinese = lines("从前有一只狐狸和一只刺猬住在树林里。\n", 50);
    assert_true(value_at(PLAN_ASSISTANT, chinese, 900, 50) >= 50);
}

static void old_code_is_worth_less_than_talk(void **state)
{
    (void)state;
    const char *body = lines("    keep_counting_sheep_until_morning(sheep, morning);\n", 40);
    static char code[21000];
    snprintf(code, sizeof(code), "Here it is:\n```c\n%s```\n", body);
    assert_int_equal(value_at(PLAN_ASSISTANT, code, 700, PLAN_FAR), 35);
    assert_true(value_at(PLAN_ASSISTANT, code, 700, 0) >= 50);
}

/* Any bytes: nothing is read beyond them, and the value is within its range. */
static void any_bytes_have_a_value(void **state)
{
    (void)state;
    for (size_t n = 0; n < 700; n++) {
        char *text = malloc(n + 1); /* so that a sanitizer sees the end */
        assert_non_null(text);
        for (int fill = 0; fill < 5; fill++) {
            for (size_t i = 0; i < n; i++)
                text[i] = (char)(fill == 0   ? 0
                                 : fill == 1 ? 0xE4
                                 : fill == 2 ? 'h' - (int)(i % 8)
                                             : (int)(i * 167 + n * (size_t)fill));
            const struct plan_text t = {.kind = PLAN_USER, .text = text, .n_text = n};
            assert_in_range(plan_value(&t), 0, 100);
        }
        free(text);
    }
}

static void a_question_ends_with_its_mark(void **state)
{
    (void)state;
    static const char *const yes[] = {"?", "Do you?", "Do you? \n", "He said \"why?\"", "**Sure?**",
                                      "你吃辣吗？", "（真的吗？）", "“Really?”", "هل أنت بخير؟"};
    static const char *const no[] = {"",  " ",    "Yes.",     "Why? I see.",
                                     "？x", "\x9F", "\xBC\x9F", "))"};
    for (size_t i = 0; i < sizeof yes / sizeof *yes; i++)
        if (!plan_asks(yes[i], strlen(yes[i])))
            fail_msg("%s", yes[i]);
    for (size_t i = 0; i < sizeof no / sizeof *no; i++)
        if (plan_asks(no[i], strlen(no[i])))
            fail_msg("%s", no[i]);
    assert_false(plan_asks("why?", 3));
    assert_false(plan_asks(NULL, 0));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(chit_chat_is_worth_nothing),
        cmocka_unit_test(what_is_said_beside_a_greeting_counts),
        cmocka_unit_test(very_short_talk_is_worth_little),
        cmocka_unit_test(a_short_answer_to_a_question_is_worth_as_much_as_any),
        cmocka_unit_test(signs_of_facts_add_up),
        cmocka_unit_test(old_bulk_is_worth_little_and_new_bulk_is_not),
        cmocka_unit_test(old_code_is_worth_less_than_talk),
        cmocka_unit_test(any_bytes_have_a_value),
        cmocka_unit_test(a_question_ends_with_its_mark),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
