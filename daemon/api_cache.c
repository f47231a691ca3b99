/*
 * /v1/hearth/cache: what the prefix cache has for the one who asks.
 *
 *      GET                                 a page of conversations, as lists are: {"id", "title",
 *                                          "ram": {"blocks", "bytes"}, "disk": the same,
 *                                          "pinned"}; and "hearth": {"ram": {"blocks", "bytes",
 *                                          "tails", "pinned"}, "disk": {"blocks", "bytes",
 *                                          "pinned"} or null, "block_bytes", "block_tokens",
 *                                          "pinned_max", "models": [{"id", "loaded", "ram",
 *                                          "disk", "block_bytes"}]} of all that is the owner's;
 *                                          block_bytes and pinned_max: --model's
 *      POST …/drop   {"conversation": ID}  what no other conversation uses goes
 *                    {"all": true}         all of the owner's, stateless calls' too (and the token
 *                                          ids of their answers), of all models whether they are
 *                                          loaded or not
 *                  → {"object": "hearth.cache.drop", "blocks", "kv_bytes", "kept": {"shared",
 *                    "pinned", "in_use"}}
 *      POST …/pin    {"conversation": ID [, "all": true]}     its system prompt's whole blocks, or
 *                                          all that its newest turn would read, as the model
 *                                          reads it that answered last (?model= names another)
 *                  → {"object": "hearth.cache.pin", "conversation", "pinned", "ram", "disk",
 *                    "model", "model_by"}
 *      POST …/unpin  {"conversation": ID}
 *                  → {"object": "hearth.cache.unpin", "conversation", "unpinned"}
 *
 * Nothing here touches what was said. A conversation's blocks are those that its turns used
 * (block_use) or that it pins; the numbers come from the worker (keep.h). Blocks are shared, so
 * that the conversations' numbers can add up to more than the whole.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "daemon/body.h"
#include "daemon/items.h"
#include "daemon/keep.h"
#include "daemon/limits.h"
#include "daemon/prepare.h"
#include "daemon/served.h"
#include "daemon/window.h"
#include "daemon/wire.h"

struct call {
    struct history *h;
    struct request *r;
    struct arena arena;
    json *body;
    struct memory_conversation c;
    struct keep *keep;
    bool is_all;
};

static void call_init(struct call *k, struct history *h, struct request *r)
{
    *k = (struct call){.h = h, .r = r};
    arena_init(&k->arena, ITEMS_ARENA_BYTES);
}

/* rc 0: asks the worker. */
static int call_done(struct call *k, int rc, struct http_error *ret)
{
    struct served *s = rc == 0 ? k->keep->served : NULL;
    if (rc == 0 && mailbox_push(&k->h->d->worker, &k->keep->mail)) {
        k->h->n_turns_out++;
        if (s)
            s->n_out++;
        k->keep = NULL;
    } else if (rc == 0) {
        http_error_set(ret, 503, "stopping", NULL, "the daemon is stopping");
        rc = ERR_BUSY;
    }
    keep_free(k->keep);
    json_free(k->body);
    arena_done(&k->arena);
    return rc;
}

static int begin(struct call *k, enum keep_op op, size_t n, struct http_error *ret)
{
    k->keep = keep_new(k->r, op, n);
    return k->keep ? 0 : http_out_of_memory(ret, "the request");
}

/* "conversation" and "all"; the conversation is found when it is named. */
static int read_body(struct call *k, struct http_error *ret)
{
    struct err e;
    const char *id = NULL;
    int rc;
    if ((rc = body_parse(k->r, &k->body, ret)) ||
        (rc = body_str(k->body, "conversation", "conversation", &id, ret)) ||
        (rc = body_bool(k->body, "all", "all", &k->is_all, ret)))
        return rc;
    if (!id)
        return 0;
    rc = memory_conversation_find(k->h->memory, k->r->owner, id, &k->c, &k->arena, &e);
    return rc ? items_error(ret, &e, "conversation") : 0;
}

static int need_conversation(const struct call *k, struct http_error *ret)
{
    if (k->c.row)
        return 0;
    return body_refused(ret, "invalid_value", "conversation", "conversation is missing");
}

static void name_part(struct keep_part *p, const struct memory_conversation *c)
{
    snprintf(p->id, sizeof p->id, "%s", c->id);
    p->row = c->row;
}

static int fill_part(struct call *k, size_t i, const struct memory_conversation *c, bool is_only,
                     struct http_error *ret)
{
    struct err e;
    struct keep_part *p = &k->keep->parts[i];
    name_part(p, c);
    return memory_blocks_of(k->h->memory, c->row, is_only, &p->ids, &p->n, &e)
               ? items_error(ret, &e, NULL)
               : 0;
}

/* All models that have left something, and those that are in memory in any case. */
static int fill_models(struct call *k, struct http_error *ret)
{
    const struct daemon *d = k->h->d;
    struct known known;
    known_read(d->config->use_cache ? d->config->cache_dir : NULL, &known);
    const size_t n_max = known.n + LIMIT_SERVED;
    struct keep_model *v = known.v ? calloc(n_max, sizeof *v) : NULL;
    size_t n = 0;
    for (size_t i = 0; v && i < known.n; i++)
        v[n++].m = known.v[i];
    for (int i = 0; v && i < atomic_load(&d->n_served); i++) {
        struct known_model m;
        bool is_there = !served_known(d->served[i], &m);
        for (size_t j = 0; j < n && !is_there; j++)
            is_there = memcmp(v[j].m.fingerprint, m.fingerprint, HASH_BYTES) == 0;
        if (!is_there)
            v[n++].m = m;
    }
    known_done(&known);
    k->keep->models = v;
    k->keep->n_models = n;
    return v ? 0 : http_out_of_memory(ret, "the request");
}

/* ---- list ---- */

static int list(struct call *k, struct http_error *ret)
{
    struct err e;
    struct memory_page page;
    struct memory_conversations found;
    int rc = items_page(k->r, &k->arena, &page, ret);
    if (rc)
        return rc;
    if (memory_conversation_list(k->h->memory, k->r->owner, &page, &found, &k->arena, &e))
        return items_error(ret, &e, "after");
    if ((rc = begin(k, KEEP_LIST, found.n, ret)) || (rc = fill_models(k, ret)))
        return rc;
    k->keep->has_more = found.has_more;
    for (size_t i = 0; i < found.n; i++) {
        struct keep_part *p = &k->keep->parts[i];
        if ((rc = fill_part(k, i, &found.v[i], false, ret)))
            return rc;
        if (!(p->title = strdup(found.v[i].title)))
            return http_out_of_memory(ret, "the request");
        if (memory_block_pin_count(k->h->memory, p->row, &p->n_own_pins, &e))
            return items_error(ret, &e, NULL);
    }
    return 0;
}

int api_cache_list(struct history *h, struct request *r, const struct route_args *args,
                   struct http_error *ret)
{
    struct call k;
    (void)args;
    call_init(&k, h, r);
    int rc = list(&k, ret);
    return call_done(&k, rc, ret);
}

/* ---- drop ---- */

static int drop(struct call *k, struct http_error *ret)
{
    struct err e;
    int rc = read_body(k, ret);
    if (rc)
        return rc;
    if (k->is_all == (k->c.row != 0))
        return body_refused(ret, "invalid_value", "conversation",
                            "either conversation or all: true is expected");
    if (k->is_all && memory_reply_drop_all(k->h->memory, k->r->owner, &e)) {
        http_error_from(ret, &e);
        return e.code;
    }
    if (k->is_all) {
        rc = begin(k, KEEP_DROP_ALL, 0, ret);
        return rc ? rc : fill_models(k, ret);
    }
    if ((rc = begin(k, KEEP_DROP, 2, ret)) || (rc = fill_part(k, 0, &k->c, true, ret)) ||
        (rc = fill_part(k, 1, &k->c, false, ret)))
        return rc;
    return 0;
}

int api_cache_drop(struct history *h, struct request *r, const struct route_args *args,
                   struct http_error *ret)
{
    struct call k;
    (void)args;
    call_init(&k, h, r);
    int rc = drop(&k, ret);
    return call_done(&k, rc, ret);
}

/* ---- pin ---- */

/* The window's ids; *ret_n: how many of them the pin is about. */
static int render(struct call *k, struct turn *t, struct ids *ids, size_t *ret_n,
                  struct http_error *ret)
{
    struct err e;
    size_t n_head = 0;
    int rc = window_load(k->h, t, k->c.tip, 0, ret);
    if (rc)
        return rc;
    while (n_head < t->window.n && t->window.v[n_head].role == CHAT_SYSTEM)
        n_head++;
    size_t *starts = arena_array(&t->arena, t->window.n + 1, sizeof *starts);
    if (!starts)
        return http_out_of_memory(ret, "the request");
    if (n_head == 0 && !k->is_all)
        return body_refused(ret, "invalid_value", "conversation",
                            "%s has no system prompt; all: true pins all of it", k->c.id);
    if (t->window.n_above > 0 && k->is_all)
        return body_refused(ret, "context_length_exceeded", "conversation",
                            "%s is longer than the window and was never cut: no turn has read it",
                            k->c.id);
    if (t->window.n == 0)
        return body_refused(ret, "invalid_value", "conversation", "%s has no messages", k->c.id);
    struct chat_rendering rendering = {.ids = ids, .starts = starts};
    if ((rc = chat_render(engine_chat(k->h->engine), t->window.v, t->window.n, false, &rendering,
                          &e))) {
        http_error_from(ret, &e);
        return rc;
    }
    const size_t n_max = (size_t)k->h->ctx;
    *ret_n = k->is_all ? ids->n : starts[n_head];
    *ret_n = *ret_n < n_max ? *ret_n : n_max; /* no turn could have read more */
    return 0;
}

/* What is to be pinned, into the first part. */
static int find_blocks(struct call *k, struct ids *ids, struct turn *t, struct http_error *ret)
{
    struct cache_root root;
    struct keep_part *p = &k->keep->parts[0];
    size_t n_tokens = 0;
    int rc = render(k, t, ids, &n_tokens, ret);
    if (rc)
        return rc;
    const size_t n = n_tokens / KV_BLOCK;
    if (n == 0)
        return body_refused(ret, "invalid_value", "conversation",
                            "%s: %zu tokens fill no block of %d, so there is nothing to pin",
                            k->c.id, n_tokens, KV_BLOCK);
    if (!(p->ids = malloc(n * HASH_BYTES)))
        return http_out_of_memory(ret, "the request");
    cache_root_of(engine_info(k->h->engine)->fingerprint, k->r->owner, &root);
    p->n = cache_chain(&root, ids->v, n * KV_BLOCK, p->ids, n);
    name_part(p, &k->c);
    return 0;
}

/* Stores the pins `to`; what that unpins goes to part `at`, what was pinned before to the next. */
static int store_pins(struct call *k, const struct memory_block_pin *to, size_t at,
                      struct http_error *ret)
{
    struct err e;
    struct memory_removed gone = {0};
    struct keep_part *only = &k->keep->parts[at], *all = &k->keep->parts[at + 1];
    name_part(only, &k->c);
    name_part(all, &k->c);
    if (memory_block_pin_get(k->h->memory, k->c.row, &all->ids, &all->n, k->keep->model, &e) ||
        memory_block_pin_set(k->h->memory, k->c.row, to, &gone, &e))
        return items_error(ret, &e, NULL);
    only->ids = gone.unpinned;
    only->n = gone.n_unpinned;
    return 0;
}

static int pin(struct call *k, struct http_error *ret)
{
    struct ids ids;
    int rc;
    if ((rc = read_body(k, ret)) || (rc = need_conversation(k, ret)) ||
        (rc = served_choose_conversation(k->h, k->r, &k->c, ret)) ||
        (rc = begin(k, KEEP_PIN, 3, ret)))
        return rc;
    k->keep->served = k->h->served;
    k->keep->model_by = k->h->model_by;
    if (!engine_chat(k->h->engine)) {
        http_error_set(ret, 400, "unsupported_parameter", NULL,
                       "the model has no chat template, so there are no conversations of it");
        return ERR_UNSUPPORTED;
    }
    struct turn *t = turn_new(k->h, k->r, &wire_chat, "pin-");
    if (!t)
        return http_out_of_memory(ret, "the request");
    ids_init(&ids);
    rc = find_blocks(k, &ids, t, ret);
    ids_done(&ids);
    turn_free(t);
    if (rc)
        return rc;
    const struct memory_block_pin to = {.blocks = k->keep->parts[0].ids,
                                  .n = k->keep->parts[0].n,
                                  .model = engine_info(k->h->engine)->fingerprint};
    return store_pins(k, &to, 1, ret);
}

int api_cache_pin(struct history *h, struct request *r, const struct route_args *args,
                  struct http_error *ret)
{
    struct call k;
    (void)args;
    call_init(&k, h, r);
    int rc = pin(&k, ret);
    return call_done(&k, rc, ret);
}

static int unpin(struct call *k, struct http_error *ret)
{
    const struct memory_block_pin none = {.n = 0};
    int rc;
    if ((rc = read_body(k, ret)) || (rc = need_conversation(k, ret)) ||
        (rc = begin(k, KEEP_UNPIN, 2, ret)))
        return rc;
    return store_pins(k, &none, 0, ret);
}

int api_cache_unpin(struct history *h, struct request *r, const struct route_args *args,
                    struct http_error *ret)
{
    struct call k;
    (void)args;
    call_init(&k, h, r);
    int rc = unpin(&k, ret);
    return call_done(&k, rc, ret);
}

/* ---- the answers ---- */

static json *amount(json *o, const char *key, size_t n_blocks, uint64_t bytes)
{
    json *j = json_set(o, key, json_object());
    json_set_int(j, "blocks", (int64_t)n_blocks);
    json_set_int(j, "bytes", (int64_t)bytes);
    return j;
}

/* Of all models. */
static struct cache_usage sum_of(const struct keep *k)
{
    struct cache_usage sum = {0};
    for (size_t i = 0; i < k->n_models; i++) {
        const struct cache_usage *u = &k->models[i].usage;
        sum.n_ram += u->n_ram;
        sum.n_ram_tails += u->n_ram_tails;
        sum.n_ram_pinned += u->n_ram_pinned;
        sum.n_disk += u->n_disk;
        sum.n_disk_pinned += u->n_disk_pinned;
        sum.ram_bytes += u->ram_bytes;
        sum.disk_bytes += u->disk_bytes;
    }
    return sum;
}

static bool is_loaded(const struct history *h, const struct keep_model *m)
{
    struct known_model now;
    for (int i = 0; i < atomic_load(&h->d->n_served); i++)
        if (served_known(h->d->served[i], &now) &&
            memcmp(now.fingerprint, m->m.fingerprint, HASH_BYTES) == 0)
            return true;
    return false;
}

/* Those that have something, or are in memory. */
static json *models_reply(const struct history *h, const struct keep *k)
{
    json *list = json_array();
    for (size_t i = 0; i < k->n_models; i++) {
        const struct keep_model *m = &k->models[i];
        const bool is_in = is_loaded(h, m);
        if (!is_in && m->usage.n_ram + m->usage.n_disk == 0)
            continue;
        json *o = json_add(list, json_object());
        json_set_str(o, "id", m->m.id);
        json_set_bool(o, "loaded", is_in);
        amount(o, "ram", m->usage.n_ram, m->usage.ram_bytes);
        if (k->has_disk)
            amount(o, "disk", m->usage.n_disk, m->usage.disk_bytes);
        else
            json_set_null(o, "disk");
        json_set_int(o, "block_bytes", (int64_t)m->m.block_bytes);
    }
    return list;
}

static json *list_reply(const struct history *h, const struct keep *k)
{
    const struct cache_usage sum = sum_of(k), *u = &sum;
    json *data = json_array();
    for (size_t i = 0; i < k->n; i++) {
        const struct keep_part *p = &k->parts[i];
        json *o = json_add(data, json_object());
        json_set_str(o, "id", p->id);
        json_set_str(o, "title", p->title);
        amount(o, "ram", p->count.n_ram, p->count.ram_bytes);
        amount(o, "disk", p->count.n_disk, p->count.disk_bytes);
        json_set_int(o, "pinned", p->n_own_pins);
    }
    json *o = list_json(data, k->has_more);
    json *hearth = json_set(o, "hearth", json_object());
    json *ram = amount(hearth, "ram", u->n_ram, u->ram_bytes);
    json_set_int(ram, "tails", (int64_t)u->n_ram_tails);
    json_set_int(ram, "pinned", (int64_t)u->n_ram_pinned);
    if (k->has_disk)
        json_set_int(amount(hearth, "disk", u->n_disk, u->disk_bytes), "pinned",
                     (int64_t)u->n_disk_pinned);
    else
        json_set_null(hearth, "disk");
    json_set_int(hearth, "block_bytes", (int64_t)atomic_load(&h->d->served[0]->block_bytes));
    json_set_int(hearth, "block_tokens", KV_BLOCK);
    if (k->n_pins_max > 0)
        json_set_int(hearth, "pinned_max", (int64_t)k->n_pins_max);
    else
        json_set_null(hearth, "pinned_max");
    json_set(hearth, "models", models_reply(h, k));
    return o;
}

static json *drop_reply(const struct keep *k)
{
    json *o = json_object();
    json_set_str(o, "object", "hearth.cache.drop");
    if (k->op == KEEP_DROP)
        json_set_str(o, "conversation", k->parts[0].id);
    json_set_int(o, "blocks", (int64_t)k->gone.n_blocks);
    json_set_int(o, "kv_bytes", (int64_t)k->gone.bytes);
    json *kept = json_set(o, "kept", json_object());
    const size_t n_shared = k->op == KEEP_DROP ? k->parts[1].count.n_present -
                                                     k->parts[0].count.n_present
                                               : 0;
    json_set_int(kept, "shared", (int64_t)n_shared);
    json_set_int(kept, "pinned", (int64_t)k->n_pinned);
    json_set_int(kept, "in_use", (int64_t)k->n_in_use);
    return o;
}

static json *pin_reply(const struct keep *k)
{
    json *o = json_object();
    const struct keep_part *p = &k->parts[0];
    json_set_str(o, "object", "hearth.cache.pin");
    json_set_str(o, "conversation", p->id);
    json_set_int(o, "pinned", (int64_t)p->n);
    json_set_int(o, "ram", (int64_t)p->count.n_ram);
    json_set_int(o, "disk", (int64_t)p->count.n_disk);
    json_set_str(o, "model", k->served->id);
    json_set_str(o, "model_by", k->model_by);
    return o;
}

static json *unpin_reply(const struct keep *k)
{
    json *o = json_object();
    json_set_str(o, "object", "hearth.cache.unpin");
    json_set_str(o, "conversation", k->parts[0].id);
    json_set_int(o, "unpinned", (int64_t)k->parts[1].n);
    return o;
}

/* The pins as they were before one that was refused. */
static void restore_pins(struct history *h, struct keep *k)
{
    const struct keep_part *old = &k->parts[2];
    const struct memory_block_pin to = {.blocks = old->ids, .n = old->n, .model = k->model};
    struct memory_removed gone = {0};
    struct err e;
    if (memory_block_pin_set(h->memory, k->parts[0].row, &to, &gone, &e))
        log_warn("a refused pin of conversation %s is still stored: %s", k->parts[0].id, e.text);
    memory_removed_done(&gone);
}

void keep_done(struct history *h, struct keep *k)
{
    const struct request to = {.conn = k->conn};
    h->n_turns_out--;
    if (k->served)
        k->served->n_out--;
    if (k->rc) {
        struct http_error error = {.status = 0};
        if (k->op == KEEP_PIN)
            restore_pins(h, k);
        http_error_from(&error, &k->err);
        if (k->rc == ERR_LIMIT)
            error.code = "pin_limit";
        reply_error(h->d, k->conn, &error, false);
        keep_free(k);
        return;
    }
    json *o = NULL;
    switch (k->op) {
    case KEEP_LIST:
        o = list_reply(h, k);
        break;
    case KEEP_DROP:
    case KEEP_DROP_ALL:
        o = drop_reply(k);
        break;
    case KEEP_PIN:
        o = pin_reply(k);
        break;
    case KEEP_UNPIN:
        o = unpin_reply(k);
        break;
    }
    history_reply_json(h, &to, 200, o);
    keep_free(k);
}
