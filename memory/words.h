/*
 * What single words and phrases tell, as data (words.c, words_en.c): a new word is a line there.
 * Private to memory.
 */
#ifndef HEARTH_MEMORY_WORDS_H
#define HEARTH_MEMORY_WORDS_H

#include <stdbool.h>
#include <stddef.h>

#include "memory/facts.h"

enum {
    W_STOP = 1 << 0,   /* says nothing by itself; never part of a key */
    W_COPULA = 1 << 1, /* between a thing and its value: is, equals, called */
    W_LINK = 1 << 2,   /* may stand there too: to, at, about */
    W_UPDATE = 1 << 3, /* a new value: now, changed, instead */
    W_THING = 1 << 4,  /* what has exact values: port, bucket, deadline */
    W_NOT = 1 << 5,    /* negations */
    W_HEALTH = 1 << 6, /* what must not be forgotten: allergic, vegan */
    W_ASK = 1 << 7,    /* begins a request: explain, write */
    W_WH = 1 << 8,     /* begins a question */
    W_CHAT = 1 << 9,   /* greetings and thanks */
    W_FIRST = 1 << 10, /* I, my, we, our */
    W_MONTH = 1 << 11,
    W_DAY = 1 << 12,
    W_MONEY = 1 << 13, /* after a number: dollars, EUR */
    W_IF = 1 << 14,    /* supposition */
    W_ABBR = 1 << 15,  /* its full stop ends no sentence */
    W_OF = 1 << 16,    /* joins two parts of a key: of, for */
    W_SHAPE = 1 << 17, /* "the", "a": begins a noun phrase */
    W_TITLE = 1 << 18, /* before a name: Mr, Dr */
};

struct word {
    const char *text; /* lower case */
    unsigned flags;
};
extern const struct word words_en[]; /* ascending by bytes */
extern const size_t n_words_en;

/* Flags of a word of any case (ASCII; ’ as '), 0: unknown. */
unsigned word_flags(const char *s, size_t n);

/* What Chinese strings tell. */
enum {
    Z_UPDATE = 1 << 0, /* a new value */
    Z_THING = 1 << 1,  /* what has exact values */
    Z_HEALTH = 1 << 2,
    Z_QUESTION = 1 << 3,
    Z_ASK = 1 << 4, /* begin a request */
    Z_IF = 1 << 5,
    Z_FIRST = 1 << 6,
    Z_CHAT = 1 << 7,
    Z_NOT = 1 << 8,
    Z_COPULA = 1 << 9, /* state a value */
};
struct zh_list {
    unsigned flag;
    const char *const *strings; /* NULL at the end */
};
extern const struct zh_list zh_lists[];
extern const size_t n_zh_lists;

/* Flags of all strings that occur in s; 0 in text that is all ASCII. One pass. */
unsigned zh_flags(const char *s, size_t n);

/* NULL at the end; the first that fits is taken off, so longer before shorter. */
extern const char *const zh_links[]; /* between a thing and its value; never in a key */
extern const char *const zh_ends[];  /* left of a key's beginning */

/* Phrases before what is meant, taken off: "please remember that", 对了. In the plain form. */
struct lead_in {
    const char *text;
    bool is_mark; /* what follows is meant to be remembered */
};
extern const struct lead_in lead_ins[];
extern const size_t n_lead_ins;

/*
 * Phrases that make a clause a fact. `text` is sought in the clause's plain form (lower case, words
 * between single spaces, a space before the first and after the last); '^' at its start: only at
 * the beginning; '*': anything. The value is what '*' stands for, or what follows. A clause of a
 * person only.
 */
struct phrase {
    const char *text;
    enum fact_kind kind;
    int weight;
    const char *key; /* "": the clause has no key, values of it never replace each other */
};
extern const struct phrase phrases[];
extern const size_t n_phrases;

/* In the plain form too, NULL at the end: what happens again and again; what is only thought; what
 * is of a day and gone tomorrow. */
extern const char *const habits[], *const thoughts[], *const passing[];

#endif
