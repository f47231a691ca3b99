/* How the disk tier changes what is there: files go, for room, for a bad block or because they were
 * asked to, and blocks are written. Disk thread. See disk.h. */
#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/sys.h"
#include "cache/disk_file.h"
#include "cache/disk_inside.h"

#define ALLOCATION_UNIT 4096u /* what a file may take beyond its bytes */

/* ---- removing ---- */

int disk_remove_entry(struct disk *d, const uint8_t id[HASH_BYTES], struct err *e)
{
    char root[DISK_ROOT_CHARS + 1] = "";
    pthread_mutex_lock(&d->lock);
    struct disk_entry *n = index_find(&d->index, id);
    if (n) {
        memcpy(root, n->root, sizeof root);
    }
    pthread_mutex_unlock(&d->lock);
    if (!n) {
        return 0;
    }
    const struct disk_place place = {.dir = d->dir, .root = root, .id = id};
    const int rc = disk_file_remove(&place, e);
    pthread_mutex_lock(&d->lock);
    n = index_find(&d->index, id);
    if (rc) {
        index_mark_bad(&d->index, n);
    } else {
        index_remove(&d->index, n);
        d->n.n_removed++;
    }
    pthread_mutex_unlock(&d->lock);
    return rc;
}

bool disk_evict(struct disk *d, uint64_t *ret_bytes)
{
    static struct log_limit limit = {.burst = 3};
    uint8_t id[HASH_BYTES];
    struct err e;
    pthread_mutex_lock(&d->lock);
    const struct disk_entry *n = d->index.oldest;
    if (n) {
        memcpy(id, n->id, sizeof id);
        *ret_bytes = n->bytes;
    }
    pthread_mutex_unlock(&d->lock);
    if (!n) {
        return false;
    }
    if (disk_remove_entry(d, id, &e) && log_allowed(&limit)) {
        log_warn("the disk cache: %s", e.text);
    }
    return true;
}

static uint64_t bytes_used(struct disk *d)
{
    pthread_mutex_lock(&d->lock);
    const uint64_t bytes = d->index.bytes;
    pthread_mutex_unlock(&d->lock);
    return bytes;
}

int disk_fs_free(const struct disk *d, uint64_t *ret, struct err *e)
{
    struct statvfs st;
    int rc;
    do {
        rc = sys.fstatvfs(d->dir, &st);
    } while (rc < 0 && errno == EINTR);
    if (rc < 0) {
        return err_sys(e, errno, "asking for its free space");
    }
    *ret = (uint64_t)st.f_bavail * st.f_frsize;
    return 0;
}

/* Room for one more file, in the budget and beside the reserve. */
static int make_room(struct disk *d, uint64_t n_bytes, struct err *e)
{
    uint64_t n_free = 0, n_gone = 0, freed = 0;
    while (bytes_used(d) + n_bytes > d->n.bytes_max) {
        if (!disk_evict(d, &n_gone)) {
            return err_set(e, ERR_LIMIT, "%llu bytes don't fit into the %llu of --disk",
                           (unsigned long long)n_bytes, (unsigned long long)d->n.bytes_max);
        }
    }
    int rc = disk_fs_free(d, &n_free, e);
    const uint64_t wanted = d->o.reserve_bytes + n_bytes;
    if (rc || n_free >= wanted) {
        return rc;
    }
    /* As much as is missing, and no more: some file systems give space back only later. */
    for (; n_free + freed < wanted && disk_evict(d, &n_gone); freed += n_gone) {
    }
    rc = disk_fs_free(d, &n_free, e);
    if (!rc && n_free < wanted) {
        rc = err_set(e, ERR_LIMIT, "%llu bytes are free, --disk-reserve keeps %llu",
                     (unsigned long long)n_free, (unsigned long long)d->o.reserve_bytes);
    }
    return rc;
}

/* ---- writing ---- */

void disk_tell_bad(const struct disk_place *p, const struct err *e)
{
    static struct log_limit limit = {.burst = 20};
    char name[DISK_NAME_BYTES];
    disk_file_name(p, ".kv", name);
    if (log_allowed(&limit)) {
        log_warn("the disk cache: %s is not used: %s", name, e->text);
    }
}

static void pause_writing(struct disk *d, const struct err *e)
{
    atomic_store(&d->paused_until_us, clock_us() + (int64_t)DISK_PAUSE_MS * 1000);
    pthread_mutex_lock(&d->lock);
    d->n.n_failed++;
    pthread_mutex_unlock(&d->lock);
    log_warn("the disk cache can't be written, and rests for %d s: %s", DISK_PAUSE_MS / 1000,
             e->text);
}

/* Into the index; `rc` is how the write went. */
static int enter(struct disk *d, const struct disk_job *j, const char *root, uint64_t bytes, int rc)
{
    struct disk_entry *n = NULL;
    struct err e;
    const int rc2 = rc && rc != ERR_CORRUPT ? rc : index_add(&d->index, j->id, root, &n, &e);
    if (rc2) {
        return rc2; /* without memory for it, the next start finds the file */
    }
    if (rc) {
        index_mark_bad(&d->index, n);
        return ERR_UNSUPPORTED;
    }
    index_set_bytes(&d->index, n, bytes);
    index_set_pinned(&d->index, n, pins_has(&d->pins, j->id));
    for (const struct disk_job *r = d->removals; r; r = r->next_removal) {
        n->is_leaving |= memcmp(r->id, j->id, HASH_BYTES) == 0; /* not to be read meanwhile */
    }
    struct disk_entry *parent = index_find(&d->index, j->record.parent);
    if (parent) {
        index_place(&d->index, n, parent);
    }
    d->n.n_written++;
    d->n.bytes_written += bytes;
    return 0;
}

static void set_temporary(struct disk *d, uint64_t n_bytes)
{
    pthread_mutex_lock(&d->lock);
    d->temporary_bytes = n_bytes;
    pthread_mutex_unlock(&d->lock);
}

static int write_block(struct disk *d, const struct disk_job *j)
{
    char root[DISK_ROOT_CHARS + 1];
    struct err e;
    uint64_t bytes = 0;
    const uint64_t need = record_bytes(record_block_bytes(&j->data)) + ALLOCATION_UNIT;
    pthread_mutex_lock(&d->lock);
    const struct disk_entry *there = index_find(&d->index, j->id);
    const int known = !there ? ERR_NOTFOUND : there->is_bad ? ERR_UNSUPPORTED : 0;
    pthread_mutex_unlock(&d->lock);
    if (known != ERR_NOTFOUND) {
        return known; /* never written again: the same id is the same block */
    }
    if (disk_is_paused(d) || d->state != KNOWN) {
        return ERR_BUSY;
    }
    disk_root_name(j->root, root);
    const struct disk_place place = {.dir = d->dir, .root = root, .id = j->id};
    int rc = make_room(d, need, &e);
    if (!rc) {
        set_temporary(d, need);
        rc = disk_file_write(&place, &j->record, &j->data, &bytes, &e);
    }
    if (rc == ERR_CORRUPT) {
        disk_tell_bad(&place, &e);
    } else if (rc) {
        pause_writing(d, &e);
    }
    pthread_mutex_lock(&d->lock);
    d->temporary_bytes = 0;
    rc = enter(d, j, root, bytes, rc);
    pthread_mutex_unlock(&d->lock);
    return rc;
}

static void do_removal(struct disk *d, struct disk_job *j)
{
    static struct log_limit limit = {.burst = 3};
    struct err e;
    const int rc = disk_remove_entry(d, j->id, &e);
    d->has_failed |= rc != 0;
    if (rc && log_allowed(&limit)) {
        log_warn("the disk cache: %s", e.text);
    }
    pthread_mutex_lock(&d->lock);
    assert(d->removals == j);
    d->removals = j->next_removal;
    if (!d->removals) {
        d->removals_tail = &d->removals;
    }
    pthread_mutex_unlock(&d->lock);
    free(j);
}

/* ---- purging ---- */

static void end_purge(struct disk *d, bool is_done)
{
    if (d->purge.n_gone > 0) {
        log_warn("the disk cache: %zu files that followed a bad block are removed",
                 d->purge.n_gone);
    }
    purge_done(&d->purge);
    pthread_mutex_lock(&d->lock);
    d->n_purges -= is_done; /* else nothing is believed any more in this run */
    pthread_mutex_unlock(&d->lock);
    free(disk_jobs_take(&d->writes));
}

/* A step of the purge that is the first of the writes, which wait for its end: the files that it
 * finds are those from before. */
static void do_purge(struct disk *d, const struct disk_job *j)
{
    struct err e;
    if (!d->purge.v) {
        pthread_mutex_lock(&d->lock);
        const int rc = d->state != KNOWN
                           ? ERR_NOTFOUND
                           : purge_init(&d->purge, &d->index, &j->record,
                                        record_block_bytes(&j->data), &e);
        pthread_mutex_unlock(&d->lock);
        if (rc) {
            end_purge(d, rc == ERR_NOTFOUND);
        }
        return;
    }
    if (purge_read(&d->purge, d->dir)) {
        return;
    }
    for (const uint8_t *id = purge_next(&d->purge); id; id = purge_next(&d->purge)) {
        if (disk_remove_entry(d, id, &e)) {
            log_warn("the disk cache: %s", e.text);
        }
        d->purge.n_gone++;
    }
    end_purge(d, true);
}

void disk_do_write(struct disk *d)
{
    const struct disk_job *first = (struct disk_job *)(void *)d->writes.head;
    if (first->op == DISK_PURGE) {
        do_purge(d, first);
        return;
    }
    struct disk_job *j = disk_jobs_take(&d->writes);
    const bool is_late = d->is_stopping && clock_us() > d->stop_at_us;
    if (j->op == DISK_REMOVE) {
        do_removal(d, j);
    } else if (j->op == DISK_SYNC) {
        disk_answer(d, j, d->has_failed || d->state != KNOWN ? ERR_IO : 0);
        d->has_failed = false;
    } else {
        disk_answer(d, j, is_late ? ERR_CANCELED : write_block(d, j));
    }
}

/* The history's room. What is written next would take it again: nothing is, for a while. */
void disk_do_free(struct disk *d)
{
    struct disk_job *j = disk_jobs_take(&d->frees);
    uint64_t freed = 0, n_gone = 0;
    while (d->state == KNOWN && freed < j->n_bytes && disk_evict(d, &n_gone)) {
        freed += n_gone;
    }
    atomic_store(&d->paused_until_us, clock_us() + (int64_t)DISK_PAUSE_MS * 1000);
    log_warn("the disk cache gave %.1f MiB to the history, and rests for %d s",
             (double)freed / (1 << 20), DISK_PAUSE_MS / 1000);
    j->n_bytes = freed;
    disk_answer(d, j, 0);
}
