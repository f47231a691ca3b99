/*
 * What a value is the value of (facts.h): "the database port is now 5432" → "database port".
 *
 * English: from the value to the left over what states it (is, now, to, at) to the words of the
 * thing, joined by of and for, up to an article, a verb or the clause's beginning; when there is
 * none, to the right ("9090 is the new port"). Chinese: the same by strings, to 的, 把, 我们 or what
 * is no Chinese. A key counts when something states it or its word is one of things with exact
 * values; else "met him at 14:30" would replace "met her at 9:00".
 */
#include <stdio.h>
#include <string.h>

#include "memory/clause.h"
#include "memory/facts_list.h"
#include "memory/words.h"

#define KEY_WORDS 6

int pair_add(struct fact_pair *v, int n, const char *key, const char *value, size_t n_value)
{
    if (n == FACT_PAIRS_MAX || !key[0] || !n_value)
        return n;
    for (int i = 0; i < n; i++)
        if (strcmp(v[i].key, key) == 0)
            return n;
    v[n] = (struct fact_pair){.value = value, .n_value = n_value};
    snprintf(v[n].key, sizeof v[n].key, "%s", key);
    return n + 1;
}

/* Words [from, to) but for updates' ("new port" is the port), at most KEY_WORDS, the last ones. */
static void join_words(const struct clause *c, size_t from, size_t to, char key[FACT_KEY_BYTES])
{
    size_t len = 0;
    if (to - from > KEY_WORDS)
        from = to - KEY_WORDS;
    for (size_t i = from; i < to; i++) {
        const struct clause_word *w = &c->words[i];
        bool is_filler =
            w->flags & (W_UPDATE | W_SHAPE) || (w->flags & W_STOP && !(w->flags & W_OF));
        if (is_filler || w->n + len + 2 > FACT_KEY_BYTES)
            continue;
        if (len)
            key[len++] = ' ';
        memcpy(key + len, c->plain.s + w->at, w->n);
        len += w->n;
    }
    key[len] = 0;
}

static bool is_thing_word(const struct clause_word *w)
{
    return w->value < 0 && !(w->flags & (W_STOP | W_COPULA | W_LINK | W_UPDATE | W_NOT | W_FIRST));
}

/* The first of the words of a thing that ends before `to`. */
static size_t thing_begin(const struct clause *c, size_t to)
{
    size_t from = to;
    while (from > 0) {
        const struct clause_word *w = &c->words[from - 1];
        bool is_joint = w->flags & W_OF && from < to && from >= 2;
        bool is_inner_article =
            w->flags & W_SHAPE && from >= 2 && from < to && c->words[from - 2].flags & W_OF;
        if (w->value >= 0 || (!is_thing_word(w) && !(w->flags & W_THING) && !is_joint &&
                              !is_inner_article && !(w->flags & W_UPDATE && from < to)))
            break;
        from--;
    }
    while (from < to && c->words[from].flags & (W_OF | W_SHAPE) &&
           !(c->words[from].flags & W_THING))
        from++;
    return from;
}

static bool has_thing(const struct clause *c, size_t from, size_t to)
{
    for (size_t i = from; i < to; i++)
        if (c->words[i].flags & W_THING)
            return true;
    return false;
}

/* The noun phrase that begins the clause, if it is of a thing. */
static void thing_first(const struct clause *c, size_t *from, size_t *to)
{
    size_t end = 1;
    while (end < *from && is_thing_word(&c->words[end]))
        end++;
    if (end > 1 && has_thing(c, 1, end)) {
        *from = 1;
        *to = end;
    }
}

/* "was": what happened, no attribute. */
static bool is_past(const struct clause *c, size_t i)
{
    const char *s = c->plain.s + c->words[i].at;
    return (c->words[i].n == 3 && memcmp(s, "was", 3) == 0) ||
           (c->words[i].n == 4 && memcmp(s, "were", 4) == 0);
}

/* Left of the word `first`; false: nothing there that is a key. */
static bool key_left(const struct clause *c, size_t first, char key[FACT_KEY_BYTES])
{
    size_t to = first;
    bool is_stated = false, is_to = false;
    while (to > 0) {
        const struct clause_word *w = &c->words[to - 1];
        bool is_link = w->flags & (W_COPULA | W_LINK | W_UPDATE | W_SHAPE | W_NOT);
        if (w->value >= 0 || !is_link || (w->flags & W_THING && !(w->flags & W_COPULA)))
            break;
        is_stated = is_stated || w->flags & W_COPULA;
        is_to = is_to || (w->n == 2 && memcmp(c->plain.s + w->at, "to", 2) == 0);
        to--;
    }
    size_t from = thing_begin(c, to);
    if (from == to && is_stated && to > 1 && c->words[0].flags & W_SHAPE)
        thing_first(c, &from, &to); /* "the meeting with Dr. Okafor is" */
    if (from == to)
        return false;
    bool is_thing = c->words[to - 1].flags & W_THING;
    if (!is_stated && !(is_to && c->is_update) && !is_thing)
        return false;
    if (is_stated && !has_thing(c, from, to) && c->words[0].flags & W_SHAPE)
        thing_first(c, &from, &to); /* "the incident we're working on is" */
    if (!is_stated && is_thing && to - from > 2)
        from = to - 2; /* without a verb the words before are anything's */
    if (!is_stated && is_thing && to - from == 2 && from == 0)
        from = to - 1;
    join_words(c, from, to, key);
    return key[0];
}

/* "9090 is the new port", "use 9090 for the port". */
static bool key_right(const struct clause *c, size_t last, char key[FACT_KEY_BYTES])
{
    size_t from = last + 1, to;
    if (from >= c->n_words || !(c->words[from].flags & (W_COPULA | W_OF)) ||
        c->words[from].value >= 0)
        return false;
    while (from < c->n_words && c->words[from].value < 0 &&
           c->words[from].flags & (W_COPULA | W_OF | W_SHAPE | W_UPDATE) &&
           !(c->words[from].flags & W_THING))
        from++;
    for (to = from; to < c->n_words && is_thing_word(&c->words[to]); to++)
        ;
    bool is_thing = false;
    for (size_t i = from; i < to; i++)
        is_thing = is_thing || c->words[i].flags & W_THING;
    if (!is_thing)
        return false;
    join_words(c, from, to, key);
    return key[0];
}

static bool strip_end(const char *s, size_t *n, const char *const *list, const char **ret_which)
{
    for (; *list; list++) {
        size_t len = strlen(*list);
        if (*n >= len && s[*n - 1] == (*list)[len - 1] &&
            memcmp(s + *n - len, *list, len) == 0) {
            *n -= len;
            *ret_which = *list;
            return true;
        }
    }
    return false;
}

static bool states(const char *link)
{
    return zh_flags(link, strlen(link)) & Z_COPULA;
}

static size_t end_of_value_before(const struct clause *c, size_t n)
{
    size_t end = 0;
    for (size_t i = 0; i < c->n_values; i++) {
        size_t to = c->values[i].at + c->values[i].n;
        end = to <= n && to > end ? to : end;
    }
    return end;
}

/* s[0, n) ends where the value begins. */
static bool key_chinese(const struct clause *c, size_t n, char key[FACT_KEY_BYTES])
{
    const char *which;
    bool is_stated = false;
    while (strip_end(c->s, &n, zh_links, &which))
        is_stated = is_stated || states(which);
    size_t from = n;
    while (from > end_of_value_before(c, n) && n - from < 24) {
        size_t at = from - 1;
        while (at > 0 && ((unsigned char)c->s[at] & 0xC0) == 0x80)
            at--;
        size_t next = at, len = from;
        uint32_t cp = sentence_char(c->s, c->n, &next);
        bool is_ascii_word = cp < 0x80 && is_wordly(cp);
        if ((!is_cjk(cp) && !is_ascii_word) || strip_end(c->s, &len, zh_ends, &which))
            break;
        from = at;
    }
    unsigned flags = zh_flags(c->s + from, n - from);
    if (n - from < 4 || flags & Z_NOT || n - from >= FACT_KEY_BYTES ||
        (!is_stated && !(flags & Z_THING)))
        return false;
    memcpy(key, c->s + from, n - from);
    key[n - from] = 0;
    return true;
}

#define ZH_CHAR_BYTES 3
#define ZH_THING_CHARS 4

/* Whether s begins with so many characters of three bytes, as Chinese has. */
static bool are_han(const char *s, size_t chars)
{
    for (size_t i = 0; i < chars; i++)
        if (((unsigned char)s[i * ZH_CHAR_BYTES] & 0xF0) != 0xE0)
            return false;
    return true;
}

/* 12站台, B24登机口: the value's thing stands right behind it, at s + n. */
static bool key_chinese_right(const struct clause *c, size_t n, char key[FACT_KEY_BYTES])
{
    const char *s = c->s + n;
    for (size_t chars = 2; chars <= ZH_THING_CHARS; chars++) {
        const size_t len = chars * ZH_CHAR_BYTES;
        if (c->n - n < len || !are_han(s, chars))
            return false;
        if (!(zh_flags(s, len) & Z_THING))
            continue;
        if (zh_flags(s + ZH_CHAR_BYTES, len - ZH_CHAR_BYTES) & Z_THING) /* 个项目 */
            return false;
        memcpy(key, s, len);
        key[len] = 0;
        return true;
    }
    return false;
}

/* The first and the last word of a value; false: it has none of its own (within Chinese). */
static bool value_words(const struct clause *c, int value, size_t *ret_first, size_t *ret_last)
{
    bool is_there = false;
    for (size_t i = 0; i < c->n_words; i++) {
        if (c->words[i].value != value)
            continue;
        if (!is_there)
            *ret_first = i;
        *ret_last = i;
        is_there = true;
    }
    return is_there;
}

/* "from 8080 to 9090": the second takes the key over, the first is what was before. */
static bool replaces(const struct clause *c, int value, size_t first, struct fact_pair *v, int n)
{
    if (n == 0 || first < 2 || value == 0 || c->words[first - 1].value >= 0)
        return false;
    const struct clause_word *to = &c->words[first - 1];
    const struct value *before = &c->values[value - 1], *now = &c->values[value];
    struct fact_pair *pair = &v[n - 1];
    bool is_to = to->n == 2 && memcmp(c->plain.s + to->at, "to", 2) == 0;
    if (!is_to || c->words[first - 2].value != value - 1 || pair->value != c->s + before->at)
        return false;
    if (before->n >= sizeof pair->was)
        return false;
    memcpy(pair->was, pair->value, before->n);
    pair->was[before->n] = 0;
    pair->value = c->s + now->at;
    pair->n_value = now->n;
    return true;
}

/* 项目的负责人是王芳: a thing, what states it, and the rest. */
static int key_of_chinese_tail(const struct clause *c, struct fact_pair *v, int n)
{
    static const char *const states[] = {"改成", "改为", "换成",   "换到了", "换到", "改到了",
                                         "改到", "是",   "叫",     "为",     "：",   NULL};
    for (size_t i = 0; states[i]; i++) {
        const char *at = memmem(c->s, c->n, states[i], strlen(states[i]));
        char key[FACT_KEY_BYTES];
        size_t before = at ? (size_t)(at - c->s) : 0, after = before + (at ? strlen(states[i]) : 0);
        if (!at || after >= c->n || c->n - after >= FACT_WAS_BYTES || !key_chinese(c, after, key) ||
            !(zh_flags(key, strlen(key)) & Z_THING))
            continue;
        return pair_add(v, n, key, c->s + after, c->n - after);
    }
    return n;
}

/* "my locker code is blue heron": no exact value, but someone's thing and what it is. */
static int key_of_tail(const struct clause *c, struct fact_pair *v, int n)
{
    if (c->is_cjk)
        return key_of_chinese_tail(c, v, n);
    if (!c->n_words || !(c->words[0].flags & W_SHAPE))
        return n;
    bool is_own = c->words[0].flags & W_FIRST;
    size_t i = 1;
    while (i < c->n_words && !(c->words[i].flags & W_COPULA))
        i++;
    size_t first = i + 1;
    while (first < c->n_words && c->words[first].flags & (W_SHAPE | W_LINK | W_UPDATE | W_COPULA))
        first++;
    if (i > 4 || i < 2 || first >= c->n_words || c->n_words - first > 6 || is_past(c, i))
        return n;
    char key[FACT_KEY_BYTES];
    join_words(c, 1, i, key);
    if (!is_own && !key_is_thing(key))
        return n;
    size_t from = c->plain.at[c->words[first].at];
    const struct clause_word *last = &c->words[c->n_words - 1];
    size_t to = c->plain.at[last->at + last->n];
    return to > from && to - from < FACT_WAS_BYTES ? pair_add(v, n, key, c->s + from, to - from)
                                                   : n;
}

#define LABEL_WORDS_MAX 3
#define LABEL_BYTES_MAX 36

bool clause_label(const struct clause *c, struct fact_pair *v, int *n)
{
    static const unsigned no_label = W_COPULA | W_ASK | W_WH | W_FIRST | W_IF | W_NOT | W_CHAT;
    const char *ascii = memchr(c->s, ':', c->n), *wide = memmem(c->s, c->n, "：", 3);
    const char *colon = ascii && (!wide || ascii < wide) ? ascii : wide;
    const size_t at = colon ? (size_t)(colon - c->s) : 0, from = at + (colon == ascii ? 1 : 3);
    size_t n_words = 0;
    char key[FACT_KEY_BYTES];
    const bool is_joined = from < c->n && colon == ascii && c->s[from] != ' '; /* 10:30, a:b */
    if (at == 0 || at > LABEL_BYTES_MAX || from >= c->n || is_joined)
        return false;
    for (; n_words < c->n_words && c->plain.at[c->words[n_words].at] < at; n_words++)
        if (c->words[n_words].flags & no_label && !(c->words[n_words].flags & W_THING))
            return false;
    const unsigned zh = zh_flags(c->s, at);
    if (n_words == 0 || n_words > LABEL_WORDS_MAX || zh & (Z_ASK | Z_QUESTION | Z_IF | Z_FIRST))
        return false;
    join_words(c, 0, n_words, key);
    size_t begin = from;
    while (begin < c->n && c->s[begin] == ' ')
        begin++;
    if (c->n - begin < FACT_WAS_BYTES)
        *n = pair_add(v, *n, key, c->s + begin, c->n - begin);
    return c->n > begin;
}

int clause_keys(const struct clause *c, struct fact_pair *ret)
{
    int n = 0;
    for (size_t i = 0; i < c->n_values; i++) {
        const struct value *v = &c->values[i];
        char key[FACT_KEY_BYTES];
        size_t first = 0, last = 0;
        bool has_words = value_words(c, (int)i, &first, &last);
        if (has_words && replaces(c, (int)i, first, ret, n))
            continue;
        bool is_found = c->is_cjk
                            ? key_chinese(c, v->at, key) ||
                                  key_chinese_right(c, v->at + v->n, key)
                            : has_words && (key_left(c, first, key) || key_right(c, last, key));
        if (!is_found)
            continue;
        if (v->kind == VALUE_TIME && strlen(key) + 6 < sizeof key)
            memcpy(key + strlen(key), " time", 6);
        n = pair_add(ret, n, key, c->s + v->at, v->n);
    }
    return n ? n : key_of_tail(c, ret, 0);
}
