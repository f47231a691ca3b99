/*
 * Candidates of a summary and their scores. Private to memory (extract.c).
 */
#ifndef HEARTH_MEMORY_EXTRACT_RANK_H
#define HEARTH_MEMORY_EXTRACT_RANK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "memory/memory.h"

struct candidate {
    const char *text; /* borrowed; n_text bytes of one line of UTF-8 */
    size_t n_text;
    int64_t row;
    enum memory_role role;
    uint32_t order;
    bool is_old, is_first, is_cut;
    double cheap, score;
};

/* Sets the scores of v[*n] (at most EXTRACT_SENTENCES_MAX, in the order of time); those with the
 * same words as another, or without any, are taken out: *n falls. ERR_NOMEM. */
int candidates_score(struct candidate *v, size_t *n) MUST_USE;

#endif
