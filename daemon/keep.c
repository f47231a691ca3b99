/* Accounts and orders about cached blocks: the worker's part. See keep.h. */
#include "daemon/keep.h"

#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "daemon/host.h"
#include "daemon/limits.h"

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
    free(k->models);
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

/* The hub first; a conversation may have blocks of several models. */
struct caches {
    struct cache *all[1 + LIMIT_RESIDENT]; /* [n] */
    size_t n;
};

/* The cache that has the model's blocks: its own, or the hub for what the disk has. */
static struct host *host_of(const struct keep_caches *of, const uint8_t fingerprint[HASH_BYTES])
{
    for (int i = 0; i < of->n_hosts; i++)
        if (!memcmp(engine_info(of->hosts[i]->engine)->fingerprint, fingerprint, HASH_BYTES))
            return of->hosts[i];
    return NULL;
}

static void usage_of(const struct keep_caches *of, struct keep *k, struct keep_model *m)
{
    const struct host *h = host_of(of, m->m.fingerprint);
    struct cache_root root;
    cache_root_of(m->m.fingerprint, k->owner, &root);
    cache_usage(h ? h->cache : of->hub, &root, &m->usage);
    if (h && h->served->is_default)
        k->n_pins_max = m->usage.n_pins_max;
}

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

static void drop_all(const struct keep_caches *of, struct keep *k)
{
    for (size_t i = 0; i < k->n_models; i++) {
        struct keep_model *m = &k->models[i];
        const struct host *h = host_of(of, m->m.fingerprint);
        struct cache_root root;
        cache_root_of(m->m.fingerprint, k->owner, &root);
        const size_t n = cache_drop(h ? h->cache : of->hub, &root);
        k->gone.n_blocks += n;
        k->gone.bytes += (uint64_t)n * m->m.block_bytes;
        usage_of(of, k, m);
        const struct cache_usage *left = &m->usage;
        k->n_pinned += left->n_ram_pinned > left->n_disk_pinned ? left->n_ram_pinned
                                                                : left->n_disk_pinned;
        k->n_in_use += left->n_ram - left->n_ram_pinned;
    }
}

/* ---- pin ---- */

/* Instead of what the conversation had. What doesn't fit changes nothing. */
static void unpin(const struct caches *c, const struct keep_part *p)
{
    for (size_t i = 0; i < c->n; i++)
        cache_unpin(c->all[i], p->ids, p->n);
}

static void pin(const struct keep_caches *of, const struct caches *all, struct keep *k)
{
    struct cache *c = k->served->host->cache;
    struct keep_part *new = &k->parts[0];
    const struct keep_part *old = &k->parts[1];
    struct err ignored;
    unpin(all, old);
    k->rc = cache_pin(c, new->ids, new->n, &k->err);
    if (k->rc && cache_pin(c, old->ids, old->n, &ignored))
        log_warn("the pins of conversation %s are effective again at the next start", new->id);
    const struct keep_part *in_force = k->rc ? old : new;
    if (cache_hold(of->hub, in_force->ids, in_force->n, &ignored))
        log_warn("the pins of conversation %s are in force as long as its model is loaded",
                 new->id);
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

void keep_run(struct daemon *d, const struct keep_caches *of, struct keep *k)
{
    struct caches caches = {.all = {of->hub}, .n = 1};
    struct cache_stats s;
    struct err e;
    for (int i = 0; i < of->n_hosts; i++)
        caches.all[caches.n++] = of->hosts[i]->cache;
    k->d = d;
    cache_wait_disk(of->hub);
    cache_stats(of->hub, &s);
    k->has_disk = s.has_disk;
    switch (k->op) {
    case KEEP_LIST:
        for (size_t i = 0; i < k->n; i++)
            count(&caches, &k->parts[i]);
        for (size_t i = 0; i < k->n_models; i++)
            usage_of(of, k, &k->models[i]);
        break;
    case KEEP_DROP:
        drop(&caches, k);
        break;
    case KEEP_DROP_ALL:
        drop_all(of, k);
        break;
    case KEEP_PIN:
        pin(of, &caches, k);
        break;
    case KEEP_UNPIN:
        unpin(&caches, &k->parts[0]);
        break;
    }
    const bool is_drop = k->op == KEEP_DROP || k->op == KEEP_DROP_ALL;
    if (!is_drop || cache_sync(of->hub, on_done, k, &e))
        give_back(k);
}
