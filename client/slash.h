/*
 * A chat's slash commands. cmd_chat.c has the table and most of them, slash_window.c those about
 * the window.
 */
#ifndef HEARTH_CLIENT_SLASH_H
#define HEARTH_CLIENT_SLASH_H

#include "client/chat.h"
#include "client/line.h"

struct session {
    struct chat chat;
    struct line *line;
    bool is_over;
};

/* Each gets what follows its name, without blanks before. Results are exit codes; none of them ends
 * a person's chat. */
int slash_context(struct session *s, const char *rest);
int slash_dropped(struct session *s, const char *rest);
int slash_cut(struct session *s, const char *rest);
int slash_summary(struct session *s, const char *rest);
int slash_pin(struct session *s, const char *rest);
int slash_unpin(struct session *s, const char *rest);
int slash_pins(struct session *s, const char *rest);
int slash_remember(struct session *s, const char *rest);

#endif
