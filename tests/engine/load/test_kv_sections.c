/* Blocks in two sections: where things lie, what a dropped one makes room for, what is usable. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/hash.h"
#include "engine/kv.h"

static bool all_bytes(const unsigned char *p, size_t n, unsigned char c)
{
    for (size_t i = 0; i < n; i++) {
        if (p[i] != c) {
            return false;
        }
    }
    return true;
}

/* Three layers of one kind and two of the other, in one order. */
static void sections_share_a_blocks_layers(void **state)
{
    (void)state;
    struct kv_shape s;
    struct err e;
    assert_int_equal(kv_shape_init(&s, KV_F16, 5, 2, 16, &e), 0);
    const size_t layer = s.layer_bytes;
    kv_shape_set_window(&s, 40, 1); /* all are full */
    assert_int_equal(s.n_sections, 1);
    kv_shape_set_window(&s, 0, 2);
    assert_int_equal(s.n_sections, 1);
    kv_shape_set_window(&s, 40, 2);
    assert_int_equal(s.n_sections, 2);
    assert_int_equal(s.full_bytes, 2 * layer);
    assert_int_equal(s.window_bytes, 3 * layer);
    static const bool is_windowed[] = {true, false, true, false, true};
    static const size_t place[] = {0, 0, 1, 1, 2};
    for (int i = 0; i < 5; i++) {
        assert_int_equal(kv_is_windowed(&s, i), is_windowed[i]);
        assert_int_equal(kv_k_offset(&s, i, 1), place[i] * layer + s.head_bytes);
    }
}

/* As phi3 has it, and as a model has it with fewer layers than its period. */
static void where_all_layers_are_windowed_the_rest_is_next_to_nothing(void **state)
{
    (void)state;
    static const int periods[] = {0, 6};
    for (int k = 0; k < 2; k++) {
        struct kv_shape s;
        struct err e;
        assert_int_equal(kv_shape_init(&s, KV_F16, 5, 2, 16, &e), 0);
        const size_t layers = s.block_bytes;
        kv_shape_set_window(&s, 40, periods[k]);
        assert_int_equal(s.n_sections, 2);
        assert_int_equal(s.window_bytes, layers);
        assert_int_equal(s.block_bytes, s.full_bytes + s.window_bytes);
        assert_int_equal(s.full_bytes % 64, 0);
        assert_true(s.full_bytes > 0 && s.full_bytes <= layers / 100);
        for (int i = 0; i < 5; i++) {
            assert_true(kv_is_windowed(&s, i));
            assert_int_equal(kv_k_offset(&s, i, 1), (size_t)i * s.layer_bytes + s.head_bytes);
        }
    }
}

/* Whatever the sections hold: a cut, a copy and a block emptied write to their own slots alone. */
static void what_is_cut_or_copied_leaves_the_neighbours_alone(void **state)
{
    (void)state;
    static const int periods[] = {0, 1, 2, 3, 6, 7};
    for (size_t k = 0; k < sizeof periods / sizeof *periods; k++) {
        enum { N = 5 };
        struct kv_shape s;
        struct kv_pool *p = NULL;
        struct err e;
        struct kv_block *b[N];
        assert_int_equal(kv_shape_init(&s, KV_F16, 6, 2, 16, &e), 0);
        kv_shape_set_window(&s, 40, periods[k]);
        assert_int_equal(kv_pool_new(&s, N, &p, &e), 0);
        for (int i = 0; i < N; i++) {
            b[i] = kv_take(p);
            memset(b[i]->data, 0x10 + i, s.full_bytes);
            if (b[i]->window) {
                memset(b[i]->window, 0x10 + i, s.window_bytes);
            }
        }
        kv_block_zero_from(b[0], 3);
        kv_block_copy(b[2], b[0], 5);
        kv_block_zero_from(b[4], 0);
        for (int i = 1; i < N; i += 2) {
            assert_true(all_bytes(b[i]->data, s.full_bytes, 0x10 + i));
            assert_true(!b[i]->window || all_bytes(b[i]->window, s.window_bytes, 0x10 + i));
        }
        for (int i = 0; i < N; i++) {
            kv_unref(b[i]);
        }
        kv_pool_free(p);
    }
}

static void a_dropped_section_makes_room_for_another(void **state)
{
    (void)state;
    struct kv_shape s;
    struct kv_pool *p = NULL;
    struct err e;
    struct kv_block *b[4], *thin[20];
    int n = 0;
    assert_int_equal(kv_shape_init(&s, KV_F16, 6, 1, 16, &e), 0);
    kv_shape_set_window(&s, 40, 6);
    assert_int_equal(kv_pool_new(&s, 4, &p, &e), 0);
    for (int i = 0; i < 4; i++) {
        b[i] = kv_take(p);
        memset(b[i]->window, 0x77, s.window_bytes);
        memset(b[i]->data, 0x10 + i, s.full_bytes);
    }
    assert_null(kv_take_thin(p));
    kv_window_drop(b[1]);
    kv_window_drop(b[1]);
    assert_null(b[1]->window);
    assert_int_equal(kv_pool_bytes_free(p), s.window_bytes);
    assert_null(kv_take(p)); /* not a whole one */
    assert_true(kv_window_take(b[1])); /* anybody's bytes, until it is settled */
    kv_block_settle(b[1]);
    assert_true(all_bytes(b[1]->window, s.window_bytes, 0));
    assert_true(all_bytes(b[1]->data, s.full_bytes, 0x11));
    kv_window_drop(b[1]);
    while ((thin[n] = kv_take_thin(p))) {
        n++;
    }
    assert_int_equal(n, 5); /* of what five windowed layers took */
    assert_int_equal(kv_pool_n_used(p), 9);
    assert_false(kv_window_take(thin[0]));
    kv_window_move(b[1], b[0]);
    assert_null(b[0]->window);
    assert_true(all_bytes(b[1]->window, s.window_bytes, 0x77));
    kv_block_zero_from(thin[0], 0);
    kv_unref(thin[1]);
    kv_unref(b[2]);
    assert_true(kv_window_take(thin[0]));
    kv_block_copy(thin[0], b[3], 7);
    assert_int_equal(thin[0]->window[0], 0x77);
    assert_int_equal(thin[0]->data[2 * 7], 0);
    for (int i = 0; i < n; i++) {
        kv_unref(i == 1 ? NULL : thin[i]);
    }
    kv_unref(b[0]);
    kv_unref(b[1]);
    kv_unref(b[3]);
    assert_int_equal(kv_pool_bytes_used(p), 0);
    assert_int_equal(kv_pool_n_free(p), 4);
    kv_pool_free(p);
}

/* Whichever section grows, the pages of both stay below the budget. */
static void pages_of_both_sections_keep_the_budget(void **state)
{
    (void)state;
    enum { N = 24 };
    struct kv_shape s;
    struct kv_pool *p = NULL;
    struct err e;
    struct kv_block *b[N], *thin[6 * N];
    int n = 0;
    assert_int_equal(kv_shape_init(&s, KV_F16, 6, 1, 128, &e), 0);
    kv_shape_set_window(&s, 40, 6);
    assert_int_equal(kv_pool_new(&s, N, &p, &e), 0);
    for (int i = 0; i < N; i++) {
        b[i] = kv_take(p);
    }
    assert_int_equal(kv_pool_bytes_resident(p), N * s.block_bytes);
    for (int i = 0; i < N; i++) {
        kv_window_drop(b[i]);
    }
    assert_int_equal(kv_pool_bytes_resident(p), N * s.block_bytes); /* for whoever is next */
    while ((thin[n] = kv_take_thin(p))) {
        memset(thin[n++]->data, 0x33, s.full_bytes);
        assert_true(kv_pool_bytes_resident(p) <= kv_pool_bytes_max(p));
    }
    assert_int_equal(n, 5 * N);
    while (n > 0) {
        kv_unref(thin[--n]);
    }
    for (int i = 0; i < N; i++) {
        assert_true(kv_window_take(b[i]));
        kv_block_settle(b[i]);
        assert_true(all_bytes(b[i]->window, s.window_bytes, 0));
        assert_true(kv_pool_bytes_resident(p) <= kv_pool_bytes_max(p));
    }
    for (int i = 0; i < N; i++) {
        kv_unref(b[i]);
    }
    while (kv_pool_touch(p, N, 1) > 0) {
    }
    assert_true(kv_pool_bytes_resident(p) <= kv_pool_bytes_max(p));
    kv_pool_free(p);
}

/* Of many sections a few are left, anywhere: they move together with what they hold, the pages of
 * the others go, and what is taken next is as blank as ever. */
static void at_rest_little_more_has_pages_than_is_in_use(void **state)
{
    (void)state;
    enum { N = 300, PERIOD = 6 };
    static struct kv_block *b[N], *more[N];
    const struct kv_keep keep = {8, 8};
    struct kv_shape s;
    struct kv_pool *p = NULL;
    struct err e;
    assert_int_equal(kv_shape_init(&s, KV_F16, 6, 1, 128, &e), 0);
    kv_shape_set_window(&s, 40, PERIOD);
    assert_int_equal(kv_pool_new(&s, N, &p, &e), 0);
    for (int i = 0; i < N; i++) {
        b[i] = kv_take(p);
        memset(b[i]->data, 1 + i % 250, s.full_bytes);
        memset(b[i]->window, 2 + i % 250, s.window_bytes);
    }
    assert_false(kv_pool_has_slack(p, keep));
    assert_int_equal(kv_pool_slim(p, keep), 0);
    for (int i = 0; i < N; i++) {
        if (i % 29) {
            kv_window_drop(b[i]);
        }
        if (i >= N / 2) {
            kv_unref(b[i]);
        }
    }
    const size_t used = kv_pool_bytes_used(p);
    assert_true(kv_pool_has_slack(p, keep));
    size_t given = 0;
    while (kv_pool_has_slack(p, keep)) {
        given += kv_pool_slim(p, keep);
    }
    /* What is in use, what is kept, and up to a huge page and a slot at the end of each. */
    const size_t most = used + 9 * s.block_bytes + 2 * ((size_t)2 << 20);
    assert_true(kv_pool_bytes_resident(p) <= most);
    assert_int_equal(given, N * s.block_bytes - kv_pool_bytes_resident(p));
    assert_int_equal(kv_pool_bytes_used(p), used);
    for (int i = 0; i < N / 2; i++) {
        assert_true(all_bytes(b[i]->data, s.full_bytes, 1 + i % 250));
        assert_int_equal(b[i]->window != NULL, i % 29 == 0);
        assert_true(!b[i]->window || all_bytes(b[i]->window, s.window_bytes, 2 + i % 250));
    }
    /* Those with pages are taken first; behind them is nothing that anybody wrote. */
    size_t n = 0, n_blank = 0;
    while (n < N && (more[n] = kv_take_raw(p))) {
        n_blank += all_bytes(more[n]->window, s.window_bytes, 0);
        assert_true(n >= 8 || !all_bytes(more[n]->window, s.window_bytes, 0));
        kv_block_zero_from(more[n++], 0);
    }
    assert_true(n >= N / 2 && n_blank >= n / 2);
    while (n > 0) {
        kv_unref(more[--n]);
    }
    for (int i = 0; i < N / 2; i++) {
        kv_unref(b[i]);
    }
    kv_pool_free(p);
}

struct presence {
    bool has[64];
};

static bool is_present(void *ctx, int n_block)
{
    return ((const struct presence *)ctx)->has[n_block];
}

/* By the definition: position n − 1 + 1 sees so far back, and all of that must be there. */
static int usable_by_definition(const struct kv_shape *s, const struct presence *p, int n_found)
{
    for (int n = n_found; n > 0; n--) {
        bool is_usable = true;
        for (int pos = n + 1 - s->window > 0 ? n + 1 - s->window : 0; pos < n; pos++) {
            is_usable = is_usable && p->has[pos / KV_BLOCK];
        }
        if (is_usable) {
            return n;
        }
    }
    return 0;
}

static void usable_is_what_its_definition_says(void **state)
{
    (void)state;
    uint64_t seed = random_u64() | 1;
    struct err e;
    print_message("seed %llu\n", (unsigned long long)seed);
    for (int i = 0; i < 3000; i++) {
        struct kv_shape s;
        struct presence p;
        assert_int_equal(kv_shape_init(&s, KV_F16, 2, 1, 16, &e), 0);
        seed = seed * 6364136223846793005u + 1442695040888963407u;
        kv_shape_set_window(&s, 2 + (int)((seed >> 33) % 400), 2);
        const int n_found = (int)((seed >> 20) % (64 * KV_BLOCK + 1)),
                  holes = (int)((seed >> 40) % 20);
        for (int k = 0; k < 64; k++) {
            seed = seed * 6364136223846793005u + 1442695040888963407u;
            p.has[k] = (int)((seed >> 35) % 20) >= holes;
        }
        assert_int_equal(kv_usable(&s, n_found, is_present, &p),
                         usable_by_definition(&s, &p, n_found));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sections_share_a_blocks_layers),
        cmocka_unit_test(where_all_layers_are_windowed_the_rest_is_next_to_nothing),
        cmocka_unit_test(what_is_cut_or_copied_leaves_the_neighbours_alone),
        cmocka_unit_test(a_dropped_section_makes_room_for_another),
        cmocka_unit_test(pages_of_both_sections_keep_the_budget),
        cmocka_unit_test(at_rest_little_more_has_pages_than_is_in_use),
        cmocka_unit_test(usable_is_what_its_definition_says),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
