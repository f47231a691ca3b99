/*
 * From a path to a database of the newest version, or a refusal that leaves the file as it was.
 */
#ifndef HEARTH_MEMORY_MIGRATE_H
#define HEARTH_MEMORY_MIGRATE_H

#include "base/err.h"
#include "memory/db.h"

/* What the program knows: steps[i] leads from version i to i + 1. */
struct migrate_plan {
    const char *const *steps;
    int n_steps;
};

/*
 * Makes the file if it isn't there (0600 from its first instant), judges it before anything is
 * written to it, then runs the missing steps, each in one transaction, after a copy of the old
 * version was put beside it as "<path>.v<N>". ERR_UNSUPPORTED: a newer version, or another
 * program's database. ERR_CORRUPT: damaged. ERR_IO, ERR_BUSY, ERR_INVAL (not a regular file of
 * ours).
 */
int migrate_open(const char *path, const struct migrate_plan *plan, struct db **ret,
                 struct err *e) MUST_USE;

#endif
