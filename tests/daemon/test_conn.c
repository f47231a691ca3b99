/* Connections: framing, order, early answers, cancels, stopping. The loop is real; history is a
 * stub (net_fixture.h). */
#include "tests/daemon/net_fixture.h"

#include <sys/socket.h>
#include <unistd.h>

#define CHAT "/v1/chat/completions"
#define GET(path) "GET " path " HTTP/1.1\r\nHost: x\r\n\r\n"

static struct net_fixture f;

static int set_up(void **state)
{
    (void)state;
    net_defaults(&f);
    f.config.parallel = 1;
    f.config.queue = 2;
    net_start(&f);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    net_stop(&f);
    return 0;
}

static void expect_body(int fd, const char *wants)
{
    struct net_response r;
    assert_true(net_read(fd, false, &r));
    assert_int_equal(r.status, 200);
    assert_string_equal(r.body, wants);
    net_response_done(&r);
}

static char self[32];

static const char *echo_of(const char *what)
{
    static char text[256];
    snprintf(self, sizeof(self), "uid:%lu", (unsigned long)geteuid());
    char *at = strstr(what, "OWNER");
    snprintf(text, sizeof(text), "%.*s%s%s", (int)(at - what), what, self, at + 5);
    return text;
}

static void a_request_may_come_byte_by_byte(void **state)
{
    (void)state;
    static const char text[] = "POST " CHAT "?a=b HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: "
                                            "chunked\r\n\r\n1;x=y\r\nh\r\n1\r\ni\r\n0\r\n\r\n";
    int fd = net_connect(&f);
    for (size_t i = 0; i < sizeof(text) - 1; i++)
        net_send_n(fd, text + i, 1);
    expect_body(fd, echo_of("POST " CHAT "?a=b OWNER hi"));
    net_post(fd, CHAT, "again");
    expect_body(fd, echo_of("POST " CHAT "? OWNER again"));
    close(fd);
}

static void pipelined_requests_are_answered_in_order(void **state)
{
    (void)state;
    int fd = net_connect(&f);
    net_send(fd,
             GET("/v1/models")
                 GET("/health") "POST " CHAT
                                " HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n\r\nabc" GET("/nope")
                                    GET("/v1/conversations/c"));
    expect_body(fd, echo_of("GET /v1/models? OWNER "));
    struct net_response r;
    assert_true(net_read(fd, false, &r));
    assert_non_null(strstr(r.body, "\"status\":\"ok\""));
    net_response_done(&r);
    expect_body(fd, echo_of("POST " CHAT "? OWNER abc"));
    assert_true(net_read(fd, false, &r));
    assert_int_equal(r.status, 404);
    net_response_done(&r);
    expect_body(fd, echo_of("GET /v1/conversations/c? OWNER "));
    close(fd);
}

/* B52 */
static void the_body_of_a_refused_request_never_becomes_a_request(void **state)
{
    (void)state;
    for (int n = 20000; n <= 200000; n += 180000) {
        struct buf b;
        buf_init(&b, 1 << 20);
        buf_printf(&b, "POST /nope HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n", n);
        for (size_t left = (size_t)n; left > 0;) {
            static const char evil[] = GET("/health");
            size_t piece = left < sizeof(evil) - 1 ? left : sizeof(evil) - 1;
            buf_add(&b, evil, piece);
            left -= piece;
        }
        buf_str(&b, GET("/v1/models"));
        int fd = net_connect(&f);
        net_send_n(fd, b.data, b.len);
        struct net_response r;
        assert_true(net_read(fd, false, &r));
        assert_int_equal(r.status, 404);
        if (n <= 65536) {
            assert_non_null(strstr(r.head, "keep-alive"));
            expect_body(fd, echo_of("GET /v1/models? OWNER "));
        } else {
            assert_non_null(strstr(r.head, "Connection: close"));
            assert_true(net_is_eof(fd));
        }
        net_response_done(&r);
        buf_done(&b);
        close(fd);
    }
}

static void expect_100_is_answered_or_refused(void **state)
{
    (void)state;
    int fd = net_connect(&f);
    struct net_response r;
    net_send(fd, "POST " CHAT
                 " HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 3\r\n\r\n");
    assert_true(net_read(fd, false, &r));
    assert_int_equal(r.status, 100);
    net_response_done(&r);
    net_send(fd, "abc");
    expect_body(fd, echo_of("POST " CHAT "? OWNER abc"));
    net_send(fd,
             "POST /nope HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 3\r\n\r\n");
    assert_true(net_read(fd, false, &r));
    assert_int_equal(r.status, 404);
    net_response_done(&r);
    assert_true(net_is_eof(fd));
    close(fd);
}

static void head_options_and_wrong_methods(void **state)
{
    (void)state;
    int fd = net_connect(&f);
    struct net_response r;
    net_send(fd, "HEAD /v1/models HTTP/1.1\r\nHost: x\r\n\r\n");
    assert_true(net_read(fd, true, &r));
    assert_int_equal(r.status, 200);
    assert_null(strstr(r.head, "Content-Length: 0"));
    net_response_done(&r);
    net_send(fd, "OPTIONS " CHAT " HTTP/1.1\r\nHost: x\r\n\r\n");
    assert_true(net_read(fd, true, &r));
    assert_int_equal(r.status, 204);
    assert_non_null(strstr(r.head, "Allow: POST, OPTIONS"));
    assert_null(strstr(r.head, "Content-Length"));
    net_response_done(&r);
    net_send(fd, "DELETE " CHAT " HTTP/1.1\r\nHost: x\r\n\r\n");
    assert_true(net_read(fd, false, &r));
    assert_int_equal(r.status, 405);
    assert_non_null(strstr(r.head, "Allow: POST, OPTIONS"));
    assert_non_null(strstr(r.body, "method_not_allowed"));
    net_response_done(&r);
    expect_body((net_send(fd, GET("/v1/models")), fd), echo_of("GET /v1/models? OWNER "));
    close(fd);
}

static void http_1_0_closes_unless_asked_and_never_streams(void **state)
{
    (void)state;
    int fd = net_connect(&f);
    struct net_response r;
    net_send(fd, "GET /v1/models HTTP/1.0\r\nConnection: keep-alive\r\n\r\n");
    assert_true(net_read(fd, false, &r));
    assert_non_null(strstr(r.head, "Connection: keep-alive"));
    net_response_done(&r);
    net_send(fd, "POST " CHAT " HTTP/1.0\r\nContent-Length: 10\r\n\r\nstream 2 9");
    assert_true(net_read(fd, false, &r));
    assert_int_equal(
        r.status,
        500); /* history must not stream to it; no body without an end it is, whatever comes */
    net_response_done(&r);
    assert_true(net_is_eof(fd));
    close(fd);
}

static void streams_are_chunked_with_an_end(void **state)
{
    (void)state;
    int fd = net_connect(&f);
    struct net_response r;
    net_post(fd, CHAT, "stream 3 20");
    assert_true(net_read(fd, false, &r));
    assert_int_equal(r.status, 200);
    assert_false(r.is_cut);
    assert_non_null(strstr(r.head, "Content-Type: text/event-stream"));
    assert_non_null(strstr(r.head, "Transfer-Encoding: chunked"));
    assert_non_null(strstr(r.body, "data: begin\n\ndata: 0 xxx"));
    assert_non_null(strstr(r.body, "data: 2 "));
    assert_string_equal(r.body + r.n_body - 14, "data: [DONE]\n\n");
    net_response_done(&r);
    net_post(fd, CHAT, "next"); /* and the connection lives on */
    expect_body(fd, echo_of("POST " CHAT "? OWNER next"));
    close(fd);
}

/* B23: close, and half-close, of whole answers and of streams. */
static void eof_during_a_turn_cancels_it_and_no_other(void **state)
{
    (void)state;
    static const char *const bodies[] = {"hold", "open"};
    int other = net_connect(&f);
    net_post(other, CHAT, "hold");
    net_wait_held(&f);
    for (int i = 0; i < 4; i++) {
        int fd = net_connect(&f);
        net_post(fd, CHAT, bodies[i / 2]);
        net_wait_held(&f);
        if (i % 2)
            shutdown(fd, SHUT_WR);
        else
            close(fd);
        net_wait_canceled(&f);
        if (i % 2)
            close(fd);
    }
    assert_int_equal(sem_trywait(&f.canceled), -1);
    assert_int_equal(atomic_load(&f.holds[0]->cancel->is_set), 0);
    for (int i = 1; i < 5; i++)
        assert_int_equal(atomic_load(&f.holds[i]->cancel->is_set), 1);
    net_release(&f); /* late replies find nobody */
    expect_body(other, "released");
    close(other);
    assert_int_equal(net_metric(&f, "hearth_places_taken"), 0);
    assert_int_equal(net_metric(&f, "hearth_canceled_total"), 4);
}

static void eof_during_another_request_still_gets_its_answer(void **state)
{
    (void)state;
    int fd = net_connect(&f);
    net_send(fd, GET("/v1/models") GET("/health") GET("/v1/models"));
    shutdown(fd, SHUT_WR);
    expect_body(fd, echo_of("GET /v1/models? OWNER "));
    struct net_response r;
    assert_true(net_read(fd, false, &r));
    net_response_done(&r);
    expect_body(fd, echo_of("GET /v1/models? OWNER "));
    assert_true(net_is_eof(fd));
    close(fd);
}

static void a_full_queue_is_a_503_with_its_length(void **state)
{
    (void)state;
    int held[3];
    for (int i = 0; i < 3; i++) { /* parallel 1 + queue 2 */
        held[i] = net_connect(&f);
        net_post(held[i], CHAT, "hold");
        net_wait_held(&f);
    }
    int fd = net_connect(&f);
    struct net_response r;
    net_post(fd, CHAT, "no room");
    assert_true(net_read(fd, false, &r));
    assert_int_equal(r.status, 503);
    assert_non_null(strstr(r.head, "Retry-After: 2"));
    assert_non_null(strstr(r.body, "2 of at most 2 wait"));
    assert_non_null(strstr(r.body, "queue_full"));
    net_response_done(&r);
    net_send(fd, GET("/v1/models")); /* what makes no turn isn't concerned */
    expect_body(fd, echo_of("GET /v1/models? OWNER "));
    close(held[2]);
    net_wait_canceled(&f);
    net_post(fd, CHAT, "room again");
    expect_body(fd, echo_of("POST " CHAT "? OWNER room again"));
    net_release(&f);
    expect_body(held[0], "released");
    expect_body(held[1], "released");
    for (int i = 0; i < 2; i++)
        close(held[i]);
    close(fd);
    assert_int_equal(net_metric(&f, "hearth_places_taken"), 0);
}

static void health_tells_the_state(void **state)
{
    (void)state;
    int fd = net_connect(&f);
    atomic_store(&f.d.state, DAEMON_LOADING);
    atomic_store(&f.d.load_permille, 420);
    char *body = net_ask(fd, GET("/health"), 503);
    assert_non_null(strstr(body, "\"loading\",\"progress\":0.420"));
    free(body);
    net_post(fd, CHAT, "served when loaded"); /* given to history, which waits */
    expect_body(fd, echo_of("POST " CHAT "? OWNER served when loaded"));
    snprintf(f.d.load_error, sizeof(f.d.load_error), "no \"such\" model");
    atomic_store(&f.d.state, DAEMON_FAILED);
    body = net_ask(fd, GET("/health"), 503);
    assert_non_null(strstr(body, "no \\\"such\\\" model"));
    free(body);
    body = net_ask(fd, GET("/v1/models"), 503);
    assert_non_null(strstr(body, "no \\\"such\\\" model"));
    free(body);
    atomic_store(&f.d.state, DAEMON_READY);
    close(fd);
}

static void a_failed_load_answers_who_waits_and_ends_the_loop(void **state)
{
    (void)state;
    int fd = net_connect(&f);
    net_post(fd, CHAT, "hold");
    net_wait_held(&f);
    snprintf(f.d.load_error, sizeof(f.d.load_error), "tensor 3 lies outside the file");
    atomic_store(&f.d.state, DAEMON_FAILED);
    struct mail *m = calloc(1, sizeof(*m));
    m->kind = MAIL_READY;
    assert_true(mailbox_push(&f.d.loop, m));
    struct net_response r;
    assert_true(net_read(fd, false, &r));
    assert_int_equal(r.status, 503);
    assert_non_null(strstr(r.body, "tensor 3"));
    net_response_done(&r);
    close(fd);
    pthread_join(f.loop_thread, NULL);
    assert_int_equal(f.loop_result, ERR_IO);
    f.has_joined_loop = true;
}

static void stopping_ends_streams_with_an_error_and_waiting_requests_with_503(void **state)
{
    (void)state;
    int idle = net_connect(&f), half = net_connect(&f), wait = net_connect(&f),
        stream = net_connect(&f);
    struct net_response r;
    free(net_ask(idle, GET("/health"), 200));
    net_send(half, "POST " CHAT
                   " HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 3\r\n\r\n");
    assert_true(net_read(half, false, &r)); /* its head has been seen */
    net_response_done(&r);
    net_post(wait, CHAT, "hold");
    net_wait_held(&f);
    net_post(stream, CHAT, "open");
    net_wait_held(&f);
    struct mail *m = calloc(1, sizeof(*m));
    m->kind = MAIL_STOP;
    assert_true(mailbox_push(&f.d.loop, m));
    assert_true(net_is_eof(idle));
    assert_true(net_read(half, false, &r));
    assert_int_equal(r.status, 503);
    net_response_done(&r);
    assert_true(net_read(wait, false, &r));
    assert_int_equal(r.status, 503);
    assert_non_null(strstr(r.head, "Connection: close"));
    net_response_done(&r);
    assert_true(net_read(stream, false, &r));
    assert_int_equal(r.status, 200);
    assert_false(r.is_cut);
    assert_non_null(strstr(r.body, "data: {\"error\":{\"message\":\"the daemon is stopping\""));
    net_response_done(&r);
    assert_true(net_is_eof(stream));
    pthread_join(f.loop_thread, NULL);
    assert_int_equal(f.loop_result, 0);
    f.has_joined_loop = true;
    int all[] = {idle, half, wait, stream};
    for (int i = 0; i < 4; i++)
        close(all[i]);
}

static void tcp_asks_for_key_host_and_origin(void **state)
{
    (void)state;
    int fd = net_connect_tcp(&f);
    struct net_response r;
    net_send(fd, GET("/health"));
    assert_true(net_read(fd, false, &r));
    assert_int_equal(r.status, 403); /* Host: x */
    net_response_done(&r);
    net_send(fd, "GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n");
    assert_true(net_read(fd, false, &r));
    assert_int_equal(r.status, 401);
    assert_non_null(strstr(r.head, "WWW-Authenticate: Bearer"));
    net_response_done(&r);
    net_send(fd, "GET /v1/models HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer "
                 "0123456789abcdef\r\n\r\n");
    expect_body(fd, "GET /v1/models? key:ann ");
    free(net_ask(fd,
                 "GET /v1/models HTTP/1.1\r\nHost: localhost\r\nOrigin: "
                 "http://evil\r\nAuthorization: Bearer 0123456789abcdef\r\n\r\n",
                 403));
    close(fd);
}

static void any_origin_but_the_configured_one_is_refused(void **state)
{
    (void)state;
    f.config.cors_origin = (char *)"https://chat.example";
    int fd = net_connect_tcp(&f);
    struct net_response r;
    net_send(fd,
             "OPTIONS " CHAT " HTTP/1.1\r\nHost: localhost\r\nOrigin: "
                             "https://chat.example\r\nAccess-Control-Request-Method: POST\r\n\r\n");
    assert_true(net_read(fd, true, &r));
    assert_int_equal(r.status, 204);
    assert_non_null(strstr(r.head, "Access-Control-Allow-Origin: https://chat.example\r\n"));
    assert_non_null(strstr(r.head, "Access-Control-Allow-Methods: POST"));
    assert_non_null(strstr(r.head, "Access-Control-Allow-Headers: Authorization"));
    net_response_done(&r);
    net_send(fd, "GET /v1/models HTTP/1.1\r\nHost: localhost\r\nOrigin: "
                 "https://chat.example\r\nAuthorization: Bearer 0123456789abcdef\r\n\r\n");
    assert_true(net_read(fd, false, &r));
    assert_int_equal(r.status, 200);
    assert_non_null(strstr(r.head, "Access-Control-Allow-Origin: https://chat.example\r\n"));
    net_response_done(&r);
    close(fd);
    f.config.cors_origin = NULL;
}

static void bodies_up_to_8_mib(void **state)
{
    (void)state;
    size_t n = 8u << 20;
    char *body = malloc(n + 2);
    assert_non_null(body);
    memset(body, 'x', n + 1);
    body[n] = '\0';
    int fd = net_connect(&f);
    struct net_response r;
    net_post(fd, CHAT, body);
    assert_true(net_read(fd, false, &r));
    assert_int_equal(r.status, 200);
    assert_true(r.n_body > n);
    net_response_done(&r);
    memcpy(body + n, "x", 2);
    net_post(fd, CHAT, body); /* one byte too many: said before it is read */
    assert_true(net_read(fd, false, &r));
    assert_int_equal(r.status, 413);
    assert_non_null(strstr(r.body, "8388608"));
    net_response_done(&r);
    close(fd);
    free(body);
}

static void stray_bytes_after_a_request_harm_nobody(void **state)
{
    (void)state;
    static const char *const strays[] = {
        "\r\n", "x", "\r\n\r\n\r\n", "\x16\x03\x01", "GET /health HTTP/1.1\r\nHost: x\r\n\r\n",
        "\n"};
    for (size_t i = 0; i < ARRAY_LEN(strays); i++) {
        int fd = net_connect(&f);
        net_post(fd, CHAT, "hold");
        net_send(fd, strays[i]);
        net_wait_held(&f);
        net_release(&f);
        expect_body(fd, "released");
        close(fd);
        fd = net_connect(&f);
        free(net_ask(fd, GET("/health"), 200));
        close(fd);
    }
}

#define T(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
int main(void)
{
    const struct CMUnitTest tests[] = {
        T(a_request_may_come_byte_by_byte),
        T(pipelined_requests_are_answered_in_order),
        T(the_body_of_a_refused_request_never_becomes_a_request),
        T(expect_100_is_answered_or_refused),
        T(head_options_and_wrong_methods),
        T(http_1_0_closes_unless_asked_and_never_streams),
        T(streams_are_chunked_with_an_end),
        T(eof_during_a_turn_cancels_it_and_no_other),
        T(eof_during_another_request_still_gets_its_answer),
        T(a_full_queue_is_a_503_with_its_length),
        T(health_tells_the_state),
        T(a_failed_load_answers_who_waits_and_ends_the_loop),
        T(stopping_ends_streams_with_an_error_and_waiting_requests_with_503),
        T(tcp_asks_for_key_host_and_origin),
        T(any_origin_but_the_configured_one_is_refused),
        T(bodies_up_to_8_mib),
        T(stray_bytes_after_a_request_harm_nobody),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
