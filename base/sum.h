/*
 * Sums of bytes by XXH3: quick (as fast as memory is read), the same on every machine, and against
 * accident alone: who wants two texts of one sum can make them. What must withstand that is hashed
 * by base/hash.h.
 */
#ifndef HEARTH_BASE_SUM_H
#define HEARTH_BASE_SUM_H

#include <stddef.h>
#include <stdint.h>

#define SUM_BYTES 16

/* XXH3-64. */
uint64_t sum_of(const void *data, size_t n);
/* XXH3-128, in the order of bytes that its specification calls canonical: the high half first, big
 * end first. */
void sum_wide(const void *data, size_t n, uint8_t ret[SUM_BYTES]);

#endif
