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

/* What the name of an architecture decides by itself; a table in model_params.c. */
struct model_arch {
    const char *name;      /* general.architecture, and what its keys start with */
    bool rotates_halves;   /* pairs (i, i + n_rot / 2) in the file, not (2i, 2i + 1) */
    bool has_bias;         /* of q, k and v, always */
    bool has_head_norms;   /* of q and k, before rotation */
    bool has_post_norms;   /* of what attention and feed-forward add to the residual stream */
    bool is_gelu;          /* GeGLU in the place of SwiGLU */
    bool is_fused;         /* q, k, v in one tensor, gate and up in another */
    bool scales_embedding; /* by the root of its width */
    bool has_scales;       /* Granite's multipliers, by keys */
    int window_period;     /* of layers with a window, each n-th sees everything; 0: none does */
    int window_default;    /* where the key is absent; 0: no window */
    double window_base;    /* RoPE's base in layers with a window; 0: the same as the others' */
    int unrotated_period;  /* each n-th layer isn't rotated; 0: all are */
    bool is_latent;        /* MLA: keys and values of all heads are kept as one compressed row */
    /* Granite's multipliers of a family whose files don't have them; 0: none */
    double embd_by;        /* of embeddings */
    double depth_by;       /* of what layers add, over the root of their number */
    int logits_width;      /* logits are divided by the embedding's width over this */
    bool has_experts;      /* where a key counts them */
    bool norms_experts;    /* the chosen experts' weights add up to 1 where no key says more */
    bool has_shared_gate;  /* the expert that all tokens go to has a gate of its own */
};

/*
 * Multi-head latent attention (DeepSeek-V2, arXiv 2405.04434, section 2.1) with its up-projections
 * absorbed: a position keeps a row of kv_rank + n_rot dimensions, which is every head's key and,
 * but for its rotated end, every head's value. Then head_dim is that row's width and n_kv_heads 1.
 */
struct model_latent {
    int kv_rank; /* 0: the model has none of this */
    int q_rank;  /* queries go through so many dimensions; 0: straight */
    int nope;    /* a head's dimensions that aren't rotated, before absorption */
    int value;   /* a head's dimensions of what attention returns */
    bool is_unsplit; /* the file has keys' and values' up-projections in one tensor */
};

/*
 * Mixture of experts: a layer's feed-forward is `count` small ones, of which a token goes through
 * the `used` best for it, and maybe one that all go through (arXiv 2401.06066, section 3). Scores
 * are the softmax or the sigmoids of the router's outputs; which are the best is decided by scores
 * plus a bias, if there is one, and the weights of their sum are scores without it (arXiv
 * 2412.19437, section 2.1.2).
 */
struct model_experts {
    int count, used;       /* 0: the model has none of this */
    int n_dense;           /* leading layers that have one feed-forward */
    int n_ff, n_ff_shared; /* widths: of an expert, and of the one for all (0: there is none) */
    int groups, groups_used; /* neighbours are in groups, and only the best groups' experts can be
                              * chosen; 1 and 1: all */
    bool is_sigmoid, is_normed; /* normed: divided by the sum of those chosen */
    float scale;                /* then times this */
};

struct model_params {
    const struct model_arch *arch;
    int n_vocab, n_embd, n_ff, n_layers, n_heads, n_kv_heads, head_dim;
    struct model_latent latent;
    struct model_experts experts;
    int n_rot; /* rotated dimensions of a head: pairs (2i, 2i + 1) once loaded, whatever the file
                * has (model_rows.c) */
    int n_ctx_train;
    int n_ctx; /* positions there are rotations for: n_ctx_train, or what the engine was opened
                * with */
    float rms_eps;
    int window;        /* positions that a layer with a window sees, its own included; 0: all do */
    int window_period; /* as struct model_arch's */
    float embd_scale, residual_scale, logit_scale; /* products; 1: none */
    float attn_scale;                              /* of scores: 1 / √head_dim but for a few */
    float attn_cap, logit_cap; /* x → cap · tanh(x / cap) of scores and logits; 0: none */
    struct model_rope {
        enum { ROPE_PLAIN, ROPE_LINEAR, ROPE_YARN, ROPE_LONG } scaling;
        double base, factor; /* factor: by how much positions are pressed together; 1: not */
        double window_base;  /* of layers with a window, which are never scaled */
        double attn_factor;  /* times cos and sin */
        double beta_fast, beta_slow; /* YaRN's turns over the original context */
        int n_ctx_orig;
    } rope;
};

struct model_layer {
    float *attn_norm, *ffn_norm; /* [n_embd], 64-byte aligned, zeros up to a multiple of 16 */
    float *attn_post_norm, *ffn_post_norm; /* [n_embd]; NULL: none */
    float *q_norm, *k_norm;                /* [head_dim]; NULL: none */
    float *q_bias, *k_bias, *v_bias;       /* [rows of the matrix]; NULL: none */
    struct mat q, k, v, o;       /* [n_heads × head_dim, n_embd], [n_kv_heads × head_dim, n_embd]
                                  * ×2, [n_embd, n_heads × head_dim] */
    struct mat gate, up, down;   /* [n_ff, n_embd] ×2, [n_embd, n_ff]; in a layer with experts that
                                  * of the shared one, n_ff_shared wide, or unused */
    /* Experts, one below the other. router.n_out 0: the layer has none */
    struct mat router, shared_gate;           /* [count, n_embd], [1, n_embd] or unused */
    struct mat gate_exps, up_exps, down_exps; /* [count × n_ff, n_embd] ×2, [count × n_embd,
                                               * n_ff] */
    float *router_bias;                       /* [count]; NULL: none */
    /* MLA. k and v are unused, q is [n_heads × (nope + n_rot), q_rank or n_embd], o [n_embd,
     * n_heads × value] */
    struct mat q_a, kv_a;        /* [q_rank, n_embd], [kv_rank + n_rot, n_embd] */
    struct mat k_b, v_b;         /* [n_heads × kv_rank, nope], [n_heads × value, kv_rank] */
    float *q_a_norm, *kv_a_norm; /* [q_rank], [kv_rank] */
    const float *rope;           /* the model's rope or window_rope; NULL: not rotated */
    int window;                  /* positions seen, its own included; 0: all */
};

struct model {
    struct model_params params;
    struct mat embd;           /* [n_vocab, n_embd] */
    struct mat output;         /* [n_vocab, n_embd], or unused when tied: then embd is the output
                               * matrix too */
    const struct mat *lm_head; /* &output or &embd */
    float *output_norm;        /* [n_embd], as the layers' */
    struct model_layer *layers;
    float *rope, *window_rope; /* [n_ctx, n_rot / 2, 2] cos and sin, from double, rounded once;
                                * window_rope NULL: no layer has other ones */
    float *rope_factors;       /* [n_rot / 2] of the file: frequencies are divided by them; NULL:
                                * none */
    uint64_t weights_bytes, n_params; /* resident bytes of everything above */
    uint8_t weights_hash[32];         /* of names, types, shapes and bytes of all tensors */
    void *region; /* one mapping in huge pages: all packed matrices (mat_region_new) */
    size_t region_bytes;
    float *floats; /* one mapping: norms, biases and the RoPE tables */
    size_t floats_bytes;
};

/* A key that must be there and isn't makes a file corrupt: ERR_NOTFOUND becomes ERR_CORRUPT, here
 * and in *e. */
int model_required(int rc, struct err *e) MUST_USE;

/* "llama, qwen2, …": what runs, for error texts. */
const char *model_archs(void);
/* ERR_UNSUPPORTED names an architecture that doesn't run, and those that do. */
int model_check_arch(const struct gguf *g, struct err *e) MUST_USE;

/* What the file says, checked for range and sense (engine/model_params.c); n_vocab is left 0.
 * ERR_CORRUPT, ERR_UNSUPPORTED. */
int model_read_params(const struct gguf *g, struct model_params *ret, struct err *e) MUST_USE;
/* The keys of a mixture of experts (engine/model_experts.c), when the rest of the shape is known;
 * ret->count 0: it is none. ERR_CORRUPT, ERR_UNSUPPORTED. */
int model_read_experts(const struct gguf *g, const struct model_params *p,
                       struct model_experts *ret, struct err *e) MUST_USE;
/* What a position of this model keeps. Errors as kv_shape_init. */
int model_kv_shape(const struct model_params *p, enum kv_type type, struct kv_shape *ret,
                   struct err *e) MUST_USE;
/* Who opens a model: may stop it, and is asked before anything is allocated for weights. */
struct model_watch {
    const atomic_int *stop; /* ERR_CANCELED when it becomes non-zero, as o->abort */
    /* Parameters, sizes and the matrices' layouts are known; no data is there. An error of it ends
     * the opening. */
    int (*on_measured)(void *ctx, const struct model *m, struct err *e);
    void *ctx;
};
/* Loads the weights of an open GGUF: shapes checked first, then memory, then packed tensor by
 * tensor, dropping each from the mapping. `w` may be NULL. */
int model_open(const struct gguf *g, const struct engine_options *o, const struct model_watch *w,
               struct model **ret, struct err *e) MUST_USE;
/* Bytes that model_open would keep for a context of n_ctx positions; refuses what it would refuse
 * before reading a weight. */
int model_measure(const struct gguf *g, int n_ctx, uint64_t *ret_bytes,
                  struct err *e) MUST_USE;
void model_close(struct model *m); /* NULL is fine */

/* "qwen2.context_length" for "context_length"; returns ret. */
#define MODEL_KEY_BYTES 96
const char *model_key(const struct model_arch *arch, const char *rest, char ret[MODEL_KEY_BYTES]);
/* An integer key into an int within [1, max]; absent: the default if that is >= 0, else corrupt. */
int model_int(const struct gguf *g, const char *key, int64_t max, int absent, int *ret,
              struct err *e) MUST_USE;
/* A number within [min, max]; absent: *ret keeps what it holds. */
int model_float(const struct gguf *g, const char *key, double min, double max, double *ret,
                struct err *e) MUST_USE;

/* How positions are rotated (engine/model_rope.c). ERR_UNSUPPORTED names a kind of scaling that
 * isn't known. */
int model_read_rope(const struct gguf *g, struct model_params *p, struct err *e) MUST_USE;
/* Floats of all tables. */
size_t model_rope_floats(const struct model_params *p);
struct pool;
/* Who makes tables: threads, or without any (NULL) the caller; abort may be NULL. */
struct rope_by {
    struct pool *pool;
    const atomic_int *abort;
};
/* Fills m->rope and m->window_rope, which lie in `tables`, and lets each layer point to its own.
 * ERR_CANCELED by abort. */
int model_make_rope(struct model *m, float *tables, const struct rope_by *by,
                    struct err *e) MUST_USE;
/* One position's row [n_rot / 2, 2] of cos and sin, of any position: what a table would hold. */
void model_rope_row(const struct model *m, bool is_window, int pos, float *ret);

/*
 * The file's tokenizer (engine/model_tok.c). Every id and length is checked against the vocabulary
 * first. ERR_CORRUPT, ERR_UNSUPPORTED, ERR_NOMEM.
 */
int model_tok(const struct gguf *g, struct tok **ret, struct err *e) MUST_USE;
/* The same; skip_nfc: text isn't normalised, also where the model's own tokenizer does. */
int model_tok_nfc(const struct gguf *g, bool skip_nfc, struct tok **ret, struct err *e) MUST_USE;
/* The file's Jinja source, NUL-terminated, caller frees; *ret = NULL when it has none.
 * ERR_CORRUPT. */
int model_template(const struct gguf *g, char **ret, struct err *e) MUST_USE;

#endif
