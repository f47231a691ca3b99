/*
 * Error texts. Whatever bytes come in (file names, a client's field names), what stands in `text`
 * is valid UTF-8, also after a cut: it ends up in JSON, in the journal and on terminals.
 */
#include "base/err.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "base/utf8.h"

/* Formatted twice as long as it is kept, so that a cut is seen as one. */
#define RAW_BYTES ((size_t)2 * ERR_TEXT_BYTES)
#define CUT_MARK "..."
#define CUT_BYTES (sizeof(CUT_MARK) - 1)

/* Copies raw[0, n) repaired into text; where it doesn't fit, cuts between characters and marks the
 * cut. */
static void keep(char text[ERR_TEXT_BYTES], const char *raw, size_t n, bool is_cut)
{
    size_t len = 0, len_for_mark = 0;
    for (size_t i = 0; i < n;) {
        bool ok;
        size_t step = utf8_step(raw + i, n - i, &ok);
        size_t add = ok ? step : 3;
        if (len + add > ERR_TEXT_BYTES - 1) {
            is_cut = true;
            break;
        }
        memcpy(text + len, ok ? raw + i : "\xEF\xBF\xBD", add);
        len += add;
        i += step;
        if (len + CUT_BYTES <= ERR_TEXT_BYTES - 1)
            len_for_mark = len;
    }
    if (is_cut) {
        memcpy(text + len_for_mark, CUT_MARK, CUT_BYTES);
        len = len_for_mark + CUT_BYTES;
    }
    text[len] = '\0';
}

/* raw[0, n): n is what vsnprintf returned, which may be more than the array or negative. */
static void keep_formatted(struct err *e, const char raw[RAW_BYTES], int n)
{
    if (n < 0) {
        keep(e->text, "(unprintable)", strlen("(unprintable)"), false);
        return;
    }
    bool is_cut = (size_t)n >= RAW_BYTES;
    /* Half a character at the end of raw is far behind what is kept. */
    keep(e->text, raw, is_cut ? RAW_BYTES - 1 : (size_t)n, is_cut);
}

int err_setv(struct err *e, int code, const char *fmt, va_list ap)
{
    if (!e)
        return code;
    char raw[RAW_BYTES]; /* not e->text: the arguments may point into it */
    int n = vsnprintf(raw, sizeof(raw), fmt, ap);
    e->code = code;
    keep_formatted(e, raw, n);
    return code;
}

int err_set(struct err *e, int code, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    err_setv(e, code, fmt, ap);
    va_end(ap);
    return code;
}

int err_sys(struct err *e, int errnum, const char *fmt, ...)
{
    int code = errnum == ENOMEM ? ERR_NOMEM : ERR_IO;
    if (!e)
        return code;
    struct err what;
    va_list ap;
    va_start(ap, fmt);
    err_setv(&what, code, fmt, ap);
    va_end(ap);
    char why[128];
    return err_set(e, code, "%s: %s", what.text, strerror_r(errnum, why, sizeof(why)));
}

int err_prefix(struct err *e, const char *fmt, ...)
{
    if (!e)
        return 0;
    struct err prefix;
    va_list ap;
    va_start(ap, fmt);
    err_setv(&prefix, e->code, fmt, ap);
    va_end(ap);
    return err_set(e, e->code, "%s: %s", prefix.text, e->text);
}

const char *err_name(int code)
{
    switch (code) {
    case 0:
        return "ok";
    case ERR_NOMEM:
        return "nomem";
    case ERR_IO:
        return "io";
    case ERR_CORRUPT:
        return "corrupt";
    case ERR_LIMIT:
        return "limit";
    case ERR_BUSY:
        return "busy";
    case ERR_NOTFOUND:
        return "notfound";
    case ERR_INVAL:
        return "inval";
    case ERR_CANCELED:
        return "canceled";
    case ERR_UNSUPPORTED:
        return "unsupported";
    case ERR_FULL:
        return "full";
    default:
        return "unknown";
    }
}
