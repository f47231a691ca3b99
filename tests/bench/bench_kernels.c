/*
 * Matrix products by weight type on one core, in the thread's own CPU time, the least of many short
 * repetitions; the types take turns, so that their ratios stand on a busy machine too.
 *
 *     bench_kernels [--isa NAME] [--mb 64] [--rounds 12] [TYPE…]
 *
 * For each type: the products of 48 rows with weights and activations in the caches (prefill), and
 * of 1 and 4 rows with weights from memory (decode), in bytes of the FILE a second, so that the
 * types compare as files do; and each beside Q8_0.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "engine/kernels.h"
#include "engine/quant.h"

enum { DEPTH = 1536, MANY = 48, SEGMENTS = 16, MAX_TYPES = 16 };

struct subject {
    const struct quant_type *type;
    struct mat w;
    double many_s;                 /* best time of MANY rows × 64 columns */
    double one_s[SEGMENTS], four_s[SEGMENTS];
};

static double thread_s(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static uint32_t next_random(void)
{
    static uint32_t state = 1;
    state = state * 1664525 + 1013904223;
    return state >> 8;
}

static void must(int ok, const char *what)
{
    if (ok)
        return;
    fprintf(stderr, "bench_kernels: %s\n", what);
    exit(1);
}

/* Random bits with small, finite scales: only their time counts. */
static void subject_open(struct subject *s, const struct quant_type *type, size_t n_bytes)
{
    const size_t row = (size_t)(DEPTH / type->block_values * type->block_bytes);
    const int n_out = (int)(n_bytes / row / 64 / SEGMENTS) * 64 * SEGMENTS;
    unsigned char *data = malloc((size_t)n_out * row);
    struct err e = {0};
    must(data && n_out > 0, "memory");
    for (size_t i = 0; i < (size_t)n_out * row; i++)
        data[i] = (unsigned char)(next_random() & 0x3b);
    *s = (struct subject){.type = type, .many_s = 1e9};
    for (int i = 0; i < SEGMENTS; i++)
        s->one_s[i] = s->four_s[i] = 1e9;
    must(mat_pack(type->id, data, n_out, DEPTH, &s->w, &e) == 0, e.text);
    free(data);
}

static struct act activations(const struct kernels *k)
{
    struct act x = {.n_in = DEPTH, .n_blocks = DEPTH / 32, .ldf = DEPTH};
    x.q = aligned_alloc(64, MANY * DEPTH);
    x.b = aligned_alloc(64, MANY * DEPTH / 32 * sizeof *x.b);
    x.f = aligned_alloc(64, MANY * DEPTH * sizeof *x.f);
    must(x.q && x.b && x.f, "memory");
    for (int i = 0; i < MANY * DEPTH; i++)
        x.f[i] = ((float)(next_random() % 2000) - 1000) / 500;
    k->quantize(x.f, MANY * DEPTH / 32, x.q, x.b);
    return x;
}

static double product(const struct kernels *k, const struct subject *s, const struct act *x,
                      int group0, int n_rows)
{
    static _Alignas(64) float y[MANY * 64];
    const double start = thread_s();
    k->gemm[s->w.layout](&(struct gemm){.w = &s->w,
                                        .group0 = group0,
                                        .n_groups = 4,
                                        .x = x,
                                        .n_rows = n_rows,
                                        .y = y,
                                        .ldy = 64});
    return thread_s() - start;
}

static void least(double *best, double t)
{
    *best = t < *best ? t : *best;
}

static void round_of(const struct kernels *k, struct subject *s, const struct act *x)
{
    const int n = mat_n_groups(&s->w) / SEGMENTS;
    for (int i = 0; i < 12; i++)
        least(&s->many_s, product(k, s, x, 0, MANY));
    for (int i = 0; i < SEGMENTS; i++) {
        double one = 0;
        for (int g = i * n; g < (i + 1) * n; g += 4)
            one += product(k, s, x, g, 1);
        least(&s->one_s[i], one);
    }
    for (int i = 0; i < SEGMENTS; i++) {
        double four = 0;
        for (int g = i * n; g < (i + 1) * n; g += 4)
            four += product(k, s, x, g, 4);
        least(&s->four_s[i], four);
    }
}

/* Bytes of the file that the matrix was, for each second. */
static double file_rate(const struct subject *s, const double *segments)
{
    double t = 0;
    for (int i = 0; i < SEGMENTS; i++)
        t += segments[i];
    return (double)s->w.n_out * DEPTH / s->type->block_values * s->type->block_bytes / t;
}

static void report(const struct subject *s, const struct subject *q8)
{
    const double many = 2.0 * MANY * 64 * DEPTH / s->many_s, one = file_rate(s, s->one_s),
                 four = file_rate(s, s->four_s),
                 bits = 8.0 * (double)s->w.n_bytes / s->w.n_out / DEPTH;
    printf("%-7s %5.2f  %6.1f %5.0f %%  %6.2f %5.0f %%  %6.2f %5.0f %%  %5.2f\n", s->type->name,
           bits, many * 1e-9, 100 * q8->many_s / s->many_s, one * 1e-9,
           100 * one / file_rate(q8, q8->one_s), four * 1e-9,
           100 * four / file_rate(q8, q8->four_s), 4 * four / one);
}

int main(int argc, char **argv)
{
    static const char *const all[] = {"Q8_0", "Q4_0", "Q4_1", "Q4_K", "IQ4_NL", "Q5_0", "Q5_1",
                                      "Q5_K", "Q6_K", "Q3_K", "Q2_K", "F16"};
    static struct subject subjects[MAX_TYPES];
    const char *isa = NULL;
    int mb = 64, rounds = 12, i = 1, n = 0;
    const struct kernels *k;
    struct err e = {0};
    for (; i + 1 < argc && !strncmp(argv[i], "--", 2); i += 2)
        if (!strcmp(argv[i], "--isa"))
            isa = argv[i + 1];
        else if (!strcmp(argv[i], "--mb"))
            mb = (int)strtol(argv[i + 1], NULL, 10);
        else if (!strcmp(argv[i], "--rounds"))
            rounds = (int)strtol(argv[i + 1], NULL, 10);
        else
            must(0, "options are --isa, --mb, --rounds");
    const char *const *names = i < argc ? (const char *const *)argv + i : all;
    const int n_names = i < argc ? argc - i : (int)(sizeof all / sizeof *all);
    must(kernels_find(isa, &k, &e) == 0, e.text);
    for (; n < n_names && n < MAX_TYPES; n++) {
        const struct quant_type *type = quant_type_by_name(names[n]);
        must(type != NULL, "no such type");
        subject_open(&subjects[n], type, (size_t)mb << 20);
    }
    const struct act x = activations(k);
    for (int r = 0; r < rounds; r++)
        for (int s = 0; s < n; s++)
            round_of(k, &subjects[s], &x);
    printf("isa %s: 48 rows in the caches, GOP/s; 1 and 4 rows from memory, GB/s of the file; each "
           "beside %s; the rate of 4 rows by that of 1\n", k->name, subjects[0].type->name);
    printf("type     bits  48 rows         1 row           4 rows           4:1\n");
    for (int s = 0; s < n; s++)
        report(&subjects[s], &subjects[0]);
    return 0;
}
