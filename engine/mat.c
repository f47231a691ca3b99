/*
 * Packing: GGML's rows of blocks become groups of 16 columns (the layouts are drawn in mat.h),
 * losslessly: every packed weight dequantises to the very float that the file's
 * type defines. Nothing is requantised; types that share an arithmetic share a layout.
 *
 *   file:    row 0: [block][block]…            packed:  group 0: [block of rows 0–15][block of rows
 *   0–15]…
 *            row 1: [block][block]…                     group 1: …
 *
 * Rows past n_out in the last group are zero and give zero.
 */
#include "engine/mat.h"

#include <limits.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/sys.h"
#include "engine/f16.h"
#include "engine/quant.h"
#include "engine/quants.h"

/* What lies before a block's quants. */
enum sub {
    SUB_NONE,
    SUB_32, /* [2][16] bytes: all columns' scales, then all minima */
    SUB_16  /* [16][2] bytes: each column's first and second half */
};

struct unpacker {
    uint32_t quant_id;
    int layout;
    int n_values; /* of a file block: 32 or 256 (float types: 1) */
    int n_bytes;
    int quants; /* enum quants */
    int bias;
    int sub;                /* enum sub */
    int d_offset, m_offset; /* of the F16 scale and minimum in the file block; m −1: none */
    /* Block i of 32 within the file block into a column of the packed block's quants, and s: scale
     * and minimum of 32, or what belongs to each 16. By words of four quants, since packing is most
     * of what a start takes. Floats have none. */
    void (*pack)(const uint8_t *block, int i, uint8_t *quants, int column, uint8_t s[2]);
};

/* Eight pairs of 6-bit scale and minimum in 12 bytes. */
static void unpack_scale_min(const uint8_t *p, int i, uint8_t s[2])
{
    if (i < 4) {
        s[0] = p[i] & 63;
        s[1] = p[i + 4] & 63;
    } else {
        s[0] = (uint8_t)((p[i + 4] & 15) | p[i - 4] >> 6 << 4);
        s[1] = (uint8_t)(p[i + 4] >> 4 | p[i] >> 6 << 4);
    }
}

#define LOW_NIBBLES UINT32_C(0x0f0f0f0f)

static void put_four(uint8_t *quants, int line, int column, uint32_t four)
{
    memcpy(quants + 64 * line + 4 * column, &four, 4);
}

/* Bytes of k and k + 16 in a file's byte become those of k and k + 4 in a packed one. */
static void pack_nibbles(const uint8_t *qs, uint8_t *quants, int column)
{
    uint32_t f[4];
    memcpy(f, qs, sizeof f);
    for (int i = 0; i < 2; i++) {
        const uint32_t a = f[2 * i], b = f[2 * i + 1];
        put_four(quants, i, column, (a & LOW_NIBBLES) | (b & LOW_NIBBLES) << 4);
        put_four(quants, i + 2, column, (a >> 4 & LOW_NIBBLES) | (b & ~LOW_NIBBLES));
    }
}

/* Bit b of a byte's low half to the lowest bit of byte b, that of its high half to the next. */
#define SPREAD(v)                                                                                  \
    (((v) & 1u) | ((v) & 2u) << 7 | ((v) & 4u) << 14 | ((v) & 8u) << 21 | ((v) & 16u) >> 3 |       \
     ((v) & 32u) << 4 | ((v) & 64u) << 11 | ((v) & 128u) << 18)
#define SPREAD_4(v) SPREAD(v), SPREAD((v) + 1), SPREAD((v) + 2), SPREAD((v) + 3)
#define SPREAD_16(v) SPREAD_4(v), SPREAD_4((v) + 4), SPREAD_4((v) + 8), SPREAD_4((v) + 12)
#define SPREAD_64(v) SPREAD_16(v), SPREAD_16((v) + 16), SPREAD_16((v) + 32), SPREAD_16((v) + 48)
static const uint32_t spread[256] = {SPREAD_64(0u), SPREAD_64(64u), SPREAD_64(128u),
                                     SPREAD_64(192u)};

/* Bit 4 j + b of the file's word is bit j of byte b. */
static void pack_fifth_bits(const uint8_t *qh, uint8_t *quants, int column)
{
    put_four(quants, 4, column,
             spread[qh[0]] | spread[qh[1]] << 2 | spread[qh[2]] << 4 | spread[qh[3]] << 6);
}

static void pack_q4_0(const uint8_t *b, int i, uint8_t *quants, int column, uint8_t s[2])
{
    (void)i, (void)s;
    pack_nibbles(b + 2, quants, column);
}

static void pack_q4_1(const uint8_t *b, int i, uint8_t *quants, int column, uint8_t s[2])
{
    (void)i, (void)s;
    pack_nibbles(b + 4, quants, column);
}

static void pack_q5_0(const uint8_t *b, int i, uint8_t *quants, int column, uint8_t s[2])
{
    (void)i, (void)s;
    pack_nibbles(b + 6, quants, column);
    pack_fifth_bits(b + 2, quants, column);
}

static void pack_q5_1(const uint8_t *b, int i, uint8_t *quants, int column, uint8_t s[2])
{
    (void)i, (void)s;
    pack_nibbles(b + 8, quants, column);
    pack_fifth_bits(b + 4, quants, column);
}

static void pack_q8_0(const uint8_t *b, int i, uint8_t *quants, int column, uint8_t s[2])
{
    uint32_t f[8];
    (void)i, (void)s;
    memcpy(f, b + 2, sizeof f);
    for (int line = 0; line < 8; line++)
        put_four(quants, line, column, f[line]);
}

/* Low nibbles of 32 bytes are one block, the high ones another. */
static void pack_half(const uint8_t *qs, bool is_high, uint8_t *quants, int column)
{
    uint32_t f[8];
    memcpy(f, qs, sizeof f);
    for (int line = 0; line < 4; line++) {
        const uint32_t a = f[2 * line], c = f[2 * line + 1];
        put_four(quants, line, column,
                 is_high ? (a >> 4 & LOW_NIBBLES) | (c & ~LOW_NIBBLES)
                         : (a & LOW_NIBBLES) | (c & LOW_NIBBLES) << 4);
    }
}

/* Bits `shift` and the next of 32 bytes, to two lines. */
static void pack_pairs(const uint8_t *qs, int shift, uint8_t *quants, int line, int column)
{
    uint32_t f[8];
    memcpy(f, qs, sizeof f);
    for (int i = 0; i < 8; i++)
        f[i] = f[i] >> shift & 0x03030303;
    for (int i = 0; i < 2; i++)
        put_four(quants, line + i, column,
                 f[4 * i] | f[4 * i + 1] << 2 | f[4 * i + 2] << 4 | f[4 * i + 3] << 6);
}

/* Bit `shift` of 32 bytes, to one line. */
static void pack_ones(const uint8_t *qs, int shift, uint8_t *quants, int line, int column)
{
    uint32_t f[8], all = 0;
    memcpy(f, qs, sizeof f);
    for (int i = 0; i < 8; i++)
        all |= (f[i] >> shift & 0x01010101) << i;
    put_four(quants, line, column, all);
}

static void pack_q4_k(const uint8_t *b, int i, uint8_t *quants, int column, uint8_t s[2])
{
    unpack_scale_min(b + 4, i, s);
    pack_half(b + 16 + 32 * (i / 2), i & 1, quants, column);
}

static void pack_q5_k(const uint8_t *b, int i, uint8_t *quants, int column, uint8_t s[2])
{
    unpack_scale_min(b + 4, i, s);
    pack_half(b + 48 + 32 * (i / 2), i & 1, quants, column);
    pack_ones(b + 16, i, quants, 4, column);
}

/* Halves of 128; in each, 32 low nibbles of parts 0 and 1, the same bytes' high nibbles for 2 and
 * 3. */
static void pack_q6_k(const uint8_t *b, int i, uint8_t *quants, int column, uint8_t s[2])
{
    const int half = i / 4, part = i % 4;
    memcpy(s, b + 192 + 2 * i, 2);
    pack_half(b + 64 * half + 32 * (part & 1), part >= 2, quants, column);
    pack_pairs(b + 128 + 32 * half, 2 * part, quants, 4, column);
}

static void pack_q3_k(const uint8_t *b, int i, uint8_t *quants, int column, uint8_t s[2])
{
    const uint8_t *scales = b + 96;
    for (int h = 0; h < 2; h++) {
        const int j = 2 * i + h, low = j < 8 ? scales[j] & 15 : scales[j - 8] >> 4;
        s[h] = (uint8_t)((low | (scales[8 + j % 4] >> 2 * (j / 4) & 3) << 4) - 32);
    }
    pack_pairs(b + 32 + 32 * (i / 4), 2 * (i % 4), quants, 0, column);
    pack_ones(b, i, quants, 2, column);
}

static void pack_q2_k(const uint8_t *b, int i, uint8_t *quants, int column, uint8_t s[2])
{
    memcpy(s, b + 2 * i, 2);
    pack_pairs(b + 16 + 32 * (i / 4), 2 * (i % 4), quants, 0, column);
}

static const struct unpacker unpackers[] = {
    {QUANT_Q4_0, MAT_U4_D, 32, 18, QUANTS_4, 8, SUB_NONE, 0, -1, pack_q4_0},
    {QUANT_Q4_1, MAT_U4_DM, 32, 20, QUANTS_4, 0, SUB_NONE, 0, 2, pack_q4_1},
    {QUANT_Q4_K, MAT_U4_K, 256, 144, QUANTS_4, 0, SUB_32, 0, 2, pack_q4_k},
    {QUANT_IQ4_NL, MAT_NL_D, 32, 18, QUANTS_NL, 0, SUB_NONE, 0, -1, pack_q4_0},
    {QUANT_Q5_0, MAT_U5_D, 32, 22, QUANTS_5, 16, SUB_NONE, 0, -1, pack_q5_0},
    {QUANT_Q5_1, MAT_U5_DM, 32, 24, QUANTS_5, 0, SUB_NONE, 0, 2, pack_q5_1},
    {QUANT_Q5_K, MAT_U5_K, 256, 176, QUANTS_5, 0, SUB_32, 0, 2, pack_q5_k},
    {QUANT_Q8_0, MAT_S8_D, 32, 34, QUANTS_8, 0, SUB_NONE, 0, -1, pack_q8_0},
    {QUANT_Q6_K, MAT_U6_K16, 256, 210, QUANTS_6, 32, SUB_16, 208, -1, pack_q6_k},
    {QUANT_Q3_K, MAT_U3_K16, 256, 110, QUANTS_3, 4, SUB_16, 108, -1, pack_q3_k},
    {QUANT_Q2_K, MAT_U2_K16, 256, 84, QUANTS_2, 0, SUB_16, 80, 82, pack_q2_k},
    {QUANT_F32, MAT_F32, 1, 4, 0, 0, SUB_NONE, 0, -1, NULL},
    {QUANT_F16, MAT_F16, 1, 2, 0, 0, SUB_NONE, 0, -1, NULL},
    {QUANT_BF16, MAT_BF16, 1, 2, 0, 0, SUB_NONE, 0, -1, NULL},
};

static bool is_float(const struct unpacker *u)
{
    return u->n_values == 1;
}

/* Packed bytes of 16 columns: the scales before a file block, and each 32 values of it. */
static size_t head_bytes(const struct unpacker *u)
{
    return u->m_offset >= 0 ? 64 : 32;
}

static size_t sub_bytes(const struct unpacker *u)
{
    return u->sub == SUB_NONE ? 0 : 32;
}

static const struct unpacker *unpacker_find(uint32_t quant_id)
{
    for (size_t i = 0; i < sizeof unpackers / sizeof *unpackers; i++)
        if (unpackers[i].quant_id == quant_id)
            return &unpackers[i];
    return NULL;
}

static size_t block_bytes(const struct unpacker *u)
{
    return sub_bytes(u) + (size_t)quants_bytes(u->quants);
}

/* Packed bytes of one file block of 16 columns. */
static size_t packed_block_bytes(const struct unpacker *u)
{
    if (is_float(u))
        return 16 * (size_t)u->n_bytes;
    return head_bytes(u) + (size_t)u->n_values / 32 * block_bytes(u);
}

/* Checks the shape and fills all of ret but the memory. */
static int mat_plan(const struct mat_source *s, struct mat *ret, struct err *e)
{
    const struct unpacker *u = unpacker_find(s->quant_id);
    if (!u)
        return err_set(e, ERR_UNSUPPORTED, "tensor type %s (%u): matrices of it are not supported",
                       quant_ggml_name(s->quant_id), (unsigned)s->quant_id);
    if (s->n_out < 1 || s->n_in < 1 || s->n_out > INT_MAX / 2 || s->n_in > INT_MAX / 2)
        return err_set(e, ERR_LIMIT, "matrix of %lld × %lld: each must be 1 … %d",
                       (long long)s->n_out, (long long)s->n_in, INT_MAX / 2);
    if (s->n_in % u->n_values != 0)
        return err_set(e, ERR_CORRUPT,
                       "matrix with rows of %lld: not a multiple of its type's block, %d",
                       (long long)s->n_in, u->n_values);
    size_t group = (size_t)(s->n_in / u->n_values) * packed_block_bytes(u); /* < 2^31 · 64 */
    size_t n;
    group = (group + 63) / 64 * 64;
    if (__builtin_mul_overflow(group, (size_t)(s->n_out + 15) / 16, &n) || n > SIZE_MAX / 2)
        return err_set(e, ERR_LIMIT, "matrix of %lld × %lld: too large", (long long)s->n_out,
                       (long long)s->n_in);
    *ret = (struct mat){.n_out = (int)s->n_out,
                        .n_in = (int)s->n_in,
                        .layout = u->layout,
                        .n_bytes = n,
                        .group_bytes = group};
    return 0;
}

int mat_size(uint32_t quant_id, int64_t n_out, int64_t n_in, size_t *ret, struct err *e)
{
    struct mat m = {0};
    int r =
        mat_plan(&(struct mat_source){.quant_id = quant_id, .n_out = n_out, .n_in = n_in}, &m, e);
    if (r == 0)
        *ret = m.n_bytes;
    return r;
}

/* Where the planes of a block of 16 × 32 quants are, and the bits of the quant that each holds. */
struct plane {
    int offset, n_bits, shift;
};

static const struct plane planes[][2] = {
    [QUANTS_2] = {{0, 2, 0}},
    [QUANTS_3] = {{0, 2, 0}, {128, 1, 2}},
    [QUANTS_4] = {{0, 4, 0}},
    [QUANTS_NL] = {{0, 4, 0}},
    [QUANTS_5] = {{0, 4, 0}, {256, 1, 4}},
    [QUANTS_6] = {{0, 4, 0}, {256, 2, 4}},
    [QUANTS_8] = {{0, 8, 0}},
};

/* Four bytes of a plane: a column's k = 4 j … 4 j + 3, and k of other vectors in their other bits,
 * from bit ret_bit on. */
static size_t plane_at(const struct plane *p, int column, int j, int *ret_bit)
{
    const int a_byte = 8 / p->n_bits;
    *ret_bit = j % a_byte * p->n_bits;
    return (size_t)(p->offset + 64 * (j / a_byte) + 4 * column);
}

static void pack_sub(int sub, uint8_t *dst, int column, const uint8_t s[2])
{
    const int is_32 = sub == SUB_32;
    dst[is_32 ? column : 2 * column] = s[0];
    dst[is_32 ? 16 + column : 2 * column + 1] = s[1];
}

/* One row of the file into its column of a group. */
static void pack_column(const struct unpacker *u, const uint8_t *row, int64_t n_in, uint8_t *dst,
                        int column)
{
    for (int64_t k = 0; k < n_in; k += u->n_values, row += u->n_bytes) {
        memcpy(dst + 2 * column, row + u->d_offset, 2);
        if (u->m_offset >= 0)
            memcpy(dst + 32 + 2 * column, row + u->m_offset, 2);
        dst += head_bytes(u);
        for (int i = 0; i < u->n_values / 32; i++) {
            uint8_t *quants = dst + sub_bytes(u), s[2];
            u->pack(row, i, quants, column, s);
            if (u->sub != SUB_NONE)
                pack_sub(u->sub, dst, column, s);
            dst = quants + quants_bytes(u->quants);
        }
    }
}

static void pack_column_float(const struct unpacker *u, const uint8_t *row, int64_t n_in,
                              uint8_t *dst, int column)
{
    const int step = 16 * u->n_bytes;
    for (int64_t k = 0; k < n_in; k++)
        memcpy(dst + k * step + u->n_bytes * column, row + k * u->n_bytes, (size_t)u->n_bytes);
}

int mat_plan_at(const struct mat_source *s, void *memory, struct mat *ret, struct err *e)
{
    struct mat m;
    const int r = mat_plan(s, &m, e);
    if (r < 0)
        return r;
    m.data = memory;
    *ret = m;
    return 0;
}

void mat_pack_groups(const struct mat_source *s, const struct mat *m, int group0, int n_groups)
{
    const struct unpacker *u = unpacker_find(s->quant_id);
    const size_t row_bytes = (size_t)(s->n_in / u->n_values) * (size_t)u->n_bytes;
    for (int g = group0; g < group0 + n_groups; g++) {
        uint8_t *group = m->data + (size_t)g * m->group_bytes;
        const int n = s->n_out - 16 * (int64_t)g < 16 ? (int)(s->n_out - 16 * (int64_t)g) : 16;
        const uint8_t *row = (const uint8_t *)s->data + (size_t)g * 16 * row_bytes;
        if (n < 16)
            memset(group, 0, m->group_bytes);
        for (int c = 0; c < n; c++, row += row_bytes)
            (is_float(u) ? pack_column_float : pack_column)(u, row, s->n_in, group, c);
    }
}

int mat_pack_at(const struct mat_source *s, void *memory, struct mat *ret, struct err *e)
{
    const int r = mat_plan_at(s, memory, ret, e);
    if (r == 0)
        mat_pack_groups(s, ret, 0, mat_n_groups(ret));
    return r;
}

#define HUGE_PAGE ((size_t)2 << 20)

/* Mapped a little larger, so that the part in use begins at a huge page; what was mapped is found
 * again from the size. */
static size_t region_map_bytes(size_t n)
{
    return (n + HUGE_PAGE - 1) / HUGE_PAGE * HUGE_PAGE;
}

void *mat_region_new(size_t n_bytes)
{
    if (n_bytes == 0 || n_bytes > SIZE_MAX / 2)
        return NULL;
    const size_t n = region_map_bytes(n_bytes), extra = n_bytes >= HUGE_PAGE ? HUGE_PAGE : 0;
    unsigned char *p = sys.mmap(NULL, n + extra, PROT_READ | PROT_WRITE,
                                MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (p == MAP_FAILED)
        return NULL;
    if (extra) {
        size_t skip = (HUGE_PAGE - (uintptr_t)p % HUGE_PAGE) % HUGE_PAGE;
        if (skip)
            munmap(p, skip);
        if (extra > skip)
            munmap(p + skip + n, extra - skip);
        p += skip;
        madvise(p, n, MADV_HUGEPAGE);
    }
    return p;
}

void mat_region_free(void *region, size_t n_bytes)
{
    if (region)
        munmap(region, region_map_bytes(n_bytes));
}

int mat_pack(uint32_t quant_id, const void *data, int64_t n_out, int64_t n_in, struct mat *ret,
             struct err *e)
{
    const struct mat_source s = {.quant_id = quant_id, .n_out = n_out, .n_in = n_in, .data = data};
    struct mat m = {0};
    int r = mat_plan(&s, &m, e);
    if (r < 0)
        return r;
    void *memory = mat_region_new(m.n_bytes);
    if (!memory)
        return err_set(e, ERR_NOMEM, "%zu bytes for a matrix of %lld × %lld", m.n_bytes,
                       (long long)n_out, (long long)n_in);
    r = mat_pack_at(&s, memory, &m, e);
    if (r < 0) {
        mat_region_free(memory, m.n_bytes);
        return r;
    }
    m.map_bytes = m.n_bytes;
    *ret = m;
    return 0;
}

/* splitmix64 */
static uint64_t next_random(uint64_t *seed)
{
    uint64_t z = *seed += 0x9e3779b97f4a7c15;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9;
    z = (z ^ z >> 27) * 0x94d049bb133111eb;
    return z ^ z >> 31;
}

/* One file block of random bits with finite scales; a float type's single value likewise. */
static void random_block(const struct unpacker *u, uint64_t *seed, uint8_t *block)
{
    for (int i = 0; i < u->n_bytes; i++)
        block[i] = (uint8_t)next_random(seed);
    /* Weights of about 1/16: the F16 scale's exponent field by how large the quants get; either
     * sign. U6_K16's is subnormal. F32's and BF16's two high bytes: 2^-9 … 2^-8. */
    static const uint16_t exponent[MAT_N_LAYOUTS] = {6, 6, 3, 3, 5, 5, 2, 4, 0, 4, 6, 0, 11, 0};
    const uint16_t d = (uint16_t)((next_random(seed) & 0x83ff) | exponent[u->layout] << 10),
                   wide = (uint16_t)((d & 0x80ff) | 0x3b80);
    if (u->layout == MAT_F32)
        memcpy(block + 2, &wide, 2);
    else
        memcpy(block + u->d_offset, u->layout == MAT_BF16 ? &wide : &d, 2);
    if (u->m_offset >= 0)
        memcpy(block + u->m_offset, &d, 2);
}

int mat_random(int layout, int n_out, int n_in, uint64_t seed, struct mat *ret)
{
    const struct unpacker *u = unpackers;
    while (u->layout != layout)
        u++;
    const size_t n = (size_t)n_out * (size_t)(n_in / u->n_values);
    uint8_t *blocks = sys.malloc(n * (size_t)u->n_bytes);
    if (!blocks)
        return ERR_NOMEM;
    for (size_t i = 0; i < n; i++)
        random_block(u, &seed, blocks + i * (size_t)u->n_bytes);
    int r = mat_pack(u->quant_id, blocks, n_out, n_in, ret, NULL);
    free(blocks);
    return r;
}

void mat_done(struct mat *m)
{
    if (m->map_bytes)
        mat_region_free(m->data, m->map_bytes);
    *m = (struct mat){0};
}

static float f16_at(const uint8_t *p)
{
    uint16_t h;
    memcpy(&h, p, 2);
    return f16_to_f32(h);
}

/* One quant of a packed block, with its sign. */
static int quant_at(const struct unpacker *u, const uint8_t *q, int k, int column)
{
    unsigned v = 0;
    for (int i = 0; i < 2; i++) {
        const struct plane *p = &planes[u->quants][i];
        int bit;
        if (p->n_bits == 0)
            continue;
        const unsigned byte = q[plane_at(p, column, k / 4, &bit) + (size_t)k % 4];
        v |= (byte >> bit & ((1u << p->n_bits) - 1)) << p->shift;
    }
    if (u->quants == QUANTS_8)
        return (int8_t)v;
    return u->quants == QUANTS_NL ? quants_nl[v] : (int)v - u->bias;
}

/* What scale and minimum of a column are multiplied by in half h of the block, exact products. */
static void sub_at(const struct unpacker *u, const uint8_t *sub, int column, int h, float ret[2])
{
    ret[0] = ret[1] = 1;
    if (u->sub == SUB_32) {
        ret[0] = (float)sub[column];
        ret[1] = (float)sub[16 + column];
    } else if (u->sub == SUB_16) {
        const uint8_t s = sub[2 * column + h];
        ret[0] = u->m_offset >= 0 ? (float)(s & 15) : (float)(int8_t)s;
        ret[1] = (float)(s >> 4);
    }
}

/* The values of a packed block: the type's formula, product and difference each rounded once, as
 * the file's format defines it. */
static void row_block(const struct unpacker *u, const uint8_t *head, const uint8_t *sub, int column,
                      float *ret)
{
    const uint8_t *q = sub + sub_bytes(u);
    const float d = f16_at(head + 2 * column),
                e = u->m_offset >= 0 ? f16_at(head + 32 + 2 * column) : 0;
    float by[2] = {1, 1};
    for (int k = 0; k < 32; k++) {
        const float v = (float)quant_at(u, q, k, column);
        if (k % 16 == 0)
            sub_at(u, sub, column, k / 16, by);
        if (u->m_offset < 0)
            ret[k] = d * by[0] * v;
        else
            ret[k] = u->sub == SUB_NONE ? d * v + e : d * by[0] * v - e * by[1];
    }
}

static void row_float(const struct mat *m, const uint8_t *group, int column, float *ret)
{
    for (int k = 0; k < m->n_in; k++) {
        if (m->layout == MAT_F32)
            memcpy(&ret[k], group + 64 * (size_t)k + 4 * column, 4);
        else if (m->layout == MAT_F16)
            ret[k] = f16_at(group + 32 * (size_t)k + 2 * column);
        else {
            uint16_t h;
            memcpy(&h, group + 32 * (size_t)k + 2 * column, 2);
            ret[k] = bf16_to_f32(h);
        }
    }
}

void mat_row(const struct mat *m, int i, float *ret)
{
    const uint8_t *p = m->data + (size_t)(i / 16) * m->group_bytes;
    const struct unpacker *u = unpackers;
    while (u->layout != m->layout)
        u++; /* the first type of a layout speaks for all: they differ in the file only */
    if (is_float(u)) {
        row_float(m, p, i % 16, ret);
        return;
    }
    for (int k = 0; k < m->n_in; k += u->n_values) {
        const uint8_t *head = p;
        p += head_bytes(u);
        for (int b = 0; b < u->n_values / 32; b++, p += block_bytes(u))
            row_block(u, head, p, i % 16, ret + k + 32 * b);
    }
}
