/* Synthetic llama models (gguf_model.h). */
#include "tests/engine/load/gguf_model.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

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

static void put_layer(const struct gguf_model *m, struct gguf_writer *w, int i)
{
    const int n_q = m->n_heads * m->head_dim, n_kv = m->n_kv_heads * m->head_dim;
    const struct {
        const char *name;
        int rows, cols;
    } mats[] = {{"attn_q", n_q, m->n_embd},       {"attn_k", n_kv, m->n_embd},
                {"attn_v", n_kv, m->n_embd},      {"attn_output", m->n_embd, n_q},
                {"ffn_gate", m->n_ff, m->n_embd}, {"ffn_up", m->n_ff, m->n_embd},
                {"ffn_down", m->n_embd, m->n_ff}};
    char name[64];
    for (size_t k = 0; k < sizeof mats / sizeof *mats; k++) {
        snprintf(name, sizeof name, "blk.%d.%s.weight", i, mats[k].name);
        put_matrix(w, name, m->type, mats[k].rows, mats[k].cols);
    }
    snprintf(name, sizeof name, "blk.%d.attn_norm.weight", i);
    put_norm(w, name, m->n_embd);
    snprintf(name, sizeof name, "blk.%d.ffn_norm.weight", i);
    put_norm(w, name, m->n_embd);
}

void gguf_model_put(const struct gguf_model *m, struct gguf_writer *w)
{
    w->seed = m->seed;
    gguf_put_str(w, "general.architecture", "llama");
    gguf_put_str(w, "general.name", "Random weights");
    gguf_put_u32(w, "llama.context_length", (uint32_t)m->n_ctx);
    gguf_put_u32(w, "llama.embedding_length", (uint32_t)m->n_embd);
    gguf_put_u32(w, "llama.feed_forward_length", (uint32_t)m->n_ff);
    gguf_put_u32(w, "llama.block_count", (uint32_t)m->n_layers);
    gguf_put_u32(w, "llama.attention.head_count", (uint32_t)m->n_heads);
    gguf_put_u32(w, "llama.attention.head_count_kv", (uint32_t)m->n_kv_heads);
    gguf_put_u32(w, "llama.attention.key_length", (uint32_t)m->head_dim);
    gguf_put_u32(w, "llama.attention.value_length", (uint32_t)m->head_dim);
    gguf_put_u32(w, "llama.rope.dimension_count", (uint32_t)m->head_dim);
    gguf_put_f32(w, "llama.rope.freq_base", 100000.0f);
    gguf_put_f32(w, "llama.attention.layer_norm_rms_epsilon", 1e-5f);
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
