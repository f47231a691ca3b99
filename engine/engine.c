/*
 * The engine as one thing: opening a model in the order of what is quickly refused, the facts about
 * it, and the door to the pass.
 *
 *     GGUF ─► architecture known? ─► KV shape ─┬─► weights, by all threads ───────────┬─► kernels
 *                                              ╰─► tokenizer ─► chat (self-check) ────╯   and
 *                                                  by one more thread              threads ─►
 *                                                                                  fingerprint
 *
 * A vocabulary is read by one thread, for as long as some hundred megabytes of weights take two: so
 * it is read beside them. What is wrong with it ends the loading of the weights, and is what the
 * caller is told when both are wrong.
 *
 * The file is unmapped before engine_open returns: what people replace or truncate later can't
 * reach a running daemon.
 */
#include "engine/engine.h"

#include <assert.h>
#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "base/sys.h"
#include "base/thread.h"
#include "engine/common.h"
#include "engine/cores.h"
#include "engine/describe.h"
#include "engine/forward.h"
#include "engine/gguf.h"
#include "engine/model.h"

struct engine {
    struct engine_info info;
    struct model *model;
    struct tok *tok;
    struct chat *chat; /* NULL: completions only */
    struct forward *forward;
    char *id, *name;
};

/* ---- facts ---- */

static int read_name(struct engine *en, const struct gguf *g, struct err *e)
{
    struct tok_str s;
    const int rc = gguf_str(g, "general.name", &s, e);
    if (rc && rc != ERR_NOTFOUND) {
        return rc;
    }
    if (rc || !s.n || memchr(s.s, '\0', s.n)) {
        en->info.name = en->id;
        return 0;
    }
    s.n = s.n < 256 ? s.n : 256;
    en->name = sys.malloc(s.n + 1);
    if (!en->name) {
        return err_set(e, ERR_NOMEM, "out of memory for the model's name");
    }
    memcpy(en->name, s.s, s.n);
    en->name[s.n] = '\0';
    en->info.name = en->name;
    return 0;
}

static int read_sampling(struct engine_info *i, const struct gguf *g, struct err *e)
{
    const struct {
        const char *key;
        double min, max;
        double *value;
    } keys[] = {
        {"general.sampling.temp", 0.0, 100.0, &i->sampling_temperature},
        {"general.sampling.top_p", 0.0, 1.0, &i->sampling_top_p},
        {"general.sampling.min_p", 0.0, 1.0, &i->sampling_min_p},
        {"general.sampling.penalty_repeat", 0.0, 100.0, &i->sampling_repetition},
    };
    for (size_t k = 0; k < sizeof keys / sizeof *keys; k++) {
        *keys[k].value = (double)NAN;
        const int rc = gguf_float(g, keys[k].key, keys[k].min, keys[k].max, keys[k].value, e);
        if (rc && rc != ERR_NOTFOUND) {
            return rc;
        }
    }
    return 0;
}

static int read_facts(struct engine *en, const struct gguf *g, struct err *e)
{
    int64_t type = -1;
    int rc = read_name(en, g, e);
    if (!rc) {
        rc = read_sampling(&en->info, g, e);
    }
    if (!rc) {
        rc = gguf_int(g, "general.file_type", 0, INT32_MAX, &type, e);
        rc = rc == ERR_NOTFOUND ? 0 : rc;
    }
    en->info.id = en->id;
    en->info.quant = engine_file_type(type);
    en->info.file_bytes = gguf_file_bytes(g);
    return rc;
}

static void copy_params(struct engine_info *i, const struct model *m)
{
    i->n_vocab = m->params.n_vocab;
    i->n_layers = m->params.n_layers;
    i->n_embd = m->params.n_embd;
    i->n_heads = m->params.n_heads;
    i->n_kv_heads = m->params.n_kv_heads;
    i->head_dim = m->params.head_dim;
    i->n_ctx_train = m->params.n_ctx_train;
    i->n_ctx = m->params.n_ctx;
    i->arch = m->params.arch->name;
    i->n_params = m->n_params;
    i->n_experts = m->params.experts.count;
    i->n_experts_used = m->params.experts.used;
    i->n_params_experts = (uint64_t)(m->params.n_layers - m->params.experts.n_dense) * 3 *
                          (uint64_t)m->params.experts.count * (uint64_t)m->params.experts.n_ff *
                          (uint64_t)m->params.n_embd;
    i->weights_bytes = m->weights_bytes;
}

/* What decides the bits of a mixture of experts; others' fingerprints stay as they were. */
static void add_experts(struct hash_state *h, const struct model_experts *x)
{
    const int32_t shape[] = {x->count,  x->used,        x->n_dense,    x->n_ff,     x->n_ff_shared,
                             x->groups, x->groups_used, x->is_sigmoid, x->is_normed};
    const double scale = (double)x->scale;
    if (x->count) {
        hash_add(h, shape, sizeof shape);
        hash_add(h, &scale, sizeof scale);
    }
}

/* Each number in a fixed width and order, so that the hash is the same on every machine of this
 * byte order. */
static void make_fingerprint(struct engine *en)
{
    const struct model_params *p = &en->model->params;
    const struct kv_shape *kv = &en->info.kv;
    const int32_t shape[] = {p->n_vocab,     p->n_embd,        p->n_ff,     p->n_layers,
                             p->n_heads,     p->n_kv_heads,    p->head_dim, p->n_rot,
                             p->n_ctx_train, (int32_t)kv->type};
    const double numbers[] = {(double)p->rms_eps,        (double)p->embd_scale,
                              (double)p->residual_scale, (double)p->attn_scale,
                              (double)p->attn_cap,       (double)p->window,
                              (double)p->window_period,  p->rope.base,
                              p->rope.window_base,       p->rope.factor,
                              p->rope.attn_factor,       (double)p->rope.scaling};
    uint8_t tokenizer[HASH_BYTES], numerics[HASH_BYTES];
    struct hash_state h;

    tok_fingerprint(en->tok, tokenizer);
    forward_numerics_probe(en->forward, numerics);
    hash_init(&h);
    hash_add(&h, "hearth kv 2", 12);
    hash_add(&h, p->arch->name, strlen(p->arch->name) + 1);
    hash_add(&h, en->model->weights_hash, HASH_BYTES);
    hash_add(&h, tokenizer, sizeof tokenizer);
    hash_add(&h, shape, sizeof shape);
    hash_add(&h, numbers, sizeof numbers);
    add_experts(&h, &p->experts);
    hash_add(&h, numerics, sizeof numerics);
    if (kv->n_sections > 1) { /* others' blocks are as they always were */
        const int32_t sections[] = {kv->n_sections, kv->window, kv->window_period};
        hash_add(&h, sections, sizeof sections);
    }
    hash_end(&h, en->info.fingerprint);
    if (en->chat) {
        chat_render_id(en->chat, en->info.render_id);
    } else {
        memcpy(en->info.render_id, tokenizer, sizeof tokenizer);
    }
}

/* ---- opening ---- */

static int open_chat(struct engine *en, const struct engine_options *o, const struct gguf *g,
                     struct err *e)
{
    char *own = NULL, *override = NULL;
    int rc = common_template(o->chat_template, &override, e);
    if (!rc) {
        rc = model_template(g, &own, e);
    }
    if (!rc && (own || override)) {
        rc = chat_new(en->tok, own, override, &en->chat, e);
    }
    free(own);
    free(override);
    return rc;
}

/* What a model reads and writes: its tokenizer and chat format, made beside the weights. */
struct text {
    struct engine *en;
    const struct engine_options *o;
    const struct gguf *g;
    atomic_int failed;
    int rc;
    struct err err;
};

static void *open_text(void *arg)
{
    struct text *t = arg;
    t->rc = model_tok_nfc(t->g, t->o->skip_nfc, &t->en->tok, &t->err);
    if (!t->rc) {
        t->rc = open_chat(t->en, t->o, t->g, &t->err);
    }
    atomic_store(&t->failed, t->rc != 0);
    return NULL;
}

static int n_threads_of(const struct engine_options *o)
{
    return o->n_threads > 0 ? o->n_threads : cores_default();
}

/* Asks who opens it whether there is memory. */
static int ask(void *ctx, const struct model *m, struct err *e)
{
    const struct text *t = ctx;
    const struct kv_shape *kv = &t->en->info.kv;
    if (!t->o->may_take) {
        return 0;
    }
    const struct engine_needs n = {
        .weights_bytes = m->weights_bytes,
        .pass_bytes = forward_bytes_of(m, kv, n_threads_of(t->o), t->o->pass_rows),
        .kv = *kv,
        .n_vocab = m->params.n_vocab,
        .n_ctx_train = m->params.n_ctx_train,
        .n_ctx = m->params.n_ctx,
    };
    return t->o->may_take(t->o->may_take_ctx, &n, e);
}

/* Text and weights at once; without a thread for it one after the other. */
static int open_both(struct text *t, struct err *e)
{
    const struct model_watch watch = {.stop = &t->failed, .on_measured = ask, .ctx = t};
    pthread_t thread;
    const bool is_beside = thread_start(&thread, THREAD_POOL, open_text, t, NULL) == 0;
    if (!is_beside) {
        open_text(t);
    }
    int rc = t->rc && !is_beside ? 0 : model_open(t->g, t->o, &watch, &t->en->model, e);
    if (is_beside) {
        pthread_join(thread, NULL);
    }
    if (t->rc) {
        rc = err_set(e, t->rc, "%s", t->err.text);
    }
    return rc;
}

/* All that costs, when what is cheaper to refuse has passed. */
static int open_model(struct engine *en, const struct engine_options *o, const struct gguf *g,
                      struct err *e)
{
    struct text text = {.en = en, .o = o, .g = g};
    struct model_params p;
    int rc = model_read_params(g, &p, e);
    if (!rc) {
        rc = model_kv_shape(&p, o->kv_type, &en->info.kv, e);
    }
    if (!rc) {
        rc = open_both(&text, e);
    }
    if (rc) {
        return rc;
    }
    if ((size_t)en->model->params.n_vocab != tok_n_vocab(en->tok)) {
        return err_set(e, ERR_CORRUPT, "the embedding has %d rows for a vocabulary of %zu tokens",
                       en->model->params.n_vocab, tok_n_vocab(en->tok));
    }
    return 0;
}

static int open_parts(struct engine *en, const struct engine_options *o, const struct gguf *g,
                      struct err *e)
{
    int rc = model_check_arch(g, e);
    if (!rc) {
        rc = read_facts(en, g, e);
    }
    if (!rc) {
        rc = open_model(en, o, g, e);
    }
    return rc && e ? err_prefix(e, "%s", o->model_path) : rc;
}

int engine_open(const struct engine_options *o, struct engine **ret, struct err *e)
{
    struct engine *en = NULL;
    struct gguf *g = NULL;
    int rc = hash_start(e);
    if (rc) {
        return rc;
    }
    en = sys.malloc(sizeof *en);
    if (!en) {
        return err_set(e, ERR_NOMEM, "out of memory for the engine");
    }
    memset(en, 0, sizeof *en);
    en->id = common_stem(o->model_path);
    rc = en->id ? gguf_open(o->model_path, &g, e)
                : err_set(e, ERR_NOMEM, "out of memory for the engine");
    if (!rc) {
        rc = open_parts(en, o, g, e);
    }
    if (!rc) {
        copy_params(&en->info, en->model);
        rc = forward_new(en->model, &en->info.kv, n_threads_of(o), o->isa, &en->forward, e);
    }
    gguf_close(g);
    if (rc) {
        engine_close(en);
        return rc;
    }
    en->info.isa = forward_isa(en->forward);
    en->info.n_threads = forward_n_threads(en->forward);
    forward_tell_progress(en->forward, o->passed);
    make_fingerprint(en);
    *ret = en;
    return 0;
}

void engine_close(struct engine *en)
{
    if (!en) {
        return;
    }
    if (en->forward) {
        forward_free(en->forward);
    }
    model_close(en->model);
    if (en->chat) {
        chat_free(en->chat);
    }
    if (en->tok) {
        tok_free(en->tok);
    }
    free(en->name);
    free(en->id);
    free(en);
}

const struct engine_info *engine_info(const struct engine *en)
{
    return &en->info;
}

const struct tok *engine_tok(const struct engine *en)
{
    return en->tok;
}

const struct chat *engine_chat(const struct engine *en)
{
    return en->chat;
}

/* ---- running ---- */

int engine_pass(struct engine *en, struct engine_part *parts, int n_parts, const atomic_int *abort,
                struct err *e)
{
    assert(thread_is(THREAD_WORKER));
    const int rc = common_check_parts(parts, n_parts, en->info.n_vocab, en->info.n_ctx, e);
    return rc ? rc : forward_pass(en->forward, parts, n_parts, abort, e);
}

size_t engine_pass_bytes(const struct engine *en, int n_rows)
{
    return forward_pass_bytes(en->forward, n_rows);
}

int engine_set_threads(struct engine *en, int n_threads, struct err *e)
{
    if (n_threads < 1 || n_threads > CORES_MAX) {
        return err_set(e, ERR_INVAL, "%d threads, it must be 1 to %d", n_threads, CORES_MAX);
    }
    const int rc = forward_set_threads(en->forward, n_threads, e);
    en->info.n_threads = forward_n_threads(en->forward);
    return rc;
}

int engine_set_isa(struct engine *en, const char *isa, struct err *e)
{
    const int rc = forward_set_isa(en->forward, isa, e);
    en->info.isa = forward_isa(en->forward);
    return rc;
}

uint64_t engine_progress(const struct engine *en)
{
    return forward_progress(en->forward);
}

int engine_dequantize(const char *type, const void *data, size_t n, float *ret, size_t *n_values,
                      struct err *e)
{
    return common_dequantize(type, data, n, ret, n_values, e);
}
