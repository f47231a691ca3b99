/*
 * What threads fetch while they wait for each other. A step of one row is bound by the memory, and
 * a layer has seven barriers: at each a thread waits for a microsecond or three, and then begins
 * with weights that nobody has asked for yet. So it asks for them while it waits (pool.h): the
 * first ones of the next product, which is known long before its input is there.
 *
 *     … q k v │ attention │ merge │ o │ norm │ gate, up │ down │ norm │ q k v …
 *        o ───────────────────→ gate ─────→ down ─→ q ────────→           fetched by who waits
 *
 * Items are taken in order, so thread t most likely begins with item t; a wrong guess is a line in
 * the neighbour's cache, which still is nearer than the memory.
 */
#include <stdlib.h>

#include "engine/forward_impl.h"

/* Of each stream, at most: what a wait of three microseconds is good for. */
#define LINES 192

/* Places of an item that the kernels read side by side (kern_impl_gemm.h, kern_impl_float.h). */
static int n_streams(const struct mat *w)
{
    if (mat_wants_float(w))
        return 1;
    return w->layout == MAT_U6_K16 || w->layout == MAT_U3_K16 || w->layout == MAT_U2_K16 ? 2 : 3;
}

/* The beginnings of the first items, `unit` groups each. A matrix that has none for each thread, or
 * isn't there, gives nothing. */
static struct pool_ahead ahead_of(const struct forward *f, const struct mat *w, int unit)
{
    struct pool_ahead a = {.n_streams = n_streams(w)};
    if (w->n_out == 0 || unit * f->n_threads > mat_n_groups(w))
        return a;
    a.n_streams = a.n_streams < unit ? a.n_streams : unit;
    const size_t stream = (size_t)(unit / a.n_streams) * w->group_bytes;
    for (int i = 0; i < a.n_streams; i++)
        a.from[i] = w->data + (size_t)i * stream;
    a.n_lines = stream / 64 < LINES ? (int)(stream / 64) : LINES;
    a.thread_bytes = (size_t)unit * w->group_bytes;
    return a;
}

/* A product whose items are groups of columns. */
static struct pool_ahead ahead_product(const struct forward *f, const struct mat *w, int quantum)
{
    const struct fwd_few s = {1, mat_n_groups(w), FWD_FEW_GROUPS, quantum};
    return ahead_of(f, w, fwd_few_unit(f, s));
}

int fwd_ahead_new(struct forward *f, struct err *e)
{
    const int n = f->m->params.n_layers;
    f->ahead = calloc((size_t)n * FWD_AHEAD_STEPS + 1, sizeof *f->ahead);
    return f->ahead ? 0 : err_set(e, ERR_NOMEM, "no memory for what %d layers read first", n);
}

void fwd_ahead_plan(struct forward *f)
{
    const struct model_params *p = &f->m->params;
    const int n_heads = p->n_heads + 2 * p->n_kv_heads,
              unit = fwd_few_unit(f, (struct fwd_few){1, n_heads, FWD_FEW_HEADS, 1}) *
                     (p->head_dim / 16);
    for (int i = 0; i < p->n_layers; i++) {
        const struct model_layer *l = &f->m->layers[i];
        struct pool_ahead *a = f->ahead + (size_t)i * FWD_AHEAD_STEPS;
        if (!p->latent.kv_rank)
            a[FWD_AHEAD_QKV] = ahead_of(f, &l->q, unit);
        a[FWD_AHEAD_O] = ahead_product(f, &l->o, 1);
        if (l->router.n_out == 0) { /* else its row says which experts are next */
            a[FWD_AHEAD_GATE] = ahead_product(f, &l->gate, 2);
            a[FWD_AHEAD_DOWN] = ahead_product(f, &l->down, 1);
        }
    }
    f->ahead[(size_t)p->n_layers * FWD_AHEAD_STEPS] = ahead_product(f, f->m->lm_head, 1);
}

void fwd_ahead(struct forward *f, int layer, enum fwd_ahead_step step)
{
    pool_set_ahead(f->pool, f->n_rows == 1 ? &f->ahead[layer * FWD_AHEAD_STEPS + (int)step] : NULL);
}
