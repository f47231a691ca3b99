/*
 * Sentences of any bytes, English and Chinese, one after the other. Private to memory.
 *
 * A sentence is one line of valid UTF-8 without control characters (tabs are such), trimmed,
 * without the mark of a list, a quote or a heading before it. It ends at . ! ? … followed by a
 * space (not after "Dr.", "e.g.", an initial or the number of a list), at 。！？；, at the end of
 * the line, at a control character or a byte that is no UTF-8, and at SENTENCE_BYTES_MAX. Fenced
 * code is stepped over; a fence that never closes is no fence.
 */
#ifndef HEARTH_MEMORY_SENTENCE_H
#define HEARTH_MEMORY_SENTENCE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SENTENCE_BYTES_MAX 1000

struct sentence_walk {
    const char *s;
    size_t n, i;
    bool is_at_line; /* at a line's start */
    bool has_no_fence;
};
void sentence_walk_init(struct sentence_walk *w, const char *s, size_t n);
/* false: no more. *ret_at, *ret_n: never empty. */
bool sentence_next(struct sentence_walk *w, size_t *ret_at, size_t *ret_n);

/* The code point at s[*i], stepping past it; ill-formed parts give U+FFFD. */
uint32_t sentence_char_beyond(const char *s, size_t n, size_t *i);
static inline uint32_t sentence_char(const char *s, size_t n, size_t *i)
{
    if ((unsigned char)s[*i] < 0x80) /* nearly all, and each is asked for several times */
        return (unsigned char)s[(*i)++];
    return sentence_char_beyond(s, n, i);
}
/* Han, kana and hangul: scripts without spaces, or where a character is a syllable. */
bool is_cjk(uint32_t cp);
/* A capital of Latin, Greek or Cyrillic; what has small forms in the blocks up to U+052F. */
bool is_capital(uint32_t cp);
/* A character of a word: letters and digits, all above U+00BF but for punctuation and symbols. */
bool is_wordly_beyond(uint32_t cp);
static inline bool is_wordly(uint32_t cp)
{
    if (cp < 0x80)
        return (cp >= '0' && cp <= '9') || (cp >= 'A' && cp <= 'Z') || (cp >= 'a' && cp <= 'z');
    return is_wordly_beyond(cp);
}

#endif
