/*
 * hearth context, hearth cut: the arguments. What is done and printed is in window.c.
 */
#include <stdlib.h>

#include "client/conversation.h"
#include "client/options.h"
#include "client/window.h"

enum { OPT_NEXT = OPT_OWN, OPT_SET, OPT_TARGET, OPT_DROPPED };
const struct option_row context_command_options[] = {
    {"next", NULL, OPT_NEXT, "as the next turn finds it, when it was or is being cut since"},
    {"dropped", NULL, OPT_DROPPED, "the messages that aren't in it any more, the oldest first"},
    {"set", "STRATEGY", OPT_SET, "what to do when it is full, from now on; default: the daemon's"},
    {NULL, NULL, 0, NULL},
};
const struct option_row cut_command_options[] = {
    {"target", "N", OPT_TARGET, "tokens that may stay; 60 % of the window otherwise"},
    {"context", "STRATEGY", OPT_CONTEXT, "by this strategy, this once"},
    {NULL, NULL, 0, NULL},
};

struct window_arguments {
    const char *name, *strategy;
    int64_t target;
    bool is_next, is_dropped;
};

static int take(void *ctx, int value, const char *arg)
{
    struct window_arguments *a = ctx;
    if (value == OPT_NEXT)
        a->is_next = true;
    if (value == OPT_DROPPED)
        a->is_dropped = true;
    if (value == OPT_SET || value == OPT_CONTEXT)
        a->strategy = arg;
    if (value == OPT_TARGET && !parse_int(arg, 1, INT32_MAX, &a->target))
        return usage_error(command_find(a->name), "--target %s: a whole number from 1 to %d", arg,
                           INT32_MAX);
    return 0;
}

/* Reads the options and finds the conversation. *ret_id is allocated. */
static int read_arguments(struct client *c, int argc, char **argv, struct window_arguments *a,
                          char **ret_id)
{
    const struct command *self = command_find(a->name);
    struct options_reader reader = {c, self, take, a};
    int first;
    int code = options_read(&reader, argc, argv, &first);
    if (code)
        return code;
    if (argc - first > 1)
        return usage_error(self, "one conversation at most");
    if (a->is_next && a->strategy)
        return usage_error(self, "--next and --set exclude each other");
    if (a->is_dropped && a->strategy)
        return usage_error(self, "--dropped and --set exclude each other");
    code = api_wait_ready(c); /* tokens are counted */
    return code ? code : conversation_choose(c, first < argc ? argv[first] : NULL, ret_id);
}

int cmd_context(struct client *c, int argc, char **argv)
{
    struct window_arguments a = {.name = "context"};
    char *id = NULL;
    int code = read_arguments(c, argc, argv, &a, &id);
    if (!code && a.strategy)
        code = window_set(c, id, a.strategy);
    else if (!code && a.is_dropped)
        code = window_dropped(c, id, a.is_next);
    else if (!code)
        code = window_show(c, id, a.is_next);
    free(id);
    return code;
}

int cmd_cut(struct client *c, int argc, char **argv)
{
    struct window_arguments a = {.name = "cut"};
    char *id = NULL;
    int code = read_arguments(c, argc, argv, &a, &id);
    if (!code)
        code = window_cut(c, id, a.target, a.strategy);
    free(id);
    return code;
}
