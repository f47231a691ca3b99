/*
 * Bytes to and from the daemon: HTTP by libcurl over a Unix socket or TCP; one request at a time.
 * Its connection is kept for GETs, and new for what changes something.
 */
#ifndef HEARTH_CLIENT_WIRE_H
#define HEARTH_CLIENT_WIRE_H

#include <stddef.h>

#include "base/buf.h"
#include "base/err.h"

#define WIRE_BODY_MAX ((size_t)64 << 20) /* of one reply, or one event */

struct wire;

struct wire_options {
    const char *socket_path; /* or NULL */
    const char *url;         /* then this one */
    const char *api_key;     /* or NULL */
};
int wire_open(const struct wire_options *o, struct wire **ret, struct err *e) MUST_USE;
void wire_close(struct wire *w); /* NULL is fine */

struct wire_reply {
    int status;      /* HTTP status */
    struct buf body; /* of a reply that isn't an event stream; caller: buf_done */
};

struct wire_request {
    const char *method, *path;
    const char *body; /* JSON, or NULL */
    size_t n_body;
    /* An event of a text/event-stream reply; a non-zero result ends the request with ERR_CANCELED.
     * NULL: none expected. */
    int (*on_event)(void *ctx, const char *event, const char *data, size_t n);
    /* A comment between the events; may be NULL. */
    void (*on_comment)(void *ctx, const char *text, size_t n);
    /* Called about every 100 ms while nothing arrives (progress display); may be NULL. */
    void (*on_idle)(void *ctx);
    void *ctx;
};

/*
 * Sends the request and waits for all of the reply. ret->body must be done with by the caller in
 * every case. ERR_NOTFOUND: nobody listens there (no socket, refused: the text says which);
 * ERR_UNSUPPORTED: somebody does, but this user may not use the socket; ERR_CANCELED:
 * wire_interrupt, also one from before the call (wire_forget_interrupt); ERR_IO: the connection
 * broke, with what was known.
 */
int wire_call(struct wire *w, const struct wire_request *r, struct wire_reply *ret,
              struct err *e) MUST_USE;

/* Does nothing for so long, up to 2^31 ms: 0, or ERR_CANCELED after wire_interrupt. */
int wire_pause(struct wire *w, int ms) MUST_USE;

/* Ends the running request; may be called from a signal handler. */
void wire_interrupt(struct wire *w);
/* What was interrupted is over: the next request runs. */
void wire_forget_interrupt(struct wire *w);

#endif
