/*
 * What a handler of a conversation's route begins with and ends with: an arena for what it reads of
 * the database, the conversation that the path names, and the body.
 *
 *     struct call k;
 *     call_init(&k, h, r);
 *     int rc = call_conversation(&k, args->v[0], ret);
 *     …
 *     call_done(&k);
 */
#ifndef HEARTH_DAEMON_CALL_H
#define HEARTH_DAEMON_CALL_H

#include "base/arena.h"
#include "base/json.h"
#include "daemon/history.h"
#include "daemon/turn.h"
#include "memory/memory.h"

struct call {
    struct history *h;
    struct request *r;
    struct arena arena;
    struct memory_conversation c; /* of call_find; its strings are the arena's */
    json *body;                   /* or NULL: there is none */
    struct turn *t;               /* the handler's, freed by call_done; or NULL */
};

void call_init(struct call *k, struct history *h, struct request *r);
void call_done(struct call *k);

/* k->c by its id, of the request's owner; 0, or 404 and the like in *ret. */
int call_find(struct call *k, const char *id, struct http_error *ret) MUST_USE;
/* The same, and k->body if the request has one; 0, or 400 and the like in *ret. */
int call_conversation(struct call *k, const char *id, struct http_error *ret) MUST_USE;

#endif
