/* See lookup.h. */
#include "daemon/lookup.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#define MATCH_MAX 16     /* no more is counted */
#define MATCH_SURE 8     /* no longer one is looked for */
#define BACK_WITHIN 6    /* ids further on, at most, where one goes on after leaving … */
#define BACK_PATIENCE 8  /* … and no later than so many ids */
#define REMAINS 0.985f   /* of a trial's weight after the next one */
#define GUESS_WEIGHT 5.0 /* trials */
#define WORTH 1.10       /* expected gain of a draft: less isn't worth an estimate's error */

/* How often a match of each length goes on, before it has been seen: the classes of match_class. */
static const double guesses[LOOKUP_CLASSES] = {0.10, 0.25, 0.45, 0.60, 0.75, 0.85, 0.93, 0.35, 0.5};
#define CLASS_BACK 7 /* one id the same behind the place that was left; then two */

static int match_class(int n_match, bool is_back)
{
    static const int least[CLASS_BACK] = {0, 3, 4, 5, 7, 10, MATCH_MAX};
    int i = CLASS_BACK - 1;
    if (is_back && n_match < LOOKUP_GRAM)
        return CLASS_BACK + (n_match > 1);
    while (least[i] > n_match)
        i--;
    return i;
}

void lookup_init(struct lookup *l, int n)
{
    uint32_t n_slots = 256;
    while (n_slots < LOOKUP_SLOTS_MAX && n_slots < 4 * (uint32_t)n)
        n_slots *= 2;
    *l = (struct lookup){.mask = n_slots - 1, .credit = LOOKUP_CREDIT};
    l->slots = calloc(n_slots, sizeof *l->slots);
}

void lookup_done(struct lookup *l)
{
    free(l->slots);
    l->slots = NULL;
}

/* Of the n_gram ids before `end`. */
static uint32_t *slot_of(const struct lookup *l, const int32_t *v, int end, int n_gram)
{
    uint64_t h = (uint64_t)n_gram;
    for (int i = end - n_gram; i < end; i++)
        h = (h ^ (uint32_t)v[i]) * 0x9e3779b97f4a7c15ull;
    return &l->slots[(uint32_t)(h >> 40) & l->mask];
}

static void index_end(struct lookup *l, const int32_t *v, int end)
{
    for (int n_gram = LOOKUP_GRAM - 1; n_gram <= LOOKUP_GRAM; n_gram++)
        if (end >= n_gram)
            *slot_of(l, v, end, n_gram) = (uint32_t)end;
}

/* How many ids before `at` are those before `end`. */
static int match_length(const int32_t *v, int at, int end)
{
    int n = 0;
    while (n < at && n < MATCH_MAX && v[at - 1 - n] == v[end - 1 - n])
        n++;
    return n;
}

/* A place whose match is longer than the present one. */
static void look(struct lookup *l, const int32_t *v, int end)
{
    for (int n_gram = LOOKUP_GRAM; n_gram >= LOOKUP_GRAM - 1; n_gram--) {
        if (end <= n_gram)
            continue;
        const int at = (int)*slot_of(l, v, end, n_gram);
        const int n = at > 0 ? match_length(v, at, end) : 0;
        if (n >= n_gram && n > l->n_match) {
            l->at = at;
            l->n_match = n;
            l->is_back = false;
        }
    }
}

/* v[i] has come: was it what the match said? */
static void follow(struct lookup *l, const int32_t *v, int i)
{
    if (l->at == 0)
        return;
    const int class = match_class(l->n_match, l->is_back);
    const bool is_hit = v[l->at] == v[i];
    l->trials[class] = REMAINS * l->trials[class] + 1;
    l->hits[class] = REMAINS * l->hits[class] + (is_hit ? 1 : 0);
    if (!is_hit && (l->n_match >= LOOKUP_GRAM || l->is_back)) {
        l->left_at = l->at;
        l->n_since = 0;
    }
    l->at = is_hit ? l->at + 1 : 0;
    l->n_match = is_hit ? l->n_match + (l->n_match < MATCH_MAX) : 0;
}

/* v[i] belongs to nothing: is it what comes a little behind the place that was left? */
static void come_back(struct lookup *l, const int32_t *v, int i)
{
    if (l->at > 0 || l->left_at == 0)
        return;
    const int first = l->left_at + (l->n_since == 0); /* v[i] isn't what stands there: it left */
    if (l->n_since++ >= BACK_PATIENCE) {
        l->left_at = 0;
        return;
    }
    for (int at = first; at < l->left_at + BACK_WITHIN && at < i; at++) {
        if (v[at] != v[i])
            continue;
        l->at = at + 1;
        l->n_match = 1;
        l->is_back = true;
        return;
    }
}

static void see(struct lookup *l, const int32_t *v, int n)
{
    const bool is_first = l->n_indexed == 0;
    for (int i = l->n_indexed; i < n; i++) {
        if (!is_first) {
            follow(l, v, i);
            come_back(l, v, i);
        }
        if ((!is_first || i == n - 1) && l->n_match < MATCH_SURE)
            look(l, v, i + 1);
        index_end(l, v, i + 1);
    }
    l->n_indexed = n;
}

/* What the last draft has brought: of its ids, n_new - 1 came true. A pass that was given up
 * brought nothing and wasn't made. */
static void settle(struct lookup *l, int n_new)
{
    if (l->last_cost > 0 && n_new > 0)
        l->credit += n_new - l->last_cost;
    l->last_cost = 0;
    l->credit += LOOKUP_CREDIT_SHARE * n_new;
    if (l->credit > LOOKUP_CREDIT_MAX)
        l->credit = LOOKUP_CREDIT_MAX;
}

/* The number of drafts that gives most ids for its time. */
static int choose(const struct lookup *l, int n_max, const double *cost)
{
    double expected = 1, probability = 1, best = WORTH;
    int n = 0;
    for (int k = 1; k <= n_max && cost[k] - 1 <= l->credit; k++) {
        const int class = match_class(l->n_match + k - 1, l->is_back);
        probability *= ((double)l->hits[class] + GUESS_WEIGHT * guesses[class]) /
                       ((double)l->trials[class] + GUESS_WEIGHT);
        expected += probability;
        if (expected / cost[k] > best) {
            best = expected / cost[k];
            n = k;
        }
    }
    return n;
}

int lookup_draft(struct lookup *l, const struct ids *ids, int n_max, const double *cost,
                 int32_t *ret)
{
    const int n = (int)ids->n;
    if (!l->slots)
        return 0;
    if (l->n_indexed > 0)
        settle(l, n - l->n_indexed);
    see(l, ids->v, n);
    if (l->at == 0 || !cost)
        return 0;
    const int n_draft = choose(l, n_max, cost);
    l->last_cost = n_draft > 0 ? cost[n_draft] : 0;
    /* Behind the end, what is drafted goes on as it began: a short loop. */
    for (int k = 0; k < n_draft; k++)
        ret[k] = l->at + k < n ? ids->v[l->at + k] : ret[l->at + k - n];
    return n_draft;
}
