/* Tests of base/hash_tree.h and base/sum.h. */
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

/* XXH3's sums of nothing and of ones that are known, high half first. */
static void sums_are_xxh3(void **state)
{
    (void)state;
    static const struct {
        const char *text, *hex;
        uint64_t short_sum;
    } known[] = {
        {"", "99aa06d3014798d86001c324468d497f", 0x2d06800538d394c2},
        {"a", "a96faf705af16834e6c632b61e964e1f", 0xe6c632b61e964e1f},
        {"abc", "06b05ab6733a618578af5f94892f3950", 0x78af5f94892f3950},
    };
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        uint8_t sum[SUM_BYTES];
        char hex[2 * SUM_BYTES + 1];
        sum_wide(known[i].text, strlen(known[i].text), sum);
        hex_write(sum, SUM_BYTES, hex);
        assert_string_equal(hex, known[i].hex);
        assert_true(sum_of(known[i].text, strlen(known[i].text)) == known[i].short_sum);
    }
}

/* Sizes about whole leaves, at addresses of any alignment. */
static void a_leaf_is_the_sum_of_its_bytes(void **state)
{
    (void)state;
    static const size_t less[] = {0, 1, 127, HASH_LEAF_BYTES - 1};
    uint8_t leaves[LEAVES_MAX][SUM_BYTES], own[SUM_BYTES];
    for (size_t n_leaves = 1; n_leaves <= LEAVES_MAX; n_leaves++) {
        for (size_t k = 0; k < sizeof less / sizeof *less; k++) {
            const size_t n = n_leaves * HASH_LEAF_BYTES - less[k];
            const unsigned char *p = data + n_leaves % 2;
            assert_int_equal(hash_n_leaves(n), n_leaves);
            hash_leaves(p, n, 0, n_leaves, leaves);
            for (size_t i = 0; i < n_leaves; i++) {
                const size_t at = i * HASH_LEAF_BYTES, left = n - at;
                sum_wide(p + at, left < HASH_LEAF_BYTES ? left : HASH_LEAF_BYTES, own);
                assert_memory_equal(leaves[i], own, SUM_BYTES);
            }
        }
    }
}

static void any_part_of_the_leaves_can_be_hashed_alone(void **state)
{
    (void)state;
    const size_t n = BYTES_MAX - 1000;
    uint8_t all[LEAVES_MAX][SUM_BYTES], parts[LEAVES_MAX + 1][SUM_BYTES];
    hash_leaves(data, n, 0, LEAVES_MAX, all);
    for (size_t cut = 1; cut < LEAVES_MAX; cut++) {
        memset(parts, 0x5a, sizeof parts);
        hash_leaves(data, n, cut, LEAVES_MAX - cut, parts);
        assert_int_equal(parts[cut - 1][0], 0x5a); /* what wasn't asked for stays */
        hash_leaves(data, n, 0, cut, parts);
        assert_memory_equal(parts, all, sizeof all);
        assert_int_equal(parts[LEAVES_MAX][SUM_BYTES - 1], 0x5a);
    }
}

static void the_root_tells_every_bit_and_the_size(void **state)
{
    (void)state;
    uint8_t leaves[LEAVES_MAX][SUM_BYTES], root[HASH_BYTES], other[HASH_BYTES];
    const size_t n = 5 * HASH_LEAF_BYTES;
    hash_leaves(data, n, 0, 5, leaves);
    hash_root(leaves, n, root);
    hash_root(leaves, n - 1, other);
    assert_memory_not_equal(root, other, HASH_BYTES);
    /* Leaves that change places are another text. */
    uint8_t first[SUM_BYTES];
    memcpy(first, leaves[0], SUM_BYTES);
    memcpy(leaves[0], leaves[1], SUM_BYTES);
    memcpy(leaves[1], first, SUM_BYTES);
    hash_root(leaves, n, other);
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
        cmocka_unit_test(sums_are_xxh3),
        cmocka_unit_test(a_leaf_is_the_sum_of_its_bytes),
        cmocka_unit_test(any_part_of_the_leaves_can_be_hashed_alone),
        cmocka_unit_test(the_root_tells_every_bit_and_the_size),
    };
    return cmocka_run_group_tests(tests, start, NULL);
}
