/*
 * When a resent conversation was first seen, for templates that print the date: it stays the one of
 * the conversation's first request, so that its prompts begin alike after midnight too. A
 * conversation is how it begins: the owner, and all up to the first user message. In RAM; one that
 * is forgotten has a new date, and is read once more. History thread.
 */
#ifndef HEARTH_DAEMON_BEGAN_H
#define HEARTH_DAEMON_BEGAN_H

#include <stdint.h>

#include "engine/chat.h"

#define BEGAN_PLACES 4096

struct began;

/* Seconds since 1970: `now` if this beginning is new, else what was `now` then. *b NULL: made;
 * without memory it is `now`. */
int64_t began_at(struct began **b, const char *owner, const struct chat_message *m, size_t n,
                 int64_t now);
void began_free(struct began *b); /* NULL is fine */

#endif
