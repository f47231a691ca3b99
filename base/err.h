/*
 * Errors. A function that can fail returns 0 or a negative ERR_* code and takes a last
 * `struct err *`, whose text is written once, where the cause is known: the name of the thing, its
 * value, the limit. Libraries return; programs log, once, at the top.
 */
#ifndef HEARTH_BASE_ERR_H
#define HEARTH_BASE_ERR_H

#include <stdarg.h>

enum {
    ERR_NOMEM = -1,       /* an allocation or a budget failed */
    ERR_IO = -2,          /* a system call failed; the text holds strerror */
    ERR_CORRUPT = -3,     /* data on disk is not what its format says */
    ERR_LIMIT = -4,       /* a value exceeds a limit of base or daemon/limits.h */
    ERR_BUSY = -5,        /* someone else holds it: lock, socket, database */
    ERR_NOTFOUND = -6,    /* no such thing, or another owner's */
    ERR_INVAL = -7,       /* the caller's input is wrong */
    ERR_CANCELED = -8,    /* the abort flag was seen */
    ERR_UNSUPPORTED = -9, /* known, not implemented: named in the text */
    ERR_FULL = -10,       /* no room on the disk, or in the quota; said by memory/ */
};

#define ERR_TEXT_BYTES 512

/* Always NUL-terminated and valid UTF-8 (err_set repairs bytes that came from input). */
struct err {
    int code;
    char text[ERR_TEXT_BYTES];
};

#define MUST_USE __attribute__((warn_unused_result))

/* Writes code and text into `e` (which may be NULL) and returns `code`. A cut ends in "...". */
int err_set(struct err *e, int code, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
int err_setv(struct err *e, int code, const char *fmt, va_list ap)
    __attribute__((format(printf, 3, 0)));

/* Like err_set(e, ERR_IO, …) with ": " and `errnum`'s text appended; ENOMEM gives ERR_NOMEM. */
int err_sys(struct err *e, int errnum, const char *fmt, ...) __attribute__((format(printf, 3, 4)));

/* Puts "prefix: " before the text already in `e`; returns e->code. */
int err_prefix(struct err *e, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* "nomem", "io", "corrupt" …: the code's name for logs and JSON. */
const char *err_name(int code);

#endif
