/*
 * The prefix cache: a tree of KV blocks over one pool of memory, so that no token is read twice
 * that the budget could have kept.
 *
 *        root (model fingerprint, owner)
 *          │ 32 ids
 *        block ── block ── block ─ ─ tail (fewer than 32 positions, kept when a turn ends)
 *                     └─── block ── block
 *
 * Identity is a chain: id = BLAKE2b-256("hearth-kv-1" ‖ parent id ‖ count (u8) ‖ ids (u32
 * little-endian)); the root's id hashes all that decides the bits, and the owner, so another
 * model's or owner's block can't be found. A block in the tree never changes. A child that shares
 * only its first k tokens gives k positions by copy: that serves forks inside a block, tails, and
 * the rule that the last prompt token is always evaluated.
 *
 * Ownership: everything belongs to the worker thread. The tree holds one reference a block; a lease
 * holds one more on each block of its path, which is what pins it. Victims are leaves nobody
 * leases, cheapest first by (cost to recompute × use), so that a system prompt under many
 * conversations stays.
 *
 * What it does not know: text, models, HTTP, conversations (`who` is an opaque number for the
 * account of sharing).
 */
#ifndef HEARTH_CACHE_CACHE_H
#define HEARTH_CACHE_CACHE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/hash.h"
#include "base/thread.h"
#include "engine/kv.h"

struct cache;
struct cache_lease;

struct cache_root {
    uint8_t id[HASH_BYTES];
};
/* model: engine_info's fingerprint. owner: "uid:1000", "key:name". */
void cache_root_of(const uint8_t model[HASH_BYTES], const char *owner, struct cache_root *ret);

/* The pool is borrowed and must outlive the cache. */
int cache_new(struct kv_pool *pool, struct cache **ret, struct err *e) MUST_USE;
void cache_free(struct cache *c); /* no leases may be open; NULL is fine */

/*
 * The disk tier, which is off until it is opened: blocks are written behind, as files below dir/kv,
 * and found again after a restart. One disk thread makes every call on files; its replies come as
 * mail of reply_kind to `reply` (the worker's), each to be given to cache_take_mail.
 */
struct cache_disk_options {
    const char *dir;
    uint64_t bytes_max; /* of the file system's, temporaries included */
    int percent_max;    /* 0: none; else at most this share of what is free and ours */
    uint64_t reserve_bytes;  /* stays free */
    int tail_idle_ms;        /* a partial tail is written when its turn ended so long ago */
    struct mailbox *reply;   /* borrowed until cache_disk_close */
    int reply_kind;
};
/* ERR_BUSY (another daemon's), ERR_IO, ERR_INVAL, ERR_NOMEM: there is no tier, and all else works.
 * The directory is read by the disk thread meanwhile. */
int cache_disk_open(struct cache *c, const struct cache_disk_options *o, struct err *e) MUST_USE;
/* Writes what waits and the tails, for at most `ms`, and ends the thread. No leases may be open.
 * Without a tier nothing happens. */
void cache_disk_close(struct cache *c, int ms);
/* Takes a mail of reply_kind. */
void cache_take_mail(struct cache *c, struct mail *m);
/* Sends what is due to the disk. Call it whenever there may be something: when mail has come, after
 * a pass, and when cache_due_ms have passed. Cheap when there is nothing. */
void cache_tend(struct cache *c);
/* Milliseconds until cache_tend has something to do; -1: only after something else has happened. */
int cache_due_ms(const struct cache *c);
/* Whether blocks are held by reads or writes under way: room that comes back with mail. */
bool cache_is_busy(const struct cache *c);

/* Where a turn's cached positions came from; the sum of ram, disk is n_tokens. shared: of these,
 * how many were first computed for another `who`. */
struct cache_found {
    int n_tokens;
    int n_ram, n_disk;
    int n_shared;
};

/* A turn's hold on the cache: its sequence and the path of block ids. who: opaque, 0 = nobody in
 * particular. */
int cache_lease_open(struct cache *c, const struct cache_root *root, uint64_t who,
                     struct cache_lease **ret, struct err *e) MUST_USE;
/* The sequence that the engine appends to. Borrowed from the lease. */
struct kv_seq *cache_lease_seq(struct cache_lease *l);

/*
 * Extends the lease's committed positions by the longest cached run of ids[seq->n_tokens, n_max),
 * n_max <= n_ids: whole blocks by reference, then the part of one more block by copy (when a block
 * can be had for it). Call with n_max = prompt − 1 at most. May be called again between passes, to
 * adopt what another turn has published meanwhile; then the uncommitted private block is replaced
 * if the tree has more. *ret counts what this call added. Never fails for lack of room: it then
 * finds less. ids[0, n_tokens) must be the ids that the lease holds. ERR_NOMEM: nothing changed.
 */
int cache_find(struct cache_lease *l, const int32_t *ids, int n_max, struct cache_found *ret,
               struct err *e) MUST_USE;

/*
 * Begins to read what the disk has of ids[seq->n_tokens, n_max) behind the blocks that the lease
 * has: whole blocks into the lease's reserved ones, then a tail. Call it after cache_find and
 * cache_reserve; true when something is on its way. Until cache_is_restoring is false again the
 * lease may only be closed: no passes, find, reserve or publish. Each block that arrives valid
 * enters the tree, in order, and n_tokens grows; the first that doesn't ends the run there.
 */
bool cache_restore(struct cache_lease *l, const int32_t *ids, int n_max);
bool cache_is_restoring(const struct cache_lease *l);
/* What has arrived since the last call, as cache_find counts it. */
struct cache_found cache_take_restored(struct cache_lease *l);

/* How many of ids[0, n) a lease on this root would find now, given room. Changes nothing
 * (admission, tests, status). */
int cache_peek(const struct cache *c, const struct cache_root *root, const int32_t *ids, int n);

/* Blocks for n_more positions past n_tokens, evicting what nobody leases. ERR_NOMEM when the budget
 * is pinned by running turns: nothing was taken. */
int cache_reserve(struct cache_lease *l, int n_more, struct err *e) MUST_USE;

/* Makes every full block of ids[0, seq->n_tokens) shared that isn't yet. When the tree has the same
 * block already, the lease adopts it and gives its own back. cost_us_per_token: what prefill took
 * a position, for the victims' order (0: unknown). ERR_NOMEM: what isn't shared stays private. */
int cache_publish(struct cache_lease *l, const int32_t *ids, int64_t cost_us_per_token,
                  struct err *e) MUST_USE;

/* Publishes, keeps the partial tail in the tree when keep_tail, releases the rest. ids NULL: keeps
 * nothing that isn't published. A lease of NULL is fine. */
void cache_lease_close(struct cache_lease *l, const int32_t *ids, bool keep_tail);

/* Forgets everything of a lease's private, unpublished blocks (a NaN turn): nothing of it enters
 * the tree. */
void cache_lease_abandon(struct cache_lease *l);

/*
 * Proof (cache/verify.c): each whole block that a lease holds is computed again from its
 * predecessors as found.
 *
 *     find, restore ─► (probe_open ─ a pass over the block's 32 ids ─ probe_close)… ─► lease_close
 */
/* Whole blocks of the lease's path. */
int cache_lease_n_blocks(const struct cache_lease *l);
/* Blocks that are free or could be evicted now. */
size_t cache_room(const struct cache *c);
/* Positions of ids[0, n_max) in whole blocks that the disk has behind those of the path. Opens no
 * file. */
int cache_restorable(const struct cache_lease *l, const int32_t *ids, int n_max);
/* A sequence of the path's blocks before n_block and a fresh one in its place, n_tokens = 32 ×
 * n_block. Ends with cache_probe_close, before the lease. ERR_NOMEM. */
int cache_probe_open(struct cache_lease *l, int n_block, struct kv_seq *ret,
                     struct err *e) MUST_USE;
/* Whether the probe was filled and has the bytes of the block found; frees it. */
bool cache_probe_close(struct cache_lease *l, struct kv_seq *s);
/* The path's block and all that hangs from it is not found any more, and its files go; of what only
 * the disk has, what goes on with ids[0, n). Returns how many were in RAM. The lease can only be
 * closed then. */
size_t cache_quarantine(struct cache_lease *l, int n_block, const int32_t *ids, int n);

struct cache_stats {
    size_t n_blocks, n_tails; /* in the tree */
    size_t block_bytes;
    size_t bytes_used, bytes_max; /* the pool: tree and running turns */
    uint64_t n_found_tokens, n_missed_tokens; /* asked for in cache_find's first calls */
    uint64_t n_evicted_blocks, n_adopted_blocks;
    /* The disk tier; all 0 without one. */
    bool has_disk, is_disk_paused;
    uint64_t disk_blocks, disk_bytes, disk_bytes_max;
    size_t n_disk_waiting; /* blocks on their way to the disk */
    uint64_t n_disk_read, n_disk_written, n_disk_removed, n_disk_bad, n_disk_failed; /* files */
    uint64_t disk_bytes_written;
};
void cache_stats(const struct cache *c, struct cache_stats *ret);

/*
 * The ids of the blocks that the lease's positions ids[0, n_tokens) have or will have in the tree:
 * whole ones, then the tail; ids NULL: of those that are shared already. ret[n_max * HASH_BYTES]
 * takes them, returns how many.
 */
size_t cache_lease_ids(const struct cache_lease *l, const int32_t *ids, uint8_t *ret, size_t n_max);

/* What went, in RAM, on disk or both; bytes of KV. */
struct cache_removed {
    size_t n_blocks;
    uint64_t bytes;
};
/*
 * Removes these blocks from tree and disk (the files soon: the disk keeps its order). ids[n *
 * HASH_BYTES] are put in order; ids that aren't there are fine. What a running turn leases, or
 * another block hangs from, stays, with its file, until it ages out or is removed again.
 */
void cache_remove(struct cache *c, uint8_t *ids, size_t n, struct cache_removed *ret);

/* Evicts every unleased block of a root, or of all roots when NULL. Returns how many went. */
size_t cache_drop(struct cache *c, const struct cache_root *root);

/* Checks every invariant of tree and accounts (tests): 0, or ERR_CORRUPT with what is broken. */
int cache_check(const struct cache *c, struct err *e) MUST_USE;

#endif
