/*
 * hearth ask: one question by /v1/chat/completions, so that it works against any OpenAI-compatible
 * server and leaves nothing in the history. The answer goes to stdout as it comes; with --json the
 * whole answer as one object at the end.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "client/api.h"
#include "client/options.h"
#include "client/term.h"

#define ASK_TEXT_MAX ((size_t)8 << 20)

struct asking {
    struct buf answer;
    char finish[32];
    json *usage, *hearth;
    bool is_json, is_begun;
    int n_idle;
};

/* The words of the command line, then what comes in by a pipe, a blank line between. */
static int read_question(int argc, char **argv, struct buf *b)
{
    for (int i = 0; i < argc; i++) {
        if (i)
            buf_char(b, ' ');
        buf_str(b, argv[i]);
    }
    if (argc && term_is_tty(STDIN_FILENO))
        return buf_error(b);
    char chunk[65536];
    ssize_t n;
    bool is_first = true;
    while (!buf_error(b) && (n = read(STDIN_FILENO, chunk, sizeof chunk)) > 0) {
        if (is_first && b->len)
            buf_str(b, "\n\n");
        is_first = false;
        buf_add(b, chunk, (size_t)n);
    }
    while (b->len && b->data[b->len - 1] == '\n')
        b->data[--b->len] = 0;
    return buf_error(b);
}

static int on_event(void *ctx, const char *event, const json *data)
{
    (void)event;
    struct asking *a = ctx;
    const json *choice = json_first(json_get(data, "choices", NULL));
    const char *text = json_str(json_get(json_get(choice, "delta", NULL), "content", NULL));
    const char *finish = json_str(json_get(choice, "finish_reason", NULL));
    const json *usage = json_get(data, "usage", NULL), *hearth = json_get(data, "hearth", NULL);
    if (text && *text) {
        term_progress_end();
        a->is_begun = true;
        buf_str(&a->answer, text);
        if (!a->is_json) {
            term_text(text, strlen(text));
            fflush(stdout);
        }
    }
    if (finish)
        snprintf(a->finish, sizeof a->finish, "%s", finish);
    if (usage) {
        json_free(a->usage);
        a->usage = json_copy(usage);
    }
    if (hearth) {
        json_free(a->hearth);
        a->hearth = json_copy(hearth);
    }
    return 0;
}

static void on_idle(void *ctx)
{
    struct asking *a = ctx;
    /* The first half second needs no words. */
    if (!a->is_begun && ++a->n_idle > 5)
        term_progress("reading", -1);
}

static json *question_body(const struct ask_options *o, const char *text, size_t n)
{
    json *messages = json_array();
    if (o->system) {
        json *m = json_add(messages, json_object());
        json_set_str(m, "role", "system");
        json_set_str(m, "content", o->system);
    }
    json *m = json_add(messages, json_object());
    json_set_str(m, "role", "user");
    json_set_strn(m, "content", text, n);
    json *body = json_object();
    ask_options_write(o, body, "max_tokens");
    json_set(body, "messages", messages);
    json_set_bool(body, "stream", true);
    json *stream_options = json_object();
    json_set_bool(stream_options, "include_usage", true);
    json_set(body, "stream_options", stream_options);
    return body;
}

static void print_json(struct asking *a)
{
    json *j = json_object();
    json_set_strn(j, "text", a->answer.data ? a->answer.data : "", a->answer.len);
    json_set_str(j, "finish_reason", a->finish);
    if (a->usage)
        json_set(j, "usage", json_copy(a->usage));
    if (a->hearth)
        json_set(j, "hearth", json_copy(a->hearth));
    struct buf b;
    buf_init(&b, WIRE_BODY_MAX);
    json_write(j, &b);
    if (!buf_error(&b))
        printf("%s\n", b.data);
    buf_done(&b);
    json_free(j);
}

static int ask(struct client *c, const struct ask_options *o, const struct buf *question)
{
    struct asking a = {.is_json = c->is_json};
    buf_init(&a.answer, WIRE_BODY_MAX);
    api_catch_interrupt(c);
    struct api_stream s = {.path = "/v1/chat/completions",
                           .body = question_body(o, question->data, question->len),
                           .on_event = on_event,
                           .on_idle = on_idle,
                           .ctx = &a};
    int code = api_stream(c, &s);
    term_progress_end();
    if (c->is_json && !code)
        print_json(&a);
    else if (!c->is_json && a.answer.len && a.answer.data[a.answer.len - 1] != '\n')
        fputc('\n', stdout);
    if (!code && !strcmp(a.finish, "length"))
        fprintf(stderr, "hearth: the answer ends here because its token limit was reached\n");
    if (!code && !a.finish[0]) {
        fprintf(stderr, "hearth: the answer broke off\n");
        code = EXIT_REFUSED;
    }
    json_free(a.usage);
    json_free(a.hearth);
    buf_done(&a.answer);
    return code;
}

int cmd_ask(struct client *c, int argc, char **argv)
{
    static const struct option options[] = {ASK_OPTIONS, {0}};
    const struct command *self = command_find("ask");
    struct ask_options o;
    ask_options_init(&o);
    o.temperature = 0; /* a question has one answer, unless asked otherwise */
    int opt, code;
    while ((opt = getopt_long(argc, argv, "", options, NULL)) != -1) {
        if (opt == '?')
            return usage_error(self, "that option isn't known");
        if ((code = ask_option(c, &o, opt, optarg, self)))
            return code;
    }
    struct buf question;
    buf_init(&question, ASK_TEXT_MAX);
    code = 0;
    if (read_question(argc - optind, argv + optind, &question))
        code = usage_error(self, "the question is longer than %zu bytes", ASK_TEXT_MAX);
    else if (!question.len)
        code = usage_error(self, "what is the question?");
    if (!code)
        code = api_wait_ready(c);
    if (!code)
        code = ask(c, &o, &question);
    buf_done(&question);
    return code;
}
