/*
 * The quants of 16 columns × 32 k as a packed group holds them (mat.h says which layout has
 * which), in planes of bits. Vector j, j = 0 … 7, is 64 bytes, of which byte 4 c + i stands for
 * column c and k = 4 j + i.
 *
 *   plane of 4 bits   4 × 64 bytes: bits 0–3 of a byte of the i-th are vector 2 i, bits 4–7 2 i + 1
 *            2 bits   2 × 64 bytes: bits 2 m, 2 m + 1 of the i-th are vector 4 i + m
 *            1 bit    64 bytes: bit m is vector m
 *            8 bits   8 × 64 bytes
 *
 * More than one plane: the lowest bits of the quant come first.
 */
#ifndef HEARTH_ENGINE_QUANTS_H
#define HEARTH_ENGINE_QUANTS_H

#include <stdint.h>

enum quants {
    QUANTS_2,  /* 2 bits */
    QUANTS_3,  /* 2 bits, 1 bit */
    QUANTS_4,  /* 4 bits */
    QUANTS_NL, /* 4 bits: an index into quants_nl */
    QUANTS_5,  /* 4 bits, 1 bit */
    QUANTS_6,  /* 4 bits, 2 bits */
    QUANTS_8   /* signed 8 bits */
};

/* Bytes of 16 columns × 32 k. A constant where `quants` is one. */
static inline int quants_bytes(const int quants)
{
    return quants == QUANTS_2   ? 128
           : quants == QUANTS_3 ? 192
           : quants == QUANTS_5 ? 320
           : quants == QUANTS_6 ? 384
           : quants == QUANTS_8 ? 512
                                : 256;
}

/* IQ4_NL's values. */
static const int8_t quants_nl[16] = {-127, -104, -83, -65, -49, -35, -22, -10,
                                     1,    13,   25,  38,  53,  69,  89,  113};

#endif
