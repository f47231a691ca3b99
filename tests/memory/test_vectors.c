/* Vectors: what still needs one, what is found by them, and that nothing of them stays behind. */
#include "tests/memory/place.h"

#include <math.h>

#include "base/sys.h"
#include "memory/db.h"
#include "memory/migrate.h"
#include "memory/schema.h"
#include "memory/vectors.h"

#define DIM 8

static void use(const char *id, uint64_t bytes_max)
{
    struct vectors_model model = {.dim = DIM, .bytes_max = bytes_max};
    memset(model.id, id[0], sizeof model.id);
    ASSERT_OK(memory_vectors_use(here.m, &model, &here.e));
}

/* A "model" that a test can think with: the share of each letter a … h, to length 1. */
static void vector_of(const char *s, size_t n, float ret[DIM])
{
    float length = 0;
    memset(ret, 0, DIM * sizeof *ret);
    for (size_t i = 0; i < n; i++)
        if (s[i] >= 'a' && s[i] < 'a' + DIM)
            ret[s[i] - 'a'] += 1;
    for (int i = 0; i < DIM; i++)
        length += ret[i] * ret[i];
    for (int i = 0; i < DIM && length > 0; i++)
        ret[i] /= sqrtf(length);
}

/* Gives vectors to all that want one; returns how many messages did. */
static int embed_all(void)
{
    int n_all = 0;
    while (memory_vectors_has_work(here.m)) {
        struct vectors_text texts[3];
        size_t n;
        ASSERT_OK(memory_vectors_next(here.m, (struct vectors_wanted){3, 1000}, texts, &n,
                                      &here.a));
        for (size_t i = 0; i < n; i++) {
            float v[DIM];
            vector_of(texts[i].text, texts[i].n_text, v);
            ASSERT_OK(memory_vectors_add(
                here.m, &(struct vectors_made){texts[i].row, v, texts[i].n_text > 0}, 1, &here.e));
        }
        n_all += (int)n;
    }
    return n_all;
}

static struct vectors_hits near;

static void search(const struct memory_query *q, const char *text)
{
    float v[DIM];
    vector_of(text, strlen(text), v);
    ASSERT_OK(memory_vectors_search(here.m, q, v, VECTORS_BEST, &near));
}

static bool found(int64_t row)
{
    for (size_t i = 0; i < near.n; i++)
        if (near.v[i].row == row)
            return true;
    return false;
}

/* Of all, each by itself. */
static void nearest(const char *text)
{
    struct memory_weights alone = memory_weights_default;
    alone.meaning_before = alone.meaning_after = 0;
    alone.meaning_floor = -100; /* whatever the others are */
    search(&(struct memory_query){.owner = OWNER, .weights = &alone}, text);
}

static void each_message_gets_its_vectors_once_newest_first(void **state)
{
    (void)state;
    struct memory_conversation c = add_conversation();
    add_message(c.row, 0, MEMORY_USER, "aaa");
    struct memory_message second = add_message(c.row, -1, MEMORY_ASSISTANT, "bbb");
    assert_false(memory_vectors_has_work(here.m)); /* nobody has a model */
    use("x", 1 << 20);
    struct vectors_text text;
    size_t n;
    assert_true(memory_vectors_has_work(here.m));
    ASSERT_OK(memory_vectors_next(here.m, (struct vectors_wanted){1, 1000}, &text, &n, &here.a));
    assert_int_equal(n, 1);
    assert_int_equal(text.row, second.row);
    use("x", 1 << 20); /* that one was never brought back */
    assert_int_equal(embed_all(), 2);
    assert_int_equal(embed_all(), 0);
    struct memory_message third = add_message(c.row, -1, MEMORY_USER, "ccc");
    add_message(c.row, -1, MEMORY_USER, "");
    begin_answer(c.row, third.row, "m");
    assert_int_equal(embed_all(), 2); /* an answer that is being written has none yet */
    place_reopen();
    use("x", 1 << 20);
    assert_int_equal(embed_all(), 1); /* now it is one that was interrupted */
    place_reopen();
    use("x", 1 << 20);
    assert_int_equal(embed_all(), 0); /* empty texts were noted too */
    nearest("c");
    assert_int_equal(near.n, 3);
    assert_int_equal(near.v[0].row, third.row);
    assert_true(fabs(near.v[0].score - 1) < 0.02);
}

static void hits_are_the_owners_and_within_what_is_asked(void **state)
{
    (void)state;
    struct memory_conversation c = add_conversation(), d = add_conversation();
    const int64_t one = add_message(c.row, 0, MEMORY_USER, "aab").row;
    const int64_t two = add_message(c.row, -1, MEMORY_USER, "ab").row;
    const int64_t three = add_message(d.row, 0, MEMORY_USER, "abb").row;
    use("x", 1 << 20);
    embed_all();
    nearest("ab");
    assert_true(found(one) && found(two) && found(three));
    search(&(struct memory_query){.owner = OTHER}, "ab");
    assert_int_equal(near.n, 0);
    search(&(struct memory_query){.owner = OWNER, .conversation = c.row}, "ab");
    assert_true(found(one) && found(two) && !found(three));
    search(&(struct memory_query){.owner = OWNER, .exclude = &two, .n_exclude = 1}, "ab");
    assert_true(found(one) && !found(two) && found(three));
    search(&(struct memory_query){.owner = OWNER, .only = &two, .n_only = 1}, "ab");
    assert_true(near.n == 1 && found(two));
}

static void a_hits_neighbours_are_raised(void **state)
{
    (void)state;
    struct memory_conversation c = add_conversation();
    add_message(c.row, 0, MEMORY_USER, "cccccccccda");
    const int64_t hit = add_message(c.row, -1, MEMORY_USER, "aaaa").row;
    const int64_t after = add_message(c.row, -1, MEMORY_USER, "cccccccccda").row;
    add_message(c.row, -1, MEMORY_USER, "cccccccccda");
    use("x", 1 << 20);
    embed_all();
    search(&(struct memory_query){.owner = OWNER}, "a");
    assert_int_equal(near.v[0].row, hit);
    assert_int_equal(near.v[1].row, after);
}

static void another_models_vectors_are_skipped_and_replaced(void **state)
{
    (void)state;
    struct memory_conversation c = add_conversation();
    add_message(c.row, 0, MEMORY_USER, "aaa");
    add_message(c.row, -1, MEMORY_USER, "bbb");
    use("x", 1 << 20);
    embed_all();
    use("y", 1 << 20);
    nearest("a");
    assert_int_equal(near.n, 0);
    assert_int_equal(embed_all(), 2);
    nearest("a");
    assert_int_equal(near.n, 2);
    use("x", 1 << 20);
    nearest("a");
    assert_int_equal(near.n, 0); /* one model's at a time */
    int64_t n;
    struct db *db;
    place_close();
    ASSERT_OK(db_open(here.path, &db, &here.e));
    ASSERT_OK(db_get_int(db, "SELECT count(*) FROM message_vector", &n, &here.e));
    db_close(db);
    assert_int_equal(n, 2);
    place_open();
}

static int64_t n_stored(void)
{
    int64_t n = -1;
    struct db *db;
    place_close();
    ASSERT_OK(db_open(here.path, &db, &here.e));
    ASSERT_OK(db_get_int(db, "SELECT count(*) FROM message_vector", &n, &here.e));
    db_close(db);
    place_open();
    use("x", 1 << 20);
    return n;
}

static void a_deletion_takes_the_vectors_along(void **state)
{
    (void)state;
    struct memory_conversation c = add_conversation(), d = add_conversation();
    const int64_t kept = add_message(d.row, 0, MEMORY_USER, "aab").row;
    const int64_t other = add_message(c.row, 0, MEMORY_USER, "aa").row;
    struct memory_message one = add_message(c.row, -1, MEMORY_USER, "aaa");
    use("x", 1 << 20);
    embed_all();
    assert_int_equal(n_stored(), 3);
    nearest("a");
    assert_int_equal(near.n, 3);
    ASSERT_OK(memory_message_remove(here.m, OWNER, one.id, NULL, &here.e));
    nearest("a");
    assert_true(near.n == 2 && !found(one.row));
    assert_int_equal(n_stored(), 2);
    nearest("a");
    assert_true(found(other) && found(kept));
    ASSERT_OK(memory_conversation_remove(here.m, OWNER, c.id, NULL, &here.e));
    nearest("a");
    assert_true(near.n == 1 && found(kept));
    assert_int_equal(n_stored(), 1);
    /* What comes back for a message that has gone meanwhile is dropped. */
    float v[DIM] = {1};
    ASSERT_OK(memory_vectors_add(here.m, &(struct vectors_made){one.row, v, 1}, 1, &here.e));
    assert_int_equal(n_stored(), 1);
}

static void parts_of_a_long_message_are_one_hit(void **state)
{
    (void)state;
    struct memory_conversation c = add_conversation();
    const int64_t row = add_message(c.row, 0, MEMORY_USER, "long").row;
    float parts[3 * DIM] = {1, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 1};
    use("x", 1 << 20);
    ASSERT_OK(memory_vectors_add(here.m, &(struct vectors_made){row, parts, 3}, 1, &here.e));
    for (const char *s = "abc"; *s; s++) {
        search(&(struct memory_query){.owner = OWNER}, (char[2]){*s});
        assert_int_equal(near.n, 1);
        assert_true(near.v[0].score > 0.98);
    }
    place_reopen();
    use("x", 1 << 20);
    nearest("c");
    assert_int_equal(near.n, 1);
}

static void memory_holds_the_newest_that_fit(void **state)
{
    (void)state;
    struct memory_conversation c = add_conversation();
    int64_t rows[400];
    struct vectors_state s;
    for (int i = 0; i < 400; i++)
        rows[i] = add_message(c.row, -1, MEMORY_USER, i % 2 ? "aaa" : "aab").row;
    for (int again = 0; again < 2; again++) {
        use("x", 100 * (DIM + 64));
        embed_all();
        memory_vectors_state(here.m, &s);
        assert_true(s.is_cut && s.n_vectors >= 80 && s.n_bytes <= 100 * (DIM + 64));
        nearest("a");
        assert_true(found(rows[399]) && found(rows[340]) && !found(rows[0]));
    }
    use("x", 1);
    embed_all();
    nearest("a");
    assert_int_equal(near.n, 0);
    use("x", 1 << 20);
    nearest("a");
    assert_true(found(rows[399]));
    memory_vectors_state(here.m, &s);
    assert_int_equal(s.n_vectors, 400);
    assert_false(s.is_cut);
}

static const struct memory_hit *hit_of(const struct memory_hits *hits, int64_t row)
{
    for (size_t i = 0; i < hits->n; i++)
        if (hits->v[i].row == row)
            return &hits->v[i];
    return NULL;
}

static void words_and_meaning_are_merged_by_rank(void **state)
{
    (void)state;
    struct memory_conversation c = add_conversation();
    const int64_t word = add_message(c.row, 0, MEMORY_USER, "zebra hgfe").row;
    const int64_t meaning = add_message(c.row, -1, MEMORY_USER, "ddd").row;
    const int64_t both = add_message(c.row, -1, MEMORY_USER, "zebra dd").row;
    for (int i = 0; i < 60; i++) /* what is usual */
        add_message(c.row, -1, MEMORY_USER, "cc");
    struct memory_hits hits;
    float v[DIM];
    struct memory_query q = {.owner = OWNER, .text = "zebra", .n_text = 5, .limit = 10};
    vector_of("d", 1, v);
    ASSERT_OK(memory_recall_both(here.m, &q, v, &hits, &here.a, &here.e));
    assert_null(hit_of(&hits, meaning) && hit_of(&hits, meaning)->why == MEMORY_WHY_MEANING
                    ? &hits
                    : NULL); /* no model: by words */
    use("x", 1 << 20);
    ASSERT_OK(memory_recall_both(here.m, &q, v, &hits, &here.a, &here.e));
    assert_non_null(hit_of(&hits, word)); /* no vectors yet */
    embed_all();
    ASSERT_OK(memory_recall_both(here.m, &q, v, &hits, &here.a, &here.e));
    assert_int_equal(hits.v[0].row, both);
    assert_true((hits.v[0].why & MEMORY_WHY_MEANING) && (hits.v[0].why & MEMORY_WHY_TERMS));
    assert_true(hit_of(&hits, word)->why & MEMORY_WHY_TERMS);
    assert_true(hit_of(&hits, meaning)->why & MEMORY_WHY_MEANING);
    assert_false(hits.is_partial);
    ASSERT_OK(memory_recall_both(here.m, &q, NULL, &hits, &here.a, &here.e));
    assert_false(hits.v[0].why & MEMORY_WHY_MEANING);
    q.limit = 1;
    q.offset = 1;
    ASSERT_OK(memory_recall_both(here.m, &q, v, &hits, &here.a, &here.e));
    assert_int_equal(hits.n, 1);
    assert_true(hits.has_more && hits.v[0].row != both);
}

/* What version 7 wrote is there, and gets vectors. */
static void becomes(const struct memory_conversation *c, const char *asked, const char *wanted)
{
    const struct memory_query q = {
        .owner = OWNER, .conversation = c->row, .text = asked, .n_text = strlen(asked)};
    struct buf text;
    buf_init(&text, SIZE_MAX);
    assert_int_equal(memory_vectors_question(here.m, &q, &text), 0);
    buf_str(&text, "");
    assert_string_equal(text.data, wanted);
    buf_done(&text);
}

static void who_talks_is_i_in_a_question(void **state)
{
    (void)state;
    struct memory_conversation named = add_conversation(), roles = add_conversation(),
                               wide = add_conversation(), other = add_conversation();
    for (int i = 0; i < 4; i++) {
        add_message(named.row, -(i > 0), MEMORY_USER, "Maria: my cat is ill again");
        add_message(named.row, -1, MEMORY_ASSISTANT, "Tom: poor cat");
        add_message(roles.row, -(i > 0), MEMORY_USER, "Thanks, Priya! How is it going?");
        add_message(roles.row, -1, MEMORY_ASSISTANT, "Fine.");
        add_message(wide.row, -(i > 0), MEMORY_USER, "小林：猫又病了");
        add_message(other.row, -(i > 0), MEMORY_USER, "my neighbour Maria has a cat");
    }
    becomes(&named, "What is Maria's cat called?", "What is my cat called?");
    becomes(&named, "When did Maria, and when Tom, call?", "When did I, and when I, call?");
    becomes(&roles, "Where does Priya live?", "Where does I live?");
    becomes(&wide, "小林的猫叫什么？", "我的猫叫什么？");
    becomes(&other, "What has Maria?", "What has Maria?"); /* of whom is spoken, no more */
    becomes(&named, "", "");
}

static void a_speakers_name_is_not_in_a_vector(void **state)
{
    (void)state;
    struct memory_conversation c = add_conversation();
    struct vectors_text text;
    size_t n;
    add_message(c.row, 0, MEMORY_USER, "Maria: the cat is ill");
    use("x", 1 << 20);
    ASSERT_OK(memory_vectors_next(here.m, (struct vectors_wanted){1, 1000}, &text, &n, &here.a));
    assert_int_equal(n, 1);
    assert_string_equal(text.text, "the cat is ill");
}

static void a_history_of_version_7_goes_on(void **state)
{
    (void)state;
    const struct migrate_plan old = {.steps = schema_steps, .n_steps = 7};
    struct db *db = NULL;
    ASSERT_OK(migrate_open(here.path, &old, &db, &here.e));
    ASSERT_OK(db_exec(db,
                      "INSERT INTO conversation (row, id, owner, activity, created_at, updated_at)"
                      " VALUES (1, 'conv_1', '" OWNER "', 1, 1, 1);"
                      "INSERT INTO message (row, id, conversation, role, status, created_at, text)"
                      " VALUES (1, 'msg_1', 1, 2, 0, 1, 'aaa')",
                      &here.e));
    db_close(db);
    place_open();
    use("x", 1 << 20);
    assert_int_equal(embed_all(), 1);
    nearest("a");
    assert_true(near.n == 1 && found(1));
}

static int until;

static void *failing_malloc(size_t n)
{
    return until-- == 0 ? NULL : malloc(n);
}

static void *failing_realloc(void *p, size_t n)
{
    return until-- == 0 ? NULL : realloc(p, n);
}

static void memory_that_runs_out_loses_nothing(void **state)
{
    (void)state;
    struct memory_conversation c = add_conversation();
    const int64_t row = add_message(c.row, 0, MEMORY_USER, "aaa").row;
    float v[DIM] = {1};
    for (int i = 0; i < 30; i++) {
        struct vectors_model model = {.dim = DIM, .bytes_max = 1 << 20};
        memset(model.id, 'a' + i, sizeof model.id);
        until = i;
        sys.malloc = failing_malloc;
        sys.realloc = failing_realloc;
        int rc = memory_vectors_use(here.m, &model, &here.e);
        if (rc == 0)
            rc = memory_vectors_add(here.m, &(struct vectors_made){row, v, 1}, 1, &here.e);
        if (rc == 0)
            rc = memory_vectors_search(here.m, &(struct memory_query){.owner = OWNER}, v, 9,
                                       &near);
        sys_reset();
        assert_true(rc == 0 || rc == ERR_NOMEM);
        ASSERT_OK(memory_vectors_use(here.m, &model, &here.e));
        embed_all();
        nearest("a");
        assert_true(found(row));
    }
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, place_make, place_remove)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(each_message_gets_its_vectors_once_newest_first),
        TEST(hits_are_the_owners_and_within_what_is_asked),
        TEST(a_hits_neighbours_are_raised),
        TEST(another_models_vectors_are_skipped_and_replaced),
        TEST(a_deletion_takes_the_vectors_along),
        TEST(parts_of_a_long_message_are_one_hit),
        TEST(memory_holds_the_newest_that_fit),
        TEST(words_and_meaning_are_merged_by_rank),
        TEST(who_talks_is_i_in_a_question),
        TEST(a_speakers_name_is_not_in_a_vector),
        cmocka_unit_test_setup_teardown(a_history_of_version_7_goes_on, place_make_empty,
                                        place_remove),
        TEST(memory_that_runs_out_loses_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
