/* See pressure.h. */
#include "daemon/pressure.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/log.h"
#include "daemon/limits.h"

#define FILE_BYTES 65536

/* avg10 halves in seven seconds when nobody waits any more: less of a fall is no relief. */
#define STILL_RISING 0.9

int pressure_parse(const char *text, size_t n, double *ret, struct err *e)
{
    static const char key[] = "some avg10=";
    char digits[32];
    size_t n_digits = 0;
    char *end = NULL;
    if (n < sizeof key - 1 || memcmp(text, key, sizeof key - 1) != 0)
        return err_set(e, ERR_INVAL, "no line \"%s…\" of memory pressure", key);
    for (const char *p = text + sizeof key - 1; p < text + n && n_digits < sizeof digits - 1; p++) {
        if (*p != '.' && (*p < '0' || *p > '9'))
            break;
        digits[n_digits++] = *p;
    }
    digits[n_digits] = '\0';
    const double v = strtod(digits, &end);
    if (n_digits == 0 || *end || v > 100)
        return err_set(e, ERR_INVAL, "\"%s%s\" is no percentage", key, digits);
    *ret = v;
    return 0;
}

enum pressure_level pressure_judge(double before, double now)
{
    if (now <= PRESSURE_SOME_PERCENT)
        return PRESSURE_LOW;
    return now < before * STILL_RISING ? PRESSURE_EASING : PRESSURE_HIGH;
}

void pressure_find(const char *proc_self_cgroup, const char *sys_root, const char *fallback,
                   char ret[PRESSURE_PATH_BYTES])
{
    for (const char *line = proc_self_cgroup; *line;) {
        const size_t n = strcspn(line, "\n");
        if (n > 3 && memcmp(line, "0::", 3) == 0) {
            const bool is_root = n == 4; /* "0::/" */
            const int len = snprintf(ret, PRESSURE_PATH_BYTES, "%s%.*s/memory.pressure", sys_root,
                                     is_root ? 0 : (int)(n - 3), line + 3);
            if (len > 0 && len < PRESSURE_PATH_BYTES && access(ret, R_OK) == 0)
                return;
        }
        line += n + (line[n] == '\n');
    }
    snprintf(ret, PRESSURE_PATH_BYTES, "%s", access(fallback, R_OK) == 0 ? fallback : "");
}

void pressure_init(struct pressure *p, const char *path)
{
    struct buf text;
    *p = (struct pressure){.avg10 = 0};
    if (path) {
        snprintf(p->path, sizeof p->path, "%s", path);
        return;
    }
    buf_init(&text, FILE_BYTES);
    const int rc = file_read("/proc/self/cgroup", &text, NULL);
    pressure_find(rc == 0 && text.data ? text.data : "", "/sys/fs/cgroup", "/proc/pressure/memory",
                  p->path);
    buf_done(&text);
    log_debug("memory pressure is read from %s", p->path[0] ? p->path : "nowhere");
}

int pressure_due_ms(const struct pressure *p, const struct cache *c)
{
    if (!p->path[0] || !cache_has_to_give(c))
        return -1;
    const int64_t left_us = p->due_us - clock_us();
    return left_us > 0 ? (int)(left_us / 1000) + 1 : 0;
}

/* What can't be read isn't asked again: no pressure is known then. */
static int read_avg10(struct pressure *p, double *ret)
{
    struct buf text;
    struct err e;
    buf_init(&text, FILE_BYTES);
    int rc = file_read(p->path, &text, &e);
    if (rc == 0)
        rc = pressure_parse(text.data ? text.data : "", text.len, ret, &e);
    buf_done(&text);
    if (rc) {
        log_warn("memory pressure isn't seen in this run: %s: %s", p->path, e.text);
        p->path[0] = '\0';
    }
    return rc;
}

static void give(struct pressure *p, struct cache *c, struct counters *n)
{
    struct cache_given given;
    struct cache_stats s;
    cache_shrink(c, PRESSURE_GIVE_DIVISOR, &given);
    atomic_fetch_add(&n->pressure_given, 1);
    atomic_fetch_add(&n->pressure_blocks, given.n_blocks);
    atomic_fetch_add(&n->pressure_bytes, given.bytes);
    cache_stats(c, &s);
    if (!p->is_squeezed)
        log_warn("memory is short (somebody waited for it %.0f %% of the last 10 s): the cache "
                 "gives up %zu blocks, %.1f MiB; as long as this lasts it goes on, and has %.1f "
                 "MiB",
                 p->avg10, given.n_blocks, (double)given.bytes / (1 << 20),
                 (double)s.bytes_cached / (1 << 20));
    p->is_squeezed = true;
}

void pressure_tend(struct pressure *p, struct cache *c, struct counters *n)
{
    double now = 0;
    if (pressure_due_ms(p, c) != 0 || read_avg10(p, &now))
        return;
    const enum pressure_level level = pressure_judge(p->avg10, now);
    p->avg10 = now;
    p->due_us = clock_us() + (int64_t)PRESSURE_MS * 1000;
    atomic_store(&n->pressure_percent_100, (uint64_t)(now * 100 + 0.5));
    if (level == PRESSURE_HIGH) {
        give(p, c, n);
    } else if (level == PRESSURE_LOW && p->is_squeezed && cache_regrow(c, PRESSURE_GROW_DIVISOR)) {
        p->is_squeezed = false;
        log_info("memory isn't short any more: the cache may use all of its budget again");
    }
}
