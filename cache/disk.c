/* The disk tier's thread and policy. See disk.h; names and files are disk_file.c's, the table is
 * disk_index.c's. */
#include "cache/disk.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/log.h"
#include "base/paths.h"
#include "base/sys.h"
#include "cache/disk_file.h"
#include "cache/disk_order.h"
#include "cache/disk_purge.h"

#define ALLOCATION_UNIT 4096u /* what a file may take beyond its bytes */

/* A FIFO of jobs. */
struct jobs {
    struct mail *head, **tail;
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

    struct jobs unclaimed; /* the disk thread's, then disk_close's */
};

static void jobs_init(struct jobs *q)
{
    q->head = NULL;
    q->tail = &q->head;
}

static void jobs_push(struct jobs *q, struct disk_job *j)
{
    j->mail.next = NULL;
    *q->tail = &j->mail;
    q->tail = &j->mail.next;
}

static struct disk_job *jobs_take(struct jobs *q)
{
    struct mail *m = q->head;
    q->head = m->next;
    if (!q->head) {
        q->tail = &q->head;
    }
    m->next = NULL;
    return (struct disk_job *)(void *)m;
}

static void answer(struct disk *d, struct disk_job *j, int rc)
{
    j->rc = rc;
    j->mail.kind = d->o.reply_kind;
    if (!mailbox_push(d->o.reply, &j->mail)) {
        jobs_push(&d->unclaimed, j);
    }
}

static void root_name(const uint8_t root[HASH_BYTES], char ret[DISK_ROOT_CHARS + 1])
{
    hex_write(root, DISK_ROOT_CHARS / 2, ret);
}

/* ---- removing ---- */

/* The file of an entry that is still in the index goes, and then the entry; what can't be removed
 * is never used again. Disk thread. */
static int remove_entry(struct disk *d, const uint8_t id[HASH_BYTES], struct err *e)
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

/* What rested longest goes. *ret_bytes: what it took. false: nothing is left that could. */
static bool evict(struct disk *d, uint64_t *ret_bytes)
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
    if (remove_entry(d, id, &e) && log_allowed(&limit)) {
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

static int free_bytes(const struct disk *d, uint64_t *ret, struct err *e)
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
        if (!evict(d, &n_gone)) {
            return err_set(e, ERR_LIMIT, "%llu bytes don't fit into the %llu of --disk",
                           (unsigned long long)n_bytes, (unsigned long long)d->n.bytes_max);
        }
    }
    int rc = free_bytes(d, &n_free, e);
    const uint64_t wanted = d->o.reserve_bytes + n_bytes;
    if (rc || n_free >= wanted) {
        return rc;
    }
    /* As much as is missing, and no more: some file systems give space back only later. */
    for (; n_free + freed < wanted && evict(d, &n_gone); freed += n_gone) {
    }
    rc = free_bytes(d, &n_free, e);
    if (!rc && n_free < wanted) {
        rc = err_set(e, ERR_LIMIT, "%llu bytes are free, --disk-reserve keeps %llu",
                     (unsigned long long)n_free, (unsigned long long)d->o.reserve_bytes);
    }
    return rc;
}

/* ---- jobs ---- */

static void tell_bad(const struct disk_place *p, const struct err *e)
{
    static struct log_limit limit = {.burst = 20};
    char name[DISK_NAME_BYTES];
    disk_file_name(p, ".kv", name);
    if (log_allowed(&limit)) {
        log_warn("the disk cache: %s is not used: %s", name, e->text);
    }
}

/* A miss: whatever is wrong with a file, it goes. */
static void give_up(struct disk *d, const struct disk_place *p, const struct err *why)
{
    struct err e;
    static struct log_limit limit = {.burst = 3};
    pthread_mutex_lock(&d->lock);
    const bool is_known = index_find(&d->index, p->id) != NULL;
    d->n.n_bad += is_known;
    pthread_mutex_unlock(&d->lock);
    if (!is_known) {
        return; /* removed since it was asked for */
    }
    tell_bad(p, why);
    if (remove_entry(d, p->id, &e) && log_allowed(&limit)) {
        log_warn("the disk cache: %s; it isn't used any more in this run", e.text);
    }
}

static void open_ahead(struct disk *d)
{
    int n = 0;
    for (struct mail *m = d->reads.head; m && n < DISK_AHEAD; m = m->next, n++) {
        struct disk_job *j = (struct disk_job *)(void *)m;
        char root[DISK_ROOT_CHARS + 1];
        struct err e = {0};
        if (j->is_open || atomic_load(&j->is_canceled)) {
            continue;
        }
        root_name(j->root, root);
        const struct disk_place place = {.dir = d->dir, .root = root, .id = j->id};
        j->fd = -1;
        j->is_open = true;
        j->rc = j->op == DISK_HEAD ? disk_file_open_head(&place, j->block_bytes, &j->fd, &e)
                                   : disk_file_open(&place, j->block_bytes, &j->fd, &e);
        if (j->rc == ERR_NOTFOUND || j->rc == ERR_CORRUPT) {
            give_up(d, &place, &e);
        }
    }
}

static void do_read(struct disk *d)
{
    struct err e = {0};
    char root[DISK_ROOT_CHARS + 1];
    open_ahead(d);
    struct disk_job *j = jobs_take(&d->reads);
    const struct record_name name = {.root = j->root, .id = j->id, .block_bytes = j->block_bytes};
    if (!j->is_open || atomic_load(&j->is_canceled) || d->is_stopping) {
        if (j->is_open && j->fd >= 0) {
            sys.close(j->fd);
        }
        answer(d, j, ERR_CANCELED);
        return;
    }
    int rc = j->rc;
    if (!rc) {
        rc = j->op == DISK_HEAD ? disk_file_read_head(j->fd, &name, &j->record, &e)
                                : disk_file_read(j->fd, &name, j->data, &j->record, &e);
        sys.close(j->fd);
    }
    root_name(j->root, root);
    if (!j->rc && rc == ERR_CORRUPT) {
        const struct disk_place place = {.dir = d->dir, .root = root, .id = j->id};
        give_up(d, &place, &e);
    }
    if (!rc && j->op != DISK_HEAD) {
        pthread_mutex_lock(&d->lock);
        d->n.n_read++;
        d->n.bytes_read += record_bytes(j->block_bytes);
        pthread_mutex_unlock(&d->lock);
    }
    answer(d, j, rc);
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
    const uint64_t need = record_bytes(j->block_bytes) + ALLOCATION_UNIT;
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
    root_name(j->root, root);
    const struct disk_place place = {.dir = d->dir, .root = root, .id = j->id};
    int rc = make_room(d, need, &e);
    if (!rc) {
        set_temporary(d, need);
        rc = disk_file_write(&place, &j->record, j->data, j->block_bytes, &bytes, &e);
    }
    if (rc == ERR_CORRUPT) {
        tell_bad(&place, &e);
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
    const int rc = remove_entry(d, j->id, &e);
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
    free(jobs_take(&d->writes));
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
                           : purge_init(&d->purge, &d->index, &j->record, j->block_bytes, &e);
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
        if (remove_entry(d, id, &e)) {
            log_warn("the disk cache: %s", e.text);
        }
        d->purge.n_gone++;
    }
    end_purge(d, true);
}

static void do_write(struct disk *d)
{
    const struct disk_job *first = (struct disk_job *)(void *)d->writes.head;
    if (first->op == DISK_PURGE) {
        do_purge(d, first);
        return;
    }
    struct disk_job *j = jobs_take(&d->writes);
    const bool is_late = d->is_stopping && clock_us() > d->stop_at_us;
    if (j->op == DISK_REMOVE) {
        do_removal(d, j);
    } else if (j->op == DISK_SYNC) {
        answer(d, j, d->has_failed || d->state != KNOWN ? ERR_IO : 0);
        d->has_failed = false;
    } else {
        answer(d, j, is_late ? ERR_CANCELED : write_block(d, j));
    }
}

/* The history's room. What is written next would take it again: nothing is, for a while. */
static void do_free(struct disk *d)
{
    struct disk_job *j = jobs_take(&d->frees);
    uint64_t freed = 0, n_gone = 0;
    while (d->state == KNOWN && freed < j->n_bytes && evict(d, &n_gone)) {
        freed += n_gone;
    }
    atomic_store(&d->paused_until_us, clock_us() + (int64_t)DISK_PAUSE_MS * 1000);
    log_warn("the disk cache gave %.1f MiB to the history, and rests for %d s",
             (double)freed / (1 << 20), DISK_PAUSE_MS / 1000);
    j->n_bytes = freed;
    answer(d, j, 0);
}

static void save_order(struct disk *d)
{
    struct err e;
    struct buf text;
    d->is_order_wanted = false;
    buf_init(&text, DISK_ORDER_BYTES);
    pthread_mutex_lock(&d->lock);
    order_write(&d->index, &text);
    pthread_mutex_unlock(&d->lock);
    if (buf_error(&text) || disk_is_paused(d)) {
        buf_done(&text);
        return; /* only an order */
    }
    if (disk_file_put(d->dir, "order", text.data, text.len, &e)) {
        log_debug("the disk cache's order of use isn't saved: %s", e.text);
    }
    buf_done(&text);
}

/* ---- the thread ---- */

static void sort_mail(struct disk *d, struct mail *m)
{
    while (m) {
        struct disk_job *j = (struct disk_job *)(void *)m;
        m = m->next;
        switch (j->op) {
        case DISK_READ:
        case DISK_PROVE:
        case DISK_HEAD:
            jobs_push(&d->reads, j);
            break;
        case DISK_WRITE:
        case DISK_REMOVE:
        case DISK_PURGE:
        case DISK_SYNC:
            jobs_push(&d->writes, j);
            break;
        case DISK_FREE:
            jobs_push(&d->frees, j);
            break;
        case DISK_ORDER:
            d->is_order_wanted = true;
            free(j);
            break;
        case DISK_STOP:
            d->is_stopping = true; /* the job is a part of d */
        }
    }
}

static bool step(struct disk *d)
{
    if (d->frees.head) {
        do_free(d);
    } else if (d->reads.head) {
        do_read(d);
    } else if (d->writes.head) {
        do_write(d);
    } else if (d->is_order_wanted) {
        save_order(d);
    } else {
        return false;
    }
    return true;
}

/* The budget, when it is a share of what is free, counts what the tier has as free: it must not
 * shrink by being used. */
static int set_budget(struct disk *d, const struct disk_index *x, struct err *e)
{
    uint64_t max = d->o.bytes_max, n_free = 0;
    if (d->o.percent_max > 0) {
        const int rc = free_bytes(d, &n_free, e);
        if (rc) {
            return rc;
        }
        const uint64_t share = (n_free + x->bytes) / 100 * (uint64_t)d->o.percent_max;
        max = share < max ? share : max;
    }
    d->n.bytes_max = max;
    return 0;
}

/* What was pinned before the names were known. */
static void apply_pins(struct disk *d)
{
    for (size_t i = 0; i < d->pins.n_slots; i++) {
        const struct pin_slot *s = &d->pins.slots[i];
        struct disk_entry *n = s->is_used ? index_find(&d->index, s->id) : NULL;
        if (n) {
            index_set_pinned(&d->index, n, true);
        }
    }
}

static int learn(struct disk *d, struct err *e)
{
    const int64_t t0 = clock_us();
    struct buf saved;
    uint64_t n_gone = 0;
    char *path = NULL;
    int rc = disk_file_scan(d->dir, &d->index, e);
    if (rc) {
        return rc;
    }
    buf_init(&saved, DISK_ORDER_BYTES);
    path = path_join(d->o.dir, "kv/order");
    if (path && file_read(path, &saved, NULL) == 0) {
        order_read(&d->index, saved.data, saved.len);
    }
    free(path);
    buf_done(&saved);
    index_sort(&d->index);
    rc = set_budget(d, &d->index, e);
    if (rc) {
        return rc;
    }
    const size_t n_found = d->index.n_entries;
    const int64_t t1 = clock_us();
    pthread_mutex_lock(&d->lock);
    apply_pins(d);
    pthread_mutex_unlock(&d->lock);
    while (d->index.bytes > d->n.bytes_max && evict(d, &n_gone)) {
    }
    log_info("disk cache: %zu blocks known after %.1f ms, %.0f of %.0f MiB used", n_found,
             (double)(t1 - t0) / 1e3, (double)d->index.bytes / (1 << 20),
             (double)d->n.bytes_max / (1 << 20));
    return 0;
}

static void *run(void *arg)
{
    struct disk *d = arg;
    struct err e;
    const int rc = learn(d, &e);
    pthread_mutex_lock(&d->lock);
    apply_pins(d); /* again: some may have come meanwhile */
    d->state = rc ? UNKNOWN : KNOWN;
    pthread_cond_broadcast(&d->known);
    pthread_mutex_unlock(&d->lock);
    if (rc) {
        log_warn("no disk cache in this run: %s", e.text);
    }
    for (;;) {
        sort_mail(d, mailbox_take(&d->box));
        if (step(d)) {
            continue;
        }
        if (d->is_stopping) {
            break;
        }
        mailbox_wait(&d->box, -1);
    }
    if (!rc) {
        save_order(d);
    }
    return NULL;
}

/* ---- open and close ---- */

static int open_dir(const struct cache_disk_options *o, struct disk *d, struct err *e)
{
    static const char tag[] =
        "Signature: 8a477f597d28d172789f06886806bc55\n"
        "# What hearthd has read, as KV blocks. All of it can be computed again.\n";
    char *path = path_join(o->dir, "kv"), *lock = path_join(o->dir, "kv/lock");
    struct err ignored;
    int rc = path && lock ? dir_make_private(path, e) : err_set(e, ERR_NOMEM, "out of memory");
    if (!rc) {
        d->dir = sys.openat(AT_FDCWD, path, O_RDONLY | O_DIRECTORY | O_CLOEXEC, 0);
        rc = d->dir < 0 ? err_sys(e, errno, "%s", path) : lock_take(lock, &d->lock_fd, e);
    }
    if (!rc && faccessat(d->dir, "CACHEDIR.TAG", F_OK, 0) < 0) {
        (void)!disk_file_put(d->dir, "CACHEDIR.TAG", tag, sizeof tag - 1, &ignored);
    }
    free(path);
    free(lock);
    return rc;
}

static void disk_free(struct disk *d)
{
    lock_release(d->lock_fd);
    if (d->dir >= 0) {
        sys.close(d->dir);
    }
    index_done(&d->index);
    pins_done(&d->pins);
    free((char *)(uintptr_t)d->o.dir);
    pthread_cond_destroy(&d->known);
    pthread_mutex_destroy(&d->lock);
    free(d);
}

static int copy_pins(struct disk *d, const struct pins *from, struct err *e)
{
    const int rc = pins_reserve(&d->pins, from->n, e);
    for (size_t i = 0; !rc && i < from->n_slots; i++) {
        if (from->slots[i].is_used) {
            pins_add(&d->pins, from->slots[i].id);
        }
    }
    return rc;
}

int disk_open(const struct cache_disk_options *o, const struct pins *pins, struct disk **ret,
              struct err *e)
{
    struct disk *d = sys.malloc(sizeof *d);
    if (!d) {
        return err_set(e, ERR_NOMEM, "out of memory for the disk cache");
    }
    *d = (struct disk){.o = *o, .dir = -1, .lock_fd = -1, .state = SCANNING};
    pthread_mutex_init(&d->lock, NULL);
    pthread_cond_init(&d->known, NULL);
    jobs_init(&d->frees);
    jobs_init(&d->reads);
    jobs_init(&d->writes);
    jobs_init(&d->unclaimed);
    d->removals_tail = &d->removals;
    d->o.dir = strdup(o->dir);
    int rc = d->o.dir ? index_init(&d->index, e) : err_set(e, ERR_NOMEM, "out of memory");
    if (!rc) {
        rc = copy_pins(d, pins, e);
    }
    if (!rc) {
        rc = open_dir(o, d, e);
    }
    if (!rc) {
        rc = mailbox_init(&d->box, e);
    }
    if (!rc) {
        rc = thread_start(&d->thread, THREAD_DISK, run, d, e);
        if (rc) {
            mailbox_done(&d->box);
        }
    }
    if (rc) {
        disk_free(d);
        return rc;
    }
    *ret = d;
    return 0;
}

bool disk_wait(struct disk *d)
{
    pthread_mutex_lock(&d->lock);
    while (d->state == SCANNING) {
        pthread_cond_wait(&d->known, &d->lock);
    }
    const bool is_known = d->state == KNOWN;
    pthread_mutex_unlock(&d->lock);
    return is_known;
}

/* A job of the tier's own. NULL: no memory. */
static struct disk_job *job_new(enum disk_op op)
{
    struct disk_job *j = sys.malloc(sizeof *j);
    if (j) {
        *j = (struct disk_job){.op = op};
    }
    return j;
}

void disk_close(struct disk *d, int ms, struct mail **ret_jobs)
{
    *ret_jobs = NULL;
    if (!d) {
        return;
    }
    d->stop_at_us = clock_us() + (int64_t)ms * 1000;
    d->stop.op = DISK_STOP;
    disk_push(d, &d->stop);
    pthread_join(d->thread, NULL);
    mailbox_done(&d->box);
    *ret_jobs = d->unclaimed.head;
    disk_free(d);
}

/* ---- the worker's side ---- */

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
    root_name(root, name);
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
    j->block_bytes = block_bytes;
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
        root_name(root, name);
    }
    pthread_mutex_lock(&d->lock);
    if (d->state == KNOWN && d->index.n_entries > 0) {
        ids = sys.malloc(d->index.n_entries * HASH_BYTES);
        rc = ids ? 0 : err_set(e, ERR_NOMEM, "out of memory for the names of the disk cache");
    }
    for (struct disk_entry *x = NULL; ids && (x = next_of(&d->index, root ? name : NULL, &at, x));) {
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
    root_name(root, name);
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
