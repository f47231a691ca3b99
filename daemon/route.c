/* The table of paths, and matching by segments. */
#include "daemon/route.h"

#include <stddef.h>
#include <string.h>

static const struct route routes[] = {
    {"/health", ROUTE_GET, ROUTE_HEALTH},
    {"/metrics", ROUTE_GET, ROUTE_METRICS},
    {"/v1/chat/completions", ROUTE_POST, ROUTE_TURN},
    {"/v1/completions", ROUTE_POST, ROUTE_TURN},
    {"/v1/responses", ROUTE_POST, ROUTE_TURN},
    {"/v1/responses/input_tokens", ROUTE_POST, ROUTE_HISTORY},
    {"/v1/responses/{}", ROUTE_GET | ROUTE_DELETE, ROUTE_HISTORY},
    {"/v1/responses/{}/input_items", ROUTE_GET, ROUTE_HISTORY},
    {"/v1/conversations", ROUTE_GET | ROUTE_POST, ROUTE_HISTORY},
    {"/v1/conversations/{}", ROUTE_GET | ROUTE_POST | ROUTE_DELETE, ROUTE_HISTORY},
    {"/v1/conversations/{}/items", ROUTE_GET | ROUTE_POST, ROUTE_HISTORY},
    {"/v1/conversations/{}/items/{}", ROUTE_GET | ROUTE_DELETE, ROUTE_HISTORY},
    {"/v1/models", ROUTE_GET, ROUTE_HISTORY},
    {"/v1/models/{*}", ROUTE_GET, ROUTE_HISTORY}, /* ids of models may hold slashes */
    {"/tokenize", ROUTE_POST, ROUTE_HISTORY},
    {"/v1/embeddings", ROUTE_POST, ROUTE_HISTORY},
    {"/v1/hearth/models", ROUTE_GET, ROUTE_HISTORY},
    {"/v1/hearth/status", ROUTE_GET, ROUTE_HISTORY},
    {"/v1/hearth/stats", ROUTE_GET, ROUTE_HISTORY},
    {"/v1/hearth/conversations/{}/savings", ROUTE_GET, ROUTE_HISTORY},
    {"/v1/hearth/conversations/{}/context", ROUTE_GET | ROUTE_POST, ROUTE_HISTORY},
    {"/v1/hearth/conversations/{}/dropped", ROUTE_GET, ROUTE_HISTORY},
    {"/v1/hearth/conversations/{}/cut", ROUTE_POST, ROUTE_HISTORY},
    {"/v1/hearth/conversations/{}/summary", ROUTE_GET | ROUTE_POST, ROUTE_HISTORY},
    {"/v1/hearth/conversations/{}/pins", ROUTE_GET | ROUTE_POST, ROUTE_HISTORY},
    {"/v1/hearth/conversations/{}/pins/{}", ROUTE_DELETE, ROUTE_HISTORY},
    {"/v1/hearth/search", ROUTE_GET | ROUTE_POST, ROUTE_HISTORY},
    {"/v1/hearth/verify", ROUTE_POST, ROUTE_HISTORY},
    {"/v1/hearth/cache", ROUTE_GET, ROUTE_HISTORY},
    {"/v1/hearth/cache/drop", ROUTE_POST, ROUTE_HISTORY},
    {"/v1/hearth/cache/pin", ROUTE_POST, ROUTE_HISTORY},
    {"/v1/hearth/cache/unpin", ROUTE_POST, ROUTE_HISTORY},
};

static bool matches(const char *pattern, const char *path)
{
    while (*pattern) {
        if (strcmp(pattern, "{*}") == 0)
            return *path != '\0';
        if (strncmp(pattern, "{}", 2) == 0) {
            size_t n = strcspn(path, "/");
            if (n == 0)
                return false;
            path += n;
            pattern += 2;
        } else if (*pattern++ != *path++) {
            return false;
        }
    }
    return *path == '\0';
}

const struct route *route_find(const char *path)
{
    for (size_t i = 0; i < sizeof(routes) / sizeof(routes[0]); i++)
        if (matches(routes[i].pattern, path))
            return &routes[i];
    return NULL;
}

static int method_bit(const char *method)
{
    if (strcmp(method, "GET") == 0 || strcmp(method, "HEAD") == 0)
        return ROUTE_GET;
    if (strcmp(method, "POST") == 0)
        return ROUTE_POST;
    return strcmp(method, "DELETE") == 0 ? ROUTE_DELETE : 0;
}

bool route_allows(const struct route *r, const char *method)
{
    return (r->methods & method_bit(method)) != 0;
}

const char *route_allow(const struct route *r)
{
    static const char *const allow[8] = {
        "OPTIONS",
        "GET, HEAD, OPTIONS",
        "POST, OPTIONS",
        "GET, HEAD, POST, OPTIONS",
        "DELETE, OPTIONS",
        "GET, HEAD, DELETE, OPTIONS",
        "POST, DELETE, OPTIONS",
        "GET, HEAD, POST, DELETE, OPTIONS",
    };
    return allow[r ? r->methods & 7 : 7];
}
