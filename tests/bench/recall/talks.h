/*
 * The talks of generate.py and scenes.py, in memory and in a history; what is found of their
 * evidence. For the benchmarks of this folder: what fails ends the program.
 */
#ifndef HEARTH_BENCH_RECALL_TALKS_H
#define HEARTH_BENCH_RECALL_TALKS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "memory/memory.h"

#define TALKS_MAX 64
#define TALKS_OWNER "bench"
#define TOP 10

enum question_kind { QUESTION_ONE, QUESTION_SEVERAL, QUESTION_TIME, QUESTION_KINDS };

struct turn {
    char *text, *named; /* named: "Maria: text" */
    int64_t at;         /* seconds since 1970 */
    bool is_second;     /* of the two speakers: the assistant */
};
struct question {
    char *text;
    int *evidence; /* turns */
    int n_evidence;
    bool is_held; /* of the half that nothing is chosen by */
    enum question_kind kind;
    float *vectors; /* of bench_meaning */
    bool is_known;
};
struct talk {
    char *first; /* who speaks as the user */
    struct turn *turns;
    struct question *questions;
    int n_turns, n_questions;
    int64_t conversation;
    int64_t *rows; /* [n_turns] of the messages */
};
struct talks {
    struct talk v[TALKS_MAX];
    int n;
    bool is_named; /* texts begin with their speakers' names */
};

/* Ends the program when rc < 0. */
void check(int rc, const struct err *e);
void talks_read(struct talks *t, const char *path);
const char *talks_text(const struct talks *t, const struct turn *turn);
/* A new history at `path` with all of them, a conversation each. */
struct memory *talks_store(struct talks *t, const char *path);

/* The share of a question's evidence that is among the rows; summed by half and by kind. */
struct recalled {
    double sum[2], by_kind[QUESTION_KINDS]; /* by kind: of the first half only */
    int n[2], n_kind[QUESTION_KINDS];
};
double recalled_add(struct recalled *r, const struct talk *t, const struct question *q,
                    const int64_t *rows, int n);
void recalled_head(const char *what);
void recalled_print(const char *name, const struct recalled *r);

#endif
