/* See thought.h. */
#include "daemon/thought.h"

#include <string.h>

static const char open_tag[] = "<think>", close_tag[] = "</think>";
#define N_OPEN (sizeof open_tag - 1)
#define N_CLOSE (sizeof close_tag - 1)

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

void thought_start(struct thought *t, bool is_open)
{
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

/* Of the opening tag; true: go on. */
static bool begin(struct thought *t, bool is_end)
{
    const size_t at = n_spaces(&t->held), left = t->held.len - at;
    const size_t n = left < N_OPEN ? left : N_OPEN;
    const bool may_be = n == 0 || memcmp(t->held.data + at, open_tag, n) == 0;
    if (may_be && n == N_OPEN) {
        drop(t, at + N_OPEN);
        t->stage = THOUGHT_OPEN;
        return true;
    }
    if (may_be && !is_end)
        return false;
    t->stage = THOUGHT_ANSWER;
    return true;
}

/* How many bytes at the end of s may be the beginning of the closing tag. */
static size_t n_partial(const char *s, size_t n)
{
    for (size_t k = n < N_CLOSE - 1 ? n : N_CLOSE - 1; k > 0; k--)
        if (memcmp(s + n - k, close_tag, k) == 0)
            return k;
    return 0;
}

static bool think(struct thought *t, bool is_end)
{
    if (!t->has_begun)
        drop(t, n_spaces(&t->held));
    const char *s = t->held.data;
    const size_t n = t->held.len;
    const char *hit = n > 0 ? memmem(s, n, close_tag, N_CLOSE) : NULL;
    size_t end = hit ? (size_t)(hit - s) : is_end ? n : n - (n > 0 ? n_partial(s, n) : 0);
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
    drop(t, tag_at - end + N_CLOSE);
    t->stage = THOUGHT_CLOSED;
    return true;
}

static bool close_up(struct thought *t)
{
    drop(t, n_spaces(&t->held));
    if (t->held.len > 0)
        t->stage = THOUGHT_ANSWER;
    return t->held.len > 0;
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
            goes_on = close_up(t);
        else
            break;
    }
    if (t->stage == THOUGHT_ANSWER)
        give(t, &t->answer, t->held.len);
}

bool thought_is_opened(const char *prompt_end, size_t n)
{
    while (n > 0 && is_space(prompt_end[n - 1]))
        n--;
    return n >= N_OPEN && memcmp(prompt_end + n - N_OPEN, open_tag, N_OPEN) == 0;
}

bool thought_is_tag(const char *piece, size_t n)
{
    return (n == N_OPEN && memcmp(piece, open_tag, n) == 0) ||
           (n == N_CLOSE && memcmp(piece, close_tag, n) == 0);
}
