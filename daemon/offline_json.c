/*
 * JSON lines with NULs: the escape is replaced before parsing, the stand-in after it (see the
 * header).
 */
#include "daemon/offline_json.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/buf.h"
#include "base/utf8.h"

#define NUL_ESCAPE "\\u0000"
#define NUL_ESCAPE_BYTES 6
/* Stand-ins are looked for from here on: private use, and never a real text's only choice. */
#define STAND_IN_FIRST 0xF0000u
#define STAND_IN_LAST 0xFFFFDu
#define LINE_BYTES_MAX ((size_t)64 << 20)

/* Writes the JSON escape of a code point above U+FFFF. */
static void surrogates(uint32_t cp, char ret[13])
{
    static const char digits[] = "0123456789abcdef";
    uint32_t half[2] = {0xD800 + ((cp - 0x10000) >> 10), 0xDC00 + ((cp - 0x10000) & 0x3FF)};
    for (int i = 0; i < 2; i++) {
        ret[6 * i] = '\\';
        ret[6 * i + 1] = 'u';
        for (int d = 0; d < 4; d++)
            ret[6 * i + 2 + d] = digits[half[i] >> (12 - 4 * d) & 15];
    }
    ret[12] = 0;
}

static bool has_escape(const char *line, size_t n, const char *escape)
{
    for (size_t i = 0; i + 12 <= n; i++)
        if (line[i] == '\\' && strncasecmp(line + i, escape, 12) == 0)
            return true;
    return false;
}

/* A character that occurs in the line neither as bytes nor escaped. */
static bool choose(const char *line, size_t n, char ret[5])
{
    for (uint32_t cp = STAND_IN_FIRST; cp <= STAND_IN_LAST; cp++) {
        char escape[13];
        ret[utf8_put(ret, cp)] = 0;
        surrogates(cp, escape);
        if (!memmem(line, n, ret, 4) && !has_escape(line, n, escape))
            return true;
    }
    return false;
}

/* Copies the line with each \u0000 (whose backslash isn't itself escaped) replaced. */
static void replace_nuls(const char *line, size_t n, const char *stand_in, struct buf *to)
{
    size_t from = 0;
    for (size_t i = 0; i < n; i++) {
        if (line[i] != '\\')
            continue;
        if (n - i >= NUL_ESCAPE_BYTES && memcmp(line + i, NUL_ESCAPE, NUL_ESCAPE_BYTES) == 0) {
            buf_add(to, line + from, i - from);
            buf_str(to, stand_in);
            from = i + NUL_ESCAPE_BYTES;
            i = from - 1;
        } else {
            i++; /* whatever it escapes */
        }
    }
    buf_add(to, line + from, n - from);
}

int offline_parse(const char *line, size_t n, struct offline_line *ret, struct err *e)
{
    struct offline_line l = {0};
    struct buf b;
    int rc = 0;
    if (!memmem(line, n, NUL_ESCAPE, NUL_ESCAPE_BYTES)) {
        rc = json_parse(line, n, &l.root, e);
    } else if (!choose(line, n, l.stand_in)) {
        rc = err_set(e, ERR_LIMIT, "the line uses all private characters and a NUL");
    } else {
        buf_init(&b, LINE_BYTES_MAX);
        replace_nuls(line, n, l.stand_in, &b);
        rc = buf_error(&b);
        rc = rc < 0 ? err_set(e, rc, "a line of %zu bytes with NULs", n)
                    : json_parse(b.data, b.len, &l.root, e);
        buf_done(&b);
    }
    if (rc == 0)
        *ret = l;
    return rc;
}

void offline_done(struct offline_line *l)
{
    json_free(l->root);
    l->root = NULL;
}

char *offline_str(const struct offline_line *l, const json *string, size_t *ret_n)
{
    const char *s = json_str(string);
    size_t n = s ? strlen(s) : 0, out = 0;
    char *copy = s ? malloc(n + 1) : NULL;
    if (!copy)
        return NULL;
    for (size_t i = 0; i < n; i++) {
        bool is_nul = l->stand_in[0] && n - i >= 4 && memcmp(s + i, l->stand_in, 4) == 0;
        copy[out++] = is_nul ? 0 : s[i];
        i += is_nul ? 3 : 0;
    }
    copy[out] = 0;
    *ret_n = out;
    return copy;
}
