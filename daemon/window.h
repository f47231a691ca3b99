/*
 * The window of a stored conversation, as the model reads it: from memory's rows to chat messages.
 *
 *      instructions ┐
 *      system rows  ├─ the last of these carries the cut's head: pins, facts, summary
 *      cut.head     ┘
 *      user         context (quotes, notes) + the person's words
 *      assistant    with the ids it was generated with, when they are the running model's
 *      …
 *
 * Between cuts the rendered ids of a turn begin those of the next. History thread.
 */
#ifndef HEARTH_DAEMON_WINDOW_H
#define HEARTH_DAEMON_WINDOW_H

#include "daemon/history.h"
#include "daemon/turn.h"
#include "memory/window.h"

/* Appends what stands before this turn's own messages: the path to `tip` under a cut
 * (memory_window_want.cut). An interrupted or failed answer with text is an ordinary answer; one
 * without is left out. Marks t->window: has_cut, cut, head_at; n_above, when the newest messages
 * alone are more than the model takes: the others aren't loaded then. */
int window_load(struct history *h, struct turn *t, int64_t tip, int64_t cut,
                struct http_error *ret_error) MUST_USE;
/* Empties t->window, so that it can be filled anew; the arena keeps what was. */
void window_clear(struct turn *t);
/* Adds t->window.cut's head (none: nothing) to what the window has so far, which is the system
 * messages that begin it: to the last of them; where there is none, in one of its own, behind what
 * the template would have said. */
int window_add_head(struct history *h, struct turn *t, struct http_error *ret_error) MUST_USE;
/* Puts `context` before the words of message i, a user's. The text is copied. */
int window_inject(struct turn *t, size_t i, const struct memory_context *context,
                  struct http_error *ret_error) MUST_USE;
/* A message's role as the model's markup has it. */
enum chat_role window_role(enum memory_role role);
/* Tokens of message i's segment; after prepare_render. */
int window_tokens(const struct turn *t, size_t i);
/* Tokens of a text by itself. < 0: an error of the tokenizer, or none is loaded yet. */
int window_count(const struct history *h, const char *text, size_t n);

#endif
