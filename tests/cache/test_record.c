/* A block's file that isn't exactly what was written is refused, whatever happened to it. */
#include "tests/cache/fake.h"

#include <stdlib.h>
#include <string.h>

#include "cache/record.h"

#define BLOCK_BYTES 12288u
#define FILE_BYTES (RECORD_HEAD_BYTES + BLOCK_BYTES)

struct file {
    unsigned char bytes[FILE_BYTES];
    uint8_t root[HASH_BYTES], id[HASH_BYTES];
};

static struct record example(int count, int first)
{
    struct record r = {.count = count, .who = 77, .cost_us = 40000};
    for (int i = 0; i < HASH_BYTES; i++) {
        r.root[i] = (uint8_t)(i + 1);
        r.parent[i] = (uint8_t)(200 - i);
    }
    for (int i = 0; i < count; i++) {
        r.ids[i] = first + i * 7;
    }
    return r;
}

/* Both kinds of files run the same tests, one group after the other. */
static size_t window_bytes; /* of BLOCK_BYTES */

static struct record_data data_of(struct file *f, size_t block_bytes)
{
    unsigned char *full = f->bytes + RECORD_HEAD_BYTES;
    return (struct record_data){.full = full,
                                .window = window_bytes ? full + block_bytes - window_bytes : NULL,
                                .full_bytes = block_bytes - window_bytes,
                                .window_bytes = window_bytes};
}

static void make(const struct record *r, struct file *f)
{
    uint64_t seed = 88172645463325252u + (uint64_t)r->ids[0];
    for (size_t i = 0; i < BLOCK_BYTES; i++) {
        f->bytes[RECORD_HEAD_BYTES + i] = (unsigned char)fake_random(&seed);
    }
    const struct record_data d = data_of(f, BLOCK_BYTES);
    record_write(r, &d, f->bytes);
    memcpy(f->root, r->root, HASH_BYTES);
    record_id(r, f->id);
}

static int parse_as(const struct file *f, size_t block_bytes, struct record *ret, struct err *e)
{
    struct file copy = *f;
    const struct record_data d = data_of(&copy, block_bytes);
    const struct record_name name = {.root = f->root, .id = f->id, .block_bytes = block_bytes};
    return record_parse(&name, f->bytes, &d, ret, e);
}

/* Refused with a text, and *ret isn't touched. */
static void refused(const struct file *f)
{
    struct record r, before;
    struct err e = {0};
    memset(&r, 0x5a, sizeof r);
    before = r;
    assert_int_equal(parse_as(f, BLOCK_BYTES, &r, &e), ERR_CORRUPT);
    assert_memory_equal(&r, &before, sizeof r);
    assert_true(e.text[0] != '\0');
}

static void what_was_written_is_read(void **state)
{
    (void)state;
    for (int count = 1; count <= KV_BLOCK; count++) {
        struct file f;
        struct record got;
        struct err e;
        const struct record r = example(count, count == 3 ? -5 : 49151);
        make(&r, &f);
        assert_int_equal(parse_as(&f, BLOCK_BYTES, &got, &e), 0);
        assert_int_equal(got.count, count);
        assert_memory_equal(got.ids, r.ids, sizeof r.ids);
        assert_memory_equal(got.root, r.root, HASH_BYTES);
        assert_memory_equal(got.parent, r.parent, HASH_BYTES);
        assert_int_equal(got.who, 77);
        assert_int_equal(got.cost_us, 40000);
    }
}

static void every_flipped_byte_is_seen(void **state)
{
    (void)state;
    struct file f;
    const struct record r = example(31, 5);
    make(&r, &f);
    for (size_t i = 0; i < FILE_BYTES; i++) {
        const unsigned char flips[] = {1, 0x80, 0xff};
        for (size_t k = 0; k < sizeof flips; k++) {
            f.bytes[i] ^= flips[k];
            refused(&f);
            f.bytes[i] ^= flips[k];
        }
    }
}

/* A file whose end was never written reads as zeros from there on; the size itself is checked where
 * the file is opened. */
static void every_zeroed_end_is_seen(void **state)
{
    (void)state;
    struct file f;
    const struct record r = example(32, 5);
    for (size_t n = 0; n < FILE_BYTES; n += 512) {
        make(&r, &f);
        memset(f.bytes + n, 0, FILE_BYTES - n);
        refused(&f);
        make(&r, &f);
        memset(f.bytes, 0, n + 512);
        refused(&f);
    }
}

static void another_blocks_file_is_seen(void **state)
{
    (void)state;
    struct file a, b, mixed;
    const struct record r = example(32, 5), other = example(32, 6), shorter = example(31, 5);
    make(&r, &a);
    make(&other, &b);
    mixed = a;
    memcpy(mixed.id, b.id, HASH_BYTES);
    refused(&mixed);
    mixed = a; /* one's head over the other's block */
    memcpy(mixed.bytes + RECORD_HEAD_BYTES, b.bytes + RECORD_HEAD_BYTES, BLOCK_BYTES);
    refused(&mixed);
    make(&shorter, &b);
    mixed = b;
    memcpy(mixed.id, a.id, HASH_BYTES);
    refused(&mixed);
}

static void another_root_or_size_is_seen(void **state)
{
    (void)state;
    struct file f;
    struct record got;
    struct err e;
    const struct record r = example(32, 5);
    make(&r, &f);
    f.root[31] ^= 1;
    refused(&f);
    f.root[31] ^= 1;
    assert_int_equal(parse_as(&f, BLOCK_BYTES - 64, &got, &e), ERR_CORRUPT);
    assert_int_equal(parse_as(&f, BLOCK_BYTES, &got, &e), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_was_written_is_read),
        cmocka_unit_test(every_flipped_byte_is_seen),
        cmocka_unit_test(every_zeroed_end_is_seen),
        cmocka_unit_test(another_blocks_file_is_seen),
        cmocka_unit_test(another_root_or_size_is_seen),
    };
    const int n_failed = cmocka_run_group_tests(tests, NULL, NULL);
    window_bytes = 8192;
    return n_failed + cmocka_run_group_tests(tests, NULL, NULL);
}
