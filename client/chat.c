/* The conversation's side of a chat. */
#include "client/chat.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/options.h"
#include "client/term.h"

#define SHOWN_ITEMS 6 /* of a conversation that is opened */

/* What a chat uses when neither the person nor the file says: SmolLM2 and its like loop at plain
 * defaults. */
#define CHAT_TEMPERATURE 0.7
#define CHAT_MIN_P 0.05
#define CHAT_REPETITION 1.1

static void default_to(double *value, const json *recommended, double otherwise)
{
    if (isnan(*value))
        *value = json_type(recommended) == JSON_NUMBER ? json_double(recommended) : otherwise;
}

int chat_init(struct chat *chat, struct client *c, const struct ask_options *o)
{
    *chat = (struct chat){.client = c, .options = *o};
    json *models = NULL;
    int code = api_call(c, "GET", "/v1/models", NULL, &models);
    if (code)
        return code;
    const json *first = json_first(json_get(models, "data", NULL));
    const json *sampling = json_get(json_get(first, "hearth", NULL), "sampling", NULL);
    const char *id = json_str(json_get(first, "id", NULL));
    chat->model = strdup(id ? id : "?");
    chat->system = o->system ? strdup(o->system) : NULL;
    default_to(&chat->options.temperature, json_get(sampling, "temperature", NULL),
               CHAT_TEMPERATURE);
    default_to(&chat->options.top_p, json_get(sampling, "top_p", NULL), 1);
    default_to(&chat->options.min_p, json_get(sampling, "min_p", NULL), CHAT_MIN_P);
    default_to(&chat->options.repetition_penalty, json_get(sampling, "repetition_penalty", NULL),
               CHAT_REPETITION);
    json_free(models);
    return chat->model ? 0 : EXIT_REFUSED;
}

void chat_done(struct chat *chat)
{
    free(chat->id);
    free(chat->system);
    free(chat->model);
    json_free(chat->last);
    *chat = (struct chat){0};
}

void chat_new(struct chat *chat, const char *system)
{
    free(chat->id);
    chat->id = NULL;
    json_free(chat->last);
    chat->last = NULL;
    chat->n_turns = chat->prompt_tokens = chat->cached_tokens = chat->completion_tokens = 0;
    if (system) {
        free(chat->system);
        chat->system = strdup(system);
    }
}

/* The newest items, newest first: a list object. */
static int newest_items(struct chat *chat, int limit, json **ret)
{
    char tail[64];
    snprintf(tail, sizeof tail, "/items?order=desc&limit=%d", limit);
    char *path = api_path("/v1/conversations/", chat->id, tail);
    int code = path ? api_call(chat->client, "GET", path, NULL, ret) : EXIT_REFUSED;
    free(path);
    return code;
}

static void print_item(const json *item)
{
    struct buf b;
    buf_init(&b, WIRE_BODY_MAX);
    item_text(item, &b);
    const char *role = json_str(json_get(item, "role", NULL));
    printf("%s ", role && !strcmp(role, "user")     ? ">"
                  : role && !strcmp(role, "system") ? "system:"
                                                    : "");
    term_text(b.data ? b.data : "", b.len);
    puts("\n");
    buf_done(&b);
}

/* Prints the end of the opened conversation, oldest first, and warns when another model wrote its
 * answers. */
static int show_end(struct chat *chat)
{
    json *page = NULL;
    int code = newest_items(chat, SHOWN_ITEMS, &page);
    if (code)
        return code;
    const json *items[SHOWN_ITEMS];
    size_t n = 0;
    const char *wrote = NULL;
    for (const json *it = json_first(json_get(page, "data", NULL)); it && n < SHOWN_ITEMS;
         it = json_next(it)) {
        const char *model = json_str(json_get(json_get(it, "hearth", NULL), "model", NULL));
        if (!wrote && model && *model)
            wrote = model;
        items[n++] = it;
    }
    if (json_bool(json_get(page, "has_more", NULL)))
        term_note("… (hearth show %s prints all)", chat->id);
    while (n)
        print_item(items[--n]);
    if (wrote && strcmp(wrote, chat->model))
        fprintf(stderr, "hearth: this conversation was written with %s; %s reads its text anew\n",
                wrote, chat->model);
    json_free(page);
    return 0;
}

int chat_open(struct chat *chat, const char *id)
{
    char *whole = NULL;
    int code = conversation_resolve(chat->client, id, &whole);
    if (code)
        return code;
    json *j = NULL;
    char *path = api_path("/v1/conversations/", whole, "");
    code = path ? api_call(chat->client, "GET", path, NULL, &j) : EXIT_REFUSED;
    free(path);
    if (!code) {
        chat_new(chat, NULL);
        chat->id = whole;
        whole = NULL;
        term_note("%s: %s", chat->id, conversation_title(j));
        code = show_end(chat);
    }
    json_free(j);
    free(whole);
    return code;
}

int chat_open_newest(struct chat *chat)
{
    json *page = NULL;
    int code = conversation_page(chat->client, 1, NULL, &page);
    if (code)
        return code;
    const char *id = json_str(json_get(json_first(json_get(page, "data", NULL)), "id", NULL));
    if (id)
        code = chat_open(chat, id);
    else
        fprintf(stderr, "hearth: there is no conversation to continue yet\n");
    json_free(page);
    return id ? code : EXIT_NOT_FOUND;
}

/* Makes the conversation, with its system text if there is one. */
static int begin(struct chat *chat)
{
    json *body = json_object(), *made = NULL;
    if (chat->system) {
        json *item = json_add(json_set(body, "items", json_array()), json_object());
        json_set_str(item, "type", "message");
        json_set_str(item, "role", "system");
        json_set_str(item, "content", chat->system);
    }
    int code = api_call(chat->client, "POST", "/v1/conversations", body, &made);
    const char *id = code ? NULL : json_str(json_get(made, "id", NULL));
    chat->id = id ? strdup(id) : NULL;
    json_free(made);
    return code ? code : chat->id ? 0 : EXIT_REFUSED;
}

/* One answer on its way. */
struct answering {
    struct chat *chat;
    bool is_begun, is_done, ends_with_newline;
    int n_idle;
    int64_t to_read; /* prompt tokens that no cache held; -1: not known */
};

static void note_progress(struct answering *a, const json *response)
{
    const json *cache = json_get(json_get(response, "hearth", NULL), "cache", NULL);
    if (json_get(cache, "computed", NULL))
        a->to_read = (int64_t)json_double(json_get(cache, "computed", NULL));
}

static int on_event(void *ctx, const char *event, const json *data)
{
    struct answering *a = ctx;
    const char *type = json_str(json_get(data, "type", NULL));
    if (!type)
        type = event ? event : "";
    const json *response = json_get(data, "response", NULL);
    if (!strcmp(type, "response.output_text.delta")) {
        const char *text = json_str(json_get(data, "delta", NULL));
        if (!text || !*text)
            return 0;
        term_progress_end();
        a->is_begun = true;
        term_text(text, strlen(text));
        fflush(stdout);
        a->ends_with_newline = text[strlen(text) - 1] == '\n';
    } else if (!strcmp(type, "response.in_progress")) {
        note_progress(a, response);
    } else if (!strcmp(type, "response.completed") || !strcmp(type, "response.incomplete") ||
               !strcmp(type, "response.failed")) {
        json_free(a->chat->last);
        a->chat->last = json_copy(response);
        a->is_done = true;
    }
    return 0;
}

static void on_idle(void *ctx)
{
    struct answering *a = ctx;
    char what[64];
    if (a->is_begun || ++a->n_idle <= 5)
        return;
    if (a->to_read > 0)
        snprintf(what, sizeof what, "reading %lld tokens, %d s", (long long)a->to_read,
                 a->n_idle / 10);
    else
        snprintf(what, sizeof what, "reading, %d s", a->n_idle / 10);
    term_progress(what, -1);
}

static int64_t count(const json *object, const char *key)
{
    return (int64_t)json_double(json_get(object, key, NULL));
}

/* Adds the finished response to the session's sums and says what a person should know about it. */
static int finish(struct chat *chat)
{
    const json *usage = json_get(chat->last, "usage", NULL);
    const char *status = json_str(json_get(chat->last, "status", NULL));
    const json *error = json_get(chat->last, "error", NULL);
    chat->n_turns++;
    chat->prompt_tokens += count(usage, "input_tokens");
    chat->completion_tokens += count(usage, "output_tokens");
    chat->cached_tokens += count(json_get(usage, "input_tokens_details", NULL), "cached_tokens");
    if (status && !strcmp(status, "incomplete"))
        term_note("[the answer ends here: its token limit or the end of the window was reached]");
    const json *stored = json_get(json_get(chat->last, "hearth", NULL), "stored", NULL);
    if (json_type(stored) == JSON_BOOL && !json_bool(stored))
        fprintf(stderr, "hearth: this answer could not be stored (is the disk full?); it will be "
                        "missing from the history\n");
    if (!status || strcmp(status, "failed"))
        return 0;
    const char *message = json_str(json_get(error, "message", NULL));
    fprintf(stderr, "hearth: %s\n", message ? message : "the answer failed");
    return EXIT_REFUSED;
}

/* parent: NULL: at the end; "root"; or the message after which the question stands. */
static int send_after(struct chat *chat, const char *text, size_t n, const char *parent)
{
    int code = chat->id ? 0 : begin(chat);
    if (code)
        return code;
    json *body = json_object();
    ask_options_write(&chat->options, body, "max_output_tokens");
    json_set_str(body, "conversation", chat->id);
    json_set_strn(body, "input", text, n);
    json_set_bool(body, "stream", true);
    if (parent) {
        const json *given = json_get(body, "hearth", NULL);
        json *hearth = given ? json_copy(given) : json_object();
        json_set_str(hearth, "parent", parent);
        json_set(body, "hearth", hearth);
    }
    struct answering a = {.chat = chat, .to_read = -1};
    struct api_stream s = {
        .path = "/v1/responses", .body = body, .on_event = on_event, .on_idle = on_idle, .ctx = &a};
    code = api_stream(chat->client, &s);
    term_progress_end();
    if (a.is_begun && !a.ends_with_newline)
        putchar('\n');
    if (code == EXIT_INTERRUPTED)
        term_note("[stopped]");
    if (code)
        return code;
    if (a.is_done)
        return finish(chat);
    fprintf(stderr, "hearth: the answer broke off\n");
    return EXIT_REFUSED;
}

int chat_send(struct chat *chat, const char *text, size_t n)
{
    return send_after(chat, text, n, NULL);
}

/* The last question and the message before it ("root": none). Both allocated. */
static int last_question(struct chat *chat, char **ret_text, char **ret_parent)
{
    json *page = NULL;
    *ret_text = *ret_parent = NULL;
    int code = chat->id ? newest_items(chat, 20, &page) : 0;
    if (code)
        return code;
    const json *it = json_first(json_get(page, "data", NULL));
    while (it &&
           strcmp(json_str(json_get(it, "role", NULL)) ? json_str(json_get(it, "role", NULL)) : "",
                  "user"))
        it = json_next(it);
    if (it) {
        struct buf b;
        buf_init(&b, WIRE_BODY_MAX);
        item_text(it, &b);
        *ret_text = buf_take(&b, NULL);
        const json *before = json_next(it);
        const char *id = before ? json_str(json_get(before, "id", NULL)) : "root";
        *ret_parent = id ? strdup(id) : NULL;
    }
    json_free(page);
    if (*ret_text && *ret_parent)
        return 0;
    free(*ret_text);
    *ret_text = NULL;
    fprintf(stderr, "hearth: there is no question yet\n");
    return EXIT_NOT_FOUND;
}

int chat_regenerate(struct chat *chat)
{
    char *text, *parent;
    int code = last_question(chat, &text, &parent);
    if (!code)
        code = send_after(chat, text, strlen(text), parent);
    free(text);
    free(parent);
    return code;
}

char *chat_last_question(struct chat *chat)
{
    char *text, *parent;
    if (last_question(chat, &text, &parent))
        return NULL;
    free(parent);
    return text;
}

int chat_edit(struct chat *chat, const char *text, size_t n)
{
    char *old, *parent;
    int code = last_question(chat, &old, &parent);
    if (!code)
        code = send_after(chat, text, n, parent);
    free(old);
    free(parent);
    return code;
}
