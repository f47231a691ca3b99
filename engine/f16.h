/* IEEE half precision and bfloat16 in integer arithmetic: the same bits as F16C (nearest even,
 * subnormals kept). */
#ifndef HEARTH_ENGINE_F16_H
#define HEARTH_ENGINE_F16_H

#include <stdint.h>
#include <string.h>

static inline float f32_of_bits(uint32_t u)
{
    float f;
    memcpy(&f, &u, sizeof f);
    return f;
}

static inline uint32_t f32_bits(float f)
{
    uint32_t u;
    memcpy(&u, &f, sizeof u);
    return u;
}

static inline float f16_to_f32(uint16_t h)
{
    uint32_t sign = (uint32_t)(h & 0x8000) << 16, exp = h >> 10 & 31, frac = h & 0x3ff;
    if (exp == 31)
        /* a NaN becomes quiet */
        return f32_of_bits(sign | 0x7f800000 | frac << 13 | (frac ? 0x400000 : 0));
    if (exp)
        return f32_of_bits(sign | (exp + 112) << 23 | frac << 13);
    float f = (float)frac * 0x1p-24f; /* exact */
    return f32_of_bits(sign | f32_bits(f));
}

static inline uint16_t f32_to_f16(float f)
{
    uint32_t u = f32_bits(f), sign = u >> 16 & 0x8000, a = u & 0x7fffffff;
    if (a > 0x7f800000)
        return (uint16_t)(sign | 0x7e00 | (a >> 13 & 0x3ff));
    if (a >= 0x477ff000) /* rounds to 2^16 */
        return (uint16_t)(sign | 0x7c00);
    if (a < 0x38800000) /* below 2^-14: the sum with 0.5 leaves the subnormal's bits, rounded, at
                         * the bottom */
        return (uint16_t)(sign | (f32_bits(f32_of_bits(a) + 0.5f) - 0x3f000000));
    uint32_t odd = a >> 13 & 1;
    return (uint16_t)(sign | (a - 0x38000000 + 0xfff + odd) >> 13);
}

static inline float bf16_to_f32(uint16_t h)
{
    return f32_of_bits((uint32_t)h << 16);
}

#endif
