/*
 * The numerics probe: a kernel whose output differs by one bit somewhere is another model, so that
 * no KV block made by the other is found (B71: another build, another CPU); and it isn't taken
 * where there is another that computes what it should.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "engine/forward_impl.h"
#include "engine/kernels_probe.h"
#include "tests/engine/math/tables.h"
#include "tests/engine/math/tiny.h"

static const struct tiny_shape shape = {.n_vocab = 64,
                                        .n_embd = 64,
                                        .n_ff = 64,
                                        .n_layers = 1,
                                        .n_heads = 2,
                                        .n_kv_heads = 2,
                                        .head_dim = 32,
                                        .n_rot = 32,
                                        .n_ctx = 64,
                                        .layout = MAT_S8_D,
                                        .embd_layout = MAT_S8_D};
static const struct kernels *right;

/* The last bit of the first float: what a contracted or reordered sum gives. */
static void bend(void *x)
{
    *(unsigned char *)x ^= 1;
}

static int bent_layout;
static void bent_gemm(const struct gemm *g)
{
    right->gemm[bent_layout](g);
    bend(g->y);
}
/* Only the row that a tile of 16 leaves over. */
static void bent_gemm_left(const struct gemm *g)
{
    right->gemm[bent_layout](g);
    if (g->n_rows > 16) {
        bend(g->y + 16 * g->ldy);
    }
}
static void bent_rms_norm(const float *x, const float *w, int n, float eps, float *y)
{
    right->rms_norm(x, w, n, eps, y);
    bend(y);
}
static void bent_quantize(const float *x, int n_blocks, int8_t *q, struct act_block *b)
{
    right->quantize(x, n_blocks, q, b);
    bend(&b->d);
}
static void bent_silu_mul(const float *gate, const float *up, int n, float *y)
{
    right->silu_mul(gate, up, n, y);
    bend(y);
}
static void bent_quantize_q(const float *q, int n_q, int head_dim, int16_t *q16, float *qd)
{
    right->quantize_q(q, n_q, head_dim, q16, qd);
    bend(qd);
}
static void bent_rope(float *x, const float *cs, int n, float scale)
{
    right->rope(x, cs, n, scale);
    bend(x);
}
static void bent_to_f16(const float *x, int n, uint16_t *y)
{
    right->to_f16(x, n, y);
    bend(y);
}
static void bent_exp(const float *x, int n, float *y)
{
    right->exp(x, n, y);
    bend(y);
}
static int bent_kv;
static void bent_span(const struct attn_span *a)
{
    right->attn_span[bent_kv](a);
    bend(a->acc + a->n_q * a->head_dim - 1); /* the first query's are merged: it may round off */
}
static void bent_merge(float *m, float *l, float *acc, const float *later_ml, const float *acc2,
                       int head_dim)
{
    right->attn_merge(m, l, acc, later_ml, acc2, head_dim);
    bend(acc);
}
static void bent_finish(float l, const float *acc, int head_dim, float *out)
{
    right->attn_finish(l, acc, head_dim, out);
    bend(out);
}

/* Fails the test unless the probe with k differs from that with the right kernels. */
static void check(struct forward *f, const struct kernels *k, const char *name)
{
    uint8_t before[32], bent[32], after[32];
    forward_numerics_probe(f, before);
    f->k = k;
    forward_numerics_probe(f, bent);
    f->k = right;
    forward_numerics_probe(f, after);
    assert_memory_equal(before, after, sizeof before);
    if (memcmp(before, bent, sizeof before) == 0) {
        fail_msg("one bit of %s goes unnoticed", name);
    }
}

#define CHECK(member, function)                                                                    \
    do {                                                                                           \
        struct kernels k = *right;                                                                 \
        k.member = function;                                                                       \
        check(f, &k, #member);                                                                     \
    } while (0)

static void one_bit_of_any_kernel_is_another_model(void **state)
{
    (void)state;
    struct err e = {0};
    struct kv_shape kv;
    struct forward *f = NULL;
    struct model *m = tiny_new(&shape, 5);
    assert_int_equal(
        kv_shape_init(&kv, KV_F16, shape.n_layers, shape.n_kv_heads, shape.head_dim, &e), 0);
    assert_int_equal(forward_new(m, &kv, 1, NULL, &f, &e), 0);
    right = f->k;
    for (bent_layout = 0; bent_layout < MAT_N_LAYOUTS; bent_layout++) {
        CHECK(gemm[bent_layout], bent_gemm);
        CHECK(gemm[bent_layout], bent_gemm_left);
    }
    CHECK(rms_norm, bent_rms_norm);
    CHECK(quantize, bent_quantize);
    CHECK(silu_mul, bent_silu_mul);
    CHECK(quantize_q, bent_quantize_q);
    CHECK(rope, bent_rope);
    CHECK(to_f16, bent_to_f16);
    CHECK(exp, bent_exp);
    for (bent_kv = 0; bent_kv < KV_N_TYPES; bent_kv++) {
        CHECK(attn_span[bent_kv], bent_span);
    }
    CHECK(attn_merge, bent_merge);
    CHECK(attn_finish, bent_finish);
    forward_free(f);
    tiny_free(m);
}

static void all_kernels_give_the_hash_that_is_written_down(void **state)
{
    (void)state;
    for (int i = 0; i < n_tables; i++) {
        uint8_t hash[HASH_BYTES];
        char text[2 * HASH_BYTES + 1];
        struct hash_state h;
        hash_init(&h);
        kernels_probe(tables[i], &h);
        hash_end(&h, hash);
        hex_write(hash, sizeof hash, text);
        if (!kernels_are_proven(tables[i]))
            fail_msg("%s (kernels %d) gives %s", tables[i]->name, i, text);
    }
}

static void the_best_that_computes_what_it_should_is_taken(void **state)
{
    (void)state;
    struct kernels bent = kernels_c, worse = kernels_c;
    bent.rms_norm = bent_rms_norm;
    worse.exp = bent_exp;
    right = &kernels_c;
    const struct kernels *const list[] = {&bent, &worse, &kernels_avx512_model, &kernels_c};
    assert_ptr_equal(kernels_proven(list, 4), &kernels_avx512_model);
    assert_ptr_equal(kernels_proven(list + 3, 1), &kernels_c);
    /* There is none: the plainest, and its probe keeps its KV apart. */
    assert_ptr_equal(kernels_proven(list, 2), &worse);
}

static void who_asks_for_an_instruction_set_gets_it(void **state)
{
    (void)state;
    struct err e = {0};
    const struct kernels *k = NULL, *best = NULL;
    assert_int_equal(kernels_find_proven("c", &k, &e), 0);
    assert_string_equal(k->name, "c");
    assert_int_equal(kernels_find_proven("sse9", &k, &e), ERR_INVAL);
    assert_non_null(strstr(e.text, "sse9"));
    assert_int_equal(kernels_find_proven(NULL, &k, &e), 0);
    assert_int_equal(kernels_find(NULL, &best, &e), 0);
    assert_ptr_equal(k, best); /* none is broken on this machine: see the test above */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_kernels_give_the_hash_that_is_written_down),
        cmocka_unit_test(the_best_that_computes_what_it_should_is_taken),
        cmocka_unit_test(who_asks_for_an_instruction_set_gets_it),
        cmocka_unit_test(one_bit_of_any_kernel_is_another_model),
    };
    tables_init();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
