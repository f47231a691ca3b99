/* The log, read through a datagram socket in the place of stderr: one datagram is one write. */
#include "tests/base/testing.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/log.h"
#include "base/utf8.h"

static int own_stderr, reader;

static int redirect(void **state)
{
    (void)state;
    int pair[2];
    assert_int_equal(socketpair(AF_UNIX, SOCK_DGRAM | SOCK_NONBLOCK, 0, pair), 0);
    own_stderr = dup(STDERR_FILENO);
    assert_int_equal(dup2(pair[1], STDERR_FILENO), STDERR_FILENO);
    close(pair[1]);
    reader = pair[0];
    unsetenv("JOURNAL_STREAM");
    log_init(LOG_LEVEL_INFO);
    return 0;
}

static int restore(void **state)
{
    (void)state;
    dup2(own_stderr, STDERR_FILENO);
    close(own_stderr);
    close(reader);
    return 0;
}

/* The next write to stderr, or "" when there was none. */
static const char *next_write(void)
{
    static char line[8192];
    ssize_t n = recv(reader, line, sizeof(line) - 1, 0);
    line[n > 0 ? n : 0] = '\0';
    return line;
}

static void a_line_is_one_write_with_its_level(void **state)
{
    (void)state;
    log_error("no %s", "model");
    log_warn("w");
    log_info("i");
    assert_string_equal(next_write(), "error: no model\n");
    assert_string_equal(next_write(), "warn: w\n");
    assert_string_equal(next_write(), "info: i\n");
    assert_string_equal(next_write(), "");
}

static void lines_below_the_level_are_dropped(void **state)
{
    (void)state;
    log_debug("d");
    assert_string_equal(next_write(), "");
    log_init(LOG_LEVEL_DEBUG);
    log_debug("d");
    assert_string_equal(next_write(), "debug: d\n");
    log_init(LOG_LEVEL_ERROR);
    log_warn("w");
    assert_string_equal(next_write(), "");
}

static void the_journal_gets_priorities_only_when_stderr_is_its_stream(void **state)
{
    (void)state;
    struct stat st;
    char stream[64];
    assert_int_equal(fstat(STDERR_FILENO, &st), 0);
    snprintf(stream, sizeof(stream), "%llu:%llu", (unsigned long long)st.st_dev,
             (unsigned long long)st.st_ino);
    setenv("JOURNAL_STREAM", stream, 1);
    log_init(LOG_LEVEL_DEBUG);
    log_error("e");
    log_warn("w");
    log_info("i");
    log_debug("d");
    assert_string_equal(next_write(), "<3>e\n");
    assert_string_equal(next_write(), "<4>w\n");
    assert_string_equal(next_write(), "<6>i\n");
    assert_string_equal(next_write(), "<7>d\n");
    setenv("JOURNAL_STREAM", "1:1", 1); /* inherited, but stderr goes elsewhere */
    log_init(LOG_LEVEL_INFO);
    log_info("i");
    assert_string_equal(next_write(), "info: i\n");
}

static void input_can_not_forge_lines_or_break_utf8(void **state)
{
    (void)state;
    log_info("%s", "a\nerror: b\r\x1b[31m\xFF\xC3\xA9\t\x7f.");
    assert_string_equal(next_write(), "info: a error: b  [31m\xEF\xBF\xBD\xC3\xA9  .\n");
}

static void a_long_line_is_cut_whole_and_marked(void **state)
{
    (void)state;
    char text[6000];
    for (size_t n = 1950; n < 2100; n++) {
        for (size_t i = 0; i + 1 < n; i += 2)
            memcpy(text + i, "\xC3\xA9", 2);
        text[n & ~(size_t)1] = '\0';
        log_info("%s", text);
        const char *line = next_write();
        size_t len = strlen(line);
        assert_true(len <= 2048 && len > 1900);
        assert_true(utf8_valid(line, len, NULL));
        assert_int_equal(line[len - 1], '\n');
        if (n > 2048)
            assert_memory_equal(line + len - 4, "...\n", 4);
    }
}

static void the_log_keeps_errno(void **state)
{
    (void)state;
    int full = open("/dev/full", O_WRONLY);
    assert_true(full >= 0);
    dup2(full, STDERR_FILENO);
    close(full);
    errno = EPROTO;
    log_info("lost");
    assert_int_equal(errno, EPROTO);
}

static void levels_parse_by_their_exact_names(void **state)
{
    (void)state;
    assert_int_equal(log_level_parse("error"), LOG_LEVEL_ERROR);
    assert_int_equal(log_level_parse("warn"), LOG_LEVEL_WARN);
    assert_int_equal(log_level_parse("info"), LOG_LEVEL_INFO);
    assert_int_equal(log_level_parse("debug"), LOG_LEVEL_DEBUG);
    assert_int_equal(log_level_parse("INFO"), -1);
    assert_int_equal(log_level_parse("information"), -1);
    assert_int_equal(log_level_parse(""), -1);
}

static void a_call_site_is_limited_and_what_was_held_back_is_counted(void **state)
{
    (void)state;
    static struct log_limit lim = {.burst = 3};
    int n = 0;
    for (int i = 0; i < 10; i++)
        n += log_allowed(&lim);
    assert_int_equal(n, 3);
    assert_string_equal(next_write(), "");
    lim.window_ms -= 60000; /* a minute passes */
    assert_true(log_allowed(&lim));
    assert_string_equal(next_write(),
                        "warn: 7 more lines like the next were held back in the last minute\n");
    lim.window_ms -= 60000;
    assert_true(log_allowed(&lim));
    assert_string_equal(next_write(), "");
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, redirect, restore)
    const struct CMUnitTest tests[] = {
        TEST(a_line_is_one_write_with_its_level),
        TEST(lines_below_the_level_are_dropped),
        TEST(the_journal_gets_priorities_only_when_stderr_is_its_stream),
        TEST(input_can_not_forge_lines_or_break_utf8),
        TEST(a_long_line_is_cut_whole_and_marked),
        TEST(the_log_keeps_errno),
        TEST(levels_parse_by_their_exact_names),
        TEST(a_call_site_is_limited_and_what_was_held_back_is_counted),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
