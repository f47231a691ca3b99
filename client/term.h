/* The terminal: is there one, how wide, text that can't drive it, progress that goes away again. */
#ifndef HEARTH_CLIENT_TERM_H
#define HEARTH_CLIENT_TERM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "base/buf.h"

bool term_is_tty(int fd);
/* Whether stderr is a terminal that knows escape sequences (TERM isn't dumb). */
bool term_can_move(void);
/* Columns of stderr's terminal; 80 when there is none. */
int term_width(void);

/* Shows "what 42 %" on stderr, over itself; nothing without a terminal that can (TERM=dumb).
 * done < 0: unknown, shows dots that move. */
void term_progress(const char *what, double done);
void term_progress_end(void);
/* Progress before the first token, after a quiet half second: in the queue or being read, which the
 * API doesn't tell apart. n_tokens: of the prompt, 0: not known. */
void term_waiting(int64_t waited_ms, int64_t n_tokens);

/*
 * Appends text for a terminal: control characters (C0 but newline and tab, DEL, C1) and bytes that
 * aren't UTF-8 become U+FFFD, carriage returns are dropped. Characters that only change the order
 * of writing (U+202A…) stay, as right-to-left text needs them.
 */
void term_clean(struct buf *b, const char *text, size_t n);
/* The bytes as they are; why stdout fails is kept for term_end. */
void term_write(FILE *f, const char *text, size_t n);
/* Prints text from elsewhere: cleaned when f is a terminal, else the bytes as they are. */
void term_text(FILE *f, const char *text, size_t n);
/* The same on one line, newlines and tabs as blanks, cut to max_columns with "…" when f is a
 * terminal. */
void term_line(FILE *f, const char *text, size_t max_columns);
/* The same, cut everywhere: the first words of something long. */
void term_words(FILE *f, const char *text, size_t max_columns);
/* Whether what goes to f may be coloured: a terminal that knows how, and no NO_COLOR. */
bool term_has_style(FILE *f);
/* One dim line on stderr, when that is a terminal; cleaned. */
void term_note(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

/* A piece of what the model thinks aloud: dim, on stderr when that is a terminal, so that stdout
 * has the answer alone; cleaned. */
void term_thought(const char *text, size_t n);
/* A blank line behind it, if there was any. Before the answer, and at the end. */
void term_thought_end(void);
/* As term_note, and plain where stderr is no terminal. */
void term_say(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

/* Flushes stdout. false, from then on always: it can't be written; nothing more should be. */
bool term_flush(void);
/* 0, or what the exit code must be because of stdout: EXIT_PIPE quietly, or EXIT_REFUSED after
 * having said why. At the program's end. */
int term_end(void);

#endif
