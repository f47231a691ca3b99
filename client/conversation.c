/* Reading the conversations API. */
#include "client/conversation.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "client/options.h"

#define PAGE 100

const char *conversation_title(const json *j)
{
    const char *own = json_str(json_get(json_get(j, "metadata", NULL), "title", NULL));
    const char *derived = json_str(json_get(json_get(j, "hearth", NULL), "title", NULL));
    if (own && *own)
        return own;
    return derived && *derived ? derived : "(untitled)";
}

void item_text(const json *item, struct buf *b)
{
    const json *content = json_get(item, "content", NULL);
    if (json_str(content))
        buf_str(b, json_str(content));
    if (json_type(content) != JSON_ARRAY)
        return;
    for (const json *part = json_first(content); part; part = json_next(part)) {
        const char *text = json_str(json_get(part, "text", NULL));
        if (text)
            buf_str(b, text);
    }
}

static char *page_path(const char *head, const char *order, int limit, const char *after)
{
    struct buf b;
    buf_init(&b, 4096);
    buf_printf(&b, "%s?order=%s&limit=%d", head, order, limit);
    if (after) {
        char *tail = api_path("&after=", after, "");
        buf_str(&b, tail ? tail : "");
        free(tail);
    }
    return buf_take(&b, NULL);
}

int conversation_page(struct client *c, int limit, const char *after, json **ret)
{
    char *path = page_path("/v1/conversations", "desc", limit, after);
    if (!path)
        return EXIT_REFUSED;
    int code = api_call(c, "GET", path, NULL, ret);
    free(path);
    return code;
}

int conversation_items(struct client *c, const char *id, int (*on_item)(void *, const json *),
                       void *ctx)
{
    char *head = api_path("/v1/conversations/", id, "/items");
    char *after = NULL;
    int code = head ? 0 : EXIT_REFUSED;
    bool more = true;
    while (!code && more) {
        json *page = NULL;
        char *path = page_path(head, "asc", PAGE, after);
        code = path ? api_call(c, "GET", path, NULL, &page) : EXIT_REFUSED;
        free(path);
        if (code)
            break;
        more = json_bool(json_get(page, "has_more", NULL));
        const char *last = json_str(json_get(page, "last_id", NULL));
        for (const json *it = json_first(json_get(page, "data", NULL)); it && !code;
             it = json_next(it))
            code = on_item(ctx, it);
        free(after);
        after = last ? strdup(last) : NULL;
        more = more && after;
        json_free(page);
    }
    free(after);
    free(head);
    return code;
}

/* Goes through the pages for ids that begin with `what`, or for the n-th. */
struct search {
    const char *what;
    int64_t number; /* 0: by prefix */
    int64_t seen;
    int n_found;
    char *found;
};

static void look_at(struct search *s, const json *j)
{
    const char *id = json_str(json_get(j, "id", NULL));
    s->seen++;
    if (!id)
        return;
    bool hit = s->number ? s->seen == s->number
                         : !strncmp(id, s->what, strlen(s->what)) ||
                               (strlen(id) > 5 && !strncmp(id + 5, s->what, strlen(s->what)));
    if (!hit)
        return;
    s->n_found++;
    if (!s->found)
        s->found = strdup(id);
}

static int search_pages(struct client *c, struct search *s)
{
    char *after = NULL;
    bool more = true;
    int code = 0;
    while (!code && more && !(s->number && s->found)) {
        json *page = NULL;
        code = conversation_page(c, PAGE, after, &page);
        if (code)
            break;
        for (const json *it = json_first(json_get(page, "data", NULL)); it; it = json_next(it))
            look_at(s, it);
        const char *last = json_str(json_get(page, "last_id", NULL));
        free(after);
        after = last ? strdup(last) : NULL;
        more = after && json_bool(json_get(page, "has_more", NULL));
        json_free(page);
    }
    free(after);
    return code;
}

int conversation_resolve(struct client *c, const char *what, char **ret)
{
    if (!strncmp(what, "conv_", 5) && strlen(what) == 37) {
        *ret = strdup(what);
        return *ret ? 0 : EXIT_REFUSED;
    }
    struct search s = {.what = what};
    /* Up to six digits are a number of the list; an id's beginning of digits alone is written with
     * conv_. */
    if (strlen(what) > 6 || !parse_int(what, 1, 999999, &s.number))
        s.number = 0;
    int code = search_pages(c, &s);
    if (!code && s.n_found == 1) {
        *ret = s.found;
        return 0;
    }
    free(s.found);
    if (code)
        return code;
    if (s.n_found)
        fprintf(stderr, "hearth: '%s' begins the ids of %d conversations; write more of it\n", what,
                s.n_found);
    else
        fprintf(stderr, "hearth: there is no conversation '%s'\n", what);
    return EXIT_NOT_FOUND;
}

void format_time(double seconds, char ret[20])
{
    time_t t = (time_t)seconds;
    struct tm tm;
    if (!localtime_r(&t, &tm) || !strftime(ret, 20, "%Y-%m-%d %H:%M", &tm))
        snprintf(ret, 20, "?");
}
