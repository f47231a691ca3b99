/* The same bytes in one piece, byte by byte, and in pieces whose sizes come from the input give the
 * same events. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/sse.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static void record(void *ctx, const char *event, const char *data, size_t n)
{
    struct buf *seen = ctx;
    buf_printf(seen, "%zu:%s %zu:", strlen(event), event, n);
    buf_add(seen, data, n);
}

/* step 0: sizes from the bytes themselves. */
static void run(const uint8_t *data, size_t n, size_t step, struct buf *seen)
{
    struct sse s;
    buf_init(seen, SIZE_MAX);
    sse_init(&s, 256, record, seen);
    for (size_t i = 0; i < n;) {
        size_t piece = step ? step : (size_t)1 + data[i] % 7;
        piece = piece < n - i ? piece : n - i;
        sse_push(&s, (const char *)data + i, piece);
        i += piece;
    }
    buf_printf(seen, s.is_broken ? "broken" : "whole");
    sse_done(&s);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    struct buf whole, bytes, pieces;
    run(data, n, n ? n : 1, &whole);
    run(data, n, 1, &bytes);
    run(data, n, 0, &pieces);
    if (whole.len != bytes.len || memcmp(whole.data, bytes.data, whole.len) != 0 ||
        whole.len != pieces.len || memcmp(whole.data, pieces.data, whole.len) != 0)
        abort();
    buf_done(&whole);
    buf_done(&bytes);
    buf_done(&pieces);
    return 0;
}
