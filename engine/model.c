/*
 * Loading a model: a list of what the architecture consists of, checked against the file before a
 * byte is allocated, then packed tensor by tensor.
 *
 *     params ─► slots (name, shape, where it goes) ─► every tensor there, right shape, none left
 *            over ─► bytes needed < budget ─► one mapping for norms and RoPE
 *            ─► pack each matrix and hash it, by all threads, drop its pages ─► RoPE table
 *
 * A tensor of the file that no slot asks for (an adapter, a draft head) would be silently ignored
 * and change the answers: it is refused by name.
 *
 * Files differ in how they write the same thing, and only here: a slot may be some rows of a larger
 * tensor (Phi's q, k and v in one), or its rows in another order (model_order.c). The pass knows
 * one kind.
 *
 * The file's mapping is clean page cache and is given up tensor by tensor, so the most that is
 * resident at once is the packed model and one tensor.
 */
#include "engine/model_impl.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/hash_tree.h"
#include "base/sys.h"
#include "engine/cores.h"
#include "engine/fingerprint.h"
#include "engine/pool.h"
#include "engine/quant.h"

/* ---- what is there ---- */

/* The tensor isn't needed after this slot. */
static bool is_last_part(const struct slot *s)
{
    return s->up ? s->up == UP_VALUES : s->row0 + s->rows == s->all_rows;
}

static int check_slot(struct loader *l, struct slot *s, struct err *e)
{
    const struct gguf_tensor *t = gguf_tensor(l->g, s->name);
    if (!t) {
        return err_set(e, ERR_CORRUPT, "tensor %s is missing", s->name);
    }
    if (t->dims[0] != (uint64_t)s->file_cols || t->dims[1] != (uint64_t)(s->all_rows / s->planes) ||
        t->dims[2] != (uint64_t)s->planes || t->dims[3] != 1) {
        return err_set(e, ERR_CORRUPT,
                       "tensor %s has the shape [%llu, %llu, %llu, %llu], it must be [%lld, %lld, "
                       "%lld]",
                       s->name, (unsigned long long)t->dims[0], (unsigned long long)t->dims[1],
                       (unsigned long long)t->dims[2], (unsigned long long)t->dims[3],
                       (long long)s->file_cols, (long long)(s->all_rows / s->planes),
                       (long long)s->planes);
    }
    s->tensor = t;
    l->all_bytes += is_last_part(s) ? t->n_bytes : 0;
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
        rc = err_set(e, ERR_UNSUPPORTED,
                     "tensor %s has no place in this engine's %s, and leaving it out would change "
                     "the answers",
                     t->name, l->m->params.arch->name);
    }
    free(used);
    return rc;
}

static size_t pad16(size_t n)
{
    return (n + 15) / 16 * 16;
}

static size_t vector_floats(const struct loader *l)
{
    size_t n = 0;
    for (size_t i = 0; i < l->n_slots; i++) {
        n += l->slots[i].mat ? 0 : pad16((size_t)l->slots[i].cols);
    }
    return n;
}

/* Adds up what packing will take; nothing is allocated before this is known to fit. */
static int check_memory(struct loader *l, struct err *e)
{
    l->m->floats_bytes =
        (vector_floats(l) + model_rope_floats(&l->m->params)) * sizeof(float);
    uint64_t need = l->m->floats_bytes;
    for (size_t i = 0; i < l->n_slots; i++) {
        const struct slot *s = &l->slots[i];
        if (!s->mat) {
            continue;
        }
        const struct mat_source source = {model_slot_type(s), s->rows, s->cols, NULL};
        const int rc = mat_plan_at(&source, NULL, s->mat, e);
        if (rc) {
            return e ? err_prefix(e, "tensor %s", s->name) : rc;
        }
        need +=
            /* at most 2^13 matrices, each inside the address space: no overflow in 64 bits for what
             * a file can hold */
            s->mat->n_bytes;
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
        return err_sys(e, errno, "%zu bytes for norms and RoPE tables", n);
    }
    m->floats = p;
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

/* Room for the sums of a tensor's leaves, the caller's. */
static int make_leaves(const struct gguf_tensor *t, uint8_t (**ret)[SUM_BYTES], struct err *e)
{
    *ret = sys.malloc(hash_n_leaves((size_t)t->n_bytes) * sizeof **ret);
    return *ret ? 0 : err_set(e, ERR_NOMEM, "no memory for the hash of tensor %s", t->name);
}

static void hash_tensor(struct hash_state *h, const struct gguf_tensor *t,
                        uint8_t (*leaves)[SUM_BYTES])
{
    uint8_t root[HASH_BYTES];
    hash_root(leaves, (size_t)t->n_bytes, root);
    hash_add(h, t->name, strlen(t->name) + 1);
    hash_add(h, &t->type, sizeof t->type);
    hash_add(h, t->dims, sizeof t->dims);
    hash_add(h, root, sizeof root);
}

/* A matrix on its way in, by the items of a pool: n_hashes of them hash ITEM_LEAVES leaves each, if
 * that is due, n_packs pack PACK_GROUPS groups each. They are mixed evenly, so that what is hashed
 * is still in a cache when it is packed. */
struct taking {
    const struct slot *s;
    struct mat_source source;
    uint8_t (*leaves)[SUM_BYTES]; /* NULL: the hash is known, or a later part's */
    int n_hashes, n_packs;
};
#define PACK_GROUPS 8
#define ITEM_LEAVES 16

static void take_item(void *ctx, int item, int thread)
{
    const struct taking *t = ctx;
    const int64_t n = t->n_hashes + t->n_packs; /* each below 2^20 */
    /* Of the items up to this one, rounded up: a hash comes before what it is packed to. */
    const int n_before = (int)((item * (int64_t)t->n_hashes + n - 1) / n),
              n_now = (int)(((item + 1) * (int64_t)t->n_hashes + n - 1) / n);
    (void)thread;
    if (n_now == n_before) {
        const int group0 = (item - n_before) * PACK_GROUPS,
                  left = mat_n_groups(t->s->mat) - group0;
        mat_pack_groups(&t->source, t->s->mat, group0, left < PACK_GROUPS ? left : PACK_GROUPS);
        return;
    }
    const size_t n_bytes = (size_t)t->s->tensor->n_bytes, first = (size_t)n_before * ITEM_LEAVES,
                 left = hash_n_leaves(n_bytes) - first;
    hash_leaves(t->s->tensor->data, n_bytes, first, left < ITEM_LEAVES ? left : ITEM_LEAVES,
                t->leaves);
}

static int plan_hashes(struct taking *t, struct err *e)
{
    const size_t n = hash_n_leaves((size_t)t->s->tensor->n_bytes);
    t->n_hashes = (int)((n + ITEM_LEAVES - 1) / ITEM_LEAVES);
    return make_leaves(t->s->tensor, &t->leaves, e);
}

static int take_matrix(struct loader *l, struct slot *s, unsigned char *place, struct err *e)
{
    void *copy;
    struct taking t = {s, {model_slot_type(s), s->rows, s->cols,
                              model_slot_rows(&l->m->params, s, &copy)},
                       NULL, 0, 0};
    if (!t.source.data) {
        return err_set(e, ERR_NOMEM, "no memory to order the rows of tensor %s", s->name);
    }
    int rc = mat_plan_at(&t.source, place, s->mat, e);
    if (rc == 0 && !l->is_hashed && is_last_part(s)) {
        rc = plan_hashes(&t, e);
    }
    if (rc == 0) {
        t.n_packs = (mat_n_groups(s->mat) + PACK_GROUPS - 1) / PACK_GROUPS;
        pool_run(l->pool, take_item, &t, t.n_hashes + t.n_packs);
    }
    if (rc == 0 && t.leaves) {
        hash_tensor(&l->hash, s->tensor, t.leaves);
    }
    free(t.leaves);
    free(copy);
    return rc && e ? err_prefix(e, "tensor %s", s->name) : rc;
}

static int take_vector(struct loader *l, const struct slot *s, float *place, struct err *e)
{
    quant_type(s->tensor->type)->dequantize(s->tensor->data, place, (size_t)s->cols);
    *s->vector = place;
    if (!l->is_hashed && is_last_part(s)) {
        const size_t n_bytes = (size_t)s->tensor->n_bytes;
        uint8_t (*leaves)[SUM_BYTES];
        const int rc = make_leaves(s->tensor, &leaves, e);
        if (rc) {
            return rc;
        }
        hash_leaves(s->tensor->data, n_bytes, 0, hash_n_leaves(n_bytes), leaves);
        hash_tensor(&l->hash, s->tensor, leaves);
        free(leaves);
    }
    if (!s->is_turned) {
        return 0;
    }
    float *copy = sys.malloc((size_t)s->cols * sizeof *copy);
    if (!copy) {
        return err_set(e, ERR_NOMEM, "no memory to order tensor %s", s->name);
    }
    memcpy(copy, place, (size_t)s->cols * sizeof *copy);
    for (int64_t i = 0; i < s->cols; i++) {
        place[i] = copy[model_source_row(&l->m->params, s, i)];
    }
    free(copy);
    return 0;
}

static void done_with(struct loader *l, const struct gguf_tensor *t)
{
    gguf_drop(l->g, t);
    l->done_bytes += t->n_bytes;
    if (l->o->on_progress) {
        l->o->on_progress(l->o->progress_ctx, (double)l->done_bytes / (double)l->all_bytes);
    }
}

/* *ret_next: behind the vectors. */
static int take_slots(struct loader *l, float **ret_next, struct err *e)
{
    float *next = l->m->floats;
    unsigned char *place = l->m->region;
    for (size_t i = 0; i < l->n_slots; i++) {
        struct slot *s = &l->slots[i];
        if ((l->o->abort && atomic_load(l->o->abort)) ||
            (l->watch && atomic_load(l->watch->stop))) {
            return err_set(e, ERR_CANCELED, "loading was canceled");
        }
        const int rc = s->mat ? take_matrix(l, s, place, e) : take_vector(l, s, next, e);
        if (rc) {
            return rc;
        }
        if (s->mat) {
            place += s->mat->n_bytes;
        } else {
            next += pad16((size_t)s->cols);
        }
        if (is_last_part(s)) {
            done_with(l, s->tensor);
        }
    }
    *ret_next = next;
    return 0;
}

/* The factors that this model's rotation goes by. A zero or less would be no frequency. */
static int choose_factors(struct loader *l, struct err *e)
{
    struct model *m = l->m;
    const struct model_params *p = &m->params;
    const bool is_long = p->n_ctx > p->rope.n_ctx_orig;
    m->rope_factors = l->freqs;
    if (!m->rope_factors && (l->long_factors || l->short_factors)) {
        m->rope_factors = is_long ? l->long_factors : l->short_factors;
        if (!m->rope_factors) {
            return err_set(e, ERR_CORRUPT, "tensor rope_factors_%s.weight is missing",
                           is_long ? "long" : "short");
        }
    }
    if (p->rope.scaling == ROPE_LONG && !m->rope_factors) {
        return err_set(e, ERR_CORRUPT, "rope scaling \"longrope\" without a tensor of factors");
    }
    for (int i = 0; m->rope_factors && i < p->n_rot / 2; i++) {
        if (!(m->rope_factors[i] > 1e-6f && m->rope_factors[i] < 1e6f)) {
            return err_set(e, ERR_CORRUPT,
                           "factor %d of the rotation is %g, it must be between 1e-6 and 1e6", i,
                           (double)m->rope_factors[i]);
        }
    }
    return 0;
}

/* All that is known before a byte is allocated for the weights. */
static int measure(struct loader *l, struct err *e)
{
    int rc = model_read_params(l->g, &l->m->params, e);
    if (!rc) {
        struct model_params *p = &l->m->params;
        p->n_ctx = l->o->n_ctx > 0 && l->o->n_ctx < p->n_ctx ? l->o->n_ctx : p->n_ctx;
        rc = model_make_slots(l, e);
    }
    for (size_t i = 0; i < l->n_slots && !rc; i++) {
        rc = check_slot(l, &l->slots[i], e);
    }
    if (!rc) {
        rc = refuse_others(l, e);
    }
    return rc ? rc : check_memory(l, e);
}

static int load(struct loader *l, struct err *e)
{
    float *tables = NULL;
    int rc = measure(l, e);
    if (!rc && l->watch) {
        rc = l->watch->on_measured(l->watch->ctx, l->m, e);
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
    rc = pool_new(l->o->n_threads ? l->o->n_threads : cores_default(), &l->pool, e);
    if (rc) {
        return rc;
    }
    l->is_hashed = fingerprint_recall(l->o->fingerprint_cache, gguf_stat(l->g), l->m->weights_hash);
    hash_init(&l->hash);
    hash_add(&l->hash, "hearth weights 3", 17);
    rc = take_slots(l, &tables, e);
    if (!rc) {
        rc = choose_factors(l, e);
    }
    if (!rc) {
        rc = model_make_rope(l->m, tables, &(struct rope_by){l->pool, l->o->abort}, e);
    }
    if (!rc && !gguf_is_unchanged(l->g)) {
        /* Else what is packed might not be what was hashed, and be served under its name. */
        rc = err_set(e, ERR_CORRUPT, "the file was written to while it was read");
    }
    if (!rc && !l->is_hashed) {
        hash_end(&l->hash, l->m->weights_hash);
        fingerprint_remember(l->o->fingerprint_cache, gguf_stat(l->g), l->m->weights_hash);
    }
    return rc;
}

int model_measure(const struct gguf *g, int n_ctx, uint64_t *ret_bytes, struct err *e)
{
    const struct engine_options o = {.n_ctx = n_ctx};
    struct model *m = calloc(1, sizeof *m);
    struct loader l = {.g = g, .o = &o, .m = m};
    if (!m) {
        return err_set(e, ERR_NOMEM, "out of memory for the model");
    }
    const int rc = measure(&l, e);
    if (!rc) {
        *ret_bytes = m->weights_bytes;
    }
    free(l.slots);
    m->region_bytes = m->floats_bytes = 0; /* counted, not there */
    model_close(m);
    return rc;
}

int model_open(const struct gguf *g, const struct engine_options *o, const struct model_watch *w,
               struct model **ret, struct err *e)
{
    struct loader l = {.g = g, .o = o, .watch = w, .m = sys.malloc(sizeof *l.m)};
    if (!l.m) {
        return err_set(e, ERR_NOMEM, "out of memory for the model");
    }
    memset(l.m, 0, sizeof *l.m);
    const int rc = load(&l, e);
    pool_free(l.pool);
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
        struct mat *mats[] = {&layer->q,   &layer->k,    &layer->v,   &layer->o,
                              &layer->gate, &layer->up,  &layer->down, &layer->q_a,
                              &layer->kv_a, &layer->k_b, &layer->v_b, &layer->router,
                              &layer->shared_gate, &layer->gate_exps, &layer->up_exps,
                              &layer->down_exps};
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
