/*
 * What the cache was worth: GET /v1/hearth/stats (an owner's sums) and
 * GET /v1/hearth/conversations/{}/savings (a conversation's, and its turns page by page).
 *
 *      sums    {"turns", "prompt_tokens", "completion_tokens", "cached_tokens", "ram", "disk",
 *               "shared", "computed", "saved_s", "prefill_s", "restore_s", "misses": {reason: n}}
 *      turn    {"id": of its answer, "created_at", "finish", "prompt_tokens",
 *               "completion_tokens", "cache": as in the reply, "timings"}
 */
#include <string.h>

#include "base/clock.h"
#include "daemon/account.h"
#include "daemon/items.h"
#include "daemon/wire.h"

#define TOP_CONVERSATIONS 10

struct call {
    struct history *h;
    struct request *r;
    struct arena arena;
};

static void set_seconds(json *o, const char *key, int64_t us)
{
    json_set_num(o, key, (double)us / 1e6);
}

static void set_sums(json *o, const struct memory_savings *s)
{
    json_set_int(o, "turns", s->turns);
    json_set_int(o, "prompt_tokens", s->prompt_tokens);
    json_set_int(o, "completion_tokens", s->completion_tokens);
    json_set_int(o, "cached_tokens", s->cached_ram + s->cached_disk);
    json_set_int(o, "ram", s->cached_ram);
    json_set_int(o, "disk", s->cached_disk);
    json_set_int(o, "shared", s->cached_shared);
    json_set_int(o, "computed", s->computed_tokens);
    set_seconds(o, "saved_s", s->saved_us);
    set_seconds(o, "prefill_s", s->prefill_us);
    set_seconds(o, "restore_s", s->restore_us);
    json *misses = json_set(o, "misses", json_object());
    for (size_t i = 0; i < s->n_misses; i++)
        json_set_int(misses, s->misses[i].reason, s->misses[i].n);
}

/* ---- a conversation ---- */

static json *turn_cache(const struct memory_turn_entry *e)
{
    const struct memory_turn *t = &e->turn;
    json *o = json_object();
    json_set_int(o, "tokens", t->cached_tokens);
    json_set_int(o, "ram", t->cached_ram);
    json_set_int(o, "disk", t->cached_disk);
    json_set_int(o, "shared", t->cached_shared);
    json_set_int(o, "computed", t->computed_tokens);
    json_set_num(o, "saved_ms", wire_ms(t->saved_us));
    if (!t->miss_reason) {
        json_set_null(o, "miss");
        return o;
    }
    json *miss = json_set(o, "miss", json_object());
    json_set_str(miss, "reason", t->miss_reason);
    if (t->miss_at < 0)
        json_set_null(miss, "at_message");
    else
        json_set_int(miss, "at_message", t->miss_at);
    if (*e->miss_id)
        json_set_str(miss, "message", e->miss_id);
    return o;
}

static json *turn_json(const struct memory_turn_entry *e)
{
    const struct memory_turn *t = &e->turn;
    json *o = json_object();
    json_set_str(o, "id", e->answer_id);
    json_set_int(o, "created_at", e->created_at);
    json_set_str(o, "finish", t->finish);
    json_set_int(o, "prompt_tokens", t->prompt_tokens);
    json_set_int(o, "completion_tokens", t->completion_tokens);
    json_set(o, "cache", turn_cache(e));
    json *timings = json_set(o, "timings", json_object());
    json_set_num(timings, "queue_ms", wire_ms(t->queue_us));
    json_set_num(timings, "restore_ms", wire_ms(t->restore_us));
    json_set_num(timings, "prefill_ms", wire_ms(t->prefill_us));
    json_set_num(timings, "ttft_ms", wire_ms(t->ttft_us));
    json_set_num(timings, "decode_ms", wire_ms(t->decode_us));
    return o;
}

static int savings(struct call *k, const char *id, struct http_error *ret)
{
    struct err e;
    struct memory *m = k->h->memory;
    struct memory_conversation c;
    struct memory_page page;
    struct memory_turns turns;
    struct memory_savings sums;
    if (memory_conversation_find(m, k->r->owner, id, &c, &k->arena, &e))
        return items_error(ret, &e, "conversation_id");
    int rc = items_page(k->r, &k->arena, &page, ret);
    if (rc)
        return rc;
    if (memory_turn_list(m, c.row, &page, &turns, &k->arena, &e))
        return items_error(ret, &e, "after");
    if (memory_savings_of_conversation(m, c.row, &sums, &e))
        return items_error(ret, &e, NULL);
    json *o = json_object();
    json_set_str(o, "object", "hearth.savings");
    json_set_str(o, "conversation", c.id);
    json_set_str(o, "title", c.title);
    set_sums(json_set(o, "savings", json_object()), &sums);
    json *data = json_array();
    for (size_t i = 0; i < turns.n; i++)
        json_add(data, turn_json(&turns.v[i]));
    json_set(o, "turns", list_json(data, turns.has_more));
    history_reply_json(k->h, k->r, 200, o);
    return HANDLED;
}

int api_savings(struct history *h, struct request *r, const struct route_args *args,
                struct http_error *ret)
{
    struct call k = {.h = h, .r = r};
    arena_init(&k.arena, ITEMS_ARENA_BYTES);
    int rc = savings(&k, args->v[0], ret);
    arena_done(&k.arena);
    return rc;
}

/* ---- an owner ---- */

static int add_top(struct call *k, json *to, struct err *e)
{
    struct memory *m = k->h->memory;
    int64_t rows[TOP_CONVERSATIONS];
    size_t n;
    int rc = memory_savings_top(m, k->r->owner, rows, TOP_CONVERSATIONS, &n, e);
    for (size_t i = 0; rc == 0 && i < n; i++) {
        struct memory_conversation c;
        struct memory_savings sums;
        if ((rc = memory_conversation_by_row(m, rows[i], &c, &k->arena, e)) ||
            (rc = memory_savings_of_conversation(m, rows[i], &sums, e)))
            break;
        json *o = json_add(to, json_object());
        json_set_str(o, "id", c.id);
        json_set_str(o, "title", c.title);
        set_sums(o, &sums);
    }
    return rc;
}

static int stats(struct call *k, struct http_error *ret)
{
    struct err e;
    struct memory_savings all, now;
    json *o = json_object();
    json_set_str(o, "object", "hearth.stats");
    json *since = json_set(o, "since_start", json_object());
    account_since_start(k->h, k->r->owner, &now);
    json_set_num(since, "uptime_s",
                 (double)((clock_us() - k->h->d->t_started_us) / 1000) / 1000.0);
    set_sums(since, &now);
    json *total = json_set(o, "total", json_object());
    json *top = json_set(o, "conversations", json_array());
    if (memory_savings_of_owner(k->h->memory, k->r->owner, &all, &e) || add_top(k, top, &e)) {
        json_free(o);
        return items_error(ret, &e, NULL);
    }
    if (all.since)
        json_set_int(total, "since", all.since);
    else
        json_set_null(total, "since");
    set_sums(total, &all);
    history_reply_json(k->h, k->r, 200, o);
    return HANDLED;
}

int api_stats(struct history *h, struct request *r, const struct route_args *args,
              struct http_error *ret)
{
    (void)args;
    struct call k = {.h = h, .r = r};
    arena_init(&k.arena, ITEMS_ARENA_BYTES);
    int rc = stats(&k, ret);
    arena_done(&k.arena);
    return rc;
}
