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
 * Models with windowed layers: a block may be thin there, without those layers (engine/kv.h), once
 * nobody is near it; cache_find finds what is usable, cache_restore reads back what is missing
 * (window.h). All counts of blocks count thin ones too; bytes are what is held.
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
/*
 * Several caches, of several models, share one tier: `c` has none, `with` has one. A cache leaves
 * by cache_disk_leave, or all close it at the end, one after the other: the first ends the thread,
 * for all.
 */
void cache_disk_share(struct cache *c, struct cache *with);
/* Everything that waits is sent to the disk now, tails too. When cache_is_busy is false again, what
 * the disk takes has been written. */
void cache_rest(struct cache *c);
/* Whether something is in RAM alone that the disk would take. */
bool cache_has_waiting(const struct cache *c);
/* Without the tier from here on; others keep it. No leases may be open, nothing be under way. */
void cache_disk_leave(struct cache *c);
/* Takes a mail of reply_kind, for whichever cache that shares c's tier. */
void cache_take_mail(struct cache *c, struct mail *m);
/* Sends what is due to the disk. Call it whenever there may be something: when mail has come, after
 * a pass, and when cache_due_ms have passed. Cheap when there is nothing. */
void cache_tend(struct cache *c);
/* Milliseconds until cache_tend has something to do; -1: only after something else has happened. */
int cache_due_ms(const struct cache *c);
/* One step of making memory ready for what the disk has, as much of it as one turn may need: the
 * system hands out memory slower than a fast disk fills it. Nothing while the cache is to stay
 * small. For idle moments; true: there is more to do. */
bool cache_prepare(struct cache *c);
/* Whether free blocks have much more memory than the next turn may want: a long prompt's. Not while
 * turns, reads or writes run. */
bool cache_has_slack(const struct cache *c);
/* One step of giving that back, for when nothing has run for a while. Returns how many bytes. */
size_t cache_slim(struct cache *c);
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
/* The same; but the first n_disk positions past n_tokens will come from the disk (what
 * cache_restorable says), so nobody zeroes their blocks. Before a pass call cache_reserve for its
 * rows all the same: it zeroes what didn't come. */
int cache_reserve_for_disk(struct cache_lease *l, int n_more, int n_disk, struct err *e) MUST_USE;

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
 * Proof (cache/verify.c): a block is computed again from its predecessors as found in a lease, and
 * compared in RAM and on disk.
 *
 *     lease_prove, find, restore ─► (proof_open ─ a pass over its ids ─ proof_close)… ─► close
 */
/* The lease is for proofs: what it restores isn't sampled. Before cache_restore. */
void cache_lease_prove(struct cache_lease *l);
/* Whole blocks of the lease's path. */
int cache_lease_n_blocks(const struct cache_lease *l);
/* Blocks that are free or could be evicted now. */
size_t cache_room(const struct cache *c);
/* The last block, up to n_block, that can be computed from what the path has: windowed layers of
 * older ones may be gone, and a proof brings back those of its own block. */
int cache_proof_from(const struct cache_lease *l, int n_block);
/* Positions of ids[0, n_max) in whole blocks that the disk has behind those of the path. Opens no
 * file. */
int cache_restorable(const struct cache_lease *l, const int32_t *ids, int n_max);
/* A block behind n_block whole ones of the lease's path: one of the path itself, or a tail. */
struct cache_piece {
    int n_block, count;
    const int32_t *ids; /* [count], of the block alone */
    bool has_file;      /* its file is to be compared too, if there is one */
};
struct cache_proof;
enum cache_verdict { CACHE_ABSENT, CACHE_SAME, CACHE_DIFFERENT };
struct cache_verdicts {
    enum cache_verdict ram, disk; /* absent: not there, not readable or not asked for */
};
/* Takes a fresh block, and one for the file, which is read from now on. ERR_NOMEM: no room or
 * memory now. ERR_NOTFOUND: it can't be computed (cache_proof_from). End it before the lease. */
int cache_proof_open(struct cache_lease *l, const struct cache_piece *piece,
                     struct cache_proof **ret, struct err *e) MUST_USE;
/* The sequence in front of the block: the engine appends its ids. Borrowed. */
struct kv_seq *cache_proof_seq(struct cache_proof *p);
/* The file is on its way: mail will come. */
bool cache_proof_is_reading(const struct cache_proof *p);
/* Compares all bytes: also those past a tail's positions, which must be zero. ret NULL: given up,
 * whatever has been computed. p NULL is fine. */
void cache_proof_close(struct cache_proof *p, struct cache_verdicts *ret);
/* The block, what may have come of it and all that hangs from it is not found any more, and the
 * files go; whether it is in RAM, on disk or both. Returns how many were in RAM. The lease can only
 * be closed then. */
size_t cache_quarantine(struct cache_lease *l, const struct cache_piece *piece);
/* The file alone is bad: it goes, and what RAM has is written again. */
void cache_discard_file(struct cache_lease *l, const struct cache_piece *piece);

/*
 * Which chains do these blocks make (cache/trace.c)? Of names in RAM and on disk, by what the
 * blocks themselves say.
 */
struct ids;
struct cache_trace;
/* ids[n * HASH_BYTES] are copied. ERR_NOMEM. */
int cache_trace_open(struct cache *c, const struct cache_root *root, const uint8_t *ids, size_t n,
                     struct cache_trace **ret, struct err *e) MUST_USE;
void cache_trace_free(struct cache_trace *t); /* NULL is fine */
/* Files are on their way: mail will come. Not before that: */
bool cache_trace_is_reading(const struct cache_trace *t);
/* 1: the token ids of the next chain from the root on, whose last block may be a tail;
 * *ret_n_proven: its first blocks that are proven already. 0: that was the last. ERR_NOMEM. */
int cache_trace_next(struct cache_trace *t, struct ids *ret, int *ret_n_proven,
                     struct err *e) MUST_USE;
/* Block n of the last chain has been compared. */
void cache_trace_prove(struct cache_trace *t, int n_block);
/* Names that were not compared, and that nothing which was compared begins with. *ret_n_other: the
 * disk has so many more of another root (another model's). */
size_t cache_trace_n_missing(const struct cache_trace *t, size_t *ret_n_other);

/*
 * Samples (cache/sample.c): restored blocks that are to be proven when there is time: the first
 * after the start, and every N-th from there. 0: none.
 */
#define CACHE_SAMPLES_MAX 1024 /* that wait; what comes when they are so many isn't sampled */
void cache_set_samples(struct cache *c, int every);
bool cache_has_sample(const struct cache *c);
struct cache_sample {
    struct cache_root root;
    uint8_t id[HASH_BYTES];
    int n_block, count;
};
/* The next that is still in RAM, with the token ids up to its end. false: there is none. */
bool cache_take_sample(struct cache *c, struct cache_sample *ret, struct ids *ret_ids);

/*
 * Giving back (cache/shrink.c): RAM when the machine is short of it, files when the history needs
 * their room.
 */
struct cache_given {
    size_t n_blocks; /* evicted */
    uint64_t bytes;  /* that the system got back */
};
/* The pool's budget, up to what it was made with: several caches share the machine's. What is over
 * it goes as far as nobody leases it; false: that isn't all, call it again when leases have
 * closed. */
bool cache_set_limit(struct cache *c, size_t n_blocks);
/* Whether cache_shrink could give anything. */
bool cache_has_to_give(const struct cache *c);
/* Evicts one of `divisor` blocks that nobody leases, gives free memory back, and doesn't grow into
 * it again until cache_regrow. */
void cache_shrink(struct cache *c, int divisor, struct cache_given *ret);
/* The cache may grow by one part of `divisor` of the pool again. true: to all of it, now. */
bool cache_regrow(struct cache *c, int divisor);
/* Removes victims' files until they had n_bytes; on_freed gets how many they had, by
 * cache_take_mail, or at once without a tier. ERR_NOMEM: it won't be called. */
int cache_free_disk(struct cache *c, uint64_t n_bytes,
                    void (*on_freed)(void *ctx, uint64_t n_bytes), void *ctx,
                    struct err *e) MUST_USE;

struct cache_stats {
    size_t n_blocks, n_tails; /* in the tree */
    size_t n_windows;         /* of these, with a windowed section */
    size_t block_bytes;
    size_t bytes_used, bytes_max; /* the pool: tree and running turns */
    /* Of what is used: in the tree and nobody's lease; the rest is live. Of bytes_max: what the
     * cache may grow to now, less after cache_shrink. */
    size_t bytes_cached, bytes_allowed;
    size_t bytes_resident; /* of the pool: what the system holds for it */
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
    size_t n_failed; /* files whose removal couldn't even be asked for: no memory */
};
/*
 * Removes these blocks from tree and disk (the files soon: the disk keeps its order), also pinned
 * ones. ids[n * HASH_BYTES] are put in order; ids that aren't there are fine. What a running turn
 * leases, or another block hangs from, stays, with its file, until it ages out or is removed again.
 * Of what is on disk alone nobody knows what hangs from it: it goes.
 */
void cache_remove(struct cache *c, uint8_t *ids, size_t n, struct cache_removed *ret);
/* The same over several caches that share a tier, or have none. */
void cache_remove_all(struct cache *const *all, size_t n_all, uint8_t *ids, size_t n,
                      struct cache_removed *ret);
struct cache_unpinned {
    uint8_t *ids; /* [n * HASH_BYTES], put in order */
    size_t n;
    struct cache_removed gone;
    size_t n_pinned; /* of what is there: these stayed */
};
/* The same, but what is pinned stays. *ret_n_pinned: how many those are, of what is there. */
void cache_remove_unpinned(struct cache *c, uint8_t *ids, size_t n, struct cache_removed *ret,
                           size_t *ret_n_pinned);
/* The same over several. */
void cache_remove_unpinned_all(struct cache *const *all, size_t n_all,
                               struct cache_unpinned *of);
/* on_done(ctx, …) is called when the disk has done all that was asked of it so far, by
 * cache_take_mail or cache_disk_close; is_done false: some file could not be removed. Without a
 * tier at once. ERR_NOMEM: it won't be called. */
int cache_sync(struct cache *c, void (*on_done)(void *ctx, bool is_done), void *ctx,
               struct err *e) MUST_USE;

/* Removes every block of a root, or of all roots when NULL, from RAM and disk, but those that are
 * leased or pinned and what these hang from. Returns how many went. */
size_t cache_drop(struct cache *c, const struct cache_root *root);

/* The ids that ids[0, n_ids) have as blocks below a root: whole ones, then the tail;
 * ret[n_max * HASH_BYTES] takes them, returns how many. Any thread. */
size_t cache_chain(const struct cache_root *root, const int32_t *ids, size_t n_ids, uint8_t *ret,
                   size_t n_max);

/*
 * Pins (cache/pin.c): blocks that are nobody's victims, in RAM and on disk, whether they are there
 * already or not; ids[n * HASH_BYTES], distinct. A set: pinning twice is pinning once, and whose
 * pins they are the caller knows. At most half of each tier's budget can be pinned, and what
 * cache_set_turn_blocks says stays free of pins. Name a block's predecessors too: they are held in
 * RAM as long as it is there, but count only by their own names.
 */
/* ERR_LIMIT, with the numbers; ERR_NOMEM: nothing changed. */
int cache_pin(struct cache *c, const uint8_t *ids, size_t n, struct err *e) MUST_USE;
/* The same without a ceiling, for a cache that has no blocks of its own and shares others' tier:
 * what lies on the disk for models that aren't loaded stays there. */
int cache_hold(struct cache *c, const uint8_t *ids, size_t n, struct err *e) MUST_USE;
/* Ids that aren't pinned are fine. */
void cache_unpin(struct cache *c, const uint8_t *ids, size_t n);
/* So many blocks of the pool can't be pinned: one turn's window. */
void cache_set_turn_blocks(struct cache *c, size_t n_blocks);

/* Waits until the disk tier knows what it has, shortly after it was opened. */
void cache_wait_disk(struct cache *c);
/* Of these ids, how many are there. n_present: in RAM or on disk or both. */
struct cache_count {
    size_t n_present, n_ram, n_disk, n_pinned;
    uint64_t ram_bytes, disk_bytes;
};
void cache_count(struct cache *c, const uint8_t *ids, size_t n, struct cache_count *ret);
/* The same over several caches that share a tier, or have none; the first is whose blocks count
 * where only the disk has them. */
void cache_count_all(struct cache *const *all, size_t n_all, const uint8_t *ids, size_t n,
                     struct cache_count *ret);
/* What one root has: blocks and tails together. Of files nobody knows which are tails. Looks at
 * every block: for people who ask. */
struct cache_usage {
    size_t n_ram, n_ram_tails, n_ram_pinned, n_disk, n_disk_pinned;
    uint64_t ram_bytes, disk_bytes;
    size_t n_pins, n_pins_max; /* of all roots, there or not */
};
void cache_usage(const struct cache *c, const struct cache_root *root, struct cache_usage *ret);

/* Checks every invariant of tree and accounts (tests): 0, or ERR_CORRUPT with what is broken. */
int cache_check(const struct cache *c, struct err *e) MUST_USE;

#endif
