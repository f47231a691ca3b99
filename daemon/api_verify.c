/*
 * POST /v1/hearth/verify: are the cached blocks the bytes that the model computes?
 *
 *      {["conversation": "conv_…"]}  → {"object": "hearth.verify", "conversations", "blocks",
 *          "positions", "ram", "disk", "missing", "other_model",
 *          "model", "model_by", "different": [{"conversation",
 *          "block", "position", "where": "block" | "file", "removed_blocks"}], "has_more", "ms"}
 *
 * blocks, positions: how many were checked, all branches of the conversations and partial blocks
 * among them; ram, disk: how many of the blocks were compared there, many of them in both; missing:
 * blocks that were read for the conversations and are cached no more; other_model: those that the
 * disk has for another model, which can't be computed now. where: "file" when RAM had
 * the right bytes.
 *
 * By the model that ?model= names, or the one that answered last in the conversation, or the
 * default.
 *
 * Without a conversation: all of the owner's, the last used ones if they are many ("has_more"). The
 * answer to this request comes from the worker (verify.h).
 */
#include <stdio.h>

#include "daemon/body.h"
#include "daemon/history.h"
#include "daemon/items.h"
#include "daemon/limits.h"
#include "daemon/served.h"
#include "daemon/verify.h"
#include "daemon/wire.h"

struct call {
    struct history *h;
    struct request *r;
    struct arena arena;
    json *body;
    struct memory_conversations found;
    struct verify *verify;
    bool is_named; /* one conversation */
};

static int find(struct call *k, struct http_error *ret)
{
    struct err e;
    const char *id = NULL;
    int rc = 0;
    if (k->r->n_body > 0 && (rc = body_parse(k->r, &k->body, ret)))
        return rc;
    if (k->body && (rc = body_str(k->body, "conversation", "conversation", &id, ret)))
        return rc;
    if (!id) {
        const struct memory_page page = {.limit = LIMIT_VERIFY_CONVERSATIONS};
        rc = memory_conversation_list(k->h->memory, k->r->owner, &page, &k->found, &k->arena, &e);
        return rc ? items_error(ret, &e, NULL) : 0;
    }
    k->found.v = arena_array(&k->arena, 1, sizeof *k->found.v);
    if (!k->found.v)
        return http_out_of_memory(ret, "the request");
    k->found.n = 1;
    k->is_named = true;
    rc = memory_conversation_find(k->h->memory, k->r->owner, id, k->found.v, &k->arena, &e);
    return rc ? items_error(ret, &e, "conversation") : 0;
}

static int list_blocks(struct call *k, const struct memory_conversation *c, struct verify_one *to,
                       struct http_error *ret)
{
    struct err e;
    snprintf(to->id, sizeof to->id, "%s", c->id);
    to->who = (uint64_t)c->row;
    const int rc = memory_blocks_of(k->h->memory, c->row, false, &to->blocks, &to->n_blocks, &e);
    return rc ? items_error(ret, &e, NULL) : 0;
}

static int prepare(struct call *k, struct http_error *ret)
{
    int rc = find(k, ret);
    if (rc == 0)
        rc = k->is_named ? served_choose_conversation(k->h, k->r, k->found.v, ret)
                         : served_choose_query(k->h, k->r, ret);
    if (rc)
        return rc;
    k->verify = verify_new(k->r, k->found.n);
    if (!k->verify)
        return http_out_of_memory(ret, "the request");
    k->verify->has_more = k->found.has_more;
    k->verify->served = k->h->served;
    k->verify->model_by = k->h->model_by;
    for (size_t i = 0; i < k->found.n && !rc; i++)
        rc = list_blocks(k, &k->found.v[i], &k->verify->v[i], ret);
    return rc;
}

int api_verify(struct history *h, struct request *r, const struct route_args *args,
               struct http_error *ret)
{
    (void)args;
    struct call k = {.h = h, .r = r};
    arena_init(&k.arena, ITEMS_ARENA_BYTES);
    int rc = prepare(&k, ret);
    if (rc == 0 && mailbox_push(&h->d->worker, &k.verify->mail)) {
        k.verify = NULL;
    } else if (rc == 0) {
        http_error_set(ret, 503, "stopping", NULL, "the daemon is stopping");
        rc = ERR_BUSY;
    }
    verify_free(k.verify);
    json_free(k.body);
    arena_done(&k.arena);
    return rc;
}
