/*
 * /v1/conversations: OpenAI's endpoints, and two things of our own: GET /v1/conversations lists
 * them (OpenAI has no such list), by last use, and deleting one deletes its
 * items (OpenAI keeps them).
 *
 * Lists show the path to the newest message: what an edit or a regeneration left behind is stored
 * and no longer shown.
 */
#include "daemon/ahead.h"
#include "daemon/ahead_import.h"
#include "daemon/body.h"
#include "daemon/call.h"
#include "daemon/forget.h"
#include "daemon/items.h"
#include "daemon/limits.h"

static json *conversation_json(const struct memory_conversation *c)
{
    json *o = json_object();
    json_set_str(o, "id", c->id);
    json_set_str(o, "object", "conversation");
    json_set_int(o, "created_at", c->created_at);
    json_set(o, "metadata", metadata_json(c->metadata));
    json *hearth = json_set(o, "hearth", json_object());
    json_set_str(hearth, "title", c->title);
    json_set_int(hearth, "n_messages", c->n_messages);
    json_set_int(hearth, "updated_at", c->updated_at);
    if (*c->model)
        json_set_str(hearth, "model", c->model);
    else
        json_set_null(hearth, "model");
    return o;
}

/* Reads it anew and answers with it. */
static int reply_conversation(struct call *k, int64_t row, struct http_error *ret)
{
    struct err e;
    int rc = memory_conversation_by_row(k->h->memory, row, &k->c, &k->arena, &e);
    if (rc)
        return items_error(ret, &e, NULL);
    history_reply_json(k->h, k->r, 200, conversation_json(&k->c));
    return HANDLED;
}

static int reply_items(struct call *k, const struct memory_message *list, size_t n, bool has_more)
{
    json *data = json_array();
    for (size_t i = 0; i < n; i++)
        json_add(data, item_json(&list[i], body_thinking_marks(k->h)));
    history_reply_json(k->h, k->r, 200, list_json(data, has_more));
    return HANDLED;
}

/* ---- conversations ---- */

/* `items` of the body, if any. */
static int read_items(struct call *k, struct items *ret, struct http_error *ret_error)
{
    const json *array = NULL;
    int rc = k->body ? body_array(k->body, "items", &array, ret_error) : 0;
    *ret = (struct items){0};
    if (rc || !array)
        return rc;
    return items_parse(array, &(struct items_rule){"items", LIMIT_ITEMS}, &k->arena, ret,
                       ret_error);
}

/* Stores them at the conversation's end. */
static int add_items(struct call *k, const struct items *items, struct memory_message **ret,
                     struct http_error *ret_error)
{
    struct err e;
    struct memory_message *added = arena_array(&k->arena, items->n, sizeof(*added));
    if (!added)
        return http_out_of_memory(ret_error, "the request");
    for (size_t i = 0; i < items->n; i++) {
        items->v[i].conversation = k->c.row;
        items->v[i].parent = i == 0 ? k->c.tip : 0; /* the others follow the one before */
    }
    if (memory_message_add_all(k->h->memory, items->v, items->n, added, &k->arena, &e))
        return items_error(ret_error, &e, "items");
    *ret = added;
    return 0;
}

static size_t text_bytes(const struct items *items)
{
    size_t n = 0;
    for (size_t i = 0; i < items->n; i++)
        n += items->v[i].n_text;
    return n;
}

static int create(struct call *k, struct http_error *ret)
{
    struct err e;
    struct items items;
    struct memory_message *added;
    const char *metadata = NULL;
    int rc;
    /* A body is optional here: the official clients send {} or nothing. */
    if (k->r->n_body > 0 && (rc = body_parse(k->r, &k->body, ret)))
        return rc;
    if (k->body && (rc = metadata_parse(k->body, &k->arena, &metadata, ret)))
        return rc;
    if ((rc = read_items(k, &items, ret)))
        return rc;
    const struct memory_new_conversation new = {.owner = k->r->owner, .metadata = metadata};
    if (memory_conversation_add(k->h->memory, &new, &k->c, &k->arena, &e))
        return items_error(ret, &e, NULL);
    if (items.n > 0 && (rc = add_items(k, &items, &added, ret))) {
        struct err ignored; /* the first error is told */
        (void)!memory_conversation_remove(k->h->memory, k->r->owner, k->c.id, NULL, &ignored);
        return rc;
    }
    if (items.n > 0)
        ahead_import_note(k->h, k->r->owner, k->c.row, text_bytes(&items));
    return reply_conversation(k, k->c.row, ret);
}

int api_conversation_create(struct history *h, struct request *r, const struct route_args *args,
                            struct http_error *ret)
{
    struct call k;
    (void)args;
    call_init(&k, h, r);
    int rc = create(&k, ret);
    call_done(&k);
    return rc;
}

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
    json *data = json_array();
    for (size_t i = 0; i < found.n; i++)
        json_add(data, conversation_json(&found.v[i]));
    history_reply_json(k->h, k->r, 200, list_json(data, found.has_more));
    return HANDLED;
}

int api_conversation_list(struct history *h, struct request *r, const struct route_args *args,
                          struct http_error *ret)
{
    struct call k;
    (void)args;
    call_init(&k, h, r);
    int rc = list(&k, ret);
    call_done(&k);
    return rc;
}

int api_conversation_get(struct history *h, struct request *r, const struct route_args *args,
                         struct http_error *ret)
{
    struct call k;
    call_init(&k, h, r);
    int rc = call_find(&k, args->v[0], ret);
    if (rc == 0)
        history_reply_json(h, r, 200, conversation_json(&k.c));
    call_done(&k);
    return rc;
}

/* {"metadata": …}, and "hearth": {"title": …}. */
static int update(struct call *k, const char *id, struct http_error *ret)
{
    struct err e;
    const char *metadata = NULL, *title = NULL;
    const json *hearth = NULL;
    int rc;
    if ((rc = call_find(k, id, ret)) || (rc = body_parse(k->r, &k->body, ret)) ||
        (rc = metadata_parse(k->body, &k->arena, &metadata, ret)) ||
        (rc = body_object(k->body, "hearth", &hearth, ret)))
        return rc;
    if (hearth && (rc = body_str(hearth, "title", "hearth.title", &title, ret)))
        return rc;
    if (!metadata && !title)
        return body_refused(ret, "invalid_value", "metadata",
                            "metadata is missing (hearth.title may be set, too)");
    if (memory_conversation_set(k->h->memory, k->c.row, title, metadata, &e))
        return items_error(ret, &e, NULL);
    return reply_conversation(k, k->c.row, ret);
}

int api_conversation_update(struct history *h, struct request *r, const struct route_args *args,
                            struct http_error *ret)
{
    struct call k;
    call_init(&k, h, r);
    int rc = update(&k, args->v[0], ret);
    call_done(&k);
    return rc;
}

/* At once, also while an answer is being written in it: the answer then reports that it could not
 * be stored. */
int api_conversation_delete(struct history *h, struct request *r, const struct route_args *args,
                            struct http_error *ret)
{
    struct err e;
    struct memory_removed gone;
    struct call k;
    call_init(&k, h, r);
    int rc = call_find(&k, args->v[0], ret);
    if (rc == 0)
        ahead_cancel(h, k.c.row);
    call_done(&k);
    if (rc)
        return rc;
    if (memory_conversation_remove(h->memory, r->owner, args->v[0], &gone, &e))
        return items_error(ret, &e, "conversation_id");
    json *o = json_object();
    json_set_str(o, "id", args->v[0]);
    json_set_str(o, "object", "conversation.deleted");
    json_set_bool(o, "deleted", true);
    forget_and_reply(h, r, o, NULL, &gone);
    return HANDLED;
}

/* ---- items ---- */

/* Items go to the end, so an answer that is being written there must end first. */
static int item_create(struct call *k, const char *id, struct http_error *ret)
{
    struct items items;
    struct memory_message *added;
    bool is_parked;
    int rc;
    if ((rc = call_find(k, id, ret)) || (rc = body_parse(k->r, &k->body, ret)) ||
        (rc = read_items(k, &items, ret)))
        return rc;
    if (items.n == 0)
        return body_refused(ret, "invalid_value", "items", "items: 1 to %d are expected",
                            LIMIT_ITEMS);
    if (!history_claim(k->h, k->c.row, k->r, &is_parked))
        return is_parked ? PARKED : http_out_of_memory(ret, "the request");
    rc = add_items(k, &items, &added, ret);
    history_release(k->h, k->c.row);
    if (rc == 0)
        ahead_import_note(k->h, k->r->owner, k->c.row, text_bytes(&items));
    return rc ? rc : reply_items(k, added, items.n, false);
}

int api_item_create(struct history *h, struct request *r, const struct route_args *args,
                    struct http_error *ret)
{
    struct call k;
    call_init(&k, h, r);
    int rc = item_create(&k, args->v[0], ret);
    call_done(&k);
    return rc;
}

static int item_list(struct call *k, const char *id, struct http_error *ret)
{
    struct err e;
    struct memory_page page;
    struct memory_messages found;
    int rc;
    if ((rc = call_find(k, id, ret)) || (rc = items_page(k->r, &k->arena, &page, ret)))
        return rc;
    if (memory_message_list(k->h->memory, k->c.row, &page, &found, &k->arena, &e))
        return items_error(ret, &e, "after");
    return reply_items(k, found.v, found.n, found.has_more);
}

int api_item_list(struct history *h, struct request *r, const struct route_args *args,
                  struct http_error *ret)
{
    struct call k;
    call_init(&k, h, r);
    int rc = item_list(&k, args->v[0], ret);
    call_done(&k);
    return rc;
}

/* The message, if it is one of this conversation's. */
static int find_item(struct call *k, const struct route_args *args, struct memory_message *ret,
                     struct http_error *ret_error)
{
    struct err e;
    int rc = call_find(k, args->v[0], ret_error);
    if (rc)
        return rc;
    if (memory_message_find(k->h->memory, k->r->owner, args->v[1], ret, &k->arena, &e))
        return items_error(ret_error, &e, "item_id");
    if (ret->conversation == k->c.row)
        return 0;
    http_error_set(ret_error, 404, "not_found", "item_id", "no message '%s' in %s", args->v[1],
                   k->c.id);
    return ERR_NOTFOUND;
}

int api_item_get(struct history *h, struct request *r, const struct route_args *args,
                 struct http_error *ret)
{
    struct call k;
    struct memory_message m = {0};
    call_init(&k, h, r);
    int rc = find_item(&k, args, &m, ret);
    if (rc == 0)
        history_reply_json(h, r, 200, item_json(&m, body_thinking_marks(h)));
    call_done(&k);
    return rc;
}

/* Without a turn that runs there: it would read on with what was deleted. */
static int item_delete(struct call *k, const struct route_args *args, struct http_error *ret)
{
    struct err e;
    struct memory_removed gone;
    struct memory_message m = {0};
    bool is_parked;
    int rc = find_item(k, args, &m, ret);
    if (rc)
        return rc;
    if (!history_claim(k->h, k->c.row, k->r, &is_parked))
        return is_parked ? PARKED : http_out_of_memory(ret, "the request");
    ahead_cancel(k->h, k->c.row);
    rc = memory_message_remove(k->h->memory, k->r->owner, m.id, &gone, &e);
    history_release(k->h, k->c.row);
    if (rc)
        return items_error(ret, &e, "item_id");
    const bool is_read =
        memory_conversation_by_row(k->h->memory, k->c.row, &k->c, &k->arena, &e) == 0;
    json *o = is_read ? conversation_json(&k->c) : json_object();
    json *hearth = (json *)(uintptr_t)json_get(o, "hearth", NULL); /* o is ours */
    json *removed = json_set(hearth ? hearth : o, "removed", json_object());
    forget_and_reply(k->h, k->r, o, removed, &gone);
    return HANDLED;
}

/* Answers with the conversation, as OpenAI does, and in hearth.removed what went. What followed the
 * item then follows the one before it. */
int api_item_delete(struct history *h, struct request *r, const struct route_args *args,
                    struct http_error *ret)
{
    struct call k;
    call_init(&k, h, r);
    int rc = item_delete(&k, args, ret);
    call_done(&k);
    return rc;
}
