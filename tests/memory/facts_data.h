/*
 * What the tests of the fact list share: the data files (sentences with what must survive of them,
 * and other talk), random numbers, and lists in one call. HEARTH_SEED repeats a run.
 */
#ifndef HEARTH_TESTS_MEMORY_FACTS_DATA_H
#define HEARTH_TESTS_MEMORY_FACTS_DATA_H

#include <stddef.h>
#include <stdint.h>

#include "memory/facts.h"

#define LINES_MAX 256

struct line {
    char text[512];
    char *wanted; /* within text: "a|b", NULL for filler */
    enum memory_role role;
};
struct lines {
    struct line v[LINES_MAX];
    size_t n;
};
/* English, Chinese. Mended: what the lists of words were made with; fresh: what they weren't. */
extern struct lines facts[2], filler[2], mended[2], fresh[2];

/* A group's set-up: reads them all, prints the seed. */
int read_data(void **state);
size_t below(size_t n);

struct said say(int64_t row, const char *text);
struct facts extract(struct arena *a, const struct said *v, size_t n);
struct facts merge(struct arena *a, const struct facts *old, const struct facts *newer,
                   size_t max_bytes);
/* Text of a list; the caller frees it. */
char *composed(const struct facts *f);
char *written(const struct facts *f, size_t *ret_n);
/* How many of "a|b" are in text; *ret_of: how many there are. */
size_t found(const char *text, const char *wanted, size_t *ret_of);

#endif
