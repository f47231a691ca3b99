/*
 * What a GGUF says about its model, checked for range and for sense, and refused when it says
 * something that this engine would have to ignore: a wrong answer that looks right is worse than
 * none.
 *
 * An architecture is a line of the table: what its name decides by itself. The rest are keys, which
 * begin with the name. The layouts are those of ggml's converter (convert_hf_to_gguf.py), checked
 * against the models' own configurations.
 */
#include "engine/model.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#define CTX_MAX 16777216
#define EMBD_MAX 65536
#define FF_MAX 1048576
#define LAYERS_MAX 1024
#define HEADS_MAX 1024
#define HEAD_DIM_MAX 1024

static const struct model_arch archs[] = {
    /* Llama 1 to 3.3, Mistral and Mixtral, SmolLM 1 and 2, TinyLlama, Yi, … */
    {.name = "llama", .has_experts = true, .norms_experts = true},
    {.name = "qwen2", .rotates_halves = true, .has_bias = true},
    {.name = "qwen3", .rotates_halves = true, .has_head_norms = true},
    {.name = "gemma", .rotates_halves = true, .is_gelu = true, .scales_embedding = true},
    {.name = "gemma2",
     .rotates_halves = true,
     .has_post_norms = true,
     .is_gelu = true,
     .scales_embedding = true,
     .window_period = 2,
     .window_default = 4096},
    {.name = "gemma3",
     .rotates_halves = true,
     .has_head_norms = true,
     .has_post_norms = true,
     .is_gelu = true,
     .scales_embedding = true,
     .window_period = 6,
     .window_base = 10000},
    {.name = "granite", .has_scales = true},
    {.name = "phi3", .rotates_halves = true, .is_fused = true},
    {.name = "smollm3", .unrotated_period = 4},
    {.name = "minicpm3",
     .rotates_halves = true,
     .has_scales = true,
     .is_latent = true,
     .embd_by = 12, /* scale_emb, scale_depth and dim_model_base of its only configuration */
     .depth_by = 1.4,
     .logits_width = 256},
    {.name = "qwen2moe",
     .rotates_halves = true,
     .has_bias = true,
     .has_experts = true,
     .has_shared_gate = true},
    {.name = "qwen3moe",
     .rotates_halves = true,
     .has_head_norms = true,
     .has_experts = true,
     .norms_experts = true},
    {.name = "granitemoe", .has_scales = true, .has_experts = true, .norms_experts = true},
    {.name = "deepseek", .has_experts = true},
    /* DeepSeek V2, V2-Lite, V3, R1, Kimi K2, … */
    {.name = "deepseek2", .is_latent = true, .has_experts = true},
};
#define N_ARCHS (sizeof archs / sizeof *archs)

const char *model_archs(void)
{
    static _Thread_local char names[256];
    size_t used = 0;
    for (size_t i = 0; i < N_ARCHS; i++) {
        used += (size_t)snprintf(names + used, sizeof names - used, "%s%s", i ? ", " : "",
                                 archs[i].name);
    }
    return names;
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

static int find_arch(const struct gguf *g, const struct model_arch **ret, struct err *e)
{
    struct tok_str s;
    const int rc = model_required(gguf_str(g, "general.architecture", &s, e), e);
    if (rc) {
        return rc;
    }
    for (size_t i = 0; i < N_ARCHS; i++) {
        if (s.n == strlen(archs[i].name) && !memcmp(s.s, archs[i].name, s.n)) {
            *ret = &archs[i];
            return 0;
        }
    }
    return err_set(e, ERR_UNSUPPORTED, "architecture \"%.*s\" isn't supported; these are: %s",
                   s.n < 80 ? (int)s.n : 80, s.s, model_archs());
}

int model_check_arch(const struct gguf *g, struct err *e)
{
    const struct model_arch *arch;
    return find_arch(g, &arch, e);
}

const char *model_key(const struct model_arch *arch, const char *rest, char ret[MODEL_KEY_BYTES])
{
    snprintf(ret, MODEL_KEY_BYTES, "%s.%s", arch->name, rest);
    return ret;
}

int model_int(const struct gguf *g, const char *key, int64_t max, int absent, int *ret,
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

int model_float(const struct gguf *g, const char *key, double min, double max, double *ret,
                struct err *e)
{
    const int rc = gguf_float(g, key, min, max, ret, e);
    return rc == ERR_NOTFOUND ? 0 : rc; /* *ret holds the default */
}

/* An int in [1, max] of a list of keys. */
struct int_key {
    const char *key;
    int64_t max;
    int absent; /* −1: it must be there */
    int *value;
};

static int read_ints(const struct gguf *g, const struct model_params *p, const struct int_key *keys,
                     size_t n, struct err *e)
{
    char key[MODEL_KEY_BYTES];
    for (size_t i = 0; i < n; i++) {
        const int rc = model_int(g, model_key(p->arch, keys[i].key, key), keys[i].max,
                                 keys[i].absent, keys[i].value, e);
        if (rc) {
            return rc;
        }
    }
    return 0;
}

static int read_heads(const struct gguf *g, struct model_params *p, struct err *e)
{
    int value_length = 0;
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
    const struct int_key keys[] = {
        {"attention.value_length", HEAD_DIM_MAX, p->head_dim, &value_length},
        {"rope.dimension_count", HEAD_DIM_MAX, p->head_dim, &p->n_rot},
    };
    const int rc = read_ints(g, p, keys, 2, e);
    if (rc) {
        return rc;
    }
    if (value_length != p->head_dim) {
        return err_set(e, ERR_UNSUPPORTED,
                       "heads with keys of %d and values of %d dimensions aren't supported",
                       p->head_dim, value_length);
    }
    if (p->n_rot % 2 || p->n_rot > p->head_dim) {
        return err_set(e, ERR_CORRUPT,
                       "key \"%s.rope.dimension_count\" is %d, it must be even and at most the "
                       "head's %d dimensions",
                       p->arch->name, p->n_rot, p->head_dim);
    }
    return 0;
}

/*
 * The keys of compressed attention. Files write key_length and value_length of the compressed rows,
 * and key_length_mla and value_length_mla of what a head has of its own; those from before the
 * up-projections were split have only the former, and mean by them what a head has.
 */
static int read_latent(const struct gguf *g, struct model_params *p, struct err *e)
{
    struct model_latent *l = &p->latent;
    char key[MODEL_KEY_BYTES];
    int key_length = 0, value = p->n_embd / p->n_heads;
    l->is_unsplit = gguf_tensor(g, "blk.0.attn_kv_b.weight") != NULL;
    int rc = model_int(g, model_key(p->arch, "attention.value_length", key), HEAD_DIM_MAX, value,
                       &value, e);
    const struct int_key keys[] = {
        {"attention.kv_lora_rank", HEAD_DIM_MAX, -1, &l->kv_rank},
        {"attention.q_lora_rank", EMBD_MAX, 0, &l->q_rank},
        {"attention.key_length_mla", HEAD_DIM_MAX, l->is_unsplit ? p->head_dim : -1, &key_length},
        {"attention.value_length_mla", HEAD_DIM_MAX, l->is_unsplit ? value : -1, &l->value},
        {"rope.dimension_count", HEAD_DIM_MAX, -1, &p->n_rot},
    };
    if (!rc) {
        rc = read_ints(g, p, keys, sizeof keys / sizeof *keys, e);
    }
    if (rc) {
        return rc;
    }
    p->n_kv_heads = 1;
    p->head_dim = l->kv_rank + p->n_rot;
    l->nope = key_length - p->n_rot;
    if (l->nope < 1 || l->nope % 32 || l->kv_rank % 32 || l->value % 32 || l->q_rank % 32 ||
        p->n_rot % 16) {
        return err_set(e, ERR_UNSUPPORTED,
                       "compressed attention of ranks %d and %d, heads of %d + %d and values of "
                       "%d dimensions: all but the %d that are rotated must be multiples of 32, "
                       "those of 16",
                       l->kv_rank, l->q_rank, l->nope, p->n_rot, l->value, p->n_rot);
    }
    return 0;
}

static int read_shape(const struct gguf *g, struct model_params *p, struct err *e)
{
    const struct int_key keys[] = {
        {"context_length", CTX_MAX, -1, &p->n_ctx_train},
        {"embedding_length", EMBD_MAX, -1, &p->n_embd},
        {"feed_forward_length", FF_MAX, -1, &p->n_ff},
        {"block_count", LAYERS_MAX, -1, &p->n_layers},
        {"attention.head_count", HEADS_MAX, -1, &p->n_heads},
        {"attention.head_count_kv", HEADS_MAX, 0, &p->n_kv_heads},
        {"attention.key_length", HEAD_DIM_MAX, 0, &p->head_dim},
    };
    int rc = read_ints(g, p, keys, sizeof keys / sizeof *keys, e);
    if (rc) {
        return rc;
    }
    rc = p->arch->is_latent ? read_latent(g, p, e) : read_heads(g, p, e);
    return rc ? rc : model_read_experts(g, p, &p->experts, e);
}

/* Which layers see how far back. */
static int read_window(const struct gguf *g, struct model_params *p, struct err *e)
{
    char key[MODEL_KEY_BYTES];
    int64_t window = p->arch->window_default, period = p->arch->window_period;
    int rc = gguf_int(g, model_key(p->arch, "attention.sliding_window", key), 0, CTX_MAX, &window,
                      e);
    if (!rc || rc == ERR_NOTFOUND) {
        /* A list of booleans in the place of a number is refused as of the wrong type. */
        rc = gguf_int(g, model_key(p->arch, "attention.sliding_window_pattern", key), 0, LAYERS_MAX,
                      &period, e);
    }
    if (rc && rc != ERR_NOTFOUND) {
        return rc;
    }
    p->window = (int)window;
    p->window_period = (int)period;
    return 0;
}

/* The one size of these families whose scores aren't scaled by its head's dimensions is known by
 * its number of layers. */
static bool is_gemma_27b(const struct model_params *p)
{
    return (!strcmp(p->arch->name, "gemma2") && p->n_layers == 46) ||
           (!strcmp(p->arch->name, "gemma3") && p->n_layers == 62);
}

/* Scores are divided by the root of a head's dimensions; under YaRN, MLA's files say by how much
 * more they are to be pressed together. */
static int latent_scale(const struct gguf *g, const struct model_params *p, double *ret,
                        struct err *e)
{
    char key[MODEL_KEY_BYTES];
    double more = 0, factor = 1;
    int rc = model_float(g, model_key(p->arch, "rope.scaling.yarn_log_multiplier", key), 0, 1e3,
                         &more, e);
    if (!rc) {
        rc = model_float(g, model_key(p->arch, "rope.scaling.factor", key), 0, 1e6, &factor, e);
    }
    const double m = 1 + more * log(factor > 1 ? factor : 1);
    *ret = m * m / sqrt(p->latent.nope + p->n_rot);
    return rc;
}

static int read_scales(const struct gguf *g, struct model_params *p, struct err *e)
{
    char key[MODEL_KEY_BYTES];
    const struct model_arch *arch = p->arch;
    double embd = arch->embd_by > 0 ? arch->embd_by : 1,
           residual = arch->depth_by > 0 ? arch->depth_by / sqrt(p->n_layers) : 1, attn = 0,
           logit = arch->logits_width ? (double)p->n_embd / arch->logits_width : 1, attn_cap = 0,
           logit_cap = 0;
    const struct {
        const char *key;
        double max, *value;
    } keys[] = {
        {"embedding_scale", 1e6, &embd},           {"residual_scale", 1e6, &residual},
        {"attention.scale", 1e6, &attn},           {"logit_scale", 1e6, &logit},
        {"attn_logit_softcapping", 1e6, &attn_cap}, {"final_logit_softcapping", 1e6, &logit_cap},
    };
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        const int rc = model_float(g, model_key(p->arch, keys[i].key, key), 0, keys[i].max,
                                   keys[i].value, e);
        if (rc) {
            return rc;
        }
    }
    if (arch->is_latent && attn <= 0) {
        const int rc = latent_scale(g, p, &attn, e);
        if (rc) {
            return rc;
        }
    } else if (attn <= 0) {
        attn = 1.0 / sqrt(is_gemma_27b(p) ? (double)(p->n_embd / p->n_heads) : (double)p->head_dim);
    }
    p->embd_scale = arch->scales_embedding ? sqrtf((float)p->n_embd) : (float)embd;
    p->residual_scale = (float)residual;
    p->attn_scale = (float)attn;
    p->logit_scale = logit > 0 ? (float)(1.0 / logit) : 1.0f; /* files write 0 for none */
    p->attn_cap = (float)attn_cap;
    p->logit_cap = (float)logit_cap;
    return 0;
}

static int read_numbers(const struct gguf *g, struct model_params *p, struct err *e)
{
    char key[MODEL_KEY_BYTES];
    double eps = 0;
    int rc = model_required(
        gguf_float(g, model_key(p->arch, "attention.layer_norm_rms_epsilon", key), 1e-12, 1e-1,
                   &eps, e),
        e);
    p->rms_eps = (float)eps;
    if (!rc) {
        rc = read_scales(g, p, e);
    }
    if (!rc) {
        rc = read_window(g, p, e);
    }
    return rc ? rc : model_read_rope(g, p, e);
}

/* ---- what would have to be ignored ---- */

static int refuse_ints(const struct gguf *g, const struct model_arch *arch, struct err *e)
{
    /* The experts' two come first. */
    static const char *const names[] = {"expert_count", "expert_used_count", "pooling_type"};
    char key[MODEL_KEY_BYTES];
    for (size_t i = arch->has_experts ? 2 : 0; i < sizeof names / sizeof *names; i++) {
        int64_t v = 0;
        const int rc = gguf_int(g, model_key(arch, names[i], key), INT64_MIN, INT64_MAX, &v, e);
        if (rc && rc != ERR_NOTFOUND) {
            return rc;
        }
        if (v != 0) {
            return err_set(e, ERR_UNSUPPORTED,
                           "key \"%s\" is %lld: such models aren't supported yet", key,
                           (long long)v);
        }
    }
    return 0;
}

static int refuse_floats(const struct gguf *g, const struct model_arch *arch, struct err *e)
{
    static const struct {
        const char *name;
        double neutral;
        bool is_scale;
    } keys[] = {
        {"logit_scale", 1.0, true},
        {"residual_scale", 1.0, true},
        {"embedding_scale", 1.0, true},
        {"attention.scale", 0.0, true},
        {"attention.clamp_kqv", 0.0, false},
        {"attention.max_alibi_bias", 0.0, false},
        {"attention.temperature_scale", 0.0, false},
    };
    char key[MODEL_KEY_BYTES];
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        double v = keys[i].neutral;
        if (keys[i].is_scale && arch->has_scales) {
            continue;
        }
        const int rc = gguf_float(g, model_key(arch, keys[i].name, key), -1e30, 1e30, &v, e);
        if (rc && rc != ERR_NOTFOUND) {
            return rc;
        }
        if (v < keys[i].neutral || v > keys[i].neutral) {
            return err_set(e, ERR_UNSUPPORTED, "key \"%s\" is %g: such models aren't supported yet",
                           key, v);
        }
    }
    return 0;
}

/* Keys of relatives that compute something else. Present with any other value than the one that
 * means "as usual", they are a refusal. */
static int refuse_relatives(const struct gguf *g, const struct model_arch *arch, struct err *e)
{
    char key[MODEL_KEY_BYTES];
    bool is_causal = true;
    int rc = refuse_ints(g, arch, e);
    if (!rc) {
        rc = refuse_floats(g, arch, e);
    }
    if (rc) {
        return rc;
    }
    rc = gguf_bool(g, model_key(arch, "attention.causal", key), &is_causal, e);
    if (rc && rc != ERR_NOTFOUND) {
        return rc;
    }
    return is_causal ? 0
                     : err_set(e, ERR_UNSUPPORTED,
                               "key \"%s\" is false: such models aren't supported yet", key);
}

int model_kv_shape(const struct model_params *p, enum kv_type type, struct kv_shape *ret,
                   struct err *e)
{
    if (p->latent.kv_rank) {
        return kv_shape_init_latent(ret, type, p->n_layers, p->head_dim, e);
    }
    const int rc = kv_shape_init(ret, type, p->n_layers, p->n_kv_heads, p->head_dim, e);
    if (!rc) {
        kv_shape_set_window(ret, p->window, p->window_period);
    }
    return rc;
}

int model_read_params(const struct gguf *g, struct model_params *ret, struct err *e)
{
    struct model_params p = {0};
    int rc = find_arch(g, &p.arch, e);
    if (!rc) {
        rc = refuse_relatives(g, p.arch, e);
    }
    if (!rc) {
        rc = read_shape(g, &p, e);
    }
    if (!rc) {
        rc = read_numbers(g, &p, e);
    }
    if (!rc) {
        p.n_ctx = p.n_ctx_train;
        *ret = p;
    }
    return rc;
}
