/*
 * Search by meaning: a vector for each message, or for each part of a long one, and the messages
 * whose vectors point where a query's does.
 *
 *      message ─► vectors of length 1, made elsewhere ─► 8 bits a dimension, with a scale
 *              ─► message_vector: message, place, model, dimension, scale, bytes
 *              ─► in RAM, as many as are allowed, the newest messages' ─► one product per block of
 *                 rows ─► the best, neighbours considered ─► merged by rank with the words' hits
 *
 * Memory knows no model: whoever has one says so (memory_vectors_use), asks what has no vector of
 * it yet, newest first, and brings the vectors. Those of another model are skipped, and replaced
 * when their message's turn comes. Without a model there is nothing here to do, and search goes by
 * words.
 *
 * Deleting a message deletes its vectors with it. History thread.
 */
#ifndef HEARTH_MEMORY_VECTORS_H
#define HEARTH_MEMORY_VECTORS_H

#include "memory/search.h"

#define VECTORS_DIM_MAX 4096
#define VECTORS_PARTS_MAX 64 /* of one message */
#define VECTORS_BEST 256     /* hits of one search, at most */

struct vectors_model {
    uint8_t id[16]; /* other vectors are another model's */
    int dim;        /* 1 to VECTORS_DIM_MAX */
    uint64_t bytes_max; /* what vectors may take in RAM */
};
/* From now on; NULL: no model. ERR_INVAL, ERR_NOMEM, ERR_IO … */
int memory_vectors_use(struct memory *m, const struct vectors_model *model,
                       struct err *e) MUST_USE;
/* Whether memory_vectors_next may find some. */
bool memory_vectors_has_work(const struct memory *m);

/*
 * Messages without vectors of the model, at most `max` and about n_bytes of text; *ret_n may be 0
 * although there are more (memory_vectors_has_work): one call looks at a bounded number of rows.
 */
struct vectors_text {
    int64_t row;
    const char *text; /* in the arena */
    size_t n_text;
};
struct vectors_wanted {
    size_t max, n_bytes;
};
int memory_vectors_next(struct memory *m, struct vectors_wanted wanted, struct vectors_text *ret,
                        size_t *ret_n, struct arena *a) MUST_USE;

/* vectors [n_parts, dim] of length 1; n_parts 0: there is nothing in the message to look for, which
 * is noted too. A message that has gone meanwhile is no error. Several in one transaction. */
struct vectors_made {
    int64_t row;
    const float *vectors;
    int n_parts;
};
int memory_vectors_add(struct memory *m, const struct vectors_made *v, size_t n,
                       struct err *e) MUST_USE;

/*
 * The rows nearest to a query's vector [dim], best first, at most max: the owner's, under q's
 * conversation, exclude and only. Scores are cosines, a share of the neighbours' added. Vectors
 * that aren't in RAM yet are read first.
 */
struct vectors_hits {
    struct memory_ranked v[VECTORS_BEST];
    bool is_sure[VECTORS_BEST]; /* by its own cosine */
    size_t n;
};
int memory_vectors_search(struct memory *m, const struct memory_query *q, const float *vector,
                          size_t max, struct vectors_hits *ret) MUST_USE;

/*
 * The text a query's vector is to be made of: q's, but who talks in q's scope is named I and my
 * (what they said of themselves is in the first person). Appended to ret. Whatever hinders that
 * leaves the text as it is; ERR_NOMEM: of ret.
 */
int memory_vectors_question(struct memory *m, const struct memory_query *q,
                            struct buf *ret) MUST_USE;

/*
 * memory_recall by words and by meaning: both lists, merged by rank. vector NULL, or no model: by
 * words alone.
 */
int memory_recall_both(struct memory *m, const struct memory_query *q, const float *vector,
                       struct memory_hits *ret, struct arena *a, struct err *e) MUST_USE;

struct vectors_state {
    int64_t n_vectors; /* of the model, as far as they are in RAM */
    uint64_t n_bytes;  /* that they take there */
    bool is_waiting;   /* there are messages to do, or vectors to be read into RAM */
    bool is_cut;       /* not all fit */
};
void memory_vectors_state(const struct memory *m, struct vectors_state *ret);

/* ---- for this room ---- */

struct vectors;
void vectors_close(struct memory *m);
/* A message is whole now. */
void vectors_note_message(struct memory *m, int64_t row);
/* Rows are about to go. */
void vectors_forget_message(struct memory *m, int64_t row);
void vectors_forget_conversation(struct memory *m, int64_t conversation);

#endif
