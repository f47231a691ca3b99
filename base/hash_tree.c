/*
 * Leaves and root of base/hash_tree.h; and BLAKE2b (RFC 7693, unkeyed, 32 bytes) of four equally
 * long texts at once, one a lane of 64 bits:
 *
 *     v[i]   [ text 0's word i │ text 1's │ text 2's │ text 3's ]       16 of them
 *     m[i]   a block's words, turned so from four rows of memory        16 more
 *
 * Sixteen registers hold v, so words of the message are added from memory.
 */
#include "base/hash_tree.h"

#include <string.h>

#define LANES 4

size_t hash_n_leaves(size_t n)
{
    return n / HASH_LEAF_BYTES + (n % HASH_LEAF_BYTES != 0);
}

static size_t leaf_bytes(size_t n, size_t leaf)
{
    const size_t left = n - leaf * HASH_LEAF_BYTES;
    return left < HASH_LEAF_BYTES ? left : HASH_LEAF_BYTES;
}

void hash_leaves_plain(const void *data, size_t n, size_t first, size_t count,
                       uint8_t (*ret)[HASH_BYTES])
{
    const unsigned char *p = data;
    for (size_t i = first; i < first + count; i++)
        hash_of(p + i * HASH_LEAF_BYTES, leaf_bytes(n, i), ret[i]);
}

#if defined(__x86_64__)

#include <immintrin.h>

#define BLOCK_BYTES 128
#define ROUNDS 12
#define AVX2 __attribute__((target("avx2")))

static const uint64_t iv[8] = {
    0x6A09E667F3BCC908, 0xBB67AE8584CAA73B, 0x3C6EF372FE94F82B, 0xA54FF53A5F1D36F1,
    0x510E527FADE682D1, 0x9B05688C2B3E6C1F, 0x1F83D9ABFB41BD6B, 0x5BE0CD19137E2179,
};

static const uint8_t sigma[10][16] = {
    {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15},
    {14, 10, 4, 8, 9, 15, 13, 6, 1, 12, 0, 2, 11, 7, 5, 3},
    {11, 8, 12, 0, 5, 2, 15, 13, 10, 14, 3, 6, 7, 1, 9, 4},
    {7, 9, 3, 1, 13, 12, 11, 14, 2, 6, 5, 10, 4, 0, 15, 8},
    {9, 0, 5, 7, 2, 4, 10, 15, 14, 1, 11, 12, 6, 8, 3, 13},
    {2, 12, 6, 10, 0, 11, 8, 3, 4, 13, 7, 5, 15, 14, 1, 9},
    {12, 5, 1, 15, 14, 13, 4, 10, 0, 7, 6, 3, 9, 2, 8, 11},
    {13, 11, 7, 14, 12, 1, 3, 9, 5, 0, 15, 4, 8, 6, 2, 10},
    {6, 15, 14, 9, 11, 3, 0, 8, 12, 2, 13, 7, 1, 4, 10, 5},
    {10, 2, 8, 4, 7, 6, 1, 5, 15, 11, 9, 14, 3, 12, 13, 0},
};

/* Words 4g … 4g + 3 of the four texts' blocks, a text a lane. */
AVX2 static inline void turn(const unsigned char *const at[LANES], int g, __m256i m[4])
{
    __m256i r[LANES];
    for (int i = 0; i < LANES; i++)
        r[i] = _mm256_loadu_si256((const __m256i *)(const void *)(at[i] + 32 * g));
    const __m256i a = _mm256_unpacklo_epi64(r[0], r[1]), b = _mm256_unpackhi_epi64(r[0], r[1]),
                  c = _mm256_unpacklo_epi64(r[2], r[3]), d = _mm256_unpackhi_epi64(r[2], r[3]);
    m[0] = _mm256_permute2x128_si256(a, c, 0x20);
    m[1] = _mm256_permute2x128_si256(b, d, 0x20);
    m[2] = _mm256_permute2x128_si256(a, c, 0x31);
    m[3] = _mm256_permute2x128_si256(b, d, 0x31);
}

AVX2 static inline __m256i turned(__m256i x, int by)
{
    const __m256i by24 = _mm256_setr_epi8(3, 4, 5, 6, 7, 0, 1, 2, 11, 12, 13, 14, 15, 8, 9, 10, 3,
                                          4, 5, 6, 7, 0, 1, 2, 11, 12, 13, 14, 15, 8, 9, 10),
                  by16 = _mm256_setr_epi8(2, 3, 4, 5, 6, 7, 0, 1, 10, 11, 12, 13, 14, 15, 8, 9, 2,
                                          3, 4, 5, 6, 7, 0, 1, 10, 11, 12, 13, 14, 15, 8, 9);
    switch (by) {
    case 32:
        return _mm256_shuffle_epi32(x, _MM_SHUFFLE(2, 3, 0, 1));
    case 24:
        return _mm256_shuffle_epi8(x, by24);
    case 16:
        return _mm256_shuffle_epi8(x, by16);
    default:
        return _mm256_or_si256(_mm256_srli_epi64(x, 63), _mm256_add_epi64(x, x));
    }
}

#define MIX(a, b, c, d, x, y)                                                                      \
    do {                                                                                           \
        v[a] = _mm256_add_epi64(_mm256_add_epi64(v[a], v[b]), m[x]);                               \
        v[d] = turned(_mm256_xor_si256(v[d], v[a]), 32);                                           \
        v[c] = _mm256_add_epi64(v[c], v[d]);                                                       \
        v[b] = turned(_mm256_xor_si256(v[b], v[c]), 24);                                           \
        v[a] = _mm256_add_epi64(_mm256_add_epi64(v[a], v[b]), m[y]);                               \
        v[d] = turned(_mm256_xor_si256(v[d], v[a]), 16);                                           \
        v[c] = _mm256_add_epi64(v[c], v[d]);                                                       \
        v[b] = turned(_mm256_xor_si256(v[b], v[c]), 63);                                           \
    } while (0)

AVX2 static inline void compress(__m256i h[8], const unsigned char *const at[LANES],
                                 uint64_t n_done, uint64_t last)
{
    __m256i v[16], m[16];
    for (int g = 0; g < 4; g++)
        turn(at, g, m + 4 * g);
    for (int i = 0; i < 8; i++) {
        v[i] = h[i];
        v[i + 8] = _mm256_set1_epi64x((int64_t)iv[i]);
    }
    v[12] = _mm256_xor_si256(v[12], _mm256_set1_epi64x((int64_t)n_done));
    v[14] = _mm256_xor_si256(v[14], _mm256_set1_epi64x((int64_t)last));
#pragma GCC unroll 12 /* the places of words become constants */
    for (int r = 0; r < ROUNDS; r++) {
        const uint8_t *s = sigma[r % 10];
        MIX(0, 4, 8, 12, s[0], s[1]);
        MIX(1, 5, 9, 13, s[2], s[3]);
        MIX(2, 6, 10, 14, s[4], s[5]);
        MIX(3, 7, 11, 15, s[6], s[7]);
        MIX(0, 5, 10, 15, s[8], s[9]);
        MIX(1, 6, 11, 12, s[10], s[11]);
        MIX(2, 7, 8, 13, s[12], s[13]);
        MIX(3, 4, 9, 14, s[14], s[15]);
    }
    for (int i = 0; i < 8; i++)
        h[i] = _mm256_xor_si256(h[i], _mm256_xor_si256(v[i], v[i + 8]));
}

/* Four whole leaves, one behind the other. */
AVX2 static void hash_four(const unsigned char *data, uint8_t (*ret)[HASH_BYTES])
{
    __m256i h[8];
    const unsigned char *at[LANES];
    for (int i = 0; i < 8; i++)
        h[i] = _mm256_set1_epi64x((int64_t)iv[i]);
    h[0] = _mm256_xor_si256(h[0], _mm256_set1_epi64x(0x01010000 | HASH_BYTES));
    for (size_t done = 0; done < HASH_LEAF_BYTES; done += BLOCK_BYTES) {
        const size_t next = done + BLOCK_BYTES;
        for (size_t i = 0; i < LANES; i++)
            at[i] = data + i * HASH_LEAF_BYTES + done;
        compress(h, at, next, next == HASH_LEAF_BYTES ? UINT64_MAX : 0);
    }
    for (int i = 0; i < 4; i++) {
        uint64_t word[LANES];
        _mm256_storeu_si256((__m256i *)(void *)word, h[i]);
        for (size_t k = 0; k < LANES; k++)
            memcpy(ret[k] + 8 * i, &word[k], sizeof word[k]);
    }
}

void hash_leaves(const void *data, size_t n, size_t first, size_t count,
                 uint8_t (*ret)[HASH_BYTES])
{
    const unsigned char *p = data;
    size_t i = first;
    if (__builtin_cpu_supports("avx2"))
        for (; i + LANES <= first + count && (i + LANES) * HASH_LEAF_BYTES <= n; i += LANES)
            hash_four(p + i * HASH_LEAF_BYTES, ret + i);
    hash_leaves_plain(data, n, i, first + count - i, ret);
}

#else

void hash_leaves(const void *data, size_t n, size_t first, size_t count,
                 uint8_t (*ret)[HASH_BYTES])
{
    hash_leaves_plain(data, n, first, count, ret);
}

#endif

void hash_root(uint8_t (*leaves)[HASH_BYTES], size_t n, uint8_t ret[HASH_BYTES])
{
    struct hash_state h;
    const uint64_t size = n;
    hash_init(&h);
    hash_add(&h, "hearth tree 1", 14);
    hash_add(&h, &size, sizeof size);
    for (size_t i = 0; i < hash_n_leaves(n); i++)
        hash_add(&h, leaves[i], HASH_BYTES);
    hash_end(&h, ret);
}
