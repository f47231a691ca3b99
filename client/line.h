/* A line from the person: libedit with a history file on a terminal, plain lines from a pipe. */
#ifndef HEARTH_CLIENT_LINE_H
#define HEARTH_CLIENT_LINE_H

#include <stddef.h>

struct line;

#define LINE_MAX_BYTES ((size_t)8 << 20) /* of one entry */

enum line_result { LINE_TEXT, LINE_END, LINE_INTERRUPTED, LINE_TOO_LONG };

/* history_path (may be NULL): where entered lines are kept, 0600, at most 1,000. NULL when out of
 * memory. */
struct line *line_open(const char *history_path);
void line_close(struct line *l); /* writes the history; NULL is fine */

/*
 * Reads one entry; a line that ends in a backslash goes on in the next. *ret is allocated, without
 * the last newline (caller frees). LINE_END: end of input (Ctrl-D). LINE_INTERRUPTED: Ctrl-C while
 * typing. LINE_TOO_LONG: it was longer than LINE_MAX_BYTES, and is gone. `initial` (may be NULL) is
 * put into the line to be edited.
 */
enum line_result line_read(struct line *l, const char *prompt, const char *initial, char **ret,
                           size_t *ret_n);

#endif
