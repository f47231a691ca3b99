/*
 * Connections: libevent's bufferevents below, http.c's requests above.
 *
 * Freeing is in one place: what goes wrong sets the state to CONN_DEAD, and the callback that
 * libevent or the loop made into this file frees the connection when it ends (reap). So no function
 * here has to ask whether its connection is still there.
 */
#include "daemon/conn.h"

#include <assert.h>
#include <errno.h>
#include <event2/buffer.h>
#include <event2/bufferevent.h>
#include <event2/event.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/json.h"
#include "base/log.h"
#include "base/sys.h"
#include "daemon/gate.h"
#include "daemon/http.h"
#include "daemon/limits.h"
#include "daemon/metrics.h"
#include "daemon/respond.h"

#define BACKLOG_BYTES                                                                              \
    (64 * 1024) /* the next request is looked at when less than this waits to be sent */
#define ERROR_BODY_BYTES 8192

enum conn_state {
    CONN_IDLE,
    CONN_READING,
    CONN_WAITING,
    CONN_STREAMING,
    CONN_CLOSING,
    CONN_LINGER,
    CONN_DEAD
};

struct conn {
    struct net *net;
    struct bufferevent *bev;
    struct event *timer;
    uint64_t number; /* of the current request */
    int slot;
    enum conn_state state;

    bool is_tcp;
    char peer[OWNER_BYTES];       /* counted for the limit a peer */
    char unix_owner[OWNER_BYTES]; /* Unix: "uid:N", or "" */
    char denied[ERR_TEXT_BYTES];  /* Unix: why not, or "" */
    char key_owner[OWNER_BYTES];  /* TCP: of the last request's key */
    bool is_spare;                /* one too many: gets a 503 and goes */

    struct http *http;
    struct gate_pass pass;
    bool is_skipping; /* this request has had its answer; its body is dropped */
    bool has_eof;
    bool keep_alive; /* after the current answer */
    bool is_head, can_stream;
    bool has_place;   /* in net->sched */
    size_t n_counted; /* of the body, in net->n_body_bytes */
    size_t n_lingered;
    struct cancel *cancel;
};

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

static void arm(struct conn *c, int ms)
{
    struct timeval tv = timeval_of(ms);
    event_add(c->timer, &tv);
}

static size_t output_bytes(const struct conn *c)
{
    return evbuffer_get_length(bufferevent_get_output(c->bev));
}

static size_t input_bytes(const struct conn *c)
{
    return evbuffer_get_length(bufferevent_get_input(c->bev));
}

/* Counts what this connection's body holds in memory. */
static void count_body(struct conn *c, size_t n)
{
    c->net->n_body_bytes += n - c->n_counted;
    c->n_counted = n;
}

/* The request is over: its place is free, nobody works for it any more. */
static void end_request(struct conn *c)
{
    if (c->has_place)
        sched_give_back(&c->net->sched);
    c->has_place = false;
    cancel_unref(c->cancel);
    c->cancel = NULL;
}

/* The client has gone: whoever works for it is told. */
static void cancel_request(struct conn *c)
{
    if (!c->cancel)
        return;
    bool is_turn = c->has_place;
    atomic_store(&c->cancel->is_set, 1);
    end_request(c);
    if (!is_turn)
        return;
    atomic_fetch_add(&c->net->d->n.canceled, 1);
    if (c->net->on_cancel)
        c->net->on_cancel(c->net->d);
}

static void conn_free(struct conn *c)
{
    struct net *net = c->net;
    cancel_request(c);
    count_body(c, 0);
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

/* ---- sending ---- */

static void send_bytes(struct conn *c, const void *data, size_t n)
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
static void send_owned(struct conn *c, char *body, size_t n)
{
    if (n == 0 ||
        evbuffer_add_reference(bufferevent_get_output(c->bev), body, n, free_body, NULL) < 0) {
        if (n > 0)
            c->state = CONN_DEAD;
        free(body);
    }
}

static void send_head(struct conn *c, struct respond *r)
{
    struct buf head;
    buf_init(&head, RESPOND_HEAD_BYTES);
    r->keep_alive = c->keep_alive;
    r->now = time(NULL);
    r->cors_origin = c->pass.is_cors ? c->net->d->config->cors_origin : NULL;
    respond_head(r, &head);
    if (buf_error(&head))
        c->state = CONN_DEAD;
    else
        send_bytes(c, head.data, head.len);
    buf_done(&head);
    struct counters *n = &c->net->d->n;
    if (r->status >= 500)
        atomic_fetch_add(&n->errors_5xx, 1);
    else if (r->status >= 400)
        atomic_fetch_add(&n->errors_4xx, 1);
    if (r->status == 503)
        atomic_fetch_add(&n->refused_503, 1);
}

static void begin_linger(struct conn *c)
{
    c->state = c->has_eof ? CONN_DEAD : CONN_LINGER;
    shutdown(bufferevent_getfd(c->bev), SHUT_WR);
    arm(c, c->net->limits.linger_ms);
}

static void begin_closing(struct conn *c)
{
    c->state = CONN_CLOSING;
    http_skip_body(c->http);
    count_body(c, 0);
    event_del(c->timer);
    if (output_bytes(c) == 0)
        begin_linger(c);
}

/* After the last byte of an answer: on to the next request, or the end. */
static void finish_answer(struct conn *c)
{
    end_request(c);
    if (c->state == CONN_DEAD)
        return;
    if (!c->keep_alive) {
        begin_closing(c);
        return;
    }
    if (c->is_skipping) {
        c->state = CONN_READING; /* its body is still to come */
        return;
    }
    http_next(c->http);
    c->state = CONN_IDLE;
    arm(c, c->net->limits.idle_ms);
}

/* Takes body (may be NULL: n is 0). */
static void answer_whole(struct conn *c, struct respond *r, char *body, size_t n)
{
    r->length = n;
    send_head(c, r);
    if (c->is_head || c->state == CONN_DEAD)
        free(body);
    else
        send_owned(c, body, n);
    finish_answer(c);
}

static void answer_buf(struct conn *c, struct respond *r, struct buf *body)
{
    size_t n = 0;
    if (buf_error(body)) {
        c->state = CONN_DEAD; /* out of memory for a few hundred bytes */
        buf_done(body);
        finish_answer(c);
        return;
    }
    char *bytes = buf_take(body, &n);
    answer_whole(c, r, bytes, n);
}

static void answer_error(struct conn *c, const struct http_error *bad)
{
    struct buf body;
    buf_init(&body, ERROR_BODY_BYTES);
    http_error_write(bad, &body);
    struct respond r = {.status = bad->status,
                        .retry_after_s = bad->status == 503 ? LIMIT_RETRY_AFTER_S : 0,
                        .allow = c->pass.allow,
                        .wants_key = c->pass.wants_key};
    answer_buf(c, &r, &body);
}

/* The error is the last thing that this connection hears. */
static void answer_and_close(struct conn *c, const struct http_error *bad)
{
    c->keep_alive = false;
    answer_error(c, bad);
}

static void send_chunk(struct conn *c, const char *data, size_t n)
{
    if (n == 0)
        return;
    char size[24];
    int len = snprintf(size, sizeof(size), "%zx\r\n", n);
    send_bytes(c, size, (size_t)len);
    send_bytes(c, data, n);
    send_bytes(c, "\r\n", 2);
}

static void end_stream(struct conn *c)
{
    send_bytes(c, "0\r\n\r\n", 5);
    finish_answer(c);
}

/* ---- requests ---- */

/* An answer before the body has come: the body is dropped if it is short, else the connection
 * closes after the answer. */
static void refuse_early(struct conn *c, const struct http_error *bad)
{
    const struct http_head *head = http_head(c->http);
    /* Whether a client that waits for 100 will send its body after a refusal can't be known; a
     * chunked body's length neither. */
    if (head->expects_continue || head->content_length > c->net->limits.drain_bytes)
        c->keep_alive = false;
    http_skip_body(c->http);
    c->is_skipping = true;
    answer_error(c, bad);
    if (c->state == CONN_READING)
        arm(c, c->net->limits.body_ms);
}

static int check_state(struct conn *c, struct http_error *bad)
{
    struct net *net = c->net;
    const struct route *route = c->pass.route;
    int state = atomic_load(&net->d->state);
    if (!route || route->kind == ROUTE_HEALTH || route->kind == ROUTE_METRICS)
        return 0;
    if (state == DAEMON_STOPPING) {
        http_error_set(bad, 503, "stopping", NULL, "the daemon is stopping");
        return -1;
    }
    if (state == DAEMON_FAILED) {
        http_error_set(bad, 503, "model_failed", NULL, "the model could not be loaded: %s",
                       net->d->load_error);
        return -1;
    }
    if (route->kind == ROUTE_TURN && sched_is_full(&net->sched)) {
        http_error_set(
            bad, 503, "queue_full", NULL,
            "the queue is full: %d turns are running, and %d of at most %d wait; try again in %d s",
            net->sched.n_places - sched_queued(&net->sched), sched_queued(&net->sched),
            net->sched.queue, LIMIT_RETRY_AFTER_S);
        return -1;
    }
    return 0;
}

static int count_peer(const struct net *net, const struct conn *c, const char *name)
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

/* TCP connections are counted by address when they come, and by their key's name once it is known.
 * */
static int check_key_limit(struct conn *c, struct http_error *bad)
{
    if (!c->is_tcp || strcmp(c->key_owner, c->pass.owner) == 0)
        return 0;
    if (c->pass.owner[0] &&
        count_peer(c->net, c, c->pass.owner) >= c->net->limits.connections_peer) {
        c->keep_alive = false;
        http_error_set(bad, 503, "too_many_connections", NULL, "%s has %d connections already",
                       c->pass.owner, c->net->limits.connections_peer);
        return -1;
    }
    snprintf(c->key_owner, sizeof(c->key_owner), "%s", c->pass.owner);
    return 0;
}

static uint64_t next_number(struct conn *c)
{
    return ++c->net->serial << 16 | (uint64_t)c->slot;
}

static void on_head(struct conn *c)
{
    struct net *net = c->net;
    const struct http_head *head = http_head(c->http);
    c->number = next_number(c);
    c->is_head = strcmp(head->method, "HEAD") == 0;
    c->can_stream = head->minor == 1;
    c->keep_alive = head->keep_alive && atomic_load(&net->d->state) != DAEMON_STOPPING;
    atomic_fetch_add(&net->d->n.requests, 1);

    struct gate gate = {.is_tcp = c->is_tcp,
                        .keys = net->keys,
                        .cors_origin = net->d->config->cors_origin,
                        .unix_owner = c->unix_owner,
                        .denied = c->denied};
    struct http_error bad;
    if (gate_check(&gate, head, &c->pass, &bad) < 0 || check_key_limit(c, &bad) < 0 ||
        check_state(c, &bad) < 0) {
        refuse_early(c, &bad);
        return;
    }
    if (head->expects_continue)
        send_bytes(c, respond_continue, strlen(respond_continue));
    if (head->content_length > 0)
        arm(c, net->limits.body_ms);
}

/* NULL: no memory. */
static struct request *make_request(struct conn *c)
{
    const struct http_head *head = http_head(c->http);
    struct request *r = sys.malloc(sizeof(*r));
    if (!r)
        return NULL;
    *r = (struct request){.mail = {.kind = MAIL_REQUEST},
                          .conn = c->number,
                          .can_stream = c->can_stream,
                          .is_turn = c->pass.route->kind == ROUTE_TURN,
                          .t_arrived_us = clock_us()};
    snprintf(r->method, sizeof(r->method), "%s", c->is_head ? "GET" : head->method);
    r->path = strdup(head->path);
    r->query = strdup(head->query);
    r->owner = strdup(c->pass.owner);
    r->body = http_take_body(c->http, &r->n_body);
    r->cancel = cancel_new();
    if (r->path && r->query && r->owner && r->body && r->cancel)
        return r;
    request_free(r);
    return NULL;
}

static void give_to_history(struct conn *c)
{
    struct net *net = c->net;
    struct http_error bad;
    count_body(c, 0);
    if (c->has_eof && c->pass.route->kind == ROUTE_TURN) {
        c->state = CONN_DEAD; /* sent ahead by a client that has gone since: not begun */
        return;
    }
    /* Another request may have taken the last place while this one's body came. */
    if (check_state(c, &bad) < 0) {
        answer_error(c, &bad);
        return;
    }
    struct request *r = make_request(c);
    if (!r) {
        http_error_set(&bad, 503, "out_of_memory", NULL, "out of memory");
        answer_error(c, &bad);
        return;
    }
    c->cancel = cancel_ref(r->cancel);
    c->has_place = r->is_turn && sched_take(&net->sched);
    c->state = CONN_WAITING;
    event_del(c->timer);
    if (!mailbox_push(&net->d->history, &r->mail)) {
        request_free(r);
        http_error_set(&bad, 503, "stopping", NULL, "the daemon is stopping");
        answer_error(c, &bad);
    }
}

static void answer_own(struct conn *c)
{
    struct respond r = {.status = 200};
    struct buf body;
    buf_init(&body, METRICS_BYTES);
    if (!c->pass.route) {
        r.status = 204;
        r.allow = c->pass.allow;
    } else if (c->pass.route->kind == ROUTE_HEALTH) {
        r.status = health_write(c->net->d, &body);
        r.retry_after_s = r.status == 503 ? LIMIT_RETRY_AFTER_S : 0;
    } else {
        r.content_type = "text/plain; version=0.0.4";
        metrics_write(c->net, &body);
    }
    answer_buf(c, &r, &body);
}

static void on_request(struct conn *c)
{
    if (c->is_skipping) {
        /* Answered long ago; what follows is the next request. */
        c->is_skipping = false;
        c->pass = (struct gate_pass){0};
        http_next(c->http);
        c->state = CONN_IDLE;
        arm(c, c->net->limits.idle_ms);
    } else if (c->pass.route && c->pass.route->kind != ROUTE_HEALTH &&
               c->pass.route->kind != ROUTE_METRICS) {
        give_to_history(c);
    } else {
        answer_own(c);
    }
}

/* Ceilings that depend on more than this request. */
static void check_ceilings(struct conn *c)
{
    size_t n = http_body_bytes(c->http);
    if (c->is_skipping) {
        if (n > c->net->limits.drain_bytes)
            begin_closing(c);
        return;
    }
    count_body(c, n);
    if (c->net->n_body_bytes <= c->net->limits.bodies_bytes)
        return;
    struct http_error bad;
    http_error_set(&bad, 503, "too_many_bodies", NULL,
                   "too many long requests are coming in at once");
    answer_and_close(c, &bad);
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
        arm(c, c->net->limits.header_ms);
    }
    switch (s) {
    case HTTP_STEP_HEAD:
        on_head(c);
        break;
    case HTTP_STEP_DONE:
        on_request(c);
        break;
    case HTTP_STEP_BAD:
        /* A second answer to a request that was refused already would be taken for the next one's.
         * */
        if (c->is_skipping)
            begin_closing(c);
        else
            answer_and_close(c, &bad);
        break;
    case HTTP_STEP_MORE:
        check_ceilings(c);
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
    while ((c->state == CONN_IDLE || c->state == CONN_READING) && output_bytes(c) < BACKLOG_BYTES)
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
    } else if (c->has_eof && !is_busy && c->state != CONN_DEAD && output_bytes(c) < BACKLOG_BYTES) {
        begin_closing(c); /* what is left is half a request */
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
    if (c->state == CONN_CLOSING && output_bytes(c) == 0)
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
    if (c->state == CONN_IDLE && output_bytes(c) > 0) {
        arm(c, c->net->limits
                   .idle_ms); /* a slow reader of the last answer: the stall limit watches it */
    } else if (c->state == CONN_READING && !c->is_skipping) {
        bool has_head = http_head(c->http)->method != NULL;
        http_error_set(&bad, 408, "request_timeout", NULL,
                       "the request's %s did not come within %d s", has_head ? "body" : "head",
                       (has_head ? c->net->limits.body_ms : c->net->limits.header_ms) / 1000);
        answer_and_close(c, &bad);
    } else {
        c->state = CONN_DEAD;
    }
    reap(c);
}

/* ---- from the loop ---- */

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
    answer_and_close(c, &bad);
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
    bool is_peer_full = count_peer(net, c, c->peer) >= net->limits.connections_peer;
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
        arm(c, net->limits.idle_ms);
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

static void check_backlog(struct conn *c)
{
    if (c->state != CONN_STREAMING || output_bytes(c) <= c->net->limits.output_bytes)
        return;
    static struct log_limit lim = {.burst = 5};
    if (log_allowed(&lim))
        log_warn("%s: connection dropped: %zu bytes of an answer wait to be read", c->peer,
                 output_bytes(c));
    c->net->n_dropped++;
    c->state = CONN_DEAD;
}

static void begin_stream(struct conn *c)
{
    struct respond r = {.status = 200, .content_type = "text/event-stream", .is_chunked = true};
    send_head(c, &r);
    if (c->state != CONN_DEAD)
        c->state = CONN_STREAMING;
}

static void answer_reply(struct conn *c, struct reply *r)
{
    bool is_lost = !r->body && r->status >= 500; /* it didn't fit into memory */
    struct http_error bad;
    if (c->state == CONN_STREAMING && (r->kind == REPLY_WHOLE || is_lost)) {
        c->state = CONN_DEAD; /* without the last chunk: the client sees that it was cut */
    } else if (is_lost || (r->kind == REPLY_STREAM_BEGIN && !c->can_stream)) {
        http_error_set(&bad, 500, NULL, NULL, "%s",
                       is_lost ? "out of memory" : "HTTP/1.0 can't stream");
        answer_and_close(c, &bad);
    } else if (r->kind == REPLY_WHOLE) {
        struct respond head = {.status = r->status,
                               .content_type = r->content_type,
                               .retry_after_s = r->retry_after_s};
        char *body = r->body;
        r->body = NULL;
        answer_whole(c, &head, body, body ? r->n_body : 0);
    } else {
        if (c->state == CONN_WAITING)
            begin_stream(c);
        send_chunk(c, r->body, r->n_body);
        if (r->kind == REPLY_STREAM_END && c->state != CONN_DEAD)
            end_stream(c);
        check_backlog(c);
    }
}

void conn_reply(struct net *net, struct reply *r)
{
    struct conn *c = find(net, r->conn);
    if (c) {
        if (r->ends_turn && c->has_place) {
            sched_give_back(&net->sched);
            c->has_place = false;
        }
        answer_reply(c, r);
        process(c);
        reap(c);
    }
    reply_free(r);
}

/* A stream's last event. The chat format has bare data lines, Responses names its events: an error
 * event is understood by both. */
static void fail_stream(struct conn *c, const struct http_error *error)
{
    struct buf body;
    buf_init(&body, ERROR_BODY_BYTES);
    buf_str(&body, "data: ");
    http_error_write(error, &body);
    buf_str(&body, "\n\n");
    c->keep_alive = false;
    if (buf_error(&body)) {
        c->state = CONN_DEAD;
    } else {
        send_chunk(c, body.data, body.len);
        end_stream(c);
    }
    buf_done(&body);
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
            answer_and_close(c, error);
        else if (c->state == CONN_STREAMING)
            fail_stream(c, error);
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
        if (c->state == CONN_IDLE && output_bytes(c) == 0)
            c->state = CONN_DEAD;
        else if (c->state == CONN_IDLE || (c->state == CONN_READING && c->is_skipping))
            begin_closing(c);
        else if (c->state == CONN_READING)
            answer_and_close(c, &bad);
        reap(c);
    }
}

bool conn_any_pending(const struct net *net)
{
    EACH_CONN(net, i)
    {
        const struct conn *c = net->conns[i];
        if (c && (c->state == CONN_WAITING || c->state == CONN_STREAMING || output_bytes(c) > 0))
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
