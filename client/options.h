/*
 * Options of commands, those that ask and chat share, and numbers out of strings.
 */
#ifndef HEARTH_CLIENT_OPTIONS_H
#define HEARTH_CLIENT_OPTIONS_H

#include "client/client.h"

/* Values of the shared options; a command's own start at OPT_OWN. */
enum {
    OPT_JSON = 256,
    OPT_TEMPERATURE,
    OPT_TOP_P,
    OPT_MIN_P,
    OPT_REPETITION,
    OPT_SEED,
    OPT_MAX_TOKENS,
    OPT_CONTEXT,
    OPT_MODEL,
    OPT_SYSTEM,
    OPT_OWN,
};

extern const struct option_row sampling_options[]; /* of ask and chat */
/* Of every command: --json, --help. One that has a row of such a name has its own instead. */
extern const struct option_row common_options[];
bool options_have(const struct option_row *rows, const char *name);

/*
 * Reads a command's options; the common --json is taken here. `take` (NULL when the command has
 * none) gets each other one and returns 0 or EXIT_USAGE after having said what is wrong. 0, and
 * *ret_first is the index in argv of the first argument (arguments are moved behind the options);
 * or EXIT_USAGE.
 */
struct options_reader {
    struct client *c;
    const struct command *cmd;
    int (*take)(void *ctx, int value, const char *arg);
    void *ctx;
};
int options_read(const struct options_reader *r, int argc, char **argv, int *ret_first);

/* What ask and chat may set; NaN and -1 mean: not given. Strings are borrowed from argv. */
struct ask_options {
    double temperature, top_p, min_p, repetition_penalty;
    int64_t seed, max_tokens;
    const char *context; /* strategy, or NULL */
    const char *model;   /* or NULL */
    const char *system;  /* or NULL */
};

/* All "not given". */
void ask_options_init(struct ask_options *o);
/* Takes one of the sampling options. 0, or EXIT_USAGE after having said what is wrong. */
int ask_options_take(struct ask_options *o, const struct command *cmd, int value, const char *arg);
/* Fills what wasn't given with what the model's file recommends (`sampling` of /v1/models, may be
 * NULL), else with the client's defaults. */
void ask_options_default(struct ask_options *o, const json *sampling);
/* Adds what was given to a request body; the token limit's name is the only difference between the
 * two endpoints. */
void ask_options_write(const struct ask_options *o, json *body, const char *max_tokens_name);

/* A whole decimal number within [min, max], and nothing but it. */
bool parse_int(const char *s, int64_t min, int64_t max, int64_t *ret);
/* A decimal number within [min, max], and nothing but it. */
bool parse_num(const char *s, double min, double max, double *ret);

#endif
