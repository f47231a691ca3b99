/*
 * JSON lines of the offline commands. json_parse refuses a NUL, rightly, since nothing behind it
 * carries one; but golden vectors hold texts with \u0000. So each escaped NUL becomes a stand-in
 * character that doesn't occur in the line, and offline_str turns it back into the byte 0.
 */
#ifndef HEARTH_DAEMON_OFFLINE_JSON_H
#define HEARTH_DAEMON_OFFLINE_JSON_H

#include <stddef.h>

#include "base/err.h"
#include "base/json.h"

struct offline_line {
    json *root;
    char stand_in[5]; /* UTF-8, or "" when the line has no NUL */
};

/* The errors of json_parse (its offsets may be off by a little when there are NULs). */
int offline_parse(const char *line, size_t n, struct offline_line *ret, struct err *e) MUST_USE;
void offline_done(struct offline_line *l);

/* The string's bytes with NULs in place (caller frees), or NULL: not a string, or no memory. */
char *offline_str(const struct offline_line *l, const json *string, size_t *ret_n);

#endif
