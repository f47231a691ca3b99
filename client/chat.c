/* The conversation's side of a chat. */
#include "client/chat.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "client/term.h"
#include "client/window.h"

#define SHOWN_ITEMS 6     /* of a conversation that is opened */
#define QUESTION_ITEMS 50 /* the last question is among so many newest, or there is none */

int chat_init(struct chat *chat, struct client *c, const struct ask_options *o)
{
    *chat = (struct chat){.client = c, .options = *o};
    json *models = NULL;
    int code = api_call(c, "GET", "/v1/models", NULL, &models);
    if (code)
        return code;
    const json *first = json_first(json_get(models, "data", NULL));
    const char *id = json_str(json_get(first, "id", NULL));
    ask_options_default(&chat->options,
                        json_get(json_get(first, "hearth", NULL), "sampling", NULL));
    chat->model = strdup(id ? id : "?");
    chat->system = o->system ? strdup(o->system) : NULL;
    const bool is_alone = first && !json_next(first); /* then any name is it */
    json_free(models);
    if (!chat->model)
        return api_fail(c, EXIT_REFUSED, "nomem", "out of memory");
    return o->model && strcmp(o->model, "default") && !is_alone ? chat_set_model(chat, o->model)
                                                                : 0;
}

/* The id that is the name, or the only one that begins with it; *ret_names: all, for an error. */
static const char *find_model(const json *models, const char *name, struct buf *ret_names)
{
    const char *like = NULL;
    size_t n_like = 0;
    for (const json *it = json_first(json_get(models, "data", NULL)); it; it = json_next(it)) {
        const char *id = json_str(json_get(it, "id", NULL));
        if (!id)
            continue;
        if (!strcmp(id, name))
            return id;
        buf_printf(ret_names, "%s%s", ret_names->len ? ", " : "", id);
        if (!strncasecmp(id, name, strlen(name))) {
            like = id;
            n_like++;
        }
    }
    return n_like == 1 ? like : NULL;
}

int chat_set_model(struct chat *chat, const char *name)
{
    json *models = NULL;
    struct buf names;
    int code = api_call(chat->client, "GET", "/v1/models", NULL, &models);
    if (code)
        return code;
    buf_init(&names, WIRE_BODY_MAX);
    const char *id = find_model(models, name, &names);
    char *copy = id ? strdup(id) : NULL;
    if (!id)
        code = api_fail(chat->client, EXIT_NOT_FOUND, "not_found",
                        "there is no model %s, or several begin so; there are: %s", name,
                        names.data ? names.data : "none");
    else if (!copy)
        code = api_fail(chat->client, EXIT_REFUSED, "nomem", "out of memory");
    if (copy) {
        free(chat->model);
        chat->model = copy;
        chat->options.model = copy;
    }
    buf_done(&names);
    json_free(models);
    return code;
}

void chat_done(struct chat *chat)
{
    free(chat->id);
    free(chat->system);
    free(chat->model);
    json_free(chat->last);
    json_free(chat->receipt);
    *chat = (struct chat){0};
}

void chat_new(struct chat *chat, const char *system)
{
    free(chat->id);
    chat->id = NULL;
    json_free(chat->last);
    chat->last = NULL;
    json_free(chat->receipt);
    chat->receipt = NULL;
    chat->n_turns = chat->prompt_tokens = chat->cached_tokens = chat->completion_tokens = 0;
    if (system) {
        free(chat->system);
        chat->system = strdup(system);
    }
}

/* ---- opening ---- */

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
    const char *role = item_role(item), *flaw = item_flaw(item);
    if (!strcmp(role, "user"))
        fputs("> ", stdout);
    else if (strcmp(role, "assistant"))
        printf("%s: ", role);
    term_text(stdout, b.data ? b.data : "", b.len);
    puts("");
    if (flaw)
        term_note("[%s]", flaw);
    puts("");
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
    while (n && !chat->client->is_json)
        print_item(items[--n]);
    fflush(stdout);
    if (wrote && strcmp(wrote, chat->model))
        fprintf(stderr,
                "hearth: this conversation's answers are by another model (%s); %s reads its text "
                "anew\n",
                wrote, chat->model);
    json_free(page);
    return 0;
}

/* --context is the conversation's from now on. */
static int set_strategy(struct chat *chat)
{
    if (!chat->options.context)
        return 0;
    return window_set_quietly(chat->client, chat->id, chat->options.context, NULL);
}

int chat_open(struct chat *chat, const char *name)
{
    char *whole = NULL;
    int code = conversation_resolve(chat->client, name, &whole);
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
        term_note("%s: %.200s", chat->id, conversation_title(j));
        code = show_end(chat);
    }
    if (!code)
        code = set_strategy(chat);
    json_free(j);
    free(whole);
    return code;
}

int chat_open_newest(struct chat *chat)
{
    json *page = NULL;
    int code = conversation_page(chat->client, "desc", 1, NULL, &page);
    if (code)
        return code;
    const char *id = json_str(json_get(json_first(json_get(page, "data", NULL)), "id", NULL));
    if (id)
        code = chat_open(chat, id);
    else
        code = api_fail(chat->client, EXIT_NOT_FOUND, "not_found",
                        "there is no conversation to continue yet");
    json_free(page);
    return code;
}

/* ---- beginning ---- */

int chat_begin(struct chat *chat)
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
    if (!code && chat->id && (code = set_strategy(chat)))
        chat_abandon(chat);
    if (code || chat->id)
        return code;
    return api_fail(chat->client, EXIT_REFUSED, "bad_reply", "the daemon made no conversation");
}

void chat_abandon(struct chat *chat)
{
    struct err e;
    struct wire_reply reply = {0};
    char *path = api_path("/v1/conversations/", chat->id, "");
    struct wire_request q = {.method = "DELETE", .path = path};
    /* What was wrong has been said; that an empty conversation stays isn't worth another line. */
    if (path && !wire_call(chat->client->wire, &q, &reply, &e) && reply.status == 200) {
        free(chat->id);
        chat->id = NULL;
    }
    buf_done(&reply.body);
    free(path);
}

/* ---- the last question ---- */

void question_done(struct question *q)
{
    free(q->text);
    free(q->id);
    free(q->before);
    *q = (struct question){0};
}

/* From its item in a page that is newest first. */
static void fill_question(const json *item, const json *page, struct question *ret)
{
    struct buf b;
    buf_init(&b, WIRE_BODY_MAX);
    buf_str(&b, "");
    item_text(item, &b);
    const char *id = json_str(json_get(item, "id", NULL));
    const char *before = json_str(json_get(json_next(item), "id", NULL));
    if (!json_next(item) && !json_bool(json_get(page, "has_more", NULL)))
        before = "root";
    ret->text = buf_take(&b, NULL);
    ret->id = id ? strdup(id) : NULL;
    ret->before = before ? strdup(before) : NULL;
}

int chat_last_question(struct chat *chat, struct question *ret)
{
    json *page = NULL;
    struct question q = {0};
    int code = chat->id ? newest_items(chat, QUESTION_ITEMS, &page) : 0;
    if (code)
        return code;
    const json *it = json_first(json_get(page, "data", NULL));
    while (it && strcmp(item_role(it), "user"))
        it = json_next(it);
    if (it)
        fill_question(it, page, &q);
    json_free(page);
    if (q.text && q.id && q.before) {
        *ret = q;
        return 0;
    }
    question_done(&q);
    return api_fail(chat->client, EXIT_NOT_FOUND, "not_found", "there is no question yet");
}
