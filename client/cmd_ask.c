/*
 * hearth ask: one question by /v1/chat/completions, so that it works against any OpenAI-compatible
 * server and leaves nothing in the history. The answer goes to stdout as it comes; with --json the
 * whole answer as one object at the end.
 */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/utf8.h"
#include "client/api.h"
#include "client/options.h"
#include "client/term.h"
#include "client/window.h"

#define ASK_TEXT_MAX ((size_t)8 << 20)
#define RECEIPT_LINE_BYTES 1024

struct asking {
    struct client *client;
    struct buf answer;
    char finish[32];
    char *model; /* that answers */
    json *usage, *hearth;
    bool is_begun;
    int64_t begun_ms;
};

/* ---- the question ---- */

/* What comes in by a pipe, after a blank line if there is text already. */
static int read_pipe(struct buf *b)
{
    char chunk[65536];
    ssize_t n;
    bool is_first = true;
    while (!buf_error(b) && (n = read(STDIN_FILENO, chunk, sizeof chunk)) > 0) {
        if (is_first && b->len)
            buf_str(b, "\n\n");
        is_first = false;
        buf_add(b, chunk, (size_t)n);
    }
    /* A closed stdin is an empty one. */
    return buf_error(b) || n >= 0 || errno == EBADF ? 0 : -1;
}

/* The words of the command line, then the pipe. 0 or an exit code. */
static int read_question(struct client *c, int n_words, char **words, struct buf *b)
{
    const struct command *self = command_find("ask");
    for (int i = 0; i < n_words; i++) {
        if (i)
            buf_char(b, ' ');
        buf_str(b, words[i]);
    }
    bool is_typed = term_is_tty(STDIN_FILENO);
    if (is_typed && !n_words)
        term_note("(type the question; Ctrl-D on a line of its own ends it)");
    if ((!is_typed || !n_words) && read_pipe(b))
        return api_fail(c, EXIT_REFUSED, "io", "stdin can't be read: %s", strerror(errno));
    if (buf_error(b) == ERR_LIMIT)
        return usage_error(self, "the question is longer than %zu bytes", ASK_TEXT_MAX);
    if (buf_error(b))
        return api_fail(c, EXIT_REFUSED, "nomem", "out of memory");
    while (b->len && (b->data[b->len - 1] == '\n' || b->data[b->len - 1] == '\r'))
        b->data[--b->len] = 0;
    if (!b->len)
        return usage_error(self, "what is the question?");
    size_t bad;
    if (!utf8_valid(b->data, b->len, &bad))
        return usage_error(self, "the question is no UTF-8 text (byte %zu)", bad + 1);
    const char *nul = memchr(b->data, 0, b->len);
    if (nul)
        return usage_error(self, "the question holds a NUL (byte %zu)",
                           (size_t)(nul - b->data) + 1);
    return 0;
}

static json *question_body(const struct ask_options *o, const char *text, size_t n)
{
    json *body = json_object();
    ask_options_write(o, body, "max_tokens");
    json *messages = json_set(body, "messages", json_array());
    if (o->system) {
        json *m = json_add(messages, json_object());
        json_set_str(m, "role", "system");
        json_set_str(m, "content", o->system);
    }
    json *m = json_add(messages, json_object());
    json_set_str(m, "role", "user");
    json_set_strn(m, "content", text, n);
    json_set_bool(body, "stream", true);
    json_set_bool(json_set(body, "stream_options", json_object()), "include_usage", true);
    return body;
}

/* ---- the answer ---- */

static void keep(json **to, const json *j)
{
    if (!j)
        return;
    json_free(*to);
    *to = json_copy(j);
}

static void print_thought(struct asking *a, const char *text)
{
    if (!text || !*text)
        return;
    term_progress_end();
    a->is_begun = true;
    if (!a->client->is_json)
        term_thought(text, strlen(text));
}

static int print_delta(struct asking *a, const char *text)
{
    if (!text || !*text)
        return 0;
    term_progress_end();
    term_thought_end();
    a->is_begun = true;
    buf_str(&a->answer, text);
    if (a->client->is_json)
        return 0;
    term_text(stdout, text, strlen(text));
    return !term_flush();
}

static int on_event(void *ctx, const char *event, const json *data)
{
    (void)event;
    struct asking *a = ctx;
    const json *choice = json_first(json_get(data, "choices", NULL));
    const char *finish = json_str(json_get(choice, "finish_reason", NULL));
    const char *model = json_str(json_get(data, "model", NULL));
    keep(&a->usage, json_get(data, "usage", NULL));
    keep(&a->hearth, json_get(data, "hearth", NULL));
    if (finish)
        snprintf(a->finish, sizeof a->finish, "%s", finish);
    if (model && !a->model)
        a->model = strdup(model);
    const json *delta = json_get(choice, "delta", NULL);
    print_thought(a, json_str(json_get(delta, "reasoning_content", NULL)));
    return print_delta(a, json_str(json_get(delta, "content", NULL)));
}

static void on_idle(void *ctx)
{
    const struct asking *a = ctx;
    const json *used = json_get(json_get(a->hearth, "receipt", NULL), "used", NULL);
    if (!a->is_begun)
        term_waiting(clock_ms() - a->begun_ms, (int64_t)json_double(used));
}

/* What left the window, if anything did. */
static void note_receipt(const struct asking *a)
{
    struct buf b;
    buf_init(&b, RECEIPT_LINE_BYTES);
    receipt_write(json_get(a->hearth, "receipt", NULL), NULL, &b);
    if (b.len && !buf_error(&b) && !a->client->is_json)
        term_say("· %s", b.data);
    buf_done(&b);
}

static int print_json(struct asking *a)
{
    json *j = json_object();
    json_set_strn(j, "text", a->answer.data ? a->answer.data : "", a->answer.len);
    json_set_str(j, "finish_reason", a->finish);
    if (a->model)
        json_set_str(j, "model", a->model);
    if (a->usage)
        json_set(j, "usage", json_copy(a->usage));
    if (a->hearth)
        json_set(j, "hearth", json_copy(a->hearth));
    int code = api_print_json(a->client, j);
    json_free(j);
    return code;
}

/* What is said at the end, when the request itself went well. */
static int finish(struct asking *a, const struct ask_options *o)
{
    if (!a->finish[0])
        return api_fail(a->client, EXIT_REFUSED, "broke_off", "the answer broke off");
    if (a->client->is_json)
        return print_json(a);
    if (!strcmp(a->finish, "length"))
        fprintf(stderr, "hearth: the answer ends here: its token limit, or the window's end, was "
                        "reached\n");
    if (o->model && a->model && strcmp(o->model, a->model) && strcmp(o->model, "default"))
        fprintf(stderr, "hearth: answered by %s; there is no model %s here\n", a->model, o->model);
    return 0;
}

static int ask(struct client *c, const struct ask_options *o, const struct buf *question)
{
    struct asking a = {.client = c, .begun_ms = clock_ms()};
    buf_init(&a.answer, WIRE_BODY_MAX);
    struct api_stream s = {.path = "/v1/chat/completions",
                           .body = question_body(o, question->data, question->len),
                           .on_event = on_event,
                           .on_idle = on_idle,
                           .ctx = &a};
    int code = api_stream(c, &s);
    term_progress_end();
    if (!c->is_json && a.answer.len && a.answer.data[a.answer.len - 1] != '\n')
        putchar('\n');
    if (!term_flush()) {
        code = EXIT_REFUSED; /* term_end says why */
    } else {
        note_receipt(&a);
        code = code ? code : finish(&a, o);
    }
    json_free(a.usage);
    json_free(a.hearth);
    free(a.model);
    buf_done(&a.answer);
    return code;
}

/* ---- the command ---- */

static int take(void *ctx, int value, const char *arg)
{
    return ask_options_take(ctx, command_find("ask"), value, arg);
}

/* Our own daemon says what its model's file recommends; another server may not know these
 * parameters, and gets what was given. */
static int set_defaults(struct client *c, struct ask_options *o)
{
    json *models = NULL;
    /* One question has one answer, unless asked otherwise. */
    if (isnan(o->temperature))
        o->temperature = 0;
    if (c->url)
        return 0;
    int code = api_call(c, "GET", "/v1/models", NULL, &models);
    if (code)
        return code;
    const json *first = json_first(json_get(models, "data", NULL));
    ask_options_default(o, json_get(json_get(first, "hearth", NULL), "sampling", NULL));
    json_free(models);
    return 0;
}

int cmd_ask(struct client *c, int argc, char **argv)
{
    struct ask_options o;
    struct options_reader reader = {c, command_find("ask"), take, &o};
    int first;
    ask_options_init(&o);
    int code = options_read(&reader, argc, argv, &first);
    if (code)
        return code;
    struct buf question;
    buf_init(&question, ASK_TEXT_MAX);
    code = read_question(c, argc - first, argv + first, &question);
    if (!code)
        code = api_wait_ready(c);
    if (!code)
        code = set_defaults(c, &o);
    if (!code) {
        api_catch_interrupt(c);
        code = ask(c, &o, &question);
    }
    buf_done(&question);
    return code;
}
