/* Between served.c (in and out), served_choose.c (who is meant) and served_wait.c (who waits). */
#ifndef HEARTH_DAEMON_SERVED_INSIDE_H
#define HEARTH_DAEMON_SERVED_INSIDE_H

#include "daemon/served.h"

/* What a model needs, and the window that it would have. */
struct need {
    uint64_t bytes; /* weights, buffers, one window */
    int ctx;
};

int served_state(const struct served *s);
bool served_is_ready(const struct served *s);
/* A new entry, which stays until the end. NULL: no memory, or there are too many. */
struct served *served_add(struct daemon *d, const char *id, const char *path);
/* ERR_LIMIT: it wouldn't even fit alone; what keeps it from running, else. */
int served_need(struct history *h, const struct served *s, struct need *ret,
                struct err *e) MUST_USE;
/* The answer to who asked for s, which can't be loaded for e's reason; returns its code. */
int served_refuse(struct http_error *ret, const struct err *e, const struct served *s);

/* Those who wait: a stream hears that its model is on its way, others are let go after --load-wait.
 */
void served_wait_step(struct history *h);
/* Milliseconds until then; -1: nobody waits. */
int served_wait_due_ms(const struct history *h);

#endif
