/*
 * The gate. On TCP any program and any web page of this machine can knock: so the Host must name
 * loopback (a page whose name was pointed here says another), an Origin must be the configured one,
 * and a key is always asked for — but of a CORS preflight, which by its standard carries none and
 * is answered with headers only.
 */
#include "daemon/gate.h"

#include <stdio.h>
#include <string.h>

static int check_tcp(const struct gate *g, const struct http_head *head, struct gate_pass *ret,
                     struct http_error *bad)
{
    if (head->host && !owner_host_is_loopback(head->host)) {
        http_error_set(bad, 403, "host_not_allowed", NULL,
                       "Host is \"%.100s\", but only localhost, 127.x.x.x and [::1] are answered",
                       head->host);
        return -1;
    }
    if (head->origin && !(g->cors_origin && strcmp(head->origin, g->cors_origin) == 0)) {
        http_error_set(
            bad, 403, "origin_not_allowed", NULL,
            "pages of the origin \"%.100s\" may not call here (cors-origin names the one that may)",
            head->origin);
        return -1;
    }
    ret->is_cors = head->origin != NULL;
    bool is_preflight = ret->is_cors && strcmp(head->method, "OPTIONS") == 0;
    if (is_preflight || (g->keys && keys_find(g->keys, head->authorization, ret->owner)))
        return 0;
    ret->wants_key = true;
    http_error_set(bad, 401, "invalid_api_key", NULL, "%s",
                   head->authorization
                       ? "this API key is not known here (Authorization: Bearer KEY)"
                       : "an API key is needed: Authorization: Bearer KEY");
    return -1;
}

static int check_unix(const struct gate *g, struct gate_pass *ret, struct http_error *bad)
{
    if (g->denied[0]) {
        http_error_set(bad, 403, "user_not_allowed", NULL, "%s", g->denied);
        return -1;
    }
    snprintf(ret->owner, sizeof(ret->owner), "%s", g->unix_owner);
    return 0;
}

int gate_check(const struct gate *g, const struct http_head *head, struct gate_pass *ret,
               struct http_error *bad)
{
    *ret = (struct gate_pass){.owner = ""};
    int rc = g->is_tcp ? check_tcp(g, head, ret, bad) : check_unix(g, ret, bad);
    if (rc < 0)
        return rc;
    bool is_options = strcmp(head->method, "OPTIONS") == 0;
    const struct route *route = route_find(head->path);
    if (is_options && (route || strcmp(head->path, "*") == 0)) {
        ret->allow = route_allow(route);
        return 0;
    }
    if (!route) {
        http_error_set(bad, 404, "unknown_path", NULL, "there is no %.200s here", head->path);
        return -1;
    }
    if (!route_allows(route, head->method)) {
        ret->allow = route_allow(route);
        http_error_set(bad, 405, "method_not_allowed", NULL, "%s is not for %.200s; allowed are %s",
                       head->method, head->path, ret->allow);
        return -1;
    }
    ret->route = route;
    return 0;
}
