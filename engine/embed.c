/*
 * The forward pass of an embedding model. See embed.h.
 *
 *      x [T, d]         all tokens of a batch, text after text
 *      qkv [T, 3 d]     scores [n, n] of one head of one text     ctx [T, d]     ff [T, n_ff]
 */
#include "engine/embed_impl.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/blas.h"
#include "base/sys.h"
#include "engine/embed_math.h"

/* Enough for matrix products to be fast; scratch is a few MiB for a small model. */
#define BATCH_TOKENS EMBED_TOKENS_MAX

struct pass {
    const struct embed *m;
    const struct embed_tokens *texts; /* [n] of this batch */
    size_t n;
    int n_tokens; /* of all of them */
    float *x, *qkv, *ctx, *ff, *scores;
    float *memory;
};

int embed_tokenize(const struct embed *m, struct embed_text text, int max_tokens, struct ids *ret,
                   size_t *ret_used)
{
    assert(max_tokens >= 3 && max_tokens <= m->n_ctx);
    int rc = ids_push(ret, wordpiece_cls(m->tok));
    if (rc == 0)
        rc = wordpiece_encode(m->tok, (struct tok_str){text.s, text.n}, (size_t)max_tokens - 2,
                              ret, ret_used);
    return rc ? rc : ids_push(ret, wordpiece_sep(m->tok));
}

static int check(const struct embed *m, const struct embed_tokens *v, size_t n, struct err *e)
{
    for (size_t i = 0; i < n; i++) {
        if (v[i].n < 1 || v[i].n > m->n_ctx)
            return err_set(e, ERR_INVAL, "text %zu has %d tokens; 1 to %d are allowed", i, v[i].n,
                           m->n_ctx);
        for (int k = 0; k < v[i].n; k++)
            if (v[i].v[k] < 0 || v[i].v[k] >= m->n_vocab)
                return err_set(e, ERR_INVAL, "text %zu, token %d is %d; the vocabulary has %d", i,
                               k, v[i].v[k], m->n_vocab);
    }
    return 0;
}

/* Scratch for `n_tokens` tokens in a batch, the longest text of n_longest. */
static int pass_init(struct pass *p, size_t n_tokens, size_t n_longest, struct err *e)
{
    const size_t d = (size_t)p->m->n_embd, n_ff = (size_t)p->m->n_ff;
    const size_t n = n_tokens * (5 * d + n_ff) + n_longest * n_longest;
    p->memory = sys.malloc(n * sizeof(float));
    if (!p->memory)
        return err_set(e, ERR_NOMEM, "embeddings: out of memory for %zu tokens", n_tokens);
    p->x = p->memory;
    p->qkv = p->x + n_tokens * d;
    p->ctx = p->qkv + n_tokens * 3 * d;
    p->ff = p->ctx + n_tokens * d;
    p->scores = p->ff + n_tokens * n_ff;
    return 0;
}

static void look_up(struct pass *p)
{
    const struct embed *m = p->m;
    const size_t d = (size_t)m->n_embd;
    float *x = p->x;
    for (size_t i = 0; i < p->n; i++) {
        for (int k = 0; k < p->texts[i].n; k++) {
            const size_t id = (size_t)p->texts[i].v[k];
            m->words_type->dequantize(m->words + id * m->words_row_bytes, x, d);
            const float *at = m->positions + (size_t)k * d;
            for (size_t c = 0; c < d; c++)
                x[c] += at[c];
            x += d;
        }
    }
    embed_layer_norm((struct embed_rows){.x = p->x, .n_rows = (size_t)p->n_tokens, .n = d},
                     m->norm.w, m->norm.b, m->eps);
}

/* y [n_tokens, n_out] = x Wᵀ + b */
static void apply(const struct pass *p, const struct embed_linear *l, const float *x, float *y)
{
    blas_multiply(&(struct blas_product){.a = x,
                                         .b = l->w,
                                         .c = y,
                                         .m = p->n_tokens,
                                         .n = l->n_out,
                                         .k = l->n_in,
                                         .a_step = l->n_in,
                                         .b_step = l->n_in,
                                         .c_step = l->n_out,
                                         .scale = 1});
    embed_add_bias(y, (size_t)p->n_tokens, (size_t)l->n_out, l->b);
}

/* One head of the text whose n tokens begin at row `at`. */
static void attend_head(const struct pass *p, size_t at, int n, int head)
{
    const int d = p->m->n_embd, head_dim = d / p->m->n_heads;
    const float *q = p->qkv + at * 3 * (size_t)d + (size_t)head * (size_t)head_dim;
    blas_multiply(&(struct blas_product){.a = q,
                                         .b = q + d,
                                         .c = p->scores,
                                         .m = n,
                                         .n = n,
                                         .k = head_dim,
                                         .a_step = 3 * d,
                                         .b_step = 3 * d,
                                         .c_step = n,
                                         .scale = 1.0f / sqrtf((float)head_dim)});
    for (int i = 0; i < n; i++)
        embed_softmax(p->scores + (size_t)i * (size_t)n, (size_t)n);
    blas_multiply(&(struct blas_product){.a = p->scores,
                                         .b = q + 2 * (size_t)d,
                                         .c = p->ctx + at * (size_t)d +
                                              (size_t)head * (size_t)head_dim,
                                         .m = n,
                                         .n = head_dim,
                                         .k = n,
                                         .a_step = n,
                                         .b_step = 3 * d,
                                         .c_step = d,
                                         .scale = 1,
                                         .is_b_upright = true});
}

static void attend(const struct pass *p)
{
    size_t at = 0;
    for (size_t i = 0; i < p->n; i++) {
        for (int head = 0; head < p->m->n_heads; head++)
            attend_head(p, at, p->texts[i].n, head);
        at += (size_t)p->texts[i].n;
    }
}

/* x = norm(x + y) */
static void add_and_norm(struct pass *p, const float *y, const struct embed_norm *norm)
{
    embed_layer_norm((struct embed_rows){.x = p->x,
                                         .add = y,
                                         .n_rows = (size_t)p->n_tokens,
                                         .n = (size_t)p->m->n_embd},
                     norm->w, norm->b, p->m->eps);
}

static void run_layer(struct pass *p, const struct embed_layer *l)
{
    apply(p, &l->qkv, p->x, p->qkv);
    attend(p);
    apply(p, &l->o, p->ctx, p->qkv); /* qkv has been read: its room serves as output */
    add_and_norm(p, p->qkv, &l->attn_norm);
    apply(p, &l->up, p->x, p->ff);
    embed_gelu(p->ff, (size_t)p->n_tokens * (size_t)p->m->n_ff);
    apply(p, &l->down, p->ff, p->ctx);
    add_and_norm(p, p->ctx, &l->out_norm);
}

/* The rows of one text to one vector of length 1. */
static void pool_text(const struct embed *m, const float *x, int n_rows, float *ret)
{
    const size_t d = (size_t)m->n_embd;
    const int n = m->pooling == EMBED_CLS ? 1 : n_rows;
    double squares = 0;
    memset(ret, 0, d * sizeof *ret);
    for (int r = 0; r < n; r++)
        for (size_t c = 0; c < d; c++)
            ret[c] += x[(size_t)r * d + c];
    for (size_t c = 0; c < d; c++)
        squares += (double)ret[c] * (double)ret[c];
    const float scale = squares > 0 ? (float)(1.0 / sqrt(squares)) : 0;
    for (size_t c = 0; c < d; c++)
        ret[c] *= scale;
}

static int run_batch(struct pass *p, const atomic_int *abort, float *ret, struct err *e)
{
    size_t at = 0;
    look_up(p);
    for (int i = 0; i < p->m->n_layers; i++) {
        if (abort && atomic_load(abort))
            return err_set(e, ERR_CANCELED, "embeddings: canceled");
        run_layer(p, &p->m->layers[i]);
    }
    for (size_t i = 0; i < p->n; i++) {
        pool_text(p->m, p->x + at * (size_t)p->m->n_embd, p->texts[i].n,
                  ret + i * (size_t)p->m->n_embd);
        at += (size_t)p->texts[i].n;
    }
    return 0;
}

int embed_run(const struct embed *m, const struct embed_tokens *v, size_t n,
              const atomic_int *abort, float *ret, struct err *e)
{
    struct pass p = {.m = m};
    size_t n_all = 0, n_longest = 0;
    int rc = check(m, v, n, e);
    if (rc || n == 0)
        return rc;
    for (size_t i = 0; i < n; i++) {
        n_all += (size_t)v[i].n;
        if ((size_t)v[i].n > n_longest)
            n_longest = (size_t)v[i].n;
    }
    rc = pass_init(&p, n_all < BATCH_TOKENS ? n_all : BATCH_TOKENS, n_longest, e);
    for (size_t i = 0; rc == 0 && i < n; i += p.n) {
        p.texts = v + i;
        p.n = 0;
        p.n_tokens = 0;
        while (i + p.n < n && p.n_tokens + v[i + p.n].n <= BATCH_TOKENS)
            p.n_tokens += v[i + p.n++].n;
        rc = run_batch(&p, abort, ret + i * (size_t)m->n_embd, e);
    }
    free(p.memory);
    return rc;
}
