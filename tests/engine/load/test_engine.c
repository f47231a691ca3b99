/*
 * The engine's door over synthetic models, and the facts of the default one: every weight type
 * loads and runs, what decides the bits of a KV block decides the fingerprint, and a pass that is
 * refused changes nothing.
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
#include <sys/stat.h>
#include <unistd.h>

#include "engine/engine.h"
#include "engine/gguf.h"
#include "engine/model.h"
#include "engine/quant.h"
#include "tests/engine/load/gguf_model.h"

#define N_VOCAB 300

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

static struct engine *open_path(const char *path)
{
    struct engine *en = NULL;
    struct err e = {0};
    const struct engine_options o = {.model_path = path, .n_threads = 1};
    if (engine_open(&o, &en, &e)) {
        fail_msg("%s", e.text);
    }
    return en;
}

/* Opens what the writer holds. */
static struct engine *open_writer(const struct gguf_writer *w)
{
    struct file f = save(w);
    struct engine *en = open_path(f.path);
    close(f.fd); /* the engine needs the file no more */
    return en;
}

static struct engine *open_model(const struct gguf_model *m)
{
    struct gguf_writer w;
    gguf_writer_init(&w);
    gguf_model_put(m, &w);
    struct engine *en = open_writer(&w);
    gguf_writer_done(&w);
    return en;
}

/* Logits after ids 0 … n − 1, in one pass. */
static void run(struct engine *en, int n, float logits[N_VOCAB])
{
    struct kv_pool *pool = NULL;
    struct kv_seq s;
    struct err e = {0};
    int32_t ids[64];
    kv_seq_init(&s);
    assert_int_equal(kv_pool_new(&engine_info(en)->kv, 2, &pool, &e), 0);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(kv_seq_push(&s, kv_take(pool), &e), 0);
    }
    for (int i = 0; i < n; i++) {
        ids[i] = (i * 37 + 11) % N_VOCAB;
    }
    struct engine_part p = {.seq = &s, .ids = ids, .n_ids = n, .n_logits = 1, .logits = logits};
    if (engine_pass(en, &p, 1, NULL, &e)) {
        fail_msg("%s", e.text);
    }
    assert_int_equal(s.n_tokens, n);
    kv_seq_done(&s);
    kv_pool_free(pool);
}

static void every_type_loads_and_runs(void **state)
{
    (void)state;
    static const uint32_t types[] = {QUANT_F32,  QUANT_F16,  QUANT_BF16, QUANT_Q8_0,
                                     QUANT_Q4_0, QUANT_Q4_1, QUANT_Q5_0, QUANT_Q5_1,
                                     QUANT_Q2_K, QUANT_Q3_K, QUANT_Q4_K, QUANT_Q5_K,
                                     QUANT_Q6_K, QUANT_IQ4_NL};
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        struct gguf_model m = gguf_model_small(types[i]);
        float logits[N_VOCAB];
        if (quant_type(types[i])->block_values == 256) {
            gguf_model_k_shape(&m);
        }
        m.output_type = i % 2 ? (int64_t)types[i] : -1;
        struct engine *en = open_model(&m);
        const struct engine_info *info = engine_info(en);
        assert_int_equal(info->n_vocab, N_VOCAB);
        assert_int_equal(info->n_layers, 2);
        assert_int_equal(info->n_ctx_train, 512);
        assert_string_equal(info->arch, "llama");
        assert_string_equal(info->name, "Random weights");
        assert_true(isnan(info->sampling_temperature));
        run(en, 40, logits);
        double sum = 0;
        for (int k = 0; k < N_VOCAB; k++) {
            assert_true(isfinite(logits[k]));
            sum += (double)logits[k] * (double)logits[k];
        }
        assert_true(sum > 0);
        engine_close(en);
    }
}

typedef void change(struct gguf_model *m, struct gguf_writer *w);

static void no_change(struct gguf_model *m, struct gguf_writer *w)
{
    (void)m, (void)w;
}

static void another_seed(struct gguf_model *m, struct gguf_writer *w)
{
    (void)m;
    w->seed++;
}

static void another_rope(struct gguf_model *m, struct gguf_writer *w)
{
    (void)m;
    gguf_remove(w, "llama.rope.freq_base");
    gguf_put_f32(w, "llama.rope.freq_base", 10000.0f);
}

static void another_epsilon(struct gguf_model *m, struct gguf_writer *w)
{
    (void)m;
    gguf_remove(w, "llama.attention.layer_norm_rms_epsilon");
    gguf_put_f32(w, "llama.attention.layer_norm_rms_epsilon", 1e-6f);
}

static void another_scaling(struct gguf_model *m, struct gguf_writer *w)
{
    (void)m;
    gguf_put_f32(w, "llama.rope.scaling.factor", 2.0f);
}

static void another_name(struct gguf_model *m, struct gguf_writer *w)
{
    (void)m;
    gguf_remove(w, "general.name");
    gguf_put_str(w, "general.name", "Something else");
}

static void no_template(struct gguf_model *m, struct gguf_writer *w)
{
    (void)m;
    gguf_remove(w, "tokenizer.chat_template");
}

static void facts_of(change *c, uint8_t fingerprint[32], uint8_t render[32])
{
    struct gguf_model m = gguf_model_small(QUANT_Q4_0);
    struct gguf_writer w;
    gguf_writer_init(&w);
    gguf_model_put(&m, &w);
    c(&m, &w);
    struct engine *en = open_writer(&w);
    memcpy(fingerprint, engine_info(en)->fingerprint, 32);
    memcpy(render, engine_info(en)->render_id, 32);
    engine_close(en);
    gguf_writer_done(&w);
}

static void the_fingerprint_is_what_decides_the_bits(void **state)
{
    (void)state; /* B71 */
    static const struct {
        change *change;
        bool is_other_model, is_other_rendering;
    } cases[] = {
        {no_change, false, false},      {another_name, false, false},
        {no_template, false, true},     {another_seed, true, false},
        {another_rope, true, false},    {another_epsilon, true, false},
        {another_scaling, true, false},
    };
    uint8_t fingerprint[32], render[32], f[32], r[32];
    facts_of(no_change, fingerprint, render);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        facts_of(cases[i].change, f, r);
        assert_int_equal(memcmp(f, fingerprint, 32) != 0, cases[i].is_other_model);
        assert_int_equal(memcmp(r, render, 32) != 0, cases[i].is_other_rendering);
    }
}

/* Of a file in which one bit of the byte at `at` was changed, if that is within it. */
static void fingerprint_with(const struct file *f, off_t at, uint8_t ret[32])
{
    uint8_t byte = 0;
    if (at >= 0) {
        assert_int_equal(pread(f->fd, &byte, 1, at), 1);
        byte ^= 1;
        assert_int_equal(pwrite(f->fd, &byte, 1, at), 1);
    }
    struct engine *en = open_path(f->path);
    memcpy(ret, engine_info(en)->fingerprint, 32);
    engine_close(en);
    if (at >= 0) {
        byte ^= 1;
        assert_int_equal(pwrite(f->fd, &byte, 1, at), 1);
    }
}

/* First and last bytes of every tensor, and of the leaves that a large one is hashed by. */
static void a_changed_byte_anywhere_is_another_model(void **state)
{
    (void)state;
    struct gguf_model m = gguf_model_small(QUANT_Q8_0);
    struct gguf_writer w;
    struct buf header;
    uint8_t as_is[32], other[32], again[32];
    const uint64_t leaf = 64 << 10;
    m.embd_type = QUANT_F32;
    gguf_writer_init(&w);
    gguf_model_put(&m, &w);
    buf_init(&header, 1 << 20);
    gguf_writer_header(&w, &header);
    struct file f = save(&w);
    fingerprint_with(&f, -1, as_is);
    int n_large = 0;
    for (size_t i = 0; i < w.n; i++) {
        const struct gguf_writer_tensor *t = &w.tensors[i];
        const off_t first = (off_t)(header.len + t->offset);
        const uint64_t at[] = {0, t->n_bytes - 1, leaf - 1, leaf};
        n_large += t->n_bytes > leaf;
        for (size_t k = 0; k < (t->n_bytes > leaf ? 4 : 2); k++) {
            fingerprint_with(&f, first + (off_t)at[k], other);
            assert_memory_not_equal(other, as_is, 32);
        }
    }
    assert_true(n_large > 0);
    fingerprint_with(&f, -1, again);
    assert_memory_equal(again, as_is, 32);
    close(f.fd);
    buf_done(&header);
    gguf_writer_done(&w);
}

static void write_into(void *ctx, double done)
{
    const struct file *f = ctx;
    uint8_t byte;
    const off_t last = lseek(f->fd, 0, SEEK_END) - 1;
    (void)done;
    assert_int_equal(pread(f->fd, &byte, 1, last), 1);
    byte ^= 1;
    assert_int_equal(pwrite(f->fd, &byte, 1, last), 1);
}

/* What is packed is what was hashed, or nothing is served. */
static void a_file_that_is_written_to_while_it_is_read_is_refused(void **state)
{
    (void)state;
    struct gguf_model m = gguf_model_small(QUANT_Q8_0);
    struct gguf_writer w;
    const struct timespec long_ago[2] = {{.tv_sec = 1700000000}, {.tv_sec = 1700000000}};
    gguf_writer_init(&w);
    gguf_model_put(&m, &w);
    struct file f = save(&w);
    gguf_writer_done(&w);
    assert_int_equal(futimens(f.fd, long_ago), 0);
    struct engine *en = open_path(f.path);
    engine_close(en);
    en = NULL;
    struct err e = {0};
    const struct engine_options o = {
        .model_path = f.path, .n_threads = 1, .on_progress = write_into, .progress_ctx = &f};
    assert_int_equal(engine_open(&o, &en, &e), ERR_CORRUPT);
    assert_null(en);
    assert_non_null(strstr(e.text, "written to while it was read"));
    close(f.fd);
}

static void linear_scaling_divides_positions(void **state)
{
    (void)state;
    struct gguf_model m = gguf_model_small(QUANT_F32);
    struct gguf_writer w;
    struct gguf *g = NULL;
    struct model *model = NULL;
    struct err e = {0};
    gguf_writer_init(&w);
    gguf_model_put(&m, &w);
    gguf_put_str(&w, "llama.rope.scaling.type", "linear");
    gguf_put_f32(&w, "llama.rope.scaling.factor", 4.0f);
    struct file f = save(&w);
    gguf_writer_done(&w);
    const struct engine_options o = {.model_path = f.path};
    assert_int_equal(gguf_open(f.path, &g, &e), 0);
    assert_int_equal(model_open(g, &o, NULL, &model, &e), 0);
    gguf_close(g);
    for (int pos = 0; pos < 512; pos += 73) {
        for (int i = 0; i < 16; i++) {
            const double angle = pos * 0.25 * pow(100000.0, -2.0 * i / 32);
            const float *cs = model->rope + ((size_t)pos * 16 + (size_t)i) * 2;
            assert_true(fabs((double)cs[0] - cos(angle)) < 1e-7);
            assert_true(fabs((double)cs[1] - sin(angle)) < 1e-7);
        }
    }
    assert_int_equal((uintptr_t)model->output_norm % 64, 0);
    assert_ptr_equal(model->lm_head, &model->embd);
    model_close(model);
    close(f.fd);
}

static void a_template_option_overrides_the_files(void **state)
{
    (void)state;
    struct gguf_model m = gguf_model_small(QUANT_Q4_0);
    struct gguf_writer w;
    struct engine *en = NULL;
    struct err e = {0};
    gguf_writer_init(&w);
    gguf_model_put(&m, &w);
    gguf_remove(&w, "tokenizer.chat_template");
    gguf_put_str(&w, "tokenizer.chat_template", "{% frobnicate %}");
    struct file f = save(&w);
    gguf_writer_done(&w);
    struct engine_options o = {.model_path = f.path, .n_threads = 1, .chat_template = "chatml"};
    assert_int_equal(engine_open(&o, &en, &e), 0);
    assert_string_equal(chat_family(engine_chat(en)), "chatml");
    engine_close(en);
    en = NULL;
    o.chat_template = "klingon";
    assert_int_equal(engine_open(&o, &en, &e), ERR_UNSUPPORTED);
    o.chat_template = "/nonexistent/t.jinja";
    assert_int_equal(engine_open(&o, &en, &e), ERR_NOTFOUND);
    o.chat_template = NULL;
    o.isa = "mmx";
    assert_true(engine_open(&o, &en, &e) < 0);
    assert_null(en);
    close(f.fd);
}

static void a_refused_or_canceled_pass_changes_nothing(void **state)
{
    (void)state;
    const struct gguf_model m = gguf_model_small(QUANT_Q4_0);
    struct engine *en = open_model(&m);
    struct kv_pool *pool = NULL;
    struct kv_seq s;
    struct err e;
    int32_t ids[40] = {0};
    float logits[N_VOCAB];
    const atomic_int stop = 1;
    kv_seq_init(&s);
    assert_int_equal(kv_pool_new(&engine_info(en)->kv, 2, &pool, &e), 0);
    assert_int_equal(kv_seq_push(&s, kv_take(pool), &e), 0);
    struct engine_part p = {.seq = &s, .ids = ids, .n_ids = 33, .n_logits = 1, .logits = logits};
    assert_int_equal(engine_pass(en, &p, 1, NULL, &e), ERR_INVAL); /* 32 positions */
    p.n_ids = 8;
    ids[7] = N_VOCAB;
    assert_int_equal(engine_pass(en, &p, 1, NULL, &e), ERR_INVAL);
    assert_non_null(strstr(e.text, "300"));
    ids[7] = -1;
    assert_int_equal(engine_pass(en, &p, 1, NULL, &e), ERR_INVAL);
    ids[7] = 0;
    p.n_logits = 9;
    assert_int_equal(engine_pass(en, &p, 1, NULL, &e), ERR_INVAL);
    p.n_logits = 1;
    assert_int_equal(engine_pass(en, &p, 1, &stop, &e), ERR_CANCELED);
    assert_int_equal(s.n_tokens, 0);
    const struct kv_shape *shape = kv_pool_shape(pool);
    for (size_t i = 0; i < shape->block_bytes; i++) {
        assert_int_equal(s.blocks[0]->data[i], 0);
    }
    assert_int_equal(engine_pass(en, &p, 1, NULL, &e), 0);
    assert_int_equal(s.n_tokens, 8);
    assert_true(engine_progress(en) >= 2);
    assert_true(engine_set_threads(en, 0, &e) < 0);
    assert_true(engine_set_isa(en, "mmx", &e) < 0);
    kv_seq_done(&s);
    kv_pool_free(pool);
    engine_close(en);
    engine_close(NULL);
}

static const char *default_model(void)
{
    const char *path = getenv("HEARTH_MODEL");
    return path && !access(path, R_OK) ? path : NULL;
}

static void the_default_models_facts(void **state)
{
    (void)state;
    if (!default_model()) {
        skip();
    }
    struct engine *en = open_path(default_model());
    const struct engine_info *i = engine_info(en);
    assert_string_equal(i->id, "SmolLM2-135M-Instruct.Q4_1");
    assert_string_equal(i->quant, "Q4_1");
    assert_int_equal(i->n_vocab, 49152);
    assert_int_equal(i->n_layers, 30);
    assert_int_equal(i->n_embd, 576);
    assert_int_equal(i->n_heads, 9);
    assert_int_equal(i->n_kv_heads, 3);
    assert_int_equal(i->head_dim, 64);
    assert_int_equal(i->n_ctx_train, 8192);
    assert_int_equal(i->kv.block_bytes, 32 * 23040);
    assert_int_equal(i->file_bytes, 98362432);
    assert_int_equal(i->n_params, 134515008);
    assert_true(i->weights_bytes < 105000000); /* packing doesn't blow the weights up */
    assert_string_equal(chat_family(engine_chat(en)), "chatml");
    engine_close(en);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_type_loads_and_runs),
        cmocka_unit_test(the_fingerprint_is_what_decides_the_bits),
        cmocka_unit_test(a_changed_byte_anywhere_is_another_model),
        cmocka_unit_test(a_file_that_is_written_to_while_it_is_read_is_refused),
        cmocka_unit_test(linear_scaling_divides_positions),
        cmocka_unit_test(a_template_option_overrides_the_files),
        cmocka_unit_test(a_refused_or_canceled_pass_changes_nothing),
        cmocka_unit_test(the_default_models_facts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
