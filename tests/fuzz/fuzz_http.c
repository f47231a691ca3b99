/* The same bytes in one piece, byte by byte, and in pieces whose sizes come from the input give the
 * same requests and errors. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "tests/daemon/http_record.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

struct sizes {
    const uint8_t *data;
    size_t n, at;
};

static size_t one(void *ctx)
{
    (void)ctx;
    return 1;
}

static size_t from_input(void *ctx)
{
    struct sizes *s = ctx;
    return s->n > 0 ? 1u + s->data[s->at++ % s->n] % 16u : 1;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    /* Small limits are reached by small inputs. */
    static const struct http_limits limits = {.header_bytes = 512, .body_bytes = 256};
    struct sizes sizes = {.data = data, .n = n};
    struct buf seen[3];
    for (int i = 0; i < 3; i++)
        buf_init(&seen[i], SIZE_MAX);
    http_record(&limits, (const char *)data, n, NULL, NULL, &seen[0]);
    http_record(&limits, (const char *)data, n, one, NULL, &seen[1]);
    http_record(&limits, (const char *)data, n, from_input, &sizes, &seen[2]);
    for (int i = 1; i < 3; i++)
        if (seen[0].len != seen[i].len ||
            (seen[0].len > 0 && memcmp(seen[0].data, seen[i].data, seen[0].len) != 0))
            abort();
    for (int i = 0; i < 3; i++)
        buf_done(&seen[i]);
    return 0;
}
