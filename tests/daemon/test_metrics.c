/* /metrics is well-formed Prometheus text, and /health tells the state. */
#include "tests/base/testing.h"

#include <ctype.h>

#include "daemon/build_id.h"
#include "daemon/metrics.h"

static struct daemon d;
static struct net net = {.d = &d};

static bool is_metric_name(const char *s, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (!islower((unsigned char)s[i]) && !isdigit((unsigned char)s[i]) && s[i] != '_')
            return false;
    return n > 7 && strncmp(s, "hearth_", 7) == 0;
}

/* "# HELP name text", "# TYPE name counter|gauge", then samples of that name only. */
static void every_metric_has_help_type_and_a_number(void **state)
{
    (void)state;
    struct buf b;
    buf_init(&b, METRICS_BYTES);
    atomic_store(&d.n.prefill_us, 1234567);
    sched_init(&net.sched, 4, 32);
    metrics_write(&net, &b);
    assert_int_equal(buf_error(&b), 0);
    char name[128] = "";
    int n_samples = 0, step = 0;
    for (char *line = b.data, *next; *line; line = next) {
        next = strchr(line, '\n');
        assert_non_null(next);
        *next++ = '\0';
        size_t n = strcspn(line + 7, " ");
        if (strncmp(line, "# HELP ", 7) == 0) {
            snprintf(name, sizeof(name), "%.*s", (int)n, line + 7);
            assert_true(is_metric_name(name, n));
            step = 1;
        } else if (strncmp(line, "# TYPE ", 7) == 0) {
            assert_int_equal(step, 1);
            assert_int_equal(strncmp(line + 7, name, n), 0);
            const char *type = line + 7 + n + 1;
            bool is_counter = strcmp(type, "counter") == 0;
            assert_true(is_counter || strcmp(type, "gauge") == 0);
            bool is_total = strlen(name) > 6 && strcmp(name + strlen(name) - 6, "_total") == 0;
            assert_int_equal(is_counter, is_total);
            step = 2;
        } else {
            assert_int_equal(step, 2);
            size_t n_name = strcspn(line, " {");
            assert_int_equal(n_name, strlen(name));
            assert_int_equal(strncmp(line, name, n_name), 0);
            char *end = NULL;
            strtod(strrchr(line, ' ') + 1, &end);
            assert_int_equal(*end, '\0');
            n_samples++;
            if (strcmp(name, "hearth_prefill_seconds_total") == 0)
                assert_string_equal(line + n_name, " 1.234567");
            if (strcmp(name, "hearth_places") == 0)
                assert_string_equal(line + n_name, " 36");
        }
    }
    assert_true(n_samples > 30);
    buf_done(&b);
}

static void health_is_200_only_when_ready(void **state)
{
    (void)state;
    static const struct {
        enum daemon_state state;
        int status;
        const char *says;
    } cases[] = {{DAEMON_LOADING, 503, "{\"status\":\"loading\",\"progress\":0.999,"},
                 {DAEMON_READY, 200, "{\"status\":\"ok\","},
                 {DAEMON_STOPPING, 503, "{\"status\":\"stopping\","},
                 {DAEMON_FAILED, 503, "{\"status\":\"failed\",\"error\":\"a \\\"b\\\"\","}};
    atomic_store(&d.load_permille, 999);
    snprintf(d.load_error, sizeof(d.load_error), "a \"b\"");
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct buf b;
        buf_init(&b, METRICS_BYTES);
        atomic_store(&d.state, cases[i].state);
        assert_int_equal(health_write(&d, &b), cases[i].status);
        assert_int_equal(strncmp(b.data, cases[i].says, strlen(cases[i].says)), 0);
        assert_non_null(strstr(b.data, build_id()));
        buf_done(&b);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_metric_has_help_type_and_a_number),
        cmocka_unit_test(health_is_200_only_when_ready),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
