/*
 * The buffer with a ceiling: grows by doubling, one byte ahead for the NUL. A write that doesn't
 * fit adds nothing at all.
 */
#include "base/buf.h"

#include <assert.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/sys.h"

#define FIRST_BYTES 64

void buf_init(struct buf *b, size_t max_bytes)
{
    /* A quarter of the address space: no sum of two lengths below wraps. */
    size_t most = SIZE_MAX / 4;
    *b = (struct buf){.max = max_bytes < most ? max_bytes : most};
}

void buf_done(struct buf *b)
{
    if (!b)
        return;
    free(b->data);
    b->data = NULL;
    b->len = b->cap = 0;
    b->error = 0;
}

void buf_clear(struct buf *b)
{
    b->len = 0;
    b->error = 0;
    if (b->data)
        b->data[0] = '\0';
}

/* Room for n more bytes and the NUL. false: the error sticks. */
static bool grow(struct buf *b, size_t n)
{
    if (b->error)
        return false;
    if (n > b->max - b->len) {
        b->error = ERR_LIMIT;
        return false;
    }
    size_t need = b->len + n + 1;
    if (need <= b->cap)
        return true;
    size_t cap = b->cap ? b->cap * 2 : FIRST_BYTES;
    if (cap > b->max + 1)
        cap = b->max + 1;
    if (cap < need)
        cap = need;
    char *data = sys.realloc(b->data, cap);
    if (!data) {
        b->error = ERR_NOMEM;
        return false;
    }
    b->data = data;
    b->cap = cap;
    b->data[b->len] = '\0';
    return true;
}

void buf_add(struct buf *b, const void *data, size_t n)
{
    if (!grow(b, n))
        return;
    if (n > 0)
        memcpy(b->data + b->len, data, n);
    b->len += n;
    b->data[b->len] = '\0';
}

void buf_str(struct buf *b, const char *s)
{
    buf_add(b, s, strlen(s));
}

void buf_char(struct buf *b, char c)
{
    buf_add(b, &c, 1);
}

void buf_printf(struct buf *b, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    int n = vsnprintf(NULL, 0, fmt, ap);
    va_end(ap);
    if (n < 0) {
        if (!b->error)
            b->error = ERR_LIMIT; /* more than INT_MAX bytes */
        return;
    }
    if (!grow(b, (size_t)n))
        return;
    va_start(ap, fmt);
    vsnprintf(b->data + b->len, (size_t)n + 1, fmt, ap);
    va_end(ap);
    b->len += (size_t)n;
}

void buf_consume(struct buf *b, size_t n)
{
    assert(n <= b->len);
    if (n == 0)
        return;
    b->len -= n;
    memmove(b->data, b->data + n, b->len);
    b->data[b->len] = '\0';
}

char *buf_reserve(struct buf *b, size_t n)
{
    if (!grow(b, n))
        return NULL;
    /* Zeroed, so that the NUL is there however much of the room the caller uses. */
    memset(b->data + b->len, 0, n + 1);
    return b->data + b->len;
}

int buf_error(const struct buf *b)
{
    return b->error;
}

char *buf_take(struct buf *b, size_t *ret_len)
{
    char *data = NULL;
    if (grow(b, 0)) {
        data = b->data;
        if (ret_len)
            *ret_len = b->len;
        b->data = NULL;
    }
    size_t max = b->max;
    buf_done(b);
    buf_init(b, max);
    return data;
}
