/*
 * A model: what the file says (params) and its weights. Const after model_open.
 */
#ifndef HEARTH_ENGINE_MODEL_H
#define HEARTH_ENGINE_MODEL_H

#include <stdatomic.h>

#include "base/err.h"
#include "engine/engine.h"
#include "engine/gguf.h"
#include "engine/mat.h"

struct model_params {
    int n_vocab, n_embd, n_ff, n_layers, n_heads, n_kv_heads, head_dim;
    int n_rot; /* rotated dimensions of a head; llama's pairing is (2i, 2i + 1) after GGUF's
                     * permutation of q and k */
    int n_ctx_train;
    float rope_base, rope_scale; /* linear scaling: position × rope_scale */
    float rms_eps;
};

struct model_layer {
    float *attn_norm, *ffn_norm; /* [n_embd], 64-byte aligned, zeros up to a multiple of 16 */
    struct mat q, k, v, o;       /* [n_heads × head_dim, n_embd], [n_kv_heads × head_dim, n_embd]
                                  * ×2, [n_embd, n_heads × head_dim] */
    struct mat gate, up, down;   /* [n_ff, n_embd] ×2, [n_embd, n_ff] */
};

struct model {
    struct model_params params;
    struct mat embd;           /* [n_vocab, n_embd] */
    struct mat output;         /* [n_vocab, n_embd], or unused when tied: then embd is the output
                               * matrix too */
    const struct mat *lm_head; /* &output or &embd */
    float *output_norm;        /* [n_embd], as the layers' */
    struct model_layer *layers;
    float *rope; /* [n_ctx_train, n_rot / 2, 2] cos and sin, from double, rounded
                               * once */
    uint64_t weights_bytes, n_params; /* resident bytes of everything above */
    uint8_t weights_hash[32];         /* of names, types, shapes and bytes of all tensors */
    void *region; /* one mapping in huge pages: all packed matrices (mat_region_new) */
    size_t region_bytes;
    float *floats; /* one mapping: norms and the RoPE table */
    size_t floats_bytes;
};

/* A key that must be there and isn't makes a file corrupt: ERR_NOTFOUND becomes ERR_CORRUPT, here
 * and in *e. */
int model_required(int rc, struct err *e) MUST_USE;

/* "llama": what runs, for error texts. */
const char *model_archs(void);
/* ERR_UNSUPPORTED names an architecture that doesn't run, and those that do. */
int model_check_arch(const struct gguf *g, struct err *e) MUST_USE;

/* What the file says, checked for range and sense (engine/model_params.c); n_vocab is left 0.
 * ERR_CORRUPT, ERR_UNSUPPORTED. */
int model_read_params(const struct gguf *g, struct model_params *ret, struct err *e) MUST_USE;
/* Loads the weights of an open GGUF: shapes checked first, then memory, then packed tensor by
 * tensor, dropping each from the mapping. */
int model_open(const struct gguf *g, const struct engine_options *o, struct model **ret,
               struct err *e) MUST_USE;
void model_close(struct model *m); /* NULL is fine */

/*
 * The file's tokenizer (engine/model_tok.c). Every id and length is checked against the vocabulary
 * first. ERR_CORRUPT, ERR_UNSUPPORTED, ERR_NOMEM.
 */
int model_tok(const struct gguf *g, struct tok **ret, struct err *e) MUST_USE;
/* The file's Jinja source, NUL-terminated, caller frees; *ret = NULL when it has none.
 * ERR_CORRUPT. */
int model_template(const struct gguf *g, char **ret, struct err *e) MUST_USE;

#endif
