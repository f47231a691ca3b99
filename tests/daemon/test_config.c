/* Configuration: precedence, every kind of value, and errors that name what is wrong. */
#include "tests/base/testing.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/log.h"
#include "daemon/config.h"

static char dir[] = "/tmp/hearth-config-XXXXXX";
static char model[64], file[64];

static void write_file(const char *path, const char *text)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, text, strlen(text)), (ssize_t)strlen(text));
    close(fd);
}

/* args: ended by NULL. */
static int load(const char *const *args, struct config *c, struct err *e)
{
    char *argv[32] = {(char *)"hearthd"};
    int argc = 1;
    for (; args[argc - 1]; argc++)
        argv[argc] = (char *)args[argc - 1];
    *e = (struct err){0};
    return config_load(argc, argv, c, e);
}

#define LOAD(c, e, ...) load((const char *const[]){__VA_ARGS__, NULL}, c, e)

static void defaults_are_the_tables(void **state)
{
    (void)state;
    struct config c;
    struct err e;
    assert_int_equal(LOAD(&c, &e, "--model", model), CONFIG_RUN);
    assert_string_equal(c.model, model);
    assert_int_equal(c.parallel, 4);
    assert_int_equal(c.queue, 32);
    assert_int_equal(c.ctx, 0);
    assert_int_equal(c.threads, 0);
    assert_int_equal(c.socket_mode, 0600);
    assert_int_equal(c.use_cache, 1);
    assert_int_equal(c.kv_type, KV_F16);
    assert_int_equal(c.log_level, LOG_LEVEL_INFO);
    assert_int_equal(c.disk_reserve_bytes, 1u << 30);
    assert_int_equal(c.verify_every, 64);
    assert_true(c.memory_bytes > 0 && c.memory_bytes <= 4ull << 30);
    assert_string_equal(c.context, "auto");
    assert_int_equal(c.answer_reserve, 15);
    assert_null(c.listen);
    char wants[128];
    snprintf(wants, sizeof(wants), "%s/state/hearth", dir);
    assert_string_equal(c.state_dir, wants);
    snprintf(wants, sizeof(wants), "%s/state/hearth/hearth.sock", dir);
    assert_string_equal(c.socket_path, wants);
    config_done(&c);
}

static void flag_beats_file_beats_default(void **state)
{
    (void)state;
    struct config c;
    struct err e;
    write_file(file,
               "# a comment\n[hearthd]\nparallel = 2\nqueue = 7 ; said here\nsocket_mode = "
               "0660\nno-cache = yes\n"
               "  ctx = 512\nmemory=64M\nlog-level = debug\nkv-type = q8_0\ndisk-reserve = 2G\n");
    assert_int_equal(
        LOAD(&c, &e, "--config", file, "--model", model, "--queue", "9", "--state-dir", "/x/y"),
        CONFIG_RUN);
    assert_int_equal(c.parallel, 2);
    assert_int_equal(c.queue, 9);
    assert_int_equal(c.ctx, 512);
    assert_int_equal(c.socket_mode, 0660);
    assert_int_equal(c.use_cache, 0);
    assert_int_equal(c.memory_bytes, 64 << 20);
    assert_int_equal(c.kv_type, KV_Q8_0);
    assert_int_equal(c.log_level, LOG_LEVEL_DEBUG);
    assert_string_equal(c.socket_path, "/x/y/hearth.sock");
    config_done(&c);
}

static void bad_flags_are_named(void **state)
{
    (void)state;
    static const char *const bad[][4] = {
        {"--parallel", "0", "1 to 64"},
        {"--parallel", "65", "\"65\""},
        {"--queue", "many", "--queue"},
        {"--queue", "4x", "4096"},
        {"--ctx", "63", "64"},
        {"--ctx", "99999999999999999999", "1048576"},
        {"--threads", "-1", "--threads"},
        {"--memory", "lots", "512M"},
        {"--memory", "1M", "16 MiB"},
        {"--memory", "99999999T", "--memory"},
        {"--socket-mode", "0777", "0600"},
        {"--socket-mode", "0060", "0600"},
        {"--kv-type", "q4", "q8_0"},
        {"--context", "", "summarise"},
        {"--context", "nonsense", "nonsense"},
        {"--context", "Auto", "retrieve"},
        {"--summary", "me", "extract"},
        {"--answer-reserve", "51", "0 to 50"},
        {"--answer-reserve", "15%", "0 to 50"},
        {"--log-level", "loud", "debug"},
        {"--listen", "0.0.0.0:80", "loopback"},
        {"--listen", "127.0.0.1", "HOST:PORT"},
        {"--listen", "localhost:70000", "65535"},
        {"--listen", "localhost:8080", "api-key-file"},
        {"--cors-origin", "*", "origin"},
        {"--cors-origin", "http://a/b", "origin"},
        {"--embedding-model", "/nonexistent/e.gguf", "embedding model /nonexistent/e.gguf"},
        {"--embedding-model", "/tmp", "embedding model /tmp is no regular file"},
        {"--socket", "", "empty"},
        {"--nonsense", "x", "--nonsense"},
        {"stray", "--queue", "stray"},
        {"--config", "/nonexistent/x.conf", "/nonexistent/x.conf"},
        {"--model", "/nonexistent.gguf", "twice"},
    };
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        struct config c;
        struct err e;
        int rc = LOAD(&c, &e, "--model", model, bad[i][0], bad[i][1]);
        if (rc >= 0 || !strstr(e.text, bad[i][2]))
            fail_msg("%s %s: %d %s", bad[i][0], bad[i][1], rc, e.text);
    }
}

static void a_missing_value_or_model_is_named(void **state)
{
    (void)state;
    struct config c;
    struct err e;
    assert_true(LOAD(&c, &e, "--model") < 0);
    assert_non_null(strstr(e.text, "--model needs a value"));
    assert_true(LOAD(&c, &e, "--queue", "1") < 0);
    assert_non_null(strstr(e.text, "no model"));
    assert_true(LOAD(&c, &e, "--model", "/nonexistent.gguf") < 0);
    assert_non_null(strstr(e.text, "/nonexistent.gguf"));
    assert_true(LOAD(&c, &e, "--model", "/tmp") < 0);
    assert_non_null(strstr(e.text, "regular"));
    char path[200] = "/";
    memset(path + 1, 'x', 120);
    assert_int_equal(LOAD(&c, &e, "--model", model, "--socket", path), ERR_LIMIT);
    assert_non_null(strstr(e.text, "107"));
    assert_int_equal(LOAD(&c, &e, "--help"), CONFIG_HELP);
    assert_int_equal(LOAD(&c, &e, "--version"), CONFIG_VERSION);
}

static void bad_files_are_named_by_line(void **state)
{
    (void)state;
    static const char *const bad[][3] = {
        {"queue = 1\nqueues = 2\n", "line 2", "queues"},
        {"queue = 1\n\n# x\nqueue = 2\n", "line 4", "twice"},
        {"\nqueue = x\n", "line 2", "queue is \"x\""},
        {"[hearthd]\nqueue = 1\n[other]\nparallel = 1\n", "line 4", "[other]"},
        {"queue 1\n", "line 1", "name = value"},
        {"queue = 1\n[hearthd\n", "line 2", "name = value"},
        {"config = /x\n", "line 1", "config"},
        {"no-cache = perhaps\n", "line 1", "yes or no"},
        {"context = windows\n", "line 1", "prune"},
        {"QUEUE = 3\n", "line 1", "QUEUE"},
    };
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        struct config c;
        struct err e;
        write_file(file, bad[i][0]);
        int rc = LOAD(&c, &e, "--config", file, "--model", model);
        if (rc >= 0 || !strstr(e.text, bad[i][1]) || !strstr(e.text, bad[i][2]) ||
            !strstr(e.text, file))
            fail_msg("%s: %d %s", bad[i][0], rc, e.text);
    }
}

static void long_lines_and_binary_files_are_refused(void **state)
{
    (void)state;
    struct config c;
    struct err e;
    char *text = malloc(20001);
    assert_non_null(text);
    memset(text, 'x', 20000);
    memcpy(text, "queue = 1\nmodel = ", 18);
    text[20000] = '\0';
    write_file(file, text);
    assert_true(LOAD(&c, &e, "--config", file) < 0);
    assert_non_null(strstr(e.text, "line 2"));
    free(text);
    int fd = open(file, O_WRONLY | O_TRUNC);
    assert_int_equal(write(fd, "queue = 1\0\n", 11), 11);
    close(fd);
    assert_true(LOAD(&c, &e, "--config", file) < 0);
    assert_non_null(strstr(e.text, "NUL"));
}

static void sizes_have_binary_units(void **state)
{
    (void)state;
    uint64_t v = 0;
    static const struct {
        const char *s;
        uint64_t v;
    } good[] = {{"0", 0},           {"1024", 1024},     {"4k", 4096},       {"512M", 512u << 20},
                {"4G", 4ull << 30}, {"2T", 2ull << 40}, {"1GiB", 1u << 30}, {"1mb", 1u << 20}};
    for (size_t i = 0; i < ARRAY_LEN(good); i++) {
        assert_int_equal(config_size(good[i].s, &v), 0);
        assert_true(v == good[i].v);
    }
    static const char *const bad[] = {
        "",         "-1",  "G", "1.5G", "1X", "1Gx", " 1G", "1 G", "9223372036854775808",
        "8388608T", "0x10"};
    for (size_t i = 0; i < ARRAY_LEN(bad); i++)
        if (config_size(bad[i], &v) != ERR_INVAL)
            fail_msg("%s", bad[i]);
}

/* The template of a model after these flags; "" for none, "!" when they are refused (here.text). */
static const char *template_of(const char *id, bool is_default, int n, const char *const *values)
{
    static char text[256];
    const char *args[32] = {"--config", file, "--model", model};
    struct config c;
    struct err e;
    for (int i = 0; i < n; i++) {
        args[4 + 2 * i] = "--chat-template";
        args[5 + 2 * i] = values[i];
    }
    if (load(args, &c, &e) < 0) {
        snprintf(text, sizeof text, "!%.250s", e.text);
        return text;
    }
    const char *found = config_template_of(&c, id, is_default);
    snprintf(text, sizeof text, "%.250s", found ? found : "");
    config_done(&c);
    return text;
}

static void each_model_may_have_a_template(void **state)
{
    (void)state;
    write_file(file, "");
    static const char *const three[] = {"chatml", "a=gemma", "b.GGUF=phi3"};
    assert_string_equal(template_of("m", true, 3, three), "chatml");
    assert_string_equal(template_of("a", false, 3, three), "gemma");
    assert_string_equal(template_of("b", false, 3, three), "phi3");
    assert_string_equal(template_of("c", false, 3, three), "");
    static const char *const by_name[] = {"default=chatml", "m=gemma"};
    assert_string_equal(template_of("m", true, 1, by_name), "chatml");
    assert_string_equal(template_of("m", true, 2, by_name), "gemma"); /* it is meant by name */
    static const char *const twice[] = {"a=gemma", "a.gguf=phi3"};
    assert_non_null(strstr(template_of("a", false, 2, twice), "given twice for a"));
    static const char *const both[] = {"gemma", "default=phi3"};
    assert_non_null(strstr(template_of("m", true, 2, both), "given twice for the default model"));
    static const char *const empty[] = {"a="};
    assert_non_null(strstr(template_of("a", false, 1, empty), "FILE or NAME is missing"));
    static const char *const absent[] = {"a=/no/such/file=x"};
    assert_non_null(strstr(template_of("a", false, 1, absent), "/no/such/file=x"));
    const char *const slash[] = {model}; /* a path is never MODEL= */
    assert_string_equal(template_of("m", true, 1, slash), model);
}

static void a_flag_s_template_wins_over_the_file_s(void **state)
{
    (void)state;
    static const char *const flag[] = {"a=phi3"};
    write_file(file, "chat-template = chatml\nchat-template = a=gemma\nchat_template = b=zephyr\n");
    assert_string_equal(template_of("a", false, 1, flag), "phi3");
    assert_string_equal(template_of("b", false, 1, flag), "zephyr");
    assert_string_equal(template_of("m", true, 1, flag), "chatml");
    write_file(file, "chat-template = a=gemma\nchat-template = a=phi3\n");
    assert_non_null(strstr(template_of("a", false, 0, NULL), "line 2"));
    unlink(file);
}

static void every_option_is_in_the_help(void **state)
{
    (void)state;
    static const char *const names[] = {
        "config",      "model",        "socket",   "listen",    "api-key-file",    "state-dir",
        "cache-dir",   "ctx",          "parallel", "queue",     "threads",         "isa",
        "memory",      "disk",         "kv-type",  "context",   "embedding-model", "chat-template",
        "socket-mode", "disk-reserve", "no-cache", "log-level", "cors-origin",     "verify-every",
        "summary",     "serve",        "resident", "idle-unload", "load-wait",     "unknown-model",
        "speculation", "tokenizer-nfc", "answer-reserve"};
    struct buf b;
    buf_init(&b, 1 << 16);
    config_help(&b);
    for (size_t i = 0; i < ARRAY_LEN(names); i++) {
        char flag[40];
        snprintf(flag, sizeof(flag), "  --%s ", names[i]);
        if (!strstr(b.data, flag))
            fail_msg("%s", names[i]);
    }
    buf_done(&b);
}

static int set_up(void **state)
{
    (void)state;
    if (!mkdtemp(dir))
        return -1;
    char path[64];
    snprintf(model, sizeof(model), "%s/m.gguf", dir);
    snprintf(file, sizeof(file), "%s/hearth.conf", dir);
    write_file(model, "GGUF");
    static const char *const off[] = {"STATE_DIRECTORY", "CACHE_DIRECTORY", "RUNTIME_DIRECTORY",
                                      "XDG_RUNTIME_DIR"};
    for (size_t i = 0; i < ARRAY_LEN(off); i++)
        unsetenv(off[i]);
    snprintf(path, sizeof(path), "%s/state", dir);
    setenv("XDG_STATE_HOME", path, 1);
    setenv("XDG_CACHE_HOME", path, 1);
    setenv("XDG_CONFIG_HOME", dir, 1);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    unlink(model);
    unlink(file);
    return rmdir(dir);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(defaults_are_the_tables),
        cmocka_unit_test(flag_beats_file_beats_default),
        cmocka_unit_test(bad_flags_are_named),
        cmocka_unit_test(a_missing_value_or_model_is_named),
        cmocka_unit_test(bad_files_are_named_by_line),
        cmocka_unit_test(long_lines_and_binary_files_are_refused),
        cmocka_unit_test(sizes_have_binary_units),
        cmocka_unit_test(each_model_may_have_a_template),
        cmocka_unit_test(a_flag_s_template_wins_over_the_file_s),
        cmocka_unit_test(every_option_is_in_the_help),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
