/*
 * Multi-head latent attention: a position keeps one row for all heads, its compressed keys and
 * values, and the up-projections that would unfold it are absorbed by what comes before and after
 * (DeepSeek-V2, arXiv 2405.04434, section 2.1.2).
 *
 *   in │ kv_a, q_a │ norm and rotation of the row → KV block; norm of q_a │ q by heads: rotated end
 *      → q, the rest → nope │ k_b of each head: nope → q │ attention over the rows themselves │
 *      v_b of each head → att │ o …
 *
 * Each │ is a barrier, as in forward.c. A head's products are rows of one matrix, so it has its own
 * columns of k_b and v_b and its own rows of their inputs: those lie head by head.
 */
#include <string.h>

#include "engine/forward_impl.h"

struct latent_step {
    struct forward *f;
    const struct model_layer *l;
    int layer;
    int n_units; /* items that a block of rows makes */
};

/* What an item computes: rows of an input times some groups of a matrix. */
struct latent_piece {
    int row0, n_rows; /* of the pass */
    int unit;         /* which of the step's units */
    int head, col0;   /* of the matrix: which head's columns, and from which on; 0, or the first */
    int x_row0;       /* of the input: where its rows begin */
    int group0, n_groups;
};

static struct latent_piece piece_of(const struct latent_step *st, int item)
{
    struct latent_piece c = {.row0 = item / st->n_units * FWD_ROWS, .unit = item % st->n_units};
    const int left = st->f->n_rows - c.row0;
    c.n_rows = left < FWD_ROWS ? left : FWD_ROWS;
    c.x_row0 = c.row0;
    return c;
}

/* The piece's rows of x times its groups of w, into the thread's tile. */
static float *product(const struct forward *f, int thread, const struct mat *w, const struct act *x,
                      const struct latent_piece *c)
{
    float *y = f->threads[thread].tile;
    f->k->gemm[w->layout](&(struct gemm){.w = w,
                                         .group0 = c->group0,
                                         .n_groups = c->n_groups,
                                         .x = x,
                                         .row0 = c->x_row0,
                                         .n_rows = c->n_rows,
                                         .y = y,
                                         .ldy = 16 * (size_t)c->n_groups});
    return y;
}

/* Units of so many columns: pieces of FWD_GROUPS groups, the last one smaller. */
static int n_units(int columns)
{
    return (columns / 16 + FWD_GROUPS - 1) / FWD_GROUPS;
}

/* Unit `unit` of the `columns` columns of a head; all of a matrix is head 0. */
static void piece_columns(struct latent_piece *c, int unit, int columns)
{
    const int first = unit * FWD_GROUPS, left = columns / 16 - first;
    c->col0 = 16 * first;
    c->group0 = c->head * (columns / 16) + first;
    c->n_groups = left < FWD_GROUPS ? left : FWD_GROUPS;
}

/* kv_a's units, then q_a's: their plain rows. */
static void down_item(void *ctx, int item, int thread)
{
    const struct latent_step *st = ctx;
    struct forward *f = st->f;
    struct latent_piece c = piece_of(st, item);
    const int n_kv = n_units(st->l->kv_a.n_out);
    const bool is_q = c.unit >= n_kv;
    const struct mat *w = is_q ? &st->l->q_a : &st->l->kv_a;
    piece_columns(&c, is_q ? c.unit - n_kv : c.unit, w->n_out);
    const float *y = product(f, thread, w, &f->s.in, &c);
    float *to = (is_q ? f->s.q_a : f->s.kv_a) + c.col0;
    for (int r = 0; r < c.n_rows; r++, y += 16 * c.n_groups)
        memcpy(to + (size_t)(c.row0 + r) * (size_t)w->n_out, y,
               16 * (size_t)c.n_groups * sizeof *y);
}

/* A position's row, as it is kept; and the queries' compressed row, as q reads it. */
static void row_item(void *ctx, int row, int thread)
{
    const struct latent_step *st = ctx;
    struct forward *f = st->f;
    const struct model_params *p = &f->m->params;
    const struct fwd_row *at = &f->s.rows[row];
    float *kv = f->s.kv_a + (size_t)row * (size_t)p->head_dim;
    (void)thread;
    f->k->rms_norm(kv, st->l->kv_a_norm, p->latent.kv_rank, p->rms_eps, kv);
    f->k->rope(kv + p->latent.kv_rank, st->l->rope + (size_t)at->pos * (size_t)p->n_rot, p->n_rot,
               1);
    fwd_kv_write(f, at, (struct fwd_kv){st->layer, 0, false}, kv);
    if (p->latent.q_rank) {
        float *q = f->s.q_a + (size_t)row * (size_t)p->latent.q_rank;
        f->k->rms_norm(q, st->l->q_a_norm, p->latent.q_rank, p->rms_eps, q);
        fwd_act_write(f, &f->s.q_in, (struct fwd_slice){row, 0, p->latent.q_rank}, q);
    }
}

/* Where a head of a row has its query. */
static float *query_of(const struct forward *f, int row, int head)
{
    const struct model_params *p = &f->m->params;
    return f->s.q + ((size_t)row * (size_t)p->n_heads + (size_t)head) * (size_t)p->head_dim;
}

/* A unit is a head: nope + n_rot columns. */
static void head_item(void *ctx, int item, int thread)
{
    const struct latent_step *st = ctx;
    struct forward *f = st->f;
    const struct model_params *p = &f->m->params;
    struct latent_piece c = piece_of(st, item);
    const int nope = p->latent.nope, width = nope + p->n_rot;
    c.n_groups = width / 16;
    c.group0 = c.unit * c.n_groups;
    float *y = product(f, thread, &st->l->q, p->latent.q_rank ? &f->s.q_in : &f->s.in, &c);
    for (int r = 0; r < c.n_rows; r++, y += width) {
        const int row = c.row0 + r, pos = f->s.rows[row].pos;
        f->k->rope(y + nope, st->l->rope + (size_t)pos * (size_t)p->n_rot, p->n_rot,
                   p->attn_scale);
        memcpy(query_of(f, row, c.unit) + p->latent.kv_rank, y + nope,
               (size_t)p->n_rot * sizeof *y);
        fwd_act_write(f, &f->s.nope, (struct fwd_slice){c.unit * f->s.cap_rows + row, 0, nope}, y);
    }
}

/* A piece of one head's columns of k_b or v_b; that head's input rows lie at head · cap_rows. */
static struct latent_piece head_piece(const struct latent_step *st, int item, const struct mat *w)
{
    const int columns = w->n_out / st->f->m->params.n_heads, per_head = n_units(columns);
    struct latent_piece c = piece_of(st, item);
    c.head = c.unit / per_head;
    c.x_row0 = c.head * st->f->s.cap_rows + c.row0;
    piece_columns(&c, c.unit % per_head, columns);
    return c;
}

static void absorb_item(void *ctx, int item, int thread)
{
    const struct latent_step *st = ctx;
    const float by = st->f->m->params.attn_scale;
    const struct latent_piece c = head_piece(st, item, &st->l->k_b);
    const int n = 16 * c.n_groups;
    const float *y = product(st->f, thread, &st->l->k_b, &st->f->s.nope, &c);
    for (int r = 0; r < c.n_rows; r++, y += n) {
        float *q = query_of(st->f, c.row0 + r, c.head) + c.col0;
        for (int i = 0; i < n; i++)
            q[i] = y[i] * by;
    }
}

static void value_item(void *ctx, int item, int thread)
{
    const struct latent_step *st = ctx;
    const struct latent_piece c = head_piece(st, item, &st->l->v_b);
    const int n = 16 * c.n_groups, col0 = c.head * st->f->m->params.latent.value + c.col0;
    const float *y = product(st->f, thread, &st->l->v_b, &st->f->s.latent, &c);
    for (int r = 0; r < c.n_rows; r++, y += n)
        fwd_act_write(st->f, &st->f->s.att, (struct fwd_slice){c.row0 + r, col0, n}, y);
}

static void run(struct latent_step *st, pool_fn fn, int units)
{
    st->n_units = units;
    fwd_run(st->f, fn, st, fwd_row_blocks(st->f) * units);
}

void fwd_latent_qkv(struct forward *f, int layer)
{
    const struct model_params *p = &f->m->params;
    struct latent_step st = {.f = f, .l = &f->m->layers[layer], .layer = layer};
    run(&st, down_item,
        n_units(st.l->kv_a.n_out) + (p->latent.q_rank ? n_units(st.l->q_a.n_out) : 0));
    fwd_run(f, row_item, &st, f->n_rows);
    run(&st, head_item, p->n_heads);
    run(&st, absorb_item, p->n_heads * n_units(p->latent.kv_rank));
}

void fwd_latent_values(struct forward *f, int layer)
{
    const struct model_params *p = &f->m->params;
    struct latent_step st = {.f = f, .l = &f->m->layers[layer], .layer = layer};
    run(&st, value_item, p->n_heads * n_units(p->latent.value));
}
