/* Which kernels there are, and what the tests of them share. */
#include "tests/engine/math/tables.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

const struct kernels *tables[TABLES_MAX];
int n_tables;

void tables_init(void)
{
    static const char *const names[] = {"c", "avx2", "avx512", "amx"};
    const struct kernels *k;
    tables[n_tables++] = &kernels_c;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (kernels_find(names[i], &k, NULL) == 0 && k != &kernels_c)
            tables[n_tables++] = k;
    tables[n_tables++] = &kernels_avx512_model;
    tables[n_tables++] = &kernels_amx_model;
    numerics_enter();
}

float any_float(struct dice *d)
{
    const float x = dice_unit(d);
    switch (dice_int(d, 12)) {
    case 0:
        return x * 1e-38f * 1e-3f;
    case 1:
        return x * 1e-30f;
    case 2:
        return x * 1e6f;
    case 3:
        return x > 0 ? 0.0f : -0.0f;
    default:
        return x * 4;
    }
}

void fill(struct dice *d, float *x, size_t n)
{
    for (size_t i = 0; i < n; i++)
        x[i] = any_float(d);
}

void same(const char *what, const struct kernels *k, const void *a, const void *b, size_t n)
{
    if (memcmp(a, b, n) != 0)
        fail_msg("%s (%s%s) differs from C's", what, k->name,
                 k == &kernels_avx512_model || k == &kernels_amx_model ? ", model" : "");
}
