/*
 * Dates, times and Chinese amounts (values.h): the recognisers that know names of months and days
 * and the characters of numbers. Each answers with a length, 0: not here.
 */
#include <string.h>

#include "memory/values_text.h"
#include "memory/words.h"

#define ZH_DIGITS_MAX 12 /* characters of a number; no longer one is said */

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

static bool is_zh_digit(uint32_t cp)
{
    switch (cp) {
    case 0x96F6: /* 零 */
    case 0x3007: /* 〇 */
    case 0x4E00: /* 一 */
    case 0x4E8C: /* 二 */
    case 0x4E24: /* 两 */
    case 0x4E09: /* 三 */
    case 0x56DB: /* 四 */
    case 0x4E94: /* 五 */
    case 0x516D: /* 六 */
    case 0x4E03: /* 七 */
    case 0x516B: /* 八 */
    case 0x4E5D: /* 九 */
    case 0x5341: /* 十 */
    case 0x767E: /* 百 */
    case 0x5343: /* 千 */
    case 0x4E07: /* 万 */
    case 0x4EBF: /* 亿 */
    case 0x534A: /* 半 */
        return true;
    default:
        return false;
    }
}

/* What a date, a time or an amount may begin with: most characters are none. */
static bool begins_zh_value(uint32_t cp)
{
    switch (cp) {
    case 0x4E0A: /* 上 */
    case 0x4E0B: /* 下 */
    case 0x4E2D: /* 中 */
    case 0x508D: /* 傍 */
    case 0x51CC: /* 凌 */
    case 0x5468: /* 周 */
    case 0x661F: /* 星 */
    case 0x65E9: /* 早 */
    case 0x665A: /* 晚 */
    case 0x672C: /* 本 */
    case 0x6BCF: /* 每 */
    case 0x793C: /* 礼 */
    case 0x8FD9: /* 这 */
        return true;
    default:
        return (cp >= '0' && cp <= '9') || is_zh_digit(cp);
    }
}

/* Digits of either script: 14, 3.5, 二十, 3万. */
static size_t zh_number(struct text t, size_t i)
{
    size_t n = digits(t, i);
    while (n && is_in(".,", at(t, i + n)) && is_digit(at(t, i + n + 1)))
        n += 1 + digits(t, i + n + 1);
    for (int k = 0; k < ZH_DIGITS_MAX && is_zh_digit(char_at(t, i + n)); k++)
        n += 3; /* all of them are so long */
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

/* 十二平米, 两百字: a number in characters is told by what it measures; 一 is often an article. */
static size_t zh_measure(struct text t, size_t i, size_t n)
{
    static const char *const measures[] = {"平米", "平方米", "公里", "公斤", "千克", "毫升", "毫米",
                                           "厘米", "分钟",   "小时", "米",   "斤",   "克",   "升",
                                           "度",   "字",     "页",   "岁",   "折",   "倍",   "户",   NULL};
    size_t unit = has(t, i, "一") && n == strlen("一") ? 0 : any_of(t, i + n, measures);
    return unit ? n + unit : 0;
}

/* A number and the measure after it: 3个, 65公斤, 12楼, 十二平米. */
static size_t zh_count(struct text t, size_t i)
{
    size_t n = zh_number(t, i), at_unit = i + n;
    if (!n || at_unit >= t.n)
        return 0;
    if (!is_digit(at(t, i)))
        return zh_measure(t, i, n);
    static const char *const particles[] = {"了", "的", "吗", "呢", "吧", "和",
                                            "是", "在", "就", "也", NULL};
    if (any_of(t, at_unit, particles))
        return 0;
    uint32_t cp = sentence_char(t.s, t.n, &at_unit);
    return is_cjk(cp) ? at_unit - i : 0;
}

size_t zh_value(struct text t, size_t i, enum value_kind *ret)
{
    size_t n;
    if (!begins_zh_value(char_at(t, i)))
        return 0;
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

size_t date_or_time(struct text t, size_t i, enum value_kind *ret)
{
    bool is_word = is_letter(at(t, i));
    if (!is_word && !is_digit(at(t, i)))
        return 0;
    *ret = VALUE_TIME;
    size_t n = is_word ? spoken_time(t, i) : 0;
    if (n)
        return n;
    if (is_word && !(word_flags(t.s + i, letters(t, i)) & (W_MONTH | W_DAY)))
        return 0;
    n = numeric_date(t, i);
    n = n ? n : month_date(t, i);
    n = n ? n : weekday(t, i);
    *ret = VALUE_DATE;
    if (!n && (n = clock_time(t, i)))
        *ret = VALUE_TIME;
    return n;
}
