/*
 * Memory pressure: what the kernel says of it (PSI), and what the cache gives up for it. Worker
 * thread, but for the pure parts.
 *
 *     some avg10=12.34 avg60=3.20 avg300=0.71 total=8123456
 *          └ percent of the last ten seconds in which somebody waited for memory
 *
 *     avg10   ▁▁▂▅▇▇▆▄▃▂▁▁▁▁▁      above PRESSURE_SOME_PERCENT and not falling: one in
 *     cache   ██████▅▄▄▄▄▄▅▆██      PRESSURE_GIVE_DIVISOR of the cached blocks goes; falling: it
 *                                   waits; below: the ceiling rises again
 *
 * The file is read every PRESSURE_MS, and only while there is something to give: a daemon that
 * holds nothing sleeps. (Triggers by poll need privileges on the kernels of Debian 12.)
 */
#ifndef HEARTH_DAEMON_PRESSURE_H
#define HEARTH_DAEMON_PRESSURE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "cache/cache.h"
#include "daemon/daemon.h"

#define PRESSURE_PATH_BYTES 4200

/* The `some avg10` of a PSI file's text, in percent. ERR_INVAL: it isn't one. */
int pressure_parse(const char *text, size_t n, double *ret, struct err *e) MUST_USE;

enum pressure_level { PRESSURE_LOW, PRESSURE_EASING, PRESSURE_HIGH };
/* By avg10 now and PRESSURE_MS ago. */
enum pressure_level pressure_judge(double before, double now);

/* The file that counts for us: memory.pressure of the cgroup (version 2) that the text of
 * /proc/self/cgroup names, below sys_root ("/sys/fs/cgroup"), when it can be read, else
 * `fallback`. */
void pressure_find(const char *proc_self_cgroup, const char *sys_root, const char *fallback,
                   char ret[PRESSURE_PATH_BYTES]);

struct pressure {
    char path[PRESSURE_PATH_BYTES]; /* "": there is none */
    double avg10;                   /* when it was last read */
    int64_t due_us;                 /* when it is to be read next, if there is something to give */
    bool is_squeezed;               /* the cache has given, and its ceiling isn't gone yet */
};

/* path: NULL for the system's own; tests have another. */
void pressure_init(struct pressure *p, const char *path);
/* Milliseconds until pressure_tend wants to read; -1: not while there is nothing to give. */
int pressure_due_ms(const struct pressure *p, const struct cache *c);
/* Reads the file when it is time, and has the cache give or grow. Counts into n. */
void pressure_tend(struct pressure *p, struct cache *c, struct counters *n);

#endif
