/*
 * What an architecture consists of: the list of a file's tensors, their shapes and where they go.
 */
#include <stdio.h>
#include <stdlib.h>

#include "engine/model_impl.h"

#define LAYER_SLOTS 24

static struct slot *add_slot(struct loader *l, const char *name, int64_t rows, int64_t cols,
                             struct mat *mat)
{
    struct slot *s = &l->slots[l->n_slots++];
    snprintf(s->name, sizeof s->name, "%s", name);
    s->rows = s->all_rows = rows;
    s->planes = 1;
    s->cols = s->file_cols = cols;
    s->head_rows = l->m->params.head_dim;
    s->mat = mat;
    return s;
}

static struct slot *add_vector(struct loader *l, const char *name, int64_t n, float **vector)
{
    struct slot *s = add_slot(l, name, 1, n, NULL);
    s->vector = vector;
    return s;
}

/* A vector of a layer. */
struct layer_vector {
    const char *name;
    int64_t n;
    float **vector;
    bool is_turned; /* where the architecture's rotation is */
};

static void add_layer_vectors(struct loader *l, int i, const struct layer_vector *v, size_t n)
{
    char name[SLOT_NAME_BYTES];
    for (size_t k = 0; k < n; k++) {
        snprintf(name, sizeof name, "blk.%d.%s", i, v[k].name);
        add_vector(l, name, v[k].n, v[k].vector)->is_turned =
            v[k].is_turned && l->m->params.arch->rotates_halves;
    }
}

/* Norms and biases: what the architecture has. */
static void add_vectors(struct loader *l, int i)
{
    const struct model_params *p = &l->m->params;
    struct model_layer *layer = &l->m->layers[i];
    const int64_t n_q = (int64_t)p->n_heads * p->head_dim,
                  n_kv = (int64_t)p->n_kv_heads * p->head_dim;
    const struct layer_vector
        norms[] = {{"attn_norm.weight", p->n_embd, &layer->attn_norm, false},
                   {"ffn_norm.weight", p->n_embd, &layer->ffn_norm, false}},
        post[] = {{"post_attention_norm.weight", p->n_embd, &layer->attn_post_norm, false},
                  {"post_ffw_norm.weight", p->n_embd, &layer->ffn_post_norm, false}},
        heads[] = {{"attn_q_norm.weight", p->head_dim, &layer->q_norm, true},
                   {"attn_k_norm.weight", p->head_dim, &layer->k_norm, true}},
        latent[] = {{"attn_kv_a_norm.weight", p->latent.kv_rank, &layer->kv_a_norm, false},
                    {"attn_q_a_norm.weight", p->latent.q_rank, &layer->q_a_norm, false}},
        biases[] = {{"attn_q.bias", n_q, &layer->q_bias, true},
                    {"attn_k.bias", n_kv, &layer->k_bias, true},
                    {"attn_v.bias", n_kv, &layer->v_bias, false}};
    add_layer_vectors(l, i, norms, 2);
    if (p->arch->is_latent) {
        add_layer_vectors(l, i, latent, p->latent.q_rank ? 2 : 1);
    }
    if (p->arch->has_post_norms) {
        add_layer_vectors(l, i, post, 2);
    }
    if (p->arch->has_head_norms) {
        add_layer_vectors(l, i, heads, 2);
    }
    if (p->arch->has_bias) {
        add_layer_vectors(l, i, biases, 3);
    }
}

/* Rows of a layer's matrix. */
struct layer_mat {
    const char *name;
    int64_t rows, cols, planes;
    struct mat *mat;
};

static void add_layer_mats(struct loader *l, int i, const struct layer_mat *mats, size_t n)
{
    char name[SLOT_NAME_BYTES];
    for (size_t k = 0; k < n; k++) {
        snprintf(name, sizeof name, "blk.%d.%s.weight", i, mats[k].name);
        add_slot(l, name, mats[k].rows, mats[k].cols, mats[k].mat)->planes = mats[k].planes;
    }
}

/* Keys' and values' up-projections, head by head: a tensor each, or one of both, in which files
 * from before they were split have them. */
static void add_up(struct loader *l, int i)
{
    const struct model_params *p = &l->m->params;
    const struct model_latent *la = &p->latent;
    struct model_layer *layer = &l->m->layers[i];
    const int64_t heads = p->n_heads;
    const struct layer_mat mats[] = {
        {"attn_k_b", heads * la->kv_rank, la->nope, heads, &layer->k_b},
        {"attn_v_b", heads * la->value, la->kv_rank, heads, &layer->v_b},
    };
    char name[SLOT_NAME_BYTES];
    if (!la->is_unsplit) {
        add_layer_mats(l, i, mats, 2);
        return;
    }
    snprintf(name, sizeof name, "blk.%d.attn_kv_b.weight", i);
    for (int k = 0; k < 2; k++) {
        struct slot *s = add_slot(l, name, mats[k].rows, mats[k].cols, mats[k].mat);
        s->file_cols = la->kv_rank;
        s->all_rows = heads * (la->nope + la->value);
        s->up = k ? UP_VALUES : UP_KEYS;
    }
}

/* Rows of the rotated end of what compressed attention's files write half a head apart. */
static void turn_ends(struct slot *s, int64_t head_rows, int64_t still)
{
    s->is_turned = true;
    s->head_rows = head_rows;
    s->still = still;
}

/* The matrices of compressed attention. */
static void add_latent(struct loader *l, int i)
{
    const struct model_params *p = &l->m->params;
    const struct model_latent *la = &p->latent;
    struct model_layer *layer = &l->m->layers[i];
    const int64_t own = la->nope + p->n_rot, n_q = p->n_heads * own;
    const struct layer_mat mats[] = {
        {"attn_kv_a_mqa", la->kv_rank + p->n_rot, p->n_embd, 1, &layer->kv_a},
        {la->q_rank ? "attn_q_b" : "attn_q", n_q, la->q_rank ? la->q_rank : p->n_embd, 1,
         &layer->q},
        {"attn_output", p->n_embd, (int64_t)p->n_heads * la->value, 1, &layer->o},
        {"attn_q_a", la->q_rank, p->n_embd, 1, &layer->q_a}, /* only where queries have a rank */
    };
    const size_t first = l->n_slots;
    add_layer_mats(l, i, mats, la->q_rank ? 4 : 3);
    add_up(l, i);
    if (p->arch->rotates_halves) {
        turn_ends(&l->slots[first], p->head_dim, la->kv_rank);
        turn_ends(&l->slots[first + 1], own, la->nope);
    }
}

/* The router, the experts, each kind's in one tensor, and the one that all tokens go to. */
static void add_experts(struct loader *l, int i)
{
    const struct model_params *p = &l->m->params;
    const struct model_experts *x = &p->experts;
    struct model_layer *layer = &l->m->layers[i];
    const int64_t n = x->count, n_embd = p->n_embd, n_ff = x->n_ff, shared = x->n_ff_shared;
    const struct layer_mat routed[] = {
        {"ffn_gate_inp", n, n_embd, 1, &layer->router},
        {"ffn_gate_exps", n * n_ff, n_embd, n, &layer->gate_exps},
        {"ffn_up_exps", n * n_ff, n_embd, n, &layer->up_exps},
        {"ffn_down_exps", n * n_embd, n_ff, n, &layer->down_exps},
    }, for_all[] = {
        {"ffn_gate_shexp", shared, n_embd, 1, &layer->gate},
        {"ffn_up_shexp", shared, n_embd, 1, &layer->up},
        {"ffn_down_shexp", n_embd, shared, 1, &layer->down},
        {"ffn_gate_inp_shexp", 1, n_embd, 1, &layer->shared_gate},
    };
    char name[SLOT_NAME_BYTES];
    add_layer_mats(l, i, routed, 4);
    if (shared) {
        add_layer_mats(l, i, for_all, p->arch->has_shared_gate ? 4 : 3);
    }
    snprintf(name, sizeof name, "blk.%d.exp_probs_b.bias", i);
    if (gguf_tensor(l->g, name)) {
        add_vector(l, name, n, &layer->router_bias);
    }
}

static void add_layer(struct loader *l, int i)
{
    const struct model_params *p = &l->m->params;
    struct model_layer *layer = &l->m->layers[i];
    const bool is_fused = p->arch->is_fused;
    const int64_t n_q = (int64_t)p->n_heads * p->head_dim,
                  n_kv = (int64_t)p->n_kv_heads * p->head_dim, n_embd = p->n_embd, n_ff = p->n_ff;
    const struct {
        const char *name, *fused; /* where the rows are part of a larger tensor */
        int64_t rows, cols, row0, all_rows;
        struct mat *mat;
        bool is_turned;
    } mats[] = {
        {"attn_q", "attn_qkv", n_q, n_embd, 0, n_q + 2 * n_kv, &layer->q, true},
        {"attn_k", "attn_qkv", n_kv, n_embd, n_q, n_q + 2 * n_kv, &layer->k, true},
        {"attn_v", "attn_qkv", n_kv, n_embd, n_q + n_kv, n_q + 2 * n_kv, &layer->v, false},
        {"attn_output", NULL, n_embd, n_q, 0, 0, &layer->o, false},
        {"ffn_gate", "ffn_up", n_ff, n_embd, 0, 2 * n_ff, &layer->gate, false},
        {"ffn_up", "ffn_up", n_ff, n_embd, n_ff, 2 * n_ff, &layer->up, false},
        {"ffn_down", NULL, n_embd, n_ff, 0, 0, &layer->down, false},
    };
    const bool has_experts = p->experts.count && i >= p->experts.n_dense;
    char name[SLOT_NAME_BYTES];
    if (p->arch->is_latent) {
        add_latent(l, i);
    }
    if (has_experts) {
        add_experts(l, i);
    }
    /* Attention's four come first. */
    for (size_t k = p->arch->is_latent ? 4 : 0; k < (has_experts ? 4u : 7u); k++) {
        const bool is_part = is_fused && mats[k].fused;
        snprintf(name, sizeof name, "blk.%d.%s.weight", i,
                 is_part ? mats[k].fused : mats[k].name);
        struct slot *s = add_slot(l, name, mats[k].rows, mats[k].cols, mats[k].mat);
        s->is_turned = mats[k].is_turned && p->arch->rotates_halves;
        if (is_part) {
            s->row0 = mats[k].row0;
            s->all_rows = mats[k].all_rows;
        }
    }
    add_vectors(l, i);
}

/* Factors of the rotation's frequencies: what the file has of them. */
static void add_factors(struct loader *l)
{
    const struct {
        const char *name;
        float **vector;
    } factors[] = {{"rope_freqs.weight", &l->freqs},
                   {"rope_factors_long.weight", &l->long_factors},
                   {"rope_factors_short.weight", &l->short_factors}};
    for (size_t i = 0; i < sizeof factors / sizeof *factors; i++) {
        if (gguf_tensor(l->g, factors[i].name)) {
            add_vector(l, factors[i].name, l->m->params.n_rot / 2, factors[i].vector);
        }
    }
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

int model_make_slots(struct loader *l, struct err *e)
{
    struct model *m = l->m;
    const struct model_params *p = &m->params;
    int rc = read_vocab_size(l, e);
    if (rc) {
        return rc;
    }
    m->layers = calloc((size_t)p->n_layers, sizeof *m->layers);
    l->slots = calloc((size_t)p->n_layers * LAYER_SLOTS + 6, sizeof *l->slots);
    if (!m->layers || !l->slots) {
        return err_set(e, ERR_NOMEM, "out of memory for a model of %d layers", p->n_layers);
    }
    add_slot(l, "token_embd.weight", p->n_vocab, p->n_embd, &m->embd);
    m->lm_head = &m->embd;
    for (int i = 0; i < p->n_layers; i++) {
        add_layer(l, i);
    }
    add_vector(l, "output_norm.weight", p->n_embd, &m->output_norm);
    add_factors(l);
    if (gguf_tensor(l->g, "output.weight")) {
        add_slot(l, "output.weight", p->n_vocab, p->n_embd, &m->output);
        m->lm_head = &m->output;
    }
    return 0;
}
