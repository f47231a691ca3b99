/*
 * One 64-bit word says all that a thread must know to take an item:
 *
 *     ticket = run (24 bits) | n_items (20) | next item (20)
 *
 * Taking an item is a compare-and-swap of next + 1. It succeeds only while the run is the one that
 * was read, and then that run can't end before the item is done, so that `fn`
 * and `ctx`, read after it, are the run's. A thread that wakes too late finds next = n_items and
 * goes on waiting: nobody waits for it, and it can't take part in a run it hasn't seen.
 */
#include "engine/pool.h"

#include <linux/futex.h>
#include <limits.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "base/thread.h"
#include "engine/kernels.h"

#define SPIN_NS 20000
#define NEXT_BITS 20
#define NEXT_MASK ((UINT64_C(1) << NEXT_BITS) - 1)

/* What a thread fetches while it waits, and how far it is with that. */
struct fetching {
    const struct pool_ahead *what;
    int line;
};

struct pool_thread {
    struct pool *pool;
    int index;
    pthread_t id;
};

struct pool {
    _Alignas(64) atomic_uint_fast64_t ticket;
    _Alignas(64) atomic_uint n_done; /* items of this run; the caller sleeps on it */
    atomic_uint caller_sleeps;
    _Alignas(64) atomic_uint signal; /* counts runs; the threads sleep on it */
    atomic_uint n_asleep;
    atomic_uint stop;
    _Atomic(const struct pool_ahead *) ahead;
    _Alignas(64) pool_fn fn; /* of the run; written before its ticket */
    void *ctx;
    int n_threads;
    struct fetching caller;
    struct pool_thread *threads; /* [n_threads − 1] */
};

static void futex_wait(atomic_uint *word, unsigned value)
{
    syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, value, NULL, NULL, 0);
}

static void futex_wake(atomic_uint *word, int n)
{
    syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, n, NULL, NULL, 0);
}

static int64_t now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static void relax(void)
{
#if defined(__x86_64__)
    __builtin_ia32_pause();
#endif
}

/* Some ten nanoseconds, with a line of each stream of what comes next: about the pace at which a
 * core gets them. */
static void wait_a_little(const struct pool *p, struct fetching *f, int thread)
{
    const struct pool_ahead *a = atomic_load_explicit(&p->ahead, memory_order_acquire);
    if (a != f->what)
        *f = (struct fetching){.what = a};
    if (a && f->line < a->n_lines) {
        const size_t at = (size_t)thread * a->thread_bytes + 64 * (size_t)f->line++;
        for (int i = 0; i < a->n_streams; i++)
            __builtin_prefetch(a->from[i] + at, 0, 2);
    }
    relax();
}

/* One item, or -1 when the run has none left. */
static int take(struct pool *p)
{
    uint64_t t = atomic_load_explicit(&p->ticket, memory_order_acquire);
    while ((t & NEXT_MASK) < (t >> NEXT_BITS & NEXT_MASK))
        if (atomic_compare_exchange_weak_explicit(&p->ticket, &t, t + 1, memory_order_acquire,
                                                  memory_order_acquire))
            return (int)(t & NEXT_MASK);
    return -1;
}

/* Takes and does items until there are none; wakes the caller after the last. */
static void work(struct pool *p, int thread)
{
    int item;
    while ((item = take(p)) >= 0) {
        const uint64_t n_items =
            atomic_load_explicit(&p->ticket, memory_order_relaxed) >> NEXT_BITS & NEXT_MASK;
        p->fn(p->ctx, item, thread);
        if (atomic_fetch_add(&p->n_done, 1) + 1 == n_items && thread != 0 &&
            atomic_load(&p->caller_sleeps))
            futex_wake(&p->n_done, 1);
    }
}

static int has_work(struct pool *p)
{
    uint64_t t = atomic_load_explicit(&p->ticket, memory_order_relaxed);
    return (t & NEXT_MASK) < (t >> NEXT_BITS & NEXT_MASK);
}

/* Spins a little, then sleeps until a run begins or the pool ends. */
static void wait_for_work(struct pool *p, struct fetching *f, int thread)
{
    const unsigned signal = atomic_load(&p->signal);
    const int64_t until = now_ns() + SPIN_NS;
    do {
        for (int i = 0; i < 32; i++) {
            if (has_work(p) || atomic_load_explicit(&p->stop, memory_order_relaxed))
                return;
            wait_a_little(p, f, thread);
        }
    } while (now_ns() < until);
    atomic_fetch_add(&p->n_asleep, 1);
    /* A run that began since `signal` was read has changed it, and the wait returns at once. */
    if (!has_work(p) && !atomic_load(&p->stop))
        futex_wait(&p->signal, signal);
    atomic_fetch_sub(&p->n_asleep, 1);
}

static void *thread_main(void *arg)
{
    struct pool_thread *t = arg;
    struct fetching f = {0};
    numerics_enter();
    while (!atomic_load(&t->pool->stop)) {
        work(t->pool, t->index);
        wait_for_work(t->pool, &f, t->index);
    }
    return NULL;
}

static void wait_until_done(struct pool *p, unsigned n_items)
{
    const int64_t until = now_ns() + SPIN_NS;
    unsigned done, n_spins = 0;
    while ((done = atomic_load_explicit(&p->n_done, memory_order_acquire)) != n_items) {
        if (++n_spins % 16 != 0 || now_ns() < until) { /* asking the clock takes as long */
            wait_a_little(p, &p->caller, 0);
            continue;
        }
        atomic_store(&p->caller_sleeps, 1);
        done = atomic_load(&p->n_done);
        if (done != n_items)
            futex_wait(&p->n_done, done);
        atomic_store(&p->caller_sleeps, 0);
    }
}

void pool_run(struct pool *p, pool_fn fn, void *ctx, int n_items)
{
    if (n_items <= 0)
        return;
    if (p->n_threads == 1 || n_items == 1) {
        for (int i = 0; i < n_items; i++)
            fn(ctx, i, 0);
        return;
    }
    p->fn = fn;
    p->ctx = ctx;
    atomic_store_explicit(&p->n_done, 0, memory_order_relaxed);
    const uint64_t run =
        (atomic_load_explicit(&p->ticket, memory_order_relaxed) >> 2 * NEXT_BITS) + 1;
    atomic_store(&p->ticket, run << 2 * NEXT_BITS | (uint64_t)n_items << NEXT_BITS);
    atomic_fetch_add(&p->signal, 1);
    if (atomic_load(&p->n_asleep))
        futex_wake(&p->signal, INT_MAX);
    work(p, 0);
    wait_until_done(p, (unsigned)n_items);
}

void pool_set_ahead(struct pool *p, const struct pool_ahead *ahead)
{
    atomic_store_explicit(&p->ahead, ahead, memory_order_release);
}

int pool_n_threads(const struct pool *p)
{
    return p->n_threads;
}

/* Ends the first n threads. */
static void stop_threads(struct pool *p, int n)
{
    atomic_store(&p->stop, 1);
    atomic_fetch_add(&p->signal, 1);
    futex_wake(&p->signal, INT_MAX);
    for (int i = 0; i < n; i++)
        pthread_join(p->threads[i].id, NULL);
}

int pool_new(int n_threads, struct pool **ret, struct err *e)
{
    if (n_threads < 1 || n_threads > POOL_THREADS_MAX)
        return err_set(e, ERR_INVAL, "%d compute threads: must be 1 … %d", n_threads,
                       POOL_THREADS_MAX);
    struct pool *p = aligned_alloc(64, (sizeof *p + 63) / 64 * 64);
    struct pool_thread *t = calloc((size_t)n_threads, sizeof *t);
    if (!p || !t) {
        free(p);
        free(t);
        return err_set(e, ERR_NOMEM, "no memory for %d compute threads", n_threads);
    }
    *p = (struct pool){.n_threads = n_threads, .threads = t};
    for (int i = 0; i < n_threads - 1; i++) {
        t[i] = (struct pool_thread){.pool = p, .index = i + 1};
        int r = thread_start(&t[i].id, THREAD_POOL, thread_main, &t[i], e);
        if (r < 0) {
            stop_threads(p, i);
            free(t);
            free(p);
            return r;
        }
    }
    *ret = p;
    return 0;
}

void pool_free(struct pool *p)
{
    if (!p)
        return;
    stop_threads(p, p->n_threads - 1);
    free(p->threads);
    free(p);
}
