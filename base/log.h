/*
 * The program's log: lines on stderr, "level: text", or with a systemd priority prefix when stderr
 * is the journal (JOURNAL_STREAM set). Thread-safe, one write(2) a line. Libraries do not log
 * except where a fault is absorbed on purpose (a bad cache file is a miss, logged once).
 */
#ifndef HEARTH_BASE_LOG_H
#define HEARTH_BASE_LOG_H

enum log_level { LOG_LEVEL_ERROR, LOG_LEVEL_WARN, LOG_LEVEL_INFO, LOG_LEVEL_DEBUG };

void log_init(enum log_level level);
/* "error" | "warn" | "info" | "debug" → level; -1 when it is none of them. */
int log_level_parse(const char *name);

void log_error(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
void log_warn(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
void log_info(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
void log_debug(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

/*
 * A rate limit for one call site: at most `burst` lines a minute, then one line that counts what
 * was held back.
 *     static struct log_limit lim = {.burst = 5};
 *     if (log_allowed(&lim))
 *         log_warn(...);
 */
struct log_limit {
    int burst;
    _Atomic long long window_ms;
    _Atomic int n_in_window, n_held_back;
};
int log_allowed(struct log_limit *lim);

#endif
