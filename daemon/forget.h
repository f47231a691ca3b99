/*
 * What the cache forgets because a conversation was deleted.
 *
 *   history: rows go ──MAIL_FORGET──► worker: cache_remove ──MAIL_FORGOTTEN──► history: the reply
 *
 * The reply to a deletion waits for the worker, so that it tells what went. While the model loads
 * that takes as long as loading does. A daemon that dies in between leaves blocks that age out.
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
    int64_t n_messages;
    uint8_t *blocks;  /* owned, [n_blocks * HASH_BYTES] */
    size_t n_blocks;
    struct cache_removed gone; /* the worker's answer */
};

/* Answers a deletion with `reply` (taken), which gets a `hearth` of what went, once the blocks are
 * gone. gone->blocks are taken. */
void forget_and_reply(struct history *h, const struct request *r, json *reply,
                      struct memory_removed *gone);
/* Forgets blocks (taken) of a conversation that was deleted while its answer was written. */
void forget_blocks(struct history *h, uint8_t *blocks, size_t n_blocks);
/* The worker has answered. Takes f. */
void forget_done(struct history *h, struct forget *f);

#endif
