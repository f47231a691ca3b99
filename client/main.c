/*
 * The command line: global options, then a command. See hearth(1).
 */
#include <getopt.h>
#include <locale.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/hash.h"
#include "base/paths.h"
#include "client/api.h"
#include "client/client.h"
#include "client/options.h"

#define API_KEY_MAX 1024

const struct command commands[] = {
    {"chat", cmd_chat, "chat [--continue | --open ID] [OPTIONS]",
     "talk; commands begin with / (see /help)"},
    {"ask", cmd_ask, "ask [OPTIONS] TEXT…", "one question, answered on stdout; also reads a pipe"},
    {"list", cmd_list, "list [--limit N] [--after ID]", "conversations, newest first"},
    {"show", cmd_show, "show ID", "a conversation's messages"},
    {"delete", cmd_delete, "delete ID…", "removes conversations for good"},
    {"export", cmd_export, "export [--all | ID…] [--output FILE]", "conversations as JSON lines"},
    {"import", cmd_import, "import [FILE…]", "conversations from JSON lines"},
    {"models", cmd_models, "models", "what the daemon serves"},
    {"status", cmd_status, "status", "the daemon: model, memory, cache, turns"},
    {NULL, NULL, NULL, NULL},
};

const struct command *command_find(const char *name)
{
    for (const struct command *c = commands; c->name; c++)
        if (!strcmp(c->name, name))
            return c;
    return NULL;
}

static void print_help(FILE *f)
{
    fputs("Usage: hearth [--socket PATH | --url URL] [--api-key-file FILE] [--json] [--wait "
          "SECONDS] COMMAND …\n\n"
          "Talks to hearthd, the local chat daemon.\n\nCommands:\n",
          f);
    for (const struct command *c = commands; c->name; c++)
        fprintf(f, "  %-44s %s\n", c->usage, c->summary);
    fputs("\nask and chat take --temperature --top-p --min-p --repetition-penalty --seed "
          "--max-tokens\n"
          "--context --model --system. `hearth COMMAND --help` tells more; so does hearth(1).\n",
          f);
}

int usage_error(const struct command *cmd, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    fputs("hearth: ", stderr);
    vfprintf(stderr, fmt, ap);
    va_end(ap);
    fprintf(stderr, "\nUsage: hearth %s\n", cmd ? cmd->usage : "[OPTIONS] COMMAND …");
    return EXIT_USAGE;
}

/* The first line of the file: the key alone, or "owner:key" as in the daemon's own file. */
static char *read_key(const char *path)
{
    struct err e;
    struct buf b;
    buf_init(&b, API_KEY_MAX);
    char *key = NULL;
    if (file_read(path, &b, &e)) {
        fprintf(stderr, "hearth: %s\n", e.text);
    } else if (b.len) {
        b.data[strcspn(b.data, "\r\n")] = 0;
        const char *colon = strchr(b.data, ':');
        key = strdup(colon ? colon + 1 : b.data);
    } else {
        fprintf(stderr, "hearth: %s is empty\n", path);
    }
    buf_done(&b);
    return key;
}

enum { OPT_SOCKET = OPT_OWN, OPT_URL, OPT_KEY, OPT_WAIT };

/* Reads what stands before the command. Returns -1 to go on, or an exit code. */
static int global_options(struct client *c, int argc, char **argv, char **ret_key)
{
    static const struct option options[] = {
        {"socket", required_argument, NULL, OPT_SOCKET},
        {"url", required_argument, NULL, OPT_URL},
        {"api-key-file", required_argument, NULL, OPT_KEY},
        {"json", no_argument, NULL, OPT_JSON},
        {"wait", required_argument, NULL, OPT_WAIT},
        {"help", no_argument, NULL, 'h'},
        {"version", no_argument, NULL, 'V'},
        {0},
    };
    int opt;
    int64_t n;
    while ((opt = getopt_long(argc, argv, "+hV", options, NULL)) != -1) {
        if (opt == 'h') {
            print_help(stdout);
            return EXIT_FINE;
        }
        if (opt == 'V') {
            printf("hearth %s\n", HEARTH_VERSION);
            return EXIT_FINE;
        }
        if (opt == OPT_WAIT && !parse_int(optarg, 0, 86400, &n))
            return usage_error(NULL, "--wait %s: seconds, from 0 to 86,400", optarg);
        if (opt == OPT_WAIT)
            c->wait_s = (int)n;
        else if (opt == OPT_SOCKET)
            c->socket_path = optarg;
        else if (opt == OPT_URL)
            c->url = optarg;
        else if (opt == OPT_JSON)
            c->is_json = true;
        else if (opt == OPT_KEY && !(*ret_key = read_key(optarg)))
            return EXIT_USAGE;
        else if (opt == '?')
            return usage_error(NULL, "that option isn't known before a command");
    }
    return -1;
}

static int run(struct client *c, int argc, char **argv)
{
    const struct command *cmd = command_find(argv[0]);
    if (!cmd) {
        fprintf(stderr, "hearth: there is no command '%s'\n", argv[0]);
        print_help(stderr);
        return EXIT_USAGE;
    }
    if (argc > 1 && (!strcmp(argv[1], "--help") || !strcmp(argv[1], "-h"))) {
        printf("Usage: hearth %s\n%s\n", cmd->usage, cmd->summary);
        return EXIT_FINE;
    }
    int code = api_open(c);
    if (!code) {
        optind = 0; /* glibc: start over, for the command's own options */
        code = cmd->run(c, argc, argv);
    }
    wire_close(c->wire);
    return code;
}

int main(int argc, char **argv)
{
    struct err e;
    struct client c = {0};
    char *key = NULL, *path = NULL;
    setlocale(LC_ALL, "");
    signal(SIGPIPE, SIG_IGN);
    if (hash_start(&e)) {
        fprintf(stderr, "hearth: %s\n", e.text);
        return EXIT_REFUSED;
    }
    int code = global_options(&c, argc, argv, &key);
    c.api_key = key;
    if (code < 0 && optind >= argc)
        code = usage_error(NULL, "a command is missing (hearth --help lists them)");
    if (code < 0 && c.socket_path && c.url)
        code = usage_error(NULL, "--socket and --url exclude each other");
    if (code < 0 && !c.socket_path && !c.url) {
        if (path_socket(NULL, &path, &e)) {
            fprintf(stderr, "hearth: %s\n", e.text);
            code = EXIT_REFUSED;
        }
        c.socket_path = path;
    }
    if (code < 0)
        code = run(&c, argc - optind, argv + optind);
    if (fflush(stdout) && code == EXIT_FINE) {
        fprintf(stderr, "hearth: stdout can't be written\n");
        code = EXIT_REFUSED;
    }
    free(path);
    free(key);
    return code;
}
