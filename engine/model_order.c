/*
 * Files write the same matrices in different orders, and the pass knows one. Here a slot's rows are
 * found in their tensor.
 *
 *   turned   where the pairs that a head's rotation turns lie half a head apart, its rows are put
 *            side by side: dimensions 0, 1, 2, 3, … of what is rotated are the file's 0, h, 1,
 *            h + 1, …, h half of it. Scores don't notice, since q and k are put alike
 *   values   of compressed attention's up-projections in one tensor, each head's last rows
 *   keys     each head's first rows, and columns for rows: what the pass multiplies by is the query
 *            (engine/forward_latent.c). Blocks of a quantised row would have to lie across it, so
 *            their values are taken out, and rounded to F16
 */
#include <stdlib.h>
#include <string.h>

#include "base/sys.h"
#include "engine/model_impl.h"
#include "engine/quant.h"

#define LATENT_MAX 1024 /* HEAD_DIM_MAX of model_params.c */

int64_t model_source_row(const struct model_params *p, const struct slot *s, int64_t r)
{
    const int64_t d = r % s->head_rows - s->still, half = p->n_rot / 2;
    if (s->up == UP_VALUES) {
        const int64_t head = r / p->latent.value;
        return head * (p->latent.nope + p->latent.value) + p->latent.nope + r % p->latent.value;
    }
    if (!s->is_turned || d < 0 || d >= p->n_rot) {
        return s->row0 + r;
    }
    return s->row0 + r - d + d / 2 + d % 2 * half;
}

uint32_t model_slot_type(const struct slot *s)
{
    const uint32_t type = s->tensor->type;
    return s->up == UP_KEYS && quant_type(type)->block_values > 1 ? QUANT_F16 : type;
}

/* One value as a float type writes it. */
static void put_value(uint32_t type, float v, unsigned char *to)
{
    uint32_t bits;
    memcpy(&bits, &v, sizeof bits);
    const uint16_t half = type == QUANT_BF16 ? (uint16_t)(bits >> 16) : quant_f32_to_f16(v);
    if (type == QUANT_F32) {
        memcpy(to, &v, sizeof v);
    } else {
        memcpy(to, &half, sizeof half);
    }
}

/* [head][rank][nope] from the tensor's rows [head][nope, then values][rank]. */
static void turn_keys(const struct model_params *p, const struct slot *s, unsigned char *ret)
{
    const size_t nope = (size_t)p->latent.nope, rank = (size_t)p->latent.kv_rank,
                 in_file = nope + (size_t)p->latent.value,
                 row_bytes = (size_t)s->tensor->n_bytes / (size_t)s->all_rows;
    const uint32_t type = model_slot_type(s);
    const size_t size = type == QUANT_F32 ? 4 : 2;
    float row[LATENT_MAX];
    for (size_t i = 0; i < (size_t)p->n_heads * nope; i++) {
        const size_t head = i / nope, d = i % nope;
        quant_type(s->tensor->type)
            ->dequantize(s->tensor->data + (head * in_file + d) * row_bytes, row, rank);
        for (size_t r = 0; r < rank; r++) {
            put_value(type, row[r], ret + ((head * rank + r) * nope + d) * size);
        }
    }
}

const void *model_slot_rows(const struct model_params *p, const struct slot *s, void **ret_copy)
{
    const size_t row_bytes = (size_t)s->tensor->n_bytes / (size_t)s->all_rows,
                 all = (size_t)s->rows *
                       (s->up == UP_KEYS ? (size_t)s->cols * sizeof(float) : row_bytes);
    *ret_copy = NULL;
    if (!s->is_turned && s->up == UP_NONE) {
        return s->tensor->data + (size_t)s->row0 * row_bytes;
    }
    unsigned char *copy = sys.malloc(all);
    if (copy && s->up == UP_KEYS) {
        turn_keys(p, s, copy);
    }
    for (int64_t r = 0; copy && s->up != UP_KEYS && r < s->rows; r++) {
        memcpy(copy + (size_t)r * row_bytes,
               s->tensor->data + (size_t)model_source_row(p, s, r) * row_bytes, row_bytes);
    }
    *ret_copy = copy;
    return copy;
}
