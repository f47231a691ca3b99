/*
 * The scripted engine's own promises: it says its script token by token, warm as cold, and notices
 * blocks that are wrong. If these didn't hold, the flow tests that lean on it would prove nothing.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/ids.h"
#include "engine/engine.h"
#include "engine/kernels.h"
#include "tests/scripted/scripted.h"
#include "tests/scripted/vocab.h"

#define LOGITS_MAX 2048

static const char script[] =
    "{\"ctx\": 256, \"vocab\": [\"zebra\"], \"rules\": ["
    "{\"when\": \"stop\", \"pieces\": [\"nop\", \"qrs\", \"t\", \"uv\", \"w\", \"x\"]},"
    "{\"when\": \"split\", \"pieces\": [\".\", \"\\n\\n\", \"你\", \"好\"], \"repeat\": 2},"
    "{\"when\": \"llama\", \"bytes\": \"f09fa699\"},"
    "{\"when\": \"endless\", \"ids\": [97, 98], \"then\": \"forever\"},"
    "{\"when\": \"seeds\", \"pieces\": [\"q\"], \"then\": \"forever\", \"spread\": true},"
    "{\"when\": \"nan\", \"pieces\": [\"a\", \"b\", \"c\"], \"nan_at\": 1, \"bad_id\": 5, "
    "\"all_nan_at\": 2},"
    "{\"when\": \"inf\", \"pieces\": [\"a\"], \"inf_at\": 0, \"bad_id\": 7},"
    "{\"when\": \"fail\", \"pieces\": [\"a\", \"b\"], \"error_at\": 1}],"
    "\"default\": {\"pieces\": [\"ok\"]}}";

struct bench {
    struct engine *en;
    struct kv_pool *pool;
    char path[64];
};

static void write_script(struct bench *b, const char *text)
{
    struct err e;
    snprintf(b->path, sizeof b->path, "/tmp/hearth-script-XXXXXX");
    const int fd = mkstemp(b->path);
    assert_true(fd >= 0);
    close(fd);
    assert_int_equal(file_write(b->path, text, strlen(text), &e), 0);
}

static void open_text(struct bench *b, const char *text)
{
    struct err e = {0};
    write_script(b, text);
    const struct engine_options o = {.model_path = b->path};
    if (engine_open(&o, &b->en, &e)) {
        fail_msg("engine_open: %s", e.text);
    }
    assert_int_equal(kv_pool_new(&engine_info(b->en)->kv, 64, &b->pool, &e), 0);
}

static void shut(struct bench *b)
{
    engine_close(b->en);
    assert_int_equal(kv_pool_n_free(b->pool), kv_pool_n_blocks(b->pool));
    kv_pool_free(b->pool);
    unlink(b->path);
}

static void reserve(struct bench *b, struct kv_seq *s, int n)
{
    struct err e;
    while (kv_seq_capacity(s) < n) {
        assert_int_equal(kv_seq_push(s, kv_take(b->pool), &e), 0);
    }
}

static int pass(struct bench *b, struct kv_seq *s, const int32_t *ids, int n, float *logits,
                struct err *e)
{
    struct engine_part p = {
        .seq = s, .ids = ids, .n_ids = n, .n_logits = logits ? 1 : 0, .logits = logits};
    reserve(b, s, s->n_tokens + n);
    return engine_pass(b->en, &p, 1, NULL, e);
}

static int32_t best(const struct bench *b, const float *logits)
{
    int32_t id = 0;
    for (int i = 1; i < engine_info(b->en)->n_vocab; i++) {
        id = logits[i] > logits[id] ? i : id;
    }
    return id;
}

static void render(const struct bench *b, const char *user, struct ids *ret)
{
    struct err e = {0};
    const struct chat_message m = {.role = CHAT_USER, .text = user, .n_text = strlen(user)};
    struct chat_rendering r = {.ids = ret};
    ids_init(ret);
    if (chat_render(engine_chat(b->en), &m, 1, true, &r, &e)) {
        fail_msg("chat_render: %s", e.text);
    }
}

/* The greedy answer's ids to one user message, at most n; the prompt goes in slices of `slice`. */
static void answer(struct bench *b, const char *user, int slice, struct ids *ret, int n)
{
    float logits[LOGITS_MAX];
    struct ids prompt;
    struct kv_seq s;
    struct err e = {0};
    render(b, user, &prompt);
    kv_seq_init(&s);
    for (size_t at = 0; at < prompt.n; at += (size_t)slice) {
        const size_t k = prompt.n - at < (size_t)slice ? prompt.n - at : (size_t)slice;
        assert_int_equal(pass(b, &s, prompt.v + at, (int)k, at + k == prompt.n ? logits : NULL, &e),
                         0);
    }
    ids_init(ret);
    for (int i = 0; i < n; i++) {
        const int32_t id = best(b, logits);
        assert_int_equal(ids_push(ret, id), 0);
        if (id == VOCAB_IM_END) {
            break;
        }
        assert_int_equal(pass(b, &s, &id, 1, logits, &e), 0);
    }
    kv_seq_done(&s);
    ids_done(&prompt);
}

static void assert_text(struct bench *b, const char *user, const char *want, size_t n_want)
{
    struct ids ids;
    struct buf text;
    buf_init(&text, 1 << 16);
    answer(b, user, 7, &ids, 100);
    assert_int_equal(ids.v[ids.n - 1], VOCAB_IM_END);
    for (size_t i = 0; i + 1 < ids.n; i++) {
        size_t n;
        const char *p = tok_piece(engine_tok(b->en), ids.v[i], &n);
        buf_add(&text, p, n);
    }
    assert_int_equal(ids.n - 1, n_want);
    assert_string_equal(text.data, want);
    buf_done(&text);
    ids_done(&ids);
}

static void the_script_is_said_token_by_token(void **state)
{
    (void)state;
    struct bench b;
    open_text(&b, script);
    assert_text(&b, "please stop", "nopqrstuvwx", 6);
    assert_text(&b, "split it", ".\n\n你好.\n\n你好", 8);
    assert_text(&b, "a llama", "🦙", 4);
    assert_text(&b, "anything", "ok", 1);
    assert_int_equal(scripted_n_wrong(b.en), 0);
    shut(&b);
}

static void endless_answers_go_round(void **state)
{
    (void)state;
    struct bench b;
    struct ids ids;
    open_text(&b, script);
    answer(&b, "endless", 64, &ids, 90);
    assert_int_equal(ids.n, 90);
    for (size_t i = 0; i < 90; i++) {
        assert_int_equal(ids.v[i], i % 2 ? 'b' : 'a');
    }
    ids_done(&ids);
    shut(&b);
}

static void two_pieces_exist_as_one_token_and_apart(void **state)
{
    (void)state;
    struct bench b;
    struct ids ids;
    struct err e;
    open_text(&b, script);
    const struct tok *t = engine_tok(b.en);
    ids_init(&ids);
    assert_int_equal(tok_encode(t, ".\n\n", 3, false, &ids, &e), 0);
    assert_int_equal(tok_encode(t, "你好", 6, false, &ids, &e), 0);
    assert_int_equal(ids.n, 2);
    assert_true(tok_find(t, ".", 1) >= 0 && tok_find(t, "\n\n", 2) >= 0);
    assert_true(tok_find(t, "你", 3) >= 0 && tok_find(t, "好", 3) >= 0);
    assert_true(tok_find(t, "zebra", 5) >= 259);
    assert_true(tok_is_control(t, VOCAB_IM_START) && tok_is_eog(t, VOCAB_IM_END) &&
                tok_is_eog(t, VOCAB_ENDOFTEXT));
    for (int i = 0; i < 256; i++) {
        size_t n;
        const char *p = tok_piece(t, i, &n);
        assert_int_equal(n, 1);
        assert_int_equal((unsigned char)*p, i);
    }
    ids_done(&ids);
    shut(&b);
}

static void warm_is_cold_however_the_prompt_is_cut(void **state)
{
    (void)state;
    static const int slices[] = {1, 7, 31, 32, 33, 512};
    float want[LOGITS_MAX], got[LOGITS_MAX];
    struct bench b;
    struct ids prompt;
    struct kv_seq s;
    struct err e;
    open_text(&b, script);
    render(
        &b,
        "seeds, and enough words that the prompt reaches into a third block of positions at least",
        &prompt);
    assert_true(prompt.n > 64);
    const size_t n_bytes = (size_t)engine_info(b.en)->n_vocab * sizeof(float);
    for (size_t i = 0; i < sizeof slices / sizeof *slices; i++) {
        kv_seq_init(&s);
        for (size_t at = 0; at < prompt.n;) {
            const size_t k = prompt.n - at < (size_t)slices[i] ? prompt.n - at : (size_t)slices[i];
            assert_int_equal(pass(&b, &s, prompt.v + at, (int)k, got, &e), 0);
            at += k;
        }
        if (i) {
            assert_memory_equal(got, want, n_bytes);
        }
        memcpy(want, got, n_bytes);
        kv_seq_done(&s);
    }
    /* From shared full blocks and a copied part of the third. */
    struct kv_seq warm;
    kv_seq_init(&s);
    kv_seq_init(&warm);
    assert_int_equal(pass(&b, &s, prompt.v, (int)prompt.n, NULL, &e), 0);
    assert_int_equal(kv_seq_push(&warm, kv_ref(s.blocks[0]), &e), 0);
    assert_int_equal(kv_seq_push(&warm, kv_ref(s.blocks[1]), &e), 0);
    assert_int_equal(kv_seq_push(&warm, kv_take(b.pool), &e), 0);
    const int n_part = (int)prompt.n - 1 - 64 < KV_BLOCK ? (int)prompt.n - 1 - 64 : KV_BLOCK - 1;
    kv_block_copy(warm.blocks[2], s.blocks[2], n_part);
    warm.n_tokens = 64 + n_part;
    assert_int_equal(
        pass(&b, &warm, prompt.v + warm.n_tokens, (int)prompt.n - warm.n_tokens, got, &e), 0);
    assert_memory_equal(got, want, n_bytes);
    assert_int_equal(scripted_n_wrong(b.en), 0);
    kv_seq_done(&s);
    kv_seq_done(&warm);
    ids_done(&prompt);
    shut(&b);
}

/* A prefix of two blocks and a bit, spoilt by `spoil`, gives another answer and counts. */
static void assert_noticed(void (*spoil)(struct bench *, struct kv_seq *, struct kv_seq *))
{
    float logits[LOGITS_MAX];
    struct bench b;
    struct ids p, q;
    struct kv_seq s, other;
    struct err e;
    open_text(&b, script);
    render(
        &b,
        "stop, and enough words that the prompt reaches into a third block of positions at least",
        &p);
    render(&b,
           "another talk with quite enough words to reach into a third block of positions, too, I "
           "hope",
           &q);
    kv_seq_init(&s);
    kv_seq_init(&other);
    assert_int_equal(pass(&b, &s, p.v, (int)p.n - 1, NULL, &e), 0);
    assert_int_equal(pass(&b, &other, q.v, (int)q.n, NULL, &e), 0);
    spoil(&b, &s, &other);
    assert_int_equal(pass(&b, &s, p.v + p.n - 1, 1, logits, &e), 0);
    const int32_t id = best(&b, logits);
    assert_true(id >= 'A' && id <= 'Z');
    assert_int_equal(scripted_n_wrong(b.en), 1);
    kv_seq_done(&s);
    kv_seq_done(&other);
    ids_done(&p);
    ids_done(&q);
    shut(&b);
}

static void swap_block(struct bench *b, struct kv_seq *s, struct kv_seq *other)
{
    (void)b;
    kv_unref(s->blocks[1]);
    s->blocks[1] = kv_ref(other->blocks[1]);
}

static void same_block_twice(struct bench *b, struct kv_seq *s, struct kv_seq *other)
{
    (void)b, (void)other;
    kv_unref(s->blocks[1]);
    s->blocks[1] = kv_ref(s->blocks[0]);
}

static void zero_block(struct bench *b, struct kv_seq *s, struct kv_seq *other)
{
    (void)b, (void)other;
    kv_block_zero_from(s->blocks[0], 31);
}

static void flip_a_bit_of_k(struct bench *b, struct kv_seq *s, struct kv_seq *other)
{
    (void)b, (void)other;
    s->blocks[1]->data[2 * 5] ^= 1; /* K: dimension 0, position 5 */
}

static void one_token_too_many(struct bench *b, struct kv_seq *s, struct kv_seq *other)
{
    (void)b, (void)other;
    s->n_tokens++;
}

static void wrong_blocks_are_noticed(void **state)
{
    (void)state;
    assert_noticed(swap_block);
    assert_noticed(same_block_twice);
    assert_noticed(zero_block);
    assert_noticed(flip_a_bit_of_k);
    assert_noticed(one_token_too_many);
}

static void bad_logits_come_where_the_script_says(void **state)
{
    (void)state;
    float logits[LOGITS_MAX];
    struct bench b;
    struct ids p;
    struct kv_seq s;
    struct err e;
    open_text(&b, script);
    kv_seq_init(&s);
    render(&b, "nan", &p);
    assert_int_equal(pass(&b, &s, p.v, (int)p.n, logits, &e), 0);
    assert_int_equal(best(&b, logits), 'a');
    assert_int_equal(pass(&b, &s, &(int32_t){'a'}, 1, logits, &e), 0);
    assert_true(isnan(logits[5]));
    assert_int_equal(best(&b, logits), 'b');
    assert_int_equal(pass(&b, &s, &(int32_t){'b'}, 1, logits, &e), 0);
    for (int i = 0; i < engine_info(b.en)->n_vocab; i++) {
        assert_true(isnan(logits[i]));
    }
    ids_done(&p);
    kv_seq_done(&s);
    render(&b, "inf", &p);
    assert_int_equal(pass(&b, &s, p.v, (int)p.n, logits, &e), 0);
    assert_true(isinf(logits[7]));
    ids_done(&p);
    kv_seq_done(&s);
    render(&b, "fail", &p);
    assert_int_equal(pass(&b, &s, p.v, (int)p.n, logits, &e), 0);
    assert_int_equal(pass(&b, &s, &(int32_t){'a'}, 1, logits, &e), ERR_NOMEM);
    assert_int_equal(s.n_tokens, (int)p.n);
    ids_done(&p);
    kv_seq_done(&s);
    shut(&b);
}

static void spread_leaves_sixteen_letters_likely(void **state)
{
    (void)state;
    float logits[LOGITS_MAX];
    struct bench b;
    struct ids p;
    struct kv_seq s;
    struct err e;
    int n_likely = 0;
    open_text(&b, script);
    kv_seq_init(&s);
    render(&b, "seeds", &p);
    assert_int_equal(pass(&b, &s, p.v, (int)p.n, logits, &e), 0);
    assert_int_equal(best(&b, logits), 'q');
    for (int i = 0; i < engine_info(b.en)->n_vocab; i++) {
        n_likely += logits[i] > -1.0f;
    }
    assert_int_equal(n_likely, 17);
    ids_done(&p);
    kv_seq_done(&s);
    shut(&b);
}

static atomic_int stop;

static void *raise_stop(void *arg)
{
    const struct engine *en = arg;
    while (engine_progress(en) < 2) {
    }
    atomic_store(&stop, 1);
    return NULL;
}

static void a_cancel_ends_a_slow_pass_and_commits_nothing(void **state)
{
    (void)state;
    struct bench b;
    struct ids p;
    struct kv_seq s;
    struct err e;
    pthread_t thread;
    open_text(&b, "{\"prefill_us_per_token\": 1000000, \"default\": {\"pieces\": [\"ok\"]}}");
    render(&b, "this would take a minute or so", &p);
    kv_seq_init(&s);
    reserve(&b, &s, (int)p.n);
    atomic_store(&stop, 0);
    assert_int_equal(pthread_create(&thread, NULL, raise_stop, b.en), 0);
    struct engine_part part = {.seq = &s, .ids = p.v, .n_ids = (int)p.n};
    assert_int_equal(engine_pass(b.en, &part, 1, &stop, &e), ERR_CANCELED);
    pthread_join(thread, NULL);
    assert_int_equal(s.n_tokens, 0);
    assert_true(engine_progress(b.en) < p.n);
    kv_seq_done(&s);
    ids_done(&p);
    shut(&b);
}

static void passes_are_checked(void **state)
{
    (void)state;
    float logits[LOGITS_MAX];
    struct bench b;
    struct kv_seq s;
    struct err e;
    int32_t ids[300] = {0};
    open_text(&b, script);
    kv_seq_init(&s);
    reserve(&b, &s, 320);
    const int n_vocab = engine_info(b.en)->n_vocab;
    assert_int_equal(pass(&b, &s, &(int32_t){-1}, 1, logits, &e), ERR_INVAL);
    assert_int_equal(pass(&b, &s, &n_vocab, 1, logits, &e), ERR_INVAL);
    assert_int_equal(pass(&b, &s, ids, 257, logits, &e), ERR_LIMIT);
    assert_int_equal(pass(&b, &s, ids, 0, NULL, &e), ERR_INVAL);
    struct engine_part twice[2] = {{.seq = &s, .ids = ids, .n_ids = 1},
                                   {.seq = &s, .ids = ids, .n_ids = 1}};
    assert_int_equal(engine_pass(b.en, twice, 2, NULL, &e), ERR_INVAL);
    assert_int_equal(engine_pass(b.en, twice, 0, NULL, &e), ERR_INVAL);
    twice[0].n_logits = 2;
    twice[0].logits = logits;
    assert_int_equal(engine_pass(b.en, twice, 1, NULL, &e), ERR_INVAL);
    assert_int_equal(s.n_tokens, 0);
    struct kv_seq small;
    kv_seq_init(&small);
    struct engine_part none = {.seq = &small, .ids = ids, .n_ids = 1};
    assert_int_equal(engine_pass(b.en, &none, 1, NULL, &e), ERR_INVAL);
    kv_seq_done(&s);
    shut(&b);
}

static void bad_scripts_are_refused(void **state)
{
    (void)state;
    static const char *const bad[] = {
        "",
        "[]",
        "{\"paces\": 1}",
        "{\"ctx\": 0}",
        "{\"rules\": {}}",
        "{\"rules\": [{\"pieces\": [\"a\"]}]}",
        "{\"rules\": [{\"when\": \"\"}]}",
        "{\"default\": {\"when\": \"a\"}}",
        "{\"default\": {\"ids\": [99999]}}",
        "{\"default\": {\"bytes\": \"f\"}}",
        "{\"default\": {\"bytes\": \"zz\"}}",
        "{\"default\": {\"ids\": [1], \"bytes\": \"00\"}}",
        "{\"default\": {\"then\": \"never\"}}",
        "{\"default\": {\"then\": \"forever\"}}",
        "{\"default\": {\"pieces\": [\"\"]}}",
        "{\"default\": {\"pieces\": [1]}}",
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct bench b;
        struct engine *en = NULL;
        struct err e = {0};
        write_script(&b, bad[i]);
        const struct engine_options o = {.model_path = b.path};
        if (engine_open(&o, &en, &e) == 0) {
            fail_msg("accepted: %s", bad[i]);
        }
        assert_true(e.text[0] != '\0');
        assert_null(en);
        unlink(b.path);
    }
    struct engine *en = NULL;
    struct err e;
    const struct engine_options o = {.model_path = "/nonexistent/script.json"};
    assert_int_equal(engine_open(&o, &en, &e), ERR_NOTFOUND);
}

static void raw_prompts_count_from_the_rules_words(void **state)
{
    (void)state;
    float logits[LOGITS_MAX];
    struct bench b;
    struct ids p;
    struct kv_seq s;
    struct err e;
    open_text(&b, script);
    kv_seq_init(&s);
    ids_init(&p);
    assert_int_equal(tok_encode(engine_tok(b.en), "don't stop", 10, false, &p, &e), 0);
    assert_int_equal(pass(&b, &s, p.v, (int)p.n, logits, &e), 0);
    assert_int_equal(best(&b, logits), tok_find(engine_tok(b.en), "nop", 3));
    assert_int_equal(pass(&b, &s, &(int32_t){best(&b, logits)}, 1, logits, &e), 0);
    assert_int_equal(best(&b, logits), tok_find(engine_tok(b.en), "qrs", 3));
    ids_done(&p);
    kv_seq_done(&s);
    shut(&b);
}

static void a_script_without_template_is_for_completions(void **state)
{
    (void)state;
    struct bench b;
    open_text(&b, "{\"chat_template\": \"\", \"weights_bytes\": 4096}");
    assert_null(engine_chat(b.en));
    struct engine *en = NULL;
    struct err e;
    struct engine_options o = {.model_path = b.path, .memory_bytes = 4095};
    assert_int_equal(engine_open(&o, &en, &e), ERR_LIMIT);
    o.memory_bytes = 0;
    shut(&b);
}

/* Refused with the engine's own words, by name, and by what the CPU lacks. */
static void kernels_are_those_that_the_engine_has(void **state)
{
    (void)state;
    static const char *const names[] = {"c", "avx2", "avx512", "amx", "mmx"};
    struct bench b;
    open_text(&b, "{}");
    assert_string_equal(engine_info(b.en)->isa, "c"); /* on any machine */
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const struct kernels *k;
        struct err want, e;
        struct engine *en = NULL;
        struct engine_options o = {.model_path = b.path, .isa = names[i]};
        const int rc = kernels_find(names[i], &k, &want);
        assert_int_equal(engine_open(&o, &en, &e), rc);
        assert_int_equal(engine_set_isa(b.en, names[i], &e), rc);
        assert_string_equal(rc ? e.text : engine_info(b.en)->isa, rc ? want.text : names[i]);
        engine_close(en);
    }
    assert_int_equal(engine_set_isa(b.en, NULL, NULL), 0);
    assert_string_equal(engine_info(b.en)->isa, "c");
    shut(&b);
}

static void another_model_has_another_fingerprint(void **state)
{
    (void)state;
    struct bench a, b, c;
    open_text(&a, "{\"weights\": \"one\"}");
    open_text(&b, "{\"weights\": \"two\"}");
    open_text(&c, "{\"weights\": \"one\", \"default\": {\"pieces\": [\"ok\"]}}");
    assert_memory_not_equal(engine_info(a.en)->fingerprint, engine_info(b.en)->fingerprint, 32);
    assert_memory_equal(engine_info(a.en)->fingerprint, engine_info(c.en)->fingerprint, 32);
    assert_memory_equal(engine_info(a.en)->render_id, engine_info(b.en)->render_id, 32);
    shut(&a);
    shut(&b);
    shut(&c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_script_is_said_token_by_token),
        cmocka_unit_test(endless_answers_go_round),
        cmocka_unit_test(two_pieces_exist_as_one_token_and_apart),
        cmocka_unit_test(warm_is_cold_however_the_prompt_is_cut),
        cmocka_unit_test(wrong_blocks_are_noticed),
        cmocka_unit_test(bad_logits_come_where_the_script_says),
        cmocka_unit_test(spread_leaves_sixteen_letters_likely),
        cmocka_unit_test(a_cancel_ends_a_slow_pass_and_commits_nothing),
        cmocka_unit_test(passes_are_checked),
        cmocka_unit_test(bad_scripts_are_refused),
        cmocka_unit_test(raw_prompts_count_from_the_rules_words),
        cmocka_unit_test(a_script_without_template_is_for_completions),
        cmocka_unit_test(kernels_are_those_that_the_engine_has),
        cmocka_unit_test(another_model_has_another_fingerprint),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
