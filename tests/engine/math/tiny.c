/* The small model of tiny.h and its reference, slow and plain: no kernel in it but mat_row. */
#include "tests/engine/math/tiny.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

uint64_t dice_u64(struct dice *d)
{
    uint64_t z = d->state += 0x9e3779b97f4a7c15;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9;
    z = (z ^ z >> 27) * 0x94d049bb133111eb;
    return z ^ z >> 31;
}

int dice_int(struct dice *d, int n)
{
    return (int)(dice_u64(d) % (uint64_t)n);
}

float dice_unit(struct dice *d)
{
    return (float)((int64_t)dice_u64(d) >> 40) * 0x1p-23f;
}

static void must(int ok)
{
    if (!ok)
        abort();
}

static float *biases(struct dice *d, int n)
{
    float *b = malloc((size_t)n * sizeof *b);
    must(b != NULL);
    for (int i = 0; i < n; i++)
        b[i] = 0.5f * dice_unit(d);
    return b;
}

static float *norm_weights(struct dice *d, int n)
{
    float *w = malloc((size_t)n * sizeof *w);
    must(w != NULL);
    for (int i = 0; i < n; i++)
        w[i] = 1 + 0.25f * dice_unit(d);
    return w;
}

static struct model_params params_of(const struct tiny_shape *s)
{
    struct model_arch *arch = calloc(1, sizeof *arch);
    must(arch != NULL);
    *arch = (struct model_arch){.name = "tiny",
                                .is_gelu = s->is_gelu,
                                .has_post_norms = s->has_post_norms,
                                .unrotated_period = s->unrotated_period};
    return (struct model_params){
        .arch = arch,
        .n_vocab = s->n_vocab,
        .n_embd = s->n_embd,
        .n_ff = s->n_ff,
        .n_layers = s->n_layers,
        .n_heads = s->n_heads,
        .n_kv_heads = s->n_kv_heads,
        .head_dim = s->head_dim,
        .n_rot = s->n_rot,
        .n_ctx_train = s->n_ctx,
        .n_ctx = s->n_ctx,
        .rms_eps = 1e-5f,
        .window = s->window,
        .window_period = s->window_period,
        .embd_scale = s->embd_scale > 0 ? s->embd_scale : 1,
        .residual_scale = s->residual_scale > 0 ? s->residual_scale : 1,
        .logit_scale = s->logit_scale > 0 ? s->logit_scale : 1,
        .attn_scale = 1.0f / sqrtf((float)s->head_dim),
        .attn_cap = s->attn_cap,
        .logit_cap = s->logit_cap,
        .rope = {.base = 10000, .factor = 1, .attn_factor = 1, .window_base = s->window_base}};
}

static void make_layer(struct dice *d, const struct tiny_shape *s, struct model_layer *l)
{
    const int q = s->n_heads * s->head_dim, kv = s->n_kv_heads * s->head_dim;
    l->attn_norm = norm_weights(d, s->n_embd);
    l->ffn_norm = norm_weights(d, s->n_embd);
    must(mat_random(s->layout, q, s->n_embd, dice_u64(d), &l->q) == 0);
    must(mat_random(s->layout, kv, s->n_embd, dice_u64(d), &l->k) == 0);
    must(mat_random(s->layout, kv, s->n_embd, dice_u64(d), &l->v) == 0);
    must(mat_random(s->layout, s->n_embd, q, dice_u64(d), &l->o) == 0);
    must(mat_random(s->layout, s->n_ff, s->n_embd, dice_u64(d), &l->gate) == 0);
    must(mat_random(s->layout, s->n_ff, s->n_embd, dice_u64(d), &l->up) == 0);
    must(mat_random(s->layout, s->n_embd, s->n_ff, dice_u64(d), &l->down) == 0);
    if (s->has_bias) {
        l->q_bias = biases(d, q);
        l->k_bias = biases(d, kv);
        l->v_bias = biases(d, kv);
    }
    if (s->has_head_norms) {
        l->q_norm = norm_weights(d, s->head_dim);
        l->k_norm = norm_weights(d, s->head_dim);
    }
    if (s->has_post_norms) {
        l->attn_post_norm = norm_weights(d, s->n_embd);
        l->ffn_post_norm = norm_weights(d, s->n_embd);
    }
}

struct model *tiny_new(const struct tiny_shape *s, uint64_t seed)
{
    struct dice d = {seed};
    struct model *m = calloc(1, sizeof *m);
    must(m != NULL);
    m->params = params_of(s);
    m->layers = calloc((size_t)s->n_layers, sizeof *m->layers);
    must(m->layers != NULL);
    for (int i = 0; i < s->n_layers; i++)
        make_layer(&d, s, &m->layers[i]);
    must(mat_random(s->embd_layout, s->n_vocab, s->n_embd, dice_u64(&d), &m->embd) == 0);
    m->lm_head = &m->embd;
    m->output_norm = norm_weights(&d, s->n_embd);
    float *tables = malloc(model_rope_floats(&m->params) * sizeof *tables);
    must(tables != NULL && model_make_rope(m, tables, &(struct rope_by){NULL, NULL}, NULL) == 0);
    return m;
}

void tiny_free(struct model *m)
{
    for (int i = 0; i < m->params.n_layers; i++) {
        struct model_layer *l = &m->layers[i];
        struct mat *w[] = {&l->q, &l->k, &l->v, &l->o, &l->gate, &l->up, &l->down};
        for (size_t k = 0; k < sizeof w / sizeof *w; k++)
            mat_done(w[k]);
        float *vectors[] = {l->attn_norm, l->ffn_norm, l->attn_post_norm, l->ffn_post_norm,
                            l->q_norm,    l->k_norm,   l->q_bias,         l->k_bias,
                            l->v_bias};
        for (size_t k = 0; k < sizeof vectors / sizeof *vectors; k++)
            free(vectors[k]);
    }
    free((void *)(uintptr_t)m->params.arch);
    mat_done(&m->embd);
    free(m->output_norm);
    free(m->rope);
    free(m->layers);
    free(m);
}

/* y[n_out] = W x, from dequantised rows. */
static void ref_mul(const struct mat *w, const double *x, double *y)
{
    float *row = malloc((size_t)w->n_in * sizeof *row);
    must(row != NULL);
    for (int i = 0; i < w->n_out; i++) {
        mat_row(w, i, row);
        y[i] = 0;
        for (int k = 0; k < w->n_in; k++)
            y[i] += (double)row[k] * x[k];
    }
    free(row);
}

static void ref_norm(const double *x, const float *w, int n, double eps, double *y)
{
    double s = 0;
    for (int i = 0; i < n; i++)
        s += x[i] * x[i];
    for (int i = 0; i < n; i++)
        y[i] = x[i] / sqrt(s / n + eps) * (double)w[i];
}

/* The definition, without the model's table. */
static void ref_rotate(const struct model *m, int layer, double *x, int n_heads, int pos)
{
    const struct model_params *p = &m->params;
    const int dim = p->head_dim, unrotated = p->arch->unrotated_period;
    const bool is_windowed =
        p->window && !(p->window_period && (layer + 1) % p->window_period == 0);
    const double base =
        is_windowed && p->rope.window_base > 0 ? p->rope.window_base : p->rope.base;
    if (unrotated && (layer + 1) % unrotated == 0)
        return;
    for (int h = 0; h < n_heads; h++)
        for (int i = 0; i < p->n_rot / 2; i++) {
            const double at = pos * pow(base, -2.0 * i / p->n_rot), c = cos(at), s = sin(at);
            double *a = x + h * dim + 2 * i, x0 = a[0], x1 = a[1];
            a[0] = x0 * c - x1 * s;
            a[1] = x0 * s + x1 * c;
        }
}

/* One layer's keys and values of all positions so far. */
struct ref_kv {
    double *k, *v; /* [pos, n_kv_heads · head_dim] */
};

static double ref_cap(double x, float cap)
{
    return cap > 0 ? (double)cap * tanh(x / (double)cap) : x;
}

static void ref_attend(const struct model *m, int layer, const struct ref_kv *kv, const double *q,
                       int pos, double *out)
{
    const struct model_params *p = &m->params;
    const int window = p->window_period && (layer + 1) % p->window_period == 0 ? 0 : p->window,
              first = window && pos >= window ? pos - window + 1 : 0;
    const int dim = p->head_dim, width = p->n_kv_heads * dim;
    double *s = malloc((size_t)(pos + 1) * sizeof *s);
    must(s != NULL);
    for (int h = 0; h < p->n_heads; h++) {
        const int at = h / (p->n_heads / p->n_kv_heads) * dim;
        double max = -1e300, sum = 0;
        for (int t = first; t <= pos; t++) {
            s[t] = 0;
            for (int i = 0; i < dim; i++)
                s[t] += q[h * dim + i] * kv->k[t * width + at + i] / sqrt(dim);
            s[t] = ref_cap(s[t], p->attn_cap);
            max = s[t] > max ? s[t] : max;
        }
        for (int t = first; t <= pos; t++)
            sum += s[t] = exp(s[t] - max);
        for (int i = 0; i < dim; i++) {
            out[h * dim + i] = 0;
            for (int t = first; t <= pos; t++)
                out[h * dim + i] += s[t] / sum * kv->v[t * width + at + i];
        }
    }
    free(s);
}

static void ref_add(double *x, const double *y, int n, double by)
{
    for (int i = 0; i < n; i++)
        x[i] += y[i] * by;
}

static void ref_bias(double *x, const float *bias, int n)
{
    for (int i = 0; bias && i < n; i++)
        x[i] += (double)bias[i];
}

static void ref_head_norms(const struct model_params *p, const float *w, double *x, int n_heads)
{
    for (int h = 0; w && h < n_heads; h++)
        ref_norm(x + h * p->head_dim, w, p->head_dim, (double)p->rms_eps, x + h * p->head_dim);
}

/* x += what a sub-layer gives, after its own norm if it has one. */
static void ref_residual(const struct model_params *p, const float *post_norm, double *y, double *x)
{
    if (post_norm)
        ref_norm(y, post_norm, p->n_embd, (double)p->rms_eps, y);
    ref_add(x, y, p->n_embd, (double)p->residual_scale);
}

static double ref_act(const struct model_params *p, double x)
{
    const double u = sqrt(2 / acos(-1)) * (x + 0.044715 * x * x * x);
    return p->arch->is_gelu ? 0.5 * x * (1 + tanh(u)) : x / (1 + exp(-x));
}

/* q (t[1]) of a position, and its k and v. */
static void ref_qkv(const struct model *m, int layer, struct ref_kv *kv, int pos, double *t[4])
{
    const struct model_params *p = &m->params;
    const struct model_layer *l = &m->layers[layer];
    const int width = p->n_kv_heads * p->head_dim;
    double *k = kv->k + pos * width, *v = kv->v + pos * width;
    ref_mul(&l->q, t[0], t[1]);
    ref_mul(&l->k, t[0], k);
    ref_mul(&l->v, t[0], v);
    ref_bias(t[1], l->q_bias, p->n_heads * p->head_dim);
    ref_bias(k, l->k_bias, width);
    ref_bias(v, l->v_bias, width);
    ref_head_norms(p, l->q_norm, t[1], p->n_heads);
    ref_head_norms(p, l->k_norm, k, p->n_kv_heads);
    ref_rotate(m, layer, t[1], p->n_heads, pos);
    ref_rotate(m, layer, k, p->n_kv_heads, pos);
}

/* One position through one layer. t: scratch, large enough for any row, four of them. */
static void ref_layer(const struct model *m, int layer, struct ref_kv *kv, double *x, int pos,
                      double *t[4])
{
    const struct model_params *p = &m->params;
    const struct model_layer *l = &m->layers[layer];
    ref_norm(x, l->attn_norm, p->n_embd, (double)p->rms_eps, t[0]);
    ref_qkv(m, layer, kv, pos, t);
    ref_attend(m, layer, kv, t[1], pos, t[2]);
    ref_mul(&l->o, t[2], t[0]);
    ref_residual(p, l->attn_post_norm, t[0], x);
    ref_norm(x, l->ffn_norm, p->n_embd, (double)p->rms_eps, t[0]);
    ref_mul(&l->gate, t[0], t[1]);
    ref_mul(&l->up, t[0], t[2]);
    for (int i = 0; i < p->n_ff; i++)
        t[1][i] = ref_act(p, t[1][i]) * t[2][i];
    ref_mul(&l->down, t[1], t[0]);
    ref_residual(p, l->ffn_post_norm, t[0], x);
}

void tiny_reference(const struct model *m, const int32_t *ids, int n, double *ret)
{
    const struct model_params *p = &m->params;
    const size_t width = (size_t)(p->n_kv_heads * p->head_dim),
                 wide = (size_t)(p->n_ff + p->n_embd + p->n_heads * p->head_dim);
    struct ref_kv *kv = calloc((size_t)p->n_layers, sizeof *kv);
    double *x = malloc(wide * sizeof *x), *t[4];
    float *row = malloc(wide * sizeof *row);
    must(kv && x && row);
    for (int i = 0; i < 4; i++)
        must((t[i] = malloc(wide * sizeof *t[i])) != NULL);
    for (int i = 0; i < p->n_layers; i++) {
        kv[i].k = malloc((size_t)n * width * sizeof(double));
        kv[i].v = malloc((size_t)n * width * sizeof(double));
        must(kv[i].k && kv[i].v);
    }
    for (int pos = 0; pos < n; pos++) {
        mat_row(&m->embd, ids[pos], row);
        for (int i = 0; i < p->n_embd; i++)
            x[i] = (double)row[i] * (double)p->embd_scale;
        for (int i = 0; i < p->n_layers; i++)
            ref_layer(m, i, &kv[i], x, pos, t);
        ref_norm(x, m->output_norm, p->n_embd, (double)p->rms_eps, t[0]);
        double *logits = ret + (size_t)pos * (size_t)p->n_vocab;
        ref_mul(m->lm_head, t[0], logits);
        for (int i = 0; i < p->n_vocab; i++)
            logits[i] = ref_cap(logits[i] * (double)p->logit_scale, p->logit_cap);
    }
    for (int i = 0; i < p->n_layers; i++) {
        free(kv[i].k);
        free(kv[i].v);
    }
    for (int i = 0; i < 4; i++)
        free(t[i]);
    free(kv);
    free(x);
    free(row);
}

void tiny_seq(struct kv_seq *s, struct kv_pool *p, int n)
{
    kv_seq_init(s);
    for (int i = 0; i < (n + KV_BLOCK - 1) / KV_BLOCK; i++) {
        struct kv_block *b = kv_take(p);
        must(b != NULL);
        must(kv_seq_push(s, b, NULL) == 0);
    }
}
