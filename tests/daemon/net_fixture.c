/* The loop in a thread, a stub of the history thread in another, and a plain client of both. */
#include "tests/daemon/net_fixture.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <signal.h>
#include <strings.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/hash.h"
#include "base/log.h"
#include "daemon/limits.h"

#define CLIENT_S 60

static struct net_fixture *current; /* for on_cancel, which has only the daemon */

static void on_cancel(struct daemon *d)
{
    if (&current->d == d)
        sem_post(&current->canceled);
}

/* ---- the stub ---- */

static void hold(struct net_fixture *f, struct request *r, bool is_open)
{
    pthread_mutex_lock(&f->lock);
    assert_true(f->n_holds < (int)ARRAY_LEN(f->holds));
    f->is_open[f->n_holds] = is_open;
    f->holds[f->n_holds++] = r;
    pthread_mutex_unlock(&f->lock);
    sem_post(&f->held);
}

static void post_text(struct net_fixture *f, enum reply_kind kind, uint64_t conn, const char *text,
                      bool is_last)
{
    struct buf b;
    buf_init(&b, 1 << 24);
    buf_str(&b, text);
    if (is_last)
        reply_post_last(&f->d, kind, conn, 200, &b);
    else
        reply_post(&f->d, kind, conn, 200, &b);
}

static void stream(struct net_fixture *f, const struct request *r)
{
    int n = 0, size = 0;
    sscanf(r->body, "stream %d %d", &n, &size);
    post_text(f, REPLY_STREAM_BEGIN, r->conn, "data: begin\n\n", false);
    for (int i = 0; i < n && !atomic_load(&r->cancel->is_set); i++) {
        struct buf b;
        buf_init(&b, 1 << 24);
        buf_printf(&b, "data: %d ", i);
        while (b.len < (size_t)size)
            buf_char(&b, 'x');
        buf_str(&b, "\n\n");
        reply_post(&f->d, REPLY_STREAM_DATA, r->conn, 200, &b);
    }
    post_text(f, REPLY_STREAM_END, r->conn, "data: [DONE]\n\n", true);
}

static void echo(struct net_fixture *f, const struct request *r)
{
    struct buf b;
    buf_init(&b, 1 << 26);
    buf_printf(&b, "%s %s?%s %s ", r->method, r->path, r->query, r->owner);
    buf_add(&b, r->body, r->n_body);
    reply_post_last(&f->d, REPLY_WHOLE, r->conn, 200, &b);
}

static void answer(struct net_fixture *f, struct request *r)
{
    if (strcmp(r->body, "hold") == 0) {
        hold(f, r, false);
        return;
    }
    if (strcmp(r->body, "open") == 0) {
        post_text(f, REPLY_STREAM_BEGIN, r->conn, "data: begin\n\n", false);
        hold(f, r, true);
        return;
    }
    if (strncmp(r->body, "stream ", 7) == 0)
        stream(f, r);
    else
        echo(f, r);
    request_free(r);
}

static void *run_history(void *arg)
{
    struct net_fixture *f = arg;
    for (;;) {
        mailbox_wait(&f->d.history, -1);
        struct mail *m = mailbox_take(&f->d.history);
        while (m) {
            struct mail *next = m->next;
            if (m->kind == MAIL_STOP) {
                free(m);
                mailbox_close(&f->d.history);
                struct mail *done = calloc(1, sizeof(*done));
                done->kind = MAIL_STOPPED;
                assert_true(mailbox_push(&f->d.loop, done));
                return NULL;
            }
            answer(f, (struct request *)m);
            m = next;
        }
    }
}

static void *run_loop(void *arg)
{
    struct net_fixture *f = arg;
    f->loop_result = loop_run(f->loop);
    return NULL;
}

/* ---- life ---- */

void net_defaults(struct net_fixture *f)
{
    *f = (struct net_fixture){.limits = net_limits_default};
    f->config = (struct config){.socket_mode = 0600, .parallel = 4, .queue = 32};
    f->limits.linger_ms = 300;
}

void net_start(struct net_fixture *f)
{
    static const char key_text[] = "ann:0123456789abcdef\n";
    struct err e = {0};
    current = f;
    log_init(LOG_LEVEL_ERROR);
    signal(SIGPIPE, SIG_IGN); /* as main.c does */
    assert_int_equal(hash_start(&e), 0);
    snprintf(f->dir, sizeof(f->dir), "/tmp/hearth-net-XXXXXX");
    assert_non_null(mkdtemp(f->dir));
    snprintf(f->socket, sizeof(f->socket), "%s/s", f->dir);
    sem_init(&f->canceled, 0, 0);
    sem_init(&f->held, 0, 0);
    pthread_mutex_init(&f->lock, NULL);
    f->d.config = &f->config;
    atomic_store(&f->d.state, DAEMON_READY);
    assert_int_equal(mailbox_init(&f->d.loop, &e), 0);
    assert_int_equal(mailbox_init(&f->d.history, &e), 0);
    assert_int_equal(mailbox_init(&f->d.worker, &e), 0);
    assert_int_equal(keys_parse("keys", key_text, sizeof(key_text) - 1, &f->keys, &e), 0);
    assert_int_equal(listen_unix(f->socket, 0600, &f->listeners[0], &e), 0);
    assert_int_equal(listen_tcp("127.0.0.1:0", &f->listeners[1], &e), 0);
    f->port = (int)strtol(strrchr(f->listeners[1].name, ':') + 1, NULL, 10);
    struct loop_options o = {.d = &f->d,
                             .limits = f->limits,
                             .listeners = f->listeners,
                             .n_listeners = 2,
                             .keys = f->keys,
                             .n_threads = 1,
                             .on_cancel = on_cancel};
    if (loop_new(&o, &f->loop, &e) < 0)
        fail_msg("%s", e.text);
    pthread_create(&f->history_thread, NULL, run_history, f);
    pthread_create(&f->loop_thread, NULL, run_loop, f);
}

void net_stop(struct net_fixture *f)
{
    struct mail *stop = calloc(1, sizeof(*stop));
    stop->kind = MAIL_STOP;
    if (!mailbox_push(&f->d.loop, stop))
        free(stop);
    if (!f->has_joined_loop)
        pthread_join(f->loop_thread, NULL);
    pthread_join(f->history_thread, NULL);
    loop_free(f->loop);
    for (int i = 0; i < f->n_holds; i++)
        request_free(f->holds[i]);
    struct mailbox *boxes[] = {&f->d.loop, &f->d.history, &f->d.worker};
    for (size_t i = 0; i < 3; i++) {
        for (struct mail *m = mailbox_take(boxes[i]), *next; m; m = next) {
            next = m->next;
            if (m->kind == MAIL_REPLY)
                reply_free((struct reply *)m);
            else if (m->kind == MAIL_REQUEST)
                request_free((struct request *)m);
            else
                free(m);
        }
        mailbox_done(boxes[i]);
    }
    listen_done(&f->listeners[0]);
    listen_done(&f->listeners[1]);
    keys_free(f->keys);
    rmdir(f->dir);
}

void net_release(struct net_fixture *f)
{
    pthread_mutex_lock(&f->lock);
    for (int i = 0; i < f->n_holds; i++) {
        struct request *r = f->holds[i];
        post_text(f, f->is_open[i] ? REPLY_STREAM_END : REPLY_WHOLE, r->conn,
                  f->is_open[i] ? "data: [DONE]\n\n" : "released", true);
        request_free(r);
    }
    f->n_holds = 0;
    pthread_mutex_unlock(&f->lock);
}

static void wait_for(sem_t *s, const char *what)
{
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += CLIENT_S;
    while (sem_timedwait(s, &until) < 0)
        if (errno != EINTR)
            fail_msg("waited in vain: %s", what);
}

void net_wait_canceled(struct net_fixture *f)
{
    wait_for(&f->canceled, "a cancelled turn");
}

void net_wait_held(struct net_fixture *f)
{
    wait_for(&f->held, "a request to be held");
}

/* ---- the client ---- */

int net_socket(int family)
{
    int fd = socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    struct timeval tv = {.tv_sec = CLIENT_S};
    assert_true(fd >= 0);
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &tv, sizeof(tv));
    setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &tv, sizeof(tv));
    return fd;
}

void net_connect_fd(struct net_fixture *f, int fd)
{
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    snprintf(a.sun_path, sizeof(a.sun_path), "%s", f->socket);
    assert_int_equal(connect(fd, (struct sockaddr *)&a, sizeof(a)), 0);
}

int net_connect(struct net_fixture *f)
{
    int fd = net_socket(AF_UNIX);
    net_connect_fd(f, fd);
    return fd;
}

int net_connect_tcp(struct net_fixture *f)
{
    struct sockaddr_in a = {.sin_family = AF_INET,
                            .sin_port = htons((uint16_t)f->port),
                            .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int fd = net_socket(AF_INET);
    assert_int_equal(connect(fd, (struct sockaddr *)&a, sizeof(a)), 0);
    return fd;
}

void net_send_n(int fd, const char *data, size_t n)
{
    while (n > 0) {
        ssize_t done = send(fd, data, n, MSG_NOSIGNAL);
        if (done <= 0)
            return; /* the other side has closed: the test sees it when it reads */
        data += done;
        n -= (size_t)done;
    }
}

void net_send(int fd, const char *text)
{
    net_send_n(fd, text, strlen(text));
}

/* One byte: 1, 0 at EOF or reset. */
static int read_byte(int fd, char *c)
{
    ssize_t n = recv(fd, c, 1, 0);
    if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))
        fail_msg("no answer within %d s", CLIENT_S);
    return n > 0;
}

static bool read_line(int fd, struct buf *b)
{
    char c;
    while (read_byte(fd, &c)) {
        buf_char(b, c);
        if (c == '\n')
            return true;
    }
    return false;
}

static bool read_n(int fd, struct buf *b, size_t n)
{
    char piece[65536];
    while (n > 0) {
        ssize_t got = recv(fd, piece, n < sizeof(piece) ? n : sizeof(piece), 0);
        if (got <= 0)
            return false;
        buf_add(b, piece, (size_t)got);
        n -= (size_t)got;
    }
    return true;
}

static bool read_chunks(int fd, struct buf *body)
{
    for (;;) {
        struct buf line;
        buf_init(&line, 100);
        bool ok = read_line(fd, &line);
        size_t n = ok ? strtoul(line.data, NULL, 16) : 0;
        buf_done(&line);
        struct buf end;
        buf_init(&end, 100);
        ok = ok && read_n(fd, body, n) && read_line(fd, &end);
        buf_done(&end);
        if (!ok || n == 0)
            return ok;
    }
}

bool net_read(int fd, bool is_head, struct net_response *ret)
{
    struct buf head, body;
    *ret = (struct net_response){0};
    buf_init(&head, 1 << 16);
    buf_init(&body, 1 << 26);
    size_t before;
    bool ok;
    do {
        before = head.len;
        ok = read_line(fd, &head);
    } while (ok && head.len - before > 2);
    if (head.len == 0) {
        buf_done(&head);
        return false;
    }
    ret->is_cut = !ok;
    ret->status = (int)strtol(head.data + 9, NULL, 10);
    const char *length = strcasestr(head.data, "Content-Length: ");
    if (ok && !is_head && strcasestr(head.data, "Transfer-Encoding: chunked"))
        ret->is_cut = !read_chunks(fd, &body);
    else if (ok && !is_head && length)
        ret->is_cut = !read_n(fd, &body, strtoul(length + 16, NULL, 10));
    buf_add(&body, "", 0);
    ret->head = buf_take(&head, NULL);
    ret->body = buf_take(&body, &ret->n_body);
    return true;
}

void net_response_done(struct net_response *r)
{
    free(r->head);
    free(r->body);
    *r = (struct net_response){0};
}

char *net_ask(int fd, const char *request, int status)
{
    struct net_response r;
    net_send(fd, request);
    assert_true(net_read(fd, false, &r));
    if (r.status != status)
        fail_msg("%d instead of %d: %s%s", r.status, status, r.head, r.body);
    assert_false(r.is_cut);
    free(r.head);
    return r.body;
}

bool net_is_eof(int fd)
{
    char c;
    return !read_byte(fd, &c);
}

void net_post(int fd, const char *path, const char *body)
{
    struct buf b;
    buf_init(&b, 1 << 26);
    buf_printf(&b, "POST %s HTTP/1.1\r\nHost: localhost\r\nContent-Length: %zu\r\n\r\n", path,
               strlen(body));
    buf_str(&b, body);
    net_send_n(fd, b.data, b.len);
    buf_done(&b);
}

long long net_metric(struct net_fixture *f, const char *name)
{
    int fd = net_connect(f);
    char *text = net_ask(fd, "GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n", 200);
    close(fd);
    char line[128];
    snprintf(line, sizeof(line), "\n%s ", name);
    const char *at = strstr(text, line);
    long long v = at ? strtoll(at + strlen(line), NULL, 10) : -1;
    free(text);
    return v;
}
