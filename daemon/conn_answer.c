/*
 * What a connection says: whole answers, errors, streams. After each answer the connection goes on
 * to its next request or closes (finish_answer).
 */
#include "daemon/conn_impl.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/log.h"
#include "daemon/limits.h"

#define ERROR_BODY_BYTES 8192

/* Counts what this connection's body holds in memory. */
void conn_count_body(struct conn *c, size_t n)
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
void conn_cancel(struct conn *c)
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
        conn_send(c, head.data, head.len);
    buf_done(&head);
    struct counters *n = &c->net->d->n;
    if (r->status >= 500)
        atomic_fetch_add(&n->errors_5xx, 1);
    else if (r->status >= 400)
        atomic_fetch_add(&n->errors_4xx, 1);
    if (r->status == 503)
        atomic_fetch_add(&n->refused_503, 1);
}

/* After the last byte of an answer: on to the next request, or the end. */
static void finish_answer(struct conn *c)
{
    end_request(c);
    if (c->state == CONN_DEAD)
        return;
    if (!c->keep_alive) {
        conn_begin_closing(c);
        return;
    }
    if (c->is_skipping) {
        c->state = CONN_READING; /* its body is still to come */
        return;
    }
    http_next(c->http);
    c->state = CONN_IDLE;
    conn_arm(c, c->net->limits.idle_ms);
}

/* Takes body (may be NULL: n is 0). */
static void answer_whole(struct conn *c, struct respond *r, char *body, size_t n)
{
    r->length = n;
    send_head(c, r);
    if (c->is_head || c->state == CONN_DEAD)
        free(body);
    else
        conn_send_owned(c, body, n);
    finish_answer(c);
}

void conn_answer_buf(struct conn *c, struct respond *r, struct buf *body)
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

void conn_answer_error(struct conn *c, const struct http_error *bad)
{
    struct buf body;
    buf_init(&body, ERROR_BODY_BYTES);
    http_error_write(bad, &body);
    struct respond r = {.status = bad->status,
                        .retry_after_s = bad->status == 503 ? LIMIT_RETRY_AFTER_S : 0,
                        .allow = c->pass.allow,
                        .wants_key = c->pass.wants_key};
    conn_answer_buf(c, &r, &body);
}

/* The error is the last thing that this connection hears. */
void conn_answer_and_close(struct conn *c, const struct http_error *bad)
{
    c->keep_alive = false;
    conn_answer_error(c, bad);
}

static void send_chunk(struct conn *c, const char *data, size_t n)
{
    if (n == 0)
        return;
    char size[24];
    int len = snprintf(size, sizeof(size), "%zx\r\n", n);
    conn_send(c, size, (size_t)len);
    conn_send(c, data, n);
    conn_send(c, "\r\n", 2);
}

static void end_stream(struct conn *c)
{
    conn_send(c, "0\r\n\r\n", 5);
    finish_answer(c);
}

static void check_backlog(struct conn *c)
{
    if (c->state != CONN_STREAMING || conn_output_bytes(c) <= c->net->limits.output_bytes)
        return;
    static struct log_limit lim = {.burst = 5};
    if (log_allowed(&lim))
        log_warn("%s: connection dropped: %zu bytes of an answer wait to be read", c->peer,
                 conn_output_bytes(c));
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

/* Sends the stream's last event, and frees it. */
static void end_stream_with(struct conn *c, struct buf *event)
{
    buf_str(event, "\n\n");
    if (buf_error(event)) {
        c->state = CONN_DEAD;
    } else {
        send_chunk(c, event->data, event->len);
        end_stream(c);
    }
    buf_done(event);
}

/* The error of a stream that began before anything could be wrong: while its model was loaded. Both
 * formats' readers know a bare {"error": …} for what it is. */
static void end_stream_with_error(struct conn *c, const struct reply *r)
{
    struct buf body;
    struct counters *n = &c->net->d->n;
    buf_init(&body, r->n_body + 16);
    buf_str(&body, "data: ");
    buf_add(&body, r->body, r->n_body);
    end_stream_with(c, &body);
    atomic_fetch_add(r->status >= 500 ? &n->errors_5xx : &n->errors_4xx, 1);
}

void conn_answer_reply(struct conn *c, struct reply *r)
{
    bool is_lost = !r->body && r->status >= 500; /* it didn't fit into memory */
    struct http_error bad;
    if (c->state == CONN_STREAMING && r->kind == REPLY_WHOLE && r->status >= 400 && r->body) {
        end_stream_with_error(c, r);
    } else if (c->state == CONN_STREAMING && (r->kind == REPLY_WHOLE || is_lost)) {
        c->state = CONN_DEAD; /* without the last chunk: the client sees that it was cut */
    } else if (is_lost || (r->kind == REPLY_STREAM_BEGIN && !c->can_stream)) {
        http_error_set(&bad, 500, NULL, NULL, "%s",
                       is_lost ? "out of memory" : "HTTP/1.0 can't stream");
        conn_answer_and_close(c, &bad);
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

/* A stream's last event. The chat format has bare data lines, Responses names its events: an error
 * event is understood by both. */
void conn_fail_stream(struct conn *c, const struct http_error *error)
{
    struct buf body;
    buf_init(&body, ERROR_BODY_BYTES);
    buf_str(&body, "data: ");
    http_error_write(error, &body);
    c->keep_alive = false;
    end_stream_with(c, &body);
}
