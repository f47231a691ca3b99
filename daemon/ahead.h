/*
 * Cuts made ahead, while nobody waits. History thread.
 *
 *     an answer is stored ─ would the next typical turn fit? ─no─► summary ─► cut ─► warm ─► ready
 *                                                                  (model)  stored   (reads the
 *                                                                                    new prefix)
 *
 * Summary and warming are background turns (daemon/turn.h): each live turn goes before them, and
 * the window in force stays the old one until the new one is warm. A turn that comes earlier and
 * doesn't fit uses the prepared cut as it is, or makes one by itself (context.c).
 *
 * The summary is asked for as a continuation of the warm window; where that doesn't fit, from the
 * messages that leave, piece by piece. It must be shorter than what it stands for; after two tries
 * sentences are picked instead (memory/extract.h), as for a model of less than a billion
 * parameters.
 */
#ifndef HEARTH_DAEMON_AHEAD_H
#define HEARTH_DAEMON_AHEAD_H

#include "daemon/history.h"
#include "daemon/turn.h"

#define AHEAD_JOBS_MAX 16
#define AHEAD_SUMMARY_TRIES 2
#define AHEAD_CHUNKS_MAX 16
#define AHEAD_MODEL_PARAMS_MIN 1000000000 /* smaller ones don't write their own summaries */

/* A turn of a stored conversation has ended and is in the database: begins a cut when one will be
 * needed. What goes wrong is logged; the live path cuts by itself then. */
void ahead_consider(struct history *h, const struct turn *t);
/* Reads a conversation's window in force in the background, so that the next turn finds it warm:
 * after a cut by hand. */
void ahead_warm(struct history *h, const char *owner, int64_t conversation, int64_t tip);
/* A turn has ended whose answer the template will print otherwise from the next one on, without
 * what was thought: reads it in that form, so that the next turn finds it warm. */
void ahead_strip(struct history *h, const struct turn *t);
/* How many are under way. */
int ahead_jobs(const struct history *h);
/* Ends the jobs of a conversation that goes, in all or in part, or all (0): before the rows do. */
void ahead_cancel(struct history *h, int64_t conversation);

#endif
