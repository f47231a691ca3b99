/*
 * Connections: libevent's bufferevents below, http.c's requests above.
 *
 * Freeing is in one place: what goes wrong sets the state to CONN_DEAD, and the callback that
 * libevent or the loop made into this file frees the connection when it ends (reap). So no function
 * here has to ask whether its connection is still there.
 */
#include "daemon/conn_impl.h"

#include <event2/buffer.h>
#include <event2/bufferevent.h>
#include <event2/event.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/log.h"
#include "base/sys.h"
#include "daemon/limits.h"

/* The next request is looked at when less than this waits to be sent. */
#define BACKLOG_BYTES (64 * 1024)

const struct net_limits net_limits_default = {
    .header_bytes = LIMIT_HEADER_BYTES,
    .body_bytes = LIMIT_BODY_BYTES,
    .drain_bytes = LIMIT_DRAIN_BYTES,
    .bodies_bytes = LIMIT_BODIES_BYTES,
    .input_bytes = LIMIT_INPUT_BYTES,
    .output_bytes = LIMIT_OUTPUT_BYTES,
    .header_ms = LIMIT_HEADER_MS,
    .body_ms = LIMIT_BODY_MS,
    .idle_ms = LIMIT_IDLE_MS,
    .stall_ms = LIMIT_STALL_MS,
    .linger_ms = LIMIT_LINGER_MS,
    .flush_ms = 1000,
    .connections = LIMIT_CONNECTIONS,
    .connections_peer = LIMIT_CONNECTIONS_PEER,
};

static void process(struct conn *c);

static struct timeval timeval_of(int ms)
{
    return (struct timeval){.tv_sec = ms / 1000, .tv_usec = (ms % 1000) * 1000};
}

void conn_arm(struct conn *c, int ms)
{
    struct timeval tv = timeval_of(ms);
    event_add(c->timer, &tv);
}

void conn_disarm(struct conn *c)
{
    event_del(c->timer);
}

size_t conn_output_bytes(const struct conn *c)
{
    return evbuffer_get_length(bufferevent_get_output(c->bev));
}

static size_t input_bytes(const struct conn *c)
{
    return evbuffer_get_length(bufferevent_get_input(c->bev));
}

void conn_send(struct conn *c, const void *data, size_t n)
{
    if (n > 0 && bufferevent_write(c->bev, data, n) < 0)
        c->state = CONN_DEAD; /* out of memory: an answer with a hole must not look whole */
}

static void free_body(const void *data, size_t n, void *unused)
{
    (void)n;
    (void)unused;
    free((void *)(uintptr_t)data);
}

/* Takes body. */
void conn_send_owned(struct conn *c, char *body, size_t n)
{
    if (n == 0 ||
        evbuffer_add_reference(bufferevent_get_output(c->bev), body, n, free_body, NULL) < 0) {
        if (n > 0)
            c->state = CONN_DEAD;
        free(body);
    }
}

static void begin_linger(struct conn *c)
{
    c->state = c->has_eof ? CONN_DEAD : CONN_LINGER;
    shutdown(bufferevent_getfd(c->bev), SHUT_WR);
    conn_arm(c, c->net->limits.linger_ms);
}

void conn_begin_closing(struct conn *c)
{
    c->state = CONN_CLOSING;
    http_skip_body(c->http);
    conn_count_body(c, 0);
    event_del(c->timer);
    if (conn_output_bytes(c) == 0)
        begin_linger(c);
}

static void conn_free(struct conn *c)
{
    struct net *net = c->net;
    conn_cancel(c);
    conn_count_body(c, 0);
    if (net->conns[c->slot] == c) {
        net->conns[c->slot] = NULL;
        net->n_conns--;
    }
    if (c->timer)
        event_free(c->timer);
    if (c->bev)
        bufferevent_free(c->bev); /* closes the socket */
    http_free(c->http);
    free(c);
}

static void reap(struct conn *c)
{
    if (c->state == CONN_DEAD)
        conn_free(c);
}

/* One step of the parser over what has come. false: no bytes left. */
static bool step(struct conn *c)
{
    struct evbuffer *in = bufferevent_get_input(c->bev);
    struct evbuffer_iovec v;
    if (evbuffer_peek(in, -1, NULL, &v, 1) < 1 || v.iov_len == 0)
        return false;
    struct http_error bad;
    size_t used = 0;
    bool is_first = !http_has_begun(c->http);
    enum http_step s = http_push(c->http, v.iov_base, v.iov_len, &used, &bad);
    evbuffer_drain(in, used);
    if (is_first) {
        c->state = CONN_READING;
        conn_arm(c, c->net->limits.header_ms);
    }
    switch (s) {
    case HTTP_STEP_HEAD:
        conn_on_head(c);
        break;
    case HTTP_STEP_DONE:
        conn_on_request(c);
        break;
    case HTTP_STEP_BAD:
        /* A second answer to a request that was refused already would be taken for the next one's.
         * */
        if (c->is_skipping)
            conn_begin_closing(c);
        else
            conn_answer_and_close(c, &bad);
        break;
    case HTTP_STEP_MORE:
        conn_check_ceilings(c);
        break;
    }
    return true;
}

static void linger(struct conn *c)
{
    struct evbuffer *in = bufferevent_get_input(c->bev);
    c->n_lingered += evbuffer_get_length(in);
    evbuffer_drain(in, evbuffer_get_length(in));
    if (c->n_lingered > 2 * c->net->limits.body_bytes)
        c->state = CONN_DEAD;
}

/* Takes requests out of the input as far as that is possible now. */
static void process(struct conn *c)
{
    while ((c->state == CONN_IDLE || c->state == CONN_READING) &&
           conn_output_bytes(c) < BACKLOG_BYTES)
        if (!step(c))
            break;
    bool is_busy = c->state == CONN_WAITING || c->state == CONN_STREAMING;
    if (c->state == CONN_CLOSING || c->state == CONN_LINGER) {
        linger(c);
    } else if (is_busy && input_bytes(c) >= c->net->limits.input_bytes) {
        static struct log_limit lim = {.burst = 5};
        if (log_allowed(&lim))
            log_warn("%s: connection dropped: more than %zu bytes sent ahead during an answer",
                     c->peer, c->net->limits.input_bytes);
        c->net->n_dropped++;
        c->state = CONN_DEAD;
    } else if (c->has_eof && !is_busy && c->state != CONN_DEAD &&
               conn_output_bytes(c) < BACKLOG_BYTES) {
        conn_begin_closing(c); /* what is left is half a request */
    }
}

/* ---- libevent's callbacks ---- */

static void on_read(struct bufferevent *bev, void *arg)
{
    (void)bev;
    struct conn *c = arg;
    process(c);
    reap(c);
}

static void on_written(struct bufferevent *bev, void *arg)
{
    (void)bev;
    struct conn *c = arg;
    if (c->state == CONN_CLOSING && conn_output_bytes(c) == 0)
        begin_linger(c);
    else
        process(c);
    reap(c);
}

static void on_eof(struct conn *c)
{
    c->has_eof = true;
    switch (c->state) {
    case CONN_WAITING:
        if (c->has_place)
            c->state = CONN_DEAD;
        break;
    case CONN_STREAMING:
    case CONN_LINGER:
        c->state = CONN_DEAD;
        break;
    case CONN_CLOSING:
        break;
    default:
        process(c);
    }
}

static void on_event(struct bufferevent *bev, short what, void *arg)
{
    (void)bev;
    struct conn *c = arg;
    if (what & BEV_EVENT_EOF)
        on_eof(c);
    else if (what & (BEV_EVENT_ERROR | BEV_EVENT_TIMEOUT))
        c->state = CONN_DEAD;
    if ((what & BEV_EVENT_TIMEOUT) != 0) {
        c->net->n_dropped++;
        log_debug("%s: connection dropped: no byte was taken for %d ms", c->peer,
                  c->net->limits.stall_ms);
    }
    reap(c);
}

static void on_timer(evutil_socket_t fd, short what, void *arg)
{
    (void)fd;
    (void)what;
    struct conn *c = arg;
    struct http_error bad;
    if (c->state == CONN_IDLE && conn_output_bytes(c) > 0) {
        conn_arm(c,
                 c->net->limits
                     .idle_ms); /* a slow reader of the last answer: the stall limit watches it */
    } else if (c->state == CONN_READING && !c->is_skipping) {
        bool has_head = http_head(c->http)->method != NULL;
        http_error_set(&bad, 408, "request_timeout", NULL,
                       "the request's %s did not come within %d s", has_head ? "body" : "head",
                       (has_head ? c->net->limits.body_ms : c->net->limits.header_ms) / 1000);
        conn_answer_and_close(c, &bad);
    } else {
        c->state = CONN_DEAD;
    }
    reap(c);
}

/* ---- from the loop ---- */

int conn_count_peer(const struct net *net, const struct conn *c, const char *name)
{
    int n = 0;
    for (int i = 0; i < net->limits.connections + NET_SPARE_SLOTS; i++) {
        const struct conn *o = net->conns[i];
        if (o && o != c && !o->is_spare &&
            (strcmp(o->peer, name) == 0 || strcmp(o->key_owner, name) == 0))
            n++;
    }
    return n;
}

static int free_slot(const struct net *net, bool is_spare)
{
    int from = is_spare ? net->limits.connections : 0;
    int to = is_spare ? net->limits.connections + NET_SPARE_SLOTS : net->limits.connections;
    for (int i = from; i < to; i++)
        if (!net->conns[i])
            return i;
    return -1;
}

static void identify(struct conn *c, int fd, const struct listener *l, const char *tcp_peer)
{
    c->is_tcp = l->is_tcp;
    if (l->is_tcp) {
        int one = 1;
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
        snprintf(c->peer, sizeof(c->peer), "%s", tcp_peer);
        return;
    }
    struct err e = {0};
    uid_t uid = (uid_t)-1;
    if (owner_of_socket(fd, c->net->d->config->socket_mode, &uid, c->unix_owner, &e) < 0)
        snprintf(c->denied, sizeof(c->denied), "%s", e.text);
    snprintf(c->peer, sizeof(c->peer), "uid:%lu", (unsigned long)uid);
}

static bool set_up(struct conn *c, int fd)
{
    const struct net_limits *lim = &c->net->limits;
    struct http_limits http = {.header_bytes = lim->header_bytes, .body_bytes = lim->body_bytes};
    c->http = http_new(&http);
    c->timer = evtimer_new(c->net->base, on_timer, c);
    if (!c->http || !c->timer)
        return false;
    c->bev = bufferevent_socket_new(c->net->base, fd, BEV_OPT_CLOSE_ON_FREE);
    if (!c->bev)
        return false;
    struct timeval stall = timeval_of(lim->stall_ms);
    bufferevent_setcb(c->bev, on_read, on_written, on_event, c);
    bufferevent_setwatermark(c->bev, EV_READ, 0, lim->input_bytes);
    bufferevent_setwatermark(c->bev, EV_WRITE, BACKLOG_BYTES / 2, 0);
    bufferevent_set_timeouts(c->bev, NULL, &stall);
    return bufferevent_enable(c->bev, EV_READ | EV_WRITE) == 0;
}

static void turn_away(struct conn *c, const char *why)
{
    c->net->n_turned_away++;
    struct http_error bad;
    http_error_set(&bad, 503, "too_many_connections", NULL, "%s", why);
    conn_answer_and_close(c, &bad);
}

void conn_open(struct net *net, int fd, const struct listener *l, const char *tcp_peer)
{
    struct conn *c = sys.malloc(sizeof(*c));
    if (!c) {
        close(fd);
        return;
    }
    *c = (struct conn){.net = net, .state = CONN_IDLE};
    identify(c, fd, l, tcp_peer);
    bool is_peer_full = conn_count_peer(net, c, c->peer) >= net->limits.connections_peer;
    c->slot = is_peer_full ? -1 : free_slot(net, false);
    c->is_spare = c->slot < 0;
    if (c->is_spare)
        c->slot = free_slot(net, true);
    if (c->slot < 0) { /* not even room to say so */
        net->n_turned_away++;
        free(c);
        close(fd);
        return;
    }
    net->conns[c->slot] = c;
    net->n_conns++;
    net->n_accepted++;
    if (!set_up(c, fd)) {
        if (!c->bev)
            close(fd);
        c->state = CONN_DEAD;
    } else if (c->is_spare) {
        turn_away(c, is_peer_full ? "you have too many connections already"
                                  : "the daemon has too many connections");
    } else {
        conn_arm(c, net->limits.idle_ms);
    }
    reap(c);
}

static struct conn *find(const struct net *net, uint64_t number)
{
    int slot = (int)(number & 0xffff);
    if (slot >= net->limits.connections + NET_SPARE_SLOTS)
        return NULL;
    struct conn *c = net->conns[slot];
    bool is_waiting = c && (c->state == CONN_WAITING || c->state == CONN_STREAMING);
    return is_waiting && c->number == number ? c : NULL;
}

void conn_reply(struct net *net, struct reply *r)
{
    struct conn *c = find(net, r->conn);
    if (c) {
        if (r->ends_turn && c->has_place) {
            sched_give_back(&net->sched);
            c->has_place = false;
        }
        conn_answer_reply(c, r);
        process(c);
        reap(c);
    }
    reply_free(r);
}

#define EACH_CONN(net, i) for (int i = 0; i < (net)->limits.connections + NET_SPARE_SLOTS; i++)

void conn_fail_all(struct net *net, const struct http_error *error)
{
    EACH_CONN(net, i)
    {
        struct conn *c = net->conns[i];
        if (!c)
            continue;
        if (c->state == CONN_WAITING)
            conn_answer_and_close(c, error);
        else if (c->state == CONN_STREAMING)
            conn_fail_stream(c, error);
        reap(c);
    }
}

void conn_stop_all(struct net *net)
{
    struct http_error bad;
    http_error_set(&bad, 503, "stopping", NULL, "the daemon is stopping");
    EACH_CONN(net, i)
    {
        struct conn *c = net->conns[i];
        if (!c)
            continue;
        c->keep_alive = false;
        if (c->state == CONN_IDLE && conn_output_bytes(c) == 0)
            c->state = CONN_DEAD;
        else if (c->state == CONN_IDLE || (c->state == CONN_READING && c->is_skipping))
            conn_begin_closing(c);
        else if (c->state == CONN_READING)
            conn_answer_and_close(c, &bad);
        reap(c);
    }
}

bool conn_any_pending(const struct net *net)
{
    EACH_CONN(net, i)
    {
        const struct conn *c = net->conns[i];
        if (c &&
            (c->state == CONN_WAITING || c->state == CONN_STREAMING || conn_output_bytes(c) > 0))
            return true;
    }
    return false;
}

void conn_free_all(struct net *net)
{
    EACH_CONN(net, i)
    if (net->conns[i])
        conn_free(net->conns[i]);
}
