/*
 * What becomes of a request: refused when its head is there, answered by the loop itself, or given
 * to the history thread when it is whole.
 */
#include "daemon/conn_impl.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/sys.h"
#include "daemon/limits.h"
#include "daemon/metrics.h"

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
    conn_answer_error(c, bad);
    if (c->state == CONN_READING)
        conn_arm(c, c->net->limits.body_ms);
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

/* TCP connections are counted by address when they come, and by their key's name once it is known.
 * */
static int check_key_limit(struct conn *c, struct http_error *bad)
{
    if (!c->is_tcp || strcmp(c->key_owner, c->pass.owner) == 0)
        return 0;
    if (c->pass.owner[0] &&
        conn_count_peer(c->net, c, c->pass.owner) >= c->net->limits.connections_peer) {
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

void conn_on_head(struct conn *c)
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
        conn_send(c, respond_continue, strlen(respond_continue));
    if (head->content_length > 0)
        conn_arm(c, net->limits.body_ms);
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
    conn_count_body(c, 0);
    if (c->has_eof && c->pass.route->kind == ROUTE_TURN) {
        c->state = CONN_DEAD; /* sent ahead by a client that has gone since: not begun */
        return;
    }
    /* Another request may have taken the last place while this one's body came. */
    if (check_state(c, &bad) < 0) {
        conn_answer_error(c, &bad);
        return;
    }
    struct request *r = make_request(c);
    if (!r) {
        http_error_set(&bad, 503, "out_of_memory", NULL, "out of memory");
        conn_answer_error(c, &bad);
        return;
    }
    c->cancel = cancel_ref(r->cancel);
    c->has_place = r->is_turn && sched_take(&net->sched);
    c->state = CONN_WAITING;
    conn_disarm(c);
    if (!mailbox_push(&net->d->history, &r->mail)) {
        request_free(r);
        http_error_set(&bad, 503, "stopping", NULL, "the daemon is stopping");
        conn_answer_error(c, &bad);
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
    conn_answer_buf(c, &r, &body);
}

void conn_on_request(struct conn *c)
{
    if (c->is_skipping) {
        /* Answered long ago; what follows is the next request. */
        c->is_skipping = false;
        c->pass = (struct gate_pass){0};
        http_next(c->http);
        c->state = CONN_IDLE;
        conn_arm(c, c->net->limits.idle_ms);
    } else if (c->pass.route && c->pass.route->kind != ROUTE_HEALTH &&
               c->pass.route->kind != ROUTE_METRICS) {
        give_to_history(c);
    } else {
        answer_own(c);
    }
}

/* Ceilings that depend on more than this request. */
void conn_check_ceilings(struct conn *c)
{
    size_t n = http_body_bytes(c->http);
    if (c->is_skipping) {
        if (n > c->net->limits.drain_bytes)
            conn_begin_closing(c);
        return;
    }
    conn_count_body(c, n);
    if (c->net->n_body_bytes <= c->net->limits.bodies_bytes)
        return;
    struct http_error bad;
    http_error_set(&bad, 503, "too_many_bodies", NULL,
                   "too many long requests are coming in at once");
    conn_answer_and_close(c, &bad);
}
