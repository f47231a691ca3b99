/*
 * hearth chat: the person's side. A line is a message; a line that begins with / is a command.
 * Ctrl-C stops the answer and not the program; Ctrl-D leaves.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "base/paths.h"
#include "client/chat.h"
#include "client/line.h"
#include "client/options.h"
#include "client/term.h"

struct session {
    struct chat chat;
    struct line *line;
    bool is_over;
};

/* A slash command: `rest` is what follows its name, without blanks around. Results are exit codes;
 * none of them ends the chat. */
struct slash {
    const char *name;
    int (*run)(struct session *s, const char *rest);
    const char *summary;
};
static const struct slash slashes[];

static int slash_help(struct session *s, const char *rest)
{
    (void)s;
    (void)rest;
    for (const struct slash *p = slashes; p->name; p++)
        printf("  %-16s %s\n", p->name, p->summary);
    puts("  A line that ends in \\ goes on in the next. Ctrl-C stops an answer, Ctrl-D leaves.");
    return 0;
}

static int slash_quit(struct session *s, const char *rest)
{
    (void)rest;
    s->is_over = true;
    return 0;
}

static int slash_new(struct session *s, const char *rest)
{
    (void)rest;
    chat_new(&s->chat, NULL);
    term_note("a new conversation");
    return 0;
}

static int slash_list(struct session *s, const char *rest)
{
    (void)rest;
    char *argv[] = {"list", NULL};
    optind = 0;
    return cmd_list(s->chat.client, 1, argv);
}

static int slash_open(struct session *s, const char *rest)
{
    if (!*rest) {
        fprintf(stderr, "hearth: /open ID or number (see /list)\n");
        return EXIT_USAGE;
    }
    return chat_open(&s->chat, rest);
}

static int slash_system(struct session *s, const char *rest)
{
    if (!*rest) {
        printf("%s\n", s->chat.system ? s->chat.system : "(the model's own default)");
        return 0;
    }
    chat_new(&s->chat, rest);
    term_note("a new conversation with that system text");
    return 0;
}

static int slash_regen(struct session *s, const char *rest)
{
    (void)rest;
    return chat_regenerate(&s->chat);
}

static int slash_edit(struct session *s, const char *rest)
{
    if (*rest)
        return chat_edit(&s->chat, rest, strlen(rest));
    char *old = chat_last_question(&s->chat), *text = NULL;
    size_t n;
    if (!old)
        return EXIT_NOT_FOUND;
    int code = 0;
    if (line_read(s->line, "edit> ", old, &text, &n) == LINE_TEXT && n)
        code = chat_edit(&s->chat, text, n);
    free(text);
    free(old);
    return code;
}

static double number(const json *object, const char *key)
{
    return json_double(json_get(object, key, NULL));
}

static int slash_stats(struct session *s, const char *rest)
{
    (void)rest;
    struct chat *c = &s->chat;
    if (!c->last) {
        puts("no answer yet");
        return 0;
    }
    const json *hearth = json_get(c->last, "hearth", NULL);
    const json *cache = json_get(hearth, "cache", NULL), *t = json_get(hearth, "timings", NULL),
               *receipt = json_get(hearth, "receipt", NULL);
    printf("model      %s\n", c->model);
    printf("window     %.0f of %.0f tokens\n", number(receipt, "used"), number(receipt, "limit"));
    printf(
        "last turn  %.0f tokens from the cache (%.0f RAM, %.0f disk, %.0f shared), %.0f computed\n",
        number(cache, "tokens"), number(cache, "ram"), number(cache, "disk"),
        number(cache, "shared"), number(cache, "computed"));
    printf("           first token after %.0f ms (queue %.0f, reading %.0f), %.1f tokens/s read, "
           "%.1f written\n",
           number(t, "ttft_ms"), number(t, "queue_ms"), number(t, "prefill_ms"),
           number(t, "prefill_tps"), number(t, "decode_tps"));
    printf("session    %lld turns, %lld prompt tokens of which %lld cached, %lld written\n",
           (long long)c->n_turns, (long long)c->prompt_tokens, (long long)c->cached_tokens,
           (long long)c->completion_tokens);
    return 0;
}

static const struct slash slashes[] = {
    {"/new", slash_new, "leave this conversation and begin another"},
    {"/list", slash_list, "stored conversations"},
    {"/open ID", slash_open, "go on with one (id, beginning of an id, or number of the list)"},
    {"/system [TEXT]", slash_system,
     "begin a conversation with this system text; without TEXT: show it"},
    {"/regen", slash_regen, "answer the last question again"},
    {"/edit [TEXT]", slash_edit, "ask the last question in other words"},
    {"/stats", slash_stats, "what the last turn cost, and what the cache saved"},
    {"/help", slash_help, "this list"},
    {"/quit", slash_quit, "leave"},
    {NULL, NULL, NULL},
};

static int run_slash(struct session *s, const char *text)
{
    size_t n = strcspn(text, " \t");
    const char *rest = text + n + strspn(text + n, " \t");
    for (const struct slash *p = slashes; p->name; p++)
        if (strcspn(p->name, " ") == n && !memcmp(p->name, text, n))
            return p->run(s, rest);
    fprintf(stderr,
            "hearth: there is no command %.*s (see /help; a message that begins with / is written "
            "with a blank before it)\n",
            (int)n, text);
    return EXIT_USAGE;
}

/* Where entered lines are kept: beside the daemon's state. NULL: nowhere. */
static char *history_path(void)
{
    struct err e;
    char *dir = NULL, *path = NULL;
    if (!path_state_dir(&dir, &e) && !dir_make_private(dir, &e))
        path = path_join(dir, "lines");
    free(dir);
    return path;
}

static int loop(struct session *s)
{
    int code = 0;
    while (!s->is_over) {
        char *text = NULL;
        size_t n = 0;
        enum line_result r = line_read(s->line, "> ", NULL, &text, &n);
        if (r == LINE_END)
            break;
        if (r == LINE_INTERRUPTED || !n) {
            free(text);
            continue;
        }
        code = text[0] == '/' ? run_slash(s, text) : chat_send(&s->chat, text, n);
        free(text);
        /* Without a person there is nobody to try again. */
        if (code == EXIT_NO_DAEMON || (code && !term_is_tty(STDIN_FILENO)))
            return code;
    }
    return term_is_tty(STDIN_FILENO) ? EXIT_FINE : code;
}

static int run_session(struct client *c, const struct ask_options *o, const char *open_id,
                       bool is_continued)
{
    struct session s = {0};
    int code = api_wait_ready(c);
    if (!code)
        code = chat_init(&s.chat, c, o);
    if (!code && is_continued)
        code = chat_open_newest(&s.chat);
    if (!code && open_id)
        code = chat_open(&s.chat, open_id);
    char *path = code ? NULL : history_path();
    s.line = code ? NULL : line_open(path);
    free(path);
    if (s.line) {
        api_catch_interrupt(c);
        term_note("%s — /help lists the commands", s.chat.model);
        code = loop(&s);
    } else if (!code) {
        code = EXIT_REFUSED;
    }
    line_close(s.line);
    chat_done(&s.chat);
    return code;
}

int cmd_chat(struct client *c, int argc, char **argv)
{
    static const struct option options[] = {ASK_OPTIONS,
                                            {"continue", no_argument, NULL, OPT_OWN},
                                            {"open", required_argument, NULL, OPT_OWN + 1},
                                            {0}};
    const struct command *self = command_find("chat");
    struct ask_options o;
    ask_options_init(&o);
    const char *open_id = NULL;
    bool is_continued = false;
    int opt, code;
    while ((opt = getopt_long(argc, argv, "", options, NULL)) != -1) {
        if (opt == '?')
            return usage_error(self, "that option isn't known");
        if (opt == OPT_OWN)
            is_continued = true;
        if (opt == OPT_OWN + 1)
            open_id = optarg;
        if ((code = ask_option(c, &o, opt, optarg, self)))
            return code;
    }
    if (optind < argc)
        return usage_error(self, "chat takes no text; hearth ask does");
    if (is_continued && open_id)
        return usage_error(self, "--continue and --open exclude each other");
    return run_session(c, &o, open_id, is_continued);
}
