/*
 * Ranking in memory alone: which of some texts another one is about. For a client that sends its
 * whole conversation with each request; what is stored is searched by search.h.
 *
 *     bm25_read    text → its terms (segment.h), once for each text
 *     bm25_add     its terms → the index: from now on it can be found
 *     bm25_ask     the best of what was added, for the terms of one text
 *
 * Score: BM25 with the weights of search.h, over the texts that were added by then; of a hit's
 * score the texts beside it get a share, and a text that only asks gets less. Stop words don't
 * count, unless there is nothing else. Each distinct text once, the newest of them, and never one
 * that equals the asking one.
 *
 * Pure: no clock, no randomness; the same calls in the same order give the same hits. Source:
 * Robertson and Zaragoza, "The Probabilistic Relevance Framework: BM25 and Beyond", 2009.
 */
#ifndef HEARTH_MEMORY_BM25_H
#define HEARTH_MEMORY_BM25_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

/* Of a longer text its beginning. */
#define BM25_TEXT_MAX ((size_t)8 << 10)
#define BM25_HITS_MAX 64

struct bm25;

/* For texts 0 … n_texts - 1. NULL: out of memory. */
struct bm25 *bm25_new(size_t n_texts);
void bm25_free(struct bm25 *b); /* NULL is fine */

/* Notes the terms of text i; the text isn't needed afterwards. A second time does nothing.
 * ERR_NOMEM. */
int bm25_read(struct bm25 *b, size_t i, const char *text, size_t n, struct err *e) MUST_USE;
/* Text i, which was read, can be found. A second time does nothing. ERR_NOMEM. */
int bm25_add(struct bm25 *b, size_t i, struct err *e) MUST_USE;

/* For a longer list: texts 0 … n_texts - 1, n_texts not less than it was. ERR_NOMEM. */
int bm25_resize(struct bm25 *b, size_t n_texts, struct err *e) MUST_USE;
/* bm25_rewind: the texts from `from` on are as if nothing had been read since the mark; none of
 * them may have been added. */
size_t bm25_mark(const struct bm25 *b);
void bm25_rewind(struct bm25 *b, size_t mark, size_t from);

/* Numbers of terms, given by their hashes (query_hash, 0): of use until another text is read. */
#define BM25_UNKNOWN UINT32_MAX
void bm25_find(const struct bm25 *b, const uint64_t *hashes, size_t n, uint32_t *ret);
/* Which of these terms text i, which was read, has in its first BM25_TEXT_MAX bytes: true in ret,
 * which is otherwise left. */
void bm25_shared(const struct bm25 *b, size_t i, const uint32_t *terms, size_t n, bool *ret);
/* search_only_asks of it, which was read. */
bool bm25_only_asks(const struct bm25 *b, size_t i);

struct bm25_hit {
    size_t text;
    double score;   /* > 0 */
    bool has_terms; /* of its own; false: it stands beside one that has */
};
/*
 * What fits text i, which was read: at most `max` (<= BM25_HITS_MAX) hits, best first, ties by the
 * newer text. skip[n_texts] (may be NULL): those that are no hits. Returns how many.
 */
size_t bm25_ask(struct bm25 *b, size_t i, const bool *skip, struct bm25_hit *ret, size_t max);

#endif
