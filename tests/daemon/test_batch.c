/*
 * Which turns run, in which order, with which rows: the batch over the scripted engine, step by
 * step, in a time of its own. The clock and the pass are wrapped (meson.build): a pass is written
 * down and takes what a simple machine would,
 *
 *      us = WEIGHTS_US + rows × ROW_US + the sum of rows × depth × DEPTH_US
 *
 * so that every test goes the same way each time.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/clock.h"
#include "daemon/batch.h"
#include "daemon/turn.h"
#include "daemon/wire.h"
#include "engine/engine.h"
#include "tests/scripted/scripted.h"
#include "tests/scripted/vocab.h"

#define WEIGHTS_US 6000
#define ROW_US 600.0
#define DEPTH_US 1.5 /* at 8,000 a row costs twice a pass of one short answer */

/* "go" asks for letters that come again and again, "bad" for the same that fail at the 30th,
 * "spread" for others by each seed; "forever" never ends. */
static const char script[] =
    "{\"ctx\":8192,\"chat_template\":\"\",\"rules\":["
    "{\"when\":\"spread\",\"pieces\":[\"k\",\"l\"],\"repeat\":40,\"spread\":true},"
    "{\"when\":\"go\",\"pieces\":[\"a\",\"b\",\"c\",\"d\",\"e\"],\"repeat\":20},"
    "{\"when\":\"bad\",\"pieces\":[\"a\",\"b\",\"c\",\"d\",\"e\"],\"repeat\":20,\"all_nan_at\":30},"
    "{\"when\":\"forever\",\"pieces\":[\"t\",\"u\"],\"then\":\"forever\"}],"
    "\"default\":{\"pieces\":[\"x\"]}}";

/* ---- the machine ---- */

int64_t __wrap_clock_us(void);
int64_t __wrap_clock_cpu_us(void);
int __wrap_engine_pass(struct engine *en, struct engine_part *parts, int n_parts,
                       const atomic_int *abort, struct err *e);
int __real_engine_pass(struct engine *en, struct engine_part *parts, int n_parts,
                       const atomic_int *abort, struct err *e);

static struct {
    int64_t now_us;
    int n_passes;
    struct {
        const struct kv_seq *seq;
        int n_ids;
    } parts[LIMIT_PARALLEL]; /* of the last pass */
    int n_parts;
    int64_t us;              /* and what it took */
    struct daemon *abort_in; /* the next pass with more than one row of a part is given up … */
    struct turn *abort_of;   /* … as this turn's client goes */
} machine;

int64_t __wrap_clock_us(void)
{
    return machine.now_us;
}

int64_t __wrap_clock_cpu_us(void)
{
    return machine.now_us;
}

static bool has_many_rows(const struct engine_part *parts, int n)
{
    for (int i = 0; i < n; i++)
        if (parts[i].n_ids > 1)
            return true;
    return false;
}

int __wrap_engine_pass(struct engine *en, struct engine_part *parts, int n_parts,
                       const atomic_int *abort, struct err *e)
{
    double us = WEIGHTS_US;
    for (int i = 0; i < n_parts; i++) {
        us += parts[i].n_ids * (ROW_US + DEPTH_US * parts[i].seq->n_tokens);
        machine.parts[i].seq = parts[i].seq;
        machine.parts[i].n_ids = parts[i].n_ids;
    }
    if (machine.abort_in && has_many_rows(parts, n_parts)) {
        atomic_store(&machine.abort_of->cancel->is_set, 1);
        atomic_store(&machine.abort_in->pass_abort, 1);
        machine.abort_in = NULL;
    }
    machine.n_parts = n_parts;
    machine.n_passes++;
    machine.us = (int64_t)us;
    machine.now_us += machine.us;
    return __real_engine_pass(en, parts, n_parts, abort, e);
}

/* Rows that the turn had in the last pass. */
static int rows_of(const struct turn *t)
{
    for (int i = 0; i < machine.n_parts; i++)
        if (t->run && t->run->lease && machine.parts[i].seq == run_seq(t->run))
            return machine.parts[i].n_ids;
    return 0;
}

/* ---- the daemon ---- */

struct world {
    char path[64];
    struct config config;
    struct daemon d;
    struct engine *engine;
    struct kv_pool *pool;
    struct cache *cache;
    struct batch batch;
};

static void world_open(struct world *w, int parallel, bool speculation, size_t n_blocks)
{
    struct err e;
    memset(w, 0, sizeof *w);
    memset(&machine, 0, sizeof machine);
    machine.now_us = 1000000;
    snprintf(w->path, sizeof w->path, "/tmp/hearth-batch-XXXXXX");
    const int fd = mkstemp(w->path);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, script, sizeof script - 1), sizeof script - 1);
    close(fd);
    w->config.parallel = parallel;
    w->config.speculation = speculation;
    w->d.config = &w->config;
    assert_int_equal(mailbox_init(&w->d.history, &e), 0);
    const struct engine_options o = {.model_path = w->path};
    assert_int_equal(engine_open(&o, &w->engine, &e), 0);
    assert_int_equal(kv_pool_new(&engine_info(w->engine)->kv, n_blocks, &w->pool, &e), 0);
    assert_int_equal(cache_new(w->pool, &w->cache, &e), 0);
    batch_init(&w->batch, &w->d, w->engine, w->cache);
}

/* Ended turns have come back to here; they stay the test's. */
static void take_mail(struct world *w)
{
    for (struct mail *m = mailbox_take(&w->d.history), *next; m; m = next) {
        next = m->next;
        if (m->kind == MAIL_TURN_FLUSH)
            turn_flush_free((struct turn_flush *)m);
    }
}

static void world_close(struct world *w)
{
    assert_true(batch_is_idle(&w->batch));
    assert_int_equal(scripted_n_wrong(w->engine), 0);
    take_mail(w);
    mailbox_close(&w->d.history);
    mailbox_done(&w->d.history);
    cache_free(w->cache);
    kv_pool_free(w->pool);
    engine_close(w->engine);
    unlink(w->path);
}

static const struct wire no_wire; /* nothing is streamed */

/* A turn that reads n_filler letters (never the same as another `salt`'s) and then `words`. */
static struct turn *turn_of(int salt, int n_filler, const char *words, int max_tokens)
{
    struct turn *t = calloc(1, sizeof *t);
    assert_non_null(t);
    arena_init(&t->arena, TURN_ARENA_BYTES);
    ids_init(&t->prompt);
    ids_init(&t->out);
    buf_init(&t->text, TURN_TEXT_BYTES);
    t->cancel = cancel_new();
    t->owner = "uid:1";
    t->wire = &no_wire;
    t->params.sample = sample_neutral;
    t->params.sample.temperature = 0;
    t->params.use_cache = true;
    t->max_tokens = max_tokens;
    t->window.head_at = -1;
    for (int i = 0; i < n_filler; i++)
        assert_int_equal(ids_push(&t->prompt, 'A' + (i == 0 ? salt : i * i / 3) % 26), 0);
    for (const char *s = words; *s; s++)
        assert_int_equal(ids_push(&t->prompt, *s), 0);
    return t;
}

static void step(struct world *w)
{
    machine.n_parts = 0;
    batch_step(&w->batch);
}

static bool is_running(const struct turn *t)
{
    return t->finish == TURN_RUNNING;
}

static void run_all(struct world *w)
{
    for (int i = 0; !batch_is_idle(&w->batch); i++) {
        assert_true(i < 200000);
        step(w);
    }
}

static void drop(struct world *w, struct turn *t)
{
    take_mail(w);
    turn_free(t);
}

/* ---- who goes first ---- */

static void a_short_question_overtakes_a_long_prompt(void **state)
{
    (void)state;
    struct world w;
    world_open(&w, 4, false, 1000);
    struct turn *longer = turn_of(0, 8000, "", 1);
    batch_add(&w.batch, longer);
    for (int i = 0; i < 5; i++)
        step(&w);
    struct turn *brief = turn_of(1, 20, "go", 1);
    batch_add(&w.batch, brief);
    step(&w);
    if (is_running(brief))
        step(&w); /* it was the oldest's pass */
    assert_false(is_running(brief));
    assert_true(is_running(longer));
    assert_true(longer->run->ids.n - (size_t)run_seq(longer->run)->n_tokens > 5000);
    run_all(&w);
    assert_int_equal(longer->finish, TURN_LENGTH);
    drop(&w, longer);
    drop(&w, brief);
    world_close(&w);
}

static void first_tokens_come_by_length_of_prompt(void **state)
{
    (void)state;
    static const int sizes[] = {3000, 1500, 700, 300};
    struct turn *turns[4];
    struct world w;
    world_open(&w, 4, false, 1000);
    for (int i = 0; i < 4; i++)
        batch_add(&w.batch, turns[i] = turn_of(i, sizes[i], "go", 1));
    run_all(&w);
    for (int i = 0; i < 3; i++)
        assert_true(turns[i]->stats.t_first > turns[i + 1]->stats.t_first);
    for (int i = 0; i < 4; i++)
        drop(&w, turns[i]);
    world_close(&w);
}

/* Questions that come without end: there is always one with less to read. */
static void a_long_prompt_is_not_starved(void **state)
{
    (void)state;
    struct turn *shorts[3] = {NULL};
    struct world w;
    int n_since = 0, n_most = 0, n_shorts = 0;
    world_open(&w, 4, false, 1000);
    struct turn *longer = turn_of(0, 3000, "", 1);
    batch_add(&w.batch, longer);
    for (int i = 0; is_running(longer); i++) {
        assert_true(i < 3000);
        for (int k = 0; k < 3; k++) {
            if (shorts[k] && is_running(shorts[k]))
                continue;
            if (shorts[k])
                drop(&w, shorts[k]);
            n_shorts++;
            shorts[k] = turn_of(n_shorts, 400 + n_shorts % 7, "", 1);
            shorts[k]->params.use_cache = false;
            batch_add(&w.batch, shorts[k]);
        }
        step(&w);
        n_since = rows_of(longer) > 0 ? 0 : n_since + 1;
        n_most = n_since > n_most ? n_since : n_most;
    }
    assert_true(n_shorts > 20);
    assert_in_range(n_most, 1, 4); /* it had rows in one of four passes at least */
    run_all(&w);
    for (int k = 0; k < 3; k++)
        drop(&w, shorts[k]);
    drop(&w, longer);
    world_close(&w);
}

/* n answers go on while a prompt of 8,000 is read, and a question comes behind it. */
static void beside_answers(int n, int depth)
{
    struct world w;
    struct turn *answers[4];
    int n_since = 0, n_most = 0;
    world_open(&w, 8, false, 3000);
    for (int i = 0; i < n; i++) {
        batch_add(&w.batch, answers[i] = turn_of(i, depth, "forever", 8192 - depth - 7));
        while (answers[i]->out.n < 3)
            step(&w);
    }
    for (int i = 0; i < 50; i++)
        step(&w);
    const double alone_us = (double)machine.us;
    struct turn *longer = turn_of(9, 8000, "", 1), *brief = turn_of(10, 20, "", 1);
    batch_add(&w.batch, longer);
    const int64_t t0 = machine.now_us;
    const size_t n_out = answers[0]->out.n;
    for (int i = 0; is_running(longer); i++) {
        if (i == 10)
            batch_add(&w.batch, brief);
        step(&w);
        if (is_running(longer)) {
            n_since = rows_of(longer) > 0 ? 0 : n_since + 1;
            n_most = n_since > n_most ? n_since : n_most;
        }
        if (machine.now_us - t0 > 10000000)
            assert_false(is_running(brief)); /* of some hundred seconds */
        for (int k = 0; k < n; k++)
            assert_int_equal(rows_of(answers[k]), 1); /* every pass, whoever reads */
        if (answers[0]->out.n > 8192u - (unsigned)depth - 60)
            break; /* an answer is at its window's end */
    }
    /* The answers grow deeper meanwhile: what they would have taken alone, at their last depth. */
    const double deeper_us =
        alone_us + n * DEPTH_US * (double)(answers[0]->out.n - n_out) / 2;
    const double pace = deeper_us * (double)(answers[0]->out.n - n_out) /
                        (double)(machine.now_us - t0);
    print_message("%d answers at %d: %.3f of their pace, %d passes between rows at most\n", n,
                  depth, pace, n_most);
    assert_true(pace >= 0.7);
    assert_true(pace <= 0.85);
    assert_true(n_most <= 40);
    for (int k = 0; k < n; k++)
        atomic_store(&answers[k]->cancel->is_set, 1);
    run_all(&w);
    for (int k = 0; k < n; k++)
        drop(&w, answers[k]);
    drop(&w, longer);
    drop(&w, brief);
    world_close(&w);
}

static void running_answers_keep_their_pace(void **state)
{
    (void)state;
    beside_answers(1, 100);
    beside_answers(1, 3000);
    beside_answers(3, 100);
    beside_answers(3, 3000);
}

/* ---- who gives way ---- */

static void assert_same(const struct turn *a, const struct turn *b)
{
    assert_int_equal(a->finish, b->finish);
    assert_int_equal(a->out.n, b->out.n);
    assert_memory_equal(a->out.v, b->out.v, a->out.n * sizeof *a->out.v);
    assert_int_equal(a->text.len, b->text.len);
    assert_memory_equal(a->text.data, b->text.data, a->text.len);
}

/* The same turn where nobody else runs and there is room. */
static struct turn *alone(struct turn *t)
{
    struct world w;
    world_open(&w, 1, false, 1000);
    batch_add(&w.batch, t);
    run_all(&w);
    take_mail(&w);
    world_close(&w);
    return t;
}

static struct turn *sampled(int salt, int n_filler)
{
    struct turn *t = turn_of(salt, n_filler, "spread", 80);
    t->params.sample.temperature = 1;
    t->params.sample.seed = (uint64_t)salt + 77;
    return t;
}

static void the_youngest_yields_and_goes_on_with_the_same_bits(void **state)
{
    (void)state;
    struct turn *turns[3];
    struct world w;
    for (int speculation = 0; speculation <= 1; speculation++) {
        world_open(&w, 3, speculation, 13); /* each needs six blocks in the end, four to start */
        for (int i = 0; i < 3; i++)
            batch_add(&w.batch, turns[i] = sampled(i, 90));
        run_all(&w);
        assert_int_equal(turns[0]->stats.n_yields, 0);
        assert_true(turns[1]->stats.n_yields + turns[2]->stats.n_yields > 0);
        take_mail(&w);
        world_close(&w);
        for (int i = 0; i < 3; i++) {
            struct turn *other = alone(sampled(i, 90));
            assert_same(turns[i], other);
            turn_free(other);
            turn_free(turns[i]);
        }
    }
}

static void a_cancel_inside_a_shared_pass_changes_nobody_else(void **state)
{
    (void)state;
    struct world w;
    world_open(&w, 4, false, 1000);
    struct turn *a = sampled(1, 50), *b = sampled(2, 60), *gone = turn_of(3, 900, "go", 9);
    batch_add(&w.batch, a);
    batch_add(&w.batch, b);
    while (a->out.n < 5 || b->out.n < 5)
        step(&w);
    batch_add(&w.batch, gone);
    for (int i = 0; i < 20; i++)
        step(&w);
    machine.abort_of = gone;
    machine.abort_in = &w.d;
    run_all(&w);
    assert_null(machine.abort_in);
    assert_int_equal(gone->finish, TURN_CANCELED);
    assert_true(gone->stats.n_computed > 0); /* what it had read is counted */
    take_mail(&w);
    world_close(&w);
    struct turn *a0 = alone(sampled(1, 50)), *b0 = alone(sampled(2, 60));
    assert_same(a, a0);
    assert_same(b, b0);
    struct turn *all[] = {a, b, a0, b0, gone};
    for (int i = 0; i < 5; i++)
        turn_free(all[i]);
}

/* More clients than places, prompts of all lengths, some go: everybody else has its answer. */
static void many_clients_all_have_their_answers(void **state)
{
    (void)state;
    enum { N = 48 };
    struct turn *turns[N];
    struct world w;
    world_open(&w, 8, true, 120);
    for (int i = 0; i < N; i++) {
        turns[i] = sampled(i, 3 + i * 37 % 500);
        batch_add(&w.batch, turns[i]);
        step(&w);
        if (i % 5 == 4)
            atomic_store(&turns[i - 2]->cancel->is_set, 1);
    }
    run_all(&w);
    take_mail(&w);
    world_close(&w);
    for (int i = 0; i < N; i++) {
        if (i % 5 != 2 || turns[i]->finish != TURN_CANCELED) {
            struct turn *other = alone(sampled(i, 3 + i * 37 % 500));
            assert_same(turns[i], other);
            turn_free(other);
        }
        turn_free(turns[i]);
    }
}

/* ---- drafts ---- */

/* An answer of the script with drafts, and without. */
struct twins {
    struct turn *on, *off;
    int n_passes_on, n_passes_off;
};

static struct twins twins(struct turn *(*make)(void), size_t n_blocks)
{
    struct twins r = {.on = make(), .off = make()};
    struct world w;
    for (int speculation = 0; speculation <= 1; speculation++) {
        world_open(&w, 1, speculation, n_blocks);
        batch_add(&w.batch, speculation ? r.on : r.off);
        run_all(&w);
        *(speculation ? &r.n_passes_on : &r.n_passes_off) = machine.n_passes;
        take_mail(&w);
        world_close(&w);
    }
    assert_same(r.on, r.off);
    assert_int_equal(turn_n_completion(r.on), turn_n_completion(r.off));
    assert_int_equal(r.on->stats.n_cached, r.off->stats.n_cached);
    assert_int_equal(r.on->stats.n_computed, r.off->stats.n_computed);
    assert_int_equal(r.off->stats.n_drafted, 0);
    return r;
}

static void twins_free(struct twins *r)
{
    turn_free(r->on);
    turn_free(r->off);
}

static struct turn *to_the_end(void)
{
    return turn_of(0, 40, "go", 500);
}

static void an_end_token_in_a_draft_ends_the_answer(void **state)
{
    (void)state;
    struct twins r = twins(to_the_end, 1000);
    assert_int_equal(r.on->finish, TURN_EOG);
    assert_int_equal(r.on->out.n, 101);
    assert_true(r.on->stats.n_accepted > 50);
    assert_true(r.n_passes_on < r.n_passes_off / 2); /* over three borders of blocks */
    twins_free(&r);
}

/* The end was said before, in the prompt, and is drafted itself. */
static struct turn *end_in_prompt(void)
{
    struct turn *t = turn_of(0, 5, "deabcde", 500);
    assert_int_equal(ids_push(&t->prompt, VOCAB_IM_END), 0);
    for (const char *s = "then go"; *s; s++)
        assert_int_equal(ids_push(&t->prompt, *s), 0);
    return t;
}

static void ids_behind_the_end_are_never_said(void **state)
{
    (void)state;
    struct twins r = twins(end_in_prompt, 1000);
    assert_int_equal(r.on->finish, TURN_EOG);
    twins_free(&r);
}

static int limit_of_tokens;
static struct turn *to_a_limit(void)
{
    return turn_of(0, 40, "go", limit_of_tokens);
}

static void max_tokens_inside_a_draft_end_there(void **state)
{
    (void)state;
    int n_accepted = 0;
    for (limit_of_tokens = 1; limit_of_tokens < 40; limit_of_tokens++) {
        struct twins r = twins(to_a_limit, 1000);
        assert_int_equal(r.on->finish, TURN_LENGTH);
        assert_int_equal(r.on->out.n, limit_of_tokens);
        n_accepted += r.on->stats.n_accepted;
        twins_free(&r);
    }
    assert_true(n_accepted > 100);
}

static const char *stop_text;
static struct turn *to_a_stop(void)
{
    struct turn *t = turn_of(0, 40, "go", 500);
    t->params.stops = arena_alloc(&t->arena, sizeof *t->params.stops);
    t->params.stop_lengths = arena_alloc(&t->arena, sizeof *t->params.stop_lengths);
    t->params.stops[0] = stop_text;
    t->params.stop_lengths[0] = strlen(stop_text);
    t->params.n_stops = 1;
    return t;
}

static void a_stop_string_inside_a_draft_stops_there(void **state)
{
    (void)state;
    /* After 5, 10, … letters: somewhere in a draft, and over the border of two. */
    char text[64] = "";
    for (int n = 1; n < 60; n++) {
        text[n - 1] = "abcde"[(n - 1) % 5];
        text[n] = 0;
        stop_text = text;
        struct twins r = twins(to_a_stop, 1000);
        assert_int_equal(r.on->finish, TURN_STOPPED);
        assert_int_equal(r.on->out.n, n);
        assert_int_equal(r.on->text.len, 0);
        twins_free(&r);
    }
}

static struct turn *to_nan(void)
{
    return turn_of(0, 40, "bad", 500);
}

static void unusable_logits_in_a_drafted_row_fail_the_turn_there(void **state)
{
    (void)state;
    struct twins r = twins(to_nan, 1000);
    assert_int_equal(r.on->finish, TURN_FAILED);
    assert_int_equal(r.on->out.n, 30);
    assert_true(r.on->stats.n_accepted > 5);
    assert_string_equal(r.on->error.code, r.off->error.code);
    twins_free(&r);
}

static struct turn *by_chance(void)
{
    return sampled(4, 60);
}

static void sampled_answers_are_the_same_drafted_or_not(void **state)
{
    (void)state;
    struct twins r = twins(by_chance, 1000);
    twins_free(&r);
}

static struct turn *in_a_small_pool(void)
{
    return turn_of(0, 40, "go", 80);
}

static void a_draft_that_finds_no_block_is_not_made(void **state)
{
    (void)state;
    struct twins r = twins(in_a_small_pool, 4); /* 42 + 80 of 128 positions */
    assert_int_equal(r.on->finish, TURN_LENGTH);
    assert_true(r.on->stats.n_accepted > 20);
    twins_free(&r);
}

static void a_cancel_inside_a_draft_keeps_what_was_said(void **state)
{
    (void)state;
    struct world w;
    struct turn *t = turn_of(0, 40, "go", 500), *again = turn_of(0, 40, "go", 500);
    world_open(&w, 1, true, 1000);
    batch_add(&w.batch, t);
    while (t->stats.n_accepted < 10)
        step(&w);
    const size_t n_out = t->out.n;
    machine.abort_of = t;
    machine.abort_in = &w.d;
    run_all(&w);
    assert_null(machine.abort_in); /* it was a pass with drafts */
    assert_int_equal(t->finish, TURN_CANCELED);
    assert_in_range(t->out.n, n_out, n_out + 40);
    for (size_t i = 0; i < t->out.n; i++)
        assert_int_equal(t->out.v[i], "abcde"[i % 5]);
    batch_add(&w.batch, again); /* and the blocks that it left are sound */
    run_all(&w);
    assert_int_equal(again->finish, TURN_EOG);
    assert_int_equal(again->out.n, 101);
    assert_true(again->stats.n_cached >= 32);
    drop(&w, t);
    drop(&w, again);
    world_close(&w);
}

static void only_who_answers_alone_drafts(void **state)
{
    (void)state;
    struct world w;
    struct turn *a = turn_of(0, 40, "go", 500), *b = turn_of(1, 40, "forever", 2000);
    world_open(&w, 2, true, 1000);
    batch_add(&w.batch, a);
    batch_add(&w.batch, b);
    while (is_running(a))
        step(&w);
    assert_true(a->stats.n_drafted <= 7); /* before the other's first token, if at all */
    const int n_before = b->stats.n_drafted;
    for (int i = 0; i < 30; i++)
        step(&w);
    assert_true(b->stats.n_drafted > n_before);
    atomic_store(&b->cancel->is_set, 1);
    run_all(&w);
    drop(&w, a);
    drop(&w, b);
    world_close(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_short_question_overtakes_a_long_prompt),
        cmocka_unit_test(first_tokens_come_by_length_of_prompt),
        cmocka_unit_test(a_long_prompt_is_not_starved),
        cmocka_unit_test(running_answers_keep_their_pace),
        cmocka_unit_test(the_youngest_yields_and_goes_on_with_the_same_bits),
        cmocka_unit_test(a_cancel_inside_a_shared_pass_changes_nobody_else),
        cmocka_unit_test(many_clients_all_have_their_answers),
        cmocka_unit_test(an_end_token_in_a_draft_ends_the_answer),
        cmocka_unit_test(ids_behind_the_end_are_never_said),
        cmocka_unit_test(max_tokens_inside_a_draft_end_there),
        cmocka_unit_test(a_stop_string_inside_a_draft_stops_there),
        cmocka_unit_test(unusable_logits_in_a_drafted_row_fail_the_turn_there),
        cmocka_unit_test(sampled_answers_are_the_same_drafted_or_not),
        cmocka_unit_test(a_draft_that_finds_no_block_is_not_made),
        cmocka_unit_test(a_cancel_inside_a_draft_keeps_what_was_said),
        cmocka_unit_test(only_who_answers_alone_drafts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
