/*
 * The numerics probe: all kernels, and the rotations, over a fixed input, and the hash of the
 * output bits. By the rules of kernels.h it is the same on every CPU and instruction set; should a
 * compiler or libm ever break one of them, KV blocks made before are another model's.
 */
#include "base/hash.h"
#include "engine/forward_impl.h"
#include "engine/kernels_probe.h"

/* Three rows of the rotations: they come from the C library's sin and cos. */
static void probe_rope(struct hash_state *h, const struct model *m)
{
    const int last = m->params.n_ctx_train - 1, at[3] = {last < 1 ? last : 1, last / 3, last};
    float row[1024]; /* n_rot <= 1024 */
    if (last < 0)
        return;
    for (int i = 0; i < 6; i++) {
        model_rope_row(m, i >= 3, at[i % 3], row);
        hash_add(h, row, (size_t)m->params.n_rot * sizeof *row);
    }
}

void forward_numerics_probe(struct forward *f, uint8_t ret[32])
{
    struct hash_state h;
    const uint32_t before = numerics_enter();
    hash_init(&h);
    kernels_probe(f->k, &h);
    probe_rope(&h, f->m);
    hash_end(&h, ret);
    numerics_leave(before);
}
