/*
 * Search: which of the stored messages a text is about. Full-text index (FTS5) over the terms of
 * segment.h, ranked in C; for recall into a window and for `hearth search`.
 *
 *     query ─► terms, less stop words and what > 5 % of the rows hold ─► rows of each term
 *           ─► sums of inverse document frequencies ─► the best SEARCH_POOL
 *           ─► length, speaker, neighbours, recency ─► duplicates once ─► hits
 *
 * A query's text is never syntax: it is segmented as any text, and only terms reach SQLite, quoted.
 * The owner (and the conversation) is a term of its own inside the match.
 *
 * The index is written by the store in the transactions that write messages. Messages from before
 * the index, and all of them after the segmenter changed or the index was found damaged, are
 * indexed in pieces by memory_idle, newest first; until then results say is_partial. A damaged
 * index never fails a message, a turn or a search: it is skipped, told, and rebuilt.
 *
 * History thread.
 */
#ifndef HEARTH_MEMORY_SEARCH_H
#define HEARTH_MEMORY_SEARCH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/buf.h"
#include "base/err.h"
#include "memory/memory.h"

#define SEARCH_LIMIT_MAX 100
#define SEARCH_POOL 128       /* candidates that are looked at closely */
#define SEARCH_TERMS_MAX 48   /* of a query; a longer one is asked by its rarest */
#define SEARCH_SPEAKER_BYTES 48

/* Why a message is a hit; several may be set. */
enum memory_why {
    MEMORY_WHY_TERMS = 1,     /* its own words */
    MEMORY_WHY_NEIGHBOUR = 2, /* the message before or after it has the words */
    MEMORY_WHY_SPEAKER = 4,   /* the query names who said it */
    MEMORY_WHY_MEANING = 8,   /* vectors (memory_recall_merge) */
};

/* How hits are ranked. The defaults were measured with tests/bench/recall, which also turns each
 * off in turn. */
struct memory_weights {
    double k1, b;      /* BM25 */
    double single;     /* a CJK character against a pair of them */
    double before;     /* of a hit's score, what the message before it gets */
    double after;      /* … and the one after it */
    double speaker;    /* more for messages by whom the query names */
    double time;       /* more for messages that tell a time, when the query asks for one */
    double question;   /* less for messages that only ask */
    double recent;     /* more for the newest, halving every 30 days */
    /* Vectors (memory/vectors.h): what their list counts beside that of the words; how many
     * deviations above the mean a message's cosine must be to count at all and to give its
     * neighbours a share, and how many to be a hit by meaning for sure. */
    double meaning, meaning_floor, meaning_sure;
    double meaning_before, meaning_after;
};

struct memory_query {
    const char *owner;
    int64_t conversation; /* row; 0: all of the owner's, hidden ones too */
    const char *text;     /* any bytes */
    size_t n_text;
    /* Rows that are never hits, ascending: the window's and the question's. May be NULL. */
    const int64_t *exclude;
    size_t n_exclude;
    /* If not NULL only these rows are hits, ascending: a path's, without other branches. */
    const int64_t *only;
    size_t n_only;
    int64_t now; /* seconds since 1970: newer is a little better; 0: age says nothing */
    int limit;   /* hits, 1 to SEARCH_LIMIT_MAX */
    int offset;  /* of the first: pages; offset + limit <= SEARCH_POOL */
    bool is_search; /* a person looks for words: a text that equals the query is a hit, too */
    const struct memory_weights *weights; /* NULL: the defaults */
};
extern const struct memory_weights memory_weights_default;

struct memory_hit {
    int64_t row, conversation; /* rows */
    char id[MEMORY_ID_BYTES], conversation_id[MEMORY_ID_BYTES];
    enum memory_role role;
    int64_t created_at;
    const char *text; /* whole, in the arena; n_text bytes and a NUL */
    size_t n_text;
    char speaker[SEARCH_SPEAKER_BYTES]; /* from "Name: …" at the text's beginning, or "" */
    double score;                       /* > 0; comparable within one result only */
    unsigned why;                       /* of enum memory_why */
};

struct memory_hits {
    struct memory_hit *v; /* [n], best first, in the arena */
    size_t n;
    bool has_more;   /* beyond offset + limit */
    bool is_partial; /* not every message is indexed yet */
    bool is_damaged; /* the index is damaged and not read; it is rebuilt when idle */
};

/*
 * Ranked hits. Each distinct text (case, accents, punctuation apart) once, the newest of them;
 * never a text that equals the query (but see is_search), nor an answer that is still being
 * written. A query without terms has no hits. ERR_INVAL: limits; ERR_NOMEM, ERR_IO, ERR_BUSY. A
 * damaged index is no error.
 */
int memory_recall(struct memory *m, const struct memory_query *q, struct memory_hits *ret,
                  struct arena *a, struct err *e) MUST_USE;

/*
 * The part of a hit's text that shows why: around the query's terms, at most n_max bytes (>= 16),
 * whole characters, white space as single spaces, "…" where something was left out; always valid
 * UTF-8. Appended to ret.
 */
void memory_snippet(struct memory *m, const struct memory_query *q, const struct memory_hit *hit,
                    size_t n_max, struct buf *ret);

/* Where a text has a query's words, by their stems: bytes [from, to), ascending, apart from each
 * other. Stop words only of a query that has nothing else; single Chinese characters likewise. */
struct memory_mark {
    size_t from, to;
};
/* Those of a snippet, say; the first max of them go to ret. Returns how many, 0 also when memory
 * ran out. */
size_t memory_marks(struct memory *m, const struct memory_query *q, const struct buf *text,
                    struct memory_mark *ret, size_t max);

/* How far the index is. n_waiting: messages (at most) that aren't indexed yet. */
struct memory_search_state {
    int64_t n_waiting;
    bool is_damaged;
};
int memory_search_state(struct memory *m, struct memory_search_state *ret, struct err *e) MUST_USE;
/* Whether memory_idle has more to do at once: one call indexes one piece (some 10 ms). */
bool memory_has_work(const struct memory *m);

/* Rows with scores, best first, from the full-text index, vectors, … */
struct memory_ranked {
    int64_t row;
    double score;
};
struct memory_list {
    const struct memory_ranked *v; /* [n], best first, each row once */
    size_t n;
    double weight; /* of this list; 1 is usual */
    double offset; /* instead of 60; 0: 60. A smaller one trusts the first ranks more */
};
/*
 * Reciprocal rank fusion: score(row) = Σ weight / (offset + rank), rank from 1. Pure. Writes the
 * best min(max, distinct rows) to ret, best first, ties by the newer row; returns how many. -1: no
 * memory. Source: Cormack, Clarke, Büttcher, "Reciprocal rank fusion", SIGIR 2009.
 */
int64_t memory_recall_merge(const struct memory_list *lists, size_t n_lists,
                            struct memory_ranked *ret, size_t max);

/*
 * Hits for rows that were ranked elsewhere (merged lists), in their order: the owner's, under the
 * query's exclude, only, duplicates, offset and limit. q->text may be empty.
 */
int memory_recall_rows(struct memory *m, const struct memory_query *q,
                       const struct memory_list *ranked, struct memory_hits *ret,
                       struct arena *a, struct err *e) MUST_USE;

#endif
