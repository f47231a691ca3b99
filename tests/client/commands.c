/* A small table of commands and the keeper of usage errors: see commands.h. */
#include "tests/client/commands.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

char usage_text[512];

const struct command commands[] = {
    {"ask", cmd_ask, "ask", "asks", NULL, true},
    {"export", cmd_export, "export", "exports", export_command_options, false},
    {"replay", cmd_replay, "replay", "replays", replay_command_options, false},
    {NULL, NULL, NULL, NULL, NULL, false},
};

const struct command *command_find(const char *name)
{
    for (const struct command *c = commands; c->name; c++)
        if (!strcmp(c->name, name))
            return c;
    return NULL;
}

int usage_error(const struct command *cmd, const char *fmt, ...)
{
    va_list ap;
    (void)cmd;
    va_start(ap, fmt);
    vsnprintf(usage_text, sizeof usage_text, fmt, ap);
    va_end(ap);
    return EXIT_USAGE;
}
