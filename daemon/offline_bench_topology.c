/*
 * The machine beside the bench's figures: sockets, cores, caches, and what of them the process may
 * use. What isn't known is left out of the table, null in JSON and empty in CSV.
 */
#include "daemon/offline_bench.h"

#include <stdio.h>

static const char *const cache_names[TOPOLOGY_CACHES] = {"l1d", "l2", "l3"};

static void print_bytes(int64_t bytes)
{
    if (bytes >= 1 << 20 && bytes % (1 << 20) == 0)
        printf("%lld MiB", (long long)(bytes >> 20));
    else
        printf("%lld KiB", (long long)(bytes >> 10));
}

void bench_topology_print(const struct topology *t)
{
    static const char *const names[TOPOLOGY_CACHES] = {"L1d", "L2", "L3"};
    if (t->n_cpus)
        printf("%d socket%s, %d core%s, %d CPU%s (up to %d a core)", t->n_sockets,
               t->n_sockets == 1 ? "" : "s", t->n_cores, t->n_cores == 1 ? "" : "s", t->n_cpus,
               t->n_cpus == 1 ? "" : "s", t->threads_per_core);
    else
        printf("cores unknown");
    printf("; may use %d CPU%s", t->n_allowed, t->n_allowed == 1 ? "" : "s");
    if (t->quota_cores > 0)
        printf(" and the time of %.2f", t->quota_cores);
    if (t->n_nodes)
        printf("; %d memory node%s", t->n_nodes, t->n_nodes == 1 ? "" : "s");
    for (int i = 0; i < TOPOLOGY_CACHES; i++) {
        if (!t->caches[i].bytes)
            continue;
        printf("; %s ", names[i]);
        print_bytes(t->caches[i].bytes);
        if (t->caches[i].shared_by > 1)
            printf(" for %d CPUs", t->caches[i].shared_by);
    }
    printf("\n");
}

/* 0 is null: not known. */
static void set_known(json *o, const char *key, int64_t n)
{
    if (n)
        json_set_int(o, key, n);
    else
        json_set_null(o, key);
}

json *bench_topology_json(const struct topology *t)
{
    json *o = json_object(), *caches = json_object();
    set_known(o, "sockets", t->n_sockets);
    set_known(o, "cores", t->n_cores);
    set_known(o, "cpus", t->n_cpus);
    set_known(o, "threads_per_core", t->threads_per_core);
    set_known(o, "allowed_cpus", t->n_allowed);
    if (t->quota_cores > 0)
        json_set_num(o, "quota_cores", t->quota_cores);
    else
        json_set_null(o, "quota_cores");
    set_known(o, "memory_nodes", t->n_nodes);
    for (int i = 0; i < TOPOLOGY_CACHES; i++) {
        json *c = json_object();
        set_known(c, "bytes", t->caches[i].bytes);
        set_known(c, "shared_by_cpus", t->caches[i].shared_by);
        json_set(caches, cache_names[i], c);
    }
    json_set(o, "caches", caches);
    return o;
}

const char bench_topology_csv_head[] =
    "sockets,cores,cpus,threads_per_core,allowed_cpus,quota_cores,memory_nodes,l1d_bytes,"
    "l1d_shared_by_cpus,l2_bytes,l2_shared_by_cpus,l3_bytes,l3_shared_by_cpus";

static void print_known(int64_t n)
{
    if (n)
        printf("%lld", (long long)n);
    putchar(',');
}

void bench_topology_csv(const struct topology *t)
{
    const struct topology_cache *last = &t->caches[TOPOLOGY_CACHES - 1];
    print_known(t->n_sockets);
    print_known(t->n_cores);
    print_known(t->n_cpus);
    print_known(t->threads_per_core);
    print_known(t->n_allowed);
    if (t->quota_cores > 0)
        printf("%.2f", t->quota_cores);
    putchar(',');
    print_known(t->n_nodes);
    for (const struct topology_cache *c = t->caches; c < last; c++) {
        print_known(c->bytes);
        print_known(c->shared_by);
    }
    print_known(last->bytes);
    if (last->shared_by)
        printf("%d", last->shared_by);
}
