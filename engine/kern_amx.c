/* The kernels on AVX-512 with VNNI, and products of many rows on AMX's tiles of int8 (Sapphire
 * Rapids and later). The system has to allow a process to use the tiles: kernels.c asks. */
#include "engine/vec_avx512.h"

#include "engine/vec_amx.h"

#ifndef KERN_TABLE
#define KERN_TABLE kernels_amx
#endif
#define KERN_NAME "amx"
#define KERN_AMX

#include "engine/kern_impl.h"
