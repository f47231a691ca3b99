/*
 * The machine's limits, measured by the pool and kernels that the passes use, so that "the share
 * reached" compares like with like: the products' peaks are the kernels' own, from the first caches
 * and without anything around them; the read is a plain loop over memory that is much larger than
 * the last cache, in huge pages.
 */
#include "engine/peaks.h"

#include <stdlib.h>
#include <time.h>

#include "base/clock.h"
#include "engine/cores.h"
#include "engine/kernels.h"
#include "engine/pool.h"

#define READ_BYTES ((size_t)192 << 20)
#define READ_ITEM ((size_t)1 << 20)
/* A round of reading: larger than the caches that are any core's own, and short, so that some
 * rounds are free of others' work. Each round takes the next part of the memory. */
#define READ_ROUND ((size_t)24 << 20)
#define ROUNDS 90

/* A product whose weights, activations and result fit a first cache. */
enum { ROWS = 24, COLUMNS = 32, DEPTH = 256, REPEATS = 64, ITEMS_PER_THREAD = 4 };

/* How many places of an item a thread reads from side by side, in turn: caches fetch ahead for
 * each, and which number is the quickest depends on the machine. */
static const int streams[] = {1, 4};
#define N_STREAMS (sizeof streams / sizeof *streams)

struct reading {
    const unsigned char *memory;
    size_t offset;
    int n_streams;
    uint64_t sums[POOL_THREADS_MAX]; /* what is read must be used */
};

static uint64_t read_side_by_side(const uint64_t *p, size_t n, int n_streams)
{
    uint64_t s[8] = {0}, sum = 0;
    const size_t apart = n / (size_t)n_streams;
    for (size_t i = 0; i < apart; i += 8)
        for (size_t j = 0; j < n; j += apart)
            for (size_t k = 0; k < 8; k++)
                s[k] += p[j + i + k];
    for (int k = 0; k < 8; k++)
        sum += s[k];
    return sum;
}

static void read_item(void *ctx, int item, int thread)
{
    struct reading *r = ctx;
    const void *from = r->memory + r->offset + (size_t)item * READ_ITEM;
    r->sums[thread] += read_side_by_side(from, READ_ITEM / sizeof(uint64_t), r->n_streams);
}

struct multiplying {
    const struct kernels *k;
    struct mat w;
    struct act x;
    float *y; /* [threads, ROWS, COLUMNS] */
    double rates[POOL_THREADS_MAX]; /* a thread's best, in operations a second of its own time */
};

static double thread_s(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static void multiply_item(void *ctx, int item, int thread)
{
    struct multiplying *m = ctx;
    const double start = thread_s();
    (void)item;
    for (int i = 0; i < REPEATS; i++)
        m->k->gemm[m->w.layout](&(struct gemm){.w = &m->w,
                                               .n_groups = COLUMNS / 16,
                                               .x = &m->x,
                                               .n_rows = ROWS,
                                               .y = m->y + (size_t)thread * ROWS * COLUMNS,
                                               .ldy = COLUMNS});
    const double rate = 2.0 * ROWS * COLUMNS * DEPTH * REPEATS / (thread_s() - start);
    m->rates[thread] = rate > m->rates[thread] ? rate : m->rates[thread];
}

/* By the clock on the wall: all cores share the memory. */
static int measure_read(struct pool *p, double *ret, struct err *e)
{
    struct reading *r = calloc(1, sizeof *r);
    unsigned char *memory = mat_region_new(READ_BYTES);
    if (!r || !memory) {
        free(r);
        mat_region_free(memory, READ_BYTES);
        return err_set(e, ERR_NOMEM, "no memory for a read of %zu bytes", READ_BYTES);
    }
    for (size_t i = 0; i < READ_BYTES; i += 4096)
        memory[i] = 1; /* its own pages, not the one of zeros */
    r->memory = memory;
    *ret = 0;
    for (int i = 0; i < ROUNDS; i++) {
        r->offset = (size_t)i * READ_ROUND % READ_BYTES;
        r->n_streams = streams[(size_t)i % N_STREAMS];
        const int64_t start = clock_us();
        pool_run(p, read_item, r, (int)(READ_ROUND / READ_ITEM));
        const double rate = (double)READ_ROUND * 1e6 / (double)(clock_us() - start + 1);
        *ret = rate > *ret ? rate : *ret;
    }
    mat_region_free(memory, READ_BYTES);
    free(r);
    return 0;
}

/* All threads at the best that any of them reached: cores don't share what this uses. */
static int measure_products(struct pool *p, const struct kernels *k, int layout, double *ret,
                            struct err *e)
{
    const int n_items = pool_n_threads(p) * ITEMS_PER_THREAD;
    struct multiplying m = {
        .k = k, .x = {.n_in = DEPTH, .n_blocks = DEPTH / 32, .ldf = DEPTH}};
    int r = mat_random(layout, COLUMNS, DEPTH, 1, &m.w);
    m.x.f = calloc(ROWS * DEPTH, sizeof *m.x.f);
    m.x.q = calloc(ROWS * DEPTH, 1);
    m.x.b = calloc(ROWS * DEPTH / 32, sizeof *m.x.b);
    m.y = calloc((size_t)pool_n_threads(p) * ROWS * COLUMNS, sizeof *m.y);
    if (r == 0 && m.x.f && m.x.q && m.x.b && m.y) {
        for (int i = 0; i < ROWS * DEPTH; i++)
            m.x.f[i] = (float)(i % 17 - 8);
        k->quantize(m.x.f, ROWS * DEPTH / 32, m.x.q, m.x.b);
        for (int i = 0; i < ROUNDS; i++)
            pool_run(p, multiply_item, &m, n_items);
        *ret = 0;
        for (int i = 0; i < pool_n_threads(p); i++)
            *ret = m.rates[i] > *ret ? m.rates[i] : *ret;
        *ret *= pool_n_threads(p);
    } else {
        r = err_set(e, ERR_NOMEM, "no memory to measure products");
    }
    mat_done(&m.w);
    free(m.x.f);
    free(m.x.q);
    free(m.x.b);
    free(m.y);
    return r;
}

int peaks_measure(int n_threads, const char *isa, struct peaks *ret, struct err *e)
{
    const struct kernels *k;
    struct pool *pool = NULL;
    struct peaks p;
    int r = kernels_find(isa, &k, e);
    if (r == 0)
        r = pool_new(n_threads ? n_threads : cores_default(), &pool, e);
    if (r < 0)
        return r;
    const uint32_t before = numerics_enter();
    r = measure_read(pool, &p.read_bytes_per_s, e);
    if (r == 0)
        r = measure_products(pool, k, MAT_U4_DM, &p.int_ops_per_s, e);
    if (r == 0)
        r = measure_products(pool, k, MAT_F32, &p.float_ops_per_s, e);
    numerics_leave(before);
    pool_free(pool);
    if (r == 0)
        *ret = p;
    return r;
}
