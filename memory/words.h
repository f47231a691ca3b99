/*
 * What single words and phrases tell, as data (words.c): a new word is a line there. Private to
 * memory.
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

/* Flags of a word of any case (ASCII; ’ as '), 0: unknown. */
unsigned word_flags(const char *s, size_t n);
/* The table, for its test: [*ret_n] words in ascending order. */
const char *word_at(size_t i, unsigned *ret_flags);
size_t word_count(void);

/* A list of Chinese strings: NULL at the end, longer before shorter where one begins the other. */
extern const char *const zh_links[];   /* between a thing and its value; never in a key */
extern const char *const zh_copulas[]; /* those of them that state it */
extern const char *const zh_updates[]; /* a new value */
extern const char *const zh_things[];  /* what has exact values */
extern const char *const zh_ends[];    /* left of a key's beginning */
extern const char *const zh_health[];
extern const char *const zh_questions[];
extern const char *const zh_asks[]; /* begin a request */
extern const char *const zh_ifs[];
extern const char *const zh_firsts[];
extern const char *const zh_chat[];
extern const char *const zh_nots[];
/* The first string of the list that occurs in s, or NULL; in text that is all ASCII none does. */
const char *zh_find(const char *const *list, const char *s, size_t n);

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

#endif
