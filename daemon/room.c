/* See room.h. */
#include "daemon/room.h"

#include <stdlib.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statvfs.h>

#include "base/log.h"
#include "daemon/limits.h"

struct question {
    struct mail mail; /* MAIL_ROOM, then MAIL_ROOM_MADE */
    struct daemon *d;
};

/* ---- history ---- */

/* Files elsewhere are no room for the database. */
static bool is_one_file_system(const struct config *c)
{
    struct stat state, cache;
    return c->cache_dir && stat(c->state_dir, &state) == 0 && stat(c->cache_dir, &cache) == 0 &&
           state.st_dev == cache.st_dev;
}

/* A limit of a file's size (ulimit -f) looks the same, and no room helps against it. */
static bool is_file_limit(const struct config *c)
{
    struct rlimit limit;
    struct statvfs st;
    return getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY &&
           statvfs(c->state_dir, &st) == 0 &&
           (uint64_t)st.f_bavail * st.f_frsize >= DISK_GIVE_BACK_BYTES;
}

/* false: there is nobody to ask, or nothing that it would help against. */
static bool send(struct history *h)
{
    const struct config *c = h->d->config;
    if (!h->has_begun || !is_one_file_system(c) || is_file_limit(c))
        return false;
    struct question *q = malloc(sizeof *q);
    if (!q)
        return false;
    *q = (struct question){.mail = {.kind = MAIL_ROOM}, .d = h->d};
    if (!mailbox_push(&h->d->worker, &q->mail)) {
        free(q);
        return false;
    }
    h->n_turns_out++;
    h->is_room_asked = true;
    return true;
}

bool room_ask(struct history *h, struct mail *m)
{
    if (!h->is_room_asked && !send(h))
        return false;
    if (!m)
        return true;
    struct mail **end = &h->for_room;
    while (*end)
        end = &(*end)->next;
    m->next = NULL;
    *end = m;
    return true;
}

struct mail *room_take(struct history *h, struct mail *answer)
{
    struct mail *waiting = h->for_room;
    h->for_room = NULL;
    h->is_room_asked = false;
    h->n_turns_out--;
    free(answer);
    return waiting;
}

/* ---- worker ---- */

static void on_freed(void *ctx, uint64_t n_bytes)
{
    struct question *q = ctx;
    struct daemon *d = q->d;
    atomic_fetch_add(&d->n.room_asked, 1);
    atomic_fetch_add(&d->n.room_bytes, n_bytes);
    q->mail.kind = MAIL_ROOM_MADE;
    if (mailbox_push(&d->history, &q->mail))
        return;
    log_error("worker: the history thread has ended before it got room");
    free(q);
}

void room_make(struct cache *cache, struct mail *m)
{
    struct question *q = (struct question *)(void *)m;
    struct err e;
    if (!cache) {
        on_freed(q, 0);
    } else if (cache_free_disk(cache, DISK_GIVE_BACK_BYTES, on_freed, q, &e)) {
        log_warn("no room is made for the history: %s", e.text);
        on_freed(q, 0);
    }
}
