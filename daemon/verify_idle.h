/*
 * Verifying when nothing runs: of the blocks that were read from disk, one in `verify-every` is
 * computed again from its predecessors as found (cache.h, "Samples"), VERIFY_IDLE_MS after the last
 * turn. A turn that comes interrupts the pass, which is made again later. When there is no sample,
 * nothing is done and nobody is woken. Worker thread only.
 */
#ifndef HEARTH_DAEMON_VERIFY_IDLE_H
#define HEARTH_DAEMON_VERIFY_IDLE_H

#include "base/ids.h"
#include "cache/cache.h"
#include "daemon/daemon.h"

struct idle_verifier {
    struct daemon *d;
    struct engine *engine;
    struct cache *cache;
    struct cache_sample sample;
    struct ids ids; /* up to the sample's end */
    bool has_sample;
    int64_t idle_since_us; /* 0: turns run */
};

/* Engine and cache are borrowed. */
void idle_verifier_init(struct idle_verifier *v, struct daemon *d, struct engine *engine,
                        struct cache *cache);
/* Before waiting for mail. */
void idle_verifier_note(struct idle_verifier *v, bool is_batch_idle);
/* Milliseconds until a step does something, 0: now, -1: not before something else happens. */
int idle_verifier_due_ms(const struct idle_verifier *v);
/* At most one pass; d->pass_abort was cleared before the mail was taken. Does nothing while it
 * isn't due. */
void idle_verifier_step(struct idle_verifier *v);
void idle_verifier_stop(struct idle_verifier *v);

#endif
