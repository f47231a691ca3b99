/*
 * Segments of chat messages that were tokenised before: a turn's window is the one before it and a
 * message more, and tokenising it anew took half of the time that planning takes.
 *
 *     message ─► hash of all that its segment depends on ─► its ids, kept
 *
 * What is kept is what engine/chat.h gives for the same message, so that ids don't depend on it.
 * Bounded: two halves of RENDERED_IDS / 2 ids each; when the newer one is full the older one goes,
 * with all that wasn't asked for since. History thread.
 */
#ifndef HEARTH_DAEMON_RENDERED_H
#define HEARTH_DAEMON_RENDERED_H

#include "engine/chat.h"

#define RENDERED_IDS ((size_t)2 << 20) /* 8 MiB */

struct rendered;

/* As chat_render, without a text. *kept: NULL in the beginning; made and changed here. It may
 * keep segments of several models. Out of memory only keeps less. */
int rendered_window(struct rendered **kept, const struct chat *c, const struct chat_message *v,
                    size_t n, struct chat_rendering *ret, struct err *e) MUST_USE;
void rendered_free(struct rendered *r); /* NULL is fine */

#endif
