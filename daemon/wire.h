/*
 * Wire formats: pure functions from a turn to bytes, one table a format. They never send, store or
 * decide.
 *
 *   stream:  begin          history, before the worker sees the turn
 *            delta*         worker
 *            end | fail     history, after the answer is stored
 *   whole:   whole (history); a failed turn's error object is made by the caller from turn.error
 *
 * Each appends complete SSE events (base/sse.h) or a JSON body to b; a failure sticks in b. The
 * only field of a turn that a format may change is wire_seq.
 */
#ifndef HEARTH_DAEMON_WIRE_H
#define HEARTH_DAEMON_WIRE_H

#include "base/buf.h"
#include "base/json.h"
#include "daemon/turn.h"

struct wire {
    void (*begin)(struct turn *t, struct buf *b);
    void (*delta)(struct turn *t, const char *text, size_t n,
                  struct buf *b); /* n > 0, valid UTF-8 by itself */
    void (*thought)(struct turn *t, const char *text, size_t n,
                    struct buf *b); /* as delta, of what the model thinks; NULL: not told */
    void (*end)(struct turn *t,
                struct buf *b); /* finish is TURN_EOG, TURN_LENGTH or TURN_STOPPED */
    void (*fail)(struct turn *t, struct buf *b); /* the error as the stream's last event */
    void (*whole)(struct turn *t, struct buf *b);
};

extern const struct wire wire_chat;       /* wire_chat.c */
extern const struct wire wire_completion; /* wire_chat.c */
extern const struct wire wire_response;   /* wire_responses.c */

#define WIRE_BODY_BYTES (64u << 20) /* ceiling of one reply's bytes */

/* {receipt[, cache, timings]}: the `hearth` object of a reply. is_final: cache and timings are
 * known. Caller owns; NULL: no memory. */
json *wire_hearth(const struct turn *t, bool is_final);
/* o[key] = [{"id", "tokens"}, …]: a list of a receipt. */
void wire_set_changes(json *o, const char *key, const struct turn_changes *list);
/* A failed turn: {"error": …, "hearth": …}. */
void wire_error(const struct turn *t, struct buf *b);
/* Milliseconds with three decimals, for json_set_num. */
double wire_ms(int64_t us);

#endif
