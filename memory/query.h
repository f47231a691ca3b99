/* Between query.c (which rows hold which terms) and search.c (which of them are hits). */
#ifndef HEARTH_MEMORY_QUERY_H
#define HEARTH_MEMORY_QUERY_H

#include "memory/internal.h"
#include "memory/search.h"

#define QUERY_SEEN_MAX 512 /* distinct terms of a query that are weighed at all */
#define QUERY_SLOTS 2048   /* of the table: a power of two, four times as many */

struct query_term {
    char text[SEGMENT_TERM_MAX + 1];
    size_t n;
    uint64_t hash;
    enum segment_kind kind;
    bool is_stop, is_capital;
    bool is_asked;  /* its rows were read */
    double idf;     /* of those that were asked */
    int64_t n_rows; /* in scope, or in all when only that is known */
};

/* A row that holds terms; bit i of mask: asked[i]. */
struct query_row {
    int64_t row;
    uint64_t mask;
    double score; /* sum of the terms' weights: ranks the rows before they are read */
};

struct query {
    struct query_term *terms; /* [n_terms], in the arena; also those that aren't asked */
    int n_terms;
    int16_t slots[QUERY_SLOTS]; /* hash table: index of a term + 1, or 0 */
    int asked[SEARCH_TERMS_MAX];
    int n_asked;
    bool asks_time;         /* when, how long, 什么时候 … */
    struct query_row *rows; /* [n_rows], ascending by row, in the arena */
    size_t n_rows;
};

/* The terms of q's text. */
int query_parse(struct memory *m, const struct memory_query *q, struct query *ret, struct arena *a,
                struct err *e) MUST_USE;
/* Asks the index. Errors of the index are given as they are: index_failed judges them. */
int query_match(struct memory *m, const struct memory_query *q, struct query *qu, struct arena *a,
                struct err *e) MUST_USE;
/* The term's index in qu->terms, -1: not in the query. */
int query_find(const struct query *qu, const char *term, size_t n);
uint64_t query_hash(const char *bytes, size_t n, uint64_t seed);
/* search.c: one short sentence that ends in a question mark. */
bool search_only_asks(const char *text, size_t n);
/* The row's entry or NULL. */
const struct query_row *query_row_find(const struct query *qu, int64_t row);

#endif
