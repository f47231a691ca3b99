/* Memory pressure: the kernel's text, which file counts, what is made of the numbers; and the cache
 * under a file that the test writes. */
#include "tests/cache/fake.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "daemon/limits.h"
#include "daemon/pressure.h"

static double avg10_of(const char *text)
{
    double v = -1;
    struct err e;
    return pressure_parse(text, strlen(text), &v, &e) == 0 ? v : -1;
}

static void the_kernels_text_is_understood(void **state)
{
    (void)state;
    assert_true(avg10_of("some avg10=12.34 avg60=3.20 avg300=0.71 total=8123456\n"
                         "full avg10=99.00 avg60=0.00 avg300=0.00 total=0\n") == 12.34);
    assert_true(avg10_of("some avg10=0.00 avg60=0.00 avg300=0.00 total=0\n") == 0);
    assert_true(avg10_of("some avg10=100.00 avg60") == 100);
    assert_true(avg10_of("some avg10=7") == 7);
}

static void other_text_is_refused(void **state)
{
    (void)state;
    static const char *const texts[] = {
        "",
        "some",
        "some avg10=",
        "some avg10= 5.00",
        "some avg10=-1.00",
        "some avg10=nan",
        "some avg10=inf",
        "some avg10=0x10",
        "some avg10=101.00",
        "some avg10=1.2.3",
        "some avg10=.",
        "some avg10=11111111111111111111111111111111111111111111",
        "full avg10=1.00 avg60=0.00 avg300=0.00 total=0\n",
    };
    struct err e;
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        double v = -7;
        const bool is_hex = strstr(texts[i], "0x") != NULL; /* "0": the number ends there */
        assert_int_equal(pressure_parse(texts[i], strlen(texts[i]), &v, &e),
                         is_hex ? 0 : ERR_INVAL);
        assert_true(v == (is_hex ? 0 : -7));
    }
    double v = -7;
    assert_int_equal(pressure_parse("some avg10=5.00", 11, &v, &e), ERR_INVAL); /* length decides */
}

static void falling_pressure_waits_and_rising_or_lasting_acts(void **state)
{
    (void)state;
    const double limit = PRESSURE_SOME_PERCENT;
    assert_int_equal(pressure_judge(0, limit), PRESSURE_LOW);
    assert_int_equal(pressure_judge(90, limit), PRESSURE_LOW);
    assert_int_equal(pressure_judge(0, limit + 0.01), PRESSURE_HIGH);
    assert_int_equal(pressure_judge(50, 50), PRESSURE_HIGH);
    assert_int_equal(pressure_judge(50, 48), PRESSURE_HIGH);
    assert_int_equal(pressure_judge(50, 41), PRESSURE_EASING); /* 2 s of nobody waiting: e^-0.2 */
    assert_int_equal(pressure_judge(41, 60), PRESSURE_HIGH);
}

/* ---- files ---- */

static char dir[64];

static int make_dir(void **state)
{
    (void)state;
    snprintf(dir, sizeof dir, "/tmp/hearth-pressure-XXXXXX");
    return mkdtemp(dir) ? 0 : -1;
}

static void path_of(const char *name, char ret[256])
{
    snprintf(ret, 256, "%s/%s", dir, name);
}

static void put(const char *name, const char *text)
{
    char path[256];
    path_of(name, path);
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    fputs(text, f);
    fclose(f);
}

static void put_avg10(double v)
{
    char text[128];
    snprintf(text, sizeof text, "some avg10=%.2f avg60=0.00 avg300=0.00 total=1\n", v);
    put("psi", text);
}

static void discard(const char *name)
{
    char path[256];
    path_of(name, path);
    remove(path);
}

static int drop_dir(void **state)
{
    (void)state;
    discard("app/x/memory.pressure");
    discard("app/x");
    discard("app");
    discard("memory.pressure");
    discard("proc");
    discard("psi");
    return rmdir(dir);
}

static void the_cgroups_own_file_counts_before_the_machines(void **state)
{
    (void)state;
    char found[PRESSURE_PATH_BYTES], want[256], fallback[256];
    path_of("proc", fallback);
    pressure_find("0::/app/x\n", dir, fallback, found);
    assert_string_equal(found, ""); /* neither is there */
    put("proc", "");
    pressure_find("0::/app/x\n", dir, fallback, found);
    assert_string_equal(found, fallback);
    pressure_find("", dir, fallback, found);
    assert_string_equal(found, fallback);
    path_of("app", want);
    mkdir(want, 0700);
    path_of("app/x", want);
    mkdir(want, 0700);
    put("app/x/memory.pressure", "");
    path_of("app/x/memory.pressure", want);
    pressure_find("0::/app/x\n", dir, fallback, found);
    assert_string_equal(found, want);
    /* Version 1's lines say nothing. */
    pressure_find("4:memory:/app/x\n1:name=systemd:/app/x\n", dir, fallback, found);
    assert_string_equal(found, fallback);
    pressure_find("4:memory:/elsewhere\n0::/app/x", dir, fallback, found);
    assert_string_equal(found, want);
    put("memory.pressure", "");
    path_of("memory.pressure", want);
    pressure_find("0::/\n", dir, fallback, found);
    assert_string_equal(found, want);
}

/* ---- the cache under it ---- */

struct place {
    struct kv_pool *pool;
    struct cache *c;
    struct pressure p;
    struct counters n;
};

static void fill(struct place *x, int n_blocks, int first)
{
    int32_t ids[KV_BLOCK];
    for (int i = 0; i < n_blocks; i++) {
        for (int k = 0; k < KV_BLOCK; k++) {
            ids[k] = first + i * KV_BLOCK + k;
        }
        fake_whole_turn(x->c, "a", 1, ids, KV_BLOCK);
    }
}

static void begin(struct place *x, size_t n_blocks)
{
    char path[256];
    struct err e;
    *x = (struct place){.pool = fake_pool(n_blocks)};
    assert_int_equal(cache_new(x->pool, &x->c, &e), 0);
    path_of("psi", path);
    pressure_init(&x->p, path);
}

static void end(struct place *x)
{
    fake_check(x->c);
    cache_free(x->c);
    kv_pool_free(x->pool);
}

static size_t n_cached(const struct place *x)
{
    struct cache_stats s;
    cache_stats(x->c, &s);
    return s.bytes_cached / s.block_bytes;
}

static size_t n_allowed(const struct place *x)
{
    struct cache_stats s;
    cache_stats(x->c, &s);
    return s.bytes_allowed / s.block_bytes;
}

/* As if PRESSURE_MS had passed. */
static void tick(struct place *x)
{
    x->p.due_us = clock_us();
    pressure_tend(&x->p, x->c, &x->n);
    fake_check(x->c);
}

static void a_quarter_goes_each_time_until_it_eases(void **state)
{
    (void)state;
    struct place x;
    begin(&x, 64);
    fill(&x, 64, 0);
    put_avg10(0);
    tick(&x);
    assert_int_equal(n_cached(&x), 64);
    put_avg10(35.5);
    tick(&x);
    assert_int_equal(n_cached(&x), 48);
    assert_int_equal(n_allowed(&x), 48);
    tick(&x); /* it lasts */
    assert_int_equal(n_cached(&x), 36);
    put_avg10(29);
    tick(&x); /* it falls */
    assert_int_equal(n_cached(&x), 36);
    assert_int_equal(n_allowed(&x), 36);
    assert_int_equal(atomic_load(&x.n.pressure_given), 2);
    assert_int_equal(atomic_load(&x.n.pressure_blocks), 28);
    assert_true(atomic_load(&x.n.pressure_bytes) > 0);
    assert_int_equal(atomic_load(&x.n.pressure_percent_100), 2900);
    fill(&x, 20, 100000); /* the work goes on, in what is left */
    assert_int_equal(n_cached(&x), 36);
    put_avg10(3);
    for (int i = 0; n_allowed(&x) < 64; i++) {
        assert_true(i < PRESSURE_GROW_DIVISOR);
        tick(&x);
    }
    assert_false(x.p.is_squeezed);
    fill(&x, 64, 200000);
    assert_int_equal(n_cached(&x), 64);
    end(&x);
}

static void it_sleeps_while_there_is_nothing_to_give(void **state)
{
    (void)state;
    struct place x;
    begin(&x, 8);
    put_avg10(90);
    assert_int_equal(pressure_due_ms(&x.p, x.c), -1);
    fill(&x, 4, 0);
    assert_int_equal(pressure_due_ms(&x.p, x.c), 0);
    pressure_tend(&x.p, x.c, &x.n);
    assert_in_range(pressure_due_ms(&x.p, x.c), PRESSURE_MS - 1000, PRESSURE_MS + 1);
    pressure_tend(&x.p, x.c, &x.n); /* not yet */
    assert_int_equal(atomic_load(&x.n.pressure_given), 1);
    for (int i = 0; i < 4; i++) {
        tick(&x);
    }
    assert_int_equal(n_cached(&x), 0); /* one at least each time: it comes to an end */
    assert_int_equal(pressure_due_ms(&x.p, x.c), -1);
    end(&x);
}

static void a_file_that_cannot_be_read_is_left_alone(void **state)
{
    (void)state;
    static const char *const texts[] = {NULL, "", "nothing of the kind\n"};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        struct place x;
        begin(&x, 8);
        fill(&x, 4, 0);
        if (texts[i]) {
            put("psi", texts[i]);
        } else {
            discard("psi");
        }
        tick(&x);
        assert_int_equal(n_cached(&x), 4);
        assert_int_equal(pressure_due_ms(&x.p, x.c), -1);
        end(&x);
    }
}

int main(void)
{
    log_init(LOG_LEVEL_ERROR);
    thread_set_role(THREAD_WORKER);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_kernels_text_is_understood),
        cmocka_unit_test(other_text_is_refused),
        cmocka_unit_test(falling_pressure_waits_and_rising_or_lasting_acts),
        cmocka_unit_test(the_cgroups_own_file_counts_before_the_machines),
        cmocka_unit_test(a_quarter_goes_each_time_until_it_eases),
        cmocka_unit_test(it_sleeps_while_there_is_nothing_to_give),
        cmocka_unit_test(a_file_that_cannot_be_read_is_left_alone),
    };
    return cmocka_run_group_tests(tests, make_dir, drop_dir);
}
