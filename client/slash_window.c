/*
 * The slash commands about the window: /context, /dropped, /cut, /summary, and pins.
 *
 *      /pin [N | last | ID]   a message: the N-th from the end (1, last: the newest), or by its id
 *      /unpin [N | last | ID] a pin: the N-th of /pins, or by its id
 *      /remember TEXT         a note of one's own; quotes around it aren't part of it
 *
 * Pins act at once: what isn't in the window is read with the next message.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "client/fields.h"
#include "client/slash.h"
#include "client/term.h"
#include "client/window.h"

#define PIN_BACK_MAX 100 /* a page of items */
#define WORDS_COLUMNS 60
#define PIN_ROW_COLUMNS 24 /* before the text */

static int inval(struct session *s, const char *text)
{
    return api_fail(s->chat.client, EXIT_USAGE, "inval", "%s", text);
}

/* ---- the window ---- */

/* 0 when there is a conversation. */
static int need(struct session *s)
{
    if (s->chat.id)
        return 0;
    return api_fail(s->chat.client, EXIT_NOT_FOUND, "not_found",
                    "this conversation begins with the first message");
}

int slash_context(struct session *s, const char *rest)
{
    struct chat *chat = &s->chat;
    const bool is_new = !chat->id;
    if (!*rest)
        return is_new ? need(s) : window_show(chat->client, chat->id, false);
    int code = is_new ? chat_begin(chat) : 0;
    if (!code)
        code = window_set(chat->client, chat->id, rest);
    if (code && is_new && chat->id)
        chat_abandon(chat);
    return code;
}

int slash_dropped(struct session *s, const char *rest)
{
    int code = need(s);
    if (!code && *rest)
        return inval(s, "/dropped: takes no words");
    return code ? code : window_dropped(s->chat.client, s->chat.id, false);
}

int slash_cut(struct session *s, const char *rest)
{
    int code = need(s);
    return code ? code : window_cut(s->chat.client, s->chat.id, 0, *rest ? rest : NULL);
}

int slash_summary(struct session *s, const char *rest)
{
    int code = need(s);
    if (code)
        return code;
    if (*rest && strcmp(rest, "edit"))
        return inval(s, "/summary [edit]: there is nothing else to do with it");
    return *rest ? summary_edit(s->chat.client, s->chat.id)
                 : summary_show(s->chat.client, s->chat.id);
}

/* ---- pins ---- */

static int call_pins(struct session *s, const char *method, const char *tail, json *body,
                     json **ret)
{
    char *path = window_path(s->chat.client, s->chat.id, tail);
    int code = EXIT_REFUSED;
    if (path)
        code = api_call(s->chat.client, method, path, body, ret);
    else
        json_free(body);
    free(path);
    return code;
}

static int print_pin(struct session *s, const char *done, const json *pin)
{
    if (s->chat.client->is_json)
        return api_print_json(s->chat.client, pin);
    printf("%s (%.0f tokens): ", done, number(pin, "tokens"));
    term_words(stdout, str_or(pin, "text", ""), WORDS_COLUMNS);
    putchar('\n');
    return 0;
}

/* The n-th newest message's id, allocated. */
static int find_message(struct session *s, int64_t n, char **ret)
{
    char tail[64];
    json *page = NULL;
    snprintf(tail, sizeof tail, "/items?order=desc&limit=%lld", (long long)n);
    char *path = api_path("/v1/conversations/", s->chat.id, tail);
    int code = path ? api_call(s->chat.client, "GET", path, NULL, &page) : EXIT_REFUSED;
    free(path);
    if (code)
        return code;
    const json *it = json_first(json_get(page, "data", NULL));
    for (int64_t i = 1; it && i < n; i++)
        it = json_next(it);
    *ret = it ? strdup(str_or(it, "id", "")) : NULL;
    json_free(page);
    return *ret ? 0
                : api_fail(s->chat.client, EXIT_NOT_FOUND, "not_found",
                           "there are not %lld messages yet", (long long)n);
}

int slash_pin(struct session *s, const char *rest)
{
    int64_t n = 1;
    char *id = NULL;
    json *pin = NULL;
    const bool is_id = !strncmp(rest, "msg_", 4);
    int code = need(s);
    if (code)
        return code;
    if (*rest && !is_id && strcmp(rest, "last") && !parse_int(rest, 1, PIN_BACK_MAX, &n))
        return inval(s, "/pin [N | last | ID]: the N-th message from the end, to 100, or its id");
    if (is_id)
        id = strdup(rest);
    code = is_id ? (id ? 0 : EXIT_REFUSED) : find_message(s, n, &id);
    if (!code) {
        json *body = json_object();
        json_set_str(body, "message", id);
        code = call_pins(s, "POST", "/pins", body, &pin);
    }
    if (!code)
        code = print_pin(s, "pinned", pin);
    json_free(pin);
    free(id);
    return code;
}

/* The pin that is meant, borrowed from the list; NULL. */
static const json *find_pin(const json *list, const char *what)
{
    int64_t n = 0, i = 0;
    const json *last = NULL;
    const bool is_number = parse_int(what, 1, INT32_MAX, &n);
    for (const json *it = json_first(json_get(list, "data", NULL)); it; it = json_next(it)) {
        const bool has_id = !strcmp(what, str_or(it, "id", "")) ||
                            !strcmp(what, str_or(it, "message", ""));
        last = it;
        if (is_number ? ++i == n : *what && has_id)
            return it;
    }
    return !*what || !strcmp(what, "last") ? last : NULL;
}

int slash_unpin(struct session *s, const char *rest)
{
    json *list = NULL, *reply = NULL;
    int code = need(s);
    if (!code)
        code = call_pins(s, "GET", "/pins", NULL, &list);
    const json *pin = code ? NULL : find_pin(list, rest);
    if (!code && !pin)
        code = api_fail(s->chat.client, EXIT_NOT_FOUND, "not_found",
                        "there is no such pin (/pins lists them)");
    if (!code) {
        char *tail = api_path("/pins/", str_or(pin, "id", ""), "");
        code = tail ? call_pins(s, "DELETE", tail, NULL, &reply) : EXIT_REFUSED;
        free(tail);
    }
    if (!code && s->chat.client->is_json)
        code = api_print_json(s->chat.client, reply);
    else if (!code)
        code = print_pin(s, "unpinned", pin);
    json_free(reply);
    json_free(list);
    return code;
}

int slash_pins(struct session *s, const char *rest)
{
    json *list = NULL;
    int n = 0, code = need(s);
    (void)rest;
    if (!code)
        code = call_pins(s, "GET", "/pins", NULL, &list);
    if (code)
        return code;
    if (s->chat.client->is_json) {
        code = api_print_json(s->chat.client, list);
        json_free(list);
        return code;
    }
    int room = (term_is_tty(STDOUT_FILENO) ? term_width() : 80) - PIN_ROW_COLUMNS;
    for (const json *it = json_first(json_get(list, "data", NULL)); it; it = json_next(it)) {
        printf("%3d %6.0f  %-10.10s ", ++n, number(it, "tokens"),
               *str_or(it, "message", "") ? str_or(it, "role", "") : "note");
        term_words(stdout, str_or(it, "text", ""), (size_t)(room > 8 ? room : 8));
        putchar('\n');
    }
    printf("%.0f of %.0f tokens that pins may take\n", number(list, "tokens"),
           number(list, "limit"));
    json_free(list);
    return 0;
}

int slash_remember(struct session *s, const char *rest)
{
    json *pin = NULL;
    const bool is_new = !s->chat.id;
    size_t n = strlen(rest);
    while (n && (rest[n - 1] == ' ' || rest[n - 1] == '\t' || rest[n - 1] == '\n'))
        n--;
    if (n >= 2 && rest[0] == '"' && rest[n - 1] == '"') {
        rest++;
        n -= 2;
    }
    if (!n)
        return inval(s, "/remember TEXT: what?");
    int code = is_new ? chat_begin(&s->chat) : 0;
    if (!code) {
        json *body = json_object();
        json_set_strn(body, "text", rest, n);
        code = call_pins(s, "POST", "/pins", body, &pin);
    }
    if (!code)
        code = print_pin(s, "remembered", pin);
    else if (is_new && s->chat.id)
        chat_abandon(&s->chat);
    json_free(pin);
    return code;
}
