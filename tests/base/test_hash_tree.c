/* Tests of base/hash_tree.h: four leaves at once are what libsodium makes of each. */
#include "base/hash_tree.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define LEAVES_MAX 12
#define BYTES_MAX (LEAVES_MAX * HASH_LEAF_BYTES)

static unsigned char data[BYTES_MAX + 1];

static int start(void **state)
{
    (void)state;
    uint64_t x = 88172645463325252u;
    for (size_t i = 0; i < sizeof data; i++) {
        x ^= x << 13, x ^= x >> 7, x ^= x << 17;
        data[i] = (unsigned char)x;
    }
    return hash_start(NULL);
}

static void leaves_are_counted_with_the_short_one(void **state)
{
    (void)state;
    assert_int_equal(hash_n_leaves(0), 0);
    assert_int_equal(hash_n_leaves(1), 1);
    assert_int_equal(hash_n_leaves(HASH_LEAF_BYTES), 1);
    assert_int_equal(hash_n_leaves(HASH_LEAF_BYTES + 1), 2);
    assert_int_equal(hash_n_leaves(7 * HASH_LEAF_BYTES - 1), 7);
}

/* Sizes about whole leaves and fours of them, at addresses of any alignment. */
static void four_at_once_are_four_alone(void **state)
{
    (void)state;
    uint8_t wide[LEAVES_MAX][HASH_BYTES], plain[LEAVES_MAX][HASH_BYTES], own[HASH_BYTES];
    for (size_t leaves = 1; leaves <= LEAVES_MAX; leaves++) {
        for (size_t less = 0; less < 3; less++) {
            const size_t n = leaves * HASH_LEAF_BYTES - less * 127;
            const unsigned char *p = data + leaves % 2;
            memset(wide, 0, sizeof wide);
            hash_leaves(p, n, 0, leaves, wide);
            hash_leaves_plain(p, n, 0, leaves, plain);
            assert_memory_equal(wide, plain, leaves * HASH_BYTES);
            hash_of(p + (leaves - 1) * HASH_LEAF_BYTES, HASH_LEAF_BYTES - less * 127, own);
            assert_memory_equal(wide[leaves - 1], own, HASH_BYTES);
        }
    }
}

static void any_part_of_the_leaves_can_be_hashed_alone(void **state)
{
    (void)state;
    const size_t n = BYTES_MAX - 1000;
    uint8_t all[LEAVES_MAX][HASH_BYTES], parts[LEAVES_MAX + 1][HASH_BYTES];
    hash_leaves(data, n, 0, LEAVES_MAX, all);
    for (size_t cut = 1; cut < LEAVES_MAX; cut++) {
        memset(parts, 0x5a, sizeof parts);
        hash_leaves(data, n, cut, LEAVES_MAX - cut, parts);
        assert_int_equal(parts[cut - 1][0], 0x5a); /* what wasn't asked for stays */
        hash_leaves(data, n, 0, cut, parts);
        assert_memory_equal(parts, all, sizeof all);
        assert_int_equal(parts[LEAVES_MAX][31], 0x5a);
    }
}

static void the_root_tells_every_bit_and_the_size(void **state)
{
    (void)state;
    uint8_t leaves[LEAVES_MAX][HASH_BYTES], root[HASH_BYTES], other[HASH_BYTES];
    const size_t n = 5 * HASH_LEAF_BYTES;
    hash_leaves(data, n, 0, 5, leaves);
    hash_root(leaves, n, root);
    hash_root(leaves, n - 1, other);
    assert_memory_not_equal(root, other, HASH_BYTES);
    for (size_t at = 0; at < n; at += 9973) {
        data[at] ^= 1;
        hash_leaves(data, n, 0, 5, leaves);
        hash_root(leaves, n, other);
        assert_memory_not_equal(root, other, HASH_BYTES);
        data[at] ^= 1;
    }
    hash_leaves(data, n, 0, 5, leaves);
    hash_root(leaves, n, other);
    assert_memory_equal(root, other, HASH_BYTES);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(leaves_are_counted_with_the_short_one),
        cmocka_unit_test(four_at_once_are_four_alone),
        cmocka_unit_test(any_part_of_the_leaves_can_be_hashed_alone),
        cmocka_unit_test(the_root_tells_every_bit_and_the_size),
    };
    return cmocka_run_group_tests(tests, start, NULL);
}
