/*
 * Which model a request means: see served.h. History thread.
 *
 *     "model" of a body, ?model=      a name, with or without ".gguf"
 *     none, "", "default"             --model's
 *     routes of a conversation        without ?model=: the one that answered last in it, while
 *                                     there is such a model; else the default
 *
 * history.model_by keeps which of these it was, for the reply.
 */
#include "daemon/served_inside.h"

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "daemon/body.h"
#include "daemon/catalog.h"
#include "daemon/items.h"

struct names {
    struct buf text;
    int n;
    const char *but; /* the default's id */
};

static bool add_name(void *ctx, const struct catalog_file *f)
{
    struct names *l = ctx;
    if (!f->runs || strcmp(f->id, l->but) == 0)
        return true;
    if (l->n++ < 8)
        buf_printf(&l->text, ", %s", f->id);
    return true;
}

/* A name that no model has: the default's, where it is the only one, or --unknown-model says so;
 * existing clients send what OpenAI's models are called. */
static int unknown(struct history *h, const char *name, struct served **ret_served,
                   struct http_error *ret)
{
    struct served *own = h->d->served[0];
    struct names others = {.but = own->id};
    buf_init(&others.text, 4096);
    if (h->d->config->serves_all)
        catalog_each(h, add_name, &others);
    *ret_served = own;
    const bool is_refused = others.n > 0 && !h->d->config->unknown_is_default;
    if (is_refused) {
        if (others.n > 8)
            buf_printf(&others.text, " and %d more", others.n - 8);
        http_error_set(ret, 404, "model_not_found", "model",
                       "there is no model \"%.100s\" here; these are served: %s (the "
                       "default)%.300s",
                       name, own->id, others.text.data ? others.text.data : "");
    }
    buf_done(&others.text);
    return is_refused ? ERR_NOTFOUND : 0;
}

/* NAME or NAME.gguf. */
static bool has_name(const struct served *s, const char *name)
{
    const size_t n = strlen(s->id);
    return strncmp(s->id, name, n) == 0 && (!name[n] || strcmp(name + n, ".gguf") == 0);
}

int served_refuse(struct http_error *ret, const struct err *e, const struct served *s)
{
    switch (e->code) {
    case ERR_NOTFOUND:
        http_error_set(ret, 404, "model_not_found", "model", "%s", e->text);
        break;
    case ERR_LIMIT:
        http_error_set(ret, 400, "model_too_large", "model", "model %s doesn't fit: %s", s->id,
                       e->text);
        break;
    case ERR_NOMEM:
        http_error_set(ret, 503, "out_of_memory", "model", "model %s: %s", s->id, e->text);
        break;
    case ERR_CANCELED:
        http_error_set(ret, 503, "stopping", NULL, "the daemon is stopping");
        break;
    default:
        http_error_set(ret, 400, "model_failed", "model", "model %s can't be loaded: %s", s->id,
                       e->text);
    }
    return e->code;
}

static int resolve(struct history *h, const char *name, struct served **ret_served,
                   struct http_error *ret)
{
    struct daemon *d = h->d;
    struct catalog_file f;
    *ret_served = d->served[0];
    if (!name || !name[0] || strcmp(name, "default") == 0 || has_name(d->served[0], name))
        return 0;
    for (int i = 1; i < atomic_load(&d->n_served); i++) {
        *ret_served = d->served[i];
        if (served_state(d->served[i]) != SERVED_OUT && has_name(d->served[i], name))
            return 0;
    }
    if (!d->config->serves_all || !catalog_find(h, name, &f))
        return unknown(h, name, ret_served, ret);
    if (!f.runs) {
        http_error_set(ret, 400, "model_failed", "model", "model %s doesn't run: %s", f.id, f.why);
        return ERR_UNSUPPORTED;
    }
    *ret_served = served_of_path(d, f.path);
    if (!*ret_served)
        *ret_served = served_add(d, f.id, f.path);
    if (*ret_served)
        return 0;
    http_error_set(ret, 503, "out_of_memory", "model", "no memory for one more model");
    return ERR_NOMEM;
}

/* HANDLED: s is there and in use. */
static int choose(struct history *h, struct request *r, struct served *s, struct http_error *ret)
{
    struct need need;
    struct err e;
    if (served_is_ready(s)) {
        s->used_us = clock_us();
        served_use(h, s);
        return HANDLED;
    }
    if (served_state(s) == SERVED_OUT && served_need(h, s, &need, &e))
        return served_refuse(ret, &e, s);
    return history_park(h, r, s, ret);
}

static bool is_default_name(const char *name)
{
    return !name || !name[0] || strcmp(name, "default") == 0;
}

int served_choose(struct history *h, struct request *r, const char *name, struct http_error *ret)
{
    struct served *s;
    int rc = resolve(h, name, &s, ret);
    h->model_by = is_default_name(name) ? "default" : "request";
    return rc ? rc : choose(h, r, s, ret);
}

int served_choose_body(struct history *h, struct request *r, const json *body,
                       struct http_error *ret)
{
    const char *name = NULL;
    r->wants_stream = json_bool(json_get(body, "stream", NULL));
    int rc = body ? body_str(body, "model", "model", &name, ret) : 0;
    return rc ? rc : served_choose(h, r, name, ret);
}

int served_choose_query(struct history *h, struct request *r, struct http_error *ret)
{
    char *name = NULL;
    (void)!request_query(r, "model", &name); /* there is none: NULL */
    int rc = served_choose(h, r, name, ret);
    free(name);
    return rc;
}

/* The model of that name, if there is one that would run; NULL: imported answers may name any, and
 * files go. */
static struct served *find(struct history *h, const char *name)
{
    struct served *s;
    struct http_error ignored;
    return name[0] && resolve(h, name, &s, &ignored) == 0 && has_name(s, name) ? s : NULL;
}

int served_choose_conversation(struct history *h, struct request *r,
                               const struct memory_conversation *c, struct http_error *ret)
{
    char *name = NULL;
    (void)!request_query(r, "model", &name);
    struct served *own = name && name[0] ? NULL : find(h, c->model);
    int rc = own ? choose(h, r, own, ret) : served_choose(h, r, name, ret);
    if (own)
        h->model_by = "conversation";
    free(name);
    return rc;
}

struct conversation {
    struct arena arena;
    struct memory_conversation c;
};

/* The conversation of a path; arena_done whatever comes of it. */
static int find_conversation(struct history *h, const struct request *r, const char *id,
                             struct conversation *ret, struct http_error *ret_error)
{
    struct err e;
    arena_init(&ret->arena, ITEMS_ARENA_BYTES);
    int rc = memory_conversation_find(h->memory, r->owner, id, &ret->c, &ret->arena, &e);
    return rc ? items_error(ret_error, &e, "conversation_id") : 0;
}

int served_choose_path(struct history *h, struct request *r, const char *id,
                       struct http_error *ret)
{
    struct conversation found;
    int rc = find_conversation(h, r, id, &found, ret);
    if (rc == 0)
        rc = served_choose_conversation(h, r, &found.c, ret);
    arena_done(&found.arena);
    return rc;
}

void served_use_path(struct history *h, const struct request *r, const char *id)
{
    struct conversation found;
    struct http_error ignored;
    struct served *s = NULL;
    if (find_conversation(h, r, id, &found, &ignored) == 0)
        s = find(h, found.c.model);
    if (s) {
        served_use(h, served_state(s) == SERVED_IN ? s : NULL);
        h->served = s;
    }
    h->model_by = s ? "conversation" : "default";
    arena_done(&found.arena);
}

void served_name(const struct history *h, json *reply)
{
    json_set_str(reply, "model", h->served->id);
    json_set_str(reply, "model_by", h->model_by);
}
