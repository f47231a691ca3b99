/*
 * What the folds of resent conversations came to, so that the next request of one goes on from its
 * newest cut (memory/fold.h) and doesn't make every head anew. Only that: a window is the same with
 * the book and without. History thread.
 */
#ifndef HEARTH_DAEMON_RESENT_BOOK_H
#define HEARTH_DAEMON_RESENT_BOOK_H

#include "base/hash.h"
#include "memory/fold.h"

struct resent_book;

void resent_book_free(struct resent_book *b); /* NULL is fine */

/* chains[n]: each a hash over the rules, the owner and the messages up to and with that one. The
 * state of the longest list that this one begins with, taken out of the book; NULL: none. */
struct fold_state *resent_book_take(struct resent_book *b, const uint8_t (*chains)[HASH_BYTES],
                                    size_t n);
/* Takes the state, of a list of n_bytes. *b NULL: the book is made. Without memory, or of a list
 * that is too long, it is let go. */
void resent_book_keep(struct resent_book **b, const uint8_t (*chains)[HASH_BYTES],
                      struct fold_state *state, size_t n_bytes);

#endif
