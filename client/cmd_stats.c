/*
 * hearth stats: what the cache was worth, to all of one's turns or to a conversation's; --json
 * prints the daemon's own objects.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/conversation.h"
#include "client/fields.h"
#include "client/options.h"
#include "client/term.h"

#define LIMIT_DEFAULT 20
#define LIMIT_MAX 100
#define ROW_COLUMNS 77 /* before what stands last in a row */

enum { OPT_LIMIT = OPT_OWN };
const struct option_row stats_command_options[] = {
    {"limit", "N", OPT_LIMIT, "a conversation's newest turns, from 1 to 100; 20 otherwise"},
    {NULL, NULL, 0, NULL},
};

static int take(void *ctx, int value, const char *arg)
{
    int64_t *limit = ctx;
    if (value == OPT_LIMIT && !parse_int(arg, 1, LIMIT_MAX, limit))
        return usage_error(command_find("stats"), "--limit %s: a whole number from 1 to %d", arg,
                           LIMIT_MAX);
    return 0;
}

/* "9.8 s", "12 min", "3.4 h" */
static void seconds_write(double s, char ret[16])
{
    if (s >= 5400)
        snprintf(ret, 16, "%.1f h", s / 3600);
    else if (s >= 90)
        snprintf(ret, 16, "%.0f min", s / 60);
    else
        snprintf(ret, 16, s >= 9.95 ? "%.0f s" : "%.1f s", s);
}

static void print_head(const char *first, const char *last)
{
    printf("%-18s %6s %8s %4s %8s %8s %8s %8s %7s", first, "prompt", "cached", "%", "ram", "disk",
           "shared", "computed", "saved");
    printf("%s%s\n", *last ? "  " : "", last);
}

/* The columns between the first and the last. */
static void print_columns(double prompt, const json *cache, double cached, double saved_s)
{
    char saved[16];
    seconds_write(saved_s, saved);
    printf("%6.0f %8.0f %4.0f %8.0f %8.0f %8.0f %8.0f %7s", prompt, cached,
           prompt > 0 ? 100 * cached / prompt : 0, number(cache, "ram"), number(cache, "disk"),
           number(cache, "shared"), number(cache, "computed"), saved);
}

static void print_sums(const char *name, const json *sums)
{
    printf("%-18s ", name);
    print_columns(number(sums, "prompt_tokens"), sums, number(sums, "cached_tokens"),
                  number(sums, "saved_s"));
    double n = number(sums, "turns");
    printf("  %.0f turn%s\n", n, n == 1 ? "" : "s");
}

/* "misses     evicted 2, new 5" */
static void print_misses(const char *name, const json *sums)
{
    const char *comma = " ";
    const json *it = json_first(json_get(sums, "misses", NULL));
    if (!it)
        return;
    printf("%-18s", name);
    for (; it; it = json_next(it), comma = ", ") {
        fputs(comma, stdout);
        term_line(stdout, json_key(it), sizeof "evicted and more");
        printf(" %.0f", json_double(it));
    }
    putchar('\n');
}

/* ---- all ---- */

static void print_top(const json *all)
{
    const json *it = json_first(all);
    if (!it)
        return;
    puts("");
    print_head("conversation", "title");
    for (; it; it = json_next(it)) {
        const char *id = json_str(json_get(it, "id", NULL));
        const char *title = json_str(json_get(it, "title", NULL));
        printf("%-18.13s ", id ? id : "?");
        print_columns(number(it, "prompt_tokens"), it, number(it, "cached_tokens"),
                      number(it, "saved_s"));
        fputs("  ", stdout);
        int room = term_width() - ROW_COLUMNS - 4;
        term_line(stdout, title && *title ? title : "(untitled)", (size_t)(room > 12 ? room : 12));
        putchar('\n');
    }
}

static void print_all(const json *j)
{
    const json *total = json_get(j, "total", NULL);
    const json *since = json_get(total, "since", NULL);
    char when[20] = "", name[32] = "ever";
    if (json_type(since) == JSON_NUMBER) {
        format_time(json_double(since), when);
        snprintf(name, sizeof name, "since %.10s", when);
    }
    print_head("", "");
    print_sums("since the start", json_get(j, "since_start", NULL));
    print_sums(name, total);
    print_misses("misses", total);
    print_top(json_get(j, "conversations", NULL));
}

static int stats_all(struct client *c)
{
    json *j = NULL;
    int code = api_call(c, "GET", "/v1/hearth/stats", NULL, &j);
    if (!code && c->is_json)
        code = api_print_json(c, j);
    else if (!code)
        print_all(j);
    json_free(j);
    return code;
}

/* ---- a conversation ---- */

static void print_miss(const json *miss)
{
    const char *reason = json_str(json_get(miss, "reason", NULL));
    const json *at = json_get(miss, "at_message", NULL);
    const char *message = json_str(json_get(miss, "message", NULL));
    if (!reason)
        return;
    fputs("  ", stdout);
    term_line(stdout, reason, 16);
    if (json_type(at) == JSON_NUMBER)
        printf(" at message %.0f", json_double(at));
    if (message)
        printf(" (%.12s)", message);
}

static void print_turn(const json *it)
{
    char when[20];
    const json *cache = json_get(it, "cache", NULL);
    format_time(number(it, "created_at"), when);
    printf("%-18s ", when);
    print_columns(number(it, "prompt_tokens"), cache, number(cache, "tokens"),
                  number(cache, "saved_ms") / 1000);
    print_miss(json_get(cache, "miss", NULL));
    putchar('\n');
}

/* The page is newest first; turns are read from top to bottom. */
static void print_turns(const json *data)
{
    const json *rows[LIMIT_MAX];
    size_t n = 0;
    for (const json *it = json_first(data); it && n < LIMIT_MAX; it = json_next(it))
        rows[n++] = it;
    while (n > 0)
        print_turn(rows[--n]);
}

static void print_conversation(const json *j)
{
    const json *turns = json_get(j, "turns", NULL), *sums = json_get(j, "savings", NULL);
    print_head("turn", "miss");
    if (json_bool(json_get(turns, "has_more", NULL)))
        puts("…");
    print_turns(json_get(turns, "data", NULL));
    print_sums("all its life", sums);
    print_misses("misses", sums);
}

static int stats_one(struct client *c, const char *name, int64_t limit)
{
    char tail[48], *id = NULL;
    json *j = NULL;
    int code = conversation_resolve(c, name, &id);
    if (code)
        return code;
    snprintf(tail, sizeof tail, "/savings?limit=%lld", (long long)limit);
    char *path = api_path("/v1/hearth/conversations/", id, tail);
    code = path ? api_call(c, "GET", path, NULL, &j)
                : api_fail(c, EXIT_REFUSED, "nomem", "out of memory");
    if (!code && c->is_json)
        code = api_print_json(c, j);
    else if (!code)
        print_conversation(j);
    json_free(j);
    free(path);
    free(id);
    return code;
}

int cmd_stats(struct client *c, int argc, char **argv)
{
    const struct command *self = command_find("stats");
    int64_t limit = LIMIT_DEFAULT;
    struct options_reader reader = {c, self, take, &limit};
    int first;
    int code = options_read(&reader, argc, argv, &first);
    if (code)
        return code;
    if (argc - first > 1)
        return usage_error(self, "one conversation at most");
    return first < argc ? stats_one(c, argv[first], limit) : stats_all(c);
}
