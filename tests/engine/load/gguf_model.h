/* A synthetic model as a GGUF: any architecture, shape and type, pseudo-random weights, the
 * vocabulary of tests/scripted/vocab.h filled up, ChatML. */
#ifndef HEARTH_TESTS_GGUF_MODEL_H
#define HEARTH_TESTS_GGUF_MODEL_H

#include "tests/engine/load/gguf_writer.h"

struct gguf_model {
    const char *arch; /* NULL: llama. "deepseek2": head_dim is a head's unrotated part and its
                       * values; half of that is rotated, ranks are twice (KV) and 3 times (q) it */
    int n_vocab, n_embd, n_ff, n_layers, n_heads, n_kv_heads, head_dim, n_ctx;
    /* A mixture of experts; n_experts 0: none, and n_ff is every layer's */
    int n_experts, n_used, n_ff_exp;
    int n_shared;         /* experts' widths of the one that all tokens go to */
    int n_dense;          /* leading layers without experts */
    bool has_router_bias; /* the kind whose choice is biased */
    /* deepseek2's spellings: queries without a rank; one tensor of up-projections */
    bool is_lite, is_unsplit;
    uint32_t type;       /* of the matrices */
    uint32_t embd_type;  /* of token_embd */
    int64_t output_type; /* of output.weight; −1: tied to token_embd */
    uint64_t seed;
};

/* 2 layers, 3 heads of 32 over 1 KV head, 300 tokens, 512 positions; all shapes are multiples of
 * 32. K-quants need n_embd, n_ff and heads × head_dim in multiples of 256: gguf_model_k_shape makes
 * them so. */
struct gguf_model gguf_model_small(uint32_t type);
void gguf_model_k_shape(struct gguf_model *m);

/* Dimensions of a head that are rotated. */
int gguf_model_n_rot(const struct gguf_model *m);
/* Puts all keys and tensors into an initialised writer. */
void gguf_model_put(const struct gguf_model *m, struct gguf_writer *w);
/* init, put, save, done. false with errno. */
bool gguf_model_save(const struct gguf_model *m, const char *path);

#endif
