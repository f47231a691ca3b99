/*
 * An arena: what a turn allocates lives in it and dies with it. Pointers stay valid until
 * arena_done. Not thread-safe; ownership moves with the turn.
 */
#ifndef HEARTH_BASE_ARENA_H
#define HEARTH_BASE_ARENA_H

#include <stddef.h>

struct arena_chunk;
struct arena {
    struct arena_chunk *head;
    size_t used, max; /* bytes handed out, and their ceiling */
};

void arena_init(struct arena *a, size_t max_bytes);
void arena_done(struct arena *a);
/* Zeroed, aligned to 16; NULL when memory or the ceiling runs out. n = 0 gives a valid pointer. */
void *arena_alloc(struct arena *a, size_t n);
/* n * size with overflow checked. */
void *arena_array(struct arena *a, size_t n, size_t size);
/* A copy of n bytes plus a NUL. */
char *arena_copy(struct arena *a, const void *data, size_t n);
char *arena_str(struct arena *a, const char *s);

#endif
