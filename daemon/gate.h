/*
 * What is decided when a request's head is there and its body isn't: who asks, whether they may,
 * and whether the path exists. Pure.
 */
#ifndef HEARTH_DAEMON_GATE_H
#define HEARTH_DAEMON_GATE_H

#include <stdbool.h>

#include "daemon/http.h"
#include "daemon/owner.h"
#include "daemon/route.h"

/* The connection's side. */
struct gate {
    bool is_tcp;
    const struct keys *keys; /* TCP */
    const char *cors_origin; /* TCP: the one Origin that may call, or NULL */
    const char *unix_owner;  /* Unix: "uid:N", or "" if denied */
    const char *denied;      /* Unix: why this peer may not ask, or "" */
};

struct gate_pass {
    char owner[OWNER_BYTES];
    const struct route *route; /* NULL: OPTIONS, answered by 204 */
    const char *allow;         /* for Allow: of a 405, or of OPTIONS; else NULL */
    bool is_cors;              /* the Origin is the allowed one: say so in the answer */
    bool wants_key;            /* a 401: WWW-Authenticate */
};

/* 0, or −1 with the error to answer; *ret is filled as far as it is known in both cases. */
int gate_check(const struct gate *g, const struct http_head *head, struct gate_pass *ret,
               struct http_error *bad);

#endif
