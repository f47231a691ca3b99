/* systemd: the datagrams that it gets, and when the watchdog may be fed. */
#include "tests/base/testing.h"

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "daemon/notify.h"

static void the_watchdog_is_fed_only_while_both_threads_move_or_wait(void **state)
{
    (void)state;
    static struct counters n;
    struct watchdog w = {0};
    assert_true(watchdog_check(&w, &n, 1, 1));
    assert_false(watchdog_check(&w, &n, 1, 1)); /* both stand still */
    assert_false(watchdog_check(&w, &n, 2, 1)); /* one does */
    assert_false(watchdog_check(&w, &n, 1, 2));
    atomic_store(&n.worker_parked, 1);
    assert_true(watchdog_check(&w, &n, 1, 2));
    atomic_store(&n.history_parked, 1);
    assert_true(watchdog_check(&w, &n, 1, 2));
    atomic_store(&n.worker_parked, 0);
    assert_false(watchdog_check(&w, &n, 1, 2)); /* a pass that hangs */
    assert_true(watchdog_check(&w, &n, 2, 2));
}

static void systemd_hears_of_loading_ready_and_stopping(void **state)
{
    (void)state;
    char dir[] = "/tmp/hearth-notify-XXXXXX";
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    assert_non_null(mkdtemp(dir));
    snprintf(a.sun_path, sizeof(a.sun_path), "%s/n", dir);
    int fd = socket(AF_UNIX, SOCK_DGRAM, 0);
    assert_int_equal(bind(fd, (struct sockaddr *)&a, sizeof(a)), 0);
    setenv("NOTIFY_SOCKET", a.sun_path, 1);
    notify_loading(421);
    notify_ready("ready: m");
    notify_watchdog();
    notify_stopping();
    unsetenv("NOTIFY_SOCKET");
    notify_watchdog(); /* nobody listens: nothing happens */
    static const char *const wants[] = {"42 %", "READY=1", "WATCHDOG=1", "STOPPING=1"};
    for (size_t i = 0; i < ARRAY_LEN(wants); i++) {
        char text[512];
        ssize_t len = recv(fd, text, sizeof(text) - 1, MSG_DONTWAIT);
        assert_true(len > 0);
        text[len] = '\0';
        assert_non_null(strstr(text, wants[i]));
    }
    close(fd);
    unlink(a.sun_path);
    rmdir(dir);
}

static void without_systemd_there_is_no_socket_and_no_watchdog(void **state)
{
    (void)state;
    struct err e = {0};
    assert_int_equal(notify_listen_fds(&e), 0);
    assert_int_equal(notify_watchdog_us(), 0);
    assert_false(notify_is_unix_listener(0));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_watchdog_is_fed_only_while_both_threads_move_or_wait),
        cmocka_unit_test(systemd_hears_of_loading_ready_and_stopping),
        cmocka_unit_test(without_systemd_there_is_no_socket_and_no_watchdog),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
