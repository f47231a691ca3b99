/* What this machine can do: the limits that the bench sets its figures against. */
#ifndef HEARTH_ENGINE_PEAKS_H
#define HEARTH_ENGINE_PEAKS_H

#include "base/err.h"

struct peaks {
    double read_bytes_per_s; /* a plain read of memory that no cache holds, all threads */
    double int_ops_per_s;    /* 4-bit products with everything in the first caches; a multiply-add
                              * is two */
    double float_ops_per_s;  /* F32 products, likewise */
};

/*
 * Measures with n_threads (0: as engine_open takes it) and an isa's kernels (NULL: the best). Takes
 * about half a second and 192 MiB, which are given back. Best of several, since a busy machine can
 * only be slower than it is. ERR_NOMEM; ERR_INVAL names the isa or the number of threads.
 */
int peaks_measure(int n_threads, const char *isa, struct peaks *ret, struct err *e) MUST_USE;

#endif
