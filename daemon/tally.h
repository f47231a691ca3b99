/*
 * What the models' caches hold, added up into the daemon's counters. Worker thread.
 */
#ifndef HEARTH_DAEMON_TALLY_H
#define HEARTH_DAEMON_TALLY_H

#include "daemon/daemon.h"
#include "daemon/host.h"

/* Sets d->n and what each host's model is said to hold. hub: the cache that has the disk tier.
 * Called before a model is announced, so that whoever finds it ready finds its numbers too. */
void tally(struct daemon *d, struct host *const *hosts, int n_hosts, const struct cache *hub);

#endif
