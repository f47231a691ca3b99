/*
 * Mixtures of experts as files have them: a row's bits depend on no other row of the pass, nor on
 * threads or kernels; equal scores choose the lower expert; unsplit up-projections are the split
 * ones; what isn't supported is refused by name.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "engine/engine.h"
#include "engine/gguf.h"
#include "engine/model.h"
#include "engine/quant.h"
#include "tests/engine/load/gguf_model.h"

enum { N_VOCAB = 300, N_IDS = 130, MATES = 3, BLOCKS = 5 };

/* DeepSeek's V3 kind: grouped, biased sigmoids, a leading layer without experts, a shared one. */
static struct gguf_model deepseek(uint32_t type)
{
    struct gguf_model m = gguf_model_small(type);
    m.arch = "deepseek2";
    m.n_layers = 3;
    m.n_experts = 16;
    m.n_used = 4;
    m.n_ff_exp = 64;
    m.n_shared = 1;
    m.n_dense = 1;
    m.has_router_bias = true;
    return m;
}

static struct gguf_model qwen3(uint32_t type)
{
    struct gguf_model m = gguf_model_small(type);
    m.arch = "qwen3moe";
    m.n_experts = 20;
    m.n_used = 5;
    m.n_ff_exp = 32;
    return m;
}

static void put(const struct gguf_model *m, struct gguf_writer *w)
{
    gguf_writer_init(w);
    gguf_model_put(m, w);
    if (m->has_router_bias) {
        gguf_put_u32(w, "deepseek2.expert_gating_func", 2);
        gguf_put_int(w, "deepseek2.expert_weights_norm", GGUF_BOOL, 1);
        gguf_put_u32(w, "deepseek2.expert_group_count", 4);
        gguf_put_u32(w, "deepseek2.expert_group_used_count", 2);
    }
}

static int open_writer(const struct gguf_writer *w, int n_threads, const char *isa,
                       struct engine **ret, struct err *e)
{
    char path[64];
    const int fd = memfd_create("gguf", MFD_CLOEXEC);
    assert_true(fd >= 0);
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    assert_true(gguf_writer_save_fd(w, fd));
    const struct engine_options o = {.model_path = path, .n_threads = n_threads, .isa = isa};
    const int rc = engine_open(&o, ret, e);
    close(fd);
    return rc;
}

/* An engine with sequences of room for N_IDS positions. */
struct rig {
    struct engine *en;
    struct kv_pool *pool;
    struct kv_seq seqs[MATES + 1];
    int32_t ids[N_IDS];
};

static void rig_open(struct rig *r, const struct gguf_writer *w, int n_threads, const char *isa)
{
    struct err e = {0};
    if (open_writer(w, n_threads, isa, &r->en, &e)) {
        fail_msg("%s", e.text);
    }
    assert_int_equal(kv_pool_new(&engine_info(r->en)->kv, BLOCKS * (MATES + 1), &r->pool, &e), 0);
    for (int i = 0; i <= MATES; i++) {
        kv_seq_init(&r->seqs[i]);
        for (int k = 0; k < BLOCKS; k++) {
            assert_int_equal(kv_seq_push(&r->seqs[i], kv_take(r->pool), &e), 0);
        }
    }
    for (int i = 0; i < N_IDS; i++) {
        r->ids[i] = (i * 37 + 11) % N_VOCAB;
    }
}

static void rig_close(struct rig *r)
{
    for (int i = 0; i <= MATES; i++) {
        kv_seq_done(&r->seqs[i]);
    }
    kv_pool_free(r->pool);
    engine_close(r->en);
}

static void pass(struct rig *r, struct engine_part *p, int n)
{
    struct err e = {0};
    if (engine_pass(r->en, p, n, NULL, &e)) {
        fail_msg("%s", e.text);
    }
}

/* The last position's logits, read `chunk` ids at a time; with mates, three other sequences' rows
 * lie before, between and behind, more of them each time. */
static void read_ids(const struct gguf_writer *w, int chunk, bool has_mates, int n_threads,
                     const char *isa, float ret[N_VOCAB])
{
    static float other[MATES][N_VOCAB];
    struct rig r;
    rig_open(&r, w, n_threads, isa);
    for (int i = 0, cut = 0; i < N_IDS; i += chunk, cut++) {
        const int n = N_IDS - i < chunk ? N_IDS - i : chunk;
        const int at = has_mates ? cut % (MATES + 1) : 0;
        struct engine_part p[MATES + 1];
        for (int k = 0, mate = 0; k <= MATES; k++) {
            if (k == at) {
                p[k] = (struct engine_part){.seq = &r.seqs[MATES], .ids = r.ids + i, .n_ids = n,
                                            .n_logits = i + n == N_IDS, .logits = ret};
                continue;
            }
            p[k] = (struct engine_part){.seq = &r.seqs[mate], .ids = r.ids + 29 * mate + cut,
                                        .n_ids = 1 + mate * cut, .n_logits = 1,
                                        .logits = other[mate]};
            mate++;
        }
        pass(&r, p, has_mates ? MATES + 1 : 1);
    }
    rig_close(&r);
}

static void check_bits(const struct gguf_model *m)
{
    static const struct {
        int chunk;
        bool has_mates;
        int n_threads;
        const char *isa;
    } ways[] = {{1, false, 2, NULL},     {7, false, 1, NULL},  {50, false, 4, NULL},
                {N_IDS, false, 2, "c"},  {19, true, 2, NULL},  {19, true, 3, "c"},
                {33, true, 1, NULL}};
    static float first[N_VOCAB], again[N_VOCAB];
    struct gguf_writer w;
    put(m, &w);
    read_ids(&w, N_IDS, false, 2, NULL, first);
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
        read_ids(&w, ways[i].chunk, ways[i].has_mates, ways[i].n_threads, ways[i].isa, again);
        assert_memory_equal(again, first, sizeof first);
    }
    gguf_writer_done(&w);
}

static void bits_depend_on_no_slicing_mates_threads_or_isa(void **state)
{
    (void)state;
    static const uint32_t types[] = {QUANT_F32, QUANT_F16, QUANT_Q4_0, QUANT_Q8_0};
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        const struct gguf_model a = deepseek(types[i]), b = qwen3(types[i]);
        check_bits(&a);
        check_bits(&b);
    }
    struct gguf_model k = qwen3(QUANT_Q4_K); /* super-blocks of 256 */
    gguf_model_k_shape(&k);
    k.n_ff_exp = 256;
    check_bits(&k);
}

/* ---- who is chosen ---- */

static float *fill(struct gguf_writer_tensor *t, float scale, uint64_t seed)
{
    size_t n = 1;
    for (uint32_t i = 0; i < t->n_dims; i++) {
        n *= (size_t)t->dims[i];
    }
    float *v = malloc(n * sizeof *v);
    assert_non_null(v);
    for (size_t i = 0; i < n; i++) {
        seed = seed * 6364136223846793005u + 1442695040888963407u;
        v[i] = scale * (float)(int32_t)(seed >> 32) * 0x1p-31f;
    }
    t->values = v;
    return v;
}

/* Logits when the router scores all alike and expert `other` (−1: none) has other gates. */
static void run_alike(int other, float ret[N_VOCAB])
{
    struct gguf_model m = qwen3(QUANT_F32);
    struct gguf_writer w;
    float *made[2 * 2];
    int n_made = 0;
    put(&m, &w);
    for (int i = 0; i < m.n_layers; i++) {
        char name[64];
        snprintf(name, sizeof name, "blk.%d.ffn_gate_inp.weight", i);
        made[n_made++] = fill(gguf_writer_find(&w, name), 0, 1);
        snprintf(name, sizeof name, "blk.%d.ffn_gate_exps.weight", i);
        float *gate = made[n_made++] = fill(gguf_writer_find(&w, name), 0.2f, 7);
        const size_t size = (size_t)m.n_embd * (size_t)m.n_ff_exp;
        for (size_t k = 0; other >= 0 && k < size; k++) {
            gate[(size_t)other * size + k] *= -1;
        }
    }
    read_ids(&w, N_IDS, false, 2, NULL, ret);
    gguf_writer_done(&w);
    for (int i = 0; i < n_made; i++) {
        free(made[i]);
    }
}

static void equal_scores_choose_the_lower_experts(void **state)
{
    (void)state;
    static float right[N_VOCAB], got[N_VOCAB];
    run_alike(-1, right);
    for (int i = 0; i < 20; i++) {
        run_alike(i, got);
        assert_int_equal(memcmp(got, right, sizeof got) != 0, i < 5);
    }
}

static void biased_scores_are_sigmoids_where_no_key_says_so(void **state)
{
    (void)state;
    static float said[N_VOCAB], unsaid[N_VOCAB], other[N_VOCAB];
    struct gguf_model m = deepseek(QUANT_F16);
    struct gguf_writer w;
    put(&m, &w);
    read_ids(&w, N_IDS, false, 2, NULL, said);
    assert_true(gguf_remove(&w, "deepseek2.expert_gating_func"));
    read_ids(&w, N_IDS, false, 2, NULL, unsaid);
    gguf_put_u32(&w, "deepseek2.expert_gating_func", 1);
    read_ids(&w, N_IDS, false, 2, NULL, other);
    assert_memory_equal(unsaid, said, sizeof said);
    assert_memory_not_equal(other, said, sizeof said);
    gguf_writer_done(&w);
}

/* ---- up-projections in one tensor ---- */

/* attn_kv_b [head][nope + value][rank] of k_b [head][rank][nope] and v_b [head][value][rank]. */
static float *join(const float *k_b, const float *v_b, int heads, int dim, int rank)
{
    float *v = malloc((size_t)(heads * 2 * dim * rank) * sizeof *v);
    assert_non_null(v);
    for (int h = 0; h < heads; h++) {
        for (int d = 0; d < dim; d++) {
            float *key = v + (h * 2 * dim + d) * rank, *value = key + dim * rank;
            for (int r = 0; r < rank; r++) {
                key[r] = k_b[(h * rank + r) * dim + d];
                value[r] = v_b[(h * dim + d) * rank + r];
            }
        }
    }
    return v;
}

static void one_tensor_of_up_projections_gives_the_bits_of_two(void **state)
{
    (void)state;
    static float split[N_VOCAB], joined[N_VOCAB];
    struct gguf_model m = gguf_model_small(QUANT_F32);
    struct gguf_writer a, b;
    float *made[64];
    int n_made = 0;
    m.arch = "deepseek2";
    m.embd_type = QUANT_F32;
    put(&m, &a);
    m.is_unsplit = true;
    put(&m, &b);
    for (size_t i = 0; i < a.n; i++) {
        made[n_made++] = fill(&a.tensors[i], a.tensors[i].scale, i + 1);
        struct gguf_writer_tensor *same = gguf_writer_find(&b, a.tensors[i].name);
        if (same) {
            same->values = a.tensors[i].values;
        }
    }
    for (int i = 0; i < m.n_layers; i++) {
        char k[64], v[64], kv[64];
        snprintf(k, sizeof k, "blk.%d.attn_k_b.weight", i);
        snprintf(v, sizeof v, "blk.%d.attn_v_b.weight", i);
        snprintf(kv, sizeof kv, "blk.%d.attn_kv_b.weight", i);
        gguf_writer_find(&b, kv)->values = made[n_made++] =
            join(gguf_writer_find(&a, k)->values, gguf_writer_find(&a, v)->values, m.n_heads,
                 m.head_dim, 2 * m.head_dim);
    }
    read_ids(&a, N_IDS, false, 2, NULL, split);
    read_ids(&b, N_IDS, false, 2, NULL, joined);
    assert_memory_equal(joined, split, sizeof split);
    gguf_writer_done(&a);
    gguf_writer_done(&b);
    for (int i = 0; i < n_made; i++) {
        free(made[i]);
    }
}

/* Packed, against the file's own rows: values as they are, keys the other way round. */
static void check_up(const struct gguf_model *m, const struct model *model,
                     const struct gguf_tensor *t, const struct quant_type *type)
{
    const int dim = m->head_dim, rank = 2 * dim;
    const size_t row_bytes = (size_t)t->n_bytes / (size_t)t->dims[1];
    float file[256], packed[256];
    for (int h = 0; h < m->n_heads; h++) {
        for (int d = 0; d < 2 * dim; d++) {
            type->dequantize(t->data + (size_t)(h * 2 * dim + d) * row_bytes, file, (size_t)rank);
            for (int r = 0; d < dim && r < rank; r++) {
                mat_row(&model->layers[1].k_b, h * rank + r, packed);
                const float right =
                    type->block_values > 1 ? quant_f16_to_f32(quant_f32_to_f16(file[r])) : file[r];
                assert_memory_equal(&packed[d], &right, sizeof right);
            }
            if (d >= dim) {
                mat_row(&model->layers[1].v_b, h * dim + d - dim, packed);
                assert_memory_equal(packed, file, (size_t)rank * sizeof *file);
            }
        }
    }
}

static void keys_of_one_tensor_are_turned_and_quantised_ones_rounded_to_f16(void **state)
{
    (void)state;
    static const uint32_t types[] = {QUANT_F32, QUANT_F16, QUANT_BF16, QUANT_Q8_0, QUANT_Q4_0};
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        struct gguf_model m = gguf_model_small(types[i]);
        struct gguf_writer w;
        struct gguf *g = NULL;
        struct model *model = NULL;
        struct err e = {0};
        char path[64];
        const int fd = memfd_create("gguf", MFD_CLOEXEC);
        const struct engine_options o = {.model_path = path, .n_threads = 2};
        m.arch = "deepseek2";
        m.is_unsplit = true;
        put(&m, &w);
        snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
        assert_true(gguf_writer_save_fd(&w, fd));
        assert_int_equal(gguf_open(path, &g, &e), 0);
        assert_int_equal(model_open(g, &o, NULL, &model, &e), 0);
        check_up(&m, model, gguf_tensor(g, "blk.1.attn_kv_b.weight"), quant_type(types[i]));
        model_close(model);
        gguf_close(g);
        gguf_writer_done(&w);
        close(fd);
    }
}

/* ---- refusals and sizes ---- */

static void refused(const struct gguf_writer *w, int code, const char *why)
{
    struct engine *en = NULL;
    struct err e = {0};
    assert_int_equal(open_writer(w, 1, NULL, &en, &e), code);
    assert_null(en);
    if (!strstr(e.text, why)) {
        fail_msg("%s", e.text);
    }
}

static void refused_key(const char *key, int value, int code, const char *why)
{
    struct gguf_model m = deepseek(QUANT_F16);
    struct gguf_writer w;
    char name[96];
    put(&m, &w);
    snprintf(name, sizeof name, "deepseek2.%s", key);
    gguf_remove(&w, name);
    gguf_put_u32(&w, name, (uint32_t)value);
    refused(&w, code, why);
    gguf_writer_done(&w);
}

static void refused_tensor(const char *tensor)
{
    struct gguf_model m = deepseek(QUANT_F16);
    struct gguf_writer w;
    put(&m, &w);
    gguf_put_tensor(&w, tensor, QUANT_F16, 2, (uint64_t[]){96, 64});
    refused(&w, ERR_UNSUPPORTED, tensor);
    gguf_writer_done(&w);
}

static void what_is_not_supported_is_refused_by_name(void **state)
{
    (void)state;
    refused_key("expert_gating_func", 3, ERR_UNSUPPORTED, "deepseek2.expert_gating_func\" is 3");
    refused_key("expert_used_count", 17, ERR_CORRUPT, "17 of 16 experts");
    refused_key("expert_used_count", 0, ERR_CORRUPT, "0 of 16 experts");
    refused_key("expert_used_count", 9, ERR_CORRUPT, "9 of 16 experts can't be chosen in 2 of 4");
    refused_key("expert_count", 2000, ERR_CORRUPT, "deepseek2.expert_count");
    refused_key("expert_group_count", 5, ERR_CORRUPT, "groups");
    refused_key("expert_feed_forward_length", 48, ERR_UNSUPPORTED, "multiples of 32");
    refused_tensor("blk.1.ffn_gate.0.weight");
    refused_tensor("blk.1.ffn_gate_up_exps.weight");
    refused_tensor("blk.2.nextn.eh_proj.weight");
}

static void architectures_without_experts_refuse_them_by_key(void **state)
{
    (void)state;
    struct gguf_model m = gguf_model_small(QUANT_F16);
    struct gguf_writer w;
    m.arch = "qwen3";
    put(&m, &w);
    gguf_put_u32(&w, "qwen3.expert_count", 8);
    refused(&w, ERR_UNSUPPORTED, "qwen3.expert_count");
    gguf_writer_done(&w);
}

static void the_scratch_of_experts_is_counted(void **state)
{
    (void)state;
    enum { ROWS = 64 };
    struct gguf_model m = qwen3(QUANT_Q8_0);
    struct gguf_writer w;
    struct engine *en = NULL;
    struct err e = {0};
    put(&m, &w);
    assert_int_equal(open_writer(&w, 1, NULL, &en, &e), 0);
    const size_t more = engine_pass_bytes(en, 2 * ROWS) - engine_pass_bytes(en, ROWS),
                 places = (size_t)ROWS * (size_t)m.n_used;
    /* What each place has: its input and hidden row of 8 bits, and its result. */
    assert_true(more >= places * ((size_t)m.n_embd * 5 + (size_t)m.n_ff_exp));
    engine_close(en);
    gguf_writer_done(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bits_depend_on_no_slicing_mates_threads_or_isa),
        cmocka_unit_test(equal_scores_choose_the_lower_experts),
        cmocka_unit_test(biased_scores_are_sigmoids_where_no_key_says_so),
        cmocka_unit_test(one_tensor_of_up_projections_gives_the_bits_of_two),
        cmocka_unit_test(keys_of_one_tensor_are_turned_and_quantised_ones_rounded_to_f16),
        cmocka_unit_test(what_is_not_supported_is_refused_by_name),
        cmocka_unit_test(architectures_without_experts_refuse_them_by_key),
        cmocka_unit_test(the_scratch_of_experts_is_counted),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
