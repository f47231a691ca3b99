/* Deletions on their way to the worker and back. See forget.h. */
#include "daemon/forget.h"

#include <stdlib.h>
#include <unistd.h>

#include "base/log.h"
#include "base/paths.h"

static void forget_free(struct forget *f)
{
    json_free(f->reply);
    memory_removed_done(&f->what);
    free(f);
}

/* ---- the history thread's side ---- */

static void answer(struct history *h, struct forget *f)
{
    const struct request to = {.conn = f->conn, .is_turn = f->is_turn};
    json *account = f->account ? f->account : json_set(f->reply, "hearth", json_object());
    json_set_int(account, "messages", f->what.n_messages);
    json_set_int(account, "blocks", (int64_t)f->gone.n_blocks);
    json_set_int(account, "kv_bytes", (int64_t)f->gone.bytes);
    /* true: another program reads the database, and the text leaves its write-ahead log once it
     * doesn't. */
    json_set_bool(account, "remains", memory_has_remains(h->memory));
    history_reply_json(h, &to, 200, f->reply);
    f->reply = NULL;
}

/* false: the worker has ended, or there is no memory; nothing was taken. */
static bool post(struct history *h, const struct forget *what)
{
    struct forget *f = malloc(sizeof *f);
    if (!f)
        return false;
    *f = *what;
    f->mail = (struct mail){.kind = MAIL_FORGET};
    if (!mailbox_push(&h->d->worker, &f->mail)) {
        free(f);
        return false;
    }
    h->n_turns_out += f->is_counted;
    return true;
}

static bool is_empty(const struct memory_removed *gone)
{
    return gone->n_blocks == 0 && gone->n_unpinned == 0;
}

void forget_and_reply(struct history *h, const struct request *r, json *reply, json *account,
                      struct memory_removed *gone)
{
    struct forget f = {.conn = r->conn,
                       .is_turn = r->is_turn,
                       .reply = reply,
                       .account = account,
                       .is_counted = true,
                       .what = *gone};
    if (!is_empty(gone) && post(h, &f))
        return;
    if (!is_empty(gone))
        log_warn("%zu blocks of what was deleted stay in the cache until the next start",
                 gone->n_blocks);
    answer(h, &f);
    memory_removed_done(&f.what);
}

void forget_removed(struct history *h, struct memory_removed *gone)
{
    const struct forget f = {.is_counted = true, .what = *gone};
    if (is_empty(gone) || !post(h, &f))
        memory_removed_done(gone);
}

void forget_replay(struct history *h)
{
    struct err e;
    struct forget f = {0};
    if (memory_gone_read(h->memory, &f.what, &e)) {
        log_warn("what was deleted before is looked for at the next start: %s", e.text);
        return;
    }
    if (is_empty(&f.what))
        return;
    log_info("%zu blocks of what was deleted before leave the cache", f.what.n_blocks);
    if (!post(h, &f))
        memory_removed_done(&f.what);
}

void forget_done(struct history *h, struct forget *f)
{
    struct err e;
    h->n_turns_out -= f->is_counted;
    log_debug("%zu of %zu blocks of what was deleted were in the cache%s", f->gone.n_blocks,
              f->what.n_blocks, f->is_done ? "" : "; some files may still be there");
    if (f->is_done && memory_gone_done(h->memory, f->what.batch, &e))
        log_warn("what was deleted is looked for again at the next start: %s", e.text);
    if (f->reply)
        answer(h, f);
    forget_free(f);
}

/* ---- the worker's side ---- */

/* Without a tier: whether an earlier run with one may have left files. */
static bool has_files(const struct daemon *d)
{
    const char *dir = d->config->cache_dir;
    char *path = dir ? path_join(dir, "kv") : NULL;
    const bool has = dir && (!path || access(path, F_OK) == 0);
    free(path);
    return has;
}

static void give_back(struct forget *f)
{
    f->mail.kind = MAIL_FORGOTTEN;
    if (mailbox_push(&f->d->history, &f->mail))
        return;
    if (f->is_counted)
        log_error("worker: the history thread has ended before its deletions");
    forget_free(f);
}

static void on_done(void *ctx, bool is_done)
{
    struct forget *f = ctx;
    f->is_done = is_done && f->gone.n_failed == 0;
    give_back(f);
}

void forget_run(struct daemon *d, struct cache *const *all, size_t n_all, struct forget *f)
{
    struct cache_stats s = {0};
    struct err e;
    uint64_t n_blocks = 0, bytes_used = 0;
    f->d = d;
    f->gone = (struct cache_removed){0};
    if (n_all == 0) {
        give_back(f);
        return;
    }
    for (size_t i = 0; i < n_all; i++)
        cache_unpin(all[i], f->what.unpinned, f->what.n_unpinned);
    cache_remove_all(all, n_all, f->what.blocks, f->what.n_blocks, &f->gone);
    for (size_t i = 0; i < n_all; i++) {
        cache_stats(all[i], &s);
        n_blocks += s.n_blocks + s.n_tails;
        bytes_used += s.bytes_used;
    }
    atomic_store(&d->n.kv_blocks, n_blocks);
    atomic_store(&d->n.kv_bytes, bytes_used);
    if (!s.has_disk)
        on_done(f, !has_files(d));
    else if (cache_sync(all[0], on_done, f, &e))
        give_back(f);
}
