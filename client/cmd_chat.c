/*
 * hearth chat: the person's side. A line is a message; a line that begins with / is a command.
 * Ctrl-C stops the answer and not the program; Ctrl-D leaves. At a pipe each line is answered in
 * turn, and the first failure ends it, as there is nobody to try again.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "base/paths.h"
#include "base/utf8.h"
#include "client/fields.h"
#include "client/slash.h"
#include "client/term.h"

/* A slash command: `rest` is what follows its name, without blanks before. Results are exit codes;
 * none of them ends a person's chat. */
struct slash {
    const char *name;
    int (*run)(struct session *s, const char *rest);
    const char *summary;
};
static const struct slash slashes[];

enum { OPT_CONTINUE = OPT_OWN, OPT_OPEN };
const struct option_row chat_command_options[] = {
    {"continue", NULL, OPT_CONTINUE, "go on with the newest conversation"},
    {"open", "ID", OPT_OPEN, "go on with this one: an id, its beginning, or a number of the list"},
    {NULL, NULL, 0, NULL},
};

/* ---- sending ---- */

static int send(struct session *s, const char *text, size_t n, const char *parent)
{
    size_t bad;
    if (n && !utf8_valid(text, n, &bad))
        return api_fail(s->chat.client, EXIT_USAGE, "inval",
                        "the message is no UTF-8 text (byte %zu)", bad + 1);
    if (n && memchr(text, 0, n))
        return api_fail(s->chat.client, EXIT_USAGE, "inval", "the message holds a NUL");
    return chat_send(&s->chat, text, n, parent);
}

/* ---- slash commands ---- */

static int slash_help(struct session *s, const char *rest)
{
    (void)s;
    (void)rest;
    for (const struct slash *p = slashes; p->name; p++)
        printf("  %-20s %s\n", p->name, p->summary);
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
    char name[] = "list", *argv[] = {name, NULL};
    return cmd_list(s->chat.client, 1, argv);
}

static int slash_open(struct session *s, const char *rest)
{
    if (!*rest)
        return api_fail(s->chat.client, EXIT_USAGE, "inval",
                        "/open ID: which conversation? (see /list)");
    return chat_open(&s->chat, rest);
}

static int slash_system(struct session *s, const char *rest)
{
    if (!*rest) {
        const char *text = s->chat.system ? s->chat.system : "(the model's own default)";
        term_text(stdout, text, strlen(text));
        putchar('\n');
        return 0;
    }
    chat_new(&s->chat, rest);
    term_note("a new conversation with that system text");
    return 0;
}

static int slash_model(struct session *s, const char *rest)
{
    if (!*rest) {
        char name[] = "models", *argv[] = {name, NULL};
        return cmd_models(s->chat.client, 1, argv);
    }
    const int code = chat_set_model(&s->chat, rest);
    if (!code)
        term_note("%s answers from now on%s", s->chat.model,
                  s->chat.id ? "; it reads the conversation anew" : "");
    return code;
}

static int slash_regen(struct session *s, const char *rest)
{
    (void)rest;
    struct question q;
    int code = chat_last_question(&s->chat, &q);
    if (code)
        return code;
    int64_t seed = s->chat.options.seed;
    s->chat.options.seed = -1; /* another answer is wanted, not the same once more */
    code = send(s, NULL, 0, q.id);
    s->chat.options.seed = seed;
    question_done(&q);
    return code;
}

/* What /edit sends: the text after it, or the old one as the person changes it. n 0: nothing. */
static int edited(struct session *s, const char *rest, const char *old, char **ret, size_t *ret_n)
{
    *ret_n = 0;
    if (*rest) {
        *ret = strdup(rest);
        *ret_n = *ret ? strlen(rest) : 0;
        return 0;
    }
    if (!term_is_tty(STDIN_FILENO))
        return api_fail(s->chat.client, EXIT_USAGE, "inval",
                        "/edit TEXT: the other words are missing");
    if (line_read(s->line, "edit> ", old, ret, ret_n) != LINE_TEXT)
        *ret_n = 0;
    return 0;
}

static int slash_edit(struct session *s, const char *rest)
{
    struct question q;
    char *text = NULL;
    size_t n = 0;
    int code = chat_last_question(&s->chat, &q);
    if (code)
        return code;
    code = edited(s, rest, q.text, &text, &n);
    if (!code && n)
        code = send(s, text, n, q.before);
    free(text);
    question_done(&q);
    return code;
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
    printf("last turn  %.0f tokens from the cache (%.0f RAM, %.0f disk; %.0f shared), %.0f read\n",
           number(cache, "tokens"), number(cache, "ram"), number(cache, "disk"),
           number(cache, "shared"), number(cache, "computed"));
    const json *miss = json_get(cache, "miss", NULL), *at = json_get(miss, "at_message", NULL);
    const char *reason = json_str(json_get(miss, "reason", NULL));
    if (reason && json_type(at) == JSON_NUMBER)
        printf("           the cache missed: %.16s, at message %.0f\n", reason, json_double(at));
    else if (reason)
        printf("           the cache missed: %.16s\n", reason);
    printf("           first token after %.0f ms (queue %.0f, reading %.0f); %.1f tokens/s read, "
           "%.1f written\n",
           number(t, "ttft_ms"), number(t, "queue_ms"), number(t, "prefill_ms"),
           number(t, "prefill_tps"), number(t, "decode_tps"));
    printf("session    turns %lld, prompt tokens %lld of which cached %lld, written %lld\n",
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
    {"/model [NAME]", slash_model, "let another model answer; without NAME: what there is"},
    {"/regen", slash_regen, "answer the last question again"},
    {"/edit [TEXT]", slash_edit, "ask the last question in other words"},
    {"/context [STRATEGY]", slash_context,
     "the window as it is; with STRATEGY: what to do when it is full"},
    {"/dropped", slash_dropped, "the messages that aren't in the window any more"},
    {"/cut", slash_cut, "make room now"},
    {"/summary [edit]", slash_summary, "what stands for the turns that left"},
    {"/pin [N|last]", slash_pin, "keep the N-th message from the end, or the last, in the window"},
    {"/unpin [N|last]", slash_unpin, "let go of the N-th pin of /pins, or the last"},
    {"/pins", slash_pins, "what is pinned"},
    {"/remember TEXT", slash_remember, "keep a note in the window"},
    {"/stats", slash_stats, "what the last turn cost, and what the cache saved"},
    {"/help", slash_help, "this list"},
    {"/quit", slash_quit, "leave"},
    {NULL, NULL, NULL},
};

static int run_slash(struct session *s, const char *text)
{
    size_t n = strcspn(text, " \t\n");
    const char *rest = text + n + strspn(text + n, " \t\n");
    for (const struct slash *p = slashes; p->name; p++)
        if (strcspn(p->name, " ") == n && !memcmp(p->name, text, n))
            return p->run(s, rest);
    return api_fail(s->chat.client, EXIT_USAGE, "inval",
                    "there is no command %.*s (see /help; a message that begins with / is written "
                    "with a blank before it)",
                    (int)(n < 64 ? n : 64), text);
}

/* ---- the session ---- */

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

/* One entry: read and dealt with. *ret_end: there is none left. An exit code. */
static int entry(struct session *s, bool *ret_end)
{
    char *text = NULL;
    size_t n = 0;
    int code = 0;
    enum line_result r = line_read(s->line, "> ", NULL, &text, &n);
    wire_forget_interrupt(s->chat.client->wire);
    *ret_end = r == LINE_END;
    if (r == LINE_TOO_LONG)
        code = api_fail(s->chat.client, EXIT_USAGE, "limit",
                        "a message longer than %zu bytes was not sent", LINE_MAX_BYTES);
    if (r == LINE_TEXT && n)
        code = text[0] == '/' ? run_slash(s, text) : send(s, text, n, NULL);
    free(text);
    return code;
}

static int loop(struct session *s)
{
    bool is_person = term_is_tty(STDIN_FILENO), is_end = false;
    while (!s->is_over && !is_end) {
        int last = entry(s, &is_end);
        if (!term_flush())
            return EXIT_REFUSED; /* term_end says why */
        if (last && !is_person)
            return last;
    }
    return 0;
}

static int run_session(struct session *s, const struct ask_options *o, const char *open_id,
                       bool is_continued)
{
    struct client *c = s->chat.client;
    int code = api_wait_ready(c);
    if (!code)
        code = chat_init(&s->chat, c, o);
    if (!code && is_continued)
        code = chat_open_newest(&s->chat);
    if (!code && open_id)
        code = chat_open(&s->chat, open_id);
    if (code)
        return code;
    char *path = history_path();
    s->line = line_open(path);
    free(path);
    if (!s->line)
        return api_fail(c, EXIT_REFUSED, "nomem", "out of memory");
    api_catch_interrupt(c);
    term_note("%s — /help lists the commands", s->chat.model);
    return loop(s);
}

/* ---- the command ---- */

struct chat_arguments {
    struct ask_options options;
    const char *open_id;
    bool is_continued;
};

static int take(void *ctx, int value, const char *arg)
{
    struct chat_arguments *a = ctx;
    if (value == OPT_CONTINUE)
        a->is_continued = true;
    if (value == OPT_OPEN)
        a->open_id = arg;
    return ask_options_take(&a->options, command_find("chat"), value, arg);
}

int cmd_chat(struct client *c, int argc, char **argv)
{
    const struct command *self = command_find("chat");
    struct chat_arguments a = {0};
    struct options_reader reader = {c, self, take, &a};
    int first;
    ask_options_init(&a.options);
    int code = options_read(&reader, argc, argv, &first);
    if (code)
        return code;
    if (first < argc)
        return usage_error(self, "chat takes no text; hearth ask does");
    if (a.is_continued && a.open_id)
        return usage_error(self, "--continue and --open exclude each other");
    struct session s = {.chat.client = c};
    code = run_session(&s, &a.options, a.open_id, a.is_continued);
    line_close(s.line);
    chat_done(&s.chat);
    return code;
}
