/*
 * See bm25.h.
 *
 *     terms     hash table: term → postings (text, how often), of the texts that were added
 *     uses      the distinct terms of each text that was read, one behind the other
 *
 * A term is its 64-bit hash: two that share one are ranked as one, which costs nothing but rank.
 */
#include "memory/bm25.h"

#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/sys.h"
#include "memory/query.h"
#include "memory/search.h"
#include "memory/segment.h"

#define SLOTS_FIRST 1024 /* a power of two */
#define NEAR_MAX 24      /* hits whose neighbours get a share */
#define NONE UINT32_MAX

struct posting {
    uint32_t text, n;
    double saturation; /* what the score's n is divided by */
};
struct term {
    uint64_t hash;
    struct posting *v; /* [n] */
    uint32_t n, cap;
    uint32_t read_by; /* the newest reading that met it … */
    uint32_t use;     /* … and where in uses */
    bool is_single, is_stop;
};
struct use {
    uint32_t term, n;
};
struct text {
    size_t first; /* of uses */
    uint32_t n_uses, n_words;
    uint64_t sameness;
    bool is_read, is_added, only_asks, has_content;
};

struct bm25 {
    struct segmenter *segmenter;
    struct text *texts; /* [n_texts] */
    size_t n_texts, n_added;
    struct term *terms; /* [n_terms] */
    size_t n_terms, cap_terms;
    uint32_t *slots; /* [n_slots] a term or NONE */
    size_t n_slots;
    struct use *uses;
    size_t n_uses, cap_uses;
    uint32_t n_readings;
    /* Scratch of bm25_ask. */
    double *own, *near; /* [n_texts] zero between calls */
    uint32_t *seen;     /* [n_texts] texts with a score */
};

static int out_of_memory(struct err *e)
{
    return err_set(e, ERR_NOMEM, "out of memory for ranking");
}

/* n zeroed things, n < NONE. NULL: no memory. */
static void *zeroed(size_t n, size_t size)
{
    void *v = sys.malloc(n * size);
    return v ? memset(v, 0, n * size) : NULL;
}

struct bm25 *bm25_new(size_t n_texts)
{
    struct bm25 *b = n_texts < NONE - 1 ? zeroed(1, sizeof(*b)) : NULL;
    if (!b)
        return NULL;
    b->n_texts = n_texts;
    b->n_slots = SLOTS_FIRST;
    b->segmenter = segmenter_new();
    b->texts = zeroed(n_texts + 1, sizeof(*b->texts));
    b->own = zeroed(n_texts + 1, sizeof(*b->own));
    b->near = zeroed(n_texts + 1, sizeof(*b->near));
    b->seen = zeroed(n_texts + 1, sizeof(*b->seen));
    b->slots = sys.malloc(b->n_slots * sizeof(*b->slots));
    if (b->slots)
        memset(b->slots, 0xFF, b->n_slots * sizeof(*b->slots));
    if (b->segmenter && b->texts && b->own && b->near && b->seen && b->slots)
        return b;
    bm25_free(b);
    return NULL;
}

void bm25_free(struct bm25 *b)
{
    if (!b)
        return;
    for (size_t i = 0; i < b->n_terms; i++)
        free(b->terms[i].v);
    segmenter_free(b->segmenter);
    free(b->texts);
    free(b->own);
    free(b->near);
    free(b->seen);
    free(b->slots);
    free(b->terms);
    free(b->uses);
    free(b);
}

/* ---- reading ---- */

static size_t slot_of(const struct bm25 *b, const uint32_t *slots, size_t n_slots, uint64_t hash)
{
    size_t at = hash & (n_slots - 1);
    while (slots[at] != NONE && b->terms[slots[at]].hash != hash)
        at = (at + 1) & (n_slots - 1);
    return at;
}

static bool grow_slots(struct bm25 *b)
{
    const size_t n = 2 * b->n_slots;
    uint32_t *slots = sys.malloc(n * sizeof(*slots));
    if (!slots)
        return false;
    memset(slots, 0xFF, n * sizeof(*slots));
    for (size_t i = 0; i < b->n_terms; i++)
        slots[slot_of(b, slots, n, b->terms[i].hash)] = (uint32_t)i;
    free(b->slots);
    b->slots = slots;
    b->n_slots = n;
    return true;
}

/* Room for one more; false: no memory. */
static bool grow(void **v, size_t n, size_t *cap, size_t size)
{
    if (n < *cap)
        return true;
    const size_t to = *cap ? 2 * *cap : 64;
    void *new = sys.realloc(*v, to * size);
    if (!new)
        return false;
    *v = new;
    *cap = to;
    return true;
}

/* NULL: no memory. */
static struct term *term_of(struct bm25 *b, const struct segment *s)
{
    const uint64_t hash = query_hash(s->term, s->n, 0);
    size_t at = slot_of(b, b->slots, b->n_slots, hash);
    if (b->slots[at] != NONE)
        return &b->terms[b->slots[at]];
    if (2 * b->n_terms >= b->n_slots && !grow_slots(b))
        return NULL;
    if (!grow((void **)&b->terms, b->n_terms, &b->cap_terms, sizeof(*b->terms)))
        return NULL;
    at = slot_of(b, b->slots, b->n_slots, hash);
    b->slots[at] = (uint32_t)b->n_terms;
    b->terms[b->n_terms] = (struct term){
        .hash = hash, .is_single = s->kind == SEGMENT_SINGLE, .is_stop = s->is_stop};
    return &b->terms[b->n_terms++];
}

struct reading {
    struct bm25 *b;
    struct text *text;
    uint32_t number; /* of the reading, from 1 on */
    bool has_failed;
};

static bool note(void *user, const struct segment *s)
{
    struct reading *r = user;
    struct bm25 *b = r->b;
    struct term *t = term_of(b, s);
    r->has_failed = !t || !grow((void **)&b->uses, b->n_uses, &b->cap_uses, sizeof(*b->uses));
    if (r->has_failed)
        return false;
    r->text->n_words += s->kind == SEGMENT_WORD || s->kind == SEGMENT_SINGLE;
    r->text->sameness = query_hash(s->term, s->n, r->text->sameness);
    r->text->has_content = r->text->has_content || !s->is_stop;
    if (t->read_by == r->number) {
        b->uses[t->use].n++;
        return true;
    }
    t->read_by = r->number;
    t->use = (uint32_t)b->n_uses;
    b->uses[b->n_uses++] = (struct use){.term = (uint32_t)(t - b->terms), .n = 1};
    return true;
}

int bm25_read(struct bm25 *b, size_t i, const char *text, size_t n, struct err *e)
{
    struct text *t = &b->texts[i];
    struct reading r = {.b = b, .text = t};
    if (t->is_read)
        return 0;
    r.number = ++b->n_readings;
    if (n > BM25_TEXT_MAX)
        n = BM25_TEXT_MAX;
    *t = (struct text){.first = b->n_uses};
    segment_walk(b->segmenter, text, n, note, &r);
    if (r.has_failed || b->n_uses >= NONE)
        return out_of_memory(e);
    t->n_uses = (uint32_t)(b->n_uses - t->first);
    t->only_asks = search_only_asks(text, n);
    t->is_read = true;
    return 0;
}

/* v's n things become n_new, the new ones zero. NULL: no memory, v is as it was. */
static void *lengthen(void *v, size_t n, size_t n_new, size_t size)
{
    char *longer = sys.realloc(v, n_new * size);
    if (longer && n_new > n)
        memset(longer + n * size, 0, (n_new - n) * size);
    return longer;
}

int bm25_resize(struct bm25 *b, size_t n_texts, struct err *e)
{
    const size_t n = b->n_texts + 1, n_new = n_texts + 1;
    if (n_texts <= b->n_texts)
        return 0;
    if (n_texts >= NONE - 1)
        return out_of_memory(e);
    struct text *texts = lengthen(b->texts, n, n_new, sizeof(*texts));
    b->texts = texts ? texts : b->texts;
    double *own = lengthen(b->own, n, n_new, sizeof(*own));
    b->own = own ? own : b->own;
    double *near = lengthen(b->near, n, n_new, sizeof(*near));
    b->near = near ? near : b->near;
    uint32_t *seen = lengthen(b->seen, n, n_new, sizeof(*seen));
    b->seen = seen ? seen : b->seen;
    if (!texts || !own || !near || !seen)
        return out_of_memory(e);
    b->n_texts = n_texts;
    return 0;
}

size_t bm25_mark(const struct bm25 *b)
{
    return b->n_uses;
}

void bm25_rewind(struct bm25 *b, size_t mark, size_t from)
{
    for (size_t i = from; i < b->n_texts; i++)
        b->texts[i] = (struct text){.is_read = false};
    b->n_uses = mark;
}

int bm25_add(struct bm25 *b, size_t i, struct err *e)
{
    const struct memory_weights *w = &memory_weights_default;
    struct text *t = &b->texts[i];
    /* As search.c has it: 20 terms are a usual message. */
    const double length = 1 - w->b + w->b * (double)t->n_words / 20;
    if (t->is_added)
        return 0;
    for (uint32_t k = 0; k < t->n_uses; k++) {
        const struct use *u = &b->uses[t->first + k];
        struct term *term = &b->terms[u->term];
        size_t cap = term->cap;
        if (!grow((void **)&term->v, term->n, &cap, sizeof(*term->v)))
            return out_of_memory(e);
        term->cap = (uint32_t)cap;
        term->v[term->n++] = (struct posting){
            .text = (uint32_t)i, .n = u->n, .saturation = (double)u->n + w->k1 * length};
    }
    t->is_added = true;
    b->n_added++;
    return 0;
}

/* ---- what was read ---- */

void bm25_find(const struct bm25 *b, const uint64_t *hashes, size_t n, uint32_t *ret)
{
    for (size_t i = 0; i < n; i++)
        ret[i] = b->slots[slot_of(b, b->slots, b->n_slots, hashes[i])];
}

void bm25_shared(const struct bm25 *b, size_t i, const uint32_t *terms, size_t n, bool *ret)
{
    const struct text *t = &b->texts[i];
    for (const struct use *u = b->uses + t->first; u < b->uses + t->first + t->n_uses; u++)
        for (size_t at = 0; at < n; at++)
            if (terms[at] == u->term)
                ret[at] = true;
}

bool bm25_only_asks(const struct bm25 *b, size_t i)
{
    return b->texts[i].only_asks;
}

/* ---- asking ---- */

struct asked {
    const struct term *term;
};

static int compare_rarest(const void *a, const void *b)
{
    const struct term *x = ((const struct asked *)a)->term, *y = ((const struct asked *)b)->term;
    if (x->n != y->n)
        return x->n < y->n ? -1 : 1;
    return x < y ? -1 : x > y; /* the order in which they were first seen */
}

/* A postings' worth of scores. */
static void score_term(struct bm25 *b, const struct term *t, size_t *n_seen)
{
    const struct memory_weights *w = &memory_weights_default;
    const double n = (double)b->n_added, df = (double)t->n;
    const double idf = log(1 + (n - df + 0.5) / (df + 0.5)) * (t->is_single ? w->single : 1);
    for (uint32_t i = 0; i < t->n; i++) {
        const uint32_t at = t->v[i].text;
        const double tf = (double)t->v[i].n;
        if (b->own[at] == 0)
            b->seen[(*n_seen)++] = at;
        b->own[at] += idf * tf * (w->k1 + 1) / t->v[i].saturation;
    }
}

/* Texts with a score, into b->seen; returns how many. */
static size_t score_all(struct bm25 *b, const struct text *query)
{
    struct asked asked[QUERY_SEEN_MAX];
    size_t n = 0, n_seen = 0;
    for (uint32_t k = 0; k < query->n_uses && n < QUERY_SEEN_MAX; k++) {
        const struct term *t = &b->terms[b->uses[query->first + k].term];
        if (t->n > 0 && !(t->is_stop && query->has_content))
            asked[n++].term = t;
    }
    qsort(asked, n, sizeof(*asked), compare_rarest);
    for (size_t k = 0; k < n && k < SEARCH_TERMS_MAX; k++)
        score_term(b, asked[k].term, &n_seen);
    return n_seen;
}

/* The best first. */
static int compare_hits(const void *a, const void *b)
{
    const struct bm25_hit *x = a, *y = b;
    if (x->score != y->score)
        return x->score > y->score ? -1 : 1;
    return x->text > y->text ? -1 : x->text < y->text;
}

/* Keeps v[*n], best first, at most BM25_HITS_MAX. */
static inline void keep_best(struct bm25_hit *v, size_t *n, struct bm25_hit hit)
{
    if (*n == BM25_HITS_MAX && hit.score < v[*n - 1].score) /* nearly all of them */
        return;
    if (*n == BM25_HITS_MAX && compare_hits(&v[*n - 1], &hit) <= 0)
        return;
    size_t at = *n < BM25_HITS_MAX ? (*n)++ : *n - 1;
    for (; at > 0 && compare_hits(&v[at - 1], &hit) > 0; at--)
        v[at] = v[at - 1];
    v[at] = hit;
}

/* A text gets its share of its neighbour's score; it is seen then, too. */
static void share(struct bm25 *b, size_t to, double part, size_t *n_seen)
{
    if (!b->texts[to].is_added)
        return;
    if (b->own[to] == 0 && b->near[to] == 0)
        b->seen[(*n_seen)++] = (uint32_t)to;
    b->near[to] += part;
}

static void share_with_neighbours(struct bm25 *b, size_t *n_seen)
{
    const struct memory_weights *w = &memory_weights_default;
    struct bm25_hit best[BM25_HITS_MAX];
    size_t n = 0;
    for (size_t i = 0; i < *n_seen; i++)
        keep_best(best, &n, (struct bm25_hit){.text = b->seen[i], .score = b->own[b->seen[i]]});
    for (size_t i = 0; i < n && i < NEAR_MAX; i++) {
        const size_t at = best[i].text;
        if (at > 0)
            share(b, at - 1, best[i].score * w->before, n_seen);
        if (at + 1 < b->n_texts)
            share(b, at + 1, best[i].score * w->after, n_seen);
    }
}

/* Of equal texts the newest is the one that is told, with the best one's score; none when one of
 * them is to be skipped. Returns how many stay. */
static size_t drop_same(const struct bm25 *b, const bool *skip, const struct bm25_hit *v, size_t n,
                        struct bm25_hit *ret)
{
    size_t n_kept = 0;
    for (size_t i = 0; i < n; i++) {
        const uint64_t sameness = b->texts[v[i].text].sameness;
        bool is_again = false, is_skipped = false, has_terms = false;
        size_t newest = v[i].text;
        for (size_t k = 0; k < n; k++) {
            if (b->texts[v[k].text].sameness != sameness)
                continue;
            is_again = is_again || k < i;
            has_terms = has_terms || v[k].has_terms;
            is_skipped = is_skipped || (skip && skip[v[k].text]);
            newest = v[k].text > newest ? v[k].text : newest;
        }
        if (!is_again && !is_skipped)
            ret[n_kept++] = (struct bm25_hit){newest, v[i].score, has_terms};
    }
    return n_kept;
}

size_t bm25_ask(struct bm25 *b, size_t i, const bool *skip, struct bm25_hit *ret, size_t max)
{
    const struct memory_weights *w = &memory_weights_default;
    struct bm25_hit best[BM25_HITS_MAX], found[BM25_HITS_MAX];
    size_t n_best = 0;
    size_t n_seen = score_all(b, &b->texts[i]);
    share_with_neighbours(b, &n_seen);
    for (size_t k = 0; k < n_seen; k++) {
        const uint32_t at = b->seen[k];
        const struct text *t = &b->texts[at];
        const double score = (b->own[at] + b->near[at]) * (t->only_asks ? 1 - w->question : 1);
        const bool has_terms = b->own[at] > 0;
        b->own[at] = b->near[at] = 0;
        if (score > 0 && t->sameness != b->texts[i].sameness)
            keep_best(best, &n_best, (struct bm25_hit){at, score, has_terms});
    }
    size_t n = drop_same(b, skip, best, n_best, found);
    n = n < max ? n : max;
    memcpy(ret, found, n * sizeof(*ret));
    return n;
}
