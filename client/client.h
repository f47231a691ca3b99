/*
 * hearth, the client: HTTP and SSE over the daemon's socket, and a terminal. It knows the wire
 * format and base/, no header of the daemon.
 *
 *      main.c (options) ─► cmd_*.c ─► api.c (calls, and what to say when they fail) ─► wire.c
 *                             └► chat.c, conversation.c, term.c (screen), line.c (keyboard)
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
    EXIT_REFUSED = 1,   /* the daemon answered with an error, or something failed on the way */
    EXIT_USAGE = 2,     /* the command line */
    EXIT_NO_DAEMON = 3, /* nobody answers at the socket */
    EXIT_NOT_READY = 4, /* loading, or too busy: try again */
    EXIT_NOT_FOUND = 5, /* no such conversation */
    EXIT_INTERRUPTED = 130,
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

/* Sampling and context options that ask and chat share; NaN and -1 mean: not given. */
struct ask_options {
    double temperature, top_p, min_p, repetition_penalty;
    int64_t seed, max_tokens;
    const char *context; /* strategy, or NULL */
    const char *model;   /* or NULL */
    const char *system;  /* or NULL */
};

/* A command: argv[0] is its name. Returns an exit code. */
struct command {
    const char *name;
    int (*run)(struct client *c, int argc, char **argv);
    const char *usage;   /* "ask [OPTIONS] TEXT…" */
    const char *summary; /* one line */
};
extern const struct command commands[]; /* ends with a NULL name */

int cmd_ask(struct client *c, int argc, char **argv);
int cmd_chat(struct client *c, int argc, char **argv);
int cmd_list(struct client *c, int argc, char **argv);
int cmd_show(struct client *c, int argc, char **argv);
int cmd_delete(struct client *c, int argc, char **argv);
int cmd_export(struct client *c, int argc, char **argv);
int cmd_import(struct client *c, int argc, char **argv);
int cmd_models(struct client *c, int argc, char **argv);
int cmd_status(struct client *c, int argc, char **argv);

/* Prints "hearth: text" and usage's hint; returns EXIT_USAGE. */
int usage_error(const struct command *cmd, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));
const struct command *command_find(const char *name);

#endif
