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

/* What a code point is to a search; the marks of Latin, Greek and Cyrillic (U+0300…036F) are
 * UTF8_OTHER, because utf8_fold has dropped them. */
enum utf8_kind {
    UTF8_OTHER,  /* punctuation, space, symbol, control, private use */
    UTF8_LETTER,
    UTF8_DIGIT,  /* any number */
    UTF8_MARK,   /* a vowel sign or the like: part of the letter before it */
    UTF8_DENSE,  /* a letter or mark of a script that puts no spaces between words: Chinese, kana,
                  * Thai …; and Korean, whose words carry their grammar */
};
enum utf8_kind utf8_kind(uint32_t cp);
bool utf8_is_upper(uint32_t cp);
/* Its general category: "Lu", "Nd", "Cn" …; utf8proc. */
const char *utf8_category(uint32_t cp);
/* cp in upper or lower case where that is one code point whatever stands around it; 0 where it
 * isn't (ß, İ, Σ at a word's end, ligatures …; SpecialCasing.txt). */
uint32_t utf8_case(uint32_t cp, bool is_upper);
/*
 * For comparing: compatibility decomposition and full case folding (UAX #15, CaseFolding.txt;
 * utf8proc), accents dropped. 0 to UTF8_FOLD_MAX code points. Kana and Hangul stay composed.
 */
#define UTF8_FOLD_MAX 18
int utf8_fold(uint32_t cp, uint32_t out[UTF8_FOLD_MAX]);

/* What a code point is to BERT's basic tokenizer. */
enum utf8_break {
    UTF8_BREAK_NONE,
    UTF8_BREAK_SPACE,
    UTF8_BREAK_PUNCTUATION, /* and all of ASCII that is neither letter, digit, space nor control */
    UTF8_BREAK_IDEOGRAPH,   /* a word by itself */
    UTF8_BREAK_CONTROL,     /* control, format, private use, U+FFFD */
};
enum utf8_break utf8_break(uint32_t cp);
/* In lower case, canonically decomposed (Hangul too), less its non-spacing marks. 0 to
 * UTF8_FOLD_MAX code points. */
int utf8_bare(uint32_t cp, uint32_t out[UTF8_FOLD_MAX]);

/* Quickly: true when valid UTF-8 is surely in normalization form C already, false when it may
 * not. */
bool utf8_is_nfc(const char *s, size_t n);
/* Appends valid UTF-8 in normalization form C (UAX #15; utf8proc's tables), in linear time. 0, or
 * the buffer's error with what was appended undone. */
int utf8_nfc(const char *s, size_t n, struct buf *b) MUST_USE;

/* Number of terminal columns of valid UTF-8 (wide characters count 2, combining ones 0); utf8proc.
 */
size_t utf8_width(const char *s, size_t n);

#endif
