/*
 * Hostile and broken GGUF files: each is a good synthetic model with one thing spoilt, and each is
 * refused with an error that names the thing. Nothing is allocated on a file's word: after all of
 * them the process has not grown by 64 MiB. Run it under the sanitizers.
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
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/sys.h"
#include "engine/engine.h"
#include "engine/gguf.h"
#include "engine/quant.h"
#include "tests/engine/load/gguf_model.h"

#define RSS_GROWTH_MAX ((long)64 << 10) /* KiB */

struct file {
    int fd;
    char path[64];
};

static struct file file_new(void)
{
    struct file f = {.fd = memfd_create("gguf", MFD_CLOEXEC)};
    assert_true(f.fd >= 0);
    snprintf(f.path, sizeof f.path, "/proc/self/fd/%d", f.fd);
    return f;
}

static void good(struct gguf_writer *w)
{
    const struct gguf_model m = gguf_model_small(QUANT_Q4_0);
    gguf_writer_init(w);
    gguf_model_put(&m, w);
}

/* Opens the file both ways; the engine's answer decides. */
static int try_open(const char *path, struct err *e)
{
    struct gguf *g = NULL;
    struct engine *en = NULL;
    struct err ignored = {0};
    const struct engine_options o = {.model_path = path, .n_threads = 1};
    const int as_gguf = gguf_open(path, &g, &ignored);
    assert_true(as_gguf == 0 ? g != NULL : g == NULL && ignored.text[0]);
    gguf_close(g);
    memset(e, 0, sizeof *e);
    const int rc = engine_open(&o, &en, e);
    assert_true(rc == 0 ? en != NULL : en == NULL && e->text[0] && e->code == rc);
    assert_true(as_gguf == 0 || rc != 0);
    engine_close(en);
    return rc;
}

static void expect(const char *what, const char *path, int want, const char *text)
{
    struct err e;
    const int rc = try_open(path, &e);
    if (rc != want || (text && !strstr(e.text, text))) {
        fail_msg("%s: %d \"%s\", wanted %d with \"%s\"", what, rc, e.text, want, text ? text : "");
    }
}

struct spoilt {
    const char *what;
    void (*spoil)(struct gguf_writer *w);
    int want;
    const char *text;
};

static void run(const struct spoilt *cases, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        struct gguf_writer w;
        struct file f = file_new();
        good(&w);
        cases[i].spoil(&w);
        assert_true(gguf_writer_save_fd(&w, f.fd));
        gguf_writer_done(&w);
        expect(cases[i].what, f.path, cases[i].want, cases[i].text);
        close(f.fd);
    }
}

/* One spoiler in a line. */
#define SPOIL(name, ...)                                                                           \
    static void name(struct gguf_writer *w)                                                        \
    {                                                                                              \
        __VA_ARGS__                                                                                \
    }

static void replace(struct gguf_writer *w, const char *key, int type, int64_t v)
{
    gguf_remove(w, key);
    gguf_put_int(w, key, type, v);
}

/* ---- the head ---- */

SPOIL(nothing, (void)w;)
SPOIL(version_1, w->version = 1;)
SPOIL(version_4, w->version = 4;)
SPOIL(version_0, w->version = 0;)
SPOIL(big_endian, w->version = 0x03000000;)
SPOIL(tensors_2_63, w->n_tensors = (uint64_t)1 << 63;)
SPOIL(tensors_2_64_1, w->n_tensors = UINT64_MAX;)
SPOIL(tensors_2_32, w->n_tensors = (uint64_t)1 << 32;)
SPOIL(tensors_one_more, w->n_tensors++;)
SPOIL(tensors_one_less, w->n_tensors--;)
SPOIL(tensors_none, w->n_tensors = 0; w->n = 0;)
SPOIL(keys_2_63, w->n_kv = (uint64_t)1 << 63;)
SPOIL(keys_2_64_1, w->n_kv = UINT64_MAX;)
SPOIL(keys_2_32, w->n_kv = (uint64_t)1 << 32;)
SPOIL(keys_one_more, w->n_kv++;)
SPOIL(keys_one_less, w->n_kv--;)
SPOIL(keys_none, w->n_kv = 0; w->kv.len = 0;)

static void the_heads_counts_are_not_believed(void **state)
{
    (void)state;
    static const struct spoilt cases[] = {
        {"nothing spoilt", nothing, 0, NULL},
        {"version 0", version_0, ERR_UNSUPPORTED, "version 0"},
        {"version 1", version_1, ERR_UNSUPPORTED, "version 1"},
        {"version 4", version_4, ERR_UNSUPPORTED, "version 4"},
        {"big-endian", big_endian, ERR_UNSUPPORTED, "big-endian"},
        {"2^63 tensors", tensors_2_63, ERR_CORRUPT, "9223372036854775808 tensors"},
        {"2^64 - 1 tensors", tensors_2_64_1, ERR_CORRUPT, "18446744073709551615 tensors"},
        {"2^32 tensors", tensors_2_32, ERR_CORRUPT, "4294967296 tensors"},
        {"one tensor too many", tensors_one_more, ERR_CORRUPT, NULL},
        {"one tensor less", tensors_one_less, ERR_CORRUPT, NULL},
        {"no tensors", tensors_none, ERR_CORRUPT, "token_embd.weight is missing"},
        {"2^63 keys", keys_2_63, ERR_CORRUPT, "metadata keys"},
        {"2^64 - 1 keys", keys_2_64_1, ERR_CORRUPT, "metadata keys"},
        {"2^32 keys", keys_2_32, ERR_CORRUPT, "metadata keys"},
        {"one key too many", keys_one_more, ERR_CORRUPT, NULL},
        {"one key less", keys_one_less, ERR_CORRUPT, NULL},
        {"no keys", keys_none, ERR_CORRUPT, "general.architecture"},
    };
    run(cases, sizeof cases / sizeof *cases);
}

/* ---- metadata ---- */

static void put_count(struct gguf_writer *w, uint32_t type, uint64_t n)
{
    unsigned char raw[12];
    memcpy(raw, &type, 4);
    memcpy(raw + 4, &n, 8);
    gguf_put_raw(w, "test.array", GGUF_ARRAY, raw, sizeof raw);
}

SPOIL(string_2_64_1, gguf_put_raw(w, "test.string", GGUF_STRING, &(uint64_t){UINT64_MAX}, 8);)
SPOIL(string_past_the_end,
      gguf_put_raw(w, "test.string", GGUF_STRING, &(uint64_t){(uint64_t)1 << 40}, 8);)
SPOIL(type_99, gguf_put_raw(w, "test.key", 99, "", 0);)
SPOIL(array_of_arrays, put_count(w, GGUF_ARRAY, 1);)
SPOIL(array_of_99, put_count(w, 99, 1);)
SPOIL(array_2_64_1, put_count(w, GGUF_U8, UINT64_MAX);)
SPOIL(array_2_61, put_count(w, GGUF_U64, (uint64_t)1 << 61);)
SPOIL(strings_2_61, put_count(w, GGUF_STRING, (uint64_t)1 << 61);)
SPOIL(strings_many, put_count(w, GGUF_STRING, 2000);)
SPOIL(key_twice, gguf_put_u32(w, "llama.block_count", 1);)

static void metadata_is_not_believed(void **state)
{
    (void)state;
    static const struct spoilt cases[] = {
        {"string of 2^64 - 1", string_2_64_1, ERR_CORRUPT, "test.string"},
        {"string of 2^40", string_past_the_end, ERR_CORRUPT, "test.string"},
        {"value type 99", type_99, ERR_CORRUPT, "type 99"},
        {"array of arrays", array_of_arrays, ERR_CORRUPT, "arrays"},
        {"array of type 99", array_of_99, ERR_CORRUPT, "type 99"},
        {"array of 2^64 - 1", array_2_64_1, ERR_CORRUPT, "test.array"},
        {"2^61 numbers of 8 bytes", array_2_61, ERR_CORRUPT, "test.array"},
        {"2^61 strings", strings_2_61, ERR_CORRUPT, "test.array"},
        {"strings longer than the file", strings_many, ERR_CORRUPT, NULL},
        {"a key twice", key_twice, ERR_CORRUPT, "llama.block_count"},
    };
    run(cases, sizeof cases / sizeof *cases);
}

SPOIL(alignment_i32, gguf_put_int(w, "general.alignment", GGUF_I32, 32);)
SPOIL(alignment_string, gguf_put_str(w, "general.alignment", "32");)
SPOIL(alignment_array, gguf_put_i32s(w, "general.alignment", (const int32_t[]){32}, 1);)
SPOIL(alignment_0, gguf_put_u32(w, "general.alignment", 0);)
SPOIL(alignment_24, gguf_put_u32(w, "general.alignment", 24);)
SPOIL(alignment_2_31, gguf_put_u32(w, "general.alignment", 0x80000000u);)
SPOIL(alignment_64, gguf_put_u32(w, "general.alignment", 64);)
SPOIL(split, gguf_put_int(w, "split.count", GGUF_U16, 3);)
SPOIL(arch_gemma, gguf_remove(w, "general.architecture");
      gguf_put_str(w, "general.architecture", "mamba2");)
SPOIL(arch_number, replace(w, "general.architecture", GGUF_U32, 1);)
SPOIL(heads_0, replace(w, "llama.attention.head_count", GGUF_U32, 0);)
SPOIL(heads_array, gguf_remove(w, "llama.attention.head_count");
      gguf_put_i32s(w, "llama.attention.head_count", (const int32_t[]){3}, 1);)
SPOIL(heads_negative, replace(w, "llama.attention.head_count", GGUF_I32, -3);)
SPOIL(heads_uneven, replace(w, "llama.attention.head_count_kv", GGUF_U32, 2);)
SPOIL(context_0, replace(w, "llama.context_length", GGUF_U32, 0);)
SPOIL(context_2_31, replace(w, "llama.context_length", GGUF_U32, (int64_t)1 << 31);)
SPOIL(context_missing, gguf_remove(w, "llama.context_length");)
SPOIL(layers_0, replace(w, "llama.block_count", GGUF_U32, 0);)
SPOIL(layers_3, replace(w, "llama.block_count", GGUF_U32, 3);)
SPOIL(layers_1, replace(w, "llama.block_count", GGUF_U32, 1);)
SPOIL(layers_huge, replace(w, "llama.block_count", GGUF_U64, -1);)
SPOIL(embd_huge, replace(w, "llama.embedding_length", GGUF_U32, 0xffffffff);)
SPOIL(embd_other, replace(w, "llama.embedding_length", GGUF_U32, 128);)
SPOIL(rope_odd, replace(w, "llama.rope.dimension_count", GGUF_U32, 31);)
SPOIL(rope_wide, replace(w, "llama.rope.dimension_count", GGUF_U32, 64);)
SPOIL(rope_nan, gguf_remove(w, "llama.rope.freq_base");
      gguf_put_f32(w, "llama.rope.freq_base", 0.0f / (float)(w->seed == 0));)
SPOIL(rope_string, gguf_remove(w, "llama.rope.freq_base");
      gguf_put_str(w, "llama.rope.freq_base", "10000");)
SPOIL(rope_yarn, gguf_put_str(w, "llama.rope.scaling.type", "dynamic");)
SPOIL(rope_linear, gguf_put_str(w, "llama.rope.scaling.type", "linear");
      gguf_put_f32(w, "llama.rope.scaling.factor", 4.0f);)
SPOIL(eps_missing, gguf_remove(w, "llama.attention.layer_norm_rms_epsilon");)
SPOIL(eps_0, gguf_remove(w, "llama.attention.layer_norm_rms_epsilon");
      gguf_put_f32(w, "llama.attention.layer_norm_rms_epsilon", 0.0f);)
SPOIL(experts, gguf_put_u32(w, "llama.expert_count", 8);)
SPOIL(many_experts, gguf_put_u32(w, "llama.expert_count", UINT32_MAX);)
SPOIL(no_experts, gguf_put_u32(w, "llama.expert_count", 8);
      gguf_put_u32(w, "llama.expert_used_count", 2);)
SPOIL(wide_experts, gguf_put_u32(w, "llama.expert_count", 1024);
      gguf_put_u32(w, "llama.expert_used_count", 2);
      gguf_put_u32(w, "llama.expert_feed_forward_length", 1u << 20);)
SPOIL(dense_experts, gguf_put_u32(w, "llama.expert_count", 8);
      gguf_put_u32(w, "llama.expert_used_count", 2);
      gguf_put_u32(w, "llama.leading_dense_block_count", 1000);)
SPOIL(window, gguf_put_i32s(w, "llama.attention.sliding_window", (const int32_t[]){4096}, 1);)
SPOIL(logit_scale, gguf_put_f32(w, "llama.logit_scale", 0.5f);)
SPOIL(values_other, replace(w, "llama.attention.value_length", GGUF_U32, 64);)

static void hyperparameters_are_checked_for_type_range_and_sense(void **state)
{
    (void)state;
    static const struct spoilt cases[] = {
        {"alignment as i32", alignment_i32, ERR_CORRUPT, "general.alignment"},
        {"alignment as a string", alignment_string, ERR_CORRUPT, "general.alignment"},
        {"alignment as an array", alignment_array, ERR_CORRUPT, "general.alignment"},
        {"alignment 0", alignment_0, ERR_CORRUPT, "general.alignment"},
        {"alignment 24", alignment_24, ERR_CORRUPT, "general.alignment"},
        {"alignment 2^31", alignment_2_31, ERR_CORRUPT, "general.alignment"},
        {"alignment 64 over tensors at 32", alignment_64, ERR_CORRUPT, "alignment"},
        {"split file", split, ERR_UNSUPPORTED, "3 parts"},
        {"another architecture", arch_gemma, ERR_UNSUPPORTED, "\"mamba2\""},
        {"architecture as a number", arch_number, ERR_CORRUPT, "general.architecture"},
        {"0 heads", heads_0, ERR_CORRUPT, "llama.attention.head_count"},
        {"an array of heads", heads_array, ERR_CORRUPT, "llama.attention.head_count"},
        {"-3 heads", heads_negative, ERR_CORRUPT, "-3"},
        {"2 KV heads for 3", heads_uneven, ERR_CORRUPT, "evenly"},
        {"context 0", context_0, ERR_CORRUPT, "llama.context_length"},
        {"context 2^31", context_2_31, ERR_CORRUPT, "2147483648"},
        {"no context", context_missing, ERR_CORRUPT, "llama.context_length"},
        {"0 layers", layers_0, ERR_CORRUPT, "llama.block_count"},
        {"more layers than tensors", layers_3, ERR_CORRUPT, "blk.2."},
        {"fewer layers than tensors", layers_1, ERR_UNSUPPORTED, "blk.1."},
        {"2^64 - 1 layers", layers_huge, ERR_CORRUPT, "18446744073709551615"},
        {"an embedding of 2^32 - 1", embd_huge, ERR_CORRUPT, "4294967295"},
        {"another embedding", embd_other, ERR_CORRUPT, "token_embd.weight"},
        {"31 rotated dimensions", rope_odd, ERR_CORRUPT, "rope.dimension_count"},
        {"64 of 32 rotated", rope_wide, ERR_CORRUPT, "rope.dimension_count"},
        {"a rope base that is no number", rope_nan, ERR_CORRUPT, "rope.freq_base"},
        {"a rope base in letters", rope_string, ERR_CORRUPT, "rope.freq_base"},
        {"another rope scaling", rope_yarn, ERR_UNSUPPORTED, "dynamic"},
        {"linear scaling", rope_linear, 0, NULL},
        {"no epsilon", eps_missing, ERR_CORRUPT, "rms_epsilon"},
        {"epsilon 0", eps_0, ERR_CORRUPT, "rms_epsilon"},
        {"experts", experts, ERR_CORRUPT, "0 of 8 experts"},
        {"many experts", many_experts, ERR_CORRUPT, "llama.expert_count"},
        {"no experts", no_experts, ERR_CORRUPT, "blk.0.ffn_gate_inp.weight is missing"},
        {"wide experts", wide_experts, ERR_CORRUPT, "blk.0.ffn_gate_inp.weight is missing"},
        {"dense experts", dense_experts, ERR_CORRUPT, "leading_dense_block_count"},
        {"a list of windows", window, ERR_CORRUPT, "sliding_window"},
        {"a logit scale", logit_scale, ERR_UNSUPPORTED, "logit_scale"},
        {"values unlike keys", values_other, ERR_UNSUPPORTED, "64"},
    };
    run(cases, sizeof cases / sizeof *cases);
}

/* ---- the tokenizer ---- */

static void put_pieces(struct gguf_writer *w, const char *key, const char *one, size_t n)
{
    struct tok_str *v = calloc(n, sizeof *v);
    for (size_t i = 0; i < n; i++) {
        v[i] = (struct tok_str){one, strlen(one)};
    }
    gguf_remove(w, key);
    gguf_put_strs(w, key, v, n);
    free(v);
}

SPOIL(tokens_numbers, gguf_remove(w, "tokenizer.ggml.tokens");
      gguf_put_i32s(w, "tokenizer.ggml.tokens", (const int32_t[]){1, 2}, 2);)
SPOIL(tokens_missing, gguf_remove(w, "tokenizer.ggml.tokens");)
SPOIL(tokens_two, put_pieces(w, "tokenizer.ggml.tokens", "a", 2);)
SPOIL(tokens_none, put_pieces(w, "tokenizer.ggml.tokens", "", 0);)
SPOIL(tokens_empty, put_pieces(w, "tokenizer.ggml.tokens", "", 300);)
SPOIL(tokens_same, put_pieces(w, "tokenizer.ggml.tokens", "a", 300);)
SPOIL(types_short, gguf_remove(w, "tokenizer.ggml.token_type");
      gguf_put_i32s(w, "tokenizer.ggml.token_type", (const int32_t[]){1, 1}, 2);)
SPOIL(types_missing, gguf_remove(w, "tokenizer.ggml.token_type");)
SPOIL(scores_short, gguf_put_i32s(w, "tokenizer.ggml.scores", (const int32_t[]){1, 1}, 2);)
SPOIL(scores_number, gguf_put_u32(w, "tokenizer.ggml.scores", 1);)
SPOIL(eos_high, replace(w, "tokenizer.ggml.eos_token_id", GGUF_U32, 300);)
SPOIL(eos_negative, replace(w, "tokenizer.ggml.eos_token_id", GGUF_I32, -1);)
SPOIL(eos_string, gguf_remove(w, "tokenizer.ggml.eos_token_id");
      gguf_put_str(w, "tokenizer.ggml.eos_token_id", "2");)
SPOIL(bos_wanted, replace(w, "tokenizer.ggml.add_bos_token", GGUF_BOOL, 1);)
SPOIL(bos_bool_2, replace(w, "tokenizer.ggml.add_bos_token", GGUF_BOOL, 2);)
SPOIL(bos_int, replace(w, "tokenizer.ggml.add_bos_token", GGUF_U32, 0);)
SPOIL(merges_bare, put_pieces(w, "tokenizer.ggml.merges", "ab", 4);)
SPOIL(merges_empty, put_pieces(w, "tokenizer.ggml.merges", "", 4);)
SPOIL(merges_missing, gguf_remove(w, "tokenizer.ggml.merges");)
SPOIL(model_spm, gguf_remove(w, "tokenizer.ggml.model");
      gguf_put_str(w, "tokenizer.ggml.model", "llama");)
SPOIL(pre_unknown, gguf_remove(w, "tokenizer.ggml.pre");
      gguf_put_str(w, "tokenizer.ggml.pre", "martian");)
SPOIL(pre_missing, gguf_remove(w, "tokenizer.ggml.pre");)
SPOIL(pre_long, put_pieces(w, "tokenizer.ggml.pre", "a", 1);)
SPOIL(template_strange, gguf_remove(w, "tokenizer.chat_template");
      gguf_put_str(w, "tokenizer.chat_template", "{% frobnicate messages %}");)
SPOIL(template_number, replace(w, "tokenizer.chat_template", GGUF_U32, 1);)
SPOIL(template_nul, gguf_remove(w, "tokenizer.chat_template");
      gguf_put_strn(w, "tokenizer.chat_template", "a\0b", 3);)
SPOIL(template_none, gguf_remove(w, "tokenizer.chat_template");)
SPOIL(sampling_bad, gguf_put_f32(w, "general.sampling.temp", -1.0f);)

static void tokenizers_are_checked_against_the_vocabulary(void **state)
{
    (void)state;
    static const struct spoilt cases[] = {
        {"tokens as numbers", tokens_numbers, ERR_CORRUPT, "tokenizer.ggml.tokens"},
        {"no tokens key", tokens_missing, ERR_CORRUPT, "tokenizer.ggml.tokens"},
        {"two tokens", tokens_two, ERR_CORRUPT, NULL},
        {"zero tokens", tokens_none, ERR_CORRUPT, NULL},
        {"empty tokens", tokens_empty, ERR_CORRUPT, NULL},
        {"300 times one token", tokens_same, ERR_CORRUPT, NULL},
        {"two types", types_short, ERR_CORRUPT, "tokenizer.ggml.token_type"},
        {"no types", types_missing, ERR_UNSUPPORTED, "tokenizer.ggml.token_type"},
        {"two scores", scores_short, ERR_CORRUPT, "tokenizer.ggml.scores"},
        {"scores as a number", scores_number, ERR_CORRUPT, "tokenizer.ggml.scores"},
        {"eos past the vocabulary", eos_high, ERR_CORRUPT, "eos_token_id"},
        {"eos -1", eos_negative, ERR_CORRUPT, "eos_token_id"},
        {"eos as a string", eos_string, ERR_CORRUPT, "eos_token_id"},
        {"a BOS wanted that isn't named", bos_wanted, ERR_CORRUPT, "add_bos_token"},
        {"a bool of 2", bos_bool_2, ERR_CORRUPT, "add_bos_token"},
        {"a bool as u32", bos_int, ERR_CORRUPT, "add_bos_token"},
        {"merges without a space", merges_bare, ERR_CORRUPT, "merge"},
        {"empty merges", merges_empty, ERR_CORRUPT, "merge"},
        {"no merges", merges_missing, ERR_CORRUPT, "tokenizer.ggml.merges"},
        {"SentencePiece without scores", model_spm, ERR_CORRUPT, "tokenizer.ggml.scores"},
        {"an unknown pre-tokenizer", pre_unknown, ERR_UNSUPPORTED, "martian"},
        {"no pre-tokenizer", pre_missing, ERR_UNSUPPORTED, "tokenizer.ggml.pre"},
        {"a list of pre-tokenizers", pre_long, ERR_CORRUPT, "tokenizer.ggml.pre"},
        {"an unknown template", template_strange, ERR_UNSUPPORTED, "--chat-template"},
        {"a template as a number", template_number, ERR_CORRUPT, "chat_template"},
        {"a NUL in the template", template_nul, ERR_CORRUPT, "chat_template"},
        {"no template", template_none, 0, NULL},
        {"a temperature of -1", sampling_bad, ERR_CORRUPT, "general.sampling.temp"},
    };
    run(cases, sizeof cases / sizeof *cases);
}

/* ---- tensors ---- */

static struct gguf_writer_tensor *embd(struct gguf_writer *w)
{
    return gguf_writer_find(w, "token_embd.weight");
}

static struct gguf_writer_tensor *last(struct gguf_writer *w)
{
    return &w->tensors[w->n - 1];
}

static void set_dims(struct gguf_writer_tensor *t, uint32_t n, uint64_t a, uint64_t b)
{
    t->n_dims = n;
    t->dims[0] = a;
    t->dims[1] = b;
}

SPOIL(type_250, embd(w)->type = 250;)
SPOIL(type_iq2, embd(w)->type = 16;)
SPOIL(name_twice, snprintf(last(w)->name, sizeof last(w)->name, "blk.0.attn_q.weight");)
SPOIL(name_empty, last(w)->name[0] = '\0';)
SPOIL(name_long, memset(last(w)->name, 'x', 100); last(w)->name[100] = '\0';)
SPOIL(dims_max, set_dims(embd(w), 2, UINT64_MAX, 2);)
SPOIL(dims_2_32, set_dims(embd(w), 2, (uint64_t)1 << 32, (uint64_t)1 << 32);)
SPOIL(dims_wrap, set_dims(embd(w), 2, ((uint64_t)1 << 42) + 32, 1152);)
SPOIL(dims_0, set_dims(embd(w), 2, 0, 300);)
SPOIL(dims_0_rows, set_dims(embd(w), 2, 96, 0);)
SPOIL(dims_not_blocks, set_dims(embd(w), 2, 95, 300);)
SPOIL(dims_swapped, set_dims(gguf_writer_find(w, "blk.0.ffn_up.weight"), 2, 160, 96);)
SPOIL(dims_third, struct gguf_writer_tensor *t = embd(w); t->n_dims = 3; t->dims[1] = 150;
      t->dims[2] = 2;)
SPOIL(n_dims_0, embd(w)->n_dims = 0;)
SPOIL(n_dims_5, embd(w)->n_dims = 5;)
SPOIL(n_dims_9, embd(w)->n_dims = 9;)
SPOIL(n_dims_max, embd(w)->n_dims = UINT32_MAX;)
SPOIL(offset_wrap, last(w)->offset = UINT64_MAX - 31;)
SPOIL(offset_past, last(w)->offset = (uint64_t)1 << 40;)
SPOIL(offset_unaligned, last(w)->offset += 4;)
SPOIL(offset_overlap, last(w)->offset = embd(w)->offset;)
SPOIL(missing_norm, gguf_remove_tensor(w, "output_norm.weight");)
SPOIL(missing_q, gguf_remove_tensor(w, "blk.1.attn_q.weight");)
SPOIL(extra_bias, gguf_put_tensor(w, "blk.0.attn_q.bias", QUANT_F32, 1, (uint64_t[]){96});)
SPOIL(extra_freqs, gguf_put_tensor(w, "rope_freqs.weight", QUANT_F32, 1, (uint64_t[]){16});)
SPOIL(vocab_other, gguf_put_tensor(w, "output.weight", QUANT_F32, 2, (uint64_t[]){96, 299});)

static void tensors_are_checked_before_anything_is_allocated(void **state)
{
    (void)state;
    static const struct spoilt cases[] = {
        {"type 250", type_250, ERR_UNSUPPORTED, "250"},
        {"type IQ2_XXS", type_iq2, ERR_UNSUPPORTED, "IQ2_XXS"},
        {"a name twice", name_twice, ERR_CORRUPT, "blk.0.attn_q.weight"},
        {"an empty name", name_empty, ERR_CORRUPT, "name"},
        {"a name of 100 bytes", name_long, ERR_CORRUPT, "100 bytes"},
        {"[2^64 - 1, 2]", dims_max, ERR_CORRUPT, "token_embd.weight"},
        {"[2^32, 2^32]", dims_2_32, ERR_CORRUPT, "token_embd.weight"},
        {"[2^42 + 32, 1152]", dims_wrap, ERR_CORRUPT, "token_embd.weight"},
        {"[0, 300]", dims_0, ERR_CORRUPT, "token_embd.weight"},
        {"[96, 0]", dims_0_rows, ERR_CORRUPT, "token_embd.weight"},
        {"rows of 95", dims_not_blocks, ERR_CORRUPT, "95"},
        {"rows for columns", dims_swapped, ERR_CORRUPT, "blk.0.ffn_up.weight"},
        {"three dimensions", dims_third, ERR_CORRUPT, "token_embd.weight"},
        {"0 dimensions", n_dims_0, ERR_CORRUPT, "0 dimensions"},
        {"5 dimensions", n_dims_5, ERR_CORRUPT, "5 dimensions"},
        {"9 dimensions", n_dims_9, ERR_CORRUPT, "9 dimensions"},
        {"2^32 - 1 dimensions", n_dims_max, ERR_CORRUPT, "4294967295 dimensions"},
        {"offset 2^64 - 32", offset_wrap, ERR_CORRUPT, "output_norm.weight"},
        {"offset 2^40", offset_past, ERR_CORRUPT, "output_norm.weight"},
        {"an unaligned offset", offset_unaligned, ERR_CORRUPT, "output_norm.weight"},
        {"two tensors at one place", offset_overlap, ERR_CORRUPT, "overlap"},
        {"no output norm", missing_norm, ERR_CORRUPT, "output_norm.weight"},
        {"no query weights", missing_q, ERR_CORRUPT, "blk.1.attn_q.weight"},
        {"a bias", extra_bias, ERR_UNSUPPORTED, "blk.0.attn_q.bias"},
        {"frequency factors below 0", extra_freqs, ERR_CORRUPT, "of the rotation is -"},
        {"an output of 299 rows", vocab_other, ERR_CORRUPT, "output.weight"},
    };
    run(cases, sizeof cases / sizeof *cases);
}

/* ---- files ---- */

static off_t write_good(struct file *f)
{
    struct gguf_writer w;
    struct stat st;
    good(&w);
    assert_true(gguf_writer_save_fd(&w, f->fd));
    gguf_writer_done(&w);
    assert_int_equal(fstat(f->fd, &st), 0);
    return st.st_size;
}

static void every_cut_of_a_good_file_is_refused(void **state)
{
    (void)state;
    struct file f = file_new();
    const off_t n = write_good(&f);
    off_t cuts[] = {n - 1, n / 2, n / 4, n - 32, 24, 23, 4, 3, 1};
    for (size_t i = 0; i < sizeof cuts / sizeof *cuts;
         i++) { /* growing smaller is all that ftruncate has to do */
        struct file g = file_new();
        const off_t m = write_good(&g);
        assert_int_equal(m, n);
        assert_int_equal(ftruncate(g.fd, cuts[i]), 0);
        expect("a cut file", g.path, ERR_CORRUPT, NULL);
        close(g.fd);
    }
    for (off_t cut = 5; cut < 16000 && cut < n; cut += 61) { /* all over the header */
        struct file g = file_new();
        struct gguf *gguf = NULL;
        struct err e;
        (void)write_good(&g);
        assert_int_equal(ftruncate(g.fd, cut), 0);
        assert_int_equal(gguf_open(g.path, &gguf, &e), ERR_CORRUPT);
        close(g.fd);
    }
    close(f.fd);
}

static void what_is_no_gguf_file_is_refused(void **state)
{
    (void)state;
    struct file f = file_new();
    char fifo[] = "/tmp/hearth-fifo-XXXXXX";
    expect("an empty file", f.path, ERR_CORRUPT, "empty");
    assert_int_equal(write(f.fd, "PK\3\4 and so on, a zip file of some length", 40), 40);
    expect("a zip file", f.path, ERR_CORRUPT, "not a GGUF file");
    expect("nothing", "/nonexistent/model.gguf", ERR_NOTFOUND, "/nonexistent/model.gguf");
    expect("a directory", "/tmp", ERR_INVAL, "directory");
    expect("a device", "/dev/null", ERR_INVAL, "special");
    assert_non_null(mkdtemp(fifo));
    char path[64];
    snprintf(path, sizeof path, "%s/fifo", fifo);
    assert_int_equal(mkfifo(path, 0600), 0);
    expect("a FIFO", path, ERR_INVAL, "special");
    unlink(path);
    rmdir(fifo);
    close(f.fd);
}

/* Each byte of the header in turn becomes 0xff, then 0: refused or harmless, never a fault. */
static void every_byte_of_the_header_may_be_wrong(void **state)
{
    (void)state;
    struct file f = file_new();
    const off_t n = write_good(&f);
    const off_t end = n < 9000 ? n : 9000;
    for (off_t at = 0; at < end; at++) {
        struct gguf *g = NULL;
        struct err e = {0};
        unsigned char was, now = at % 2 ? 0xff : 0;
        assert_int_equal(pread(f.fd, &was, 1, at), 1);
        assert_int_equal(pwrite(f.fd, &now, 1, at), 1);
        if (gguf_open(f.path, &g, &e) == 0) {
            for (size_t i = 0; i < gguf_n_tensors(g); i++) {
                const struct gguf_tensor *t = gguf_tensor_at(g, i);
                assert_true(t->data >= gguf_file_data(g) &&
                            t->data + t->n_bytes <= gguf_file_data(g) + gguf_file_bytes(g));
            }
        } else {
            assert_true(e.text[0] != '\0');
        }
        gguf_close(g);
        assert_int_equal(pwrite(f.fd, &was, 1, at), 1);
    }
    close(f.fd);
}

static void errors_leave_utf8_in_their_text(void **state)
{
    (void)state;
    struct gguf_writer w;
    struct file f = file_new();
    struct err e;
    good(&w);
    gguf_remove(&w, "general.architecture");
    gguf_put_str(&w, "general.architecture", "\xff\xfe\xc3");
    assert_true(gguf_writer_save_fd(&w, f.fd));
    gguf_writer_done(&w);
    assert_int_equal(try_open(f.path, &e), ERR_UNSUPPORTED);
    for (const char *p = e.text; *p; p++) {
        assert_true((unsigned char)*p != 0xff && (unsigned char)*p != 0xfe);
    }
    close(f.fd);
}

static void the_memory_budget_is_checked_with_numbers(void **state)
{
    (void)state;
    struct file f = file_new();
    struct engine *en = NULL;
    struct err e;
    (void)write_good(&f);
    struct engine_options o = {.model_path = f.path, .n_threads = 1, .memory_bytes = 1000};
    assert_int_equal(engine_open(&o, &en, &e), ERR_LIMIT);
    assert_non_null(strstr(e.text, "1000 bytes"));
    assert_null(en);
    o.memory_bytes = (uint64_t)1 << 30;
    assert_int_equal(engine_open(&o, &en, &e), 0);
    assert_true(engine_info(en)->weights_bytes > 100000 &&
                engine_info(en)->weights_bytes < 4000000);
    engine_close(en);
    close(f.fd);
}

static void loading_can_be_canceled_and_tells_its_progress(void **state)
{
    (void)state;
    struct file f = file_new();
    struct engine *en = NULL;
    struct err e;
    atomic_int stop = 1;
    (void)write_good(&f);
    struct engine_options o = {.model_path = f.path, .n_threads = 1, .abort = &stop};
    assert_int_equal(engine_open(&o, &en, &e), ERR_CANCELED);
    assert_null(en);
    close(f.fd);
}

/* They are read at the same time, by two threads. */
static void of_a_bad_vocabulary_and_bad_weights_the_first_is_told(void **state)
{
    (void)state;
    struct gguf_writer w;
    struct file f = file_new();
    struct engine *en = NULL;
    struct err e;
    good(&w);
    gguf_remove(&w, "tokenizer.ggml.token_type");
    assert_true(gguf_writer_save_fd(&w, f.fd));
    gguf_writer_done(&w);
    for (int i = 0; i < 20; i++) {
        const struct engine_options o = {
            .model_path = f.path, .n_threads = 2, .memory_bytes = i % 2 ? 1000 : 0};
        assert_int_equal(engine_open(&o, &en, &e), ERR_UNSUPPORTED);
        assert_non_null(strstr(e.text, "tokenizer.ggml.token_type"));
        assert_null(en);
    }
    close(f.fd);
}

static int fail_in;

static void *failing_malloc(size_t n)
{
    return --fail_in == 0 ? NULL : malloc(n);
}

static void every_allocation_of_the_reader_may_fail(void **state)
{
    (void)state;
    struct file f = file_new();
    (void)write_good(&f);
    for (int i = 1; i < 100; i++) {
        struct gguf *g = NULL;
        struct err e = {0};
        sys.malloc = failing_malloc;
        fail_in = i;
        const int rc = gguf_open(f.path, &g, &e);
        sys_reset();
        if (rc == 0) {
            assert_true(i > 5);
            gguf_close(g);
            close(f.fd);
            return;
        }
        assert_int_equal(rc, ERR_NOMEM);
        assert_null(g);
    }
    fail();
}

static long rss_at_start;

static long max_rss(void)
{
    struct rusage u;
    getrusage(RUSAGE_SELF, &u);
    return u.ru_maxrss;
}

static int measure_start(void **state)
{
    (void)state;
    rss_at_start = max_rss();
    return 0;
}

static void the_process_has_not_grown(void **state)
{
    (void)state;
#if defined(__SANITIZE_ADDRESS__)
    skip(); /* its quarantine keeps what was freed */
#endif
    assert_true(max_rss() - rss_at_start < RSS_GROWTH_MAX);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_heads_counts_are_not_believed),
        cmocka_unit_test(metadata_is_not_believed),
        cmocka_unit_test(hyperparameters_are_checked_for_type_range_and_sense),
        cmocka_unit_test(tokenizers_are_checked_against_the_vocabulary),
        cmocka_unit_test(tensors_are_checked_before_anything_is_allocated),
        cmocka_unit_test(every_cut_of_a_good_file_is_refused),
        cmocka_unit_test(what_is_no_gguf_file_is_refused),
        cmocka_unit_test(every_byte_of_the_header_may_be_wrong),
        cmocka_unit_test(errors_leave_utf8_in_their_text),
        cmocka_unit_test(the_memory_budget_is_checked_with_numbers),
        cmocka_unit_test(of_a_bad_vocabulary_and_bad_weights_the_first_is_told),
        cmocka_unit_test(loading_can_be_canceled_and_tells_its_progress),
        cmocka_unit_test(every_allocation_of_the_reader_may_fail),
        cmocka_unit_test(the_process_has_not_grown),
    };
    return cmocka_run_group_tests(tests, measure_start, NULL);
}
