/*
 * The loop: the main thread's event loop. It accepts, reads requests, gives them to the history
 * thread, sends replies, and carries out the stop.
 *
 * Stopping (SIGTERM, SIGHUP, SIGINT, or MAIL_STOP in d->loop):
 *     1  state = STOPPING, systemd is told, listeners off, idle connections closed; a timer of last
 *        resort ends the process after stop_ms
 *     2  MAIL_STOP to worker and history, the running pass and a loading model are interrupted
 *     3  both end their turns (streams get their error, partial answers are stored) and say
 *        MAIL_STOPPED
 *     4  what still waits is answered 503, output is flushed for at most flush_ms, loop_run returns
 * main.c does the rest: joins (the database is checkpointed and closed by its thread), unlinks the
 * socket, frees the lock.
 */
#ifndef HEARTH_DAEMON_LOOP_H
#define HEARTH_DAEMON_LOOP_H

#include "daemon/net.h"

struct loop_options {
    struct daemon *d; /* its mailboxes are initialised */
    struct net_limits limits;
    const struct listener *listeners;
    int n_listeners;
    const struct keys *keys;             /* or NULL: no TCP */
    bool handle_signals;                 /* those three; the process's last resort too */
    int n_threads;                       /* how many MAIL_STOPPED to wait for */
    int stop_ms;                         /* of last resort */
    void (*on_cancel)(struct daemon *d); /* a client has gone; may be NULL */
    void (*on_ready)(struct daemon *d);  /* the model is loaded; may be NULL */
    uint64_t (*worker_progress)(const struct daemon *d); /* for the watchdog; may be NULL: the
                                                          * ticks */
};

struct loop;
int loop_new(const struct loop_options *o, struct loop **ret, struct err *e) MUST_USE;
/* Runs until stopped. 0, or ERR_IO when the model could not be loaded (d->load_error) or the loop
 * broke. */
int loop_run(struct loop *l) MUST_USE;
/* Instead of loop_run, when worker or history could not be started: asks both to end; the one that
 * doesn't run has closed its mailbox. */
void loop_abandon(struct loop *l);
void loop_free(struct loop *l); /* NULL is fine */

#endif
