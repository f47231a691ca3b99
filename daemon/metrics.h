/* What the loop answers by itself: /metrics (Prometheus text format 0.0.4) and /health. */
#ifndef HEARTH_DAEMON_METRICS_H
#define HEARTH_DAEMON_METRICS_H

#include "base/buf.h"
#include "daemon/net.h"

#define METRICS_BYTES (64 * 1024)

void metrics_write(const struct net *net, struct buf *b);
/* The body, and the status: 200 {"status":"ok",…}, or 503 with "loading" and the progress, "failed"
 * and the error, or "stopping". */
int health_write(const struct daemon *d, struct buf *b);

#endif
