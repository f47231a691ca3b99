/*
 * Memory: how much the daemon may have, and what of it is KV. Pure but for budget_default, which
 * asks the system.
 */
#ifndef HEARTH_DAEMON_BUDGET_H
#define HEARTH_DAEMON_BUDGET_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

#define BUDGET_SCRATCH_BYTES                                                                       \
    (64ull << 20)         /* of a pass, the tokenizer, buffers: outside KV and weights */
#define BUDGET_CTX_MIN 64 /* a smaller window answers nobody */

/* min(half of RAM or of the cgroup's limit, DEFAULT_MEMORY_BYTES). */
uint64_t budget_default(void);
/* The smallest memory limit over the cgroup in /proc/self/cgroup's text and its parents, read below
 * `sys_root` ("/sys/fs/cgroup"); UINT64_MAX: none. For tests. */
uint64_t budget_cgroup(const char *proc_self_cgroup, const char *sys_root);

struct budget {
    int ctx;         /* positions a turn may have */
    size_t n_blocks; /* of the pool */
};
struct budget_request {
    uint64_t memory_bytes, weights_bytes;
    size_t block_bytes;
    int ctx; /* as asked; 0: default */
    int n_ctx_train;
};
/*
 * ctx = min(model, DEFAULT_CTX or what was asked, what memory holds); the pool takes all that
 * weights and scratch leave, and holds ctx positions and a block at least. A window that was asked
 * for and doesn't fit is ERR_LIMIT with the numbers.
 */
int budget_plan(const struct budget_request *r, struct budget *ret, struct err *e) MUST_USE;

#endif
