/* Where things are: each variable set, unset, empty, relative. */
#include "tests/base/testing.h"

#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "base/paths.h"

static const char *const names[] = {"STATE_DIRECTORY", "CACHE_DIRECTORY", "RUNTIME_DIRECTORY",
                                    "XDG_STATE_HOME",  "XDG_CACHE_HOME",  "XDG_DATA_HOME",
                                    "XDG_CONFIG_HOME", "XDG_RUNTIME_DIR"};

/* Nothing set but HOME=/h. */
static int clean(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(names); i++)
        unsetenv(names[i]);
    return setenv("HOME", "/h", 1);
}

static void expect(int (*find)(char **, struct err *), const char *want)
{
    char *path = NULL;
    struct err e = {0};
    assert_int_equal(find(&path, &e), 0);
    assert_string_equal(path, want);
    free(path);
}

static void expect_socket(const char *state_dir, const char *want)
{
    char *path = NULL;
    struct err e = {0};
    assert_int_equal(path_socket(state_dir, &path, &e), 0);
    assert_string_equal(path, want);
    free(path);
}

static void home_is_the_last_resort(void **state)
{
    (void)state;
    expect(path_state_dir, "/h/.local/state/hearth");
    expect(path_cache_dir, "/h/.cache/hearth");
    expect(path_config_file, "/etc/hearth/hearth.conf");
    expect_socket(NULL, "/h/.local/state/hearth/hearth.sock");
    expect_socket("/s", "/s/hearth.sock");
}

static void xdg_comes_before_home(void **state)
{
    (void)state;
    setenv("XDG_STATE_HOME", "/xs", 1);
    setenv("XDG_CACHE_HOME", "/xc", 1);
    setenv("XDG_RUNTIME_DIR", "/xr", 1);
    expect(path_state_dir, "/xs/hearth");
    expect(path_cache_dir, "/xc/hearth");
    expect_socket(NULL, "/xr/hearth/hearth.sock");
    expect_socket("/s", "/xr/hearth/hearth.sock");
}

static void systemd_comes_before_xdg_and_the_first_of_a_list_counts(void **state)
{
    (void)state;
    xdg_comes_before_home(state);
    setenv("STATE_DIRECTORY", "/var/lib/hearth", 1);
    setenv("CACHE_DIRECTORY", "/var/cache/hearth:/var/cache/other", 1);
    setenv("RUNTIME_DIRECTORY", "/run/hearth", 1);
    expect(path_state_dir, "/var/lib/hearth");
    expect(path_cache_dir, "/var/cache/hearth");
    expect_socket("/s", "/run/hearth/hearth.sock");
}

static void empty_and_relative_values_count_as_unset(void **state)
{
    (void)state;
    static const char *const values[] = {"", "relative", "./x", "~/x"};
    for (size_t v = 0; v < ARRAY_LEN(values); v++) {
        for (size_t i = 0; i < ARRAY_LEN(names); i++)
            setenv(names[i], values[v], 1);
        home_is_the_last_resort(state);
    }
}

static void without_home_the_password_database_is_asked(void **state)
{
    (void)state;
    unsetenv("HOME");
    char *path = NULL;
    struct err e = {0};
    int rc = path_state_dir(&path, &e);
    if (rc == 0) { /* every user of a real machine */
        assert_int_equal(path[0], '/');
        assert_non_null(strstr(path, "/.local/state/hearth"));
        free(path);
    } else {
        assert_int_equal(rc, ERR_NOTFOUND);
        assert_non_null(strstr(e.text, "HOME"));
    }
    setenv("XDG_STATE_HOME", "/xs", 1);
    expect(path_state_dir, "/xs/hearth"); /* doesn't need it */
}

static void the_users_configuration_counts_when_it_exists(void **state)
{
    (void)state;
    char dir[] = "/tmp/hearth-paths-XXXXXX", file[200], sub[100];
    struct err e;
    assert_non_null(mkdtemp(dir));
    setenv("XDG_CONFIG_HOME", dir, 1);
    expect(path_config_file, "/etc/hearth/hearth.conf");
    snprintf(sub, sizeof(sub), "%s/hearth", dir);
    snprintf(file, sizeof(file), "%s/hearth.conf", sub);
    assert_int_equal(dir_make_private(sub, &e), 0);
    assert_int_equal(file_write(file, "", 0, &e), 0);
    expect(path_config_file, file);
    unlink(file);
    rmdir(sub);
    rmdir(dir);
}

static void a_socket_path_has_a_limit_of_107_bytes(void **state)
{
    (void)state;
    char dir[300], *path = NULL;
    struct err e = {0};
    for (size_t n = 90; n < 110; n++) {
        memset(dir, 'x', n);
        dir[0] = '/';
        dir[n] = '\0';
        int rc = path_socket(dir, &path, &e);
        size_t len = n + strlen("/hearth.sock");
        assert_int_equal(rc, len <= 107 ? 0 : ERR_LIMIT);
        if (rc < 0) {
            assert_null(path);
            assert_non_null(strstr(e.text, dir));
            assert_non_null(strstr(e.text, "107"));
        }
        free(path);
        path = NULL;
    }
}

static void absurd_lengths_are_refused(void **state)
{
    (void)state;
    static char value[10000];
    memset(value, 'x', sizeof(value) - 1);
    value[0] = '/';
    char *path = NULL;
    struct err e = {0};
    setenv("XDG_STATE_HOME", value, 1);
    setenv("XDG_CONFIG_HOME", value, 1);
    assert_int_equal(path_state_dir(&path, &e), ERR_LIMIT);
    assert_int_equal(path_config_file(&path, &e), ERR_LIMIT);
    setenv("STATE_DIRECTORY", value, 1);
    assert_int_equal(path_state_dir(&path, &e), ERR_LIMIT);
    assert_null(path);
}

static void no_memory_is_an_error_and_touches_nothing(void **state)
{
    (void)state;
    int (*const find[])(char **, struct err *) = {path_state_dir, path_cache_dir, path_config_file};
    for (size_t i = 0; i < ARRAY_LEN(find); i++) {
        bool came = true;
        for (int at = 0; came; at++) {
            char *path = NULL;
            struct err e = {0};
            fault_memory(at);
            int rc = find[i](&path, &e);
            came = fault_end();
            assert_int_equal(rc, came ? ERR_NOMEM : 0);
            assert_true(came == !path);
            free(path);
        }
    }
    bool came = true;
    for (int at = 0; came; at++) {
        char *path = NULL;
        fault_memory(at);
        int rc = path_socket("/s", &path, NULL);
        came = fault_end();
        assert_int_equal(rc, came ? ERR_NOMEM : 0);
        free(path);
    }
}

static void path_join_puts_one_slash(void **state)
{
    (void)state;
    char *path = path_join("/a", "b");
    assert_string_equal(path, "/a/b");
    free(path);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup(name, clean)
    const struct CMUnitTest tests[] = {
        TEST(home_is_the_last_resort),
        TEST(xdg_comes_before_home),
        TEST(systemd_comes_before_xdg_and_the_first_of_a_list_counts),
        TEST(empty_and_relative_values_count_as_unset),
        TEST(without_home_the_password_database_is_asked),
        TEST(the_users_configuration_counts_when_it_exists),
        TEST(a_socket_path_has_a_limit_of_107_bytes),
        TEST(absurd_lengths_are_refused),
        TEST(no_memory_is_an_error_and_touches_nothing),
        TEST(path_join_puts_one_slash),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
