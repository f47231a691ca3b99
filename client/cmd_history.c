/*
 * hearth list, show, delete: the stored conversations.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "client/conversation.h"
#include "client/options.h"
#include "client/term.h"

#define LIST_DEFAULT 20
#define LIST_MAX 100
#define ROW_COLUMNS 47 /* before the title */
#define ITEM_MAX ((size_t)64 << 20)

enum { OPT_LIMIT = OPT_OWN, OPT_AFTER };
const struct option_row list_command_options[] = {
    {"limit", "N", OPT_LIMIT, "at most so many, from 1 to 100; 20 otherwise"},
    {"after", "ID", OPT_AFTER, "those that follow this one"},
    {NULL, NULL, 0, NULL},
};

/* ---- list ---- */

struct list_arguments {
    int64_t limit;
    const char *after;
};

static int take_list(void *ctx, int value, const char *arg)
{
    struct list_arguments *a = ctx;
    if (value == OPT_AFTER)
        a->after = arg;
    else if (!parse_int(arg, 1, LIST_MAX, &a->limit))
        return usage_error(command_find("list"), "--limit %s: a whole number from 1 to %d", arg,
                           LIST_MAX);
    return 0;
}

/* number 0: it is not known, as the list begins somewhere. */
static void print_row(const json *j, int64_t number)
{
    char when[20];
    const json *hearth = json_get(j, "hearth", NULL);
    const json *updated = json_get(hearth, "updated_at", NULL);
    const char *id = json_str(json_get(j, "id", NULL));
    format_time(json_double(updated ? updated : json_get(j, "created_at", NULL)), when);
    if (number)
        printf("%4lld", (long long)number);
    else
        fputs("    ", stdout);
    printf("  %.13s  %s  %5.0f  ", id ? id : "?", when,
           json_double(json_get(hearth, "n_messages", NULL)));
    term_line(stdout, conversation_title(j), (size_t)(term_width() - ROW_COLUMNS));
    putchar('\n');
}

int cmd_list(struct client *c, int argc, char **argv)
{
    const struct command *self = command_find("list");
    struct list_arguments a = {.limit = LIST_DEFAULT};
    struct options_reader reader = {c, self, take_list, &a};
    int first;
    char *after = NULL;
    json *page = NULL;
    int code = options_read(&reader, argc, argv, &first);
    if (!code && first < argc)
        code = usage_error(self, "list takes no arguments");
    if (!code && a.after)
        code = conversation_resolve(c, a.after, &after);
    if (!code)
        code = conversation_page(c, "desc", (int)a.limit, after, &page);
    int64_t n = 0;
    for (const json *it = code ? NULL : json_first(json_get(page, "data", NULL)); it && !code;
         it = json_next(it)) {
        if (c->is_json)
            code = api_print_json(c, it);
        else
            print_row(it, after ? 0 : ++n);
    }
    char *next = code || c->is_json ? NULL : page_next(page);
    fflush(stdout);
    if (next)
        term_note("more: hearth list --after %s", next);
    free(next);
    free(after);
    json_free(page);
    return code;
}

/* ---- show ---- */

static int show_item(void *ctx, const json *item)
{
    struct client *c = ctx;
    if (c->is_json)
        return api_print_json(c, item);
    struct buf b;
    buf_init(&b, ITEM_MAX);
    item_text(item, &b);
    const char *flaw = item_flaw(item);
    printf("── %s%s%s%s\n", item_role(item), flaw ? " (" : "", flaw ? flaw : "", flaw ? ")" : "");
    const char *thought = item_thought(item);
    fflush(stdout);
    term_thought(thought ? thought : "", thought ? strlen(thought) : 0);
    term_thought_end();
    term_text(stdout, b.data ? b.data : "", b.len);
    puts("\n");
    buf_done(&b);
    return term_flush() ? 0 : EXIT_REFUSED;
}

int cmd_show(struct client *c, int argc, char **argv)
{
    const struct command *self = command_find("show");
    struct options_reader reader = {c, self, NULL, NULL};
    int first;
    char *id = NULL;
    int code = options_read(&reader, argc, argv, &first);
    if (!code && argc - first != 1)
        code = usage_error(self, "which conversation? (hearth list)");
    if (!code)
        code = conversation_resolve(c, argv[first], &id);
    if (!code)
        code = conversation_items(c, id, show_item, c);
    free(id);
    return code;
}

/* ---- delete ---- */

static void print_deleted(const char *id, const json *hearth)
{
    double n = json_double(json_get(hearth, "messages", NULL));
    double n_blocks = json_double(json_get(hearth, "blocks", NULL));
    double bytes = json_double(json_get(hearth, "kv_bytes", NULL));
    printf("deleted %s: %.0f message%s", id, n, n == 1 ? "" : "s");
    if (n_blocks > 0)
        printf(", %.0f KV block%s (%.*f MiB)", n_blocks, n_blocks == 1 ? "" : "s",
               bytes < 10 * 1048576.0, bytes / 1048576);
    printf("\n");
}

static int delete_one(struct client *c, const char *id)
{
    json *j = NULL;
    char *path = api_path("/v1/conversations/", id, "");
    int code = path ? api_call(c, "DELETE", path, NULL, &j) : EXIT_REFUSED;
    const json *hearth = json_get(j, "hearth", NULL);
    if (!code && c->is_json)
        code = api_print_json(c, j);
    else if (!code)
        print_deleted(id, hearth);
    if (!code && !c->is_json && json_bool(json_get(hearth, "remains", NULL)))
        fprintf(stderr, "hearth: another program reads the history: the deleted text stays in its "
                        "log file until that ends\n");
    json_free(j);
    free(path);
    return code;
}

int cmd_delete(struct client *c, int argc, char **argv)
{
    const struct command *self = command_find("delete");
    struct options_reader reader = {c, self, NULL, NULL};
    int first;
    int code = options_read(&reader, argc, argv, &first);
    if (code)
        return code;
    if (first == argc)
        return usage_error(self, "which conversation? (hearth list)");
    /* Numbers of the list shift with each deletion, and one bad name must not leave half done:
     * all are resolved first. */
    char **ids = calloc((size_t)argc, sizeof *ids);
    code = ids ? 0 : api_fail(c, EXIT_REFUSED, "nomem", "out of memory");
    for (int i = first; i < argc && !code; i++)
        code = conversation_resolve(c, argv[i], &ids[i]);
    for (int i = first; i < argc && !code; i++)
        code = delete_one(c, ids[i]);
    for (int i = first; i < argc && ids; i++)
        free(ids[i]);
    free(ids);
    return code;
}
