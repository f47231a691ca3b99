/*
 * What the cache forgets because something was deleted.
 *
 *   history: rows go,  ──MAIL_FORGET──► worker: cache_remove, ──MAIL_FORGOTTEN──► history: the
 *   journal in the same                 the disk has done it                      journal's rows
 *   transaction                                                                   go, the reply
 *
 * The reply to a deletion waits until the files have gone, so that it tells what went. While the
 * model loads that takes as long as loading does. A daemon that dies in between finds the journal
 * at its next start, and one that runs without the disk tier leaves it for one that has it.
 */
#ifndef HEARTH_DAEMON_FORGET_H
#define HEARTH_DAEMON_FORGET_H

#include "base/json.h"
#include "cache/cache.h"
#include "daemon/history.h"
#include "daemon/request.h"

struct forget {
    struct mail mail; /* MAIL_FORGET, then MAIL_FORGOTTEN */
    uint64_t conn;
    bool is_turn;     /* of the request */
    json *reply;      /* owned; NULL: nobody waits */
    json *account;    /* in the reply: takes what went */
    bool is_counted;  /* the history thread waits for it before it ends */
    struct memory_removed what; /* owned */
    /* The worker's answer. */
    struct daemon *d;
    struct cache_removed gone;
    bool is_done; /* none of it is left on disk */
};

/* Answers a deletion with `reply` (taken) once the blocks are gone; `account`, an object in it, or
 * NULL for a new one named hearth, gets what went. What `gone` holds is taken. */
void forget_and_reply(struct history *h, const struct request *r, json *reply, json *account,
                      struct memory_removed *gone);
/* Forgets blocks (taken) that nobody waits for. */
void forget_removed(struct history *h, struct memory_removed *gone);
/* At the start: what the last run had no time for. */
void forget_replay(struct history *h);
/* The worker has answered. Takes f. */
void forget_done(struct history *h, struct forget *f);

/* The worker's part; cache NULL: there is none. f goes back when the disk is done. */
void forget_run(struct daemon *d, struct cache *const *all, size_t n_all, struct forget *f);

#endif
