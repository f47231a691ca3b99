/*
 * The account of a turn that has ended: what the cache was worth, and why it wasn't worth more.
 * History thread.
 *
 *      worker: n_ram, n_disk, n_shared, n_computed, saved_us
 *         ╰─► account_turn: the reason for a miss ─► counters (/metrics, status), sums since start
 *                ╰─► memory_answer_end, or account_stateless: sums for good
 *                       ╰─► the reply
 *
 * All three places get the same struct memory_turn, so they can't differ.
 *
 * There is a miss when nothing of the prompt was found, or when the cache ended more than a block
 * before what was to be expected: the end of the last answer in the window, or, without one, of
 * the system messages at its head. What comes after is new text and never a miss. Of a miss:
 *
 *      off        use_cache is false
 *      evicted    the first block that lacks is one that a stored conversation used (block_use);
 *                 or the message in which the cache ended, and more than a block behind it, is
 *                 what was read before
 *      model      an answer's ids are another model's
 *      changed    the window is the continuation of one that was read before, but for this message
 *      new        else
 *
 * What was read before: of a stored conversation the window of its newest turn, which SQLite keeps
 * (8 bytes of a hash for each message); of stateless ones a book in RAM of the last windows that
 * were read, by owner. After a restart the book is empty, and what it would have known is "new".
 */
#ifndef HEARTH_DAEMON_ACCOUNT_H
#define HEARTH_DAEMON_ACCOUNT_H

#include "daemon/history.h"

struct account;

/* The turn's statistics for memory. */
struct memory_turn account_statistics(const struct turn *t);
/* Judges (t->stats.miss_*), counts, notes what was read. Before the turn is stored. */
void account_turn(struct history *h, struct turn *t);
/* What t read, for memory_answer.window: of account_turn; n is 0 when there is nothing to say. */
const uint8_t *account_window(const struct turn *t, size_t *ret_n_bytes);
/* Adds a turn that no answer was stored of to its owner's sums. */
void account_stateless(struct history *h, const struct turn *t);

/* An owner's sums since the daemon's start. */
void account_since_start(const struct history *h, const char *owner, struct memory_savings *ret);
void account_free(struct account *a); /* NULL is fine */

#endif
