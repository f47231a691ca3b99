/* Which kernels this CPU can run, and the rounding mode they need. */
#include "engine/kernels.h"

#include <fenv.h>
#include <string.h>
#if defined(__x86_64__)
#include <cpuid.h>
#include <xmmintrin.h>
#endif

#if defined(__x86_64__)
/* The register states that the system saves: bits of XCR0. */
static uint64_t saved_states(void)
{
    uint32_t low, high;
    __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    return (uint64_t)high << 32 | low;
}

#define XCR0_ZMM 0xe6u /* SSE, AVX, masks, upper halves, upper sixteen */

/* What kernels_avx512 needs and isn't there; NULL: nothing. */
static const char *lacks_avx512(void)
{
    unsigned a, b, c, d, has_xgetbv;
    if (!__get_cpuid(1, &a, &b, &has_xgetbv, &d) || !__get_cpuid_count(7, 0, &a, &b, &c, &d))
        return "AVX-512";
    if (!(b & bit_AVX512F))
        return "AVX512F";
    if (!(b & bit_AVX512BW))
        return "AVX512BW";
    if (!(b & bit_AVX512VL))
        return "AVX512VL";
    if (!(b & bit_AVX512DQ))
        return "AVX512DQ";
    if (!(c & bit_AVX512VNNI))
        return "AVX512-VNNI";
    if (!(has_xgetbv & bit_OSXSAVE) || (saved_states() & XCR0_ZMM) != XCR0_ZMM)
        return "the system's support for AVX-512's registers";
    return NULL;
}

struct kernels_cpu kernels_cpu(void)
{
    unsigned a, b, c, d; /* F16C by hand: clang 14 doesn't know it by name */
    struct kernels_cpu r = {.fma = __builtin_cpu_supports("fma") && __builtin_cpu_supports("avx")};
    r.avx2 = r.fma && __builtin_cpu_supports("avx2") && __get_cpuid(1, &a, &b, &c, &d) &&
             (c & bit_F16C);
    r.lacks_avx512 = r.avx2 ? lacks_avx512() : "AVX2";
    return r;
}
#else
struct kernels_cpu kernels_cpu(void)
{
    return (struct kernels_cpu){.lacks_avx512 = "AVX-512"};
}
#endif

static const char *best(const struct kernels_cpu *cpu)
{
    if (!cpu->lacks_avx512)
        return "avx512";
    return cpu->avx2 ? "avx2" : "c";
}

int kernels_pick(const char *name, const struct kernels_cpu *cpu, const struct kernels **ret,
                 struct err *e)
{
    if (!name)
        name = best(cpu);
    if (strcmp(name, "avx512") == 0) {
        if (cpu->lacks_avx512)
            return err_set(e, ERR_INVAL, "isa avx512: this CPU lacks %s; its best is %s",
                           cpu->lacks_avx512, best(cpu));
        *ret = &kernels_avx512;
        return 0;
    }
    if (strcmp(name, "avx2") == 0) {
        if (!cpu->avx2)
            return err_set(e, ERR_INVAL, "isa avx2: this CPU lacks AVX2, FMA or F16C; it has c");
        *ret = &kernels_avx2;
        return 0;
    }
    if (strcmp(name, "c") != 0)
        return err_set(e, ERR_INVAL, "isa %s: unknown; known are c, avx2, avx512", name);
    *ret = cpu->fma ? &kernels_c_fma : &kernels_c;
    return 0;
}

int kernels_find(const char *name, const struct kernels **ret, struct err *e)
{
    const struct kernels_cpu cpu = kernels_cpu();
    return kernels_pick(name, &cpu, ret, e);
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
