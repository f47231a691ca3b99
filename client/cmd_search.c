/*
 * hearth search: what was said, over all of one's conversations or in one. The daemon finds and
 * ranks; its "marks" are the bytes of a snippet that are words of the question.
 *
 *      2026-01-31 14:05  user       conv_3f2a1b2c  …I'm allergic to peanuts…
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/utf8.h"
#include "client/conversation.h"
#include "client/fields.h"
#include "client/options.h"
#include "client/term.h"

#define LIMIT_DEFAULT 10
#define LIMIT_MAX 100
#define TEXT_MAX ((size_t)64 << 10)
#define SPEAKER_COLUMNS 24

enum { OPT_LIMIT = OPT_OWN, OPT_CONVERSATION };
const struct option_row search_command_options[] = {
    {"limit", "N", OPT_LIMIT, "at most so many, from 1 to 100; 10 otherwise"},
    {"conversation", "ID", OPT_CONVERSATION, "in this one only"},
    {NULL, NULL, 0, NULL},
};

struct search_arguments {
    int64_t limit;
    const char *conversation;
};

static int take(void *ctx, int value, const char *arg)
{
    struct search_arguments *a = ctx;
    if (value == OPT_CONVERSATION)
        a->conversation = arg;
    else if (!parse_int(arg, 1, LIMIT_MAX, &a->limit))
        return usage_error(command_find("search"), "--limit %s: a whole number from 1 to %d", arg,
                           LIMIT_MAX);
    return 0;
}

/* ---- hits ---- */

/* [from, to) of the next mark; false: it is none, or not in order. */
static bool mark(const json *it, size_t from_min, size_t n, size_t ret[2])
{
    const json *from = json_first(it), *to = json_next(from);
    const double a = json_double(from), b = json_double(to);
    if (json_type(from) != JSON_NUMBER || json_type(to) != JSON_NUMBER || a < (double)from_min ||
        b <= a || b > (double)n)
        return false;
    ret[0] = (size_t)a;
    ret[1] = (size_t)b;
    return true;
}

/* The snippet, on a terminal with the words that were looked for in bold. */
static void print_snippet(const json *hit)
{
    const char *text = str_or(hit, "snippet", "");
    const size_t n = strlen(text);
    size_t at = 0, m[2];
    const json *it = term_has_style(stdout) ? json_first(json_get(hit, "marks", NULL)) : NULL;
    for (; it && mark(it, at, n, m); it = json_next(it)) {
        term_text(stdout, text + at, m[0] - at);
        fputs("\033[1m", stdout);
        term_text(stdout, text + m[0], m[1] - m[0]);
        fputs("\033[0m", stdout);
        at = m[1];
    }
    term_text(stdout, text + at, n - at);
    putchar('\n');
}

static void print_hit(const json *hit)
{
    char when[20];
    const char *speaker = str_or(hit, "speaker", NULL);
    format_time(json_double(json_get(hit, "created_at", NULL)), when);
    printf("%s  %.13s  %.9s", when, str_or(hit, "conversation", "?"), str_or(hit, "role", "?"));
    if (speaker) {
        fputs(", ", stdout);
        term_words(stdout, speaker, SPEAKER_COLUMNS);
    }
    fputs("\n    ", stdout);
    print_snippet(hit);
}

static void print_hits(const json *j)
{
    const json *data = json_get(j, "data", NULL);
    for (const json *it = json_first(data); it; it = json_next(it))
        print_hit(it);
    fflush(stdout);
    if (!json_first(data))
        fprintf(stderr, "hearth: nothing was found\n");
    if (json_bool(json_get(j, "partial", NULL)))
        fprintf(stderr, "hearth: not everything is indexed yet: there may be more\n");
    else if (json_bool(json_get(j, "has_more", NULL)))
        term_note("there is more: --limit shows up to %d", LIMIT_MAX);
}

/* ---- the command ---- */

static int words(const struct command *self, int n, char **argv, struct buf *b)
{
    size_t bad;
    for (int i = 0; i < n; i++) {
        if (i)
            buf_char(b, ' ');
        buf_str(b, argv[i]);
    }
    if (buf_error(b))
        return usage_error(self, "more than %zu bytes to look for", TEXT_MAX);
    if (!b->len)
        return usage_error(self, "what is to be found?");
    if (!utf8_valid(b->data, b->len, &bad))
        return usage_error(self, "what is to be found is no UTF-8 text (byte %zu)", bad + 1);
    return 0;
}

static int search(struct client *c, const struct buf *what, const char *conversation, int64_t limit)
{
    json *body = json_object(), *j = NULL;
    json_set_strn(body, "query", what->data, what->len);
    json_set_int(body, "limit", limit);
    if (conversation)
        json_set_str(body, "conversation", conversation);
    int code = api_call(c, "POST", "/v1/hearth/search", body, &j);
    if (!code && c->is_json)
        code = api_print_json(c, j);
    else if (!code)
        print_hits(j);
    json_free(j);
    return code;
}

int cmd_search(struct client *c, int argc, char **argv)
{
    const struct command *self = command_find("search");
    struct search_arguments a = {.limit = LIMIT_DEFAULT};
    struct options_reader reader = {c, self, take, &a};
    struct buf what;
    char *conversation = NULL;
    int first;
    int code = options_read(&reader, argc, argv, &first);
    if (code)
        return code;
    buf_init(&what, TEXT_MAX);
    code = words(self, argc - first, argv + first, &what);
    if (!code && a.conversation)
        code = conversation_resolve(c, a.conversation, &conversation);
    if (!code)
        code = search(c, &what, conversation, a.limit);
    free(conversation);
    buf_done(&what);
    return code;
}
