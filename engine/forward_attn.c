/*
 * Attention's plan and steps.
 *
 * The rule (kernels.h, 5): spans of 256 positions, each from an empty state, merged in ascending
 * order. Who does which span is free, and decided here for each tile of rows:
 *
 *   many rows (prefill)     one item = (tile, KV head), all its spans one after the other, merged
 *                           as they come: no scratch. Tiles are large, since a block is read and
 *                           converted once for all of a tile's queries
 *   few rows, many spans    one item = (tile, KV head, span); states are kept, and merged in a
 *                           second step: a single decoding row still uses all threads
 *
 * Both make the same operations in the same order for each query.
 */
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "engine/forward_impl.h"

static int n_shared(const struct forward *f)
{
    return f->m->params.n_heads / f->m->params.n_kv_heads;
}

/* States grow to n; what they held is not needed any more. */
static int reserve_states(struct forward *f, size_t n, struct err *e)
{
    struct fwd_scratch *s = &f->s;
    const size_t dim = (size_t)f->m->params.head_dim;
    if (n <= s->cap_states)
        return 0;
    float *p = aligned_alloc(64, fwd_round(n * (dim + 2) * sizeof *p, 64));
    if (!p)
        return err_set(e, ERR_NOMEM, "no memory for %zu attention states", n);
    free(s->state_acc);
    s->state_acc = p;
    s->state_m = p + n * dim;
    s->state_l = s->state_m + n;
    s->cap_states = n;
    return 0;
}

static int reserve_items(struct fwd_scratch *s, int n, struct err *e)
{
    if (n <= s->cap_items)
        return 0;
    struct fwd_attn_item *p = malloc((size_t)n * (sizeof *p + sizeof *s->runs));
    if (!p)
        return err_set(e, ERR_NOMEM, "no memory for %d attention items", n);
    free(s->items);
    s->items = p;
    s->runs = (struct fwd_attn_run *)(void *)(p + n);
    s->cap_items = n;
    return 0;
}

/* Tiles of the run of rows [row0, end), one sequence; returns the number of states they need. */
static size_t plan_run(struct forward *f, int row0, int end, size_t n_states)
{
    struct fwd_scratch *s = &f->s;
    const int g = n_shared(f), n_kv = f->m->params.n_kv_heads, wanted = 4 * f->n_threads;
    int per_tile = g >= FWD_QUERIES ? 1 : FWD_QUERIES / g;
    while (per_tile * g > FWD_QUERIES_MIN && (end - row0 + per_tile - 1) / per_tile * n_kv < wanted)
        per_tile /= 2;
    /* Too few to share evenly: they are split by spans as well, if their states are few. */
    const bool split = (end - row0 + per_tile - 1) / per_tile * n_kv < wanted &&
                       (end - row0) * g <= (g > FWD_QUERIES ? g : FWD_QUERIES);
    for (int r = row0; r < end; r += per_tile) {
        struct fwd_tile *t = &s->tiles[s->n_tiles++];
        *t = (struct fwd_tile){
            .row0 = r, .n_rows = end - r < per_tile ? end - r : per_tile, .state0 = -1};
        t->n_spans = s->rows[r + t->n_rows - 1].pos / (KV_BLOCK * KV_SPAN) + 1;
        if (split && t->n_spans > 1) {
            t->state0 = (int)n_states;
            n_states += (size_t)t->n_spans * (size_t)t->n_rows * (size_t)f->m->params.n_heads;
        }
    }
    return n_states;
}

/* KV blocks that an item reads, when it is a single span. */
static int item_blocks(const struct fwd_scratch *s, const struct fwd_attn_item *it)
{
    const struct fwd_tile *t = &s->tiles[it->tile];
    const int left =
        s->rows[t->row0 + t->n_rows - 1].pos / KV_BLOCK + 1 - it->span * KV_SPAN;
    return left < KV_SPAN ? left : KV_SPAN;
}

/* Runs of about equal length, for each thread, at most; and how long they should be at least. */
#define RUNS_PER_THREAD 4
#define RUN_SPANS 3

/* Single spans go by runs, so that each can fetch what its next one begins with. */
static void plan_runs(struct forward *f)
{
    struct fwd_scratch *s = &f->s;
    int64_t all = 0, done = 0;
    for (int i = 0; i < s->n_items; i++)
        all += s->items[i].span >= 0 ? item_blocks(s, &s->items[i]) : 0;
    int64_t wanted = (int64_t)RUNS_PER_THREAD * f->n_threads;
    while (wanted > f->n_threads && all < wanted * RUN_SPANS * KV_SPAN)
        wanted -= f->n_threads;
    s->n_runs = 0;
    for (int i = 0, in = -1; i < s->n_items; i++) {
        const bool is_span = s->items[i].span >= 0;
        const int to = is_span ? (int)(done * wanted / all) : -1; /* its place among the runs */
        if (!is_span || to != in)
            s->runs[s->n_runs++] = (struct fwd_attn_run){.first = i};
        s->runs[s->n_runs - 1].n++;
        done += is_span ? item_blocks(s, &s->items[i]) : 0;
        in = to;
    }
}

int fwd_attn_plan(struct forward *f, struct err *e)
{
    struct fwd_scratch *s = &f->s;
    size_t n_states = 0;
    int n_items = 0;
    s->n_tiles = 0;
    for (int r = 0, end; r < f->n_rows; r = end) {
        for (end = r + 1; end < f->n_rows && s->rows[end].seq == s->rows[r].seq; end++)
            ;
        n_states = plan_run(f, r, end, n_states);
    }
    for (int i = 0; i < s->n_tiles; i++)
        n_items += f->m->params.n_kv_heads * (s->tiles[i].state0 >= 0 ? s->tiles[i].n_spans : 1);
    int err = reserve_states(f, n_states, e);
    if (err == 0)
        err = reserve_items(s, n_items, e);
    if (err < 0)
        return err;
    s->n_items = 0;
    /* Latest rows first: they see the most, and the small items then fill the gaps at the end. */
    for (int i = s->n_tiles - 1; i >= 0; i--)
        for (int h = 0; h < f->m->params.n_kv_heads; h++)
            for (int span = 0; span < (s->tiles[i].state0 >= 0 ? s->tiles[i].n_spans : 1); span++)
                s->items[s->n_items++] =
                    (struct fwd_attn_item){i, h, s->tiles[i].state0 >= 0 ? span : -1};
    plan_runs(f);
    return 0;
}

struct attn_step {
    struct forward *f;
    int layer;
};

/* The first block that any row of a tile sees. Those before it would leave every state as it is;
 * in layers with a window they may not be there any more (kv_window_from says which). */
static int first_block(const struct forward *f, const struct fwd_tile *t, int layer)
{
    const int window = f->m->layers[layer].window, past = f->s.rows[t->row0].pos + 1 - window;
    return window && past > 0 ? past / KV_BLOCK : 0;
}

/* And its span. */
static int first_span(const struct forward *f, const struct fwd_tile *t, int layer)
{
    return first_block(f, t, layer) / KV_SPAN;
}

/* Blocks of a span that no row of its tile sees: the first ones. */
static int n_past_blocks(const struct attn_step *st, struct fwd_attn_item at)
{
    const int n =
        first_block(st->f, &st->f->s.tiles[at.tile], st->layer) - at.span * KV_SPAN;
    return n > 0 ? n : 0;
}

/* Where the blocks of a span of a KV head lie, without those that its tile doesn't see,
 * ret[KV_SPAN]; returns how many there are. */
static int span_blocks(const struct attn_step *st, struct fwd_attn_item at,
                       const unsigned char **ret)
{
    const struct forward *f = st->f;
    const struct fwd_tile *t = &f->s.tiles[at.tile];
    const struct kv_seq *seq = f->s.rows[t->row0].seq;
    const size_t offset = kv_k_offset(&f->kv, st->layer, at.kv_head);
    const int n = item_blocks(&f->s, &at);
    int n_seen = 0;
    for (int i = n_past_blocks(st, at); i < n; i++)
        ret[n_seen++] =
            kv_section(&f->kv, seq->blocks[at.span * KV_SPAN + i], st->layer) + offset;
    return n_seen;
}

/* Fills in what the kernel needs for one span of a tile; the state arrays are the caller's. `next`
 * comes after it, or NULL. */
static void run_span(const struct attn_step *st, struct fwd_attn_item at,
                     const struct fwd_attn_item *next, struct attn_span *a)
{
    const struct forward *f = st->f;
    const unsigned char *kv[KV_SPAN], *kv_next[KV_SPAN];
    a->pos0 = (at.span * KV_SPAN + n_past_blocks(st, at)) * KV_BLOCK;
    a->n_blocks = span_blocks(st, at, kv);
    a->n_next = next ? span_blocks(st, *next, kv_next) : 0;
    a->kv = kv;
    a->next = kv_next;
    f->k->attn_span[f->kv.type](a);
    a->kv = a->next = NULL;
}

/* Copies the tile's queries of one KV head side by side, as the KV type's kernel wants them. */
static void gather(const struct forward *f, const struct fwd_tile *t, int kv_head,
                   struct fwd_thread *th)
{
    const int g = n_shared(f);
    const size_t width = (size_t)g * (size_t)f->m->params.head_dim,
                 ld = (size_t)f->m->params.n_heads * (size_t)f->m->params.head_dim;
    for (int r = 0; r < t->n_rows; r++) {
        memcpy(th->q + (size_t)r * width,
               f->s.q + (size_t)(t->row0 + r) * ld + (size_t)kv_head * width,
               width * sizeof(float));
        for (int h = 0; h < g; h++)
            th->pos[r * g + h] = f->s.rows[t->row0 + r].pos;
    }
    if (f->kv.type == KV_Q8_0 && !f->kv.is_latent)
        f->k->quantize_q(th->q, t->n_rows * g, f->m->params.head_dim, th->q16, th->qd);
}

/* Merges the newest span's states into the running ones, for the queries that see any of it. */
static void merge_tile(const struct forward *f, struct fwd_thread *th, const struct attn_span *a)
{
    const int dim = a->head_dim;
    for (int i = 0; i < a->n_q; i++) {
        const float ml[2] = {th->m2[i], th->l2[i]};
        if (a->pos[i] >= a->pos0)
            f->k->attn_merge(&th->m[i], &th->l[i], th->acc + (size_t)i * (size_t)dim, ml,
                             th->acc2 + (size_t)i * (size_t)dim, dim);
    }
}

/* One tile and KV head: a single span into its states, or all of them into the result. `next` is
 * the item after it when both are single spans. */
static void attn_one(const struct attn_step *st, const struct fwd_attn_item *it,
                     const struct fwd_attn_item *next, struct fwd_thread *th)
{
    struct forward *f = st->f;
    const struct fwd_tile *t = &f->s.tiles[it->tile];
    const int g = n_shared(f), dim = f->m->params.head_dim, n_q = t->n_rows * g,
              first = first_span(f, t, st->layer);
    if (it->span >= 0 && it->span < first)
        return;
    gather(f, t, it->kv_head, th);
    struct attn_span a = {.head_dim = dim,
                          .n_q = n_q,
                          .q = th->q,
                          .q16 = th->q16,
                          .qd = th->qd,
                          .pos = th->pos,
                          .window = f->m->layers[st->layer].window,
                          .cap = f->m->params.attn_cap,
                          .is_latent = f->kv.is_latent,
                          .scratch = th->expanded};
    if (it->span >= 0) {
        const size_t i = (size_t)t->state0 +
                         (size_t)(it->span * f->m->params.n_kv_heads + it->kv_head) * (size_t)n_q;
        a.m = f->s.state_m + i, a.l = f->s.state_l + i, a.acc = f->s.state_acc + i * (size_t)dim;
        run_span(st, *it, next, &a);
        return;
    }
    for (int span = first; span < t->n_spans; span++) {
        const struct fwd_attn_item at = {it->tile, it->kv_head, span},
                                   then = {it->tile, it->kv_head, span + 1};
        const bool is_later = span > first;
        a.m = is_later ? th->m2 : th->m, a.l = is_later ? th->l2 : th->l;
        a.acc = is_later ? th->acc2 : th->acc;
        run_span(st, at, span + 1 < t->n_spans ? &then : NULL, &a);
        if (is_later)
            merge_tile(f, th, &a);
    }
    float *out = f->s.q + (size_t)t->row0 * (size_t)(f->m->params.n_heads * dim) +
                 (size_t)(it->kv_head * g * dim);
    for (int r = 0; r < t->n_rows; r++)
        for (int h = 0; h < g; h++)
            f->k->attn_finish(th->l[r * g + h], th->acc + (size_t)(r * g + h) * (size_t)dim, dim,
                              out + (size_t)r * (size_t)(f->m->params.n_heads * dim) +
                                  (size_t)(h * dim));
}

static void attn_run(void *ctx, int item, int thread)
{
    const struct attn_step *st = ctx;
    const struct fwd_scratch *s = &st->f->s;
    const struct fwd_attn_run *run = &s->runs[item];
    for (int i = run->first; i < run->first + run->n; i++)
        attn_one(st, &s->items[i], i + 1 < run->first + run->n ? &s->items[i + 1] : NULL,
                 &st->f->threads[thread]);
}

/* A head of a row of a split tile: its spans in ascending order. */
static void merge_head(const struct attn_step *st, const struct fwd_tile *t, int row, int head,
                       struct fwd_thread *th)
{
    struct forward *f = st->f;
    const int g = n_shared(f), dim = f->m->params.head_dim, n_heads = f->m->params.n_heads,
              n_kv = f->m->params.n_kv_heads;
    const int n_spans = f->s.rows[row].pos / (KV_BLOCK * KV_SPAN) + 1,
              first = first_span(f, t, st->layer);
    float m = 0, l = 0;
    for (int span = first; span < n_spans; span++) {
        const size_t i = (size_t)t->state0 +
                         (size_t)(span * n_kv + head / g) * (size_t)(t->n_rows * g) +
                         (size_t)((row - t->row0) * g + head % g);
        const float *acc = f->s.state_acc + i * (size_t)dim,
                    ml[2] = {f->s.state_m[i], f->s.state_l[i]};
        if (span == first) {
            m = ml[0], l = ml[1];
            memcpy(th->acc, acc, (size_t)dim * sizeof *acc);
        } else {
            f->k->attn_merge(&m, &l, th->acc, ml, acc, dim);
        }
    }
    f->k->attn_finish(l, th->acc, dim,
                      f->s.q + (size_t)row * (size_t)(n_heads * dim) + (size_t)(head * dim));
}

/* Heads that finish together: one where states must be merged, since that takes long, all where
 * the row is only to be written, or where a head isn't whole blocks of 32. */
static int finish_heads(const struct forward *f)
{
    const struct model_params *p = &f->m->params;
    const bool is_one = f->n_rows <= FWD_FEW && f->s.tiles[0].state0 >= 0 &&
                        p->head_dim % 32 == 0 && !f->kv.is_latent;
    return is_one ? 1 : p->n_heads;
}

/* A row's heads, each the input of its own up-projection; their rotated ends are no values. */
static void write_latent(struct forward *f, int row)
{
    const struct model_params *p = &f->m->params;
    for (int h = 0; h < p->n_heads; h++)
        fwd_act_write(f, &f->s.latent,
                      (struct fwd_slice){h * f->s.cap_rows + row, 0, p->latent.kv_rank},
                      f->s.q + ((size_t)row * (size_t)p->n_heads + (size_t)h) *
                                   (size_t)p->head_dim);
}

/* Some heads of one tile's rows: merged where they were split, then written as the input of `o`. */
static void finish_item(void *ctx, int item, int thread)
{
    const struct attn_step *st = ctx;
    struct forward *f = st->f;
    const int n_heads = f->m->params.n_heads, dim = f->m->params.head_dim, n = finish_heads(f),
              head0 = item % (n_heads / n) * n;
    const struct fwd_tile *t = &f->s.tiles[item / (n_heads / n)];
    for (int row = t->row0; row < t->row0 + t->n_rows; row++) {
        for (int h = head0; t->state0 >= 0 && h < head0 + n; h++)
            merge_head(st, t, row, h, &f->threads[thread]);
        if (f->kv.is_latent)
            write_latent(f, row);
        else
            fwd_act_write(f, &f->s.att, (struct fwd_slice){row, head0 * dim, n * dim},
                          f->s.q + (size_t)row * (size_t)(n_heads * dim) +
                              (size_t)(head0 * dim));
    }
}

void fwd_attn(struct forward *f, int layer)
{
    struct attn_step st = {.f = f, .layer = layer};
    fwd_run(f, attn_run, &st, f->s.n_runs);
    fwd_run(f, finish_item, &st, f->s.n_tiles * (f->m->params.n_heads / finish_heads(f)));
}
