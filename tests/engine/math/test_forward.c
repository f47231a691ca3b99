/* The forward pass: near a reference in doubles, and the same bits however the work was cut. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <math.h>

#include <cmocka.h>

#include "base/hash.h"
#include "base/thread.h"
#include "engine/forward.h"
#include "tests/engine/math/tiny.h"

/* 3 query heads to a KV head, a span boundary (256) and block boundaries inside, odd vocabulary. */
static const struct tiny_shape small = {.n_vocab = 301,
                                        .n_embd = 256,
                                        .n_ff = 512,
                                        .n_layers = 2,
                                        .n_heads = 12,
                                        .n_kv_heads = 4,
                                        .head_dim = 64,
                                        .n_rot = 64,
                                        .n_ctx = 1024,
                                        .layout = MAT_U4_DM,
                                        .embd_layout = MAT_S8_D};

/* Both KV types run the same tests, one group after the other. */
static enum kv_type kv_type = KV_F16;

struct rig {
    struct model *m;
    struct kv_shape shape;
    struct kv_pool *pool;
    struct forward *f;
    int32_t ids[700];
};

static void rig_open(struct rig *r, const struct tiny_shape *s, int n_threads, const char *isa)
{
    struct err e = {0};
    struct dice d = {11};
    r->m = tiny_new(s, 5);
    assert_int_equal(kv_shape_init(&r->shape, kv_type, s->n_layers, s->n_kv_heads, s->head_dim, &e),
                     0);
    kv_shape_set_window(&r->shape, s->window, s->window_period);
    assert_int_equal(kv_pool_new(&r->shape, 200, &r->pool, &e), 0);
    assert_int_equal(forward_new(r->m, &r->shape, n_threads, isa, &r->f, &e), 0);
    for (size_t i = 0; i < sizeof r->ids / sizeof *r->ids; i++)
        r->ids[i] = dice_int(&d, s->n_vocab);
}

static void rig_close(struct rig *r)
{
    forward_free(r->f);
    kv_pool_free(r->pool);
    tiny_free(r->m);
}

static void pass(struct rig *r, struct engine_part *p, int n)
{
    struct err e = {0};
    if (forward_pass(r->f, p, n, NULL, &e) != 0)
        fail_msg("%s", e.text);
}

/* Reads ids[0, n) into a fresh sequence in slices of `chunk` and gives the last position's logits.
 * */
/* Windowed layers keep what they see, and no more. */
static void drop_unseen(const struct rig *r, struct kv_seq *s)
{
    for (int i = 0; r->shape.n_sections > 1 && i < kv_window_from(&r->shape, s->n_tokens); i++)
        kv_window_drop(s->blocks[i]);
}

static void read_in_slices(struct rig *r, struct kv_seq *s, int n, int chunk, float *logits)
{
    tiny_seq(s, r->pool, n + 1);
    for (int i = 0; i < n; i += chunk) {
        int k = n - i < chunk ? n - i : chunk;
        struct engine_part p = {
            .seq = s, .ids = r->ids + i, .n_ids = k, .n_logits = i + k == n, .logits = logits};
        pass(r, &p, 1);
        drop_unseen(r, s);
    }
    assert_int_equal(s->n_tokens, n);
}

/* Root mean square of the difference over that of the reference. */
static double relative_error(const float *x, const double *ref, int n)
{
    double num = 0, den = 0;
    for (int i = 0; i < n; i++) {
        num += ((double)x[i] - ref[i]) * ((double)x[i] - ref[i]);
        den += ref[i] * ref[i];
    }
    return sqrt(num / den);
}

/* What K and V of 8 bits may add to a small model's error. */
#define Q8_ERROR 2e-2

static void check_against_reference(const struct tiny_shape *s, int n, double bound)
{
    struct rig r;
    struct kv_seq seq;
    rig_open(&r, s, 2, NULL);
    float *logits = malloc((size_t)n * (size_t)s->n_vocab * sizeof *logits);
    double *ref = malloc((size_t)n * (size_t)s->n_vocab * sizeof *ref);
    assert_true(logits && ref);
    tiny_seq(&seq, r.pool, n);
    struct engine_part p = {.seq = &seq, .ids = r.ids, .n_ids = n, .n_logits = n, .logits = logits};
    pass(&r, &p, 1);
    tiny_reference(r.m, r.ids, n, ref);
    double err = relative_error(logits, ref, n * s->n_vocab);
    print_message("layout %d, KV %s: relative error %.2e\n", s->layout, kv_type_name(kv_type), err);
    assert_true(err < bound + (kv_type == KV_Q8_0 ? Q8_ERROR : 0));
    free(logits);
    free(ref);
    kv_seq_done(&seq);
    rig_close(&r);
}

static void logits_are_near_a_reference_in_doubles(void **state)
{
    (void)state;
    struct tiny_shape s = small;
    for (int layout = 0; layout < MAT_N_LAYOUTS; layout++) {
        s.layout = s.embd_layout = layout;
        /* F32 activations and F16 KV; or activations rounded to 8 bits in each of 14 products */
        check_against_reference(&s, 12, layout >= MAT_F32 ? 2e-3 : 4e-2);
    }
    /* long enough for a second span */
    const struct tiny_shape narrow = {.n_vocab = 50,
                                      .n_embd = 96,
                                      .n_ff = 128,
                                      .n_layers = 2,
                                      .n_heads = 4,
                                      .n_kv_heads = 2,
                                      .head_dim = 32,
                                      .n_rot = 32,
                                      .n_ctx = 300,
                                      .layout = MAT_F16,
                                      .embd_layout = MAT_F16};
    check_against_reference(&narrow, 300, 2e-3);
}

/* F32 matrices, so that what a family adds shows by itself. */
static const struct tiny_shape plain = {.n_vocab = 40,
                                        .n_embd = 96,
                                        .n_ff = 128,
                                        .n_layers = 4,
                                        .n_heads = 4,
                                        .n_kv_heads = 2,
                                        .head_dim = 32,
                                        .n_rot = 32,
                                        .n_ctx = 700,
                                        .layout = MAT_F32,
                                        .embd_layout = MAT_F32};

static void what_families_add_is_near_the_reference(void **state)
{
    (void)state;
    struct tiny_shape qwen2 = plain, qwen3 = plain, gemma = plain, gemma2 = plain,
                      granite = plain, smollm3 = plain;
    qwen2.has_bias = true;
    qwen3.has_head_norms = true;
    gemma.has_head_norms = gemma.has_post_norms = gemma.is_gelu = true;
    gemma.embd_scale = 9.8f;
    gemma.logit_cap = 2;
    granite.embd_scale = 12;
    granite.residual_scale = 0.22f;
    granite.logit_scale = 0.125f;
    smollm3.unrotated_period = 2;
    gemma.window = 20; /* 3 of 4 layers */
    gemma.window_period = 4;
    gemma.window_base = 100;
    gemma2.window = 300; /* past the first span */
    gemma2.window_period = 2;
    gemma2.attn_cap = 1;
    gemma2.has_post_norms = gemma2.is_gelu = true;
    check_against_reference(&gemma2, 700, 2e-3);
    check_against_reference(&qwen2, 40, 2e-3);
    check_against_reference(&qwen3, 40, 2e-3);
    check_against_reference(&gemma, 40, 2e-3);
    check_against_reference(&granite, 40, 2e-3);
    check_against_reference(&smollm3, 40, 2e-3);
}

static void odd_shapes_are_near_the_reference(void **state)
{
    (void)state;
    /* no sharing, 48 dimensions of which 20 rotate, widths that end in half tiles */
    const struct tiny_shape a = {.n_vocab = 33,
                                 .n_embd = 272,
                                 .n_ff = 304,
                                 .n_layers = 2,
                                 .n_heads = 3,
                                 .n_kv_heads = 3,
                                 .head_dim = 48,
                                 .n_rot = 20,
                                 .n_ctx = 64,
                                 .layout = MAT_F32,
                                 .embd_layout = MAT_F32};
    /* all heads on one KV head */
    const struct tiny_shape b = {.n_vocab = 64,
                                 .n_embd = 160,
                                 .n_ff = 96,
                                 .n_layers = 2,
                                 .n_heads = 10,
                                 .n_kv_heads = 1,
                                 .head_dim = 16,
                                 .n_rot = 16,
                                 .n_ctx = 300,
                                 .layout = MAT_S8_D,
                                 .embd_layout = MAT_F16};
    check_against_reference(&a, 37, 2e-3);
    check_against_reference(&b, 290, 4e-2);
}

/* Everything that a family can add, its windows ending inside spans and blocks. */
static struct tiny_shape everything(void)
{
    struct tiny_shape s = small;
    s.n_layers = 3;
    s.has_bias = s.has_head_norms = s.has_post_norms = s.is_gelu = true;
    s.window = 277;
    s.window_period = 3;
    s.unrotated_period = 2;
    s.window_base = 500;
    s.attn_cap = 4;
    s.logit_cap = 20;
    s.embd_scale = 3;
    return s;
}

static void check_slicing(const struct tiny_shape *s)
{
    enum { N = 610 };
    static const struct {
        int chunk, threads;
        const char *isa;
    } ways[] = {{N, 2, NULL},  {1, 1, NULL},  {7, 2, NULL},   {32, 3, NULL},
                {33, 4, NULL}, {100, 2, "c"}, {512, 1, NULL}, {300, 2, NULL}};
    uint8_t first[32], hash[32];
    static float logits[301];
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
        struct rig r;
        struct kv_seq seq;
        rig_open(&r, s, ways[i].threads, ways[i].isa);
        read_in_slices(&r, &seq, N, ways[i].chunk, logits);
        hash_of(logits, sizeof logits, hash);
        if (i == 0)
            memcpy(first, hash, 32);
        assert_memory_equal(hash, first, 32);
        kv_seq_done(&seq);
        rig_close(&r);
    }
}

static void bits_depend_on_no_slicing_threads_or_isa(void **state)
{
    (void)state;
    const struct tiny_shape all = everything();
    struct tiny_shape half = small; /* Q8_0: blocks of 32 and 16 dimensions */
    half.head_dim = 48;
    half.n_rot = 20;
    check_slicing(&small);
    check_slicing(&all);
    check_slicing(&half);
}

static void check_batch_mates(const struct tiny_shape *s)
{
    enum { N = 290, MATES = 3 };
    static float alone[301], together[301], other[MATES][40 * 301];
    struct rig r;
    struct kv_seq seq, mates[MATES];
    rig_open(&r, s, 2, NULL);
    read_in_slices(&r, &seq, N, N, alone);
    kv_seq_done(&seq);
    tiny_seq(&seq, r.pool, N);
    struct engine_part p[MATES + 1];
    for (int i = 0; i < MATES; i++)
        tiny_seq(&mates[i], r.pool, 300);
    for (int i = 0, cut = 0, k; i < N; i += k, cut++) {
        k = N - i < 97 ? N - i : 97;
        const int at = cut % (MATES + 1);
        for (int j = 0, mate = 0; j <= MATES; j++) {
            if (j == at)
                p[j] = (struct engine_part){.seq = &seq,
                                            .ids = r.ids + i,
                                            .n_ids = k,
                                            .n_logits = i + k == N,
                                            .logits = together};
            else
                p[j] = (struct engine_part){.seq = &mates[mate],
                                            .ids = r.ids + 31 * mate + i,
                                            .n_ids = 1 + 13 * mate,
                                            .n_logits = 1 + mate,
                                            .logits = other[mate]},
                mate++;
        }
        pass(&r, p, MATES + 1);
    }
    assert_memory_equal(alone, together, sizeof alone);
    for (int i = 0; i < MATES; i++)
        kv_seq_done(&mates[i]);
    kv_seq_done(&seq);
    rig_close(&r);
}

static void bits_depend_on_no_batch_mates(void **state)
{
    (void)state;
    const struct tiny_shape all = everything();
    check_batch_mates(&small);
    check_batch_mates(&all);
}

static void asking_for_more_logits_changes_none(void **state)
{
    (void)state;
    enum { N = 70 };
    static float all[N * 301], last[301];
    struct rig r;
    struct kv_seq seq;
    rig_open(&r, &small, 2, NULL);
    read_in_slices(&r, &seq, N, N, last);
    kv_seq_done(&seq);
    tiny_seq(&seq, r.pool, N);
    struct engine_part p = {.seq = &seq, .ids = r.ids, .n_ids = N, .n_logits = N, .logits = all};
    pass(&r, &p, 1);
    assert_memory_equal(all + (N - 1) * 301, last, sizeof last);
    kv_seq_done(&seq);
    rig_close(&r);
}

static void a_canceled_pass_leaves_nothing_behind(void **state)
{
    (void)state;
    enum { N = 300 };
    static float cold[301], again[301];
    struct rig r;
    struct kv_seq seq;
    struct err e = {0};
    const atomic_int stop = 1;
    rig_open(&r, &small, 2, NULL);
    read_in_slices(&r, &seq, N, N, cold);
    kv_seq_done(&seq);
    tiny_seq(&seq, r.pool, N);
    struct engine_part p = {.seq = &seq, .ids = r.ids, .n_ids = 45};
    pass(&r, &p, 1);
    p = (struct engine_part){
        .seq = &seq, .ids = r.ids + 45, .n_ids = N - 45, .n_logits = 1, .logits = again};
    assert_int_equal(forward_pass(r.f, &p, 1, &stop, &e), ERR_CANCELED);
    assert_int_equal(seq.n_tokens, 45);
    for (int i = 45; i < N; i += 51) {
        p = (struct engine_part){
            .seq = &seq, .ids = r.ids + i, .n_ids = 51, .n_logits = 1, .logits = again};
        pass(&r, &p, 1);
    }
    assert_memory_equal(cold, again, sizeof cold);
    kv_seq_done(&seq);
    rig_close(&r);
}

static void the_probe_gives_one_hash_on_all_kernels(void **state)
{
    (void)state;
    struct rig r;
    struct err e = {0};
    uint8_t best[32], c[32];
    rig_open(&r, &small, 1, NULL);
    forward_numerics_probe(r.f, best);
    assert_int_equal(forward_set_isa(r.f, "c", &e), 0);
    forward_numerics_probe(r.f, c);
    assert_memory_equal(best, c, 32);
    rig_close(&r);
}

static void what_cannot_run_is_refused(void **state)
{
    (void)state;
    struct rig r;
    struct err e = {0};
    struct forward *f = NULL;
    struct kv_seq seq;
    rig_open(&r, &small, 1, NULL);
    assert_int_equal(forward_new(r.m, &r.shape, 1, "sse9", &f, &e), ERR_INVAL);
    assert_non_null(strstr(e.text, "sse9"));
    assert_int_equal(forward_new(r.m, &r.shape, 0, NULL, &f, &e), ERR_INVAL);
    assert_null(f);
    tiny_seq(&seq, r.pool, 40);
    struct engine_part p = {.seq = &seq, .ids = r.ids, .n_ids = 65};
    assert_int_equal(forward_pass(r.f, &p, 1, NULL, &e), ERR_INVAL);
    assert_int_equal(seq.n_tokens, 0);
    kv_seq_done(&seq);
    rig_close(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(logits_are_near_a_reference_in_doubles),
        cmocka_unit_test(what_families_add_is_near_the_reference),
        cmocka_unit_test(odd_shapes_are_near_the_reference),
        cmocka_unit_test(bits_depend_on_no_slicing_threads_or_isa),
        cmocka_unit_test(bits_depend_on_no_batch_mates),
        cmocka_unit_test(asking_for_more_logits_changes_none),
        cmocka_unit_test(a_canceled_pass_leaves_nothing_behind),
        cmocka_unit_test(the_probe_gives_one_hash_on_all_kernels),
        cmocka_unit_test(what_cannot_run_is_refused),
    };
    struct err e;
    thread_set_role(THREAD_WORKER); /* whose the KV blocks are */
    if (hash_start(&e) < 0)
        return 1;
    int n_failed = cmocka_run_group_tests_name("KV f16", tests, NULL, NULL);
    kv_type = KV_Q8_0;
    n_failed += cmocka_run_group_tests_name("KV q8_0", tests, NULL, NULL);
    return n_failed;
}
