/*
 * Rounding keys and values into their blocks (layouts: engine/kv.h). Attention reads them nowhere
 * else, also those of the running pass: so that it doesn't matter which pass wrote them.
 */
#include <string.h>

#include "engine/forward_impl.h"

/* The largest F16: a scale beyond it would be infinite, and 0 × ∞ is NaN. */
#define SCALE_MAX 65504.0f

static void write_f16(const struct forward *f, unsigned char *to, int i, bool is_v, const float *x)
{
    const int dim = f->kv.head_dim;
    uint16_t h[FWD_LATENT_DIM];
    f->k->to_f16(x, dim, h);
    if (is_v) {
        memcpy(to + (size_t)i * (size_t)dim * 2, h, (size_t)dim * 2);
        return;
    }
    uint16_t *k = (uint16_t *)to + i;
    for (int d = 0; d < dim; d++)
        k[d * KV_BLOCK] = h[d];
}

static void write_q8(const struct forward *f, unsigned char *to, int i, bool is_v, const float *x)
{
    const int dim = f->kv.head_dim, n = kv_n_scales(dim);
    float d[FWD_LATENT_DIM / 32] = {0}, padded[FWD_LATENT_DIM];
    int8_t q[FWD_LATENT_DIM];
    struct act_block b[FWD_LATENT_DIM / 32];
    uint16_t h[FWD_LATENT_DIM / 32];
    memcpy(padded, x, (size_t)dim * sizeof *x);
    memset(padded + dim, 0, (size_t)(32 * n - dim) * sizeof *x);
    f->k->quantize(padded, n, q, b);
    for (int k = 0; k < n; k++)
        d[k] = b[k].d < SCALE_MAX ? b[k].d : SCALE_MAX;
    f->k->to_f16(d, n <= 16 ? 16 : FWD_LATENT_DIM / 32, h);
    if (is_v)
        memcpy(to + (size_t)i * (size_t)dim, q, (size_t)dim);
    for (int k = 0; !is_v && k < dim; k += 4)
        memcpy(to + KV_BLOCK * k + 4 * i, q + k, 4);
    uint16_t *scales = (uint16_t *)(to + kv_scales_offset(dim)) + i;
    for (int k = 0; k < n; k++)
        scales[k * KV_BLOCK] = h[k];
}

void fwd_kv_write(const struct forward *f, const struct fwd_row *row, struct fwd_kv at,
                  const float *x)
{
    const int i = row->pos % KV_BLOCK;
    unsigned char *to = kv_section(&f->kv, row->seq->blocks[row->pos / KV_BLOCK], at.layer);
    to += at.is_v ? kv_v_offset(&f->kv, at.layer, at.kv_head)
                  : kv_k_offset(&f->kv, at.layer, at.kv_head);
    if (f->kv.type == KV_Q8_0)
        write_q8(f, to, i, at.is_v, x);
    else
        write_f16(f, to, i, at.is_v, x);
}
