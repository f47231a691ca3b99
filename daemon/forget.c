/* Deletions on their way to the worker and back. History thread. See forget.h. */
#include "daemon/forget.h"

#include <stdlib.h>

#include "base/log.h"

static void answer(struct history *h, const struct forget *f)
{
    const struct request to = {.conn = f->conn, .is_turn = f->is_turn};
    json *hearth = json_set(f->reply, "hearth", json_object());
    json_set_int(hearth, "messages", f->n_messages);
    json_set_int(hearth, "blocks", (int64_t)f->gone.n_blocks);
    json_set_int(hearth, "kv_bytes", (int64_t)f->gone.bytes);
    /* true: another program reads the database, and the text leaves its write-ahead log once it
     * doesn't. */
    json_set_bool(hearth, "remains", memory_has_remains(h->memory));
    history_reply_json(h, &to, 200, f->reply);
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
    h->n_turns_out++;
    return true;
}

void forget_and_reply(struct history *h, const struct request *r, json *reply,
                      struct memory_removed *gone)
{
    const struct forget f = {.conn = r->conn,
                             .is_turn = r->is_turn,
                             .reply = reply,
                             .n_messages = gone->n_messages,
                             .blocks = gone->blocks,
                             .n_blocks = gone->n_blocks};
    if (gone->n_blocks > 0 && post(h, &f))
        return;
    if (gone->n_blocks > 0)
        log_warn("%zu blocks of a deleted conversation stay in the cache until they age out",
                 gone->n_blocks);
    answer(h, &f);
    free(gone->blocks);
}

void forget_blocks(struct history *h, uint8_t *blocks, size_t n_blocks)
{
    const struct forget f = {.blocks = blocks, .n_blocks = n_blocks};
    if (n_blocks == 0 || !post(h, &f))
        free(blocks);
}

void forget_done(struct history *h, struct forget *f)
{
    if (f->reply)
        answer(h, f);
    free(f->blocks);
    free(f);
}
