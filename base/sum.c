/* XXH3 by xxHash's library (base/sum.h). */
#include "base/sum.h"

#include <assert.h>
#include <string.h>

#include <xxhash.h>

static_assert(sizeof(XXH128_canonical_t) == SUM_BYTES, "a sum's size");

uint64_t sum_of(const void *data, size_t n)
{
    return XXH3_64bits(data, n);
}

void sum_wide(const void *data, size_t n, uint8_t ret[SUM_BYTES])
{
    XXH128_canonical_t canonical;
    XXH128_canonicalFromHash(&canonical, XXH3_128bits(data, n));
    memcpy(ret, &canonical, SUM_BYTES);
}
