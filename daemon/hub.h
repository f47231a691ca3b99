/*
 * The hub: a cache without a model. It has the disk tier whatever models come and go, the pins of
 * all of them, and what is to be removed there. Worker thread.
 */
#ifndef HEARTH_DAEMON_HUB_H
#define HEARTH_DAEMON_HUB_H

#include "cache/cache.h"
#include "daemon/daemon.h"

/* With d->pins held. Without a disk tier, for whatever reason, there is a hub all the same. After
 * an error what is there is the caller's to free. */
int hub_open(struct daemon *d, struct kv_pool **ret_pool, struct cache **ret,
             struct err *e) MUST_USE;

#endif
