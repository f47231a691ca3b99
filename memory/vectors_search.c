/*
 * The vectors nearest to a query's, and their list merged with that of the words.
 *
 *      rows in RAM ─► those that may be hits, BLOCK at a time as floats ─► one product each
 *                  ─► a heap of the best ─► parts of a message made one, the best of them
 *                  ─► + before × what the message after it has, + after × what the one before has
 *
 * A cosine's zero says nothing, and models differ (two sentences that have nothing in common: 0.07
 * of one, 0.7 of another), so what is near is told by the mean and deviation of all cosines of the
 * search; of a few only, by what is usual. Below the floor (struct memory_weights) is no hit.
 */
#include "memory/vectors.h"

#include <math.h>
#include <stdlib.h>

#include "base/blas.h"
#include "base/sys.h"
#include "memory/vectors_impl.h"

#define BLOCK 128      /* rows as floats at once: they stay in the CPU's second cache */
#define HEAP 512       /* parts that are looked at closely */
#define LOAD_ROWS 20000
/* Of each list that is merged: what is further down than LIST_MIN changes no first page, and costs
 * as much again to read. */
#define LIST_MIN 50
#define LIST_MAX 100
/* The words' first ranks are good, and 60 lets a row that is far down in both lists pass them. */
#define MERGE_OFFSET 10

/* What is usual, and how many rows that counts for. */
#define USUAL_MEAN 0.07
#define USUAL_DEVIATION 0.09
#define USUAL_ROWS 20

struct near {
    int64_t message, parent;
    double score, own;
};

struct search {
    const struct memory_weights *w;
    const struct vectors *v;
    const struct memory_query *q;
    const float *vector;
    uint64_t owner;
    float *block;        /* [BLOCK, dim] */
    size_t at[BLOCK];    /* which rows of v */
    size_t n_block;
    size_t at_only;      /* where in q->only the last row stood */
    struct near *heap;   /* [HEAP], the worst first */
    size_t n;
    double n_all, sum, squares; /* of all cosines */
    double floor;
};

/* Where in ascending rows the first stands that isn't below `row`; n: none. */
static size_t place_of(const int64_t *rows, size_t n, int64_t row)
{
    size_t lo = 0, hi = n;
    while (lo < hi) {
        const size_t mid = lo + (hi - lo) / 2;
        if (rows[mid] < row)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo;
}

static bool has_row(const int64_t *rows, size_t n, int64_t row)
{
    const size_t at = place_of(rows, n, row);
    return at < n && rows[at] == row;
}

/* The same for rows that come in an order near to that of the list, up or down: *at is where the
 * last one stood. */
static bool has_row_near(const int64_t *rows, size_t n, int64_t row, size_t *at)
{
    for (int i = 0; i < 2 && *at + 1 < n && rows[*at] < row; i++)
        ++*at;
    for (int i = 0; i < 2 && *at > 0 && *at < n && rows[*at] > row; i++)
        --*at;
    if (*at < n && rows[*at] == row)
        return true;
    *at = place_of(rows, n, row);
    return *at < n && rows[*at] == row;
}

static bool is_wanted(struct search *s, const struct vector_row *row)
{
    const struct memory_query *q = s->q;
    if (row->owner != s->owner || (q->conversation && row->conversation != q->conversation))
        return false;
    if (q->exclude && has_row(q->exclude, q->n_exclude, row->message))
        return false;
    return !q->only || has_row_near(q->only, q->n_only, row->message, &s->at_only);
}

/* Puts `item` where heap[i] is, on its way down. */
static void sift(struct search *s, size_t i, const struct near *item)
{
    for (;;) {
        size_t child = 2 * i + 1;
        if (child >= s->n)
            break;
        if (child + 1 < s->n && s->heap[child + 1].score < s->heap[child].score)
            child++;
        if (s->heap[child].score >= item->score)
            break;
        s->heap[i] = s->heap[child];
        i = child;
    }
    s->heap[i] = *item;
}

static void keep(struct search *s, const struct near *item)
{
    if (s->n == HEAP) {
        if (item->score > s->heap[0].score)
            sift(s, 0, item);
        return;
    }
    size_t i = s->n++;
    while (i > 0 && s->heap[(i - 1) / 2].score > item->score) {
        s->heap[i] = s->heap[(i - 1) / 2];
        i = (i - 1) / 2;
    }
    s->heap[i] = *item;
}

/* The product of a block of rows. */
static void score_block(struct search *s)
{
    float y[BLOCK];
    if (s->n_block == 0)
        return;
    blas_apply(s->block, (int)s->n_block, s->v->model.dim, s->vector, y);
    for (size_t i = 0; i < s->n_block; i++) {
        const struct vector_row *row = &s->v->rows[s->at[i]];
        const double score = (double)y[i] * (double)row->scale;
        s->n_all++;
        s->sum += score;
        s->squares += score * score;
        keep(s, &(struct near){row->message, row->parent, score, score});
    }
    s->n_block = 0;
}

static void score_all(struct search *s)
{
    const size_t dim = (size_t)s->v->model.dim;
    for (size_t i = 0; i < s->v->n; i++) {
        if (!is_wanted(s, &s->v->rows[i]))
            continue;
        blas_widen(s->v->data + i * dim, dim, s->block + s->n_block * dim);
        s->at[s->n_block++] = i;
        if (s->n_block == BLOCK)
            score_block(s);
    }
    score_block(s);
}

static int by_message(const void *a, const void *b)
{
    const struct near *x = a, *y = b;
    if (x->message != y->message)
        return x->message < y->message ? -1 : 1;
    return x->own > y->own ? -1 : x->own < y->own;
}

static int by_score(const void *a, const void *b)
{
    const struct near *x = a, *y = b;
    if (x->score != y->score)
        return x->score > y->score ? -1 : 1;
    return x->message > y->message ? -1 : x->message < y->message;
}

/* Of a message's parts the best stays. The heap is a list by message then. */
static void merge_parts(struct search *s)
{
    size_t n = 0;
    qsort(s->heap, s->n, sizeof *s->heap, by_message);
    for (size_t i = 0; i < s->n; i++)
        if (n == 0 || s->heap[n - 1].message != s->heap[i].message)
            s->heap[n++] = s->heap[i];
    s->n = n;
}

static double above_floor(const struct search *s, const struct near *n)
{
    return n->own > s->floor ? n->own - s->floor : 0;
}

/* So many deviations above the mean. */
static double above_mean(const struct search *s, double n_deviations)
{
    const double usual = USUAL_MEAN * USUAL_MEAN + USUAL_DEVIATION * USUAL_DEVIATION;
    const double n = s->n_all + USUAL_ROWS;
    const double mean = (s->sum + USUAL_ROWS * USUAL_MEAN) / n;
    const double variance = (s->squares + USUAL_ROWS * usual) / n - mean * mean;
    return mean + n_deviations * sqrt(variance > 0 ? variance : 0);
}

static void share_with_neighbours(struct search *s)
{
    for (size_t i = 0; i < s->n; i++) {
        struct near *c = &s->heap[i];
        const struct near key = {.message = c->parent, .own = 2}; /* before any of that message */
        size_t lo = 0, hi = i;
        while (lo < hi) {
            const size_t mid = lo + (hi - lo) / 2;
            if (by_message(&s->heap[mid], &key) < 0)
                lo = mid + 1;
            else
                hi = mid;
        }
        if (c->parent == 0 || lo == i || s->heap[lo].message != c->parent)
            continue;
        s->heap[lo].score += s->w->meaning_before * above_floor(s, c);
        c->score += s->w->meaning_after * above_floor(s, &s->heap[lo]);
    }
}

static int load_all(struct memory *m, struct err *e)
{
    int rc = 0;
    while (rc == 0 && m->vectors->to_load > 0)
        rc = vectors_load(m, LOAD_ROWS, e);
    return rc;
}

int memory_vectors_search(struct memory *m, const struct memory_query *q, const float *vector,
                          size_t max, struct vectors_hits *ret)
{
    struct search s = {.v = m->vectors, .q = q, .vector = vector};
    s.w = q->weights ? q->weights : &memory_weights_default;
    struct err ignored;
    ret->n = 0;
    if (!s.v)
        return 0;
    int rc = load_all(m, &ignored);
    if (rc < 0)
        return rc;
    s.owner = vectors_owner(q->owner);
    s.block = sys.malloc(BLOCK * (size_t)s.v->model.dim * sizeof *s.block);
    s.heap = sys.malloc(HEAP * sizeof *s.heap);
    if (s.block && s.heap) {
        score_all(&s);
        merge_parts(&s);
        s.floor = above_mean(&s, s.w->meaning_floor);
        share_with_neighbours(&s);
        qsort(s.heap, s.n, sizeof *s.heap, by_score);
        if (max > VECTORS_BEST)
            max = VECTORS_BEST;
        const double sure = above_mean(&s, s.w->meaning_sure);
        for (size_t i = 0; i < s.n && i < max && s.heap[i].score > s.floor; i++) {
            ret->is_sure[ret->n] = s.heap[i].own >= sure;
            ret->v[ret->n++] = (struct memory_ranked){s.heap[i].message, s.heap[i].score};
        }
    } else {
        rc = ERR_NOMEM;
    }
    free(s.block);
    free(s.heap);
    return rc;
}

/* ---- merged with the words' list ---- */

static unsigned why_by_words(const struct memory_hits *words, int64_t row)
{
    for (size_t i = 0; i < words->n; i++)
        if (words->v[i].row == row)
            return words->v[i].why;
    return 0;
}

static unsigned why_by_meaning(const struct vectors_hits *near, int64_t row)
{
    for (size_t i = 0; i < near->n; i++)
        if (near->v[i].row == row)
            return near->is_sure[i] ? MEMORY_WHY_MEANING : MEMORY_WHY_NEIGHBOUR;
    return 0;
}

/* By words' reasons, by meaning, and by neither alone: then it stands beside one that is. */
static unsigned why_by_both(const struct memory_hits *words, const struct vectors_hits *near,
                            int64_t row)
{
    const unsigned by_words = why_by_words(words, row), by_meaning = why_by_meaning(near, row);
    return by_meaning == MEMORY_WHY_NEIGHBOUR && by_words ? by_words : by_words | by_meaning;
}

int memory_recall_both(struct memory *m, const struct memory_query *q, const float *vector,
                       struct memory_hits *ret, struct arena *a, struct err *e)
{
    struct memory_query wide = *q;
    struct memory_hits words, both;
    struct memory_ranked by_words[LIST_MAX], merged[SEARCH_POOL];
    struct vectors_hits near;
    if (!vector || !m->vectors)
        return memory_recall(m, q, ret, a, e);
    wide.limit = q->offset + q->limit;
    if (wide.limit < LIST_MIN)
        wide.limit = LIST_MIN;
    if (wide.limit > LIST_MAX)
        wide.limit = LIST_MAX;
    wide.offset = 0;
    int rc = memory_recall(m, &wide, &words, a, e);
    if (rc < 0)
        return rc;
    if (memory_vectors_search(m, q, vector, (size_t)wide.limit, &near) < 0 || near.n == 0)
        return memory_recall(m, q, ret, a, e);
    for (size_t i = 0; i < words.n; i++)
        by_words[i] = (struct memory_ranked){words.v[i].row, words.v[i].score};
    const struct memory_weights *w = q->weights ? q->weights : &memory_weights_default;
    const struct memory_list lists[] = {{by_words, words.n, 1, MERGE_OFFSET},
                                        {near.v, near.n, w->meaning, MERGE_OFFSET}};
    const int64_t n = memory_recall_merge(lists, 2, merged, SEARCH_POOL);
    if (n < 0)
        return memory_out(e);
    const struct memory_list all = {.v = merged, .n = (size_t)n, .weight = 1};
    rc = memory_recall_rows(m, q, &all, &both, a, e);
    if (rc < 0)
        return rc;
    for (size_t i = 0; i < both.n; i++)
        both.v[i].why = why_by_both(&words, &near, both.v[i].row);
    both.is_partial = both.is_partial || m->vectors->todo > 0 || m->vectors->n_fresh > 0;
    *ret = both;
    return 0;
}
