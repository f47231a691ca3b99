/*
 * Thousands of random operations beside a fool who always tells the truth: a plain list of what was
 * published, searched from end to end. Two owners, prompts over two token ids that fork everywhere,
 * up to six turns at once.
 *
 * With room for all, the cache must find exactly what the fool knows. With a tiny budget it may
 * find less, never more and never wrong; and it may refuse blocks only when the fool, counting what
 * turns hold, agrees. With allocations that fail at random it may refuse anything, and must stay
 * whole.
 *
 *     test_random [seed]
 */
#include "tests/cache/fake.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/sys.h"

#define N_IDS 260
#define N_TURNS 6
#define MAX_KNOWN 20000

static const char *const owners[] = {"uid:1000", "uid:1001"};

struct known {
    int owner, n;
    int32_t ids[N_IDS];
};

struct turn {
    struct cache_lease *lease;     /* NULL: this place is free */
    int owner, n_ids, n_published; /* n_published: positions in whole blocks */
    int32_t ids[N_IDS];
};

struct world {
    struct kv_pool *pool;
    struct cache *c;
    uint64_t rng;
    bool has_room; /* the budget is never short */
    bool may_fail; /* allocations fail */
    struct turn turns[N_TURNS];
    struct known *known;
    int n_known;
    int n_found, n_refused, n_failed;
};

static uint64_t the_seed;

/* ---- allocations that fail ---- */

static uint64_t fail_rng;
static int fail_one_in; /* 0: never */

static void *failing_malloc(size_t n)
{
    return fail_one_in && !fake_below(&fail_rng, fail_one_in) ? NULL : malloc(n);
}

static void *failing_realloc(void *p, size_t n)
{
    return fail_one_in && !fake_below(&fail_rng, fail_one_in) ? NULL : realloc(p, n);
}

/* ---- the fool ---- */

static void learn(struct world *w, int owner, const int32_t *ids, int n)
{
    if (n < 1) {
        return;
    }
    assert_true(w->n_known < MAX_KNOWN);
    struct known *k = &w->known[w->n_known++];
    k->owner = owner;
    k->n = n;
    memcpy(k->ids, ids, (size_t)n * sizeof *ids);
}

static int known_prefix(const struct world *w, int owner, const int32_t *ids, int n)
{
    int best = 0;
    for (int i = 0; i < w->n_known; i++) {
        const struct known *k = &w->known[i];
        int same = 0;
        while (k->owner == owner && same < n && same < k->n && k->ids[same] == ids[same]) {
            same++;
        }
        best = same > best ? same : best;
    }
    return best;
}

/* After a drop of an owner (-1: all): what is left is what open turns hold. */
static void forget(struct world *w, int owner)
{
    int n = 0;
    for (int i = 0; i < w->n_known; i++) {
        if (owner >= 0 && w->known[i].owner != owner) {
            w->known[n++] = w->known[i];
        }
    }
    w->n_known = n;
    for (int i = 0; i < N_TURNS; i++) {
        const struct turn *t = &w->turns[i];
        if (t->lease && (owner < 0 || t->owner == owner)) {
            /* A publish that failed may have got some of the way, and with little room a turn may
             * hold what it never published: a tail it copied from. */
            const bool is_exact = w->has_room && !w->may_fail;
            learn(w, t->owner, t->ids,
                  is_exact ? t->n_published : cache_lease_seq(t->lease)->n_tokens);
        }
    }
}

/* Blocks that open turns hold, each counted once. */
static size_t held_blocks(const struct world *w)
{
    const struct kv_block *seen[N_TURNS * (N_IDS / KV_BLOCK + 3)];
    size_t n = 0;
    for (int i = 0; i < N_TURNS; i++) {
        const struct kv_seq *s = w->turns[i].lease ? cache_lease_seq(w->turns[i].lease) : NULL;
        for (int j = 0; s && j < s->n_blocks; j++) {
            size_t k = 0;
            while (k < n && seen[k] != s->blocks[j]) {
                k++;
            }
            seen[k] = s->blocks[j];
            n += k == n;
        }
    }
    return n;
}

/* ---- operations ---- */

static struct kv_seq *seq_of(const struct turn *t)
{
    return cache_lease_seq(t->lease);
}

static void verify(const struct turn *t)
{
    fake_verify(seq_of(t), fake_salt(owners[t->owner]), t->ids);
}

/* A prompt that often begins like one known, and goes on at random. */
static void make_prompt(struct world *w, struct turn *t)
{
    int n = 0;
    t->owner = fake_below(&w->rng, 2);
    if (w->n_known && fake_below(&w->rng, 8)) {
        const struct known *k = &w->known[fake_below(&w->rng, w->n_known)];
        n = fake_below(&w->rng, 3) ? k->n : fake_below(&w->rng, k->n + 1);
        memcpy(t->ids, k->ids, (size_t)n * sizeof *t->ids);
    }
    for (int i = n; i < N_IDS; i++) {
        t->ids[i] = fake_below(&w->rng, 16) ? 0 : 1;
    }
    t->n_ids = n + 1 + fake_below(&w->rng, 90);
    if (!fake_below(&w->rng, 4)) {
        t->n_ids = (t->n_ids + KV_BLOCK - 1) / KV_BLOCK * KV_BLOCK + fake_below(&w->rng, 3) - 1;
    }
    t->n_ids = t->n_ids < N_IDS ? t->n_ids : N_IDS;
}

static void find(struct world *w, struct turn *t)
{
    struct cache_found found = {0};
    struct err e;
    const int before = seq_of(t)->n_tokens, n_max = t->n_ids - 1;
    const int known = known_prefix(w, t->owner, t->ids, n_max);
    const int rc = cache_find(t->lease, t->ids, n_max, &found, &e);
    if (rc) {
        assert_true(w->may_fail && rc == ERR_NOMEM);
        w->n_failed++;
        return;
    }
    const int now = seq_of(t)->n_tokens;
    assert_int_equal(now, before + found.n_tokens);
    assert_int_equal(found.n_ram, found.n_tokens);
    assert_true(found.n_shared >= 0 && found.n_shared <= found.n_tokens);
    assert_true(now == before || now <= known);
    if (w->has_room && !w->may_fail && before / KV_BLOCK * KV_BLOCK <= t->n_published) {
        assert_int_equal(now, known > before ? known : before);
    }
    w->n_found += found.n_tokens;
    verify(t);
    if (found.n_tokens) {
        fake_verify_rest(seq_of(t));
    }
    const int whole = now / KV_BLOCK * KV_BLOCK;
    if (found.n_tokens && whole > t->n_published) {
        t->n_published = whole; /* adopted, so in the tree */
    }
}

static void open_turn(struct world *w, struct turn *t)
{
    struct err e;
    make_prompt(w, t);
    t->n_published = 0;
    const struct cache_root root = fake_root(owners[t->owner]);
    const int peek = cache_peek(w->c, &root, t->ids, t->n_ids - 1);
    assert_true(peek <= known_prefix(w, t->owner, t->ids, t->n_ids - 1));
    const int rc = cache_lease_open(w->c, &root, (uint64_t)fake_below(&w->rng, 4), &t->lease, &e);
    if (rc) {
        assert_true(w->may_fail && rc == ERR_NOMEM);
        t->lease = NULL;
        w->n_failed++;
        return;
    }
    find(w, t);
    if (w->has_room && !w->may_fail) {
        assert_int_equal(seq_of(t)->n_tokens, peek);
    }
}

static void publish(struct world *w, struct turn *t)
{
    struct err e;
    const int rc = cache_publish(t->lease, t->ids, fake_below(&w->rng, 3) * 500, &e);
    assert_true(!rc || (w->may_fail && rc == ERR_NOMEM));
    w->n_failed += rc != 0;
    const int whole = seq_of(t)->n_tokens / KV_BLOCK * KV_BLOCK;
    learn(w, t->owner, t->ids, whole);
    if (!rc) {
        t->n_published = whole;
    }
    verify(t);
}

static void compute(struct world *w, struct turn *t)
{
    struct kv_seq *s = seq_of(t);
    struct err e;
    const int left = N_IDS - s->n_tokens,
              n = left ? 1 + fake_below(&w->rng, left < 70 ? left : 70) : 0;
    const size_t n_free = kv_pool_n_blocks(w->pool) - held_blocks(w);
    const int n_need = (s->n_tokens + n + KV_BLOCK - 1) / KV_BLOCK - s->n_blocks;
    const int n_had = s->n_blocks;
    const int rc = cache_reserve(t->lease, n, &e);
    if (rc) {
        assert_int_equal(rc, ERR_NOMEM);
        assert_int_equal(s->n_blocks, n_had);
        assert_true(w->may_fail || fake_window || n_need > (int)n_free);
        w->n_refused++;
        return;
    }
    assert_true(n_need <= (int)n_free || fake_window); /* thin ones take less */
    if (!fake_below(&w->rng, 8)) {
        fake_scribble(s); /* a pass that was abandoned */
        return;
    }
    fake_compute(s, fake_salt(owners[t->owner]), t->ids, n);
    t->n_ids = s->n_tokens < t->n_ids ? t->n_ids : s->n_tokens;
    if (fake_below(&w->rng, 4)) {
        publish(w, t);
    }
}

static void close_turn(struct world *w, struct turn *t)
{
    const bool keep_tail = fake_below(&w->rng, 3);
    const int n = seq_of(t)->n_tokens;
    learn(w, t->owner, t->ids, keep_tail ? n : n / KV_BLOCK * KV_BLOCK);
    cache_lease_close(t->lease, t->ids, keep_tail);
    t->lease = NULL;
}

static void abandon(struct turn *t)
{
    cache_lease_abandon(t->lease);
    assert_true(seq_of(t)->n_tokens >= t->n_published || !t->n_published);
    t->n_published = seq_of(t)->n_tokens;
    verify(t);
}

static void drop(struct world *w)
{
    const int owner = fake_below(&w->rng, 3) - 1;
    const struct cache_root root = fake_root(owners[owner < 0 ? 0 : owner]);
    cache_drop(w->c, owner < 0 ? NULL : &root);
    forget(w, owner);
}

static void step(struct world *w)
{
    struct turn *t = &w->turns[fake_below(&w->rng, N_TURNS)];
    if (!fake_below(&w->rng, 300)) {
        drop(w);
    } else if (!t->lease) {
        open_turn(w, t);
    } else {
        const int what = fake_below(&w->rng, 20);
        if (what < 10) {
            compute(w, t);
        } else if (what < 14) {
            find(w, t);
        } else if (what < 15) {
            publish(w, t);
        } else if (what < 19) {
            close_turn(w, t);
        } else {
            abandon(t);
        }
    }
    fake_check(w->c);
}

static void walk(size_t n_blocks, int n_steps, int fail)
{
    struct world w = {.pool = fake_pool(n_blocks),
                      .rng = the_seed * 0x9e3779b97f4a7c15u + 1,
                      .has_room = n_blocks > 2000,
                      .may_fail = fail > 0};
    struct err e;
    fail_rng = w.rng ^ 0x5555;
    w.known = malloc(MAX_KNOWN * sizeof *w.known);
    assert_non_null(w.known);
    assert_int_equal(cache_new(w.pool, &w.c, &e), 0);
    sys.malloc = failing_malloc;
    sys.realloc = failing_realloc;
    fail_one_in = fail;
    for (int i = 0; i < n_steps; i++) {
        step(&w);
    }
    fail_one_in = 0;
    sys_reset();
    for (int i = 0; i < N_TURNS; i++) {
        if (w.turns[i].lease) {
            verify(&w.turns[i]);
            cache_lease_close(w.turns[i].lease, w.turns[i].ids, false);
            fake_check(w.c);
        }
    }
    print_message("%zu blocks: %d tokens found, %d reserves refused, %d failed\n", n_blocks,
                  w.n_found, w.n_refused, w.n_failed);
    assert_true(w.n_found > 0);
    cache_free(w.c);
    assert_int_equal(kv_pool_n_free(w.pool), n_blocks);
    kv_pool_free(w.pool);
    free(w.known);
}

static void with_room_for_all_it_finds_exactly_what_was_published(void **state)
{
    (void)state;
    walk(4000, 4000, 0);
}

static void with_a_tiny_budget_it_finds_less_and_nothing_wrong(void **state)
{
    (void)state;
    static const size_t budgets[] = {1, 2, 5, 9, 17, 40};
    for (size_t i = 0; i < sizeof budgets / sizeof *budgets; i++) {
        walk(budgets[i], 2500, 0);
    }
}

static void with_allocations_failing_it_stays_whole(void **state)
{
    (void)state;
    walk(4000, 3000, 6);
    walk(20, 3000, 3);
    walk(20, 3000, 15);
}

static void walk_with_windows(const int *windows, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        fake_window = windows[i];
        print_message("window %d: ", fake_window);
        walk(4000, 1500, 0);
        walk(5, 1500, 0);
        walk(12, 1500, 0);
        walk(25, 1500, 0);
        walk(20, 1000, 10);
    }
    fake_window = 0;
}

/* The same with a layer that sees this many positions only. */
static void with_windowed_layers_too(void **state)
{
    (void)state;
    static const int windows[] = {2, 31, 32, 33, 70, 130};
    walk_with_windows(windows, sizeof windows / sizeof *windows);
}

static void with_no_other_layers_too(void **state)
{
    (void)state;
    static const int windows[] = {2, 32, 33, 130};
    fake_period = 0;
    walk_with_windows(windows, sizeof windows / sizeof *windows);
    fake_period = 2;
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(with_room_for_all_it_finds_exactly_what_was_published),
        cmocka_unit_test(with_a_tiny_budget_it_finds_less_and_nothing_wrong),
        cmocka_unit_test(with_allocations_failing_it_stays_whole),
        cmocka_unit_test(with_windowed_layers_too),
        cmocka_unit_test(with_no_other_layers_too),
    };
    the_seed = argc > 1 ? strtoull(argv[1], NULL, 10) : random_u64() % 1000000007u;
    print_message("seed %llu\n", (unsigned long long)the_seed);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
