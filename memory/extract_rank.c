/*
 * Scores of a summary's candidates (extract.h): TextRank over TF-IDF, then redundancy.
 *
 *     sentences × terms (segment.h: stems and CJK pairs, no stop words; weights idf, length 1)
 *     similarity  s(i, k) = Σ over shared terms of w(i, t) · w(k, t)
 *     centrality  p(i) ← (1 − d)/n + d · Σ_k p(k) · s(k, i) / Σ_j s(k, j),   d = 0.85
 *
 * The matrix of similarities is never made: p · S goes through the terms, Σ_t w(i, t) · Σ_k w(k, t)
 * · q(k), which costs the number of (sentence, term) pairs a round, not sentences². ROUNDS rounds
 * are far beyond what the order needs. Sums run in a fixed order, so the scores are the same bits
 * every time.
 *
 * Taken one by one, the best remaining; each taken one lowers the rest by their similarity to it.
 * That is TAKEN_MAX times the pairs.
 */
#include "memory/extract_rank.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "memory/extract.h"
#include "memory/segment.h"

#define ROUNDS 20
#define DAMPING 0.85
#define TERMS_MAX 96      /* of a sentence */
#define CENTRAL_SHARE 0.6 /* of the score; the rest is even */
#define REPEAT_LOSS 0.8
#define TAKEN_MAX 256 /* no summary is longer */

struct pair {
    uint32_t term;
    float weight;
};

struct ranker {
    uint64_t *hashes; /* [n_slots] open addressing; 0: free */
    uint32_t *ids;    /* [n_slots] */
    uint32_t *n_docs; /* [n_terms] sentences that have it */
    uint32_t *seen;   /* [n_terms] the last sentence that had it, + 1 */
    double *sums;     /* [n_terms] */
    size_t n_terms, n_slots;
    struct pair *pairs; /* [n_pairs] by sentence */
    size_t n_pairs;
    size_t *begin;                          /* [n + 1] into pairs */
    double *rank, *next, *degree, *overlap; /* [n] */
    uint64_t *whole;                        /* [n] hash of all terms, in order */
    struct segmenter *segmenter;
    uint32_t doc; /* being read */
    uint64_t whole_now;
};

static void ranker_free(struct ranker *r)
{
    free(r->hashes);
    free(r->ids);
    free(r->n_docs);
    free(r->seen);
    free(r->sums);
    free(r->pairs);
    free(r->begin);
    free(r->rank);
    free(r->next);
    free(r->degree);
    free(r->overlap);
    free(r->whole);
    segmenter_free(r->segmenter);
}

static int ranker_init(struct ranker *r, size_t n)
{
    /* Slots: a power of two, at most half full. */
    size_t n_pairs = n * TERMS_MAX + 1, n_slots = 256;
    while (n_slots < 2 * n_pairs)
        n_slots *= 2;
    *r = (struct ranker){
        .n_slots = n_slots,
        .hashes = calloc(n_slots, sizeof *r->hashes),
        .ids = malloc(n_slots * sizeof *r->ids),
        .n_docs = calloc(n_pairs, sizeof *r->n_docs),
        .seen = calloc(n_pairs, sizeof *r->seen),
        .sums = malloc(n_pairs * sizeof *r->sums),
        .pairs = malloc(n_pairs * sizeof *r->pairs),
        .begin = malloc((n + 1) * sizeof *r->begin),
        .rank = malloc((n + 1) * sizeof *r->rank),
        .next = malloc((n + 1) * sizeof *r->next),
        .degree = malloc((n + 1) * sizeof *r->degree),
        .overlap = calloc(n + 1, sizeof *r->overlap),
        .whole = malloc((n + 1) * sizeof *r->whole),
        .segmenter = segmenter_new(),
    };
    bool is_whole = r->hashes && r->ids && r->n_docs && r->seen && r->sums && r->pairs &&
                    r->begin && r->rank && r->next && r->degree && r->overlap && r->whole &&
                    r->segmenter;
    return is_whole ? 0 : ERR_NOMEM;
}

/* FNV-1a, never 0. */
static uint64_t term_hash(const char *s, size_t n)
{
    uint64_t h = 0xCBF29CE484222325u;
    for (size_t i = 0; i < n; i++)
        h = (h ^ (unsigned char)s[i]) * 0x100000001B3u;
    return h ? h : 1;
}

static uint32_t term_id(struct ranker *r, uint64_t hash)
{
    size_t slot = (size_t)(hash ^ hash >> 32) & (r->n_slots - 1);
    while (r->hashes[slot] && r->hashes[slot] != hash)
        slot = (slot + 1) & (r->n_slots - 1);
    if (!r->hashes[slot]) {
        r->hashes[slot] = hash;
        r->ids[slot] = (uint32_t)r->n_terms++;
    }
    return r->ids[slot];
}

static bool read_term(void *user, const struct segment *t)
{
    struct ranker *r = user;
    uint64_t hash = term_hash(t->term, t->n);
    if (t->kind == SEGMENT_WORD || t->kind == SEGMENT_SINGLE)
        r->whole_now = (r->whole_now ^ hash) * 0x9E3779B97F4A7C15u;
    bool is_pointless = t->is_stop || t->kind == SEGMENT_SINGLE || t->kind == SEGMENT_WHOLE;
    if (is_pointless || r->n_pairs - r->begin[r->doc] == TERMS_MAX)
        return true;
    uint32_t id = term_id(r, hash);
    if (r->seen[id] == r->doc + 1)
        return true;
    r->seen[id] = r->doc + 1;
    r->n_docs[id]++;
    r->pairs[r->n_pairs++] = (struct pair){id, 1};
    return true;
}

struct same {
    uint64_t whole;
    uint32_t index;
};

static int by_whole(const void *a, const void *b)
{
    const struct same *x = a, *y = b;
    if (x->whole != y->whole)
        return x->whole < y->whole ? -1 : 1;
    return (x->index > y->index) - (x->index < y->index);
}

/* Those without a text leave, with their pairs. */
static void close_up(struct ranker *r, struct candidate *v, size_t *n)
{
    size_t kept = 0, n_pairs = 0;
    for (size_t i = 0; i < *n; i++) {
        const size_t from = r->begin[i], len = r->begin[i + 1] - from;
        if (!v[i].text)
            continue;
        v[kept] = v[i];
        memmove(r->pairs + n_pairs, r->pairs + from, len * sizeof *r->pairs);
        r->begin[kept++] = n_pairs;
        n_pairs += len;
    }
    r->begin[kept] = r->n_pairs = n_pairs;
    *n = kept;
}

/* Of those with the same words the first stays, with the best cheap score of them; those without
 * words leave. Hashes of 64 bits stand for the words: a collision drops one, once in ages. */
static int drop_same(struct ranker *r, struct candidate *v, size_t *n)
{
    struct same *order = malloc((*n + 1) * sizeof *order);
    if (!order)
        return ERR_NOMEM;
    for (size_t i = 0; i < *n; i++) {
        r->doc = (uint32_t)i;
        r->whole_now = 0;
        r->begin[i] = r->n_pairs;
        segment_walk(r->segmenter, v[i].text, v[i].n_text, read_term, r);
        order[i] = (struct same){r->whole_now, (uint32_t)i};
    }
    r->begin[*n] = r->n_pairs;
    qsort(order, *n, sizeof *order, by_whole);
    for (size_t i = 0, first = 0; i < *n; i++) {
        first = order[i].whole == order[first].whole ? first : i;
        struct candidate *kept = &v[order[first].index], *c = &v[order[i].index];
        if (!order[i].whole || i != first) {
            kept->cheap = kept->cheap > c->cheap ? kept->cheap : c->cheap;
            c->text = NULL;
        }
    }
    free(order);
    close_up(r, v, n);
    return 0;
}

/* Terms of what is left, weighed by idf, to length 1. */
static void weigh(struct ranker *r, size_t n)
{
    memset(r->n_docs, 0, r->n_terms * sizeof *r->n_docs);
    for (size_t k = 0; k < r->n_pairs; k++)
        r->n_docs[r->pairs[k].term]++;
    for (size_t i = 0; i < n; i++) {
        double square = 0;
        for (size_t k = r->begin[i]; k < r->begin[i + 1]; k++) {
            double idf = log(1 + (double)n / r->n_docs[r->pairs[k].term]);
            r->pairs[k].weight = (float)idf;
            square += idf * idf;
        }
        for (size_t k = r->begin[i]; k < r->begin[i + 1]; k++)
            r->pairs[k].weight /= (float)sqrt(square);
    }
}

/* out = S · in, through the terms, without the diagonal (which is 1 for those that have terms). */
static void multiply(struct ranker *r, size_t n, const double *in, double *out)
{
    memset(r->sums, 0, r->n_terms * sizeof *r->sums);
    for (size_t i = 0; i < n; i++)
        for (size_t k = r->begin[i]; k < r->begin[i + 1]; k++)
            r->sums[r->pairs[k].term] += r->pairs[k].weight * in[i];
    for (size_t i = 0; i < n; i++) {
        double sum = 0;
        for (size_t k = r->begin[i]; k < r->begin[i + 1]; k++)
            sum += r->pairs[k].weight * r->sums[r->pairs[k].term];
        sum -= r->begin[i + 1] > r->begin[i] ? in[i] : 0;
        out[i] = sum > 1e-9 ? sum : 0;
    }
}

static void centrality(struct ranker *r, size_t n)
{
    for (size_t i = 0; i < n; i++)
        r->rank[i] = 1;
    multiply(r, n, r->rank, r->degree);
    for (int round = 0; round < ROUNDS; round++) {
        for (size_t i = 0; i < n; i++)
            r->next[i] = r->degree[i] > 0 ? r->rank[i] / r->degree[i] : 0;
        multiply(r, n, r->next, r->rank);
        for (size_t i = 0; i < n; i++)
            r->rank[i] = 1 - DAMPING + DAMPING * r->rank[i];
    }
}

/* overlap[i] += how much of i says what `taken` says. */
static void add_overlap(struct ranker *r, size_t n, size_t taken)
{
    for (size_t k = r->begin[taken]; k < r->begin[taken + 1]; k++)
        r->sums[r->pairs[k].term] = r->pairs[k].weight;
    for (size_t i = 0; i < n; i++) {
        double same = 0;
        for (size_t k = r->begin[i]; k < r->begin[i + 1]; k++)
            same += r->pairs[k].weight * r->sums[r->pairs[k].term];
        r->overlap[i] = r->overlap[i] > same ? r->overlap[i] : same;
    }
    for (size_t k = r->begin[taken]; k < r->begin[taken + 1]; k++)
        r->sums[r->pairs[k].term] = 0;
}

/* The order of taking becomes the score: what was taken later has less. */
static void take_in_turn(struct ranker *r, struct candidate *v, size_t n)
{
    memset(r->sums, 0, r->n_terms * sizeof *r->sums);
    for (size_t i = 0; i < n; i++)
        v[i].score = 0;
    double last = HUGE_VAL;
    for (size_t taken = 0; taken < n && taken < TAKEN_MAX; taken++) {
        size_t best = n;
        double best_score = -1;
        for (size_t i = 0; i < n; i++) {
            double score = r->next[i] * (1 - REPEAT_LOSS * r->overlap[i]);
            if (v[i].score == 0 && score > best_score) {
                best = i;
                best_score = score;
            }
        }
        last = best_score < last ? best_score : nextafter(last, 0);
        v[best].score = last;
        add_overlap(r, n, best);
    }
    /* The rest as they are, below the last. */
    double most = 0;
    for (size_t i = 0; i < n; i++)
        most = v[i].score == 0 && r->next[i] > most ? r->next[i] : most;
    for (size_t i = 0; i < n; i++)
        if (v[i].score == 0)
            v[i].score = last * 0.99 * (r->next[i] / most) * (1 - REPEAT_LOSS * r->overlap[i]);
}

int candidates_score(struct candidate *v, size_t *n)
{
    struct ranker r;
    int error = ranker_init(&r, *n);
    if (!error)
        error = drop_same(&r, v, n);
    if (!error) {
        weigh(&r, *n);
        centrality(&r, *n);
        for (size_t i = 0; i < *n; i++)
            r.next[i] = v[i].cheap * (1 - CENTRAL_SHARE + CENTRAL_SHARE * r.rank[i]) + 1e-6;
        take_in_turn(&r, v, *n);
    }
    ranker_free(&r);
    return error;
}
