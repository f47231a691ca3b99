/*
 * Sixteen virtual lanes in plain C: the reference that every other body must equal bit for bit
 * (kernels.h). fmaf is exact wherever it runs: in hardware when this is compiled for FMA
 * (kern_c_fma.c), in libm otherwise.
 */
#ifndef HEARTH_ENGINE_VEC_C_H
#define HEARTH_ENGINE_VEC_C_H

#include <math.h>
#include <stdint.h>
#include <string.h>

#include "engine/f16.h"
#include "engine/quants.h"

/* Functions, not inlined ones: as the reference this body needs no speed, and inlining sixteen
 * lanes everywhere costs the compiler forty times the time (46 s against 1.7 s a file). */
#define V_FN static __attribute__((noinline, unused))
/* A function of its own: its registers are looked at by tests/engine/math/spills.py. */
#define V_OUT static __attribute__((noinline))

typedef struct {
    float v[16];
} v16f;
typedef struct {
    int32_t v[16];
} v16i;

/* r.v[i] = EXPR for each lane */
#define V_EACH(type, expr)                 \
    type r;                                \
    for (int i = 0; i < 16; i++)           \
        r.v[i] = (expr);                   \
    return r

V_FN v16f v_load(const float *p) { V_EACH(v16f, p[i]); }
V_FN void v_store(float *p, v16f x) { memcpy(p, x.v, sizeof x.v); }
V_FN v16f v_set1(float x) { V_EACH(v16f, x); }
V_FN v16f v_zero(void) { return v_set1(0); }
V_FN v16f v_add(v16f x, v16f y) { V_EACH(v16f, x.v[i] + y.v[i]); }
V_FN v16f v_sub(v16f x, v16f y) { V_EACH(v16f, x.v[i] - y.v[i]); }
V_FN v16f v_mul(v16f x, v16f y) { V_EACH(v16f, x.v[i] * y.v[i]); }
V_FN v16f v_div(v16f x, v16f y) { V_EACH(v16f, x.v[i] / y.v[i]); }
V_FN v16f v_sqrt(v16f x) { V_EACH(v16f, sqrtf(x.v[i])); }
V_FN v16f v_fma(v16f x, v16f y, v16f z) { V_EACH(v16f, __builtin_fmaf(x.v[i], y.v[i], z.v[i])); }
V_FN v16f v_fnma(v16f x, v16f y, v16f z) { V_EACH(v16f, __builtin_fmaf(-x.v[i], y.v[i], z.v[i])); }
V_FN v16f v_max(v16f x, v16f y) { V_EACH(v16f, x.v[i] > y.v[i] ? x.v[i] : y.v[i]); }
V_FN v16f v_min(v16f x, v16f y) { V_EACH(v16f, x.v[i] < y.v[i] ? x.v[i] : y.v[i]); }
V_FN v16f v_abs(v16f x) { V_EACH(v16f, __builtin_fabsf(x.v[i])); }
V_FN v16f v_zero_below(v16f x, float limit, v16f y) { V_EACH(v16f, x.v[i] < limit ? 0 : y.v[i]); }

V_FN v16f v_from_i(v16i x) { V_EACH(v16f, (float)x.v[i]); }
V_FN v16i v_bits(v16f x)
{
    v16i r;
    memcpy(&r, &x, sizeof r);
    return r;
}
V_FN v16f v_as_float(v16i x)
{
    v16f r;
    memcpy(&r, &x, sizeof r);
    return r;
}
/* Integer lanes wrap, as vectors do. */
V_FN v16i vi_set1(int32_t x) { V_EACH(v16i, x); }
V_FN v16i vi_add(v16i x, v16i y) { V_EACH(v16i, (int32_t)((uint32_t)x.v[i] + (uint32_t)y.v[i])); }
V_FN v16i vi_sub(v16i x, v16i y) { V_EACH(v16i, (int32_t)((uint32_t)x.v[i] - (uint32_t)y.v[i])); }
V_FN v16i vi_mul(v16i x, v16i y) { V_EACH(v16i, (int32_t)((uint32_t)x.v[i] * (uint32_t)y.v[i])); }
V_FN v16i vi_shl(v16i x, int n) { V_EACH(v16i, (int32_t)((uint32_t)x.v[i] << n)); }
V_FN v16i vi_load_u8(const uint8_t *p) { V_EACH(v16i, p[i]); }
V_FN v16i vi_load_s8(const int8_t *p) { V_EACH(v16i, p[i]); }
V_FN void vi_store_s8(int8_t *p, v16i x)
{
    for (int i = 0; i < 16; i++)
        p[i] = (int8_t)(x.v[i] < -128 ? -128 : x.v[i] > 127 ? 127 : x.v[i]);
}
V_FN int32_t vi_sum(v16i x)
{
    uint32_t s = 0;
    for (int i = 0; i < 16; i++)
        s += (uint32_t)x.v[i];
    return (int32_t)s;
}

V_FN v16f v_from_f16(const uint16_t *p) { V_EACH(v16f, f16_to_f32(p[i])); }
V_FN v16f v_from_bf16(const uint16_t *p) { V_EACH(v16f, bf16_to_f32(p[i])); }
V_FN void v_to_f16(uint16_t *p, v16f x)
{
    for (int i = 0; i < 16; i++)
        p[i] = f32_to_f16(x.v[i]);
}

V_FN float v_first(v16f x)
{
    return x.v[0];
}
V_FN float v_sum(v16f x)
{
    for (int n = 8; n > 0; n /= 2)
        for (int i = 0; i < n; i++)
            x.v[i] += x.v[i + n];
    return x.v[0];
}
V_FN float v_hmax(v16f x)
{
    for (int n = 8; n > 0; n /= 2)
        for (int i = 0; i < n; i++)
            x.v[i] = x.v[i] > x.v[i + n] ? x.v[i] : x.v[i + n];
    return x.v[0];
}

V_FN v16f v_dup_even(v16f x) { V_EACH(v16f, x.v[i & ~1]); }
V_FN v16f v_dup_odd(v16f x) { V_EACH(v16f, x.v[i | 1]); }
V_FN v16f v_swap_pairs(v16f x) { V_EACH(v16f, x.v[i ^ 1]); }
V_FN v16f v_negate_even(v16f x) { V_EACH(v16f, i & 1 ? x.v[i] : -x.v[i]); }

/* p_r += c_r · b for up to three rows */
V_FN void v_fma3_f32(const float *b, const int rows, v16f c0, v16f c1, v16f c2, v16f *p0, v16f *p1,
                     v16f *p2)
{
    const v16f x = v_load(b);
    *p0 = v_fma(c0, x, *p0);
    if (rows > 1)
        *p1 = v_fma(c1, x, *p1);
    if (rows > 2)
        *p2 = v_fma(c2, x, *p2);
}
V_FN void v_fma3_f16(const uint16_t *b, const int rows, v16f c0, v16f c1, v16f c2, v16f *p0,
                     v16f *p1, v16f *p2)
{
    float x[16];
    v_store(x, v_from_f16(b));
    v_fma3_f32(x, rows, c0, c1, c2, p0, p1, p2);
}

V_FN void v_prefetch(const void *p) { (void)p; }

#include "engine/vec_c_dot.h"

/* ---- Q8_0 keys and values: see vec_avx2.h for the layouts ---- */

V_FN void v_to_s16(int16_t *p, v16f x)
{
    for (int i = 0; i < 16; i++) { /* 1.5 · 2^23 leaves the nearest even integer in the low bits */
        const float t = x.v[i] + 0x1.8p23f;
        int32_t bits;
        memcpy(&bits, &t, sizeof bits);
        p[i] = (int16_t)(bits - 0x4b400000);
    }
}

V_FN void v_open_k(const int8_t *k, int16_t *ret, size_t step)
{
    for (int c = 0; c < 16; c++, k += 4) {
        ret[2 * c] = k[0], ret[2 * c + 1] = k[2];
        ret[step + 2 * (size_t)c] = k[1], ret[step + 2 * (size_t)c + 1] = k[3];
    }
}

V_FN void v_open_v(const int8_t *v0, const int8_t *v1, int16_t *ret)
{
    for (int i = 0; i < 16; i++)
        ret[2 * i] = v0[i], ret[2 * i + 1] = v1[i];
}

V_FN v16i vc_row_s16(const int16_t *w, size_t step, const int16_t *x, int n)
{
    v16i s = {{0}};
    for (int j = 0; j < n; j++, w += step, x += 2)
        for (int c = 0; c < 16; c++)
            s.v[c] += w[2 * c] * x[0] + w[2 * c + 1] * x[1];
    return s;
}

V_FN void v_dot_s16(const int16_t *w, size_t step, const int16_t *x, size_t ldx, int n,
                    const int rows, v16i *s0, v16i *s1, v16i *s2)
{
    *s0 = vc_row_s16(w, step, x, n);
    if (rows > 1)
        *s1 = vc_row_s16(w, step, x + ldx, n);
    if (rows > 2)
        *s2 = vc_row_s16(w, step, x + 2 * ldx, n);
}

V_FN void v_dot_k(const int8_t *k, const int8_t *ahead, const int16_t *x, size_t ldx, int n,
                  const int rows, v16i *s0, v16i *s1, v16i *s2)
{
    int16_t w[16 * 32];
    (void)ahead;
    for (int j = 0; j < n; j++)
        v_open_k(k + 128 * j, w + 64 * j, 32);
    v_dot_s16(w, 32, x, ldx, 2 * n, rows, s0, s1, s2);
}

V_FN void v_dot_v(const int8_t *v, const int8_t *ahead, size_t dim, const int16_t *x, size_t ldx,
                  const int rows, v16i *s0, v16i *s1, v16i *s2)
{
    int16_t w[16 * 32];
    (void)ahead;
    for (size_t j = 0; j < 16; j++)
        v_open_v(v + 2 * j * dim, v + (2 * j + 1) * dim, w + 32 * j);
    v_dot_s16(w, 32, x, ldx, 16, rows, s0, s1, s2);
}

#endif
