/*
 * A clause: the piece of a sentence that one fact is made of, with its plain form, its exact values
 * and what its words tell. Private to memory (facts.c, facts_key.c, extract.c).
 */
#ifndef HEARTH_MEMORY_CLAUSE_H
#define HEARTH_MEMORY_CLAUSE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "memory/facts.h"
#include "memory/sentence.h"
#include "memory/values.h"

#define PLAIN_BYTES (SENTENCE_BYTES_MAX + 8)
#define CLAUSE_VALUES_MAX 16
#define CLAUSE_WORDS_MAX 192

/*
 * Lower case (ASCII), words between single spaces, a space before the first and after the last;
 * punctuation is a space, but for ' - _ . / : @ within a word.
 *
 *     "Hi – I'm  Ann."  →  " hi i'm ann "
 */
struct plain {
    char s[PLAIN_BYTES];
    uint16_t at[PLAIN_BYTES]; /* of each byte: where it was */
    size_t n;
};
/* n <= SENTENCE_BYTES_MAX, valid UTF-8. */
void plain_of(struct plain *p, const char *s, size_t n);
/* The same up to about `max` bytes of it, without what would follow. */
void plain_begin(struct plain *p, const char *s, size_t n, size_t max);

struct clause_word {
    uint16_t at, n; /* of the plain form */
    unsigned flags;
    int value; /* index, -1: part of none */
};

struct clause {
    const char *s; /* borrowed */
    size_t n;
    struct plain plain;
    struct value values[CLAUSE_VALUES_MAX];
    size_t n_values;
    struct clause_word words[CLAUSE_WORDS_MAX];
    size_t n_words;
    unsigned flags; /* of all words */
    unsigned zh;    /* of all Chinese strings */
    bool is_question, is_ask, is_marked, is_first_person, is_supposed, is_cjk, is_update;
};

/* Fills all but is_question of a sentence's mark and is_marked, which the caller knows. */
void clause_read(struct clause *c, const char *s, size_t n);
/* The same up to `flags`: what clause_content asks for. */
void clause_read_words(struct clause *c, const char *s, size_t n);
/* Words that say something and are no values; Chinese: characters. */
size_t clause_content(const struct clause *c);

/* Keys and values of the clause; returns how many of at most FACT_PAIRS_MAX. Values point into
 * c->s. */
int clause_keys(const struct clause *c, struct fact_pair *ret);
/* "Guest: Takumi Arden", 忌口：海鲜: a few words, a colon, and what they stand for; the pair is
 * added where there is room. False: it is nothing of that kind. */
bool clause_label(const struct clause *c, struct fact_pair *v, int *n);
/* Adds a pair with a key of the caller's. */
int pair_add(struct fact_pair *v, int n, const char *key, const char *value, size_t n_value);

#endif
