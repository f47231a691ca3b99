/*
 * One answer on its way: the request, the events, what a person should know at its end.
 *
 *      in_progress (how much to read) ─► output_text.delta… ─► completed | incomplete | failed
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "client/chat.h"
#include "client/term.h"
#include "client/window.h"

#define RECEIPT_LINE_BYTES 1024

struct answering {
    struct chat *chat;
    bool is_created; /* the daemon has taken it */
    bool is_begun, is_done, ends_with_newline;
    int64_t begun_ms;
    int64_t to_read; /* prompt tokens, 0: not known */
    json *receipt;   /* the newest that came, of this turn */
};

static int64_t count(const json *object, const char *key)
{
    return (int64_t)json_double(json_get(object, key, NULL));
}

/* What is known before the first token: the receipt's count, or better the cache's of what is left
 * to compute. */
static void note_work(struct answering *a, const json *response)
{
    const json *hearth = json_get(response, "hearth", NULL);
    const json *cache = json_get(hearth, "cache", NULL);
    a->to_read =
        cache ? count(cache, "computed") : count(json_get(hearth, "receipt", NULL), "used");
}

static void keep_receipt(struct answering *a, const json *response)
{
    const json *receipt = json_get(json_get(response, "hearth", NULL), "receipt", NULL);
    if (!receipt)
        return;
    json_free(a->receipt);
    a->receipt = json_copy(receipt);
}

/* What became of the window, when something did; of stopped and failed answers, too. */
static void note_receipt(struct answering *a)
{
    struct chat *chat = a->chat;
    struct buf b;
    buf_init(&b, RECEIPT_LINE_BYTES);
    receipt_write(a->receipt, chat->receipt, &b);
    if (b.len && !buf_error(&b) && !chat->client->is_json)
        term_say("· %s", b.data);
    buf_done(&b);
    if (!a->receipt)
        return;
    json_free(chat->receipt);
    chat->receipt = a->receipt;
    a->receipt = NULL;
}

static int print_thought(struct answering *a, const char *text)
{
    if (!text || !*text)
        return 0;
    term_progress_end();
    a->is_begun = true;
    if (!a->chat->client->is_json)
        term_thought(text, strlen(text));
    return 0;
}

static int print_delta(struct answering *a, const char *text)
{
    size_t n = text ? strlen(text) : 0;
    if (!n)
        return 0;
    term_progress_end();
    term_thought_end();
    a->is_begun = true;
    a->ends_with_newline = text[n - 1] == '\n';
    if (a->chat->client->is_json)
        return 0;
    term_text(stdout, text, n);
    return !term_flush();
}

static int on_event(void *ctx, const char *event, const json *data)
{
    struct answering *a = ctx;
    const char *type = json_str(json_get(data, "type", NULL));
    if (!type)
        type = event ? event : "";
    const json *response = json_get(data, "response", NULL);
    if (!strcmp(type, "response.output_text.delta"))
        return print_delta(a, json_str(json_get(data, "delta", NULL)));
    if (!strcmp(type, "response.reasoning_text.delta"))
        return print_thought(a, json_str(json_get(data, "delta", NULL)));
    keep_receipt(a, response);
    a->is_created = a->is_created || response;
    if (!strcmp(type, "response.in_progress"))
        note_work(a, response);
    if (!strcmp(type, "response.completed") || !strcmp(type, "response.incomplete") ||
        !strcmp(type, "response.failed")) {
        json_free(a->chat->last);
        a->chat->last = json_copy(response);
        a->is_done = true;
        term_thought_end();
    }
    return 0;
}

static void on_idle(void *ctx)
{
    const struct answering *a = ctx;
    if (!a->is_begun)
        term_waiting(clock_ms() - a->begun_ms, a->to_read);
}

/* That the model read again what another had answered. */
static void note_model(const struct chat *chat)
{
    const json *hearth = json_get(chat->last, "hearth", NULL);
    const json *cache = json_get(hearth, "cache", NULL);
    const char *reason = json_str(json_get(json_get(cache, "miss", NULL), "reason", NULL));
    const char *model = json_str(json_get(chat->last, "model", NULL));
    if (reason && !strcmp(reason, "model"))
        term_say("· %s has read %lld tokens anew: another model answered before",
                 model ? model : "it", (long long)count(cache, "computed"));
}

/* Adds the finished response to the session's sums and says what a person should know about it. */
static int finish(struct chat *chat)
{
    const json *usage = json_get(chat->last, "usage", NULL);
    const char *status = json_str(json_get(chat->last, "status", NULL));
    chat->n_turns++;
    chat->prompt_tokens += count(usage, "input_tokens");
    chat->completion_tokens += count(usage, "output_tokens");
    chat->cached_tokens += count(json_get(usage, "input_tokens_details", NULL), "cached_tokens");
    if (chat->client->is_json)
        return api_print_json(chat->client, chat->last);
    note_model(chat);
    if (status && !strcmp(status, "incomplete"))
        fprintf(stderr, "hearth: the answer ends here: its token limit, or the window's end, was "
                        "reached\n");
    const json *stored = json_get(json_get(chat->last, "hearth", NULL), "stored", NULL);
    if (json_type(stored) == JSON_BOOL && !json_bool(stored))
        fprintf(stderr, "hearth: this answer could not be stored (is the disk full?): it will be "
                        "missing from the history\n");
    return 0;
}

static int finish_failed(struct chat *chat)
{
    const json *error = json_get(chat->last, "error", NULL);
    const char *message = json_str(json_get(error, "message", NULL)),
               *code = json_str(json_get(error, "code", NULL));
    return api_fail(chat->client, EXIT_REFUSED, code ? code : "failed", "%s",
                    message ? message : "the answer failed");
}

static bool has_failed(const json *response)
{
    const char *status = json_str(json_get(response, "status", NULL));
    return status && !strcmp(status, "failed");
}

static json *request_body(const struct chat *chat, const char *text, size_t n, const char *parent)
{
    json *body = json_object();
    struct ask_options options = chat->options;
    options.context = NULL; /* the conversation has it */
    ask_options_write(&options, body, "max_output_tokens");
    json_set_str(body, "conversation", chat->id);
    if (text)
        json_set_strn(body, "input", text, n);
    json_set_bool(body, "stream", true);
    if (parent) {
        const json *given = json_get(body, "hearth", NULL);
        json *hearth = given ? json_copy(given) : json_object();
        json_set_str(hearth, "parent", parent);
        json_set(body, "hearth", hearth);
    }
    return body;
}

int chat_send(struct chat *chat, const char *text, size_t n, const char *parent)
{
    bool is_new = !chat->id;
    int code = is_new ? chat_begin(chat) : 0;
    if (code)
        return code;
    struct answering a = {.chat = chat, .begun_ms = clock_ms()};
    struct api_stream s = {.path = "/v1/responses",
                           .body = request_body(chat, text, n, parent),
                           .on_event = on_event,
                           .on_idle = on_idle,
                           .ctx = &a};
    code = api_stream(chat->client, &s);
    term_progress_end();
    if (a.is_begun && !a.ends_with_newline && !chat->client->is_json)
        putchar('\n');
    if (!term_flush())
        return EXIT_REFUSED; /* term_end says why */
    if (code == EXIT_INTERRUPTED)
        term_note("[stopped]");
    note_receipt(&a);
    json_free(a.receipt);
    if (code && is_new && (s.status >= 400 || (s.status == 200 && !a.is_created)))
        chat_abandon(chat);
    if (code)
        return code;
    if (a.is_done)
        return has_failed(chat->last) ? finish_failed(chat) : finish(chat);
    return api_fail(chat->client, EXIT_REFUSED, "broke_off", "the answer broke off");
}
