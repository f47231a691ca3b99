/* The AVX-512 kernels' own source over a model of their instructions: a table that any CPU runs. */
#include "tests/engine/math/avx512_model.h"

#define KERN_TABLE kernels_avx512_model
#include "engine/kern_avx512.c"
