/*
 * Exact values (values.h). A sentence is walked once; at each beginning of a run the recognisers
 * are asked in order, the first that answers with a length wins, and the walk goes on behind it.
 */
#include "memory/values.h"

#include <stdbool.h>
#include <string.h>

#include "memory/sentence.h"
#include "memory/words.h"

#define ZH_DIGITS_MAX 12 /* characters of a number; no longer one is said */

struct text {
    const char *s;
    size_t n;
};

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

static bool is_letter(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

static bool is_alnum(char c)
{
    return is_digit(c) || is_letter(c);
}

static char at(struct text t, size_t i)
{
    return i < t.n ? t.s[i] : 0;
}

/* NUL is in no set. */
static bool is_in(const char *set, char c)
{
    return c && strchr(set, c);
}

static size_t digits(struct text t, size_t i)
{
    size_t n = 0;
    while (is_digit(at(t, i + n)))
        n++;
    return n;
}

static size_t letters(struct text t, size_t i)
{
    size_t n = 0;
    while (is_letter(at(t, i + n)))
        n++;
    return n;
}

static bool has(struct text t, size_t i, const char *what)
{
    size_t n = strlen(what);
    return i <= t.n && t.n - i >= n && memcmp(t.s + i, what, n) == 0;
}

/* Length of the first string of the list that stands at i. */
static size_t any_of(struct text t, size_t i, const char *const *list)
{
    for (; *list; list++)
        if (has(t, i, *list))
            return strlen(*list);
    return 0;
}

/* ---- dates and times ---- */

static size_t ordinal(struct text t, size_t i)
{
    size_t n = digits(t, i);
    if (n < 1 || n > 2)
        return 0;
    if (has(t, i + n, "st") || has(t, i + n, "nd") || has(t, i + n, "rd") || has(t, i + n, "th"))
        n += 2;
    return is_alnum(at(t, i + n)) ? 0 : n;
}

static size_t month(struct text t, size_t i)
{
    size_t n = letters(t, i);
    if (!n || !(word_flags(t.s + i, n) & W_MONTH))
        return 0;
    return n <= 4 && at(t, i + n) == '.' ? n + 1 : n;
}

/* ", 2025" or " 2025". */
static size_t year_after(struct text t, size_t i)
{
    size_t n = at(t, i) == ',' ? 1 : 0;
    if (at(t, i + n) == ' ' && digits(t, i + n + 1) == 4 && !is_alnum(at(t, i + n + 5)))
        return n + 5;
    return 0;
}

/* 2025-03-14, 14/03/2025, 3.4.25; with T and a time after the first. */
static size_t numeric_date(struct text t, size_t i)
{
    size_t a = digits(t, i);
    char sep = at(t, i + a);
    if ((a != 4 && a != 1 && a != 2) || !is_in("-/.", sep))
        return 0;
    size_t b = digits(t, i + a + 1);
    if ((b != 1 && b != 2) || at(t, i + a + 1 + b) != sep)
        return 0;
    size_t c = digits(t, i + a + b + 2), n = a + b + c + 2;
    bool is_dotted_short = sep == '.' && a != 4 && c != 4; /* 2.3.1 is a version */
    if ((a == 4 ? c != 1 && c != 2 : c != 2 && c != 4) || is_dotted_short)
        return 0;
    if (at(t, i + n) == 'T' && digits(t, i + n + 1) == 2)
        while (is_alnum(at(t, i + n)) ||
               (is_in(":+-.", at(t, i + n)) && is_alnum(at(t, i + n + 1))))
            n++;
    return is_alnum(at(t, i + n)) || (at(t, i + n) == sep && is_digit(at(t, i + n + 1))) ? 0 : n;
}

/* March 14th, 2025; 14 March 2025; the 14th of March; March 2025. */
static size_t month_date(struct text t, size_t i)
{
    size_t n = month(t, i);
    if (n) {
        size_t day = at(t, i + n) == ' ' ? ordinal(t, i + n + 1) : 0;
        if (day)
            n += 1 + day;
        size_t year = year_after(t, i + n);
        return day || year ? n + year : 0;
    }
    n = ordinal(t, i);
    if (!n)
        return 0;
    size_t gap = has(t, i + n, " of ") ? 4 : at(t, i + n) == ' ' ? 1 : 0;
    size_t name = gap ? month(t, i + n + gap) : 0;
    return name ? n + gap + name + year_after(t, i + n + gap + name) : 0;
}

static size_t weekday(struct text t, size_t i)
{
    size_t n = letters(t, i);
    return n && (word_flags(t.s + i, n) & W_DAY) ? n : 0;
}

/* " am", "p.m.", with the space before it. */
static size_t half_day(struct text t, size_t i)
{
    static const char *const forms[] = {"a.m.", "p.m.", "A.M.", "P.M.",    "am",
                                        "pm",   "AM",   "PM",   "o'clock", NULL};
    size_t gap = at(t, i) == ' ' ? 1 : 0, n = any_of(t, i + gap, forms);
    return n && !is_alnum(at(t, i + gap + n)) ? gap + n : 0;
}

/* 14:30, 14:30:05, 3pm, 3:15 p.m., 09:00 UTC. */
static size_t clock_time(struct text t, size_t i)
{
    static const char *const zones[] = {" UTC", " GMT", " CET", " CEST", " EST",
                                        " EDT", " PST", " PDT", "Z",     NULL};
    size_t n = digits(t, i);
    if (n < 1 || n > 2)
        return 0;
    size_t half = half_day(t, i + n);
    if (half)
        return n + half;
    if (at(t, i + n) != ':' || digits(t, i + n + 1) != 2)
        return 0;
    n += 3;
    if (at(t, i + n) == ':' && digits(t, i + n + 1) == 2)
        n += 3;
    n += half_day(t, i + n);
    n += any_of(t, i + n, zones);
    return is_alnum(at(t, i + n)) || at(t, i + n) == ':' ? 0 : n;
}

/* ---- Chinese ---- */

static const char *const zh_digits[] = {"零", "〇", "一", "二", "两", "三", "四", "五", "六", "七",
                                        "八", "九", "十", "百", "千", "万", "亿", "半", NULL};

/* Digits of either script: 14, 3.5, 二十, 3万. */
static size_t zh_number(struct text t, size_t i)
{
    size_t n = digits(t, i);
    while (n && is_in(".,", at(t, i + n)) && is_digit(at(t, i + n + 1)))
        n += 1 + digits(t, i + n + 1);
    size_t more;
    for (int k = 0; k < ZH_DIGITS_MAX && (more = any_of(t, i + n, zh_digits)); k++)
        n += more;
    return n;
}

/* A number and `unit`; 0: not here. */
static size_t zh_part(struct text t, size_t i, const char *const *units)
{
    size_t n = zh_number(t, i), unit = n ? any_of(t, i + n, units) : 0;
    return unit ? n + unit : 0;
}

/* 2025年3月14日, 三月十五号, 周五, 下周三, 星期天. */
static size_t zh_date(struct text t, size_t i)
{
    static const char *const years[] = {"年", NULL}, *const months[] = {"月份", "月", NULL},
                             *const days[] = {"日", "号", NULL};
    static const char *const weeks[] = {"下下周", "下周",   "上周",   "本周", "这周", "每周",
                                        "周",     "下星期", "每星期", "星期", "礼拜", NULL};
    static const char *const of_week[] = {"一", "二", "三", "四", "五",
                                          "六", "日", "天", "末", NULL};
    size_t week = any_of(t, i, weeks), day = week ? any_of(t, i + week, of_week) : 0;
    if (day)
        return week + day;
    size_t n = 0, year = zh_part(t, i, years);
    if (year && digits(t, i) != 4 && digits(t, i) != 2 && digits(t, i))
        return 0;
    n += year;
    size_t mon = zh_part(t, i + n, months);
    n += mon;
    day = mon || !year ? zh_part(t, i + n, days) : 0;
    n += day;
    bool is_span = !mon && !day && digits(t, i) != 4; /* 三年 is a span, 2019年 a year */
    if (is_span || (day && !mon && n <= 4 && !is_digit(at(t, i))))
        return 0;
    return n;
}

/* 下午3点, 15点30分, 三点半. */
static size_t zh_time(struct text t, size_t i)
{
    static const char
        *const parts[] = {"早上", "上午", "中午", "下午", "晚上", "凌晨", "傍晚", NULL},
               *const hours[] = {"点钟", "点", NULL}, *const rest[] = {"半", "一刻", "三刻", NULL},
               *const minutes[] = {"分", NULL};
    size_t n = any_of(t, i, parts), hour = zh_part(t, i + n, hours);
    if (n && !hour) {
        size_t clock = clock_time(t, i + n);
        return clock ? n + clock : 0;
    }
    if (!hour)
        return 0;
    n += hour;
    size_t half = any_of(t, i + n, rest);
    return n + (half ? half : zh_part(t, i + n, minutes));
}

static size_t zh_money(struct text t, size_t i)
{
    static const char *const units[] = {"元",   "块钱", "块",     "美元", "欧元",
                                        "英镑", "日元", "人民币", "港币", NULL};
    return zh_part(t, i, units);
}

/* A number in digits and the measure after it: 3个, 65公斤, 12楼. */
static size_t zh_count(struct text t, size_t i)
{
    size_t n = zh_number(t, i), at_unit = i + n;
    if (!n || !is_digit(at(t, i)) || at_unit >= t.n)
        return 0;
    static const char *const particles[] = {"了", "的", "吗", "呢", "吧", "和",
                                            "是", "在", "就", "也", NULL};
    if (any_of(t, at_unit, particles))
        return 0;
    uint32_t cp = sentence_char(t.s, t.n, &at_unit);
    return is_cjk(cp) ? at_unit - i : 0;
}

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

static size_t run_end(struct text t, size_t i)
{
    size_t n = 0;
    while (is_alnum(at(t, i + n)) || is_in("_./:@#+-~%&=\\*", at(t, i + n)))
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

static size_t zh_value(struct text t, size_t i, enum value_kind *ret)
{
    size_t n;
    if ((n = zh_date(t, i)))
        *ret = digits(t, i) == 4 && n == 4 + strlen("年") ? VALUE_YEAR : VALUE_DATE;
    else if ((n = zh_time(t, i)))
        *ret = VALUE_TIME;
    else if ((n = zh_money(t, i)))
        *ret = VALUE_MONEY;
    else if ((n = zh_count(t, i)))
        *ret = VALUE_NUMBER;
    return n;
}

static size_t dated(struct text t, size_t i, enum value_kind *ret)
{
    size_t n = numeric_date(t, i);
    n = n ? n : month_date(t, i);
    n = n ? n : weekday(t, i);
    *ret = VALUE_DATE;
    if (!n && (n = clock_time(t, i)))
        *ret = VALUE_TIME;
    return n;
}

static size_t run_value(struct text t, size_t i, enum value_kind *ret)
{
    size_t n;
    *ret = VALUE_URL;
    if ((n = url(t, i)))
        return n;
    if ((n = dated(t, i, ret)))
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

/* The value at i, a beginning. *ret_skip: bytes before it. */
static size_t value_at(struct text t, size_t i, bool is_first, struct value *ret)
{
    size_t n, open = 0;
    enum value_kind kind = 0;
    bool is_plain = is_letter(t.s[i]); /* the most frequent: no need to ask for the others */
    if (!is_plain && (n = quoted(t, i, &open)))
        kind = VALUE_QUOTE;
    else if ((is_plain || (n = zh_value(t, i, &kind)) == 0) && (n = run_value(t, i, &kind)) == 0 &&
             (n = name(t, i, is_first)))
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
