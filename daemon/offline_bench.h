/* Between the bench's files: what is measured (offline_bench.c), how it is told
 * (offline_bench_report.c), and another program's figures beside it (offline_bench_against.c). */
#ifndef HEARTH_DAEMON_OFFLINE_BENCH_H
#define HEARTH_DAEMON_OFFLINE_BENCH_H

#include <stdbool.h>

#include "base/json.h"
#include "engine/engine.h"
#include "engine/peaks.h"
#include "engine/topology.h"

#define BENCH_REPEATS_MAX 100
#define BENCH_LIST_MAX 16
#define BENCH_BATCH_MAX 64

enum bench_format { BENCH_TABLE, BENCH_JSON, BENCH_CSV };

/* One kind of work, and what its repetitions reached. */
struct bench_work {
    bool is_decode;
    int n_tokens, depth, batch;
    int n_samples;
    double tps[BENCH_REPEATS_MAX];    /* tokens/s of all sequences together, in order of time */
    double theirs[BENCH_REPEATS_MAX]; /* of the other program in the same round; 0: it has none */
    double limit_tps;                 /* what the machine's peaks allow */
};

struct bench_spread {
    double min, median, max;
};
/* Of n > 0 values, left as they are. */
struct bench_spread bench_spread_of(const double *values, int n);
/* Ours by theirs, round by round; false where the other program doesn't have this work. */
bool bench_ratio(const struct bench_work *w, struct bench_spread *ret);

struct bench_report {
    const struct engine_info *info;
    struct topology topology;
    struct peaks peaks;
    bool has_peaks;
    const char *against; /* the other program's command, or NULL */
    const struct bench_work *works;
    int n_works;
};
/* What is computed on, as lines for people, as JSON, and as the ends of CSV's head and rows. */
void bench_topology_print(const struct topology *t);
json *bench_topology_json(const struct topology *t);
extern const char bench_topology_csv_head[];
void bench_topology_csv(const struct topology *t);
/* Writes it to standard output; ERR_NOMEM, ERR_IO. */
int bench_report(const struct bench_report *r, enum bench_format format, struct err *e) MUST_USE;

/*
 * Runs `command` by the shell and takes its figures from the JSON that it prints: llama-bench's
 * `-o json`, an array, or `hearthd bench --format json`, both with n_prompt, n_gen, n_depth and
 * avg_ts in each entry. Those that match a work become its theirs[round]. ERR_IO: it could not be
 * run, failed, or said too much; ERR_INVAL: not such JSON; ERR_NOTFOUND: no entry matches any work.
 */
int bench_against(const char *command, struct bench_work *works, int n_works, int round,
                  struct err *e) MUST_USE;

#endif
