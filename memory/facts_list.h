/*
 * A list of facts in the making: grows on the heap, is settled (equals are one, older values leave,
 * the lightest leave) and copied into an arena. Private to memory (facts.c, facts_merge.c).
 */
#ifndef HEARTH_MEMORY_FACTS_LIST_H
#define HEARTH_MEMORY_FACTS_LIST_H

#include "memory/facts.h"

struct facts_list {
    struct fact *v; /* [n]; texts borrowed; pairs' values point into them */
    size_t n, cap;
};

void facts_list_init(struct facts_list *l);
void facts_list_done(struct facts_list *l);
/* Appends a copy of f with this text, which is not copied yet. Settles when it has twice FACTS_MAX.
 * ERR_NOMEM. A pair whose value is not within the text is dropped. */
int facts_list_add(struct facts_list *l, const struct fact *f, const char *text,
                   size_t n_text) MUST_USE;
/* Settles, keeps what composes to max_bytes, copies texts into the arena. ERR_NOMEM. */
int facts_list_take(struct facts_list *l, size_t max_bytes, struct arena *a,
                    struct facts *ret) MUST_USE;

/* Bytes of its line in facts_compose. */
size_t fact_line_bytes(const struct fact *f);
/* The key holds a word of things with exact values. */
bool key_is_thing(const char *key);

#endif
