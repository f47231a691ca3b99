/*
 * Under the fact list: tables of words and phrases, exact values, sentences.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/buf.h"
#include "memory/phrases.h"
#include "memory/sentence.h"
#include "memory/values.h"
#include "memory/words.h"

static void the_tables_of_words_are_in_order(void **state)
{
    (void)state;
    for (size_t i = 1; i < n_words_en; i++)
        assert_true(strcmp(words_en[i - 1].text, words_en[i].text) < 0);
    for (size_t i = 0; i < n_words_en; i++) {
        const struct word *w = &words_en[i];
        assert_int_equal(word_flags(w->text, strlen(w->text)), w->flags);
    }
    assert_int_equal(word_flags("I’m", strlen("I’m")), word_flags("i'm", 3));
    assert_int_equal(word_flags("THE", 3), word_flags("the", 3));
    assert_int_equal(word_flags("nosuchword", 10), 0);
    assert_int_equal(word_flags("the\0", 4), 0);
    assert_int_equal(word_flags("", 0), 0);
    assert_int_equal(word_flags("averyveryverylongwordindeed", 27), 0);
}

/* The list's own strings one by one, within other text: the fool is strstr. */
static void chinese_strings_are_found_wherever_they_stand(void **state)
{
    (void)state;
    static const char around[] = "abc这里%s那里";
    for (size_t k = 0; k < n_zh_lists; k++)
        for (const char *const *s = zh_lists[k].strings; *s; s++) {
            char text[128];
            snprintf(text, sizeof text, around, *s);
            unsigned wanted = 0;
            for (size_t l = 0; l < n_zh_lists; l++)
                for (const char *const *x = zh_lists[l].strings; *x; x++)
                    wanted |= strstr(text, *x) ? zh_lists[l].flag : 0;
            assert_true(wanted & zh_lists[k].flag);
            assert_int_equal(zh_flags(text, strlen(text)), wanted);
        }
    assert_int_equal(zh_flags("is it so?", 9), 0);
    assert_int_equal(zh_flags("", 0), 0);
    assert_int_equal(zh_flags("\xE6\x88", 2), 0); /* 我 cut */
}

/* A phrase's text as someone would say it: "^ use * instead " → "use blue heron instead". */
static size_t said_as(const char *phrase, char *ret)
{
    size_t n = 0;
    phrase += phrase[0] == '^';
    phrase += phrase[0] == ' ';
    for (; *phrase; phrase++) {
        const char *piece = *phrase == '*' ? "blue heron" : phrase;
        size_t len = *phrase == '*' ? strlen(piece) : 1;
        memcpy(ret + n, piece, len);
        n += len;
    }
    return n;
}

/* The one found is at least as heavy; one that tells of nothing hides the others. */
static void every_phrase_is_found_in_what_it_was_made_for(void **state)
{
    (void)state;
    static struct clause c;
    for (size_t i = 0; i < n_phrases; i++) {
        char text[256];
        size_t n = said_as(phrases[i].text, text);
        memcpy(text + n, " nuts", 5);
        clause_read(&c, text, n + 5);
        bool is_seen = c.flags || c.is_cjk; /* without a known word no phrase is believed */
        struct spotted s = phrases_spot(&c);
        if (is_seen && phrases[i].weight && (!s.phrase || s.phrase->weight < phrases[i].weight))
            print_message("not found: %s\n", phrases[i].text);
        if (!phrases[i].weight)
            assert_null(s.phrase);
        else if (is_seen)
            assert_true(s.phrase && s.phrase->weight >= phrases[i].weight);
        bool is_english = (unsigned char)text[0] < 0x80;
        if (is_english) /* it is found at words' beginnings only */
            assert_int_equal(phrases[i].text[phrases[i].text[0] == '^'], ' ');
    }
}

static void a_lead_in_is_taken_off_at_the_beginning_only(void **state)
{
    (void)state;
    static struct plain p;
    for (size_t i = 0; i < n_lead_ins; i++) {
        char text[256];
        size_t n = (size_t)snprintf(text, sizeof text, "%smy dog", lead_ins[i].text), end = 0;
        plain_begin(&p, text, n, LEAD_IN_PLAIN);
        const struct lead_in *found = lead_in_find(&p, &end);
        assert_non_null(found);
        /* Perhaps a shorter one, which leaves the rest to the next. */
        assert_int_equal(strncmp(found->text, lead_ins[i].text, strlen(found->text)), 0);
        assert_int_equal(end, strlen(found->text));
        n = (size_t)snprintf(text, sizeof text, "dog %s", lead_ins[i].text);
        plain_begin(&p, text, n, LEAD_IN_PLAIN);
        assert_null(lead_in_find(&p, &end));
    }
}

static void values_are_recognised_whole(void **state)
{
    (void)state;
    static const struct {
        const char *text, *value;
        enum value_kind kind;
    } cases[] = {
        {"see https://a.example/x?y=1, please", "https://a.example/x?y=1", VALUE_URL},
        {"put it in s3://acme-logs.", "s3://acme-logs", VALUE_URL},
        {"mail ann@example.org!", "ann@example.org", VALUE_EMAIL},
        {"edit /etc/hearth/hearth.conf.", "/etc/hearth/hearth.conf", VALUE_PATH},
        {"edit src/main.c now", "src/main.c", VALUE_PATH},
        {"on C:\\temp\\x today", "C:\\temp\\x", VALUE_PATH},
        {"host db.example.com:5432 is", "db.example.com:5432", VALUE_HOST},
        {"ping 10.0.12.7 first", "10.0.12.7", VALUE_HOST},
        {"incident INC-4471.", "INC-4471", VALUE_IDENT},
        {"set max_conns to", "max_conns", VALUE_IDENT},
        {"run 2.3.1 today", "2.3.1", VALUE_VERSION},
        {"run v2.3 today", "v2.3", VALUE_VERSION},
        {"call +49 30 901820 now", "+49 30 901820", VALUE_PHONE},
        {"pay $12,500 now", "$12,500", VALUE_MONEY},
        {"pay 300 euros now", "300 euros", VALUE_MONEY},
        {"on March 14th, 2025 we", "March 14th, 2025", VALUE_DATE},
        {"on 14 March 2025.", "14 March 2025", VALUE_DATE},
        {"on 2025-03-14.", "2025-03-14", VALUE_DATE},
        {"by next Tuesday", "Tuesday", VALUE_DATE},
        {"at 14:30 UTC", "14:30 UTC", VALUE_TIME},
        {"at 3 p.m. today", "3 p.m.", VALUE_TIME},
        {"about 1,200 people", "1,200", VALUE_NUMBER},
        {"with 16GB of it", "16GB", VALUE_NUMBER},
        {"in 1969 it was", "1969", VALUE_YEAR},
        {"say \"blue heron\" twice", "blue heron", VALUE_QUOTE},
        {"with Maria von Schmidt", "Maria", VALUE_NAME},
        {"dann kam Élodie Müller an", "Élodie Müller", VALUE_NAME},
        {"截止2025年3月14日前", "2025年3月14日", VALUE_DATE},
        {"下周三开会", "下周三", VALUE_DATE},
        {"在下午3点半见", "下午3点半", VALUE_TIME},
        {"大概3万元左右", "3万元", VALUE_MONEY},
        {"买了12个苹果", "12个", VALUE_NUMBER},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct value v[4];
        const char *s = cases[i].text;
        size_t n = values_find(s, strlen(s), v, 4);
        bool is_right = n >= 1 && v[0].kind == cases[i].kind && v[0].n == strlen(cases[i].value) &&
                        memcmp(s + v[0].at, cases[i].value, v[0].n) == 0;
        if (!is_right)
            print_message("%s: %zu, kind %d, “%.*s”\n", s, n, n ? (int)v[0].kind : 0,
                          n ? (int)v[0].n : 0, n ? s + v[0].at : "");
        assert_true(is_right);
    }
    static const char *const none[] = {
        "and/or", "state-of-the-art work", "e.g. this", "it is so", "well-known", "km/h", "…", ""};
    for (size_t i = 0; i < sizeof none / sizeof none[0]; i++) {
        struct value v[4];
        if (values_find(none[i], strlen(none[i]), v, 4))
            print_message("%s is no value\n", none[i]);
        assert_int_equal(values_find(none[i], strlen(none[i]), v, 4), 0);
    }
}

static void sentences_end_where_they_end(void **state)
{
    (void)state;
    static const struct {
        const char *text, *sentences; /* joined by | */
    } cases[] = {
        {"One. Two! Three?", "One.|Two!|Three?"},
        {"Dr. Li met Mr. J. Smith at 3.5 km. Then he left.",
         "Dr. Li met Mr. J. Smith at 3.5 km.|Then he left."},
        {"- first\n- second\n3. third", "first|second|third"},
        {"你好。我叫李雷！你呢？", "你好。|我叫李雷！|你呢？"},
        {"a\n```\ncode. more\n```\nb", "a|b"},
        {"a\n```\nopen", "a|```|open"},
        {"He said \"stop.\" Then left.", "He said \"stop.\"|Then left."},
        {"  \n\n ", ""},
        {"bad\xFF"
         "byte",
         "bad|byte"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct buf b;
        struct sentence_walk w;
        buf_init(&b, SIZE_MAX);
        buf_str(&b, "");
        sentence_walk_init(&w, cases[i].text, strlen(cases[i].text));
        for (size_t at, n; sentence_next(&w, &at, &n);) {
            if (b.len)
                buf_char(&b, '|');
            buf_add(&b, cases[i].text + at, n);
        }
        assert_string_equal(b.data, cases[i].sentences);
        buf_done(&b);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_tables_of_words_are_in_order),
        cmocka_unit_test(chinese_strings_are_found_wherever_they_stand),
        cmocka_unit_test(every_phrase_is_found_in_what_it_was_made_for),
        cmocka_unit_test(a_lead_in_is_taken_off_at_the_beginning_only),
        cmocka_unit_test(sentences_end_where_they_end),
        cmocka_unit_test(values_are_recognised_whole),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
