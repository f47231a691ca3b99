/*
 * Topology from the system's files (engine/topology.h). It decides nothing: figures of speed are
 * told beside it, because two CPUs may be one core, and a cache everyone's.
 *
 *     sys/devices/system/cpu/online                          "0-7": as all lists of CPUs
 *     …/cpu/cpuN/topology/{physical_package_id,thread_siblings_list}
 *     …/cpu/cpuN/cache/indexI/{level,type,size,shared_cpu_list}    1, Data, 32K, 0,4
 *     sys/devices/system/node/online
 */
#include "engine/topology.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/cores.h"

#define PATH_BYTES 4352
#define TEXT_BYTES_MAX ((size_t)64 << 10)

struct reader {
    const char *root;
    struct buf text;
};

/* sys/devices/system/WHAT into r->text; NULL when it isn't there. */
static const char *read_sys(struct reader *r, const char *what)
{
    char path[PATH_BYTES];
    snprintf(path, sizeof path, "%s/sys/devices/system/%s", r->root, what);
    return cores_text(path, &r->text) ? r->text.data : NULL;
}

/* …/cpu/cpuN/WHAT */
static const char *read_cpu(struct reader *r, int cpu, const char *what)
{
    char path[256];
    snprintf(path, sizeof path, "cpu/cpu%d/%s", cpu, what);
    return read_sys(r, path);
}

/* "0-3,8" to a set. NULL: the empty one. What isn't a number ends it. */
static cpu_set_t parse_list(const char *text)
{
    cpu_set_t set;
    CPU_ZERO(&set);
    for (const char *p = text; p && *p;) {
        char *end;
        const long from = strtol(p, &end, 10);
        long to = from;
        if (end == p) {
            break;
        }
        if (*end == '-') {
            p = end + 1;
            to = strtol(p, &end, 10);
        }
        for (long i = from; i >= 0 && i <= to && i < CPU_SETSIZE; i++) {
            CPU_SET((size_t)i, &set);
        }
        p = *end == ',' ? end + 1 : "";
    }
    return set;
}

static int first_of(const cpu_set_t *set)
{
    int cpu = 0;
    while (cpu < CPU_SETSIZE && !CPU_ISSET((size_t)cpu, set)) {
        cpu++;
    }
    return cpu;
}

/* A core is counted at the first of its CPUs that is online, a socket at its first number. */
static void read_cores(struct reader *r, const cpu_set_t *online, struct topology *ret)
{
    cpu_set_t sockets;
    CPU_ZERO(&sockets);
    for (int cpu = 0; cpu < CPU_SETSIZE; cpu++) {
        if (!CPU_ISSET((size_t)cpu, online)) {
            continue;
        }
        const char *text = read_cpu(r, cpu, "topology/physical_package_id");
        const long socket = text ? strtol(text, NULL, 10) : 0;
        if (socket >= 0 && socket < CPU_SETSIZE) {
            CPU_SET((size_t)socket, &sockets);
        }
        cpu_set_t siblings = parse_list(read_cpu(r, cpu, "topology/thread_siblings_list"));
        CPU_AND(&siblings, &siblings, online);
        const int n = CPU_COUNT(&siblings);
        ret->n_cores += n == 0 || first_of(&siblings) == cpu;
        ret->threads_per_core = n > ret->threads_per_core ? n : ret->threads_per_core;
    }
    ret->n_sockets = CPU_COUNT(&sockets);
}

/* "32K" to bytes; 0: not a size. */
static int64_t parse_size(const char *text)
{
    char *end;
    const long long n = text ? strtoll(text, &end, 10) : 0;
    if (n <= 0 || n > INT64_MAX >> 20) {
        return 0;
    }
    return (int64_t)n << (*end == 'K' ? 10 : *end == 'M' ? 20 : 0);
}

static void read_caches(struct reader *r, int cpu, struct topology *ret)
{
    enum { INDEXES = 8 }; /* x86 has four */
    for (int i = 0; i < INDEXES; i++) {
        char what[64];
        snprintf(what, sizeof what, "cache/index%d/type", i);
        const char *text = read_cpu(r, cpu, what);
        if (!text || strcmp(text, "Instruction") == 0) {
            continue;
        }
        snprintf(what, sizeof what, "cache/index%d/level", i);
        text = read_cpu(r, cpu, what);
        const long level = text ? strtol(text, NULL, 10) : 0;
        if (level < 1 || level > TOPOLOGY_CACHES) {
            continue;
        }
        struct topology_cache *c = &ret->caches[level - 1];
        snprintf(what, sizeof what, "cache/index%d/size", i);
        c->bytes = parse_size(read_cpu(r, cpu, what));
        snprintf(what, sizeof what, "cache/index%d/shared_cpu_list", i);
        const cpu_set_t shared = parse_list(read_cpu(r, cpu, what));
        c->shared_by = CPU_COUNT(&shared);
    }
}

void topology_read(const char *root, const cpu_set_t *allowed, struct topology *ret)
{
    struct reader r = {.root = root};
    struct topology t = {.n_allowed = CPU_COUNT(allowed)};
    buf_init(&r.text, TEXT_BYTES_MAX);
    const cpu_set_t online = parse_list(read_sys(&r, "cpu/online"));
    t.n_cpus = CPU_COUNT(&online);
    read_cores(&r, &online, &t);
    read_caches(&r, first_of(allowed), &t);
    const cpu_set_t nodes = parse_list(read_sys(&r, "node/online"));
    t.n_nodes = CPU_COUNT(&nodes);
    const double quota = cores_quota(root);
    t.quota_cores = quota < CORES_MAX ? quota : 0;
    buf_done(&r.text);
    *ret = t;
}

void topology_own(struct topology *ret)
{
    cpu_set_t set;
    CPU_ZERO(&set);
    (void)sched_getaffinity(0, sizeof set, &set); /* none known: none allowed is told */
    topology_read("", &set, ret);
}
