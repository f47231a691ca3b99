/*
 * The bench's figures as a table for people, JSON or CSV for programs. Entries carry the names
 * that llama-bench uses (n_prompt, n_gen, n_depth, avg_ts, samples_ts), so that one reader does for
 * both.
 */
#include "daemon/offline_bench.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/json.h"

static int by_value(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

struct bench_spread bench_spread_of(const double *values, int n)
{
    double v[BENCH_REPEATS_MAX];
    memcpy(v, values, (size_t)n * sizeof *v);
    qsort(v, (size_t)n, sizeof *v, by_value);
    return (struct bench_spread){v[0], n % 2 ? v[n / 2] : (v[n / 2 - 1] + v[n / 2]) / 2, v[n - 1]};
}

bool bench_ratio(const struct bench_work *w, struct bench_spread *ret)
{
    double ratio[BENCH_REPEATS_MAX];
    int n = 0;
    for (int i = 0; i < w->n_samples; i++)
        if (w->theirs[i] > 0)
            ratio[n++] = w->tps[i] / w->theirs[i];
    if (n > 0)
        *ret = bench_spread_of(ratio, n);
    return n > 0;
}

/* The processor's own name, or the machine's kind. */
static void cpu_name(char *ret, size_t n)
{
    struct utsname u;
    char line[256];
    FILE *f = fopen("/proc/cpuinfo", "re");
    snprintf(ret, n, "%s", uname(&u) == 0 ? u.machine : "?");
    while (f && fgets(line, sizeof line, f)) {
        const char *value = strchr(line, ':');
        if (strncmp(line, "model name", 10) != 0 || !value)
            continue;
        snprintf(ret, n, "%.*s", (int)strcspn(value + 2, "\n"), value + 2);
        break;
    }
    if (f)
        fclose(f);
}

static double average(const struct bench_work *w)
{
    double sum = 0;
    for (int i = 0; i < w->n_samples; i++)
        sum += w->tps[i];
    return sum / w->n_samples;
}

static void write_table(const struct bench_report *r)
{
    const struct engine_info *i = r->info;
    char cpu[128];
    cpu_name(cpu, sizeof cpu);
    printf("%s, %s, %.1f M parameters, weights %.1f MB, KV %s, isa %s, %d threads\n", i->name,
           i->quant, (double)i->n_params * 1e-6, (double)i->weights_bytes * 1e-6,
           kv_type_name(i->kv.type), i->isa, i->n_threads);
    printf("%s, %ld CPUs", cpu, sysconf(_SC_NPROCESSORS_ONLN));
    if (r->has_peaks)
        printf("; reads %.1f GB/s, multiplies %.0f GOP/s (int8 by 4 bits), %.0f GFLOP/s",
               r->peaks.read_bytes_per_s * 1e-9, r->peaks.int_ops_per_s * 1e-9,
               r->peaks.float_ops_per_s * 1e-9);
    printf("\n");
    bench_topology_print(&r->topology);
    printf("\n%-10s %8s %8s %6s %10s %10s %10s", "work", "tokens", "depth", "batch", "min",
           "median", "max");
    printf("  tokens/s%s%s\n", r->has_peaks ? "   of the limit" : "",
           r->against ? "   ratio: min median max" : "");
    for (int k = 0; k < r->n_works; k++) {
        const struct bench_work *w = &r->works[k];
        const struct bench_spread s = bench_spread_of(w->tps, w->n_samples);
        struct bench_spread ratio;
        printf("%-10s %8d %8d %6d %10.1f %10.1f %10.1f", w->is_decode ? "decode" : "prefill",
               w->n_tokens, w->depth, w->batch, s.min, s.median, s.max);
        if (r->has_peaks)
            printf("  %19.0f %%", 100 * s.median / w->limit_tps);
        if (r->against && bench_ratio(w, &ratio))
            printf("  %.2f %.2f %.2f", ratio.min, ratio.median, ratio.max);
        printf("\n");
    }
}

static void add_spread(json *o, const char *prefix, struct bench_spread s)
{
    char key[32];
    snprintf(key, sizeof key, "%s_min", prefix);
    json_set_num(o, key, s.min);
    snprintf(key, sizeof key, "%s_median", prefix);
    json_set_num(o, key, s.median);
    snprintf(key, sizeof key, "%s_max", prefix);
    json_set_num(o, key, s.max);
}

static json *work_object(const struct bench_report *r, const struct bench_work *w)
{
    json *o = json_object(), *samples = json_array();
    struct bench_spread ratio;
    json_set_str(o, "work", w->is_decode ? "decode" : "prefill");
    json_set_int(o, "n_prompt", w->is_decode ? 0 : w->n_tokens);
    json_set_int(o, "n_gen", w->is_decode ? w->n_tokens : 0);
    json_set_int(o, "n_depth", w->depth);
    json_set_int(o, "batch", w->batch);
    json_set_num(o, "avg_ts", average(w));
    add_spread(o, "ts", bench_spread_of(w->tps, w->n_samples));
    for (int i = 0; i < w->n_samples; i++)
        json_add_num(samples, w->tps[i]);
    json_set(o, "samples_ts", samples);
    if (r->has_peaks)
        json_set_num(o, "limit_ts", w->limit_tps);
    if (r->against && bench_ratio(w, &ratio))
        add_spread(o, "ratio", ratio);
    return o;
}

static int write_json(const struct bench_report *r, struct err *e)
{
    const struct engine_info *i = r->info;
    struct buf b;
    char cpu[128];
    cpu_name(cpu, sizeof cpu);
    json *root = json_object(), *machine = json_object(), *model = json_object(),
         *results = json_array();
    json_set_str(machine, "cpu", cpu);
    json_set_int(machine, "n_cpus", sysconf(_SC_NPROCESSORS_ONLN));
    json_set(machine, "topology", bench_topology_json(&r->topology));
    if (r->has_peaks) {
        json_set_num(machine, "read_bytes_per_s", r->peaks.read_bytes_per_s);
        json_set_num(machine, "int_ops_per_s", r->peaks.int_ops_per_s);
        json_set_num(machine, "float_ops_per_s", r->peaks.float_ops_per_s);
    }
    json_set_str(model, "name", i->name);
    json_set_str(model, "quant", i->quant);
    json_set_int(model, "n_params", (int64_t)i->n_params);
    json_set_int(model, "weights_bytes", (int64_t)i->weights_bytes);
    json_set_str(root, "version", HEARTH_VERSION);
    json_set(root, "machine", machine);
    json_set(root, "model", model);
    json_set_str(root, "isa", i->isa);
    json_set_str(root, "kv_type", kv_type_name(i->kv.type));
    json_set_int(root, "n_threads", i->n_threads);
    if (r->against)
        json_set_str(root, "against", r->against);
    for (int k = 0; k < r->n_works; k++)
        json_add(results, work_object(r, &r->works[k]));
    json_set(root, "results", results);
    buf_init(&b, (size_t)16 << 20);
    json_write_pretty(root, &b);
    json_free(root);
    size_t n = 0;
    const int failed = buf_error(&b);
    char *text = failed ? NULL : buf_take(&b, &n);
    buf_done(&b);
    if (!text)
        return err_set(e, ERR_NOMEM, "no memory for the report");
    fwrite(text, 1, n, stdout);
    putchar('\n');
    free(text);
    return 0;
}

static void write_csv(const struct bench_report *r)
{
    printf("work,n_prompt,n_gen,n_depth,batch,ts_min,ts_median,ts_max,limit_ts,ratio_min,"
           "ratio_median,ratio_max,%s\n",
           bench_topology_csv_head);
    for (int k = 0; k < r->n_works; k++) {
        const struct bench_work *w = &r->works[k];
        const struct bench_spread s = bench_spread_of(w->tps, w->n_samples);
        struct bench_spread ratio;
        printf("%s,%d,%d,%d,%d,%.2f,%.2f,%.2f,", w->is_decode ? "decode" : "prefill",
               w->is_decode ? 0 : w->n_tokens, w->is_decode ? w->n_tokens : 0, w->depth, w->batch,
               s.min, s.median, s.max);
        if (r->has_peaks)
            printf("%.2f", w->limit_tps);
        if (r->against && bench_ratio(w, &ratio))
            printf(",%.3f,%.3f,%.3f,", ratio.min, ratio.median, ratio.max);
        else
            printf(",,,,");
        bench_topology_csv(&r->topology);
        printf("\n");
    }
}

int bench_report(const struct bench_report *r, enum bench_format format, struct err *e)
{
    int err = 0;
    if (format == BENCH_TABLE)
        write_table(r);
    else if (format == BENCH_CSV)
        write_csv(r);
    else
        err = write_json(r, e);
    if (err == 0 && fflush(stdout) != 0)
        err = err_set(e, ERR_IO, "standard output: %m");
    return err;
}
