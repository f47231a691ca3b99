/* Records what http.c makes of bytes: the driver of the unit test and of the fuzz target. */
#include "tests/daemon/http_record.h"

#include <stdlib.h>
#include <string.h>

static void record_head(struct http *h, struct buf *b)
{
    const struct http_head *head = http_head(h);
    buf_printf(b, "HEAD %s %s ?%s 1.%d", head->method, head->path, head->query, head->minor);
    if (head->host)
        buf_printf(b, " host=%s", head->host);
    if (head->origin)
        buf_printf(b, " origin=%s", head->origin);
    if (head->authorization)
        buf_printf(b, " auth=%s", head->authorization);
    if (head->content_length == HTTP_LENGTH_CHUNKED)
        buf_str(b, " chunked");
    else
        buf_printf(b, " length=%llu", (unsigned long long)head->content_length);
    buf_printf(b, "%s%s\n", head->keep_alive ? "" : " close",
               head->expects_continue ? " expects" : "");
    if (strcmp(head->path, "/skip") == 0)
        http_skip_body(h);
}

static void record_body(struct http *h, struct buf *b)
{
    size_t seen = http_body_bytes(h), n = 0;
    char *body = http_take_body(h, &n);
    if (!body)
        abort();
    buf_printf(b, "DONE %zu %zu ", seen, n);
    buf_add(b, body, n);
    buf_char(b, '\n');
    free(body);
    http_next(h);
}

void http_record(const struct http_limits *limits, const char *data, size_t n,
                 size_t (*cut)(void *ctx), void *ctx, struct buf *ret)
{
    struct http *h = http_new(limits);
    if (!h)
        abort();
    bool is_bad = false;
    for (size_t at = 0; at < n && !is_bad;) {
        size_t piece = cut ? cut(ctx) : n;
        if (piece > n - at)
            piece = n - at;
        /* A copy of just these bytes, so that reading beyond them is seen by the sanitizer. */
        char *copy = malloc(piece);
        if (!copy)
            abort();
        memcpy(copy, data + at, piece);
        for (size_t done = 0; done < piece && !is_bad;) {
            size_t used = 0;
            struct http_error bad = {0};
            switch (http_push(h, copy + done, piece - done, &used, &bad)) {
            case HTTP_STEP_MORE:
                if (used != piece - done)
                    abort();
                break;
            case HTTP_STEP_HEAD:
                record_head(h, ret);
                break;
            case HTTP_STEP_DONE:
                record_body(h, ret);
                break;
            case HTTP_STEP_BAD:
                buf_printf(ret, "BAD %d %s: %s\n", bad.status, bad.code ? bad.code : "-",
                           bad.message);
                is_bad = true;
            }
            done += used;
        }
        at += piece;
        free(copy);
    }
    if (!is_bad && http_has_begun(h))
        buf_str(ret, "UNFINISHED\n");
    http_free(h);
}
