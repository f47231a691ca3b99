/*
 * The options that ask and chat share, and numbers out of strings.
 */
#ifndef HEARTH_CLIENT_OPTIONS_H
#define HEARTH_CLIENT_OPTIONS_H

#include <getopt.h>

#include "client/client.h"

/* getopt_long values of the shared options; a command's own start at OPT_OWN. */
enum {
    OPT_TEMPERATURE = 256,
    OPT_TOP_P,
    OPT_MIN_P,
    OPT_REPETITION,
    OPT_SEED,
    OPT_MAX_TOKENS,
    OPT_CONTEXT,
    OPT_MODEL,
    OPT_SYSTEM,
    OPT_JSON,
    OPT_OWN,
};

#define ASK_OPTIONS                                                                                \
    {"temperature", required_argument, NULL, OPT_TEMPERATURE},                                     \
        {"top-p", required_argument, NULL, OPT_TOP_P},                                             \
        {"min-p", required_argument, NULL, OPT_MIN_P},                                             \
        {"repetition-penalty", required_argument, NULL, OPT_REPETITION},                           \
        {"seed", required_argument, NULL, OPT_SEED},                                               \
        {"max-tokens", required_argument, NULL, OPT_MAX_TOKENS},                                   \
        {"context", required_argument, NULL, OPT_CONTEXT},                                         \
        {"model", required_argument, NULL, OPT_MODEL},                                             \
        {"system", required_argument, NULL, OPT_SYSTEM},                                           \
    {                                                                                              \
        "json", no_argument, NULL, OPT_JSON                                                        \
    }

/* All "not given". */
void ask_options_init(struct ask_options *o);
/* Takes one of the values above. 0, or EXIT_USAGE after having said what is wrong. */
int ask_option(struct client *c, struct ask_options *o, int opt, const char *arg,
               const struct command *cmd);
/* Adds what was given to a request body; names differ between the two endpoints only for the token
 * limit. */
void ask_options_write(const struct ask_options *o, json *body, const char *max_tokens_name);

/* A whole decimal number within [min, max]. */
bool parse_int(const char *s, int64_t min, int64_t max, int64_t *ret);
bool parse_num(const char *s, double min, double max, double *ret);

#endif
