/* Between forward.c (the pass), forward_attn.c (attention's plan and steps), forward_kv.c (writing
 * keys and values), forward_ahead.c and others of that name. Nobody else includes it. */
#ifndef HEARTH_ENGINE_FORWARD_IMPL_H
#define HEARTH_ENGINE_FORWARD_IMPL_H

#include <limits.h>
#include <stdbool.h>

#include "engine/forward.h"
#include "engine/kernels.h"
#include "engine/pool.h"

/* Rows that go through a group of columns together: their int8 stay in the second cache, the
 * group's weights in the first. A multiple of the tile's 3. */
#define FWD_ROWS 48
/* Columns of a work item of many rows, at most: 4 groups. */
#define FWD_GROUPS 4
/* So many rows are few: their items may be as much longer as they have fewer rows; and the heads of
 * an item of q, k or v. */
#define FWD_FEW 4
#define FWD_FEW_HEADS 4
/* Groups of an item of few rows, at most. */
#define FWD_FEW_GROUPS (FWD_ROWS / FWD_FEW * FWD_GROUPS)
/* Queries (rows × heads of one KV head) of an attention tile: at most, about, and when there are
 * too few tiles for the threads. */
#define FWD_QUERIES 96
#define FWD_QUERIES_MIN 24
/* The most rows of a pass: times heads (1024) or a row's experts they are still an int. */
#define FWD_ROWS_MAX (INT_MAX / 1024)
/* The largest head dimension, and the largest row of compressed keys and values. */
#define FWD_HEAD_DIM 256
#define FWD_LATENT_DIM 1024

/* A row of the pass: one position of one sequence. */
struct fwd_row {
    const struct kv_seq *seq;
    float *logits; /* where its logits go; NULL: not wanted */
    int pos;
};

/* Neighbouring rows of one sequence that attend together. */
struct fwd_tile {
    int row0, n_rows;
    int n_spans;
    int state0; /* split by spans: index of its first state; −1: one item goes through all spans */
};

struct fwd_attn_item {
    int tile, kv_head;
    int span; /* −1: all */
};

/* Items [first, first + n) that a thread does one after the other. */
struct fwd_attn_run {
    int first, n;
};

/* One of the experts that a row goes to. */
struct fwd_choice {
    int expert;
    int at;       /* its place among all, in the experts' order */
    float weight; /* of the expert's result in the row's sum */
};

/* An expert that has rows: places [first, first + n). */
struct fwd_expert {
    int expert, first, n;
};

/* What a layer with experts works in (forward_experts.c). A place is a row for one expert. */
struct fwd_experts {
    float *scores; /* [rows, ld]: the router's, and in the last 16 columns the shared expert's
                    * gate */
    int ld;
    struct fwd_choice *choices; /* [rows, used] */
    int *source;                /* [places]: which row */
    struct fwd_expert *runs;    /* [count] */
    int n_runs, most;           /* most: places of the one that has most */
    float *shared_by;           /* [rows]: what the shared expert's result is multiplied by */
    struct act in, hidden;      /* [places, n_embd], [places, n_ff] */
    float *out;                 /* [places, n_embd] */
};

/* What each thread writes to while it works on an item. */
struct fwd_thread {
    float *tile;            /* results of a matrix product: [FWD_ROWS, …] */
    float *row;             /* one row of any width */
    float *q;               /* [queries, head_dim] */
    float *acc, *acc2;      /* [queries, head_dim] */
    float *m, *l, *m2, *l2; /* [queries] */
    int16_t *q16;           /* Q8_0: [queries, n_scales · 32], and their scales */
    float *qd;
    float *expanded;        /* [64, head_dim] */
    int *pos;               /* [queries] */
};

/* Large scratch: grows with the number of rows, and is kept. */
struct fwd_scratch {
    int cap_rows;
    void *memory;
    size_t memory_bytes;
    struct fwd_row *rows;
    float *x;               /* [rows, n_embd]: the residual stream */
    float *added;           /* [rows, n_embd]: what a norm comes before, then the sum with x; NULL:
                             * the model has no such norms */
    float *q;               /* [rows, n_heads · head_dim]: queries, then attention's result in
                             * their place */
    struct act in, att, ff; /* inputs of q k v gate up and lm_head; of o; of down */
    /* MLA: what q_a and kv_a give, [rows, …]; q_a's as an input of q; and by head, [head,
     * cap_rows]: queries to be absorbed, and what attention gave */
    float *q_a, *kv_a;
    struct act q_in, nope, latent;
    struct act shared; /* as ff, of the shared expert */
    struct fwd_experts experts;
    struct fwd_tile *tiles;
    int n_tiles;
    struct fwd_attn_item *items;
    struct fwd_attn_run *runs; /* [≤ n_items], in the items' allocation */
    int n_items, cap_items, n_runs;
    float *state_m, *state_l, *state_acc; /* of split tiles: [state, span, kv_head, query] */
    size_t cap_states;
};

struct forward {
    const struct model *m;
    struct kv_shape kv;
    const struct kernels *k;
    struct pool *pool;
    int n_threads;
    struct fwd_thread *threads;
    void *thread_memory;
    int tile_queries; /* capacity of a thread's q */
    struct pool_ahead *ahead; /* [n_layers · FWD_AHEAD_STEPS + 1], the head's last */
    struct fwd_scratch s;
    int n_rows; /* of the running pass, or what is left of it in the last layer */
    atomic_uint_fast64_t progress;
    _Atomic uint64_t *passed; /* the same, elsewhere; or NULL */
};

static inline size_t fwd_round(size_t n, size_t to)
{
    return (n + to - 1) / to * to;
}

/* Blocks of FWD_ROWS rows of the running pass. */
static inline int fwd_row_blocks(const struct forward *f)
{
    return (f->n_rows + FWD_ROWS - 1) / FWD_ROWS;
}

/* Rows that the memory bounds. */
static inline bool fwd_is_few(const struct forward *f)
{
    return f->n_rows <= FWD_FEW;
}

/* How n things are shared out for few rows: items of at most `max`, a multiple of `quantum`. */
struct fwd_few {
    int n_rows, n, max, quantum;
};

/*
 * Size of an item. Such a step is bound by the memory, which serves long pieces best: two items a
 * thread, or three or four if they come out more even. Not one, so that a thread that comes late
 * leaves some to the others. With several rows a piece has more arithmetic, and waiting for the
 * last one costs more: four, or fewer.
 */
static inline int fwd_few_unit(const struct forward *f, struct fwd_few s)
{
    int best = s.max, least = INT_MAX;
    for (int i = 0; i < 3; i++) {
        const int n_items = (s.n_rows == 1 ? 2 + i : 4 - i) * f->n_threads,
                  unit = (s.n + n_items - 1) / n_items,
                  even = (unit + s.quantum - 1) / s.quantum * s.quantum,
                  over = even * n_items - s.n;
        if (even <= s.max && over < least) {
            best = even;
            least = over;
        }
    }
    return best;
}

/* Runs fn over items on the pool. */
static inline void fwd_run(struct forward *f, pool_fn fn, void *ctx, int n_items)
{
    pool_run(f->pool, fn, ctx, n_items);
}

/* Products of a layer that a row begins to read before their input is there (forward_ahead.c). */
enum fwd_ahead_step { FWD_AHEAD_QKV, FWD_AHEAD_O, FWD_AHEAD_GATE, FWD_AHEAD_DOWN, FWD_AHEAD_STEPS };
int fwd_ahead_new(struct forward *f, struct err *e) MUST_USE; /* room for the plan; ERR_NOMEM */
void fwd_ahead_plan(struct forward *f); /* where each begins, for f->n_threads */
/* From the next run on, threads that wait fetch that product's weights, if the pass has one row;
 * FWD_AHEAD_QKV behind the last layer is the head. */
void fwd_ahead(struct forward *f, int layer, enum fwd_ahead_step step);

/* Scratch for a pass of that many rows (forward_scratch.c); ERR_NOMEM leaves what there is. */
/* Queries that a thread's attention has room for. */
int fwd_tile_queries(const struct model *m);
int fwd_reserve_rows(struct forward *f, int rows, struct err *e) MUST_USE;

/* Cuts f->n_rows rows into tiles and items; ERR_NOMEM. */
int fwd_attn_plan(struct forward *f, struct err *e) MUST_USE;
/* Attention of a layer for all rows: f->s.q → f->s.q, and into f->s.att for the matrix `o`. */
void fwd_attn(struct forward *f, int layer);
/* Which K or V of a position. */
struct fwd_kv {
    int layer, kv_head;
    bool is_v;
};
/* Rounds one head of one position, x [head_dim], to the KV type and puts it into its block. */
void fwd_kv_write(const struct forward *f, const struct fwd_row *row, struct fwd_kv at,
                  const float *x);
/* MLA (forward_latent.c): from f->s.in to f->s.q and the KV blocks; and after fwd_attn, from
 * f->s.latent to f->s.att. */
void fwd_latent_qkv(struct forward *f, int layer);
void fwd_latent_values(struct forward *f, int layer);
/* A layer's experts (forward_experts.c): from f->s.in, what they give is added to f->s.x. Returns
 * what the shared expert's result is to be multiplied by, [rows]; NULL: nothing. */
const float *fwd_experts(struct forward *f, const struct model_layer *l);
/* Columns [col0, col0 + n) of a row; multiples of 32 when they are to be quantised. */
struct fwd_slice {
    int row, col0, n;
};
/* Writes a slice of a finished row into an act as the matrices want it. */
void fwd_act_write(const struct forward *f, struct act *a, struct fwd_slice s, const float *x);

#endif
