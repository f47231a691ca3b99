/* Accounts and orders about cached blocks: the worker's part. See keep.h. */
#include "daemon/keep.h"

#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "daemon/served.h"

struct keep *keep_new(const struct request *r, enum keep_op op, size_t n)
{
    struct keep *k = calloc(1, sizeof *k);
    if (!k)
        return NULL;
    k->mail.kind = MAIL_KEEP;
    k->conn = r->conn;
    k->op = op;
    k->owner = strdup(r->owner);
    k->parts = calloc(n ? n : 1, sizeof *k->parts);
    if (k->parts)
        k->n = n;
    if (k->owner && k->parts)
        return k;
    keep_free(k);
    return NULL;
}

void keep_free(struct keep *k)
{
    if (!k)
        return;
    for (size_t i = 0; i < k->n; i++) {
        free(k->parts[i].title);
        free(k->parts[i].ids);
    }
    free(k->parts);
    free(k->owner);
    free(k);
}

static void give_back(struct keep *k)
{
    k->mail.kind = MAIL_KEPT;
    if (mailbox_push(&k->d->history, &k->mail))
        return;
    log_error("worker: the history thread has ended before its questions");
    keep_free(k);
}

void keep_refuse(struct daemon *d, struct keep *k)
{
    k->d = d;
    k->rc = err_set(&k->err, ERR_BUSY, "the daemon is stopping");
    give_back(k);
}

/* The model's own cache first; a conversation may have blocks of several. */
struct caches {
    struct cache *const *all; /* [n] */
    size_t n;
};

static void count(const struct caches *c, struct keep_part *p)
{
    cache_count_all(c->all, c->n, p->ids, p->n, &p->count);
}

/* ---- drop ---- */

static void drop(const struct caches *c, struct keep *k)
{
    struct keep_part *only = &k->parts[0], *all = &k->parts[1];
    struct cache_count left;
    struct cache_unpinned of = {.ids = only->ids, .n = only->n};
    count(c, only);
    count(c, all);
    cache_remove_unpinned_all(c->all, c->n, &of);
    k->gone = of.gone;
    k->n_pinned = of.n_pinned;
    /* What was removed isn't there now; what a turn leases, or others hang from, is. */
    cache_count_all(c->all, c->n, only->ids, only->n, &left);
    const size_t n_asked = only->count.n_present - k->n_pinned;
    k->n_in_use = n_asked > k->gone.n_blocks ? n_asked - k->gone.n_blocks : 0;
}

static void drop_all(struct cache *c, const struct cache_root *root, struct keep *k)
{
    struct cache_usage left;
    k->gone.n_blocks = cache_drop(c, root);
    k->gone.bytes = (uint64_t)k->gone.n_blocks * k->block_bytes;
    cache_usage(c, root, &left);
    k->n_pinned = left.n_ram_pinned > left.n_disk_pinned ? left.n_ram_pinned : left.n_disk_pinned;
    k->n_in_use = left.n_ram - left.n_ram_pinned;
}

/* ---- pin ---- */

/* Instead of what the conversation had. What doesn't fit changes nothing. */
static void unpin(const struct caches *c, const struct keep_part *p)
{
    for (size_t i = 0; i < c->n; i++)
        cache_unpin(c->all[i], p->ids, p->n);
}

static void pin(const struct caches *all, struct keep *k)
{
    struct cache *c = all->all[0];
    struct keep_part *new = &k->parts[0];
    const struct keep_part *old = &k->parts[1];
    struct err ignored;
    unpin(all, old);
    k->rc = cache_pin(c, new->ids, new->n, &k->err);
    if (k->rc && cache_pin(c, old->ids, old->n, &ignored))
        log_warn("the pins of conversation %s are effective again at the next start", new->id);
    count(all, new);
}

/* ---- all ---- */

static void on_done(void *ctx, bool is_done)
{
    struct keep *k = ctx;
    if (!is_done)
        log_warn("some files of what was dropped from the cache are still there");
    give_back(k);
}

void keep_run(struct daemon *d, struct cache *const *all, size_t n_all, struct keep *k)
{
    const struct caches caches = {all, n_all};
    struct cache *cache = all[0];
    struct cache_stats s;
    struct cache_root root;
    struct err e;
    k->d = d;
    cache_root_of(engine_info(k->served->engine)->fingerprint, k->owner, &root);
    cache_wait_disk(cache);
    cache_stats(cache, &s);
    k->has_disk = s.has_disk;
    k->block_bytes = s.block_bytes;
    switch (k->op) {
    case KEEP_LIST:
        for (size_t i = 0; i < k->n; i++)
            count(&caches, &k->parts[i]);
        break;
    case KEEP_DROP:
        drop(&caches, k);
        break;
    case KEEP_DROP_ALL:
        drop_all(cache, &root, k);
        break;
    case KEEP_PIN:
        pin(&caches, k);
        break;
    case KEEP_UNPIN:
        unpin(&caches, &k->parts[0]);
        break;
    }
    cache_usage(cache, &root, &k->usage);
    const bool is_drop = k->op == KEEP_DROP || k->op == KEEP_DROP_ALL;
    if (!is_drop || cache_sync(cache, on_done, k, &e))
        give_back(k);
}
