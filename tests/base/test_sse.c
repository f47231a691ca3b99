/* Server-sent events: the standard's examples, every split, the ceiling. */
#include "tests/base/testing.h"

#include "base/sse.h"

/* Events as "name|data;" in one string. */
static void record(void *ctx, const char *event, const char *data, size_t n)
{
    struct buf *seen = ctx;
    buf_printf(seen, "%s|", event);
    buf_add(seen, data, n);
    assert_int_equal(data[n], '\0');
    buf_char(seen, ';');
}

static bool parse(const char *s, const size_t *cuts, size_t n_cuts, struct buf *seen)
{
    struct sse p;
    sse_init(&p, 64, record, seen);
    buf_clear(seen);
    buf_add(seen, "", 0);
    size_t from = 0;
    for (size_t i = 0; i < n_cuts; i++) {
        sse_push(&p, s + from, cuts[i] - from);
        from = cuts[i];
    }
    bool is_broken = p.is_broken;
    sse_done(&p);
    return !is_broken;
}

static void expect(const char *s, size_t n, const char *want)
{
    struct buf seen;
    buf_init(&seen, SIZE_MAX);
    for (size_t i = 0; i <= n; i++) {
        for (size_t k = i; k <= n; k++) {
            assert_true(parse(s, (size_t[]){i, k, n}, 3, &seen));
            assert_string_equal(seen.data, want);
        }
    }
    size_t each[256];
    for (size_t i = 0; i < n; i++)
        each[i] = i + 1;
    assert_true(parse(s, each, n, &seen));
    assert_string_equal(seen.data, want);
    buf_done(&seen);
}

static void record_comment(void *ctx, const char *text, size_t n)
{
    struct buf *seen = ctx;
    assert_int_equal(text[n], '\0');
    buf_printf(seen, "[%s]", text);
}

static void comments_are_told_where_somebody_asks_for_them(void **state)
{
    (void)state;
    static const char in[] = ": loading b 43 %\n\ndata: a\n:\n: mid\r\ndata: b\n\n:cut";
    const size_t n = sizeof in - 1;
    for (size_t cut = 0; cut <= n; cut++) {
        struct buf seen;
        struct sse p;
        buf_init(&seen, 4096);
        sse_init(&p, 64, record, &seen);
        p.on_comment = record_comment;
        sse_push(&p, in, cut);
        sse_push(&p, in + cut, n - cut);
        assert_string_equal(seen.data, "[ loading b 43 %][][ mid]message|a\nb;");
        sse_done(&p);
        buf_done(&seen);
    }
}

static void events_are_the_same_for_every_split(void **state)
{
    (void)state;
    static const struct {
        const char *in, *want;
    } cases[] = {
        {"", ""},
        {"data: a\n\n", "message|a;"},
        {"data: a\r\rdata: b\r\n\r\ndata: c\n\n", "message|a;message|b;message|c;"},
        {"data: a\r\n\r\n\r\ndata: b\r\n\r\n", "message|a;message|b;"},
        {"event: x\r\ndata: a\r\ndata: b\r\n\r\n", "x|a\nb;"},
        {"event: x\rdata: a\rdata: b\r\r\n", "x|a\nb;"},
        {"event: x\ndata: {\"a\":1}\n\ndata: [DONE]\n\n", "x|{\"a\":1};message|[DONE];"},
        {"data: YHOO\ndata: +2\ndata: 10\n\n", "message|YHOO\n+2\n10;"},
        {": test stream\n\ndata: first event\nid: 1\n\ndata:second event\nid\n\ndata:  third "
         "event\n",
         "message|first event;message|second event;"},
        {"data\n\ndata\ndata\n\ndata:", "message|;message|\n;"},
        {"data:test\n\ndata: test\n\n", "message|test;message|test;"},
        {"event: gone\n\ndata: x\n\n", "message|x;"},
        {"event: a\nevent: b\ndata: x\n\n", "b|x;"},
        {"event:\ndata: x\n\n", "message|x;"},
        {"Data: x\ndatas: y\n data: z\n\n", ""},
        {"\xEF\xBB\xBF"
         "data: x\n\n\xEF\xBB\xBF"
         "data: y\n\n",
         "message|x;"},
        {"data: a:b: c\n\n", "message|a:b: c;"},
        {"event: cut\ndata: never ends\n", ""},
        {"retry: 10\ndata: h\xC3\xA9\n\n", "message|h\xC3\xA9;"},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++)
        expect(cases[i].in, strlen(cases[i].in), cases[i].want);
}

static void data_may_hold_nuls(void **state)
{
    (void)state;
    struct buf seen;
    buf_init(&seen, SIZE_MAX);
    assert_true(parse("data: a\0b\n\n", (size_t[]){11}, 1, &seen));
    assert_int_equal(seen.len, 12);
    assert_memory_equal(seen.data, "message|a\0b;", 12);
    buf_done(&seen);
}

static void a_line_or_event_over_the_ceiling_breaks_the_stream_for_good(void **state)
{
    (void)state;
    struct buf in, seen;
    buf_init(&in, SIZE_MAX);
    buf_init(&seen, SIZE_MAX);
    buf_printf(&in, "data: ok\n\ndata: %058d\n\n", 1); /* a line of 64: fits */
    assert_true(parse(in.data, &in.len, 1, &seen));
    buf_clear(&in);
    buf_printf(&in, "data: ok\n\ndata: %059d\n\ndata: late\n\n", 1);
    for (size_t cut = 0; cut <= in.len; cut++) {
        assert_false(parse(in.data, (size_t[]){cut, in.len}, 2, &seen));
        assert_string_equal(seen.data, "message|ok;");
    }
    buf_clear(&in);
    buf_printf(&in, "data: %032d\ndata: %032d\n\ndata: late\n\n", 1, 2); /* 65 bytes of data */
    for (size_t cut = 0; cut <= in.len; cut++) {
        assert_false(parse(in.data, (size_t[]){cut, in.len}, 2, &seen));
        assert_string_equal(seen.data, "");
    }
    buf_done(&in);
    buf_done(&seen);
}

static void what_is_written_is_read(void **state)
{
    (void)state;
    struct buf out;
    buf_init(&out, SIZE_MAX);
    sse_write(&out, NULL, "{\"a\": 1}", 8);
    sse_write(&out, "response.created", " x", 2);
    assert_string_equal(out.data, "data: {\"a\": 1}\n\nevent: response.created\ndata:  x\n\n");
    expect(out.data, out.len, "message|{\"a\": 1};response.created| x;");
    buf_done(&out);
}

static void without_memory_the_stream_is_broken(void **state)
{
    (void)state;
    bool came = true;
    for (int at = 0; came; at++) {
        struct buf seen;
        struct sse p;
        buf_init(&seen, SIZE_MAX);
        buf_reserve(&seen, 100);
        sse_init(&p, 1000, record, &seen);
        fault_memory(at);
        static const char text[] = "event: e\ndata: 1\ndata: 2\n\n";
        sse_push(&p, text, sizeof(text) - 1);
        came = fault_end();
        assert_int_equal(p.is_broken, came);
        assert_string_equal(seen.data, came ? "" : "e|1\n2;");
        sse_done(&p);
        buf_done(&seen);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(events_are_the_same_for_every_split),
        cmocka_unit_test(comments_are_told_where_somebody_asks_for_them),
        cmocka_unit_test(data_may_hold_nuls),
        cmocka_unit_test(a_line_or_event_over_the_ceiling_breaks_the_stream_for_good),
        cmocka_unit_test(what_is_written_is_read),
        cmocka_unit_test(without_memory_the_stream_is_broken),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
