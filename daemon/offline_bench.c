/*
 * hearthd bench: tokens a second of this machine and model, reading and writing, beside what the
 * machine could do.
 *
 *     hearthd bench --model FILE [-p 512] [-n 64] [-d 0] [-b 1] [-t THREADS] [-r 5] [--isa NAME]
 *                   [--kv-type f16|q8_0] [--format table|json|csv] [--no-peaks]
 *                   [--against COMMAND]
 *
 * -p prompt tokens are read behind -d tokens of context, -n tokens are written by -b sequences side
 * by side, each with a context of its own. All four may be lists, "0,1024,4096"; each is measured
 * with each. The ids are arbitrary: speed doesn't depend on them.
 *
 * Every work runs once to warm up, then in rounds: round by round all works one after the other, so
 * that a neighbour's busy minute falls on all of them. With --against a round runs the other
 * program first. Minimum, median and maximum are shown, since a shared machine has no single speed.
 *
 * The limit: for reading, the products' operations by the integer peak plus attention's by the
 * float peak; for writing, the bytes a step must touch (all weights once, each sequence's KV once)
 * by the read bandwidth, or the operations when those take longer.
 */
#include "daemon/offline_bench.h"

#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/hash.h"
#include "base/thread.h"
#include "daemon/offline.h"
#include "daemon/offline_memory.h"

#define SLICE 512 /* rows of a prefill pass */
#define TOKENS_MAX 1000000

struct list {
    int n, v[BENCH_LIST_MAX];
};

struct bench {
    struct engine_options engine;
    struct list prompts, gens, depths, batches;
    int repeats;
    bool no_peaks;
    enum bench_format format;
    const char *against;

    struct offline_memory memory;
    struct bench_work *works; /* [n_works] */
    int n_works;
    struct engine *en;
    const struct engine_info *info;
    struct peaks peaks;
    struct kv_pool *pool;
    struct kv_seq *seqs; /* [largest batch] */
    int n_seqs;
    float *logits; /* [largest batch, n_vocab] */
    int32_t *ids;  /* [SLICE] */
};

static int usage(FILE *to, int status)
{
    fprintf(to,
            "usage: hearthd bench --model FILE [-p PROMPT] [-n GENERATED] [-d DEPTH] [-b BATCH]\n"
            "                     [-t THREADS] [-r REPEATS] [--isa NAME] [--no-peaks]\n"
            "                     [--kv-type f16|q8_0] [--format table|json|csv]\n"
            "                     [--against COMMAND]\n"
            "Tokens a second, read and written, beside what the machine could do.\n"
            "PROMPT, GENERATED, DEPTH and BATCH may be lists: 0,1024,4096\n");
    return status;
}

/* Whole numbers in [min, max] with commas between them, or false. */
static bool numbers(const char *text, long min, long max, struct list *ret)
{
    struct list l = {0};
    for (const char *p = text;; p++) {
        char *end;
        long v = strtol(p, &end, 10);
        if (end == p || (*end && *end != ',') || v < min || v > max || l.n == BENCH_LIST_MAX) {
            fprintf(stderr, "hearthd bench: %s: must be %ld … %ld, or up to %d of them\n", text,
                    min, max, BENCH_LIST_MAX);
            return false;
        }
        l.v[l.n++] = (int)v;
        if (!*end)
            break;
        p = end;
    }
    *ret = l;
    return true;
}

static bool number(const char *text, long min, long max, int *ret)
{
    struct list l;
    if (!numbers(text, min, max, &l))
        return false;
    *ret = l.v[0];
    return l.n == 1;
}

static bool format(const char *name, enum bench_format *ret)
{
    static const char *const names[] = {"table", "json", "csv"};
    for (int i = 0; i < 3; i++)
        if (strcmp(name, names[i]) == 0) {
            *ret = (enum bench_format)i;
            return true;
        }
    fprintf(stderr, "hearthd bench: format %s: must be table, json or csv\n", name);
    return false;
}

static bool kv_type(const char *name, enum kv_type *ret)
{
    if (kv_type_find(name, ret))
        return true;
    fprintf(stderr, "hearthd bench: kv-type %s: must be f16 or q8_0\n", name);
    return false;
}

static bool parse_one(struct bench *b, int c)
{
    switch (c) {
    case 'm':
        b->engine.model_path = optarg;
        return true;
    case 'i':
        b->engine.isa = optarg;
        return true;
    case 'y':
        return kv_type(optarg, &b->engine.kv_type);
    case 'a':
        b->against = optarg;
        return true;
    case 'f':
        return format(optarg, &b->format);
    case 'k':
        b->no_peaks = true;
        return true;
    case 'p':
        return numbers(optarg, 0, TOKENS_MAX, &b->prompts);
    case 'n':
        return numbers(optarg, 0, TOKENS_MAX, &b->gens);
    case 'd':
        return numbers(optarg, 0, TOKENS_MAX, &b->depths);
    case 'b':
        return numbers(optarg, 1, BENCH_BATCH_MAX, &b->batches);
    case 't':
        return number(optarg, 1, 256, &b->engine.n_threads);
    case 'r':
        return number(optarg, 1, BENCH_REPEATS_MAX, &b->repeats);
    default:
        return false;
    }
}

/* 0, or an exit status + 1. */
static int parse(int argc, char **argv, struct bench *b)
{
    static const struct option longs[] = {{"model", required_argument, NULL, 'm'},
                                          {"isa", required_argument, NULL, 'i'},
                                          {"kv-type", required_argument, NULL, 'y'},
                                          {"threads", required_argument, NULL, 't'},
                                          {"format", required_argument, NULL, 'f'},
                                          {"against", required_argument, NULL, 'a'},
                                          {"no-peaks", no_argument, NULL, 'k'},
                                          {"help", no_argument, NULL, 'h'},
                                          {0}};
    int c;
    optind = 1;
    while ((c = getopt_long(argc, argv, "m:p:n:d:t:b:r:h", longs, NULL)) != -1) {
        if (c == 'h')
            return usage(stdout, 0) + 1;
        if (!parse_one(b, c))
            return usage(stderr, 2) + 1;
    }
    return optind == argc && b->engine.model_path ? 0 : usage(stderr, 2) + 1;
}

/* The lengths at one depth and batch; those of 0 are left out. */
static void plan_lengths(struct bench *b, int depth, int batch)
{
    for (int i = 0; i < b->prompts.n + b->gens.n; i++) {
        const bool is_decode = i >= b->prompts.n;
        const int n = is_decode ? b->gens.v[i - b->prompts.n] : b->prompts.v[i];
        if (n > 0)
            b->works[b->n_works++] = (struct bench_work){
                .is_decode = is_decode, .n_tokens = n, .depth = depth, .batch = batch};
    }
}

static int plan_works(struct bench *b, struct err *e)
{
    const int n = b->batches.n * b->depths.n * (b->prompts.n + b->gens.n);
    b->works = calloc((size_t)n, sizeof *b->works);
    if (!b->works)
        return err_set(e, ERR_NOMEM, "no memory for the figures of %d works", n);
    for (int k = 0; k < b->batches.n; k++)
        for (int d = 0; d < b->depths.n; d++)
            plan_lengths(b, b->depths.v[d], b->batches.v[k]);
    return b->n_works ? 0 : err_set(e, ERR_INVAL, "nothing to measure: -p and -n are 0");
}

/* Of a mixture's experts, what share `n` tokens go through if no two choose the same; else all. */
static double share_of(const struct engine_info *i, int n)
{
    const double share = i->n_experts ? (double)i->n_experts_used / i->n_experts * n : 1;
    return share < 1 ? share : 1;
}

/* Parameters that `n` tokens go through. */
static double params_of(const struct engine_info *i, int n)
{
    return (double)i->n_params - (1 - share_of(i, n)) * (double)i->n_params_experts;
}

/* Tokens/s that the machine's peaks allow. */
static double limit_of(const struct bench *b, const struct bench_work *w)
{
    const struct engine_info *i = b->info;
    const double head = (double)i->n_vocab * i->n_embd, body = params_of(i, 1) - head,
                 attention = 4.0 * i->n_layers * i->n_heads * i->head_dim;
    const double depth = w->depth + w->n_tokens / 2.0, batch = w->batch;
    const double int_s = 2 * (w->is_decode ? body + head : body) / b->peaks.int_ops_per_s,
                 float_s = attention * depth / b->peaks.float_ops_per_s;
    double token_s = int_s + float_s;
    if (w->is_decode) {
        const double kv = (double)i->kv.block_bytes / KV_BLOCK * depth;
        const double weights =
            (double)i->weights_bytes * params_of(i, w->batch) / (double)i->n_params;
        const double read_s = (weights / batch + kv) / b->peaks.read_bytes_per_s;
        token_s = read_s > token_s ? read_s : token_s;
    }
    return 1 / token_s;
}

static int open_seqs(struct bench *b, int longest, struct err *e)
{
    const int n_blocks = longest / KV_BLOCK + 1;
    int r = kv_pool_new(&b->info->kv, (size_t)n_blocks * (size_t)b->n_seqs, &b->pool, e);
    b->seqs = calloc((size_t)b->n_seqs, sizeof *b->seqs);
    b->logits = malloc((size_t)b->n_seqs * (size_t)b->info->n_vocab * sizeof *b->logits);
    b->ids = malloc(SLICE * sizeof *b->ids);
    if (r == 0 && !(b->seqs && b->logits && b->ids))
        r = err_set(e, ERR_NOMEM, "no memory for the logits of %d sequences", b->n_seqs);
    for (int i = 0; r == 0 && i < SLICE; i++)
        b->ids[i] = (int32_t)((i * 7919u + 17) % (unsigned)b->info->n_vocab);
    for (int i = 0; r == 0 && i < b->n_seqs; i++) {
        kv_seq_init(&b->seqs[i]);
        for (int k = 0; r == 0 && k < n_blocks; k++)
            r = kv_seq_push(&b->seqs[i], kv_take(b->pool), e);
    }
    return r;
}

static int may_take(void *ctx, const struct engine_needs *n, struct err *e)
{
    const struct offline_memory *m = ctx;
    if (m->n_positions - 1 > n->n_ctx_train)
        return err_set(e, ERR_LIMIT, "%d positions: the model has %d", m->n_positions - 1,
                       n->n_ctx_train);
    return offline_may_take(ctx, n, e);
}

static int open_all(struct bench *b, struct err *e)
{
    int longest = 0;
    for (int i = 0; i < b->n_works; i++) {
        const struct bench_work *w = &b->works[i];
        longest = w->depth + w->n_tokens > longest ? w->depth + w->n_tokens : longest;
        b->n_seqs = w->batch > b->n_seqs ? w->batch : b->n_seqs;
    }
    b->memory = (struct offline_memory){
        .n_seqs = b->n_seqs, .n_positions = longest + 1, .n_logits = b->n_seqs};
    b->engine.n_ctx = longest; /* rotations for what is measured, not for all that it knows */
    b->engine.pass_rows = b->n_seqs > SLICE ? b->n_seqs : SLICE;
    b->engine.may_take = may_take;
    b->engine.may_take_ctx = &b->memory;
    int r = engine_open(&b->engine, &b->en, e);
    if (r < 0)
        return r;
    b->info = engine_info(b->en);
    if (!b->no_peaks)
        r = peaks_measure(b->info->n_threads, b->info->isa, &b->peaks, e);
    for (int i = 0; r == 0 && !b->no_peaks && i < b->n_works; i++)
        b->works[i].limit_tps = limit_of(b, &b->works[i]);
    return r < 0 ? r : open_seqs(b, longest, e);
}

static void close_all(struct bench *b)
{
    for (int i = 0; b->seqs && i < b->n_seqs; i++)
        kv_seq_done(&b->seqs[i]);
    kv_pool_free(b->pool);
    free(b->seqs);
    free(b->logits);
    free(b->ids);
    free(b->works);
    engine_close(b->en);
}

/* Reads n tokens into each of n_seqs sequences, one after the other, in slices. */
static int prefill(struct bench *b, int n, int n_seqs, struct err *e)
{
    int r = 0;
    for (int i = 0; r == 0 && i < n_seqs; i++)
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

/* Writes n tokens with n_seqs sequences in one batch. */
static int decode(struct bench *b, int n, int n_seqs, struct err *e)
{
    struct engine_part parts[BENCH_BATCH_MAX];
    int r = 0;
    for (int t = 0; r == 0 && t < n; t++) {
        for (int i = 0; i < n_seqs; i++)
            parts[i] =
                (struct engine_part){.seq = &b->seqs[i],
                                     .ids = b->ids + (t + i) % SLICE,
                                     .n_ids = 1,
                                     .n_logits = 1,
                                     .logits = b->logits + (size_t)i * (size_t)b->info->n_vocab};
        r = engine_pass(b->en, parts, n_seqs, NULL, e);
    }
    return r;
}

/* Runs a work once from its depth. What lies beyond the depth from earlier works is overwritten. */
static int run_work(struct bench *b, struct bench_work *w, bool keep, struct err *e)
{
    for (int k = 0; k < w->batch; k++)
        b->seqs[k].n_tokens = w->depth;
    const int64_t start = clock_us();
    const int r = (w->is_decode ? decode : prefill)(b, w->n_tokens, w->batch, e);
    if (r == 0 && keep)
        w->tps[w->n_samples++] =
            (double)w->n_tokens * w->batch * 1e6 / (double)(clock_us() - start + 1);
    return r;
}

static int run(struct bench *b, struct err *e)
{
    int deepest = 0;
    int r = open_all(b, e);
    for (int i = 0; i < b->depths.n; i++)
        deepest = b->depths.v[i] > deepest ? b->depths.v[i] : deepest;
    if (r == 0)
        r = prefill(b, deepest, b->n_seqs, e);
    for (int i = 0; r == 0 && i < b->n_works; i++)
        r = run_work(b, &b->works[i], false, e);
    for (int round = 0; r == 0 && round < b->repeats; round++) {
        if (b->against)
            r = bench_against(b->against, b->works, b->n_works, round, e);
        for (int i = 0; r == 0 && i < b->n_works; i++)
            r = run_work(b, &b->works[i], true, e);
    }
    if (r < 0)
        return r;
    struct bench_report report = {.info = b->info,
                                  .peaks = b->peaks,
                                  .has_peaks = !b->no_peaks,
                                  .against = b->against,
                                  .works = b->works,
                                  .n_works = b->n_works};
    topology_own(&report.topology);
    return bench_report(&report, b->format, e);
}

int offline_bench(int argc, char **argv)
{
    struct bench b = {.prompts = {1, {512}},
                      .gens = {1, {64}},
                      .depths = {1, {0}},
                      .batches = {1, {1}},
                      .repeats = 5};
    struct err e = {0};
    const int status = parse(argc, argv, &b);
    if (status)
        return status - 1;
    thread_set_role(THREAD_WORKER); /* whose the KV blocks are */
    int r = plan_works(&b, &e);
    if (r == 0)
        r = hash_start(&e);
    if (r == 0)
        r = run(&b, &e);
    close_all(&b);
    if (r < 0)
        fprintf(stderr, "hearthd bench: %s\n", e.text);
    return r < 0;
}
