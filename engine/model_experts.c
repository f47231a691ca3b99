/*
 * What a GGUF says about a mixture of experts (struct model_experts), checked for range and sense.
 *
 * Files differ in what they leave to the architecture's name: whether the chosen experts' weights
 * are normed, how wide the shared expert is, and by what scores an expert is chosen.
 */
#include <stdio.h>

#include "engine/model.h"

#define EXPERTS_MAX 1024 /* a row of scores has to find room in a thread's scratch */
#define EXPERTS_USED_MAX 64
#define EXPERT_FF_MAX 1048576

/* An integer key from 0 on; absent: *ret keeps what it holds. */
static int read_int(const struct gguf *g, const struct model_params *p, const char *name,
                    int64_t max, int *ret, struct err *e)
{
    char key[MODEL_KEY_BYTES];
    int64_t v = *ret;
    const int rc = gguf_int(g, model_key(p->arch, name, key), 0, max, &v, e);
    if (!rc) {
        *ret = (int)v;
    }
    return rc == ERR_NOTFOUND ? 0 : rc;
}

/* Counts and widths. */
static int read_ints(const struct gguf *g, const struct model_params *p, struct model_experts *x,
                     struct err *e)
{
    int shared = 0, wide = 0;
    const struct {
        const char *name;
        int64_t max;
        int *value;
    } keys[] = {
        {"expert_used_count", EXPERTS_USED_MAX, &x->used},
        {"leading_dense_block_count", p->n_layers, &x->n_dense},
        {"expert_feed_forward_length", EXPERT_FF_MAX, &x->n_ff},
        {"expert_shared_count", EXPERTS_USED_MAX, &shared},
        {"expert_shared_feed_forward_length", EXPERT_FF_MAX, &wide},
        {"expert_group_count", EXPERTS_MAX, &x->groups},
        {"expert_group_used_count", EXPERTS_MAX, &x->groups_used},
    };
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        const int rc = read_int(g, p, keys[i].name, keys[i].max, keys[i].value, e);
        if (rc) {
            return rc;
        }
    }
    if (!x->n_ff) {
        x->n_ff = p->arch->has_shared_gate && x->used ? p->n_ff / x->used : p->n_ff;
    }
    x->n_ff_shared = wide ? wide : p->arch->has_shared_gate ? p->n_ff : shared * x->n_ff;
    return 0;
}

/* How scores are made and what becomes of the chosen ones'. */
static int read_scoring(const struct gguf *g, const struct model_params *p,
                        struct model_experts *x, struct err *e)
{
    enum { UNSAID, SOFTMAX, SIGMOID };
    char key[MODEL_KEY_BYTES], bias[64];
    int gating = UNSAID;
    double scale = 1;
    x->is_normed = p->arch->norms_experts;
    int rc = gguf_bool(g, model_key(p->arch, "expert_weights_norm", key), &x->is_normed, e);
    if (!rc || rc == ERR_NOTFOUND) {
        rc = model_float(g, model_key(p->arch, "expert_weights_scale", key), 0, 1e6, &scale, e);
    }
    if (!rc) {
        rc = read_int(g, p, "expert_gating_func", INT32_MAX, &gating, e);
    }
    if (rc) {
        return rc;
    }
    if (gating == UNSAID) {
        /* Scores that are biased are sigmoids in every model there is. */
        snprintf(bias, sizeof bias, "blk.%d.exp_probs_b.bias", x->n_dense);
        gating = gguf_tensor(g, bias) ? SIGMOID : SOFTMAX;
    }
    if (gating != SOFTMAX && gating != SIGMOID) {
        return err_set(e, ERR_UNSUPPORTED,
                       "key \"%s\" is %d: experts are scored by softmax (1) or sigmoid (2)",
                       model_key(p->arch, "expert_gating_func", key), gating);
    }
    x->is_sigmoid = gating == SIGMOID;
    x->scale = scale > 0 ? (float)scale : 1.0f; /* files write 0 for none */
    return 0;
}

static int check_sense(const struct model_params *p, const struct model_experts *x, struct err *e)
{
    if (x->used < 1 || x->used > x->count) {
        return err_set(e, ERR_CORRUPT, "a token goes to %d of %d experts (%s.expert_used_count)",
                       x->used, x->count, p->arch->name);
    }
    if (x->n_ff < 32 || x->n_ff % 32 || x->n_ff_shared % 32 || p->n_embd % 32) {
        return err_set(e, ERR_UNSUPPORTED,
                       "experts of %d × %d and a shared one of %d: all must be multiples of 32",
                       x->n_ff, p->n_embd, x->n_ff_shared);
    }
    if (x->count % x->groups || x->groups_used < 1 || x->groups_used > x->groups ||
        x->count / x->groups * x->groups_used < x->used) {
        return err_set(e, ERR_CORRUPT,
                       "%d of %d experts can't be chosen in %d of %d groups of the same size",
                       x->used, x->count, x->groups_used, x->groups);
    }
    return 0;
}

/* Files write experts' matrices in other ways, too. */
static int refuse_spellings(const struct gguf *g, const struct model_experts *x, struct err *e)
{
    static const struct {
        const char *name, *why;
    } spellings[] = {
        {"ffn_gate.0.weight", "the file is of before experts were put into one tensor "
                              "(ffn_gate_exps); convert the model again"},
        {"ffn_gate_up_exps.weight", "gates and ups in one tensor aren't supported; convert the "
                                    "model with them apart (ffn_gate_exps, ffn_up_exps)"},
    };
    char name[64];
    for (size_t i = 0; i < sizeof spellings / sizeof *spellings; i++) {
        snprintf(name, sizeof name, "blk.%d.%s", x->n_dense, spellings[i].name);
        if (gguf_tensor(g, name)) {
            return err_set(e, ERR_UNSUPPORTED, "tensor %s: %s", name, spellings[i].why);
        }
    }
    return 0;
}

int model_read_experts(const struct gguf *g, const struct model_params *p,
                       struct model_experts *ret, struct err *e)
{
    struct model_experts x = {0};
    int rc = p->arch->has_experts ? read_int(g, p, "expert_count", EXPERTS_MAX, &x.count, e) : 0;
    if (rc || !x.count) {
        *ret = (struct model_experts){0};
        return rc;
    }
    rc = read_ints(g, p, &x, e);
    if (!rc && x.groups <= 1) {
        x.groups = x.groups_used = 1;
    }
    if (!rc) {
        rc = read_scoring(g, p, &x, e);
    }
    if (!rc) {
        rc = check_sense(p, &x, e);
    }
    if (!rc) {
        rc = refuse_spellings(g, &x, e);
    }
    if (!rc) {
        *ret = x;
    }
    return rc;
}
