/*
 * What the cache has for an owner, and orders about it: list, drop, pin, unpin (api_cache.c).
 *
 *   history: whose blocks, by the ──MAIL_KEEP──► worker: counts, ──MAIL_KEPT──► history: replies;
 *   account in SQLite; pins are                  drops, pins                    pins that did not
 *   stored first                                                                fit are taken back
 *
 * Pins are stored before the worker is asked, so that another conversation's unpinning meanwhile
 * sees them.
 */
#ifndef HEARTH_DAEMON_KEEP_H
#define HEARTH_DAEMON_KEEP_H

#include "cache/cache.h"
#include "daemon/history.h"
#include "daemon/known.h"
#include "daemon/request.h"

struct host;

enum keep_op { KEEP_LIST, KEEP_DROP, KEEP_DROP_ALL, KEEP_PIN, KEEP_UNPIN };

/* Some blocks: a conversation's. */
struct keep_part {
    char id[MEMORY_ID_BYTES];
    char *title; /* owned; NULL: none */
    int64_t row, n_own_pins;
    uint8_t *ids; /* owned, [n * HASH_BYTES] */
    size_t n;
    struct cache_count count; /* the worker's answer */
};

/* What a model has for the owner, loaded or not. */
struct keep_model {
    struct known_model m;
    struct cache_usage usage; /* the worker's answer */
};

/* Made by the history thread; the worker's from MAIL_KEEP to MAIL_KEPT. */
struct keep {
    struct mail mail;
    uint64_t conn;
    enum keep_op op;
    char *owner; /* owned */
    /* LIST: a part each conversation. DROP: what only it uses, and all it uses. PIN: what it is to
     * pin, what only it had pinned, and all that it had. UNPIN: what only it had pinned, and all
     * that it had. */
    struct keep_part *parts; /* owned, [n] */
    size_t n;
    bool has_more; /* LIST */
    struct keep_model *models; /* owned, [n_models]: LIST, DROP_ALL */
    size_t n_models;
    struct served *served;     /* PIN: whose pins; NULL: it is about no model in memory */
    const char *model_by;      /* history.model_by */
    uint8_t model[HASH_BYTES]; /* of the pins that a PIN has replaced */
    /* The worker's answer. */
    struct daemon *d;
    bool has_disk;
    size_t n_pins_max; /* LIST: of --model's; 0: it isn't in memory */
    struct cache_removed gone;
    size_t n_pinned, n_in_use; /* DROP: what stays */
    int rc;
    struct err err;
};

/* With n empty parts. NULL: no memory. */
struct keep *keep_new(const struct request *r, enum keep_op op, size_t n);
void keep_free(struct keep *k); /* NULL is fine */

/* The worker's part. It goes back when the disk is done. */
struct keep_caches {
    struct cache *hub;
    struct host *const *hosts; /* [n_hosts] */
    int n_hosts;
};
void keep_run(struct daemon *d, const struct keep_caches *of, struct keep *k);
/* The worker has no cache, or stops: it goes back with ERR_BUSY. */
void keep_refuse(struct daemon *d, struct keep *k);

/* The history thread's end: answers and frees (api_cache.c). */
void keep_done(struct history *h, struct keep *k);

#endif
