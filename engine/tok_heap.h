/*
 * A binary heap of uint64_t, the lowest on top, in a plain array: what both ways of merging queue
 * their pairs in (priority << 32 | position).
 */
#ifndef HEARTH_ENGINE_TOK_HEAP_H
#define HEARTH_ENGINE_TOK_HEAP_H

#include <stddef.h>
#include <stdint.h>

/* The value at i sinks to its place among heap[0, n). */
static inline void tok_heap_down(uint64_t *heap, size_t n, size_t i)
{
    uint64_t v = heap[i];
    for (size_t child; (child = 2 * i + 1) < n; i = child) {
        if (child + 1 < n && heap[child + 1] < heap[child])
            child++;
        if (heap[child] >= v)
            break;
        heap[i] = heap[child];
    }
    heap[i] = v;
}

/* v rises from the free place i to its own. */
static inline void tok_heap_up(uint64_t *heap, size_t i, uint64_t v)
{
    for (; i > 0 && heap[(i - 1) / 2] > v; i = (i - 1) / 2)
        heap[i] = heap[(i - 1) / 2];
    heap[i] = v;
}

#endif
