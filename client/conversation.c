/* Reading the conversations API. */
#include "client/conversation.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "client/options.h"

#define PAGE 100
#define ID_PREFIX "conv_"
#define ID_DIGITS 32
#define LIST_NUMBER_DIGITS (CONVERSATION_PREFIX_MIN - 1) /* longer: the beginning of an id */
#define PATH_MAX_BYTES 4096

/* ---- objects ---- */

const char *conversation_title(const json *j)
{
    const char *own = json_str(json_get(json_get(j, "metadata", NULL), "title", NULL));
    const char *derived = json_str(json_get(json_get(j, "hearth", NULL), "title", NULL));
    if (own && *own)
        return own;
    return derived && *derived ? derived : "(untitled)";
}

static bool is_thought(const json *part)
{
    const char *type = part ? json_str(json_get(part, "type", NULL)) : NULL;
    return type && !strcmp(type, "reasoning_text");
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
        if (text && !is_thought(part))
            buf_str(b, text);
    }
}

const char *item_thought(const json *item)
{
    const json *content = json_get(item, "content", NULL);
    const json *part = json_type(content) == JSON_ARRAY ? json_first(content) : NULL;
    return is_thought(part) ? json_str(json_get(part, "text", NULL)) : NULL;
}

void item_whole_text(const json *item, struct buf *b)
{
    const json *thinking = json_get(json_get(item, "hearth", NULL), "thinking", NULL);
    const char *before = json_str(json_get(thinking, "before", NULL)),
               *between = json_str(json_get(thinking, "between", NULL));
    const char *const around[] = {before, item_thought(item), between};
    for (size_t i = 0; i < sizeof around / sizeof *around; i++)
        if (around[i])
            buf_str(b, around[i]);
    item_text(item, b);
}

const char *item_role(const json *item)
{
    const char *role = json_str(json_get(item, "role", NULL));
    return role ? role : "?";
}

const char *item_flaw(const json *item)
{
    const json *hearth = json_get(item, "hearth", NULL);
    const char *exact = json_str(json_get(hearth, "status", NULL)),
               *finish = json_str(json_get(hearth, "finish", NULL)),
               *status = json_str(json_get(item, "status", NULL));
    if (exact && !strcmp(exact, "failed"))
        return "failed";
    if (exact && !strcmp(exact, "generating"))
        return "being written";
    if (!status || strcmp(status, "incomplete"))
        return NULL;
    return finish && !strcmp(finish, "length") ? "cut at its token limit" : "interrupted";
}

/* ---- pages ---- */

static char *page_path(const char *head, const char *order, int limit, const char *after)
{
    struct buf b;
    buf_init(&b, PATH_MAX_BYTES);
    buf_printf(&b, "%s?order=%s&limit=%d", head, order, limit);
    if (after) {
        char *tail = api_path("&after=", after, "");
        buf_str(&b, tail ? tail : "");
        free(tail);
    }
    return buf_take(&b, NULL);
}

char *page_next(const json *page)
{
    const char *last = json_str(json_get(page, "last_id", NULL));
    return last && *last && json_bool(json_get(page, "has_more", NULL)) ? strdup(last) : NULL;
}

static int call_page(struct client *c, char *path, json **ret)
{
    int code = path ? api_call(c, "GET", path, NULL, ret)
                    : api_fail(c, EXIT_REFUSED, "nomem", "out of memory");
    free(path);
    return code;
}

int conversation_page(struct client *c, const char *order, int limit, const char *after, json **ret)
{
    return call_page(c, page_path("/v1/conversations", order, limit, after), ret);
}

int conversation_items(struct client *c, const char *id, int (*on_item)(void *, const json *),
                       void *ctx)
{
    char *head = api_path("/v1/conversations/", id, "/items"), *after = NULL;
    bool more = true;
    int code = head ? 0 : EXIT_REFUSED;
    while (!code && more) {
        json *page = NULL;
        code = call_page(c, page_path(head, "asc", PAGE, after), &page);
        for (const json *it = json_first(json_get(page, "data", NULL)); it && !code;
             it = json_next(it))
            code = on_item(ctx, it);
        free(after);
        after = page_next(page);
        more = after != NULL;
        json_free(page);
    }
    free(after);
    free(head);
    return code;
}

/* ---- names ---- */

enum conversation_name conversation_name(const char *what, int64_t *ret_number)
{
    size_t n = strlen(what), n_prefix = strlen(ID_PREFIX);
    bool has_prefix = !strncmp(what, ID_PREFIX, n_prefix);
    if (has_prefix && n == n_prefix + ID_DIGITS)
        return NAME_WHOLE;
    if (n <= LIST_NUMBER_DIGITS && parse_int(what, 1, 999, ret_number))
        return NAME_NUMBER;
    if (has_prefix)
        what += n_prefix;
    return strlen(what) >= CONVERSATION_PREFIX_MIN ? NAME_PREFIX : NAME_BAD;
}

bool conversation_is_meant(const char *id, const char *what)
{
    size_t n_prefix = strlen(ID_PREFIX);
    if (!strncmp(id, what, strlen(what)))
        return true;
    return !strncmp(id, ID_PREFIX, n_prefix) && !strncmp(id + n_prefix, what, strlen(what));
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
    if (!id || !(s->number ? s->seen == s->number : conversation_is_meant(id, s->what)))
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
        code = conversation_page(c, "desc", PAGE, after, &page);
        for (const json *it = json_first(json_get(page, "data", NULL)); it; it = json_next(it))
            look_at(s, it);
        free(after);
        after = page_next(page);
        more = after != NULL;
        json_free(page);
    }
    free(after);
    return code;
}

int conversation_resolve(struct client *c, const char *what, char **ret)
{
    struct search s = {.what = what};
    enum conversation_name kind = conversation_name(what, &s.number);
    if (kind == NAME_WHOLE) {
        *ret = strdup(what);
        return *ret ? 0 : EXIT_REFUSED;
    }
    if (kind == NAME_BAD)
        return api_fail(c, EXIT_NOT_FOUND, "not_found",
                        "'%s' names no conversation: an id, at least %d digits of one, or a number "
                        "of the list is wanted",
                        what, CONVERSATION_PREFIX_MIN);
    int code = search_pages(c, &s);
    if (!code && s.n_found == 1) {
        *ret = s.found;
        return 0;
    }
    free(s.found);
    if (code)
        return code;
    if (s.n_found)
        return api_fail(c, EXIT_NOT_FOUND, "ambiguous",
                        "'%s' begins the ids of %d conversations; write more of it", what,
                        s.n_found);
    return api_fail(c, EXIT_NOT_FOUND, "not_found", "there is no conversation '%s'", what);
}

int conversation_choose(struct client *c, const char *what, char **ret)
{
    if (what)
        return conversation_resolve(c, what, ret);
    json *page = NULL;
    int code = conversation_page(c, "desc", 1, NULL, &page);
    const char *id = json_str(json_get(json_first(json_get(page, "data", NULL)), "id", NULL));
    char *chosen = id ? strdup(id) : NULL;
    json_free(page);
    if (code || chosen) {
        *ret = chosen;
        return code;
    }
    return api_fail(c, EXIT_NOT_FOUND, "not_found", "there is no conversation yet");
}

void format_time(double seconds, char ret[20])
{
    bool is_sane = seconds >= 0 && seconds < 253402300800.0; /* the year 10000 */
    time_t t = is_sane ? (time_t)seconds : 0;
    struct tm tm;
    if (!is_sane || !localtime_r(&t, &tm) || !strftime(ret, 20, "%Y-%m-%d %H:%M", &tm))
        snprintf(ret, 20, "?");
}
