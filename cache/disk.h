/*
 * The disk tier: blocks as files, behind one thread and a byte budget. It knows names and bytes; no
 * tree, no tokens.
 *
 *     cache (worker) ──job──► [ mailbox ] ─► disk thread ──job──► the worker's mailbox
 *            │                   reads first; then writes and removals, in order
 *            └── disk_has, disk_touch: the index, under a mutex
 *
 *     kv/lock                                    held; a second daemon runs without the tier
 *     kv/CACHEDIR.TAG                            so that back-ups pass it over
 *     kv/order                                   the order of use, of the last stop or rest
 *     kv/<16 hex of root>/<2 hex>/<64 hex>.kv    one block (record.h)
 *
 * Promises: a file is believed only after every byte of it was checked; whatever is wrong with it
 * is a miss and one line of log, and the file goes. No fsync. What is allocated (st_blocks,
 * temporaries too) stays under the budget, and the reserve of the file system stays free: both are
 * checked before a write, which makes room by removing what rested longest. When a write fails,
 * nothing is written for DISK_PAUSE_MS.
 *
 * A job and what it points to belong to the tier until its reply, which is always sent: to the
 * mailbox, or, when that is closed, to whoever calls disk_close.
 */
#ifndef HEARTH_CACHE_DISK_H
#define HEARTH_CACHE_DISK_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/thread.h"
#include "cache/cache.h"
#include "cache/pins.h"
#include "cache/record.h"

#define DISK_PAUSE_MS (60 * 1000)
#define DISK_AHEAD 4 /* files opened before they are read */
/* How long after the last read what was read leaves the page cache (the turn that waited for it has
 * got its first tokens by then), and how many files may wait for that. */
#define DISK_REST_MS 2000
#define DISK_RESTING_MAX 1024

struct disk;

/* DISK_PROVE reads as DISK_READ does, for cache/verify.c; DISK_HEAD fills record alone, for
 * cache/trace.c. DISK_REMOVE, DISK_PURGE, DISK_ORDER and DISK_STOP have no reply. */
enum disk_op {
    DISK_READ,
    DISK_PROVE,
    DISK_HEAD,
    DISK_WRITE,
    DISK_REMOVE,
    DISK_PURGE,
    DISK_SYNC,
    DISK_FREE,
    DISK_ORDER,
    DISK_STOP
};

/* Embedded in what the sender keeps of it; mail.kind is the options' reply_kind when it returns. */
struct disk_job {
    struct mail mail;
    enum disk_op op;
    struct cache *cache; /* whose it is; NULL: nobody's in particular */
    uint8_t root[HASH_BYTES], id[HASH_BYTES];
    struct record record; /* written; filled by reads when rc is 0; DISK_PURGE: the bad one */
    struct record_data data; /* read: the sections that are wanted */
    atomic_bool is_canceled; /* a read that needn't be made any more */
    /* 0; ERR_NOTFOUND, ERR_CORRUPT (it has been logged), ERR_BUSY, ERR_CANCELED; DISK_WRITE:
     * ERR_UNSUPPORTED: this id will never be written. data of a failed read is rubbish. */
    int rc;
    /* DISK_SYNC: answered when all writes and removals that were asked for before are done; rc
     * ERR_IO: a file could not be removed. */
    void (*on_done)(void *ctx, bool is_done);
    void *ctx;
    /* DISK_FREE, before all others: how many bytes are wanted, then how many the files had. */
    uint64_t n_bytes;
    void (*on_freed)(void *ctx, uint64_t n_bytes);
    int fd;       /* the disk thread's */
    bool is_open; /* the disk thread's: opened ahead, with rc */
    struct disk_job *next_removal; /* DISK_REMOVE: asked for after this one */
};

/* Makes kv/ below o->dir, takes its lock, starts the thread, which reads the names at once.
 * pins are copied. ERR_BUSY: another daemon has it. ERR_IO, ERR_INVAL: no tier here, for the reason
 * in the text. */
int disk_open(const struct cache_disk_options *o, const struct pins *pins, struct disk **ret,
              struct err *e) MUST_USE;
/* Waits until the names are read. false: they can't be, which has been logged; nothing is found and
 * nothing written. */
bool disk_wait(struct disk *d);
/* Ends the thread: all reads are answered as canceled, writes are made for `ms` more, the one in
 * hand is finished, the order of use is written. *ret_jobs: whose replies nobody took, linked by
 * mail.next. Once ended, nothing may be asked; doing it again is fine. */
void disk_end(struct disk *d, int ms, struct mail **ret_jobs);
bool disk_has_ended(const struct disk *d);
bool disk_is_shared(const struct disk *d);
/* Who uses it: disk_open's caller, and one more for each disk_ref. The last ends it, if need be,
 * and frees. NULL is fine. Worker. */
struct disk *disk_ref(struct disk *d);
void disk_unref(struct disk *d);

/* Worker. */
bool disk_has(struct disk *d, const uint8_t id[HASH_BYTES]);
void disk_touch(struct disk *d, const uint8_t id[HASH_BYTES]);
bool disk_is_paused(const struct disk *d);
/* Whether it has the block, and of another root: then none of ours can have that name. */
bool disk_has_other(struct disk *d, const uint8_t root[HASH_BYTES], const uint8_t id[HASH_BYTES]);
/* The job is the tier's until it returns. */
void disk_push(struct disk *d, struct disk_job *job);
/* The same, and what it takes on the disk. */
bool disk_find(struct disk *d, const uint8_t id[HASH_BYTES], uint64_t *ret_bytes);
/* Forgets a block and its file, after the writes that were asked for before. false: no memory, it
 * stays. */
bool disk_remove(struct disk *d, const uint8_t id[HASH_BYTES]);
/* The same for all files that hang from the block `bad`, which isn't what its head says
 * (disk_purge.h). Until that is done, nothing is found. */
void disk_purge(struct disk *d, const struct record *bad, size_t block_bytes);
/* disk_job.on_done is called by cache_take_mail. ERR_NOMEM. */
int disk_sync(struct disk *d, void (*on_done)(void *ctx, bool is_done), void *ctx,
              struct err *e) MUST_USE;
/* Removes victims' files until they had n_bytes or there are no more; then nothing is written for
 * DISK_PAUSE_MS. disk_job.on_freed is called by cache_take_mail. ERR_NOMEM. */
int disk_free_bytes(struct disk *d, uint64_t n_bytes, void (*on_freed)(void *ctx, uint64_t n_bytes),
                    void *ctx, struct err *e) MUST_USE;
/* These aren't victims, whether the disk has them or will. ERR_NOMEM: nothing changed. */
int disk_pin(struct disk *d, const uint8_t *ids, size_t n, struct err *e) MUST_USE;
void disk_unpin(struct disk *d, const uint8_t *ids, size_t n);
/* The ids that the disk has of a root (NULL: of all), malloc'ed. ERR_NOMEM. */
int disk_list(struct disk *d, const uint8_t *root, uint8_t **ret_ids, size_t *ret_n,
              struct err *e) MUST_USE;
/* Fills the disk's part. */
void disk_usage(struct disk *d, const uint8_t root[HASH_BYTES], struct cache_usage *ret);
/* Saves the order of use, soon. */
void disk_save_order(struct disk *d);

struct disk_stats {
    uint64_t n_blocks, bytes, bytes_max;
    uint64_t n_read, n_written, n_removed, n_bad, n_failed;
    uint64_t bytes_read, bytes_written;
    bool is_paused;
};
void disk_stats(struct disk *d, struct disk_stats *ret);

#endif
