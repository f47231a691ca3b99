/*
 * See budget.h. Sizes in errors are MiB: what a person can put behind --memory.
 */
#include "daemon/budget.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/file.h"
#include "daemon/limits.h"
#include "engine/kv.h"

#define CGROUP_FILE_BYTES 65536

static uint64_t min_u64(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

/* The number in a file; UINT64_MAX for "max", for no such file, and for cgroup v1's huge "no
 * limit". */
static uint64_t read_limit(const char *dir, size_t n_dir, const char *name)
{
    struct buf path, text;
    uint64_t limit = UINT64_MAX;
    buf_init(&path, 8192);
    buf_init(&text, CGROUP_FILE_BYTES);
    buf_add(&path, dir, n_dir);
    buf_str(&path, name);
    if (!buf_error(&path) && file_read(path.data, &text, NULL) == 0 && text.len > 0 &&
        text.data[0] >= '0' && text.data[0] <= '9') {
        errno = 0;
        limit = strtoull(text.data, NULL, 10);
        if (errno || limit == 0)
            limit = UINT64_MAX;
    }
    buf_done(&path);
    buf_done(&text);
    return limit;
}

/* The group's limit and its parents', up to the mount. */
static uint64_t walk_up(const char *mount, const char *group, size_t n_group, const char *name)
{
    struct buf dir;
    uint64_t limit = UINT64_MAX;
    buf_init(&dir, 8192);
    buf_str(&dir, mount);
    size_t n_mount = dir.len;
    buf_add(&dir, group, n_group);
    while (!buf_error(&dir)) {
        while (dir.len > n_mount && dir.data[dir.len - 1] == '/')
            dir.len--;
        limit = min_u64(limit, read_limit(dir.data, dir.len, name));
        if (dir.len <= n_mount)
            break;
        while (dir.len > n_mount && dir.data[dir.len - 1] != '/')
            dir.len--;
    }
    buf_done(&dir);
    return limit;
}

/* Whether a comma-separated list has "memory" in it. */
static bool has_memory(const char *list, size_t n)
{
    static const char word[] = "memory";
    for (size_t i = 0; i + sizeof word - 1 <= n; i++) {
        bool begins = i == 0 || list[i - 1] == ',';
        size_t end = i + sizeof word - 1;
        if (begins && memcmp(list + i, word, sizeof word - 1) == 0 &&
            (end == n || list[end] == ','))
            return true;
    }
    return false;
}

uint64_t budget_cgroup(const char *proc_self_cgroup, const char *sys_root)
{
    uint64_t limit = UINT64_MAX;
    char v1[4096];
    snprintf(v1, sizeof v1, "%s/memory", sys_root);
    for (const char *line = proc_self_cgroup; *line;) {
        size_t n = strcspn(line, "\n");
        const char *list = memchr(line, ':', n);
        const char *group = list ? memchr(list + 1, ':', n - (size_t)(list + 1 - line)) : NULL;
        if (group) {
            size_t n_list = (size_t)(group - list - 1), n_group = n - (size_t)(group + 1 - line);
            if (n_list == 0)
                limit = min_u64(limit, walk_up(sys_root, group + 1, n_group, "/memory.max"));
            else if (has_memory(list + 1, n_list))
                limit = min_u64(limit, walk_up(v1, group + 1, n_group, "/memory.limit_in_bytes"));
        }
        line += n + (line[n] == '\n');
    }
    return limit;
}

static double mib(uint64_t bytes)
{
    return (double)bytes / (1 << 20);
}

uint64_t budget_machine(void)
{
    struct buf text;
    long pages = sysconf(_SC_PHYS_PAGES), page_bytes = sysconf(_SC_PAGESIZE);
    uint64_t ram =
        pages > 0 && page_bytes > 0 ? (uint64_t)pages * (uint64_t)page_bytes : UINT64_MAX;
    buf_init(&text, CGROUP_FILE_BYTES);
    if (file_read("/proc/self/cgroup", &text, NULL) == 0 && text.data)
        ram = min_u64(ram, budget_cgroup(text.data, "/sys/fs/cgroup"));
    buf_done(&text);
    return ram;
}

uint64_t budget_meminfo(const char *text)
{
    static const char key[] = "MemAvailable:";
    const char *at = strstr(text, key);
    unsigned long long kib;
    char *end;
    if (!at || (at != text && at[-1] != '\n'))
        return UINT64_MAX;
    errno = 0;
    kib = strtoull(at + sizeof key - 1, &end, 10);
    return errno || end == at + sizeof key - 1 || kib > UINT64_MAX >> 10 ? UINT64_MAX : kib << 10;
}

uint64_t budget_available(void)
{
    static const int kinds[] = {RLIMIT_AS, RLIMIT_DATA};
    struct buf text;
    struct rlimit limit;
    uint64_t bytes = budget_machine();
    buf_init(&text, CGROUP_FILE_BYTES);
    if (file_read("/proc/meminfo", &text, NULL) == 0 && text.data)
        bytes = min_u64(bytes, budget_meminfo(text.data));
    buf_done(&text);
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if (getrlimit((__rlimit_resource_t)kinds[i], &limit) == 0 &&
            limit.rlim_cur != RLIM_INFINITY)
            bytes = min_u64(bytes, limit.rlim_cur);
    return bytes;
}

uint64_t budget_default(void)
{
    return min_u64(budget_machine() / 2, DEFAULT_MEMORY_BYTES);
}

int budget_check(uint64_t memory_bytes, uint64_t machine_bytes, struct err *e)
{
    if (memory_bytes <= machine_bytes)
        return 0;
    return err_set(e, ERR_LIMIT,
                   "--memory of %.0f MiB is more than the %.0f MiB that this machine, or its "
                   "control group, has",
                   mib(memory_bytes), mib(machine_bytes));
}

static size_t blocks_of(int ctx)
{
    return (size_t)(ctx + KV_BLOCK - 1) / KV_BLOCK + 1;
}

int budget_plan(const struct budget_request *r, struct budget *ret, struct err *e)
{
    uint64_t buffers_bytes = r->pass_bytes + BUDGET_REST_BYTES;
    if (buffers_bytes < BUDGET_SCRATCH_BYTES)
        buffers_bytes = BUDGET_SCRATCH_BYTES;
    uint64_t taken = r->weights_bytes + r->vectors_bytes + buffers_bytes;
    uint64_t kv_bytes = r->memory_bytes > taken ? r->memory_bytes - taken : 0;
    size_t n_blocks = (size_t)(kv_bytes / r->block_bytes);
    int ctx = r->ctx > 0 ? r->ctx : DEFAULT_CTX;
    if (r->ctx > r->n_ctx_train)
        return err_set(e, ERR_LIMIT, "--ctx %d: the model was made for %d positions", r->ctx,
                       r->n_ctx_train);
    if (ctx > r->n_ctx_train)
        ctx = r->n_ctx_train;
    if (blocks_of(ctx) > n_blocks && r->ctx > 0)
        return err_set(e, ERR_LIMIT,
                       "--ctx %d needs %.0f MiB for KV, and --memory leaves %.0f of its %.0f MiB: "
                       "weights take %.0f, vectors %.0f, buffers %.0f",
                       ctx, mib(blocks_of(ctx) * r->block_bytes), mib(kv_bytes),
                       mib(r->memory_bytes), mib(r->weights_bytes), mib(r->vectors_bytes),
                       mib(buffers_bytes));
    if (blocks_of(ctx) > n_blocks)
        ctx = n_blocks > 1 ? (int)(n_blocks - 1) * KV_BLOCK : 0;
    if (ctx < BUDGET_CTX_MIN && ctx < r->n_ctx_train)
        return err_set(e, ERR_LIMIT,
                       "memory of %.0f MiB leaves room for a window of %d tokens; the smallest is "
                       "%d (weights take %.0f MiB, vectors %.0f, buffers %.0f): raise --memory",
                       mib(r->memory_bytes), ctx, BUDGET_CTX_MIN, mib(r->weights_bytes),
                       mib(r->vectors_bytes), mib(buffers_bytes));
    *ret = (struct budget){.ctx = ctx, .n_blocks = n_blocks, .buffers_bytes = buffers_bytes};
    return 0;
}
