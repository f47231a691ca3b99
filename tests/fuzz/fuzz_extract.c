/* Any bytes as a message and as the old summary: what is composed is UTF-8, within its bounds, and
 * the same the second time. The first byte cuts the input in two. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/utf8.h"
#include "memory/extract.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static void summarise(const struct extract_input *in, size_t max_bytes, struct buf *b)
{
    struct arena a;
    struct err e;
    struct extract_ranked r;
    arena_init(&a, SIZE_MAX);
    if (extract_rank(in, 0, &a, &r, &e))
        abort();
    buf_init(b, SIZE_MAX);
    buf_str(b, "");
    size_t n_take = extract_fit(&r, max_bytes);
    extract_compose(&r, n_take, b);
    for (size_t i = 0; i < r.n; i++)
        if (!(r.v[i].score > 0) || (i && r.v[i].score > r.v[i - 1].score))
            abort();
    arena_done(&a);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    if (!n)
        return 0;
    size_t n_old = (n - 1) * data[0] / 255, max_bytes = (size_t)data[0] * 4;
    const char *text = (const char *)data + 1;
    struct said m = {1, MEMORY_USER, text + n_old, n - 1 - n_old};
    struct extract_input in = {&m, 1, text, n_old};
    struct buf once, again;
    summarise(&in, max_bytes, &once);
    summarise(&in, max_bytes, &again);
    if (once.len > max_bytes || !utf8_valid(once.data, once.len, NULL) || once.len != again.len ||
        memcmp(once.data, again.data, once.len) != 0)
        abort();
    buf_done(&once);
    buf_done(&again);
    return 0;
}
