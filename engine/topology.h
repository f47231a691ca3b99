/* What a process computes on: sockets, cores, caches, and how much of them it may use. */
#ifndef HEARTH_ENGINE_TOPOLOGY_H
#define HEARTH_ENGINE_TOPOLOGY_H

#include <sched.h>
#include <stdint.h>

#define TOPOLOGY_CACHES 3

struct topology_cache {
    int64_t bytes; /* 0: not known */
    int shared_by; /* CPUs */
};

/* A number that isn't known is 0. */
struct topology {
    int n_sockets, n_cores, n_cpus; /* online */
    int threads_per_core;           /* the most CPUs that any core has */
    int n_allowed;                  /* CPUs in the affinity */
    double quota_cores;             /* of the control groups, in cores; 0: no limit */
    int n_nodes;                    /* of memory (NUMA) */
    struct topology_cache caches[TOPOLOGY_CACHES]; /* L1 of data, L2, L3: the first allowed CPU's */
};

/* `root` is "" or, in tests, a directory that holds sys/ and proc/; `allowed` the affinity. */
void topology_read(const char *root, const cpu_set_t *allowed, struct topology *ret);
/* This process's. */
void topology_own(struct topology *ret);

#endif
