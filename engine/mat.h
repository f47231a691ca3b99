/*
 * A weight matrix as the kernels read it: repacked at load into groups of 16 output columns, so that a vector lane is an output and the reduction over k is one chain of FMAs.
 *
 *   y[row, col] = sum over k-blocks of x[row, k-block] · W[col, k-block]          W is [n_out, n_in], as in the GGUF (dims[0] = n_in)
 */
#ifndef HEARTH_ENGINE_MAT_H
#define HEARTH_ENGINE_MAT_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

struct mat {
    int n_out, n_in;
    int layout;          /* engine/mat.c's enum: which kernel */
    unsigned char *data; /* packed, 64-byte aligned, huge pages advised */
    size_t n_bytes;
};

/* Bytes that packing will need (for the memory check before anything is allocated). ERR_UNSUPPORTED names the type. */
int mat_size(uint32_t quant_id, int64_t n_out, int64_t n_in, size_t *ret, struct err *e) MUST_USE;
/* Packs rows of a GGML type. */
int mat_pack(uint32_t quant_id, const void *data, int64_t n_out, int64_t n_in, struct mat *ret, struct err *e) MUST_USE;
void mat_done(struct mat *m);
/* Row `i` of W, dequantised exactly as the file has it: embedding look-up from the packed form. ret[n_in]. */
void mat_row(const struct mat *m, int i, float *ret);

#endif
