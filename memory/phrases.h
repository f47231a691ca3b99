/*
 * Which phrases of words.h are in a text, found in one pass over its plain form. Private to memory.
 */
#ifndef HEARTH_MEMORY_PHRASES_H
#define HEARTH_MEMORY_PHRASES_H

#include "memory/clause.h"
#include "memory/words.h"

struct spotted {
    const struct phrase *phrase; /* the heaviest, the first of those; NULL: none, or one of no
                                    weight, which says that there is nothing here */
    size_t value[2];             /* from, to in c->s: what follows it, or what its * covers */
    bool is_habit, is_thought;   /* one of words.h's habits, thoughts */
    bool is_passing;             /* … and what passes */
};
struct spotted phrases_spot(const struct clause *c);

#define LEAD_IN_PLAIN 64 /* bytes of plain form that lead_in_find looks at */

/* The lead-in that begins the text, or NULL. *ret_end: where it ends in the text. */
const struct lead_in *lead_in_find(const struct plain *p, size_t *ret_end);

#endif
