/* See relevance.h. */
#include "memory/relevance.h"

#include <string.h>

#include "memory/bm25.h"
#include "memory/internal.h"
#include "memory/query.h"

#define WORD_WEIGHT 2
#define PAIR_WEIGHT 1
#define ENOUGH 4 /* two words, four pairs: enough of a question of any length */
#define TEXT_MAX ((size_t)64 << 10)
/* Hits that hold a term, and it is a common one. */
#define COMMON 4
#define COMMON_IN_QUESTION 8

static uint64_t term_hash(const struct segment *t)
{
    return query_hash(t->term, t->n, 0);
}

static size_t find(const struct relevance *r, uint64_t hash)
{
    size_t i = 0;
    while (i < r->n && r->terms[i] != hash)
        i++;
    return i;
}

static bool add(void *user, const struct segment *t)
{
    struct relevance *r = user;
    const bool counts = t->kind == SEGMENT_PAIR || (t->kind == SEGMENT_WORD && t->n > 1);
    const uint64_t hash = term_hash(t);
    if (t->is_stop || !counts || find(r, hash) < r->n)
        return true;
    r->terms[r->n] = hash;
    r->weights[r->n] = t->kind == SEGMENT_PAIR ? PAIR_WEIGHT : WORD_WEIGHT;
    r->total += r->weights[r->n++];
    return r->n < RELEVANCE_TERMS_MAX;
}

void relevance_init(struct relevance *r, struct memory *m, const char *question, size_t n)
{
    r->m = m;
    r->index = NULL;
    r->n = 0;
    r->total = 0;
    r->is_asking = search_only_asks(question, n);
    segment_walk(m->index.segmenter, question, n < TEXT_MAX ? n : TEXT_MAX, add, r);
}

void relevance_index(struct relevance *r, const struct bm25 *index)
{
    r->index = index;
    if (index)
        bm25_find(index, r->terms, r->n, r->numbers);
}

static bool mark(void *user, const struct segment *t)
{
    struct relevance *r = user;
    const size_t i = find(r, term_hash(t));
    if (i < r->n)
        r->is_shared[i] = true;
    return true;
}

static bool is_indexed(const struct relevance *r, const struct memory_hit *hit)
{
    return r->index && hit->n_text <= BM25_TEXT_MAX;
}

/* Into is_shared. */
static void find_shared(struct relevance *r, const struct memory_hit *hit)
{
    memset(r->is_shared, 0, r->n * sizeof *r->is_shared);
    if (is_indexed(r, hit))
        bm25_shared(r->index, (size_t)hit->row - 1, r->numbers, r->n, r->is_shared);
    else
        segment_walk(r->m->index.segmenter, hit->text,
                     hit->n_text < TEXT_MAX ? hit->n_text : TEXT_MAX, mark, r);
}

static bool only_asks(const struct relevance *r, const struct memory_hit *hit)
{
    return is_indexed(r, hit) ? bm25_only_asks(r->index, (size_t)hit->row - 1)
                              : search_only_asks(hit->text, hit->n_text);
}

void relevance_weigh(struct relevance *r, const struct memory_hits *hits)
{
    const unsigned common = r->is_asking ? COMMON_IN_QUESTION : COMMON;
    unsigned left = 0;
    memset(r->n_holding, 0, sizeof r->n_holding);
    for (size_t k = 0; k < hits->n && k < UINT8_MAX; k++) {
        const struct memory_hit *hit = &hits->v[k];
        if (only_asks(r, hit)) /* the same question, asked before */
            continue;
        find_shared(r, hit);
        for (size_t i = 0; i < r->n; i++)
            r->n_holding[i] += r->is_shared[i];
    }
    for (size_t i = 0; i < r->n; i++)
        left += r->n_holding[i] < common ? r->weights[i] : 0;
    if (left == 0 && r->is_asking)
        return;
    for (size_t i = 0; i < r->n; i++)
        r->weights[i] = r->n_holding[i] < common ? r->weights[i] : 0;
    r->total = left;
}

int relevance_share(const char *text, size_t n, int all)
{
    const bool is_asking = memchr(text, '?', n) || memmem(text, n, "？", 3);
    return is_asking ? all : all / 2;
}

bool relevance_of(struct relevance *r, const struct memory_hit *hit)
{
    unsigned shared = 0;
    find_shared(r, hit);
    for (size_t i = 0; i < r->n; i++)
        shared += r->is_shared[i] ? r->weights[i] : 0;
    return shared >= ENOUGH || (r->total > 0 && 4 * shared > r->total);
}
