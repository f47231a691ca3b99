/* Synthetic models (gguf_model.h). */
#include "tests/engine/load/gguf_model.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/quant.h"
#include "tests/scripted/vocab.h"

static const char chat_template[] =
    "{% for message in messages %}{% if loop.first and messages[0]['role'] != 'system' %}{{ "
    "'<|im_start|>system\nYou are a random model.<|im_end|>\n' }}"
    "{% endif %}{{'<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + "
    "'\n'}}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}";

struct gguf_model gguf_model_small(uint32_t type)
{
    return (struct gguf_model){
        .n_vocab = 300,
        .n_embd = 96,
        .n_ff = 160,
        .n_layers = 2,
        .n_heads = 3,
        .n_kv_heads = 1,
        .head_dim = 32,
        .n_ctx = 512,
        .type = type,
        .embd_type = QUANT_Q8_0,
        .output_type = -1,
        .seed = 1,
    };
}

void gguf_model_k_shape(struct gguf_model *m)
{
    m->n_embd = 256;
    m->n_ff = 512;
    m->n_heads = 4;
    m->n_kv_heads = 2;
    m->head_dim = 64;
}

static void put_tokenizer(const struct gguf_model *m, struct gguf_writer *w)
{
    struct vocab *v;
    struct tok_spec spec;
    struct err e;
    if (vocab_new(&v, &e) || vocab_fill(v, m->n_vocab, &e) || vocab_size(v) != m->n_vocab) {
        fprintf(stderr, "gguf_model: a vocabulary of %d tokens can't be made\n", m->n_vocab);
        abort();
    }
    vocab_spec(v, &spec);
    gguf_put_str(w, "tokenizer.ggml.model", spec.model);
    gguf_put_str(w, "tokenizer.ggml.pre", spec.pre);
    gguf_put_strs(w, "tokenizer.ggml.tokens", spec.pieces, spec.n_vocab);
    gguf_put_i32s(w, "tokenizer.ggml.token_type", spec.types, spec.n_vocab);
    gguf_put_strs(w, "tokenizer.ggml.merges", spec.merges, spec.n_merges);
    gguf_put_u32(w, "tokenizer.ggml.eos_token_id", (uint32_t)spec.eos);
    gguf_put_int(w, "tokenizer.ggml.add_bos_token", GGUF_BOOL, 0);
    gguf_put_str(w, "tokenizer.chat_template", chat_template);
    vocab_free(v);
}

static void put_matrix(struct gguf_writer *w, const char *name, uint32_t type, int rows, int cols)
{
    struct gguf_writer_tensor *t =
        gguf_put_tensor(w, name, type, 2, (uint64_t[]){(uint64_t)cols, (uint64_t)rows});
    t->scale = 1.0f / sqrtf((float)cols); /* so that activations keep their size */
}

static void put_norm(struct gguf_writer *w, const char *name, int n)
{
    gguf_put_tensor(w, name, QUANT_F32, 1, (uint64_t[]){(uint64_t)n})->scale = 1.0f;
}

/* What an architecture's files have beside llama's tensors. */
static const struct family {
    const char *arch;
    bool has_bias, has_head_norms, has_post_norms, is_fused, is_latent, has_shared_gate;
} families[] = {
    {"llama", false, false, false, false},   {"qwen2", true, false, false, false},
    {"qwen3", false, true, false, false},    {"gemma", false, false, false, false},
    {"gemma2", false, false, true, false},   {"gemma3", false, true, true, false},
    {"granite", false, false, false, false}, {"phi3", false, false, false, true},
    {"smollm3", false, false, false, false}, {"deepseek2", .is_latent = true},
    {"minicpm3", .is_latent = true},
    {"deepseek", false, false, false, false}, {"granitemoe", false, false, false, false},
    {"qwen3moe", .has_head_norms = true},
    {"qwen2moe", .has_bias = true, .has_shared_gate = true},
};

static const struct family *family_of(const struct gguf_model *m)
{
    for (size_t i = 0; m->arch && i < sizeof families / sizeof *families; i++) {
        if (!strcmp(families[i].arch, m->arch)) {
            return &families[i];
        }
    }
    return &families[0];
}

/* A tensor of a layer; rows 0: a vector. */
struct layer_tensor {
    bool is_there;
    const char *name;
    int rows, cols;
};

static void put_tensors(const struct gguf_model *m, struct gguf_writer *w, int i,
                        const struct layer_tensor *t, size_t n)
{
    char name[64];
    for (size_t k = 0; k < n; k++) {
        snprintf(name, sizeof name, "blk.%d.%s", i, t[k].name);
        if (t[k].is_there && t[k].rows) {
            put_matrix(w, name, m->type, t[k].rows, t[k].cols);
        } else if (t[k].is_there) {
            put_norm(w, name, t[k].cols);
        }
    }
}

/* MLA's sizes, from the head's: its rotated part, and the ranks. */
static int latent_rot(const struct gguf_model *m)
{
    return m->head_dim / 2;
}
static int latent_kv_rank(const struct gguf_model *m)
{
    return 2 * m->head_dim;
}
static int latent_q_rank(const struct gguf_model *m)
{
    return 3 * m->head_dim;
}

/* One matrix a head, in one tensor. */
static void put_heads(struct gguf_writer *w, const char *name, uint32_t type,
                      const uint64_t dims[3])
{
    gguf_put_tensor(w, name, type, 3, dims)->scale = 1.0f / sqrtf((float)dims[0]);
}

/* Keys' and values' up-projections: in one tensor, or each head's own. */
static void put_up(const struct gguf_model *m, struct gguf_writer *w, int i)
{
    const int kv = latent_kv_rank(m);
    const uint64_t heads = (uint64_t)m->n_heads, dim = (uint64_t)m->head_dim;
    char name[64];
    if (m->is_unsplit) {
        snprintf(name, sizeof name, "blk.%d.attn_kv_b.weight", i);
        put_matrix(w, name, m->type, 2 * m->n_heads * m->head_dim, kv);
        return;
    }
    snprintf(name, sizeof name, "blk.%d.attn_k_b.weight", i);
    put_heads(w, name, m->type, (uint64_t[]){dim, (uint64_t)kv, heads});
    snprintf(name, sizeof name, "blk.%d.attn_v_b.weight", i);
    put_heads(w, name, m->type, (uint64_t[]){(uint64_t)kv, dim, heads});
}

static void put_latent(const struct gguf_model *m, struct gguf_writer *w, int i)
{
    const int own = m->head_dim + latent_rot(m), kv = latent_kv_rank(m), q = latent_q_rank(m);
    const bool has_rank = !m->is_lite;
    const struct layer_tensor tensors[] = {
        {has_rank, "attn_q_a.weight", q, m->n_embd},
        {has_rank, "attn_q_b.weight", m->n_heads * own, q},
        {!has_rank, "attn_q.weight", m->n_heads * own, m->n_embd},
        {true, "attn_kv_a_mqa.weight", kv + latent_rot(m), m->n_embd},
        {has_rank, "attn_q_a_norm.weight", 0, q},
        {true, "attn_kv_a_norm.weight", 0, kv},
    };
    put_tensors(m, w, i, tensors, sizeof tensors / sizeof *tensors);
    put_up(m, w, i);
}

/* The router (F32, as files have it), the experts, and the one for all. */
static void put_experts(const struct gguf_model *m, struct gguf_writer *w, int i)
{
    const bool is_gated = family_of(m)->has_shared_gate;
    const int shared = m->n_shared * m->n_ff_exp;
    const uint64_t n = (uint64_t)m->n_experts, n_embd = (uint64_t)m->n_embd,
                   n_ff = (uint64_t)m->n_ff_exp;
    const struct layer_tensor tensors[] = {
        {shared > 0, "ffn_gate_shexp.weight", shared, m->n_embd},
        {shared > 0, "ffn_up_shexp.weight", shared, m->n_embd},
        {shared > 0, "ffn_down_shexp.weight", m->n_embd, shared},
    };
    char name[64];
    put_tensors(m, w, i, tensors, sizeof tensors / sizeof *tensors);
    snprintf(name, sizeof name, "blk.%d.ffn_gate_inp.weight", i);
    put_matrix(w, name, QUANT_F32, m->n_experts, m->n_embd);
    snprintf(name, sizeof name, "blk.%d.ffn_gate_exps.weight", i);
    put_heads(w, name, m->type, (uint64_t[]){n_embd, n_ff, n});
    snprintf(name, sizeof name, "blk.%d.ffn_up_exps.weight", i);
    put_heads(w, name, m->type, (uint64_t[]){n_embd, n_ff, n});
    snprintf(name, sizeof name, "blk.%d.ffn_down_exps.weight", i);
    put_heads(w, name, m->type, (uint64_t[]){n_ff, n_embd, n});
    if (shared && is_gated) {
        snprintf(name, sizeof name, "blk.%d.ffn_gate_inp_shexp.weight", i);
        gguf_put_tensor(w, name, QUANT_F32, 1, &n_embd)->scale = 1.0f / sqrtf((float)n_embd);
    }
    if (m->has_router_bias) {
        snprintf(name, sizeof name, "blk.%d.exp_probs_b.bias", i);
        gguf_put_tensor(w, name, QUANT_F32, 1, &n)->scale = 0.25f;
    }
}

static void put_layer(const struct gguf_model *m, struct gguf_writer *w, int i)
{
    const int n_q = m->n_heads * m->head_dim, n_kv = m->n_kv_heads * m->head_dim;
    const struct family *f = family_of(m);
    const bool fused = f->is_fused, split = !fused && !f->is_latent,
               has_experts = m->n_experts && i >= m->n_dense, one = !has_experts;
    const struct layer_tensor tensors[] = {
        {split, "attn_q.weight", n_q, m->n_embd},
        {split, "attn_k.weight", n_kv, m->n_embd},
        {split, "attn_v.weight", n_kv, m->n_embd},
        {fused, "attn_qkv.weight", n_q + 2 * n_kv, m->n_embd},
        {true, "attn_output.weight", m->n_embd, n_q},
        {one && !fused, "ffn_gate.weight", m->n_ff, m->n_embd},
        {one, "ffn_up.weight", fused ? 2 * m->n_ff : m->n_ff, m->n_embd},
        {one, "ffn_down.weight", m->n_embd, m->n_ff},
        {f->has_bias, "attn_q.bias", 0, n_q},
        {f->has_bias, "attn_k.bias", 0, n_kv},
        {f->has_bias, "attn_v.bias", 0, n_kv},
        {f->has_head_norms, "attn_q_norm.weight", 0, m->head_dim},
        {f->has_head_norms, "attn_k_norm.weight", 0, m->head_dim},
        {f->has_post_norms, "post_attention_norm.weight", 0, m->n_embd},
        {f->has_post_norms, "post_ffw_norm.weight", 0, m->n_embd},
        {true, "attn_norm.weight", 0, m->n_embd},
        {true, "ffn_norm.weight", 0, m->n_embd},
    };
    put_tensors(m, w, i, tensors, sizeof tensors / sizeof *tensors);
    if (f->is_latent) {
        put_latent(m, w, i);
    }
    if (has_experts) {
        put_experts(m, w, i);
    }
}

struct int_key {
    const char *key;
    int value;
};

static void put_ints(struct gguf_writer *w, const char *arch, const struct int_key *keys, size_t n)
{
    char key[64];
    for (size_t i = 0; i < n; i++) {
        snprintf(key, sizeof key, "%s.%s", arch, keys[i].key);
        gguf_put_u32(w, key, (uint32_t)keys[i].value);
    }
}

static void put_params(const struct gguf_model *m, struct gguf_writer *w)
{
    const bool is_latent = family_of(m)->is_latent, is_split = is_latent && !m->is_unsplit;
    const int own = is_latent ? 3 * m->head_dim / 2 : m->head_dim;
    const int dim = m->head_dim, kv = latent_kv_rank(m), rot = latent_rot(m);
    const struct int_key keys[] = {{"context_length", m->n_ctx},
                {"embedding_length", m->n_embd},
                {"feed_forward_length", m->n_ff},
                {"block_count", m->n_layers},
                {"attention.head_count", m->n_heads},
                {"attention.head_count_kv", is_split    ? 1
                                            : is_latent ? m->n_heads
                                                        : m->n_kv_heads},
                {"attention.key_length", is_split ? kv + rot : own},
                {"attention.value_length", is_split ? kv : dim},
                {"rope.dimension_count", is_latent ? rot : dim}},
        latent[] = {{"attention.kv_lora_rank", kv}},
        ranked[] = {{"attention.q_lora_rank", latent_q_rank(m)}},
        split[] = {{"attention.key_length_mla", dim + rot}, {"attention.value_length_mla", dim}},
        experts[] = {{"expert_count", m->n_experts},
                     {"expert_used_count", m->n_used},
                     {"expert_feed_forward_length", m->n_ff_exp},
                     {"leading_dense_block_count", m->n_dense}},
        shared[] = {{family_of(m)->has_shared_gate ? "expert_shared_feed_forward_length"
                                                   : "expert_shared_count",
                     family_of(m)->has_shared_gate ? m->n_shared * m->n_ff_exp : m->n_shared}};
    const char *arch = family_of(m)->arch;
    char key[64];
    gguf_put_str(w, "general.architecture", arch);
    gguf_put_str(w, "general.name", "Random weights");
    put_ints(w, arch, keys, sizeof keys / sizeof *keys);
    put_ints(w, arch, latent, is_latent ? 1 : 0);
    put_ints(w, arch, ranked, is_latent && !m->is_lite ? 1 : 0);
    put_ints(w, arch, split, is_split ? 2 : 0);
    put_ints(w, arch, experts, m->n_experts ? 4 : 0);
    put_ints(w, arch, shared, m->n_experts && m->n_shared ? 1 : 0);
    snprintf(key, sizeof key, "%s.rope.freq_base", arch);
    gguf_put_f32(w, key, 100000.0f);
    snprintf(key, sizeof key, "%s.attention.layer_norm_rms_epsilon", arch);
    gguf_put_f32(w, key, 1e-5f);
}

int gguf_model_n_rot(const struct gguf_model *m)
{
    return family_of(m)->is_latent ? latent_rot(m) : m->head_dim;
}

void gguf_model_put(const struct gguf_model *m, struct gguf_writer *w)
{
    w->seed = m->seed;
    put_params(m, w);
    put_tokenizer(m, w);
    put_matrix(w, "token_embd.weight", m->embd_type, m->n_vocab, m->n_embd);
    for (int i = 0; i < m->n_layers; i++) {
        put_layer(m, w, i);
    }
    put_norm(w, "output_norm.weight", m->n_embd);
    if (m->output_type >= 0) {
        put_matrix(w, "output.weight", (uint32_t)m->output_type, m->n_vocab, m->n_embd);
    }
}

bool gguf_model_save(const struct gguf_model *m, const char *path)
{
    struct gguf_writer w;
    gguf_writer_init(&w);
    gguf_model_put(m, &w);
    const bool is_fine = gguf_writer_save(&w, path);
    gguf_writer_done(&w);
    return is_fine;
}
