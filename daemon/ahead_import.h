/*
 * Conversations that are brought in from elsewhere and are longer than the window: their first cut
 * is made while the import goes on and nobody waits, piece by piece, so that the first turn finds
 * it. History thread.
 *
 *     path  root ─────────────────────────────────────────────────────────── tip
 *           │ PIECE_BYTES │ PIECE_BYTES │ …                        │ a window │
 *           ╰─ cut, prepared ─► cut on top of it ─► … one at a time ─► the last
 *
 * Each piece leaves one prepared cut, instead of the one before it; a turn that comes earlier takes
 * the newest and does the rest by itself (daemon/context.c). Its prefix isn't read ahead: who
 * imports a thousand conversations doesn't ask in all of them.
 */
#ifndef HEARTH_DAEMON_AHEAD_IMPORT_H
#define HEARTH_DAEMON_AHEAD_IMPORT_H

#include "daemon/history.h"

#define AHEAD_IMPORTS_MAX 64
#define AHEAD_IMPORT_PIECE_BYTES ((size_t)48 << 10) /* some 30 ms */

/* Messages with so much text were added to the conversation without a turn. */
void ahead_import_note(struct history *h, const char *owner, int64_t conversation, size_t n_bytes);
/* Whether a whole piece waits in a conversation: it is done at once, so that who imports quickly
 * and asks then finds all but the last one done. */
bool ahead_import_is_due(const struct history *h);
/* Whether ahead_import_work has something to do now. */
bool ahead_import_has_work(const struct history *h);
/* One piece. What goes wrong is logged; the live path cuts by itself then. */
void ahead_import_work(struct history *h);
void ahead_import_free(struct history *h);

#endif
