/* Sockets, cores, caches and limits, over made-up machines. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>

#include "engine/topology.h"
#include "tests/engine/load/fake_root.h"

static void put_cpu(int cpu, const char *what, const char *text)
{
    char path[256];
    snprintf(path, sizeof path, "sys/devices/system/cpu/cpu%d/%s", cpu, what);
    put(path, text);
}

/* Two sockets of two cores of two threads: CPUs 0 and 4, 1 and 5 on the first. */
static void put_machine(void)
{
    static const char *const siblings[] = {"0,4\n", "1,5\n", "2,6\n", "3,7\n"};
    put("sys/devices/system/cpu/online", "0-7\n");
    put("sys/devices/system/node/online", "0-1\n");
    for (int cpu = 0; cpu < 8; cpu++) {
        put_cpu(cpu, "topology/physical_package_id", cpu % 4 < 2 ? "0\n" : "1\n");
        put_cpu(cpu, "topology/thread_siblings_list", siblings[cpu % 4]);
    }
}

static void put_cache(int cpu, int index, const char *const fields[4])
{
    static const char *const names[4] = {"level", "type", "size", "shared_cpu_list"};
    for (int i = 0; i < 4; i++) {
        char what[64];
        snprintf(what, sizeof what, "cache/index%d/%s", index, names[i]);
        put_cpu(cpu, what, fields[i]);
    }
}

static cpu_set_t cpus(int from, int to)
{
    cpu_set_t s;
    CPU_ZERO(&s);
    for (int i = from; i < to; i++) {
        CPU_SET((size_t)i, &s);
    }
    return s;
}

static void sockets_cores_and_threads_are_counted(void **state)
{
    (void)state;
    const cpu_set_t some = cpus(2, 5);
    struct topology t;
    put_machine();
    topology_read(root, &some, &t);
    assert_int_equal(t.n_sockets, 2);
    assert_int_equal(t.n_cores, 4);
    assert_int_equal(t.n_cpus, 8);
    assert_int_equal(t.threads_per_core, 2);
    assert_int_equal(t.n_allowed, 3);
    assert_int_equal(t.n_nodes, 2);
}

static void cores_that_are_offline_do_not_count(void **state)
{
    (void)state;
    const cpu_set_t all = cpus(0, 8);
    struct topology t;
    put_machine();
    put("sys/devices/system/cpu/online", "0-1,4\n"); /* of core 1 one thread is left */
    topology_read(root, &all, &t);
    assert_int_equal(t.n_sockets, 1);
    assert_int_equal(t.n_cores, 2);
    assert_int_equal(t.n_cpus, 3);
    assert_int_equal(t.threads_per_core, 2);
}

static void caches_are_those_of_the_first_cpu_allowed(void **state)
{
    (void)state;
    const cpu_set_t all = cpus(1, 8);
    struct topology t;
    put_machine();
    put_cache(1, 0, (const char *[]){"1\n", "Data\n", "48K\n", "1,5\n"});
    put_cache(1, 1, (const char *[]){"1\n", "Instruction\n", "32K\n", "1,5\n"});
    put_cache(1, 2, (const char *[]){"2\n", "Unified\n", "2M\n", "1,5\n"});
    put_cache(1, 3, (const char *[]){"3\n", "Unified\n", "33792K\n", "0-1,4-5\n"});
    topology_read(root, &all, &t);
    assert_int_equal(t.caches[0].bytes, 48 << 10);
    assert_int_equal(t.caches[0].shared_by, 2);
    assert_int_equal(t.caches[1].bytes, 2 << 20);
    assert_int_equal(t.caches[1].shared_by, 2);
    assert_int_equal(t.caches[2].bytes, 33 << 20);
    assert_int_equal(t.caches[2].shared_by, 4);
}

static void a_quota_is_told_in_parts_of_a_core(void **state)
{
    (void)state;
    const cpu_set_t all = cpus(0, 8);
    struct topology t;
    put_machine();
    put("proc/self/cgroup", "0::/a.slice\n");
    topology_read(root, &all, &t);
    assert_true(t.quota_cores == 0);
    put("sys/fs/cgroup/a.slice/cpu.max", "150000 100000\n");
    topology_read(root, &all, &t);
    assert_true(t.quota_cores == 1.5);
}

/* A container may show nothing of it, or nonsense: nothing is known, and nothing breaks. */
static void what_cannot_be_read_is_not_known(void **state)
{
    (void)state;
    const cpu_set_t all = cpus(0, 2), none = cpus(0, 0);
    struct topology t;
    topology_read(root, &all, &t);
    assert_int_equal(t.n_cpus, 0);
    assert_int_equal(t.n_cores, 0);
    assert_int_equal(t.n_nodes, 0);
    assert_int_equal(t.caches[0].bytes, 0);
    put("sys/devices/system/cpu/online", "0-,x,99999999999999999999,-5\n");
    put_cpu(0, "cache/index0/type", "Data\n");
    put_cpu(0, "cache/index0/level", "9\n");
    put_cpu(0, "cache/index1/type", "Data\n");
    put_cpu(0, "cache/index1/level", "1\n");
    put_cpu(0, "cache/index1/size", "many\n");
    topology_read(root, &all, &t);
    assert_int_equal(t.caches[0].bytes, 0);
    topology_read(root, &none, &t);
    assert_int_equal(t.n_allowed, 0);
}

static void this_machine_is_read(void **state)
{
    (void)state;
    struct topology t;
    topology_own(&t);
    assert_true(t.n_allowed >= 1);
    assert_true(t.n_cores <= t.n_cpus);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(sockets_cores_and_threads_are_counted, new_root, drop_root),
        cmocka_unit_test_setup_teardown(cores_that_are_offline_do_not_count, new_root, drop_root),
        cmocka_unit_test_setup_teardown(caches_are_those_of_the_first_cpu_allowed, new_root,
                                        drop_root),
        cmocka_unit_test_setup_teardown(a_quota_is_told_in_parts_of_a_core, new_root, drop_root),
        cmocka_unit_test_setup_teardown(what_cannot_be_read_is_not_known, new_root, drop_root),
        cmocka_unit_test(this_machine_is_read),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
