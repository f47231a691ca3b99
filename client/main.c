/*
 * The command line: global options, then a command. See hearth(1).
 */
#include <fcntl.h>
#include <getopt.h>
#include <langinfo.h>
#include <locale.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "base/hash.h"
#include "base/paths.h"
#include "base/utf8.h"
#include "client/api.h"
#include "client/client.h"
#include "client/options.h"
#include "client/term.h"

#define KEY_FILE_MAX ((size_t)64 << 10)
#define WAIT_MAX_S 86400
#define USAGE                                                                                      \
    "[--socket PATH | --url URL] [--api-key-file FILE] [--json] [--wait SECONDS] COMMAND …"

static int cmd_help(struct client *c, int argc, char **argv);

const struct command commands[] = {
    {"chat", cmd_chat, "chat [OPTIONS]", "talk; lines that begin with / are commands (/help)",
     chat_command_options, true},
    {"ask", cmd_ask, "ask [OPTIONS] TEXT…", "one question, answered on stdout; also reads a pipe",
     NULL, true},
    {"list", cmd_list, "list [OPTIONS]", "conversations, newest first", list_command_options,
     false},
    {"show", cmd_show, "show [OPTIONS] ID", "a conversation's messages", NULL, false},
    {"delete", cmd_delete, "delete [OPTIONS] ID…", "removes conversations for good", NULL, false},
    {"export", cmd_export, "export [OPTIONS] --all | ID…", "conversations as JSON lines",
     export_command_options, false},
    {"import", cmd_import, "import [OPTIONS] [FILE…]", "conversations from JSON lines", NULL,
     false},
    {"models", cmd_models, "models [OPTIONS]", "the models there are, and which run", NULL, false},
    {"replay", cmd_replay, "replay [OPTIONS] FILE…", "plays recorded conversations, and measures",
     replay_command_options, false},
    {"cache", cmd_cache, "cache [list|drop|pin|unpin] [ID…]", "what is kept of what was read",
     cache_command_options, false},
    {"verify", cmd_verify, "verify [OPTIONS] [ID…]", "computes what is cached again, and compares",
     NULL, false},
    {"stats", cmd_stats, "stats [OPTIONS] [ID]",
     "what the cache was worth: in all, or turn by turn", stats_command_options, false},
    {"context", cmd_context, "context [OPTIONS] [ID]", "the window as it is, drawn",
     context_command_options, false},
    {"cut", cmd_cut, "cut [OPTIONS] [ID]", "makes room in the window now", cut_command_options,
     false},
    {"summary", cmd_summary, "summary [show|edit] [ID]", "what stands for the turns that left",
     summary_command_options, false},
    {"search", cmd_search, "search [OPTIONS] TEXT…", "finds what was said", search_command_options,
     false},
    {"status", cmd_status, "status [OPTIONS]", "the daemon: model, memory, cache, turns", NULL,
     false},
    {"help", cmd_help, "help [COMMAND]", "this list, or the options of a command", NULL, false},
    {NULL, NULL, NULL, NULL, NULL, false},
};

enum { OPT_SOCKET = OPT_OWN, OPT_URL, OPT_KEY, OPT_WAIT };
static const struct option_row global_options[] = {
    {"socket", "PATH", OPT_SOCKET, "the daemon's Unix socket"},
    {"url", "URL", OPT_URL, "a server over TCP instead: http://127.0.0.1:8080"},
    {"api-key-file", "FILE", OPT_KEY, "its key: the first line, KEY or owner:KEY"},
    {"wait", "SECONDS", OPT_WAIT, "wait so long for a daemon that isn't there yet"},
    {"version", NULL, 'V', "print the version"},
    {NULL, NULL, 0, NULL},
};

const struct command *command_find(const char *name)
{
    for (const struct command *c = commands; c->name; c++)
        if (!strcmp(c->name, name))
            return c;
    return NULL;
}

/* ---- help ---- */

/* Those of `rows` that aren't in `except` (may be NULL). */
static void print_options(const struct option_row *rows, const struct option_row *except)
{
    for (; rows && rows->name; rows++)
        if (!options_have(except, rows->name))
            printf("  --%s%s%-*s  %s\n", rows->name, rows->arg ? " " : "",
                   (int)(26 - strlen(rows->name) - !!rows->arg), rows->arg ? rows->arg : "",
                   rows->help);
}

static void print_help(void)
{
    printf("%s",
           "Usage: hearth " USAGE "\n\nTalks to hearthd, the local chat daemon.\n\nCommands:\n");
    for (const struct command *c = commands; c->name; c++)
        printf("  %s%*s  %s\n", c->usage, (int)(28 - utf8_width(c->usage, strlen(c->usage))), "",
               c->summary);
    printf("%s", "\nOptions:\n");
    print_options(global_options, NULL);
    print_options(common_options, NULL);
    printf("%s",
           "\n`hearth COMMAND --help` lists a command's own options. More is in hearth(1).\n");
}

static void print_command_help(const struct command *cmd)
{
    printf("Usage: hearth %s\n\n%s\n\nOptions:\n", cmd->usage, cmd->summary);
    print_options(cmd->options, NULL);
    if (cmd->has_sampling)
        print_options(sampling_options, NULL);
    print_options(common_options, cmd->options);
}

static int unknown_command(const char *name)
{
    fprintf(stderr, "hearth: there is no command '%s' (hearth --help lists them)\n", name);
    return EXIT_USAGE;
}

static int cmd_help(struct client *c, int argc, char **argv)
{
    (void)c;
    const struct command *cmd = argc > 1 ? command_find(argv[1]) : NULL;
    if (argc > 1 && !cmd)
        return unknown_command(argv[1]);
    if (cmd)
        print_command_help(cmd);
    else
        print_help();
    return EXIT_FINE;
}

int usage_error(const struct command *cmd, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    fputs("hearth: ", stderr);
    vfprintf(stderr, fmt, ap);
    va_end(ap);
    fprintf(stderr, "\nUsage: hearth %s\n", cmd ? cmd->usage : USAGE);
    return EXIT_USAGE;
}

/* ---- the start ---- */

/* The first line that isn't a comment: the key alone, or "owner:key" as in the daemon's own file.
 * NULL after having said why. */
static char *read_key(const char *path)
{
    struct err e;
    struct buf b;
    buf_init(&b, KEY_FILE_MAX);
    char *key = NULL;
    if (file_read(path, &b, &e)) {
        fprintf(stderr, "hearth: %s\n", e.text);
        buf_done(&b);
        return NULL;
    }
    const char *line = b.data ? b.data : "";
    while (*line == '#' || *line == '\n' || *line == '\r')
        line += *line == '#' ? strcspn(line, "\n") : 1;
    size_t n = strcspn(line, " \t\r\n");
    const char *colon = memchr(line, ':', n);
    if (colon)
        n -= (size_t)(colon + 1 - line);
    if (n)
        key = strndup(colon ? colon + 1 : line, n);
    else
        fprintf(stderr, "hearth: %s holds no key\n", path);
    buf_done(&b);
    return key;
}

static int take_global(struct client *c, int opt, char **key)
{
    int64_t n;
    if (opt == OPT_WAIT && !parse_int(optarg, 0, WAIT_MAX_S, &n))
        return usage_error(NULL, "--wait %s: seconds, a whole number from 0 to %d", optarg,
                           WAIT_MAX_S);
    if (opt == OPT_WAIT)
        c->wait_s = (int)n;
    else if (opt == OPT_SOCKET)
        c->socket_path = optarg;
    else if (opt == OPT_URL)
        c->url = optarg;
    else if (opt == OPT_JSON)
        c->is_json = true;
    if (opt != OPT_KEY)
        return 0;
    free(*key);
    *key = read_key(optarg);
    return *key ? 0 : EXIT_USAGE;
}

/* Reads what stands before the command. Returns -1 to go on, or an exit code. */
static int read_globals(struct client *c, int argc, char **argv, char **ret_key)
{
    static const struct option options[] = {
        {"socket", required_argument, NULL, OPT_SOCKET},
        {"url", required_argument, NULL, OPT_URL},
        {"api-key-file", required_argument, NULL, OPT_KEY},
        {"wait", required_argument, NULL, OPT_WAIT},
        {"version", no_argument, NULL, 'V'},
        {"json", no_argument, NULL, OPT_JSON},
        {"help", no_argument, NULL, 'h'},
        {0},
    };
    int opt, code;
    opterr = 0;
    while ((opt = getopt_long(argc, argv, "+:hV", options, NULL)) != -1) {
        if (opt == 'h') {
            print_help();
            return EXIT_FINE;
        }
        if (opt == 'V') {
            printf("hearth %s\n", HEARTH_VERSION);
            return EXIT_FINE;
        }
        if (opt == ':')
            return usage_error(NULL, "%s needs a value", argv[optind - 1]);
        if (opt == '?')
            return usage_error(NULL, "there is no option %s before a command", argv[optind - 1]);
        if ((code = take_global(c, opt, ret_key)))
            return code;
    }
    if (c->socket_path && c->url)
        return usage_error(NULL, "--socket and --url exclude each other");
    if (c->url && strncmp(c->url, "http://", 7) && strncmp(c->url, "https://", 8))
        return usage_error(NULL, "--url %s: begins with neither http:// nor https://", c->url);
    if (optind >= argc)
        return usage_error(NULL, "a command is missing (hearth --help lists them)");
    return -1;
}

static bool asks_for_help(int argc, char **argv)
{
    for (int i = 1; i < argc && strcmp(argv[i], "--"); i++)
        if (!strcmp(argv[i], "--help") || !strcmp(argv[i], "-h"))
            return true;
    return false;
}

static int run(struct client *c, int argc, char **argv)
{
    const struct command *cmd = command_find(argv[0]);
    if (!cmd)
        return unknown_command(argv[0]);
    if (asks_for_help(argc, argv)) {
        print_command_help(cmd);
        return EXIT_FINE;
    }
    int code = api_open(c);
    if (!code)
        code = cmd->run(c, argc, argv);
    wire_close(c->wire);
    return code;
}

/* Where the daemon is, unless the command line says it. */
static int find_socket(struct client *c, char **ret_path)
{
    struct err e;
    if (c->socket_path && strlen(c->socket_path) > SOCKET_PATH_MAX)
        return usage_error(NULL, "--socket %s: longer than %d bytes", c->socket_path,
                           SOCKET_PATH_MAX);
    if (c->socket_path || c->url)
        return -1;
    if (path_socket(NULL, ret_path, &e)) {
        fprintf(stderr, "hearth: %s\n", e.text);
        return EXIT_REFUSED;
    }
    c->socket_path = *ret_path;
    return -1;
}

/* Characters as the user has them; in the "C" locale of bare machines UTF-8 all the same, as
 * libedit would refuse to read any other letter. Numbers stay as JSON has them. */
static void set_locale(void)
{
    if (!setlocale(LC_CTYPE, "") || strcmp(nl_langinfo(CODESET), "UTF-8"))
        setlocale(LC_CTYPE, "C.UTF-8");
}

/* A closed stdin, stdout or stderr must not be the number of a file that is opened later. What is
 * put there fails like a closed one. */
static void hold_standard_files(void)
{
    for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++)
        if (fcntl(fd, F_GETFD) < 0)
            (void)!open("/dev/null", fd == STDIN_FILENO ? O_WRONLY : O_RDONLY);
}

int main(int argc, char **argv)
{
    hold_standard_files();
    struct err e;
    struct client c = {0};
    char *key = NULL, *path = NULL;
    set_locale();
    signal(SIGPIPE, SIG_IGN); /* term_flush tells of a reader that left */
    if (hash_start(&e)) {
        fprintf(stderr, "hearth: %s\n", e.text);
        return EXIT_REFUSED;
    }
    int code = read_globals(&c, argc, argv, &key);
    c.api_key = key;
    if (code < 0)
        code = find_socket(&c, &path);
    if (code < 0)
        code = run(&c, argc - optind, argv + optind);
    int output = term_end();
    free(path);
    free(key);
    return output ? output : code;
}
