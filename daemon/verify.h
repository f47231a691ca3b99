/*
 * Verifying what is cached: each block that is recorded for a conversation is computed again from
 * its predecessors as found, and its bytes are compared, in RAM and on disk (cache.h, "Proof").
 *
 *     history: the names of its blocks ──MAIL_VERIFY──► worker: a block a step ──► the reply
 *
 * The names come from the history's account (block_use): all branches, whatever they were read
 * with. Which token ids they hold the blocks say themselves (cache.h, "Which chains").
 *
 * A step is one pass of 32 rows, between two steps of the batch; while turns run, at most
 * VERIFY_SHARE of the time is spent so, and a turn that comes while none runs interrupts the pass.
 * A turn that needs the blocks which the verification holds gets them: the verification lets go,
 * and goes on later from where it was.
 */
#ifndef HEARTH_DAEMON_VERIFY_H
#define HEARTH_DAEMON_VERIFY_H

#include "base/ids.h"
#include "base/json.h"
#include "cache/cache.h"
#include "daemon/daemon.h"
#include "daemon/request.h"
#include "memory/memory.h"

/* A conversation's blocks, and what became of them. */
struct verify_one {
    char id[MEMORY_ID_BYTES];
    uint64_t who;
    uint8_t *blocks; /* owned, [n_blocks * HASH_BYTES] */
    size_t n_blocks;
    int64_t n_checked, n_positions; /* blocks, tails among them, and what they hold */
    int64_t n_ram, n_disk;          /* blocks that were compared there; a block may be in both */
    int64_t n_missing;              /* recorded, and cached no more */
    int64_t n_other;                /* cached for another model */
};
struct verify_difference {
    size_t one; /* its conversation */
    int n_block;
    bool is_file_only; /* RAM had the right bytes */
    int64_t n_gone;    /* blocks in quarantine */
};

/* Made by the history thread; the worker's from MAIL_VERIFY on, which ends it. */
struct verify {
    struct mail mail;
    uint64_t conn;
    struct cancel *cancel; /* one reference */
    char *owner;
    struct verify_one *v; /* [n] */
    size_t n;
    bool has_more; /* conversations beyond these */
    struct served *served; /* whose blocks */
    const char *model_by;  /* history.model_by */
    struct verify_difference *differences; /* [n_differences] */
    size_t n_differences;
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
    int ctx;              /* positions of a turn's window */
    struct verify *first; /* the one that runs; the others behind it through mail.next */
    int n;
    size_t at;                 /* its conversation */
    struct cache_trace *trace; /* of that; NULL: not yet */
    struct ids ids;            /* the chain that is read, whole blocks and perhaps a tail */
    int n_done;                /* its blocks that are behind us */
    int n_proven;              /* of these and more: those that are counted */
    bool has_chain;
    struct cache_lease *lease; /* on the chain, or NULL */
    int n_path;                /* blocks of the lease before anything was restored */
    struct cache_piece piece;
    struct cache_proof *proof; /* of the piece, which is computed; its file may be on its way */
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
/* At most one pass. d->pass_abort was cleared before the mail was taken. */
void verifier_step(struct verifier *f, bool is_batch_idle);
/* Ends all with a 503: the daemon stops. */
void verifier_stop(struct verifier *f);

#endif
