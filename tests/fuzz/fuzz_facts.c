/* Whatever is said and whatever a person writes: facts are substrings of their messages, lists fit
 * their budget, and what is written is read back the same. The first byte is the budget. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/utf8.h"
#include "memory/facts.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static void check(bool is_right)
{
    if (!is_right)
        abort();
}

static void write(const struct facts *f, struct buf *b)
{
    buf_init(b, SIZE_MAX);
    buf_str(b, "");
    facts_write(f, b);
}

static void round_trip(const struct facts *f, struct arena *a)
{
    struct facts again;
    struct err e;
    struct buf x, y;
    write(f, &x);
    check(!facts_parse(x.data, x.len, a, &again, &e));
    write(&again, &y);
    check(x.len == y.len && memcmp(x.data, y.data, x.len) == 0);
    buf_done(&x);
    buf_done(&y);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    if (!n)
        return 0;
    struct arena a;
    struct err e;
    struct facts f, some;
    struct said m = {1, MEMORY_USER, (const char *)data + 1, n - 1};
    arena_init(&a, SIZE_MAX);
    check(!facts_extract(&m, 1, &a, &f, &e));
    for (size_t i = 0; i < f.n; i++) {
        check(memmem(m.text, m.n_text, f.v[i].text, f.v[i].n_text) != NULL);
        check(f.v[i].n_text <= FACT_BYTES_MAX && utf8_valid(f.v[i].text, f.v[i].n_text, NULL));
    }
    round_trip(&f, &a);
    size_t budget = (size_t)data[0] * 8;
    check(!facts_merge(&f, NULL, budget, &a, &some, &e));
    struct buf b;
    buf_init(&b, SIZE_MAX);
    facts_compose(&some, &b);
    check(b.len <= budget);
    buf_done(&b);
    check(!facts_parse(m.text, m.n_text, &a, &f, &e));
    round_trip(&f, &a);
    arena_done(&a);
    return 0;
}
