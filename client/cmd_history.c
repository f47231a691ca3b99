/*
 * hearth list, show, delete, export, import: the stored conversations.
 *
 * The export is JSON lines, one conversation a line, as hearth(1) describes:
 *     {"object":"hearth.conversation","version":1,"id":…,"title":…,"created_at":…,"metadata":{…},
 *      "messages":[{"role","content","created_at","status","model"}…]}
 * It holds the path to the newest message; import makes new conversations of it (also of
 * {"messages":[…]} lines as OpenAI's tools write them).
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "client/conversation.h"
#include "client/options.h"
#include "client/term.h"

#define EXPORT_LINE_MAX ((size_t)256 << 20)
#define ITEMS_A_REQUEST 20 /* the API's limit */

static void print_json_line(const json *j, FILE *f)
{
    struct buf b;
    buf_init(&b, EXPORT_LINE_MAX);
    json_write(j, &b);
    if (!buf_error(&b))
        fprintf(f, "%s\n", b.data);
    buf_done(&b);
}

static void print_row(const json *j, int64_t number)
{
    char when[20];
    const json *hearth = json_get(j, "hearth", NULL);
    const json *updated = json_get(hearth, "updated_at", NULL);
    format_time(json_double(updated ? updated : json_get(j, "created_at", NULL)), when);
    printf("%4lld  %.13s…  %s  %5.0f  ", (long long)number, json_str(json_get(j, "id", NULL)), when,
           json_double(json_get(hearth, "n_messages", NULL)));
    const char *title = conversation_title(j);
    term_text(title, strlen(title));
    putchar('\n');
}

int cmd_list(struct client *c, int argc, char **argv)
{
    static const struct option options[] = {{"limit", required_argument, NULL, OPT_OWN},
                                            {"after", required_argument, NULL, OPT_OWN + 1},
                                            {"json", no_argument, NULL, OPT_JSON},
                                            {0}};
    const struct command *self = command_find("list");
    int64_t limit = 20;
    const char *after = NULL;
    int opt;
    while ((opt = getopt_long(argc, argv, "", options, NULL)) != -1) {
        if (opt == OPT_OWN && !parse_int(optarg, 1, 100, &limit))
            return usage_error(self, "--limit %s: from 1 to 100", optarg);
        if (opt == OPT_OWN + 1)
            after = optarg;
        if (opt == OPT_JSON)
            c->is_json = true;
        if (opt == '?')
            return usage_error(self, "that option isn't known");
    }
    json *page;
    int code = conversation_page(c, (int)limit, after, &page);
    if (code)
        return code;
    int64_t n = 0;
    for (const json *it = json_first(json_get(page, "data", NULL)); it; it = json_next(it)) {
        if (c->is_json)
            print_json_line(it, stdout);
        else
            print_row(it, ++n);
    }
    if (!c->is_json && json_bool(json_get(page, "has_more", NULL)))
        term_note("more: hearth list --after %s", json_str(json_get(page, "last_id", NULL)));
    json_free(page);
    return EXIT_FINE;
}

static int show_item(void *ctx, const json *item)
{
    struct client *c = ctx;
    if (c->is_json) {
        print_json_line(item, stdout);
        return 0;
    }
    struct buf b;
    buf_init(&b, EXPORT_LINE_MAX);
    item_text(item, &b);
    const char *role = json_str(json_get(item, "role", NULL)),
               *status = json_str(json_get(item, "status", NULL));
    printf("── %s%s\n", role ? role : "?",
           status && !strcmp(status, "incomplete") ? " (interrupted)" : "");
    term_text(b.data ? b.data : "", b.len);
    puts("\n");
    buf_done(&b);
    return 0;
}

int cmd_show(struct client *c, int argc, char **argv)
{
    static const struct option options[] = {{"json", no_argument, NULL, OPT_JSON}, {0}};
    const struct command *self = command_find("show");
    int opt;
    while ((opt = getopt_long(argc, argv, "", options, NULL)) != -1) {
        if (opt == '?')
            return usage_error(self, "that option isn't known");
        c->is_json = true;
    }
    if (argc - optind != 1)
        return usage_error(self, "which conversation? (hearth list)");
    char *id;
    int code = conversation_resolve(c, argv[optind], &id);
    if (code)
        return code;
    code = conversation_items(c, id, show_item, c);
    free(id);
    return code;
}

int cmd_delete(struct client *c, int argc, char **argv)
{
    const struct command *self = command_find("delete");
    if (argc < 2)
        return usage_error(self, "which conversation? (hearth list)");
    /* Numbers of the list shift with each deletion: resolve them all first. */
    char **ids = calloc((size_t)argc, sizeof *ids);
    int code = ids ? 0 : EXIT_REFUSED;
    for (int i = 1; i < argc && !code; i++)
        code = conversation_resolve(c, argv[i], &ids[i]);
    for (int i = 1; i < argc && !code; i++) {
        char *path = api_path("/v1/conversations/", ids[i], "");
        json *j = NULL;
        code = path ? api_call(c, "DELETE", path, NULL, &j) : EXIT_REFUSED;
        if (!code && c->is_json)
            print_json_line(j, stdout);
        else if (!code)
            printf("deleted %s: %.0f messages\n", ids[i],
                   json_double(json_get(json_get(j, "hearth", NULL), "messages", NULL)));
        json_free(j);
        free(path);
    }
    for (int i = 1; i < argc && ids; i++)
        free(ids[i]);
    free(ids);
    return code;
}

static int export_item(void *ctx, const json *item)
{
    json *messages = ctx;
    struct buf b;
    buf_init(&b, EXPORT_LINE_MAX);
    item_text(item, &b);
    const json *hearth = json_get(item, "hearth", NULL);
    const char *role = json_str(json_get(item, "role", NULL)),
               *status = json_str(json_get(item, "status", NULL)),
               *model = json_str(json_get(hearth, "model", NULL));
    json *m = json_add(messages, json_object());
    json_set_str(m, "role", role ? role : "");
    json_set_strn(m, "content", b.data ? b.data : "", b.len);
    if (json_get(hearth, "created_at", NULL))
        json_set_int(m, "created_at", (int64_t)json_double(json_get(hearth, "created_at", NULL)));
    if (status)
        json_set_str(m, "status", status);
    if (model && *model)
        json_set_str(m, "model", model);
    int failed = buf_error(&b);
    buf_done(&b);
    return failed ? EXIT_REFUSED : 0;
}

static int export_one(struct client *c, const char *id, FILE *out)
{
    char *path = api_path("/v1/conversations/", id, "");
    json *conversation = NULL;
    int code = path ? api_call(c, "GET", path, NULL, &conversation) : EXIT_REFUSED;
    free(path);
    if (code)
        return code;
    json *messages = json_array();
    code = conversation_items(c, id, export_item, messages);
    json *j = json_object();
    json_set_str(j, "object", "hearth.conversation");
    json_set_int(j, "version", 1);
    json_set_str(j, "id", id);
    json_set_str(j, "title", conversation_title(conversation));
    json_set_int(j, "created_at", (int64_t)json_double(json_get(conversation, "created_at", NULL)));
    const json *metadata = json_get(conversation, "metadata", NULL);
    json_set(j, "metadata", metadata ? json_copy(metadata) : json_object());
    json_set(j, "messages", messages);
    if (!code)
        print_json_line(j, out);
    json_free(j);
    json_free(conversation);
    return code;
}

static int export_all(struct client *c, FILE *out, int *n)
{
    char *after = NULL;
    bool more = true;
    int code = 0;
    while (!code && more) {
        json *page = NULL;
        code = conversation_page(c, 100, after, &page);
        for (const json *it = code ? NULL : json_first(json_get(page, "data", NULL)); it && !code;
             it = json_next(it)) {
            code = export_one(c, json_str(json_get(it, "id", NULL)), out);
            *n += !code;
        }
        const char *last = code ? NULL : json_str(json_get(page, "last_id", NULL));
        free(after);
        after = last ? strdup(last) : NULL;
        more = after && json_bool(json_get(page, "has_more", NULL));
        json_free(page);
    }
    free(after);
    return code;
}

static int export_to(struct client *c, bool is_all, int n_ids, char **ids, FILE *out)
{
    int n = 0, code = is_all ? export_all(c, out, &n) : 0;
    for (int i = 0; i < n_ids && !code; i++) {
        char *id = NULL;
        code = conversation_resolve(c, ids[i], &id);
        if (!code)
            code = export_one(c, id, out);
        n += !code;
        free(id);
    }
    if (!code && fflush(out)) {
        fprintf(stderr, "hearth: the export can't be written (disk full?)\n");
        code = EXIT_REFUSED;
    }
    if (!code)
        term_note("%d conversation%s exported", n, n == 1 ? "" : "s");
    return code;
}

int cmd_export(struct client *c, int argc, char **argv)
{
    static const struct option options[] = {
        {"all", no_argument, NULL, OPT_OWN}, {"output", required_argument, NULL, OPT_OWN + 1}, {0}};
    const struct command *self = command_find("export");
    bool is_all = false;
    const char *path = NULL;
    int opt;
    while ((opt = getopt_long(argc, argv, "", options, NULL)) != -1) {
        if (opt == '?')
            return usage_error(self, "that option isn't known");
        if (opt == OPT_OWN)
            is_all = true;
        else
            path = optarg;
    }
    if (is_all == (optind < argc))
        return usage_error(self, "either --all or ids");
    FILE *out = path ? fopen(path, "wxe") : stdout; /* x: an export never overwrites another */
    if (!out) {
        fprintf(stderr, "hearth: %s can't be made: %m\n", path);
        return EXIT_REFUSED;
    }
    int code = export_to(c, is_all, argc - optind, argv + optind, out);
    if (path && fclose(out) && !code)
        code = EXIT_REFUSED;
    return code;
}

/* messages[from, from + 20) as items, into `body`. Returns how many. */
static size_t items_from(json *body, const json **at)
{
    json *items = json_array();
    size_t n = 0;
    for (; *at && n < ITEMS_A_REQUEST; *at = json_next(*at), n++) {
        json *item = json_add(items, json_object());
        json_set_str(item, "type", "message");
        const char *role = json_str(json_get(*at, "role", NULL));
        json_set_str(item, "role", role ? role : "");
        struct buf b;
        buf_init(&b, EXPORT_LINE_MAX);
        item_text(*at, &b);
        json_set_strn(item, "content", b.data ? b.data : "", b.len);
        buf_done(&b);
    }
    json_set(body, "items", items);
    return n;
}

static int import_one(struct client *c, const json *j, char **ret_id)
{
    const json *at = json_first(json_get(j, "messages", NULL));
    const json *metadata = json_get(j, "metadata", NULL);
    const char *title = json_str(json_get(j, "title", NULL));
    json *body = json_object(), *made = NULL;
    json *m = json_set(body, "metadata",
                       metadata && json_type(metadata) == JSON_OBJECT ? json_copy(metadata)
                                                                      : json_object());
    if (title && *title && !json_get(m, "title", NULL))
        json_set_str(m, "title", title);
    items_from(body, &at);
    int code = api_call(c, "POST", "/v1/conversations", body, &made);
    const char *id = code ? NULL : json_str(json_get(made, "id", NULL));
    char *path = id ? api_path("/v1/conversations/", id, "/items") : NULL;
    while (!code && at && path) {
        body = json_object();
        items_from(body, &at);
        code = api_call(c, "POST", path, body, NULL);
    }
    *ret_id = !code && id ? strdup(id) : NULL;
    free(path);
    json_free(made);
    return code;
}

static int import_file(struct client *c, FILE *in, const char *name, int *n)
{
    char *line = NULL;
    size_t cap = 0;
    ssize_t len;
    int code = 0;
    for (int number = 1; !code && (len = getline(&line, &cap, in)) > 0; number++) {
        json *j = NULL;
        struct err e;
        char *id = NULL;
        if (len == 1)
            continue;
        if (json_parse(line, (size_t)len, &j, &e)) {
            fprintf(stderr, "hearth: %s line %d: %s\n", name, number, e.text);
            code = EXIT_REFUSED;
        } else if (json_type(json_get(j, "messages", NULL)) != JSON_ARRAY) {
            fprintf(stderr, "hearth: %s line %d: no \"messages\"\n", name, number);
            code = EXIT_REFUSED;
        } else {
            code = import_one(c, j, &id);
        }
        if (id) {
            printf("%s\n", id);
            ++*n;
        }
        free(id);
        json_free(j);
    }
    free(line);
    return code;
}

int cmd_import(struct client *c, int argc, char **argv)
{
    int n = 0, code = argc > 1 ? 0 : import_file(c, stdin, "stdin", &n);
    for (int i = 1; i < argc && !code; i++) {
        FILE *in = fopen(argv[i], "re");
        if (!in) {
            fprintf(stderr, "hearth: %s can't be read: %m\n", argv[i]);
            return EXIT_REFUSED;
        }
        code = import_file(c, in, argv[i], &n);
        fclose(in);
    }
    if (!code)
        term_note("%d conversation%s imported", n, n == 1 ? "" : "s");
    return code;
}
