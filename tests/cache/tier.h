/* A cache with a disk tier in a folder of its own, for its tests: turns that restore, restarts, and
 * hands on the files. */
#ifndef HEARTH_TESTS_CACHE_TIER_H
#define HEARTH_TESTS_CACHE_TIER_H

#include "tests/cache/fake.h"

#define TIER_FILES_MAX 4096

struct tier {
    char dir[64];
    struct kv_pool *pool;
    struct cache *cache;
    struct mailbox box;
    uint64_t bytes_max, reserve_bytes;
    size_t n_blocks;
    int tail_idle_ms;
    struct tier *host; /* whose tier it shares, and in whose box its mail arrives; NULL: its own */
};

/* A new folder and an open tier. */
void tier_init(struct tier *t, size_t n_blocks);
/* Opens a cache on the folder; tier_close before. */
void tier_open(struct tier *t);
/* Another cache on host's tier; until tier_leave. host outlives it. */
void tier_share(struct tier *t, struct tier *host, size_t n_blocks);
/* Ends it: nothing may be under way. What hasn't been written is lost. */
void tier_leave(struct tier *t);
/* Closes the cache: writing what waits for at most `ms`. */
void tier_close(struct tier *t, int ms);
/* As a kill would leave it: nothing more is written. */
void tier_restart(struct tier *t);
/* Closes and removes the folder. */
void tier_done(struct tier *t);

/* Delivers mail until the disk has nothing of ours. */
void tier_settle(struct tier *t);
/* The same, and everything that was asked for before has been done, removals too (they have no
 * reply): a block of nobody's is written after them. */
void tier_sync(struct tier *t);
/* Waits for one mail and delivers it. */
void tier_mail(struct tier *t);

/* A whole turn, as the daemon makes it. Every position is checked. Returns what was found. */
struct cache_found tier_turn(struct tier *t, const char *owner, uint64_t who, const int32_t *ids,
                             int n);
/* The same, up to what has arrived from disk; the lease stays open and nothing is computed. */
struct cache_lease *tier_begin(struct tier *t, const char *owner, uint64_t who, const int32_t *ids,
                               int n);

/* ids[i] = first + i */
void tier_ids(int32_t *ids, int n, int first);

struct tier_files {
    char paths[TIER_FILES_MAX][200];
    size_t n;
    uint64_t bytes; /* allocated */
};
/* All block files, and what they take. */
void tier_files(const struct tier *t, struct tier_files *ret);
/* The path of the file of block n (count 32) or tail of a chain. */
void tier_path(const struct tier *t, const char *owner, const int32_t *ids, int n_ids, char *ret,
               size_t n_ret);
struct cache_stats tier_stats(const struct tier *t);

#endif
