/* Leaves and root of base/hash_tree.h. */
#include "base/hash_tree.h"

size_t hash_n_leaves(size_t n)
{
    return n / HASH_LEAF_BYTES + (n % HASH_LEAF_BYTES != 0);
}

static size_t leaf_bytes(size_t n, size_t leaf)
{
    const size_t left = n - leaf * HASH_LEAF_BYTES;
    return left < HASH_LEAF_BYTES ? left : HASH_LEAF_BYTES;
}

void hash_leaves(const void *data, size_t n, size_t first, size_t count,
                 uint8_t (*ret)[SUM_BYTES])
{
    const unsigned char *p = data;
    for (size_t i = first; i < first + count; i++)
        sum_wide(p + i * HASH_LEAF_BYTES, leaf_bytes(n, i), ret[i]);
}

void hash_root(uint8_t (*leaves)[SUM_BYTES], size_t n, uint8_t ret[HASH_BYTES])
{
    struct hash_state h;
    const uint64_t size = n;
    hash_init(&h);
    hash_add(&h, "hearth tree 2", 14);
    hash_add(&h, &size, sizeof size);
    hash_add(&h, leaves, hash_n_leaves(n) * sizeof *leaves);
    hash_end(&h, ret);
}
