/* The terminal: is there one, how wide, progress that goes away again. */
#ifndef HEARTH_CLIENT_TERM_H
#define HEARTH_CLIENT_TERM_H

#include <stdbool.h>
#include <stddef.h>

bool term_is_tty(int fd);
/* Columns of stderr's terminal; 80 when there is none. */
int term_width(void);

/* Shows "what 42 %" on stderr, over itself; nothing without a terminal. done < 0: unknown, shows a
 * dot that moves. */
void term_progress(const char *what, double done);
void term_progress_end(void);

/* Prints text from elsewhere to stdout: control characters that could drive the terminal are shown
 * as U+FFFD when stdout is one; else the bytes as they are. */
void term_text(const char *text, size_t n);
/* One dim line on stderr, when it is a terminal. */
void term_note(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

#endif
