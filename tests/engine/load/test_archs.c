/*
 * Architectures as files have them: each loads, keeps its bits however a prompt is cut, and needs
 * all of its tensors; the same weights in another architecture's spelling give the same bits; the
 * rotation's frequencies are the papers'.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
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

enum { N_VOCAB = 300, N_IDS = 70 };

/* What of gguf_model a family's files differ in. */
struct kind {
    const char *arch;
    int n_experts, n_shared, n_dense;
    bool has_router_bias, is_lite, is_unsplit;
};
static const struct kind kinds[] = {
    {.arch = "llama"},
    {.arch = "qwen2"},
    {.arch = "qwen3"},
    {.arch = "gemma"},
    {.arch = "gemma2"},
    {.arch = "gemma3"},
    {.arch = "granite"},
    {.arch = "phi3"},
    {.arch = "smollm3"},
    {.arch = "deepseek2"},
    {.arch = "deepseek2", .is_lite = true, .is_unsplit = true},
    {.arch = "deepseek2", .n_experts = 8, .n_shared = 2, .n_dense = 1, .is_lite = true},
    {.arch = "deepseek2", .n_experts = 16, .n_shared = 1, .n_dense = 1, .has_router_bias = true},
    {.arch = "minicpm3", .is_unsplit = true},
    {.arch = "deepseek", .n_experts = 8, .n_shared = 1, .n_dense = 1},
    {.arch = "llama", .n_experts = 4},
    {.arch = "qwen2moe", .n_experts = 9, .n_shared = 2},
    {.arch = "qwen3moe", .n_experts = 33},
    {.arch = "granitemoe", .n_experts = 8},
};
#define N_KINDS (sizeof kinds / sizeof *kinds)

struct file {
    int fd;
    char path[64];
};

static struct file save(const struct gguf_writer *w)
{
    struct file f = {.fd = memfd_create("gguf", MFD_CLOEXEC)};
    assert_true(f.fd >= 0);
    snprintf(f.path, sizeof f.path, "/proc/self/fd/%d", f.fd);
    assert_true(gguf_writer_save_fd(w, f.fd));
    return f;
}

/* How open_writer opens. */
static enum kv_type the_type;
static const char *the_isa;

static int open_writer(const struct gguf_writer *w, int n_ctx, struct engine **ret, struct err *e)
{
    struct file f = save(w);
    const struct engine_options o = {.model_path = f.path,
                                     .n_threads = 2,
                                     .n_ctx = n_ctx,
                                     .kv_type = the_type,
                                     .isa = the_isa};
    const int rc = engine_open(&o, ret, e);
    close(f.fd);
    return rc;
}

/* The last of N_IDS positions' logits, read `chunk` ids at a time. */
static void run(const struct gguf_writer *w, int chunk, float logits[N_VOCAB])
{
    struct engine *en = NULL;
    struct kv_pool *pool = NULL;
    struct kv_seq s;
    struct err e = {0};
    int32_t ids[N_IDS];
    if (open_writer(w, 0, &en, &e)) {
        fail_msg("%s", e.text);
    }
    kv_seq_init(&s);
    assert_int_equal(kv_pool_new(&engine_info(en)->kv, 3, &pool, &e), 0);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(kv_seq_push(&s, kv_take(pool), &e), 0);
    }
    for (int i = 0; i < N_IDS; i++) {
        ids[i] = (i * 37 + 11) % N_VOCAB;
    }
    for (int i = 0; i < N_IDS; i += chunk) {
        const int n = N_IDS - i < chunk ? N_IDS - i : chunk;
        struct engine_part p = {.seq = &s, .ids = ids + i, .n_ids = n, .n_logits = i + n == N_IDS,
                                .logits = logits};
        assert_int_equal(engine_pass(en, &p, 1, NULL, &e), 0);
    }
    kv_seq_done(&s);
    kv_pool_free(pool);
    engine_close(en);
}

static void put_kind(const struct kind *kind, uint32_t type, struct gguf_writer *w)
{
    struct gguf_model m = gguf_model_small(type);
    const char *arch = kind->arch;
    m.arch = arch;
    m.n_layers = 4;
    m.n_experts = kind->n_experts;
    m.n_used = 3;
    m.n_ff_exp = 64;
    m.n_shared = kind->n_shared;
    m.n_dense = kind->n_dense;
    m.has_router_bias = kind->has_router_bias;
    m.is_lite = kind->is_lite;
    m.is_unsplit = kind->is_unsplit;
    gguf_writer_init(w);
    gguf_model_put(&m, w);
    if (!strcmp(arch, "gemma3")) {
        gguf_put_u32(w, "gemma3.attention.sliding_window", 20);
    }
    if (!strcmp(arch, "gemma2")) {
        gguf_put_f32(w, "gemma2.attn_logit_softcapping", 50.0f);
        gguf_put_f32(w, "gemma2.final_logit_softcapping", 30.0f);
    }
    if (!strcmp(arch, "granite")) {
        gguf_put_f32(w, "granite.logit_scale", 8.0f);
        gguf_put_f32(w, "granite.embedding_scale", 12.0f);
        gguf_put_f32(w, "granite.residual_scale", 0.25f);
        gguf_put_f32(w, "granite.attention.scale", 0.02f);
    }
    if (kind->has_router_bias) {
        gguf_put_u32(w, "deepseek2.expert_gating_func", 2);
        gguf_put_int(w, "deepseek2.expert_weights_norm", GGUF_BOOL, 1);
        gguf_put_f32(w, "deepseek2.expert_weights_scale", 2.5f);
        gguf_put_u32(w, "deepseek2.expert_group_count", 4);
        gguf_put_u32(w, "deepseek2.expert_group_used_count", 2);
    }
}

static void put(const char *arch, uint32_t type, struct gguf_writer *w)
{
    put_kind(&(struct kind){.arch = arch}, type, w);
}

static void each_architecture_keeps_its_bits_and_differs_from_the_others(void **state)
{
    (void)state;
    static float whole[N_KINDS][N_VOCAB], cut[N_VOCAB];
    for (size_t i = 0; i < N_KINDS; i++) {
        struct gguf_writer w;
        put_kind(&kinds[i], QUANT_Q8_0, &w);
        run(&w, N_IDS, whole[i]);
        run(&w, 9, cut);
        gguf_writer_done(&w);
        assert_memory_equal(cut, whole[i], sizeof cut);
        for (int k = 0; k < N_VOCAB; k++) {
            assert_true(isfinite(cut[k]));
        }
        for (size_t k = 0; k < i; k++) {
            assert_true(memcmp(whole[k], whole[i], sizeof *whole) != 0);
        }
    }
}

static void each_tensor_of_an_architecture_is_needed(void **state)
{
    (void)state;
    for (size_t i = 0; i < N_KINDS; i++) {
        struct gguf_writer all;
        put_kind(&kinds[i], QUANT_F16, &all);
        for (size_t k = 0; k < all.n; k++) {
            const char *name = all.tensors[k].name;
            struct gguf_writer w;
            struct engine *en = NULL;
            struct err e = {0};
            if (strncmp(name, "blk.1.", 6) != 0 || strstr(name, "exp_probs_b")) {
                continue;
            }
            put_kind(&kinds[i], QUANT_F16, &w);
            gguf_remove_tensor(&w, name);
            assert_int_equal(open_writer(&w, 0, &en, &e), ERR_CORRUPT);
            assert_non_null(strstr(e.text, name));
            gguf_writer_done(&w);
        }
        gguf_writer_done(&all);
    }
}

/* ---- one model in two spellings ---- */

/* Values of a tensor of the first file, by name. */
struct values {
    char name[128];
    int rows, cols;
    float *v;
};

static float *random_values(uint64_t *seed, size_t n, float scale)
{
    float *v = malloc(n * sizeof *v);
    assert_non_null(v);
    for (size_t i = 0; i < n; i++) {
        *seed = *seed * 6364136223846793005u + 1442695040888963407u;
        v[i] = scale * (float)((int32_t)(*seed >> 32)) * 0x1p-31f;
    }
    return v;
}

/* Gives every tensor of the writer values of its own. */
static struct values *fill(struct gguf_writer *w)
{
    struct values *all = calloc(w->n, sizeof *all);
    uint64_t seed = 3;
    assert_non_null(all);
    for (size_t i = 0; i < w->n; i++) {
        struct gguf_writer_tensor *t = &w->tensors[i];
        snprintf(all[i].name, sizeof all[i].name, "%s", t->name);
        all[i].cols = (int)t->dims[0];
        all[i].rows = t->n_dims > 1 ? (int)t->dims[1] : 1;
        all[i].v = random_values(&seed, (size_t)all[i].rows * (size_t)all[i].cols, t->scale);
        t->values = all[i].v;
    }
    return all;
}

static const struct values *find(const struct values *all, size_t n, const char *name)
{
    for (size_t i = 0; i < n; i++) {
        if (!strcmp(all[i].name, name)) {
            return &all[i];
        }
    }
    fail_msg("no tensor %s", name);
    return NULL;
}

/* Rows as a file has them whose pairs lie half a head apart: 0, 2, 4, …, 1, 3, 5, … */
static void add_halves(const struct values *from, int dim, float **to)
{
    for (int r = 0; r < from->rows; r++) {
        const int head = r / dim, d = r % dim, half = dim / 2;
        const int source = head * dim + (d < half ? 2 * d : 2 * (d - half) + 1);
        memcpy(*to, from->v + (size_t)source * (size_t)from->cols,
               (size_t)from->cols * sizeof(float));
        *to += from->cols;
    }
}

static void add_rows(const struct values *from, float **to)
{
    const size_t n = (size_t)from->rows * (size_t)from->cols;
    memcpy(*to, from->v, n * sizeof(float));
    *to += n;
}

/* phi3's values of a layer's tensor, from llama's. */
static void spell(const struct values *all, size_t n, struct gguf_writer_tensor *t)
{
    const int layer = t->name[4] - '0';
    const size_t n_values = (size_t)t->dims[0] * (size_t)(t->n_dims > 1 ? t->dims[1] : 1);
    float *v = malloc(n_values * sizeof *v), *to = v;
    char name[64];
    assert_non_null(v);
    t->values = v;
    if (strstr(t->name, "attn_qkv")) {
        static const char *const parts[] = {"q", "k", "v"};
        for (int i = 0; i < 3; i++) {
            snprintf(name, sizeof name, "blk.%d.attn_%s.weight", layer, parts[i]);
            const struct values *from = find(all, n, name);
            if (i < 2) {
                add_halves(from, 32, &to);
            } else {
                add_rows(from, &to);
            }
        }
    } else if (strstr(t->name, "ffn_up")) {
        snprintf(name, sizeof name, "blk.%d.ffn_gate.weight", layer);
        add_rows(find(all, n, name), &to);
        snprintf(name, sizeof name, "blk.%d.ffn_up.weight", layer);
        add_rows(find(all, n, name), &to);
    } else {
        add_rows(find(all, n, t->name), &to);
    }
    assert_int_equal((size_t)(to - v), n_values);
}

static void a_fused_file_with_halved_heads_gives_the_same_bits(void **state)
{
    (void)state;
    struct gguf_model m = gguf_model_small(QUANT_F32);
    struct gguf_writer a, b;
    static float left[N_VOCAB], right[N_VOCAB];
    m.embd_type = QUANT_F32;
    gguf_writer_init(&a);
    gguf_model_put(&m, &a);
    struct values *all = fill(&a);
    m.arch = "phi3";
    gguf_writer_init(&b);
    gguf_model_put(&m, &b);
    for (size_t i = 0; i < b.n; i++) {
        spell(all, a.n, &b.tensors[i]);
    }
    run(&a, N_IDS, left);
    run(&b, N_IDS, right);
    assert_memory_equal(left, right, sizeof left);
    for (size_t i = 0; i < b.n; i++) {
        free((void *)(uintptr_t)b.tensors[i].values);
    }
    for (size_t i = 0; i < a.n; i++) {
        free(all[i].v);
    }
    free(all);
    gguf_writer_done(&a);
    gguf_writer_done(&b);
}

/* ---- rotation ---- */

/* cos and sin of position 100 of a llama with more keys. */
static void rotation(struct gguf_writer *w, int n_ctx, float ret[32])
{
    struct file f = save(w);
    struct gguf *g = NULL;
    struct model *m = NULL;
    struct err e = {0};
    const struct engine_options o = {.model_path = f.path, .n_ctx = n_ctx};
    assert_int_equal(gguf_open(f.path, &g, &e), 0);
    if (model_open(g, &o, NULL, &m, &e)) {
        fail_msg("%s", e.text);
    }
    memcpy(ret, m->rope + 100 * 32, 32 * sizeof *ret);
    model_close(m);
    gguf_close(g);
    close(f.fd);
}

/* frequency(i) of 16 pairs, times cos and sin by `by`. */
static void check_rotation(const float *got, double (*frequency)(int i), double by)
{
    for (int i = 0; i < 16; i++) {
        assert_true(fabs((double)got[2 * i] - by * cos(100 * frequency(i))) < 1e-6);
        assert_true(fabs((double)got[2 * i + 1] - by * sin(100 * frequency(i))) < 1e-6);
    }
}

static double plain(int i)
{
    return pow(100000.0, -2.0 * i / 32);
}

static float some_factors[16], other_factors[16];

static double by_some(int i)
{
    return plain(i) / (double)some_factors[i];
}

static double by_others(int i)
{
    return plain(i) / (double)other_factors[i];
}

/* YaRN with factor 4 over 128 positions (arXiv 2309.00071, eq. 23), its limits by hand: pair b
 * makes t turns where 128 · 100000^(−b / 16) = 2π t. */
static double yarn(int i)
{
    const double pi = acos(-1), low = floor(16 * log(128 / (32 * 2 * pi)) / log(100000.0)),
                 high = ceil(16 * log(128 / (2 * pi)) / log(100000.0));
    double ramp = (i - fmax(low, 0)) / (high - fmax(low, 0));
    ramp = ramp < 0 ? 0 : ramp > 1 ? 1 : ramp;
    return plain(i) * (1 - ramp) + plain(i) / 4 * ramp;
}

static void put_factors(struct gguf_writer *w, const char *name, const float *v)
{
    gguf_put_tensor(w, name, QUANT_F32, 1, (uint64_t[]){16})->values = v;
}

static void rotations_are_scaled_as_the_file_says(void **state)
{
    (void)state;
    struct gguf_writer w;
    float got[32];
    for (int i = 0; i < 16; i++) {
        some_factors[i] = 1 + (float)i / 4;
        other_factors[i] = 2 + (float)i;
    }
    put("llama", QUANT_F32, &w);
    rotation(&w, 0, got);
    check_rotation(got, plain, 1);
    put_factors(&w, "rope_freqs.weight", some_factors);
    rotation(&w, 0, got);
    check_rotation(got, by_some, 1);
    gguf_writer_done(&w);

    put("llama", QUANT_F32, &w);
    gguf_put_str(&w, "llama.rope.scaling.type", "yarn");
    gguf_put_f32(&w, "llama.rope.scaling.factor", 4.0f);
    gguf_put_u32(&w, "llama.rope.scaling.original_context_length", 128);
    rotation(&w, 0, got);
    check_rotation(got, yarn, 1 + 0.1 * log(4));
    gguf_writer_done(&w);

    put("llama", QUANT_F32, &w);
    gguf_put_str(&w, "llama.rope.scaling.type", "longrope");
    gguf_put_f32(&w, "llama.rope.scaling.attn_factor", 1.25f);
    gguf_put_u32(&w, "llama.rope.scaling.original_context_length", 256);
    put_factors(&w, "rope_factors_short.weight", some_factors);
    put_factors(&w, "rope_factors_long.weight", other_factors);
    rotation(&w, 256, got); /* by the context that the engine is opened with */
    check_rotation(got, by_some, 1.25);
    rotation(&w, 257, got);
    check_rotation(got, by_others, 1.25);
    gguf_writer_done(&w);
}

/* Whichever way it is read, on the best instruction set and on none; and near to what F16 gives. */
static void compressed_rows_are_kept_in_q8_0_too(void **state)
{
    (void)state;
    static float f16[N_VOCAB], whole[N_VOCAB], other[N_VOCAB];
    for (size_t i = 0; i < N_KINDS; i++) {
        struct gguf_writer w;
        double sum = 0, apart = 0;
        if (strcmp(kinds[i].arch, "deepseek2") != 0 && strcmp(kinds[i].arch, "minicpm3") != 0) {
            continue;
        }
        put_kind(&kinds[i], QUANT_Q8_0, &w);
        run(&w, N_IDS, f16);
        the_type = KV_Q8_0;
        run(&w, N_IDS, whole);
        for (int chunk = 1; chunk <= 9; chunk += 8) {
            run(&w, chunk, other);
            assert_memory_equal(other, whole, sizeof whole);
        }
        the_isa = "c";
        run(&w, 9, other);
        assert_memory_equal(other, whole, sizeof whole);
        the_isa = NULL;
        the_type = KV_F16;
        gguf_writer_done(&w);
        for (int k = 0; k < N_VOCAB; k++) {
            sum += (double)f16[k] * f16[k];
            apart += ((double)whole[k] - f16[k]) * ((double)whole[k] - f16[k]);
        }
        print_message("%s: %.5f apart\n", kinds[i].arch, sqrt(apart / sum));
        /* Heads of their own are 0.01 to 0.04 apart here, and 0.12 where experts are chosen. */
        assert_true(apart > 0 && sqrt(apart / sum) < 0.2);
    }
}

static void open_refuses(const struct gguf_writer *w, enum kv_type kv_type, const char *why)
{
    struct file f = save(w);
    struct engine *en = NULL;
    struct err e = {0};
    const struct engine_options o = {.model_path = f.path, .n_threads = 1, .kv_type = kv_type};
    assert_int_equal(engine_open(&o, &en, &e), ERR_UNSUPPORTED);
    assert_null(en);
    if (!strstr(e.text, why)) {
        fail_msg("%s", e.text);
    }
    close(f.fd);
}

static void compressed_keys_and_values_say_what_they_do_not_do(void **state)
{
    (void)state;
    struct gguf_writer w;
    put("deepseek2", QUANT_F16, &w);
    gguf_put_f32(&w, "deepseek2.attention.temperature_scale", 0.1f);
    open_refuses(&w, KV_F16, "deepseek2.attention.temperature_scale");
    gguf_writer_done(&w);

    put("deepseek2", QUANT_F16, &w);
    assert_true(gguf_remove(&w, "deepseek2.attention.value_length_mla"));
    gguf_put_u32(&w, "deepseek2.attention.value_length_mla", 40);
    open_refuses(&w, KV_F16, "multiples of 32");
    gguf_writer_done(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_architecture_keeps_its_bits_and_differs_from_the_others),
        cmocka_unit_test(compressed_rows_are_kept_in_q8_0_too),
        cmocka_unit_test(each_tensor_of_an_architecture_is_needed),
        cmocka_unit_test(a_fused_file_with_halved_heads_gives_the_same_bits),
        cmocka_unit_test(rotations_are_scaled_as_the_file_says),
        cmocka_unit_test(compressed_keys_and_values_say_what_they_do_not_do),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
