/*
 * Requests, replies and errors as they travel between threads. Everything here may be called on any
 * thread.
 *
 * A reply must reach its connection even when memory has run out, or a client would wait for ever:
 * then the body is given up first, and as the last resort one of a few spare replies is used. The
 * loop turns a reply without its body (body NULL, status 500) into a plain error and closes the
 * connection.
 */
#include "daemon/request.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "base/log.h"
#include "base/sys.h"
#include "base/utf8.h"
#include "daemon/http.h"
#include "daemon/limits.h"

#define N_SPARE 16
#define ERROR_BODY_BYTES 8192

static struct {
    struct reply reply;
    atomic_flag is_used;
} spare[N_SPARE] = {[0 ... N_SPARE - 1] = {.is_used = ATOMIC_FLAG_INIT}};

struct cancel *cancel_new(void)
{
    struct cancel *c = sys.malloc(sizeof(*c));
    if (!c)
        return NULL;
    atomic_init(&c->is_set, 0);
    atomic_init(&c->n_refs, 1);
    return c;
}

struct cancel *cancel_ref(struct cancel *c)
{
    atomic_fetch_add(&c->n_refs, 1);
    return c;
}

void cancel_unref(struct cancel *c)
{
    if (c && atomic_fetch_sub(&c->n_refs, 1) == 1)
        free(c);
}

void request_free(struct request *r)
{
    if (!r)
        return;
    free(r->path);
    free(r->query);
    free(r->body);
    free(r->owner);
    cancel_unref(r->cancel);
    free(r);
}

/* Whether name[0, n) as it stands in the query is `wanted` once it is decoded. */
static bool is_name(const char *name, size_t n, const char *wanted)
{
    char *decoded = NULL;
    if (http_unescape(name, n, true, &decoded) < 0)
        return false;
    bool same = strcmp(decoded, wanted) == 0;
    free(decoded);
    return same;
}

int request_query(const struct request *r, const char *name, char **ret)
{
    const char *p = r->query ? r->query : "";
    while (*p) {
        size_t pair = strcspn(p, "&");
        const char *eq = memchr(p, '=', pair);
        size_t n_name = eq ? (size_t)(eq - p) : pair;
        if (is_name(p, n_name, name)) {
            const char *value = eq ? eq + 1 : p + pair;
            return http_unescape(value, (size_t)(p + pair - value), true, ret);
        }
        p += pair + (p[pair] == '&');
    }
    return ERR_NOTFOUND;
}

static struct reply *take_spare(void)
{
    for (size_t i = 0; i < N_SPARE; i++)
        if (!atomic_flag_test_and_set(&spare[i].is_used))
            return &spare[i].reply;
    return NULL;
}

void reply_free(struct reply *r)
{
    if (!r)
        return;
    free(r->body);
    for (size_t i = 0; i < N_SPARE; i++)
        if (r == &spare[i].reply) {
            atomic_flag_clear(&spare[i].is_used);
            return;
        }
    free(r);
}

static void post(struct daemon *d, const struct reply *what, struct buf *body)
{
    struct reply r = *what;
    r.mail = (struct mail){.kind = MAIL_REPLY};
    if (body && buf_error(body)) {
        log_error("a reply is dropped: %s",
                  buf_error(body) == ERR_LIMIT ? "it is too long" : "out of memory");
        buf_done(body);
        r.status = 500;
        r.body = NULL;
    } else if (body) {
        r.body = buf_take(body, &r.n_body);
    }
    struct reply *mail = sys.malloc(sizeof(*mail));
    if (!mail) {
        free(r.body);
        r.body = NULL;
        r.n_body = 0;
        r.status = 500;
        mail = take_spare();
    }
    if (!mail) {
        log_error("a reply is lost: out of memory; its client will not hear of it");
        return;
    }
    *mail = r;
    /* Refused only when the loop has ended: nobody is left to read it. */
    if (!mailbox_push(&d->loop, &mail->mail))
        reply_free(mail);
}

void reply_post(struct daemon *d, enum reply_kind kind, uint64_t conn, int status, struct buf *body)
{
    post(d, &(struct reply){.kind = kind, .conn = conn, .status = status}, body);
}

void reply_post_last(struct daemon *d, enum reply_kind kind, uint64_t conn, int status,
                     struct buf *body)
{
    post(d, &(struct reply){.kind = kind, .conn = conn, .status = status, .ends_turn = true}, body);
}

void http_error_set(struct http_error *h, int status, const char *code, const char *param,
                    const char *fmt, ...)
{
    *h = (struct http_error){.status = status, .code = code, .param = param};
    va_list ap;
    va_start(ap, fmt);
    int n = vsnprintf(h->message, sizeof(h->message), fmt, ap);
    va_end(ap);
    /* A cut must not leave half a character. */
    if (n >= (int)sizeof(h->message))
        h->message[utf8_complete(h->message, sizeof(h->message) - 1)] = '\0';
}

void http_error_from(struct http_error *h, const struct err *e)
{
    switch (e->code) {
    case ERR_NOTFOUND:
        http_error_set(h, 404, "not_found", NULL, "%s", e->text);
        break;
    case ERR_INVAL:
        http_error_set(h, 400, "invalid_value", NULL, "%s", e->text);
        break;
    case ERR_LIMIT:
        http_error_set(h, 400, "limit_exceeded", NULL, "%s", e->text);
        break;
    case ERR_UNSUPPORTED:
        http_error_set(h, 400, "unsupported_parameter", NULL, "%s", e->text);
        break;
    case ERR_BUSY:
        http_error_set(h, 503, "busy", NULL, "%s", e->text);
        break;
    case ERR_FULL:
        http_error_set(h, 500, "disk_full", NULL, "%s", e->text);
        h->is_full = true;
        break;
    default:
        http_error_set(h, 500, e->code == ERR_NOMEM ? "out_of_memory" : NULL, NULL, "%s", e->text);
    }
}

int http_out_of_memory(struct http_error *h, const char *what)
{
    http_error_set(h, 500, "out_of_memory", NULL, "out of memory for %s", what);
    return ERR_NOMEM;
}

static const char *error_type(int status)
{
    switch (status) {
    case 401:
        return "authentication_error";
    case 403:
        return "permission_error";
    case 404:
        return "not_found_error";
    case 503:
        return "overloaded_error";
    default:
        return status >= 500 ? "server_error" : "invalid_request_error";
    }
}

static void write_or_null(struct buf *b, const char *s)
{
    if (s)
        json_write_str(b, s, strlen(s));
    else
        buf_str(b, "null");
}

void http_error_write(const struct http_error *h, struct buf *body)
{
    buf_str(body, "{\"error\":{\"message\":");
    json_write_str(body, h->message, strlen(h->message));
    buf_str(body, ",\"type\":");
    write_or_null(body, error_type(h->status));
    buf_str(body, ",\"param\":");
    write_or_null(body, h->param);
    buf_str(body, ",\"code\":");
    write_or_null(body, h->code);
    buf_str(body, "}}");
}

void reply_error_body(struct daemon *d, uint64_t conn, int status, struct buf *body, bool ends_turn)
{
    post(d,
         &(struct reply){.kind = REPLY_WHOLE,
                         .conn = conn,
                         .status = status,
                         .retry_after_s = status == 503 ? LIMIT_RETRY_AFTER_S : 0,
                         .ends_turn = ends_turn},
         body);
}

void reply_error(struct daemon *d, uint64_t conn, const struct http_error *h, bool ends_turn)
{
    struct buf body;
    buf_init(&body, ERROR_BODY_BYTES);
    http_error_write(h, &body);
    reply_error_body(d, conn, h->status, &body, ends_turn);
}
