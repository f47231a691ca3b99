/*
 * Every kernel over a fixed pseudo-random input, and which hash that gives. See kernels_probe.h.
 */
#include "engine/kernels_probe.h"

#include <string.h>

#include "base/log.h"

enum { PROBE_ROWS = 4, PROBE_IN = 256, PROBE_OUT = 32, PROBE_QUERIES = 5, PROBE_DIM = 32 };
/* The same rows over and over, so many that some go by tiles of many rows and some don't. */
enum { PROBE_ROWS_ALL = 5 * PROBE_ROWS };
_Static_assert(PROBE_DIM == 32, "a row of the probe's heads is one block of int8");

/* −1 … 1, of a fixed sequence. */
static void fill(uint32_t *seed, float *x, int n)
{
    for (int i = 0; i < n; i++) {
        *seed = *seed * 1664525 + 1013904223;
        x[i] = (float)((int32_t)*seed >> 8) * 0x1p-23f;
    }
}

struct probe {
    const struct kernels *k;
    struct hash_state *h;
    uint32_t seed;
};

/* The rows' products are hashed once; more only where their repetitions differ, which they must
 * not. */
static void probe_product(struct probe *p, const struct mat *w, const struct act *a)
{
    static _Thread_local float y[PROBE_ROWS_ALL * PROBE_OUT];
    const size_t n = sizeof *y * PROBE_ROWS * PROBE_OUT;
    p->k->gemm[w->layout](&(struct gemm){.w = w,
                                         .n_groups = PROBE_OUT / 16,
                                         .x = a,
                                         .n_rows = PROBE_ROWS_ALL,
                                         .y = y,
                                         .ldy = PROBE_OUT});
    hash_add(p->h, y, n);
    for (int i = PROBE_ROWS; i < PROBE_ROWS_ALL; i += PROBE_ROWS)
        if (memcmp(y, y + i * PROBE_OUT, n) != 0)
            hash_add(p->h, y + i * PROBE_OUT, n);
}

static void probe_products(struct probe *p)
{
    enum { N = PROBE_ROWS * PROBE_IN, BLOCKS = N / 32, TIMES = PROBE_ROWS_ALL / PROBE_ROWS };
    static _Thread_local float x[TIMES * N];
    static _Thread_local int8_t q[TIMES * N];
    static _Thread_local struct act_block b[TIMES * BLOCKS];
    const struct act a = {
        .n_in = PROBE_IN, .n_blocks = PROBE_IN / 32, .ldf = PROBE_IN, .q = q, .b = b, .f = x};
    fill(&p->seed, x, N);
    p->k->quantize(x, BLOCKS, q, b);
    hash_add(p->h, q, N * sizeof *q);
    hash_add(p->h, b, BLOCKS * sizeof *b);
    for (int i = 1; i < TIMES; i++) {
        memcpy(x + i * N, x, N * sizeof *x);
        memcpy(q + i * N, q, N * sizeof *q);
        memcpy(b + i * BLOCKS, b, BLOCKS * sizeof *b);
    }
    for (int layout = 0; layout < MAT_N_LAYOUTS; layout++) {
        struct mat w;
        if (mat_random(layout, PROBE_OUT, PROBE_IN, 7 + (uint64_t)layout, &w) < 0)
            continue; /* out of memory: the fingerprint is another one, and everything a miss */
        probe_product(p, &w, &a);
        mat_done(&w);
    }
}

static void probe_elements(struct probe *p)
{
    float x[64], w[64], y[64];
    uint16_t half[64];
    fill(&p->seed, x, 64);
    fill(&p->seed, w, 64);
    p->k->rms_norm(x, w, 64, 1e-5f, y);
    hash_add(p->h, y, sizeof y);
    p->k->silu_mul(x, w, 64, y);
    hash_add(p->h, y, sizeof y);
    p->k->gelu_mul(x, w, 64, y);
    hash_add(p->h, y, sizeof y);
    p->k->soft_cap(y, 64, 3);
    hash_add(p->h, y, sizeof y);
    p->k->rope(y, w, 64, 0.125f);
    hash_add(p->h, y, sizeof y);
    p->k->add(y, x, 64);
    p->k->to_f16(y, 64, half);
    hash_add(p->h, half, sizeof half);
    for (int i = 0; i < 64; i++)
        x[i] = 90 * x[i];
    p->k->exp(x, 64, y);
    hash_add(p->h, y, sizeof y);
}

static void probe_span(struct probe *p, enum kv_type type, const struct attn_span *given)
{
    float acc[PROBE_QUERIES * PROBE_DIM], out[PROBE_DIM], m[PROBE_QUERIES], l[PROBE_QUERIES];
    struct attn_span a = *given;
    a.m = m, a.l = l, a.acc = acc;
    p->k->attn_span[type](&a);
    p->k->attn_merge(&m[0], &l[0], acc, (float[2]){m[1], l[1]}, acc + PROBE_DIM, PROBE_DIM);
    p->k->attn_finish(l[0], acc, PROBE_DIM, out);
    hash_add(p->h, acc, sizeof acc);
    hash_add(p->h, m, sizeof m);
    hash_add(p->h, l, sizeof l);
    hash_add(p->h, out, sizeof out);
}

/* A block of Q8_0: K and V of random int8 and their scales, each as the kernels make them. */
static void fill_q8(struct probe *p, float *x, unsigned char *block)
{
    int8_t q[32 * PROBE_DIM];
    struct act_block b[PROBE_DIM];
    float d[32];
    for (int i = 0; i < 2; i++, block += 32 * PROBE_DIM + 64) {
        fill(&p->seed, x, 32 * PROBE_DIM);
        p->k->quantize(x, PROBE_DIM, q, b);
        for (int k = 0; k < 32; k++)
            d[k] = b[k].d;
        memcpy(block, q, sizeof q);
        p->k->to_f16(d, 32, (uint16_t *)(block + sizeof q));
    }
}

static void probe_attention(struct probe *p)
{
    static _Thread_local _Alignas(64) uint16_t kv[2][64 * PROBE_DIM];
    static _Thread_local _Alignas(64) float values[64 * PROBE_DIM], scratch[64 * PROBE_DIM];
    float q[PROBE_QUERIES * PROBE_DIM];
    int16_t q16[PROBE_QUERIES * PROBE_DIM];
    float qd[PROBE_QUERIES];
    const unsigned char *blocks[2] = {(const unsigned char *)kv[0], (const unsigned char *)kv[1]};
    const int pos[PROBE_QUERIES] = {40, 41, 42, 43, 44};
    for (int i = 0; i < 2; i++) {
        fill(&p->seed, values, 64 * PROBE_DIM);
        p->k->to_f16(values, 64 * PROBE_DIM, kv[i]);
    }
    fill(&p->seed, q, PROBE_QUERIES * PROBE_DIM);
    p->k->quantize_q(q, PROBE_QUERIES, PROBE_DIM, q16, qd);
    hash_add(p->h, q16, sizeof q16);
    hash_add(p->h, qd, sizeof qd);
    const struct attn_span a = {.head_dim = PROBE_DIM,
                                .n_q = PROBE_QUERIES,
                                .q = q,
                                .q16 = q16,
                                .qd = qd,
                                .pos = pos,
                                .n_blocks = 2,
                                .kv = blocks,
                                .scratch = scratch};
    probe_span(p, KV_F16, &a);
    for (int i = 0; i < 2; i++)
        fill_q8(p, values, (unsigned char *)kv[i]);
    probe_span(p, KV_Q8_0, &a);
}

void kernels_probe(const struct kernels *k, struct hash_state *h)
{
    struct probe p = {.k = k, .h = h, .seed = 1};
    const uint32_t before = numerics_enter();
    probe_products(&p);
    probe_elements(&p);
    probe_attention(&p);
    numerics_leave(before);
}

/* The hash of kernels_probe. Who changes what the kernels compute, on purpose, changes this too:
 * all KV on disk is made anew then. test_probe prints what it is. */
static const char proven[] = "6f394a7403baa6bfdc6e9502e1e51288bf68f55433b33dd3f7527abab954166e";

bool kernels_are_proven(const struct kernels *k)
{
    uint8_t hash[HASH_BYTES];
    char text[2 * HASH_BYTES + 1];
    struct hash_state h;
    hash_init(&h);
    kernels_probe(k, &h);
    hash_end(&h, hash);
    hex_write(hash, sizeof hash, text);
    return strcmp(text, proven) == 0;
}

const struct kernels *kernels_proven(const struct kernels *const *list, int n)
{
    for (int i = 0; i < n; i++) {
        if (kernels_are_proven(list[i]))
            return list[i];
        log_warn("isa %s computes other bits than it should on this CPU; %s", list[i]->name,
                 i + 1 < n ? "the next best is tried" : "what it reads is cached apart");
    }
    return list[n - 1];
}

int kernels_find_proven(const char *isa, const struct kernels **ret, struct err *e)
{
    static const char *const known[] = {"amx", "avx512", "avx2", "c"};
    enum { N = sizeof known / sizeof *known };
    const struct kernels *list[N];
    int n = 0;
    if (isa) {
        const int rc = kernels_find(isa, &list[0], e);
        if (rc == 0)
            *ret = kernels_proven(list, 1);
        return rc;
    }
    for (int i = 0; i < N; i++)
        n += kernels_find(known[i], &list[n], NULL) == 0;
    *ret = kernels_proven(list, n);
    return 0;
}
