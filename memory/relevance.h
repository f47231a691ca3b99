/*
 * Whether a text says anything to a question, from the words that they share: for what is to be
 * quoted. Ranks say which text is best; this says whether the best is any good.
 */
#ifndef HEARTH_MEMORY_RELEVANCE_H
#define HEARTH_MEMORY_RELEVANCE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "memory/memory.h"

#define RELEVANCE_TERMS_MAX 256 /* of a question; what follows isn't looked at */

struct bm25;
struct relevance {
    struct memory *m;
    const struct bm25 *index; /* or NULL; what its hits have needn't be read again */
    uint32_t numbers[RELEVANCE_TERMS_MAX]; /* [n] of the terms in the index */
    uint64_t terms[RELEVANCE_TERMS_MAX]; /* [n], hashes */
    uint8_t weights[RELEVANCE_TERMS_MAX]; /* a word's 2, a pair of CJK characters' 1 */
    bool is_shared[RELEVANCE_TERMS_MAX]; /* scratch */
    uint8_t n_holding[RELEVANCE_TERMS_MAX]; /* hits */
    size_t n;
    unsigned total;
    bool is_asking; /* it is one question */
};
/* The terms of a question, stop words aside. History thread. */
void relevance_init(struct relevance *r, struct memory *m, const char *question, size_t n);
/* Hits are of this index from now on, and their rows places in it, plus 1. */
void relevance_index(struct relevance *r, const struct bm25 *index);
/*
 * What many of the hits hold tells none of them from the others: it counts no more. Who only tells
 * or asks for something new ("Tell me about …", the fifth time) is reminded of nothing then; a
 * question of which nothing would be left keeps all its terms.
 */
struct memory_hit;
struct memory_hits;
void relevance_weigh(struct relevance *r, const struct memory_hits *hits);
/*
 * Tokens that quotes may take in the whole window, for a text: who asks may have all of it, who
 * only tells half, so that a day's talk, reminded of other days, leaves room for what is asked for
 * then.
 */
int relevance_share(const char *text, size_t n, int all);
/* More than a quarter of them, or a few, are in the hit's text. False for a question that has
 * none. */
bool relevance_of(struct relevance *r, const struct memory_hit *hit);

#endif
