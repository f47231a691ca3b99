/*
 * Verifying what is cached: each whole block of a conversation is computed again from its
 * predecessors as found, and its bytes are compared (cache.h, "Proof").
 *
 *   history: the conversation as ids ──MAIL_VERIFY──► worker: a block a step ──► the reply
 *
 * A step is one pass of 32 rows, between two steps of the batch; while turns run, at most
 * VERIFY_SHARE of the time is spent so. A turn that needs the blocks which the verification holds
 * gets them: the verification lets go, and goes on later from where it was.
 */
#ifndef HEARTH_DAEMON_VERIFY_H
#define HEARTH_DAEMON_VERIFY_H

#include "base/ids.h"
#include "base/json.h"
#include "cache/cache.h"
#include "daemon/daemon.h"
#include "daemon/request.h"
#include "memory/memory.h"

/* A conversation as the model reads it, and what became of it. */
struct verify_chain {
    char id[MEMORY_ID_BYTES];
    uint64_t who;
    struct ids ids;
    int n_checked;        /* blocks, from the first on */
    int n_ram, n_disk;    /* blocks found there */
    int n_cached;         /* blocks that were found when it ended */
    int n_gone;           /* blocks in quarantine; 0: all are what they should be */
};

/* Made by the history thread; the worker's from MAIL_VERIFY on, which ends it. */
struct verify {
    struct mail mail;
    uint64_t conn;
    struct cancel *cancel; /* one reference */
    char *owner;
    struct verify_chain *chains; /* [n] */
    size_t n;
    bool has_more; /* conversations beyond these */
    int64_t t_begun;
};
/* NULL: no memory. */
struct verify *verify_new(const struct request *r, size_t n);
void verify_free(struct verify *v); /* NULL is fine */
/* Answers with a 503 and frees. */
void verify_refuse(struct daemon *d, struct verify *v, const char *code, const char *text);

/* The worker's side; worker thread only. */
struct verifier {
    struct daemon *d;
    struct engine *engine;
    struct cache *cache;
    struct verify *first; /* the one that runs; the others behind it through mail.next */
    int n;
    size_t at; /* its chain */
    struct cache_lease *lease; /* on this chain, or NULL */
    int n_path; /* blocks of the lease before anything was restored */
    int64_t rest_until_us;
};
/* Engine and cache are borrowed. */
void verifier_init(struct verifier *f, struct daemon *d, struct engine *engine,
                   struct cache *cache);
/* Takes v. */
void verifier_add(struct verifier *f, struct verify *v);
/* Whether a step would do something, given that no turn can go on. */
bool verifier_is_ready(const struct verifier *f);
/* Before a step of the batch: lets go of its blocks when turns may need them. */
void verifier_yield(struct verifier *f, bool is_batch_idle);
/* At most one pass. */
void verifier_step(struct verifier *f, bool is_batch_idle);
/* Ends all with a 503: the daemon stops. */
void verifier_stop(struct verifier *f);

#endif
