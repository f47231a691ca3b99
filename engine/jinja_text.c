/* Strings of a template, counted in code points as Python counts them, with their marks. */
#include <string.h>

#include "base/utf8.h"
#include "engine/jinja_impl.h"

size_t jinja_char_len(const char *s, size_t n)
{
    unsigned char c = (unsigned char)*s;
    size_t k = c < 0xC0 ? 1 : c < 0xE0 ? 2 : c < 0xF0 ? 3 : 4;
    return k < n ? k : n;
}

size_t jinja_n_chars(const struct jinja_str *s)
{
    size_t n = 0;
    for (size_t i = 0; i < s->n; i += jinja_char_len(s->s + i, s->n - i))
        n++;
    return n;
}

struct jinja_str jinja_sub(const struct jinja_str *s, size_t from, size_t n)
{
    return (struct jinja_str){.s = s->s + from, .n = n, .marks = s->marks ? s->marks + from : NULL};
}

size_t jinja_space_at(const char *s, size_t n)
{
    const unsigned char *p = (const unsigned char *)s;
    if (n == 0)
        return 0;
    if ((p[0] >= 9 && p[0] <= 13) || (p[0] >= 28 && p[0] <= 32))
        return 1;
    if (n >= 2 && p[0] == 0xC2 && (p[1] == 0x85 || p[1] == 0xA0))
        return 2;
    if (n < 3)
        return 0;
    uint32_t cp = (p[0] & 0x0Fu) << 12 | (p[1] & 0x3Fu) << 6 | (p[2] & 0x3Fu);
    if ((p[0] & 0xF0) != 0xE0)
        return 0;
    bool is = cp == 0x1680 || (cp >= 0x2000 && cp <= 0x200A) || cp == 0x2028 || cp == 0x2029 ||
              cp == 0x202F || cp == 0x205F || cp == 0x3000;
    return is ? 3 : 0;
}

size_t jinja_space_before(const char *s, size_t n)
{
    for (size_t k = 1; k <= 3 && k <= n; k++)
        if (jinja_space_at(s + n - k, k) == k)
            return k;
    return 0;
}

bool jinja_is_blank(const char *s, size_t n)
{
    for (size_t k; n > 0; s += k, n -= k)
        if ((k = jinja_space_at(s, n)) == 0)
            return false;
    return true;
}

/* The length of the character at s if it is one of `chars`, else 0. */
static size_t one_of(const struct jinja_str *chars, const char *s, size_t n)
{
    size_t k = n > 0 ? jinja_char_len(s, n) : 0;
    for (size_t i = 0, c; k > 0 && i < chars->n; i += c) {
        c = jinja_char_len(chars->s + i, chars->n - i);
        if (c == k && memcmp(chars->s + i, s, k) == 0)
            return k;
    }
    return 0;
}

static size_t one_before(const struct jinja_str *chars, const char *s, size_t n)
{
    size_t k = 1;
    while (k < 4 && k < n && ((unsigned char)s[n - k] & 0xC0) == 0x80)
        k++;
    return n > 0 && one_of(chars, s + n - k, k) == k ? k : 0;
}

struct jinja_str jinja_strip(const struct jinja_str *s, const struct jinja_str *chars, int sides)
{
    size_t from = 0, to = s->n, k;
    while ((sides & 1) && from < to &&
           (k = chars ? one_of(chars, s->s + from, to - from)
                      : jinja_space_at(s->s + from, to - from)) > 0)
        from += k;
    while ((sides & 2) && to > from &&
           (k = chars ? one_before(chars, s->s + from, to - from)
                      : jinja_space_before(s->s + from, to - from)) > 0)
        to -= k;
    return jinja_sub(s, from, to - from);
}

struct jinja_str jinja_strip_space(const struct jinja_str *s, int sides)
{
    return jinja_strip(s, NULL, sides);
}

size_t jinja_find(const struct jinja_str *s, const struct jinja_str *what, size_t from)
{
    if (what->n == 0)
        return from <= s->n ? from : (size_t)-1;
    while (from + what->n <= s->n) {
        const char *p = memchr(s->s + from, what->s[0], s->n - from - what->n + 1);
        if (!p)
            break;
        from = (size_t)(p - s->s);
        if (memcmp(p, what->s, what->n) == 0)
            return from;
        from++;
    }
    return (size_t)-1;
}

int jinja_replace(struct jinja_run *r, const struct jinja_str *s, const struct jinja_value v[3],
                  struct jinja_value *ret)
{
    if (v[0].type != JINJA_STR || v[1].type != JINJA_STR)
        return jinja_fail(r, ERR_INVAL, "replace needs two strings");
    if (v[2].type != JINJA_ABSENT && !jinja_is_int(&v[2]))
        return jinja_fail(r, ERR_INVAL, "replace %s times", jinja_type_name(&v[2]));
    int64_t left = v[2].type == JINJA_ABSENT ? -1 : jinja_int_of(&v[2]);
    const struct jinja_str *old = &v[0].str;
    struct jinja_text t = {.r = r};
    size_t at = 0;
    int rc = jinja_step(r, s->n);
    while (rc == 0 && left != 0) {
        size_t hit = jinja_find(s, old, at);
        if (hit == (size_t)-1)
            break;
        size_t skip = old->n;
        struct jinja_str before = jinja_sub(s, at, hit - at);
        rc = jinja_text_add(&t, &before);
        if (rc == 0)
            rc = jinja_text_add(&t, &v[1].str);
        if (old->n == 0) { /* between all characters */
            if (hit == s->n) {
                at = hit;
                break;
            }
            skip = jinja_char_len(s->s + hit, s->n - hit);
            before = jinja_sub(s, hit, skip);
            rc = rc == 0 ? jinja_text_add(&t, &before) : rc;
        }
        at = hit + skip;
        left--;
    }
    struct jinja_str rest = jinja_sub(s, at, s->n - at);
    if (rc == 0)
        rc = jinja_text_add(&t, &rest);
    struct jinja_str made = jinja_text_str(&t);
    *ret = jinja_of_str(&made);
    return rc;
}

static char upper(char c)
{
    return c >= 'a' && c <= 'z' ? (char)(c - 32) : c;
}

static char lower(char c)
{
    return c >= 'A' && c <= 'Z' ? (char)(c + 32) : c;
}

bool jinja_has_odd_lines(const struct jinja_str *s)
{
    bool has = false;
    for (size_t i = 0; i < s->n && !has; i++) {
        const unsigned char c = (unsigned char)s->s[i];
        const size_t left = s->n - i;
        has = c == '\r' || c == 11 || c == 12 || (c >= 28 && c <= 30) ||
              (c == 0xC2 && left > 1 && (unsigned char)s->s[i + 1] == 0x85) ||
              (c == 0xE2 && left > 2 && memcmp(s->s + i, "\xE2\x80", 2) == 0 &&
               ((unsigned char)s->s[i + 2] | 1) == 0xA9);
    }
    return has;
}

uint32_t jinja_next(const struct jinja_str *s, size_t *at)
{
    bool ok;
    const size_t n = utf8_step(s->s + *at, s->n - *at, &ok);
    if (ok)
        return utf8_next(s->s, s->n, at);
    *at += n;
    return 0xFFFD;
}

enum jinja_char jinja_char_of(uint32_t cp)
{
    const char *c = utf8_category(cp);
    if (c[0] == 'L')
        return CHAR_LETTER;
    if (c[0] == 'N')
        return c[1] == 'd' ? CHAR_DECIMAL : CHAR_NUMBER;
    if (c[0] == 'M')
        return CHAR_MARK;
    if (c[0] == 'C' || (c[0] == 'Z' && cp != ' '))
        return c[1] == 'n' ? CHAR_UNKNOWN : CHAR_HIDDEN;
    return CHAR_OTHER;
}

char jinja_case_of(uint32_t cp)
{
    if (cp < 0x80)
        return cp >= 'a' && cp <= 'z' ? 'l' : cp >= 'A' && cp <= 'Z' ? 'u' : 0;
    const char *c = utf8_category(cp);
    if (c[0] == 'L' && (c[1] == 'l' || c[1] == 'u' || c[1] == 't'))
        return c[1];
    /* Other_Lowercase and Other_Uppercase are among these */
    const bool is_odd = (c[0] == 'L' && c[1] == 'm') || c[0] == 'M' || cp == 0xAA || cp == 0xBA ||
                        (cp >= 0x2160 && cp <= 0x217F) || (cp >= 0x24B6 && cp <= 0x24E9) ||
                        (cp >= 0x1F130 && cp <= 0x1F189) || c[1] == 'n';
    return is_odd ? '?' : 0;
}

int jinja_is_cased(struct jinja_run *r, const struct jinja_str *s, char how, bool *ret)
{
    bool has = false, ok = true, is_inside = false;
    for (size_t at = 0; at < s->n;) {
        const char c = jinja_case_of(jinja_next(s, &at));
        if (c == '?')
            return jinja_fail(r, ERR_UNSUPPORTED, "the case of some letters");
        if (how == 't')
            ok = ok && (c == 0 || (is_inside ? c == 'l' : c != 'l'));
        else
            ok = ok && (c == 0 || c == how);
        has = has || c != 0;
        is_inside = c != 0;
    }
    *ret = has && ok;
    return jinja_step(r, s->n);
}

/* cp where it isn't ASCII, in the case asked for; 0: not known here. */
static uint32_t cased_far(uint32_t cp, bool is_upper, bool is_title)
{
    /* these have another title case than their upper case */
    const bool has_title = (cp >= 0x1C4 && cp <= 0x1CC) || (cp >= 0x1F1 && cp <= 0x1F3) ||
                           (cp >= 0x10D0 && cp <= 0x10FF) || (cp >= 0x1C80 && cp <= 0x1CBF);
    const bool is_unknown = jinja_char_of(cp) == CHAR_UNKNOWN;
    return is_unknown || (is_title && has_title) ? 0 : utf8_case(cp, is_upper);
}

/* One character in the case that `how` and its place ask for; 0: not known here. */
static uint32_t cased(uint32_t cp, char how, bool is_first)
{
    const char own = how == 's' ? jinja_case_of(cp) : 0;
    const bool is_upper = how == 's' ? own == 'l' : how == 'u' || (is_first && how != 'l');
    if (cp < 0x80)
        return (uint32_t)(unsigned char)(is_upper ? upper((char)cp) : lower((char)cp));
    if (how == 's' && (own == 0 || own == 't' || own == '?'))
        return own == 0 ? cp : 0;
    return cased_far(cp, is_upper, is_upper && how != 'u' && how != 's' && how != 't');
}

/* Whether the next one begins a word for `how`. */
static bool is_start(uint32_t cp, char how, bool *ret_unknown)
{
    char bytes[4] = {0};
    const int n = utf8_put(bytes, cp);
    if (how == 'T') {
        const char c = jinja_case_of(cp);
        *ret_unknown = c == '?';
        return c == 0;
    }
    return how == 't' && ((cp < 0x80 && cp > 0 && strchr("-([{<", (char)cp) != NULL) ||
                          jinja_space_at(bytes, (size_t)n) > 0);
}

int jinja_case(struct jinja_run *r, const struct jinja_str *s, char how, struct jinja_str *ret)
{
    struct jinja_text t = {.r = r};
    bool is_first = true, is_unknown = false;
    int rc = 0;
    for (size_t i = 0, k; rc == 0 && i < s->n; i += k) {
        char bytes[4];
        size_t at = i;
        const uint32_t from = jinja_next(s, &at);
        k = at - i;
        const uint32_t cp = cased(from, how, is_first);
        is_first = is_start(from, how, &is_unknown);
        if ((cp == 0 && from != 0) || is_unknown)
            return jinja_fail(r, ERR_UNSUPPORTED, "upper and lower case of some letters");
        int n = utf8_put(bytes, cp);
        for (int b = 0; rc == 0 && b < n; b++)
            rc = jinja_text_char(&t, bytes[b], s->marks ? s->marks[i] : 0);
    }
    *ret = jinja_text_str(&t);
    return rc;
}
