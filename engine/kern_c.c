/* The kernels in plain C: the reference. */
#include "engine/vec_c.h"

#ifndef KERN_TABLE
#define KERN_TABLE kernels_c
#endif
#define KERN_NAME "c"

#include "engine/kern_impl.h"
