/*
 * The compute pool: n − 1 threads beside the caller, and one operation: run a function over items 0
 * … n − 1.
 *
 * Items are taken one by one from an atomic counter, so that a thread that loses its core holds up
 * one item and not a fixed share. The caller works too and returns when all items are done; it
 * never waits for a thread that holds none. A thread without work spins for at most 20 µs, then
 * sleeps until the next run: between passes nobody runs. While it spins it may ask the memory for
 * what the next run reads: a step of one row is bound by the memory, which would else rest whenever
 * threads wait for each other.
 */
#ifndef HEARTH_ENGINE_POOL_H
#define HEARTH_ENGINE_POOL_H

#include <stddef.h>

#include "base/err.h"

#define POOL_THREADS_MAX 256
#define POOL_ITEMS_MAX ((1 << 20) - 1)

struct pool;

/* n_threads counts the caller: 1 starts none. ERR_INVAL outside 1 … POOL_THREADS_MAX, ERR_NOMEM,
 * ERR_IO. */
int pool_new(int n_threads, struct pool **ret, struct err *e) MUST_USE;
void pool_free(struct pool *p); /* NULL is fine; not during a run */
int pool_n_threads(const struct pool *p);

/* Where a later run begins to read: thread t at from[i] + t · thread_bytes, n_streams places side
 * by side, so many cache lines of each. */
struct pool_ahead {
    const unsigned char *from[3];
    int n_streams, n_lines;
    size_t thread_bytes;
};

/* Threads that wait fetch this from now on; NULL: nothing. Not during a run; borrowed until the
 * next call and the end of the run after it. Nothing depends on it but time. */
void pool_set_ahead(struct pool *p, const struct pool_ahead *ahead);

/* `thread` is 0 … n_threads − 1, one number a thread at a time: the index of its scratch. */
typedef void (*pool_fn)(void *ctx, int item, int thread);

/* Runs fn(ctx, i, …) once for each i < n_items (≤ POOL_ITEMS_MAX). One caller at a time. What the
 * caller wrote before is seen by all, and all they wrote is seen after. */
void pool_run(struct pool *p, pool_fn fn, void *ctx, int n_items);

#endif
