/* Memory of the offline commands (daemon/offline_memory.h). */
#include "daemon/offline_memory.h"

#include "daemon/budget.h"

/* The question to the system costs a fraction of a millisecond: not for what any machine has. */
#define KV_BYTES_UNASKED ((uint64_t)64 << 20)

static double mib(uint64_t bytes)
{
    return (double)bytes / (1 << 20);
}

int offline_may_take(void *ctx, const struct engine_needs *n, struct err *e)
{
    const struct offline_memory *m = ctx;
    const uint64_t there = m->bytes ? m->bytes : budget_available();
    const uint64_t blocks = (uint64_t)(m->n_positions + KV_BLOCK - 1) / KV_BLOCK;
    const uint64_t kv = (uint64_t)m->n_seqs * blocks * n->kv.block_bytes;
    const uint64_t buffers = n->pass_bytes + BUDGET_REST_BYTES +
                             (uint64_t)m->n_logits * (uint64_t)n->n_vocab * sizeof(float);
    const uint64_t all = n->weights_bytes + kv + buffers;
    if (all <= there)
        return 0;
    return err_set(e, ERR_LIMIT,
                   "it needs %.0f MiB of memory (weights %.0f, KV %.0f, buffers %.0f), and %.0f "
                   "are there",
                   mib(all), mib(n->weights_bytes), mib(kv), mib(buffers), mib(there));
}

int offline_may_take_kv(uint64_t bytes, struct err *e)
{
    const uint64_t there = bytes > KV_BYTES_UNASKED ? budget_available() : UINT64_MAX;
    return bytes <= there ? 0
                          : err_set(e, ERR_LIMIT,
                                    "its KV needs %.0f MiB of memory, and %.0f are there",
                                    mib(bytes), mib(there));
}
