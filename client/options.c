/*
 * Options. Parsing is strict: what isn't wholly a number within its range is refused with the
 * range, and nothing is guessed.
 */
#include "client/options.h"

#include <errno.h>
#include <getopt.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define OPTIONS_MAX 32 /* of one command, with the shared ones */

/* What ask and chat use when neither the person nor the model's file says: small models loop at
 * plain defaults. */
#define DEFAULT_TEMPERATURE 0.7
#define DEFAULT_TOP_P 1.0
#define DEFAULT_MIN_P 0.05
#define DEFAULT_REPETITION 1.1

const struct option_row common_options[] = {
    {"json", NULL, OPT_JSON, "JSON on stdout, for scripts; errors too"},
    {"help", NULL, 'h', "this text"},
    {NULL, NULL, 0, NULL},
};

const struct option_row sampling_options[] = {
    {"temperature", "X", OPT_TEMPERATURE, "0 to 2; 0: always the likeliest token"},
    {"top-p", "X", OPT_TOP_P, "0 to 1"},
    {"min-p", "X", OPT_MIN_P, "0 to 1"},
    {"repetition-penalty", "X", OPT_REPETITION, "0.01 to 10; 1: none"},
    {"seed", "N", OPT_SEED, "0 to 2^53 - 1; the same seed gives the same answer"},
    {"max-tokens", "N", OPT_MAX_TOKENS, "of the answer; from 1"},
    {"context", "STRATEGY", OPT_CONTEXT, "what to do when a conversation outgrows the window"},
    {"model", "NAME", OPT_MODEL, "which model should answer"},
    {"system", "TEXT", OPT_SYSTEM, "system text, instead of the model's own"},
    {NULL, NULL, 0, NULL},
};

/* ---- the parser ---- */

bool options_have(const struct option_row *rows, const char *name)
{
    for (; rows && rows->name; rows++)
        if (!strcmp(rows->name, name))
            return true;
    return false;
}

/* Those of `rows` that aren't in `except` (may be NULL). */
static size_t append(struct option *to, size_t n, const struct option_row *rows,
                     const struct option_row *except)
{
    for (; rows && rows->name && n + 1 < OPTIONS_MAX; rows++)
        if (!options_have(except, rows->name))
            to[n++] = (struct option){rows->name, rows->arg ? required_argument : no_argument, NULL,
                                      rows->value};
    to[n] = (struct option){0};
    return n;
}

/* opt: '?' or ':'. A short option inside a word ("-xy") is in optopt alone. */
static int refuse_option(const struct command *cmd, const char *word, int opt)
{
    char letter[3] = {'-', (char)optopt, 0};
    if (opt == ':')
        return usage_error(cmd, "%s needs a value", word);
    if (optopt > ' ' && optopt < 0x7f)
        word = letter;
    return usage_error(cmd, "%s has no option %s (text that begins with - goes after --)",
                       cmd->name, word);
}

int options_read(const struct options_reader *r, int argc, char **argv, int *ret_first)
{
    struct option all[OPTIONS_MAX];
    size_t n = append(all, 0, common_options, r->cmd->options);
    n = append(all, n, r->cmd->options, NULL);
    if (r->cmd->has_sampling)
        append(all, n, sampling_options, NULL);
    optind = 0; /* glibc: start over */
    opterr = 0;
    int opt, code = 0;
    while (!code && (opt = getopt_long(argc, argv, ":", all, NULL)) != -1) {
        if (opt == '?' || opt == ':')
            code = refuse_option(r->cmd, argv[optind - 1], opt);
        else if (opt == OPT_JSON)
            r->c->is_json = true;
        else if (r->take)
            code = r->take(r->ctx, opt, optarg);
    }
    if (!code)
        *ret_first = optind;
    return code;
}

/* ---- numbers ---- */

static bool begins_like_a_number(const char *s)
{
    return *s == '-' || *s == '.' || (*s >= '0' && *s <= '9');
}

bool parse_int(const char *s, int64_t min, int64_t max, int64_t *ret)
{
    char *end;
    errno = 0;
    long long v = strtoll(s, &end, 10);
    if (errno || end == s || *end || !begins_like_a_number(s) || v < min || v > max)
        return false;
    *ret = v;
    return true;
}

bool parse_num(const char *s, double min, double max, double *ret)
{
    char *end;
    double v = strtod(s, &end); /* an underflow is a small number, an overflow out of range */
    /* No hexadecimal, no "inf": digits, a point and an exponent. */
    if (end == s || *end || !begins_like_a_number(s) || strspn(s, "0123456789.eE+-") != strlen(s))
        return false;
    if (!(v >= min && v <= max))
        return false;
    *ret = v;
    return true;
}

/* ---- what ask and chat share ---- */

void ask_options_init(struct ask_options *o)
{
    *o = (struct ask_options){.temperature = NAN,
                              .top_p = NAN,
                              .min_p = NAN,
                              .repetition_penalty = NAN,
                              .seed = -1,
                              .max_tokens = -1};
}

/* A number option: where it goes and what it may be. */
struct number {
    int value;
    const char *name;
    double *to;
    double min, max;
};

int ask_options_take(struct ask_options *o, const struct command *cmd, int value, const char *arg)
{
    const struct number numbers[] = {
        {OPT_TEMPERATURE, "temperature", &o->temperature, 0, 2},
        {OPT_TOP_P, "top-p", &o->top_p, 0, 1},
        {OPT_MIN_P, "min-p", &o->min_p, 0, 1},
        {OPT_REPETITION, "repetition-penalty", &o->repetition_penalty, 0.01, 10},
    };
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        const struct number *n = &numbers[i];
        if (n->value == value && !parse_num(arg, n->min, n->max, n->to))
            return usage_error(cmd, "--%s %s: a number from %g to %g", n->name, arg, n->min,
                               n->max);
    }
    if (value == OPT_SEED && !parse_int(arg, 0, JSON_INT_MAX, &o->seed))
        return usage_error(cmd, "--seed %s: a whole number from 0 to %lld", arg, JSON_INT_MAX);
    if (value == OPT_MAX_TOKENS && !parse_int(arg, 1, INT32_MAX, &o->max_tokens))
        return usage_error(cmd, "--max-tokens %s: a whole number from 1 to %d", arg, INT32_MAX);
    if (value == OPT_CONTEXT)
        o->context = arg;
    if (value == OPT_MODEL)
        o->model = arg;
    if (value == OPT_SYSTEM)
        o->system = arg;
    return 0;
}

static void default_to(double *value, const json *recommended, double otherwise)
{
    if (isnan(*value))
        *value = json_type(recommended) == JSON_NUMBER ? json_double(recommended) : otherwise;
}

void ask_options_default(struct ask_options *o, const json *sampling)
{
    default_to(&o->temperature, json_get(sampling, "temperature", NULL), DEFAULT_TEMPERATURE);
    default_to(&o->top_p, json_get(sampling, "top_p", NULL), DEFAULT_TOP_P);
    default_to(&o->min_p, json_get(sampling, "min_p", NULL), DEFAULT_MIN_P);
    default_to(&o->repetition_penalty, json_get(sampling, "repetition_penalty", NULL),
               DEFAULT_REPETITION);
}

void ask_options_write(const struct ask_options *o, json *body, const char *max_tokens_name)
{
    const struct {
        const char *name;
        double value;
    } numbers[] = {{"temperature", o->temperature},
                   {"top_p", o->top_p},
                   {"min_p", o->min_p},
                   {"repetition_penalty", o->repetition_penalty}};
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        if (!isnan(numbers[i].value))
            json_set_num(body, numbers[i].name, numbers[i].value);
    if (o->seed >= 0)
        json_set_int(body, "seed", o->seed);
    if (o->max_tokens >= 0)
        json_set_int(body, max_tokens_name, o->max_tokens);
    json_set_str(body, "model", o->model ? o->model : "default");
    if (o->context)
        json_set_str(json_set(body, "hearth", json_object()), "context", o->context);
}
