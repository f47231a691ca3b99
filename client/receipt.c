/*
 * A reply's receipt in one line, for people: what left the window and what came back. The daemon's
 * lists of what left and of what is recalled anew tell of changes; its list of pins is of all that
 * are in force, so that pins are compared with those of the reply before.
 */
#include <string.h>

#include "client/window.h"

struct changes {
    int64_t n, tokens; /* of a list that is shortened: the tokens of those that it names */
    bool is_shortened;
};

static struct changes changes_of(const json *receipt, const char *key)
{
    struct changes c = {0};
    const json *list = json_get(receipt, key, NULL);
    for (const json *it = json_type(list) == JSON_ARRAY ? json_first(list) : NULL; it;
         it = json_next(it)) {
        c.n++;
        c.tokens += (int64_t)json_double(json_get(it, "tokens", NULL));
    }
    const json *all = json_get(json_get(receipt, "shortened", NULL), key, NULL);
    if (all) {
        c.n = (int64_t)json_double(all);
        c.is_shortened = true;
    }
    return c;
}

static bool has_id(const json *list, const char *id)
{
    for (const json *it = json_first(list); it; it = json_next(it)) {
        const char *other = json_str(json_get(it, "id", NULL));
        if (other && !strcmp(other, id))
            return true;
    }
    return false;
}

/* How many pins of `receipt` are not in `before`. */
static int64_t new_pins(const json *receipt, const json *before)
{
    const json *now = json_get(receipt, "pinned", NULL), *then = json_get(before, "pinned", NULL);
    int64_t n = 0;
    if (json_type(now) != JSON_ARRAY || json_type(then) != JSON_ARRAY)
        return 0;
    for (const json *it = json_first(now); it; it = json_next(it)) {
        const char *id = json_str(json_get(it, "id", NULL));
        n += id && !has_id(then, id);
    }
    return n;
}

/* "; " between the parts. */
static void part(struct buf *b, size_t start)
{
    if (b->len > start)
        buf_str(b, "; ");
}

static void write_left(const json *receipt, struct buf *b)
{
    const struct changes dropped = changes_of(receipt, "dropped"),
                         summed = changes_of(receipt, "summarised");
    const int64_t n = dropped.n + summed.n;
    if (!n)
        return;
    const bool is_more = dropped.is_shortened || summed.is_shortened;
    buf_printf(b, "%lld message%s (%s%lld tokens) left the window", (long long)n,
               n == 1 ? "" : "s", is_more ? "more than " : "",
               (long long)(dropped.tokens + summed.tokens));
    if (summed.n && dropped.n)
        buf_printf(b, ", %lld of them summed up", (long long)summed.n);
    else if (summed.n)
        buf_str(b, ", summed up");
}

/* Whether it was cut while someone waited, and what must be read again for it. */
static void write_cut(const json *receipt, size_t start, struct buf *b)
{
    const char *cut = json_str(json_get(receipt, "cut", NULL));
    const int64_t lost = (int64_t)json_double(json_get(receipt, "prefix_lost", NULL));
    if (cut && !strcmp(cut, "ahead")) {
        part(b, start);
        buf_str(b, "cut ahead");
    } else if (cut || lost > 0) {
        part(b, start);
        buf_str(b, cut ? "cut on the way" : "the beginning changed");
        if (lost > 0)
            buf_printf(b, ", %lld tokens lost their place", (long long)lost);
    }
}

void receipt_write(const json *receipt, const json *before, struct buf *b)
{
    const size_t start = b->len;
    const struct changes recalled = changes_of(receipt, "recalled_new");
    const int64_t pinned = new_pins(receipt, before);
    write_left(receipt, b);
    if (recalled.n) {
        part(b, start);
        buf_printf(b, "%lld recalled (%lld tokens)", (long long)recalled.n,
                   (long long)recalled.tokens);
    }
    if (pinned) {
        part(b, start);
        buf_printf(b, "%lld pinned", (long long)pinned);
    }
    write_cut(receipt, start, b);
    if (json_bool(json_get(receipt, "recall_partial", NULL))) {
        part(b, start);
        buf_str(b, "not everything could be searched");
    }
    const double unread = json_double(json_get(receipt, "edits_unread", NULL));
    if (unread > 0) {
        part(b, start);
        buf_printf(b, "%.0f tokens of your summary and facts have no room here", unread);
    }
}
