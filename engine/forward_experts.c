/*
 * Mixture of experts: each row goes through a few of a layer's feed-forwards, those that its router
 * scores best (struct model_experts).
 *
 *   in │ router: scores │ of each row: who is chosen, and by what weight ─ places, expert by expert
 *      │ rows → their places │ gate, up, silu of each expert → hidden │ down → out │ of each row:
 *      weighted sum → x
 *
 * Each │ is a barrier, as in forward.c. A place is one row for one expert; an expert's places lie
 * side by side, so that its rows are those of one product and a pass reads its weights once: an
 * item is some columns of one expert, and all its rows. An expert with one row reads that where it
 * is.
 *
 * Which rows share a pass decides only where a row's places are. Its choice comes from its own
 * scores, of equal ones the lower expert first; products don't depend on the number of rows
 * (kernels.h), and a row's sum goes by rank, from the best of its experts down.
 */
#include <assert.h>
#include <math.h>
#include <string.h>

#include "engine/forward_impl.h"

/* The most columns of an item of few rows, in groups. */
#define FEW_GROUPS (FWD_ROWS / FWD_FEW * FWD_GROUPS)
/* Columns of a row's sum that are one item. */
#define SUM_COLUMNS 1024
#define EXPERTS_MAX 1024

struct experts_step {
    struct forward *f;
    const struct model_layer *l;
    int unit;    /* groups of an item */
    int n_units; /* items that one expert, one block of rows or one row makes */
};

static const struct model_experts *params(const struct forward *f)
{
    return &f->m->params.experts;
}

/* ---- who goes where ---- */

/* A block of rows, and some columns of the router or (the last unit) the shared expert's gate. */
static void score_item(void *ctx, int item, int thread)
{
    const struct experts_step *st = ctx;
    struct forward *f = st->f;
    const struct fwd_experts *x = &f->s.experts;
    const int row0 = item / st->n_units * FWD_ROWS, group0 = item % st->n_units * st->unit,
              left = f->n_rows - row0, n_groups = mat_n_groups(&st->l->router) - group0;
    const bool is_gate = n_groups <= 0;
    const struct mat *w = is_gate ? &st->l->shared_gate : &st->l->router;
    (void)thread;
    f->k->gemm[w->layout](&(struct gemm){
        .w = w,
        .group0 = is_gate ? 0 : group0,
        .n_groups = is_gate ? 1 : n_groups < st->unit ? n_groups : st->unit,
        .x = &f->s.in,
        .row0 = row0,
        .n_rows = left < FWD_ROWS ? left : FWD_ROWS,
        .y = x->scores + (size_t)row0 * (size_t)x->ld + (is_gate ? x->ld - 16 : 16 * group0),
        .ldy = (size_t)x->ld});
}

/* 1 / (1 + exp(−z)), with e = exp(−|z|). */
static float sigmoid(float z, float e)
{
    return z >= 0 ? 1 / (1 + e) : e / (1 + e);
}

/* z[n] → its softmax; there is room for n rounded up to 16. */
static void softmax(const struct kernels *k, float *z, int n)
{
    const int all = (n + 15) / 16 * 16;
    float max = z[0], sum = 0;
    for (int i = 1; i < n; i++)
        max = z[i] > max ? z[i] : max;
    for (int i = 0; i < all; i++)
        z[i] = i < n ? z[i] - max : 0;
    k->exp(z, all, z);
    for (int i = 0; i < n; i++)
        sum += z[i];
    for (int i = 0; i < n; i++)
        z[i] /= sum;
}

/* z[n] → its sigmoids, by way of `e`; both have room for n rounded up to 16. */
static void sigmoids(const struct kernels *k, float *z, int n, float *e)
{
    const int all = (n + 15) / 16 * 16;
    for (int i = 0; i < all; i++)
        e[i] = i < n ? -fabsf(z[i]) : 0;
    k->exp(e, all, e);
    for (int i = 0; i < n; i++)
        z[i] = sigmoid(z[i], e[i]);
}

/* The largest of score[from, to) that isn't taken, of equal ones the first; −1: all are. */
static int best_of(const float *score, const bool *is_taken, int from, int to)
{
    int best = -1;
    for (int i = from; i < to; i++)
        if (!is_taken[i] && (best < 0 || score[i] > score[best]))
            best = i;
    return best;
}

/* What a group is worth: its best expert's score (DeepSeek-V2, section 2.2.2) or, where they are
 * sigmoids, the sum of its two best (DeepSeek-V3's gate). */
static float group_score(const struct model_experts *x, const float *score, int group)
{
    const int size = x->count / x->groups, from = group * size;
    bool is_taken[EXPERTS_MAX] = {false};
    const int best = best_of(score, is_taken, from, from + size);
    if (!x->is_sigmoid || size < 2)
        return score[best];
    is_taken[best] = true;
    return score[best] + score[best_of(score, is_taken, from, from + size)];
}

/* Takes the experts of all groups but the best. */
static void leave_groups(const struct model_experts *x, const float *score, bool *is_taken)
{
    const int size = x->count / x->groups;
    float worth[EXPERTS_MAX];
    bool is_kept[EXPERTS_MAX] = {false};
    for (int g = 0; g < x->groups; g++)
        worth[g] = group_score(x, score, g);
    for (int i = 0; i < x->groups_used; i++)
        is_kept[best_of(worth, is_kept, 0, x->groups)] = true;
    for (int i = 0; i < x->count; i++)
        is_taken[i] = !is_kept[i / size];
}

/* The row's experts, the best first. weight[count]: scores without the bias. */
static void choose(const struct model_experts *x, const float *score, const float *weight,
                   struct fwd_choice *ret)
{
    bool is_taken[EXPERTS_MAX] = {false};
    float sum = 0;
    if (x->groups_used < x->groups)
        leave_groups(x, score, is_taken);
    for (int i = 0; i < x->used; i++) {
        const int best = best_of(score, is_taken, 0, x->count);
        is_taken[best] = true;
        ret[i] = (struct fwd_choice){.expert = best, .weight = weight[best]};
        sum += weight[best];
    }
    for (int i = 0; i < x->used; i++) {
        if (x->is_normed)
            ret[i].weight /= sum + 1e-20f;
        ret[i].weight *= x->scale;
    }
}

static void choose_item(void *ctx, int row, int thread)
{
    const struct experts_step *st = ctx;
    const struct forward *f = st->f;
    const struct model_experts *p = params(f);
    const struct fwd_experts *x = &f->s.experts;
    float *z = x->scores + (size_t)row * (size_t)x->ld, *score = f->threads[thread].tile;
    if (p->is_sigmoid)
        sigmoids(f->k, z, p->count, score);
    else
        softmax(f->k, z, p->count);
    for (int i = 0; i < p->count; i++)
        score[i] = st->l->router_bias ? z[i] + st->l->router_bias[i] : z[i];
    choose(p, score, z, x->choices + (size_t)row * (size_t)p->used);
    if (st->l->shared_gate.n_out) {
        float *gate = z + x->ld - 16, e[16];
        sigmoids(f->k, gate, 1, e);
        x->shared_by[row] = gate[0];
    }
}

/* Gives each choice its place: expert by expert, in each the rows in their order. */
static void make_places(struct forward *f)
{
    const struct model_experts *p = params(f);
    struct fwd_experts *x = &f->s.experts;
    const int n = f->n_rows * p->used;
    int count[EXPERTS_MAX] = {0}, next = 0;
    for (int i = 0; i < n; i++)
        count[x->choices[i].expert]++;
    x->n_runs = x->most = 0;
    for (int i = 0; i < p->count; i++) {
        const int first = next;
        if (!count[i])
            continue;
        x->runs[x->n_runs++] = (struct fwd_expert){.expert = i, .first = first, .n = count[i]};
        x->most = count[i] > x->most ? count[i] : x->most;
        next += count[i];
        count[i] = first;
    }
    for (int i = 0; i < n; i++) {
        x->choices[i].at = count[x->choices[i].expert]++;
        x->source[x->choices[i].at] = i / p->used;
    }
}

/* ---- through the experts ---- */

static void copy_row(const struct act *from, int row, struct act *to, int place)
{
    const size_t n = (size_t)from->n_blocks;
    if (to->q) {
        memcpy(to->q + 32 * n * (size_t)place, from->q + 32 * n * (size_t)row, 32 * n);
        memcpy(to->b + n * (size_t)place, from->b + n * (size_t)row, n * sizeof *to->b);
    }
    if (to->f)
        memcpy(to->f + to->ldf * (size_t)place, from->f + from->ldf * (size_t)row,
               from->ldf * sizeof *to->f);
}

/* A row to all its places. */
static void place_item(void *ctx, int row, int thread)
{
    const struct experts_step *st = ctx;
    struct forward *f = st->f;
    const int used = params(f)->used;
    (void)thread;
    for (int i = 0; i < used; i++)
        copy_row(&f->s.in, row, &f->s.experts.in,
                 f->s.experts.choices[(size_t)row * (size_t)used + (size_t)i].at);
}

/* Cuts an expert's columns into units. */
static void cut(struct experts_step *st, int n_groups, int quantum)
{
    const struct forward *f = st->f;
    const int n_runs = f->s.experts.n_runs, wanted = 8 * f->n_threads;
    int unit = FWD_GROUPS;
    while (unit > quantum && (n_groups + unit - 1) / unit * n_runs < wanted)
        unit /= 2;
    if (fwd_is_few(f)) {
        const int max = n_groups < FEW_GROUPS ? (n_groups + quantum - 1) / quantum * quantum
                                              : FEW_GROUPS;
        unit = fwd_few_unit(f, (struct fwd_few){f->n_rows, n_groups * n_runs, max, quantum});
    }
    st->unit = unit;
    st->n_units = (n_groups + unit - 1) / unit;
}

/* Which columns of which expert an item computes: from its own column 16 · group0 on. */
struct expert_piece {
    struct fwd_expert run;
    int group0, n_groups;
};

static struct expert_piece piece_of(const struct experts_step *st, int item, int n_groups)
{
    struct expert_piece c = {.run = st->f->s.experts.runs[item / st->n_units],
                             .group0 = item % st->n_units * st->unit};
    const int left = n_groups - c.group0;
    c.n_groups = left < st->unit ? left : st->unit;
    return c;
}

/* A product of a piece for some rows of x. */
static void multiply(const struct forward *f, const struct mat *w, const struct expert_piece *c,
                     struct gemm g)
{
    const int per_expert = w->n_out / params(f)->count / 16;
    g.w = w;
    g.group0 = c->run.expert * per_expert + c->group0;
    g.n_groups = c->n_groups;
    f->k->gemm[w->layout](&g);
}

/* gate and up side by side; silu(gate) · up → hidden */
static void hidden_item(void *ctx, int item, int thread)
{
    const struct experts_step *st = ctx;
    struct forward *f = st->f;
    struct fwd_experts *x = &f->s.experts;
    const struct expert_piece c = piece_of(st, item, params(f)->n_ff / 16);
    float *gate = f->threads[thread].tile, *up = gate + FWD_ROWS * 16 * FWD_GROUPS;
    const int width = 16 * c.n_groups;
    const bool is_alone = c.run.n == 1;
    for (int i = 0; i < c.run.n; i += FWD_ROWS) {
        const int n = c.run.n - i < FWD_ROWS ? c.run.n - i : FWD_ROWS, at = c.run.first + i;
        struct gemm g = {.x = is_alone ? &f->s.in : &x->in,
                         .row0 = is_alone ? x->source[at] : at,
                         .n_rows = n,
                         .y = gate,
                         .ldy = (size_t)width};
        multiply(f, &st->l->gate_exps, &c, g);
        g.y = up;
        multiply(f, &st->l->up_exps, &c, g);
        for (int r = 0; r < n; r++) {
            float *h = gate + r * width;
            f->k->silu_mul(h, up + r * width, width, h);
            fwd_act_write(f, &x->hidden, (struct fwd_slice){at + r, 16 * c.group0, width}, h);
        }
    }
}

/* down → out */
static void out_item(void *ctx, int item, int thread)
{
    const struct experts_step *st = ctx;
    struct forward *f = st->f;
    const struct fwd_experts *x = &f->s.experts;
    const size_t n_embd = (size_t)f->m->params.n_embd;
    const struct expert_piece c = piece_of(st, item, (int)n_embd / 16);
    (void)thread;
    for (int i = 0; i < c.run.n; i += FWD_ROWS) {
        const int at = c.run.first + i;
        multiply(f, &st->l->down_exps, &c,
                 (struct gemm){.x = &x->hidden,
                               .row0 = at,
                               .n_rows = c.run.n - i < FWD_ROWS ? c.run.n - i : FWD_ROWS,
                               .y = x->out + (size_t)at * n_embd + 16 * (size_t)c.group0,
                               .ldy = n_embd});
    }
}

/* Some columns of a row: the weighted sum of what its experts gave, by rank, onto x. */
static void sum_item(void *ctx, int item, int thread)
{
    const struct experts_step *st = ctx;
    const struct forward *f = st->f;
    const struct model_params *p = &f->m->params;
    const int row = item / st->n_units, col0 = item % st->n_units * SUM_COLUMNS,
              left = p->n_embd - col0, n = left < SUM_COLUMNS ? left : SUM_COLUMNS;
    const size_t n_embd = (size_t)p->n_embd, used = (size_t)p->experts.used;
    const struct fwd_choice *choices = f->s.experts.choices + (size_t)row * used;
    float *sum = f->threads[thread].tile;
    memset(sum, 0, (size_t)n * sizeof *sum);
    for (size_t i = 0; i < used; i++) {
        const float *y = f->s.experts.out + (size_t)choices[i].at * n_embd + col0;
        const float by = choices[i].weight;
        for (int k = 0; k < n; k++)
            sum[k] += by * y[k];
    }
    for (int k = 0; p->residual_scale != 1 && k < n; k++)
        sum[k] *= p->residual_scale;
    f->k->add(f->s.x + (size_t)row * n_embd + col0, sum, n);
}

const float *fwd_experts(struct forward *f, const struct model_layer *l)
{
    const int n_embd = f->m->params.n_embd, n_groups = mat_n_groups(&l->router);
    const struct fwd_experts *x = &f->s.experts;
    struct experts_step st = {.f = f, .l = l, .unit = fwd_is_few(f) ? 1 : FWD_GROUPS};
    assert(!f->s.added && params(f)->count <= EXPERTS_MAX);
    st.n_units = (n_groups + st.unit - 1) / st.unit + (l->shared_gate.n_out ? 1 : 0);
    fwd_run(f, score_item, &st, fwd_row_blocks(f) * st.n_units);
    fwd_run(f, choose_item, &st, f->n_rows);
    make_places(f);
    if (x->most > 1)
        fwd_run(f, place_item, &st, f->n_rows);
    cut(&st, params(f)->n_ff / 16, 2); /* a quantised block of 32 is made in one item */
    fwd_run(f, hidden_item, &st, x->n_runs * st.n_units);
    cut(&st, n_embd / 16, 1);
    fwd_run(f, out_item, &st, x->n_runs * st.n_units);
    st.n_units = (n_embd + SUM_COLUMNS - 1) / SUM_COLUMNS;
    fwd_run(f, sum_item, &st, f->n_rows * st.n_units);
    return l->shared_gate.n_out ? x->shared_by : NULL;
}
