/*
 * Listening sockets. fchmod on a socket before bind gives the file its mode from the first instant
 * (Linux); umask would do it too, but is the process's.
 *
 * Finding out whether someone lives behind a socket file: a non-blocking connect. Refused means
 * that nobody listens — which is also what a socket says that is bound and doesn't listen yet, and
 * that is why the state directory's lock is taken before.
 */
#include "daemon/listen.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/file.h"
#include "base/paths.h"
#include "daemon/notify.h"

#define FIRST_ACTIVATED_FD 3 /* sd_listen_fds(3) */

static int new_socket(int family, struct err *e)
{
    int fd = socket(family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    return fd >= 0 ? fd : err_sys(e, errno, "socket");
}

/* 0: nobody listens there. */
static int check_dead(const struct sockaddr_un *a, const char *path, struct err *e)
{
    int fd = new_socket(AF_UNIX, e);
    if (fd < 0)
        return fd;
    int rc = connect(fd, (const struct sockaddr *)a, sizeof(*a));
    int why = errno;
    close(fd);
    if (rc < 0 && why == ECONNREFUSED)
        return 0;
    if (rc == 0 || why == EAGAIN)
        return err_set(e, ERR_BUSY, "socket %s: another daemon is listening there", path);
    return err_sys(e, why, "socket %s is there, and whether a daemon lives behind it can't be told",
                   path);
}

/* Removes a socket file that nobody listens on. */
static int clear_path(const struct sockaddr_un *a, const char *path, struct err *e)
{
    struct stat st;
    if (lstat(path, &st) < 0)
        return errno == ENOENT ? 0 : err_sys(e, errno, "socket %s", path);
    if (!S_ISSOCK(st.st_mode))
        return err_set(
            e, ERR_INVAL,
            "socket %s: there is something else by that name (no socket); it is left alone", path);
    int rc = check_dead(a, path, e);
    if (rc < 0)
        return rc;
    if (unlink(path) < 0 && errno != ENOENT)
        return err_sys(e, errno, "stale socket %s can't be removed", path);
    return 0;
}

static int make_parent(const char *path, struct err *e)
{
    char *copy = strdup(path);
    if (!copy)
        return err_set(e, ERR_NOMEM, "socket %s: out of memory", path);
    const char *dir = dirname(copy);
    struct stat st;
    int rc = 0;
    /* A directory that is there may be anyone's choice (/tmp, /run): only its making is ours. */
    if (stat(dir, &st) < 0 && errno == ENOENT)
        rc = dir_make_private(dir, e);
    free(copy);
    return rc;
}

static int bind_unix(int fd, const struct sockaddr_un *a, int mode, struct listener *ret,
                     struct err *e)
{
    if (fchmod(fd, (mode_t)mode) < 0 || bind(fd, (const struct sockaddr *)a, sizeof(*a)) < 0)
        return err_sys(e, errno, "socket %s", a->sun_path);
    struct stat st;
    /* chmod again: on file systems where the mode of the descriptor isn't the file's. */
    if (lstat(a->sun_path, &st) < 0 || (int)(st.st_mode & 0777) != mode) {
        if (chmod(a->sun_path, (mode_t)mode) < 0 || lstat(a->sun_path, &st) < 0)
            return err_sys(e, errno, "socket %s: mode %04o", a->sun_path, (unsigned)mode);
    }
    if (listen(fd, LISTEN_BACKLOG) < 0)
        return err_sys(e, errno, "listening on %s", a->sun_path);
    ret->dev = st.st_dev;
    ret->ino = st.st_ino;
    return 0;
}

int listen_unix(const char *path, int mode, struct listener *ret, struct err *e)
{
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    size_t n = strlen(path);
    if (n > SOCKET_PATH_MAX)
        return err_set(
            e, ERR_LIMIT,
            "socket path %s has %zu bytes, more than the %d that a Unix socket's name may have",
            path, n, SOCKET_PATH_MAX);
    if (n == 0)
        return err_set(e, ERR_INVAL, "socket: the path is empty");
    memcpy(a.sun_path, path, n + 1);
    struct listener l = {.fd = -1};
    int rc = make_parent(path, e);
    if (rc == 0)
        rc = clear_path(&a, path, e);
    if (rc < 0)
        return rc;
    l.path = strdup(path);
    if (!l.path)
        return err_set(e, ERR_NOMEM, "socket %s: out of memory", path);
    l.fd = new_socket(AF_UNIX, e);
    rc = l.fd < 0 ? l.fd : bind_unix(l.fd, &a, mode, &l, e);
    if (rc < 0) {
        if (l.fd >= 0)
            close(l.fd);
        free(l.path);
        return rc;
    }
    snprintf(l.name, sizeof(l.name), "unix:%s", path);
    *ret = l;
    return 0;
}

/* host[0, n): an address of loopback. */
static int parse_host(const char *host, size_t n, int port, struct sockaddr_storage *ret,
                      socklen_t *ret_len)
{
    char text[64];
    if (n >= sizeof(text))
        return ERR_INVAL;
    memcpy(text, host, n);
    text[n] = '\0';
    if (text[0] == '[' && text[n - 1] == ']') {
        text[n - 1] = '\0';
        struct sockaddr_in6 *a = (struct sockaddr_in6 *)ret;
        *a = (struct sockaddr_in6){.sin6_family = AF_INET6, .sin6_port = htons((uint16_t)port)};
        *ret_len = sizeof(*a);
        return inet_pton(AF_INET6, text + 1, &a->sin6_addr) == 1 &&
                       IN6_IS_ADDR_LOOPBACK(&a->sin6_addr)
                   ? 0
                   : ERR_INVAL;
    }
    struct sockaddr_in *a = (struct sockaddr_in *)ret;
    *a = (struct sockaddr_in){.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    *ret_len = sizeof(*a);
    const char *v4 = strcmp(text, "localhost") == 0 ? "127.0.0.1" : text;
    return inet_pton(AF_INET, v4, &a->sin_addr) == 1 && (ntohl(a->sin_addr.s_addr) >> 24) == 127
               ? 0
               : ERR_INVAL;
}

static int parse_host_port(const char *s, struct sockaddr_storage *ret, socklen_t *ret_len,
                           struct err *e)
{
    const char *colon = strrchr(s, ':');
    char *end = NULL;
    long port = colon && colon[1] >= '0' && colon[1] <= '9' ? strtol(colon + 1, &end, 10) : -1;
    if (port < 0 || port > 65535 || *end != '\0')
        return err_set(e, ERR_INVAL,
                       "listen \"%s\": HOST:PORT is wanted, with a port from 0 to 65535", s);
    *ret = (struct sockaddr_storage){0};
    if (colon == s || parse_host(s, (size_t)(colon - s), (int)port, ret, ret_len) < 0)
        return err_set(e, ERR_INVAL,
                       "listen \"%s\": only loopback is allowed: 127.x.x.x, localhost or [::1]", s);
    return 0;
}

int listen_check(const char *host_port, struct err *e)
{
    struct sockaddr_storage a;
    socklen_t n;
    return parse_host_port(host_port, &a, &n, e);
}

static void name_tcp(int fd, struct listener *l)
{
    struct sockaddr_storage a = {0};
    socklen_t n = sizeof(a);
    char host[INET6_ADDRSTRLEN] = "?";
    getsockname(fd, (struct sockaddr *)&a, &n);
    if (a.ss_family == AF_INET6) {
        const struct sockaddr_in6 *v6 = (const struct sockaddr_in6 *)&a;
        inet_ntop(AF_INET6, &v6->sin6_addr, host, sizeof(host));
        snprintf(l->name, sizeof(l->name), "[%s]:%u", host, ntohs(v6->sin6_port));
    } else {
        const struct sockaddr_in *v4 = (const struct sockaddr_in *)&a;
        inet_ntop(AF_INET, &v4->sin_addr, host, sizeof(host));
        snprintf(l->name, sizeof(l->name), "%s:%u", host, ntohs(v4->sin_port));
    }
}

int listen_tcp(const char *host_port, struct listener *ret, struct err *e)
{
    struct sockaddr_storage a;
    socklen_t n = 0;
    int rc = parse_host_port(host_port, &a, &n, e);
    if (rc < 0)
        return rc;
    int fd = new_socket(a.ss_family, e);
    if (fd < 0)
        return fd;
    int one = 1;
    /* Without it a restart within a minute is refused because of old connections. */
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
    if (bind(fd, (const struct sockaddr *)&a, n) < 0 || listen(fd, LISTEN_BACKLOG) < 0) {
        rc = errno == EADDRINUSE
                 ? err_set(e, ERR_BUSY, "listen %s: another program is listening there", host_port)
                 : err_sys(e, errno, "listen %s", host_port);
        close(fd);
        return rc;
    }
    *ret = (struct listener){.fd = fd, .is_tcp = true};
    name_tcp(fd, ret);
    return 0;
}

int listen_activated(struct listener *ret, int max, int *ret_n, struct err *e)
{
    int n = notify_listen_fds(e);
    if (n < 0)
        return n;
    if (n > max)
        return err_set(e, ERR_LIMIT, "systemd passed %d sockets; at most %d are taken", n, max);
    for (int i = 0; i < n; i++) {
        int fd = FIRST_ACTIVATED_FD + i;
        if (!notify_is_unix_listener(fd))
            return err_set(e, ERR_INVAL,
                           "systemd passed descriptor %d, which is no listening Unix stream socket "
                           "(TCP goes by --listen)",
                           fd);
        /* They come blocking. */
        int flags = fcntl(fd, F_GETFL);
        if (flags < 0 || fcntl(fd, F_SETFL, flags | O_NONBLOCK) < 0 ||
            fcntl(fd, F_SETFD, FD_CLOEXEC) < 0)
            return err_sys(e, errno, "descriptor %d from systemd", fd);
        struct sockaddr_un a = {0};
        socklen_t len = sizeof(a);
        getsockname(fd, (struct sockaddr *)&a, &len);
        ret[i] = (struct listener){.fd = fd, .is_activated = true};
        snprintf(ret[i].name, sizeof(ret[i].name), "unix:%.*s (from systemd)",
                 (int)sizeof(a.sun_path), a.sun_path);
    }
    *ret_n = n;
    return 0;
}

void listen_done(struct listener *l)
{
    if (l->fd < 0)
        return;
    struct stat st;
    /* Unlinked while the socket still listens and the lock is held: nobody else can have taken the
     * name as free. */
    if (l->path && lstat(l->path, &st) == 0 && S_ISSOCK(st.st_mode) && st.st_dev == l->dev &&
        st.st_ino == l->ino)
        unlink(l->path);
    close(l->fd);
    free(l->path);
    l->fd = -1;
    l->path = NULL;
}
