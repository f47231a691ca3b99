/*
 * What of the memory is KV, and how large the window is then; cgroup limits from a tree of files.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "daemon/budget.h"
#include "daemon/limits.h"
#include "engine/kv.h"

#define MIB (1ull << 20)

static const struct budget_request small_model = {
    .memory_bytes = 4096 * MIB,
    .weights_bytes = 100 * MIB,
    .block_bytes = 720 * 1024,
    .n_ctx_train = 32768,
};

static void the_default_window_is_used_when_it_fits(void **state)
{
    (void)state;
    struct budget b;
    struct err e;
    assert_int_equal(budget_plan(&small_model, &b, &e), 0);
    assert_int_equal(b.ctx, DEFAULT_CTX);
    assert_int_equal(b.n_blocks, (4096 * MIB - 100 * MIB - BUDGET_SCRATCH_BYTES) / (720 * 1024));
}

static void a_model_made_for_less_decides(void **state)
{
    (void)state;
    struct budget_request r = small_model;
    struct budget b;
    struct err e;
    r.n_ctx_train = 2048;
    assert_int_equal(budget_plan(&r, &b, &e), 0);
    assert_int_equal(b.ctx, 2048);
    r.ctx = 4096;
    assert_int_equal(budget_plan(&r, &b, &e), ERR_LIMIT);
    assert_non_null(strstr(e.text, "4096"));
    assert_non_null(strstr(e.text, "2048"));
}

static void a_window_that_was_asked_for_is_given_or_refused(void **state)
{
    (void)state;
    struct budget_request r = small_model;
    struct budget b = {.ctx = -1};
    struct err e;
    r.ctx = 16384;
    assert_int_equal(budget_plan(&r, &b, &e), 0);
    assert_int_equal(b.ctx, 16384);
    r.memory_bytes = 400 * MIB;
    b.ctx = -1;
    assert_int_equal(budget_plan(&r, &b, &e), ERR_LIMIT);
    assert_int_equal(b.ctx, -1);
    assert_non_null(strstr(e.text, "--ctx 16384"));
    assert_non_null(strstr(e.text, "400"));
}

static void the_default_window_shrinks_to_what_memory_holds(void **state)
{
    (void)state;
    struct budget_request r = small_model;
    struct budget b;
    struct err e;
    for (uint64_t more = 3; more < 100; more += 7) {
        r.memory_bytes = r.weights_bytes + BUDGET_SCRATCH_BYTES + more * r.block_bytes + 5;
        assert_int_equal(budget_plan(&r, &b, &e), 0);
        assert_int_equal(b.n_blocks, more);
        assert_int_equal(b.ctx, (more - 1) * KV_BLOCK);
        /* One turn's whole window, and one block to hold what is being copied. */
        assert_true((size_t)(b.ctx / KV_BLOCK) + 1 <= b.n_blocks);
    }
}

static void a_large_models_passes_and_vectors_come_off_the_cache(void **state)
{
    (void)state;
    struct budget_request r = small_model;
    struct budget b;
    struct err e;
    assert_int_equal(budget_plan(&r, &b, &e), 0);
    assert_int_equal(b.buffers_bytes, BUDGET_SCRATCH_BYTES);
    r.pass_bytes = BUDGET_SCRATCH_BYTES - BUDGET_REST_BYTES; /* still within what is kept */
    assert_int_equal(budget_plan(&r, &b, &e), 0);
    assert_int_equal(b.buffers_bytes, BUDGET_SCRATCH_BYTES);
    r.pass_bytes = 300 * MIB;
    r.vectors_bytes = 50 * MIB;
    assert_int_equal(budget_plan(&r, &b, &e), 0);
    assert_int_equal(b.buffers_bytes, 300 * MIB + BUDGET_REST_BYTES);
    assert_int_equal(b.n_blocks,
                     (4096 * MIB - 100 * MIB - 50 * MIB - b.buffers_bytes) / r.block_bytes);
    const uint64_t all = r.weights_bytes + r.vectors_bytes + b.buffers_bytes +
                         (uint64_t)b.n_blocks * r.block_bytes;
    assert_true(all <= r.memory_bytes && all + r.block_bytes > r.memory_bytes);
    r.memory_bytes = 480 * MIB;
    assert_int_equal(budget_plan(&r, &b, &e), ERR_LIMIT);
    assert_non_null(strstr(e.text, "vectors 50"));
    assert_non_null(strstr(e.text, "buffers 332"));
}

static void no_room_at_all_is_an_error_with_the_numbers(void **state)
{
    (void)state;
    struct budget_request r = small_model;
    struct budget b;
    struct err e;
    r.memory_bytes = 50 * MIB; /* less than the weights */
    assert_int_equal(budget_plan(&r, &b, &e), ERR_LIMIT);
    assert_non_null(strstr(e.text, "50 MiB"));
    assert_non_null(strstr(e.text, "--memory"));
    r.memory_bytes = UINT64_MAX;
    assert_int_equal(budget_plan(&r, &b, &e), 0);
}

/* ---- cgroups ---- */

static char root[64];

static void put(const char *path, const char *text)
{
    char full[512];
    snprintf(full, sizeof full, "%s/%s", root, path);
    for (char *p = full + strlen(root) + 1; (p = strchr(p, '/')); p++) {
        *p = '\0';
        mkdir(full, 0700);
        *p = '/';
    }
    FILE *f = fopen(full, "w");
    assert_non_null(f);
    fputs(text, f);
    fclose(f);
}

static int make_root(void **state)
{
    (void)state;
    snprintf(root, sizeof root, "/tmp/hearth-cgroup-XXXXXX");
    return mkdtemp(root) ? 0 : -1;
}

static int remove_tree(const char *path)
{
    pid_t pid = fork();
    if (pid == 0) {
        execlp("rm", "rm", "-rf", path, (char *)NULL);
        _exit(1);
    }
    return pid > 0 && waitpid(pid, NULL, 0) == pid ? 0 : -1;
}

static int drop_root(void **state)
{
    (void)state;
    return remove_tree(root);
}

static void the_smallest_limit_on_the_way_up_counts(void **state)
{
    (void)state;
    put("a/b/c/memory.max", "max\n");
    put("a/b/memory.max", "1073741824\n");
    put("a/memory.max", "2147483648\n");
    assert_int_equal(budget_cgroup("0::/a/b/c\n", root), 1073741824);
    assert_int_equal(budget_cgroup("0::/a\n", root), 2147483648);
    put("memory.max", "536870912\n"); /* a container sees its own group at the mount */
    assert_int_equal(budget_cgroup("0::/\n", root), 536870912);
    assert_int_equal(budget_cgroup("0::/gone/with/the/namespace\n", root), 536870912);
}

static void the_old_layout_is_understood(void **state)
{
    (void)state;
    put("memory/user/memory.limit_in_bytes", "300000000\n");
    put("memory/memory.limit_in_bytes", "9223372036854771712\n");
    assert_int_equal(budget_cgroup("4:cpu,cpuacct:/x\n3:memory:/user\n", root), 300000000);
    assert_int_equal(budget_cgroup("3:blkio,memory:/user\n", root), 300000000);
    assert_int_equal(budget_cgroup("3:memory:/\n", root), 9223372036854771712u);
    assert_true(budget_cgroup("3:hugememory:/user\n", root) == UINT64_MAX);
}

static void no_or_strange_files_are_no_limit(void **state)
{
    (void)state;
    put("s/memory.max", "lots\n");
    put("z/memory.max", "0\n");
    put("o/memory.max", "99999999999999999999999\n");
    static const char *const texts[] = {"",        "\n\n", "0::/s\n",  "0::/z", "0::/o\n",
                                        "garbage", "0:",   "0:memory", "::::"};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        assert_true(budget_cgroup(texts[i], root) == UINT64_MAX);
}

static void the_default_is_half_of_something(void **state)
{
    (void)state;
    uint64_t bytes = budget_default();
    assert_true(bytes > 0 && bytes <= DEFAULT_MEMORY_BYTES);
}

static void what_is_available_is_read_from_the_kernels_list(void **state)
{
    (void)state;
    static const char *const without[] = {"", "MemFree: 3 kB\n", "XMemAvailable: 3 kB\n",
                                          "MemAvailable:", "MemAvailable: none\n",
                                          "MemAvailable: 99999999999999999999 kB\n",
                                          "MemAvailable: 18014398509481984 kB\n"};
    assert_true(budget_meminfo("MemTotal: 9 kB\nMemAvailable:   21698 kB\nBuffers: 1 kB\n") ==
                21698 * 1024);
    assert_true(budget_meminfo("MemAvailable: 0 kB\n") == 0);
    for (size_t i = 0; i < sizeof without / sizeof *without; i++)
        assert_true(budget_meminfo(without[i]) == UINT64_MAX);
    assert_true(budget_available() <= budget_machine());
}

static void more_than_the_machine_has_is_refused_with_both_numbers(void **state)
{
    (void)state;
    struct err e = {0};
    assert_true(budget_machine() >= 2 * budget_default());
    assert_int_equal(budget_check(4096 * MIB, 4096 * MIB, &e), 0);
    assert_int_equal(budget_check(4097 * MIB, 4096 * MIB, &e), ERR_LIMIT);
    assert_non_null(strstr(e.text, "4097 MiB"));
    assert_non_null(strstr(e.text, "4096 MiB"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_default_window_is_used_when_it_fits),
        cmocka_unit_test(what_is_available_is_read_from_the_kernels_list),
        cmocka_unit_test(a_model_made_for_less_decides),
        cmocka_unit_test(a_window_that_was_asked_for_is_given_or_refused),
        cmocka_unit_test(the_default_window_shrinks_to_what_memory_holds),
        cmocka_unit_test(a_large_models_passes_and_vectors_come_off_the_cache),
        cmocka_unit_test(no_room_at_all_is_an_error_with_the_numbers),
        cmocka_unit_test_setup_teardown(the_smallest_limit_on_the_way_up_counts, make_root,
                                        drop_root),
        cmocka_unit_test_setup_teardown(the_old_layout_is_understood, make_root, drop_root),
        cmocka_unit_test_setup_teardown(no_or_strange_files_are_no_limit, make_root, drop_root),
        cmocka_unit_test(the_default_is_half_of_something),
        cmocka_unit_test(more_than_the_machine_has_is_refused_with_both_numbers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
