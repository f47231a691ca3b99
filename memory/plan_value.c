/*
 * What a message is worth keeping verbatim, told from its text alone.
 *
 *     text ─► words: lower case, single spaces, no punctuation or emoji; CJK characters as they are
 *          ─► are they all phrases of plan_phrases.h?      chit-chat
 *          ─► few and without any sign of a fact?          a very short answer
 *          ─► long, far back and a machine's?              bulky
 *          ─► else 50, and 8 more for each kind of sign that it holds a fact
 *
 * The signs: a number; a name (a capital letter inside a sentence); an address or an identifier;
 * a date's word; a preference, a negation or an order to remember. They decide nothing but what
 * leaves first, so that a wrong guess costs a turn's place in the window, never the turn: it stays
 * searchable, and pins are what never leaves.
 *
 * "Yes." is worth nothing as small talk and much as an answer: after a question (is_reply) a short
 * answer is worth what any other message is. Bulk is only a burden when it is old: the newest tool
 * outputs are what the talk is about.
 */
#include "memory/plan.h"

#include <assert.h>
#include <pthread.h>
#include <string.h>

#include "base/utf8.h"
#include "memory/plan_phrases.h"

/* A longer text isn't chit-chat. Bytes. */
#define CHAT_MAX 320
/* Where signs are looked for, and machine-made lines. Bytes. */
#define SIGNS_MAX 4096
#define LINES_MAX 65536

#define VALUE_CHAT 5
#define VALUE_BULKY 10
#define VALUE_CHAT_AND_BIT 15
#define VALUE_SHORT 20
#define VALUE_CODE 35
#define VALUE_PLAIN 50
#define VALUE_SIGN 8

/* A very short answer: words, a CJK character counting as half of one. */
#define SHORT_HALF_WORDS 6
#define BIT_HALF_WORDS 4

struct words {
    char v[CHAT_MAX + 2]; /* normalized, NUL-terminated */
    size_t n;
};

static bool is_cjk(uint32_t c)
{
    return (c >= 0x3040 && c <= 0x30FF) || (c >= 0x3400 && c <= 0x9FFF) ||
           (c >= 0xAC00 && c <= 0xD7AF) || (c >= 0xF900 && c <= 0xFAFF) ||
           (c >= 0x20000 && c <= 0x3FFFF);
}

static bool is_word(uint32_t c)
{
    if (c < 0x80)
        return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
    return (c >= 0xC0 && c < 0x2000 && c != 0xD7 && c != 0xF7) || is_cjk(c) ||
           (c >= 0xFF10 && c <= 0xFF19) || (c >= 0xFF21 && c <= 0xFF3A) ||
           (c >= 0xFF41 && c <= 0xFF5A); /* full-width digits and letters */
}

/* The character at *i, or 0xFFFD for bytes that are none; moves *i past it. */
static uint32_t next_char(const char *s, size_t n, size_t *i)
{
    bool is_ok;
    size_t step = utf8_step(s + *i, n - *i, &is_ok), from = *i;
    if (!is_ok) {
        *i += step;
        return 0xFFFD;
    }
    return utf8_next(s, from + step, i);
}

static uint32_t lower(uint32_t c)
{
    return c >= 'A' && c <= 'Z' ? c + ('a' - 'A') : c;
}

/* n <= CHAT_MAX: what is written is never longer than what is read. */
static void normalize(const char *s, size_t n, struct words *ret)
{
    bool is_gap = false;
    ret->n = 0;
    for (size_t i = 0; i < n;) {
        uint32_t c = next_char(s, n, &i);
        if (c == 0x2019 || c == '\'')
            c = '\'';
        else if (!is_word(c)) {
            is_gap = true;
            continue;
        }
        if (is_gap && ret->n > 0)
            ret->v[ret->n++] = ' ';
        is_gap = false;
        ret->n += (size_t)utf8_put(ret->v + ret->n, lower(c));
    }
    ret->v[ret->n] = '\0';
}

/* Whether a phrase may end at s: between words, or beside a CJK character. */
static bool is_boundary(const struct words *w, size_t at)
{
    if (at == 0 || at == w->n || w->v[at] == ' ' || w->v[at - 1] == ' ')
        return true;
    return (unsigned char)w->v[at] >= 0xE3 || (unsigned char)w->v[at - 1] >= 0x80;
}

/* ---- what is looked for ---- */

enum { SIGN_NUMBER = 1, SIGN_NAME = 2, SIGN_ADDRESS = 4, SIGN_DATE = 8, SIGN_WISH = 16 };

/* Parts of words, found anywhere; lower case. */
static const struct {
    int sign;
    const char *parts;
} signs[] = {
    {SIGN_WISH, "remember|allerg|prefer|favorite|favourite| hate| love| like |never|always| must| "
                "not |don't|doesn't|can't|won't|isn't|shouldn't| only | avoid| instead|important|"
                "deadline|password|secret|vegan|vegetarian|gluten|diabet| is called| my name| i am "
                "a| i'm a| live in| lives in| works at| i work"},
    {SIGN_WISH,
     "记住|記住|记得|記得|别忘|過敏|过敏|喜欢|喜歡|讨厌|討厭|最爱|最愛|不吃|不喝|不能|不要|不会|"
     "不喜|从不|從不|必须|必須|总是|總是|只要|只能|密码|密碼|我叫|名叫|名字|我是|住在|工作|素食|"
     "重要|截止|偏好|避免"},
    {SIGN_DATE, "monday|tuesday|wednesday|thursday|friday|saturday|sunday|january|february| march |"
                "april| june| july|august|september|october|november|december|birthday|tomorrow|"
                "yesterday|next week|o'clock"},
    {SIGN_DATE, "星期|周一|周二|周三|周四|周五|周六|周日|礼拜|生日|明天|昨天|下周|月|点钟"},
    {SIGN_ADDRESS, "@|://|www.|.com|.org|/usr|/etc|/home|c:\\"},
    {SIGN_ADDRESS, "电话|電話|邮箱|郵箱|地址|街|号楼|路口"},
};
#define N_SIGNS (sizeof(signs) / sizeof(signs[0]))

/* The lists, split at their bars. */

#define CHATS_MAX 1024
#define PARTS_MAX 256

struct chat {
    const char *s;
    uint16_t n, next; /* next: index + 1 of the next that begins with the same byte, 0: the last */
    enum phrase_kind kind;
};

struct part {
    const char *s;
    size_t n;
    int sign;
};

/* Made by whoever asks first, read from then on. */
static struct {
    struct chat chats[CHATS_MAX];
    struct part parts[PARTS_MAX];
    size_t n_chats, n_parts;
    uint16_t heads[256], lasts[256]; /* of chats, by the first byte */
} lists;
static pthread_once_t made = PTHREAD_ONCE_INIT;

static void add_chat(const char *s, size_t n, enum phrase_kind kind)
{
    assert(lists.n_chats < CHATS_MAX);
    const unsigned char head = (unsigned char)s[0];
    lists.chats[lists.n_chats++] = (struct chat){.s = s, .n = (uint16_t)n, .kind = kind};
    if (lists.lasts[head])
        lists.chats[lists.lasts[head] - 1].next = (uint16_t)lists.n_chats;
    else
        lists.heads[head] = (uint16_t)lists.n_chats;
    lists.lasts[head] = (uint16_t)lists.n_chats;
}

static void make_lists(void)
{
    const char *end;
    for (size_t i = 0; i < N_PHRASES; i++)
        for (const char *s = phrases[i].words; s; s = *end ? end + 1 : NULL) {
            end = strchrnul(s, '|');
            add_chat(s, (size_t)(end - s), phrases[i].kind);
        }
    for (size_t i = 0; i < N_SIGNS; i++)
        for (const char *s = signs[i].parts; s; s = *end ? end + 1 : NULL) {
            assert(lists.n_parts < PARTS_MAX);
            end = strchrnul(s, '|');
            lists.parts[lists.n_parts++] = (struct part){s, (size_t)(end - s), signs[i].sign};
        }
}

/* The longest phrase that stands at `at`, the first of them: its bytes, 0: none. */
static size_t longest(const struct words *w, size_t at, enum phrase_kind *ret_kind)
{
    size_t best = 0;
    for (uint16_t k = lists.heads[(unsigned char)w->v[at]]; k; k = lists.chats[k - 1].next) {
        const struct chat *c = &lists.chats[k - 1];
        if (c->n > best && c->n <= w->n - at && memcmp(w->v + at, c->s, c->n) == 0 &&
            is_boundary(w, at + c->n)) {
            best = c->n;
            *ret_kind = c->kind;
        }
    }
    return best;
}

/* "haha", "hahahah", "hehehe". */
static size_t laughter(const struct words *w, size_t at)
{
    size_t n = 0;
    while (at + n < w->n && strchr("hae", w->v[at + n]))
        n++;
    return n >= 4 && is_boundary(w, at + n) ? n : 0;
}

struct talk {
    size_t n_chat, n_reply, n_filler; /* phrases */
    size_t n_other;                   /* half words */
};

/* One word that is in no phrase; returns its bytes. */
static size_t skip_word(const struct words *w, size_t at, struct talk *ret)
{
    size_t i = at;
    if (is_cjk(utf8_next(w->v, w->n, &i))) {
        ret->n_other++;
        return i - at;
    }
    ret->n_other += 2;
    while (i < w->n && w->v[i] != ' ') {
        size_t to = i;
        if (is_cjk(utf8_next(w->v, w->n, &to)))
            break;
        i = to;
    }
    return i - at;
}

/* Stops where it is no short talk any more. */
static struct talk count_phrases(const struct words *w)
{
    struct talk t = {0};
    for (size_t at = 0; at < w->n && t.n_other <= SHORT_HALF_WORDS;) {
        enum phrase_kind kind = PHRASE_CHAT, other = PHRASE_CHAT;
        size_t best = laughter(w, at), n = longest(w, at, &other);
        if (n > best) {
            best = n;
            kind = other;
        }
        t.n_chat += best > 0 && kind == PHRASE_CHAT;
        t.n_reply += best > 0 && kind == PHRASE_REPLY;
        t.n_filler += best > 0 && kind == PHRASE_FILLER;
        at += best > 0 ? best : skip_word(w, at, &t);
        at += at < w->n && w->v[at] == ' ';
    }
    return t;
}

/* ---- signs of a fact ---- */

/* A text in lower case, and which pairs of bytes are in it: most parts are not. */
struct haystack {
    char v[SIGNS_MAX + 2];
    size_t n;
    uint64_t pairs[1024]; /* a bit each */
};

static unsigned pair_at(const char *s)
{
    return (unsigned)(unsigned char)s[0] << 8 | (unsigned char)s[1];
}

static bool has_part(const struct haystack *h, const struct part *p)
{
    const unsigned pair = pair_at(p->s);
    if (p->n > 1 && !(h->pairs[pair / 64] >> pair % 64 & 1))
        return false;
    return memmem(h->v, h->n, p->s, p->n) != NULL;
}

static bool is_upper(char c)
{
    return c >= 'A' && c <= 'Z';
}

static bool is_lower(char c)
{
    return c >= 'a' && c <= 'z';
}

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

/* "… Bruno": a capital and a small letter, after a space that doesn't begin a sentence; "I'm" and
 * "OK" are none. */
static bool is_name_at(const char *s, size_t n, size_t i)
{
    if (i < 2 || i + 1 >= n || !is_upper(s[i]) || !is_lower(s[i + 1]) || s[i - 1] != ' ')
        return false;
    return is_lower(s[i - 2]) || s[i - 2] == ',' || (unsigned char)s[i - 2] >= 0x80;
}

/* Letters and digits or a dash in one word: INC-4471, eu-west-1, x86. */
static bool is_identifier_at(const char *s, size_t n, size_t i)
{
    if (i == 0 || !is_digit(s[i]))
        return false;
    return is_upper(s[i - 1]) || is_lower(s[i - 1]) || s[i - 1] == '_' ||
           (s[i - 1] == '-' && i > 1 && !is_digit(s[i - 2])) ||
           (i + 1 < n && (is_upper(s[i + 1]) || s[i + 1] == '_'));
}

static int find_signs(const char *text, size_t n_text)
{
    struct haystack h = {.n = n_text < SIGNS_MAX ? n_text : SIGNS_MAX};
    int found = 0;
    h.v[0] = ' '; /* so that " not " is found at the ends too */
    for (size_t i = 0; i < h.n; i++) {
        h.v[i + 1] = (char)lower((unsigned char)text[i]);
        found |= is_digit(text[i]) ? SIGN_NUMBER : 0;
        found |= is_name_at(text, h.n, i) ? SIGN_NAME : 0;
        found |= is_identifier_at(text, h.n, i) ? SIGN_ADDRESS : 0;
    }
    h.n += 2;
    h.v[h.n - 1] = ' ';
    for (size_t i = 0; i + 1 < h.n; i++) {
        const unsigned pair = pair_at(h.v + i);
        h.pairs[pair / 64] |= (uint64_t)1 << pair % 64;
    }
    for (size_t i = 0; i < lists.n_parts; i++)
        if (!(found & lists.parts[i].sign) && has_part(&h, &lists.parts[i]))
            found |= lists.parts[i].sign;
    return found;
}

/* ---- bulk ---- */

struct lines {
    size_t n, n_machine, code_bytes, bytes;
};

/* A log's or table's line: it begins with a digit, a bracket or a bar, or fewer than half of its
 * marks are letters. */
static bool is_machine_line(const char *s, size_t n)
{
    size_t n_letters = 0, n_ink = 0;
    if (n > 0 && (is_digit(s[0]) || strchr("[{<|+", s[0])))
        return true;
    for (size_t i = 0; i < n; i++) {
        n_ink += (unsigned char)s[i] > ' ';
        n_letters += is_upper(s[i]) || is_lower(s[i]) || (unsigned char)s[i] >= 0x80;
    }
    return n_ink > 0 && n_letters * 2 < n_ink;
}

static struct lines read_lines(const char *text, size_t n_text)
{
    struct lines ret = {.bytes = n_text < LINES_MAX ? n_text : LINES_MAX};
    bool is_code = false;
    for (size_t i = 0; i < ret.bytes;) {
        const char *line = text + i, *end = memchr(line, '\n', ret.bytes - i);
        size_t n = end ? (size_t)(end - line) : ret.bytes - i;
        const bool is_fence = n >= 3 && memcmp(line, "```", 3) == 0;
        is_code = is_code != is_fence;
        ret.code_bytes += is_code || is_fence ? n + 1 : 0;
        ret.n += n > 0;
        ret.n_machine += n > 0 && is_machine_line(line, n);
        i += n + 1;
    }
    return ret;
}

static bool ends_with(const char *text, size_t n, const char *end)
{
    const size_t n_end = strlen(end);
    return n >= n_end && memcmp(text + n - n_end, end, n_end) == 0;
}

/* 0: not bulky. */
static int value_of_bulk(const struct plan_text *t)
{
    if (t->tokens < PLAN_BULKY_TOKENS || t->age < PLAN_FAR)
        return 0;
    if (t->kind == PLAN_RESULT)
        return VALUE_BULKY;
    const struct lines l = read_lines(t->text, t->n_text);
    if (l.n >= 8 && l.n_machine * 10 >= l.n * 6)
        return VALUE_BULKY;
    return l.code_bytes * 2 > l.bytes ? VALUE_CODE : 0;
}

bool plan_asks(const char *text, size_t n)
{
    static const char *const marks[] = {"?", "\xEF\xBC\x9F", "\xD8\x9F"}; /* ？ ؟ */
    static const char *const behind[] = {" ",  "\n", "\r", "\t", "\"", "'", ")", "]", "*", "_",
                                         "\xE2\x80\x9D", "\xE2\x80\x99", "\xEF\xBC\x89",
                                         "\xE3\x80\x8D"}; /* ” ’ ） 」 */
    size_t before = n + 1;
    while (n < before) {
        before = n;
        for (size_t i = 0; i < sizeof behind / sizeof *behind; i++)
            n -= ends_with(text, n, behind[i]) ? strlen(behind[i]) : 0;
    }
    for (size_t i = 0; i < sizeof marks / sizeof *marks; i++)
        if (ends_with(text, n, marks[i]))
            return true;
    return false;
}

int plan_value(const struct plan_text *t)
{
    int value = value_of_bulk(t);
    if (value > 0)
        return value;
    pthread_once(&made, make_lists);
    const int found = find_signs(t->text, t->n_text);
    if (t->n_text <= CHAT_MAX && t->kind != PLAN_CALL && t->kind != PLAN_RESULT) {
        struct words w;
        normalize(t->text, t->n_text, &w);
        const struct talk talk = count_phrases(&w);
        const bool has_answered = t->is_reply && (talk.n_reply > 0 || talk.n_other > 0);
        if (talk.n_other == 0 && !has_answered && (talk.n_chat > 0 || talk.n_reply > 0 || w.n == 0))
            return VALUE_CHAT;
        if (talk.n_other <= BIT_HALF_WORDS && talk.n_chat > 0 && found == 0 && !has_answered)
            return VALUE_CHAT_AND_BIT;
        if (talk.n_other <= SHORT_HALF_WORDS && found == 0 && !has_answered)
            return VALUE_SHORT;
    }
    value = VALUE_PLAIN;
    for (int sign = SIGN_NUMBER; sign <= SIGN_WISH; sign <<= 1)
        value += found & sign ? VALUE_SIGN : 0;
    return value;
}
