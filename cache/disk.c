/* The disk tier's thread: what it does next, reads, learning what is there. See disk.h; what is
 * asked of it is in disk_ask.c, writing and removing in disk_write.c, names and files are
 * disk_file.c's, the table is disk_index.c's. */
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
#include "cache/disk_inside.h"
#include "cache/disk_order.h"

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

struct disk_job *disk_jobs_take(struct jobs *q)
{
    struct mail *m = q->head;
    q->head = m->next;
    if (!q->head) {
        q->tail = &q->head;
    }
    m->next = NULL;
    return (struct disk_job *)(void *)m;
}

void disk_answer(struct disk *d, struct disk_job *j, int rc)
{
    j->rc = rc;
    j->mail.kind = d->o.reply_kind;
    if (!mailbox_push(d->o.reply, &j->mail)) {
        jobs_push(&d->unclaimed, j);
    }
}

/* ---- reading ---- */

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
    disk_tell_bad(p, why);
    if (disk_remove_entry(d, p->id, &e) && log_allowed(&limit)) {
        log_warn("the disk cache: %s; it isn't used any more in this run", e.text);
    }
}

/* The file that rested longest leaves the page cache. */
static void forget_one(struct disk *d)
{
    struct resting *r = &d->resting;
    char root[DISK_ROOT_CHARS + 1];
    disk_root_name(r->v[r->first].root, root);
    const struct disk_place place = {.dir = d->dir, .root = root, .id = r->v[r->first].id};
    disk_file_forget(&place);
    r->first = (r->first + 1) % DISK_RESTING_MAX;
    r->n--;
}

/* To be forgotten, but not now: that takes as long as reading it did, and a turn waits. */
static void forget_later(struct disk *d, const struct disk_job *j)
{
    struct resting *r = &d->resting;
    if (r->n == DISK_RESTING_MAX) {
        forget_one(d);
    }
    const size_t at = (r->first + r->n++) % DISK_RESTING_MAX;
    memcpy(r->v[at].root, j->root, HASH_BYTES);
    memcpy(r->v[at].id, j->id, HASH_BYTES);
    r->due_us = clock_us() + (int64_t)DISK_REST_MS * 1000;
}

/* For mailbox_wait. */
static int forget_due_ms(const struct disk *d)
{
    if (d->resting.n == 0) {
        return -1;
    }
    const int64_t left_us = d->resting.due_us - clock_us();
    return left_us > 0 ? (int)(left_us / 1000) + 1 : 0;
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
        disk_root_name(j->root, root);
        const struct disk_place place = {.dir = d->dir, .root = root, .id = j->id};
        j->fd = -1;
        j->is_open = true;
        j->rc = j->op == DISK_HEAD ? disk_file_open_head(&place, record_block_bytes(&j->data),
                                                         &j->fd, &e)
                                   : disk_file_open(&place, &j->data, &j->fd, &e);
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
    struct disk_job *j = disk_jobs_take(&d->reads);
    const struct record_name name = {
        .root = j->root, .id = j->id, .block_bytes = record_block_bytes(&j->data)};
    if (!j->is_open || atomic_load(&j->is_canceled) || d->is_stopping) {
        if (j->is_open && j->fd >= 0) {
            sys.close(j->fd);
        }
        disk_answer(d, j, ERR_CANCELED);
        return;
    }
    int rc = j->rc;
    if (!rc) {
        rc = j->op == DISK_HEAD ? disk_file_read_head(j->fd, &name, &j->record, &e)
                                : disk_file_read(j->fd, &name, &j->data, &j->record, &e);
        sys.close(j->fd);
    }
    disk_root_name(j->root, root);
    if (!j->rc && rc == ERR_CORRUPT) {
        const struct disk_place place = {.dir = d->dir, .root = root, .id = j->id};
        give_up(d, &place, &e);
    }
    if (!rc && j->op != DISK_HEAD) {
        pthread_mutex_lock(&d->lock);
        d->n.n_read++;
        d->n.bytes_read += RECORD_HEAD_BYTES + (j->data.full ? j->data.full_bytes : 0) +
                           (j->data.window ? j->data.window_bytes : 0);
        pthread_mutex_unlock(&d->lock);
        forget_later(d, j);
    }
    disk_answer(d, j, rc);
}

/* ---- the order of use ---- */

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
        disk_do_free(d);
    } else if (d->reads.head) {
        do_read(d);
    } else if (d->writes.head) {
        disk_do_write(d);
    } else if (d->is_order_wanted) {
        save_order(d);
    } else if (forget_due_ms(d) == 0 && !d->is_stopping) {
        forget_one(d);
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
        const int rc = disk_fs_free(d, &n_free, e);
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
    while (d->index.bytes > d->n.bytes_max && disk_evict(d, &n_gone)) {
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
        mailbox_wait(&d->box, forget_due_ms(d));
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
    *d = (struct disk){.o = *o, .dir = -1, .lock_fd = -1, .state = SCANNING, .n_refs = 1};
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

void disk_end(struct disk *d, int ms, struct mail **ret_jobs)
{
    *ret_jobs = NULL;
    if (d->has_ended) {
        return;
    }
    d->stop_at_us = clock_us() + (int64_t)ms * 1000;
    d->stop.op = DISK_STOP;
    disk_push(d, &d->stop);
    pthread_join(d->thread, NULL);
    mailbox_done(&d->box);
    d->has_ended = true;
    *ret_jobs = d->unclaimed.head;
    jobs_init(&d->unclaimed);
}

bool disk_has_ended(const struct disk *d)
{
    return d->has_ended;
}

bool disk_is_shared(const struct disk *d)
{
    return d->n_refs > 1;
}

struct disk *disk_ref(struct disk *d)
{
    d->n_refs++;
    return d;
}

void disk_unref(struct disk *d)
{
    struct mail *jobs;
    if (!d || --d->n_refs > 0) {
        return;
    }
    disk_end(d, 0, &jobs);
    assert(!jobs); /* who has asked for something has closed it */
    disk_free(d);
}
