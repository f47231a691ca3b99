/* Which kernels this CPU can run, and the rounding mode they need. */
#include "engine/kernels.h"

#include <fenv.h>
#include <string.h>
#if defined(__x86_64__)
#include <cpuid.h>
#include <xmmintrin.h>
#endif

static int has_fma(void)
{
#if defined(__x86_64__)
    return __builtin_cpu_supports("fma") && __builtin_cpu_supports("avx");
#else
    return 0;
#endif
}

static int has_avx2(void)
{
#if defined(__x86_64__)
    unsigned a, b, c, d; /* F16C by hand: clang 14 doesn't know it by name */
    return has_fma() && __builtin_cpu_supports("avx2") && __get_cpuid(1, &a, &b, &c, &d) &&
           (c & bit_F16C);
#else
    return 0;
#endif
}

int kernels_find(const char *name, const struct kernels **ret, struct err *e)
{
    if (!name && !has_avx2())
        name = "c";
    if (!name || strcmp(name, "avx2") == 0) {
        if (!has_avx2())
            return err_set(e, ERR_INVAL, "isa avx2: this CPU lacks AVX2, FMA or F16C; it has c");
        *ret = &kernels_avx2;
        return 0;
    }
    if (strcmp(name, "c") != 0)
        return err_set(e, ERR_INVAL, "isa %s: unknown; known are c, avx2", name);
    *ret = has_fma() ? &kernels_c_fma : &kernels_c;
    return 0;
}

#if defined(__x86_64__)
/* All exceptions masked, to nearest, subnormals neither flushed nor taken as zero. A library linked
 * with fast-math may have set it otherwise. */
#define MXCSR_DEFAULT 0x1f80u

uint32_t numerics_enter(void)
{
    uint32_t before = _mm_getcsr();
    _mm_setcsr(MXCSR_DEFAULT);
    return before;
}

void numerics_leave(uint32_t before)
{
    _mm_setcsr(before);
}
#else
uint32_t numerics_enter(void)
{
    int before = fegetround();
    fesetround(FE_TONEAREST);
    return (uint32_t)before;
}

void numerics_leave(uint32_t before)
{
    fesetround((int)before);
}
#endif
