/*
 * Listening sockets: the Unix socket (ours, or systemd's), and TCP on loopback.
 *
 * The lock in the state directory is held before a socket is touched: of several daemons that start
 * at once one gets here. A socket file whose daemon is gone (connect: refused) is replaced;
 * anything else at that path — a daemon that answers, a full backlog, a regular file, a symbolic
 * link — is left as it is, and refused by name.
 */
#ifndef HEARTH_DAEMON_LISTEN_H
#define HEARTH_DAEMON_LISTEN_H

#include <stdbool.h>
#include <sys/types.h>

#include "base/err.h"

#define LISTENERS_MAX 8
/* A non-blocking connect to a Unix socket fails at once when this many wait: room for a crowd (the
 * system may allow less, net.core.somaxconn). */
#define LISTEN_BACKLOG 1024

struct listener {
    int fd;
    bool is_tcp;
    bool is_activated; /* systemd's: never unlinked */
    char name[128];    /* "unix:/run/…" or "127.0.0.1:8080", for the log */
    char *path;        /* Unix, ours: to be unlinked; else NULL */
    dev_t dev;         /* the socket file's identity when it was bound */
    ino_t ino;
};

/* Binds and listens at `path` with `mode` from the first instant; makes a missing parent directory
 * (0700). ERR_BUSY: a live daemon; ERR_INVAL: no socket there; ERR_LIMIT: too long a path. */
int listen_unix(const char *path, int mode, struct listener *ret, struct err *e) MUST_USE;
/* "127.0.0.1:8080", "localhost:8080", "[::1]:8080"; port 0: any (the name tells). ERR_INVAL when it
 * isn't loopback. */
int listen_tcp(const char *host_port, struct listener *ret, struct err *e) MUST_USE;
/* Whether listen_tcp could understand it; config's check. */
int listen_check(const char *host_port, struct err *e) MUST_USE;
/* The Unix stream sockets that systemd passed (LISTEN_FDS): how many, up to max. ERR_INVAL for
 * other kinds of socket. The environment variables are unset. */
int listen_activated(struct listener *ret, int max, int *ret_n, struct err *e) MUST_USE;
/* Closes; unlinks the socket file if it is still the one that was bound. */
void listen_done(struct listener *l);

#endif
