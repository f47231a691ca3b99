/*
 * The worker thread: it loads the engine, owns the KV pool and the cache tree, and runs turns by
 * continuous batching.
 *
 *      waiting (FIFO) ─► running (up to `parallel`) ─► done ──MAIL_TURN_DONE──► history
 *             ▲               │ out of blocks: the youngest yields
 *             └───────────────┘
 *
 *  - A pass takes the next row of every decoding turn, and as many prefill rows as a time target
 *    allows (by the measured time of a row).
 *  - Before each pass a prefilling turn looks into the cache again; of several that share an
 *    uncached prefix the first computes it and the others wait for its blocks.
 *  - A cancel ends its own turn only: the pass is abandoned, and the others' rows are run again.
 *  - A turn that finds no block yields: it gives what it has to the tree, waits at the head of the
 *    queue, and resumes with prompt + output as its prompt: the same bits.
 *
 * Stopping: MAIL_STOP in d->worker and worker_interrupt(d). Running and waiting turns end with an
 * error ("the daemon is stopping", 503) and go to the history thread, the mailbox closes,
 * MAIL_STOPPED (malloc'ed; the loop frees it) goes to the loop. While loading, set d->load_abort
 * too.
 */
#ifndef HEARTH_DAEMON_WORKER_H
#define HEARTH_DAEMON_WORKER_H

#include "daemon/daemon.h"

/* Starts the thread, which loads the model at once: MAIL_READY (malloc'ed) to the loop when the
 * state is DAEMON_READY or DAEMON_FAILED (with d->load_error). */
int worker_start(struct daemon *d, struct err *e) MUST_USE;
/* Waits for the thread's end and closes the engine. Call after history_join: tokenizer and
 * templates are the history thread's until then. */
void worker_join(struct daemon *d);

/*
 * Makes the running pass stop between two layers, so that the worker looks at its turns' cancel
 * flags. Set the flag first. Any thread. The worker clears d->pass_abort, then reads the flags,
 * then runs: a cancel is seen by one of the two.
 */
void worker_interrupt(struct daemon *d);

#endif
