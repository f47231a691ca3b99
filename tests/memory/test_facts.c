/*
 * The fact list. The data files hold sentences with what must survive of them, and other talk that
 * is full of names and numbers; conversations are drawn from both. HEARTH_SEED repeats a run.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#include "base/buf.h"
#include "base/utf8.h"
#include "memory/facts.h"

#define LINES_MAX 256
#define ROUNDS 15 /* conversations a budget */

static uint64_t random_state;

/* splitmix64 */
static size_t below(size_t n)
{
    uint64_t z = random_state += 0x9E3779B97F4A7C15u;
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9u;
    z = (z ^ z >> 27) * 0x94D049BB133111EBu;
    return (size_t)((z ^ z >> 31) % n);
}

/* ---- data ---- */

struct line {
    char text[512];
    char *wanted; /* within text: "a|b", NULL for filler */
    enum memory_role role;
};

static struct line facts[2][LINES_MAX], filler[2][LINES_MAX];
static size_t n_facts[2], n_filler[2];
/* What the lists of words were made with, and what they weren't. */
static struct line mended[2][LINES_MAX], fresh[2][LINES_MAX];
static size_t n_mended[2], n_fresh[2];

static size_t read_lines(const char *name, struct line *v)
{
    char path[512];
    const char *folder = getenv("HEARTH_TESTS");
    snprintf(path, sizeof path, "%s/memory/%s", folder ? folder : "tests", name);
    FILE *f = fopen(path, "r");
    assert_non_null(f);
    size_t n = 0;
    while (n < LINES_MAX && fgets(v[n].text, sizeof v[n].text, f)) {
        struct line *l = &v[n];
        l->text[strcspn(l->text, "\n")] = 0;
        if (l->text[0] == '#' || !l->text[0])
            continue;
        l->role = MEMORY_USER;
        l->wanted = strstr(l->text, " => ");
        if (l->wanted) {
            *l->wanted = 0;
            l->wanted += 4;
        } else {
            assert_true(l->text[1] == ':' && l->text[2] == ' ');
            l->role = l->text[0] == 'A' ? MEMORY_ASSISTANT : MEMORY_USER;
            memmove(l->text, l->text + 3, strlen(l->text + 3) + 1);
        }
        n++;
    }
    fclose(f);
    return n;
}

static int read_data(void **state)
{
    (void)state;
    static const char *const languages[] = {"en", "zh"};
    for (int k = 0; k < 2; k++) {
        char name[64];
        snprintf(name, sizeof name, "facts_%s.txt", languages[k]);
        n_facts[k] = read_lines(name, facts[k]);
        snprintf(name, sizeof name, "filler_%s.txt", languages[k]);
        n_filler[k] = read_lines(name, filler[k]);
        snprintf(name, sizeof name, "facts_more_%s.txt", languages[k]);
        n_mended[k] = read_lines(name, mended[k]);
        snprintf(name, sizeof name, "facts_fresh_%s.txt", languages[k]);
        n_fresh[k] = read_lines(name, fresh[k]);
    }
    const char *seed = getenv("HEARTH_SEED");
    random_state = seed ? strtoull(seed, NULL, 0) : (uint64_t)time(NULL);
    print_message("HEARTH_SEED=%llu\n", (unsigned long long)random_state);
    return 0;
}

static struct said say(int64_t row, const char *text)
{
    return (struct said){row, MEMORY_USER, text, strlen(text)};
}

static struct facts extract(struct arena *a, const struct said *v, size_t n)
{
    struct facts f;
    struct err e = {0};
    assert_int_equal(facts_extract(v, n, a, &f, &e), 0);
    return f;
}

static struct facts merge(struct arena *a, const struct facts *old, const struct facts *newer,
                          size_t max_bytes)
{
    struct facts f;
    struct err e = {0};
    assert_int_equal(facts_merge(old, newer, max_bytes, a, &f, &e), 0);
    return f;
}

static char *composed(const struct facts *f)
{
    struct buf b;
    buf_init(&b, SIZE_MAX);
    buf_str(&b, "");
    facts_compose(f, &b);
    return buf_take(&b, NULL);
}

static char *written(const struct facts *f, size_t *ret_n)
{
    struct buf b;
    buf_init(&b, SIZE_MAX);
    buf_str(&b, "");
    facts_write(f, &b);
    return buf_take(&b, ret_n);
}

/* How many of "a|b" are in text; *ret_of: how many there are. */
static size_t found(const char *text, const char *wanted, size_t *ret_of)
{
    char copy[512];
    size_t n = 0;
    *ret_of = 0;
    snprintf(copy, sizeof copy, "%s", wanted);
    for (char *at = copy, *next; at; at = next) {
        next = strchr(at, '|');
        if (next)
            *next++ = 0;
        (*ret_of)++;
        n += strstr(text, at) != NULL;
    }
    return n;
}

/* ---- one sentence ---- */

static void every_fact_sentence_gives_its_values(void **state)
{
    (void)state;
    for (int k = 0; k < 2; k++) {
        size_t all = 0, of = 0;
        for (size_t i = 0; i < n_facts[k]; i++) {
            struct arena a;
            arena_init(&a, 1 << 20);
            struct said m = say(7, facts[k][i].text);
            struct facts f = extract(&a, &m, 1);
            char *text = composed(&f);
            size_t wanted, has = found(text, facts[k][i].wanted, &wanted);
            if (has < wanted)
                print_message("lost: %s (%s)\n", facts[k][i].text, facts[k][i].wanted);
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
        for (size_t i = 0; i < n_filler[k]; i++) {
            struct said m = say(1, filler[k][i].text);
            m.role = filler[k][i].role;
            struct facts f = extract(&a, &m, 1);
            for (size_t j = 0; j < f.n; j++)
                heaviest = f.v[j].weight > heaviest ? f.v[j].weight : heaviest;
        }
        size_t light = 0;
        for (size_t i = 0; i < n_facts[k]; i++) {
            struct said m = say(1, facts[k][i].text);
            struct facts f = extract(&a, &m, 1);
            int weight = 0;
            for (size_t j = 0; j < f.n; j++)
                weight = f.v[j].weight > weight ? f.v[j].weight : weight;
            light += weight <= heaviest;
        }
        print_message("%s: filler up to %d, %zu of %zu facts not above\n", k ? "zh" : "en",
                      heaviest, light, n_facts[k]);
        assert_true(light * 20 <= n_facts[k]);
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
    size_t shift = below(n_filler[k] / 2) * 2;
    for (size_t i = 0; i < n_filler[k]; i++) {
        const struct line *l = &filler[k][(i + shift) % n_filler[k]];
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
                size_t wanted, has = survivors(facts[k], n_facts[k], k, budgets[b], &wanted);
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
        check_set("known", mended[k], n_mended[k], k);
        check_set("unseen", fresh[k], n_fresh[k], k);
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
        for (size_t i = 0; i + 12 < n_filler[k]; i += 12) {
            struct said v[12];
            for (size_t j = 0; j < 12; j++) {
                v[j] = say((int64_t)(2 + i + j), filler[k][i + j].text);
                v[j].role = filler[k][i + j].role;
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
        for (size_t i = 0; i < n_facts[0]; i++) {
            struct said other = say((int64_t)i + 2, facts[0][i].text);
            struct facts newer = extract(&a, &other, 1);
            list = merge(&a, &list, &newer, 300);
        }
        char *text = composed(&list);
        assert_non_null(strstr(text, k ? "我对花生过敏" : "allergic to peanuts"));
        free(text);
        arena_done(&a);
    }
}

/* ---- newest values ---- */

static void the_newest_value_wins_and_tells_the_older(void **state)
{
    (void)state;
    static const struct {
        const char *first, *second, *is, *was;
    } cases[] = {
        {"The port is 8080.", "the port is now 9090", "9090", "(earlier: 8080)"},
        {"The database port is 5432.", "We changed the database port to 5433.", "5433",
         "(earlier: 5432)"},
        {"Our deadline is 3 March.", "The deadline is 10 March.", "10 March", "(earlier: 3 March)"},
        {"I live in Berlin.", "I moved to Munich.", "Munich", "(earlier: Berlin)"},
        {"my locker code is blue heron", "my locker code is red fox", "red fox",
         "(earlier: blue heron)"},
        {"Use version 2.3.1.", "The version is now 2.4.0.", "2.4.0", "(earlier: 2.3.1)"},
        {"Hi.", "The port changed from 8080 to 9090.", "9090", "(earlier: 8080)"},
        {"端口是8080。", "端口改成9090了。", "9090", "(earlier: 8080)"},
        {"我住在杭州。", "我搬到苏州了。", "苏州", "(earlier: 杭州)"},
        {"截止日期是3月14日。", "截止日期推迟到3月20日。", "3月20日", "(earlier: 3月14日)"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct arena a;
        arena_init(&a, 1 << 20);
        struct said first = say(1, cases[i].first), second = say(2, cases[i].second);
        struct facts x = extract(&a, &first, 1), y = extract(&a, &second, 1);
        struct facts list = merge(&a, &x, &y, 500);
        char *text = composed(&list);
        if (!strstr(text, cases[i].was) || list.n != 1)
            print_message("%s → %s:\n%s", cases[i].first, cases[i].second, text);
        assert_int_equal(list.n, 1);
        assert_non_null(strstr(text, cases[i].is));
        assert_non_null(strstr(text, cases[i].was));
        free(text);
        arena_done(&a);
    }
}

static void different_things_stay_beside_each_other(void **state)
{
    (void)state;
    static const char *const pairs[][2] = {
        {"The staging port is 8080.", "The production port is 9090."},
        {"Incident INC-4471 is closed.", "Incident INC-5002 is open."},
        {"The meeting is on Friday.", "The meeting is at 15:30."},
        {"I'm allergic to peanuts.", "I'm allergic to shrimp."},
        {"I like jazz.", "I like opera."},
        {"My sister is called Anna.", "My brother is called Tom."},
        {"我对花生过敏。", "我对虾过敏。"},
        {"测试环境的端口是8080。", "数据库端口是9090。"},
    };
    for (size_t i = 0; i < sizeof pairs / sizeof pairs[0]; i++) {
        struct arena a;
        arena_init(&a, 1 << 20);
        struct said v[2] = {say(1, pairs[i][0]), say(2, pairs[i][1])};
        struct facts f = extract(&a, v, 2);
        char *text = composed(&f);
        if (f.n != 2 || strstr(text, "earlier"))
            print_message("%s", text);
        assert_int_equal(f.n, 2);
        assert_null(strstr(text, "earlier"));
        free(text);
        arena_done(&a);
    }
}

static void what_else_a_fact_holds_is_not_lost_with_an_old_value(void **state)
{
    (void)state;
    struct arena a;
    arena_init(&a, 1 << 20);
    struct said v[2] = {say(1, "The gateway port 8080 and its bucket s3://acme-gw are down"),
                        say(2, "the port is now 9090")};
    struct facts f = extract(&a, v, 2);
    char *text = composed(&f);
    assert_non_null(strstr(text, "s3://acme-gw"));
    assert_non_null(strstr(text, "9090"));
    free(text);
    arena_done(&a);
}

static void the_assistant_does_not_overrule_a_person(void **state)
{
    (void)state;
    struct arena a;
    arena_init(&a, 1 << 20);
    struct said v[2] = {say(1, "The port is 8080."), say(2, "The port is 9999.")};
    v[1].role = MEMORY_ASSISTANT;
    struct facts f = extract(&a, v, 2);
    char *text = composed(&f);
    assert_non_null(strstr(text, "8080"));
    assert_null(strstr(text, "earlier"));
    free(text);
    arena_done(&a);
}

/* ---- properties ---- */

static void check_list(const struct facts *f, const struct said *v, size_t n)
{
    for (size_t i = 0; i < f->n; i++) {
        const struct fact *x = &f->v[i];
        assert_true(x->row >= 1 && (size_t)x->row <= n);
        const struct said *m = &v[x->row - 1];
        assert_non_null(memmem(m->text, m->n_text, x->text, x->n_text));
        assert_true(x->n_text > 0 && x->n_text <= FACT_BYTES_MAX);
        assert_true(utf8_valid(x->text, x->n_text, NULL));
        for (size_t k = 0; k < x->n_text; k++)
            assert_true((unsigned char)x->text[k] >= 0x20);
        for (int k = 0; k < x->n_pairs; k++)
            assert_true(x->pairs[k].value >= x->text &&
                        x->pairs[k].value + x->pairs[k].n_value <= x->text + x->n_text);
    }
}

/* Pieces of the data files, cut and mixed with bytes of all kinds. */
static size_t random_text(char *s, size_t max)
{
    size_t n = 0, most = below(max);
    while (n < most) {
        int k = (int)below(2);
        const char *from =
            below(2) ? facts[k][below(n_facts[k])].text : filler[k][below(n_filler[k])].text;
        size_t len = below(4) ? strlen(from) : below(strlen(from) + 1);
        len = len < most - n ? len : most - n;
        memcpy(s + n, from, len);
        n += len;
        for (size_t i = below(3); i > 0 && n < most; i--)
            s[n++] = below(3) ? " \n\t,.\0"[below(6)] : (char)below(256);
    }
    return n;
}

static void facts_are_substrings_of_their_messages(void **state)
{
    (void)state;
    for (int round = 0; round < 200; round++) {
        struct arena a;
        arena_init(&a, 1 << 26);
        static char texts[6][4096];
        struct said v[6];
        for (size_t i = 0; i < 6; i++) {
            size_t n = random_text(texts[i], sizeof texts[i]);
            enum memory_role role = below(2) ? MEMORY_USER : MEMORY_ASSISTANT;
            v[i] = (struct said){(int64_t)i + 1, role, texts[i], n};
        }
        struct facts f = extract(&a, v, 6);
        check_list(&f, v, 6);
        struct facts some = merge(&a, &f, NULL, below(2000));
        check_list(&some, v, 6);
        arena_done(&a);
    }
}

static bool is_in_list(const struct facts *f, const struct fact *x)
{
    for (size_t i = 0; i < f->n; i++)
        if (f->v[i].row == x->row && f->v[i].n_text == x->n_text &&
            memcmp(f->v[i].text, x->text, x->n_text) == 0)
            return true;
    return false;
}

static void merging_again_changes_nothing_and_more_room_keeps_more(void **state)
{
    (void)state;
    for (int round = 0; round < 100; round++) {
        struct arena a;
        arena_init(&a, 1 << 26);
        static char text[16384];
        size_t n = random_text(text, sizeof text), budget = below(1500);
        struct said m = {1, MEMORY_USER, text, n};
        struct facts all = extract(&a, &m, 1);
        struct facts some = merge(&a, &all, NULL, budget), again = merge(&a, &some, NULL, budget),
                     more = merge(&a, &all, NULL, budget + 200);
        struct facts merged = merge(&a, &all, NULL, SIZE_MAX), shorter;
        struct err e;
        assert_int_equal(facts_shorten(&merged, budget, &a, &shorter, &e), 0);
        char *x = composed(&some), *y = composed(&again), *z = composed(&shorter);
        assert_string_equal(x, y);
        assert_string_equal(x, z);
        assert_true(strlen(x) <= budget);
        for (size_t i = 0; i < some.n; i++)
            assert_true(is_in_list(&more, &some.v[i]));
        free(x);
        free(y);
        free(z);
        arena_done(&a);
    }
}

static void what_is_written_is_read_back_as_it_was(void **state)
{
    (void)state;
    for (int round = 0; round < 100; round++) {
        struct arena a;
        arena_init(&a, 1 << 26);
        static char text[8192];
        struct said m = {1, MEMORY_USER, text, random_text(text, sizeof text)};
        struct facts f = extract(&a, &m, 1), g;
        struct err e = {0};
        size_t n, n_again;
        char *once = written(&f, &n);
        assert_int_equal(facts_parse(once, n, &a, &g, &e), 0);
        char *twice = written(&g, &n_again);
        assert_int_equal(n, n_again);
        assert_memory_equal(once, twice, n);
        assert_int_equal(f.n, g.n);
        for (size_t i = 0; i < f.n; i++) {
            assert_int_equal(f.v[i].kind, g.v[i].kind);
            assert_int_equal(f.v[i].weight, g.v[i].weight);
            assert_int_equal(f.v[i].n_pairs, g.v[i].n_pairs);
        }
        free(once);
        free(twice);
        arena_done(&a);
    }
}

static void a_line_of_a_person_is_a_note_that_stays(void **state)
{
    (void)state;
    static const char edited[] =
        "- I moved the server to the attic\n\n"
        "the port is now 7070 {\"by\":\"user\",\"row\":3,\"kind\":\"number\",\"weight\":70,"
        "\"is\":{\"port\":\"9090\"}}\n"
        "braces {\"are\":1} no object of ours {\"x\":2}\n"
        "bad \xFF\x01 bytes\r\n";
    struct arena a;
    arena_init(&a, 1 << 20);
    struct facts f;
    struct err e = {0};
    assert_int_equal(facts_parse(edited, sizeof edited - 1, &a, &f, &e), 0);
    assert_int_equal(f.n, 4);
    assert_string_equal(f.v[0].text, "I moved the server to the attic");
    assert_int_equal(f.v[0].kind, FACT_NOTE);
    assert_int_equal(f.v[0].row, 0);
    assert_string_equal(f.v[1].text, "the port is now 7070");
    assert_int_equal(f.v[1].n_pairs, 0);
    assert_int_equal(f.v[1].row, 3);
    assert_string_equal(f.v[2].text, "braces {\"are\":1} no object of ours {\"x\":2}");
    assert_string_equal(f.v[3].text, "bad \xEF\xBF\xBD  bytes");
    struct facts few = merge(&a, &f, NULL, 45);
    assert_int_equal(few.n, 1);
    assert_string_equal(few.v[0].text, "I moved the server to the attic");
    arena_done(&a);
}

static void nothing_gives_nothing(void **state)
{
    (void)state;
    struct arena a;
    arena_init(&a, 1 << 20);
    struct said v[3] = {
        say(1, ""), {2, MEMORY_SYSTEM, "The port is 8080.", 17}, say(3, "Hi! How are you?")};
    struct facts f = extract(&a, v, 3);
    assert_int_equal(f.n, 0);
    char *text = composed(&f);
    assert_string_equal(text, "");
    free(text);
    f = merge(&a, NULL, NULL, 100);
    assert_int_equal(f.n, 0);
    arena_done(&a);
}

static void code_in_fences_is_not_said(void **state)
{
    (void)state;
    struct arena a;
    arena_init(&a, 1 << 20);
    struct said m = say(1, "Look:\n```\nport = 8080\nid = INC-1\n```\nThe port is 9090.");
    struct facts f = extract(&a, &m, 1);
    assert_int_equal(f.n, 1);
    assert_string_equal(f.v[0].text, "The port is 9090");
    arena_done(&a);
}

static void large_inputs_give_a_bounded_list(void **state)
{
    (void)state;
    size_t n = (size_t)1 << 20;
    char *text = malloc(n);
    assert_non_null(text);
    struct arena a;
    arena_init(&a, 1 << 24);
    static const char *const pieces[] = {
        "一",      "The port is 8080 and ", "((((", "1-", "a.b", "\"", "https://", "```\n", "A B ",
        "\xF0\x9F"};
    for (size_t k = 0; k < sizeof pieces / sizeof pieces[0]; k++) {
        size_t len = strlen(pieces[k]);
        for (size_t i = 0; i < n; i++)
            text[i] = pieces[k][i % len];
        struct said m = {1, MEMORY_USER, text, n};
        struct facts f = extract(&a, &m, 1);
        assert_true(f.n <= FACTS_MAX);
    }
    /* As many messages. */
    size_t n_said = 3000;
    struct said *v = calloc(n_said, sizeof *v);
    assert_non_null(v);
    for (size_t i = 0; i < n_said; i++)
        v[i] = say((int64_t)i + 1, facts[i & 1][i / 2 % n_facts[i & 1]].text);
    struct facts f = extract(&a, v, n_said);
    assert_true(f.n > 0 && f.n <= FACTS_MAX);
    free(v);
    free(text);
    arena_done(&a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_fact_sentence_gives_its_values),
        cmocka_unit_test(other_talk_weighs_less_than_facts),
        cmocka_unit_test(eight_facts_survive_sixty_turns_of_other_talk),
        cmocka_unit_test(sentences_that_no_list_was_made_for_survive_too),
        cmocka_unit_test(the_incident_of_the_case_survives_whole),
        cmocka_unit_test(an_allergy_outlives_a_full_list),
        cmocka_unit_test(the_newest_value_wins_and_tells_the_older),
        cmocka_unit_test(different_things_stay_beside_each_other),
        cmocka_unit_test(what_else_a_fact_holds_is_not_lost_with_an_old_value),
        cmocka_unit_test(the_assistant_does_not_overrule_a_person),
        cmocka_unit_test(facts_are_substrings_of_their_messages),
        cmocka_unit_test(merging_again_changes_nothing_and_more_room_keeps_more),
        cmocka_unit_test(what_is_written_is_read_back_as_it_was),
        cmocka_unit_test(a_line_of_a_person_is_a_note_that_stays),
        cmocka_unit_test(nothing_gives_nothing),
        cmocka_unit_test(code_in_fences_is_not_said),
        cmocka_unit_test(large_inputs_give_a_bounded_list),
    };
    return cmocka_run_group_tests(tests, read_data, NULL);
}
