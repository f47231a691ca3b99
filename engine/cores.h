/* How many compute threads this process should have. */
#ifndef HEARTH_ENGINE_CORES_H
#define HEARTH_ENGINE_CORES_H

#include <sched.h>
#include <stdbool.h>

#include "base/buf.h"

#define CORES_MAX 1024

/*
 * Physical cores among the CPUs of `set` (hyper-threads of one core count once: they share the
 * units that a pass keeps busy), and not more than the CPU quota of this process's control groups,
 * v1 or v2, rounded down. At least 1, at most CORES_MAX. `root` is "" or, in tests, a directory
 * that holds sys/ and proc/. What can't be read doesn't limit.
 */
int cores_of(const char *root, const cpu_set_t *set);
/* The quota alone, in cores and parts of one; CORES_MAX: none. */
double cores_quota(const char *root);
/* A small file's text without its last newline into `ret`, which is filled anew; false when it
 * can't be read, or is empty. */
bool cores_text(const char *path, struct buf *ret);
/* cores_of for this process's own affinity. */
int cores_default(void);

#endif
