/*
 * Cores from affinity, topology and control groups (engine/cores.h).
 *
 *     sys/devices/system/cpu/cpuN/topology/thread_siblings_list
 *         "0,4": the same text on every hyper-thread of a core
 *     proc/self/cgroup
 *         v2  "0::/path"             → sys/fs/cgroup/path/cpu.max: "200000 100000", "max 100000"
 *         v1  "4:cpu,cpuacct:/path"  → sys/fs/cgroup/cpu,cpuacct/path/cpu.cfs_{quota,period}_us
 *
 * A quota binds at any level, so each ancestor is looked at. In a container the path may be the
 * host's while the mount shows only the container's part; then the walk up ends at the mount's
 * root, which is the container's own group.
 */
#include "engine/cores.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/file.h"

#define PATH_BYTES 4352
#define TEXT_BYTES_MAX ((size_t)64 << 10)

bool cores_text(const char *path, struct buf *ret)
{
    buf_clear(ret);
    if (file_read(path, ret, NULL) || !ret->len) {
        return false;
    }
    if (ret->data[ret->len - 1] == '\n') {
        ret->data[--ret->len] = '\0';
    }
    return true;
}

/* "QUOTA PERIOD" in microseconds to cores; CORES_MAX for "max", −1 or nonsense. */
static double quota_cores(const char *quota, const char *period)
{
    char *end;
    const long long q = strtoll(quota, &end, 10);
    if (end == quota || q <= 0) {
        return CORES_MAX;
    }
    const long long p = strtoll(period, &end, 10);
    if (end == period || p <= 0) {
        return CORES_MAX;
    }
    const double n = (double)q / (double)p;
    return n > CORES_MAX ? CORES_MAX : n;
}

/* One group's limit: v2 when `controller` is NULL, else v1 under that mount's name. */
static double group_cores(const char *root, const char *controller, const char *group,
                          struct buf *text)
{
    char path[PATH_BYTES], quota[64];
    if (!controller) {
        snprintf(path, sizeof path, "%s/sys/fs/cgroup%s/cpu.max", root, group);
        const char *space = cores_text(path, text) ? strchr(text->data, ' ') : NULL;
        return space ? quota_cores(text->data, space + 1) : CORES_MAX;
    }
    snprintf(path, sizeof path, "%s/sys/fs/cgroup/%s%s/cpu.cfs_quota_us", root, controller, group);
    if (!cores_text(path, text)) {
        return CORES_MAX;
    }
    snprintf(quota, sizeof quota, "%s", text->data);
    snprintf(path, sizeof path, "%s/sys/fs/cgroup/%s%s/cpu.cfs_period_us", root, controller, group);
    return cores_text(path, text) ? quota_cores(quota, text->data) : CORES_MAX;
}

/* The least of a group and its ancestors. */
static double chain_cores(const char *root, const char *controller, const char *path,
                          struct buf *text)
{
    char group[2048];
    double least = CORES_MAX;
    if (strlen(path) >= sizeof group || strstr(path, "..")) {
        return CORES_MAX;
    }
    snprintf(group, sizeof group, "%s", strcmp(path, "/") ? path : "");
    for (;;) {
        const double n = group_cores(root, controller, group, text);
        least = n < least ? n : least;
        char *slash = strrchr(group, '/');
        if (!slash) {
            return least;
        }
        *slash = '\0';
    }
}

/* Whether "cpu" is one of the comma-separated controllers. */
static bool has_cpu(const char *controllers)
{
    for (const char *c = controllers; *c;) {
        const size_t n = strcspn(c, ",");
        if (n == 3 && !memcmp(c, "cpu", 3)) {
            return true;
        }
        c += n + (c[n] == ',');
    }
    return false;
}

double cores_quota(const char *root)
{
    char path[PATH_BYTES];
    struct buf list, text;
    double least = CORES_MAX;
    buf_init(&list, TEXT_BYTES_MAX);
    buf_init(&text, TEXT_BYTES_MAX);
    snprintf(path, sizeof path, "%s/proc/self/cgroup", root);
    char *next = cores_text(path, &list) ? list.data : NULL;
    while (next && *next) {
        char *line = next, *end = strchr(line, '\n');
        next = end ? end + 1 : NULL;
        if (end) {
            *end = '\0';
        }
        char *controllers = strchr(line, ':'),
             *group = controllers ? strchr(controllers + 1, ':') : NULL;
        if (!group || group[1] != '/') {
            continue;
        }
        *group++ = '\0';
        controllers++;
        const bool is_v2 = !*controllers && !strncmp(line, "0:", 2);
        if (is_v2 || has_cpu(controllers)) {
            const double n = chain_cores(root, is_v2 ? NULL : controllers, group, &text);
            least = n < least ? n : least;
        }
    }
    buf_done(&list);
    buf_done(&text);
    return least;
}

/* A core is counted at the first of its hyper-threads that is in the set. */
static int physical_cores(const char *root, const cpu_set_t *set)
{
    char path[PATH_BYTES];
    char(*seen)[64] = calloc(CPU_SETSIZE, sizeof *seen);
    struct buf text;
    int n = 0;
    if (!seen) {
        return 1;
    }
    buf_init(&text, TEXT_BYTES_MAX);
    for (int cpu = 0; cpu < CPU_SETSIZE; cpu++) {
        if (!CPU_ISSET(cpu, set)) {
            continue;
        }
        snprintf(path, sizeof path, "%s/sys/devices/system/cpu/cpu%d/topology/thread_siblings_list",
                 root, cpu);
        const bool is_known = cores_text(path, &text) && text.len < sizeof *seen;
        int i = 0;
        while (is_known && i < n && strcmp(seen[i], text.data) != 0) {
            i++;
        }
        if (!is_known || i == n) {
            snprintf(seen[n++], sizeof *seen, "%s", is_known ? text.data : "");
        }
    }
    buf_done(&text);
    free(seen);
    return n;
}

int cores_of(const char *root, const cpu_set_t *set)
{
    const int cores = physical_cores(root, set), quota = (int)cores_quota(root),
              n = quota < cores ? quota : cores;
    return n < 1 ? 1 : n > CORES_MAX ? CORES_MAX : n;
}

int cores_default(void)
{
    cpu_set_t set;
    CPU_ZERO(&set);
    if (sched_getaffinity(0, sizeof set, &set)) {
        return 1;
    }
    return cores_of("", &set);
}
