/* The arena: alignment, zeroes, stability, ceilings. */
#include "tests/base/testing.h"

#include "base/arena.h"

static void blocks_are_zeroed_aligned_and_keep_their_bytes(void **state)
{
    (void)state;
    test_seed();
    struct arena a;
    arena_init(&a, (size_t)64 << 20);
    unsigned char *block[500];
    size_t size[500];
    for (int i = 0; i < 500; i++) {
        size[i] = test_random(i % 10 == 0 ? 200000 : 300);
        block[i] = arena_alloc(&a, size[i]);
        assert_non_null(block[i]);
        assert_int_equal((uintptr_t)block[i] % 16, 0);
        for (size_t k = 0; k < size[i]; k++)
            assert_int_equal(block[i][k], 0);
        memset(block[i], i & 0xFF, size[i]);
    }
    for (int i = 0; i < 500; i++)
        for (size_t k = 0; k < size[i]; k++)
            assert_int_equal(block[i][k], i & 0xFF);
    arena_done(&a);
    arena_done(&a);
    arena_done(NULL);
}

static void the_ceiling_holds_and_an_empty_block_is_valid(void **state)
{
    (void)state;
    struct arena a;
    arena_init(&a, 64);
    assert_non_null(arena_alloc(&a, 0));
    assert_non_null(arena_alloc(&a, 48));
    assert_int_equal(a.used, 64);
    assert_null(arena_alloc(&a, 1));
    assert_null(arena_alloc(&a, SIZE_MAX));
    assert_null(arena_alloc(&a, SIZE_MAX - 15));
    arena_done(&a);
    arena_init(&a, SIZE_MAX);
    assert_null(arena_array(&a, SIZE_MAX / 2, 3));
    assert_null(arena_alloc(&a, SIZE_MAX - 31));
    assert_non_null(arena_array(&a, 7, 3));
    arena_done(&a);
}

static void a_large_block_leaves_the_current_chunk_in_use(void **state)
{
    (void)state;
    struct arena a;
    arena_init(&a, SIZE_MAX);
    char *first = arena_alloc(&a, 16);
    assert_non_null(arena_alloc(&a, 1 << 20));
    assert_ptr_equal(arena_alloc(&a, 16), first + 16);
    arena_done(&a);
}

static void copies_end_in_a_nul(void **state)
{
    (void)state;
    struct arena a;
    arena_init(&a, 4096);
    assert_memory_equal(arena_copy(&a, "a\0b", 3), "a\0b", 4);
    assert_string_equal(arena_copy(&a, NULL, 0), "");
    assert_string_equal(arena_str(&a, "text"), "text");
    assert_null(arena_copy(&a, "x", SIZE_MAX));
    arena_done(&a);
}

static void no_memory_gives_null_and_the_arena_goes_on(void **state)
{
    (void)state;
    struct arena a;
    arena_init(&a, SIZE_MAX);
    fault_memory(0);
    void *p = arena_alloc(&a, 10);
    assert_true(fault_end());
    assert_null(p);
    assert_int_equal(a.used, 0);
    assert_non_null(arena_alloc(&a, 10));
    arena_done(&a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(blocks_are_zeroed_aligned_and_keep_their_bytes),
        cmocka_unit_test(the_ceiling_holds_and_an_empty_block_is_valid),
        cmocka_unit_test(a_large_block_leaves_the_current_chunk_in_use),
        cmocka_unit_test(copies_end_in_a_nul),
        cmocka_unit_test(no_memory_gives_null_and_the_arena_goes_on),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
