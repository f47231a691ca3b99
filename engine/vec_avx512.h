/*
 * Sixteen virtual lanes on AVX-512 (F, BW, VL, DQ) with VNNI: one zmm register each. Same
 * operations, same bits as vec_c.h (see kernels.h for the rules).
 *
 * Only intrinsics that tests/engine/math/avx512_model.h has in C: there this very text is compiled
 * a second time, over the model, and compared with plain C on any CPU.
 */
#ifndef HEARTH_ENGINE_VEC_AVX512_H
#define HEARTH_ENGINE_VEC_AVX512_H

#ifndef AVX512_MODEL
#include <immintrin.h>
/* Keeps a value in its register (vec_avx2.h tells why). */
#define V_KEEP(x) __asm__("" : "+v"(x))
#define V_FN static inline __attribute__((always_inline))
#endif
#include <stdint.h>
#include <string.h>

#include "engine/quants.h"

/* A function of its own: its registers are looked at by tests/engine/math/spills.py. */
#define V_OUT static __attribute__((noinline))

typedef __m512 v16f;
typedef __m512i v16i;

V_FN v16f v_load(const float *p) { return _mm512_loadu_ps(p); }
V_FN void v_store(float *p, v16f x) { _mm512_storeu_ps(p, x); }
V_FN v16f v_set1(float x) { return _mm512_set1_ps(x); }
V_FN v16f v_zero(void) { return _mm512_set1_ps(0); }
V_FN v16f v_add(v16f x, v16f y) { return _mm512_add_ps(x, y); }
V_FN v16f v_sub(v16f x, v16f y) { return _mm512_sub_ps(x, y); }
V_FN v16f v_mul(v16f x, v16f y) { return _mm512_mul_ps(x, y); }
V_FN v16f v_div(v16f x, v16f y) { return _mm512_div_ps(x, y); }
V_FN v16f v_sqrt(v16f x) { return _mm512_sqrt_ps(x); }
V_FN v16f v_fma(v16f x, v16f y, v16f z) { return _mm512_fmadd_ps(x, y, z); }
V_FN v16f v_fnma(v16f x, v16f y, v16f z) { return _mm512_fnmadd_ps(x, y, z); }
V_FN v16f v_max(v16f x, v16f y) { return _mm512_max_ps(x, y); }
V_FN v16f v_min(v16f x, v16f y) { return _mm512_min_ps(x, y); }

V_FN v16f v_from_i(v16i x) { return _mm512_cvtepi32_ps(x); }
V_FN v16i v_bits(v16f x) { return _mm512_castps_si512(x); }
V_FN v16f v_as_float(v16i x) { return _mm512_castsi512_ps(x); }
V_FN v16i vi_set1(int32_t x) { return _mm512_set1_epi32(x); }
V_FN v16i vi_add(v16i x, v16i y) { return _mm512_add_epi32(x, y); }
V_FN v16i vi_sub(v16i x, v16i y) { return _mm512_sub_epi32(x, y); }
V_FN v16i vi_mul(v16i x, v16i y) { return _mm512_mullo_epi32(x, y); }
#define vi_shl(x, n) _mm512_slli_epi32(x, n)

V_FN v16f v_abs(v16f x)
{
    return v_as_float(_mm512_and_si512(v_bits(x), vi_set1(0x7fffffff)));
}
/* x < limit ? 0 : y (a NaN in x keeps y) */
V_FN v16f v_zero_below(v16f x, float limit, v16f y)
{
    return _mm512_maskz_mov_ps(_mm512_cmp_ps_mask(x, v_set1(limit), _CMP_NLT_UQ), y);
}

V_FN v16i vi_load_u8(const uint8_t *p)
{
    return _mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i *)(const void *)p));
}
V_FN v16i vi_load_s8(const int8_t *p)
{
    return _mm512_cvtepi8_epi32(_mm_loadu_si128((const __m128i *)(const void *)p));
}
V_FN void vi_store_s8(int8_t *p, v16i x)
{
    _mm_storeu_si128((__m128i *)(void *)p, _mm512_cvtsepi32_epi8(x));
}
V_FN int32_t vi_sum(v16i x) { return _mm512_reduce_add_epi32(x); }

V_FN __m256i vz_half(const void *p) { return _mm256_loadu_si256((const __m256i *)p); }
V_FN v16f v_from_f16(const uint16_t *p) { return _mm512_cvtph_ps(vz_half(p)); }
V_FN v16f v_from_bf16(const uint16_t *p)
{
    return v_as_float(_mm512_slli_epi32(_mm512_cvtepu16_epi32(vz_half(p)), 16));
}
/* Nearest even, subnormals kept, beyond the largest: infinity. */
V_FN void v_to_f16(uint16_t *p, v16f x)
{
    _mm256_storeu_si256((__m256i *)(void *)p, _mm512_cvtps_ph(x, 0));
}

V_FN float v_first(v16f x) { return _mm512_cvtss_f32(x); }
/* The fixed tree 16 → 8 → 4 → 2 → 1. */
V_FN float v_sum(v16f x)
{
    x = v_add(x, _mm512_shuffle_f32x4(x, x, 0x4e));
    x = v_add(x, _mm512_shuffle_f32x4(x, x, 0xb1));
    x = v_add(x, _mm512_permute_ps(x, 0x4e));
    return v_first(v_add(x, _mm512_permute_ps(x, 0xb1)));
}
V_FN float v_hmax(v16f x)
{
    x = v_max(x, _mm512_shuffle_f32x4(x, x, 0x4e));
    x = v_max(x, _mm512_shuffle_f32x4(x, x, 0xb1));
    x = v_max(x, _mm512_permute_ps(x, 0x4e));
    return v_first(v_max(x, _mm512_permute_ps(x, 0xb1)));
}

/* Pairs (2i, 2i + 1): both lanes get the even one, the odd one, each other's; the even one
 * negated. */
V_FN v16f v_dup_even(v16f x) { return _mm512_permute_ps(x, 0xa0); }
V_FN v16f v_dup_odd(v16f x) { return _mm512_permute_ps(x, 0xf5); }
V_FN v16f v_swap_pairs(v16f x) { return _mm512_permute_ps(x, 0xb1); }
V_FN v16f v_negate_even(v16f x)
{
    return v_as_float(_mm512_xor_si512(v_bits(x), _mm512_set1_epi64(0x80000000)));
}

/* p_r += c_r · b for up to three rows, b 16 floats or halves in memory. */
V_FN void vz_fma3(v16f b, const int rows, v16f c0, v16f c1, v16f c2, v16f *p0, v16f *p1, v16f *p2)
{
    *p0 = v_fma(c0, b, *p0);
    if (rows > 1)
        *p1 = v_fma(c1, b, *p1);
    if (rows > 2)
        *p2 = v_fma(c2, b, *p2);
}
V_FN void v_fma3_f32(const float *b, const int rows, v16f c0, v16f c1, v16f c2, v16f *p0, v16f *p1,
                     v16f *p2)
{
    vz_fma3(v_load(b), rows, c0, c1, c2, p0, p1, p2);
}
V_FN void v_fma3_f16(const uint16_t *b, const int rows, v16f c0, v16f c1, v16f c2, v16f *p0,
                     v16f *p1, v16f *p2)
{
    vz_fma3(v_from_f16(b), rows, c0, c1, c2, p0, p1, p2);
}

V_FN void v_prefetch(const void *p) { _mm_prefetch((const char *)p, _MM_HINT_T0); }

#include "engine/vec_avx512_dot.h"

#endif
