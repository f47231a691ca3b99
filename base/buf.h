/*
 * A byte buffer with a ceiling. The first failure sticks: later writes do nothing, and buf_error
 * tells which it was, so that a writer checks once, at the end. The bytes are always followed by a
 * NUL that is not counted; the content may hold NULs itself.
 */
#ifndef HEARTH_BASE_BUF_H
#define HEARTH_BASE_BUF_H

#include <stddef.h>
#include <stdint.h>
#include <stdarg.h>

#include "base/err.h"

struct buf {
    char *data; /* never NULL after the first write; NUL-terminated */
    size_t len;
    size_t cap;
    size_t max; /* ceiling of len, in bytes */
    int error;  /* 0, ERR_NOMEM or ERR_LIMIT */
};

/* In place; allocates nothing. */
void buf_init(struct buf *b, size_t max_bytes);
void buf_done(struct buf *b);
/* len = 0 and error = 0; keeps the allocation. */
void buf_clear(struct buf *b);

void buf_add(struct buf *b, const void *data, size_t n);
void buf_str(struct buf *b, const char *s);
void buf_char(struct buf *b, char c);
void buf_printf(struct buf *b, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* Removes the first n bytes. */
void buf_consume(struct buf *b, size_t n);
/* Room for n more bytes at data + len; NULL on failure. The caller then adds to len itself. */
char *buf_reserve(struct buf *b, size_t n);
/* 0 or the sticky error. */
int buf_error(const struct buf *b) MUST_USE;
/* The bytes (NUL-terminated, caller frees with free()), or NULL after an error. Leaves the buffer
 * empty. */
char *buf_take(struct buf *b, size_t *ret_len);

#endif
