/* The disk tier, for its own files: disk.c is the thread, disk_write.c its writes and removals,
 * disk_ask.c what the worker asks of it. */
#ifndef HEARTH_CACHE_DISK_INSIDE_H
#define HEARTH_CACHE_DISK_INSIDE_H

#include "cache/disk.h"
#include "cache/disk_file.h"
#include "cache/disk_index.h"
#include "cache/disk_purge.h"
#include "cache/pins.h"

/* A FIFO of jobs. */
struct jobs {
    struct mail *head, **tail;
};

/* Files that were read, oldest first, whose bytes are still in the page cache. */
struct resting {
    struct {
        uint8_t root[HASH_BYTES], id[HASH_BYTES];
    } v[DISK_RESTING_MAX]; /* a ring */
    size_t first, n;
    int64_t due_us;
};

struct disk {
    pthread_mutex_t lock; /* over index, n and state; never over a system call */
    pthread_cond_t known;
    struct disk_index index;
    struct pins pins;
    struct disk_stats n;
    uint64_t temporary_bytes; /* of the file that is being written */
    enum { SCANNING, KNOWN, UNKNOWN } state;
    int n_purges; /* asked for, and not done */
    struct disk_job *removals, **removals_tail; /* the same */

    struct cache_disk_options o; /* its strings aren't kept */
    struct mailbox box;
    pthread_t thread;
    int dir, lock_fd;
    _Atomic int64_t paused_until_us;

    /* The disk thread's. */
    struct jobs frees;         /* before all others: somebody's history waits */
    struct jobs reads, writes; /* removals are among the writes: in the order they were asked for */
    bool is_stopping;
    int64_t stop_at_us; /* set before the stop is sent */
    struct disk_job stop;
    bool is_order_wanted;
    bool has_failed; /* a removal, since the last sync */
    struct purge purge; /* of the purge at the head of writes */
    struct resting resting;

    struct jobs unclaimed; /* the disk thread's, then disk_end's */

    /* The worker's. */
    int n_refs;
    bool has_ended;
};

/* disk.c, for disk_write.c */
/* The first of q, which isn't empty. */
struct disk_job *disk_jobs_take(struct jobs *q);
/* The job goes back with rc. */
void disk_answer(struct disk *d, struct disk_job *j, int rc);

/* disk_write.c, for disk.c */
/* The first of d->writes, which isn't empty, or a step of it. */
void disk_do_write(struct disk *d);
/* The first of d->frees, which isn't empty. */
void disk_do_free(struct disk *d);
/* The file of an entry that is still in the index goes, and then the entry; what can't be removed
 * is never used again. ERR_IO. */
int disk_remove_entry(struct disk *d, const uint8_t id[HASH_BYTES], struct err *e) MUST_USE;
/* What rested longest goes. *ret_bytes: what it took. false: nothing is left that could. */
bool disk_evict(struct disk *d, uint64_t *ret_bytes);
/* What the file system has free. ERR_IO. */
int disk_fs_free(const struct disk *d, uint64_t *ret, struct err *e) MUST_USE;
/* One line of log, of what stands under a name. */
void disk_tell_bad(const struct disk_place *p, const struct err *e);

/* A root's part of a file's name. */
static inline void disk_root_name(const uint8_t root[HASH_BYTES], char ret[DISK_ROOT_CHARS + 1])
{
    hex_write(root, DISK_ROOT_CHARS / 2, ret);
}

#endif
