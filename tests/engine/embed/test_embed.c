/* Embedding models: what is refused, by name; batches; cancelling; memory that runs out. The values
 * are embed.py's. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/sys.h"
#include "engine/embed.h"
#include "tests/engine/embed/bert_model.h"

static char path[64];

static int make_path(void **state)
{
    (void)state;
    snprintf(path, sizeof path, "/tmp/hearth-embed-XXXXXX");
    const int fd = mkstemp(path);
    return fd < 0 || close(fd) < 0;
}

static int remove_path(void **state)
{
    (void)state;
    sys_reset();
    return unlink(path);
}

typedef void (*spoil)(struct gguf_writer *w);

static int open_spoilt(spoil change, struct embed **ret, struct err *e)
{
    struct gguf_writer w;
    gguf_writer_init(&w);
    bert_model_put(&bert_model_default, &w);
    if (change)
        change(&w);
    assert_true(gguf_writer_save(&w, path));
    gguf_writer_done(&w);
    *e = (struct err){0};
    return embed_open(path, NULL, ret, e);
}

static struct embed *open_good(void)
{
    struct embed *m = NULL;
    struct err e;
    if (open_spoilt(NULL, &m, &e))
        fail_msg("%s", e.text);
    return m;
}

#define SPOIL(name, statement)                                                                     \
    static void name(struct gguf_writer *w)                                                        \
    {                                                                                              \
        statement;                                                                                 \
    }
SPOIL(another_arch, gguf_remove(w, "general.architecture");
      gguf_put_str(w, "general.architecture", "llama"))
SPOIL(another_tokenizer, gguf_remove(w, "tokenizer.ggml.model");
      gguf_put_str(w, "tokenizer.ggml.model", "t5"))
SPOIL(no_vocabulary, gguf_remove(w, "tokenizer.ggml.tokens"))
SPOIL(no_length, gguf_remove(w, "bert.embedding_length"))
SPOIL(other_length, gguf_remove(w, "bert.embedding_length");
      gguf_put_u32(w, "bert.embedding_length", 36))
SPOIL(huge_length, gguf_remove(w, "bert.embedding_length");
      gguf_put_u32(w, "bert.embedding_length", 1 << 20))
SPOIL(odd_heads, gguf_remove(w, "bert.attention.head_count");
      gguf_put_u32(w, "bert.attention.head_count", 5))
SPOIL(rank_pooling, gguf_remove(w, "bert.pooling_type"); gguf_put_u32(w, "bert.pooling_type", 4))
SPOIL(causal, gguf_remove(w, "bert.attention.causal");
      gguf_put_int(w, "bert.attention.causal", GGUF_BOOL, 1))
SPOIL(no_query, gguf_remove_tensor(w, "blk.1.attn_q.weight"))
SPOIL(no_bias, gguf_remove_tensor(w, "blk.0.ffn_down.bias"))
SPOIL(no_words, gguf_remove_tensor(w, "token_embd.weight"))
SPOIL(no_types, gguf_remove_tensor(w, "token_types.weight"))
SPOIL(more_layers, gguf_remove(w, "bert.block_count"); gguf_put_u32(w, "bert.block_count", 3))
SPOIL(longer, gguf_remove(w, "bert.context_length"); gguf_put_u32(w, "bert.context_length", 65))
SPOIL(wider, gguf_remove(w, "bert.feed_forward_length");
      gguf_put_u32(w, "bert.feed_forward_length", 65))
SPOIL(bad_id, gguf_put_u32(w, "tokenizer.ggml.cls_token_id", 1 << 20))

static void what_is_wrong_with_a_file_is_named(void **state)
{
    (void)state;
    static const struct {
        spoil change;
        int code;
        const char *says;
    } cases[] = {
        {another_arch, ERR_UNSUPPORTED, "llama"},
        {another_tokenizer, ERR_UNSUPPORTED, "t5"},
        {no_vocabulary, ERR_CORRUPT, "tokenizer.ggml.tokens"},
        {no_length, ERR_CORRUPT, "bert.embedding_length"},
        {other_length, ERR_CORRUPT, "token_embd.weight"},
        {huge_length, ERR_CORRUPT, "bert.embedding_length"},
        {odd_heads, ERR_CORRUPT, "5 heads"},
        {rank_pooling, ERR_UNSUPPORTED, "pooling type 4"},
        {causal, ERR_UNSUPPORTED, "causal"},
        {no_query, ERR_CORRUPT, "blk.1.attn_q.weight"},
        {no_bias, ERR_CORRUPT, "blk.0.ffn_down.bias"},
        {no_words, ERR_CORRUPT, "token_embd.weight"},
        {no_types, ERR_CORRUPT, "token_types.weight"},
        {more_layers, ERR_CORRUPT, "blk.2."},
        {longer, ERR_CORRUPT, "position_embd.weight"},
        {wider, ERR_CORRUPT, "blk.0.ffn_up.weight"},
        {bad_id, ERR_CORRUPT, "cls_token_id"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct embed *m = NULL;
        struct err e;
        const int rc = open_spoilt(cases[i].change, &m, &e);
        if (rc != cases[i].code || !strstr(e.text, cases[i].says) || !strstr(e.text, path))
            fail_msg("case %zu: %d %s", i, rc, e.text);
        assert_null(m);
    }
}

static void a_model_says_what_it_is(void **state)
{
    (void)state;
    struct embed *m = open_good();
    uint8_t a[EMBED_HASH_BYTES], b[EMBED_HASH_BYTES];
    assert_string_equal(embed_name(m), "tiny-bert");
    assert_int_equal(embed_dim(m), 32);
    assert_int_equal(embed_n_ctx(m), 64);
    assert_true(embed_bytes(m) > 0);
    assert_true(embed_bytes_of(path) >= embed_bytes(m) * 9 / 10);
    assert_int_equal(embed_bytes_of("/nonexistent"), 0);
    embed_hash(m, a);
    embed_close(m);
    m = open_good();
    embed_hash(m, b);
    assert_memory_equal(a, b, sizeof a);
    embed_close(m);
}

/* More than one internal batch, and texts of every length. */
static void a_text_has_one_vector_whoever_is_beside_it(void **state)
{
    (void)state;
    enum { N = 60 };
    struct embed *m = open_good();
    struct embed_tokens v[N];
    int32_t ids[64];
    float all[N * 32], one[32];
    struct err e;
    for (int i = 0; i < 64; i++)
        ids[i] = 2 + i;
    for (int i = 0; i < N; i++)
        v[i] = (struct embed_tokens){ids + i % 7, 1 + (i * 11) % 57};
    assert_int_equal(embed_run(m, v, N, NULL, all, &e), 0);
    for (int i = 0; i < N; i++) {
        float length = 0;
        assert_int_equal(embed_run(m, v + i, 1, NULL, one, &e), 0);
        for (int k = 0; k < 32; k++) {
            assert_true(fabsf(one[k] - all[i * 32 + k]) < 1e-5f);
            length += one[k] * one[k];
        }
        assert_true(fabsf(length - 1) < 1e-5f);
    }
    embed_close(m);
}

static void ids_and_lengths_are_checked_and_a_cancel_is_heard(void **state)
{
    (void)state;
    struct embed *m = open_good();
    static const int32_t good[65] = {2, 3}, bad[] = {2, 1 << 20}, negative[] = {-1};
    float out[32];
    struct err e;
    atomic_int abort = 1;
    assert_int_equal(embed_run(m, NULL, 0, NULL, out, &e), 0);
    assert_int_equal(embed_run(m, &(struct embed_tokens){good, 0}, 1, NULL, out, &e), ERR_INVAL);
    assert_int_equal(embed_run(m, &(struct embed_tokens){good, 65}, 1, NULL, out, &e), ERR_INVAL);
    assert_int_equal(embed_run(m, &(struct embed_tokens){bad, 2}, 1, NULL, out, &e), ERR_INVAL);
    assert_int_equal(embed_run(m, &(struct embed_tokens){negative, 1}, 1, NULL, out, &e),
                     ERR_INVAL);
    assert_int_equal(embed_run(m, &(struct embed_tokens){good, 2}, 1, &abort, out, &e),
                     ERR_CANCELED);
    embed_close(m);
    assert_int_equal(embed_open(path, &abort, &m, &e), ERR_CANCELED);
}

static int until;

static void *failing_malloc(size_t n)
{
    return until-- == 0 ? NULL : malloc(n);
}

static void every_allocation_may_fail(void **state)
{
    (void)state;
    struct embed *m = open_good();
    embed_close(m);
    int rc = ERR_NOMEM;
    for (int i = 0; rc == ERR_NOMEM && i < 1000; i++) {
        struct err e = {0};
        until = i;
        sys.malloc = failing_malloc;
        rc = embed_open(path, NULL, &m, &e);
        sys_reset();
        assert_true(rc == 0 || rc == ERR_NOMEM);
    }
    assert_int_equal(rc, 0);
    embed_close(m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_wrong_with_a_file_is_named),
        cmocka_unit_test(a_model_says_what_it_is),
        cmocka_unit_test(a_text_has_one_vector_whoever_is_beside_it),
        cmocka_unit_test(ids_and_lengths_are_checked_and_a_cancel_is_heard),
        cmocka_unit_test(every_allocation_may_fail),
    };
    return cmocka_run_group_tests(tests, make_path, remove_path);
}
