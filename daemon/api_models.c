/*
 * GET /v1/models, /v1/models/{id}: the models that requests may name, --model's first. GET
 * /v1/hearth/status: what the daemon is, has and does.
 */
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/file.h"
#include "daemon/ahead.h"
#include "daemon/catalog.h"
#include "daemon/config.h"
#include "daemon/embedder.h"
#include "daemon/history.h"
#include "daemon/served.h"

/* What the model's file recommends; null where it says nothing. */
static json *sampling_of(const struct engine_info *info)
{
    json *o = json_object();
    json_set_num(o, "temperature", info->sampling_temperature);
    json_set_num(o, "top_p", info->sampling_top_p);
    json_set_num(o, "min_p", info->sampling_min_p);
    json_set_num(o, "repetition_penalty", info->sampling_repetition);
    return o;
}

static json *model_json(const char *id, int64_t created_s, const struct served *s)
{
    json *o = json_object();
    json_set_str(o, "id", id);
    json_set_str(o, "object", "model");
    json_set_int(o, "created", created_s);
    json_set_str(o, "owned_by", "hearth");
    json *hearth = json_set(o, "hearth", json_object());
    const int state = s ? atomic_load(&s->state) : SERVED_OUT;
    json_set_bool(hearth, "loaded", state == SERVED_IN);
    json_set_str(hearth, "state", served_state_name(state));
    if (state == SERVED_LOADING)
        json_set_num(hearth, "progress", atomic_load(&s->permille) / 1000.0);
    if (state == SERVED_IN)
        json_set(hearth, "sampling", sampling_of(engine_info(s->engine)));
    return o;
}

static json *default_json(const struct history *h)
{
    const struct served *s = h->d->served[0];
    return model_json(s->id, clock_wall_s() - (clock_us() - h->d->t_started_us) / 1000000, s);
}

struct listing {
    const struct daemon *d;
    json *data;
};

static bool add_model(void *ctx, const struct catalog_file *f)
{
    struct listing *l = ctx;
    if (f->runs && strcmp(f->id, l->d->served[0]->id) != 0)
        json_add(l->data, model_json(f->id, f->changed_s, served_of_path(l->d, f->path)));
    return true;
}

int api_models(struct history *h, struct request *r, const struct route_args *args,
               struct http_error *ret)
{
    (void)args;
    (void)ret;
    json *o = json_object();
    json_set_str(o, "object", "list");
    struct listing l = {h->d, json_set(o, "data", json_array())};
    json_add(l.data, default_json(h));
    if (h->d->config->serves_all)
        catalog_each(h, add_model, &l);
    history_reply_json(h, r, 200, o);
    return HANDLED;
}

int api_model(struct history *h, struct request *r, const struct route_args *args,
              struct http_error *ret)
{
    const struct served *own = h->d->served[0];
    const char *id = args->v[0];
    struct catalog_file f;
    if (strcmp(id, own->id) == 0 || strcmp(id, "default") == 0) {
        history_reply_json(h, r, 200, default_json(h));
        return HANDLED;
    }
    if (h->d->config->serves_all && catalog_find(h, id, &f) && f.runs) {
        history_reply_json(h, r, 200,
                           model_json(f.id, f.changed_s, served_of_path(h->d, f.path)));
        return HANDLED;
    }
    http_error_set(ret, 404, "model_not_found", "model",
                   "there is no model \"%s\" here; \"%s\" is the default, and /v1/models lists all",
                   id, own->id);
    return ERR_NOTFOUND;
}

/* ---- status ---- */

static const char *state_name(int state)
{
    switch (state) {
    case DAEMON_LOADING:
        return "loading";
    case DAEMON_READY:
        return "ready";
    case DAEMON_STOPPING:
        return "stopping";
    default:
        return "failed";
    }
}

static json *status_model(const struct history *h)
{
    const struct engine_info *info = engine_info(h->engine);
    json *o = json_object();
    json_set_str(o, "id", info->id);
    json_set_str(o, "name", info->name);
    json_set_str(o, "arch", info->arch);
    json_set_str(o, "quant", info->quant);
    json_set_int(o, "parameters", (int64_t)info->n_params);
    json_set_int(o, "file_bytes", (int64_t)info->file_bytes);
    json_set_int(o, "ctx_train", info->n_ctx_train);
    const struct chat *chat = engine_chat(h->engine);
    if (chat)
        json_set_str(o, "template", chat_family(chat));
    else
        json_set_null(o, "template");
    json_set_str(o, "isa", info->isa);
    json_set_str(o, "kv_type", kv_type_name(info->kv.type));
    json_set_int(o, "threads", info->n_threads);
    json_set(o, "sampling", sampling_of(info));
    return o;
}

/* Those that are in memory, or on their way in or out. */
static json *status_models(const struct daemon *d)
{
    json *list = json_array();
    for (int i = 0; i < atomic_load(&d->n_served); i++) {
        const struct served *s = d->served[i];
        const int state = atomic_load(&s->state);
        if (state == SERVED_OUT)
            continue;
        json *o = json_add(list, json_object());
        json_set_str(o, "id", s->id);
        json_set_str(o, "state", served_state_name(state));
        json_set_bool(o, "is_default", s->is_default);
        if (state == SERVED_LOADING)
            json_set_num(o, "progress", atomic_load(&s->permille) / 1000.0);
        json_set_int(o, "turns_out", s->n_out);
        json_set_int(o, "weights_bytes", (int64_t)atomic_load(&s->weights_bytes));
        json_set_int(o, "kv_bytes", (int64_t)atomic_load(&s->kv_bytes));
        json_set_int(o, "kv_bytes_max", (int64_t)atomic_load(&s->kv_bytes_max));
        json_set_num(o, "idle_s",
                     s->n_out > 0 ? 0.0 : (double)((clock_us() - s->used_us) / 1000) / 1000.0);
    }
    return list;
}

static json *status_turns(struct daemon *d)
{
    json *o = json_object();
    json_set_int(o, "running", (int64_t)atomic_load(&d->n.running));
    json_set_int(o, "queued", (int64_t)atomic_load(&d->n.queued));
    json_set_int(o, "started", (int64_t)atomic_load(&d->n.turns_started));
    json_set_int(o, "done", (int64_t)atomic_load(&d->n.turns_done));
    json_set_int(o, "canceled", (int64_t)atomic_load(&d->n.canceled));
    json_set_int(o, "refused", (int64_t)atomic_load(&d->n.refused_503));
    json_set_int(o, "parallel", d->config->parallel);
    json_set_int(o, "queue", d->config->queue);
    return o;
}

static json *status_tokens(struct daemon *d)
{
    json *o = json_object();
    json_set_int(o, "prompt", (int64_t)atomic_load(&d->n.prompt_tokens));
    json_set_int(o, "cached", (int64_t)atomic_load(&d->n.cached_tokens));
    json_set_int(o, "computed", (int64_t)atomic_load(&d->n.computed_tokens));
    json_set_int(o, "generated", (int64_t)atomic_load(&d->n.generated_tokens));
    json_set_num(o, "saved_s", (double)atomic_load(&d->n.saved_us) / 1e6);
    return o;
}

/* What the system holds for the whole process, to be compared with the account; -1: unknown. */
static int64_t resident_bytes(void)
{
    struct buf text;
    int64_t n = -1;
    buf_init(&text, 4096);
    if (file_read("/proc/self/statm", &text, NULL) == 0 && text.data) {
        const char *second = strchr(text.data, ' ');
        n = second ? strtoll(second, NULL, 10) * sysconf(_SC_PAGESIZE) : -1;
    }
    buf_done(&text);
    return n;
}

static json *status_pressure(const struct counters *n)
{
    json *o = json_object();
    json_set_num(o, "some_avg10", (double)atomic_load(&n->pressure_percent_100) / 100);
    json_set_int(o, "given", (int64_t)atomic_load(&n->pressure_given));
    json_set_int(o, "given_blocks", (int64_t)atomic_load(&n->pressure_blocks));
    json_set_int(o, "given_bytes", (int64_t)atomic_load(&n->pressure_bytes));
    return o;
}

/* The account: limit = weights + vectors + buffers + KV (daemon/budget.h), and what is used of the
 * last. */
static json *status_memory(const struct history *h)
{
    const struct counters *n = &h->d->n;
    const int64_t kv = (int64_t)atomic_load(&n->kv_bytes);
    const int64_t kept = (int64_t)atomic_load(&n->kv_cached_bytes);
    const int64_t cached = kept < kv ? kept : kv; /* two counters, read one after the other */
    json *o = json_object();
    json_set_int(o, "limit_bytes", (int64_t)atomic_load(&n->memory_bytes_max));
    json_set_int(o, "weights_bytes", (int64_t)atomic_load(&n->weights_bytes));
    json_set_int(o, "vectors_bytes", (int64_t)atomic_load(&n->vectors_bytes));
    json_set_int(o, "buffers_bytes", (int64_t)atomic_load(&n->buffers_bytes));
    json_set_int(o, "kv_bytes", kv);
    json_set_int(o, "kv_live_bytes", kv - cached);
    json_set_int(o, "kv_cached_bytes", cached);
    json_set_int(o, "kv_bytes_max", (int64_t)atomic_load(&n->kv_bytes_max));
    json_set_int(o, "kv_allowed_bytes", (int64_t)atomic_load(&n->kv_allowed_bytes));
    json_set_int(o, "kv_resident_bytes", (int64_t)atomic_load(&n->kv_resident_bytes));
    json_set_int(o, "kv_blocks", (int64_t)atomic_load(&n->kv_blocks));
    json_set_int(o, "kv_evicted", (int64_t)atomic_load(&n->kv_evicted));
    json_set_int(o, "resident_bytes", resident_bytes());
    json_set(o, "pressure", status_pressure(n));
    return o;
}

/* What the file system has, and what the tier may take of it: the limit, or less where the reserve
 * begins. */
static void status_free(json *o, const struct daemon *d)
{
    const int64_t max = (int64_t)atomic_load(&d->n.disk_bytes_max);
    const int64_t bytes = (int64_t)atomic_load(&d->n.disk_bytes);
    struct statvfs st;
    if (max <= 0 || statvfs(d->config->cache_dir, &st) < 0)
        return;
    const int64_t n_free = (int64_t)((uint64_t)st.f_bavail * st.f_frsize);
    int64_t most = bytes + n_free - (int64_t)d->config->disk_reserve_bytes;
    if (most < 0)
        most = 0;
    json_set_int(o, "free_bytes", n_free);
    json_set_int(o, "effective_bytes", most < max ? most : max);
}

static json *status_disk(const struct history *h)
{
    const struct config *c = h->d->config;
    const struct counters *n = &h->d->n;
    const int64_t max = (int64_t)atomic_load(&n->disk_bytes_max);
    json *o = json_object();
    json_set_bool(o, "on", max > 0);
    json_set_int(o, "bytes", (int64_t)atomic_load(&n->disk_bytes));
    json_set_int(o, "limit_bytes", max);
    json_set_bool(o, "is_default", c->disk_bytes == CONFIG_DISK_AUTO);
    json_set_int(o, "reserve_bytes", (int64_t)c->disk_reserve_bytes);
    status_free(o, h->d);
    json_set_int(o, "blocks", (int64_t)atomic_load(&n->disk_blocks));
    json_set_int(o, "waiting", (int64_t)atomic_load(&n->disk_waiting));
    json_set_int(o, "read", (int64_t)atomic_load(&n->disk_read));
    json_set_int(o, "written", (int64_t)atomic_load(&n->disk_written));
    json_set_int(o, "bad", (int64_t)atomic_load(&n->disk_bad));
    json_set_bool(o, "paused", atomic_load(&n->disk_paused) != 0);
    json_set_str(o, "dir", c->cache_dir ? c->cache_dir : "");
    return o;
}

static json *status_history(const struct history *h)
{
    struct memory_totals totals;
    struct err e;
    if (memory_totals(h->memory, &totals, &e))
        return NULL; /* left out: a status that can say something says it */
    json *o = json_object();
    json_set_int(o, "conversations", totals.n_conversations);
    json_set_int(o, "messages", totals.n_messages);
    json_set_int(o, "file_bytes", totals.file_bytes);
    return o;
}

int api_status(struct history *h, struct request *r, const struct route_args *args,
               struct http_error *ret)
{
    (void)args;
    (void)ret;
    struct daemon *d = h->d;
    json *o = json_object();
    json_set_str(o, "object", "hearth.status");
    json_set_str(o, "version", HEARTH_VERSION);
    json_set_str(o, "state", state_name(atomic_load(&d->state)));
    json_set_num(o, "loaded", (double)atomic_load(&d->load_permille) / 1000.0);
    json_set_int(o, "pid", getpid());
    json_set_num(o, "uptime_s", (double)((clock_us() - d->t_started_us) / 1000) / 1000.0);
    if (h->engine) {
        json_set(o, "model", status_model(h));
        json_set_int(o, "ctx", d->ctx);
    } else {
        json_set_null(o, "model");
    }
    json_set(o, "models", status_models(d));
    json_set_int(json_set(o, "turns", status_turns(d)), "ahead", ahead_jobs(h));
    json_set(o, "tokens", status_tokens(d));
    json_set(o, "memory", status_memory(h));
    json_set(o, "disk", status_disk(h));
    json_set(o, "embeddings", embedder_status(h));
    json *history = status_history(h);
    if (history)
        json_set(o, "history", history);
    json_set_str(o, "context", d->config->context ? d->config->context : "error");
    json_set_str(o, "state_dir", d->config->state_dir);
    history_reply_json(h, r, 200, o);
    return HANDLED;
}
