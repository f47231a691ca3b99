/* Talking to systemd (sd_notify, sd_listen_fds). Without systemd — no NOTIFY_SOCKET, no LISTEN_FDS
 * — nothing happens. */
#ifndef HEARTH_DAEMON_NOTIFY_H
#define HEARTH_DAEMON_NOTIFY_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "daemon/daemon.h"

void notify_loading(int permille); /* STATUS= with per cent, and more time to start */
void notify_ready(const char *status);
void notify_stopping(void);
void notify_failed(const char *why);

/* How often systemd wants to hear from us, in microseconds; 0: it doesn't. */
uint64_t notify_watchdog_us(void);

/*
 * The watchdog is fed only while work moves: the worker has made progress since the last time or is
 * parked, and so has the history thread or is it. A loop that still turns proves nothing by itself.
 */
struct watchdog {
    uint64_t worker, history; /* what they had done when it was last fed */
};
/* Whether it may be fed; `worker` and `history` are counts of work done. Pure but for *w. */
bool watchdog_check(struct watchdog *w, const struct counters *n, uint64_t worker,
                    uint64_t history);
void notify_watchdog(void);

/* Number of sockets passed by systemd, from descriptor 3 on; ERR_INVAL when the variables are
 * wrong. Unsets them. */
int notify_listen_fds(struct err *e);
bool notify_is_unix_listener(int fd);

#endif
