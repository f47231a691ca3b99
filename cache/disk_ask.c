/*
 * What the worker asks of the disk tier: the index under its mutex, jobs by mail. No file is
 * touched here. See disk.h.
 */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/sys.h"
#include "cache/disk_inside.h"

/* A job of the tier's own. NULL: no memory. */
static struct disk_job *job_new(enum disk_op op)
{
    struct disk_job *j = sys.malloc(sizeof *j);
    if (j) {
        *j = (struct disk_job){.op = op};
    }
    return j;
}

static bool is_there(const struct disk_entry *n)
{
    return n && !n->is_bad && !n->is_leaving;
}

bool disk_find(struct disk *d, const uint8_t id[HASH_BYTES], uint64_t *ret_bytes)
{
    pthread_mutex_lock(&d->lock);
    const struct disk_entry *n = d->state == KNOWN ? index_find(&d->index, id) : NULL;
    const bool has = is_there(n) && d->n_purges == 0;
    *ret_bytes = has ? n->bytes : 0;
    pthread_mutex_unlock(&d->lock);
    return has;
}

bool disk_has(struct disk *d, const uint8_t id[HASH_BYTES])
{
    uint64_t bytes;
    return disk_find(d, id, &bytes);
}

bool disk_has_other(struct disk *d, const uint8_t root[HASH_BYTES], const uint8_t id[HASH_BYTES])
{
    char name[DISK_ROOT_CHARS + 1];
    disk_root_name(root, name);
    pthread_mutex_lock(&d->lock);
    const struct disk_entry *n = d->state == KNOWN ? index_find(&d->index, id) : NULL;
    const bool has = is_there(n) && strcmp(n->root, name) != 0;
    pthread_mutex_unlock(&d->lock);
    return has;
}

void disk_touch(struct disk *d, const uint8_t id[HASH_BYTES])
{
    pthread_mutex_lock(&d->lock);
    struct disk_entry *n = d->state == KNOWN ? index_find(&d->index, id) : NULL;
    if (n) {
        index_touch(&d->index, n);
    }
    pthread_mutex_unlock(&d->lock);
}

bool disk_is_paused(const struct disk *d)
{
    return clock_us() < atomic_load(&d->paused_until_us);
}

void disk_push(struct disk *d, struct disk_job *job)
{
    const bool is_open = mailbox_push(&d->box, &job->mail);
    assert(is_open); /* it is never closed */
    (void)is_open;
}

bool disk_remove(struct disk *d, const uint8_t id[HASH_BYTES])
{
    struct disk_job *j = job_new(DISK_REMOVE);
    if (j) {
        memcpy(j->id, id, HASH_BYTES);
    }
    pthread_mutex_lock(&d->lock);
    struct disk_entry *n = d->state == KNOWN ? index_find(&d->index, id) : NULL;
    if (n) {
        n->is_leaving = true; /* reads come before removals: nobody is to ask for it */
    }
    if (j) {
        *d->removals_tail = j;
        d->removals_tail = &j->next_removal;
    }
    pthread_mutex_unlock(&d->lock);
    if (j) {
        disk_push(d, j);
    }
    return j != NULL;
}

void disk_purge(struct disk *d, const struct record *bad, size_t block_bytes)
{
    struct disk_job *j = job_new(DISK_PURGE);
    pthread_mutex_lock(&d->lock);
    d->n_purges++;
    pthread_mutex_unlock(&d->lock);
    if (!j) {
        log_warn("the disk cache: no memory to remove what follows a bad block; nothing is read "
                 "any more in this run");
        return;
    }
    j->record = *bad;
    j->data.full_bytes = block_bytes; /* however they are in sections: heads alone are read */
    disk_push(d, j);
}

int disk_sync(struct disk *d, void (*on_done)(void *ctx, bool is_done), void *ctx, struct err *e)
{
    struct disk_job *j = job_new(DISK_SYNC);
    if (!j) {
        return err_set(e, ERR_NOMEM, "out of memory for the disk cache");
    }
    j->on_done = on_done;
    j->ctx = ctx;
    disk_push(d, j);
    return 0;
}

int disk_free_bytes(struct disk *d, uint64_t n_bytes, void (*on_freed)(void *ctx, uint64_t n_bytes),
                    void *ctx, struct err *e)
{
    struct disk_job *j = job_new(DISK_FREE);
    if (!j) {
        return err_set(e, ERR_NOMEM, "out of memory for the disk cache");
    }
    j->n_bytes = n_bytes;
    j->on_freed = on_freed;
    j->ctx = ctx;
    disk_push(d, j);
    return 0;
}

/* ---- pins and accounts ---- */

int disk_pin(struct disk *d, const uint8_t *ids, size_t n, struct err *e)
{
    pthread_mutex_lock(&d->lock);
    const int rc = pins_reserve(&d->pins, n, e);
    for (size_t i = 0; !rc && i < n; i++) {
        const uint8_t *id = ids + i * HASH_BYTES;
        struct disk_entry *x = d->state == KNOWN ? index_find(&d->index, id) : NULL;
        pins_add(&d->pins, id);
        if (x) {
            index_set_pinned(&d->index, x, true);
        }
    }
    pthread_mutex_unlock(&d->lock);
    return rc;
}

void disk_unpin(struct disk *d, const uint8_t *ids, size_t n)
{
    pthread_mutex_lock(&d->lock);
    for (size_t i = 0; i < n; i++) {
        const uint8_t *id = ids + i * HASH_BYTES;
        struct disk_entry *x = d->state == KNOWN ? index_find(&d->index, id) : NULL;
        pins_remove(&d->pins, id);
        if (x) {
            index_set_pinned(&d->index, x, false);
        }
    }
    pthread_mutex_unlock(&d->lock);
}

/* The next entry of `name` (NULL: of any root) from bucket *at on, after n. */
static struct disk_entry *next_of(const struct disk_index *x, const char *name, size_t *at,
                                  struct disk_entry *n)
{
    for (n = n ? n->hash_next : NULL;; n = n->hash_next) {
        while (!n && *at < x->n_buckets) {
            n = x->buckets[(*at)++];
        }
        if (!n || (is_there(n) && (!name || strcmp(n->root, name) == 0))) {
            return n;
        }
    }
}

int disk_list(struct disk *d, const uint8_t *root, uint8_t **ret_ids, size_t *ret_n, struct err *e)
{
    char name[DISK_ROOT_CHARS + 1];
    uint8_t *ids = NULL;
    size_t n = 0, at = 0;
    int rc = 0;
    if (root) {
        disk_root_name(root, name);
    }
    pthread_mutex_lock(&d->lock);
    if (d->state == KNOWN && d->index.n_entries > 0) {
        ids = sys.malloc(d->index.n_entries * HASH_BYTES);
        rc = ids ? 0 : err_set(e, ERR_NOMEM, "out of memory for the names of the disk cache");
    }
    const char *of = root ? name : NULL;
    for (struct disk_entry *x = NULL; ids && (x = next_of(&d->index, of, &at, x));) {
        memcpy(ids + n++ * HASH_BYTES, x->id, HASH_BYTES);
    }
    pthread_mutex_unlock(&d->lock);
    if (rc) {
        return rc;
    }
    *ret_ids = ids;
    *ret_n = n;
    return 0;
}

void disk_usage(struct disk *d, const uint8_t root[HASH_BYTES], struct cache_usage *ret)
{
    char name[DISK_ROOT_CHARS + 1];
    size_t at = 0;
    disk_root_name(root, name);
    pthread_mutex_lock(&d->lock);
    if (d->state == KNOWN) {
        for (struct disk_entry *x = NULL; (x = next_of(&d->index, name, &at, x));) {
            ret->n_disk++;
            ret->n_disk_pinned += x->is_pinned;
            ret->disk_bytes += x->bytes;
        }
    }
    pthread_mutex_unlock(&d->lock);
}

void disk_save_order(struct disk *d)
{
    struct disk_job *j = job_new(DISK_ORDER);
    if (j) {
        disk_push(d, j);
    }
}

void disk_stats(struct disk *d, struct disk_stats *ret)
{
    *ret = (struct disk_stats){0};
    pthread_mutex_lock(&d->lock);
    if (d->state == KNOWN) {
        *ret = d->n;
        ret->n_blocks = d->index.n_entries - d->index.n_bad;
        ret->bytes = d->index.bytes + d->temporary_bytes;
    }
    pthread_mutex_unlock(&d->lock);
    ret->is_paused = disk_is_paused(d);
}
