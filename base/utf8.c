/*
 * UTF-8. One function knows the encoding, utf8_step; it follows table 3-7 of the Unicode standard,
 * whose point is that only the second byte has ranges of its own:
 *
 *     first    second   third    fourth
 *     00..7F
 *     C2..DF   80..BF
 *     E0       A0..BF   80..BF              (no overlong forms)
 *     E1..EC   80..BF   80..BF
 *     ED       80..9F   80..BF              (no surrogates)
 *     EE..EF   80..BF   80..BF
 *     F0       90..BF   80..BF   80..BF     (no overlong forms)
 *     F1..F3   80..BF   80..BF   80..BF
 *     F4       80..8F   80..BF   80..BF     (nothing above U+10FFFF)
 */
#include "base/utf8.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include <utf8proc.h>

#include "base/sys.h"

/* Length that the first byte announces, 0 when it can't start a character, and the range of the
 * second byte. */
static size_t first_byte(unsigned char c, unsigned char *lo, unsigned char *hi)
{
    *lo = 0x80;
    *hi = 0xBF;
    if (c < 0x80)
        return 1;
    if (c < 0xC2)
        return 0;
    if (c < 0xE0)
        return 2;
    if (c < 0xF0) {
        if (c == 0xE0)
            *lo = 0xA0;
        if (c == 0xED)
            *hi = 0x9F;
        return 3;
    }
    if (c < 0xF5) {
        if (c == 0xF0)
            *lo = 0x90;
        if (c == 0xF4)
            *hi = 0x8F;
        return 4;
    }
    return 0;
}

/* Bytes of s that are a character or its well-formed beginning (0: none), and the length announced.
 */
static size_t well_formed(const char *s, size_t n, size_t *ret_want)
{
    unsigned char lo, hi;
    size_t want = first_byte((unsigned char)s[0], &lo, &hi);
    *ret_want = want;
    if (want == 0)
        return 0;
    size_t have = 1;
    while (have < want && have < n) {
        unsigned char c = (unsigned char)s[have];
        if (c < lo || c > hi)
            break;
        lo = 0x80;
        hi = 0xBF;
        have++;
    }
    return have;
}

size_t utf8_step(const char *s, size_t n, bool *ret_ok)
{
    assert(n > 0);
    size_t want;
    size_t have = well_formed(s, n, &want);
    *ret_ok = have > 0 && have == want;
    return have > 0 ? have : 1;
}

bool utf8_valid(const char *s, size_t n, size_t *ret_bad)
{
    for (size_t i = 0; i < n;) {
        if ((unsigned char)s[i] < 0x80) {
            i++;
            continue;
        }
        bool ok;
        size_t step = utf8_step(s + i, n - i, &ok);
        if (!ok) {
            if (ret_bad)
                *ret_bad = i;
            return false;
        }
        i += step;
    }
    return true;
}

size_t utf8_complete(const char *s, size_t n)
{
    /* The only candidate is the last byte that isn't a continuation, at most 3 from the end. */
    for (size_t back = 1; back <= 3 && back <= n; back++) {
        unsigned char c = (unsigned char)s[n - back];
        if (c >= 0x80 && c < 0xC0)
            continue;
        size_t want;
        size_t have = well_formed(s + n - back, back, &want);
        return have == back && have < want ? n - back : n;
    }
    return n;
}

void utf8_repair(struct buf *b, const char *s, size_t n)
{
    size_t from = 0;
    for (size_t i = 0; i < n;) {
        bool ok;
        size_t step = utf8_step(s + i, n - i, &ok);
        if (!ok) {
            buf_add(b, s + from, i - from);
            buf_str(b, "\xEF\xBF\xBD");
            from = i + step;
        }
        i += step;
    }
    buf_add(b, s + from, n - from);
}

uint32_t utf8_next(const char *s, size_t n, size_t *i)
{
    assert(*i < n);
    const unsigned char *p = (const unsigned char *)s + *i;
    size_t len = p[0] < 0x80 ? 1 : p[0] < 0xE0 ? 2 : p[0] < 0xF0 ? 3 : 4;
    assert(len <= n - *i);
    *i += len;
    if (len == 1)
        return p[0];
    uint32_t cp = p[0] & (0xFFu >> (len + 1));
    for (size_t k = 1; k < len; k++)
        cp = cp << 6 | (p[k] & 0x3Fu);
    return cp;
}

int utf8_put(char out[4], uint32_t cp)
{
    if (cp < 0x80) {
        out[0] = (char)cp;
        return 1;
    }
    if (cp < 0x800) {
        out[0] = (char)(0xC0 | cp >> 6);
        out[1] = (char)(0x80 | (cp & 0x3F));
        return 2;
    }
    if (cp < 0x10000) {
        out[0] = (char)(0xE0 | cp >> 12);
        out[1] = (char)(0x80 | (cp >> 6 & 0x3F));
        out[2] = (char)(0x80 | (cp & 0x3F));
        return 3;
    }
    assert(cp <= 0x10FFFF);
    out[0] = (char)(0xF0 | cp >> 18);
    out[1] = (char)(0x80 | (cp >> 12 & 0x3F));
    out[2] = (char)(0x80 | (cp >> 6 & 0x3F));
    out[3] = (char)(0x80 | (cp & 0x3F));
    return 4;
}

static bool is_dense(uint32_t cp)
{
    static const uint32_t ranges[][2] = {
        {0x0E01, 0x0E3A},   /* Thai, without the baht sign behind it */
        {0x0E40, 0x0E4E},   {0x0E81, 0x0ECD}, /* Lao */
        {0x1000, 0x1049},   /* Myanmar */
        {0x1100, 0x11FF},   /* Hangul letters */
        {0x1780, 0x17D3},   /* Khmer */
        {0x3005, 0x3007},   {0x3041, 0x3096}, {0x3099, 0x309F}, /* kana */
        {0x30A1, 0x30FA},   {0x30FC, 0x30FF}, {0x31F0, 0x31FF}, {0x3400, 0x4DBF},
        {0x4E00, 0x9FFF},   {0xAC00, 0xD7A3}, {0xF900, 0xFAFF}, {0xFF66, 0xFF9F},
        {0x20000, 0x3FFFD},
    };
    for (size_t i = 0; i < sizeof(ranges) / sizeof(ranges[0]); i++)
        if (cp <= ranges[i][1])
            return cp >= ranges[i][0];
    return false;
}

static bool is_accent(uint32_t cp)
{
    return cp >= 0x300 && cp <= 0x36F;
}

enum utf8_kind utf8_kind(uint32_t cp)
{
    if (cp < 0x80) {
        uint32_t lower = cp | 0x20;
        if (lower >= 'a' && lower <= 'z')
            return UTF8_LETTER;
        return cp >= '0' && cp <= '9' ? UTF8_DIGIT : UTF8_OTHER;
    }
    if (is_dense(cp))
        return UTF8_DENSE;
    switch (utf8proc_category((utf8proc_int32_t)cp)) {
    case UTF8PROC_CATEGORY_LU:
    case UTF8PROC_CATEGORY_LL:
    case UTF8PROC_CATEGORY_LT:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_LO:
        return UTF8_LETTER;
    case UTF8PROC_CATEGORY_ND:
    case UTF8PROC_CATEGORY_NL:
    case UTF8PROC_CATEGORY_NO:
        return UTF8_DIGIT;
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_MC:
        return is_accent(cp) ? UTF8_OTHER : UTF8_MARK;
    default:
        return UTF8_OTHER;
    }
}

bool utf8_is_upper(uint32_t cp)
{
    if (cp < 0x80)
        return cp >= 'A' && cp <= 'Z';
    return utf8proc_category((utf8proc_int32_t)cp) == UTF8PROC_CATEGORY_LU;
}

const char *utf8_category(uint32_t cp)
{
    return utf8proc_category_string((utf8proc_int32_t)cp);
}

uint32_t utf8_case(uint32_t cp, bool is_upper)
{
    static const struct {
        uint32_t from, to;
    } specials[] = {{0xDF, 0xDF},     {0x149, 0x149},   {0x1F0, 0x1F0},   {0x390, 0x390},
                    {0x3B0, 0x3B0},   {0x587, 0x587},   {0x1E96, 0x1E9A}, {0x1F50, 0x1F56},
                    {0x1F80, 0x1FFF}, {0xFB00, 0xFB17}};
    if (!is_upper && (cp == 0x130 || cp == 0x3A3))
        return 0;
    for (size_t i = 0; is_upper && i < sizeof specials / sizeof *specials; i++)
        if (cp >= specials[i].from && cp <= specials[i].to)
            return 0;
    return (uint32_t)(is_upper ? utf8proc_toupper((utf8proc_int32_t)cp)
                               : utf8proc_tolower((utf8proc_int32_t)cp));
}

int utf8_fold(uint32_t cp, uint32_t out[UTF8_FOLD_MAX])
{
    if (cp < 0x80) {
        out[0] = cp >= 'A' && cp <= 'Z' ? cp | 0x20 : cp;
        return 1;
    }
    bool is_composed = (cp >= 0x3041 && cp <= 0x30FF) || (cp >= 0xAC00 && cp <= 0xD7A3);
    utf8proc_int32_t parts[UTF8_FOLD_MAX];
    int boundclass = UTF8PROC_BOUNDCLASS_START;
    utf8proc_ssize_t n = is_composed ? -1
                                     : utf8proc_decompose_char(
                                           (utf8proc_int32_t)cp, parts, UTF8_FOLD_MAX,
                                           UTF8PROC_DECOMPOSE | UTF8PROC_COMPAT |
                                               UTF8PROC_CASEFOLD | UTF8PROC_IGNORE,
                                           &boundclass);
    if (n < 0 || n > UTF8_FOLD_MAX) {
        out[0] = cp;
        return 1;
    }
    int kept = 0;
    for (utf8proc_ssize_t i = 0; i < n; i++)
        if (!is_accent((uint32_t)parts[i]))
            out[kept++] = (uint32_t)parts[i];
    return kept;
}

/* The ideographs of CJK in Unicode's sense, neither kana nor Hangul. */
static bool is_ideograph(uint32_t cp)
{
    static const uint32_t ranges[][2] = {
        {0x3400, 0x4DBF},   {0x4E00, 0x9FFF},   {0xF900, 0xFAFF},   {0x20000, 0x2A6DF},
        {0x2A700, 0x2CEAF}, {0x2F800, 0x2FA1F},
    };
    for (size_t i = 0; i < sizeof(ranges) / sizeof(ranges[0]); i++)
        if (cp <= ranges[i][1])
            return cp >= ranges[i][0];
    return false;
}

enum utf8_break utf8_break(uint32_t cp)
{
    if (cp == '\t' || cp == '\n' || cp == '\r' || cp == ' ')
        return UTF8_BREAK_SPACE;
    if (cp < 0x80 && cp > ' ' && cp != 0x7F) {
        const uint32_t lower = cp | 0x20;
        const bool is_word = (lower >= 'a' && lower <= 'z') || (cp >= '0' && cp <= '9');
        return is_word ? UTF8_BREAK_NONE : UTF8_BREAK_PUNCTUATION;
    }
    if (is_ideograph(cp))
        return UTF8_BREAK_IDEOGRAPH;
    switch (utf8proc_category((utf8proc_int32_t)cp)) {
    case UTF8PROC_CATEGORY_CC:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_CS:
    case UTF8PROC_CATEGORY_CO:
        return UTF8_BREAK_CONTROL;
    case UTF8PROC_CATEGORY_ZS:
    case UTF8PROC_CATEGORY_ZL:
    case UTF8PROC_CATEGORY_ZP:
        return UTF8_BREAK_SPACE;
    case UTF8PROC_CATEGORY_PC:
    case UTF8PROC_CATEGORY_PD:
    case UTF8PROC_CATEGORY_PS:
    case UTF8PROC_CATEGORY_PE:
    case UTF8PROC_CATEGORY_PI:
    case UTF8PROC_CATEGORY_PF:
    case UTF8PROC_CATEGORY_PO:
        return UTF8_BREAK_PUNCTUATION;
    default:
        return cp == 0xFFFD ? UTF8_BREAK_CONTROL : UTF8_BREAK_NONE;
    }
}

int utf8_bare(uint32_t cp, uint32_t out[UTF8_FOLD_MAX])
{
    if (cp < 0x80) {
        out[0] = cp >= 'A' && cp <= 'Z' ? cp | 0x20 : cp;
        return 1;
    }
    utf8proc_int32_t parts[UTF8_FOLD_MAX];
    int boundclass = UTF8PROC_BOUNDCLASS_START;
    utf8proc_ssize_t n = utf8proc_decompose_char((utf8proc_int32_t)cp, parts, UTF8_FOLD_MAX,
                                                 UTF8PROC_DECOMPOSE, &boundclass);
    if (n < 0 || n > UTF8_FOLD_MAX) {
        out[0] = cp;
        return 1;
    }
    int kept = 0;
    for (utf8proc_ssize_t i = 0; i < n; i++)
        if (utf8proc_category(parts[i]) != UTF8PROC_CATEGORY_MN)
            out[kept++] = (uint32_t)utf8proc_tolower(parts[i]);
    return kept;
}

/* Characters that no normalization changes and that compose with nothing: below U+0300, and the
 * bulk of what is written without marks. */
static bool is_plain(uint32_t cp)
{
    return cp < 0x300 || (cp >= 0x2010 && cp <= 0x2027) || (cp >= 0x3001 && cp <= 0x3029) ||
           (cp >= 0x3400 && cp <= 0x9FFF) || (cp >= 0xAC00 && cp <= 0xD7A3) ||
           (cp >= 0xFF01 && cp <= 0xFF60) || (cp >= 0x1F300 && cp <= 0x1FAFF);
}

bool utf8_is_nfc(const char *s, size_t n)
{
    for (size_t i = 0; i < n;) {
        if ((unsigned char)s[i] < 0xCC)
            i += (unsigned char)s[i] < 0x80 ? 1 : 2;
        else if (!is_plain(utf8_next(s, n, &i)))
            return false;
    }
    return true;
}

static unsigned combining_class(utf8proc_int32_t cp)
{
    return (unsigned)utf8proc_get_property(cp)->combining_class;
}

/* Marks in order of their class, stable. A run can be as long as the text, so they are counted. */
static void sort_marks(utf8proc_int32_t *marks, size_t n, utf8proc_int32_t *room)
{
    size_t at[257] = {0};
    for (size_t i = 0; i < n; i++)
        at[combining_class(marks[i]) + 1]++;
    for (size_t c = 1; c < 257; c++)
        at[c] += at[c - 1];
    for (size_t i = 0; i < n; i++)
        room[at[combining_class(marks[i])]++] = marks[i];
    memcpy(marks, room, n * sizeof *marks);
}

static void order_marks(utf8proc_int32_t *cps, size_t n, utf8proc_int32_t *room)
{
    for (size_t i = 0, end; i < n; i = end) {
        end = i + 1;
        if (combining_class(cps[i]) == 0)
            continue;
        bool is_sorted = true;
        for (; end < n && combining_class(cps[end]) != 0; end++)
            is_sorted = is_sorted && combining_class(cps[end - 1]) <= combining_class(cps[end]);
        if (!is_sorted)
            sort_marks(cps + i, end - i, room);
    }
}

/* utf8proc's own decomposition of a string sorts marks by exchange, which is quadratic in a run of
 * them; that of one character, and the composition, are linear. */
static void nfc_part(const char *s, size_t n, utf8proc_int32_t *cps, struct buf *b)
{
    const size_t cap = 2 * n + UTF8_FOLD_MAX;
    size_t n_cps = 0;
    for (size_t i = 0; i < n;) {
        int boundclass = UTF8PROC_BOUNDCLASS_START;
        const utf8proc_int32_t cp = (utf8proc_int32_t)utf8_next(s, n, &i);
        const utf8proc_ssize_t got =
            utf8proc_decompose_char(cp, cps + n_cps, UTF8_FOLD_MAX,
                                    UTF8PROC_DECOMPOSE | UTF8PROC_STABLE, &boundclass);
        assert(got > 0 && got <= UTF8_FOLD_MAX);
        n_cps += (size_t)got;
    }
    order_marks(cps, n_cps, cps + cap);
    const utf8proc_ssize_t left = utf8proc_normalize_utf32(
        cps, (utf8proc_ssize_t)n_cps, UTF8PROC_COMPOSE | UTF8PROC_STABLE);
    for (utf8proc_ssize_t i = 0; i < left; i++) {
        char out[4];
        buf_add(b, out, (size_t)utf8_put(out, (uint32_t)cps[i]));
    }
}

/* Parts end before an ASCII character: it composes with nothing before it. */
#define NFC_PART_BYTES 4096

static size_t nfc_part_end(const char *s, size_t n, size_t from)
{
    size_t end = n - from > NFC_PART_BYTES ? from + NFC_PART_BYTES : n;
    while (end < n && (unsigned char)s[end] >= 0x80)
        end++;
    return end;
}

int utf8_nfc(const char *s, size_t n, struct buf *b)
{
    const size_t before = b->len;
    utf8proc_int32_t *cps = NULL;
    size_t cap = 0;
    for (size_t at = 0, end; at < n && !b->error; at = end) {
        end = nfc_part_end(s, n, at);
        if (end - at > cap) {
            cap = end - at;
            free(cps);
            cps = sys.malloc(2 * (2 * cap + UTF8_FOLD_MAX) * sizeof *cps);
            if (!cps)
                b->error = ERR_NOMEM;
        }
        if (cps)
            nfc_part(s + at, end - at, cps, b);
    }
    free(cps);
    if (b->error)
        b->len = before;
    return b->error;
}

size_t utf8_width(const char *s, size_t n)
{
    size_t width = 0;
    for (size_t i = 0; i < n;) {
        int w = utf8proc_charwidth((utf8proc_int32_t)utf8_next(s, n, &i));
        if (w > 0)
            width += (size_t)w;
    }
    return width;
}
