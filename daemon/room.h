/*
 * Room for the history on a full disk: the disk cache gives files back, and what could not be
 * stored is stored once more.
 *
 *   history: ERR_FULL, the request or turn waits ──MAIL_ROOM──► worker ──► disk: files go
 *            it is handled again                 ◄──MAIL_ROOM_MADE── worker ◄───┘
 *
 * No thread blocks: others' requests go on meanwhile. Each request or turn waits once; when there
 * is still no room then, it fails. One question is out at a time, and all who come meanwhile wait
 * for its answer.
 */
#ifndef HEARTH_DAEMON_ROOM_H
#define HEARTH_DAEMON_ROOM_H

#include <stdbool.h>

#include "cache/cache.h"
#include "daemon/history.h"

/* History thread. m (MAIL_REQUEST or MAIL_TURN_DONE; NULL: nobody waits) is taken and comes back
 * with room_take. false: nothing can be given — no cache, another file system, the worker has ended
 * — and m is the caller's still. */
bool room_ask(struct history *h, struct mail *m);
/* MAIL_ROOM_MADE has come (taken): who waited, oldest first. */
struct mail *room_take(struct history *h, struct mail *answer);

/* Worker. Takes a MAIL_ROOM; the answer is sent by the time the cache is closed. cache NULL: at
 * once. */
void room_make(struct cache *cache, struct mail *m);

#endif
