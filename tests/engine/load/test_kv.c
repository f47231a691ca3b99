/* KV blocks and their pool: sizes, zeroing, reference counts, sequences; a random walk beside a
 * fool that counts. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/sys.h"
#include "engine/kv.h"

static struct kv_pool *pool_of(enum kv_type type, int head_dim, size_t n_blocks)
{
    struct kv_shape shape;
    struct kv_pool *pool = NULL;
    struct err e;
    assert_int_equal(kv_shape_init(&shape, type, 3, 2, head_dim, &e), 0);
    assert_int_equal(kv_pool_new(&shape, n_blocks, &pool, &e), 0);
    return pool;
}

static struct kv_pool *small_pool(size_t n_blocks)
{
    return pool_of(KV_F16, 5, n_blocks);
}

static bool all_bytes(const unsigned char *p, size_t n, unsigned char c)
{
    for (size_t i = 0; i < n; i++) {
        if (p[i] != c) {
            return false;
        }
    }
    return true;
}

static uint64_t rng_next(uint64_t *s)
{
    *s ^= *s << 13;
    *s ^= *s >> 7;
    *s ^= *s << 17;
    return *s;
}

static void shape_has_the_designs_sizes(void **state)
{
    (void)state;
    struct kv_shape s;
    struct err e;
    assert_int_equal(kv_shape_init(&s, KV_F16, 30, 3, 64, &e), 0);
    assert_int_equal(s.head_bytes, 2 * 64 * 32 * 2);
    assert_int_equal(s.block_bytes, 30 * 3 * 8192);
    assert_int_equal(s.block_bytes / 32, 23040); /* 22.5 KiB a position: SmolLM2-135M */
    assert_int_equal(s.n_sections, 1);
    assert_int_equal(kv_k_offset(&s, 2, 1), (2 * 3 + 1) * 8192);
    assert_int_equal(kv_v_offset(&s, 2, 1), (2 * 3 + 1) * 8192 + 4096);
    assert_int_equal(s.block_bytes % 64, 0);
}

static void q8_0_takes_34_bytes_for_32_numbers(void **state)
{
    (void)state;
    struct kv_shape s;
    struct err e;
    assert_int_equal(kv_shape_init(&s, KV_Q8_0, 30, 3, 64, &e), 0);
    assert_int_equal(s.head_bytes, 2 * 32 * (64 + 4));
    assert_int_equal(s.block_bytes / 32, 30 * 3 * 2 * 68); /* 12 KiB a position: SmolLM2-135M */
    assert_int_equal(kv_v_offset(&s, 2, 1) - kv_k_offset(&s, 2, 1), 32 * 68);
    assert_int_equal(kv_scales_offset(64), 32 * 64);
    for (int dim = 16; dim <= 256; dim += 16) {
        assert_int_equal(kv_shape_init(&s, KV_Q8_0, 1, 1, dim, &e), 0);
        assert_int_equal(s.block_bytes, 64 * (dim + 2 * ((dim + 31) / 32)));
        assert_int_equal(s.block_bytes % 64, 0);
    }
}

static void a_latent_block_keeps_one_row_a_position(void **state)
{
    (void)state;
    struct kv_shape s;
    struct kv_pool *p = NULL;
    struct err e;
    assert_int_equal(kv_shape_init_latent(&s, KV_F16, 27, 576, &e), 0);
    assert_true(s.is_latent);
    assert_int_equal(s.block_bytes / 32, 27 * 576 * 2); /* DeepSeek-V2-Lite */
    assert_int_equal(s.block_bytes % 64, 0);
    assert_int_equal(kv_shape_init_latent(&s, KV_Q8_0, 27, 576, &e), 0);
    assert_int_equal(s.block_bytes / 32, 27 * (576 + 18 * 2)); /* a scale of each 32 dimensions */
    assert_int_equal(s.block_bytes % 64, 0);
    assert_int_equal(kv_shape_init_latent(&s, KV_Q8_0, 2, 40, &e), ERR_UNSUPPORTED);
    /* A cut: of four dimensions' rows and of scales' the first positions. */
    assert_int_equal(kv_shape_init_latent(&s, KV_Q8_0, 2, 48, &e), 0);
    assert_int_equal(kv_pool_new(&s, 2, &p, &e), 0);
    struct kv_block *from = kv_take(p), *to = kv_take(p);
    memset(from->data, 7, s.block_bytes);
    kv_block_copy(to, from, 5);
    for (int layer = 0; layer < 2; layer++) {
        const unsigned char *k = to->data + kv_k_offset(&s, layer, 0);
        const unsigned char *scales = k + kv_scales_offset(48);
        for (int i = 0; i < 48 * 32; i++) {
            assert_int_equal(k[i], i % 128 < 4 * 5 ? 7 : 0);
        }
        for (int i = 0; i < 2 * 32 * 2; i++) {
            assert_int_equal(scales[i], i % 64 < 2 * 5 ? 7 : 0);
        }
    }
    kv_unref(from);
    kv_unref(to);
    kv_pool_free(p);
    assert_int_equal(kv_shape_init_latent(&s, KV_F16, 2, 48, &e), 0);
    assert_int_equal(kv_pool_new(&s, 2, &p, &e), 0);
    struct kv_block *a = kv_take(p), *b = kv_take(p);
    memset(a->data, 7, s.block_bytes);
    kv_block_copy(b, a, 5);
    for (size_t row = 0; row < s.block_bytes / 64; row++) {
        for (size_t i = 0; i < 64; i++) {
            assert_int_equal(b->data[64 * row + i], i < 2 * 5 ? 7 : 0);
        }
    }
    kv_unref(a);
    kv_unref(b);
    kv_pool_free(p);
}

static void types_have_names(void **state)
{
    (void)state;
    enum kv_type t = KV_N_TYPES;
    assert_true(kv_type_find("Q8_0", &t) && t == KV_Q8_0);
    assert_true(kv_type_find("f16", &t) && t == KV_F16);
    assert_false(kv_type_find("q8", &t) || kv_type_find("", &t));
    assert_string_equal(kv_type_name(KV_Q8_0), "q8_0");
    assert_string_equal(kv_type_name(KV_N_TYPES), "?");
}

static void shape_refuses_what_makes_no_sense_and_leaves_the_output(void **state)
{
    (void)state;
    struct kv_shape s, before;
    struct err e;
    memset(&s, 0x5a, sizeof s);
    before = s;
    assert_int_equal(kv_shape_init(&s, KV_F16, 0, 3, 64, &e), ERR_INVAL);
    assert_int_equal(kv_shape_init(&s, KV_F16, 1, -1, 64, &e), ERR_INVAL);
    assert_int_equal(kv_shape_init(&s, KV_N_TYPES, 1, 1, 64, &e), ERR_UNSUPPORTED);
    for (int dim = 1; dim < 300; dim++) {
        if (dim % 16) {
            assert_int_equal(kv_shape_init(&s, KV_Q8_0, 1, 1, dim, &e), ERR_UNSUPPORTED);
        }
    }
    assert_non_null(strstr(e.text, "q8_0"));
    assert_non_null(strstr(e.text, "299"));
    assert_non_null(strstr(e.text, "f16"));
    assert_int_equal(kv_shape_init(&s, KV_F16, INT32_MAX, INT32_MAX, INT32_MAX, &e), ERR_LIMIT);
    assert_memory_equal(&s, &before, sizeof s);
}

static void pool_refuses_zero_and_more_than_addresses(void **state)
{
    (void)state;
    struct kv_shape s;
    struct kv_pool *p = NULL;
    struct err e;
    assert_int_equal(kv_shape_init(&s, KV_F16, 3, 2, 5, &e), 0);
    assert_int_equal(kv_pool_new(&s, 0, &p, &e), ERR_INVAL);
    assert_int_equal(kv_pool_new(&s, SIZE_MAX / 2, &p, &e), ERR_LIMIT);
    assert_int_equal(kv_pool_new(&s, SIZE_MAX / sizeof(struct kv_block), &p, &e), ERR_LIMIT);
    assert_null(p);
    kv_pool_free(NULL);
}

static int fail_in; /* the call, counted from 1, that fails */

static void *failing_malloc(size_t n)
{
    return --fail_in == 0 ? NULL : malloc(n);
}

static void *failing_realloc(void *p, size_t n)
{
    return --fail_in == 0 ? NULL : realloc(p, n);
}

static void *failing_mmap(void *addr, size_t n, int prot, int flags, int fd, off_t off)
{
    (void)addr, (void)n, (void)prot, (void)flags, (void)fd, (void)off;
    errno = ENOMEM;
    return (void *)-1;
}

static void every_allocation_may_fail(void **state)
{
    (void)state;
    struct kv_shape s;
    struct kv_pool *p = NULL;
    struct err e;
    assert_int_equal(kv_shape_init(&s, KV_F16, 3, 2, 5, &e), 0);
    sys.malloc = failing_malloc;
    for (int i = 1; i <= 3; i++) {
        fail_in = i;
        assert_int_equal(kv_pool_new(&s, 4, &p, &e), ERR_NOMEM);
        assert_null(p);
    }
    sys_reset();
    sys.mmap = failing_mmap;
    assert_int_equal(kv_pool_new(&s, 4, &p, &e), ERR_NOMEM);
    assert_null(p);
    sys_reset();
    p = small_pool(1);
    struct kv_seq q;
    kv_seq_init(&q);
    struct kv_block *b = kv_take(p);
    sys.realloc = failing_realloc;
    fail_in = 1;
    assert_int_equal(kv_seq_push(&q, b, &e), ERR_NOMEM);
    assert_int_equal(b->n_refs, 1); /* still the caller's */
    sys_reset();
    kv_unref(b);
    kv_seq_done(&q);
    kv_pool_free(p);
}

static void a_taken_block_is_zero_aligned_and_the_budget_ends(void **state)
{
    (void)state;
    struct kv_pool *p = small_pool(3);
    const size_t bytes = kv_pool_shape(p)->block_bytes;
    struct kv_block *b[3];
    for (int round = 0; round < 2; round++) {
        for (int i = 0; i < 3; i++) {
            b[i] = kv_take(p);
            assert_non_null(b[i]);
            assert_int_equal((uintptr_t)b[i]->data % 64, 0);
            assert_true(all_bytes(b[i]->data, bytes, 0));
            memset(b[i]->data, 0xff, bytes);
        }
        assert_null(kv_take(p));
        assert_int_equal(kv_pool_n_free(p), 0);
        for (int i = 0; i < 3; i++) {
            kv_unref(b[i]);
        }
        assert_int_equal(kv_pool_n_free(p), 3);
    }
    kv_unref(NULL);
    kv_pool_free(p);
}

static void the_last_reference_gives_the_slot_back(void **state)
{
    (void)state;
    struct kv_pool *p = small_pool(1);
    struct kv_block *b = kv_take(p);
    assert_ptr_equal(kv_ref(b), b);
    kv_unref(b);
    assert_null(kv_take(p));
    kv_unref(b);
    b = kv_take(p);
    assert_non_null(b);
    kv_unref(b);
    kv_pool_free(p);
}

/* An element's two bytes tell what and where it is, so that a misplaced one shows. */
static void fill(struct kv_block *b, const struct kv_shape *s)
{
    uint16_t *v = (uint16_t *)(void *)b->data;
    for (size_t i = 0; i < s->block_bytes / 2; i++) {
        v[i] = (uint16_t)(i * 40503u | 1u);
    }
}

/* The fool: every element of the block is looked up by (layer, head, dimension, position). */
static void check_cut(const struct kv_block *b, const struct kv_block *whole,
                      const struct kv_shape *s, int n)
{
    for (int l = 0; l < s->n_layers; l++) {
        for (int h = 0; h < s->n_kv_heads; h++) {
            for (int i = 0; i < s->head_dim * KV_BLOCK; i++) {
                const int d = i / KV_BLOCK, pos = i % KV_BLOCK;
                const size_t k = kv_k_offset(s, l, h) + ((size_t)d * KV_BLOCK + (size_t)pos) * 2;
                const size_t v =
                    kv_v_offset(s, l, h) + ((size_t)pos * (size_t)s->head_dim + (size_t)d) * 2;
                uint16_t got[2], want[2] = {0, 0};
                memcpy(&got[0], b->data + k, 2);
                memcpy(&got[1], b->data + v, 2);
                if (pos < n) {
                    memcpy(&want[0], whole->data + k, 2);
                    memcpy(&want[1], whole->data + v, 2);
                }
                assert_int_equal(got[0], want[0]);
                assert_int_equal(got[1], want[1]);
            }
        }
    }
}

static void a_copy_holds_the_first_positions_and_zeroes(void **state)
{
    (void)state;
    struct kv_pool *p = small_pool(2);
    const struct kv_shape *s = kv_pool_shape(p);
    struct kv_block *src = kv_take(p), *dst = kv_take(p);
    fill(src, s);
    for (int n = 0; n <= KV_BLOCK; n++) {
        memset(dst->data, 0xff, s->block_bytes);
        kv_block_copy(dst, src, n);
        check_cut(dst, src, s, n);
        fill(dst, s);
        kv_block_zero_from(dst, n);
        check_cut(dst, src, s, n);
    }
    kv_unref(src);
    kv_unref(dst);
    kv_pool_free(p);
}

/* The fool for Q8_0: which position each byte of a block belongs to, by the layout in kv.h. */
static int q8_position(const struct kv_shape *s, size_t at)
{
    const size_t dim = (size_t)s->head_dim, half = s->head_bytes / 2, in_head = at % s->head_bytes,
                 i = in_head % half;
    if (i >= dim * KV_BLOCK) {
        return (int)((i - dim * KV_BLOCK) / 2 % KV_BLOCK); /* scales [.][32 pos] */
    }
    return in_head < half ? (int)(i / 4 % KV_BLOCK) : (int)(i / dim);
}

static void check_q8_cut(const struct kv_block *b, const struct kv_block *whole,
                         const struct kv_shape *s, int n)
{
    for (size_t i = 0; i < s->block_bytes; i++) {
        assert_int_equal(b->data[i], q8_position(s, i) < n ? whole->data[i] : 0);
    }
}

static void q8_0_copies_and_zeroes_by_position(void **state)
{
    (void)state;
    for (int dim = 16; dim <= 80; dim += 16) {
        struct kv_pool *p = pool_of(KV_Q8_0, dim, 3);
        const struct kv_shape *s = kv_pool_shape(p);
        struct kv_block *src = kv_take(p), *dst = kv_take(p);
        struct kv_seq q;
        struct err e;
        fill(src, s);
        for (int n = 0; n <= KV_BLOCK; n++) {
            memset(dst->data, 0xff, s->block_bytes);
            kv_block_copy(dst, src, n);
            check_q8_cut(dst, src, s, n);
            fill(dst, s);
            kv_block_zero_from(dst, n);
            check_q8_cut(dst, src, s, n);
        }
        kv_seq_init(&q);
        fill(dst, s);
        assert_int_equal(kv_seq_push(&q, dst, &e), 0);
        q.n_tokens = 11;
        kv_seq_seal(&q);
        check_q8_cut(dst, src, s, 11);
        kv_seq_done(&q);
        kv_unref(src);
        kv_pool_free(p);
    }
}

static void seal_zeroes_what_an_abandoned_pass_left(void **state)
{
    (void)state;
    struct kv_pool *p = small_pool(3);
    const struct kv_shape *s = kv_pool_shape(p);
    struct kv_block *whole = kv_take(p);
    struct kv_seq q;
    struct err e;
    fill(whole, s);
    kv_seq_init(&q);
    assert_int_equal(kv_seq_capacity(&q), 0);
    kv_seq_seal(&q);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(kv_seq_push(&q, kv_take(p), &e), 0);
        fill(q.blocks[i], s);
    }
    assert_int_equal(kv_seq_capacity(&q), 64);
    q.n_tokens = 39;
    kv_seq_seal(&q);
    check_cut(q.blocks[0], whole, s, 32);
    check_cut(q.blocks[1], whole, s, 7);
    q.n_tokens = 32;
    kv_seq_seal(&q);
    check_cut(q.blocks[0], whole, s, 32);
    check_cut(q.blocks[1], whole, s, 0);
    kv_seq_done(&q);
    kv_seq_done(&q);
    kv_unref(whole);
    assert_int_equal(kv_pool_n_free(p), 3);
    kv_pool_free(p);
}

/* 2,000 random takes, refs, unrefs and pushes; the fool keeps one counter a block. */
static void counts_agree_with_a_fool(void **state)
{
    (void)state;
    enum { N = 17 };
    uint64_t seed = 0x9e3779b97f4a7c15u;
    struct kv_pool *p = small_pool(N);
    struct kv_block *held[4 * N];
    int n_held = 0;
    printf("seed %#llx\n", (unsigned long long)seed);
    for (int step = 0; step < 2000; step++) {
        const uint64_t r = rng_next(&seed);
        if (r % 3 == 0 && n_held < 4 * N) {
            struct kv_block *b = kv_take(p);
            int distinct = 0;
            for (int i = 0; i < n_held; i++) {
                int first = 1;
                for (int j = 0; j < i; j++) {
                    first &= held[j] != held[i];
                }
                distinct += first;
                assert_true(held[i] != b);
            }
            assert_int_equal(b == NULL, distinct == N);
            assert_int_equal(kv_pool_n_free(p), N - distinct - (b != NULL));
            if (b) {
                held[n_held++] = b;
            }
        } else if (r % 3 == 1 && n_held && n_held < 4 * N) {
            held[n_held] = kv_ref(held[(r >> 8) % (unsigned)n_held]);
            n_held++;
        } else if (n_held) {
            const unsigned i = (unsigned)((r >> 8) % (unsigned)n_held);
            kv_unref(held[i]);
            held[i] = held[--n_held];
        }
    }
    while (n_held) {
        kv_unref(held[--n_held]);
    }
    assert_int_equal(kv_pool_n_free(p), N);
    kv_pool_free(p);
}

/* Pages of [p, p + n) that the system holds, of those that lie whole inside. */
static size_t n_pages_held(const unsigned char *p, size_t n)
{
    static unsigned char seen[4096];
    const uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
    const uintptr_t a = ((uintptr_t)p + page - 1) / page * page;
    const uintptr_t b = ((uintptr_t)p + n) / page * page;
    size_t n_held = 0;
    assert_true(b > a && (b - a) / page <= sizeof seen);
    assert_int_equal(mincore((void *)a, b - a, seen), 0);
    for (size_t i = 0; i < (b - a) / page; i++) {
        n_held += seen[i] & 1;
    }
    return n_held;
}

static void trim_gives_free_slots_to_the_system_and_no_byte_of_others(void **state)
{
    (void)state;
    enum { N = 16 };
    struct kv_shape shape;
    struct kv_pool *p = NULL;
    struct kv_block *b[N];
    struct err e;
    assert_int_equal(kv_shape_init(&shape, KV_F16, 30, 3, 64, &e), 0);
    assert_int_equal(kv_pool_new(&shape, N, &p, &e), 0);
    assert_int_equal(kv_pool_trim(p), 0); /* nothing was touched */
    for (int i = 0; i < N; i++) {
        b[i] = kv_take(p);
        memset(b[i]->data, 0xA0 + i, shape.block_bytes);
    }
    assert_int_equal(kv_pool_bytes_resident(p), N * shape.block_bytes);
    assert_int_equal(kv_pool_trim(p), 0); /* nothing is free */
    for (int i = 0; i < N; i++) {
        if (i % 4 != 1) {
            kv_unref(b[i]);
        }
    }
    assert_int_equal(kv_pool_bytes_resident(p), N * shape.block_bytes);
    const size_t given = kv_pool_trim(p);
    assert_true(given > (N - N / 4 - 4) * shape.block_bytes && given <= 12 * shape.block_bytes);
    assert_int_equal(kv_pool_bytes_resident(p), N / 4 * shape.block_bytes);
    assert_int_equal(kv_pool_trim(p), 0);
    for (int i = 0; i < N; i++) {
        const size_t held = n_pages_held(b[i]->data, shape.block_bytes);
        if (i % 4 == 1) {
            assert_true(all_bytes(b[i]->data, shape.block_bytes, (unsigned char)(0xA0 + i)));
            assert_true(held >= shape.block_bytes / 4096 - 1);
        } else {
            assert_int_equal(held, 0);
        }
    }
    kv_pool_relax(p);
    for (struct kv_block *c; (c = kv_take(p));) {
        assert_true(all_bytes(c->data, shape.block_bytes, 0));
    }
    assert_int_equal(kv_pool_bytes_resident(p), N * shape.block_bytes);
    for (int i = 0; i < N; i++) {
        kv_unref(b[i]); /* the slots' own: all have one reference */
    }
    kv_pool_free(p);
}

static void touched_slots_are_resident_and_others_wait(void **state)
{
    (void)state;
    enum { N = 8 };
    struct kv_shape shape;
    struct kv_pool *p = NULL;
    struct kv_block *b[N];
    struct err e;
    assert_int_equal(kv_shape_init(&shape, KV_F16, 30, 3, 64, &e), 0);
    assert_int_equal(kv_pool_new(&shape, N, &p, &e), 0);
    b[0] = kv_take(p);
    assert_int_equal(kv_pool_touch(p, 3, 2), 2);
    assert_int_equal(kv_pool_bytes_resident(p), 3 * shape.block_bytes);
    assert_int_equal(kv_pool_touch(p, 3, 2), 1);
    assert_int_equal(kv_pool_touch(p, 3, 2), 0);
    assert_int_equal(kv_pool_bytes_resident(p), 4 * shape.block_bytes);
    for (int i = 1; i < N; i++) {
        b[i] = kv_take(p);
        assert_int_equal(kv_pool_bytes_resident(p),
                         (size_t)(i < 4 ? 4 : i + 1) * shape.block_bytes); /* those were the next */
        assert_true(all_bytes(b[i]->data, shape.block_bytes, 0));
    }
    assert_int_equal(kv_pool_touch(p, N, N), 0); /* none is free */
    for (int i = 0; i < N; i++) {
        kv_unref(b[i]);
    }
    assert_true(kv_pool_trim(p) > 0);
    assert_int_equal(kv_pool_bytes_resident(p), 0);
    assert_int_equal(kv_pool_touch(p, 100, 100), N);
    assert_true(n_pages_held(b[0]->data, shape.block_bytes) >= shape.block_bytes / 4096 - 1);
    kv_pool_free(p);
}

static void a_raw_block_is_clean_after_its_first_use(void **state)
{
    (void)state;
    struct kv_shape shape;
    struct kv_pool *p = NULL;
    struct err e;
    assert_int_equal(kv_shape_init(&shape, KV_F16, 2, 2, 8, &e), 0);
    assert_int_equal(kv_pool_new(&shape, 2, &p, &e), 0);
    struct kv_block *src = kv_take(p), *b = kv_take(p);
    memset(src->data, 0x11, shape.block_bytes);
    memset(b->data, 0xEE, shape.block_bytes);
    kv_unref(b);
    b = kv_take_raw(p);
    assert_true(b->is_raw);
    kv_block_zero_from(b, 0);
    assert_false(b->is_raw);
    assert_true(all_bytes(b->data, shape.block_bytes, 0));
    memset(b->data, 0xEE, shape.block_bytes);
    kv_unref(b);
    b = kv_take_raw(p);
    kv_block_copy(b, src, 5);
    assert_false(b->is_raw);
    kv_block_zero_from(b, 0); /* of both kinds of zeroing the same comes */
    kv_block_copy(b, src, 0);
    assert_true(all_bytes(b->data, shape.block_bytes, 0));
    kv_unref(b);
    kv_unref(src);
    kv_pool_free(p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(shape_has_the_designs_sizes),
        cmocka_unit_test(q8_0_takes_34_bytes_for_32_numbers),
        cmocka_unit_test(a_latent_block_keeps_one_row_a_position),
        cmocka_unit_test(types_have_names),
        cmocka_unit_test(q8_0_copies_and_zeroes_by_position),
        cmocka_unit_test(shape_refuses_what_makes_no_sense_and_leaves_the_output),
        cmocka_unit_test(pool_refuses_zero_and_more_than_addresses),
        cmocka_unit_test(every_allocation_may_fail),
        cmocka_unit_test(a_taken_block_is_zero_aligned_and_the_budget_ends),
        cmocka_unit_test(the_last_reference_gives_the_slot_back),
        cmocka_unit_test(a_copy_holds_the_first_positions_and_zeroes),
        cmocka_unit_test(seal_zeroes_what_an_abandoned_pass_left),
        cmocka_unit_test(counts_agree_with_a_fool),
        cmocka_unit_test(trim_gives_free_slots_to_the_system_and_no_byte_of_others),
        cmocka_unit_test(touched_slots_are_resident_and_others_wait),
        cmocka_unit_test(a_raw_block_is_clean_after_its_first_use),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
