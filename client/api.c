/*
 * Calls, and what to say when they fail. Each first-hour failure has its own sentence: no daemon,
 * another user's socket, still loading, a model that can't be loaded, busy, disk full.
 */
#include "client/api.h"

#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "client/term.h"

#define LOADING_POLL_MS 100
#define LOADING_NAME_BYTES 160
#define SENTENCE_MAX 4096
#define PATH_MAX_BYTES 8192

int api_open(struct client *c)
{
    struct err e;
    struct wire_options o = {.socket_path = c->socket_path, .url = c->url, .api_key = c->api_key};
    if (wire_open(&o, &c->wire, &e))
        return api_explain_err(c, &e);
    return 0;
}

int api_print_json(struct client *c, const json *j)
{
    struct buf b;
    buf_init(&b, WIRE_BODY_MAX);
    json_write(j, &b);
    buf_char(&b, '\n');
    int failed = buf_error(&b);
    if (!failed)
        term_write(stdout, b.data, b.len);
    buf_done(&b);
    if (failed)
        return api_fail(c, EXIT_REFUSED, err_name(failed), "the JSON can't be written: %s",
                        err_name(failed));
    return term_flush() ? 0 : EXIT_REFUSED;
}

static void say_json(const char *message, const char *code)
{
    json *outer = json_object();
    json *inner = json_set(outer, "error", json_object());
    json_set_strn(inner, "message", message, strlen(message));
    json_set_str(inner, "code", code);
    struct buf b;
    buf_init(&b, 1 << 16);
    json_write(outer, &b);
    if (!buf_error(&b))
        printf("%s\n", b.data);
    buf_done(&b);
    json_free(outer);
}

static void say(const char *message)
{
    term_progress_end();
    fputs("hearth: ", stderr);
    term_text(stderr, message, strlen(message));
    fputc('\n', stderr);
}

int api_fail(struct client *c, int exit_code, const char *error_code, const char *fmt, ...)
{
    char text[SENTENCE_MAX];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    if (c->is_json)
        say_json(text, error_code);
    else
        say(text);
    return exit_code;
}

int api_explain_err(struct client *c, const struct err *e)
{
    term_progress_end();
    if (e->code == ERR_CANCELED)
        return EXIT_INTERRUPTED;
    api_fail(c, 0, err_name(e->code), "%s", e->text);
    if (e->code == ERR_UNSUPPORTED)
        return EXIT_NOT_ALLOWED;
    if (e->code != ERR_NOTFOUND)
        return EXIT_REFUSED;
    if (!c->is_json && !c->url)
        say("start one with `hearthd --model FILE`, or `systemctl --user start hearthd`");
    return EXIT_NO_DAEMON;
}

/* What people can do about a refusal, by its code; NULL: the sentence says it all. */
static const char *hint(const char *code, const char *message)
{
    if (!strcmp(code, "context_length_exceeded"))
        return "shorten the text, begin a new conversation or let this one be cut (hearth context "
               "--set auto), or start hearthd with a larger --ctx";
    if (!strcmp(code, "queue_full"))
        return "all places are taken: try again in a moment";
    if (!strcmp(code, "model_loading"))
        return "the daemon has only just started: try again in a moment";
    if (!strcmp(code, "invalid_api_key"))
        return "give the key with --api-key-file";
    /* Or the operating system's words, at whichever file it happened. */
    if (!strcmp(code, "disk_full") || strcasestr(message, "no space left on"))
        return "the disk of the history is full: free some space; nothing of this was stored";
    return NULL;
}

static int exit_of_status(int status)
{
    switch (status) {
    case 401:
    case 403:
        return EXIT_NOT_ALLOWED;
    case 404:
        return EXIT_NOT_FOUND;
    case 429:
    case 503:
        return EXIT_NOT_READY;
    default:
        return EXIT_REFUSED;
    }
}

int api_explain_status(struct client *c, int status, const char *body, size_t n)
{
    json *j = NULL;
    struct err e;
    const char *message = NULL, *code = NULL;
    char plain[64];
    if (!json_parse(body, n, &j, &e)) {
        const json *error = json_get(j, "error", NULL);
        message = json_type(error) == JSON_STRING ? json_str(error)
                                                  : json_str(json_get(error, "message", NULL));
        code = json_str(json_get(error, "code", NULL));
    }
    snprintf(plain, sizeof plain, "the daemon answered with HTTP status %d", status);
    api_fail(c, 0, code ? code : "", "%s", message ? message : plain);
    const char *help = c->is_json ? NULL : hint(code ? code : "", message ? message : "");
    if (help)
        say(help);
    json_free(j);
    return exit_of_status(status);
}

static const char *body_of(const struct wire_reply *reply)
{
    return reply->body.data ? reply->body.data : "";
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
        code = api_explain_status(c, reply.status, body_of(&reply), reply.body.len);
    else if (json_parse(body_of(&reply), reply.body.len, &j, &e))
        code = api_fail(c, EXIT_REFUSED, "bad_reply", "the daemon's reply to %s is no JSON: %s",
                        path, e.text);
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
    /* What the daemon says while the answer's model is on its way; "": nothing. */
    char loading[LOADING_NAME_BYTES];
    double progress; /* < 0: not known */
    bool is_loading_said;
};

/* Errors come as {"error":{…}}, and as the Responses event {"type":"error","message",…}. */
static bool is_error(const json *j)
{
    const char *type = json_str(json_get(j, "type", NULL));
    enum json_type error = json_type(json_get(j, "error", NULL));
    return error == JSON_OBJECT || error == JSON_STRING || (type && !strcmp(type, "error"));
}

static int explain_event(struct client *c, const json *j, const char *data, size_t n)
{
    const char *message = json_str(json_get(j, "message", NULL));
    if (json_get(j, "error", NULL) || !message)
        return api_explain_status(c, 500, data, n);
    return api_fail(c, EXIT_REFUSED, "error", "%s", message);
}

static int on_wire_event(void *ctx, const char *event, const char *data, size_t n)
{
    struct streaming *s = ctx;
    if (s->loading[0])
        term_progress_end();
    s->loading[0] = '\0';
    if (n == 6 && !memcmp(data, "[DONE]", 6))
        return 0;
    json *j;
    struct err e;
    if (json_parse(data, n, &j, &e)) {
        s->code = api_fail(s->client, EXIT_REFUSED, "bad_reply", "an event is no JSON: %s", e.text);
        return 1;
    }
    int stop = 1;
    if (is_error(j))
        s->code = explain_event(s->client, j, data, n);
    else
        stop = s->stream->on_event(s->stream->ctx, event, j);
    json_free(j);
    return stop;
}

/* A terminal sees progress; a log one line. progress < 0: not known. */
static void say_loading(const char *what, double progress, bool *is_said)
{
    char known[32] = "";
    if (progress >= 0)
        snprintf(known, sizeof known, " (%.0f %%)", 100 * progress);
    if (term_is_tty(STDERR_FILENO))
        term_progress(what, progress);
    else if (!*is_said)
        fprintf(stderr, "hearth: %s%s; waiting\n", what, known);
    *is_said = true;
}

/* " loading NAME 43 %", or other words to the same effect. Another server's comments say nothing
 * that a person should see. */
static void on_wire_comment(void *ctx, const char *text, size_t n)
{
    static const char loading[] = " loading ", waiting[] = " waiting for ";
    struct streaming *s = ctx;
    struct buf clean;
    if (strncmp(text, loading, strlen(loading)) != 0 && strncmp(text, waiting, strlen(waiting)))
        return;
    buf_init(&clean, SENTENCE_MAX);
    term_clean(&clean, text + 1, n - 1);
    char *line = buf_error(&clean) || !clean.data ? NULL : clean.data, *end = NULL;
    char *last = line && clean.len > 2 && !strcmp(line + clean.len - 2, " %") ? line + clean.len - 2
                                                                            : NULL;
    s->progress = -1;
    if (last) {
        *last = '\0';
        char *number = strrchr(line, ' ');
        const double percent = number ? strtod(number, &end) : 0;
        if (number && end == last) {
            s->progress = percent / 100;
            *number = '\0';
        }
    }
    snprintf(s->loading, sizeof s->loading, "%s", line ? line : "loading");
    buf_done(&clean);
    say_loading(s->loading, s->progress, &s->is_loading_said);
}

static void on_wire_idle(void *ctx)
{
    struct streaming *s = ctx;
    if (s->loading[0])
        say_loading(s->loading, s->progress, &s->is_loading_said);
    else if (s->stream->on_idle)
        s->stream->on_idle(s->stream->ctx);
}

int api_stream(struct client *c, struct api_stream *stream)
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
                                 .on_comment = on_wire_comment,
                                 .on_idle = on_wire_idle,
                                 .ctx = &s};
        r = wire_call(c->wire, &q, &reply, &e);
    }
    stream->status = reply.status;
    int code = s.code;
    if (s.loading[0])
        term_progress_end();
    if (!code && r)
        code = api_explain_err(c, &e);
    else if (!code && (reply.status < 200 || reply.status > 299))
        code = api_explain_status(c, reply.status, body_of(&reply), reply.body.len);
    buf_done(&reply.body);
    buf_done(&text);
    return code;
}

/* ---- is it there, and ready? ---- */

enum health { HEALTH_READY, HEALTH_LOADING, HEALTH_NOBODY, HEALTH_BAD };

/* One look at /health. BAD: *ret_code is the exit code, and why has been said. NOBODY: *e says
 * where. */
static enum health look(struct client *c, double *progress, int *ret_code, struct err *e)
{
    struct wire_request q = {.method = "GET", .path = "/health"};
    struct wire_reply reply = {0};
    json *j = NULL;
    enum health result = HEALTH_BAD;
    int r = wire_call(c->wire, &q, &reply, e);
    if (!r && reply.status != 200 && json_parse(body_of(&reply), reply.body.len, &j, e))
        j = NULL; /* api_explain_status says what came instead */
    const char *status = json_str(json_get(j, "status", NULL));
    const char *error = json_str(json_get(j, "error", NULL));
    *progress = json_double(json_get(j, "progress", NULL));
    if (r == ERR_NOTFOUND)
        result = HEALTH_NOBODY;
    else if (r)
        *ret_code = api_explain_err(c, e);
    else if (reply.status == 200)
        result = HEALTH_READY;
    else if (status && !strcmp(status, "loading"))
        result = HEALTH_LOADING;
    else if (status && !strcmp(status, "failed"))
        *ret_code = api_fail(c, EXIT_REFUSED, "model_failed",
                             "the daemon could not load its model: %s", error ? error : "?");
    else if (status && !strcmp(status, "stopping"))
        *ret_code = api_fail(c, EXIT_NOT_READY, "stopping", "the daemon is stopping");
    else
        *ret_code = api_explain_status(c, reply.status, body_of(&reply), reply.body.len);
    json_free(j);
    buf_done(&reply.body);
    return result;
}

int api_wait_ready(struct client *c)
{
    if (c->url)
        return 0; /* somebody else's server may have no /health */
    int64_t until = clock_ms() + (int64_t)c->wait_s * 1000;
    bool is_said = false;
    for (;;) {
        struct err e = {0};
        double progress = 0;
        int code = EXIT_REFUSED;
        enum health state = look(c, &progress, &code, &e);
        if (state == HEALTH_LOADING)
            say_loading(term_is_tty(STDERR_FILENO) ? "loading the model"
                                                   : "the model is still being loaded",
                        progress, &is_said);
        else if (state != HEALTH_NOBODY)
            term_progress_end();
        if (state == HEALTH_READY)
            return 0;
        if (state == HEALTH_BAD)
            return code;
        if (state == HEALTH_NOBODY && clock_ms() >= until)
            return api_explain_err(c, &e);
        nanosleep(&(struct timespec){.tv_nsec = LOADING_POLL_MS * 1000000}, NULL);
    }
}

/* ---- Ctrl-C ---- */

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
    buf_init(&b, PATH_MAX_BYTES);
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
