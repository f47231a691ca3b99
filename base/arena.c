/*
 * The arena: a list of chunks, newest first, each filled from the front.
 *
 *     head ─► [ next | size | used | bytes… ] ─► [ … ] ─► NULL
 *
 * A request larger than a chunk gets one of its own behind the head, so that the head's free room
 * stays in use.
 */
#include "base/arena.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/sys.h"

#define CHUNK_BYTES ((size_t)64 << 10)
#define ALIGN ((size_t)16)

struct arena_chunk {
    struct arena_chunk *next;
    size_t size, used; /* of bytes[] */
    _Alignas(16) unsigned char bytes[];
};

void arena_init(struct arena *a, size_t max_bytes)
{
    *a = (struct arena){.max = max_bytes};
}

void arena_done(struct arena *a)
{
    if (!a)
        return;
    struct arena_chunk *next;
    for (struct arena_chunk *c = a->head; c; c = next) {
        next = c->next;
        free(c);
    }
    a->head = NULL;
    a->used = 0;
}

static struct arena_chunk *chunk_new(struct arena *a, size_t n)
{
    size_t size = n > CHUNK_BYTES ? n : CHUNK_BYTES;
    if (size > SIZE_MAX - sizeof(struct arena_chunk))
        return NULL;
    struct arena_chunk *c = sys.malloc(sizeof(*c) + size);
    if (!c)
        return NULL;
    c->size = size;
    c->used = 0;
    if (a->head && n > CHUNK_BYTES) {
        c->next = a->head->next;
        a->head->next = c;
    } else {
        c->next = a->head;
        a->head = c;
    }
    return c;
}

void *arena_alloc(struct arena *a, size_t n)
{
    if (n == 0)
        n = 1;
    if (n > SIZE_MAX - (ALIGN - 1))
        return NULL;
    n = (n + ALIGN - 1) & ~(ALIGN - 1);
    if (a->used > a->max || n > a->max - a->used)
        return NULL;
    struct arena_chunk *c = a->head;
    if (!c || n > c->size - c->used)
        c = chunk_new(a, n);
    if (!c)
        return NULL;
    void *p = c->bytes + c->used;
    c->used += n;
    a->used += n;
    memset(p, 0, n);
    return p;
}

void *arena_array(struct arena *a, size_t n, size_t size)
{
    size_t bytes;
    if (__builtin_mul_overflow(n, size, &bytes))
        return NULL;
    return arena_alloc(a, bytes);
}

char *arena_copy(struct arena *a, const void *data, size_t n)
{
    if (n == SIZE_MAX)
        return NULL;
    char *p = arena_alloc(a, n + 1);
    if (p && n > 0)
        memcpy(p, data, n);
    return p;
}

char *arena_str(struct arena *a, const char *s)
{
    return arena_copy(a, s, strlen(s));
}
