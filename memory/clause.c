/*
 * Reading a clause (clause.h).
 */
#include "memory/clause.h"

#include <string.h>

#include "memory/words.h"

static void plain_char(struct plain *p, char c, size_t at)
{
    p->at[p->n] = (uint16_t)at;
    p->s[p->n++] = c;
}

static bool is_joint(const char *s, size_t n, size_t i)
{
    return s[i] && s[i] != ' ' && strchr("'-_./:@", s[i]) && i > 0 && i + 1 < n &&
           is_wordly((unsigned char)s[i - 1]) && is_wordly((unsigned char)s[i + 1]);
}

void plain_begin(struct plain *p, const char *s, size_t n, size_t max)
{
    p->n = 0;
    plain_char(p, ' ', 0);
    for (size_t i = 0; i < n && p->n < max;) {
        size_t from = i;
        uint32_t cp = sentence_char(s, n, &i);
        bool is_apostrophe = cp == 0x2019 && from > 0 && i < n && s[i] >= 'a' && s[i] <= 'z';
        if (is_apostrophe)
            plain_char(p, '\'', from);
        else if (cp < 0x80 && (is_wordly(cp) || is_joint(s, n, from)))
            plain_char(p, (char)(cp >= 'A' && cp <= 'Z' ? cp + 32 : cp), from);
        else if (cp >= 0x80 && is_wordly(cp))
            for (size_t k = from; k < i; k++)
                plain_char(p, s[k], k);
        else if (p->s[p->n - 1] != ' ')
            plain_char(p, ' ', from);
    }
    if (p->s[p->n - 1] != ' ')
        plain_char(p, ' ', n);
    p->at[p->n] = (uint16_t)n;
    p->s[p->n] = 0;
}

void plain_of(struct plain *p, const char *s, size_t n)
{
    plain_begin(p, s, n, SIZE_MAX);
}

static int value_of(const struct clause *c, size_t from, size_t to)
{
    for (size_t i = 0; i < c->n_values; i++)
        if (from < c->values[i].at + c->values[i].n && to > c->values[i].at)
            return (int)i;
    return -1;
}

static void read_words(struct clause *c)
{
    const struct plain *p = &c->plain;
    c->n_words = 0;
    c->flags = 0;
    for (size_t i = 1; i < p->n && c->n_words < CLAUSE_WORDS_MAX;) {
        const char *space = memchr(p->s + i, ' ', p->n - i);
        size_t n = space ? (size_t)(space - p->s) - i : p->n - i;
        struct clause_word *w = &c->words[c->n_words++];
        *w = (struct clause_word){(uint16_t)i, (uint16_t)n, word_flags(p->s + i, n),
                                  value_of(c, p->at[i], p->at[i + n])};
        c->flags |= w->flags;
        i += n + 1;
    }
}

/* Requests: "explain …", "please write …", "can you …". */
static bool begins_request(const struct clause *c)
{
    size_t i = 0;
    while (i < c->n_words && c->words[i].n == 6 &&
           memcmp(c->plain.s + c->words[i].at, "please", 6) == 0)
        i++;
    if (i >= c->n_words)
        return false;
    if (!(c->words[i].flags & (W_ASK | W_WH)))
        return false;
    bool is_modal = c->words[i].flags & W_WH;
    const struct clause_word *next = i + 1 < c->n_words ? &c->words[i + 1] : NULL;
    bool is_you = next && next->n == 3 && memcmp(c->plain.s + next->at, "you", 3) == 0;
    return !is_modal || is_you;
}

void clause_read_words(struct clause *c, const char *s, size_t n)
{
    c->s = s;
    c->n = n;
    c->n_values = values_find(s, n, c->values, CLAUSE_VALUES_MAX);
    plain_of(&c->plain, s, n);
    read_words(c);
    c->is_cjk = false;
    for (size_t i = 0; i < n && !c->is_cjk;)
        c->is_cjk = is_cjk(sentence_char(s, n, &i));
}

/* Up to the comma: what is supposed is said first, and "…，万一有人问" only tells what for. */
static size_t zh_first(const char *s, size_t n)
{
    const char *comma = memmem(s, n, "，", strlen("，"));
    return comma ? (size_t)(comma - s) : n;
}

void clause_read(struct clause *c, const char *s, size_t n)
{
    clause_read_words(c, s, n);
    c->zh = c->is_cjk ? zh_flags(s, n) : 0;
    c->is_question = c->zh & Z_QUESTION;
    c->is_ask = begins_request(c) || c->zh & Z_ASK;
    c->is_first_person = c->flags & W_FIRST || c->zh & Z_FIRST;
    c->is_supposed = c->flags & W_IF || (c->zh & Z_IF && zh_flags(s, zh_first(s, n)) & Z_IF);
    c->is_update = c->flags & W_UPDATE || c->zh & Z_UPDATE;
    c->is_marked = false;
}

size_t clause_content(const struct clause *c)
{
    size_t count = 0;
    for (size_t i = 0; i < c->n_words; i++) {
        const struct clause_word *w = &c->words[i];
        unsigned empty = W_STOP | W_COPULA | W_LINK | W_CHAT;
        if (w->value >= 0 || (w->flags & empty && !(w->flags & W_NOT)))
            continue;
        count++;
        for (size_t k = w->at; c->is_cjk && k < (size_t)w->at + w->n;)
            count += is_cjk(sentence_char(c->plain.s, c->plain.n, &k));
    }
    /* A run of Chinese with a value in it is one word: its characters beside the value count. */
    if (c->is_cjk && !count && c->n_values) {
        size_t n = 0;
        for (size_t i = 0; i < c->n_values; i++)
            n += c->values[i].n;
        count = c->n > n + 3 ? (c->n - n) / 3 : 0;
    }
    return count;
}
