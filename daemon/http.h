/*
 * HTTP/1.x requests: bytes in, requests out. Pure: no sockets, no clock; any split of the bytes
 * gives the same requests and the same errors.
 *
 *     push ─► HTTP_STEP_MORE   all bytes are used, the message isn't complete
 *          ─► HTTP_STEP_HEAD   the head is complete: look at http_head, then push the rest — or
 *                              http_skip_body first, and the body is dropped
 *          ─► HTTP_STEP_DONE   the message is complete: http_take_body, then http_next, then push
 *                              the rest (the next request's)
 *          ─► HTTP_STEP_BAD    the error to answer; nothing that follows can be understood, so
 *                              the connection closes
 *
 * The parser is Debian's http-parser. What it lets through and we don't (each a 400 if not said
 * otherwise): versions other than 1.0 and 1.1 (505), a missing or second Host, white space before
 * the colon of a header, folded headers, a transfer coding other than exactly `chunked` (501),
 * chunked in HTTP/1.0, repeated Authorization or Origin, an expectation other than 100-continue
 * (417), a target that is no path, bad percent-escapes. Upgrades are ignored, as the standard
 * allows.
 */
#ifndef HEARTH_DAEMON_HTTP_H
#define HEARTH_DAEMON_HTTP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "daemon/request.h"

struct http_limits {
    size_t header_bytes; /* request line and headers; also of trailers. 431 */
    size_t body_bytes;   /* 413 */
};

#define HTTP_LENGTH_CHUNKED UINT64_MAX

/* Valid from HTTP_STEP_HEAD until http_next. Strings are never NULL but where it says so. */
struct http_head {
    const char *method;        /* upper case; HEAD stays HEAD */
    const char *path;          /* percent-decoded, valid UTF-8, begins with '/'; "*" for OPTIONS
                                * * */
    const char *query;         /* raw, "" if none */
    const char *host;          /* NULL if absent (1.0) */
    const char *origin;        /* or NULL */
    const char *authorization; /* or NULL */
    int minor;                 /* HTTP/1.minor */
    bool keep_alive;
    bool expects_continue;   /* and has a body, and is 1.1 */
    uint64_t content_length; /* HTTP_LENGTH_CHUNKED: not known */
};

enum http_step { HTTP_STEP_MORE, HTTP_STEP_HEAD, HTTP_STEP_DONE, HTTP_STEP_BAD };

struct http;
struct http *http_new(const struct http_limits *limits); /* NULL: no memory */
void http_free(struct http *h);                          /* NULL is fine */

/* Uses up to n bytes (n > 0), says how many, and stops at the next step. `bad` is written with
 * HTTP_STEP_BAD only. */
enum http_step http_push(struct http *h, const char *data, size_t n, size_t *ret_used,
                         struct http_error *bad);

const struct http_head *http_head(const struct http *h);
/* Whether bytes of the current message have been seen. */
bool http_has_begun(const struct http *h);
/* From now on the current message's body is dropped, not kept. */
void http_skip_body(struct http *h);
/* Bytes of the body that have come so far, kept or dropped. */
size_t http_body_bytes(const struct http *h);
/* The body, with a NUL after it; caller frees. NULL: no memory. */
char *http_take_body(struct http *h, size_t *ret_len);
/* Ready for the next request. */
void http_next(struct http *h);

/* Decodes %XX (and '+' as a space, if is_form). ERR_INVAL for a bad escape, a NUL, or text that
 * isn't UTF-8; ERR_NOMEM. Caller frees. */
int http_unescape(const char *s, size_t n, bool is_form, char **ret);

/* "Not Found" … for the status line; "Unknown" when there is none. */
const char *http_reason(int status);

#endif
