/* What is found, what never is, and what a broken index costs: nothing but the finding. */
#include "tests/memory/place.h"

#include <unistd.h>

#include "base/utf8.h"
#include "memory/db.h"
#include "memory/migrate.h"
#include "memory/schema.h"
#include "memory/search.h"

static struct memory_hits hits;

static struct memory_query query(const char *text)
{
    return (struct memory_query){
        .owner = OWNER, .text = text, .n_text = strlen(text), .limit = 10, .is_search = true};
}

static void ask(const struct memory_query *q)
{
    ASSERT_OK(memory_recall(here.m, q, &hits, &here.a, &here.e));
}

static void search(const char *text)
{
    struct memory_query q = query(text);
    ask(&q);
}

/* The text's place among the hits, from 1; 0: it is none. */
static size_t place_of(const char *text)
{
    for (size_t i = 0; i < hits.n; i++)
        if (strcmp(hits.v[i].text, text) == 0)
            return i + 1;
    return 0;
}

static size_t found(const char *asked, const char *text)
{
    search(asked);
    return place_of(text);
}

static void words_are_found_in_other_forms(void **state)
{
    (void)state;
    struct memory_conversation c = add_conversation();
    struct memory_message m = add_message(c.row, 0, MEMORY_USER, "We adopted two kittens");
    add_message(c.row, -1, MEMORY_ASSISTANT, "How lovely");
    search("Who is adopting a kitten?");
    assert_int_equal(hits.n >= 1, 1);
    assert_int_equal(hits.v[0].row, m.row);
    assert_string_equal(hits.v[0].id, m.id);
    assert_string_equal(hits.v[0].conversation_id, c.id);
    assert_int_equal(hits.v[0].role, MEMORY_USER);
    assert_true(hits.v[0].why & MEMORY_WHY_TERMS);
    assert_true(hits.v[0].score > 0);
    assert_false(hits.is_partial || hits.is_damaged || hits.has_more);
}

/* CASES B76: whatever is typed, it is words. */
static void user_text_is_never_query_syntax(void **state)
{
    (void)state;
    static const char *const queries[] = {"post-merge", "it's",
                                          "\"",         "\"\"",
                                          "a\"b",       "AND",
                                          "NEAR(a b)",  "NOT x",
                                          "col:val",    "std::map",
                                          "*",          "^a",
                                          "(",          "km/h",
                                          "--x",        "😀",
                                          "",           "terms:kitten",
                                          "scope",      "OR OR OR",
                                          "a* b*",      "{terms}: x",
                                          "-",          "kitten) OR (dog",
                                          "\xFF\xFE",   "x\n;DROP TABLE message;--",
                                          "+",          "NEAR",
                                          "\\",         "'",
                                          "''",         "a AND",
                                          "AND AND",    "\xE8\xAF"};
    struct memory_conversation c = add_conversation();
    add_message(c.row, 0, MEMORY_USER, "kitten");
    for (size_t i = 0; i < sizeof(queries) / sizeof(queries[0]); i++) {
        char text[128];
        search(queries[i]);
        /* And what holds it is found by it, if there is any word in it. */
        snprintf(text, sizeof(text), "before %s after %zu", queries[i], i);
        add_message(c.row, -1, MEMORY_USER, text);
    }
    assert_true(found("post-merge", "before post-merge after 0"));
    assert_true(found("it's", "before it's after 1"));
    assert_true(found("a\"b", "before a\"b after 4"));
    assert_true(found("AND", "before AND after 5"));
    assert_true(found("NOT x", "before NOT x after 7"));
    assert_int_equal(place_of("kitten"), 0);
    assert_true(found("col:val", "before col:val after 8"));
    assert_true(found("std::map", "before std::map after 9"));
    assert_true(found("km/h", "before km/h after 13"));
    assert_true(found("kmh", "before km/h after 13"));
    for (size_t i = 0; i < 8; i++) {
        static const char *const empty[] = {"", "*", "(", "\"\"", "😀", "-", "\xFF\xFE", "'"};
        search(empty[i]);
        assert_int_equal(hits.n, 0);
    }
    char *large = malloc(100 << 10);
    assert_non_null(large);
    for (int i = 0; i < 100 << 10; i++)
        large[i] = "ab \"c-:*d"[(i * 7 + i / 9) % 9];
    memcpy(large + (100 << 10) - 8, " kitten", 8);
    assert_true(found(large, "kitten"));
    free(large);
    static const char nul[] = "\0kitten\0cat";
    struct memory_query q = {.owner = OWNER, .text = nul, .n_text = sizeof(nul) - 1, .limit = 5};
    ask(&q);
    assert_true(place_of("kitten"));
}

/* CASES B78. */
static void chinese_is_found_by_one_to_four_characters(void **state)
{
    (void)state;
    struct memory_conversation c = add_conversation();
    const char *meeting = "明天下午3点项目评审会，别迟到", *glued = "请用run-beta部署",
               *usb = "这个USB接口坏了";
    add_message(c.row, 0, MEMORY_USER, meeting);
    add_message(c.row, -1, MEMORY_USER, glued);
    add_message(c.row, -1, MEMORY_USER, usb);
    add_message(c.row, -1, MEMORY_USER, "今天天气真好");
    assert_int_equal(found("会", meeting), 1);
    assert_int_equal(found("评审", meeting), 1);
    assert_int_equal(found("评审会", meeting), 1);
    assert_int_equal(found("项目评审", meeting), 1);
    assert_int_equal(found("beta", glued), 1);
    assert_int_equal(found("run-beta", glued), 1);
    assert_int_equal(found("runbeta", glued), 1);
    assert_int_equal(found("USB接口", usb), 1);
    assert_int_equal(found("usb", usb), 1);
}

static void identifiers_are_found_whole_and_in_parts(void **state)
{
    (void)state;
    struct memory_conversation c = add_conversation();
    const char *text = "The ticket is INC-4471, version 3.5, from 2024-05-17, says O'Brien";
    add_message(c.row, 0, MEMORY_USER, text);
    add_message(c.row, -1, MEMORY_USER, "Ticket 35 is about INC-9999");
    static const char *const asked[] = {"INC-4471", "inc4471", "4471",   "3.5",  "2024-05-17",
                                        "2024",     "o'brien", "obrien", "brien"};
    for (size_t i = 0; i < sizeof(asked) / sizeof(asked[0]); i++)
        assert_int_equal(found(asked[i], text), 1);
}

/* CASES B83. */
static void the_window_and_the_question_are_no_hits(void **state)
{
    (void)state;
    struct memory_conversation c = add_conversation();
    struct memory_message m[4];
    m[0] = add_message(c.row, 0, MEMORY_USER, "My cat is called Biscuit");
    m[1] = add_message(c.row, -1, MEMORY_ASSISTANT, "A fine name for a cat");
    m[2] = add_message(c.row, -1, MEMORY_USER, "Cats like fish");
    m[3] = add_message(c.row, -1, MEMORY_USER, "What is my cat called?");
    int64_t window[] = {m[0].row, m[3].row};
    struct memory_query q = query("What is my cat called?");
    q.exclude = window;
    q.n_exclude = 2;
    ask(&q);
    assert_int_equal(place_of("My cat is called Biscuit"), 0);
    assert_int_equal(place_of("What is my cat called?"), 0);
    assert_true(place_of("A fine name for a cat") && place_of("Cats like fish"));
    q.is_search = false;
    q.exclude = NULL; /* not even when nobody names its row: it is the query's own text */
    q.n_exclude = 0;
    ask(&q);
    assert_int_equal(place_of("What is my cat called?"), 0);
    assert_int_equal(place_of("My cat is called Biscuit"), 1);
    int64_t path[] = {m[2].row};
    q.only = path;
    q.n_only = 1;
    ask(&q);
    assert_int_equal(hits.n, 1);
    assert_int_equal(hits.v[0].row, m[2].row);
}

/* CASES B82. */
static void each_text_is_a_hit_once(void **state)
{
    (void)state;
    int64_t newest = 0;
    static const char *const same[] = {"I am allergic to peanuts.", "I am allergic to peanuts",
                                       "i am ALLERGIC to peanuts!", "I am allergic to  peanuts",
                                       "I am allergic to peanuts."};
    for (int i = 0; i < 5; i++) {
        struct memory_conversation c = add_conversation();
        newest = add_message(c.row, 0, MEMORY_USER, same[i]).row;
        add_message(c.row, -1, MEMORY_ASSISTANT, "Noted.");
    }
    search("peanuts allergy");
    assert_int_equal(hits.n, 2); /* it, and "Noted." beside it */
    assert_int_equal(hits.v[0].row, newest);
}

static void other_owners_are_not_searched(void **state)
{
    (void)state;
    struct memory_conversation mine = add_conversation(), theirs;
    ASSERT_OK(memory_conversation_add(here.m, &(struct memory_new_conversation){.owner = OTHER},
                                      &theirs, &here.a, &here.e));
    for (int i = 0; i < 300; i++)
        add_message(theirs.row, -1, MEMORY_USER, i % 2 ? "a secret walnut" : "another walnut");
    add_message(mine.row, 0, MEMORY_USER, "my walnut");
    search("walnut");
    assert_int_equal(hits.n, 1);
    assert_string_equal(hits.v[0].text, "my walnut");
    struct memory_query q = query("walnut");
    q.conversation = theirs.row;
    ask(&q);
    assert_int_equal(hits.n, 0);
    q.conversation = 0;
    q.owner = OTHER;
    ask(&q);
    assert_int_equal(hits.n, 2);
    const struct memory_ranked row = {.row = theirs.row, .score = 1};
    q = query("");
    ASSERT_OK(memory_recall_rows(here.m, &q, &(struct memory_list){.v = &row, .n = 1, .weight = 1},
                                 &hits, &here.a, &here.e));
    assert_int_equal(hits.n, 0);
}

static void an_answer_without_a_shared_word_stands_beside_its_question(void **state)
{
    (void)state;
    struct memory_conversation c = add_conversation();
    for (int i = 0; i < 20; i++) {
        char text[64];
        snprintf(text, sizeof(text), "talk about nothing, number %d", i);
        add_message(c.row, -1, MEMORY_USER, text);
    }
    add_message(c.row, -1, MEMORY_USER, "Which dentist do you recommend?");
    add_message(c.row, -1, MEMORY_ASSISTANT, "Meyer on Mill Lane.");
    add_message(c.row, -1, MEMORY_USER, "Thanks a lot");
    search("recommended dentist");
    assert_true(place_of("Meyer on Mill Lane."));
    assert_true(hits.v[place_of("Meyer on Mill Lane.") - 1].why & MEMORY_WHY_NEIGHBOUR);
}

static void whom_the_query_names_comes_first(void **state)
{
    (void)state;
    struct memory_conversation c = add_conversation();
    const char *maria = "Maria: The concert was wonderful, my ears still ring";
    const char *tom = "Tom: The concert was awful, my feet still ache";
    add_message(c.row, 0, MEMORY_USER, maria);
    add_message(c.row, -1, MEMORY_ASSISTANT, tom);
    for (int i = 0; i < 10; i++) {
        char text[64];
        snprintf(text, sizeof(text), "%s: more of this and that %d", i % 2 ? "Maria" : "Tom", i);
        add_message(c.row, -1, MEMORY_USER, text);
    }
    assert_int_equal(found("What did Maria say about the concert?", maria), 1);
    assert_string_equal(hits.v[0].speaker, "Maria");
    assert_true(hits.v[0].why & MEMORY_WHY_SPEAKER);
    assert_int_equal(found("What did Tom say about the concert?", tom), 1);
}

static void pages_follow_each_other(void **state)
{
    (void)state;
    struct memory_conversation c = add_conversation();
    for (int i = 0; i < 30; i++) {
        char text[64];
        snprintf(text, sizeof(text), "apple number %d", i);
        add_message(c.row, -1, MEMORY_USER, text);
    }
    bool seen[64] = {false};
    struct memory_query q = query("apple");
    q.limit = 7;
    for (int page = 0; page < 5; page++, q.offset += 7) {
        ask(&q);
        assert_int_equal(hits.n, page < 4 ? 7 : 2);
        assert_int_equal(hits.has_more, page < 4);
        for (size_t i = 0; i < hits.n; i++) {
            assert_false(seen[hits.v[i].row]);
            seen[hits.v[i].row] = true;
        }
    }
    q.limit = 0;
    ASSERT_ERR(memory_recall(here.m, &q, &hits, &here.a, &here.e), ERR_INVAL);
    q.limit = 10;
    q.offset = SEARCH_POOL;
    ASSERT_ERR(memory_recall(here.m, &q, &hits, &here.a, &here.e), ERR_INVAL);
}

static void an_answer_is_found_when_it_has_ended(void **state)
{
    (void)state;
    struct memory_conversation c = add_conversation();
    struct memory_message ask_it = add_message(c.row, 0, MEMORY_USER, "hello there");
    struct memory_message answer = begin_answer(c.row, ask_it.row, "m");
    ASSERT_OK(memory_answer_flush(here.m, answer.row, "pomegranate", 11, &here.e));
    assert_int_equal(found("pomegranate", "pomegranate"), 0);
    const struct memory_answer end = {.row = answer.row,
                                      .status = MEMORY_COMPLETE,
                                      .text = "pomegranates",
                                      .n_text = 12,
                                      .finish = "stop"};
    ASSERT_OK(memory_answer_end(here.m, &end, &here.e));
    assert_int_equal(found("pomegranate", "pomegranates"), 1);
    answer = begin_answer(c.row, ask_it.row, "m");
    ASSERT_OK(memory_answer_flush(here.m, answer.row, "quince jam", 10, &here.e));
    place_reopen(); /* it was interrupted */
    assert_int_equal(found("quince", "quince jam"), 1);
}

static void deleted_words_are_in_no_file(void **state)
{
    (void)state;
    struct memory_conversation c = add_conversation(), d = add_conversation();
    struct memory_message m = add_message(c.row, 0, MEMORY_USER, "the zqwordaqz is secret");
    add_message(c.row, -1, MEMORY_USER, "the zqwordbqz stays");
    add_message(d.row, -1, MEMORY_USER, "the zqwordcqz goes");
    for (int i = 0; i < 60; i++) { /* many segments */
        char text[64];
        snprintf(text, sizeof(text), "filling %d zqfillqz", i);
        add_message(c.row, -1, MEMORY_USER, text);
    }
    place_reopen();
    assert_true(files_hold("zqwordaqz") && files_hold("zqwordcqz"));
    ASSERT_OK(memory_message_remove(here.m, OWNER, m.id, NULL, &here.e));
    assert_false(files_hold("zqwordaqz"));
    assert_true(files_hold("zqwordcqz"));
    ASSERT_OK(memory_conversation_remove(here.m, OWNER, d.id, NULL, &here.e));
    assert_false(files_hold("zqwordcqz"));
    assert_true(files_hold("zqwordbqz"));
    assert_int_equal(found("zqwordbqz", "the zqwordbqz stays"), 1);
    search("zqwordaqz");
    assert_int_equal(hits.n, 0);
}

/* SQL behind the store's back, with the store closed. */
static void alter(const char *sql)
{
    struct db *db;
    place_close();
    ASSERT_OK(db_open(here.path, &db, &here.e));
    ASSERT_OK(db_exec(db, sql, &here.e));
    db_close(db);
    place_open();
}

static void idle(void)
{
    for (int i = 0; i < 100 && memory_has_work(here.m); i++)
        memory_idle(here.m);
    assert_false(memory_has_work(here.m));
}

/* Whatever is done to the index: messages are stored, nothing fails, and it comes back. */
static void survives(const char *damage)
{
    struct memory_conversation c = add_conversation();
    add_message(c.row, 0, MEMORY_USER, "cherries from before");
    alter(damage);
    search("cherries");
    add_message(c.row, -1, MEMORY_USER, "more cherries in between");
    search("cherries");
    assert_true(hits.is_damaged && hits.is_partial && hits.n == 0);
    struct memory_search_state s;
    ASSERT_OK(memory_search_state(here.m, &s, &here.e));
    assert_true(s.is_damaged && s.n_waiting >= 2);
    idle();
    ASSERT_OK(memory_search_state(here.m, &s, &here.e));
    assert_false(s.is_damaged);
    assert_int_equal(s.n_waiting, 0);
    assert_true(found("cherries", "cherries from before"));
    assert_true(place_of("more cherries in between"));
    assert_false(hits.is_damaged || hits.is_partial);
    ASSERT_OK(memory_conversation_remove(here.m, OWNER, c.id, NULL, &here.e));
    assert_false(files_hold("cherries"));
}

static void a_damaged_index_is_rebuilt(void **state)
{
    (void)state;
    survives("UPDATE message_fts_data SET block = x'0000' WHERE id > 1");
    survives("UPDATE message_fts_data SET block = zeroblob(3)");
    survives("UPDATE message_fts_data SET block = x''"); /* legal, and finds nothing */
    survives("UPDATE message_fts_data SET block = x'' WHERE id = 10");
    survives("DELETE FROM message_fts_data");
    survives("DROP TABLE message_fts_content");
    survives("DROP TABLE message_fts_data");
    survives("DROP TABLE message_fts_config");
    survives("DROP TABLE message_fts");
}

static void a_deletion_over_a_damaged_index_leaves_no_word(void **state)
{
    (void)state;
    struct memory_conversation c = add_conversation(), d = add_conversation();
    struct memory_message m = add_message(c.row, 0, MEMORY_USER, "zqwordaqz");
    add_message(d.row, 0, MEMORY_USER, "zqwordbqz here");
    alter("UPDATE message_fts_data SET block = x'0000' WHERE id > 1");
    ASSERT_OK(memory_message_remove(here.m, OWNER, m.id, NULL, &here.e));
    assert_false(files_hold("zqwordaqz"));
    idle();
    assert_int_equal(found("zqwordbqz", "zqwordbqz here"), 1);
}

static void another_segmenters_index_is_filled_again_in_pieces(void **state)
{
    (void)state;
    struct memory_conversation c = add_conversation();
    for (int i = 0; i < 450; i++) {
        char text[64];
        snprintf(text, sizeof(text), "plum%d and plums", i);
        add_message(c.row, -1, MEMORY_USER, text);
    }
    alter("UPDATE search_state SET segmenter = 0");
    assert_true(memory_has_work(here.m));
    search("plum0");
    assert_true(hits.is_partial && !hits.is_damaged && hits.n == 0);
    add_message(c.row, -1, MEMORY_USER, "plum-new is indexed at once");
    assert_true(found("plum-new", "plum-new is indexed at once"));
    memory_idle(here.m); /* newest first */
    assert_true(found("plum449", "plum449 and plums"));
    assert_true(hits.is_partial);
    assert_int_equal(found("plum0", "plum0 and plums"), 0);
    place_reopen(); /* goes on where it was */
    struct memory_search_state s;
    ASSERT_OK(memory_search_state(here.m, &s, &here.e));
    assert_int_equal(s.n_waiting, 250);
    idle();
    assert_int_equal(found("plum0", "plum0 and plums"), 1);
    assert_false(hits.is_partial);
}

static void messages_from_before_the_index_are_found_after_a_while(void **state)
{
    (void)state;
    const struct migrate_plan before = {.steps = schema_steps, .n_steps = 2};
    struct db *db;
    place_close();
    unlink(here.path);
    ASSERT_OK(migrate_open(here.path, &before, &db, &here.e));
    ASSERT_OK(db_exec(db,
                      "INSERT INTO conversation (id, owner, activity, created_at, updated_at)"
                      " VALUES ('conv_old', '" OWNER "', 1, 2, 3);"
                      "INSERT INTO message (id, conversation, role, status, created_at, text)"
                      " VALUES ('msg_old', 1, 2, 0, 2, 'an old apricot')",
                      &here.e));
    db_close(db);
    place_open();
    search("apricot");
    assert_true(hits.is_partial && hits.n == 0);
    idle();
    assert_int_equal(found("apricots", "an old apricot"), 1);
    assert_false(hits.is_partial);
}

static void snippets_show_the_words(void **state)
{
    (void)state;
    struct memory_conversation c = add_conversation();
    struct buf b, text;
    buf_init(&text, 1 << 20);
    for (int i = 0; i < 300; i++)
        buf_str(&text, "nothing 没有 ");
    buf_str(&text, "the  hidden\n\ntreasure is\there");
    for (int i = 0; i < 300; i++)
        buf_str(&text, " nothing 没有");
    add_message(c.row, 0, MEMORY_USER, text.data);
    struct memory_query q = query("treasures");
    ask(&q);
    assert_int_equal(hits.n, 1);
    for (size_t n = 16; n < 300; n++) {
        buf_init(&b, 1 << 12);
        memory_snippet(here.m, &q, &hits.v[0], n, &b);
        assert_true(b.len <= n && utf8_valid(b.data, b.len, NULL));
        if (n >= 40) {
            assert_non_null(strstr(b.data, "treasure is"));
            assert_memory_equal(b.data, "…", 3);
            assert_memory_equal(b.data + b.len - 3, "…", 3);
        }
        buf_done(&b);
    }
    buf_done(&text);
}

/* The marked parts, a bar between them. */
static void marked(const char *question, const char *text, const char *want)
{
    struct memory_query q = query(question);
    struct memory_mark marks[4];
    struct buf b, got;
    buf_init(&b, 1 << 12);
    buf_init(&got, 1 << 12);
    buf_str(&b, text);
    buf_str(&got, "");
    const size_t n = memory_marks(here.m, &q, &b, marks, 4);
    for (size_t i = 0; i < n; i++) {
        if (i > 0)
            buf_char(&got, '|');
        buf_add(&got, text + marks[i].from, marks[i].to - marks[i].from);
    }
    assert_string_equal(got.data, want);
    buf_done(&got);
    buf_done(&b);
}

static void marks_are_a_questions_words(void **state)
{
    (void)state;
    marked("the cats", "The cat, the CATS' and concatenation", "cat|CATS");
    marked("the", "the cat and the dog", "the|the");
    marked("inc-4471", "INC-4471, INC-447", "INC-4471|INC");
    marked("谁对花生过敏", "我对花生过敏。", "对花生过敏");
    marked("花", "花生和花", "花|花");
    marked("x", "", "");
    marked("", "the cat", "");
    marked("a1 b", "a1 a1 a1 a1 a1 a1", "a1|a1|a1|a1");
}

static void ranks_are_merged(void **state)
{
    (void)state;
    const struct memory_ranked words[] = {{1, 9}, {2, 8}, {3, 1}},
                               meaning[] = {{3, .9}, {1, .8}, {4, .1}};
    const struct memory_list lists[] = {{words, 3, 1}, {meaning, 3, 1}};
    struct memory_ranked out[8];
    assert_int_equal(memory_recall_merge(lists, 2, out, 8), 4);
    assert_int_equal(out[0].row, 1); /* 1/61 + 1/62 */
    assert_int_equal(out[1].row, 3); /* 1/63 + 1/61 */
    assert_int_equal(out[2].row, 2);
    assert_int_equal(out[3].row, 4);
    assert_int_equal(memory_recall_merge(lists, 2, out, 2), 2);
    assert_int_equal(memory_recall_merge(lists, 0, out, 2), 0);
    struct memory_conversation c = add_conversation();
    struct memory_message m = add_message(c.row, 0, MEMORY_USER, "one"),
                          n = add_message(c.row, -1, MEMORY_USER, "two");
    const struct memory_ranked rows[] = {{n.row, 1}, {99, 1}, {m.row, 1}};
    struct memory_query q = query("");
    ASSERT_OK(
        memory_recall_rows(here.m, &q, &(struct memory_list){rows, 3, 1}, &hits, &here.a, &here.e));
    assert_int_equal(hits.n, 2);
    assert_int_equal(hits.v[0].row, n.row);
    assert_int_equal(hits.v[1].row, m.row);
    assert_int_equal(hits.v[0].why, MEMORY_WHY_MEANING);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, place_make, place_remove)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(words_are_found_in_other_forms),
        TEST(user_text_is_never_query_syntax),
        TEST(chinese_is_found_by_one_to_four_characters),
        TEST(identifiers_are_found_whole_and_in_parts),
        TEST(the_window_and_the_question_are_no_hits),
        TEST(each_text_is_a_hit_once),
        TEST(other_owners_are_not_searched),
        TEST(an_answer_without_a_shared_word_stands_beside_its_question),
        TEST(whom_the_query_names_comes_first),
        TEST(pages_follow_each_other),
        TEST(an_answer_is_found_when_it_has_ended),
        TEST(deleted_words_are_in_no_file),
        TEST(a_damaged_index_is_rebuilt),
        TEST(a_deletion_over_a_damaged_index_leaves_no_word),
        TEST(another_segmenters_index_is_filled_again_in_pieces),
        TEST(messages_from_before_the_index_are_found_after_a_while),
        TEST(snippets_show_the_words),
        TEST(marks_are_a_questions_words),
        TEST(ranks_are_merged),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
