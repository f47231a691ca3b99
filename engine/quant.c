/*
 * GGML's tensor types as they lie in a file, and what their bytes mean: one small loop a type,
 * plain C, each operation rounded once and in ggml's order, so that the bits equal ggml's own.
 * Nothing here is meant to be fast: weights are repacked at load (engine/mat.c), and these loops
 * are the oracle that the packed forms and the kernels are tested against.
 *
 * Byte layouts (all little-endian, no padding; d and m are F16):
 *
 *     Q8_0    32   d | 32 × int8
 *     Q4_0    32   d | 16 bytes: value i in the low half of byte i, i + 16 in the high; less 8
 *     Q4_1    32   d | m | 16 bytes as above, unsigned
 *     Q5_0    32   d | 32 fifth bits | 16 bytes; less 16
 *     Q5_1    32   d | m | 32 fifth bits | 16 bytes
 *     Q2_K   256   16 × (scale 4 bits, minimum 4 bits) | 64 bytes of four 2-bit values | d | dmin
 *     Q3_K   256   256 third bits | 64 bytes of four 2-bit values | 16 × 6-bit scale, 12 bytes | d
 *     Q4_K   256   d | dmin | 8 × (6-bit scale, 6-bit minimum), 12 bytes | 128 bytes
 *     Q5_K   256   d | dmin | the same 12 bytes | 256 fifth bits | 128 bytes
 *     Q6_K   256   128 bytes of low halves | 64 bytes of four upper pairs | 16 × int8 scale | d
 *     IQ4_NL  32   d | 16 bytes of indices into a fixed table
 *
 * Format: ggml's ggml-common.h and docs/gguf.md.
 */
#include "engine/quant.h"

#include <string.h>

static uint16_t load_u16(const unsigned char *p)
{
    return (uint16_t)(p[0] | p[1] << 8);
}

static uint32_t load_u32(const unsigned char *p)
{
    return (uint32_t)load_u16(p) | (uint32_t)load_u16(p + 2) << 16;
}

static float from_bits(uint32_t bits)
{
    float f;
    memcpy(&f, &bits, sizeof f);
    return f;
}

float quant_f16_to_f32(uint16_t h)
{
    const uint32_t sign = (uint32_t)(h & 0x8000u) << 16, exponent = h >> 10 & 31u,
                   fraction = h & 0x3ffu;

    if (exponent == 31) {
        return from_bits(sign | 0x7f800000u | fraction << 13);
    }
    if (exponent == 0) { /* zero and subnormals: fraction × 2^−24, exact in single precision */
        const float magnitude = (float)fraction * 0x1p-24f;
        return sign ? -magnitude : magnitude;
    }
    return from_bits(sign | (exponent + 112) << 23 | fraction << 13);
}

uint16_t quant_f32_to_f16(float f)
{
    uint32_t bits;
    memcpy(&bits, &f, sizeof bits);
    const uint16_t sign = (uint16_t)(bits >> 16 & 0x8000u);
    const uint32_t magnitude = bits & 0x7fffffffu;

    if (magnitude > 0x7f800000u) {
        return (uint16_t)(sign | 0x7e00u | (magnitude >> 13 & 0x3ffu));
    }
    if (magnitude >= 0x47800000u) { /* 65536 and more */
        return (uint16_t)(sign | 0x7c00u);
    }
    if (magnitude < 0x38800000u) { /* below the smallest normal half: adding 0.5 puts its last bit
                                      where single precision rounds */
        const float shifted = from_bits(magnitude) + 0.5f;
        uint32_t s;
        memcpy(&s, &shifted, sizeof s);
        return (uint16_t)(sign | (s - 0x3f000000u));
    }
    const uint32_t odd =
        magnitude >> 13 &
        1u; /* a carry out of the fraction rightly steps the exponent, up to infinity */
    return (uint16_t)(sign | ((magnitude - (112u << 23) + 0xfffu + odd) >> 13));
}

static float load_f16(const unsigned char *p)
{
    return quant_f16_to_f32(load_u16(p));
}

static void dequantize_f32(const void *blocks, float *ret, size_t n)
{
    const unsigned char *p = blocks;
    for (size_t i = 0; i < n; i++) {
        ret[i] = from_bits(load_u32(p + 4 * i));
    }
}

static void dequantize_f16(const void *blocks, float *ret, size_t n)
{
    const unsigned char *p = blocks;
    for (size_t i = 0; i < n; i++) {
        ret[i] = load_f16(p + 2 * i);
    }
}

static void dequantize_bf16(const void *blocks, float *ret, size_t n)
{
    const unsigned char *p = blocks;
    for (size_t i = 0; i < n; i++) {
        ret[i] = from_bits((uint32_t)load_u16(p + 2 * i) << 16);
    }
}

static void dequantize_q8_0(const void *blocks, float *ret, size_t n)
{
    const unsigned char *p = blocks;
    for (size_t at = 0; at < n; at += 32, p += 34) {
        const float d = load_f16(p);
        for (int i = 0; i < 32; i++) {
            ret[at + (size_t)i] = (float)(int8_t)p[2 + i] * d;
        }
    }
}

static void dequantize_q4_0(const void *blocks, float *ret, size_t n)
{
    const unsigned char *p = blocks;
    for (size_t at = 0; at < n; at += 32, p += 18) {
        const float d = load_f16(p);
        float *y = ret + at;
        for (int i = 0; i < 16; i++) {
            y[i] = (float)((p[2 + i] & 15) - 8) * d;
            y[i + 16] = (float)((p[2 + i] >> 4) - 8) * d;
        }
    }
}

static void dequantize_q4_1(const void *blocks, float *ret, size_t n)
{
    const unsigned char *p = blocks;
    for (size_t at = 0; at < n; at += 32, p += 20) {
        const float d = load_f16(p), m = load_f16(p + 2);
        float *y = ret + at;
        for (int i = 0; i < 16; i++) {
            y[i] = (float)(p[4 + i] & 15) * d + m;
            y[i + 16] = (float)(p[4 + i] >> 4) * d + m;
        }
    }
}

/* The i-th 5-bit value of a block of 32: 4 bits of `low` (halves as in Q4_0) and bit i of `high`.
 */
static int five_bits(const unsigned char *low, uint32_t high, int i)
{
    const int four = i < 16 ? low[i] & 15 : low[i - 16] >> 4;
    return four | (int)(high >> i & 1u) << 4;
}

static void dequantize_q5_0(const void *blocks, float *ret, size_t n)
{
    const unsigned char *p = blocks;
    for (size_t at = 0; at < n; at += 32, p += 22) {
        const float d = load_f16(p);
        const uint32_t high = load_u32(p + 2);
        for (int i = 0; i < 32; i++) {
            ret[at + (size_t)i] = (float)(five_bits(p + 6, high, i) - 16) * d;
        }
    }
}

static void dequantize_q5_1(const void *blocks, float *ret, size_t n)
{
    const unsigned char *p = blocks;
    for (size_t at = 0; at < n; at += 32, p += 24) {
        const float d = load_f16(p), m = load_f16(p + 2);
        const uint32_t high = load_u32(p + 4);
        for (int i = 0; i < 32; i++) {
            ret[at + (size_t)i] = (float)five_bits(p + 8, high, i) * d + m;
        }
    }
}

/*
 * In Q2_K and Q3_K the 64 bytes hold two halves of 128 values; in each half byte l has values l, l
 * + 32, l + 64 and l + 96, lowest bits first. A scale serves 16 values in a row.
 */
static int two_bits(const unsigned char *q, int i)
{
    return q[i / 128 * 32 + i % 32] >> (i % 128 / 32 * 2) & 3;
}

static void dequantize_q2_k(const void *blocks, float *ret, size_t n)
{
    const unsigned char *p = blocks;
    for (size_t at = 0; at < n; at += 256, p += 84) {
        const float d = load_f16(p + 80), dmin = load_f16(p + 82);
        for (int i = 0; i < 256; i++) {
            const float scale = d * (float)(p[i / 16] & 15),
                        minimum = dmin * (float)(p[i / 16] >> 4);
            ret[at + (size_t)i] = scale * (float)two_bits(p + 16, i) - minimum;
        }
    }
}

static void dequantize_q3_k(const void *blocks, float *ret, size_t n)
{
    const unsigned char *p = blocks;
    for (size_t at = 0; at < n; at += 256, p += 110) {
        const unsigned char *scales = p + 96;
        const float d = load_f16(p + 108);
        for (int i = 0; i < 256; i++) {
            const int s =
                i / 16; /* its low 4 bits in the first 8 bytes, its high 2 in the last 4 */
            const int low = s < 8 ? scales[s] & 15 : scales[s - 8] >> 4;
            const int six = low | (scales[8 + s % 4] >> (s / 4 * 2) & 3) << 4;
            const int third = p[i % 32] >> (i / 32) & 1;
            ret[at + (size_t)i] =
                d * (float)(six - 32) * (float)(two_bits(p + 32, i) - (third ? 0 : 4));
        }
    }
}

/* Scale and minimum of 32 values, for Q4_K and Q5_K: eight pairs of 6 bits, the upper bits of the
 * last four in the spare bits of the first eight bytes. */
static void scale_and_minimum(const unsigned char *s, int j, int *ret_scale, int *ret_minimum)
{
    if (j < 4) {
        *ret_scale = s[j] & 63;
        *ret_minimum = s[j + 4] & 63;
    } else {
        *ret_scale = (s[j + 4] & 15) | s[j - 4] >> 6 << 4;
        *ret_minimum = s[j + 4] >> 4 | s[j] >> 6 << 4;
    }
}

/* Four bits of value i: bytes 32 a group of 64 values, the first 32 in the low halves. */
static int four_bits(const unsigned char *q, int i)
{
    const unsigned char byte = q[i / 64 * 32 + i % 32];
    return i % 64 < 32 ? byte & 15 : byte >> 4;
}

static void dequantize_q45_k(const unsigned char *p, const unsigned char *fifth,
                             const unsigned char *low, float *y)
{
    const float d = load_f16(p), dmin = load_f16(p + 2);
    for (int j = 0; j < 8; j++) {
        int scale, minimum;
        scale_and_minimum(p + 4, j, &scale, &minimum);
        const float ds = d * (float)scale, dm = dmin * (float)minimum;
        for (int i = 32 * j; i < 32 * j + 32; i++) {
            const int q = four_bits(low, i) + (fifth ? (fifth[i % 32] >> j & 1) << 4 : 0);
            y[i] = ds * (float)q - dm;
        }
    }
}

static void dequantize_q4_k(const void *blocks, float *ret, size_t n)
{
    const unsigned char *p = blocks;
    for (size_t at = 0; at < n; at += 256, p += 144) {
        dequantize_q45_k(p, NULL, p + 16, ret + at);
    }
}

static void dequantize_q5_k(const void *blocks, float *ret, size_t n)
{
    const unsigned char *p = blocks;
    for (size_t at = 0; at < n; at += 256, p += 176) {
        dequantize_q45_k(p, p + 16, p + 48, ret + at);
    }
}

static void dequantize_q6_k(const void *blocks, float *ret, size_t n)
{
    const unsigned char *p = blocks;
    for (size_t at = 0; at < n; at += 256, p += 210) {
        const unsigned char *high = p + 128, *scales = p + 192;
        const float d = load_f16(p + 208);
        for (int i = 0; i < 256; i++) {
            /* Halves of 128: bytes 0 to 63 give the low bits of values 0 to 63, then of 64 to 127
             * from their upper halves. */
            const int half = i / 128, in = i % 128;
            const unsigned char byte = p[half * 64 + in % 64];
            const int low = in < 64 ? byte & 15 : byte >> 4;
            const int two = high[half * 32 + in % 32] >> (in / 32 * 2) & 3;
            ret[at + (size_t)i] =
                d * (float)(int8_t)scales[i / 16] * (float)((low | two << 4) - 32);
        }
    }
}

static void dequantize_iq4_nl(const void *blocks, float *ret, size_t n)
{
    static const int8_t table[16] = {-127, -104, -83, -65, -49, -35, -22, -10,
                                     1,    13,   25,  38,  53,  69,  89,  113};
    const unsigned char *p = blocks;
    for (size_t at = 0; at < n; at += 32, p += 18) {
        const float d = load_f16(p);
        float *y = ret + at;
        for (int i = 0; i < 16; i++) {
            y[i] = d * (float)table[p[2 + i] & 15];
            y[i + 16] = d * (float)table[p[2 + i] >> 4];
        }
    }
}

static const struct quant_type types[] = {
    {QUANT_F32, "F32", 1, 4, dequantize_f32},
    {QUANT_F16, "F16", 1, 2, dequantize_f16},
    {QUANT_BF16, "BF16", 1, 2, dequantize_bf16},
    {QUANT_Q8_0, "Q8_0", 32, 34, dequantize_q8_0},
    {QUANT_Q4_0, "Q4_0", 32, 18, dequantize_q4_0},
    {QUANT_Q4_1, "Q4_1", 32, 20, dequantize_q4_1},
    {QUANT_Q5_0, "Q5_0", 32, 22, dequantize_q5_0},
    {QUANT_Q5_1, "Q5_1", 32, 24, dequantize_q5_1},
    {QUANT_Q2_K, "Q2_K", 256, 84, dequantize_q2_k},
    {QUANT_Q3_K, "Q3_K", 256, 110, dequantize_q3_k},
    {QUANT_Q4_K, "Q4_K", 256, 144, dequantize_q4_k},
    {QUANT_Q5_K, "Q5_K", 256, 176, dequantize_q5_k},
    {QUANT_Q6_K, "Q6_K", 256, 210, dequantize_q6_k},
    {QUANT_IQ4_NL, "IQ4_NL", 32, 18, dequantize_iq4_nl},
};

const struct quant_type *quant_type(uint32_t id)
{
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        if (types[i].id == id) {
            return &types[i];
        }
    }
    return NULL;
}

const struct quant_type *quant_type_by_name(const char *name)
{
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        if (!strcmp(types[i].name, name)) {
            return &types[i];
        }
    }
    return NULL;
}

const char *quant_names(void)
{
    return "F32, F16, BF16, Q8_0, Q4_0, Q4_1, Q5_0, Q5_1, Q2_K, Q3_K, Q4_K, Q5_K, Q6_K, IQ4_NL";
}

const char *quant_ggml_name(uint32_t id)
{
    static const char *const names[] = {
        [0] = "F32",     [1] = "F16",      [2] = "Q4_0",   [3] = "Q4_1",    [6] = "Q5_0",
        [7] = "Q5_1",    [8] = "Q8_0",     [9] = "Q8_1",   [10] = "Q2_K",   [11] = "Q3_K",
        [12] = "Q4_K",   [13] = "Q5_K",    [14] = "Q6_K",  [15] = "Q8_K",   [16] = "IQ2_XXS",
        [17] = "IQ2_XS", [18] = "IQ3_XXS", [19] = "IQ1_S", [20] = "IQ4_NL", [21] = "IQ3_S",
        [22] = "IQ2_S",  [23] = "IQ4_XS",  [24] = "I8",    [25] = "I16",    [26] = "I32",
        [27] = "I64",    [28] = "F64",     [29] = "IQ1_M", [30] = "BF16",   [34] = "TQ1_0",
        [35] = "TQ2_0",  [39] = "MXFP4",
    };
    return id < sizeof names / sizeof *names && names[id] ? names[id] : "unknown";
}
