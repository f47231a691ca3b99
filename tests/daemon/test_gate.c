/* What is decided by a request's head alone: identity, Host, Origin, path, method. */
#include "tests/base/testing.h"

#include "base/hash.h"
#include "daemon/gate.h"

static struct keys *keys;

static int check(bool is_tcp, const char *cors, const struct http_head *head,
                 struct gate_pass *pass)
{
    struct gate g = {
        .is_tcp = is_tcp, .keys = keys, .cors_origin = cors, .unix_owner = "uid:1", .denied = ""};
    struct http_error bad = {0};
    return gate_check(&g, head, pass, &bad) == 0 ? 0 : bad.status;
}

static struct http_head head_of(const char *method, const char *path)
{
    return (struct http_head){
        .method = method, .path = path, .query = "", .host = "localhost", .minor = 1};
}

static void unix_peers_are_known_by_uid(void **state)
{
    (void)state;
    struct gate_pass pass;
    struct http_head head = head_of("GET", "/health");
    head.host = "anything.example"; /* curl takes it from the URL; it means nothing here */
    head.origin = "http://evil";
    assert_int_equal(check(false, NULL, &head, &pass), 0);
    assert_string_equal(pass.owner, "uid:1");
    assert_int_equal(pass.route->kind, ROUTE_HEALTH);
    struct gate denied = {.unix_owner = "", .denied = "not you"};
    struct http_error bad;
    assert_int_equal(gate_check(&denied, &head, &pass, &bad), -1);
    assert_int_equal(bad.status, 403);
    assert_string_equal(bad.message, "not you");
}

static void tcp_needs_key_loopback_host_and_known_origin(void **state)
{
    (void)state;
    struct gate_pass pass;
    struct http_head head = head_of("GET", "/v1/models");
    assert_int_equal(check(true, NULL, &head, &pass), 401);
    assert_true(pass.wants_key);
    head.authorization = "Bearer 0123456789abcdee";
    assert_int_equal(check(true, NULL, &head, &pass), 401);
    head.authorization = "Bearer 0123456789abcdef";
    assert_int_equal(check(true, NULL, &head, &pass), 0);
    assert_string_equal(pass.owner, "key:ann");
    head.host = "rebound.example";
    assert_int_equal(check(true, NULL, &head, &pass), 403);
    head.host = "127.0.0.1:80";
    head.origin = "http://page.example";
    assert_int_equal(check(true, NULL, &head, &pass), 403);
    assert_int_equal(check(true, "http://page.example", &head, &pass), 0);
    assert_true(pass.is_cors);
    assert_int_equal(check(true, "http://page.example.org", &head, &pass), 403);
}

static void a_preflight_needs_no_key_but_the_origin(void **state)
{
    (void)state;
    struct gate_pass pass;
    struct http_head head = head_of("OPTIONS", "/v1/models");
    assert_int_equal(check(true, "http://page", &head, &pass), 401); /* no Origin: no preflight */
    head.origin = "http://page";
    assert_int_equal(check(true, "http://page", &head, &pass), 0);
    assert_null(pass.route);
    assert_non_null(strstr(pass.allow, "GET"));
    assert_int_equal(check(true, "http://other", &head, &pass), 403);
}

static void paths_and_methods(void **state)
{
    (void)state;
    static const struct {
        const char *method, *path;
        int status; /* 0: passes */
        const char *allow;
    } cases[] = {
        {"GET", "/health", 0, NULL},
        {"HEAD", "/health", 0, NULL},
        {"POST", "/health", 405, "GET, HEAD, OPTIONS"},
        {"POST", "/v1/chat/completions", 0, NULL},
        {"GET", "/v1/chat/completions", 405, "POST, OPTIONS"},
        {"PUT", "/v1/chat/completions", 405, "POST, OPTIONS"},
        {"BREW", "/v1/responses/resp_1", 405, "GET, HEAD, DELETE, OPTIONS"},
        {"DELETE", "/v1/responses/resp_1", 0, NULL},
        {"GET", "/v1/responses/resp_1/input_items", 0, NULL},
        {"POST", "/v1/responses/input_tokens", 0, NULL},
        {"GET", "/v1/responses/input_tokens", 405, "POST, OPTIONS"},
        {"GET", "/v1/responses/", 404, NULL},
        {"GET", "/v1/conversations//items", 404, NULL},
        {"GET", "/v1/conversations/c/items/i", 0, NULL},
        {"GET", "/v1/conversations/c/items/i/x", 404, NULL},
        {"GET", "/v1/models/org/name", 0, NULL},
        {"GET", "/v1/models/", 404, NULL},
        {"GET", "/v1/embeddings", 405, "POST, OPTIONS"},
        {"GET", "/v1/embeddingss", 404, NULL},
        {"POST", "/nope", 404, NULL},
        {"GET", "/", 404, NULL},
        {"GET", "*", 404, NULL},
        {"OPTIONS", "*", 0, "GET, HEAD, POST, DELETE, OPTIONS"},
        {"OPTIONS", "/tokenize", 0, "POST, OPTIONS"},
        {"OPTIONS", "/nope", 404, NULL},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct gate_pass pass;
        struct http_head head = head_of(cases[i].method, cases[i].path);
        if (check(false, NULL, &head, &pass) != cases[i].status)
            fail_msg("%s %s", cases[i].method, cases[i].path);
        if (cases[i].allow)
            assert_string_equal(pass.allow, cases[i].allow);
        else
            assert_null(pass.allow);
    }
}

static void three_paths_make_turns(void **state)
{
    (void)state;
    assert_int_equal(route_find("/v1/chat/completions")->kind, ROUTE_TURN);
    assert_int_equal(route_find("/v1/completions")->kind, ROUTE_TURN);
    assert_int_equal(route_find("/v1/responses")->kind, ROUTE_TURN);
    assert_int_equal(route_find("/tokenize")->kind, ROUTE_HISTORY);
}

static int set_up(void **state)
{
    (void)state;
    static const char text[] = "ann:0123456789abcdef\n";
    int rc = hash_start(NULL);
    return rc ? rc : keys_parse("keys", text, sizeof(text) - 1, &keys, NULL);
}

static int tear_down(void **state)
{
    (void)state;
    keys_free(keys);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(unix_peers_are_known_by_uid),
        cmocka_unit_test(tcp_needs_key_loopback_host_and_known_origin),
        cmocka_unit_test(a_preflight_needs_no_key_but_the_origin),
        cmocka_unit_test(paths_and_methods),
        cmocka_unit_test(three_paths_make_turns),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
