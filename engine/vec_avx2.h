/*
 * Sixteen virtual lanes on AVX2 + FMA + F16C: two ymm registers each. Same operations, same bits as
 * vec_c.h (see kernels.h for the rules).
 */
#ifndef HEARTH_ENGINE_VEC_AVX2_H
#define HEARTH_ENGINE_VEC_AVX2_H

#include <immintrin.h>
#include <stdint.h>
#include <string.h>

#include "engine/quants.h"

#define V_FN static inline __attribute__((always_inline))
/* A function of its own: its registers are looked at by tests/engine/math/spills.py. */
#define V_OUT static __attribute__((noinline))

typedef struct {
    __m256 a, b;
} v16f;
typedef struct {
    __m256i a, b;
} v16i;

V_FN v16f v_load(const float *p) { return (v16f){_mm256_loadu_ps(p), _mm256_loadu_ps(p + 8)}; }
V_FN void v_store(float *p, v16f x) { _mm256_storeu_ps(p, x.a), _mm256_storeu_ps(p + 8, x.b); }
V_FN v16f v_zero(void) { return (v16f){_mm256_setzero_ps(), _mm256_setzero_ps()}; }
V_FN v16f v_set1(float x) { return (v16f){_mm256_set1_ps(x), _mm256_set1_ps(x)}; }
V_FN v16f v_add(v16f x, v16f y) { return (v16f){_mm256_add_ps(x.a, y.a), _mm256_add_ps(x.b, y.b)}; }
V_FN v16f v_sub(v16f x, v16f y) { return (v16f){_mm256_sub_ps(x.a, y.a), _mm256_sub_ps(x.b, y.b)}; }
V_FN v16f v_mul(v16f x, v16f y) { return (v16f){_mm256_mul_ps(x.a, y.a), _mm256_mul_ps(x.b, y.b)}; }
V_FN v16f v_div(v16f x, v16f y) { return (v16f){_mm256_div_ps(x.a, y.a), _mm256_div_ps(x.b, y.b)}; }
V_FN v16f v_sqrt(v16f x) { return (v16f){_mm256_sqrt_ps(x.a), _mm256_sqrt_ps(x.b)}; }
/* x · y + z, rounded once */
V_FN v16f v_fma(v16f x, v16f y, v16f z)
{
    return (v16f){_mm256_fmadd_ps(x.a, y.a, z.a), _mm256_fmadd_ps(x.b, y.b, z.b)};
}
/* z − x · y, rounded once */
V_FN v16f v_fnma(v16f x, v16f y, v16f z)
{
    return (v16f){_mm256_fnmadd_ps(x.a, y.a, z.a), _mm256_fnmadd_ps(x.b, y.b, z.b)};
}
/* x > y ? x : y, and x < y ? x : y: a NaN on either side gives y. */
V_FN v16f v_max(v16f x, v16f y) { return (v16f){_mm256_max_ps(x.a, y.a), _mm256_max_ps(x.b, y.b)}; }
V_FN v16f v_min(v16f x, v16f y) { return (v16f){_mm256_min_ps(x.a, y.a), _mm256_min_ps(x.b, y.b)}; }

V_FN v16f v_abs(v16f x)
{
    const __m256 m = _mm256_castsi256_ps(_mm256_set1_epi32(0x7fffffff));
    return (v16f){_mm256_and_ps(x.a, m), _mm256_and_ps(x.b, m)};
}

/* x < limit ? 0 : y (a NaN in x keeps y) */
V_FN v16f v_zero_below(v16f x, float limit, v16f y)
{
    const __m256 l = _mm256_set1_ps(limit);
    return (v16f){_mm256_and_ps(_mm256_cmp_ps(x.a, l, _CMP_NLT_UQ), y.a),
                  _mm256_and_ps(_mm256_cmp_ps(x.b, l, _CMP_NLT_UQ), y.b)};
}

V_FN v16f v_from_i(v16i x) { return (v16f){_mm256_cvtepi32_ps(x.a), _mm256_cvtepi32_ps(x.b)}; }
V_FN v16i v_bits(v16f x) { return (v16i){_mm256_castps_si256(x.a), _mm256_castps_si256(x.b)}; }
V_FN v16f v_as_float(v16i x) { return (v16f){_mm256_castsi256_ps(x.a), _mm256_castsi256_ps(x.b)}; }
V_FN v16i vi_set1(int32_t x) { return (v16i){_mm256_set1_epi32(x), _mm256_set1_epi32(x)}; }
V_FN v16i vi_add(v16i x, v16i y)
{
    return (v16i){_mm256_add_epi32(x.a, y.a), _mm256_add_epi32(x.b, y.b)};
}
V_FN v16i vi_sub(v16i x, v16i y)
{
    return (v16i){_mm256_sub_epi32(x.a, y.a), _mm256_sub_epi32(x.b, y.b)};
}
V_FN v16i vi_mul(v16i x, v16i y)
{
    return (v16i){_mm256_mullo_epi32(x.a, y.a), _mm256_mullo_epi32(x.b, y.b)};
}
#define vi_shl(x, n) ((v16i){_mm256_slli_epi32((x).a, n), _mm256_slli_epi32((x).b, n)})
V_FN v16i vi_load_u8(const uint8_t *p)
{
    return (v16i){_mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i *)p)),
                  _mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i *)(p + 8)))};
}
V_FN v16i vi_load_s8(const int8_t *p)
{
    return (v16i){_mm256_cvtepi8_epi32(_mm_loadl_epi64((const __m128i *)p)),
                  _mm256_cvtepi8_epi32(_mm_loadl_epi64((const __m128i *)(p + 8)))};
}
/* The low byte of each lane. */
V_FN void vi_store_s8(int8_t *p, v16i x)
{
    __m256i w = _mm256_permute4x64_epi64(_mm256_packs_epi32(x.a, x.b), 0xd8);
    _mm_storeu_si128((__m128i *)p,
                     _mm_packs_epi16(_mm256_castsi256_si128(w), _mm256_extracti128_si256(w, 1)));
}
V_FN int32_t vi_sum(v16i x)
{
    __m256i s = _mm256_add_epi32(x.a, x.b);
    __m128i t = _mm_add_epi32(_mm256_castsi256_si128(s), _mm256_extracti128_si256(s, 1));
    t = _mm_add_epi32(t, _mm_shuffle_epi32(t, 0x4e));
    return _mm_cvtsi128_si32(_mm_add_epi32(t, _mm_shuffle_epi32(t, 0xb1)));
}

V_FN v16f v_from_f16(const uint16_t *p)
{
    return (v16f){_mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)p)),
                  _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(p + 8)))};
}
V_FN v16f v_from_bf16(const uint16_t *p)
{
    __m256i a = _mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *)p)),
            b = _mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *)(p + 8)));
    return (v16f){_mm256_castsi256_ps(_mm256_slli_epi32(a, 16)),
                  _mm256_castsi256_ps(_mm256_slli_epi32(b, 16))};
}
/* Nearest even, subnormals kept, beyond the largest: infinity. */
V_FN void v_to_f16(uint16_t *p, v16f x)
{
    _mm_storeu_si128((__m128i *)p, _mm256_cvtps_ph(x.a, 0));
    _mm_storeu_si128((__m128i *)(p + 8), _mm256_cvtps_ph(x.b, 0));
}

V_FN float v_first(v16f x)
{
    return _mm256_cvtss_f32(x.a);
}
/* The fixed tree 16 → 8 → 4 → 2 → 1. */
V_FN float v_sum(v16f x)
{
    __m256 s = _mm256_add_ps(x.a, x.b);
    __m128 t = _mm_add_ps(_mm256_castps256_ps128(s), _mm256_extractf128_ps(s, 1));
    t = _mm_add_ps(t, _mm_movehl_ps(t, t));
    return _mm_cvtss_f32(_mm_add_ss(t, _mm_movehdup_ps(t)));
}
V_FN float v_hmax(v16f x)
{
    __m256 s = _mm256_max_ps(x.a, x.b);
    __m128 t = _mm_max_ps(_mm256_castps256_ps128(s), _mm256_extractf128_ps(s, 1));
    t = _mm_max_ps(t, _mm_movehl_ps(t, t));
    return _mm_cvtss_f32(_mm_max_ss(t, _mm_movehdup_ps(t)));
}

/* Pairs (2i, 2i + 1): both lanes get the even one, the odd one, each other's; the even one
 * negated. */
V_FN v16f v_dup_even(v16f x) { return (v16f){_mm256_moveldup_ps(x.a), _mm256_moveldup_ps(x.b)}; }
V_FN v16f v_dup_odd(v16f x) { return (v16f){_mm256_movehdup_ps(x.a), _mm256_movehdup_ps(x.b)}; }
V_FN v16f v_swap_pairs(v16f x)
{
    return (v16f){_mm256_permute_ps(x.a, 0xb1), _mm256_permute_ps(x.b, 0xb1)};
}
V_FN v16f v_negate_even(v16f x)
{
    const __m256 m = _mm256_castsi256_ps(_mm256_set1_epi64x(0x80000000));
    return (v16f){_mm256_xor_ps(x.a, m), _mm256_xor_ps(x.b, m)};
}

/* Keeps a value in its register: gcc otherwise hoists the products of a whole tile and spills
 * them. */
#define V_KEEP(x) __asm__("" : "+x"(x))

/*
 * p_r += c_r · b for up to three rows, b 16 floats or halves in memory. Half a vector after the
 * other, so that twelve accumulators, three c and one b are the sixteen registers there are; each b
 * is loaded once.
 */
#define VX_FMA3(LOAD, half)                                      \
    do {                                                         \
        __m256 x = LOAD;                                         \
        V_KEEP(x);                                               \
        p0->half = _mm256_fmadd_ps(c0.half, x, p0->half);        \
        if (rows > 1)                                            \
            p1->half = _mm256_fmadd_ps(c1.half, x, p1->half);    \
        if (rows > 2)                                            \
            p2->half = _mm256_fmadd_ps(c2.half, x, p2->half);    \
    } while (0)

V_FN void v_fma3_f32(const float *b, const int rows, v16f c0, v16f c1, v16f c2, v16f *p0, v16f *p1,
                     v16f *p2)
{
    VX_FMA3(_mm256_loadu_ps(b), a);
    VX_FMA3(_mm256_loadu_ps(b + 8), b);
}
V_FN void v_fma3_f16(const uint16_t *b, const int rows, v16f c0, v16f c1, v16f c2, v16f *p0,
                     v16f *p1, v16f *p2)
{
    VX_FMA3(_mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)b)), a);
    VX_FMA3(_mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(b + 8))), b);
}

V_FN void v_prefetch(const void *p) { _mm_prefetch((const char *)p, _MM_HINT_T0); }

V_FN __m256i vx_bytes(const void *p) { return _mm256_loadu_si256((const __m256i *)p); }
V_FN __m256i vx_dup4(const int8_t *p)
{
    int32_t x;
    memcpy(&x, p, 4);
    return _mm256_set1_epi32(x);
}

#include "engine/vec_avx2_dot.h"

/*
 * Q8_0 keys and values against 16-bit factors, in exact integer sums. Pairs of products are added
 * by one instruction (two a cycle, each twice as wide as a multiply-add of floats; with the sum's
 * addition 76 products/ns on Zen 3 where floats do 48), so int8 is widened to 16 bits rather than
 * multiplied as bytes: at 8 × 8 bits each pair needs two more instructions for its sign and width.
 */
#define VX_MADD(acc, w, x)                                                                      \
    do {                                                                                        \
        acc = _mm256_add_epi32(acc, _mm256_madd_epi16(w, x));                                   \
        V_KEEP(acc);                                                                            \
    } while (0)
V_FN __m256i vx_pair(const int16_t *p)
{
    int32_t x;
    memcpy(&x, p, 4);
    return _mm256_set1_epi32(x);
}

/* Rounds to nearest even; within ±32767. */
V_FN void v_to_s16(int16_t *p, v16f x)
{
    const __m256i w = _mm256_packs_epi32(_mm256_cvtps_epi32(x.a), _mm256_cvtps_epi32(x.b));
    _mm256_storeu_si256((__m256i *)p, _mm256_permute4x64_epi64(w, 0xd8));
}

/* 16 positions × 4 dims of K, byte 4 c + i: dim i of position c → pairs (0, 2) of all positions at
 * ret, pairs (1, 3) at ret + step. */
V_FN void v_open_k(const int8_t *k, int16_t *ret, size_t step)
{
    for (int i = 0; i < 2; i++) {
        const __m256i w = vx_bytes(k + 32 * i);
        _mm256_storeu_si256((__m256i *)(ret + 16 * i),
                            _mm256_srai_epi16(_mm256_slli_epi16(w, 8), 8));
        _mm256_storeu_si256((__m256i *)(ret + step + 16 * i), _mm256_srai_epi16(w, 8));
    }
}

/* 16 dims of two positions of V → 16 pairs (v0, v1). */
V_FN void v_open_v(const int8_t *v0, const int8_t *v1, int16_t *ret)
{
    const __m128i x = _mm_loadu_si128((const __m128i *)v0),
                  y = _mm_loadu_si128((const __m128i *)v1);
    _mm256_storeu_si256((__m256i *)ret, _mm256_cvtepi8_epi16(_mm_unpacklo_epi8(x, y)));
    _mm256_storeu_si256((__m256i *)(ret + 16), _mm256_cvtepi8_epi16(_mm_unpackhi_epi8(x, y)));
}

/* One step of a pair: columns wa (0 – 7) and wb (8 – 15) times each row's pair at x. */
#define VX_PAIR(wa, wb, x)                                                                      \
    do {                                                                                        \
        __m256i t = vx_pair(x);                                                                 \
        VX_MADD(a0, wa, t);                                                                     \
        VX_MADD(b0, wb, t);                                                                     \
        if (rows > 1) {                                                                         \
            t = vx_pair((x) + ldx);                                                             \
            VX_MADD(a1, wa, t);                                                                 \
            VX_MADD(b1, wb, t);                                                                 \
        }                                                                                       \
        if (rows > 2) {                                                                         \
            t = vx_pair((x) + 2 * ldx);                                                         \
            VX_MADD(a2, wa, t);                                                                 \
            VX_MADD(b2, wb, t);                                                                 \
        }                                                                                       \
    } while (0)
#define VX_SUMS()                                                                               \
    do {                                                                                        \
        *s0 = (v16i){a0, b0};                                                                   \
        *s1 = (v16i){a1, b1};                                                                   \
        *s2 = (v16i){a2, b2};                                                                   \
    } while (0)

/* s_r[lane] = Σ over n pairs: 16 lanes of pairs at w, the next ones `step` behind, times the pairs
 * of row r, x + r · ldx. */
V_FN void v_dot_s16(const int16_t *w, size_t step, const int16_t *x, size_t ldx, int n,
                    const int rows, v16i *s0, v16i *s1, v16i *s2)
{
    __m256i a0 = _mm256_setzero_si256(), b0 = a0, a1 = a0, b1 = a0, a2 = a0, b2 = a0;
#pragma GCC unroll 8
    for (int j = 0; j < n; j++, w += step) {
        const __m256i wa = vx_bytes(w), wb = vx_bytes(w + 16);
        VX_PAIR(wa, wb, x + 2 * j);
    }
    VX_SUMS();
}

/* The same from K as it is stored: 16 positions × 4 n dims, 128 bytes from four dims to the next. A
 * line of `ahead` is fetched with each. */
V_FN void v_dot_k(const int8_t *k, const int8_t *ahead, const int16_t *x, size_t ldx, int n,
                  const int rows, v16i *s0, v16i *s1, v16i *s2)
{
    __m256i a0 = _mm256_setzero_si256(), b0 = a0, a1 = a0, b1 = a0, a2 = a0, b2 = a0;
#pragma GCC unroll 4
    for (int j = 0; j < n; j++) {
        const __m256i wa = vx_bytes(k + 128 * j), wb = vx_bytes(k + 128 * j + 32);
        _mm_prefetch((const char *)ahead + 128 * j, _MM_HINT_T0);
        __m256i ea = _mm256_srai_epi16(_mm256_slli_epi16(wa, 8), 8),
                eb = _mm256_srai_epi16(_mm256_slli_epi16(wb, 8), 8);
        VX_PAIR(ea, eb, x + 4 * j);
        ea = _mm256_srai_epi16(wa, 8);
        eb = _mm256_srai_epi16(wb, 8);
        VX_PAIR(ea, eb, x + 4 * j + 2);
    }
    VX_SUMS();
}

/* And from V as it is stored: 16 dims of 32 positions, dim bytes apart. */
V_FN void v_dot_v(const int8_t *v, const int8_t *ahead, size_t dim, const int16_t *x, size_t ldx,
                  const int rows, v16i *s0, v16i *s1, v16i *s2)
{
    __m256i a0 = _mm256_setzero_si256(), b0 = a0, a1 = a0, b1 = a0, a2 = a0, b2 = a0;
#pragma GCC unroll 8
    for (int j = 0; j < 32; j += 2, v += 2 * dim, ahead += 2 * dim) {
        const __m128i y0 = _mm_loadu_si128((const __m128i *)v),
                      y1 = _mm_loadu_si128((const __m128i *)(v + dim));
        _mm_prefetch((const char *)ahead, _MM_HINT_T0);
        _mm_prefetch((const char *)ahead + dim, _MM_HINT_T0);
        const __m256i wa = _mm256_cvtepi8_epi16(_mm_unpacklo_epi8(y0, y1)),
                      wb = _mm256_cvtepi8_epi16(_mm_unpackhi_epi8(y0, y1));
        VX_PAIR(wa, wb, x + j);
    }
    VX_SUMS();
}

#endif
