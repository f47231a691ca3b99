/* A conversation's route: what its handlers share. See call.h. */
#include "daemon/call.h"

#include "daemon/body.h"
#include "daemon/items.h"

void call_init(struct call *k, struct history *h, struct request *r)
{
    *k = (struct call){.h = h, .r = r};
    arena_init(&k->arena, ITEMS_ARENA_BYTES);
}

void call_done(struct call *k)
{
    turn_free(k->t);
    json_free(k->body);
    arena_done(&k->arena);
}

int call_find(struct call *k, const char *id, struct http_error *ret)
{
    struct err e;
    const int rc = memory_conversation_find(k->h->memory, k->r->owner, id, &k->c, &k->arena, &e);
    return rc ? items_error(ret, &e, "conversation_id") : 0;
}

int call_conversation(struct call *k, const char *id, struct http_error *ret)
{
    const int rc = call_find(k, id, ret);
    return rc == 0 && k->r->n_body > 0 ? body_parse(k->r, &k->body, ret) : rc;
}
