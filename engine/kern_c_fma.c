/* The same C compiled for CPUs that have an FMA instruction: fmaf is exact, so the bits can't
 * differ from kern_c.c's, only the time. */
#define KERN_TABLE kernels_c_fma
#include "engine/kern_c.c"
