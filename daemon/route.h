/*
 * Which paths exist, known before the body is read: an unknown one is a 404 and a wrong method a
 * 405 with Allow, whatever the body would have said. The handlers are the history thread's
 * (history.c); a new endpoint is a line in both tables.
 */
#ifndef HEARTH_DAEMON_ROUTE_H
#define HEARTH_DAEMON_ROUTE_H

#include <stdbool.h>

enum route_methods { ROUTE_GET = 1, ROUTE_POST = 2, ROUTE_DELETE = 4 };

enum route_kind {
    ROUTE_HISTORY, /* answered by the history thread */
    ROUTE_TURN,    /* likewise, and it makes a turn: POST takes a place */
    ROUTE_HEALTH,  /* the loop's own */
    ROUTE_METRICS,
};

struct route {
    const char *pattern; /* "{}" stands for one segment, "{*}" at the end for one or more */
    int methods;         /* set of enum route_methods; GET stands for HEAD too */
    enum route_kind kind;
};

/* The route of a decoded path, or NULL. */
const struct route *route_find(const char *path);
/* Whether the method is one of the route's. */
bool route_allows(const struct route *r, const char *method);
/* "GET, HEAD, OPTIONS" … static. NULL (any path: "OPTIONS *") gives all. */
const char *route_allow(const struct route *r);

#endif
