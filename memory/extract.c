/*
 * The extractive summary (extract.h): collecting candidates, fitting, composing. Ranking them is
 * extract_rank.c's.
 *
 * Each sentence gets a cheap score while it is read: values, names, negations, length, place in its
 * message, whose it is. Of too many candidates, of each two neighbours the better one goes on,
 * again and again: the conversation is thinned evenly, and memory is bounded while it is read.
 */
#include "memory/extract.h"

#include <stdlib.h>
#include <string.h>

#include "memory/extract_rank.h"
#include "memory/sentence.h"
#include "memory/values.h"
#include "memory/words.h"

#define CANDIDATES_HELD ((size_t)4 * EXTRACT_SENTENCES_MAX)
#define MESSAGE_READ_MAX ((size_t)256 << 10) /* of one message; its beginning */
#define VALUES_LOOKED_AT 12

static const char *const speakers[] = {
    [MEMORY_USER] = "User: ", [MEMORY_ASSISTANT] = "Assistant: "};

static const char *speaker(enum memory_role role)
{
    return role == MEMORY_USER || role == MEMORY_ASSISTANT ? speakers[role] : "";
}

/* ---- a sentence's cheap score ---- */

static bool is_question(const char *s, size_t n)
{
    return s[n - 1] == '?' || (n >= 3 && memcmp(s + n - 3, "？", 3) == 0);
}

/* Flags of all words, and how many there are; CJK counts by character. */
static unsigned read_flags(const char *s, size_t n, size_t *ret_words, bool *ret_cjk)
{
    unsigned flags = 0;
    size_t words = 0;
    for (size_t i = 0; i < n;) {
        size_t from = i;
        uint32_t cp = sentence_char(s, n, &i);
        if (is_cjk(cp)) {
            *ret_cjk = true;
            words++;
            continue;
        }
        if (!is_wordly(cp))
            continue;
        while (i < n &&
               (is_wordly((unsigned char)s[i]) || (unsigned char)s[i] >= 0x80 || s[i] == '\'') &&
               (unsigned char)s[i] < 0xE2)
            i++;
        unsigned of_word = word_flags(s + from, i - from);
        if (words == 0)
            flags |= of_word & (W_ASK | W_WH | W_CHAT);
        flags |= of_word & ~(unsigned)(W_ASK | W_WH | W_CHAT);
        words++;
    }
    *ret_words = words;
    return flags;
}

static double value_score(const char *s, size_t n)
{
    struct value v[VALUES_LOOKED_AT];
    size_t count = values_find(s, n, v, VALUES_LOOKED_AT);
    double score = 0;
    for (size_t i = 0; i < count; i++)
        score += v[i].kind <= VALUE_PHONE ? 0.5 : v[i].kind <= VALUE_TIME ? 0.35 : 0.2;
    return score < 1.2 ? score : 1.2;
}

/* A factor around 1. */
static double cheap_score(const struct candidate *c, const char *s, size_t n)
{
    size_t words = 0;
    bool has_cjk = false;
    unsigned flags = read_flags(s, n, &words, &has_cjk);
    double score = 1 + value_score(s, n);
    unsigned zh = has_cjk ? zh_flags(s, n) : 0;
    bool is_not = flags & W_NOT || zh & Z_NOT;
    bool is_first = flags & W_FIRST || zh & Z_FIRST;
    bool is_chat = (flags & W_CHAT || zh & Z_CHAT) && words < 8;
    score += is_not ? 0.2 : 0;
    score += is_first && c->role == MEMORY_USER ? 0.35 : 0;
    score += flags & W_HEALTH || zh & Z_HEALTH ? 0.5 : 0;
    score += c->is_first ? 0.2 : 0;
    score *= c->role == MEMORY_USER ? 1.25 : 1;
    if (is_question(s, n))
        score *= 0.55;
    else if (flags & W_ASK || zh & Z_ASK)
        score *= 0.75;
    if (is_chat)
        score *= 0.15;
    if (words < 4)
        score *= 0.4;
    return c->is_old ? score * 1.3 : score;
}

/* ---- candidates ---- */

struct collector {
    struct candidate *v; /* [n] of CANDIDATES_HELD */
    size_t n;
    uint32_t order;
};

/* Halves the list: of each two neighbours the better one stays. */
static void thin(struct collector *l)
{
    size_t n = 0;
    for (size_t i = 0; i < l->n; i += 2) {
        bool is_second = i + 1 < l->n && l->v[i + 1].cheap > l->v[i].cheap;
        l->v[n++] = l->v[is_second ? i + 1 : i];
    }
    l->n = n;
}

/* At most EXTRACT_SENTENCE_BYTES_MAX of s, cut at a clause, a word or a character. */
static size_t shorten(const char *s, size_t n)
{
    size_t max = EXTRACT_SENTENCE_BYTES_MAX - strlen("…");
    if (n <= EXTRACT_SENTENCE_BYTES_MAX)
        return n;
    size_t end = max;
    while (end > 0 && ((unsigned char)s[end] & 0xC0) == 0x80)
        end--;
    for (size_t i = end; i > end / 2; i--)
        if (strchr(",;:", s[i]) && s[i] && s[i + 1] == ' ')
            return i;
    for (size_t i = end; i > end / 2; i--)
        if (s[i] == ' ')
            return i;
    return end;
}

static void collect_sentence(struct collector *l, struct candidate c, const char *s, size_t n)
{
    c.text = s;
    c.n_text = shorten(s, n);
    c.is_cut = c.n_text < n;
    c.order = l->order++;
    c.cheap = cheap_score(&c, s, c.n_text);
    if (l->n == CANDIDATES_HELD)
        thin(l);
    l->v[l->n++] = c;
}

static void collect(struct collector *l, struct candidate c, const char *s, size_t n)
{
    struct sentence_walk w;
    c.is_first = true;
    sentence_walk_init(&w, s, n < MESSAGE_READ_MAX ? n : MESSAGE_READ_MAX);
    for (size_t at, len; sentence_next(&w, &at, &len); c.is_first = false)
        collect_sentence(l, c, s + at, len);
}

/* The old summary: its lines' speakers are known again. */
static void collect_old(struct collector *l, const char *s, size_t n)
{
    for (size_t i = 0; i < n;) {
        const char *end = memchr(s + i, '\n', n - i);
        size_t len = end ? (size_t)(end - s) - i : n - i, skip = 0;
        struct candidate c = {.is_old = true};
        for (int role = MEMORY_USER; role <= MEMORY_ASSISTANT; role++) {
            size_t name = strlen(speakers[role]);
            if (len > name && memcmp(s + i, speakers[role], name) == 0) {
                c.role = (enum memory_role)role;
                skip = name;
            }
        }
        collect(l, c, s + i + skip, len - skip);
        i += len + 1;
    }
}

static int by_order(const void *a, const void *b)
{
    const struct candidate *x = a, *y = b;
    return (x->order > y->order) - (x->order < y->order);
}

static int by_score(const void *a, const void *b)
{
    const struct candidate *x = a, *y = b;
    if (x->score != y->score)
        return x->score > y->score ? -1 : 1;
    return by_order(a, b);
}

/* The first `max` of v[n], best first, into the arena. */
static int give(const struct candidate *v, size_t n, struct arena *a, struct extract_ranked *ret)
{
    struct extract_ranked out = {arena_array(a, n, sizeof *out.v), n};
    if (!out.v)
        return ERR_NOMEM;
    for (size_t i = 0; i < n; i++) {
        const struct candidate *c = &v[i];
        size_t len = c->n_text + (c->is_cut ? strlen("…") : 0);
        char *text = arena_alloc(a, len + 1);
        if (!text)
            return ERR_NOMEM;
        for (size_t k = 0; k < c->n_text; k++)
            text[k] = c->text[k] == '\t' ? ' ' : c->text[k];
        memcpy(text + c->n_text, "…", len - c->n_text);
        text[len] = 0;
        out.v[i] = (struct extract_sentence){.text = text,
                                             .n_text = len,
                                             .row = c->row,
                                             .role = c->role,
                                             .order = c->order,
                                             .n_bytes = strlen(speaker(c->role)) + len + 1,
                                             .score = c->score};
    }
    *ret = out;
    return 0;
}

int extract_rank(const struct extract_input *in, size_t max, struct arena *a,
                 struct extract_ranked *ret, struct err *e)
{
    struct collector l = {malloc(CANDIDATES_HELD * sizeof *l.v), 0, 0};
    int error = l.v ? 0 : ERR_NOMEM;
    if (error)
        goto done;
    collect_old(&l, in->old, in->old ? in->n_old : 0);
    for (size_t i = 0; i < in->n; i++) {
        struct candidate c = {.row = in->v[i].row, .role = in->v[i].role};
        if ((c.role == MEMORY_USER || c.role == MEMORY_ASSISTANT) && in->v[i].n_text)
            collect(&l, c, in->v[i].text, in->v[i].n_text);
    }
    while (l.n > EXTRACT_SENTENCES_MAX)
        thin(&l);
    error = candidates_score(l.v, &l.n);
    if (error)
        goto done;
    qsort(l.v, l.n, sizeof *l.v, by_score);
    error = give(l.v, max && max < l.n ? max : l.n, a, ret);
done:
    free(l.v);
    return error ? err_set(e, error, "no memory to rank the sentences of %zu messages", in->n) : 0;
}

/* ---- fitting and composing ---- */

size_t extract_fit(const struct extract_ranked *r, size_t max_bytes)
{
    size_t n = 0, used = 0;
    while (n < r->n && r->v[n].n_bytes <= max_bytes - used)
        used += r->v[n++].n_bytes;
    return n;
}

static int by_time(const void *a, const void *b)
{
    const struct extract_sentence *x = *(const struct extract_sentence *const *)a,
                                  *y = *(const struct extract_sentence *const *)b;
    return (x->order > y->order) - (x->order < y->order);
}

/* On one line: read back, the two must be two again. */
static bool continues(const struct extract_sentence *a, const struct extract_sentence *b)
{
    static const char *const ends[] = {".", "!", "?", "…", "。", "！", "？", "；"};
    if (a->role != b->role)
        return false;
    for (size_t i = 0; i < sizeof ends / sizeof ends[0]; i++) {
        size_t n = strlen(ends[i]);
        if (a->n_text >= n && memcmp(a->text + a->n_text - n, ends[i], n) == 0)
            return true;
    }
    return false;
}

void extract_compose(const struct extract_ranked *r, size_t n_take, struct buf *b)
{
    const struct extract_sentence *order[EXTRACT_SENTENCES_MAX];
    size_t n = n_take < r->n ? n_take : r->n;
    n = n < EXTRACT_SENTENCES_MAX ? n : EXTRACT_SENTENCES_MAX;
    for (size_t i = 0; i < n; i++)
        order[i] = &r->v[i];
    qsort(order, n, sizeof order[0], by_time);
    for (size_t i = 0; i < n; i++) {
        bool goes_on = i > 0 && continues(order[i - 1], order[i]);
        if (goes_on)
            buf_char(b, ' ');
        else
            buf_str(b, speaker(order[i]->role));
        buf_add(b, order[i]->text, order[i]->n_text);
        if (i + 1 == n || !continues(order[i], order[i + 1]))
            buf_char(b, '\n');
    }
}
