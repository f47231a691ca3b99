/*
 * Server-sent events (WHATWG HTML, 9.2): writing for the daemon, an incremental parser for the
 * client and the tests.
 */
#ifndef HEARTH_BASE_SSE_H
#define HEARTH_BASE_SSE_H

#include <stdbool.h>

#include "base/buf.h"

/* Appends "event: NAME\n" when name isn't NULL, then "data: …\n\n". `data` holds no newline
 * (compact JSON). */
void sse_write(struct buf *b, const char *event, const char *data, size_t n);

/* A push parser: any split of the bytes gives the same events. CR, LF and CRLF end lines; comments
 * are no events; a line or event beyond max_bytes sets is_broken and nothing more is reported.
 * on_event gets "message" where the stream names no event, as the standard has it; both strings are
 * NUL-terminated and borrowed for the call. An event that the stream's end cuts is dropped. */
struct sse {
    struct buf line, event, data;
    bool skip_lf, is_broken, has_data, has_begun;
    void (*on_event)(void *ctx, const char *event, const char *data, size_t n);
    /* A comment's line without its colon; NULL (what sse_init sets): nobody reads them. */
    void (*on_comment)(void *ctx, const char *text, size_t n);
    void *ctx;
};
void sse_init(struct sse *s, size_t max_bytes,
              void (*on_event)(void *, const char *, const char *, size_t), void *ctx);
void sse_push(struct sse *s, const char *bytes, size_t n);
void sse_done(struct sse *s);

#endif
