/*
 * The log. A line is composed on the stack and leaves in one write(2), so that threads' lines don't
 * mix and no lock is needed. Texts may hold what a client sent: control characters become spaces
 * (one call, one line, no terminal escapes), and bytes that aren't UTF-8 become U+FFFD.
 */
#include "base/log.h"

#include <errno.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/utf8.h"

#define LINE_BYTES 2048
#define WINDOW_MS 60000

static _Atomic int max_level = LOG_LEVEL_INFO;
static atomic_bool is_journal;

static const struct {
    const char *name;
    int priority; /* sd-daemon(3) */
} levels[] = {
    [LOG_LEVEL_ERROR] = {"error", 3},
    [LOG_LEVEL_WARN] = {"warn", 4},
    [LOG_LEVEL_INFO] = {"info", 6},
    [LOG_LEVEL_DEBUG] = {"debug", 7},
};

/* JOURNAL_STREAM is "device:inode" of the journal's stream: children inherit the variable, but not
 * always the stream. */
static bool stderr_is_journal(void)
{
    const char *stream = getenv("JOURNAL_STREAM");
    if (!stream)
        return false;
    struct stat st;
    if (fstat(STDERR_FILENO, &st) < 0)
        return false;
    char own[64];
    snprintf(own, sizeof(own), "%llu:%llu", (unsigned long long)st.st_dev,
             (unsigned long long)st.st_ino);
    return strcmp(own, stream) == 0;
}

void log_init(enum log_level level)
{
    atomic_store(&max_level, (int)level);
    atomic_store(&is_journal, stderr_is_journal());
}

int log_level_parse(const char *name)
{
    for (size_t i = 0; i < sizeof(levels) / sizeof(levels[0]); i++)
        if (strcmp(name, levels[i].name) == 0)
            return (int)i;
    return -1;
}

/* Copies text[0, n) made harmless to line[at, LINE_BYTES - 4); returns the new length. 4: "..." and
 * the newline. */
static size_t put_text(char line[LINE_BYTES], size_t at, const char *text, size_t n, bool is_cut)
{
    for (size_t i = 0; i < n;) {
        bool ok;
        size_t step = utf8_step(text + i, n - i, &ok);
        size_t add = ok ? step : 3;
        if (at + add > LINE_BYTES - 4) {
            is_cut = true;
            break;
        }
        memcpy(line + at, ok ? text + i : "\xEF\xBF\xBD", add);
        if (add == 1 && ((unsigned char)line[at] < 0x20 || line[at] == 0x7f))
            line[at] = ' ';
        at += add;
        i += step;
    }
    if (is_cut) {
        memcpy(line + at, "...", 3);
        at += 3;
    }
    return at;
}

static void write_line(enum log_level level, const char *fmt, va_list ap)
{
    if ((int)level > atomic_load(&max_level))
        return;
    int saved_errno = errno;
    char text[LINE_BYTES], line[LINE_BYTES];
    int n = vsnprintf(text, sizeof(text), fmt, ap);
    bool is_cut = n >= (int)sizeof(text);
    size_t len = n < 0 ? 0 : is_cut ? utf8_complete(text, sizeof(text) - 1) : (size_t)n;

    int at = atomic_load(&is_journal) ? snprintf(line, sizeof(line), "<%d>", levels[level].priority)
                                      : snprintf(line, sizeof(line), "%s: ", levels[level].name);
    size_t total = put_text(line, (size_t)at, text, len, is_cut);
    line[total++] = '\n';
    /* A log that can't be written has nowhere to be reported. */
    ssize_t done;
    do
        done = write(STDERR_FILENO, line, total);
    while (done < 0 && errno == EINTR);
    errno = saved_errno;
}

#define LOG_CALL(name, level)                                                                      \
    void name(const char *fmt, ...)                                                                \
    {                                                                                              \
        va_list ap;                                                                                \
        va_start(ap, fmt);                                                                         \
        write_line(level, fmt, ap);                                                                \
        va_end(ap);                                                                                \
    }

LOG_CALL(log_error, LOG_LEVEL_ERROR)
LOG_CALL(log_warn, LOG_LEVEL_WARN)
LOG_CALL(log_info, LOG_LEVEL_INFO)
LOG_CALL(log_debug, LOG_LEVEL_DEBUG)

int log_allowed(struct log_limit *lim)
{
    long long now = clock_ms() + 1; /* never 0, which says "no window yet" */
    long long start = atomic_load(&lim->window_ms);
    bool is_over = start == 0 || now - start >= WINDOW_MS;
    /* Of several threads that see the window end, one opens the next. */
    if (is_over && atomic_compare_exchange_strong(&lim->window_ms, &start, now)) {
        atomic_store(&lim->n_in_window, 0);
        int n = atomic_exchange(&lim->n_held_back, 0);
        if (n > 0)
            log_warn("%d more lines like the next were held back in the last minute", n);
    }
    if (atomic_fetch_add(&lim->n_in_window, 1) < lim->burst)
        return 1;
    atomic_fetch_add(&lim->n_held_back, 1);
    return 0;
}
