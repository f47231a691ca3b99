/*
 * Snippets: the window of a text that holds the most of a query's terms.
 *
 *      text    … … …│the cat ate INC-4471 …│… …        n_max bytes, less what the dots take
 *      terms            ^^^     ^^^^^^^^
 *
 * One walk notes where the query's terms are (the first PLACES_MAX of them); the window that begins
 * a little before one of them and holds the greatest sum of distinct terms wins, the earliest of
 * equals.
 */
#include "memory/search.h"

#include <string.h>

#include "base/utf8.h"
#include "memory/query.h"

#define PLACES_MAX 256
#define BEFORE_SHARE 4 /* a fourth of the window stands before the first term */
#define DOTS "…"

struct place {
    size_t from, to;
    int term;
};

struct places {
    const struct query *qu;
    bool has_content; /* the query has other words than stop words */
    struct place v[PLACES_MAX];
    int n;
};

static bool note(void *user, const struct segment *t)
{
    struct places *p = user;
    int term = query_find(p->qu, t->term, t->n);
    if (term >= 0 && !(p->has_content && p->qu->terms[term].is_stop))
        p->v[p->n++] = (struct place){.from = t->from, .to = t->to, .term = term};
    return p->n < PLACES_MAX;
}

/* Distinct terms of those that lie in [from, from + n); singles count a fifth. */
static int value_of(const struct places *p, int first, size_t from, size_t n)
{
    uint64_t seen[QUERY_SEEN_MAX / 64] = {0};
    int value = 0;
    for (int i = first; i < p->n && p->v[i].from < from + n; i++) {
        int term = p->v[i].term;
        uint64_t bit = (uint64_t)1 << (term & 63);
        if (p->v[i].to > from + n || (seen[term >> 6] & bit))
            continue;
        seen[term >> 6] |= bit;
        value += p->qu->terms[term].kind == SEGMENT_SINGLE ? 1 : 5;
    }
    return value;
}

/* Where the best window of n bytes begins. */
static size_t best_window(const struct places *p, size_t n_text, size_t n)
{
    size_t best = 0;
    int best_value = 0;
    if (n_text <= n)
        return 0;
    for (int i = 0; i < p->n; i++) {
        size_t before = n / BEFORE_SHARE;
        size_t from = p->v[i].from > before ? p->v[i].from - before : 0;
        if (from > n_text - n)
            from = n_text - n;
        int value = value_of(p, i, from, n);
        if (value > best_value) {
            best = from;
            best_value = value;
        }
    }
    return best;
}

/* The next beginning of a character at or after i. */
static size_t at_character(const char *text, size_t n, size_t i)
{
    while (i < n && ((unsigned char)text[i] & 0xC0) == 0x80)
        i++;
    return i;
}

/* Whole characters of text, at most max bytes of them; white space and controls become one space,
 * ill-formed bytes U+FFFD. Returns how far it came. */
static size_t put_clean(const char *text, size_t n, size_t max, struct buf *ret)
{
    size_t used = 0, i = 0;
    bool is_after_space = true;
    while (i < n) {
        bool is_ok;
        size_t step = utf8_step(text + i, n - i, &is_ok);
        bool is_space = (unsigned char)text[i] <= ' ' || text[i] == 0x7F;
        size_t cost = is_space ? (is_after_space ? 0 : 1) : is_ok ? step : 3;
        if (used + cost > max)
            break;
        if (is_space && !is_after_space)
            buf_char(ret, ' ');
        else if (!is_space && is_ok)
            buf_add(ret, text + i, step);
        else if (!is_space)
            buf_str(ret, "\xEF\xBF\xBD");
        used += cost;
        is_after_space = is_space;
        i += step;
    }
    return i;
}

void memory_snippet(struct memory *m, const struct memory_query *q, const struct memory_hit *hit,
                    size_t n_max, struct buf *ret)
{
    struct arena a;
    struct query qu;
    struct err ignored;
    size_t room = n_max > 2 * strlen(DOTS) ? n_max - 2 * strlen(DOTS) : n_max, from = 0;
    arena_init(&a, SIZE_MAX);
    /* Without memory for the terms: the text's beginning. */
    if (query_parse(m, q, &qu, &a, &ignored) == 0) {
        struct places p = {.qu = &qu};
        for (int i = 0; i < qu.n_terms; i++)
            p.has_content = p.has_content || !qu.terms[i].is_stop;
        size_t n_walked = hit->n_text < SEGMENT_TEXT_MAX ? hit->n_text : SEGMENT_TEXT_MAX;
        segment_walk(m->index.segmenter, hit->text, n_walked, note, &p);
        from = best_window(&p, hit->n_text, room);
    }
    arena_done(&a);
    from = at_character(hit->text, hit->n_text, from);
    if (from > 0)
        buf_str(ret, DOTS);
    size_t came = put_clean(hit->text + from, hit->n_text - from, room, ret);
    if (from + came < hit->n_text)
        buf_str(ret, DOTS);
}

/* ---- marks ---- */

struct marks {
    const struct query *qu;
    bool has_stops, has_singles; /* these count, too */
    struct memory_mark *v;       /* [max] */
    size_t n, max;
};

static bool counts(const struct marks *k, const struct query_term *t)
{
    return (k->has_stops || !t->is_stop) && (k->has_singles || t->kind != SEGMENT_SINGLE);
}

/* Widens what counts until the query has some of it. */
static void choose(struct marks *k)
{
    for (int round = 0; round < 3; round++) {
        k->has_singles = round > 0;
        k->has_stops = round > 1;
        for (int i = 0; i < k->qu->n_terms; i++)
            if (counts(k, &k->qu->terms[i]))
                return;
    }
}

static bool mark(void *user, const struct segment *s)
{
    struct marks *k = user;
    const int term = query_find(k->qu, s->term, s->n);
    if (term < 0 || !counts(k, &k->qu->terms[term]))
        return true;
    struct memory_mark *last = k->n > 0 ? &k->v[k->n - 1] : NULL;
    if (!last || s->from > last->to) {
        if (k->n == k->max)
            return false;
        k->v[k->n++] = (struct memory_mark){s->from, s->to};
        return true;
    }
    /* A part of something joined, or the next pair of characters. */
    if (s->from < last->from)
        last->from = s->from;
    if (s->to > last->to)
        last->to = s->to;
    return true;
}

size_t memory_marks(struct memory *m, const struct memory_query *q, const struct buf *text,
                    struct memory_mark *ret, size_t max)
{
    struct arena a;
    struct query qu;
    struct err ignored;
    struct marks k = {.qu = &qu, .v = ret, .max = max};
    arena_init(&a, SIZE_MAX);
    if (text->len > 0 && query_parse(m, q, &qu, &a, &ignored) == 0) {
        choose(&k);
        segment_walk(m->index.segmenter, text->data, text->len, mark, &k);
    }
    arena_done(&a);
    return k.n;
}
