/*
 * What a pass works in: rows of activations, which grow with the largest pass and are kept, and a
 * piece for each thread.
 */
#include <stdlib.h>

#include "engine/forward_impl.h"

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

/* Of MLA; files may give each layer another type. */
static void carve_latent(struct carve *c, const struct model *m, int rows, struct fwd_scratch *s)
{
    const struct model_params *p = &m->params;
    int q = 0, nope = 0, latent = 0;
    for (int i = 0; i < p->n_layers; i++) {
        q |= wants(&m->layers[i].q);
        nope |= wants(&m->layers[i].k_b);
        latent |= wants(&m->layers[i].v_b);
    }
    s->kv_a = carve(c, (size_t)rows * (size_t)p->head_dim, sizeof(float));
    carve_act(c, &s->nope, p->latent.nope, nope, rows * p->n_heads);
    carve_act(c, &s->latent, p->latent.kv_rank, latent, rows * p->n_heads);
    if (!p->latent.q_rank)
        return;
    s->q_a = carve(c, (size_t)rows * (size_t)p->latent.q_rank, sizeof(float));
    carve_act(c, &s->q_in, p->latent.q_rank, q, rows);
}

/* Of a mixture of experts: a row has as many places as it goes to experts. */
static void carve_experts(struct carve *c, const struct model *m, int rows, struct fwd_scratch *s)
{
    const struct model_params *p = &m->params;
    const struct model_experts *x = &p->experts;
    struct fwd_experts *e = &s->experts;
    const int places = rows * x->used;
    int in = 0, hidden = 0, shared = 0;
    for (int i = x->n_dense; i < p->n_layers; i++) {
        in |= wants(&m->layers[i].gate_exps) | wants(&m->layers[i].up_exps);
        hidden |= wants(&m->layers[i].down_exps);
        shared |= wants(&m->layers[i].down);
    }
    e->ld = (int)fwd_round((size_t)x->count, 16) + 16;
    e->scores = carve(c, (size_t)rows * (size_t)e->ld, sizeof(float));
    e->choices = carve(c, (size_t)places, sizeof *e->choices);
    e->source = carve(c, (size_t)places, sizeof *e->source);
    e->runs = carve(c, (size_t)x->count, sizeof *e->runs);
    e->shared_by = carve(c, (size_t)rows, sizeof(float));
    carve_act(c, &e->in, p->n_embd, in, places);
    carve_act(c, &e->hidden, x->n_ff, hidden, places);
    e->out = carve(c, (size_t)places * (size_t)p->n_embd, sizeof(float));
    if (x->n_ff_shared)
        carve_act(c, &s->shared, x->n_ff_shared, shared, rows);
}

/* What a layer's feed-forward reads the row as. */
static int ffn_wants(const struct model_layer *l)
{
    const struct mat *mats[] = {&l->gate,        &l->up,        &l->router,
                                &l->shared_gate, &l->gate_exps, &l->up_exps};
    int all = 0;
    for (size_t i = 0; i < sizeof mats / sizeof *mats; i++)
        all |= mats[i]->n_out ? wants(mats[i]) : 0;
    return all;
}

static void carve_scratch(struct carve *c, const struct model *m, int rows, struct fwd_scratch *s)
{
    const struct model_params *p = &m->params;
    const int width = p->n_heads * p->head_dim, value = p->latent.kv_rank ? p->latent.value
                                                                          : p->head_dim;
    const size_t n = (size_t)rows;
    int in = wants(m->lm_head), att = 0, ff = 0;
    for (int i = 0; i < p->n_layers; i++) {
        const struct model_layer *l = &m->layers[i];
        in |= ffn_wants(l);
        in |= p->latent.kv_rank ? wants(&l->kv_a) | wants(p->latent.q_rank ? &l->q_a : &l->q)
                                : wants(&l->q) | wants(&l->k) | wants(&l->v);
        att |= wants(&l->o);
        ff |= l->router.n_out ? 0 : wants(&l->down);
    }
    s->rows = carve(c, n, sizeof *s->rows);
    s->x = carve(c, n * (size_t)p->n_embd, sizeof(float));
    s->q = carve(c, n * (size_t)width, sizeof(float));
    s->added = p->arch->has_post_norms ? carve(c, n * (size_t)p->n_embd, sizeof(float)) : NULL;
    carve_act(c, &s->in, p->n_embd, in, rows);
    carve_act(c, &s->att, p->n_heads * value, att, rows);
    carve_act(c, &s->ff, p->n_ff, ff, rows);
    s->tiles = carve(c, n, sizeof *s->tiles);
    if (p->latent.kv_rank)
        carve_latent(c, m, rows, s);
    if (p->experts.count)
        carve_experts(c, m, rows, s);
}

int fwd_reserve_rows(struct forward *f, int rows, struct err *e)
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
    /* MLA: a head before absorption. */
    const size_t own = (size_t)p->latent.nope + (size_t)p->n_rot;
    tile = p->latent.kv_rank && tile < own ? own : tile;
    for (int i = 0; i < n; i++, t++) {
        struct fwd_thread w = {0};
        w.tile = carve(c, FWD_ROWS * tile, sizeof(float));
        w.row = carve(c, fwd_round((size_t)p->n_embd, 32), sizeof(float));
        w.q = carve(c, q * dim, sizeof(float));
        w.acc = carve(c, q * dim, sizeof(float));
        w.acc2 = carve(c, q * dim, sizeof(float));
        if (f->kv.type == KV_Q8_0 && !f->kv.is_latent) {
            w.q16 = carve(c, q * n_scales, 32 * sizeof *w.q16);
            w.qd = carve(c, q * n_scales, sizeof *w.qd);
        }
        w.expanded = carve(c, 64 * dim, sizeof(float));
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

int fwd_tile_queries(const struct model *m)
{
    const int g = m->params.n_heads / m->params.n_kv_heads;
    return g > FWD_QUERIES ? g : FWD_QUERIES;
}

size_t forward_bytes_of(const struct model *m, const struct kv_shape *kv, int n_threads, int n_rows)
{
    const struct forward f = {.m = m, .kv = *kv, .tile_queries = fwd_tile_queries(m)};
    struct carve rows = {0}, thread = {0};
    struct fwd_scratch s = {0};
    struct fwd_thread t;
    carve_scratch(&rows, m, n_rows, &s);
    carve_threads(&thread, &f, &t, 1);
    return rows.used + (size_t)n_threads * thread.used;
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
    fwd_ahead_plan(f);
    return 0;
}
