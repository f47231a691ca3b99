/* See tier.h. */
#include "tests/cache/tier.h"

#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/hash.h"
#include "cache/tree.h"

enum { MAIL_OF_DISK = 7 };

void tier_open(struct tier *t)
{
    struct err e;
    t->pool = fake_pool(t->n_blocks);
    fake_spoil(t->pool);
    assert_int_equal(mailbox_init(&t->box, &e), 0);
    assert_int_equal(cache_new(t->pool, &t->cache, &e), 0);
    const struct cache_disk_options o = {
        .dir = t->dir,
        .bytes_max = t->bytes_max,
        .reserve_bytes = t->reserve_bytes,
        .tail_idle_ms = t->tail_idle_ms,
        .reply = &t->box,
        .reply_kind = MAIL_OF_DISK,
    };
    if (cache_disk_open(t->cache, &o, &e)) {
        fail_msg("%s", e.text);
    }
}

void tier_init(struct tier *t, size_t n_blocks)
{
    *t = (struct tier){.bytes_max = UINT64_MAX / 4, .n_blocks = n_blocks, .tail_idle_ms = 3600000};
    snprintf(t->dir, sizeof t->dir, "%s", "/tmp/hearth-tier-XXXXXX");
    assert_non_null(mkdtemp(t->dir));
    tier_open(t);
}

void tier_share(struct tier *t, struct tier *host, size_t n_blocks)
{
    struct err e;
    *t = (struct tier){.n_blocks = n_blocks, .host = host};
    memcpy(t->dir, host->dir, sizeof t->dir);
    t->pool = fake_pool(n_blocks);
    fake_spoil(t->pool);
    assert_int_equal(cache_new(t->pool, &t->cache, &e), 0);
    cache_disk_share(t->cache, host->cache);
}

void tier_leave(struct tier *t)
{
    cache_disk_leave(t->cache);
    fake_check(t->cache);
    cache_free(t->cache);
    kv_pool_free(t->pool);
    t->cache = NULL;
}

static struct mailbox *box_of(struct tier *t)
{
    return t->host ? &t->host->box : &t->box;
}

static void deliver(struct tier *t)
{
    for (struct mail *m = mailbox_take(box_of(t)), *next; m; m = next) {
        next = m->next;
        assert_int_equal(m->kind, MAIL_OF_DISK);
        cache_take_mail(t->cache, m);
        fake_check(t->cache);
    }
}

void tier_mail(struct tier *t)
{
    mailbox_wait(box_of(t), -1);
    deliver(t);
}

void tier_settle(struct tier *t)
{
    deliver(t);
    cache_tend(t->cache);
    while (cache_is_busy(t->cache)) {
        tier_mail(t);
        cache_tend(t->cache);
    }
}

void tier_close(struct tier *t, int ms)
{
    if (!t->cache) {
        return;
    }
    mailbox_close(&t->box);
    deliver(t);
    cache_disk_close(t->cache, ms);
    fake_check(t->cache);
    cache_free(t->cache);
    kv_pool_free(t->pool);
    mailbox_done(&t->box);
    t->cache = NULL;
}

void tier_restart(struct tier *t)
{
    tier_close(t, 0);
    tier_open(t);
}

static int remove_one(const char *path, const struct stat *st, int kind, struct FTW *at)
{
    (void)st;
    (void)kind;
    (void)at;
    return remove(path);
}

void tier_done(struct tier *t)
{
    tier_close(t, 0);
    nftw(t->dir, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

void tier_sync(struct tier *t)
{
    static int32_t next = 1000000000;
    int32_t ids[KV_BLOCK];
    const uint64_t n_before = tier_stats(t).n_disk_written;
    for (int i = 0; i < KV_BLOCK; i++) {
        ids[i] = next++;
    }
    tier_turn(t, "nobody", 0, ids, KV_BLOCK);
    tier_settle(t);
    assert_true(tier_stats(t).n_disk_written > n_before);
}

/* As the daemon does: what is being written can't be evicted now, and comes back with mail.
 * n_disk: positions that the disk has. */
static void reserve(struct tier *t, struct cache_lease *l, int n, int n_disk)
{
    struct err e;
    while (n_disk > 0
               ? cache_reserve_for_disk(l, n - cache_lease_seq(l)->n_tokens, n_disk, &e)
               : cache_reserve(l, n - cache_lease_seq(l)->n_tokens, &e)) {
        if (!cache_is_busy(t->cache)) {
            fail_msg("%s", e.text);
        }
        tier_mail(t);
    }
}

struct cache_lease *tier_begin(struct tier *t, const char *owner, uint64_t who, const int32_t *ids,
                               int n)
{
    const struct cache_root root = fake_root(owner);
    struct cache_lease *l = NULL;
    struct cache_found found;
    struct err e;
    assert_int_equal(cache_lease_open(t->cache, &root, who, &l, &e), 0);
    assert_int_equal(cache_find(l, ids, n - 1, &found, &e), 0);
    reserve(t, l, n, cache_restorable(l, ids, n - 1));
    cache_restore(l, ids, n - 1);
    fake_check(t->cache);
    return l;
}

struct cache_found tier_turn(struct tier *t, const char *owner, uint64_t who, const int32_t *ids,
                             int n)
{
    const uint64_t salt = fake_salt(owner);
    struct err e;
    struct cache_lease *l = tier_begin(t, owner, who, ids, n);
    struct kv_seq *s = cache_lease_seq(l);
    struct cache_found more, found = {.n_ram = s->n_tokens};
    fake_verify(s, salt, ids);
    while (cache_is_restoring(l)) {
        tier_mail(t);
        fake_verify(s, salt, ids);
    }
    more = cache_take_restored(l);
    found.n_disk = more.n_disk;
    found.n_shared = more.n_shared;
    found.n_tokens = s->n_tokens;
    if (fake_window) { /* of what the tree has, some may have been on its way from the disk */
        assert_true(more.n_tokens == more.n_ram + more.n_disk);
        found.n_ram = found.n_tokens - found.n_disk;
    }
    assert_int_equal(found.n_ram + found.n_disk, found.n_tokens);
    fake_verify_rest(s);
    assert_int_equal(cache_find(l, ids, n - 1, &more, &e), 0);
    reserve(t, l, n, 0);
    fake_verify_blank(s, n);
    fake_compute(s, salt, ids, n - s->n_tokens);
    assert_int_equal(cache_publish(l, ids, 0, &e), 0);
    fake_verify(s, salt, ids);
    cache_lease_close(l, ids, true);
    fake_check(t->cache);
    cache_tend(t->cache);
    return found;
}

void tier_ids(int32_t *ids, int n, int first)
{
    for (int i = 0; i < n; i++) {
        ids[i] = first + i;
    }
}

static struct tier_files *collecting;

static int collect(const char *path, const struct stat *st, int kind, struct FTW *at)
{
    (void)kind;
    (void)at;
    const size_t n = strlen(path);
    if (n > 3 && strcmp(path + n - 3, ".kv") == 0) {
        assert_true(collecting->n < TIER_FILES_MAX);
        snprintf(collecting->paths[collecting->n++], sizeof collecting->paths[0], "%s", path);
        collecting->bytes += (uint64_t)st->st_blocks * 512;
    }
    return 0;
}

void tier_files(const struct tier *t, struct tier_files *ret)
{
    ret->n = 0;
    ret->bytes = 0;
    collecting = ret;
    assert_int_equal(nftw(t->dir, collect, 16, FTW_PHYS), 0);
}

void tier_path(const struct tier *t, const char *owner, const int32_t *ids, int n_ids, char *ret,
               size_t n_ret)
{
    const struct cache_root root = fake_root(owner);
    uint8_t id[HASH_BYTES];
    char root_hex[2 * HASH_BYTES + 1], hex[2 * HASH_BYTES + 1];
    memcpy(id, root.id, sizeof id);
    hex_write(root.id, 8, root_hex);
    for (int i = 0; i < n_ids; i += KV_BLOCK) {
        uint8_t parent[HASH_BYTES];
        memcpy(parent, id, sizeof id);
        tree_id(parent, ids + i, n_ids - i < KV_BLOCK ? n_ids - i : KV_BLOCK, id);
    }
    hex_write(id, HASH_BYTES, hex);
    snprintf(ret, n_ret, "%s/kv/%s/%.2s/%s.kv", t->dir, root_hex, hex, hex);
}

struct cache_stats tier_stats(const struct tier *t)
{
    struct cache_stats s;
    cache_stats(t->cache, &s);
    return s;
}
