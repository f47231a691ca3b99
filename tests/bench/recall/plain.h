/*
 * What search is measured against: FTS5 tables as one would write them in five lines, and SQLite's
 * own bm25(). For the benchmarks of this folder.
 */
#ifndef HEARTH_BENCH_RECALL_PLAIN_H
#define HEARTH_BENCH_RECALL_PLAIN_H

#include "tests/bench/recall/talks.h"

enum plain_how {
    PLAIN_DEFAULT, /* unicode61, every word of the question */
    PLAIN_STEMS,   /* porter, without stop words */
    PLAIN_PAIRS,   /* every two letters or Chinese characters that stand side by side */
};

struct plain;
/* One talk's turns, or of -1 all talks', by their rows. `path` is a file for it. */
struct plain *plain_new(const struct talks *t, enum plain_how how, int talk, const char *path);
void plain_free(struct plain *p);
/* The best `max` rows; returns how many. */
int plain_ask(struct plain *p, const char *text, int64_t *ret, int max);

#endif
