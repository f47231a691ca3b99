/*
 * The forward pass: rows of all parts side by side through every layer, in fused steps on the pool.
 *
 *   embed │ norm → in │ q k v + rope + KV write │ attention │ merge → att │ o + residual │ norm →
 *   in │ gate, up, silu → ff │ down + residual │ … │ norm → in │ lm_head
 *
 * Each │ is a barrier. A step's items are (block of rows, columns), taken from the pool's counter;
 * an item computes its piece of the product into a buffer of its thread and
 * finishes it there while it is warm: rotation, rounding into the KV block, SiLU, quantisation, or
 * the sum with the residual. Nothing in a step depends on how rows or columns
 * were cut (kernels.h).
 *
 * In the last layer only rows whose logits are wanted go past the KV write; lm_head runs for them
 * alone and writes to the callers' memory.
 */
#include "engine/forward.h"

#include <assert.h>
#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "engine/forward_impl.h"
#include "engine/kernels_probe.h"

/* ---- matrix steps ---- */

/* A product of f->n_rows rows: `unit` groups of columns an item, `finish` takes what it computed.
 * */
struct product {
    struct forward *f;
    const struct mat *w,
        *w2; /* w2: a second matrix of the same shape, beside the first (gate, up) */
    const struct act *x;
    struct act *to;      /* gate and up: where their product goes */
    const float *by_row; /* what rows of the result are multiplied by; NULL: nothing */
    int layer;
    int unit;    /* groups of an item */
    int n_units; /* items that one block of rows makes */
};

/* One item's rows and columns. */
struct piece {
    int row0, n_rows, group0, n_groups;
};

/* Groups of an item: large for reuse, small when there would be too few items to share evenly.
 * `quantum`: groups that must stay together. */
static void product_cut(struct product *p, int quantum)
{
    const int n_groups = mat_n_groups(p->w), wanted = 8 * p->f->n_threads;
    int unit = FWD_GROUPS;
    while (unit > quantum && (n_groups + unit - 1) / unit * fwd_row_blocks(p->f) < wanted)
        unit /= 2;
    p->unit = unit < quantum ? quantum : unit;
    if (fwd_is_few(p->f))
        p->unit = fwd_few_unit(
            p->f, (struct fwd_few){p->f->n_rows, n_groups, FWD_FEW_GROUPS, quantum});
    p->n_units = (n_groups + p->unit - 1) / p->unit;
}

static struct piece piece_of(const struct product *p, int item)
{
    struct piece c = {.row0 = item / p->n_units * FWD_ROWS, .group0 = item % p->n_units * p->unit};
    const int rows = p->f->n_rows - c.row0, groups = mat_n_groups(p->w) - c.group0;
    c.n_rows = rows < FWD_ROWS ? rows : FWD_ROWS;
    c.n_groups = groups < p->unit ? groups : p->unit;
    return c;
}

/* Computes a piece of w into y [n_rows, 16 · n_groups]. */
static void product_run(const struct product *p, const struct mat *w, struct piece c, float *y)
{
    const struct gemm g = {.w = w,
                           .group0 = c.group0,
                           .n_groups = c.n_groups,
                           .x = p->x,
                           .row0 = c.row0,
                           .n_rows = c.n_rows,
                           .y = y,
                           .ldy = 16 * (size_t)c.n_groups};
    p->f->k->gemm[w->layout](&g);
}

/* Columns of the piece that exist. */
static int piece_columns(const struct mat *w, struct piece c)
{
    const int left = w->n_out - 16 * c.group0, n = 16 * c.n_groups;
    return left < n ? left : n;
}

void fwd_act_write(const struct forward *f, struct act *a, struct fwd_slice s, const float *x)
{
    const size_t first = (size_t)s.row * (size_t)a->n_blocks + (size_t)s.col0 / 32;
    if (a->q)
        f->k->quantize(x, s.n / 32, a->q + 32 * first, a->b + first);
    if (a->f)
        memcpy(a->f + (size_t)s.row * a->ldf + s.col0, x, (size_t)s.n * sizeof *x);
}

struct row_step {
    struct forward *f;
    const float *weight;
};

#define ROWS_PER_ITEM 4

static int n_row_items(const struct forward *f)
{
    return (f->n_rows + ROWS_PER_ITEM - 1) / ROWS_PER_ITEM;
}

/* The row behind an item's last. */
static int row_end(const struct row_step *st, int item)
{
    const int end = (item + 1) * ROWS_PER_ITEM;
    return end < st->f->n_rows ? end : st->f->n_rows;
}

/* o, down: x += y, or y by itself where a norm comes before the sum. */
static void residual_item(void *ctx, int item, int thread)
{
    const struct product *p = ctx;
    struct forward *f = p->f;
    const struct piece c = piece_of(p, item);
    const int columns = piece_columns(p->w, c);
    float *y = f->threads[thread].tile;
    product_run(p, p->w, c, y);
    for (int r = 0; r < c.n_rows; r++, y += 16 * c.n_groups) {
        const size_t at = (size_t)(c.row0 + r) * (size_t)p->w->n_out + 16 * (size_t)c.group0;
        if (f->s.added) {
            memcpy(f->s.added + at, y, (size_t)columns * sizeof *y);
            continue;
        }
        const float by =
            f->m->params.residual_scale * (p->by_row ? p->by_row[c.row0 + r] : 1);
        for (int i = 0; by != 1 && i < columns; i++)
            y[i] *= by;
        f->k->add(f->s.x + at, y, columns);
    }
}

/* x += norm(y), the row step behind it. */
static void post_norm_item(void *ctx, int item, int thread)
{
    const struct row_step *st = ctx;
    struct forward *f = st->f;
    const int n = f->m->params.n_embd, end = row_end(st, item);
    float *y = f->threads[thread].row;
    for (int r = item * ROWS_PER_ITEM; r < end; r++) {
        const size_t at = (size_t)r * (size_t)n;
        f->k->rms_norm(f->s.added + at, st->weight, n, f->m->params.rms_eps, y);
        f->k->add(f->s.x + at, y, n);
    }
}

static void step_residual(struct forward *f, struct product p, const float *post_norm)
{
    p.f = f;
    product_cut(&p, 1);
    fwd_run(f, residual_item, &p, fwd_row_blocks(f) * p.n_units);
    if (post_norm) {
        struct row_step st = {.f = f, .weight = post_norm};
        fwd_run(f, post_norm_item, &st, n_row_items(f));
    }
}

/* gate and up side by side; silu(gate) · up, or gelu's, → ff */
static void ffn_item(void *ctx, int item, int thread)
{
    const struct product *p = ctx;
    const struct piece c = piece_of(p, item);
    float *gate = p->f->threads[thread].tile, *up = gate + FWD_ROWS * 16 * FWD_GROUPS;
    const int width = 16 * c.n_groups;
    const struct kernels *k = p->f->k;
    void (*const mul)(const float *, const float *, int, float *) =
        p->f->m->params.arch->is_gelu ? k->gelu_mul : k->silu_mul;
    product_run(p, p->w, c, gate);
    product_run(p, p->w2, c, up);
    for (int r = 0; r < c.n_rows; r++) {
        float *h = gate + r * width;
        mul(h, up + r * width, width, h);
        fwd_act_write(p->f, p->to, (struct fwd_slice){c.row0 + r, 16 * c.group0, width}, h);
    }
}

/* From f->s.in to the residual stream: a layer's feed-forward, or its experts and the one for
 * all. */
static void feed_forward(struct forward *f, int layer)
{
    const struct model_layer *l = &f->m->layers[layer];
    const bool has_experts = l->router.n_out > 0;
    struct act *hidden = has_experts ? &f->s.shared : &f->s.ff;
    const float *by_row = has_experts ? fwd_experts(f, l) : NULL;
    if (!l->down.n_out)
        return;
    struct product p = {.f = f, .w = &l->gate, .w2 = &l->up, .x = &f->s.in, .to = hidden};
    product_cut(&p, 2); /* a quantised block of 32 is made in one item */
    fwd_ahead(f, layer, FWD_AHEAD_DOWN);
    fwd_run(f, ffn_item, &p, fwd_row_blocks(f) * p.n_units);
    fwd_ahead(f, layer + 1, FWD_AHEAD_QKV);
    step_residual(f, (struct product){.w = &l->down, .x = hidden, .by_row = by_row},
                  l->ffn_post_norm);
}

/* What a family does to its logits at the end; n a multiple of 16. */
static void finish_logits(const struct forward *f, float *y, int n)
{
    const struct model_params *p = &f->m->params;
    for (int i = 0; p->logit_scale != 1 && i < n; i++)
        y[i] *= p->logit_scale;
    if (p->logit_cap > 0)
        f->k->soft_cap(y, n, p->logit_cap);
}

/* Logits straight to the callers. */
static void head_item(void *ctx, int item, int thread)
{
    const struct product *p = ctx;
    const struct piece c = piece_of(p, item);
    float *y = p->f->threads[thread].tile;
    product_run(p, p->w, c, y);
    finish_logits(p->f, y, c.n_rows * 16 * c.n_groups);
    for (int r = 0; r < c.n_rows; r++)
        memcpy(p->f->s.rows[c.row0 + r].logits + 16 * c.group0,
               y + (size_t)r * 16 * (size_t)c.n_groups, (size_t)piece_columns(p->w, c) * sizeof *y);
}

static void step_head(struct forward *f)
{
    struct product p = {.f = f, .w = f->m->lm_head, .x = &f->s.in};
    product_cut(&p, 1);
    fwd_run(f, head_item, &p, fwd_row_blocks(f) * p.n_units);
}

/* Rotates one head in place (table NULL: doesn't) and scales all of it. */
static void rotate(const struct forward *f, const float *table, float *x, int pos, float scale)
{
    const struct model_params *p = &f->m->params;
    const int n_rot = table ? p->n_rot : 0;
    if (table)
        f->k->rope(x, table + (size_t)pos * (size_t)n_rot, n_rot, scale);
    for (int i = n_rot; i < p->head_dim; i++)
        x[i] *= scale;
}

/* Which head of q, k or v an item computes. */
struct head {
    const struct mat *w;
    const float *bias, *norm; /* NULL: none */
    int index;
    bool is_q, is_v;
};

static struct head head_of(const struct forward *f, const struct model_layer *l, int slot)
{
    const struct model_params *p = &f->m->params;
    const int n_q = p->n_heads, n_kv = p->n_kv_heads;
    struct head h = {.is_q = slot < n_q, .is_v = slot >= n_q + n_kv};
    h.index = h.is_q ? slot : (slot - n_q) % n_kv;
    h.w = h.is_q ? &l->q : h.is_v ? &l->v : &l->k;
    h.bias = h.is_q ? l->q_bias : h.is_v ? l->v_bias : l->k_bias;
    h.norm = h.is_q ? l->q_norm : h.is_v ? NULL : l->k_norm;
    if (h.bias)
        h.bias += (size_t)h.index * (size_t)p->head_dim;
    return h;
}

/* From the product to what attention reads: one head of one row. */
static void finish_head(const struct product *p, const struct head *h, int row, float *y)
{
    struct forward *f = p->f;
    const struct model_params *mp = &f->m->params;
    const struct fwd_row *at = &f->s.rows[row];
    if (h->bias)
        f->k->add(y, h->bias, mp->head_dim);
    if (h->norm)
        f->k->rms_norm(y, h->norm, mp->head_dim, mp->rms_eps, y);
    if (!h->is_v)
        rotate(f, f->m->layers[p->layer].rope, y, at->pos, h->is_q ? mp->attn_scale : 1);
    if (h->is_q)
        memcpy(f->s.q + ((size_t)row * (size_t)mp->n_heads + (size_t)h->index) *
                            (size_t)mp->head_dim,
               y, (size_t)mp->head_dim * sizeof *y);
    else
        fwd_kv_write(f, at, (struct fwd_kv){p->layer, h->index, h->is_v}, y);
}

/* Neighbouring heads of one of q, k and v. */
struct heads {
    int slot, n;
};

/* Item i of those that q, k and v make, `unit` heads an item. */
static struct heads heads_of(const struct forward *f, int i, int unit)
{
    const int n[3] = {f->m->params.n_heads, f->m->params.n_kv_heads, f->m->params.n_kv_heads};
    struct heads h = {0};
    for (int k = 0; k < 3; k++) {
        const int n_items = (n[k] + unit - 1) / unit;
        if (i < n_items) {
            h.slot += i * unit;
            h.n = n[k] - i * unit < unit ? n[k] - i * unit : unit;
            return h;
        }
        i -= n_items;
        h.slot += n[k];
    }
    return h;
}

/* An item is a block of rows and a run of heads of q, k or v: one, or several for few rows. */
static void qkv_item(void *ctx, int item, int thread)
{
    struct product *p = ctx;
    struct forward *f = p->f;
    const struct model_params *mp = &f->m->params;
    const int groups = mp->head_dim / 16;
    const struct heads run = heads_of(f, item % p->n_units, p->unit);
    struct head h = head_of(f, &f->m->layers[p->layer], run.slot);
    struct piece c = {.row0 = item / p->n_units * FWD_ROWS,
                      .group0 = h.index * groups,
                      .n_groups = groups * run.n};
    c.n_rows = f->n_rows - c.row0 < FWD_ROWS ? f->n_rows - c.row0 : FWD_ROWS;
    float *y = f->threads[thread].tile;
    product_run(p, h.w, c, y);
    for (int i = 0; i < run.n; i++, y += mp->head_dim) {
        h = head_of(f, &f->m->layers[p->layer], run.slot + i);
        for (int r = 0; r < c.n_rows; r++)
            finish_head(p, &h, c.row0 + r, y + (size_t)r * (size_t)(run.n * mp->head_dim));
    }
}

static void step_qkv(struct forward *f, int layer)
{
    const struct model_params *mp = &f->m->params;
    struct product p = {.f = f, .x = &f->s.in, .layer = layer, .unit = 1};
    if (fwd_is_few(f))
        p.unit = fwd_few_unit(
            f, (struct fwd_few){f->n_rows, mp->n_heads + 2 * mp->n_kv_heads, FWD_FEW_HEADS, 1});
    p.n_units = (mp->n_heads + p.unit - 1) / p.unit + 2 * ((mp->n_kv_heads + p.unit - 1) / p.unit);
    fwd_run(f, qkv_item, &p, fwd_row_blocks(f) * p.n_units);
}

/* ---- row steps ---- */

static void norm_item(void *ctx, int item, int thread)
{
    const struct row_step *st = ctx;
    struct forward *f = st->f;
    const int n = f->m->params.n_embd, end = row_end(st, item);
    for (int r = item * ROWS_PER_ITEM; r < end; r++) {
        f->k->rms_norm(f->s.x + (size_t)r * (size_t)n, st->weight, n, f->m->params.rms_eps,
                       f->threads[thread].row);
        fwd_act_write(f, &f->s.in, (struct fwd_slice){r, 0, n}, f->threads[thread].row);
    }
}

static void step_norm(struct forward *f, const float *weight)
{
    struct row_step st = {.f = f, .weight = weight};
    fwd_run(f, norm_item, &st, n_row_items(f));
}

/* ---- the pass ---- */

static void embed(const struct forward *f, int id, float *ret)
{
    const float by = f->m->params.embd_scale;
    mat_row(&f->m->embd, id, ret);
    for (int i = 0; by != 1 && i < f->m->params.n_embd; i++)
        ret[i] *= by;
}

/* Fills the rows and their embeddings; returns the number of rows whose logits are wanted. */
static void plan_rows(struct forward *f, const struct engine_part *parts, int n_parts)
{
    const int n_embd = f->m->params.n_embd, n_vocab = f->m->params.n_vocab;
    int row = 0;
    for (int i = 0; i < n_parts; i++) {
        const struct engine_part *p = &parts[i];
        for (int k = 0; k < p->n_ids; k++, row++) {
            const int from_end = p->n_ids - k; /* 1: the last */
            f->s.rows[row] = (struct fwd_row){.seq = p->seq, .pos = p->seq->n_tokens + k};
            if (from_end <= p->n_logits)
                f->s.rows[row].logits =
                    p->logits + (size_t)(p->n_logits - from_end) * (size_t)n_vocab;
            embed(f, p->ids[k], f->s.x + (size_t)row * (size_t)n_embd);
        }
    }
    f->n_rows = row;
}

/* Keeps only rows whose logits are wanted (rows move down, never up). False: there is nothing left
 * to do. */
static int keep_wanted(struct forward *f)
{
    const size_t n_embd = (size_t)f->m->params.n_embd,
                 n_q = (size_t)f->m->params.n_heads * (size_t)f->m->params.head_dim;
    int n = 0;
    for (int r = 0; r < f->n_rows; r++) {
        if (!f->s.rows[r].logits)
            continue;
        if (n != r) {
            f->s.rows[n] = f->s.rows[r];
            memcpy(f->s.x + (size_t)n * n_embd, f->s.x + (size_t)r * n_embd,
                   n_embd * sizeof(float));
            memcpy(f->s.q + (size_t)n * n_q, f->s.q + (size_t)r * n_q, n_q * sizeof(float));
        }
        n++;
    }
    f->n_rows = n;
    return n > 0;
}

static int run_layers(struct forward *f, const atomic_int *abort_flag, struct err *e)
{
    const struct model *m = f->m;
    int r = fwd_attn_plan(f, e);
    fwd_ahead(f, 0, FWD_AHEAD_QKV);
    for (int i = 0; r == 0 && i < m->params.n_layers; i++) {
        const struct model_layer *l = &m->layers[i];
        if (abort_flag && atomic_load_explicit(abort_flag, memory_order_relaxed))
            return err_set(e, ERR_CANCELED, "canceled in layer %d of %d", i, m->params.n_layers);
        step_norm(f, l->attn_norm);
        fwd_ahead(f, i, FWD_AHEAD_O);
        if (m->params.latent.kv_rank)
            fwd_latent_qkv(f, i);
        else
            step_qkv(f, i);
        if (i + 1 == m->params.n_layers) {
            const int before = f->n_rows;
            if (!keep_wanted(f))
                return 0;
            if (f->n_rows < before && (r = fwd_attn_plan(f, e)) < 0)
                return r;
        }
        fwd_attn(f, i);
        if (m->params.latent.kv_rank)
            fwd_latent_values(f, i);
        fwd_ahead(f, i, FWD_AHEAD_GATE);
        step_residual(f, (struct product){.w = &l->o, .x = &f->s.att}, l->attn_post_norm);
        step_norm(f, l->ffn_norm);
        feed_forward(f, i);
        atomic_fetch_add_explicit(&f->progress, 1, memory_order_relaxed);
        if (f->passed)
            atomic_fetch_add_explicit(f->passed, 1, memory_order_relaxed);
    }
    if (r == 0) {
        step_norm(f, m->output_norm);
        fwd_ahead(f, 0, FWD_AHEAD_QKV); /* of the next pass, if it comes at once */
        step_head(f);
    }
    return r;
}

/* ---- life ---- */

static int check_shape(const struct model_params *p, const struct kv_shape *kv, struct err *e)
{
    const int dim_max = p->latent.kv_rank ? FWD_LATENT_DIM : FWD_HEAD_DIM;
    if (p->head_dim % 16 != 0 || p->head_dim < 16 || p->head_dim > dim_max)
        return err_set(e, ERR_UNSUPPORTED, "head dimension %d: must be a multiple of 16 up to %d",
                       p->head_dim, dim_max);
    if (p->n_kv_heads < 1 || p->n_heads % p->n_kv_heads != 0)
        return err_set(e, ERR_UNSUPPORTED, "%d heads on %d KV heads: must be a multiple",
                       p->n_heads, p->n_kv_heads);
    if (p->n_rot < 0 || p->n_rot > p->head_dim || p->n_rot % 2 != 0)
        return err_set(e, ERR_UNSUPPORTED, "%d rotated dimensions: must be even and at most %d",
                       p->n_rot, p->head_dim);
    if (kv->n_layers != p->n_layers || kv->n_kv_heads != p->n_kv_heads ||
        kv->head_dim != p->head_dim)
        return err_set(e, ERR_INVAL, "KV shape %d × %d × %d is not the model's, %d × %d × %d",
                       kv->n_layers, kv->n_kv_heads, kv->head_dim, p->n_layers, p->n_kv_heads,
                       p->head_dim);
    if (kv->window && (kv->window != p->window || kv->window_period != p->window_period))
        return err_set(e, ERR_INVAL, "KV sections of a window of %d, each %d-th layer without, are "
                       "not the model's, %d and %d",
                       kv->window, kv->window_period, p->window, p->window_period);
    return 0;
}

int forward_set_isa(struct forward *f, const char *isa, struct err *e)
{
    return kernels_find_proven(isa, &f->k, e);
}

int forward_new(const struct model *m, const struct kv_shape *kv, int n_threads, const char *isa,
                struct forward **ret, struct err *e)
{
    int r = check_shape(&m->params, kv, e);
    if (r < 0)
        return r;
    struct forward *f = calloc(1, sizeof *f);
    if (!f)
        return err_set(e, ERR_NOMEM, "no memory for the forward pass");
    f->m = m;
    f->kv = *kv;
    f->tile_queries = fwd_tile_queries(m);
    r = forward_set_isa(f, isa, e);
    if (r == 0)
        r = fwd_ahead_new(f, e);
    if (r == 0)
        r = forward_set_threads(f, n_threads, e);
    if (r < 0) {
        forward_free(f);
        return r;
    }
    *ret = f;
    return 0;
}

void forward_free(struct forward *f)
{
    if (!f)
        return;
    pool_free(f->pool);
    free(f->ahead);
    mat_region_free(f->s.memory, f->s.memory_bytes);
    free(f->s.state_acc);
    free(f->s.items);
    free(f->threads);
    free(f->thread_memory);
    free(f);
}

const char *forward_isa(const struct forward *f)
{
    return f->k->name;
}

int forward_n_threads(const struct forward *f)
{
    return f->n_threads;
}

void forward_tell_progress(struct forward *f, _Atomic uint64_t *passed)
{
    f->passed = passed;
}

uint64_t forward_progress(const struct forward *f)
{
    return atomic_load_explicit(&f->progress, memory_order_relaxed);
}

/* An abandoned pass has written past the committed lengths; masked positions are multiplied by
 * zero, so they must be finite. */
static void clean_up(const struct engine_part *p)
{
    const int first = p->seq->n_tokens / KV_BLOCK,
              last = (p->seq->n_tokens + p->n_ids - 1) / KV_BLOCK;
    for (int i = first; i <= last; i++)
        kv_block_zero_from(p->seq->blocks[i], i == first ? p->seq->n_tokens % KV_BLOCK : 0);
}

static int check_parts(const struct forward *f, const struct engine_part *parts, int n_parts,
                       int *ret_rows, struct err *e)
{
    int64_t rows = 0;
    for (int i = 0; i < n_parts; i++) {
        const struct engine_part *p = &parts[i];
        const int64_t end = (int64_t)p->seq->n_tokens + p->n_ids;
        assert(p->n_ids >= 1 && p->n_logits >= 0 && p->n_logits <= p->n_ids);
        if (end > f->m->params.n_ctx)
            return err_set(e, ERR_LIMIT, "%lld positions: the model has %d", (long long)end,
                           f->m->params.n_ctx);
        if (end > kv_seq_capacity(p->seq))
            return err_set(e, ERR_INVAL, "%lld positions: the sequence has blocks for %d",
                           (long long)end, kv_seq_capacity(p->seq));
        rows += p->n_ids;
    }
    if (rows > FWD_ROWS_MAX)
        return err_set(e, ERR_LIMIT, "%lld rows in one pass: at most %d", (long long)rows,
                       FWD_ROWS_MAX);
    *ret_rows = (int)rows;
    return 0;
}

int forward_pass(struct forward *f, struct engine_part *parts, int n_parts, const atomic_int *abort,
                 struct err *e)
{
    int rows = 0;
    int r = check_parts(f, parts, n_parts, &rows, e);
    if (r == 0)
        r = fwd_reserve_rows(f, rows, e);
    if (r < 0 || rows == 0)
        return r;
    const uint32_t before = numerics_enter();
    plan_rows(f, parts, n_parts);
    r = run_layers(f, abort, e);
    numerics_leave(before);
    for (int i = 0; i < n_parts; i++) {
        if (r == 0)
            parts[i].seq->n_tokens += parts[i].n_ids;
        else
            clean_up(&parts[i]);
    }
    return r;
}
