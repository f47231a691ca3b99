/* The head of a response, and the frame of a chunk: bytes only. */
#ifndef HEARTH_DAEMON_RESPOND_H
#define HEARTH_DAEMON_RESPOND_H

#include <stdbool.h>
#include <stddef.h>
#include <time.h>

#include "base/buf.h"

#define RESPOND_HEAD_BYTES 2048

struct respond {
    int status;
    const char *content_type; /* NULL: application/json, unless the status has no body */
    size_t length;            /* of the body; not used when is_chunked */
    bool is_chunked;
    bool keep_alive;
    int retry_after_s; /* 0: no header */
    const char *allow; /* or NULL */
    bool wants_key;
    const char *cors_origin; /* or NULL */
    time_t now;
};

/* "HTTP/1.1 200 OK\r\n…\r\n\r\n" */
void respond_head(const struct respond *r, struct buf *b);
/* "HTTP/1.1 100 Continue\r\n\r\n" */
extern const char respond_continue[];

#endif
