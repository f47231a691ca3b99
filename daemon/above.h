/*
 * What of a stored conversation's window wasn't loaded because no model could read it and the
 * messages below: an import of ten thousand messages, before its first cut. See daemon/window.h.
 *
 *      root … … … … … … … … … … … … first loaded … tip
 *           ╰──── dropped ────╯╰─ summed up ─╯╰── loaded: a cut keeps the end of it
 *
 * A cut sums up the newest ABOVE_BYTES of it, as if the model had read them, and drops the rest,
 * which can be found by search and recall like all that left. History thread.
 */
#ifndef HEARTH_DAEMON_ABOVE_H
#define HEARTH_DAEMON_ABOVE_H

#include "daemon/history.h"
#include "daemon/turn.h"
#include "memory/said.h"

/* About so much text of it is summed up: a second's work, once. */
#define ABOVE_BYTES ((size_t)1 << 20)

struct above {
    bool is_summed; /* in: else nothing is read, and all is to be dropped */
    bool is_told;   /* in: only what became of them is asked; said is NULL */
    int64_t *rows; /* [n] ascending */
    size_t n;
    size_t n_dropped; /* of these, the oldest; the others are in said */
    struct said *said; /* [n - n_dropped] */
};

/* Of a window that window_load made for the path to `tip`, into t's arena. n 0: all was loaded. */
int above_load(struct history *h, struct turn *t, int64_t tip, struct above *ret,
               struct http_error *ret_error) MUST_USE;
/* Adds all of it to the lists of to->receipt. */
void above_tell(struct history *h, struct turn *to, const struct above *a);

#endif
