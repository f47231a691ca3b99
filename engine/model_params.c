/*
 * What a GGUF says about its model, checked for range and for sense, and refused when it says
 * something that this engine would have to ignore: a wrong answer that looks right is worse than
 * none. Architecture `llama` (Llama 1 and 2, Mistral, SmolLM, TinyLlama and their kin).
 */
#include "engine/model.h"

#include <string.h>

#define CTX_MAX 1048576 /* the RoPE table is sized by it */
#define EMBD_MAX 65536
#define FF_MAX 1048576
#define LAYERS_MAX 1024
#define HEADS_MAX 1024
#define HEAD_DIM_MAX 1024

static const char arch_names[] = "llama";

const char *model_archs(void)
{
    return arch_names;
}

int model_required(int rc, struct err *e)
{
    if (rc == ERR_NOTFOUND) {
        rc = ERR_CORRUPT;
        if (e) {
            e->code = rc;
        }
    }
    return rc;
}

int model_check_arch(const struct gguf *g, struct err *e)
{
    struct tok_str s;
    const int rc = model_required(gguf_str(g, "general.architecture", &s, e), e);
    if (rc) {
        return rc;
    }
    if (s.n != sizeof arch_names - 1 || memcmp(s.s, arch_names, s.n) != 0) {
        return err_set(e, ERR_UNSUPPORTED, "architecture \"%.*s\" isn't supported; these are: %s",
                       s.n < 80 ? (int)s.n : 80, s.s, arch_names);
    }
    return 0;
}

/* An integer key into an int; absent: the default if that is ≥ 0, else corrupt. */
static int read_int(const struct gguf *g, const char *key, int64_t max, int absent, int *ret,
                    struct err *e)
{
    int64_t v;
    int rc = gguf_int(g, key, 1, max, &v, e);
    if (rc == ERR_NOTFOUND && absent >= 0) {
        *ret = absent;
        return 0;
    }
    if (!rc) {
        *ret = (int)v;
    }
    return model_required(rc, e);
}

static int read_float(const struct gguf *g, const char *key, double min, double max, double *ret,
                      struct err *e)
{
    const int rc = gguf_float(g, key, min, max, ret, e);
    return rc == ERR_NOTFOUND ? 0 : rc; /* *ret holds the default */
}

static int read_shape(const struct gguf *g, struct model_params *p, struct err *e)
{
    const struct {
        const char *key;
        int64_t max;
        int absent;
        int *value;
    } ints[] = {
        {"llama.context_length", CTX_MAX, -1, &p->n_ctx_train},
        {"llama.embedding_length", EMBD_MAX, -1, &p->n_embd},
        {"llama.feed_forward_length", FF_MAX, -1, &p->n_ff},
        {"llama.block_count", LAYERS_MAX, -1, &p->n_layers},
        {"llama.attention.head_count", HEADS_MAX, -1, &p->n_heads},
        {"llama.attention.head_count_kv", HEADS_MAX, 0, &p->n_kv_heads},
        {"llama.attention.key_length", HEAD_DIM_MAX, 0, &p->head_dim},
    };
    int value_length = 0;
    for (size_t i = 0; i < sizeof ints / sizeof *ints; i++) {
        const int rc = read_int(g, ints[i].key, ints[i].max, ints[i].absent, ints[i].value, e);
        if (rc) {
            return rc;
        }
    }
    p->n_kv_heads = p->n_kv_heads ? p->n_kv_heads : p->n_heads;
    if (p->n_heads % p->n_kv_heads) {
        return err_set(e, ERR_CORRUPT, "%d attention heads can't share %d KV heads evenly",
                       p->n_heads, p->n_kv_heads);
    }
    if (!p->head_dim && p->n_embd % p->n_heads) {
        return err_set(e, ERR_CORRUPT, "an embedding of %d doesn't divide into %d heads", p->n_embd,
                       p->n_heads);
    }
    p->head_dim = p->head_dim ? p->head_dim : p->n_embd / p->n_heads;
    const int rc =
        read_int(g, "llama.attention.value_length", HEAD_DIM_MAX, p->head_dim, &value_length, e);
    if (rc) {
        return rc;
    }
    if (value_length != p->head_dim) {
        return err_set(e, ERR_UNSUPPORTED,
                       "heads with keys of %d and values of %d dimensions aren't supported",
                       p->head_dim, value_length);
    }
    return read_int(g, "llama.rope.dimension_count", HEAD_DIM_MAX, p->head_dim, &p->n_rot, e);
}

/* Position scaling: none, or linear by a factor. Any other kind would give other logits than the
 * model's. */
static int read_scaling(const struct gguf *g, struct model_params *p, struct err *e)
{
    struct tok_str type = {"linear", 6}; /* what a factor alone means */
    double factor = 1.0;
    int rc = gguf_str(g, "llama.rope.scaling.type", &type, e);
    if (rc && rc != ERR_NOTFOUND) {
        return rc;
    }
    rc = read_float(g, "llama.rope.scale_linear", 1e-3, 1e6, &factor, e); /* its older name */
    if (!rc) {
        rc = read_float(g, "llama.rope.scaling.factor", 0.0, 1e6, &factor, e);
    }
    if (rc) {
        return rc;
    }
    if (type.n == 4 && !memcmp(type.s, "none", 4)) {
        factor = 1.0;
    } else if (type.n != 6 || memcmp(type.s, "linear", 6) != 0) {
        return err_set(e, ERR_UNSUPPORTED,
                       "rope scaling \"%.*s\" isn't supported; none and linear are",
                       type.n < 80 ? (int)type.n : 80, type.s);
    }
    p->rope_scale = factor > 0.0 ? (float)(1.0 / factor) : 1.0f; /* files write 0 for none */
    return 0;
}

static int read_numbers(const struct gguf *g, struct model_params *p, struct err *e)
{
    double base = 10000.0, eps;
    int rc = model_required(
        gguf_float(g, "llama.attention.layer_norm_rms_epsilon", 1e-12, 1e-1, &eps, e), e);
    if (!rc) {
        rc = read_float(g, "llama.rope.freq_base", 1.0, 1e12, &base, e);
    }
    if (!rc) {
        rc = read_scaling(g, p, e);
    }
    if (rc) {
        return rc;
    }
    if (p->n_rot % 2 || p->n_rot > p->head_dim) {
        return err_set(e, ERR_CORRUPT,
                       "key \"llama.rope.dimension_count\" is %d, it must be even and at most the "
                       "head's %d dimensions",
                       p->n_rot, p->head_dim);
    }
    p->rope_base = (float)base;
    p->rms_eps = (float)eps;
    return 0;
}

/* Keys of relatives that compute something else. Present with any other value than the one that
 * means "as usual", they are a refusal. */
static int refuse_relatives(const struct gguf *g, struct err *e)
{
    static const char *const ints[] = {"llama.expert_count", "llama.expert_used_count",
                                       "llama.attention.sliding_window", "llama.pooling_type"};
    static const struct {
        const char *key;
        double neutral;
    } floats[] = {
        {"llama.logit_scale", 1.0},
        {"llama.residual_scale", 1.0},
        {"llama.embedding_scale", 1.0},
        {"llama.attention.scale", 0.0},
        {"llama.attention.clamp_kqv", 0.0},
        {"llama.attention.max_alibi_bias", 0.0},
        {"llama.attn_logit_softcapping", 0.0},
        {"llama.final_logit_softcapping", 0.0},
        {"llama.rope.scaling.attn_factor", 1.0},
    };
    for (size_t i = 0; i < sizeof ints / sizeof *ints; i++) {
        int64_t v = 0;
        const int rc = gguf_int(g, ints[i], INT64_MIN, INT64_MAX, &v, e);
        if (rc && rc != ERR_NOTFOUND) {
            return rc;
        }
        if (v != 0) {
            return err_set(e, ERR_UNSUPPORTED,
                           "key \"%s\" is %lld: such models aren't supported yet", ints[i],
                           (long long)v);
        }
    }
    for (size_t i = 0; i < sizeof floats / sizeof *floats; i++) {
        double v = floats[i].neutral;
        const int rc = gguf_float(g, floats[i].key, -1e30, 1e30, &v, e);
        if (rc && rc != ERR_NOTFOUND) {
            return rc;
        }
        if (v < floats[i].neutral || v > floats[i].neutral) {
            return err_set(e, ERR_UNSUPPORTED, "key \"%s\" is %g: such models aren't supported yet",
                           floats[i].key, v);
        }
    }
    bool is_causal = true;
    const int rc = gguf_bool(g, "llama.attention.causal", &is_causal, e);
    if (rc && rc != ERR_NOTFOUND) {
        return rc;
    }
    return is_causal
               ? 0
               : err_set(
                     e, ERR_UNSUPPORTED,
                     "key \"llama.attention.causal\" is false: such models aren't supported yet");
}

int model_read_params(const struct gguf *g, struct model_params *ret, struct err *e)
{
    struct model_params p = {0};
    int rc = model_check_arch(g, e);
    if (!rc) {
        rc = refuse_relatives(g, e);
    }
    if (!rc) {
        rc = read_shape(g, &p, e);
    }
    if (!rc) {
        rc = read_numbers(g, &p, e);
    }
    if (!rc) {
        *ret = p;
    }
    return rc;
}
