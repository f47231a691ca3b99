/* The AMX kernels' own source over models of their instructions: a table that any CPU runs. */
#include "tests/engine/math/avx512_model.h"
#include "tests/engine/math/amx_model.h"

#define KERN_TABLE kernels_amx_model
#include "engine/kern_amx.c"
