/*
 * The AVX-512 instructions that engine/vec_avx512*.h use, in C: each intrinsic by its definition in
 * Intel's manual, on plain arrays. kern_avx512_model.c compiles the kernels over them, so that
 * their arithmetic is tested on a CPU that has none of this.
 *
 * What the model can't show: that the compiler emits the instruction (tests/engine/math/spills.py
 * looks), and how fast it is.
 */
#ifndef HEARTH_TESTS_AVX512_MODEL_H
#define HEARTH_TESTS_AVX512_MODEL_H

#define AVX512_MODEL

#include <math.h>
#include <stdint.h>
#include <string.h>

#include "engine/f16.h"

/* Not inlined: sixteen lanes in every expression would cost the compiler minutes. */
#define V_FN static __attribute__((noinline, unused))
#define V_KEEP(x) (void)(x)
#define M_FN static __attribute__((noinline, unused))

typedef struct {
    float v[16];
} __m512;
typedef struct {
    int32_t v[16];
} __m512i;
typedef struct {
    uint16_t v[16];
} __m256i;
typedef struct {
    uint8_t v[16];
} __m128i;
typedef uint16_t __mmask16;

#define M_EACH(type, expr)       \
    type r;                      \
    for (int i = 0; i < 16; i++) \
        r.v[i] = (expr);         \
    return r

/* ---- memory ---- */

#define M_MEMORY(load, store, type)           \
    M_FN type load(const void *p)             \
    {                                         \
        type r;                               \
        memcpy(&r, p, sizeof r);              \
        return r;                             \
    }                                         \
    M_FN void store(void *p, type x)          \
    {                                         \
        memcpy(p, &x, sizeof x);              \
    }
M_MEMORY(_mm512_loadu_ps, _mm512_storeu_ps, __m512)
M_MEMORY(_mm512_loadu_si512, _mm512_storeu_si512, __m512i)
M_MEMORY(_mm256_loadu_si256, _mm256_storeu_si256, __m256i)
M_MEMORY(_mm_loadu_si128, _mm_storeu_si128, __m128i)
#define _MM_HINT_T0 0
#define _mm_prefetch(p, hint) ((void)(p))

/* ---- floats ---- */

M_FN __m512 _mm512_set1_ps(float x) { M_EACH(__m512, x); }
M_FN __m512 _mm512_add_ps(__m512 x, __m512 y) { M_EACH(__m512, x.v[i] + y.v[i]); }
M_FN __m512 _mm512_sub_ps(__m512 x, __m512 y) { M_EACH(__m512, x.v[i] - y.v[i]); }
M_FN __m512 _mm512_mul_ps(__m512 x, __m512 y) { M_EACH(__m512, x.v[i] * y.v[i]); }
M_FN __m512 _mm512_div_ps(__m512 x, __m512 y) { M_EACH(__m512, x.v[i] / y.v[i]); }
M_FN __m512 _mm512_sqrt_ps(__m512 x) { M_EACH(__m512, sqrtf(x.v[i])); }
M_FN __m512 _mm512_fmadd_ps(__m512 x, __m512 y, __m512 z)
{
    M_EACH(__m512, fmaf(x.v[i], y.v[i], z.v[i]));
}
M_FN __m512 _mm512_fnmadd_ps(__m512 x, __m512 y, __m512 z)
{
    M_EACH(__m512, fmaf(-x.v[i], y.v[i], z.v[i]));
}
/* The second operand when either is a NaN, or both are zeros. */
M_FN __m512 _mm512_max_ps(__m512 x, __m512 y) { M_EACH(__m512, x.v[i] > y.v[i] ? x.v[i] : y.v[i]); }
M_FN __m512 _mm512_min_ps(__m512 x, __m512 y) { M_EACH(__m512, x.v[i] < y.v[i] ? x.v[i] : y.v[i]); }
M_FN float _mm512_cvtss_f32(__m512 x) { return x.v[0]; }

/* Not less than: true for a NaN. The only comparison in use. */
#define _CMP_NLT_UQ 21
M_FN __mmask16 _mm512_cmp_ps_mask(__m512 x, __m512 y, int op)
{
    unsigned r = 0;
    for (int i = 0; i < 16; i++)
        r |= (unsigned)(op == _CMP_NLT_UQ && !(x.v[i] < y.v[i])) << i;
    return (__mmask16)r;
}
M_FN __m512 _mm512_maskz_mov_ps(__mmask16 m, __m512 x) { M_EACH(__m512, m >> i & 1 ? x.v[i] : 0); }

/* Quarters of 4 lanes: two of x, then two of y, each by two bits. */
M_FN __m512 _mm512_shuffle_f32x4(__m512 x, __m512 y, int by)
{
    M_EACH(__m512, (i < 8 ? x : y).v[(by >> i / 4 * 2 & 3) * 4 + i % 4]);
}
/* Within each quarter. */
M_FN __m512 _mm512_permute_ps(__m512 x, int by)
{
    M_EACH(__m512, x.v[i / 4 * 4 + (by >> i % 4 * 2 & 3)]);
}

/* ---- conversions ---- */

M_FN __m512i _mm512_castps_si512(__m512 x)
{
    __m512i r;
    memcpy(&r, &x, sizeof r);
    return r;
}
M_FN __m512 _mm512_castsi512_ps(__m512i x)
{
    __m512 r;
    memcpy(&r, &x, sizeof r);
    return r;
}
M_FN __m512 _mm512_cvtepi32_ps(__m512i x) { M_EACH(__m512, (float)x.v[i]); }
/* By the rounding mode: nearest even. */
M_FN __m512i _mm512_cvtps_epi32(__m512 x) { M_EACH(__m512i, (int32_t)lrintf(x.v[i])); }
M_FN __m512 _mm512_cvtph_ps(__m256i x) { M_EACH(__m512, f16_to_f32(x.v[i])); }
M_FN __m256i _mm512_cvtps_ph(__m512 x, int mode)
{
    (void)mode; /* 0: nearest even */
    M_EACH(__m256i, f32_to_f16(x.v[i]));
}
M_FN __m512i _mm512_cvtepu8_epi32(__m128i x) { M_EACH(__m512i, x.v[i]); }
M_FN __m512i _mm512_cvtepi8_epi32(__m128i x) { M_EACH(__m512i, (int8_t)x.v[i]); }
M_FN __m512i _mm512_cvtepu16_epi32(__m256i x) { M_EACH(__m512i, x.v[i]); }
static inline int32_t m_clamp(int32_t x, int32_t low, int32_t high)
{
    return x < low ? low : x > high ? high : x;
}
M_FN __m128i _mm512_cvtsepi32_epi8(__m512i x)
{
    M_EACH(__m128i, (uint8_t)m_clamp(x.v[i], INT8_MIN, INT8_MAX));
}
M_FN __m256i _mm512_cvtsepi32_epi16(__m512i x)
{
    M_EACH(__m256i, (uint16_t)m_clamp(x.v[i], INT16_MIN, INT16_MAX));
}

/* ---- 32-bit lanes, which wrap ---- */

#define M_U(x) ((uint32_t)(x).v[i])
M_FN __m512i _mm512_set1_epi32(int32_t x) { M_EACH(__m512i, x); }
M_FN __m512i _mm512_set1_epi64(int64_t x)
{
    M_EACH(__m512i, (int32_t)(uint32_t)((uint64_t)x >> i % 2 * 32));
}
M_FN __m512i _mm512_add_epi32(__m512i x, __m512i y) { M_EACH(__m512i, (int32_t)(M_U(x) + M_U(y))); }
M_FN __m512i _mm512_sub_epi32(__m512i x, __m512i y) { M_EACH(__m512i, (int32_t)(M_U(x) - M_U(y))); }
M_FN __m512i _mm512_mullo_epi32(__m512i x, __m512i y)
{
    M_EACH(__m512i, (int32_t)(M_U(x) * M_U(y)));
}
M_FN __m512i _mm512_slli_epi32(__m512i x, unsigned n) { M_EACH(__m512i, (int32_t)(M_U(x) << n)); }
M_FN __m512i _mm512_srai_epi32(__m512i x, unsigned n) { M_EACH(__m512i, x.v[i] >> n); }
M_FN __m512i _mm512_and_si512(__m512i x, __m512i y) { M_EACH(__m512i, x.v[i] & y.v[i]); }
M_FN __m512i _mm512_or_si512(__m512i x, __m512i y) { M_EACH(__m512i, x.v[i] | y.v[i]); }
M_FN __m512i _mm512_xor_si512(__m512i x, __m512i y) { M_EACH(__m512i, x.v[i] ^ y.v[i]); }
M_FN int32_t _mm512_reduce_add_epi32(__m512i x)
{
    uint32_t s = 0;
    for (int i = 0; i < 16; i++)
        s += M_U(x);
    return (int32_t)s;
}
M_FN __m512i _mm512_broadcast_i32x4(__m128i x)
{
    __m512i r;
    for (int i = 0; i < 4; i++)
        memcpy(r.v + 4 * i, &x, sizeof x);
    return r;
}

/* ---- 16-bit and 8-bit lanes ---- */

/* r.w[i] = expr for 32 words; x and y are theirs. */
typedef struct {
    uint16_t w[32];
} m_words;
typedef struct {
    uint8_t b[64];
} m_bytes;
M_FN m_words m_w(__m512i x)
{
    m_words r;
    memcpy(&r, &x, sizeof r);
    return r;
}
M_FN m_bytes m_b(__m512i x)
{
    m_bytes r;
    memcpy(&r, &x, sizeof r);
    return r;
}
#define M_WORDS(expr)                           \
    m_words t;                                  \
    __m512i r;                                  \
    for (int i = 0; i < 32; i++)                \
        t.w[i] = (uint16_t)(expr);              \
    memcpy(&r, &t, sizeof r);                   \
    return r
M_FN __m512i _mm512_slli_epi16(__m512i x, unsigned n) { M_WORDS((uint32_t)m_w(x).w[i] << n); }
M_FN __m512i _mm512_srli_epi16(__m512i x, unsigned n) { M_WORDS(m_w(x).w[i] >> n); }
M_FN __m512i _mm512_srai_epi16(__m512i x, unsigned n) { M_WORDS((int16_t)m_w(x).w[i] >> n); }
M_FN uint8_t m_byte(__m256i x, int i) { return (uint8_t)(x.v[i / 2] >> i % 2 * 8); }
M_FN __m512i _mm512_cvtepu8_epi16(__m256i x) { M_WORDS(m_byte(x, i)); }
M_FN __m512i _mm512_cvtepi8_epi16(__m256i x) { M_WORDS((int8_t)m_byte(x, i)); }
/* Bytes of each 16 by the low half of y's; 0 where y's high bit is set. */
M_FN __m512i _mm512_shuffle_epi8(__m512i x, __m512i y)
{
    const m_bytes a = m_b(x), by = m_b(y);
    m_bytes t;
    __m512i r;
    for (int i = 0; i < 64; i++)
        t.b[i] = by.b[i] & 0x80 ? 0 : a.b[i / 16 * 16 + (by.b[i] & 15)];
    memcpy(&r, &t, sizeof r);
    return r;
}

/* Products of words, pairs added. */
static inline uint32_t m_pair(m_words x, m_words y, int i)
{
    return (uint32_t)((int32_t)(int16_t)x.w[2 * i] * (int16_t)y.w[2 * i]) +
           (uint32_t)((int32_t)(int16_t)x.w[2 * i + 1] * (int16_t)y.w[2 * i + 1]);
}
M_FN __m512i _mm512_madd_epi16(__m512i x, __m512i y)
{
    const m_words a = m_w(x), b = m_w(y);
    M_EACH(__m512i, (int32_t)m_pair(a, b, i));
}
M_FN __m512i _mm512_dpwssd_epi32(__m512i s, __m512i x, __m512i y)
{
    const m_words a = m_w(x), b = m_w(y);
    M_EACH(__m512i, (int32_t)(M_U(s) + m_pair(a, b, i)));
}
/* Unsigned bytes of x times signed ones of y, four added to each lane, without saturation. */
M_FN __m512i _mm512_dpbusd_epi32(__m512i s, __m512i x, __m512i y)
{
    const m_bytes a = m_b(x), b = m_b(y);
    __m512i r = s;
    for (int i = 0; i < 64; i++)
        r.v[i / 4] = (int32_t)((uint32_t)r.v[i / 4] + (uint32_t)(a.b[i] * (int8_t)b.b[i]));
    return r;
}

#endif
