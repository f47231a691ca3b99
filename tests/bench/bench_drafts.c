/*
 * What drafts by look-up cost and bring: recorded answers (tests/daemon/streams.txt) are written
 * again with the real model, each slice of some tokens twice in turn, with drafts as the daemon
 * makes them and without, the order at random. The ids are those of the record, so both ways do
 * the same work at nearly the same moment; processor time of all threads and the clock's are summed
 * by kind of answer. Sampling, which is the same both ways, is left out.
 *
 *     bench_drafts MODEL [STREAMS] [--threads N] [--slice N] [--rounds N] [--kv f16|q8_0]
 *
 * A ratio above 1: drafts win. "passes": by count, each as expensive as the others.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "daemon/lookup.h"
#include "daemon/pace.h"
#include "engine/engine.h"
#include "tests/daemon/streams.h"

#define CHUNK 256
#define KINDS_MAX 64

struct times {
    double cpu, wall;
};

struct kind {
    char name[24];
    struct times on, off;
    double log_cpu, worst_cpu; /* over answers: sum of log of the ratio, least ratio */
    int n_answers, n_ids, n_drafted, n_accepted, n_passes;
};

static struct {
    struct engine *engine;
    struct kv_pool *pool;
    float *logits; /* [1 + LOOKUP_DRAFT_MAX, n_vocab] */
    struct pace pace;
    struct kind kinds[KINDS_MAX];
    int n_kinds;
    const char *model, *streams;
    int n_threads, slice, n_rounds;
    enum kv_type kv_type;
} b = {.n_threads = 2, .slice = 24, .n_rounds = 1};

static void die(const char *what)
{
    fprintf(stderr, "bench_drafts: %s\n", what);
    exit(1);
}

static double us_of(clockid_t clock)
{
    struct timespec t;
    clock_gettime(clock, &t);
    return (double)t.tv_sec * 1e6 + (double)t.tv_nsec / 1e3;
}

/* Its times, as the daemon measures them. */
static struct pace_pass pass(struct kv_seq *seq, const int32_t *ids, int n, int n_logits)
{
    struct err e;
    struct engine_part part = {
        .seq = seq, .ids = ids, .n_ids = n, .n_logits = n_logits, .logits = b.logits};
    const double t0 = us_of(CLOCK_MONOTONIC), cpu0 = us_of(CLOCK_PROCESS_CPUTIME_ID);
    if (engine_pass(b.engine, &part, 1, NULL, &e))
        die(e.text);
    return (struct pace_pass){.us = (int64_t)(us_of(CLOCK_MONOTONIC) - t0),
                              .cpu_us = (int64_t)(us_of(CLOCK_PROCESS_CPUTIME_ID) - cpu0),
                              .n_decoding = 1};
}

/* Rows [from, to) one by one. */
static void write_plain(struct kv_seq *seq, const struct stream *s, int to)
{
    while (seq->n_tokens < to) {
        const struct pace_pass p = pass(seq, s->ids + seq->n_tokens, 1, 1);
        pace_measure(&b.pace, &p);
    }
}

/* The same with drafts. `ids`: what the look-up has seen. */
static void write_drafted(struct kv_seq *seq, const struct stream *s, int to, struct lookup *l,
                          struct ids *ids, struct kind *k)
{
    while (seq->n_tokens < to) {
        int32_t rows[1 + LOOKUP_DRAFT_MAX];
        double cost[1 + LOOKUP_DRAFT_MAX];
        const int at = seq->n_tokens, left = to - at - 1;
        const bool is_known = pace_drafts(&b.pace, at, cost);
        rows[0] = s->ids[at];
        const int n = lookup_draft(l, ids, left < LOOKUP_DRAFT_MAX ? left : LOOKUP_DRAFT_MAX,
                                   is_known ? cost : NULL, rows + 1);
        struct pace_pass p = pass(seq, rows, 1 + n, 1 + n);
        int n_true = 0;
        while (n_true < n && rows[1 + n_true] == s->ids[at + 1 + n_true])
            n_true++;
        seq->n_tokens = at + 1 + n_true;
        /* Those that came true, and the one that is drawn behind them. */
        if (ids_add(ids, s->ids + at + 1, (size_t)n_true + 1))
            die("out of memory");
        p.n_drafts = n;
        p.answer_depth = at;
        pace_measure(&b.pace, &p);
        k->n_drafted += n;
        k->n_accepted += n_true;
        k->n_passes++;
    }
}

static struct kind *kind_of(const struct stream *s)
{
    char name[24];
    snprintf(name, sizeof name, "%.14s %.1f", s->kind, s->temperature);
    for (int i = 0; i < b.n_kinds; i++)
        if (strcmp(b.kinds[i].name, name) == 0)
            return &b.kinds[i];
    if (b.n_kinds == KINDS_MAX)
        die("too many kinds");
    struct kind *k = &b.kinds[b.n_kinds++];
    snprintf(k->name, sizeof k->name, "%s", name);
    k->worst_cpu = 1e9;
    return k;
}

static void add(struct times *t, double cpu, double wall)
{
    t->cpu += us_of(CLOCK_PROCESS_CPUTIME_ID) - cpu;
    t->wall += us_of(CLOCK_MONOTONIC) - wall;
}

static void answer(const struct stream *s, uint64_t name)
{
    struct lookup l;
    struct ids ids;
    struct kv_seq seq;
    struct err e;
    struct times on = {0}, off = {0};
    struct kind *k = kind_of(s);
    kv_seq_init(&seq);
    ids_init(&ids);
    lookup_init(&l, s->n);
    for (int i = 0; i <= s->n / KV_BLOCK; i++)
        if (kv_seq_push(&seq, kv_take(b.pool), &e))
            die(e.text);
    while (seq.n_tokens < s->n_prompt) {
        const int n = s->n_prompt - seq.n_tokens;
        pass(&seq, s->ids + seq.n_tokens, n < CHUNK ? n : CHUNK, 0);
    }
    if (ids_add(&ids, s->ids, (size_t)s->n_prompt + 1))
        die("out of memory");
    pace_begin(&b.pace, name, false);
    for (int at = s->n_prompt; at < s->n - 1; at += b.slice) {
        const int to = at + b.slice < s->n - 1 ? at + b.slice : s->n - 1;
        const int first = rand_r(&(unsigned){(unsigned)(at * 7919 + s->n + (int)name)}) & 1;
        for (int i = 0; i < 2; i++) {
            const bool is_on = i == first;
            seq.n_tokens = at;
            const double cpu = us_of(CLOCK_PROCESS_CPUTIME_ID), wall = us_of(CLOCK_MONOTONIC);
            if (is_on)
                write_drafted(&seq, s, to, &l, &ids, k);
            else
                write_plain(&seq, s, to);
            add(is_on ? &on : &off, cpu, wall);
        }
        k->n_ids += to - at;
    }
    k->on.cpu += on.cpu, k->on.wall += on.wall;
    k->off.cpu += off.cpu, k->off.wall += off.wall;
    k->log_cpu += log(off.cpu / on.cpu);
    k->worst_cpu = fmin(k->worst_cpu, off.cpu / on.cpu);
    k->n_answers++;
    printf("%-16s %5d ids: cpu %.3f clock %.3f\n", k->name, s->n - s->n_prompt,
           off.cpu / on.cpu, off.wall / on.wall);
    fflush(stdout);
    lookup_done(&l);
    ids_done(&ids);
    kv_seq_done(&seq);
}

static void report(void)
{
    printf("%-16s %7s %6s %8s %8s %7s %7s %7s %7s %7s\n", "answers", "number", "ids", "drafted",
           "accepted", "passes", "cpu", "clock", "g. mean", "least");
    for (int i = 0; i < b.n_kinds; i++) {
        const struct kind *k = &b.kinds[i];
        printf("%-16s %7d %6d %8.3f %8.3f %7.3f %7.3f %7.3f %7.3f %7.3f\n", k->name, k->n_answers,
               k->n_ids, (double)k->n_drafted / k->n_ids, (double)k->n_accepted / k->n_ids,
               (double)k->n_ids / k->n_passes, k->off.cpu / k->on.cpu, k->off.wall / k->on.wall,
               exp(k->log_cpu / k->n_answers), k->worst_cpu);
    }
    for (int d = 0; d < PACE_DEPTHS; d++) {
        printf("learned cost, depth class %d:", d);
        for (int n = 1; n <= LOOKUP_DRAFT_MAX; n++)
            printf(" %.2f", b.pace.drafts[d][n]);
        printf("\n");
    }
}

static void options(int argc, char **argv)
{
    for (int i = 1; i < argc; i++) {
        const char *value = i + 1 < argc ? argv[i + 1] : "";
        if (strncmp(argv[i], "--", 2) != 0) {
            *(b.model ? &b.streams : &b.model) = argv[i];
            continue;
        }
        i++;
        if (strcmp(argv[i - 1], "--threads") == 0)
            b.n_threads = (int)strtol(value, NULL, 10);
        else if (strcmp(argv[i - 1], "--slice") == 0)
            b.slice = (int)strtol(value, NULL, 10);
        else if (strcmp(argv[i - 1], "--rounds") == 0)
            b.n_rounds = (int)strtol(value, NULL, 10);
        else if (strcmp(argv[i - 1], "--kv") == 0 && kv_type_find(value, &b.kv_type))
            continue;
        else
            die("MODEL [STREAMS] [--threads N] [--slice N] [--rounds N] [--kv f16|q8_0]");
    }
    if (!b.model || b.slice < 1)
        die("no model");
    if (!b.streams)
        b.streams = "tests/daemon/streams.txt";
}

int main(int argc, char **argv)
{
    static struct streams streams;
    struct err e;
    int longest = 0;
    options(argc, argv);
    if (streams_read(&streams, b.streams))
        die("the streams can't be read");
    for (int i = 0; i < streams.n; i++)
        longest = streams.v[i].n > longest ? streams.v[i].n : longest;
    const struct engine_options o = {.model_path = b.model,
                                     .n_threads = b.n_threads,
                                     .n_ctx = longest + KV_BLOCK,
                                     .kv_type = b.kv_type};
    if (engine_open(&o, &b.engine, &e))
        die(e.text);
    const struct engine_info *info = engine_info(b.engine);
    b.logits = malloc((1 + LOOKUP_DRAFT_MAX) * (size_t)info->n_vocab * sizeof *b.logits);
    if (!b.logits || kv_pool_new(&info->kv, (size_t)(longest / KV_BLOCK + 2), &b.pool, &e))
        die("out of memory");
    for (int round = 0; round < b.n_rounds; round++)
        for (int i = 0; i < streams.n; i++)
            answer(&streams.v[i], (uint64_t)(1 + i + round * streams.n));
    report();
    streams_done(&streams);
    kv_pool_free(b.pool);
    engine_close(b.engine);
    free(b.logits);
    return 0;
}
