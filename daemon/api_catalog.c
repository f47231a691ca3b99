/*
 * GET /v1/hearth/models: the files in the models' directories, what each is, and whether it would
 * run here and fit, before that is tried.
 *
 * Reading the head of a file with 262,144 tokens takes a tenth of a second, so what was read is
 * kept until the file changes.
 */
#include "daemon/catalog.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/json.h"
#include "daemon/budget.h"
#include "daemon/config.h"
#include "daemon/history.h"
#include "daemon/limits.h"
#include "daemon/models.h"
#include "daemon/served.h"
#include "engine/describe.h"

/* A file that was looked at, as it was then. Under another name it may have another template. */
struct catalog_entry {
    struct catalog_entry *next;
    char id[256];
    dev_t device;
    ino_t inode;
    off_t size;
    struct timespec mtime;
    bool is_readable;
    struct err why; /* of a file that isn't */
    struct engine_summary summary;
};

struct catalog {
    struct catalog_entry *entries;
};

void catalog_free(struct catalog *c)
{
    for (struct catalog_entry *it = c ? c->entries : NULL, *next; it; it = next) {
        next = it->next;
        free(it);
    }
    free(c);
}

static bool is_same(const struct catalog_entry *a, const struct stat *st)
{
    return a->device == st->st_dev && a->inode == st->st_ino && a->size == st->st_size &&
           a->mtime.tv_sec == st->st_mtim.tv_sec && a->mtime.tv_nsec == st->st_mtim.tv_nsec;
}

static bool is_default(const struct config *c, dev_t device, ino_t inode)
{
    struct stat st;
    return c->model && stat(c->model, &st) == 0 && st.st_dev == device && st.st_ino == inode;
}

/* What is known of the file, read now if need be; NULL: it has gone, or no memory. */
static const struct catalog_entry *look_at(struct catalog *c, const struct config *config,
                                           const char *path)
{
    struct stat st;
    struct catalog_entry **at = &c->entries;
    char id[sizeof (*at)->id];
    if (stat(path, &st) < 0)
        return NULL;
    catalog_id(path, id, sizeof id);
    for (; *at; at = &(*at)->next) {
        if ((*at)->device == st.st_dev && (*at)->inode == st.st_ino && !strcmp((*at)->id, id))
            break;
    }
    if (!*at) {
        *at = calloc(1, sizeof **at);
        if (!*at)
            return NULL;
    } else if (is_same(*at, &st)) {
        return *at;
    }
    struct catalog_entry *n = *at;
    n->device = st.st_dev;
    n->inode = st.st_ino;
    n->size = st.st_size;
    n->mtime = st.st_mtim;
    memcpy(n->id, id, sizeof id);
    const struct engine_intent as = {
        .kv_type = config->kv_type,
        .n_ctx = config->ctx > 0 ? config->ctx : DEFAULT_CTX,
        .chat_template = config_template_of(config, id, is_default(config, st.st_dev, st.st_ino)),
    };
    n->is_readable = engine_describe(path, &as, &n->summary, &n->why) == 0;
    return n;
}

/* The list of files; made anew for each question, as files come and go. */
static int list_files(struct history *h, struct models_list *ret)
{
    struct err e;
    if (!h->catalog)
        h->catalog = calloc(1, sizeof *h->catalog);
    return h->catalog ? models_list(h->d->config->model, ret, &e) : ERR_NOMEM;
}

void catalog_id(const char *path, char *ret, size_t n_ret)
{
    const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
    const char *dot = strrchr(name, '.');
    const size_t n = dot && dot != name ? (size_t)(dot - name) : strlen(name);
    snprintf(ret, n_ret, "%.*s", (int)n, name);
}

/* false: it has gone. */
static bool describe(struct history *h, const char *path, struct catalog_file *ret)
{
    const struct catalog_entry *it = look_at(h->catalog, h->d->config, path);
    if (!it || strlen(path) >= sizeof ret->path)
        return false;
    const struct engine_summary *s = &it->summary;
    *ret = (struct catalog_file){
        .changed_s = it->mtime.tv_sec, .runs = it->is_readable && s->runs, .summary = s};
    catalog_id(path, ret->id, sizeof ret->id);
    memcpy(ret->path, path, strlen(path) + 1);
    if (!it->is_readable)
        snprintf(ret->why, sizeof ret->why, "%s", it->why.text);
    else if (s->is_embedding)
        snprintf(ret->why, sizeof ret->why, "it is an embedding model");
    else if (!s->runs)
        snprintf(ret->why, sizeof ret->why, "%s", s->why.text);
    return true;
}

void catalog_each(struct history *h, bool (*visit)(void *ctx, const struct catalog_file *f),
                  void *ctx)
{
    struct models_list l;
    struct catalog_file f;
    bool goes_on = true;
    if (list_files(h, &l))
        return;
    for (size_t i = 0; i < l.n_paths && goes_on; i++)
        if (describe(h, l.paths[i], &f))
            goes_on = visit(ctx, &f);
    models_list_done(&l);
}

bool catalog_find(struct history *h, const char *name, struct catalog_file *ret)
{
    struct models_list l;
    char id[sizeof ret->id];
    bool is_found = false;
    if (list_files(h, &l))
        return false;
    for (size_t i = 0; i < l.n_paths && !is_found; i++) {
        const size_t n = strlen(l.paths[i]), n_name = strlen(name);
        catalog_id(l.paths[i], id, sizeof id);
        const bool is_file = n > n_name && strcmp(l.paths[i] + n - n_name, name) == 0 &&
                             l.paths[i][n - n_name - 1] == '/';
        if (is_file || strcmp(id, name) == 0)
            is_found = describe(h, l.paths[i], ret);
    }
    models_list_done(&l);
    return is_found;
}

/* Whether the weights and a window fit into the budget: the plan that loading would make, without
 * the scratch of its passes, which isn't known yet. */
static void add_fit(json *o, const struct history *h, const struct engine_summary *s)
{
    const struct counters *n = &h->d->n;
    const struct budget_request r = {
        .memory_bytes = (uint64_t)atomic_load(&n->memory_bytes_max),
        .weights_bytes = s->weights_bytes,
        .vectors_bytes = (uint64_t)atomic_load(&n->vectors_bytes),
        .block_bytes = (size_t)s->kv_bytes * KV_BLOCK,
        .ctx = h->d->config->ctx,
        .n_ctx_train = s->n_ctx_train,
    };
    struct budget plan;
    struct err why;
    const bool fits = budget_plan(&r, &plan, &why) == 0;
    json_set_bool(o, "fits", fits);
    if (fits)
        json_set_int(o, "ctx", plan.ctx);
    else
        json_set_str(o, "why", why.text);
}

/* What a position takes; and what is left of it when it is out of sight of the layers that see a
 * window. */
static void add_kv(json *o, uint64_t bytes, int window, uint64_t old_bytes)
{
    json_set_int(o, "kv_bytes_per_token", (int64_t)bytes);
    if (window == 0)
        return;
    json_set_int(o, "kv_window", window);
    json_set_int(o, "kv_bytes_per_old_token", (int64_t)old_bytes);
}

static void add_summary(json *o, const struct history *h, const struct engine_summary *s)
{
    json_set_str(o, "name", s->name);
    json_set_str(o, "arch", s->arch);
    json_set_str(o, "quant", s->quant);
    json_set_int(o, "parameters", (int64_t)s->n_params);
    json_set_int(o, "ctx_train", s->n_ctx_train);
    json_set_bool(o, "is_embedding", s->is_embedding);
    json_set_bool(o, "runs", s->runs);
    if (!s->runs) {
        json_set_str(o, "why",
                     s->is_embedding ? "an embedding model: for --embedding-model" : s->why.text);
        return;
    }
    json_set_bool(o, "has_template", s->has_template);
    json_set_int(o, "weights_bytes", (int64_t)s->weights_bytes);
    add_kv(o, s->kv_bytes, s->window, s->kv_old_bytes);
    add_fit(o, h, s);
}

/* Whether it is in memory; and whether requests may name it. */
static void add_state(json *o, const struct history *h, const struct served *s, bool is_own)
{
    const struct daemon *d = h->d;
    s = is_own ? d->served[0] : s;
    const int state = s ? atomic_load(&s->state) : SERVED_OUT;
    json_set_bool(o, "loaded", state == SERVED_IN);
    json_set_str(o, "state", served_state_name(state));
    json_set_bool(o, "is_default", is_own);
    json_set_bool(o, "served", is_own || d->config->serves_all);
    if (state == SERVED_LOADING)
        json_set_num(o, "progress", atomic_load(&s->permille) / 1000.0);
}

static json *model_json(const struct history *h, const char *path, const struct catalog_entry *it)
{
    const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
    const size_t n = strlen(name) - strlen(".gguf");
    char *id = strndup(name, n);
    json *o = json_object();
    json_set_str(o, "id", id ? id : name);
    json_set_str(o, "file", path);
    json_set_int(o, "file_bytes", (int64_t)it->size);
    add_state(o, h, served_of_path(h->d, path), is_default(h->d->config, it->device, it->inode));
    if (it->is_readable) {
        add_summary(o, h, &it->summary);
    } else {
        json_set_bool(o, "runs", false);
        json_set_str(o, "why", it->why.text);
    }
    free(id);
    return o;
}

/* The model that runs, whatever its file is called or has become since. */
static json *running_json(const struct history *h)
{
    const struct engine_info *info = engine_info(h->engine);
    json *o = json_object();
    json_set_str(o, "id", info->id);
    json_set_str(o, "file", h->d->config->model);
    json_set_int(o, "file_bytes", (int64_t)info->file_bytes);
    add_state(o, h, NULL, true);
    json_set_str(o, "name", info->name);
    json_set_str(o, "arch", info->arch);
    json_set_str(o, "quant", info->quant);
    json_set_int(o, "parameters", (int64_t)info->n_params);
    json_set_int(o, "ctx_train", info->n_ctx_train);
    json_set_bool(o, "is_embedding", false);
    json_set_bool(o, "runs", true);
    json_set_bool(o, "has_template", engine_chat(h->engine) != NULL);
    json_set_int(o, "weights_bytes", (int64_t)info->weights_bytes);
    add_kv(o, info->kv.block_bytes / KV_BLOCK, info->kv.window, info->kv.full_bytes / KV_BLOCK);
    json_set_bool(o, "fits", true);
    json_set_int(o, "ctx", h->ctx);
    return o;
}

int api_catalog(struct history *h, struct request *r, const struct route_args *args,
                struct http_error *ret)
{
    struct models_list l;
    (void)args;
    if (list_files(h, &l))
        return http_out_of_memory(ret, "the list of models");
    bool is_listed = false;
    json *o = json_object(), *data = json_array(), *dirs = json_array();
    for (size_t i = 0; i < l.n_dirs; i++)
        json_add_str(dirs, l.dirs[i]);
    for (size_t i = 0; i < l.n_paths; i++) {
        const struct catalog_entry *it = look_at(h->catalog, h->d->config, l.paths[i]);
        if (it)
            json_add(data, model_json(h, l.paths[i], it));
        is_listed = is_listed || (it && is_default(h->d->config, it->device, it->inode));
    }
    if (h->engine && !is_listed)
        json_add(data, running_json(h));
    json_set_str(o, "object", "list");
    json_set(o, "data", data);
    json_set(o, "dirs", dirs);
    json_set_int(o, "left_out", (int64_t)l.n_left_out);
    json_set_int(o, "memory_bytes", (int64_t)atomic_load(&h->d->n.memory_bytes_max));
    json_set_str(o, "kv_type", kv_type_name(h->d->config->kv_type));
    models_list_done(&l);
    history_reply_json(h, r, 200, o);
    return HANDLED;
}
