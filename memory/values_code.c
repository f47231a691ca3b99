/*
 * Codes with spaces in them, and street addresses (values.h): one value each, or a list of facts
 * would know "DE89" of an account and "9" of "9 Tannery Lane". Each answers with a length, 0: not
 * here.
 */
#include "memory/values_text.h"

static bool is_upper(char c)
{
    return c >= 'A' && c <= 'Z';
}

static size_t capitals(struct text t, size_t i)
{
    size_t n = 0;
    while (is_upper(at(t, i + n)))
        n++;
    return n;
}

/* Digits and capitals. */
static size_t group(struct text t, size_t i)
{
    size_t n = 0;
    while (is_upper(at(t, i + n)) || is_digit(at(t, i + n)))
        n++;
    return n;
}

/* DE89 3704 0044 0532 0130 00, 6222 0210 0112 3456 789: three groups of four and more. */
static size_t account(struct text t, size_t i)
{
    const bool is_iban = capitals(t, i) == 2 && digits(t, i + 2) == 2;
    size_t n = group(t, i), n_groups = 1;
    if (n != 4 || (!is_iban && digits(t, i) != 4))
        return 0;
    for (size_t len; at(t, i + n) == ' '; n_groups++) {
        len = is_iban ? group(t, i + n + 1) : digits(t, i + n + 1);
        if (len < 1 || len > 4 || is_alnum(at(t, i + n + 1 + len)))
            break;
        n += 1 + len;
        if (len < 4)
            return n_groups >= 3 ? n : 0;
    }
    return n_groups >= 3 && !is_alnum(at(t, i + n)) ? n : 0;
}

/* K-LM 4711, KL 83 RVD. */
static size_t plate(struct text t, size_t i)
{
    size_t n = capitals(t, i);
    if (n < 1 || n > 3)
        return 0;
    const bool is_dashed = at(t, i + n) == '-';
    const size_t more = is_dashed ? capitals(t, i + n + 1) : 0;
    if (is_dashed && (more < 1 || more > 2))
        return 0;
    n += is_dashed ? 1 + more : 0;
    const size_t n_digits = at(t, i + n) == ' ' ? digits(t, i + n + 1) : 0;
    if (n_digits < 1 || n_digits > 4)
        return 0;
    n += 1 + n_digits;
    const size_t tail = !is_dashed && at(t, i + n) == ' ' ? capitals(t, i + n + 1) : 0;
    if (!is_dashed && (tail < 2 || tail > 3))
        return 0;
    n += tail ? 1 + tail : 0;
    return is_alnum(at(t, i + n)) ? 0 : n;
}

/* 9 Tannery Lane, 221b Upper Baker Street */
static size_t street(struct text t, size_t i)
{
    static const char *const kinds[] = {"Street", "Road", "Lane", "Row", "Avenue", "Drive", "Way",
                                        "Square", "Close", "Terrace", "Boulevard", "Crescent",
                                        "Gardens", "Hill", "Quay", NULL};
    size_t n = digits(t, i);
    if (n < 1 || n > 4)
        return 0;
    n += at(t, i + n) >= 'a' && at(t, i + n) <= 'd' && at(t, i + n + 1) == ' ';
    for (int word = 0; word < 4 && at(t, i + n) == ' ' && is_upper(at(t, i + n + 1)); word++) {
        const size_t len = letters(t, i + n + 1);
        if (word > 0 && any_of(t, i + n + 1, kinds) == len)
            return n + 1 + len;
        n += 1 + len;
    }
    return 0;
}

size_t spaced_code(struct text t, size_t i)
{
    const char c = at(t, i);
    size_t n = 0;
    if (!is_digit(c) && !is_upper(c))
        return 0;
    n = account(t, i);
    n = n || is_digit(c) ? n : plate(t, i);
    return n || !is_digit(c) ? n : street(t, i);
}

/* half past six, quarter to nine, six o'clock, noon */
size_t spoken_time(struct text t, size_t i)
{
    static const char *const hours[] = {"one", "two", "three", "four", "five", "six", "seven",
                                        "eight", "nine", "ten", "eleven", "twelve", NULL};
    static const char *const parts[] = {"half past ", "a quarter past ", "a quarter to ",
                                        "quarter past ", "quarter to ", "five past ", "five to ",
                                        "ten past ", "ten to ", "twenty past ", "twenty to ",
                                        NULL};
    static const char *const whole[] = {"noon", "midnight", NULL};
    size_t n = any_of(t, i, whole);
    if (n)
        return is_alnum(at(t, i + n)) ? 0 : n;
    const size_t part = any_of(t, i, parts);
    n = any_of(t, i + part, hours);
    if (!n || is_letter(at(t, i + part + n)))
        return 0;
    const size_t clock = has(t, i + n, " o'clock") ? 8 : 0;
    return part ? part + n : clock ? n + clock : 0;
}
