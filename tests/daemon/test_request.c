/* Mail between loop and the others: query strings, errors, replies when memory runs out. */
#include "tests/base/testing.h"

#include "base/json.h"
#include "daemon/request.h"

static void query_parameters_are_decoded(void **state)
{
    (void)state;
    struct request r = {.query =
                            (char *)"limit=10&after=a%20b+c&flag&empty=&x%3Dy=1&limit=20&bad=%zz"};
    char *v = NULL;
    assert_int_equal(request_query(&r, "limit", &v), 0);
    assert_string_equal(v, "10"); /* the first */
    free(v);
    assert_int_equal(request_query(&r, "after", &v), 0);
    assert_string_equal(v, "a b c");
    free(v);
    assert_int_equal(request_query(&r, "flag", &v), 0);
    assert_string_equal(v, "");
    free(v);
    assert_int_equal(request_query(&r, "empty", &v), 0);
    assert_string_equal(v, "");
    free(v);
    assert_int_equal(request_query(&r, "x=y", &v), 0);
    assert_string_equal(v, "1");
    free(v);
    assert_int_equal(request_query(&r, "bad", &v), ERR_INVAL);
    assert_int_equal(request_query(&r, "li", &v), ERR_NOTFOUND);
    assert_int_equal(request_query(&r, "limit=10", &v), ERR_NOTFOUND);
    r.query = (char *)"";
    assert_int_equal(request_query(&r, "limit", &v), ERR_NOTFOUND);
}

static void errors_have_openais_shape(void **state)
{
    (void)state;
    static const struct {
        int status;
        const char *type;
    } types[] = {{400, "invalid_request_error"}, {401, "authentication_error"},
                 {403, "permission_error"},      {404, "not_found_error"},
                 {413, "invalid_request_error"}, {429, "invalid_request_error"},
                 {500, "server_error"},          {503, "overloaded_error"}};
    for (size_t i = 0; i < ARRAY_LEN(types); i++) {
        struct http_error h;
        struct buf b;
        json *j = NULL;
        buf_init(&b, 4096);
        http_error_set(&h, types[i].status, "a_code", i % 2 ? "field" : NULL, "says \"%s\"\n", "x");
        http_error_write(&h, &b);
        assert_int_equal(json_parse(b.data, b.len, &j, NULL), 0);
        const json *error = json_get(j, "error", NULL);
        assert_string_equal(json_str(json_get(error, "message", NULL)), "says \"x\"\n");
        assert_string_equal(json_str(json_get(error, "type", NULL)), types[i].type);
        assert_string_equal(json_str(json_get(error, "code", NULL)), "a_code");
        assert_int_equal(json_count(error), 4);
        if (i % 2)
            assert_string_equal(json_str(json_get(error, "param", NULL)), "field");
        json_free(j);
        buf_done(&b);
    }
}

static void a_long_message_is_cut_between_characters(void **state)
{
    (void)state;
    char text[1200];
    for (size_t i = 0; i + 2 < sizeof(text); i += 2)
        memcpy(text + i, "é", 2);
    text[1198] = '\0';
    struct http_error h;
    http_error_set(&h, 400, NULL, NULL, "%s", text);
    assert_int_equal(strlen(h.message), 510);
    http_error_set(&h, 400, NULL, NULL, "x%s", text);
    assert_int_equal(strlen(h.message), 511);
}

static void library_errors_map_to_statuses(void **state)
{
    (void)state;
    static const int map[][2] = {{ERR_NOTFOUND, 404},    {ERR_INVAL, 400},   {ERR_LIMIT, 400},
                                 {ERR_UNSUPPORTED, 400}, {ERR_BUSY, 503},    {ERR_NOMEM, 500},
                                 {ERR_IO, 500},          {ERR_CORRUPT, 500}, {ERR_CANCELED, 500},
                                 {ERR_FULL, 500}};
    for (size_t i = 0; i < ARRAY_LEN(map); i++) {
        struct err e = {.code = map[i][0], .text = "why"};
        struct http_error h;
        http_error_from(&h, &e);
        assert_int_equal(h.status, map[i][1]);
        assert_string_equal(h.message, "why");
    }
}

static struct reply *take(struct daemon *d)
{
    return (struct reply *)mailbox_take(&d->loop);
}

static void replies_move_their_bytes(void **state)
{
    (void)state;
    static struct daemon d;
    struct buf b;
    assert_int_equal(mailbox_init(&d.loop, NULL), 0);
    buf_init(&b, 100);
    buf_str(&b, "body");
    reply_post_last(&d, REPLY_STREAM_END, 7, 200, &b);
    struct reply *r = take(&d);
    assert_int_equal(r->mail.kind, MAIL_REPLY);
    assert_int_equal(r->conn, 7);
    assert_true(r->ends_turn);
    assert_int_equal(r->n_body, 4);
    assert_string_equal(r->body, "body");
    reply_free(r);

    struct http_error h;
    http_error_set(&h, 503, "queue_full", NULL, "full");
    reply_error(&d, 8, &h, false);
    r = take(&d);
    assert_int_equal(r->status, 503);
    assert_int_equal(r->retry_after_s, 2);
    assert_false(r->ends_turn);
    reply_free(r);

    mailbox_close(&d.loop);
    buf_str(&b, "nobody reads this"); /* and it isn't leaked */
    reply_post(&d, REPLY_WHOLE, 9, 200, &b);
    mailbox_done(&d.loop);
}

static void without_memory_the_reply_still_arrives(void **state)
{
    (void)state;
    static struct daemon d;
    assert_int_equal(mailbox_init(&d.loop, NULL), 0);
    struct buf b;
    buf_init(&b, 4);
    buf_str(&b, "too long for its ceiling");
    reply_post(&d, REPLY_WHOLE, 1, 200, &b);
    struct reply *r = take(&d);
    assert_int_equal(r->status, 500);
    assert_null(r->body);
    reply_free(r);

    for (int i = 0; i < 100; i++) { /* more often than there are spare ones: they come back */
        buf_init(&b, 100);
        buf_str(&b, "body");
        fault_memory(0);
        reply_post_last(&d, REPLY_WHOLE, 2, 200, &b);
        assert_true(fault_end());
        r = take(&d);
        assert_non_null(r);
        assert_int_equal(r->status, 500);
        assert_true(r->ends_turn);
        assert_null(r->body);
        reply_free(r);
    }
    mailbox_done(&d.loop);
}

static void a_cancel_flag_lives_as_long_as_its_holders(void **state)
{
    (void)state;
    struct cancel *c = cancel_new();
    struct cancel *other = cancel_ref(c);
    atomic_store(&c->is_set, 1);
    cancel_unref(c);
    assert_int_equal(atomic_load(&other->is_set), 1);
    cancel_unref(other);
    cancel_unref(NULL);
    request_free(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(query_parameters_are_decoded),
        cmocka_unit_test(errors_have_openais_shape),
        cmocka_unit_test(a_long_message_is_cut_between_characters),
        cmocka_unit_test(library_errors_map_to_statuses),
        cmocka_unit_test(replies_move_their_bytes),
        cmocka_unit_test(without_memory_the_reply_still_arrives),
        cmocka_unit_test(a_cancel_flag_lives_as_long_as_its_holders),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
