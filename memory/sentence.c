/*
 * Sentences (sentence.h). One pass, no look-ahead but for the end of a fence, which is looked for
 * in vain at most once a text.
 */
#include "memory/sentence.h"

#include <string.h>

#include "base/utf8.h"
#include "memory/words.h"

void sentence_walk_init(struct sentence_walk *w, const char *s, size_t n)
{
    *w = (struct sentence_walk){s, n, 0, true, false};
}

uint32_t sentence_char_beyond(const char *s, size_t n, size_t *i)
{
    bool ok;
    size_t step = utf8_step(s + *i, n - *i, &ok);
    if (ok)
        return utf8_next(s, n, i);
    *i += step;
    return 0xFFFD;
}

bool is_cjk(uint32_t cp)
{
    return (cp >= 0x3005 && cp <= 0x3007) || (cp >= 0x3040 && cp <= 0x30FF) ||
           (cp >= 0x3400 && cp <= 0x9FFF) || (cp >= 0xAC00 && cp <= 0xD7AF) ||
           (cp >= 0xF900 && cp <= 0xFAFF) || (cp >= 0x20000 && cp <= 0x323AF);
}

bool is_capital(uint32_t cp)
{
    if (cp < 0x80)
        return cp >= 'A' && cp <= 'Z';
    if (cp >= 0x100 && cp <= 0x17F) /* pairs; which of the two is even changes twice */
        return ((cp >= 0x139 && cp <= 0x148) || cp >= 0x179) == (cp & 1);
    return (cp >= 0xC0 && cp <= 0xDE && cp != 0xD7) || (cp >= 0x386 && cp <= 0x3AB) ||
           (cp >= 0x400 && cp <= 0x42F) || (cp >= 0x460 && cp <= 0x52F && !(cp & 1));
}

bool is_wordly_beyond(uint32_t cp)
{
    if (cp < 0xC0 || cp == 0xD7 || cp == 0xF7)
        return cp == 0xAA || cp == 0xB5 || cp == 0xBA;
    /* General punctuation to symbols; CJK punctuation; full-width punctuation; specials. */
    return !((cp >= 0x2000 && cp <= 0x2BFF) || (cp >= 0x2E00 && cp <= 0x2E7F) ||
             (cp >= 0x3000 && cp <= 0x3004) || (cp >= 0x3008 && cp <= 0x3020) || cp == 0x30FB ||
             (cp >= 0xFE00 && cp <= 0xFE6F) || (cp >= 0xFF00 && cp <= 0xFF0F) ||
             (cp >= 0xFF1A && cp <= 0xFF20) || (cp >= 0xFF3B && cp <= 0xFF40) ||
             (cp >= 0xFF5B && cp <= 0xFF65) || (cp >= 0xFFF0 && cp <= 0xFFFF) ||
             (cp >= 0x1F000 && cp <= 0x1FAFF) || (cp >= 0xE000 && cp <= 0xF8FF));
}

static bool is_control(uint32_t cp)
{
    return cp < 0x20 || (cp >= 0x7F && cp < 0xA0) || cp == 0xFFFD || cp == 0x2028 || cp == 0x2029 ||
           cp == 0xFEFF;
}

static bool is_closer(uint32_t cp)
{
    return cp == '"' || cp == '\'' || cp == ')' || cp == ']' || cp == '*' || cp == '_' ||
           cp == 0x2019 || cp == 0x201D || cp == 0x300D || cp == 0x300F || cp == 0xFF09 ||
           cp == 0x300B || cp == 0x3011;
}

static bool is_full_stop(uint32_t cp)
{
    return cp == 0x3002 || cp == 0xFF01 || cp == 0xFF1F || cp == 0xFF1B || cp == 0xFF0E;
}

/* Past the fence that opens at w->i, and all of its code; false when it is none. */
static bool step_over_code(struct sentence_walk *w)
{
    const char *s = w->s + w->i;
    size_t n = w->n - w->i;
    if (w->has_no_fence || n < 3 || (memcmp(s, "```", 3) != 0 && memcmp(s, "~~~", 3) != 0))
        return false;
    char end[4] = {'\n', s[0], s[0], s[0]};
    const char *line = memmem(s, n, end, sizeof end);
    if (!line) {
        w->has_no_fence = true;
        return false;
    }
    w->i = (size_t)(line - w->s) + sizeof end;
    while (w->i < w->n && w->s[w->i] != '\n')
        w->i++;
    return true;
}

/* Spaces, and at a line's start the marks of lists, quotes, headings and numbers. */
static void step_over_marks(struct sentence_walk *w)
{
    const char *s = w->s;
    while (w->i < w->n) {
        char c = s[w->i];
        size_t digits = 0;
        while (w->is_at_line && digits < 3 && w->i + digits < w->n && s[w->i + digits] >= '0' &&
               s[w->i + digits] <= '9')
            digits++;
        if (c == ' ' || c == '\t' || (c == '\xC2' && w->i + 1 < w->n && s[w->i + 1] == '\xA0')) {
            w->i += c == '\xC2' ? 2 : 1;
        } else if (w->is_at_line && w->i + 1 < w->n && strchr("-*+>#|", c) && c &&
                   (strchr(" \t#", s[w->i + 1]) || c == '>')) {
            w->i++;
        } else if (w->n - w->i >= 3 && memcmp(s + w->i, "\xE2\x80\xA2", 3) == 0) {
            w->i += 3; /* • */
        } else if (w->n - w->i >= 3 && memcmp(s + w->i, "\xE3\x80\x80", 3) == 0) {
            w->i += 3; /* U+3000, a space */
        } else if (digits && w->n - w->i > digits + 1 && strchr(".)", s[w->i + digits]) &&
                   s[w->i + digits] && strchr(" \t", s[w->i + digits + 1])) {
            w->i += digits + 1;
        } else {
            return;
        }
    }
}

/* Whether the full stop at s[i] ends no sentence: an abbreviation's or an initial's. */
static bool is_abbreviation(const char *s, size_t from, size_t i)
{
    size_t at = i;
    while (at > from && (is_wordly((unsigned char)s[at - 1]) || s[at - 1] == '.') &&
           (unsigned char)s[at - 1] < 0x80)
        at--;
    if (i - at == 1 && is_capital((unsigned char)s[at]))
        return true;
    return word_flags(s + at, i - at) & W_ABBR;
}

/* Where the sentence that begins at `from` ends; *ret_next: where the next may begin. */
static size_t sentence_end(struct sentence_walk *w, size_t from, size_t *ret_next)
{
    const char *s = w->s;
    size_t i = from, space = 0;
    while (i < w->n) {
        size_t at = i;
        uint32_t c = sentence_char(s, w->n, &i);
        if (is_control(c)) {
            *ret_next = at;
            return at;
        }
        if (at - from >= SENTENCE_BYTES_MAX - 4) {
            *ret_next = space > from ? space : at;
            return *ret_next;
        }
        if (c == ' ' || is_cjk(c))
            space = at;
        if (c != '.' && c != '!' && c != '?' && c != 0x2026 && !is_full_stop(c))
            continue;
        size_t end = i;
        bool is_full = is_full_stop(c), is_question = c == '?' || c == 0xFF1F;
        while (end < w->n) { /* "?!", "...", and what closes around them */
            size_t next = end;
            uint32_t d = sentence_char(s, w->n, &next);
            if (d != '.' && d != '!' && d != '?' && !is_full_stop(d) && !is_closer(d))
                break;
            is_full = is_full || is_full_stop(d);
            end = next;
        }
        bool is_end = is_full || end == w->n || strchr(" \t\r\n", s[end]);
        if (is_end && (c != '.' || is_question || !is_abbreviation(s, from, at))) {
            *ret_next = end;
            return end;
        }
    }
    *ret_next = w->n;
    return w->n;
}

bool sentence_next(struct sentence_walk *w, size_t *ret_at, size_t *ret_n)
{
    while (w->i < w->n) {
        step_over_marks(w);
        if (w->is_at_line && step_over_code(w))
            continue;
        if (w->i >= w->n)
            break;
        size_t next = w->i;
        uint32_t c = sentence_char(w->s, w->n, &next);
        if (is_control(c)) {
            w->is_at_line = c == '\n' || (w->is_at_line && c == '\r');
            w->i = next;
            continue;
        }
        size_t at = w->i, end = sentence_end(w, at, &w->i);
        w->is_at_line = false;
        while (end > at && (w->s[end - 1] == ' ' || w->s[end - 1] == '\t'))
            end--;
        if (end > at) {
            *ret_at = at;
            *ret_n = end - at;
            return true;
        }
    }
    return false;
}
