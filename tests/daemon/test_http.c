/*
 * HTTP requests: a table of bytes and what they mean. Each row is pushed whole, byte by byte, and
 * in random pieces, and must mean the same. A '|' in `wants` ends a step;
 * of errors only the status is compared with the table, but their whole text between the ways of
 * cutting.
 */
#include "tests/base/testing.h"

#include "tests/daemon/http_record.h"

struct row {
    const char *name, *bytes, *wants;
};

#define H "Host: x\r\n"
static const struct row rows[] = {
    {"a plain GET", "GET /health HTTP/1.1\r\n" H "\r\n",
     "HEAD GET /health ? 1.1 host=x length=0|DONE 0 0 |"},
    {"a POST with a body", "POST /a?b=c HTTP/1.1\r\n" H "Content-Length: 5\r\n\r\nhello",
     "HEAD POST /a ?b=c 1.1 host=x length=5|DONE 5 5 hello|"},
    {"no space after the colon", "POST / HTTP/1.1\r\nHost:x\r\nContent-Length:3\r\n\r\nabc",
     "HEAD POST / ? 1.1 host=x length=3|DONE 3 3 abc|"},
    {"chunks of one byte, an extension, trailers",
     "POST / HTTP/1.1\r\n" H
     "Transfer-Encoding: chunked\r\n\r\n1;ext=\"v\"\r\na\r\n1\r\nb\r\n0\r\nTrailer: x\r\n\r\n",
     "HEAD POST / ? 1.1 host=x chunked|DONE 2 2 ab|"},
    {"three in a row",
     "GET /1 HTTP/1.1\r\n" H "\r\nPOST /2 HTTP/1.1\r\n" H
     "Content-Length: 1\r\n\r\nxGET /3 HTTP/1.1\r\n" H "\r\n",
     "HEAD GET /1 ? 1.1 host=x length=0|DONE 0 0 |HEAD POST /2 ? 1.1 host=x length=1|DONE 1 1 "
     "x|HEAD GET /3 ? 1.1 host=x length=0|DONE 0 0 |"},
    {"empty lines before", "\r\n\r\nGET / HTTP/1.1\r\n" H "\r\n",
     "HEAD GET / ? 1.1 host=x length=0|DONE 0 0 |"},
    {"HTTP/1.0 without Host", "GET / HTTP/1.0\r\n\r\n",
     "HEAD GET / ? 1.0 length=0 close|DONE 0 0 |"},
    {"HTTP/1.0 keep-alive", "GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n",
     "HEAD GET / ? 1.0 length=0|DONE 0 0 |"},
    {"Connection: close", "GET / HTTP/1.1\r\n" H "Connection: close\r\n\r\n",
     "HEAD GET / ? 1.1 host=x length=0 close|DONE 0 0 |"},
    {"an absolute target", "GET http://h:1/p?q HTTP/1.1\r\n" H "\r\n",
     "HEAD GET /p ?q 1.1 host=x length=0|DONE 0 0 |"},
    {"an absolute target without a path", "GET http://h?q HTTP/1.1\r\n" H "\r\n",
     "HEAD GET / ?q 1.1 host=x length=0|DONE 0 0 |"},
    {"OPTIONS *", "OPTIONS * HTTP/1.1\r\n" H "\r\n",
     "HEAD OPTIONS * ? 1.1 host=x length=0|DONE 0 0 |"},
    {"escapes in the path", "GET /a%20b%C3%A9?x=%20 HTTP/1.1\r\n" H "\r\n",
     "HEAD GET /a b\xC3\xA9 ?x=%20 1.1 host=x length=0|DONE 0 0 |"},
    {"a fragment is dropped", "GET /a?b#c HTTP/1.1\r\n" H "\r\n",
     "HEAD GET /a ?b 1.1 host=x length=0|DONE 0 0 |"},
    {"an offered upgrade is ignored",
     "GET / HTTP/1.1\r\n" H "Connection: Upgrade, HTTP2-Settings\r\nUpgrade: "
                            "h2c\r\nHTTP2-Settings: AA\r\n\r\nGET /2 HTTP/1.1\r\n" H "\r\n",
     "HEAD GET / ? 1.1 host=x length=0|DONE 0 0 |HEAD GET /2 ? 1.1 host=x length=0|DONE 0 0 |"},
    {"an upgrade with a body",
     "POST / HTTP/1.1\r\n" H "Connection: Upgrade\r\nUpgrade: h2c\r\nContent-Length: 2\r\n\r\nab",
     "HEAD POST / ? 1.1 host=x length=2|DONE 2 2 ab|"},
    {"Expect", "POST / HTTP/1.1\r\n" H "Expect: 100-continue\r\nContent-Length: 1\r\n\r\na",
     "HEAD POST / ? 1.1 host=x length=1 expects|DONE 1 1 a|"},
    {"Expect without a body", "POST / HTTP/1.1\r\n" H "Expect: 100-continue\r\n\r\n",
     "HEAD POST / ? 1.1 host=x length=0|DONE 0 0 |"},
    {"the headers that we keep",
     "GET / HTTP/1.1\r\nhOsT:  a \r\nORIGIN: http://o\r\nAuthorization: Bearer k\r\nX: y\r\n\r\n",
     "HEAD GET / ? 1.1 host=a origin=http://o auth=Bearer k length=0|DONE 0 0 |"},
    {"an empty header", "GET / HTTP/1.1\r\nHost:\r\nX:\r\n\r\n",
     "HEAD GET / ? 1.1 host= length=0|DONE 0 0 |"},
    {"a body that is skipped, then the next",
     "POST /skip HTTP/1.1\r\n" H
     "Content-Length: 40\r\n\r\nGET /evil HTTP/1.1\r\nHost: x\r\n\r\n.........GET / HTTP/1.1\r\n" H
     "\r\n",
     "HEAD POST /skip ? 1.1 host=x length=40|DONE 40 0 |HEAD GET / ? 1.1 host=x length=0|DONE 0 0 "
     "|"},
    {"a NUL in a body", "POST / HTTP/1.1\r\n" H "Content-Length: 1\r\n\r\n#",
     "HEAD POST / ? 1.1 host=x length=1|DONE 1 1 #|"},
    {"an unfinished head", "GET / HTTP/1.1\r\nHo", "UNFINISHED|"},
    {"an unfinished body", "POST / HTTP/1.1\r\n" H "Content-Length: 5\r\n\r\nhel",
     "HEAD POST / ? 1.1 host=x length=5|UNFINISHED|"},

    {"no Host", "GET / HTTP/1.1\r\n\r\n", "BAD 400|"},
    {"two Hosts", "GET / HTTP/1.1\r\n" H "Host: y\r\n\r\n", "BAD 400|"},
    {"two equal Content-Lengths",
     "POST / HTTP/1.1\r\n" H "Content-Length: 1\r\nContent-Length: 1\r\n\r\na", "BAD 400|"},
    {"two different Content-Lengths",
     "POST / HTTP/1.1\r\n" H "Content-Length: 1\r\nContent-Length: 2\r\n\r\na", "BAD 400|"},
    {"length and chunks",
     "POST / HTTP/1.1\r\n" H "Content-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
     "BAD 400|"},
    {"chunks and length",
     "POST / HTTP/1.1\r\n" H "Transfer-Encoding: chunked\r\nContent-Length: 1\r\n\r\n0\r\n\r\n",
     "BAD 400|"},
    {"a negative length", "POST / HTTP/1.1\r\n" H "Content-Length: -1\r\n\r\n", "BAD 400|"},
    {"a length with letters", "POST / HTTP/1.1\r\n" H "Content-Length: 3abc\r\n\r\nabc",
     "BAD 400|"},
    {"a length beyond 64 bits",
     "POST / HTTP/1.1\r\n" H "Content-Length: 18446744073709551617\r\n\r\n", "BAD 400|"},
    {"a hexadecimal prefix in a chunk",
     "POST / HTTP/1.1\r\n" H "Transfer-Encoding: chunked\r\n\r\n0x3\r\nabc\r\n0\r\n\r\n",
     "HEAD POST / ? 1.1 host=x chunked|BAD 400|"},
    {"a negative chunk", "POST / HTTP/1.1\r\n" H "Transfer-Encoding: chunked\r\n\r\n-2\r\nab",
     "HEAD POST / ? 1.1 host=x chunked|BAD 400|"},
    {"a huge chunk",
     "POST / HTTP/1.1\r\n" H "Transfer-Encoding: chunked\r\n\r\nfffffffffffffffff\r\n",
     "HEAD POST / ? 1.1 host=x chunked|BAD 400|"},
    {"gzip", "POST / HTTP/1.1\r\n" H "Transfer-Encoding: gzip\r\n\r\n", "BAD 501|"},
    {"gzip, chunked", "POST / HTTP/1.1\r\n" H "Transfer-Encoding: gzip, chunked\r\n\r\n",
     "BAD 501|"},
    {"chunked twice",
     "POST / HTTP/1.1\r\n" H "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n",
     "BAD 400|"},
    {"chunked in 1.0", "POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n", "BAD 400|"},
    {"a space before the colon", "GET / HTTP/1.1\r\nHost : x\r\n\r\n", "BAD 400|"},
    {"a space in a name", "GET / HTTP/1.1\r\n" H "X Y: z\r\n\r\n", "BAD 400|"},
    {"a folded header", "GET / HTTP/1.1\r\n" H "X: a\r\n b\r\n\r\n", "BAD 400|"},
    {"a folded first header", "GET / HTTP/1.1\r\n Host: x\r\n\r\n", "BAD 400|"},
    {"a tab folds, too", "GET / HTTP/1.1\r\n" H "\tX: a\r\n\r\n", "BAD 400|"},
    {"HTTP/2 preface", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "BAD 400|"},
    {"HTTP/2.0", "GET / HTTP/2.0\r\n" H "\r\n", "BAD 505|"},
    {"HTTP/1.2", "GET / HTTP/1.2\r\n" H "\r\n", "BAD 505|"},
    {"HTTP/0.9", "GET /\r\n\r\n", "BAD 505|"},
    {"TLS", "\x16\x03\x01\x02", "BAD 400|"},
    {"a target that is no path", "GET health HTTP/1.1\r\n" H "\r\n", "BAD 400|"},
    {"CONNECT", "CONNECT h:443 HTTP/1.1\r\n" H "\r\n", "BAD 400|"},
    {"a bad escape", "GET /%zz HTTP/1.1\r\n" H "\r\n", "BAD 400|"},
    {"half an escape", "GET /%4 HTTP/1.1\r\n" H "\r\n", "BAD 400|"},
    {"a NUL by escape", "GET /%00 HTTP/1.1\r\n" H "\r\n", "BAD 400|"},
    {"no UTF-8 by escape", "GET /%ff HTTP/1.1\r\n" H "\r\n", "BAD 400|"},
    {"another expectation", "POST / HTTP/1.1\r\n" H "Expect: 200-ok\r\nContent-Length: 1\r\n\r\na",
     "BAD 417|"},
    {"two keys", "GET / HTTP/1.1\r\n" H "Authorization: a\r\nAuthorization: b\r\n\r\n", "BAD 400|"},
    {"a body that is too long", "POST / HTTP/1.1\r\n" H "Content-Length: 1001\r\n\r\n", "BAD 413|"},
    {"chunks that are too long",
     "POST / HTTP/1.1\r\n" H "Transfer-Encoding: chunked\r\n\r\n3e9\r\n"
     "012345678901234567890123456789012345678901234567890123456789012345678901234567890123456789012"
     "3456789"
     "012345678901234567890123456789012345678901234567890123456789012345678901234567890123456789012"
     "3456789"
     "012345678901234567890123456789012345678901234567890123456789012345678901234567890123456789012"
     "3456789"
     "012345678901234567890123456789012345678901234567890123456789012345678901234567890123456789012"
     "3456789"
     "012345678901234567890123456789012345678901234567890123456789012345678901234567890123456789012"
     "3456789"
     "012345678901234567890123456789012345678901234567890123456789012345678901234567890123456789012"
     "3456789"
     "012345678901234567890123456789012345678901234567890123456789012345678901234567890123456789012"
     "3456789"
     "012345678901234567890123456789012345678901234567890123456789012345678901234567890123456789012"
     "3456789"
     "012345678901234567890123456789012345678901234567890123456789012345678901234567890123456789012"
     "3456789"
     "012345678901234567890123456789012345678901234567890123456789012345678901234567890123456789012"
     "3456789"
     "x\r\n0\r\n\r\n",
     "HEAD POST / ? 1.1 host=x chunked|BAD 413|"},
    {"a control character in a value", "GET / HTTP/1.1\r\n" H "X: a\x01\r\n\r\n", "BAD 400|"},
};

static const struct http_limits limits = {.header_bytes = 300, .body_bytes = 1000};

static size_t one(void *ctx)
{
    (void)ctx;
    return 1;
}

static size_t some(void *ctx)
{
    (void)ctx;
    return 1 + test_random(9);
}

/* The record with '\n' as '|', and of errors only the status. */
static void shorten(const struct buf *record, char *to, size_t size)
{
    size_t n = 0;
    for (size_t i = 0; i < record->len && n + 1 < size; i++) {
        bool is_line_start = i == 0 || record->data[i - 1] == '\n';
        if (is_line_start && strncmp(record->data + i, "BAD ", 4) == 0) {
            n += (size_t)snprintf(to + n, size - n, "%.7s", record->data + i);
            i += strcspn(record->data + i, "\n");
        }
        to[n++] = record->data[i] == '\n' ? '|' : record->data[i];
    }
    to[n] = '\0';
}

static void any_split_gives_what_the_table_says(void **state)
{
    (void)state;
    test_seed();
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct buf whole, again;
        char text[4096];
        buf_init(&whole, 1 << 20);
        buf_init(&again, 1 << 20);
        http_record(&limits, rows[i].bytes, strlen(rows[i].bytes), NULL, NULL, &whole);
        shorten(&whole, text, sizeof(text));
        if (strcmp(text, rows[i].wants) != 0)
            print_message("%s: %s\n", rows[i].name, whole.data);
        assert_string_equal(text, rows[i].wants);
        for (int round = 0; round < 20; round++) {
            buf_clear(&again);
            http_record(&limits, rows[i].bytes, strlen(rows[i].bytes), round == 0 ? one : some,
                        NULL, &again);
            if (strcmp(again.data, whole.data) != 0)
                print_message("%s, round %d\n", rows[i].name, round);
            assert_string_equal(again.data, whole.data);
        }
        buf_done(&whole);
        buf_done(&again);
    }
}

static void expect_head_of(size_t n_filler, int status)
{
    struct buf in, whole, again;
    buf_init(&in, 1 << 20);
    buf_init(&whole, 1 << 20);
    buf_init(&again, 1 << 20);
    buf_str(&in, "GET / HTTP/1.1\r\nHost: x\r\nX: ");
    while (in.len < n_filler - 4)
        buf_char(&in, 'x');
    buf_str(&in, "\r\n\r\n");
    http_record(&limits, in.data, in.len, NULL, NULL, &whole);
    http_record(&limits, in.data, in.len, one, NULL, &again);
    assert_string_equal(whole.data, again.data);
    char wants[16];
    snprintf(wants, sizeof(wants), "BAD %d", status);
    assert_true(strncmp(whole.data, status ? wants : "HEAD GET", status ? 7 : 8) == 0);
    buf_done(&in);
    buf_done(&whole);
    buf_done(&again);
}

static void a_head_may_be_as_long_as_the_limit_and_no_longer(void **state)
{
    (void)state;
    expect_head_of(300, 0);
    expect_head_of(302, 431);
    expect_head_of(5000, 431);
}

static void nul_bytes_are_refused_in_heads_and_kept_in_bodies(void **state)
{
    (void)state;
    static const char head[] = "GET / HTTP/1.1\r\nHost: a\0b\r\n\r\n";
    static const char body[] = "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\n\0\0\0";
    struct buf b;
    buf_init(&b, 4096);
    http_record(&limits, head, sizeof(head) - 1, NULL, NULL, &b);
    assert_true(strncmp(b.data, "BAD 400", 7) == 0);
    buf_clear(&b);
    http_record(&limits, body, sizeof(body) - 1, one, NULL, &b);
    assert_non_null(strstr(b.data, "DONE 3 3 "));
    buf_done(&b);
}

static void endless_trailers_are_refused(void **state)
{
    (void)state;
    struct buf in, b;
    buf_init(&in, 1 << 20);
    buf_init(&b, 4096);
    buf_str(&in, "POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n");
    for (int i = 0; i < 100; i++)
        buf_str(&in, "X-Trailer: yyyyyyyyyy\r\n");
    http_record(&limits, in.data, in.len, one, NULL, &b);
    assert_non_null(strstr(b.data, "BAD 431"));
    buf_done(&in);
    buf_done(&b);
}

static void escapes_are_decoded_or_refused(void **state)
{
    (void)state;
    static const struct {
        const char *in;
        bool is_form;
        const char *wants;
    } cases[] = {
        {"", false, ""},         {"a+b", false, "a+b"}, {"a+b", true, "a b"},
        {"%41%6a", false, "Aj"}, {"%", false, NULL},    {"%4", false, NULL},
        {"%4g", false, NULL},    {"%00", true, NULL},   {"%C3%A9", true, "é"},
        {"%C3", true, NULL},     {"%2Fa", false, "/a"},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        char *out = NULL;
        int rc = http_unescape(cases[i].in, strlen(cases[i].in), cases[i].is_form, &out);
        if (!cases[i].wants) {
            assert_int_equal(rc, ERR_INVAL);
            assert_null(out);
            continue;
        }
        assert_int_equal(rc, 0);
        assert_string_equal(out, cases[i].wants);
        free(out);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(any_split_gives_what_the_table_says),
        cmocka_unit_test(a_head_may_be_as_long_as_the_limit_and_no_longer),
        cmocka_unit_test(nul_bytes_are_refused_in_heads_and_kept_in_bodies),
        cmocka_unit_test(endless_trailers_are_refused),
        cmocka_unit_test(escapes_are_decoded_or_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
