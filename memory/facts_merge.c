/*
 * Settling a list of facts (facts.h, facts_list.h): equals are one, the newest value of a key wins,
 * what a heavier fact says anyway leaves, then the lightest until the rest fits.
 *
 * The order of leaving is total: by weight, and within one weight from the middle of time outwards
 * (kept first: the oldest, the newest, the second oldest, …). What is kept is a prefix of that
 * order, so a larger budget keeps a superset, and a second settling changes nothing.
 */
#include "memory/facts.h"

#include <stdlib.h>
#include <string.h>

#include "memory/clause.h"
#include "memory/facts_list.h"
#include "memory/words.h"

_Static_assert(FACT_SPANS_MAX == CLAUSE_VALUES_MAX, "a clause's values");
_Static_assert(FACTS_LINE_MAX <= UINT16_MAX, "places in a text");

#define OLDER_MAX 16 /* values of a key that are looked back at: more, and it is no key */
#define SETTLE_AT ((size_t)2 * FACTS_MAX)
#define USER_LINE_BYTES 6       /* "User:\n" */
#define ASSISTANT_LINE_BYTES 11 /* "Assistant:\n" */

void facts_list_init(struct facts_list *l)
{
    *l = (struct facts_list){NULL, 0, 0};
}

void facts_list_done(struct facts_list *l)
{
    free(l->v);
    facts_list_init(l);
}

bool key_is_thing(const char *key)
{
    const char *from = key;
    for (const char *p = key;; p++) {
        if (*p != ' ' && *p)
            continue;
        if (word_flags(from, (size_t)(p - from)) & W_THING)
            return true;
        if (!*p)
            break;
        from = p + 1;
    }
    return zh_flags(key, strlen(key)) & Z_THING;
}

size_t fact_line_bytes(const struct fact *f)
{
    size_t n = 2 + f->n_text + 1, n_was = 0; /* "- ", the line's end */
    for (int i = 0; i < f->n_pairs; i++)
        if (f->pairs[i].was[0])
            n += (n_was++ ? strlen("; ") : strlen(" (earlier: )")) + strlen(f->pairs[i].was);
    return n;
}

/* ---- equals ---- */

/* FNV-1a over letters, digits and CJK in lower case. */
static uint64_t text_hash(const char *s, size_t n)
{
    uint64_t h = 0xCBF29CE484222325u;
    for (size_t i = 0; i < n;) {
        size_t from = i;
        uint32_t cp = sentence_char(s, n, &i);
        if (!is_wordly(cp))
            continue;
        if (cp < 0x80)
            h = (h ^ (cp >= 'A' && cp <= 'Z' ? cp + 32 : cp)) * 0x100000001B3u;
        else
            for (size_t k = from; k < i; k++)
                h = (h ^ (unsigned char)s[k]) * 0x100000001B3u;
    }
    return h;
}

static bool is_same_text(const struct fact *a, const struct fact *b)
{
    size_t i = 0, k = 0;
    for (;;) {
        uint32_t x = 0, y = 0;
        while (i < a->n_text && !is_wordly(x = sentence_char(a->text, a->n_text, &i)))
            x = 0;
        while (k < b->n_text && !is_wordly(y = sentence_char(b->text, b->n_text, &k)))
            y = 0;
        x = x >= 'A' && x <= 'Z' ? x + 32 : x;
        y = y >= 'A' && y <= 'Z' ? y + 32 : y;
        if (x != y)
            return false;
        if (!x)
            return true;
    }
}

struct keyed {
    uint64_t hash;
    uint32_t fact, pair;
};

static int by_hash(const void *a, const void *b)
{
    const struct keyed *x = a, *y = b;
    if (x->hash != y->hash)
        return x->hash < y->hash ? -1 : 1;
    if (x->fact != y->fact)
        return x->fact < y->fact ? -1 : 1;
    return (x->pair > y->pair) - (x->pair < y->pair);
}

/* A gone fact has no text. */
static void drop(struct fact *f)
{
    f->text = NULL;
}

/* The heavier of two equals stays; of equal weights the older. */
static void drop_equals(struct facts_list *l, struct keyed *scratch)
{
    for (size_t i = 0; i < l->n; i++)
        scratch[i] = (struct keyed){text_hash(l->v[i].text, l->v[i].n_text), (uint32_t)i, 0};
    qsort(scratch, l->n, sizeof *scratch, by_hash);
    size_t kept = 0;
    for (size_t i = 1; i < l->n; i++) {
        struct fact *a = &l->v[scratch[kept].fact], *b = &l->v[scratch[i].fact];
        if (scratch[kept].hash != scratch[i].hash || !is_same_text(a, b)) {
            kept = i;
        } else if (b->weight > a->weight) {
            drop(a);
            kept = i;
        } else {
            drop(b);
        }
    }
}

/* ---- newer values ---- */

static bool is_number_like(const char *s, size_t n)
{
    size_t digits = 0;
    for (size_t i = 0; i < n; i++)
        digits += s[i] >= '0' && s[i] <= '9';
    return digits > 0;
}

/* Dates, times, numbers and words don't replace each other. */
static int value_group(const char *s, size_t n)
{
    struct value v;
    if (!values_find(s, n, &v, 1))
        return is_number_like(s, n) ? 1 : 0;
    if (v.kind == VALUE_DATE || v.kind == VALUE_YEAR)
        return 2;
    if (v.kind == VALUE_TIME)
        return 3;
    if (v.kind == VALUE_URL || v.kind == VALUE_EMAIL || v.kind == VALUE_PATH)
        return 4;
    return v.kind >= VALUE_QUOTE ? 0 : 1;
}

/* The text states or changes a value, and doesn't only name it beside its thing. */
static bool is_statement(const struct fact *f)
{
    struct plain p;
    plain_of(&p, f->text, f->n_text);
    for (size_t i = 1; i < p.n;) {
        const char *space = memchr(p.s + i, ' ', p.n - i);
        size_t n = space ? (size_t)(space - p.s) - i : p.n - i;
        if (word_flags(p.s + i, n) & (W_COPULA | W_UPDATE))
            return true;
        i += n + 1;
    }
    return memchr(f->text, ':', f->n_text) || strncmp(f->pairs[0].key, "me ", 3) == 0 ||
           zh_flags(f->text, f->n_text) & (Z_UPDATE | Z_COPULA);
}

/* A person's word stands against the assistant's. */
static bool may_replace(const struct fact *f, const struct fact *older)
{
    return f->role == older->role || f->role == MEMORY_USER;
}

/* Takes a pair away; what is left of the fact may be nothing. */
static void outdate(struct fact *f, struct fact_pair *pair)
{
    struct value v[CLAUSE_VALUES_MAX];
    size_t n = values_find(f->text, f->n_text, v, CLAUSE_VALUES_MAX), others = 0;
    size_t from = (size_t)(pair->value - f->text), to = from + pair->n_value;
    for (size_t i = 0; i < n; i++)
        others += v[i].kind < VALUE_NUMBER && (v[i].at >= to || v[i].at + v[i].n <= from);
    pair->key[0] = 0;
    for (int i = 0; i < f->n_pairs; i++)
        if (f->pairs[i].key[0])
            return;
    if (!others && f->kind != FACT_NOTE)
        drop(f);
}

static bool is_same_value(const struct fact_pair *a, const struct fact_pair *b)
{
    return a->n_value == b->n_value && memcmp(a->value, b->value, a->n_value) == 0;
}

/* The pairs of one key, in time's order: v[0, n). Each statement of a new value ends the older. */
static void replace_older(struct facts_list *l, const struct keyed *v, size_t n)
{
    for (size_t i = 1; i < n; i++) {
        struct fact *f = &l->v[v[i].fact];
        struct fact_pair *pair = &f->pairs[v[i].pair];
        if (!f->text || !is_statement(f))
            continue;
        int group = value_group(pair->value, pair->n_value);
        for (size_t k = i; k-- > (i > OLDER_MAX ? i - OLDER_MAX : 0);) {
            struct fact *older = &l->v[v[k].fact];
            struct fact_pair *before = &older->pairs[v[k].pair];
            if (!older->text || !before->key[0] || strcmp(before->key, pair->key) != 0)
                continue;
            if (older == f || !may_replace(f, older) || is_same_value(before, pair) ||
                value_group(before->value, before->n_value) != group)
                continue;
            if (!pair->was[0] && before->n_value < sizeof pair->was) {
                memcpy(pair->was, before->value, before->n_value);
                pair->was[before->n_value] = 0;
            }
            f->weight = f->weight > older->weight ? f->weight : older->weight;
            outdate(older, before);
        }
    }
}

static void drop_outdated(struct facts_list *l, struct keyed *scratch)
{
    size_t n = 0;
    for (size_t i = 0; i < l->n; i++)
        for (int k = 0; l->v[i].text && k < l->v[i].n_pairs; k++) {
            const char *key = l->v[i].pairs[k].key;
            scratch[n++] = (struct keyed){text_hash(key, strlen(key)), (uint32_t)i, (uint32_t)k};
        }
    qsort(scratch, n, sizeof *scratch, by_hash);
    for (size_t from = 0, to; from < n; from = to) {
        for (to = from + 1; to < n && scratch[to].hash == scratch[from].hash; to++)
            ;
        replace_older(l, scratch + from, to - from);
    }
    for (size_t i = 0; i < l->n; i++) {
        int kept = 0;
        for (int k = 0; k < l->v[i].n_pairs; k++)
            if (l->v[i].pairs[k].key[0])
                l->v[i].pairs[kept++] = l->v[i].pairs[k];
        l->v[i].n_pairs = kept;
    }
}

/* ---- what is said elsewhere ---- */

/* Which pairs of neighbouring bytes a text has, hashed: a text that lacks one of a value's can't
 * hold the value. */
struct sieve {
    uint64_t bits[4];
};

static void sieve_add(struct sieve *to, const char *s, size_t n)
{
    for (size_t i = 1; i < n; i++) {
        const unsigned pair = (unsigned char)s[i - 1] * 31u + (unsigned char)s[i] * 7u;
        const unsigned at = (pair ^ pair >> 5) & 255u;
        to->bits[at / 64] |= 1ull << at % 64;
    }
}

static bool sieve_holds(const struct sieve *all, const struct sieve *some)
{
    for (int i = 0; i < 4; i++)
        if (some->bits[i] & ~all->bits[i])
            return false;
    return true;
}

/* How many exact values f has; where they are is kept with it, as lists are settled again and
 * again. */
static size_t find_spans(struct fact *f)
{
    struct fact_spans *s = &f->spans;
    struct value v[FACT_SPANS_MAX];
    if (s->n > 0)
        return (size_t)s->n - 1;
    const size_t n = values_find(f->text, f->n_text, v, FACT_SPANS_MAX);
    for (size_t i = 0; i < n; i++) {
        s->at[i] = (uint16_t)v[i].at;
        s->len[i] = (uint16_t)v[i].n;
    }
    s->n = (uint8_t)(n + 1);
    return n;
}

/* All exact values of f are in other's text, which is heavier (or as heavy and older). */
static bool is_within(const struct fact *f, size_t n, const struct fact *other)
{
    bool is_before = other->weight > f->weight || (other->weight == f->weight && other < f);
    if (!other->text || other == f || !is_before)
        return false;
    for (size_t i = 0; i < n; i++)
        if (!memmem(other->text, other->n_text, f->text + f->spans.at[i], f->spans.len[i]))
            return false;
    return true;
}

/* "Can you look at INC-4471 again" tells nothing beside "the incident is INC-4471". sieves: [l->n]
 */
static void drop_repeats(struct facts_list *l, struct sieve *sieves)
{
    for (size_t i = 0; i < l->n; i++) {
        sieves[i] = (struct sieve){{0}};
        if (l->v[i].text)
            sieve_add(&sieves[i], l->v[i].text, l->v[i].n_text);
    }
    for (size_t i = 0; i < l->n; i++) {
        struct fact *f = &l->v[i];
        struct sieve own = {{0}};
        if (!f->text || f->n_pairs || f->kind < FACT_IDENTIFIER)
            continue;
        const size_t n = find_spans(f);
        bool is_gone = false;
        for (size_t k = 0; k < n; k++)
            sieve_add(&own, f->text + f->spans.at[k], f->spans.len[k]);
        for (size_t k = 0; n && k < l->n && !is_gone; k++)
            is_gone = sieve_holds(&sieves[k], &own) && is_within(f, n, &l->v[k]);
        if (is_gone)
            drop(f);
    }
}

/* ---- what fits ---- */

static void compact(struct facts_list *l)
{
    size_t n = 0;
    for (size_t i = 0; i < l->n; i++)
        if (l->v[i].text)
            l->v[n++] = l->v[i];
    l->n = n;
}

struct ranked {
    int weight;
    uint32_t index, rank;
};

static int by_weight(const void *a, const void *b)
{
    const struct ranked *x = a, *y = b;
    if (x->weight != y->weight)
        return x->weight > y->weight ? -1 : 1;
    if (x->rank != y->rank)
        return x->rank < y->rank ? -1 : 1;
    return (x->index > y->index) - (x->index < y->index);
}

/* scratch: [n]. In the order in which facts are kept. */
static void rank(const struct fact *v, size_t n, struct ranked *scratch)
{
    for (size_t i = 0; i < n; i++)
        scratch[i] = (struct ranked){v[i].weight, (uint32_t)i, 0};
    qsort(scratch, n, sizeof *scratch, by_weight);
    for (size_t from = 0, to; from < n; from = to) {
        for (to = from + 1; to < n && scratch[to].weight == scratch[from].weight; to++)
            ;
        for (size_t i = from; i < to; i++) {
            size_t front = i - from, back = to - 1 - i;
            scratch[i].rank = (uint32_t)(front <= back ? 2 * front : 2 * back + 1);
        }
    }
    qsort(scratch, n, sizeof *scratch, by_weight);
}

/* How many of the order fit, up to the first that doesn't. */
static size_t n_fitting(const struct fact *v, size_t n, size_t max_bytes,
                        const struct ranked *order)
{
    size_t used = 0, kept = 0;
    bool has[2] = {false, false};
    for (; kept < n && kept < FACTS_MAX; kept++) {
        const struct fact *f = &v[order[kept].index];
        const bool is_assistant = f->role == MEMORY_ASSISTANT;
        size_t bytes = fact_line_bytes(f);
        if (!has[is_assistant])
            bytes += is_assistant ? ASSISTANT_LINE_BYTES : USER_LINE_BYTES;
        if (bytes > max_bytes - used)
            break;
        has[is_assistant] = true;
        used += bytes;
    }
    return kept;
}

/* Marks as gone what doesn't fit. */
static void fit(struct facts_list *l, size_t max_bytes, const struct ranked *order)
{
    for (size_t i = n_fitting(l->v, l->n, max_bytes, order); i < l->n; i++)
        drop(&l->v[order[i].index]);
}

static int settle(struct facts_list *l, size_t max_bytes, bool is_last)
{
    size_t n = l->n * FACT_PAIRS_MAX + 1;
    struct keyed *scratch = malloc(n * sizeof *scratch);
    struct ranked *order = malloc((l->n + 1) * sizeof *order);
    struct sieve *sieves = malloc((l->n + 1) * sizeof *sieves);
    if (scratch && order && sieves) {
        drop_equals(l, scratch);
        drop_outdated(l, scratch);
        if (is_last)
            drop_repeats(l, sieves);
        compact(l);
        rank(l->v, l->n, order);
        fit(l, max_bytes, order);
        compact(l);
    }
    int error = scratch && order && sieves ? 0 : ERR_NOMEM;
    free(scratch);
    free(order);
    free(sieves);
    return error;
}

int facts_list_add(struct facts_list *l, const struct fact *f, const char *text, size_t n_text)
{
    if (l->n == l->cap) {
        size_t cap = l->cap ? 2 * l->cap : 64;
        struct fact *v = realloc(l->v, cap * sizeof *v);
        if (!v)
            return ERR_NOMEM;
        l->v = v;
        l->cap = cap;
    }
    struct fact *to = &l->v[l->n++];
    *to = *f;
    if (text != f->text || n_text != f->n_text)
        to->spans.n = 0;
    to->text = text;
    to->n_text = n_text;
    to->n_pairs = 0;
    for (int i = 0; i < f->n_pairs; i++) {
        const struct fact_pair *p = &f->pairs[i];
        bool is_within_text = p->value >= text && p->value + p->n_value <= text + n_text;
        if (is_within_text)
            to->pairs[to->n_pairs++] = *p;
    }
    return l->n >= SETTLE_AT ? settle(l, SIZE_MAX, false) : 0;
}

int facts_list_take(struct facts_list *l, size_t max_bytes, struct arena *a, struct facts *ret)
{
    int error = settle(l, max_bytes, true);
    if (error)
        return error;
    struct facts out = {arena_array(a, l->n, sizeof *out.v), l->n};
    if (!out.v)
        return ERR_NOMEM;
    for (size_t i = 0; i < l->n; i++) {
        struct fact *f = &out.v[i];
        *f = l->v[i];
        char *copy = arena_copy(a, f->text, f->n_text);
        if (!copy)
            return ERR_NOMEM;
        for (int k = 0; k < f->n_pairs; k++)
            f->pairs[k].value = copy + (f->pairs[k].value - f->text);
        f->text = copy;
    }
    *ret = out;
    return 0;
}

int facts_shorten(const struct facts *all, size_t max_bytes, struct arena *a, struct facts *ret,
                  struct err *e)
{
    struct ranked *order = malloc((all->n + 1) * sizeof *order);
    bool *stays = calloc(all->n + 1, sizeof *stays);
    struct facts out = {.n = 0};
    size_t n = 0;
    if (order && stays) {
        rank(all->v, all->n, order);
        n = n_fitting(all->v, all->n, max_bytes, order);
        for (size_t i = 0; i < n; i++)
            stays[order[i].index] = true;
        out.v = arena_array(a, n + 1, sizeof *out.v);
    }
    for (size_t i = 0; out.v && i < all->n; i++)
        if (stays[i])
            out.v[out.n++] = all->v[i];
    free(order);
    free(stays);
    if (!out.v)
        return err_set(e, ERR_NOMEM, "no memory to choose facts");
    *ret = out;
    return 0;
}

int facts_merge(const struct facts *old, const struct facts *newer, size_t max_bytes,
                struct arena *a, struct facts *ret, struct err *e)
{
    const struct facts *both[2] = {old, newer};
    struct facts_list list;
    facts_list_init(&list);
    int error = 0;
    for (int k = 0; k < 2; k++)
        for (size_t i = 0; both[k] && i < both[k]->n && !error; i++)
            error = facts_list_add(&list, &both[k]->v[i], both[k]->v[i].text, both[k]->v[i].n_text);
    if (!error)
        error = facts_list_take(&list, max_bytes, a, ret);
    facts_list_done(&list);
    return error ? err_set(e, error, "no memory to merge facts") : 0;
}
