/*
 * hearth cache: what the daemon has read and still knows, and orders about it. What was said is
 * never touched.
 *
 *     hearth cache [list]            a line each conversation, and the whole
 *     hearth cache drop ID… | --all
 *     hearth cache pin ID… [--all]   its system prompt, or all of it
 *     hearth cache unpin ID…
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/conversation.h"
#include "client/fields.h"
#include "client/options.h"
#include "client/term.h"

#define LIST_DEFAULT 20
#define LIST_MAX 100
#define ROW_COLUMNS 60 /* before the title */

enum { OPT_ALL = OPT_OWN, OPT_LIMIT, OPT_AFTER };
const struct option_row cache_command_options[] = {
    {"all", NULL, OPT_ALL, "drop: all that is yours; pin: not only the system prompt"},
    {"limit", "N", OPT_LIMIT, "list: at most so many, from 1 to 100; 20 otherwise"},
    {"after", "ID", OPT_AFTER, "list: those that follow this one"},
    {NULL, NULL, 0, NULL},
};

struct cache_arguments {
    bool is_all;
    int64_t limit;
    const char *after;
};

static int take(void *ctx, int value, const char *arg)
{
    struct cache_arguments *a = ctx;
    if (value == OPT_ALL)
        a->is_all = true;
    else if (value == OPT_AFTER)
        a->after = arg;
    else if (!parse_int(arg, 1, LIST_MAX, &a->limit))
        return usage_error(command_find("cache"), "--limit %s: a whole number from 1 to %d", arg,
                           LIST_MAX);
    return 0;
}

static const char *plural(double n)
{
    return n == 1 ? "" : "s";
}

/* ---- list ---- */

static void print_tier(const char *name, const json *tier)
{
    const double n = number(tier, "blocks"), tails = number(tier, "tails");
    printf("%s: %.0f block%s, %.1f MiB", name, n, plural(n), number(tier, "bytes") / 1048576);
    if (number(tier, "pinned") > 0)
        printf(", %.0f pinned", number(tier, "pinned"));
    if (tails > 0)
        printf(", %.0f not full", tails);
    putchar('\n');
}

static void print_whole(const json *hearth)
{
    const json *disk = json_get(hearth, "disk", NULL);
    print_tier("in RAM", json_get(hearth, "ram", NULL));
    if (disk)
        print_tier("on disk", disk);
    else
        puts("on disk: nothing is kept");
    printf("a block: %.0f tokens, %.1f KiB", number(hearth, "block_tokens"),
           number(hearth, "block_bytes") / 1024);
    if (number(hearth, "pinned_max") > 0)
        printf("; at most %.0f can be pinned", number(hearth, "pinned_max"));
    putchar('\n');
}

/* Where there are several; a daemon of before doesn't tell. */
static void print_by_model(const json *hearth)
{
    const json *first = json_first(json_get(hearth, "models", NULL));
    if (!first || !json_next(first))
        return;
    for (const json *it = first; it; it = json_next(it)) {
        const json *ram = json_get(it, "ram", NULL), *disk = json_get(it, "disk", NULL);
        const char *id = json_str(json_get(it, "id", NULL));
        fputs("  ", stdout);
        term_line(stdout, id ? id : "?", ROW_COLUMNS);
        printf("%s: RAM %.1f MiB, disk %.1f MiB\n",
               json_bool(json_get(it, "loaded", NULL)) ? "" : " (not loaded)",
               number(ram, "bytes") / 1048576, number(disk, "bytes") / 1048576);
    }
}

static void print_row(const json *j)
{
    const json *ram = json_get(j, "ram", NULL), *disk = json_get(j, "disk", NULL);
    const char *id = json_str(json_get(j, "id", NULL)), *title;
    title = json_str(json_get(j, "title", NULL));
    printf("%.13s  %6.0f  %7.1f  %6.0f  %7.1f  %6.0f  ", id ? id : "?", number(ram, "blocks"),
           number(ram, "bytes") / 1048576, number(disk, "blocks"),
           number(disk, "bytes") / 1048576, number(j, "pinned"));
    term_line(stdout, title && *title ? title : "(untitled)",
              (size_t)(term_width() > ROW_COLUMNS + 10 ? term_width() - ROW_COLUMNS : 10));
    putchar('\n');
}

static int list_page(struct client *c, const struct cache_arguments *a, json **ret)
{
    char path[128], *after = NULL;
    int code = a->after ? conversation_resolve(c, a->after, &after) : 0;
    if (code)
        return code;
    snprintf(path, sizeof path, "/v1/hearth/cache?limit=%d%s%.64s", (int)a->limit,
             after ? "&after=" : "", after ? after : "");
    free(after);
    return api_call(c, "GET", path, NULL, ret);
}

static int list(struct client *c, const struct cache_arguments *a)
{
    json *page = NULL;
    int code = list_page(c, a, &page);
    const json *first = json_first(json_get(page, "data", NULL));
    if (!code && c->is_json) {
        code = api_print_json(c, page);
    } else if (!code) {
        print_whole(json_get(page, "hearth", NULL));
        print_by_model(json_get(page, "hearth", NULL));
        if (first)
            printf("\n%-13s  %6s  %7s  %6s  %7s  %6s\n", "", "RAM", "MiB", "disk", "MiB",
                   "pinned");
        for (const json *it = first; it; it = json_next(it))
            print_row(it);
        fflush(stdout);
        char *next = page_next(page);
        if (next)
            term_note("more: hearth cache --after %s", next);
        free(next);
    }
    json_free(page);
    return code;
}

/* ---- drop, pin, unpin ---- */

static void print_drop(const char *id, const json *j)
{
    const json *kept = json_get(j, "kept", NULL);
    const double n = number(j, "blocks");
    static const struct {
        const char *key, *text;
    } reasons[] = {{"shared", "used by other conversations"},
                   {"pinned", "pinned"},
                   {"in_use", "in use"}};
    printf("dropped %s: %.0f block%s (%.1f MiB)", id ? id : "all", n, plural(n),
           number(j, "kv_bytes") / 1048576);
    const char *join = "; kept: ";
    for (size_t i = 0; i < sizeof reasons / sizeof *reasons; i++) {
        if (number(kept, reasons[i].key) <= 0)
            continue;
        printf("%s%.0f %s", join, number(kept, reasons[i].key), reasons[i].text);
        join = ", ";
    }
    putchar('\n');
}

static void print_pin(const char *id, const json *j)
{
    const double n = number(j, "pinned");
    printf("pinned %s: %.0f block%s (%.0f in RAM, %.0f on disk now)\n", id, n, plural(n),
           number(j, "ram"), number(j, "disk"));
}

static void print_unpin(const char *id, const json *j)
{
    const double n = number(j, "unpinned");
    printf("unpinned %s: %.0f block%s\n", id, n, plural(n));
}

static const struct order {
    const char *name, *path;
    void (*print)(const char *id, const json *j);
} orders[] = {
    {"drop", "/v1/hearth/cache/drop", print_drop},
    {"pin", "/v1/hearth/cache/pin", print_pin},
    {"unpin", "/v1/hearth/cache/unpin", print_unpin},
};

/* id NULL: all. */
static int order_one(struct client *c, const struct order *o, const char *id, bool is_all)
{
    json *j = NULL, *body = json_object();
    if (id)
        json_set_str(body, "conversation", id);
    if (is_all)
        json_set_bool(body, "all", true);
    int code = api_call(c, "POST", o->path, body, &j);
    if (!code && c->is_json)
        code = api_print_json(c, j);
    else if (!code)
        o->print(id, j);
    json_free(j);
    return code;
}

/* One bad name must not leave half done: all are resolved first. */
static int order_named(struct client *c, const struct order *o, int n, char **names, bool is_all)
{
    char **ids = calloc((size_t)n, sizeof *ids);
    int code = ids ? 0 : api_fail(c, EXIT_REFUSED, "nomem", "out of memory");
    for (int i = 0; i < n && !code; i++)
        code = conversation_resolve(c, names[i], &ids[i]);
    for (int i = 0; i < n && !code; i++)
        code = order_one(c, o, ids[i], is_all);
    for (int i = 0; i < n && ids; i++)
        free(ids[i]);
    free(ids);
    return code;
}

static int run_order(struct client *c, const struct order *o, const struct cache_arguments *a,
                     int n, char **names)
{
    const struct command *self = command_find("cache");
    const bool is_drop = o == &orders[0], is_pin = o == &orders[1];
    if (a->is_all && !is_drop && !is_pin)
        return usage_error(self, "%s takes no --all", o->name);
    if (a->is_all && is_drop && n > 0)
        return usage_error(self, "drop takes conversations or --all, not both");
    if (a->is_all && is_drop)
        return order_one(c, o, NULL, true);
    if (n == 0)
        return usage_error(self, "which conversation? (hearth list)");
    return order_named(c, o, n, names, a->is_all);
}

int cmd_cache(struct client *c, int argc, char **argv)
{
    const struct command *self = command_find("cache");
    struct cache_arguments a = {.limit = LIST_DEFAULT};
    struct options_reader reader = {c, self, take, &a};
    int first;
    int code = options_read(&reader, argc, argv, &first);
    if (code)
        return code;
    const char *what = first < argc ? argv[first++] : "list";
    for (size_t i = 0; i < sizeof orders / sizeof *orders; i++)
        if (!strcmp(what, orders[i].name))
            return run_order(c, &orders[i], &a, argc - first, argv + first);
    if (strcmp(what, "list"))
        return usage_error(self, "there is no cache %s", what);
    if (first < argc)
        return usage_error(self, "list takes no arguments");
    if (a.is_all)
        return usage_error(self, "list takes no --all");
    return list(c, &a);
}
