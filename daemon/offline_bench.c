/*
 * hearthd bench: tokens a second of this machine and model, reading and writing.
 *
 *     hearthd bench --model FILE [-p 512] [-n 64] [-d 0] [-t threads] [-b 1] [-r 5] [--isa NAME]
 *
 * -p prompt tokens are read behind -d tokens of context, -n tokens are written, by -b sequences
 * side by side (each with a context of its own). The ids are
 * arbitrary: speed doesn't depend on them. One warm-up, then -r repetitions; minimum, median and
 * maximum are shown, since a shared machine has no single speed.
 */
#include <getopt.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/hash.h"
#include "base/thread.h"
#include "daemon/offline.h"
#include "engine/engine.h"

#define SLICE 512 /* rows of a prefill pass */
#define REPEATS_MAX 100
#define BATCH_MAX 64
#define TOKENS_MAX 1000000

struct bench {
    struct engine_options engine;
    int n_prompt, n_gen, depth, batch, repeats;

    struct engine *en;
    const struct engine_info *info;
    struct kv_pool *pool;
    struct kv_seq *seqs; /* [batch] */
    float *logits;       /* [batch, n_vocab] */
    int32_t *ids;        /* [SLICE] */
};

static int usage(void)
{
    fprintf(stderr, "usage: hearthd bench --model FILE [-p PROMPT] [-n GENERATED] [-d DEPTH] [-t "
                    "THREADS] [-b BATCH] [-r REPEATS] [--isa NAME]\n");
    return 2;
}

/* A whole number in [min, max], or false. */
static bool number(const char *text, long min, long max, int *ret)
{
    char *end;
    long v = strtol(text, &end, 10);
    if (end == text || *end || v < min || v > max) {
        fprintf(stderr, "hearthd bench: %s: must be %ld … %ld\n", text, min, max);
        return false;
    }
    *ret = (int)v;
    return true;
}

static bool parse(int argc, char **argv, struct bench *b)
{
    static const struct option longs[] = {{"model", required_argument, NULL, 'm'},
                                          {"isa", required_argument, NULL, 'i'},
                                          {"threads", required_argument, NULL, 't'},
                                          {0}};
    int c;
    bool ok = true;
    optind = 1;
    while (ok && (c = getopt_long(argc, argv, "m:p:n:d:t:b:r:", longs, NULL)) != -1) {
        switch (c) {
        case 'm':
            b->engine.model_path = optarg;
            break;
        case 'i':
            b->engine.isa = optarg;
            break;
        case 'p':
            ok = number(optarg, 0, TOKENS_MAX, &b->n_prompt);
            break;
        case 'n':
            ok = number(optarg, 0, TOKENS_MAX, &b->n_gen);
            break;
        case 'd':
            ok = number(optarg, 0, TOKENS_MAX, &b->depth);
            break;
        case 't':
            ok = number(optarg, 1, 256, &b->engine.n_threads);
            break;
        case 'b':
            ok = number(optarg, 1, BATCH_MAX, &b->batch);
            break;
        case 'r':
            ok = number(optarg, 1, REPEATS_MAX, &b->repeats);
            break;
        default:
            ok = false;
        }
    }
    return ok && optind == argc && b->engine.model_path;
}

static int open_all(struct bench *b, struct err *e)
{
    int r = engine_open(&b->engine, &b->en, e);
    if (r < 0)
        return r;
    b->info = engine_info(b->en);
    const int longest = b->depth + (b->n_prompt > b->n_gen ? b->n_prompt : b->n_gen),
              n_blocks = longest / KV_BLOCK + 1;
    if (longest > b->info->n_ctx_train)
        return err_set(e, ERR_LIMIT, "%d positions: the model has %d", longest,
                       b->info->n_ctx_train);
    r = kv_pool_new(&b->info->kv, (size_t)n_blocks * (size_t)b->batch, &b->pool, e);
    b->seqs = calloc((size_t)b->batch, sizeof *b->seqs);
    b->logits = malloc((size_t)b->batch * (size_t)b->info->n_vocab * sizeof *b->logits);
    b->ids = malloc(SLICE * sizeof *b->ids);
    if (r == 0 && !(b->seqs && b->logits && b->ids))
        r = err_set(e, ERR_NOMEM, "no memory for the logits of %d sequences", b->batch);
    for (int i = 0; r == 0 && i < SLICE; i++)
        b->ids[i] = (int32_t)((i * 7919u + 17) % (unsigned)b->info->n_vocab);
    for (int i = 0; r == 0 && i < b->batch; i++) {
        kv_seq_init(&b->seqs[i]);
        for (int k = 0; r == 0 && k < n_blocks; k++)
            r = kv_seq_push(&b->seqs[i], kv_take(b->pool), e);
    }
    return r;
}

static void close_all(struct bench *b)
{
    for (int i = 0; b->seqs && i < b->batch; i++)
        kv_seq_done(&b->seqs[i]);
    kv_pool_free(b->pool);
    free(b->seqs);
    free(b->logits);
    free(b->ids);
    engine_close(b->en);
}

/* Reads n tokens into each sequence, one after the other, in slices. */
static int prefill(struct bench *b, int n, struct err *e)
{
    int r = 0;
    for (int i = 0; r == 0 && i < b->batch; i++)
        for (int done = 0, k; r == 0 && done < n; done += k) {
            k = n - done < SLICE ? n - done : SLICE;
            struct engine_part p = {.seq = &b->seqs[i],
                                    .ids = b->ids,
                                    .n_ids = k,
                                    .n_logits = done + k == n,
                                    .logits = b->logits};
            r = engine_pass(b->en, &p, 1, NULL, e);
        }
    return r;
}

/* Writes n tokens with all sequences in one batch. */
static int decode(struct bench *b, int n, struct err *e)
{
    struct engine_part parts[BATCH_MAX];
    int r = 0;
    for (int t = 0; r == 0 && t < n; t++) {
        for (int i = 0; i < b->batch; i++)
            parts[i] =
                (struct engine_part){.seq = &b->seqs[i],
                                     .ids = b->ids + (t + i) % SLICE,
                                     .n_ids = 1,
                                     .n_logits = 1,
                                     .logits = b->logits + (size_t)i * (size_t)b->info->n_vocab};
        r = engine_pass(b->en, parts, b->batch, NULL, e);
    }
    return r;
}

static int by_value(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Measures one kind of work and prints its line. Each repetition starts at the same depth. */
static int measure(struct bench *b, const char *name, int n,
                   int (*work)(struct bench *, int, struct err *), struct err *e)
{
    double tps[REPEATS_MAX];
    int r = 0;
    if (n == 0)
        return 0;
    for (int i = -1; r == 0 && i < b->repeats; i++) {
        for (int k = 0; k < b->batch; k++)
            b->seqs[k].n_tokens = b->depth;
        const int64_t start = clock_us();
        r = work(b, n, e);
        if (i >= 0)
            tps[i] = (double)n * b->batch * 1e6 / (double)(clock_us() - start + 1);
    }
    if (r < 0)
        return r;
    qsort(tps, (size_t)b->repeats, sizeof *tps, by_value);
    printf("%-10s %8d %8d %6d %10.1f %10.1f %10.1f\n", name, n, b->depth, b->batch, tps[0],
           tps[b->repeats / 2], tps[b->repeats - 1]);
    fflush(stdout);
    return 0;
}

static int run(struct bench *b, struct err *e)
{
    int r = open_all(b, e);
    if (r < 0)
        return r;
    const struct engine_info *i = b->info;
    printf("%s, %s, %.1f M parameters, weights %.1f MB, isa %s, %d threads\n\n", i->name, i->quant,
           (double)i->n_params * 1e-6, (double)i->weights_bytes * 1e-6, i->isa, i->n_threads);
    printf("%-10s %8s %8s %6s %10s %10s %10s  tokens/s\n", "work", "tokens", "depth", "batch",
           "min", "median", "max");
    r = prefill(b, b->depth, e);
    if (r == 0)
        r = measure(b, "prefill", b->n_prompt, prefill, e);
    if (r == 0)
        r = measure(b, "decode", b->n_gen, decode, e);
    return r;
}

int offline_bench(int argc, char **argv)
{
    struct bench b = {.n_prompt = 512, .n_gen = 64, .batch = 1, .repeats = 5};
    struct err e = {0};
    if (!parse(argc, argv, &b))
        return usage();
    thread_set_role(THREAD_WORKER); /* whose the KV blocks are */
    int r = hash_start(&e);
    if (r == 0)
        r = run(&b, &e);
    close_all(&b);
    if (r < 0)
        fprintf(stderr, "hearthd bench: %s\n", e.text);
    return r < 0;
}
