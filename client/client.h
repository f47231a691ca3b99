/*
 * hearth, the client: HTTP and SSE over the daemon's socket, and a terminal. It knows the wire
 * format and base/, no header of the daemon.
 *
 *      main.c (options) ─► cmd_*.c ─► api.c (calls, and what to say when they fail) ─► wire.c
 *                             └► chat.c, answer.c, conversation.c, term.c (screen), line.c (keys)
 */
#ifndef HEARTH_CLIENT_CLIENT_H
#define HEARTH_CLIENT_CLIENT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/err.h"
#include "base/json.h"

/* Exit codes, as in hearth(1). */
enum {
    EXIT_FINE = 0,
    EXIT_REFUSED = 1,     /* the daemon answered with an error, or something failed on the way */
    EXIT_USAGE = 2,       /* the command line */
    EXIT_NO_DAEMON = 3,   /* nobody answers at the socket */
    EXIT_NOT_READY = 4,   /* loading, or too busy: try again */
    EXIT_NOT_FOUND = 5,   /* no such conversation */
    EXIT_NOT_ALLOWED = 6, /* another user's socket, or no valid key */
    EXIT_INTERRUPTED = 130,
    EXIT_PIPE = 141, /* whoever read stdout has gone: what a shell says of SIGPIPE */
};

struct wire;

struct client {
    const char *socket_path; /* used unless url is set */
    const char *url;         /* http://HOST:PORT of any OpenAI-compatible server, or NULL */
    const char *api_key;     /* NULL: none */
    bool is_json;            /* --json: machine-readable output */
    int wait_s;              /* how long to wait for a daemon that isn't there yet; 0: not at all */
    struct wire *wire;
};

/* An option: the parser (options.c) and --help read the same table, which ends with a NULL name. */
struct option_row {
    const char *name; /* without its dashes */
    const char *arg;  /* what its value is called in --help, or NULL: it takes none */
    int value;        /* what `take` gets */
    const char *help; /* one line */
};

/* A command: argv[0] is its name. Returns an exit code. */
struct command {
    const char *name;
    int (*run)(struct client *c, int argc, char **argv);
    const char *usage;                /* "ask [OPTIONS] TEXT…" */
    const char *summary;              /* one line */
    const struct option_row *options; /* its own, or NULL */
    bool has_sampling;                /* it takes sampling_options as well (options.h) */
};
extern const struct command commands[]; /* ends with a NULL name */

int cmd_ask(struct client *c, int argc, char **argv);
int cmd_chat(struct client *c, int argc, char **argv);
int cmd_list(struct client *c, int argc, char **argv);
int cmd_show(struct client *c, int argc, char **argv);
int cmd_delete(struct client *c, int argc, char **argv);
int cmd_export(struct client *c, int argc, char **argv);
int cmd_import(struct client *c, int argc, char **argv);
int cmd_replay(struct client *c, int argc, char **argv);
int cmd_models(struct client *c, int argc, char **argv);
int cmd_verify(struct client *c, int argc, char **argv);
int cmd_cache(struct client *c, int argc, char **argv);
int cmd_stats(struct client *c, int argc, char **argv);
int cmd_context(struct client *c, int argc, char **argv);
int cmd_cut(struct client *c, int argc, char **argv);
int cmd_summary(struct client *c, int argc, char **argv);
int cmd_search(struct client *c, int argc, char **argv);
int cmd_status(struct client *c, int argc, char **argv);

extern const struct option_row chat_command_options[], list_command_options[],
    export_command_options[], replay_command_options[], cache_command_options[],
    stats_command_options[],
    context_command_options[], cut_command_options[], summary_command_options[],
    search_command_options[];

/* Prints "hearth: text" and usage's hint; returns EXIT_USAGE. */
int usage_error(const struct command *cmd, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));
const struct command *command_find(const char *name);

#endif
