/* See thought.h. */
#include "daemon/thought.h"

#include <string.h>

static bool is_space(char c)
{
    return c == ' ' || (c >= '\t' && c <= '\r');
}

void thought_init(struct thought *t, size_t max)
{
    *t = (struct thought){.stage = THOUGHT_OFF};
    buf_init(&t->held, max);
    buf_init(&t->reasoning, max);
    buf_init(&t->answer, max);
}

void thought_done(struct thought *t)
{
    buf_done(&t->held);
    buf_done(&t->reasoning);
    buf_done(&t->answer);
}

void thought_start(struct thought *t, const struct chat_think *marks, bool is_open)
{
    t->marks = marks;
    t->stage = is_open ? THOUGHT_OPEN : THOUGHT_BEGIN;
}

static size_t n_spaces(const struct buf *b)
{
    size_t n = 0;
    while (n < b->len && is_space(b->data[n]))
        n++;
    return n;
}

/* Takes n bytes off the front of what is held. */
static void drop(struct thought *t, size_t n)
{
    if (n > 0 && n < t->held.len)
        memmove(t->held.data, t->held.data + n, t->held.len - n);
    t->held.len -= n;
}

static void give(struct thought *t, struct buf *to, size_t n)
{
    if (n > 0)
        buf_add(to, t->held.data, n);
    drop(t, n);
}

enum sight { SIGHT_NO, SIGHT_MAY_BE, SIGHT_IS };

/* Whether what is held begins with a tag, from `at` on. NULL never is there. */
static enum sight see(const struct thought *t, size_t at, const char *tag)
{
    const size_t len = tag ? strlen(tag) : 0, left = t->held.len - at, n = left < len ? left : len;
    if (len == 0 || (n > 0 && memcmp(t->held.data + at, tag, n) != 0))
        return SIGHT_NO;
    return n == len ? SIGHT_IS : SIGHT_MAY_BE;
}

/* Of the opening tag; true: go on. */
static bool begin(struct thought *t, bool is_end)
{
    const size_t at = n_spaces(&t->held);
    const enum sight open = see(t, at, t->marks->open), plain = see(t, at, t->marks->plain);
    if (open == SIGHT_IS || plain == SIGHT_IS) {
        drop(t, at + strlen(open == SIGHT_IS ? t->marks->open : t->marks->plain));
        t->stage = open == SIGHT_IS ? THOUGHT_OPEN : THOUGHT_ANSWER;
        return true;
    }
    if (!is_end && (open == SIGHT_MAY_BE || plain == SIGHT_MAY_BE))
        return false;
    t->stage = THOUGHT_ANSWER;
    return true;
}

/* How many bytes at the end of s may be the beginning of the closing tag. */
static size_t n_partial(const struct thought *t, const char *s, size_t n)
{
    const size_t max = strlen(t->marks->close) - 1;
    for (size_t k = n < max ? n : max; k > 0; k--)
        if (memcmp(s + n - k, t->marks->close, k) == 0)
            return k;
    return 0;
}

static bool think(struct thought *t, bool is_end)
{
    if (!t->has_begun)
        drop(t, n_spaces(&t->held));
    const char *s = t->held.data;
    const size_t n = t->held.len;
    const size_t n_close = strlen(t->marks->close);
    const char *hit = n > 0 ? memmem(s, n, t->marks->close, n_close) : NULL;
    size_t end = hit ? (size_t)(hit - s) : is_end ? n : n - (n > 0 ? n_partial(t, s, n) : 0);
    const size_t tag_at = end;
    while (end > 0 && is_space(s[end - 1]))
        end--;
    t->has_begun = t->has_begun || end > 0;
    give(t, &t->reasoning, end);
    if (!hit) {
        if (is_end)
            drop(t, t->held.len);
        return false;
    }
    drop(t, tag_at - end + n_close);
    t->stage = THOUGHT_CLOSED;
    return true;
}

/* What may stand between thought and answer goes. */
static bool close_up(struct thought *t, bool is_end)
{
    drop(t, n_spaces(&t->held));
    if (t->held.len == 0)
        return false;
    const char *tags[] = {t->marks->then, t->marks->plain};
    bool may_be = false;
    for (size_t i = 0; i < 2; i++) {
        const enum sight sight = see(t, 0, tags[i]);
        may_be = may_be || sight == SIGHT_MAY_BE;
        if (sight == SIGHT_IS) {
            drop(t, strlen(tags[i]));
            t->stage = THOUGHT_ANSWER;
            return true;
        }
    }
    if (may_be && !is_end)
        return false;
    t->stage = THOUGHT_ANSWER;
    return true;
}

void thought_push(struct thought *t, const char *s, size_t n, bool is_end)
{
    bool goes_on = true;
    if (t->stage == THOUGHT_OFF)
        return;
    buf_add(&t->held, s, n);
    while (goes_on && buf_error(&t->held) == 0) {
        if (t->stage == THOUGHT_BEGIN)
            goes_on = begin(t, is_end);
        else if (t->stage == THOUGHT_OPEN)
            goes_on = think(t, is_end);
        else if (t->stage == THOUGHT_CLOSED)
            goes_on = close_up(t, is_end);
        else
            break;
    }
    if (t->stage == THOUGHT_ANSWER)
        give(t, &t->answer, t->held.len);
}

bool thought_is_opened(const struct chat_think *marks, const char *prompt_end, size_t n)
{
    const size_t n_open = strlen(marks->open);
    while (n > 0 && is_space(prompt_end[n - 1]))
        n--;
    return n >= n_open && memcmp(prompt_end + n - n_open, marks->open, n_open) == 0;
}

bool thought_is_tag(const struct chat_think *marks, const char *piece, size_t n)
{
    const char *const tags[] = {marks->open, marks->close, marks->then, marks->plain};
    for (size_t i = 0; i < sizeof tags / sizeof *tags; i++)
        if (n > 0 && tags[i] && memmem(tags[i], strlen(tags[i]), piece, n))
            return true;
    return false;
}
