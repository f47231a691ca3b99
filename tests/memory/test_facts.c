/*
 * The fact list: what is taken from what was said, and what survives other talk. The data files
 * hold sentences with what must survive of them, and other talk that is full of names and numbers;
 * conversations are drawn from both. HEARTH_SEED repeats a run.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/memory/facts_data.h"

#define ROUNDS 15 /* conversations a budget */

/* ---- one sentence ---- */

static void every_fact_sentence_gives_its_values(void **state)
{
    (void)state;
    for (int k = 0; k < 2; k++) {
        size_t all = 0, of = 0;
        for (size_t i = 0; i < facts[k].n; i++) {
            struct arena a;
            arena_init(&a, 1 << 20);
            struct said m = say(7, facts[k].v[i].text);
            struct facts f = extract(&a, &m, 1);
            char *text = composed(&f);
            size_t wanted, has = found(text, facts[k].v[i].wanted, &wanted);
            if (has < wanted)
                print_message("lost: %s (%s)\n", facts[k].v[i].text, facts[k].v[i].wanted);
            all += has;
            of += wanted;
            free(text);
            arena_done(&a);
        }
        print_message("%s: %zu of %zu values\n", k ? "zh" : "en", all, of);
        assert_true(all * 100 >= of * 98);
    }
}

static void other_talk_weighs_less_than_facts(void **state)
{
    (void)state;
    for (int k = 0; k < 2; k++) {
        struct arena a;
        arena_init(&a, 1 << 24);
        int heaviest = 0;
        for (size_t i = 0; i < filler[k].n; i++) {
            struct said m = say(1, filler[k].v[i].text);
            m.role = filler[k].v[i].role;
            struct facts f = extract(&a, &m, 1);
            for (size_t j = 0; j < f.n; j++)
                heaviest = f.v[j].weight > heaviest ? f.v[j].weight : heaviest;
        }
        size_t light = 0;
        for (size_t i = 0; i < facts[k].n; i++) {
            struct said m = say(1, facts[k].v[i].text);
            struct facts f = extract(&a, &m, 1);
            int weight = 0;
            for (size_t j = 0; j < f.n; j++)
                weight = f.v[j].weight > weight ? f.v[j].weight : weight;
            light += weight <= heaviest;
        }
        print_message("%s: filler up to %d, %zu of %zu facts not above\n", k ? "zh" : "en",
                      heaviest, light, facts[k].n);
        assert_true(light * 20 <= facts[k].n);
        arena_done(&a);
    }
}

/* ---- conversations ---- */

/* Eight facts in three turns, then other talk, merged each time 12 messages have left: how many of
 * the facts are in the list at the end. */
static size_t survivors(const struct line *from_facts, size_t n_from, int k, size_t max_bytes,
                        size_t *ret_of)
{
    struct arena a;
    arena_init(&a, 1 << 26);
    struct said v[8 + LINES_MAX];
    size_t chosen[8], n = 0;
    for (size_t i = 0; i < 8; i++) {
        bool is_new;
        do {
            is_new = true;
            chosen[i] = below(n_from);
            for (size_t j = 0; j < i; j++)
                is_new = is_new && chosen[j] != chosen[i];
        } while (!is_new);
    }
    static const size_t turns[] = {0, 3, 6, 8};
    char texts[3][2048];
    for (size_t t = 0; t < 3; t++) {
        size_t len = 0;
        for (size_t i = turns[t]; i < turns[t + 1]; i++)
            len += (size_t)snprintf(texts[t] + len, sizeof texts[t] - len, "%s%s", len ? " " : "",
                                    from_facts[chosen[i]].text);
        v[n] = say((int64_t)n + 1, texts[t]);
        n++;
    }
    size_t shift = below(filler[k].n / 2) * 2;
    for (size_t i = 0; i < filler[k].n; i++) {
        const struct line *l = &filler[k].v[(i + shift) % filler[k].n];
        v[n] = say((int64_t)n + 1, l->text);
        v[n++].role = l->role;
    }
    struct facts list = {NULL, 0};
    for (size_t from = 0, to; from < n; from = to) {
        to = from + 12 < n ? from + 12 : n;
        struct facts newer = extract(&a, v + from, to - from);
        list = merge(&a, &list, &newer, max_bytes);
        /* Through the store, as the daemon does. */
        size_t len;
        char *text = written(&list, &len);
        struct err e = {0};
        assert_int_equal(facts_parse(text, len, &a, &list, &e), 0);
        free(text);
    }
    char *text = composed(&list);
    assert_true(strlen(text) <= max_bytes);
    size_t all = 0;
    *ret_of = 8;
    for (size_t i = 0; i < 8; i++) {
        size_t of, has = found(text, from_facts[chosen[i]].wanted, &of);
        all += has == of;
    }
    free(text);
    arena_done(&a);
    return all;
}

static void eight_facts_survive_sixty_turns_of_other_talk(void **state)
{
    (void)state;
    static const size_t budgets[] = {600, 750, 900};
    for (int k = 0; k < 2; k++) {
        for (size_t b = 0; b < 3; b++) {
            size_t all = 0, of = 0, whole = 0;
            for (int round = 0; round < ROUNDS; round++) {
                size_t wanted, has = survivors(facts[k].v, facts[k].n, k, budgets[b], &wanted);
                all += has;
                of += wanted;
                whole += has == wanted;
            }
            print_message("%s, %zu bytes: %zu of %zu facts, %zu of %d conversations whole\n",
                          k ? "zh" : "en", budgets[b], all, of, whole, ROUNDS);
            assert_true(all * 100 >= of * (b == 0 ? 93 : 96));
        }
    }
}

/* Nine in ten, alone and amid other talk. */
static void check_set(const char *what, const struct line *v, size_t n, int k)
{
    size_t alone = 0, all = 0, of = 0;
    for (size_t i = 0; i < n; i++) {
        struct arena a;
        arena_init(&a, 1 << 20);
        struct said m = say(7, v[i].text);
        struct facts f = extract(&a, &m, 1);
        char *text = composed(&f);
        size_t wanted, has = found(text, v[i].wanted, &wanted);
        if (has < wanted)
            print_message("lost: %s (%s)\n", v[i].text, v[i].wanted);
        alone += has == wanted;
        free(text);
        arena_done(&a);
    }
    for (int round = 0; round < ROUNDS; round++) {
        size_t wanted;
        all += survivors(v, n, k, 750, &wanted);
        of += wanted;
    }
    print_message("%s, %s: %zu of %zu alone, %zu of %zu in conversations\n", k ? "zh" : "en", what,
                  alone, n, all, of);
    assert_true(alone * 10 >= n * 9);
    assert_true(all * 10 >= of * 9);
}

static void sentences_that_no_list_was_made_for_survive_too(void **state)
{
    (void)state;
    for (int k = 0; k < 2; k++) {
        check_set("known", mended[k].v, mended[k].n, k);
        check_set("unseen", fresh[k].v, fresh[k].n, k);
    }
}

static void the_incident_of_the_case_survives_whole(void **state)
{
    (void)state;
    static const char *const said[2] = {
        "Some context: incident INC-4471 hit us on 12 February 2026. The dumps are in the bucket "
        "acme-dumps-eu7, and Priya Raman is on call. The proxy listens on port 18443, we run "
        "version 4.12.3, the damage is about $48,200 and the log is /var/log/edge/relay.err.",
        "背景：事故INC-4471发生在2026年2月12日，转储放在acme-dumps-"
        "eu7桶里，值班的人是王小明，代理的端口是18443，"
        "版本是4.12.3，损失约48200元，日志在/var/log/edge/relay.err。"};
    static const char *const wanted[2] = {"INC-4471|12 February 2026|acme-dumps-eu7|Priya Raman",
                                          "INC-4471|2026年2月12日|acme-dumps-eu7|王小明"};
    static const char *const more[2] = {"18443|4.12.3|$48,200|/var/log/edge/relay.err",
                                        "18443|4.12.3|48200元|/var/log/edge/relay.err"};
    for (int k = 0; k < 2; k++) {
        struct arena a;
        arena_init(&a, 1 << 24);
        struct said m = say(1, said[k]);
        struct facts list = extract(&a, &m, 1);
        for (size_t i = 0; i + 12 < filler[k].n; i += 12) {
            struct said v[12];
            for (size_t j = 0; j < 12; j++) {
                v[j] = say((int64_t)(2 + i + j), filler[k].v[i + j].text);
                v[j].role = filler[k].v[i + j].role;
            }
            struct facts newer = extract(&a, v, 12);
            list = merge(&a, &list, &newer, 700);
        }
        char *text = composed(&list);
        size_t of, has = found(text, wanted[k], &of), of_more,
                   has_more = found(text, more[k], &of_more);
        if (has + has_more < of + of_more)
            print_message("%s", text);
        assert_int_equal(has, of);
        assert_int_equal(has_more, of_more);
        free(text);
        arena_done(&a);
    }
}

static void an_allergy_outlives_a_full_list(void **state)
{
    (void)state;
    for (int k = 0; k < 2; k++) {
        struct arena a;
        arena_init(&a, 1 << 24);
        struct said m =
            say(1, k ? "顺便说一下，我对花生过敏。" : "By the way, I’m allergic to peanuts.");
        struct facts list = extract(&a, &m, 1);
        for (size_t i = 0; i < facts[0].n; i++) {
            struct said other = say((int64_t)i + 2, facts[0].v[i].text);
            struct facts newer = extract(&a, &other, 1);
            list = merge(&a, &list, &newer, 300);
        }
        char *text = composed(&list);
        assert_non_null(strstr(text, k ? "我对花生过敏" : "allergic to peanuts"));
        free(text);
        arena_done(&a);
    }
}

static void a_greeting_makes_no_request_of_what_follows(void **state)
{
    (void)state;
    struct arena a;
    arena_init(&a, 1 << 24);
    const struct said v[] = {say(1, "您好，跟您说说我舅舅的情况：他叫高远，工号是EMP-20417。"),
                             say(2, "他喜欢同事叫他老高。"), say(3, "我花26元买了一盏灯，小赵说很难看。")};
    const struct facts list = extract(&a, v, 3);
    assert_int_equal(list.n, 3);
    assert_non_null(strstr(list.v[0].text, "EMP-20417"));
    assert_true(list.v[0].weight > list.v[2].weight);
    assert_non_null(strstr(list.v[1].text, "叫他老高"));
    arena_done(&a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_greeting_makes_no_request_of_what_follows),
        cmocka_unit_test(every_fact_sentence_gives_its_values),
        cmocka_unit_test(other_talk_weighs_less_than_facts),
        cmocka_unit_test(eight_facts_survive_sixty_turns_of_other_talk),
        cmocka_unit_test(sentences_that_no_list_was_made_for_survive_too),
        cmocka_unit_test(the_incident_of_the_case_survives_whole),
        cmocka_unit_test(an_allergy_outlives_a_full_list),
    };
    return cmocka_run_group_tests(tests, read_data, NULL);
}
