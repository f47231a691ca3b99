/*
 * From names to chains: which token ids do these blocks hold, and in which order do they hang
 * together? Of a block in RAM its node says it, of a file its head, which proves itself: the id is
 * a hash of parent and token ids. Worker thread; heads are read by the disk thread.
 *
 *     ids (sorted)   a b c d e t      a ─ b ─ c ─ t        chains, a leaf each:  a b c t,
 *                                         └── d ─ e                              (a b) d e
 *
 * Each block is proven once: what an earlier chain has proven is only walked over. Names that are
 * nowhere any more are missing, unless what was proven begins with them: those are tails that
 * something longer has replaced.
 */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/sys.h"
#include "base/thread.h"
#include "cache/inside.h"

#define HEADS_MAX 16 /* asked for at once: turns read behind them */

struct trace_block {
    uint8_t id[HASH_BYTES], parent[HASH_BYTES];
    int32_t ids[KV_BLOCK];
    int count;        /* 0: not known, and nowhere when all is read */
    bool has_child;   /* among the known */
    bool is_walked;   /* in a chain that was given out */
    bool is_proven;
    bool is_replaced; /* what was proven begins with it */
    bool is_other;    /* of another root: another model's, say */
};

struct trace_job {
    struct disk_job job;
    struct trace_job *next, *prev;
    struct cache_trace *trace; /* NULL: freed since */
    size_t at;
};

struct cache_trace {
    struct cache *cache;
    uint8_t root[HASH_BYTES];
    struct trace_block *v; /* [n], in order of ids */
    size_t n, n_asked;     /* asked: looked for */
    struct trace_job *jobs;
    int n_reading;
    size_t leaf; /* the next that may be one */
    bool is_linked;
    struct trace_block **path; /* the chain that was given out last: [n_path]; NULL: not listed */
    size_t n_path, cap_path;
};

static int compare(const void *a, const void *b)
{
    const struct trace_block *x = a, *y = b;
    return memcmp(x->id, y->id, HASH_BYTES);
}

static struct trace_block *find(const struct cache_trace *t, const uint8_t id[HASH_BYTES])
{
    struct trace_block key;
    memcpy(key.id, id, HASH_BYTES);
    return t->n ? bsearch(&key, t->v, t->n, sizeof *t->v, compare) : NULL;
}

/* ---- looking ---- */

static void fill_from_node(struct trace_block *b, const struct node *n)
{
    b->count = n->count;
    memcpy(b->parent, n->parent->id, HASH_BYTES);
    memcpy(b->ids, n->ids, (size_t)n->count * sizeof *n->ids);
}

static bool ask_disk(struct cache_trace *t, size_t at)
{
    struct cache *c = t->cache;
    struct trace_job *j = sys.malloc(sizeof *j);
    if (!j) {
        return false;
    }
    *j = (struct trace_job){.trace = t, .at = at, .next = t->jobs};
    if (t->jobs) {
        t->jobs->prev = j;
    }
    t->jobs = j;
    j->job.op = DISK_HEAD;
    j->job.cache = c;
    j->job.data = block_data(c, NULL);
    memcpy(j->job.root, t->root, HASH_BYTES);
    memcpy(j->job.id, t->v[at].id, HASH_BYTES);
    t->n_reading++;
    disk_push(c->disk, &j->job);
    return true;
}

static void look(struct cache_trace *t)
{
    struct cache *c = t->cache;
    while (t->n_asked < t->n && t->n_reading < HEADS_MAX) {
        struct trace_block *b = &t->v[t->n_asked];
        const struct node *n = tree_find(&c->tree, b->id);
        if (n && n->parent && !n->is_bad) {
            fill_from_node(b, n);
        } else if (!n && c->disk && disk_has_other(c->disk, t->root, b->id)) {
            b->is_other = true;
        } else if (!n && c->disk && disk_has(c->disk, b->id)) {
            (void)!ask_disk(t, t->n_asked); /* without memory it is missing */
        }
        t->n_asked++;
    }
}

void trace_arrived(struct disk_job *job)
{
    struct trace_job *j = (struct trace_job *)(void *)job;
    struct cache_trace *t = j->trace;
    if (t) {
        if (j->next) {
            j->next->prev = j->prev;
        }
        *(j->prev ? &j->prev->next : &t->jobs) = j->next;
        t->n_reading--;
        if (job->rc == 0) {
            struct trace_block *b = &t->v[j->at];
            b->count = job->record.count;
            memcpy(b->parent, job->record.parent, HASH_BYTES);
            memcpy(b->ids, job->record.ids, sizeof b->ids);
        }
        look(t);
    }
    free(j);
}

int cache_trace_open(struct cache *c, const struct cache_root *root, const uint8_t *ids, size_t n,
                     struct cache_trace **ret, struct err *e)
{
    assert(thread_is(THREAD_WORKER));
    struct cache_trace *t = sys.malloc(sizeof *t);
    struct trace_block *v = sys.malloc((n + 1) * sizeof *v);
    if (!t || !v) {
        free(t);
        free(v);
        return err_set(e, ERR_NOMEM, "out of memory for the names of %zu KV blocks", n);
    }
    *t = (struct cache_trace){.cache = c, .v = v};
    memcpy(t->root, root->id, HASH_BYTES);
    memset(v, 0, (n + 1) * sizeof *v);
    for (size_t i = 0; i < n; i++) {
        memcpy(v[i].id, ids + i * HASH_BYTES, HASH_BYTES);
    }
    qsort(v, n, sizeof *v, compare);
    for (size_t i = 0; i < n; i++) {
        if (!t->n || compare(&v[t->n - 1], &v[i]) != 0) {
            v[t->n++] = v[i];
        }
    }
    if (c->disk && t->n > 0) {
        (void)!disk_wait(c->disk);
    }
    look(t);
    *ret = t;
    return 0;
}

bool cache_trace_is_reading(const struct cache_trace *t)
{
    return t->n_reading > 0;
}

void cache_trace_free(struct cache_trace *t)
{
    if (!t) {
        return;
    }
    for (struct trace_job *j = t->jobs; j; j = j->next) {
        j->trace = NULL;
        atomic_store(&j->job.is_canceled, true);
    }
    free(t->path);
    free(t->v);
    free(t);
}

/* ---- chains ---- */

static void link_up(struct cache_trace *t)
{
    for (size_t i = 0; i < t->n; i++) {
        struct trace_block *parent = t->v[i].count ? find(t, t->v[i].parent) : NULL;
        if (parent && parent->count == KV_BLOCK) {
            parent->has_child = true;
        }
    }
    t->is_linked = true;
}

static int path_push(struct cache_trace *t, struct trace_block *b, struct err *e)
{
    if (t->n_path == t->cap_path) {
        const size_t cap = t->cap_path ? t->cap_path * 2 : 64;
        struct trace_block **more = sys.realloc(t->path, cap * sizeof *more);
        if (!more) {
            return err_set(e, ERR_NOMEM, "out of memory for a chain of %zu KV blocks", cap);
        }
        t->path = more;
        t->cap_path = cap;
    }
    t->path[t->n_path++] = b;
    return 0;
}

/* The chain's ids, from its end to its beginning, a block at a time: turned round later. */
static int collect(struct cache_trace *t, struct trace_block *leaf, struct ids *ret, struct err *e)
{
    const uint8_t *at = leaf->id;
    t->n_path = 0;
    ret->n = 0;
    while (memcmp(at, t->root, HASH_BYTES) != 0) {
        struct trace_block *b = find(t, at), one;
        const struct node *n = b && b->count ? NULL : tree_find(&t->cache->tree, at);
        const struct trace_block *x = b && b->count ? b : &one;
        if (x == &one && (!n || !n->parent || n->is_bad)) {
            return ERR_NOTFOUND; /* it hangs from nothing that is there */
        }
        if (x == &one) {
            fill_from_node(&one, n);
            at = n->parent->id;
        } else {
            at = b->parent;
            b->is_walked = true;
        }
        if (x->count < KV_BLOCK && t->n_path > 0) {
            return ERR_NOTFOUND; /* nothing hangs from a tail */
        }
        int rc = path_push(t, x == &one ? NULL : b, e);
        for (int i = x->count; i-- > 0 && !rc;) {
            rc = ids_push(ret, x->ids[i]) ? err_set(e, ERR_NOMEM, "out of memory for ids") : 0;
        }
        if (rc) {
            return rc;
        }
    }
    return 0;
}

static void turn_round(struct cache_trace *t, struct ids *ids)
{
    for (size_t i = 0, k = ids->n; i + 1 < k; i++) {
        const int32_t id = ids->v[i];
        ids->v[i] = ids->v[--k];
        ids->v[k] = id;
    }
    for (size_t i = 0, k = t->n_path; i + 1 < k; i++) {
        struct trace_block *b = t->path[i];
        t->path[i] = t->path[--k];
        t->path[k] = b;
    }
}

int cache_trace_next(struct cache_trace *t, struct ids *ret, int *ret_n_proven, struct err *e)
{
    assert(!cache_trace_is_reading(t));
    if (!t->is_linked) {
        link_up(t);
    }
    for (; t->leaf < t->n; t->leaf++) {
        struct trace_block *b = &t->v[t->leaf];
        if (!b->count || b->has_child || b->is_walked) {
            continue;
        }
        const int rc = collect(t, b, ret, e);
        if (rc == ERR_NOTFOUND) {
            continue;
        }
        if (rc) {
            return rc;
        }
        turn_round(t, ret);
        *ret_n_proven = 0;
        for (size_t i = 0; i < t->n_path && t->path[i] && t->path[i]->is_proven; i++) {
            *ret_n_proven += 1;
        }
        return 1;
    }
    return 0;
}

void cache_trace_prove(struct cache_trace *t, int n_block)
{
    uint8_t id[HASH_BYTES];
    struct trace_block *b = (size_t)n_block < t->n_path ? t->path[n_block] : NULL;
    if (!b) {
        return;
    }
    b->is_proven = true;
    for (int k = 1; k < b->count; k++) {
        tree_id(b->parent, b->ids, k, id);
        struct trace_block *tail = find(t, id);
        if (tail) {
            tail->is_replaced = true;
        }
    }
}

size_t cache_trace_n_missing(const struct cache_trace *t, size_t *ret_n_other)
{
    size_t n = 0, n_other = 0;
    for (size_t i = 0; i < t->n; i++) {
        const struct trace_block *b = &t->v[i];
        n += !b->is_proven && !b->is_replaced && !b->is_other;
        n_other += b->is_other;
    }
    *ret_n_other = n_other;
    return n;
}
