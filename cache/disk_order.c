/* The saved order of use. See disk_order.h. */
#include "cache/disk_order.h"

#include <string.h>

#define HEAD_BYTES 24
#define PREFIX_BYTES 8

static const char magic[16] = "HEARTHLRU\0001";

void order_write(const struct disk_index *x, struct buf *ret)
{
    uint8_t sum[HASH_BYTES];
    unsigned char count[8];
    const uint64_t n = x->n_entries - x->n_bad - x->n_pinned;
    for (int i = 0; i < 8; i++) {
        count[i] = (unsigned char)(n >> (8 * i));
    }
    buf_add(ret, magic, sizeof magic);
    buf_add(ret, (const char *)count, sizeof count);
    for (const struct disk_entry *e = x->oldest; e; e = e->newer) {
        buf_add(ret, (const char *)e->id, PREFIX_BYTES);
    }
    if (!buf_error(ret)) {
        hash_of(ret->data, ret->len, sum);
        buf_add(ret, (const char *)sum, sizeof sum);
    }
}

void order_read(struct disk_index *x, const char *data, size_t n)
{
    uint8_t sum[HASH_BYTES];
    uint64_t count = 0;
    if (n < HEAD_BYTES + HASH_BYTES || memcmp(data, magic, sizeof magic) != 0) {
        return;
    }
    for (int i = 8; i-- > 0;) {
        count = count << 8 | (unsigned char)data[sizeof magic + (size_t)i];
    }
    const size_t n_ids = n - HEAD_BYTES - HASH_BYTES;
    hash_of(data, n - HASH_BYTES, sum);
    if (count != n_ids / PREFIX_BYTES || n_ids % PREFIX_BYTES ||
        memcmp(sum, data + n - HASH_BYTES, HASH_BYTES) != 0) {
        return;
    }
    for (uint64_t i = 0; i < count; i++) {
        const char *at = data + HEAD_BYTES + PREFIX_BYTES * i;
        struct disk_entry *e = index_find_prefix(x, (const uint8_t *)at);
        if (e) {
            e->order = INT64_MIN + (int64_t)i;
        }
    }
}
