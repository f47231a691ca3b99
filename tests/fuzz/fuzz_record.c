/*
 * A KV block's file of any bytes is refused with a text, or it is the one file that holds what was
 * read from it. Checksums keep a fuzzer out, so that each input is tried as it is and once more
 * with its checksums put right; its name is taken from itself.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "cache/record.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

#define BLOCK_BYTES 64u
#define WINDOW_BYTES 24u

struct file {
    unsigned char bytes[RECORD_HEAD_BYTES + BLOCK_BYTES];
};

static struct record_data data_of(struct file *f, size_t window_bytes)
{
    unsigned char *full = f->bytes + RECORD_HEAD_BYTES;
    return (struct record_data){.full = full,
                                .window = window_bytes ? full + BLOCK_BYTES - window_bytes : NULL,
                                .full_bytes = BLOCK_BYTES - window_bytes,
                                .window_bytes = window_bytes};
}

static void try_file(struct file *f)
{
    struct record_data d = data_of(f, f->bytes[84] == 2 ? WINDOW_BYTES : 0);
    uint8_t id[HASH_BYTES];
    struct record claimed = {0}, r;
    struct err e = {0};
    const struct record_name name = {
        .root = f->bytes + 16, .id = id, .block_bytes = BLOCK_BYTES};
    /* The id that its own words give; a count that isn't one can have any. */
    claimed.count = f->bytes[80] >= 1 && f->bytes[80] <= KV_BLOCK ? f->bytes[80] : 1;
    memcpy(claimed.parent, f->bytes + 48, HASH_BYTES);
    memcpy(claimed.ids, f->bytes + 96, sizeof claimed.ids); /* on a little-endian machine */
    record_id(&claimed, id);
    if (record_parse(&name, f->bytes, &d, &r, &e)) {
        if (!e.text[0])
            abort();
        return;
    }
    unsigned char head[RECORD_HEAD_BYTES];
    record_write(&r, &d, head);
    if (memcmp(head, f->bytes, sizeof head) != 0)
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    struct file f = {{0}};
    const struct record any = {.count = 1};
    memcpy(f.bytes, data, n < sizeof f.bytes ? n : sizeof f.bytes);
    try_file(&f);
    /* The bytes laid over a sound file, from its end too; of one section or two. */
    const struct record_data d = data_of(&f, n % 2 ? WINDOW_BYTES : 0);
    record_write(&any, &d, f.bytes);
    try_file(&f);
    for (size_t i = 0; i + 2 < n && i < 3000; i += 3)
        f.bytes[(data[i] | data[i + 1] << 8) % sizeof f.bytes] ^= data[i + 2];
    try_file(&f);
    return 0;
}
