/*
 * A text while values are recognised in it: single characters and short strings at a place, never
 * read past its end. Private to values*.c.
 */
#ifndef HEARTH_MEMORY_VALUES_TEXT_H
#define HEARTH_MEMORY_VALUES_TEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <string.h>

#include "memory/sentence.h"
#include "memory/values.h"

struct text {
    const char *s;
    size_t n;
};

static inline bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

static inline bool is_letter(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

static inline bool is_alnum(char c)
{
    return is_digit(c) || is_letter(c);
}

static inline char at(struct text t, size_t i)
{
    return i < t.n ? t.s[i] : 0;
}

/* NUL is in no set. */
static inline bool is_in(const char *set, char c)
{
    return c && strchr(set, c);
}

static inline size_t digits(struct text t, size_t i)
{
    size_t n = 0;
    while (is_digit(at(t, i + n)))
        n++;
    return n;
}

static inline size_t letters(struct text t, size_t i)
{
    size_t n = 0;
    while (is_letter(at(t, i + n)))
        n++;
    return n;
}

static inline bool has(struct text t, size_t i, const char *what)
{
    if (at(t, i) != what[0] || i >= t.n)
        return false;
    size_t n = strlen(what);
    return t.n - i >= n && memcmp(t.s + i, what, n) == 0;
}

/* Length of the first string of the list that stands at i. */
static inline size_t any_of(struct text t, size_t i, const char *const *list)
{
    for (; *list; list++)
        if (has(t, i, *list))
            return strlen(*list);
    return 0;
}

/* The character at i, 0 at the end. */
static inline uint32_t char_at(struct text t, size_t i)
{
    return i < t.n ? sentence_char(t.s, t.n, &i) : 0;
}

/* ---- values_date.c ---- */

/* Bytes of a date or a time that begins at i, 0: none. *ret says which. */
size_t date_or_time(struct text t, size_t i, enum value_kind *ret);
/* The same of a date, time, amount of money or count as Chinese writes them; digits too. */
size_t zh_value(struct text t, size_t i, enum value_kind *ret);

/* ---- values_code.c ---- */

/* Bytes of an account's number in groups, a licence plate or a street address at i; 0: none. */
size_t spaced_code(struct text t, size_t i);
/* Of a time in English words. */
size_t spoken_time(struct text t, size_t i);

#endif
