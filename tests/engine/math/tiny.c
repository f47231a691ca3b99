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

static float *norm_weights(struct dice *d, int n)
{
    float *w = malloc((size_t)n * sizeof *w);
    must(w != NULL);
    for (int i = 0; i < n; i++)
        w[i] = 1 + 0.25f * dice_unit(d);
    return w;
}

struct model *tiny_new(const struct tiny_shape *s, uint64_t seed)
{
    struct dice d = {seed};
    struct model *m = calloc(1, sizeof *m);
    must(m != NULL);
    m->params = (struct model_params){.n_vocab = s->n_vocab,
                                      .n_embd = s->n_embd,
                                      .n_ff = s->n_ff,
                                      .n_layers = s->n_layers,
                                      .n_heads = s->n_heads,
                                      .n_kv_heads = s->n_kv_heads,
                                      .head_dim = s->head_dim,
                                      .n_rot = s->n_rot,
                                      .n_ctx_train = s->n_ctx,
                                      .rope_base = 10000,
                                      .rope_scale = 1,
                                      .rms_eps = 1e-5f};
    m->layers = calloc((size_t)s->n_layers, sizeof *m->layers);
    must(m->layers != NULL);
    for (int i = 0; i < s->n_layers; i++) {
        struct model_layer *l = &m->layers[i];
        const int q = s->n_heads * s->head_dim, kv = s->n_kv_heads * s->head_dim;
        l->attn_norm = norm_weights(&d, s->n_embd);
        l->ffn_norm = norm_weights(&d, s->n_embd);
        must(mat_random(s->layout, q, s->n_embd, dice_u64(&d), &l->q) == 0);
        must(mat_random(s->layout, kv, s->n_embd, dice_u64(&d), &l->k) == 0);
        must(mat_random(s->layout, kv, s->n_embd, dice_u64(&d), &l->v) == 0);
        must(mat_random(s->layout, s->n_embd, q, dice_u64(&d), &l->o) == 0);
        must(mat_random(s->layout, s->n_ff, s->n_embd, dice_u64(&d), &l->gate) == 0);
        must(mat_random(s->layout, s->n_ff, s->n_embd, dice_u64(&d), &l->up) == 0);
        must(mat_random(s->layout, s->n_embd, s->n_ff, dice_u64(&d), &l->down) == 0);
    }
    must(mat_random(s->embd_layout, s->n_vocab, s->n_embd, dice_u64(&d), &m->embd) == 0);
    m->lm_head = &m->embd;
    m->output_norm = norm_weights(&d, s->n_embd);
    m->rope = malloc((size_t)s->n_ctx * (size_t)s->n_rot * sizeof *m->rope);
    must(m->rope != NULL);
    for (int p = 0; p < s->n_ctx; p++)
        for (int i = 0; i < s->n_rot / 2; i++) {
            double a = p * pow(10000, -2.0 * i / s->n_rot);
            m->rope[(size_t)p * (size_t)s->n_rot + 2 * (size_t)i] = (float)cos(a);
            m->rope[(size_t)p * (size_t)s->n_rot + 2 * (size_t)i + 1] = (float)sin(a);
        }
    return m;
}

void tiny_free(struct model *m)
{
    for (int i = 0; i < m->params.n_layers; i++) {
        struct model_layer *l = &m->layers[i];
        struct mat *w[] = {&l->q, &l->k, &l->v, &l->o, &l->gate, &l->up, &l->down};
        for (size_t k = 0; k < sizeof w / sizeof *w; k++)
            mat_done(w[k]);
        free(l->attn_norm);
        free(l->ffn_norm);
    }
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

static void ref_rotate(const struct model *m, double *x, int n_heads, int pos)
{
    const int n_rot = m->params.n_rot, dim = m->params.head_dim;
    for (int h = 0; h < n_heads; h++)
        for (int i = 0; i < n_rot / 2; i++) {
            const double c = (double)m->rope[(size_t)pos * (size_t)n_rot + 2 * (size_t)i],
                         s = (double)m->rope[(size_t)pos * (size_t)n_rot + 2 * (size_t)i + 1];
            double *a = x + h * dim + 2 * i, x0 = a[0], x1 = a[1];
            a[0] = x0 * c - x1 * s;
            a[1] = x0 * s + x1 * c;
        }
}

/* One layer's keys and values of all positions so far. */
struct ref_kv {
    double *k, *v; /* [pos, n_kv_heads · head_dim] */
};

static void ref_attend(const struct model_params *p, const struct ref_kv *kv, const double *q,
                       int pos, double *out)
{
    const int dim = p->head_dim, width = p->n_kv_heads * dim;
    double *s = malloc((size_t)(pos + 1) * sizeof *s);
    must(s != NULL);
    for (int h = 0; h < p->n_heads; h++) {
        const int at = h / (p->n_heads / p->n_kv_heads) * dim;
        double max = -1e300, sum = 0;
        for (int t = 0; t <= pos; t++) {
            s[t] = 0;
            for (int i = 0; i < dim; i++)
                s[t] += q[h * dim + i] * kv->k[t * width + at + i] / sqrt(dim);
            max = s[t] > max ? s[t] : max;
        }
        for (int t = 0; t <= pos; t++)
            sum += s[t] = exp(s[t] - max);
        for (int i = 0; i < dim; i++) {
            out[h * dim + i] = 0;
            for (int t = 0; t <= pos; t++)
                out[h * dim + i] += s[t] / sum * kv->v[t * width + at + i];
        }
    }
    free(s);
}

static void ref_add(double *x, const double *y, int n)
{
    for (int i = 0; i < n; i++)
        x[i] += y[i];
}

/* One position through one layer. t: scratch, large enough for any row, four of them. */
static void ref_layer(const struct model *m, int layer, struct ref_kv *kv, double *x, int pos,
                      double *t[4])
{
    const struct model_params *p = &m->params;
    const struct model_layer *l = &m->layers[layer];
    const int width = p->n_kv_heads * p->head_dim;
    ref_norm(x, l->attn_norm, p->n_embd, (double)p->rms_eps, t[0]);
    ref_mul(&l->q, t[0], t[1]);
    ref_mul(&l->k, t[0], kv->k + pos * width);
    ref_mul(&l->v, t[0], kv->v + pos * width);
    ref_rotate(m, t[1], p->n_heads, pos);
    ref_rotate(m, kv->k + pos * width, p->n_kv_heads, pos);
    ref_attend(p, kv, t[1], pos, t[2]);
    ref_mul(&l->o, t[2], t[0]);
    ref_add(x, t[0], p->n_embd);
    ref_norm(x, l->ffn_norm, p->n_embd, (double)p->rms_eps, t[0]);
    ref_mul(&l->gate, t[0], t[1]);
    ref_mul(&l->up, t[0], t[2]);
    for (int i = 0; i < p->n_ff; i++)
        t[1][i] = t[1][i] / (1 + exp(-t[1][i])) * t[2][i];
    ref_mul(&l->down, t[1], t[0]);
    ref_add(x, t[0], p->n_embd);
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
            x[i] = (double)row[i];
        for (int i = 0; i < p->n_layers; i++)
            ref_layer(m, i, &kv[i], x, pos, t);
        ref_norm(x, m->output_norm, p->n_embd, (double)p->rms_eps, t[0]);
        ref_mul(m->lm_head, t[0], ret + (size_t)pos * (size_t)p->n_vocab);
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
