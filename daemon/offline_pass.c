/*
 * Token ids through the engine. Each run has a pool of KV blocks of its own, as large as it needs:
 *
 *     earlier  [ block 0 | block 1 | partial ]        what a previous request read (n_cached)
 *                  │ ref       │ ref      │ copy
 *     seq      [ block 0 | block 1 | own copy | … ]   the sequence in question, fed in slices
 *     beside   a token each in every pass (n_batch random sequences)
 */
#include "daemon/offline_pass.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/offline_memory.h"
#include "engine/kv.h"

#define BATCH_PROMPT 45 /* ids a random sequence has read before it decodes: more than a block */

/* One run: the pool, the sequence in question, and those beside it. */
struct run {
    const struct offline_pass *p;
    struct kv_pool *pool;
    struct kv_seq earlier, seq;
    struct kv_seq beside[OFFLINE_BATCH_MAX];
    int32_t beside_ids[OFFLINE_BATCH_MAX];
    float *beside_logits; /* one row, written by all of them */
    uint64_t random;
};

static int32_t random_id(struct run *r)
{
    r->random = r->random * 6364136223846793005ull + 1442695040888963407ull;
    return (int32_t)((r->random >> 33) % (uint64_t)engine_info(r->p->engine)->n_vocab);
}

static int blocks_for(int n_tokens)
{
    return (n_tokens + KV_BLOCK - 1) / KV_BLOCK;
}

static int check(const struct offline_pass *p, struct err *e)
{
    const struct engine_info *info = engine_info(p->engine);
    if (p->n_ids < 1 || p->n_ids > info->n_ctx_train)
        return err_set(e, ERR_INVAL, "ids has %d tokens (1 to %d)", p->n_ids, info->n_ctx_train);
    for (int i = 0; i < p->n_ids; i++)
        if (p->ids[i] < 0 || p->ids[i] >= info->n_vocab)
            return err_set(e, ERR_INVAL, "ids[%d] is %d (0 to %d)", i, p->ids[i],
                           info->n_vocab - 1);
    if (p->chunk < 1 || p->n_cached < 0 || p->n_cached >= p->n_ids)
        return err_set(e, ERR_INVAL, "cached is %d (0 to %d: the last token is always evaluated)",
                       p->n_cached, p->n_ids - 1);
    if (p->n_batch < 0 || p->n_batch > OFFLINE_BATCH_MAX)
        return err_set(e, ERR_INVAL, "batch is %d (0 to %d)", p->n_batch, OFFLINE_BATCH_MAX);
    return 0;
}

static void run_done(struct run *r)
{
    for (int i = 0; i < OFFLINE_BATCH_MAX; i++)
        kv_seq_done(&r->beside[i]);
    kv_seq_done(&r->seq);
    kv_seq_done(&r->earlier);
    kv_pool_free(r->pool);
    free(r->beside_logits);
    free(r);
}

static int run_new(const struct offline_pass *p, struct run **ret, struct err *e)
{
    const struct engine_info *info = engine_info(p->engine);
    int n_passes = (p->n_ids + p->chunk - 1) / p->chunk;
    if (n_passes > info->n_ctx_train - BATCH_PROMPT)
        n_passes = info->n_ctx_train - BATCH_PROMPT;
    size_t n_blocks = 2 * (size_t)blocks_for(p->n_ids) + 2 +
                      (size_t)p->n_batch * (size_t)blocks_for(BATCH_PROMPT + n_passes);
    const size_t n_unused = p->n_cached ? 0 : (size_t)blocks_for(p->n_ids); /* no earlier one */
    int rc = check(p, e);
    if (rc == 0)
        rc = offline_may_take_kv((n_blocks - n_unused) * info->kv.block_bytes, e);
    if (rc < 0)
        return rc;
    struct run *r = calloc(1, sizeof *r);
    if (!r)
        return err_set(e, ERR_NOMEM, "no memory for a run");
    r->p = p;
    r->random = 20260101;
    kv_seq_init(&r->seq);
    kv_seq_init(&r->earlier);
    for (int i = 0; i < OFFLINE_BATCH_MAX; i++)
        kv_seq_init(&r->beside[i]);
    r->beside_logits = malloc((size_t)info->n_vocab * sizeof *r->beside_logits);
    rc = r->beside_logits ? 0 : err_set(e, ERR_NOMEM, "no memory for logits");
    if (rc == 0)
        rc = kv_pool_new(&info->kv, n_blocks, &r->pool, e);
    if (rc < 0)
        run_done(r);
    else
        *ret = r;
    return rc;
}

/* Blocks for n more positions. */
static int reserve(struct run *r, struct kv_seq *s, int n, struct err *e)
{
    while (kv_seq_capacity(s) < s->n_tokens + n) {
        struct kv_block *b = kv_take(r->pool);
        if (!b)
            return err_set(e, ERR_NOMEM, "no KV block is left of %zu", kv_pool_n_blocks(r->pool));
        int rc = kv_seq_push(s, b, e);
        if (rc < 0) {
            kv_unref(b);
            return rc;
        }
    }
    return 0;
}

/* One pass: n ids of the sequence, and a random one of each beside. */
static int pass(struct run *r, struct engine_part *part, struct err *e)
{
    struct engine_part parts[OFFLINE_BATCH_MAX + 1];
    int n_parts = 1;
    int rc = reserve(r, part->seq, part->n_ids, e);
    parts[0] = *part;
    for (int i = 0; i < r->p->n_batch && rc == 0; i++) {
        struct kv_seq *s = &r->beside[i];
        if (s->n_tokens == 0 || s->n_tokens + 1 >= engine_info(r->p->engine)->n_ctx_train)
            continue;
        rc = reserve(r, s, 1, e);
        r->beside_ids[i] = random_id(r);
        parts[n_parts++] = (struct engine_part){.seq = s,
                                                .ids = &r->beside_ids[i],
                                                .n_ids = 1,
                                                .n_logits = 1,
                                                .logits = r->beside_logits};
    }
    return rc < 0 ? rc : engine_pass(r->p->engine, parts, n_parts, NULL, e);
}

/* ids[from, to) in slices; logits (may be NULL) of the last. */
static int feed(struct run *r, struct kv_seq *s, int from, int to, float *logits, struct err *e)
{
    int rc = 0;
    for (int at = from; at < to && rc == 0; at += r->p->chunk) {
        int n = to - at < r->p->chunk ? to - at : r->p->chunk;
        bool is_last = at + n == to;
        struct engine_part part = {.seq = s, .ids = r->p->ids + at, .n_ids = n};
        part.n_logits = is_last && logits ? 1 : 0;
        part.logits = is_last ? logits : NULL;
        rc = pass(r, &part, e);
    }
    return rc;
}

/* The random sequences' prompts, before anything is measured. */
static int start_beside(struct run *r, struct err *e)
{
    int32_t ids[BATCH_PROMPT];
    int rc = 0;
    for (int i = 0; i < r->p->n_batch && rc == 0; i++) {
        struct engine_part part = {.seq = &r->beside[i], .ids = ids, .n_ids = BATCH_PROMPT};
        for (int k = 0; k < BATCH_PROMPT; k++)
            ids[k] = random_id(r);
        rc = reserve(r, part.seq, BATCH_PROMPT, e);
        if (rc == 0)
            rc = engine_pass(r->p->engine, &part, 1, NULL, e);
    }
    return rc;
}

/* An earlier request reads ids[0, n_cached); its full blocks are shared, the partial one is copied,
 * as the cache does. */
static int start_cached(struct run *r, struct err *e)
{
    int n = r->p->n_cached, n_full = n / KV_BLOCK;
    int rc = feed(r, &r->earlier, 0, n, NULL, e);
    kv_seq_seal(&r->earlier);
    for (int i = 0; i < n_full && rc == 0; i++) {
        struct kv_block *b = kv_ref(r->earlier.blocks[i]);
        rc = kv_seq_push(&r->seq, b, e);
        if (rc < 0)
            kv_unref(b);
    }
    if (rc == 0 && n % KV_BLOCK > 0) {
        rc = reserve(r, &r->seq, n_full * KV_BLOCK + 1, e);
        if (rc == 0)
            kv_block_copy(r->seq.blocks[n_full], r->earlier.blocks[n_full], n % KV_BLOCK);
    }
    r->seq.n_tokens = n;
    return rc;
}

double offline_log_sum_exp(const float *x, int n)
{
    double max = -INFINITY, sum = 0;
    for (int i = 0; i < n; i++)
        max = x[i] > max ? x[i] : max;
    for (int i = 0; i < n; i++)
        sum += exp(x[i] - max);
    return max + log(sum);
}

int offline_last_logits(const struct offline_pass *p, float *ret, struct err *e)
{
    struct run *r;
    int rc = run_new(p, &r, e);
    if (rc < 0)
        return rc;
    if (p->n_cached > 0)
        rc = start_cached(r, e);
    if (rc == 0)
        rc = start_beside(r, e);
    if (rc == 0)
        rc = feed(r, &r->seq, p->n_cached, p->n_ids, ret, e);
    run_done(r);
    return rc;
}

int offline_all_logits(const struct offline_pass *p, offline_row_fn on_row, void *ctx,
                       struct err *e)
{
    struct run *r;
    size_t n_vocab = (size_t)engine_info(p->engine)->n_vocab;
    int rc = run_new(p, &r, e);
    if (rc < 0)
        return rc;
    float *rows = malloc(OFFLINE_ROWS_AT_ONCE * n_vocab * sizeof *rows);
    if (!rows)
        rc = err_set(e, ERR_NOMEM, "no memory for %d rows of logits", OFFLINE_ROWS_AT_ONCE);
    for (int at = 0; at < p->n_ids && rc == 0; at += OFFLINE_ROWS_AT_ONCE) {
        int n = p->n_ids - at < OFFLINE_ROWS_AT_ONCE ? p->n_ids - at : OFFLINE_ROWS_AT_ONCE;
        struct engine_part part = {
            .seq = &r->seq, .ids = p->ids + at, .n_ids = n, .n_logits = n, .logits = rows};
        rc = pass(r, &part, e);
        for (int i = 0; i < n && rc == 0; i++)
            rc = on_row(ctx, at + i, rows + (size_t)i * n_vocab, e);
    }
    free(rows);
    run_done(r);
    return rc;
}
