/*
 * hearth export, import: conversations as JSON lines, one a line, as hearth(1) describes:
 *
 *     {"object":"hearth.conversation","version":1,"id":…,"title":…,"created_at":…,"updated_at":…,
 *      "metadata":{…},"messages":[{"role","content","created_at","status","model"}…]}
 *
 * A line holds the path to the newest message. export --all goes from the least to the last used,
 * so that an import, which makes new conversations, leaves them in the same order. Also imported
 * are {"messages":[{"role","content"}…]} lines as OpenAI's tools write them.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "client/conversation.h"
#include "client/jsonl.h"
#include "client/options.h"
#include "client/term.h"

#define ITEMS_A_REQUEST 20                /* the API's limit */
#define BYTES_A_REQUEST ((size_t)2 << 20) /* of text: escaped it may be three times as long */

enum { OPT_ALL = OPT_OWN, OPT_OUTPUT };
const struct option_row export_command_options[] = {
    {"all", NULL, OPT_ALL, "every conversation"},
    {"output", "FILE", OPT_OUTPUT, "a new file, mode 0600; stdout otherwise"},
    {NULL, NULL, 0, NULL},
};

/* ---- export ---- */

static void copy_int(json *to, const char *key, const json *from)
{
    const json *j = json_get(from, key, NULL);
    if (json_type(j) == JSON_NUMBER)
        json_set_int(to, key, (int64_t)json_double(j));
}

static void copy_str(json *to, const char *key, const json *from)
{
    const char *s = json_str(json_get(from, key, NULL));
    if (s && *s)
        json_set_str(to, key, s);
}

struct export_messages {
    struct client *client;
    json *messages;
};

static int export_item(void *ctx, const json *item)
{
    const struct export_messages *to = ctx;
    struct buf b;
    buf_init(&b, JSONL_LINE_MAX_BYTES);
    buf_str(&b, "");
    item_whole_text(item, &b);
    int failed = buf_error(&b);
    if (!failed) {
        const json *hearth = json_get(item, "hearth", NULL);
        json *m = json_add(to->messages, json_object());
        json_set_str(m, "role", item_role(item));
        json_set_strn(m, "content", b.data, b.len);
        copy_int(m, "created_at", hearth);
        copy_str(m, "status", item);
        copy_str(m, "model", hearth);
    }
    buf_done(&b);
    if (failed)
        return api_fail(to->client, EXIT_REFUSED, err_name(failed),
                        "a message can't be exported: %s", err_name(failed));
    return 0;
}

static int write_line(struct client *c, const json *j, FILE *out)
{
    struct buf b;
    buf_init(&b, JSONL_LINE_MAX_BYTES);
    json_write(j, &b);
    buf_char(&b, '\n');
    int code = 0;
    if (buf_error(&b))
        code = api_fail(c, EXIT_REFUSED, err_name(buf_error(&b)),
                        "a conversation can't be exported: %s (a line has at most %zu bytes)",
                        err_name(buf_error(&b)), JSONL_LINE_MAX_BYTES);
    else if (out == stdout)
        term_write(out, b.data, b.len); /* term_flush tells */
    else if (fwrite(b.data, 1, b.len, out) < b.len)
        code = api_fail(c, EXIT_REFUSED, "io", "the export can't be written: %s", strerror(errno));
    buf_done(&b);
    return code;
}

/* conversation: its object, as the API has it. */
static int export_one(struct client *c, const json *conversation, FILE *out)
{
    const json *hearth = json_get(conversation, "hearth", NULL),
               *metadata = json_get(conversation, "metadata", NULL);
    const char *id = json_str(json_get(conversation, "id", NULL));
    json *j = json_object();
    json_set_str(j, "object", "hearth.conversation");
    json_set_int(j, "version", EXPORT_VERSION);
    json_set_str(j, "id", id ? id : "");
    copy_str(j, "title", hearth);
    copy_int(j, "created_at", conversation);
    copy_int(j, "updated_at", hearth);
    json_set(j, "metadata", metadata ? json_copy(metadata) : json_object());
    struct export_messages to = {c, json_set(j, "messages", json_array())};
    int code = conversation_items(c, id ? id : "", export_item, &to);
    if (!code)
        code = write_line(c, j, out);
    if (!code && out == stdout && !term_flush())
        code = EXIT_REFUSED; /* term_end says why */
    json_free(j);
    return code;
}

static int export_named(struct client *c, const char *name, FILE *out)
{
    char *id = NULL, *path = NULL;
    json *conversation = NULL;
    int code = conversation_resolve(c, name, &id);
    if (!code)
        path = api_path("/v1/conversations/", id, "");
    if (!code)
        code = path ? api_call(c, "GET", path, NULL, &conversation) : EXIT_REFUSED;
    if (!code)
        code = export_one(c, conversation, out);
    json_free(conversation);
    free(path);
    free(id);
    return code;
}

static int export_all(struct client *c, FILE *out, int *n)
{
    char *after = NULL;
    bool more = true;
    int code = 0;
    while (!code && more) {
        json *page = NULL;
        code = conversation_page(c, "asc", 100, after, &page);
        for (const json *it = json_first(json_get(page, "data", NULL)); it && !code;
             it = json_next(it)) {
            code = export_one(c, it, out);
            *n += !code;
        }
        free(after);
        after = page_next(page);
        more = after != NULL;
        json_free(page);
    }
    free(after);
    return code;
}

struct export_arguments {
    bool is_all;
    const char *path;
};

static int take_export(void *ctx, int value, const char *arg)
{
    struct export_arguments *a = ctx;
    if (value == OPT_ALL)
        a->is_all = true;
    else
        a->path = arg;
    return 0;
}

/* Closes what export wrote: it is on disk, or it is not there. */
static int close_output(struct client *c, FILE *out, const char *path, int code)
{
    if (out == stdout)
        return code;
    bool is_whole = !fflush(out) && !ferror(out) && !fsync(fileno(out));
    int why = errno;
    fclose(out);
    if (!code && !is_whole)
        code = api_fail(c, EXIT_REFUSED, "io", "%s can't be written: %s", path, strerror(why));
    if (code)
        unlink(path); /* half an export looks like a whole one */
    return code;
}

int cmd_export(struct client *c, int argc, char **argv)
{
    const struct command *self = command_find("export");
    struct export_arguments a = {0};
    struct options_reader reader = {c, self, take_export, &a};
    int first, n = 0;
    int code = options_read(&reader, argc, argv, &first);
    if (code)
        return code;
    if (a.is_all == (first < argc))
        return usage_error(self, "either --all or ids");
    umask(077); /* conversations are private, in a file too */
    FILE *out = a.path ? fopen(a.path, "wxe") : stdout; /* x: never over another file */
    if (!out)
        return api_fail(c, EXIT_REFUSED, "io", "%s can't be made: %s", a.path, strerror(errno));
    code = a.is_all ? export_all(c, out, &n) : 0;
    for (int i = first; i < argc && !code; i++) {
        code = export_named(c, argv[i], out);
        n += !code;
    }
    code = close_output(c, out, a.path, code);
    if (!code)
        term_note("%d conversation%s exported", n, n == 1 ? "" : "s");
    return code;
}

/* ---- import ---- */

/* What a message says, for the daemon to take or to refuse: nothing of it is left out here. */
static void copy_said(json *to, const json *message)
{
    static const char *const keys[] = {"content",       "hearth", "tool_calls",
                                       "function_call", "audio",  "refusal"};
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        const json *j = json_get(message, keys[i], NULL);
        if (j)
            json_set(to, keys[i], json_copy(j));
    }
}

/* The next messages that fit one request, as items of body. */
static void add_items(json *body, const json **at)
{
    json *items = json_set(body, "items", json_array());
    size_t n = 0, n_bytes = 0;
    for (; *at && n < ITEMS_A_REQUEST && n_bytes < BYTES_A_REQUEST; *at = json_next(*at), n++) {
        struct buf b;
        buf_init(&b, JSONL_LINE_MAX_BYTES);
        buf_str(&b, "");
        item_whole_text(*at, &b);
        json *item = json_add(items, json_object());
        json_set_str(item, "type", "message");
        json_set_str(item, "role", item_role(*at));
        copy_said(item, *at);
        copy_str(item, "status", *at);
        if (json_str(json_get(*at, "model", NULL)) && !json_get(item, "hearth", NULL))
            copy_str(json_set(item, "hearth", json_object()), "model", *at);
        n_bytes += b.len;
        buf_done(&b);
    }
}

/* All messages into the new conversation at `path`, and its title. */
static int fill(struct client *c, const json *j, const char *path)
{
    const json *at = json_first(json_get(j, "messages", NULL));
    const char *title = json_str(json_get(j, "title", NULL));
    char *items = api_path(path, "", "/items");
    int code = items ? 0 : EXIT_REFUSED;
    while (!code && at) {
        json *body = json_object();
        add_items(body, &at);
        code = api_call(c, "POST", items, body, NULL);
    }
    if (!code && title && *title) {
        json *body = json_object();
        json_set_str(json_set(body, "hearth", json_object()), "title", title);
        code = api_call(c, "POST", path, body, NULL);
    }
    free(items);
    return code;
}

static int import_one(struct client *c, const json *j)
{
    const json *metadata = json_get(j, "metadata", NULL);
    json *body = json_object(), *made = NULL;
    if (json_type(metadata) == JSON_OBJECT)
        json_set(body, "metadata", json_copy(metadata));
    int code = api_call(c, "POST", "/v1/conversations", body, &made);
    const char *id = code ? NULL : json_str(json_get(made, "id", NULL));
    char *path = id ? api_path("/v1/conversations/", id, "") : NULL;
    if (!code)
        code = path ? fill(c, j, path) : EXIT_REFUSED;
    if (code && path)
        (void)!api_call(c, "DELETE", path, NULL, NULL); /* whole or not at all */
    else if (!code && c->is_json)
        code = api_print_json(c, made);
    else if (!code)
        printf("%s\n", id);
    free(path);
    json_free(made);
    return code;
}

/* Reading a file: where, and how many conversations came in. */
struct importing {
    struct client *client;
    struct jsonl_reader reader;
    int n;
};

static int import_line(struct client *c, const struct buf *line, const char *name, int number)
{
    json *j = NULL;
    struct err e;
    int code;
    if (json_parse(line->data, line->len, &j, &e))
        return api_fail(c, EXIT_REFUSED, "inval", "%s line %d: %s", name, number, e.text);
    const json *version = json_get(j, "version", NULL);
    if (json_type(json_get(j, "messages", NULL)) != JSON_ARRAY)
        code = api_fail(c, EXIT_REFUSED, "inval", "%s line %d has no \"messages\"", name, number);
    else if (version && json_double(version) > EXPORT_VERSION)
        code = api_fail(c, EXIT_REFUSED, "unsupported",
                        "%s line %d is of version %.0f; up to %d is understood", name, number,
                        json_double(version), EXPORT_VERSION);
    else if ((code = import_one(c, j)) && !c->is_json)
        fprintf(stderr, "hearth: %s line %d was not imported; the lines before it were\n", name,
                number);
    json_free(j);
    return code;
}

static int on_import_line(void *ctx, const struct buf *line, int number)
{
    struct importing *i = ctx;
    int code = import_line(i->client, line, i->reader.name, number);
    i->n += !code;
    return code;
}

int cmd_import(struct client *c, int argc, char **argv)
{
    struct options_reader reader = {c, command_find("import"), NULL, NULL};
    struct importing im = {.client = c};
    im.reader = (struct jsonl_reader){c, "stdin", on_import_line, &im};
    int first;
    int code = options_read(&reader, argc, argv, &first);
    if (code)
        return code;
    if (first == argc)
        code = jsonl_read(&im.reader, stdin);
    for (int i = first; i < argc && !code; i++)
        code = jsonl_read_path(&im.reader, argv[i]);
    if (!code)
        term_note("%d conversation%s imported", im.n, im.n == 1 ? "" : "s");
    return code;
}
