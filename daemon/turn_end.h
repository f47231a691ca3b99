/* The last steps of a turn, on the history thread: store, then reply. */
#ifndef HEARTH_DAEMON_TURN_END_H
#define HEARTH_DAEMON_TURN_END_H

#include "daemon/history.h"
#include "daemon/turn.h"

/* Stores the answer (or what there is of it), tells the format's on_end, posts the last reply,
 * frees the conversation and the turn. Takes t. */
void turn_end(struct history *h, struct turn *t);
/* Writes a partial answer. Takes f. */
void turn_flush(struct history *h, struct turn_flush *f);

#endif
