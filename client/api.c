/*
 * Calls, and what to say when they fail. Each first-hour failure has its own sentence: no daemon,
 * another user's socket, still loading, busy, disk full.
 */
#include "client/api.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "client/term.h"

#define LOADING_POLL_MS 100

int api_open(struct client *c)
{
    struct err e;
    struct wire_options o = {.socket_path = c->socket_path, .url = c->url, .api_key = c->api_key};
    if (wire_open(&o, &c->wire, &e))
        return api_explain_err(c, &e);
    return 0;
}

static void say_json(const char *message, const char *code)
{
    json *inner = json_object();
    json_set_str(inner, "message", message);
    json_set_str(inner, "code", code);
    json *outer = json_object();
    json_set(outer, "error", inner);
    struct buf b;
    buf_init(&b, 1 << 16);
    json_write(outer, &b);
    if (!buf_error(&b))
        printf("%s\n", b.data);
    buf_done(&b);
    json_free(outer);
}

int api_explain_err(struct client *c, const struct err *e)
{
    if (e->code == ERR_CANCELED)
        return EXIT_INTERRUPTED;
    if (c->is_json)
        say_json(e->text, err_name(e->code));
    else
        fprintf(stderr, "hearth: %s\n", e->text);
    if (e->code != ERR_NOTFOUND)
        return EXIT_REFUSED;
    if (!c->is_json && !c->url)
        fprintf(
            stderr,
            "hearth: start one with `hearthd --model FILE`, or `systemctl --user start hearthd`\n");
    return EXIT_NO_DAEMON;
}

/* What people can do about a refusal, by its code. */
static const char *hint(const char *code)
{
    if (!strcmp(code, "context_length_exceeded"))
        return "start a new conversation (/new), or a daemon with a larger --ctx";
    if (!strcmp(code, "queue_full"))
        return "all places are taken: try again in a moment";
    if (!strcmp(code, "disk_full"))
        return "the disk of the history is full: free some space; nothing was stored";
    if (!strcmp(code, "invalid_api_key"))
        return "give the key with --api-key-file";
    return NULL;
}

static int exit_of_status(int status)
{
    if (status == 404)
        return EXIT_NOT_FOUND;
    return status == 503 || status == 429 ? EXIT_NOT_READY : EXIT_REFUSED;
}

int api_explain_status(struct client *c, int status, const char *body, size_t n)
{
    json *j = NULL;
    struct err e;
    const char *message = NULL, *code = NULL;
    if (!json_parse(body, n, &j, &e)) {
        const json *error = json_get(j, "error", NULL);
        message = json_str(json_get(error, "message", NULL));
        code = json_str(json_get(error, "code", NULL));
    }
    char plain[64];
    snprintf(plain, sizeof plain, "the daemon answered with HTTP status %d", status);
    if (c->is_json)
        say_json(message ? message : plain, code ? code : "");
    else
        fprintf(stderr, "hearth: %s\n", message ? message : plain);
    const char *help = code && !c->is_json ? hint(code) : NULL;
    if (help)
        fprintf(stderr, "hearth: %s\n", help);
    json_free(j);
    return exit_of_status(status);
}

static int write_body(json *body, struct buf *b, struct err *e)
{
    buf_init(b, WIRE_BODY_MAX);
    if (!body)
        return 0;
    json_write(body, b);
    json_free(body);
    if (buf_error(b))
        return err_set(e, buf_error(b), "the request can't be written: %s", err_name(buf_error(b)));
    return 0;
}

int api_call(struct client *c, const char *method, const char *path, json *body, json **ret)
{
    struct err e;
    struct buf text;
    struct wire_reply reply = {0};
    json *j = NULL;
    int code = 0;
    int r = write_body(body, &text, &e);
    if (!r) {
        struct wire_request q = {
            .method = method, .path = path, .body = text.data, .n_body = text.len};
        r = wire_call(c->wire, &q, &reply, &e);
    }
    if (r)
        code = api_explain_err(c, &e);
    else if (reply.status < 200 || reply.status > 299)
        code = api_explain_status(c, reply.status, reply.body.data ? reply.body.data : "",
                                  reply.body.len);
    else if (json_parse(reply.body.data ? reply.body.data : "", reply.body.len, &j, &e))
        code = api_explain_err(c, &e);
    if (!code && ret)
        *ret = j;
    else
        json_free(j);
    buf_done(&reply.body);
    buf_done(&text);
    return code;
}

/* Between wire events (bytes) and ours (JSON). */
struct streaming {
    const struct api_stream *stream;
    struct client *client;
    int code; /* of an error event */
};

static int on_wire_event(void *ctx, const char *event, const char *data, size_t n)
{
    struct streaming *s = ctx;
    if (n == 6 && !memcmp(data, "[DONE]", 6))
        return 0;
    json *j;
    struct err e;
    if (json_parse(data, n, &j, &e)) {
        s->code = api_explain_err(s->client, &e);
        return 1;
    }
    const json *error = json_get(j, "error", NULL);
    if (error && json_type(error) == JSON_OBJECT) {
        s->code = api_explain_status(s->client, 500, data, n);
        json_free(j);
        return 1;
    }
    int stop = s->stream->on_event(s->stream->ctx, event, j);
    json_free(j);
    return stop;
}

static void on_wire_idle(void *ctx)
{
    struct streaming *s = ctx;
    if (s->stream->on_idle)
        s->stream->on_idle(s->stream->ctx);
}

int api_stream(struct client *c, const struct api_stream *stream)
{
    struct err e;
    struct buf text;
    struct wire_reply reply = {0};
    struct streaming s = {.stream = stream, .client = c};
    int r = write_body(stream->body, &text, &e);
    if (!r) {
        struct wire_request q = {.method = "POST",
                                 .path = stream->path,
                                 .body = text.data,
                                 .n_body = text.len,
                                 .on_event = on_wire_event,
                                 .on_idle = on_wire_idle,
                                 .ctx = &s};
        r = wire_call(c->wire, &q, &reply, &e);
    }
    int code = s.code;
    if (!code && r)
        code = api_explain_err(c, &e);
    else if (!code && (reply.status < 200 || reply.status > 299))
        code = api_explain_status(c, reply.status, reply.body.data ? reply.body.data : "",
                                  reply.body.len);
    buf_done(&reply.body);
    buf_done(&text);
    return code;
}

/* One look at /health: 0 ready, 1 loading (*progress), 2 nobody there, -1 anything else (said). */
static int look(struct client *c, double *progress, struct err *e)
{
    struct wire_request q = {.method = "GET", .path = "/health"};
    struct wire_reply reply = {0};
    json *j = NULL;
    int r = wire_call(c->wire, &q, &reply, e), result = -1;
    if (r == ERR_NOTFOUND) {
        result = 2;
    } else if (!r && reply.status == 200) {
        result = 0;
    } else if (!r && !json_parse(reply.body.data ? reply.body.data : "", reply.body.len, &j, e)) {
        const char *status = json_str(json_get(j, "status", NULL));
        *progress = json_double(json_get(j, "progress", NULL));
        if (status && !strcmp(status, "loading"))
            result = 1;
        else
            api_explain_status(c, reply.status, reply.body.data, reply.body.len);
    } else {
        api_explain_err(c, e);
    }
    json_free(j);
    buf_done(&reply.body);
    return result;
}

int api_wait_ready(struct client *c)
{
    if (c->url)
        return 0; /* somebody else's server may have no /health */
    int64_t until = clock_ms() + (int64_t)c->wait_s * 1000;
    for (;;) {
        struct err e;
        double progress = 0;
        int state = look(c, &progress, &e);
        if (state == 1)
            term_progress("loading the model", progress);
        if (state == 0 || state == -1)
            term_progress_end();
        if (state == 0)
            return 0;
        if (state == -1)
            return EXIT_REFUSED;
        if (state == 2 && clock_ms() >= until)
            return api_explain_err(c, &e);
        nanosleep(&(struct timespec){.tv_nsec = LOADING_POLL_MS * 1000000}, NULL);
    }
}

/* The signal handler's view of the client. */
static struct wire *interrupted_wire;

static void on_sigint(int sig)
{
    (void)sig;
    if (interrupted_wire)
        wire_interrupt(interrupted_wire);
}

void api_catch_interrupt(struct client *c)
{
    interrupted_wire = c->wire;
    struct sigaction sa = {.sa_handler = on_sigint, .sa_flags = SA_RESTART};
    sigaction(SIGINT, &sa, NULL);
}

char *api_path(const char *head, const char *id, const char *tail)
{
    static const char safe[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.~";
    struct buf b;
    buf_init(&b, 8192);
    buf_str(&b, head);
    for (const char *p = id; *p; p++) {
        if (strchr(safe, *p))
            buf_char(&b, *p);
        else
            buf_printf(&b, "%%%02X", (unsigned char)*p);
    }
    buf_str(&b, tail);
    return buf_take(&b, NULL);
}
