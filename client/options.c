/* Parsing is strict: what isn't wholly a number within its range is refused with the range. */
#include "client/options.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

void ask_options_init(struct ask_options *o)
{
    *o = (struct ask_options){.temperature = NAN,
                              .top_p = NAN,
                              .min_p = NAN,
                              .repetition_penalty = NAN,
                              .seed = -1,
                              .max_tokens = -1};
}

bool parse_int(const char *s, int64_t min, int64_t max, int64_t *ret)
{
    char *end;
    errno = 0;
    long long v = strtoll(s, &end, 10);
    if (errno || end == s || *end || v < min || v > max)
        return false;
    *ret = v;
    return true;
}

bool parse_num(const char *s, double min, double max, double *ret)
{
    char *end;
    errno = 0;
    double v = strtod(s, &end);
    if (end == s || *end || !(v >= min && v <= max))
        return false;
    *ret = v;
    return true;
}

/* A number option: where it goes and what it may be. */
struct number {
    int opt;
    const char *name;
    double *to;
    double min, max;
};

int ask_option(struct client *c, struct ask_options *o, int opt, const char *arg,
               const struct command *cmd)
{
    const struct number numbers[] = {
        {OPT_TEMPERATURE, "temperature", &o->temperature, 0, 2},
        {OPT_TOP_P, "top-p", &o->top_p, 0, 1},
        {OPT_MIN_P, "min-p", &o->min_p, 0, 1},
        {OPT_REPETITION, "repetition-penalty", &o->repetition_penalty, 0.01, 10},
    };
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        const struct number *n = &numbers[i];
        if (n->opt == opt && !parse_num(arg, n->min, n->max, n->to))
            return usage_error(cmd, "--%s %s: a number from %g to %g", n->name, arg, n->min,
                               n->max);
    }
    if (opt == OPT_SEED && !parse_int(arg, 0, JSON_INT_MAX, &o->seed))
        return usage_error(cmd, "--seed %s: a whole number from 0 to %lld", arg, JSON_INT_MAX);
    if (opt == OPT_MAX_TOKENS && !parse_int(arg, 1, INT32_MAX, &o->max_tokens))
        return usage_error(cmd, "--max-tokens %s: a whole number from 1 to %d", arg, INT32_MAX);
    if (opt == OPT_CONTEXT)
        o->context = arg;
    if (opt == OPT_MODEL)
        o->model = arg;
    if (opt == OPT_SYSTEM)
        o->system = arg;
    if (opt == OPT_JSON)
        c->is_json = true;
    return 0;
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
    if (o->context) {
        json *hearth = json_object();
        json_set_str(hearth, "context", o->context);
        json_set(body, "hearth", hearth);
    }
}
