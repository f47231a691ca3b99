/* The kernels on AVX-512 F, BW, VL, DQ and VNNI (Ice Lake, Zen 4 and later). */
#include "engine/vec_avx512.h"

#ifndef KERN_TABLE
#define KERN_TABLE kernels_avx512
#endif
#define KERN_NAME "avx512"

#include "engine/kern_impl.h"
