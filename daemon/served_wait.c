/*
 * Who waits for a model. See served.h. History thread.
 *
 * A stream hears `: loading NAME 43 %` every two seconds, a comment of the format, so that neither
 * client nor proxy takes it for dead. With the first of them its status is out: what goes wrong
 * from then on is the stream's last event. Others get their answer whole, and are let go with a
 * 503 after --load-wait; the model is loaded all the same, for when they ask again.
 */
#include "daemon/served_inside.h"

#include "base/clock.h"
#include "base/log.h"
#include "daemon/limits.h"

#define COMMENT_BYTES 1024

static bool is_told(const struct request *r)
{
    return r->wants_stream && r->can_stream && r->is_turn;
}

/* When it is to be told, or let go. 0: never. */
static int64_t due_us(const struct history *h, const struct request *r)
{
    const int64_t wait_us = (int64_t)h->d->config->load_wait_s * 1000000;
    if (is_told(r))
        return (r->t_told_us ? r->t_told_us : r->t_parked_us) + LOADING_COMMENT_MS * 1000;
    return r->t_parked_us + wait_us;
}

/* A file's name may hold anything, and a comment ends with its line. */
static void add_id(struct buf *b, const struct served *s)
{
    for (const char *p = s->id; *p; p++)
        buf_char(b, (unsigned char)*p < ' ' ? '?' : *p);
}

static void tell(struct history *h, struct request *r)
{
    const struct served *s = r->served;
    struct buf b;
    buf_init(&b, COMMENT_BYTES);
    if (served_state(s) == SERVED_LOADING) {
        buf_str(&b, ": loading ");
        add_id(&b, s);
        buf_printf(&b, " %d %%\n\n", atomic_load(&s->permille) / 10);
    } else { /* others have turns, or it has, and another is next */
        buf_str(&b, ": waiting for ");
        add_id(&b, s);
        buf_str(&b, "\n\n");
    }
    r->t_told_us = clock_us();
    reply_post(h->d, REPLY_STREAM_DATA, r->conn, 200, &b);
}

static void let_go(struct history *h, struct request *r)
{
    struct http_error error = {.status = 0};
    const struct served *s = r->served;
    const int wait_s = h->d->config->load_wait_s;
    if (served_state(s) == SERVED_LOADING)
        http_error_set(&error, 503, "model_loading", "model",
                       "model %.200s is being loaded (%d %%); this request has waited for %d s "
                       "(--load-wait)",
                       s->id, atomic_load(&s->permille) / 10, wait_s);
    else
        http_error_set(&error, 503, "model_loading", "model",
                       "model %.200s waits for room, as others are busy; this request has waited "
                       "for %d s (--load-wait)",
                       s->id, wait_s);
    reply_error(h->d, r->conn, &error, r->is_turn);
    request_free(r);
}

void served_wait_step(struct history *h)
{
    const int64_t now = clock_us();
    struct mail **at = &h->loading;
    while (*at) {
        struct request *r = (struct request *)*at;
        if (due_us(h, r) > now) {
            at = &r->mail.next;
        } else if (is_told(r)) {
            tell(h, r);
            at = &r->mail.next;
        } else {
            *at = r->mail.next;
            let_go(h, r);
        }
    }
}

int served_wait_due_ms(const struct history *h)
{
    int64_t first = 0;
    for (const struct mail *m = h->loading; m; m = m->next) {
        const int64_t at = due_us(h, (const struct request *)m);
        first = first == 0 || at < first ? at : first;
    }
    if (first == 0)
        return -1;
    const int64_t left_us = first - clock_us();
    if (left_us > (int64_t)INT32_MAX * 1000)
        return INT32_MAX;
    return left_us > 0 ? (int)(left_us / 1000) + 1 : 0;
}
