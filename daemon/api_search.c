/*
 * GET  /v1/hearth/search?q=…[&conversation=…][&limit=…][&offset=…]
 * POST /v1/hearth/search {"query", …}
 *
 *      {"object": "list", "data": [{"id", "conversation", "role", "created_at", "speaker", "text",
 *       "snippet", "marks", "score", "why": […]}], "has_more", "partial"}
 *
 * "marks" are the snippet's words that the query has too, by their stems: [[from, to], …], in bytes
 * of its UTF-8, ascending.
 *
 * Over all of the owner's conversations, or one. The words of a query are never syntax. The same
 * ranking that recall uses (memory/search.h).
 */
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "daemon/body.h"
#include "daemon/embedder.h"
#include "daemon/history.h"
#include "daemon/items.h"
#include "memory/vectors.h"

#define LIMIT_DEFAULT 10
#define SNIPPET_BYTES 240
#define MARKS_MAX 64 /* of a snippet */

struct call {
    struct history *h;
    struct request *r;
    struct arena arena;
    json *body;
    struct memory_query q;
    const char *conversation; /* id, or NULL */
};

/* A parameter of the address, in the arena; NULL: absent. */
static int query_str(struct call *k, const char *name, const char **ret_value,
                     struct http_error *ret)
{
    char *value = NULL;
    if (request_query(k->r, name, &value))
        return 0;
    *ret_value = arena_str(&k->arena, value);
    free(value);
    return *ret_value ? 0 : http_out_of_memory(ret, "the request");
}

static int query_int(struct call *k, const char *name, int *ret_value, struct http_error *ret)
{
    const char *text = NULL;
    char *end = NULL;
    int rc = query_str(k, name, &text, ret);
    if (rc || !text)
        return rc;
    const long v = strtol(text, &end, 10);
    if (end == text || *end || v < 0 || v > SEARCH_POOL)
        return body_refused(ret, "invalid_value", name, "%s is \"%.32s\"; 0 to %d is expected",
                            name, text, SEARCH_POOL);
    *ret_value = (int)v;
    return 0;
}

static int read_query(struct call *k, struct http_error *ret)
{
    int rc;
    if ((rc = query_str(k, "q", &k->q.text, ret)) ||
        (rc = query_str(k, "conversation", &k->conversation, ret)) ||
        (rc = query_int(k, "limit", &k->q.limit, ret)))
        return rc;
    return query_int(k, "offset", &k->q.offset, ret);
}

static int read_body(struct call *k, struct http_error *ret)
{
    int64_t limit = k->q.limit, offset = 0;
    int rc = body_parse(k->r, &k->body, ret);
    if (rc || (rc = body_str(k->body, "query", "query", &k->q.text, ret)) ||
        (rc = body_str(k->body, "conversation", "conversation", &k->conversation, ret)) ||
        (rc = body_int(k->body, "limit", (struct body_range){1, SEARCH_LIMIT_MAX}, &limit, ret)) ||
        (rc = body_int(k->body, "offset", (struct body_range){0, SEARCH_POOL}, &offset, ret)))
        return rc;
    k->q.limit = (int)limit;
    k->q.offset = (int)offset;
    return 0;
}

static int complete(struct call *k, struct http_error *ret)
{
    struct memory_conversation c;
    struct err e;
    if (k->conversation &&
        memory_conversation_find(k->h->memory, k->r->owner, k->conversation, &c, &k->arena, &e))
        return items_error(ret, &e, "conversation");
    if (!k->q.text)
        return body_refused(ret, "invalid_value", "query", "there is nothing to search for");
    k->q.n_text = strlen(k->q.text);
    if (k->q.limit < 1 || k->q.limit > SEARCH_LIMIT_MAX ||
        k->q.limit + k->q.offset > SEARCH_POOL)
        return body_refused(ret, "invalid_value", "limit",
                            "limit is 1 to %d, and with offset (%d) at most %d; it is %d",
                            SEARCH_LIMIT_MAX, k->q.offset, SEARCH_POOL, k->q.limit);
    if (k->conversation)
        k->q.conversation = c.row;
    return 0;
}

static void set_marks(const struct call *k, json *hit, const struct buf *snippet)
{
    struct memory_mark marks[MARKS_MAX];
    const size_t n = memory_marks(k->h->memory, &k->q, snippet, marks, MARKS_MAX);
    json *v = json_set(hit, "marks", json_array());
    for (size_t i = 0; i < n; i++) {
        json *pair = json_add(v, json_array());
        json_add_int(pair, (int64_t)marks[i].from);
        json_add_int(pair, (int64_t)marks[i].to);
    }
}

static json *hit_json(const struct call *k, const struct memory_hit *hit)
{
    static const struct {
        unsigned bit;
        const char *name;
    } whys[] = {{MEMORY_WHY_TERMS, "terms"},
                {MEMORY_WHY_NEIGHBOUR, "neighbour"},
                {MEMORY_WHY_SPEAKER, "speaker"},
                {MEMORY_WHY_MEANING, "meaning"}};
    struct buf snippet;
    json *o = json_object();
    buf_init(&snippet, SNIPPET_BYTES + 64);
    memory_snippet(k->h->memory, &k->q, hit, SNIPPET_BYTES, &snippet);
    json_set_str(o, "id", hit->id);
    json_set_str(o, "object", "hearth.hit");
    json_set_str(o, "conversation", hit->conversation_id);
    json_set_str(o, "role",
                 hit->role == MEMORY_ASSISTANT ? "assistant"
                 : hit->role == MEMORY_SYSTEM  ? "system"
                                               : "user");
    json_set_int(o, "created_at", hit->created_at);
    if (hit->speaker[0])
        json_set_str(o, "speaker", hit->speaker);
    else
        json_set_null(o, "speaker");
    json_set_strn(o, "text", hit->text, hit->n_text);
    json_set_strn(o, "snippet", snippet.data ? snippet.data : "", snippet.len);
    set_marks(k, o, &snippet);
    json_set_num(o, "score", hit->score);
    json *why = json_set(o, "why", json_array());
    for (size_t i = 0; i < sizeof whys / sizeof *whys; i++)
        if (hit->why & whys[i].bit)
            json_add_str(why, whys[i].name);
    buf_done(&snippet);
    return o;
}

static int search(struct call *k, struct http_error *ret)
{
    struct memory_hits hits;
    struct err e;
    float *vector = embedder_query(k->h, &k->q);
    int rc = memory_recall_both(k->h->memory, &k->q, vector, &hits, &k->arena, &e);
    free(vector);
    if (rc)
        return items_error(ret, &e, "query");
    json *data = json_array();
    for (size_t i = 0; i < hits.n; i++)
        json_add(data, hit_json(k, &hits.v[i]));
    json *o = list_json(data, hits.has_more);
    json_set_bool(o, "partial", hits.is_partial || hits.is_damaged);
    history_reply_json(k->h, k->r, 200, o);
    return HANDLED;
}

int api_search(struct history *h, struct request *r, const struct route_args *args,
               struct http_error *ret)
{
    struct call k = {.h = h, .r = r};
    (void)args;
    k.q = (struct memory_query){.owner = r->owner, .limit = LIMIT_DEFAULT, .now = clock_wall_s(),
                                .is_search = true};
    arena_init(&k.arena, ITEMS_ARENA_BYTES);
    int rc = strcmp(r->method, "POST") == 0 ? read_body(&k, ret) : read_query(&k, ret);
    if (rc == 0)
        rc = complete(&k, ret);
    if (rc == 0)
        rc = search(&k, ret);
    json_free(k.body);
    arena_done(&k.arena);
    return rc;
}
