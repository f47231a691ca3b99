/*
 * Exact values (values.h). A sentence is walked once; at each beginning of a run the recognisers
 * are asked in order, the first that answers with a length wins, and the walk goes on behind it.
 */
#include "memory/values.h"

#include <stdbool.h>
#include <string.h>

#include "memory/sentence.h"
#include "memory/values_text.h"
#include "memory/words.h"

/* ---- runs of ASCII ---- */

static size_t money(struct text t, size_t i)
{
    static const char *const signs[] = {"$", "€", "£", "¥", "￥", "US$", "₹", "₩", NULL};
    size_t sign = any_of(t, i, signs), n = sign;
    if (sign && at(t, i + n) == ' ')
        n++;
    size_t whole = digits(t, i + n);
    if (!whole)
        return 0;
    n += whole;
    while (is_in(".,", at(t, i + n)) && is_digit(at(t, i + n + 1)))
        n += 1 + digits(t, i + n + 1);
    if (sign) {
        static const char *const scales[] = {" million", " billion", "k",  "K",  "m",
                                             "M",        "bn",       "万", "亿", NULL};
        size_t scale = any_of(t, i + n, scales);
        return scale && is_alnum(at(t, i + n + scale)) ? n : n + scale;
    }
    size_t gap = has(t, i + n, "€") ? 0 : at(t, i + n) == ' ' ? 1 : 0;
    if (has(t, i + n + gap, "€"))
        return n + gap + strlen("€");
    size_t unit = letters(t, i + n + gap);
    return unit && (word_flags(t.s + i + n + gap, unit) & W_MONEY) ? n + gap + unit : 0;
}

/* +49 30 901820, (555) 010-4477, 138-0013-8000: groups of digits, at least 7 of them. */
static size_t phone(struct text t, size_t i)
{
    size_t n = is_in("+(", at(t, i)) ? 1 : 0, n_digits = 0, n_groups = 0, end = 0;
    bool is_marked = n > 0;
    for (;;) {
        size_t group = digits(t, i + n);
        if (group < 2 && !(n_groups == 0 && group == 1))
            break;
        n += group;
        n_digits += group;
        n_groups++;
        end = n;
        size_t gap = 0;
        while (gap < 2 && is_in(" -)(", at(t, i + n + gap)))
            gap++;
        if (!gap || group > 8)
            break;
        n += gap;
    }
    bool is_long = n_digits >= 7 && n_digits <= 15;
    if (!is_long || (n_groups < 2 && !is_marked) || is_alnum(at(t, i + end)))
        return 0;
    /* Two plain numbers next to each other are no telephone. */
    return is_marked || memchr(t.s + i, '-', end) ? end : 0;
}

static bool is_run_mark(char c)
{
    switch (c) {
    case '_':
    case '.':
    case '/':
    case ':':
    case '@':
    case '#':
    case '+':
    case '-':
    case '~':
    case '%':
    case '&':
    case '=':
    case '\\':
    case '*':
        return true;
    default:
        return false;
    }
}

static size_t run_end(struct text t, size_t i)
{
    size_t n = 0;
    while (is_alnum(at(t, i + n)) || is_run_mark(at(t, i + n)))
        n++;
    while (n && is_in(".:-+@=&~*", t.s[i + n - 1]) && !(n >= 2 && has(t, i + n - 2, "++")))
        n--;
    return n;
}

static size_t url(struct text t, size_t i)
{
    size_t scheme = 0;
    while (is_alnum(at(t, i + scheme)) || is_in("+-.", at(t, i + scheme)))
        scheme++;
    if (scheme < 2 || !is_letter(at(t, i)) || !has(t, i + scheme, "://"))
        return 0;
    size_t n = scheme + 3;
    while (i + n < t.n && (unsigned char)t.s[i + n] > ' ' && (unsigned char)t.s[i + n] < 0x7F &&
           !is_in("\"<>`|", t.s[i + n]))
        n++;
    while (n > scheme + 3 && is_in(".,:;?!)'*]", t.s[i + n - 1]))
        n--;
    return n > scheme + 3 ? n : 0;
}

/* What a run of ASCII is made of. */
struct makeup {
    size_t n, n_digits, n_letters, n_lower, n_upper, n_dots, n_slashes, n_hyphens, n_under,
        n_colons;
    size_t n_at;
};

static struct makeup makeup_of(struct text t, size_t i, size_t n)
{
    struct makeup m = {.n = n};
    for (size_t k = i; k < i + n; k++) {
        char c = t.s[k];
        m.n_digits += is_digit(c);
        m.n_letters += is_letter(c);
        m.n_lower += c >= 'a' && c <= 'z';
        m.n_upper += c >= 'A' && c <= 'Z';
        m.n_dots += c == '.';
        m.n_slashes += c == '/' || c == '\\';
        m.n_hyphens += c == '-';
        m.n_under += c == '_';
        m.n_colons += c == ':';
        m.n_at += c == '@';
    }
    return m;
}

/* state-of-the-art and a ten-year-old are no names of things. */
static bool has_stop_part(struct text t, size_t i, size_t n)
{
    static const char *const spans[] = {"year",   "day", "month", "week", "hour",
                                        "minute", "old", "step",  "fold", NULL};
    for (size_t k = i; k < i + n;) {
        size_t part = letters(t, k);
        bool is_span = any_of(t, k, spans);
        if (is_span || (part && (word_flags(t.s + k, part) & W_STOP)))
            return true;
        k += part + 1;
    }
    return false;
}

static bool is_path(struct text t, size_t i, const struct makeup *m)
{
    char c = t.s[i], d = at(t, i + 1);
    if (!m->n_slashes || !m->n_letters)
        return false;
    if (c == '/' || (c == '~' && d == '/') || (c == '.' && is_in("./", d)) ||
        (is_letter(c) && d == ':' && at(t, i + 2) == '\\'))
        return m->n >= 3;
    if (m->n_slashes == 1 && (m->n_hyphens || m->n_under) && m->n_letters > 4 && is_letter(c))
        return true; /* fix/login-race */
    const char *slash = memrchr(t.s + i, '/', m->n);
    size_t rest = slash ? (size_t)(t.s + i + m->n - slash) : 0;
    bool has_ending = slash && memchr(slash, '.', rest) && slash[1] != '.';
    return (has_ending && m->n_letters > 3) ||
           (m->n_slashes >= 2 && m->n_letters > m->n_slashes * 2);
}

/* a.b, a.b.c with letters in the last part, each part of two and more but one; host:port. */
static bool is_host(struct text t, size_t i, const struct makeup *m)
{
    if (m->n_dots == 3 && !m->n_letters && m->n_digits >= 4)
        return true;
    if (has(t, i, "localhost"))
        return m->n_colons == 1 && m->n_digits;
    if (!m->n_dots || !m->n_letters || m->n_slashes)
        return false;
    size_t end = i + m->n;
    const char *colon = memrchr(t.s + i, ':', m->n);
    if (colon)
        end = (size_t)(colon - t.s);
    const char *dot = memrchr(t.s + i, '.', end - i);
    if (!dot || dot == t.s + i || dot + 1 >= t.s + end)
        return false;
    size_t last = (size_t)(t.s + end - dot) - 1,
           first = (size_t)((char *)memchr(t.s + i, '.', m->n) - (t.s + i));
    bool is_joined_sentence = m->n_dots == 1 && is_capital((unsigned char)dot[1]) && last > 3;
    return letters(t, (size_t)(dot - t.s) + 1) == last && !is_joined_sentence &&
           (first >= 2 || last >= 2) && first >= 1 && last >= 1 && m->n_letters > 3;
}

static bool is_version(struct text t, size_t i, const struct makeup *m)
{
    if (m->n_dots == 3 && !m->n_letters)
        return false; /* an address */
    size_t v = is_in("vV", t.s[i]) ? 1 : 0, first = digits(t, i + v);
    if (!first || at(t, i + v + first) != '.')
        return v && first && m->n == v + first;
    return (v || m->n_dots >= 2) &&
           m->n_digits + m->n_dots + v + m->n_hyphens + m->n_letters >= m->n;
}

/* 16GB, 5km, 3rd, 90s, 40%: digits with a short word glued to them. */
static bool is_quantity(struct text t, size_t i, const struct makeup *m)
{
    size_t n = digits(t, i);
    while (n && is_in(".,", at(t, i + n)) && is_digit(at(t, i + n + 1)))
        n += 1 + digits(t, i + n + 1);
    size_t unit = letters(t, i + n);
    return n && n < 7 + m->n_dots && unit <= 4 &&
           (n + unit == m->n || (n + 1 == m->n && t.s[i + n] == '%'));
}

static enum value_kind classify(struct text t, size_t i, const struct makeup *m)
{
    if (is_path(t, i, m))
        return VALUE_PATH;
    if (m->n_at == 1 && m->n >= 4 && m->n_letters > 1)
        return VALUE_EMAIL;
    if (is_version(t, i, m))
        return VALUE_VERSION;
    if (is_host(t, i, m))
        return VALUE_HOST;
    if (t.s[i] == '-' && digits(t, i + 1) + 1 == m->n)
        return VALUE_NUMBER;
    if (is_quantity(t, i, m))
        return m->n == 4 && m->n_digits == 4 && (t.s[i] == '1' || has(t, i, "20")) ? VALUE_YEAR
                                                                                   : VALUE_NUMBER;
    if (m->n_digits && !m->n_letters)
        return m->n_digits >= 6 || m->n_hyphens || t.s[i] == '#' ? VALUE_IDENT : VALUE_NUMBER;
    if (m->n_digits || m->n_under)
        return m->n_letters ? VALUE_IDENT : 0;
    if (m->n_hyphens >= 2 && !m->n_upper && !m->n_slashes && !has_stop_part(t, i, m->n))
        return VALUE_IDENT;
    if (t.s[i] == '#' && m->n_letters >= 2 && m->n_letters + m->n_hyphens + 1 == m->n)
        return VALUE_IDENT;
    bool is_inner = m->n_upper && m->n_lower && m->n_letters == m->n &&
                    is_capital((unsigned char)t.s[i + m->n - 1]) == 0 && m->n_upper >= 2;
    return is_inner ? VALUE_NAME : 0;
}

/* 1,200 and 1,200.50: the comma is no part of other runs. */
static size_t grouped(struct text t, size_t i)
{
    size_t n = digits(t, i);
    if (n < 1 || n > 3)
        return 0;
    while (at(t, i + n) == ',' && digits(t, i + n + 1) == 3)
        n += 4;
    if (n < 4)
        return 0;
    if (at(t, i + n) == '.' && is_digit(at(t, i + n + 1)))
        n += 1 + digits(t, i + n + 1);
    return is_alnum(at(t, i + n)) ? 0 : n;
}

/* LH 1842, RFC 793: two to four capitals and a number. */
static size_t lettered_number(struct text t, size_t i)
{
    size_t n = letters(t, i);
    if (n < 2 || n > 4 || at(t, i + n) != ' ' ||
        word_flags(t.s + i, n) & (W_STOP | W_MONTH | W_MONEY))
        return 0;
    for (size_t k = 0; k < n; k++)
        if (!is_capital((unsigned char)t.s[i + k]))
            return 0;
    size_t n_digits = digits(t, i + n + 1);
    return n_digits >= 2 && n_digits <= 5 && !is_alnum(at(t, i + n + 1 + n_digits))
               ? n + 1 + n_digits
               : 0;
}

/* ---- quotations and names ---- */

static size_t quoted(struct text t, size_t i, size_t *ret_open)
{
    static const char *const pairs[][2] = {{"\"", "\""}, {"“", "”"},   {"「", "」"},
                                           {"『", "』"}, {"《", "》"}, {"`", "`"}};
    for (size_t k = 0; k < sizeof pairs / sizeof pairs[0]; k++) {
        size_t open = strlen(pairs[k][0]), close = strlen(pairs[k][1]);
        if (!has(t, i, pairs[k][0]))
            continue;
        size_t most = t.n - i - open < 80 ? t.n - i - open : 80;
        const char *end = memmem(t.s + i + open, most, pairs[k][1], close);
        if (!end || end == t.s + i + open)
            return 0;
        *ret_open = open;
        return (size_t)(end - (t.s + i)) - open;
    }
    return 0;
}

/* A word from i on: letters of any alphabet, apostrophes and hyphens between them. */
static size_t word_len(struct text t, size_t i)
{
    size_t n = 0;
    while (i + n < t.n) {
        size_t next = i + n;
        if (is_alnum(t.s[next])) {
            n++;
            continue;
        }
        uint32_t cp = sentence_char(t.s, t.n, &next);
        bool is_joint = n && (cp == '\'' || cp == '-' || cp == 0x2019) && is_letter(at(t, next));
        if ((!is_wordly(cp) || is_cjk(cp)) && !is_joint)
            break;
        n = next - i;
    }
    return n;
}

static bool begins_capital(struct text t, size_t i)
{
    return i < t.n && is_capital(sentence_char(t.s, t.n, &i));
}

/* Capitalised words in a row; not what is a word of every sentence's start. */
static size_t name(struct text t, size_t i, bool is_first)
{
    size_t n = 0, n_words = 0;
    while (begins_capital(t, i + n)) {
        size_t word = word_len(t, i + n);
        unsigned flags = word_flags(t.s + i + n, word);
        if ((flags & (W_STOP | W_FIRST | W_CHAT | W_WH | W_ASK | W_MONTH)) && !(flags & W_TITLE))
            break;
        if (has(t, i + n + word - (word > 2 ? 2 : 0), "'s"))
            word -= 2;
        n += word;
        n_words++;
        bool is_dotted = (flags & W_TITLE || word == 1) && has(t, i + n, ". ");
        size_t gap = is_dotted ? 2 : at(t, i + n) == ' ' ? 1 : 0;
        if (!gap || !begins_capital(t, i + n + gap))
            break;
        size_t next = word_len(t, i + n + gap);
        if (word_flags(t.s + i + n + gap, next) & (W_STOP | W_FIRST | W_MONTH | W_DAY))
            break;
        n += gap;
    }
    while (n && at(t, i + n - 1) == ' ')
        n--;
    return n < 2 || (is_first && n_words < 2) ? 0 : n;
}

/* ---- the walk ---- */

static size_t run_value(struct text t, size_t i, enum value_kind *ret)
{
    size_t n;
    *ret = VALUE_URL;
    if ((n = url(t, i)))
        return n;
    if ((n = date_or_time(t, i, ret)))
        return n;
    *ret = VALUE_IDENT;
    if ((n = spaced_code(t, i)))
        return n;
    *ret = VALUE_MONEY;
    if ((!is_letter(t.s[i]) || t.s[i] == 'U') && (n = money(t, i)))
        return n;
    *ret = VALUE_PHONE;
    if (!is_letter(t.s[i]) && (n = phone(t, i)))
        return n;
    *ret = VALUE_NUMBER;
    if ((n = grouped(t, i)))
        return n;
    *ret = VALUE_IDENT;
    if ((n = lettered_number(t, i)))
        return n;
    n = run_end(t, i);
    struct makeup m = makeup_of(t, i, n);
    enum value_kind kind = n ? classify(t, i, &m) : 0;
    *ret = kind;
    return kind ? n : 0;
}

/* Whether the recognisers of runs have anything to look at in this ASCII character. */
static bool begins_run(char c)
{
    return is_alnum(c) || c == '$' || c == '(' || is_run_mark(c);
}

/* The value at i, a beginning; a quotation's is behind its mark. */
static size_t value_at(struct text t, size_t i, bool is_first, struct value *ret)
{
    size_t n = 0, open = 0;
    enum value_kind kind = 0;
    const char c = t.s[i];
    const bool is_ascii = (unsigned char)c < 0x80;
    if (!is_letter(c) && (n = quoted(t, i, &open)))
        kind = VALUE_QUOTE;
    else if (!is_letter(c) && (n = zh_value(t, i, &kind)))
        ;
    else if (is_ascii && begins_run(c))
        n = run_value(t, i, &kind);
    else if (!is_ascii && (n = money(t, i)))
        kind = VALUE_MONEY;
    if (!n && (n = name(t, i, is_first)))
        kind = VALUE_NAME;
    *ret = (struct value){kind, (uint32_t)(i + open), (uint32_t)n};
    return n;
}

size_t values_find(const char *s, size_t n, struct value *ret, size_t max)
{
    struct text t = {s, n};
    size_t count = 0;
    bool is_first = true;
    for (size_t i = 0; i < n && count < max;) {
        if (value_at(t, i, is_first, &ret[count])) {
            i = ret[count].at + ret[count].n;
            is_first = false;
            count++;
            continue;
        }
        /* Past a word or a run as a whole: values begin where something begins. */
        size_t word = word_len(t, i), run = run_end(t, i), next = i;
        uint32_t cp = sentence_char(s, n, &next);
        if (word || run)
            next = i + (word > run ? word : run);
        is_first = is_first && !is_wordly(cp);
        i = next;
    }
    return count;
}
