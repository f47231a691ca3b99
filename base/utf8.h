/*
 * UTF-8 as RFC 3629 has it: no overlong forms, no surrogates, nothing above U+10FFFF. All functions
 * take lengths; a NUL is a character like any other.
 */
#ifndef HEARTH_BASE_UTF8_H
#define HEARTH_BASE_UTF8_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"

/* true, or false with the offset of the first bad byte (ret_bad may be NULL). */
bool utf8_valid(const char *s, size_t n, size_t *ret_bad);

/*
 * The next step at s (n > 0): the length of the character there with *ret_ok = true, or the length
 * of the maximal ill-formed part with *ret_ok = false. All of the other functions are built on this
 * one.
 */
size_t utf8_step(const char *s, size_t n, bool *ret_ok);

/*
 * How much of s[0, n) can be sent now: n less an incomplete but so far well-formed sequence at the
 * very end (at most 3 bytes). Bytes that can never become valid do not hold anything back.
 */
size_t utf8_complete(const char *s, size_t n);

/* Appends s with each maximal ill-formed part replaced by one U+FFFD (Unicode 15, 3.9, best
 * practice). */
void utf8_repair(struct buf *b, const char *s, size_t n);

/* Decodes one code point of valid UTF-8 at s[*i] and moves *i past it. */
uint32_t utf8_next(const char *s, size_t n, size_t *i);
/* Writes cp as 1 to 4 bytes; returns how many. */
int utf8_put(char out[4], uint32_t cp);

/* Number of terminal columns of valid UTF-8 (wide characters count 2, combining ones 0); utf8proc.
 */
size_t utf8_width(const char *s, size_t n);

#endif
