/* systemd. sd_notify's results are ignored on purpose: a service manager that doesn't listen
 * changes nothing here. */
#include "daemon/notify.h"

#include <stdatomic.h>
#include <sys/socket.h>
#include <systemd/sd-daemon.h>

#define LOADING_EXTRA_US "30000000" /* from each sign of progress on */

void notify_loading(int permille)
{
    sd_notifyf(0, "EXTEND_TIMEOUT_USEC=" LOADING_EXTRA_US "\nSTATUS=loading the model: %d %%",
               permille / 10);
}

void notify_ready(const char *status)
{
    sd_notifyf(0, "READY=1\nSTATUS=%s", status);
}

void notify_stopping(void)
{
    sd_notify(0, "STOPPING=1\nSTATUS=stopping");
}

void notify_failed(const char *why)
{
    sd_notifyf(0, "STATUS=failed: %s", why);
}

uint64_t notify_watchdog_us(void)
{
    uint64_t us = 0;
    return sd_watchdog_enabled(0, &us) > 0 ? us : 0;
}

void notify_watchdog(void)
{
    sd_notify(0, "WATCHDOG=1");
}

bool watchdog_check(struct watchdog *w, const struct counters *n, uint64_t worker, uint64_t history)
{
    bool worker_lives = worker != w->worker || atomic_load(&n->worker_parked);
    bool history_lives = history != w->history || atomic_load(&n->history_parked);
    if (!worker_lives || !history_lives)
        return false;
    w->worker = worker;
    w->history = history;
    return true;
}

int notify_listen_fds(struct err *e)
{
    int n = sd_listen_fds(1);
    return n >= 0 ? n : err_sys(e, -n, "LISTEN_FDS");
}

bool notify_is_unix_listener(int fd)
{
    return sd_is_socket_unix(fd, SOCK_STREAM, 1, NULL, 0) > 0;
}
