/*
 * hearth status and hearth models: what the daemon is and does. Numbers come as the daemon has
 * them; --json prints its object.
 */
#include <stdio.h>
#include <string.h>

#include "client/api.h"
#include "client/options.h"
#include "client/term.h"

static void print_tree(const json *j, int depth);

/* A member's line: scalars beside their key, objects below it. Depth is bounded by json_parse. */
static void print_member(const json *j, int depth)
{
    const char *key = json_key(j);
    enum json_type t = json_type(j);
    if (t == JSON_OBJECT || t == JSON_ARRAY) {
        printf("%*s%s\n", 2 * depth, "", key ? key : "-");
        print_tree(j, depth + 1);
        return;
    }
    printf("%*s%-*s ", 2 * depth, "", 26 - 2 * depth, key ? key : "-");
    if (t == JSON_STRING)
        term_text(json_str(j), strlen(json_str(j)));
    else if (t == JSON_NUMBER)
        printf("%.15g", json_double(j));
    else
        fputs(t == JSON_BOOL ? (json_bool(j) ? "yes" : "no") : "-", stdout);
    putchar('\n');
}

static void print_tree(const json *j, int depth)
{
    for (const json *it = json_first(j); it; it = json_next(it))
        print_member(it, depth);
}

static int print_answer(struct client *c, const char *path, const char *member)
{
    json *j = NULL;
    int code = api_call(c, "GET", path, NULL, &j);
    if (code)
        return code;
    if (c->is_json) {
        struct buf b;
        buf_init(&b, WIRE_BODY_MAX);
        json_write(j, &b);
        if (!buf_error(&b))
            printf("%s\n", b.data);
        buf_done(&b);
    } else {
        print_tree(member ? json_get(j, member, NULL) : j, 0);
    }
    json_free(j);
    return EXIT_FINE;
}

static int parse_json_only(struct client *c, int argc, char **argv, const struct command *self)
{
    static const struct option options[] = {{"json", no_argument, NULL, OPT_JSON}, {0}};
    int opt;
    while ((opt = getopt_long(argc, argv, "", options, NULL)) != -1) {
        if (opt == '?')
            return usage_error(self, "that option isn't known");
        c->is_json = true;
    }
    return optind < argc ? usage_error(self, "%s takes no arguments", self->name) : 0;
}

int cmd_status(struct client *c, int argc, char **argv)
{
    int code = parse_json_only(c, argc, argv, command_find("status"));
    if (!code)
        code = api_wait_ready(c);
    return code ? code : print_answer(c, "/v1/hearth/status", NULL);
}

int cmd_models(struct client *c, int argc, char **argv)
{
    int code = parse_json_only(c, argc, argv, command_find("models"));
    return code ? code : print_answer(c, "/v1/models", "data");
}
