/*
 * GET /v1/hearth/conversations/{}/dropped: every message that isn't in the window any more, in
 * pages. A receipt tells what left since the reply before, and of many names the first and last.
 *
 *      {"object": "list", "data": [{"id", "role", "tokens", "created_at", "text"}], "first_id",
 *       "last_id", "has_more", "total"}
 *
 * The window is that of GET …/context, `next=1` too; limit, order and after are those of items. A
 * conversation that was never cut has lost nothing, however long it is. What is pinned stands in
 * the head, and is listed all the same: as a message it left.
 */
#include <stdlib.h>
#include <string.h>

#include "daemon/body.h"
#include "daemon/context.h"
#include "daemon/items.h"
#include "daemon/window.h"

struct call {
    struct history *h;
    struct request *r;
    struct arena arena;
    struct memory_conversation c;
    struct memory_page page;
    int64_t *rows; /* [n] what left, ascending */
    size_t n;
};

static bool has_left(const struct memory_cut *cut, int64_t row)
{
    return row < cut->first ? !memory_rows_hold(&cut->system, row)
                            : memory_rows_hold(&cut->dropped, row);
}

/* ERR_NOTFOUND: the whole path is the window. */
static int find_cut(struct call *k, struct memory_cut *ret_cut, struct http_error *ret)
{
    const struct context_of which = {.h = k->h, .r = k->r, .tip = k->c.tip, .arena = &k->arena};
    struct err e;
    int64_t row;
    int rc = context_cut_of(&which, &row, ret);
    if (rc)
        return rc;
    if (k->c.tip == 0 || row == MEMORY_WHOLE_PATH)
        return ERR_NOTFOUND;
    rc = row ? memory_cut_by_row(k->h->memory, row, ret_cut, &k->arena, &e)
             : memory_cut_find(k->h->memory, k->c.tip, ret_cut, &k->arena, &e);
    return rc && rc != ERR_NOTFOUND ? items_error(ret, &e, NULL) : rc;
}

static int gather(struct call *k, struct http_error *ret)
{
    struct memory_cut cut;
    const int64_t *path;
    size_t n_path;
    struct err e;
    int rc = find_cut(k, &cut, ret);
    if (rc)
        return rc == ERR_NOTFOUND ? 0 : rc;
    if (memory_path_rows(k->h->memory, k->c.tip, &path, &n_path, &e))
        return items_error(ret, &e, NULL);
    k->rows = arena_array(&k->arena, n_path + 1, sizeof *k->rows);
    if (!k->rows)
        return http_out_of_memory(ret, "the request");
    for (size_t i = 0; i < n_path; i++)
        if (has_left(&cut, path[i]))
            k->rows[k->n++] = path[i];
    return 0;
}

/* Of the rows, how many stand before the page in its order. */
static int find_begin(struct call *k, size_t *ret_begin, struct http_error *ret)
{
    struct memory_message m;
    struct err e;
    size_t at = 0;
    *ret_begin = 0;
    if (!k->page.after)
        return 0;
    if (memory_message_find(k->h->memory, k->r->owner, k->page.after, &m, &k->arena, &e))
        return items_error(ret, &e, "after");
    while (at < k->n && k->rows[at] != m.row)
        at++;
    if (at == k->n)
        return body_refused(ret, "invalid_value", "after",
                            "after: message %s has not left the window", k->page.after);
    *ret_begin = k->page.is_ascending ? at + 1 : k->n - at;
    return 0;
}

static int add_message(struct call *k, json *data, int64_t row, struct http_error *ret)
{
    static const char *const roles[] = {[MEMORY_SYSTEM] = "system", [MEMORY_USER] = "user",
                                        [MEMORY_ASSISTANT] = "assistant"};
    struct memory_message m;
    struct err e;
    if (memory_message_by_row(k->h->memory, row, &m, &k->arena, &e))
        return items_error(ret, &e, NULL);
    const int tokens = window_count(k->h, m.text, m.n_text);
    json *o = json_add(data, json_object());
    json_set_str(o, "id", m.id);
    json_set_str(o, "role", roles[m.role]);
    json_set_int(o, "tokens", tokens < 0 ? 0 : tokens);
    json_set_int(o, "created_at", m.created_at);
    json_set_strn(o, "text", m.text, m.n_text);
    return 0;
}

static int reply_page(struct call *k, struct http_error *ret)
{
    size_t begin;
    int rc = find_begin(k, &begin, ret);
    if (rc)
        return rc;
    const size_t left = k->n - begin, limit = (size_t)k->page.limit;
    const size_t n = left < limit ? left : limit;
    json *data = json_array();
    for (size_t i = begin; rc == 0 && i < begin + n; i++)
        rc = add_message(k, data, k->rows[k->page.is_ascending ? i : k->n - 1 - i], ret);
    if (rc) {
        json_free(data);
        return rc;
    }
    json *o = list_json(data, left > n);
    json_set_int(o, "total", (int64_t)k->n);
    history_reply_json(k->h, k->r, 200, o);
    return HANDLED;
}

int api_dropped(struct history *h, struct request *r, const struct route_args *args,
                struct http_error *ret)
{
    struct call k = {.h = h, .r = r};
    struct err e;
    arena_init(&k.arena, ITEMS_ARENA_BYTES);
    int rc = memory_conversation_find(h->memory, r->owner, args->v[0], &k.c, &k.arena, &e)
                 ? items_error(ret, &e, "conversation_id")
                 : items_page(r, &k.arena, &k.page, ret);
    if (rc == 0)
        rc = gather(&k, ret);
    if (rc == 0)
        rc = reply_page(&k, ret);
    arena_done(&k.arena);
    return rc;
}
