/*
 * Admission: how many turns may be running or waiting at once. Loop thread only.
 *
 * A place is taken when a request that makes a turn has come whole, and given back with its last
 * reply, or when its connection goes.
 */
#ifndef HEARTH_DAEMON_SCHED_H
#define HEARTH_DAEMON_SCHED_H

#include <stdbool.h>

struct sched {
    int parallel, queue; /* const */
    int n_places;        /* taken: running + queued */
};

void sched_init(struct sched *s, int parallel, int queue);
bool sched_is_full(const struct sched *s);
/* How many wait behind those that can run. */
int sched_queued(const struct sched *s);
/* true: a place is taken. */
bool sched_take(struct sched *s);
void sched_give_back(struct sched *s);

#endif
