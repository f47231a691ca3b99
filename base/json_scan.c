/*
 * A JSON recogniser (RFC 8259) without recursion: the open arrays and objects are a stack of at
 * most 64 brackets. It is stricter than cJSON, which takes `01`, `1.`, `+1`, any control character
 * as white space, a byte order mark, NULs and broken UTF-8; and more lenient than the RFC in one
 * thing, raw control characters inside strings, which do no harm.
 *
 *     state     what may come                         then
 *     VALUE     a value                               AFTER, or into a bracket
 *     FIRST     a value or ']' | a key or '}'         right after an opening bracket
 *     KEY       a key, ':'                            VALUE
 *     AFTER     ',' or the closing bracket            VALUE | KEY | AFTER; at depth 0 the end
 */
#include "base/json_scan.h"

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "base/json.h"
#include "base/utf8.h"

enum state { VALUE, FIRST, KEY, AFTER };

struct scan {
    const char *text;
    size_t n, at;
    char closing[JSON_DEPTH_MAX]; /* what ends each open bracket */
    int depth;
    int n_values;
    struct err *e;
};

static int refuse(struct scan *s, size_t at, const char *why)
{
    return err_set(s->e, ERR_INVAL, "offset %zu: %s", at, why);
}

static int peek(const struct scan *s)
{
    return s->at < s->n ? (unsigned char)s->text[s->at] : -1;
}

static void skip_space(struct scan *s)
{
    while (s->at < s->n && (s->text[s->at] == ' ' || s->text[s->at] == '\n' ||
                            s->text[s->at] == '\r' || s->text[s->at] == '\t'))
        s->at++;
}

static bool is_digit(int c)
{
    return c >= '0' && c <= '9';
}

/* Four hex digits at text[at]; -1 when they aren't there. */
static int hex4(const struct scan *s, size_t at)
{
    if (s->n - at < 4)
        return -1;
    int v = 0;
    for (size_t i = at; i < at + 4; i++) {
        int c = (unsigned char)s->text[i];
        int lower = c | 0x20;
        if (is_digit(c))
            v = v << 4 | (c - '0');
        else if (lower >= 'a' && lower <= 'f')
            v = v << 4 | (lower - 'a' + 10);
        else
            return -1;
    }
    return v;
}

/* at: the backslash of \uXXXX. A surrogate must be the first of a pair. */
static int scan_unicode_escape(struct scan *s)
{
    size_t at = s->at;
    int unit = hex4(s, at + 2);
    if (unit < 0)
        return refuse(s, at, "\\u without four hex digits");
    if (unit == 0)
        return refuse(s, at, "a NUL (\\u0000) is not allowed");
    s->at += 6;
    if (unit < 0xD800 || unit > 0xDFFF)
        return 0;
    int low =
        unit <= 0xDBFF && s->n - s->at >= 6 && s->text[s->at] == '\\' && s->text[s->at + 1] == 'u'
            ? hex4(s, s->at + 2)
            : -1;
    if (low < 0xDC00 || low > 0xDFFF)
        return refuse(s, at, "half of a surrogate pair");
    s->at += 6;
    return 0;
}

static int scan_escape(struct scan *s)
{
    int c = s->n - s->at >= 2 ? (unsigned char)s->text[s->at + 1] : -1;
    if (c == 'u')
        return scan_unicode_escape(s);
    if (c <= 0 || !strchr("\"\\/bfnrt", c))
        return refuse(s, s->at, "unknown escape");
    s->at += 2;
    return 0;
}

/* at: the opening quote. That all is UTF-8 and nothing a NUL has been checked before. */
static int scan_string(struct scan *s)
{
    size_t from = s->at++;
    while (s->at < s->n) {
        char c = s->text[s->at];
        if (c == '"') {
            s->at++;
            return 0;
        }
        if (c != '\\') {
            s->at++;
            continue;
        }
        int rc = scan_escape(s);
        if (rc < 0)
            return rc;
    }
    return refuse(s, from, "a string that doesn't end");
}

static size_t skip_digits(struct scan *s)
{
    size_t from = s->at;
    while (is_digit(peek(s)))
        s->at++;
    return s->at - from;
}

static int scan_number(struct scan *s)
{
    size_t from = s->at;
    if (peek(s) == '-')
        s->at++;
    bool is_zero = peek(s) == '0';
    size_t n = skip_digits(s);
    if (n == 0)
        return refuse(s, from, "a number without digits");
    if (is_zero && n > 1)
        return refuse(s, from, "a number that begins with 0");
    if (peek(s) == '.') {
        s->at++;
        if (skip_digits(s) == 0)
            return refuse(s, from, "a number without digits after its point");
    }
    if (peek(s) == 'e' || peek(s) == 'E') {
        s->at++;
        if (peek(s) == '+' || peek(s) == '-')
            s->at++;
        if (skip_digits(s) == 0)
            return refuse(s, from, "a number without digits in its exponent");
    }
    if (s->at - from > JSON_NUMBER_BYTES_MAX)
        return err_set(s->e, ERR_LIMIT, "offset %zu: a number of %zu characters, more than %d",
                       from, s->at - from, JSON_NUMBER_BYTES_MAX);
    return 0;
}

static int scan_word(struct scan *s, const char *word)
{
    size_t len = strlen(word);
    if (s->n - s->at < len || memcmp(s->text + s->at, word, len) != 0)
        return refuse(s, s->at, "not a JSON value");
    s->at += len;
    return 0;
}

static int open_bracket(struct scan *s, char closing, enum state *state)
{
    if (s->depth == JSON_DEPTH_MAX)
        return err_set(s->e, ERR_LIMIT, "offset %zu: nested deeper than %d", s->at, JSON_DEPTH_MAX);
    s->closing[s->depth++] = closing;
    s->at++;
    *state = FIRST;
    return 0;
}

static int scan_value(struct scan *s, enum state *state)
{
    if (++s->n_values > JSON_VALUES_MAX)
        return err_set(s->e, ERR_LIMIT, "offset %zu: more than %d values", s->at, JSON_VALUES_MAX);
    *state = AFTER;
    int c = peek(s);
    switch (c) {
    case -1:
        return refuse(s, s->at, s->depth > 0 ? "the text ends early" : "no value");
    case '{':
        return open_bracket(s, '}', state);
    case '[':
        return open_bracket(s, ']', state);
    case '"':
        return scan_string(s);
    case 't':
        return scan_word(s, "true");
    case 'f':
        return scan_word(s, "false");
    case 'n':
        return scan_word(s, "null");
    default:
        return c == '-' || is_digit(c) ? scan_number(s) : refuse(s, s->at, "not a JSON value");
    }
}

static int scan_key(struct scan *s, enum state *state)
{
    if (peek(s) != '"')
        return refuse(s, s->at, peek(s) < 0 ? "the text ends early" : "a key was expected");
    int rc = scan_string(s);
    if (rc < 0)
        return rc;
    skip_space(s);
    if (peek(s) != ':')
        return refuse(s, s->at, "a colon was expected");
    s->at++;
    *state = VALUE;
    return 0;
}

/* After a value, inside a bracket. */
static int scan_after(struct scan *s, enum state *state)
{
    char closing = s->closing[s->depth - 1];
    int c = peek(s);
    if (c < 0)
        return refuse(s, s->at, "the text ends early");
    if (c == closing) {
        s->depth--;
    } else if (c == ',') {
        *state = closing == '}' ? KEY : VALUE;
    } else {
        return refuse(s, s->at,
                      closing == '}' ? "',' or '}' was expected" : "',' or ']' was expected");
    }
    s->at++;
    return 0;
}

static int scan_first(struct scan *s, enum state *state)
{
    char closing = s->closing[s->depth - 1];
    if (peek(s) != closing)
        return closing == '}' ? scan_key(s, state) : scan_value(s, state);
    s->depth--;
    s->at++;
    *state = AFTER;
    return 0;
}

int json_scan(const char *text, size_t n, struct err *e)
{
    struct scan s = {.text = text, .n = n, .e = e};
    size_t bad;
    if (!utf8_valid(text, n, &bad))
        return refuse(&s, bad, "invalid UTF-8");
    const char *nul = n > 0 ? memchr(text, 0, n) : NULL;
    if (nul)
        return refuse(&s, (size_t)(nul - text), "a NUL is not allowed");

    enum state state = VALUE;
    int rc = 0;
    do {
        skip_space(&s);
        switch (state) {
        case VALUE:
            rc = scan_value(&s, &state);
            break;
        case FIRST:
            rc = scan_first(&s, &state);
            break;
        case KEY:
            rc = scan_key(&s, &state);
            break;
        case AFTER:
            rc = scan_after(&s, &state);
            break;
        }
    } while (rc == 0 && (state != AFTER || s.depth > 0));
    if (rc < 0)
        return rc;
    skip_space(&s);
    if (s.at < n)
        return refuse(&s, s.at, "something follows the value");
    return 0;
}
