/*
 * A conversation's window from the client's side: what the model reads of it, drawn; cuts, summary
 * and pins. The commands (cmd_window.c, cmd_summary.c) and the chat (slash_window.c) share it.
 */
#ifndef HEARTH_CLIENT_WINDOW_H
#define HEARTH_CLIENT_WINDOW_H

#include "client/api.h"

/* ---- bar.c: pure ---- */

/* What a token of the window is there for. In the order of the window. */
enum bar_kind {
    BAR_SYSTEM, /* also the template's own markup */
    BAR_PINS,
    BAR_FACTS,
    BAR_SUMMARY,
    BAR_RECALLED,
    BAR_TURNS,
    BAR_FREE,
    BAR_KINDS
};
const char *bar_name(enum bar_kind kind);
char bar_letter(enum bar_kind kind);
/* Of an item's "kind" in the daemon's words; what is unknown counts as BAR_TURNS. */
enum bar_kind bar_kind_of(const char *item_kind);
/*
 * Shares out n_columns (> 0) by tokens [BAR_KINDS], into ret [BAR_KINDS]: the sum is n_columns, as
 * near to the shares as whole columns are, and what has tokens has a column where there are enough
 * of them. All tokens 0: all columns are free.
 */
void bar_columns(const int64_t *tokens, int n_columns, int *ret);

/* ---- receipt.c: pure ---- */

/*
 * What a reply's receipt says that a person should know, appended to b as one line without its end:
 * "6 messages (412 tokens) left the window, summed up; 2 recalled". Nothing when nothing happened.
 * `before` is the receipt of the reply before, NULL when it isn't known: pins are news only against
 * it. Either may be NULL.
 */
void receipt_write(const json *receipt, const json *before, struct buf *b);

/* ---- fact_lines.c: pure ---- */

/* How much of a line of the list of facts is words, without the daemon's object behind them. */
size_t fact_line_words(const char *line, size_t n);
/* Appends the list as people read it: the words of each line. */
void fact_lines_bare(const char *facts, struct buf *b);
/* Appends the edited list, with the objects of those lines whose words are in the old one. */
void fact_lines_rejoin(const char *edited, const char *old, struct buf *b);

/* ---- window.c: each is a call and what it prints; 0 or an exit code ---- */

/* The window that the newest answer was read with, drawn; is_next: as the next turn finds it, after
 * a cut that was made since or is being made ready. */
int window_show(struct client *c, const char *id, bool is_next);
/* dropped.c: the messages that aren't in that window, with --json one a line. */
int window_dropped(struct client *c, const char *id, bool is_next);
/* "default": the daemon's, whichever it is. */
int window_set(struct client *c, const char *id, const char *strategy);
/* The same, and nothing is printed. */
int window_set_quietly(struct client *c, const char *id, const char *strategy, json **ret);
/* Cuts now. target: tokens that may stay, 0: as the daemon has it. strategy may be NULL. */
int window_cut(struct client *c, const char *id, int64_t target, const char *strategy);
/* /v1/hearth/conversations/ID + tail. Allocated; NULL: no memory, which has been said. */
char *window_path(struct client *c, const char *id, const char *tail);

/* ---- cmd_summary.c ---- */

int summary_show(struct client *c, const char *id);
/* In the person's editor. */
int summary_edit(struct client *c, const char *id);

#endif
