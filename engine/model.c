/*
 * Loading a model: a list of what the architecture consists of, checked against the file before a
 * byte is allocated, then packed tensor by tensor.
 *
 *     params ─► slots (name, shape, where it goes) ─► every tensor there, right shape, none left
 *            over ─► bytes needed < budget ─► one mapping for norms and RoPE
 *            ─► pack each matrix, hash it, drop its pages ─► RoPE table
 *
 * A tensor of the file that no slot asks for (a bias, an expert, rope_freqs) would be silently
 * ignored and change the answers: it is refused by name.
 *
 * The file's mapping is clean page cache and is given up tensor by tensor, so the most that is
 * resident at once is the packed model and one tensor.
 */
#include "engine/model.h"

#include <assert.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/hash.h"
#include "base/sys.h"
#include "engine/fingerprint.h"
#include "engine/quant.h"

#define NAME_BYTES 48
#define LAYER_SLOTS 9

/* One tensor that the model needs: a matrix [rows, cols] or, when mat is NULL, a vector of cols
 * floats. */
struct slot {
    char name[NAME_BYTES];
    int64_t rows, cols;
    struct mat *mat;
    float **vector;
    const struct gguf_tensor *tensor;
};

struct loader {
    const struct gguf *g;
    const struct engine_options *o;
    struct model *m;
    struct slot *slots;
    size_t n_slots;
    uint64_t done_bytes, all_bytes; /* of tensor data, for progress */
    bool is_hashed;                 /* the weights' hash is known already */
    struct hash_state hash;
};

/* ---- what there should be ---- */

static void add_slot(struct loader *l, const char *name, int64_t rows, int64_t cols,
                     struct mat *mat)
{
    struct slot *s = &l->slots[l->n_slots++];
    snprintf(s->name, sizeof s->name, "%s", name);
    s->rows = rows;
    s->cols = cols;
    s->mat = mat;
}

static void add_vector(struct loader *l, const char *name, float **vector)
{
    add_slot(l, name, 1, l->m->params.n_embd, NULL);
    l->slots[l->n_slots - 1].vector = vector;
}

static void add_layer(struct loader *l, int i)
{
    const struct model_params *p = &l->m->params;
    struct model_layer *layer = &l->m->layers[i];
    const int64_t n_q = (int64_t)p->n_heads * p->head_dim,
                  n_kv = (int64_t)p->n_kv_heads * p->head_dim;
    const struct {
        const char *name;
        int64_t rows, cols;
        struct mat *mat;
    } mats[] = {
        {"attn_q", n_q, p->n_embd, &layer->q},          {"attn_k", n_kv, p->n_embd, &layer->k},
        {"attn_v", n_kv, p->n_embd, &layer->v},         {"attn_output", p->n_embd, n_q, &layer->o},
        {"ffn_gate", p->n_ff, p->n_embd, &layer->gate}, {"ffn_up", p->n_ff, p->n_embd, &layer->up},
        {"ffn_down", p->n_embd, p->n_ff, &layer->down},
    };
    char name[NAME_BYTES];
    for (size_t k = 0; k < sizeof mats / sizeof *mats; k++) {
        snprintf(name, sizeof name, "blk.%d.%s.weight", i, mats[k].name);
        add_slot(l, name, mats[k].rows, mats[k].cols, mats[k].mat);
    }
    snprintf(name, sizeof name, "blk.%d.attn_norm.weight", i);
    add_vector(l, name, &layer->attn_norm);
    snprintf(name, sizeof name, "blk.%d.ffn_norm.weight", i);
    add_vector(l, name, &layer->ffn_norm);
}

/* The vocabulary's size is the embedding's; the tokenizer is compared with it by engine_open. */
static int read_vocab_size(struct loader *l, struct err *e)
{
    const struct gguf_tensor *t = gguf_tensor(l->g, "token_embd.weight");
    if (!t) {
        return err_set(e, ERR_CORRUPT, "tensor token_embd.weight is missing");
    }
    if (t->dims[1] > 1048576) {
        return err_set(e, ERR_CORRUPT,
                       "tensor token_embd.weight has %llu rows, the limit is 1048576",
                       (unsigned long long)t->dims[1]);
    }
    l->m->params.n_vocab = (int)t->dims[1];
    return 0;
}

static int make_slots(struct loader *l, struct err *e)
{
    struct model *m = l->m;
    const struct model_params *p = &m->params;
    int rc = read_vocab_size(l, e);
    if (rc) {
        return rc;
    }
    m->layers = calloc((size_t)p->n_layers, sizeof *m->layers);
    l->slots = calloc((size_t)p->n_layers * LAYER_SLOTS + 3, sizeof *l->slots);
    if (!m->layers || !l->slots) {
        return err_set(e, ERR_NOMEM, "out of memory for a model of %d layers", p->n_layers);
    }
    add_slot(l, "token_embd.weight", p->n_vocab, p->n_embd, &m->embd);
    m->lm_head = &m->embd;
    for (int i = 0; i < p->n_layers; i++) {
        add_layer(l, i);
    }
    add_vector(l, "output_norm.weight", &m->output_norm);
    if (gguf_tensor(l->g, "output.weight")) {
        add_slot(l, "output.weight", p->n_vocab, p->n_embd, &m->output);
        m->lm_head = &m->output;
    }
    return 0;
}

/* ---- what is there ---- */

static int check_slot(struct loader *l, struct slot *s, struct err *e)
{
    const struct gguf_tensor *t = gguf_tensor(l->g, s->name);
    if (!t) {
        return err_set(e, ERR_CORRUPT, "tensor %s is missing", s->name);
    }
    if (t->dims[0] != (uint64_t)s->cols || t->dims[1] != (uint64_t)s->rows || t->dims[2] != 1 ||
        t->dims[3] != 1) {
        return err_set(e, ERR_CORRUPT,
                       "tensor %s has the shape [%llu, %llu, %llu, %llu], it must be [%lld, %lld]",
                       s->name, (unsigned long long)t->dims[0], (unsigned long long)t->dims[1],
                       (unsigned long long)t->dims[2], (unsigned long long)t->dims[3],
                       (long long)s->cols, (long long)s->rows);
    }
    s->tensor = t;
    l->all_bytes += t->n_bytes;
    l->m->n_params += (uint64_t)s->rows * (uint64_t)s->cols; /* at most 2^20 × 2^20 each */
    return 0;
}

static int compare_tensors(const void *a, const void *b)
{
    const struct gguf_tensor *x = *(const struct gguf_tensor *const *)a,
                             *y = *(const struct gguf_tensor *const *)b;
    return (x > y) - (x < y);
}

/* Every tensor of the file has a slot. */
static int refuse_others(const struct loader *l, struct err *e)
{
    const struct gguf_tensor **used = calloc(l->n_slots, sizeof *used);
    int rc = 0;
    if (!used) {
        return err_set(e, ERR_NOMEM, "out of memory for the list of tensors");
    }
    for (size_t i = 0; i < l->n_slots; i++) {
        used[i] = l->slots[i].tensor;
    }
    qsort(used, l->n_slots, sizeof *used, compare_tensors);
    for (size_t i = 0; i < gguf_n_tensors(l->g) && !rc; i++) {
        const struct gguf_tensor *t = gguf_tensor_at(l->g, i);
        if (bsearch(&t, used, l->n_slots, sizeof *used, compare_tensors)) {
            continue;
        }
        rc = strcmp(t->name, "rope_freqs.weight") == 0
                 ? err_set(e, ERR_UNSUPPORTED,
                           "tensor rope_freqs.weight: models that scale their rotation by "
                           "frequency (Llama 3.1 and later) aren't supported yet")
                 : err_set(e, ERR_UNSUPPORTED,
                           "tensor %s has no place in this engine's %s, and leaving it out would "
                           "change the answers",
                           t->name, model_archs());
    }
    free(used);
    return rc;
}

static size_t pad16(size_t n)
{
    return (n + 15) / 16 * 16;
}

static size_t rope_floats(const struct model_params *p)
{
    return (size_t)p->n_ctx_train * (size_t)p->n_rot;
}

/* Adds up what packing will take; nothing is allocated before this is known to fit. */
static int check_memory(struct loader *l, struct err *e)
{
    const struct model_params *p = &l->m->params;
    const size_t norms = ((size_t)p->n_layers * 2 + 1) * pad16((size_t)p->n_embd);
    l->m->floats_bytes = (norms + rope_floats(p)) * sizeof(float);
    uint64_t need = l->m->floats_bytes;
    for (size_t i = 0; i < l->n_slots; i++) {
        const struct slot *s = &l->slots[i];
        size_t n;
        if (!s->mat) {
            continue;
        }
        const int rc = mat_size(s->tensor->type, s->rows, s->cols, &n, e);
        if (rc) {
            return e ? err_prefix(e, "tensor %s", s->name) : rc;
        }
        need +=
            /* at most 2^13 matrices, each inside the address space: no overflow in 64 bits for what
             * a file can hold */
            n;
    }
    l->m->weights_bytes = need;
    l->m->region_bytes = (size_t)(need - l->m->floats_bytes);
    if (l->o->memory_bytes && need > l->o->memory_bytes) {
        return err_set(e, ERR_LIMIT,
                       "the weights need %llu MiB (%llu bytes), the memory budget is %llu MiB "
                       "(%llu bytes; --memory)",
                       (unsigned long long)(need >> 20), (unsigned long long)need,
                       (unsigned long long)(l->o->memory_bytes >> 20),
                       (unsigned long long)l->o->memory_bytes);
    }
    return 0;
}

/* ---- taking it in ---- */

static int make_floats(struct loader *l, struct err *e)
{
    struct model *m = l->m;
    void *p =
        sys.mmap(NULL, m->floats_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED) {
        const size_t n = m->floats_bytes;
        m->floats_bytes = 0;
        return err_sys(e, errno, "%zu bytes for norms and the RoPE table", n);
    }
    m->floats = p;
    m->rope = m->floats + ((size_t)m->params.n_layers * 2 + 1) * pad16((size_t)m->params.n_embd);
    return 0;
}

/* All matrices side by side, so that they lie in huge pages (one alone is too small for that). */
static int make_region(struct loader *l, struct err *e)
{
    l->m->region = mat_region_new(l->m->region_bytes);
    if (!l->m->region) {
        return err_set(e, ERR_NOMEM, "no memory for %zu bytes of weights", l->m->region_bytes);
    }
    return 0;
}

static void hash_tensor(struct hash_state *h, const struct gguf_tensor *t)
{
    hash_add(h, t->name, strlen(t->name) + 1);
    hash_add(h, &t->type, sizeof t->type);
    hash_add(h, t->dims, sizeof t->dims);
    hash_add(h, t->data, (size_t)t->n_bytes);
}

static int take_slots(struct loader *l, struct err *e)
{
    float *next = l->m->floats;
    unsigned char *place = l->m->region;
    for (size_t i = 0; i < l->n_slots; i++) {
        struct slot *s = &l->slots[i];
        const struct gguf_tensor *t = s->tensor;
        if (l->o->abort && atomic_load(l->o->abort)) {
            return err_set(e, ERR_CANCELED, "loading was canceled");
        }
        if (s->mat) {
            const struct mat_source source = {t->type, s->rows, s->cols, t->data};
            const int rc = mat_pack_at(&source, place, s->mat, e);
            if (rc) {
                return e ? err_prefix(e, "tensor %s", s->name) : rc;
            }
            place += s->mat->n_bytes;
        } else {
            quant_type(t->type)->dequantize(t->data, next, (size_t)s->cols);
            *s->vector = next;
            next += pad16((size_t)s->cols);
        }
        if (!l->is_hashed) {
            hash_tensor(&l->hash, t);
        }
        gguf_drop(l->g, t);
        l->done_bytes += t->n_bytes;
        if (l->o->on_progress) {
            l->o->on_progress(l->o->progress_ctx, (double)l->done_bytes / (double)l->all_bytes);
        }
    }
    return 0;
}

/*
 * cos and sin of position × frequency, computed in double and rounded once, so that no libm's last
 * bit gets in. frequency i = base^(−2 i / n_rot). RoFormer, arXiv 2104.09864, section 3.2.
 */
static int make_rope(const struct loader *l, struct err *e)
{
    const struct model_params *p = &l->m->params;
    const int half = p->n_rot / 2;
    double frequency[512]; /* n_rot <= 1024, checked with the parameters */
    assert(half <= 512);
    for (int i = 0; i < half; i++) {
        frequency[i] = pow((double)p->rope_base, -2.0 * i / p->n_rot) * (double)p->rope_scale;
    }
    for (int pos = 0; pos < p->n_ctx_train; pos++) {
        float *row = l->m->rope + (size_t)pos * (size_t)p->n_rot;
        if (pos % 1024 == 0 && l->o->abort && atomic_load(l->o->abort)) {
            return err_set(e, ERR_CANCELED, "loading was canceled");
        }
        for (int i = 0; i < half; i++) {
            row[2 * i] = (float)cos(pos * frequency[i]);
            row[2 * i + 1] = (float)sin(pos * frequency[i]);
        }
    }
    return 0;
}

static int load(struct loader *l, struct err *e)
{
    int rc = model_read_params(l->g, &l->m->params, e);
    if (!rc) {
        rc = make_slots(l, e);
    }
    for (size_t i = 0; i < l->n_slots && !rc; i++) {
        rc = check_slot(l, &l->slots[i], e);
    }
    if (!rc) {
        rc = refuse_others(l, e);
    }
    if (!rc) {
        rc = check_memory(l, e);
    }
    if (!rc) {
        rc = make_floats(l, e);
    }
    if (!rc) {
        rc = make_region(l, e);
    }
    if (rc) {
        return rc;
    }
    l->is_hashed = fingerprint_recall(l->o->fingerprint_cache, gguf_stat(l->g), l->m->weights_hash);
    hash_init(&l->hash);
    rc = take_slots(l, e);
    if (!rc) {
        rc = make_rope(l, e);
    }
    if (!rc && !l->is_hashed) {
        hash_end(&l->hash, l->m->weights_hash);
        fingerprint_remember(l->o->fingerprint_cache, gguf_stat(l->g), l->m->weights_hash);
    }
    return rc;
}

int model_open(const struct gguf *g, const struct engine_options *o, struct model **ret,
               struct err *e)
{
    struct loader l = {.g = g, .o = o, .m = sys.malloc(sizeof *l.m)};
    if (!l.m) {
        return err_set(e, ERR_NOMEM, "out of memory for the model");
    }
    memset(l.m, 0, sizeof *l.m);
    const int rc = load(&l, e);
    free(l.slots);
    if (rc) {
        model_close(l.m);
        return rc;
    }
    *ret = l.m;
    return 0;
}

void model_close(struct model *m)
{
    if (!m) {
        return;
    }
    for (int i = 0; m->layers && i < m->params.n_layers; i++) {
        struct model_layer *layer = &m->layers[i];
        struct mat *mats[] = {&layer->q,    &layer->k,  &layer->v,   &layer->o,
                              &layer->gate, &layer->up, &layer->down};
        for (size_t k = 0; k < sizeof mats / sizeof *mats; k++) {
            mat_done(mats[k]);
        }
    }
    mat_done(&m->embd);
    mat_done(&m->output);
    mat_region_free(m->region, m->region_bytes);
    if (m->floats) {
        munmap(m->floats, m->floats_bytes);
    }
    free(m->layers);
    free(m);
}
