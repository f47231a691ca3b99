/*
 * Memory: how much the daemon may have, and what of it is KV. Pure but for budget_machine and
 * budget_default, which ask the system.
 */
#ifndef HEARTH_DAEMON_BUDGET_H
#define HEARTH_DAEMON_BUDGET_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

/* Buffers: what neither weights, KV nor vectors are. The tokenizer, SQLite, requests and answers
 * have the first; with a small model's passes they take no more than the second. */
#define BUDGET_REST_BYTES (32ull << 20)
#define BUDGET_SCRATCH_BYTES (64ull << 20)
#define BUDGET_CTX_MIN 64 /* a smaller window answers nobody */

/* RAM, or the cgroup's limit where that is less; UINT64_MAX: not known. */
uint64_t budget_machine(void);
/* What a program that runs once may take of it now: no more than the kernel says is available, and
 * than the limits of the process (ulimit -v, -d). */
uint64_t budget_available(void);
/* The bytes after "MemAvailable:" in /proc/meminfo's text; UINT64_MAX: not there. For tests. */
uint64_t budget_meminfo(const char *text);
/* min(half of budget_machine(), DEFAULT_MEMORY_BYTES). */
uint64_t budget_default(void);
/* ERR_LIMIT, with both numbers, where a budget is more than the machine has: it is reserved at once
 * but taken bit by bit, so that the system would kill the daemon some day, in the middle of a
 * turn. */
int budget_check(uint64_t memory_bytes, uint64_t machine_bytes, struct err *e) MUST_USE;
/* The smallest memory limit over the cgroup in /proc/self/cgroup's text and its parents, read below
 * `sys_root` ("/sys/fs/cgroup"); UINT64_MAX: none. For tests. */
uint64_t budget_cgroup(const char *proc_self_cgroup, const char *sys_root);

struct budget {
    int ctx;         /* positions a turn may have */
    size_t n_blocks; /* of the pool */
    uint64_t buffers_bytes; /* what is kept for buffers */
};
struct budget_request {
    uint64_t memory_bytes, weights_bytes;
    uint64_t vectors_bytes; /* of an embedding model and what it made */
    uint64_t pass_bytes;    /* the largest pass's scratch, logits of all running turns */
    size_t block_bytes;
    int ctx; /* as asked; 0: default */
    int n_ctx_train;
};
/*
 * memory = weights + vectors + buffers + KV. ctx = min(model, DEFAULT_CTX or what was asked, what
 * memory holds); the pool takes all that the others leave, and holds ctx positions and a block at
 * least. A window that was asked for and doesn't fit is ERR_LIMIT with the numbers.
 */
int budget_plan(const struct budget_request *r, struct budget *ret, struct err *e) MUST_USE;

#endif
