/*
 * What loop.c and conn.c share: the state of the network half. Everything here belongs to the loop
 * thread.
 *
 * Connections stand in a table; their number is (serial << 16) | slot, with a new serial for each
 * request, so that a late reply finds its own request or nothing. The slots beyond the limit exist
 * to say 503 to those who come too many.
 */
#ifndef HEARTH_DAEMON_NET_H
#define HEARTH_DAEMON_NET_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "daemon/daemon.h"
#include "daemon/listen.h"
#include "daemon/owner.h"
#include "daemon/request.h"
#include "daemon/sched.h"

struct event_base;
struct conn;

/* limits.h as a struct, so that tests can have short ones. */
struct net_limits {
    size_t header_bytes, body_bytes, drain_bytes, bodies_bytes, input_bytes, output_bytes;
    int header_ms, body_ms, idle_ms, stall_ms, linger_ms, flush_ms;
    int connections, connections_peer;
};
extern const struct net_limits net_limits_default;

/* For connections that are too many: each is told so, and read for linger_ms so that the answer
 * arrives. Beyond these they are closed without a word. */
#define NET_SPARE_SLOTS 256

struct net {
    struct daemon *d;
    struct net_limits limits;
    struct event_base *base;
    const struct keys *keys;
    void (*on_cancel)(struct daemon *d); /* a turn's cancel flag was set: wake who runs it. May
                                          * be NULL */

    struct sched sched;
    struct conn **conns; /* [limits.connections + NET_SPARE_SLOTS], NULL where free */
    int n_conns;         /* spare ones included */
    uint64_t serial;
    size_t n_body_bytes;                           /* of bodies that are coming in */
    uint64_t n_accepted, n_turned_away, n_dropped; /* for /metrics */
};

#endif
