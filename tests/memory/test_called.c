/* Who speaks in which role, from what they call each other; Chinese names of two and three. */
#include "tests/memory/place.h"

#include "memory/search.h"

static struct memory_hits hits;

static void ask(const char *text)
{
    const struct memory_query q = {
        .owner = OWNER, .text = text, .n_text = strlen(text), .limit = 10};
    ASSERT_OK(memory_recall(here.m, &q, &hits, &here.a, &here.e));
}

static const struct memory_hit *hit_of(const char *text)
{
    for (size_t i = 0; i < hits.n; i++)
        if (strcmp(hits.v[i].text, text) == 0)
            return &hits.v[i];
    return NULL;
}

static bool is_of_speaker(const char *text)
{
    const struct memory_hit *hit = hit_of(text);
    assert_non_null(hit);
    return hit->why & MEMORY_WHY_SPEAKER;
}

static const char *const by_user = "音乐会太精彩了，耳朵还在响";
static const char *const by_assistant = "音乐会太难听了，脚还在疼";

/* Both speak of the concert, then each begins some messages in their own way. */
static void talk(const char *const user[3], const char *const assistant[3])
{
    struct memory_conversation c = add_conversation();
    add_message(c.row, 0, MEMORY_USER, by_user);
    add_message(c.row, -1, MEMORY_ASSISTANT, by_assistant);
    for (int i = 0; i < 3; i++) {
        add_message(c.row, -1, MEMORY_USER, user[i]);
        add_message(c.row, -1, MEMORY_ASSISTANT, assistant[i]);
    }
}

static void a_chinese_name_at_a_phrases_beginning_tells_the_other_role(void **state)
{
    (void)state;
    talk((const char *const[]){"林悦，你吃了吗？", "林悦，早点睡吧", "好的林悦，回头再聊"},
         (const char *const[]){"张浩，吃过了", "嗯，张浩，晚安", "谢谢张浩！"});
    ask("林悦觉得音乐会怎么样？");
    assert_true(is_of_speaker(by_assistant));
    assert_false(is_of_speaker(by_user));
    ask("张浩觉得音乐会怎么样？");
    assert_true(is_of_speaker(by_user));
    assert_false(is_of_speaker(by_assistant));
}

static void a_name_of_three_characters_is_one(void **state)
{
    (void)state;
    talk((const char *const[]){"王晓雨，你吃了吗？", "王晓雨，早点睡吧", "谢谢王晓雨！"},
         (const char *const[]){"吃过了，很饱", "嗯，再见", "不客气"});
    ask("王晓雨觉得音乐会怎么样？");
    assert_true(is_of_speaker(by_assistant));
    assert_false(is_of_speaker(by_user));
}

static void a_word_that_begins_phrases_and_stands_within_others_is_no_name(void **state)
{
    (void)state;
    struct memory_conversation c = add_conversation();
    add_message(c.row, 0, MEMORY_USER, by_user);
    add_message(c.row, -1, MEMORY_ASSISTANT, by_assistant);
    static const char *const texts[] = {"昨天，我去游泳了", "昨天，下雨了",     "昨天，车坏在路上",
                                        "我昨天没睡好",     "他昨天给我打电话", "从昨天开始牙疼",
                                        "妈妈昨天来过"};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        add_message(c.row, -1, MEMORY_USER, texts[i]);
    ask("昨天的音乐会怎么样？");
    assert_false(is_of_speaker(by_assistant));
    assert_false(is_of_speaker(by_user));
}

static void english_names_are_told_by_calls(void **state)
{
    (void)state;
    struct memory_conversation c = add_conversation();
    const char *hers = "The concert was awful, my feet still ache";
    const char *his = "The concert was wonderful, my ears still ring";
    add_message(c.row, 0, MEMORY_USER, his);
    add_message(c.row, -1, MEMORY_ASSISTANT, hers);
    add_message(c.row, -1, MEMORY_USER, "Hey Maria, did you eat?");
    add_message(c.row, -1, MEMORY_USER, "Thanks, Maria!");
    add_message(c.row, -1, MEMORY_USER, "See you soon, Maria.");
    ask("What did Maria say about the concert?");
    assert_true(is_of_speaker(hers));
    assert_false(is_of_speaker(his));
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, place_make, place_remove)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_chinese_name_at_a_phrases_beginning_tells_the_other_role),
        TEST(a_name_of_three_characters_is_one),
        TEST(a_word_that_begins_phrases_and_stands_within_others_is_no_name),
        TEST(english_names_are_told_by_calls),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
