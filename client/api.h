/*
 * Hearth's API from the client's side: a call is a request, its JSON answer, and one sentence when
 * it fails.
 */
#ifndef HEARTH_CLIENT_API_H
#define HEARTH_CLIENT_API_H

#include "client/client.h"
#include "client/wire.h"

/* Opens the connection. Returns 0, or an exit code after having said why. */
int api_open(struct client *c);

/*
 * One request whose answer is JSON. `body` (may be NULL) is taken. Returns 0 and the tree (caller:
 * json_free; ret may be NULL), or an exit code after having said why on stderr (as {"error":…} on
 * stdout with --json).
 */
int api_call(struct client *c, const char *method, const char *path, json *body, json **ret);

/* A streamed request: on_event for each event's JSON; see wire_request. Same results. */
struct api_stream {
    const char *path;
    json *body; /* taken */
    int (*on_event)(void *ctx, const char *event, const json *data);
    void (*on_idle)(void *ctx);
    void *ctx;
    int status; /* written: the reply's HTTP status, 0 when there was none */
};
int api_stream(struct client *c, struct api_stream *s);

/* Waits until the daemon is there (--wait) and has loaded its model, showing progress. 0, or an
 * exit code after having said why. */
int api_wait_ready(struct client *c);

/* Says what went wrong: "hearth: text" on stderr, or {"error":{"message","code"}} on stdout with
 * --json. Returns exit_code. */
int api_fail(struct client *c, int exit_code, const char *error_code, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));
/* The same for the daemon's error object, and for the transport's error. */
int api_explain_status(struct client *c, int status, const char *body, size_t n);
int api_explain_err(struct client *c, const struct err *e);

/* Prints a tree on one line of stdout. 0 or an exit code. */
int api_print_json(struct client *c, const json *j);

/* Ctrl-C ends the running request instead of the program, from now on (chat, ask). */
void api_catch_interrupt(struct client *c);

/* A path with its parts percent-encoded: "/v1/conversations/" + id + tail. Caller frees; NULL: no
 * memory. */
char *api_path(const char *head, const char *id, const char *tail);

#endif
