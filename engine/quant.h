/*
 * GGML tensor types: their block sizes, and exact dequantisation (the oracle for everything
 * faster).
 */
#ifndef HEARTH_ENGINE_QUANT_H
#define HEARTH_ENGINE_QUANT_H

#include <stddef.h>
#include <stdint.h>

/* GGML's numbers. */
enum quant_id {
    QUANT_F32 = 0,
    QUANT_F16 = 1,
    QUANT_Q4_0 = 2,
    QUANT_Q4_1 = 3,
    QUANT_Q5_0 = 6,
    QUANT_Q5_1 = 7,
    QUANT_Q8_0 = 8,
    QUANT_Q2_K = 10,
    QUANT_Q3_K = 11,
    QUANT_Q4_K = 12,
    QUANT_Q5_K = 13,
    QUANT_Q6_K = 14,
    QUANT_IQ4_NL = 20,
    QUANT_BF16 = 30,
};

struct quant_type {
    uint32_t id;
    const char *name; /* "Q4_1" */
    int block_values; /* values a block: 1, 32 or 256 */
    int block_bytes;
    /* Writes n values (a multiple of block_values). No fused multiply-add: bits equal ggml's
     * dequantize_row. */
    void (*dequantize)(const void *blocks, float *ret, size_t n);
};

const struct quant_type *quant_type(uint32_t id);              /* NULL: unknown */
const struct quant_type *quant_type_by_name(const char *name); /* NULL: unknown */
/* "F32, F16, …" for error texts. */
const char *quant_names(void);
/* GGML's name of a type number that may well be one we don't read ("IQ2_XXS"), for error texts;
 * "unknown" for no type at all. */
const char *quant_ggml_name(uint32_t id);

/* IEEE half precision to single (exact) and back (to nearest, ties to even); NaN stays NaN. */
float quant_f16_to_f32(uint16_t h);
uint16_t quant_f32_to_f16(float f);

#endif
