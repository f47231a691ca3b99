/* The kernels on AVX2, FMA and F16C (2013 and later). */
#include "engine/vec_avx2.h"

#define KERN_TABLE kernels_avx2
#define KERN_NAME "avx2"

#include "engine/kern_impl.h"
