/*
 * Threads by role, and the mailbox, the only way from one to another.
 *
 *     senders ── mailbox_push ──►  [ mutex | FIFO of nodes | eventfd ]  ──► owner: mailbox_take
 *
 * A message embeds `struct mail` as its first member and is owned by whoever holds it: pushing
 * moves it. A push after mailbox_close is refused, and the sender keeps the message. No other lock,
 * callback or system call but the eventfd's write is made under the mutex.
 */
#ifndef HEARTH_BASE_THREAD_H
#define HEARTH_BASE_THREAD_H

#include <pthread.h>
#include <stdbool.h>

#include "base/err.h"

enum thread_role {
    THREAD_NONE,
    THREAD_LOOP,
    THREAD_HISTORY,
    THREAD_WORKER,
    THREAD_DISK,
    THREAD_POOL,
    THREAD_EMBEDDER,
    THREAD_LOADER /* works on a model that the worker doesn't have yet: passes for it */
};

/* Sets the calling thread's role and its name (seen in top). */
void thread_set_role(enum thread_role role);
/* For assert() at the doors: assert(thread_is(THREAD_WORKER)). A program that has set no role
 * anywhere (tests, offline commands) passes. */
bool thread_is(enum thread_role role);

/* Starts a joinable thread with all signals blocked. */
int thread_start(pthread_t *ret, enum thread_role role, void *(*run)(void *), void *arg,
                 struct err *e) MUST_USE;

struct mail {
    struct mail *next;
    int kind; /* the receiver's enum */
};

struct mailbox {
    pthread_mutex_t lock;
    struct mail *head, **tail;
    int fd; /* eventfd, non-blocking: readable while mail waits */
    bool is_closed;
};

int mailbox_init(struct mailbox *m, struct err *e) MUST_USE;
void mailbox_done(struct mailbox *m); /* must be empty */
/* true: moved. false: the mailbox is closed and the caller still owns the message. */
bool mailbox_push(struct mailbox *m, struct mail *mail) MUST_USE;
/* All that waits, oldest first (linked by next), or NULL. Clears the eventfd. Never blocks. */
struct mail *mailbox_take(struct mailbox *m);
/* Blocks until mail waits, the mailbox is closed, or timeout_ms passed (-1: no limit). */
void mailbox_wait(struct mailbox *m, int timeout_ms);
void mailbox_close(struct mailbox *m);

#endif
