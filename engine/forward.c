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

/* ---- matrix steps ---- */

/* A product of f->n_rows rows: `unit` groups of columns an item, `finish` takes what it computed.
 * */
struct product {
    struct forward *f;
    const struct mat *w,
        *w2; /* w2: a second matrix of the same shape, beside the first (gate, up) */
    const struct act *x;
    int layer;
    int unit;    /* groups of an item */
    int n_units; /* items that one block of rows makes */
};

/* One item's rows and columns. */
struct piece {
    int row0, n_rows, group0, n_groups;
};

static int n_row_blocks(const struct forward *f)
{
    return (f->n_rows + FWD_ROWS - 1) / FWD_ROWS;
}

/* Groups of an item: large for reuse, small when there would be too few items to share evenly.
 * `quantum`: groups that must stay together. */
static void product_cut(struct product *p, int quantum)
{
    const int n_groups = mat_n_groups(p->w), wanted = 8 * p->f->n_threads;
    int unit = FWD_GROUPS;
    while (unit > quantum && (n_groups + unit - 1) / unit * n_row_blocks(p->f) < wanted)
        unit /= 2;
    p->unit = unit < quantum ? quantum : unit;
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

/* o, down: x += y */
static void residual_item(void *ctx, int item, int thread)
{
    const struct product *p = ctx;
    const struct piece c = piece_of(p, item);
    float *y = p->f->threads[thread].tile;
    product_run(p, p->w, c, y);
    for (int r = 0; r < c.n_rows; r++)
        p->f->k->add(p->f->s.x + (size_t)(c.row0 + r) * (size_t)p->w->n_out + 16 * c.group0,
                     y + (size_t)r * 16 * (size_t)c.n_groups, piece_columns(p->w, c));
}

static void step_residual(struct forward *f, const struct mat *w, const struct act *x)
{
    struct product p = {.f = f, .w = w, .x = x};
    product_cut(&p, 1);
    fwd_run(f, residual_item, &p, n_row_blocks(f) * p.n_units);
}

/* gate and up side by side; silu(gate) · up → ff */
static void ffn_item(void *ctx, int item, int thread)
{
    const struct product *p = ctx;
    const struct piece c = piece_of(p, item);
    float *gate = p->f->threads[thread].tile, *up = gate + FWD_ROWS * 16 * FWD_GROUPS;
    const int width = 16 * c.n_groups;
    product_run(p, p->w, c, gate);
    product_run(p, p->w2, c, up);
    for (int r = 0; r < c.n_rows; r++) {
        float *h = gate + r * width;
        p->f->k->silu_mul(h, up + r * width, width, h);
        fwd_act_write(p->f, &p->f->s.ff,
                      (struct fwd_slice){c.row0 + r, 16 * c.group0, width}, h);
    }
}

static void step_ffn(struct forward *f, const struct model_layer *l)
{
    struct product p = {.f = f, .w = &l->gate, .w2 = &l->up, .x = &f->s.in};
    product_cut(&p, 2); /* a quantised block of 32 is made in one item */
    fwd_run(f, ffn_item, &p, n_row_blocks(f) * p.n_units);
}

/* Logits straight to the callers. */
static void head_item(void *ctx, int item, int thread)
{
    const struct product *p = ctx;
    const struct piece c = piece_of(p, item);
    float *y = p->f->threads[thread].tile;
    product_run(p, p->w, c, y);
    for (int r = 0; r < c.n_rows; r++)
        memcpy(p->f->s.rows[c.row0 + r].logits + 16 * c.group0,
               y + (size_t)r * 16 * (size_t)c.n_groups, (size_t)piece_columns(p->w, c) * sizeof *y);
}

static void step_head(struct forward *f)
{
    struct product p = {.f = f, .w = f->m->lm_head, .x = &f->s.in};
    product_cut(&p, 1);
    fwd_run(f, head_item, &p, n_row_blocks(f) * p.n_units);
}

/* Rotates one head in place and scales all of it. */
static void rotate(const struct forward *f, float *x, int pos, float scale)
{
    const struct model_params *p = &f->m->params;
    f->k->rope(x, f->m->rope + (size_t)pos * (size_t)p->n_rot, p->n_rot, scale);
    for (int i = p->n_rot; i < p->head_dim; i++)
        x[i] *= scale;
}

/* An item is a block of rows and one head of q, k or v. */
static void qkv_item(void *ctx, int item, int thread)
{
    struct product *p = ctx;
    struct forward *f = p->f;
    const struct model_params *mp = &f->m->params;
    const struct model_layer *l = &f->m->layers[p->layer];
    const int n_q = mp->n_heads, n_kv = mp->n_kv_heads, slot = item % (n_q + 2 * n_kv),
              is_q = slot < n_q, is_v = slot >= n_q + n_kv;
    const int head = is_q ? slot : (slot - n_q) % n_kv, groups = mp->head_dim / 16;
    struct piece c = {
        .row0 = item / (n_q + 2 * n_kv) * FWD_ROWS, .group0 = head * groups, .n_groups = groups};
    c.n_rows = f->n_rows - c.row0 < FWD_ROWS ? f->n_rows - c.row0 : FWD_ROWS;
    float *y = f->threads[thread].tile;
    product_run(p, is_q ? &l->q : is_v ? &l->v : &l->k, c, y);
    for (int r = 0; r < c.n_rows; r++, y += mp->head_dim) {
        const struct fwd_row *row = &f->s.rows[c.row0 + r];
        if (!is_v)
            rotate(f, y, row->pos, is_q ? 1.0f / sqrtf((float)mp->head_dim) : 1);
        if (is_q)
            memcpy(f->s.q +
                       ((size_t)(c.row0 + r) * (size_t)n_q + (size_t)head) * (size_t)mp->head_dim,
                   y, (size_t)mp->head_dim * sizeof *y);
        else
            fwd_kv_write(f, row, (struct fwd_kv){p->layer, head, is_v}, y);
    }
}

static void step_qkv(struct forward *f, int layer)
{
    struct product p = {.f = f, .x = &f->s.in, .layer = layer};
    fwd_run(f, qkv_item, &p,
            n_row_blocks(f) * (f->m->params.n_heads + 2 * f->m->params.n_kv_heads));
}

/* ---- row steps ---- */

struct row_step {
    struct forward *f;
    const float *weight;
    const int32_t *const *ids; /* embedding: the id of each row */
};

#define ROWS_PER_ITEM 4

static void norm_item(void *ctx, int item, int thread)
{
    const struct row_step *st = ctx;
    struct forward *f = st->f;
    const int n = f->m->params.n_embd,
              end = (item + 1) * ROWS_PER_ITEM < f->n_rows ? (item + 1) * ROWS_PER_ITEM : f->n_rows;
    for (int r = item * ROWS_PER_ITEM; r < end; r++) {
        f->k->rms_norm(f->s.x + (size_t)r * (size_t)n, st->weight, n, f->m->params.rms_eps,
                       f->threads[thread].row);
        fwd_act_write(f, &f->s.in, (struct fwd_slice){r, 0, n}, f->threads[thread].row);
    }
}

static void step_norm(struct forward *f, const float *weight)
{
    struct row_step st = {.f = f, .weight = weight};
    fwd_run(f, norm_item, &st, (f->n_rows + ROWS_PER_ITEM - 1) / ROWS_PER_ITEM);
}

/* ---- the pass ---- */

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
            mat_row(&f->m->embd, p->ids[k], f->s.x + (size_t)row * (size_t)n_embd);
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
    for (int i = 0; r == 0 && i < m->params.n_layers; i++) {
        const struct model_layer *l = &m->layers[i];
        if (abort_flag && atomic_load_explicit(abort_flag, memory_order_relaxed))
            return err_set(e, ERR_CANCELED, "canceled in layer %d of %d", i, m->params.n_layers);
        step_norm(f, l->attn_norm);
        step_qkv(f, i);
        if (i + 1 == m->params.n_layers) {
            const int before = f->n_rows;
            if (!keep_wanted(f))
                return 0;
            if (f->n_rows < before && (r = fwd_attn_plan(f, e)) < 0)
                return r;
        }
        fwd_attn(f, i);
        step_residual(f, &l->o, &f->s.att);
        step_norm(f, l->ffn_norm);
        step_ffn(f, l);
        step_residual(f, &l->down, &f->s.ff);
        atomic_fetch_add_explicit(&f->progress, 1, memory_order_relaxed);
    }
    if (r == 0) {
        step_norm(f, m->output_norm);
        step_head(f);
    }
    return r;
}

/* ---- scratch ---- */

/* Hands out pieces of one allocation; with base NULL it only counts. */
struct carve {
    unsigned char *base;
    size_t used;
};

static void *carve(struct carve *c, size_t n, size_t size)
{
    void *p = c->base ? c->base + c->used : NULL;
    c->used += fwd_round(n * size, 64);
    return p;
}

static void carve_act(struct carve *c, struct act *a, int n_in, int wants, int rows)
{
    const size_t n = (size_t)rows;
    *a = (struct act){
        .n_in = n_in, .n_blocks = (n_in + 31) / 32, .ldf = fwd_round((size_t)n_in, 16)};
    if (wants & 1) {
        a->q = carve(c, n * (size_t)a->n_blocks, 32);
        a->b = carve(c, n * (size_t)a->n_blocks, sizeof *a->b);
    }
    if (wants & 2)
        a->f = carve(c, n * a->ldf, sizeof(float));
}

/* 1: int8, 2: F32, 3: both. */
static int wants(const struct mat *w)
{
    return mat_wants_float(w) ? 2 : 1;
}

static void carve_scratch(struct carve *c, const struct model *m, int rows, struct fwd_scratch *s)
{
    const struct model_params *p = &m->params;
    const int width = p->n_heads * p->head_dim;
    const size_t n = (size_t)rows;
    int in = wants(m->lm_head), att = 0, ff = 0;
    for (int i = 0; i < p->n_layers; i++) {
        const struct model_layer *l = &m->layers[i];
        in |= wants(&l->q) | wants(&l->k) | wants(&l->v) | wants(&l->gate) | wants(&l->up);
        att |= wants(&l->o);
        ff |= wants(&l->down);
    }
    s->rows = carve(c, n, sizeof *s->rows);
    s->x = carve(c, n * (size_t)p->n_embd, sizeof(float));
    s->q = carve(c, n * (size_t)width, sizeof(float));
    carve_act(c, &s->in, p->n_embd, in, rows);
    carve_act(c, &s->att, width, att, rows);
    carve_act(c, &s->ff, p->n_ff, ff, rows);
    s->tiles = carve(c, n, sizeof *s->tiles);
}

static int reserve_rows(struct forward *f, int rows, struct err *e)
{
    struct fwd_scratch *s = &f->s;
    if (rows <= s->cap_rows)
        return 0;
    struct fwd_scratch n = *s;
    struct carve c = {0};
    carve_scratch(&c, f->m, rows, &n);
    c.base = mat_region_new(c.used);
    if (!c.base)
        return err_set(e, ERR_NOMEM, "no memory for a pass of %d rows: %zu bytes", rows, c.used);
    const size_t bytes = c.used;
    c.used = 0;
    carve_scratch(&c, f->m, rows, &n);
    mat_region_free(s->memory, s->memory_bytes);
    *s = n;
    s->memory = c.base;
    s->memory_bytes = bytes;
    s->cap_rows = rows;
    return 0;
}

static void carve_threads(struct carve *c, const struct forward *f, struct fwd_thread *t, int n)
{
    const struct model_params *p = &f->m->params;
    const size_t dim = (size_t)p->head_dim, q = (size_t)f->tile_queries,
                 n_scales = (size_t)kv_n_scales(p->head_dim);
    size_t tile = 2 * 16 * FWD_GROUPS;
    tile = tile < dim ? dim : tile;
    for (int i = 0; i < n; i++, t++) {
        struct fwd_thread w = {0};
        w.tile = carve(c, FWD_ROWS * tile, sizeof(float));
        w.row = carve(c, fwd_round((size_t)p->n_embd, 32), sizeof(float));
        w.q = carve(c, q * dim, sizeof(float));
        w.acc = carve(c, q * dim, sizeof(float));
        w.acc2 = carve(c, q * dim, sizeof(float));
        if (f->kv.type == KV_Q8_0) {
            w.q8 = carve(c, q * n_scales, 32);
            w.qb = carve(c, q * n_scales, sizeof *w.qb);
        }
        w.expanded = carve(c, attn_scratch(p->head_dim, f->tile_queries), sizeof(float));
        w.m = carve(c, 4 * q, sizeof(float));
        w.l = w.m ? w.m + q : NULL;
        w.m2 = w.m ? w.m + 2 * q : NULL;
        w.l2 = w.m ? w.m + 3 * q : NULL;
        w.pos = carve(c, q, sizeof(int));
        if (c->base)
            *t = w;
    }
}

size_t forward_pass_bytes(const struct forward *f, int n_rows)
{
    struct carve c = {0};
    struct fwd_scratch s = {0};
    carve_scratch(&c, f->m, n_rows, &s);
    carve_threads(&c, f, f->threads, f->n_threads);
    return c.used;
}

/* ---- life ---- */

static int check_shape(const struct model_params *p, const struct kv_shape *kv, struct err *e)
{
    if (p->head_dim % 16 != 0 || p->head_dim < 16 || p->head_dim > FWD_HEAD_DIM)
        return err_set(e, ERR_UNSUPPORTED, "head dimension %d: must be a multiple of 16 up to %d",
                       p->head_dim, FWD_HEAD_DIM);
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
    return 0;
}

int forward_set_threads(struct forward *f, int n_threads, struct err *e)
{
    struct pool *pool;
    struct carve c = {0};
    if (f->pool && n_threads == f->n_threads)
        return 0;
    int r = pool_new(n_threads, &pool, e);
    if (r < 0)
        return r;
    struct fwd_thread *t = calloc((size_t)n_threads, sizeof *t);
    carve_threads(&c, f, t, n_threads);
    c.base = t ? aligned_alloc(64, c.used) : NULL;
    if (!c.base) {
        free(t);
        pool_free(pool);
        return err_set(e, ERR_NOMEM, "no memory for %d threads' scratch: %zu bytes", n_threads,
                       c.used);
    }
    c.used = 0;
    carve_threads(&c, f, t, n_threads);
    pool_free(f->pool);
    free(f->threads);
    free(f->thread_memory);
    f->pool = pool;
    f->threads = t;
    f->thread_memory = c.base;
    f->n_threads = n_threads;
    return 0;
}

int forward_set_isa(struct forward *f, const char *isa, struct err *e)
{
    return kernels_find(isa, &f->k, e);
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
    const int g = m->params.n_heads / m->params.n_kv_heads;
    f->m = m;
    f->kv = *kv;
    f->tile_queries = g > FWD_QUERIES ? g : FWD_QUERIES;
    r = forward_set_isa(f, isa, e);
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
        if (end > f->m->params.n_ctx_train)
            return err_set(e, ERR_LIMIT, "%lld positions: the model has %d", (long long)end,
                           f->m->params.n_ctx_train);
        if (end > kv_seq_capacity(p->seq))
            return err_set(e, ERR_INVAL, "%lld positions: the sequence has blocks for %d",
                           (long long)end, kv_seq_capacity(p->seq));
        rows += p->n_ids;
    }
    if (rows > INT_MAX / 16)
        return err_set(e, ERR_LIMIT, "%lld rows in one pass: at most %d", (long long)rows,
                       INT_MAX / 16);
    *ret_rows = (int)rows;
    return 0;
}

int forward_pass(struct forward *f, struct engine_part *parts, int n_parts, const atomic_int *abort,
                 struct err *e)
{
    int rows = 0;
    int r = check_parts(f, parts, n_parts, &rows, e);
    if (r == 0)
        r = reserve_rows(f, rows, e);
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
