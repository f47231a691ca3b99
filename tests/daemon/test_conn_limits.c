/* Connections that behave badly: too slow, too many, too much, or not reading. The limits are short
 * ones, and as long as this thread may be kept from saying in time what it says in time. */
#include "tests/daemon/net_fixture.h"

#include <dirent.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#define IN_TIME_MS 1000
#define CHAT "/v1/chat/completions"
#define GET(path) "GET " path " HTTP/1.1\r\nHost: x\r\n\r\n"

static struct net_fixture f;

static int set_up(void **state)
{
    (void)state;
    net_defaults(&f);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    net_stop(&f);
    return 0;
}

static void expect_status(int fd, int status)
{
    struct net_response r;
    assert_true(net_read(fd, false, &r));
    if (r.status != status)
        fail_msg("%d instead of %d: %s", r.status, status, r.body);
    net_response_done(&r);
}

static void a_slow_head_is_a_408(void **state)
{
    (void)state;
    f.limits.header_ms = IN_TIME_MS;
    net_start(&f);
    int fd = net_connect(&f);
    net_send(fd, "GET / HT");
    expect_status(fd, 408);
    assert_true(net_is_eof(fd));
    close(fd);
}

/* Each byte comes in time; all of them together don't. */
static void a_slow_body_is_a_408_however_steady_it_drips(void **state)
{
    (void)state;
    f.limits.body_ms = 100;
    net_start(&f);
    int fd = net_connect(&f);
    net_send(fd, "POST " CHAT " HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000\r\n\r\n");
    char c = 0;
    ssize_t n;
    do { /* a byte every 5 ms, until there is an answer */
        net_send_n(fd, "x", 1);
        struct timespec ms5 = {.tv_nsec = 5000000};
        nanosleep(&ms5, NULL);
        n = recv(fd, &c, 1, MSG_DONTWAIT | MSG_PEEK);
    } while (n < 0);
    expect_status(fd, 408);
    close(fd);
}

static void an_idle_connection_closes_without_a_word(void **state)
{
    (void)state;
    f.limits.idle_ms = IN_TIME_MS;
    net_start(&f);
    int fresh = net_connect(&f), used = net_connect(&f);
    free(net_ask(used, GET("/health"), 200));
    assert_true(net_is_eof(fresh));
    assert_true(net_is_eof(used));
    close(fresh);
    close(used);
}

/* Nothing but the client's going ends a turn that waits: no idle limit, no body limit. */
static void a_waiting_turn_has_no_time_limit(void **state)
{
    (void)state;
    f.limits.idle_ms = f.limits.header_ms = f.limits.body_ms = IN_TIME_MS;
    net_start(&f);
    int fd = net_connect(&f), other = net_connect(&f);
    net_post(fd, CHAT, "hold");
    net_wait_held(&f);
    assert_true(net_is_eof(other)); /* by then more than the limit has passed */
    net_release(&f);
    expect_status(fd, 200);
    close(fd);
    close(other);
}

static void too_many_connections_get_a_503(void **state)
{
    (void)state;
    f.limits.connections = 20;
    f.limits.connections_peer = 20;
    net_start(&f);
    int fd[30];
    for (int i = 0; i < 20; i++) {
        fd[i] = net_connect(&f);
        free(net_ask(fd[i], GET("/health"), 200));
    }
    for (int i = 20; i < 30; i++) {
        fd[i] = net_connect(&f);
        expect_status(fd[i], 503);
        assert_true(net_is_eof(fd[i]));
    }
    for (int i = 0; i < 20; i++)
        free(net_ask(fd[i], GET("/v1/models"), 200));
    for (int i = 0; i < 30; i++)
        close(fd[i]);
    int again;
    struct net_response r;
    do { /* until the loop has seen them go */
        again = net_connect(&f);
        net_send(again, GET("/health"));
        assert_true(net_read(again, false, &r));
        close(again);
        net_response_done(&r);
    } while (r.status == 503);
}

static void one_peer_cannot_take_all(void **state)
{
    (void)state;
    f.limits.connections_peer = 3;
    net_start(&f);
    int unix_fd[4], tcp;
    for (int i = 0; i < 3; i++) {
        unix_fd[i] = net_connect(&f);
        free(net_ask(unix_fd[i], GET("/health"), 200));
    }
    unix_fd[3] = net_connect(&f);
    expect_status(unix_fd[3], 503);
    tcp = net_connect_tcp(&f); /* another peer */
    free(net_ask(
        tcp,
        "GET /health HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer 0123456789abcdef\r\n\r\n",
        200));
    close(tcp);
    for (int i = 0; i < 4; i++)
        close(unix_fd[i]);
}

/* The 300: 256 with the real limits, the others are told. */
static void three_hundred_connections(void **state)
{
    (void)state;
    f.limits.connections_peer = 256;
    net_start(&f);
    int fd[300], n_ok = 0, n_refused = 0;
    for (int i = 0; i < 300; i++)
        fd[i] = net_connect(&f);
    for (int i = 0; i < 300; i++)
        net_send(fd[i], GET("/health"));
    for (int i = 0; i < 300; i++) {
        struct net_response r;
        bool got = net_read(fd[i], false, &r);
        n_ok += got && r.status == 200;
        n_refused += !got || r.status == 503;
        if (got)
            net_response_done(&r);
    }
    assert_int_equal(n_ok, 256);
    assert_int_equal(n_refused, 44);
    for (int i = 0; i < 300; i++)
        close(fd[i]);
}

/* And where all are one user's, who may have 64, each of the others is told, too. */
static void three_hundred_of_one_user(void **state)
{
    (void)state;
    f.limits.linger_ms = 60000; /* nobody's place is free before all have come */
    net_start(&f);
    int fd[300], n_ok = 0, n_refused = 0;
    for (int i = 0; i < 300; i++)
        fd[i] = net_connect(&f);
    for (int i = 0; i < 300; i++)
        net_send(fd[i], GET("/health"));
    for (int i = 0; i < 300; i++) {
        struct net_response r;
        assert_true(net_read(fd[i], false, &r));
        n_ok += r.status == 200;
        n_refused += r.status == 503;
        net_response_done(&r);
    }
    assert_int_equal(n_ok, 64);
    assert_int_equal(n_refused, 236);
    for (int i = 0; i < 300; i++)
        close(fd[i]);
}

static void what_is_sent_ahead_has_a_ceiling(void **state)
{
    (void)state;
    f.limits.input_bytes = 4096;
    net_start(&f);
    int fd = net_connect(&f), other = net_connect(&f);
    net_post(fd, CHAT, "hold");
    net_wait_held(&f);
    char junk[1000];
    memset(junk, 'x', sizeof(junk));
    for (int i = 0; i < 1000; i++)
        net_send_n(fd, junk, sizeof(junk));
    net_wait_canceled(&f);
    assert_true(net_is_eof(fd));
    free(net_ask(other, GET("/health"), 200));
    assert_int_equal(net_metric(&f, "hearth_connections_dropped_total"), 1);
    close(fd);
    close(other);
}

static void a_reader_that_falls_8_mib_behind_is_dropped(void **state)
{
    (void)state;
    f.limits.output_bytes = 1 << 20;
    net_start(&f);
    int fd = net_connect(&f);
    net_post(fd, CHAT, "stream 4000 4096"); /* 16 MB, and nobody reads */
    net_wait_canceled(&f);
    int other = net_connect(&f);
    free(net_ask(other, GET("/health"), 200));
    struct net_response r;
    assert_true(net_read(fd, false, &r)); /* what did get through has no end */
    assert_true(r.is_cut);
    net_response_done(&r);
    close(fd);
    close(other);
}

static void a_reader_that_takes_nothing_is_dropped(void **state)
{
    (void)state;
    f.limits.stall_ms = 80;
    net_start(&f);
    int fd = net_connect(&f);
    net_post(fd, CHAT, "open");
    net_wait_held(&f);
    pthread_mutex_lock(&f.lock);
    struct request *r = f.holds[0];
    pthread_mutex_unlock(&f.lock);
    struct buf b;
    buf_init(&b, 1 << 24);
    while (b.len < 4 << 20) /* more than any socket buffer, less than the ceiling */
        buf_str(&b, "data: xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx\n\n");
    reply_post(&f.d, REPLY_STREAM_DATA, r->conn, 200, &b);
    net_wait_canceled(&f);
    close(fd);
}

/* Answers that nobody reads don't pile up: the next request is looked at when the last answer has
 * left. */
static void pipelining_without_reading_is_held_back(void **state)
{
    (void)state;
    net_start(&f);
    int fd = net_connect(&f);
    struct timeval tv = {.tv_usec = 200000};
    setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &tv, sizeof(tv));
    size_t n_sent = 0;
    for (int i = 0; i < 200000; i++) {
        ssize_t n = send(fd, GET("/metrics"), sizeof(GET("/metrics")) - 1, MSG_NOSIGNAL);
        if (n < (ssize_t)sizeof(GET("/metrics")) - 1)
            break;
        n_sent++;
    }
    assert_true(n_sent < 200000);                                /* it was not all swallowed */
    assert_true(net_metric(&f, "hearth_requests_total") < 5000); /* nor answered into memory */
    close(fd);
}

static void bodies_of_all_connections_have_a_ceiling(void **state)
{
    (void)state;
    f.limits.bodies_bytes = 10000;
    net_start(&f);
    int a = net_connect(&f), b = net_connect(&f);
    char junk[8000];
    memset(junk, 'x', sizeof(junk));
    net_send(a, "POST " CHAT
                " HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 9000\r\n\r\n");
    expect_status(a, 100);
    net_send_n(a, junk, sizeof(junk));
    net_send(b, "POST " CHAT " HTTP/1.1\r\nHost: x\r\nContent-Length: 9000\r\n\r\n");
    net_send_n(b, junk, sizeof(junk));
    /* Whichever of the two the loop saw last is refused; the other one may end. */
    struct net_response r;
    net_send_n(a, junk, 1000);
    assert_true(net_read(a, false, &r));
    bool a_ok = r.status == 200;
    net_response_done(&r);
    if (a_ok) {
        expect_status(b, 503);
    } else {
        net_send_n(b, junk, 1000);
        expect_status(b, 200);
    }
    close(a);
    close(b);
}

static int n_open_files(void)
{
    DIR *dir = opendir("/proc/self/fd");
    int n = 0;
    while (readdir(dir))
        n++;
    closedir(dir);
    return n - 3; /* ".", "..", and the directory's own */
}

static void running_out_of_descriptors_pauses_and_recovers(void **state)
{
    (void)state;
    net_start(&f);
    int fd[10];
    struct rlimit old, low;
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &old), 0);
    int first = net_connect(&f);
    free(net_ask(first, GET("/health"), 200));
    for (int i = 0; i < 10; i++)
        fd[i] = net_socket(AF_UNIX);
    low = old;
    low.rlim_cur = (rlim_t)n_open_files() + 2; /* two can be accepted */
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &low), 0);
    for (int i = 0; i < 10; i++)
        net_connect_fd(&f, fd[i]);
    for (int i = 0; i < 50; i++) /* who is in, is served */
        free(net_ask(first, GET("/v1/models"), 200));
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &old), 0);
    for (int i = 0; i < 10; i++) {
        free(net_ask(fd[i], GET("/health"), 200));
        close(fd[i]);
    }
    close(first);
}

static void random_bytes_never_harm_others(void **state)
{
    (void)state;
    net_start(&f);
    test_seed();
    int good = net_connect(&f);
    for (int round = 0; round < 300; round++) {
        int fd = net_connect(&f);
        char junk[300];
        size_t n = 1 + test_random(sizeof(junk));
        for (size_t i = 0; i < n; i++)
            junk[i] = (char)test_random(256);
        if (round % 2) /* half of them begin well */
            net_send(fd,
                     "POST " CHAT
                     " HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nstrea\r\n");
        net_send_n(fd, junk, n);
        close(fd);
        if (round % 20 == 0)
            free(net_ask(good, GET("/health"), 200));
    }
    free(net_ask(good, GET("/v1/models"), 200));
    close(good);
}

#define T(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
int main(void)
{
    const struct CMUnitTest tests[] = {
        T(a_slow_head_is_a_408),
        T(a_slow_body_is_a_408_however_steady_it_drips),
        T(an_idle_connection_closes_without_a_word),
        T(a_waiting_turn_has_no_time_limit),
        T(too_many_connections_get_a_503),
        T(one_peer_cannot_take_all),
        T(three_hundred_connections),
        T(three_hundred_of_one_user),
        T(what_is_sent_ahead_has_a_ceiling),
        T(a_reader_that_falls_8_mib_behind_is_dropped),
        T(a_reader_that_takes_nothing_is_dropped),
        T(pipelining_without_reading_is_held_back),
        T(bodies_of_all_connections_have_a_ceiling),
        T(running_out_of_descriptors_pauses_and_recovers),
        T(random_bytes_never_harm_others),
    };
    struct rlimit files;
    if (getrlimit(RLIMIT_NOFILE, &files) == 0 && files.rlim_cur < 2048) {
        files.rlim_cur = files.rlim_max < 2048 ? files.rlim_max : 2048;
        setrlimit(RLIMIT_NOFILE, &files);
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
