/* Default threads, over made-up topologies and control groups; and the other small things read at
 * start: remembered hashes, template option, names. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/file.h"
#include "base/hash.h"
#include "engine/common.h"
#include "engine/cores.h"
#include "engine/fingerprint.h"
#include "tests/engine/load/fake_root.h"

#define PATH_BYTES 512

/* 8 CPUs, two a core: 0 and 4, 1 and 5, … */
static void put_topology(void)
{
    char path[PATH_BYTES], text[16];
    for (int cpu = 0; cpu < 8; cpu++) {
        snprintf(path, sizeof path, "sys/devices/system/cpu/cpu%d/topology/thread_siblings_list",
                 cpu);
        snprintf(text, sizeof text, "%d,%d\n", cpu % 4, cpu % 4 + 4);
        put(path, text);
    }
}

static cpu_set_t cpus(int from, int to)
{
    cpu_set_t s;
    CPU_ZERO(&s);
    for (int i = from; i < to; i++) {
        CPU_SET(i, &s);
    }
    return s;
}

static void hyper_threads_of_a_core_count_once(void **state)
{
    (void)state;
    const cpu_set_t all = cpus(0, 8), four = cpus(0, 4), mixed = cpus(3, 6), none = cpus(0, 0);
    assert_int_equal(cores_of(root, &all), 8); /* nothing known: every CPU is a core */
    put_topology();
    assert_int_equal(cores_of(root, &all), 4);
    assert_int_equal(cores_of(root, &four), 4);
    assert_int_equal(cores_of(root, &mixed), 3); /* 3, 4 and 5 */
    assert_int_equal(cores_of(root, &none), 1);
}

static void quotas_of_v2_bind_at_any_level(void **state)
{
    (void)state;
    const cpu_set_t all = cpus(0, 8);
    put_topology();
    put("proc/self/cgroup", "0::/a.slice/b.service\n");
    assert_int_equal(cores_of(root, &all), 4);
    put("sys/fs/cgroup/a.slice/b.service/cpu.max", "max 100000\n");
    assert_int_equal(cores_of(root, &all), 4);
    put("sys/fs/cgroup/a.slice/cpu.max", "350000 100000\n");
    assert_int_equal(cores_of(root, &all), 3);
    put("sys/fs/cgroup/a.slice/b.service/cpu.max", "200000 100000\n");
    assert_int_equal(cores_of(root, &all), 2);
    put("sys/fs/cgroup/cpu.max", "50000 100000\n");
    assert_int_equal(cores_of(root, &all), 1);
}

static void quotas_of_v1_are_read_beside_other_controllers(void **state)
{
    (void)state;
    const cpu_set_t all = cpus(0, 8);
    put_topology();
    put("proc/self/cgroup", "5:cpuset:/x\n4:cpu,cpuacct:/pod/box\n1:name=systemd:/y\n0::/\n");
    put("sys/fs/cgroup/cpuset/x/cpu.cfs_quota_us", "100000\n");
    put("sys/fs/cgroup/cpuset/x/cpu.cfs_period_us", "100000\n");
    assert_int_equal(cores_of(root, &all), 4);
    put("sys/fs/cgroup/cpu,cpuacct/pod/box/cpu.cfs_quota_us", "-1\n");
    put("sys/fs/cgroup/cpu,cpuacct/pod/box/cpu.cfs_period_us", "100000\n");
    assert_int_equal(cores_of(root, &all), 4);
    put("sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us", "250000\n");
    put("sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us", "100000\n");
    assert_int_equal(cores_of(root, &all), 2);
}

static void nonsense_does_not_limit(void **state)
{
    (void)state;
    static const char *const texts[] = {"",           "\n",          "abc\n", "100000\n",
                                        "100000 0\n", "-5 100000\n", "1 x\n"};
    const cpu_set_t all = cpus(0, 8);
    put_topology();
    put("proc/self/cgroup", "0::/../..\nrubbish\n0:\n::\n0::/a\n");
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        put("sys/fs/cgroup/a/cpu.max", texts[i]);
        assert_int_equal(cores_of(root, &all), 4);
    }
    put("sys/fs/cgroup/a/cpu.max", "99999999999999999999 1\n");
    assert_int_equal(cores_of(root, &all), 4);
}

static void this_machine_has_a_core(void **state)
{
    (void)state;
    assert_true(cores_default() >= 1 && cores_default() <= CORES_MAX);
}

/* ---- remembered hashes ---- */

static struct stat some_file(unsigned inode)
{
    struct stat st = {0};
    st.st_dev = 7;
    st.st_ino = inode;
    st.st_size = 98362432;
    st.st_mtim = (struct timespec){1700000000, 5};
    st.st_ctim = (struct timespec){1700000001, 999999999};
    return st;
}

static void a_hash_is_remembered_for_its_file_only(void **state)
{
    (void)state;
    char path[PATH_BYTES];
    uint8_t hash[32], got[32] = {0};
    struct stat st = some_file(1), other;
    snprintf(path, sizeof path, "%s/weights", root);
    memset(hash, 0xa5, sizeof hash);
    assert_false(fingerprint_recall(path, &st, got));
    fingerprint_remember(path, &st, hash);
    assert_true(fingerprint_recall(path, &st, got));
    assert_memory_equal(got, hash, sizeof hash);
    other = st, other.st_dev++;
    assert_false(fingerprint_recall(path, &other, got));
    other = st, other.st_ino++;
    assert_false(fingerprint_recall(path, &other, got));
    other = st, other.st_size++;
    assert_false(fingerprint_recall(path, &other, got));
    other = st, other.st_mtim.tv_nsec++;
    assert_false(fingerprint_recall(path, &other, got));
    other = st, other.st_ctim.tv_nsec--;
    assert_false(fingerprint_recall(path, &other, got));
    assert_false(fingerprint_recall(NULL, &st, got));
    fingerprint_remember(NULL, &st, hash);
    fingerprint_remember("/nonexistent/dir/file", &st, hash);
}

/* The file of hashes has one line, of that kind, for some_file(77). */
static void write_kind(const char *path, int kind, const uint8_t hash[32])
{
    char line[PATH_BYTES], hex[65], check[17];
    uint8_t sum[32];
    struct buf b;
    hex_write(hash, 32, hex);
    snprintf(line, sizeof line,
             "hearth-weights-%d 0 77 98362432 1700000000.000000005 1700000001.999999999 %s", kind,
             hex);
    hash_of(line, strlen(line), sum);
    hex_write(sum, 8, check);
    buf_init(&b, 4096);
    buf_printf(&b, "%s %s\n", line, check);
    assert_int_equal(file_write(path, b.data, b.len, NULL), 0);
    buf_done(&b);
}

/* What was cached under it stays warm. */
static void a_file_that_is_known_by_an_older_kind_of_hash_keeps_it(void **state)
{
    (void)state;
    char path[PATH_BYTES];
    uint8_t hash[32], got[32];
    struct stat st = some_file(77), other = some_file(78);
    st.st_dev = 0;
    snprintf(path, sizeof path, "%s/weights", root);
    for (int kind = 1; kind <= 3; kind++) {
        memset(hash, 0x17 + kind, sizeof hash);
        write_kind(path, kind, hash);
        assert_true(fingerprint_recall(path, &st, got));
        assert_memory_equal(got, hash, sizeof hash);
        fingerprint_remember(path, &other, hash); /* keeps the old line */
        assert_true(fingerprint_recall(path, &st, got));
        memset(hash, 0x27 + kind, sizeof hash);
        fingerprint_remember(path, &st, hash); /* a newer one replaces it */
        assert_true(fingerprint_recall(path, &st, got));
        assert_memory_equal(got, hash, sizeof hash);
    }
    write_kind(path, 4, hash); /* of a program that is to come */
    assert_false(fingerprint_recall(path, &st, got));
}

static void a_file_keeps_one_line_and_others_stay(void **state)
{
    (void)state;
    char path[PATH_BYTES];
    uint8_t hash[32] = {0}, got[32];
    struct buf b;
    struct err e;
    snprintf(path, sizeof path, "%s/weights", root);
    for (unsigned i = 0; i < 50; i++) {
        struct stat st = some_file(i % 40);
        st.st_mtim.tv_nsec = (long)i;
        hash[0] = (uint8_t)i;
        fingerprint_remember(path, &st, hash);
        assert_true(fingerprint_recall(path, &st, got));
        assert_int_equal(got[0], i);
    }
    struct stat recent = some_file(30), old = some_file(12);
    recent.st_mtim.tv_nsec = 30;
    old.st_mtim.tv_nsec = 12;
    assert_true(fingerprint_recall(path, &recent, got));
    assert_false(fingerprint_recall(path, &old, got)); /* 32 lines at most */
    buf_init(&b, 1 << 20);
    assert_int_equal(file_read(path, &b, &e), 0);
    size_t n_lines = 0;
    for (size_t i = 0; i < b.len; i++) {
        n_lines += b.data[i] == '\n';
    }
    assert_int_equal(n_lines, 32);
    buf_done(&b);
}

static void a_damaged_line_is_no_line(void **state)
{
    (void)state;
    char path[PATH_BYTES];
    uint8_t hash[32], got[32];
    struct stat st = some_file(3);
    struct buf b;
    struct err e;
    snprintf(path, sizeof path, "%s/weights", root);
    memset(hash, 0x3c, sizeof hash);
    fingerprint_remember(path, &st, hash);
    buf_init(&b, 1 << 20);
    assert_int_equal(file_read(path, &b, &e), 0);
    for (size_t i = 0; i < b.len; i++) {
        b.data[i] ^= 1;
        assert_int_equal(file_write(path, b.data, b.len, &e), 0);
        assert_false(fingerprint_recall(path, &st, got));
        b.data[i] ^= 1;
    }
    for (size_t n = 0; n < b.len; n += 7) { /* torn */
        assert_int_equal(file_write(path, b.data, n, &e), 0);
        assert_false(fingerprint_recall(path, &st, got));
    }
    buf_done(&b);
}

static void a_file_that_has_just_changed_is_not_remembered(void **state)
{
    (void)state;
    char path[PATH_BYTES];
    uint8_t hash[32] = {1}, got[32];
    struct stat st;
    snprintf(path, sizeof path, "%s/weights", root);
    put("model", "weights");
    char model[PATH_BYTES];
    snprintf(model, sizeof model, "%s/model", root);
    assert_int_equal(stat(model, &st), 0);
    fingerprint_remember(path, &st, hash);
    assert_false(fingerprint_recall(path, &st, got));
}

/* ---- options ---- */

static void a_template_option_is_a_family_or_a_file(void **state)
{
    (void)state;
    char path[PATH_BYTES];
    char *text = NULL;
    struct err e;
    assert_int_equal(common_template(NULL, &text, &e), 0);
    assert_null(text);
    assert_int_equal(common_template("chatml", &text, &e), 0);
    assert_string_equal(text, "chatml");
    free(text);
    text = NULL;
    put("t.jinja", "{{ messages }}\n");
    snprintf(path, sizeof path, "%s/t.jinja", root);
    assert_int_equal(common_template(path, &text, &e), 0);
    assert_string_equal(text, "{{ messages }}\n");
    free(text);
    text = NULL;
    assert_int_equal(common_template("./no/such.jinja", &text, &e), ERR_NOTFOUND);
    put("t.jinja", "");
    assert_int_equal(common_template(path, &text, &e), ERR_INVAL);
    assert_null(text);
}

static void a_stem_is_a_name_without_folder_and_extension(void **state)
{
    (void)state;
    static const char *const cases[][2] = {
        {"/models/SmolLM2-135M-Instruct.Q4_1.gguf", "SmolLM2-135M-Instruct.Q4_1"},
        {"a.gguf", "a"},
        {"a", "a"},
        {"x.y/a", "a"},
        {".hidden", ".hidden"},
        {"dir/", ""},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char *s = common_stem(cases[i][0]);
        assert_string_equal(s, cases[i][1]);
        free(s);
    }
}

static void dequantising_takes_whole_blocks_that_fit(void **state)
{
    (void)state;
    const unsigned char block[40] = {0};
    float values[64];
    struct err e;
    size_t n = 64;
    assert_int_equal(common_dequantize("Q4_1", block, 40, values, &n, &e), 0);
    assert_int_equal(n, 64);
    n = 63;
    assert_int_equal(common_dequantize("Q4_1", block, 40, values, &n, &e), ERR_INVAL);
    assert_int_equal(n, 63);
    assert_int_equal(common_dequantize("Q4_1", block, 39, values, &n, &e), ERR_INVAL);
    assert_int_equal(common_dequantize("Q9_9", block, 40, values, &n, &e), ERR_UNSUPPORTED);
    assert_non_null(strstr(e.text, "Q9_9"));
    assert_non_null(strstr(e.text, "Q4_K"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(hyper_threads_of_a_core_count_once, new_root, drop_root),
        cmocka_unit_test_setup_teardown(quotas_of_v2_bind_at_any_level, new_root, drop_root),
        cmocka_unit_test_setup_teardown(quotas_of_v1_are_read_beside_other_controllers, new_root,
                                        drop_root),
        cmocka_unit_test_setup_teardown(nonsense_does_not_limit, new_root, drop_root),
        cmocka_unit_test(this_machine_has_a_core),
        cmocka_unit_test_setup_teardown(a_hash_is_remembered_for_its_file_only, new_root,
                                        drop_root),
        cmocka_unit_test_setup_teardown(a_file_that_is_known_by_an_older_kind_of_hash_keeps_it,
                                        new_root, drop_root),
        cmocka_unit_test_setup_teardown(a_file_keeps_one_line_and_others_stay, new_root, drop_root),
        cmocka_unit_test_setup_teardown(a_damaged_line_is_no_line, new_root, drop_root),
        cmocka_unit_test_setup_teardown(a_file_that_has_just_changed_is_not_remembered, new_root,
                                        drop_root),
        cmocka_unit_test_setup_teardown(a_template_option_is_a_family_or_a_file, new_root,
                                        drop_root),
        cmocka_unit_test(a_stem_is_a_name_without_folder_and_extension),
        cmocka_unit_test(dequantising_takes_whole_blocks_that_fit),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
