/* Which kernels this CPU can run, and the rounding mode they need. */
#include "engine/kernels.h"

#include <fenv.h>
#include <string.h>
#if defined(__x86_64__)
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>
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

#define XCR0_TILES 0x60000u /* their configuration and data */
/* Bits of leaf 7's edx, by hand for older compilers. */
#define AMX_TILE (1u << 24)
#define AMX_INT8 (1u << 25)
/* Leaves that tell how large tiles and their products may be. */
#define LEAF_TILES 0x1d
#define LEAF_PRODUCTS 0x1e

/* Whether tiles hold what vec_amx.h's configuration takes: palette 1, six tiles of up to 16 rows of
 * 64 bytes, and products over up to eight rows of 64 bytes. */
static int fits_tiles(void)
{
    unsigned a, b, c, d;
    if (!__get_cpuid_count(LEAF_TILES, 0, &a, &b, &c, &d) || a < 1)
        return 0;
    if (!__get_cpuid_count(LEAF_TILES, 1, &a, &b, &c, &d))
        return 0;
    if (a >> 16 < 1024 || (b & 0xffff) < 64 || b >> 16 < 6 || (c & 0xffff) < 16)
        return 0;
    return __get_cpuid_count(LEAF_PRODUCTS, 0, &a, &b, &c, &d) && (b & 0xff) >= 8 &&
           (b >> 8 & 0xffff) >= 64;
}

/* The tiles' state is large, so Linux gives it only to processes that ask (5.16 and later). Holds
 * for all threads of this process. */
static int may_use_tiles(void)
{
    enum { ARCH_REQ_XCOMP_PERM_ = 0x1023, XFEATURE_XTILEDATA_ = 18 };
    return syscall(SYS_arch_prctl, ARCH_REQ_XCOMP_PERM_, XFEATURE_XTILEDATA_) == 0;
}

/* What kernels_amx needs besides AVX-512 and isn't there; NULL: nothing. */
static const char *lacks_amx(void)
{
    unsigned a, b, c, d;
    if (!__get_cpuid_count(7, 0, &a, &b, &c, &d) || !(d & AMX_TILE))
        return "AMX-TILE";
    if (!(d & AMX_INT8))
        return "AMX-INT8";
    if (!fits_tiles())
        return "AMX tiles of 16 rows of 64 bytes";
    if ((saved_states() & XCR0_TILES) != XCR0_TILES)
        return "the system's support for AMX's tiles";
    return may_use_tiles() ? NULL : "the system's permission to use AMX's tiles";
}

struct kernels_cpu kernels_cpu(void)
{
    unsigned a, b, c, d; /* F16C by hand: clang 14 doesn't know it by name */
    struct kernels_cpu r = {.fma = __builtin_cpu_supports("fma") && __builtin_cpu_supports("avx")};
    r.avx2 = r.fma && __builtin_cpu_supports("avx2") && __get_cpuid(1, &a, &b, &c, &d) &&
             (c & bit_F16C);
    r.lacks_avx512 = r.avx2 ? lacks_avx512() : "AVX2";
    r.lacks_amx = r.lacks_avx512 ? r.lacks_avx512 : lacks_amx();
    return r;
}
#else
struct kernels_cpu kernels_cpu(void)
{
    return (struct kernels_cpu){.lacks_avx512 = "AVX-512", .lacks_amx = "AMX"};
}
#endif

static const char *best(const struct kernels_cpu *cpu)
{
    if (!cpu->lacks_amx)
        return "amx";
    if (!cpu->lacks_avx512)
        return "avx512";
    return cpu->avx2 ? "avx2" : "c";
}

int kernels_pick(const char *name, const struct kernels_cpu *cpu, const struct kernels **ret,
                 struct err *e)
{
    const struct {
        const char *name;
        const struct kernels *k;
        const char *lacks; /* NULL: nothing */
    } known[] = {
        {"c", cpu->fma ? &kernels_c_fma : &kernels_c, NULL},
        {"avx2", &kernels_avx2, cpu->avx2 ? NULL : "AVX2, FMA or F16C"},
        {"avx512", &kernels_avx512, cpu->lacks_avx512},
        {"amx", &kernels_amx, cpu->lacks_amx},
    };
    if (!name)
        name = best(cpu);
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        if (strcmp(name, known[i].name) != 0)
            continue;
        if (known[i].lacks)
            return err_set(e, ERR_INVAL, "isa %s: this CPU lacks %s; its best is %s", name,
                           known[i].lacks, best(cpu));
        *ret = known[i].k;
        return 0;
    }
    return err_set(e, ERR_INVAL, "isa %.32s: unknown; known are c, avx2, avx512, amx", name);
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
