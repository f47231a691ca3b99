/* BLAKE2b-256 vectors, hex, ids. */
#include "tests/base/testing.h"

#include "base/hash.h"

static int start(void **state)
{
    (void)state;
    struct err e;
    return hash_start(&e) || hash_start(NULL); /* twice does no harm */
}

static void assert_hash(const uint8_t hash[HASH_BYTES], const char *want)
{
    char hex[2 * HASH_BYTES + 1];
    hex_write(hash, HASH_BYTES, hex);
    assert_string_equal(hex, want);
}

#define HASH_EMPTY "0e5751c026e543b2e8ab2eb06099daa1d1e5df47778f7787faab45cdf12fe3a8"
#define HASH_ABC "bddd813c634239723171ef3fee98579b94964e3bb1cb3e427262c8c068d52319"
/* of the bytes 0…255, five times over (Python's hashlib.blake2b, digest_size 32) */
#define HASH_RAMP "82628cbfc9689e234b0923a531f4578fe2e7138a03e2f81ed6cde97517336650"

static void known_vectors_hold(void **state)
{
    (void)state;
    uint8_t hash[HASH_BYTES], ramp[1280];
    hash_of("", 0, hash);
    assert_hash(hash, HASH_EMPTY);
    hash_of(NULL, 0, hash);
    assert_hash(hash, HASH_EMPTY);
    hash_of("abc", 3, hash);
    assert_hash(hash, HASH_ABC);
    for (size_t i = 0; i < sizeof(ramp); i++)
        ramp[i] = (uint8_t)i;
    hash_of(ramp, sizeof(ramp), hash);
    assert_hash(hash, HASH_RAMP);
}

static void streaming_gives_the_same_for_every_split(void **state)
{
    (void)state;
    uint8_t ramp[1280], hash[HASH_BYTES];
    for (size_t i = 0; i < sizeof(ramp); i++)
        ramp[i] = (uint8_t)i;
    for (size_t split = 0; split <= sizeof(ramp); split++) {
        struct hash_state s;
        hash_init(&s);
        hash_add(&s, ramp, split);
        hash_add(&s, ramp + split, sizeof(ramp) - split);
        hash_end(&s, hash);
        assert_hash(hash, HASH_RAMP);
    }
}

static void hex_goes_both_ways(void **state)
{
    (void)state;
    const uint8_t bytes[] = {0x00, 0x7f, 0x80, 0xff, 0xa5};
    char hex[11];
    uint8_t back[5];
    hex_write(bytes, 5, hex);
    assert_string_equal(hex, "007f80ffa5");
    assert_true(hex_parse(hex, 10, back, 5));
    assert_memory_equal(back, bytes, 5);
    assert_true(hex_parse("007F80FFA5", 10, back, 5));
    assert_memory_equal(back, bytes, 5);
    assert_true(hex_parse("", 0, back, 0));
}

static void bad_hex_is_refused_and_touches_nothing(void **state)
{
    (void)state;
    uint8_t back[2] = {1, 2};
    assert_false(hex_parse("0g00", 4, back, 2));
    assert_false(hex_parse("000", 3, back, 2));
    assert_false(hex_parse("00000", 5, back, 2));
    assert_false(hex_parse("00", 2, back, 2));
    assert_false(hex_parse("00 0", 4, back, 2));
    assert_false(hex_parse("ffff", 4, back, SIZE_MAX / 2 + 3)); /* 2 * n would wrap to 4 */
    assert_int_equal(back[0], 1);
    assert_int_equal(back[1], 2);
}

static void random_ids_have_their_form_and_differ(void **state)
{
    (void)state;
    char a[5 + 33], b[5 + 33];
    uint8_t bytes[16];
    random_id("conv_", a);
    random_id("conv_", b);
    assert_int_equal(strlen(a), 37);
    assert_memory_equal(a, "conv_", 5);
    assert_true(hex_parse(a + 5, 32, bytes, 16));
    assert_string_not_equal(a, b);
    assert_true(random_u64() != random_u64());
    uint8_t x[16] = {0}, y[16] = {0};
    random_bytes(x, 16);
    random_bytes(y, 16);
    assert_memory_not_equal(x, y, 16);
}

static void bytes_equal_compares_all_bytes(void **state)
{
    (void)state;
    assert_true(bytes_equal("abc", "abc", 3));
    assert_false(bytes_equal("abc", "abd", 3));
    assert_true(bytes_equal("abc", "abd", 2));
    assert_true(bytes_equal("", "", 0));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(known_vectors_hold),
        cmocka_unit_test(streaming_gives_the_same_for_every_split),
        cmocka_unit_test(hex_goes_both_ways),
        cmocka_unit_test(bad_hex_is_refused_and_touches_nothing),
        cmocka_unit_test(random_ids_have_their_form_and_differ),
        cmocka_unit_test(bytes_equal_compares_all_bytes),
    };
    return cmocka_run_group_tests(tests, start, NULL);
}
