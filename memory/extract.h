/*
 * A summary without a model: the sentences that say most, word for word, with their speakers.
 *
 *     messages leaving the window ─┐                     rank order      the daemon counts tokens
 *     (oldest first)               ├─> sentences, scores ─────────> v[n] ──────────────> n_take
 *     the summary so far ──────────┘
 *                                                     extract_compose: in the order of time
 *
 * The old summary's sentences compete again, with an advantage, so that a summary of a summary
 * keeps what the first one was made for. A composed summary is lines "User: …" and "Assistant: …";
 * read back as the old summary, its speakers are known again.
 *
 * Score: TextRank (Mihalcea and Tarau 2004) over shared words weighed by TF-IDF, times position and
 * what the sentence holds: numbers, names, dates, negations raise it; greetings, thanks, bare
 * questions lower it. Taken one by one, each lowers those that say the same again (Carbonell and
 * Goldstein 1998). English and Chinese; other languages lose the word lists and nothing else.
 *
 * Pure: no clock, no randomness, no locale; the same input gives the same bytes. Time is linear in
 * the input plus a bounded part (EXTRACT_SENTENCES_MAX candidates), and so are the bytes.
 */
#ifndef HEARTH_MEMORY_EXTRACT_H
#define HEARTH_MEMORY_EXTRACT_H

#include <stddef.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/buf.h"
#include "base/err.h"
#include "memory/said.h"

/* Candidates ranked at most; of a larger input those with the best cheap score (words, values,
 * place), chosen evenly over the messages. */
#define EXTRACT_SENTENCES_MAX 1024
/* A longer sentence is cut at a clause or a word, and ends in "…". */
#define EXTRACT_SENTENCE_BYTES_MAX 320

struct extract_input {
    const struct said *v; /* [n], oldest first; messages of the system are skipped */
    size_t n;
    const char *old; /* the summary so far (n_old bytes), NULL or empty: none */
    size_t n_old;
};

struct extract_sentence {
    const char *text; /* in the arena: valid UTF-8, one line, NUL-terminated (n_text without it) */
    size_t n_text;
    int64_t row;           /* of its message; 0: it was in the old summary */
    enum memory_role role; /* 0: the old summary names no speaker (a person wrote it) */
    uint32_t order;        /* place in time; unique, the old summary's come first */
    size_t n_bytes;        /* what it adds to a composed text, at most */
    double score;          /* > 0, falling along v */
};

struct extract_ranked {
    struct extract_sentence *v; /* [n], best first, in the arena */
    size_t n;
};

/*
 * Ranks at most `max` sentences (0: all that compete). No two have the same words. An input without
 * sentences gives n = 0. ERR_NOMEM: the heap or the arena's ceiling (results take at most
 * EXTRACT_SENTENCES_MAX * (EXTRACT_SENTENCE_BYTES_MAX + 80) bytes of it; the scratch, up to a few
 * MiB, is the heap's and gone on return).
 */
int extract_rank(const struct extract_input *in, size_t max, struct arena *a,
                 struct extract_ranked *ret, struct err *e) MUST_USE;

/* How many of the best, from the first on, compose to at most max_bytes; stops at the first that
 * doesn't fit, so a larger budget keeps a superset. */
size_t extract_fit(const struct extract_ranked *r, size_t max_bytes);

/*
 * Appends the first n_take sentences (clamped to r->n) in the order of time, one line for what one
 * speaker said in one go: "User: … …\nAssistant: …\n". Nothing for n_take = 0. At most the sum of
 * their n_bytes. Errors stick in the buffer.
 */
void extract_compose(const struct extract_ranked *r, size_t n_take, struct buf *b);

#endif
