/*
 * Sampling: the definitions of docs/SAMPLING.md, without sorting the vocabulary.
 *
 *   logits ─► bias, penalties (only the ids concerned) ─► one pass: NaN, +inf, the largest
 *          ─► temperature 0: that one
 *          ─► top-k > 0:   a heap of k keeps the best; they are sorted and walked
 *          ─► min-p > 0:   what lies above max + t · ln(min_p); sorted and walked
 *          ─► otherwise:   a histogram of weights by (max − x) / t; only the bucket in which a sum
 *                          crosses its bound is gathered, sorted and walked
 *
 * The order (x descending, id ascending) is that of 64-bit keys: the float's bits made ascending
 * and inverted, then the id. Weights are exp((x − max) / t) by an exp of our own, so that a seed
 * draws the same token on every CPU; sums are double.
 */
#include "engine/sample.h"

#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

const struct sample_params sample_neutral = {.temperature = 1, .top_p = 1, .repetition_penalty = 1};

/* Histogram: buckets of 1/32 up to e^-40; what lies behind weighs less than 1e-17 of the first. */
#define BUCKETS_PER_UNIT 32
#define BUCKETS (40 * BUCKETS_PER_UNIT)
#define SUB_BUCKETS 1024
#define PATH_LEVELS 4
#define SORT_MAX 512 /* a bucket with more is cut once more before it is sorted */
#define PER_UNIT_MAX 1e300

struct histogram {
    double mass[BUCKETS]; /* summed weights */
    uint32_t count[BUCKETS];
};

struct sampler {
    struct sample_params p;
    size_t n_vocab;
    bool has_penalties;
    uint32_t *n_out; /* [n_vocab] times each id was accepted; NULL without penalties */
    bool *is_seen;   /* [n_vocab] */
    int32_t *seen;   /* [n_vocab] the distinct ids of prompt and output */
    size_t n_seen;
    uint64_t n_accepted;
    uint64_t *keys; /* candidates */
    size_t cap_keys;
    double unit[BUCKETS]; /* exp(-b / 32) */
    struct histogram all, part;
};

/* The vocabulary is gone through by so many logits: what most of them have in common the compiler
 * can ask of several at once. */
#define CHUNK 64

static size_t chunk_end(size_t from, size_t n)
{
    return n - from < CHUNK ? n : from + CHUNK;
}

/* exp(-d) for d >= 0: 2^k times a Taylor series on [-ln 2 / 2, ln 2 / 2], good to about an ulp. */
static double exp_down(double d)
{
    static const double ln2_hi = 6.93147180369123816490e-01, ln2_lo = 1.90821492927058770002e-10;
    if (!(d < 700))
        return 0;
    int k = (int)(d * 1.44269504088896338700 + 0.5);
    double r = (k * ln2_hi - d) + k * ln2_lo;
    double sum = 1;
    for (int i = 13; i > 0; i--)
        sum = 1 + sum * r / i;
    uint64_t bits = (uint64_t)(1023 - k) << 52;
    double scale;
    memcpy(&scale, &bits, sizeof scale);
    return sum * scale;
}

/* exp(b / 32 - d) for d in bucket b: the rest is below 1/32, seven terms do. */
static inline double within_bucket(double d, int b)
{
    double r = (double)b / BUCKETS_PER_UNIT - d, r2 = r * r;
    double low = (1 + r) + r2 * (1.0 / 2 + r * (1.0 / 6));
    double high = (1.0 / 24 + r * (1.0 / 120)) + r2 * (1.0 / 720 + r * (1.0 / 5040));
    return low + r2 * r2 * high;
}

static double bucket_weight(const struct sampler *s, double d, int b)
{
    return s->unit[b] * within_bucket(d, b);
}

static int check_params(const struct sample_params *p, size_t n_vocab, struct err *e)
{
    const struct {
        const char *name;
        double value, min, max;
    } ranges[] = {
        {"temperature", p->temperature, 0, 2},
        {"top_p", p->top_p, 0, 1},
        {"min_p", p->min_p, 0, 1},
        {"top_k", p->top_k, 0, INT32_MAX},
        {"repetition_penalty", p->repetition_penalty, 1e-6, 1e6},
        {"presence_penalty", p->presence_penalty, -2, 2},
        {"frequency_penalty", p->frequency_penalty, -2, 2},
    };
    for (size_t i = 0; i < sizeof ranges / sizeof *ranges; i++)
        if (!(ranges[i].value >= ranges[i].min && ranges[i].value <= ranges[i].max))
            return err_set(e, ERR_INVAL, "%s is %g, it must be %g to %g", ranges[i].name,
                           ranges[i].value, ranges[i].min, ranges[i].max);
    if (p->top_p == 0)
        return err_set(e, ERR_INVAL, "top_p is 0, it must be above 0 and at most 1");
    if (n_vocab < 1 || n_vocab > INT32_MAX)
        return err_set(e, ERR_INVAL, "a vocabulary of %zu tokens", n_vocab);
    for (size_t i = 0; i < p->n_bias; i++) {
        if (p->bias[i].id < 0 || (size_t)p->bias[i].id >= n_vocab)
            return err_set(e, ERR_INVAL, "logit_bias for token %d, the vocabulary has %zu",
                           p->bias[i].id, n_vocab);
        if (!(p->bias[i].bias < INFINITY))
            return err_set(e, ERR_INVAL, "logit_bias of token %d is no finite number",
                           p->bias[i].id);
    }
    return 0;
}

int sampler_new(const struct sample_params *p, size_t n_vocab, struct sampler **ret, struct err *e)
{
    int rc = check_params(p, n_vocab, e);
    if (rc < 0)
        return rc;
    struct sampler *s = calloc(1, sizeof *s);
    if (!s)
        return err_set(e, ERR_NOMEM, "no memory for a sampler");
    s->p = *p;
    s->n_vocab = n_vocab;
    s->has_penalties =
        p->repetition_penalty != 1 || p->presence_penalty != 0 || p->frequency_penalty != 0;
    for (int b = 0; b < BUCKETS; b++)
        s->unit[b] = exp_down((double)b / BUCKETS_PER_UNIT);
    if (s->has_penalties) {
        s->n_out = calloc(n_vocab, sizeof *s->n_out);
        s->is_seen = calloc(n_vocab, sizeof *s->is_seen);
        s->seen = malloc(n_vocab * sizeof *s->seen);
        if (!s->n_out || !s->is_seen || !s->seen) {
            sampler_free(s);
            return err_set(e, ERR_NOMEM, "no memory for a sampler of %zu tokens", n_vocab);
        }
    }
    *ret = s;
    return 0;
}

void sampler_free(struct sampler *s)
{
    if (!s)
        return;
    free(s->n_out);
    free(s->is_seen);
    free(s->seen);
    free(s->keys);
    free(s);
}

static void see(struct sampler *s, int32_t id, unsigned n_out)
{
    if (!s->has_penalties || id < 0 || (size_t)id >= s->n_vocab)
        return;
    if (!s->is_seen[id])
        s->seen[s->n_seen++] = id;
    s->is_seen[id] = true;
    s->n_out[id] += n_out;
}

void sampler_see_prompt(struct sampler *s, const int32_t *ids, size_t n)
{
    for (size_t i = 0; i < n; i++)
        see(s, ids[i], 0);
}

void sampler_accept(struct sampler *s, int32_t id)
{
    see(s, id, 1);
    s->n_accepted++;
}

/* Steps 1 to 3, in place. */
static void adjust(const struct sampler *s, float *x)
{
    const struct sample_params *p = &s->p;
    for (size_t i = 0; i < p->n_bias; i++)
        x[p->bias[i].id] += p->bias[i].bias;
    for (size_t i = 0; i < s->n_seen; i++) {
        int32_t id = s->seen[i];
        double v = x[id];
        v = v > 0 ? v / p->repetition_penalty : v * p->repetition_penalty;
        if (s->n_out[id] > 0)
            v -= p->frequency_penalty * s->n_out[id] + p->presence_penalty;
        x[id] = (float)v;
    }
}

/* Whether any of x[n] is larger than max, or NaN. */
static bool has_better(const float *x, size_t n, float max)
{
    int n_better = 0;
    for (size_t i = 0; i < n; i++)
        n_better += !(x[i] <= max);
    return n_better > 0;
}

/* The lowest id of the largest logit. NaN becomes −inf. */
static int find_best(float *x, size_t n, size_t *ret_best, struct err *e)
{
    float max = -INFINITY;
    size_t best = n;
    for (size_t from = 0, end; from < n; from = end) {
        end = chunk_end(from, n);
        for (size_t i = has_better(x + from, end - from, max) ? from : end; i < end; i++) {
            if (x[i] > max) {
                max = x[i];
                best = i;
            } else if (!(x[i] <= max)) {
                x[i] = -INFINITY;
            }
        }
    }
    if (best == n)
        return err_set(e, ERR_CORRUPT, "logits hold no finite number among %zu", n);
    if (max == INFINITY)
        return err_set(e, ERR_CORRUPT, "logits hold +infinity at token %zu", best);
    *ret_best = best;
    return 0;
}

/* Smaller key: earlier in the order of step 5. */
static uint64_t make_key(float x, size_t id)
{
    uint32_t bits;
    x += 0.0f; /* −0 and +0 are equal values */
    memcpy(&bits, &x, sizeof bits);
    bits = bits >> 31 ? ~bits : bits | 0x80000000u;
    return (uint64_t)~bits << 32 | (uint32_t)id;
}

static int compare_keys(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return x < y ? -1 : x > y;
}

/* Equal logits come in the order of their ids already. */
static void sort_keys(uint64_t *keys, size_t n)
{
    size_t i = 1;
    while (i < n && keys[i - 1] < keys[i])
        i++;
    if (i < n)
        qsort(keys, n, sizeof *keys, compare_keys);
}

static int reserve_keys(struct sampler *s, size_t n, struct err *e)
{
    if (n <= s->cap_keys)
        return 0;
    size_t cap = n < 256 ? 256 : n;
    uint64_t *p = realloc(s->keys, cap * sizeof *p);
    if (!p)
        return err_set(e, ERR_NOMEM, "no memory to sort %zu candidates", n);
    s->keys = p;
    s->cap_keys = cap;
    return 0;
}

static int add_key(struct sampler *s, size_t *n, float x, size_t id, struct err *e)
{
    int rc = *n < s->cap_keys ? 0 : reserve_keys(s, *n * 2 + 256, e);
    if (rc == 0)
        s->keys[(*n)++] = make_key(x, id);
    return rc;
}

/* Max-heap: the worst of the kept ones is keys[0]. */
static void sift_down(uint64_t *keys, size_t n, size_t i)
{
    uint64_t v = keys[i];
    for (size_t child; (child = 2 * i + 1) < n; i = child) {
        if (child + 1 < n && keys[child + 1] > keys[child])
            child++;
        if (keys[child] <= v)
            break;
        keys[i] = keys[child];
    }
    keys[i] = v;
}

static int gather_top_k(struct sampler *s, const float *x, size_t k, size_t *ret_n, struct err *e)
{
    int rc = reserve_keys(s, k, e);
    if (rc < 0)
        return rc;
    for (size_t i = 0; i < k; i++)
        s->keys[i] = make_key(x[i], i);
    for (size_t i = k / 2; i-- > 0;)
        sift_down(s->keys, k, i);
    float worst = x[(uint32_t)s->keys[0]];
    for (size_t i = k; i < s->n_vocab; i++) {
        if (!(x[i] > worst)) /* an equal one has a higher id than all kept */
            continue;
        s->keys[0] = make_key(x[i], i);
        sift_down(s->keys, k, 0);
        worst = x[(uint32_t)s->keys[0]];
    }
    *ret_n = k;
    return 0;
}

/* All with x >= floor (−inf: all). */
static int gather_above(struct sampler *s, const float *x, double floor, size_t *ret_n,
                        struct err *e)
{
    int rc = 0;
    size_t n = 0;
    for (size_t i = 0; i < s->n_vocab && rc == 0; i++)
        if (x[i] >= floor)
            rc = add_key(s, &n, x[i], i, e);
    *ret_n = n;
    return rc;
}

/* One draw's logits. */
struct dist {
    const float *x;
    double max, per_unit; /* d = (max − x) · per_unit, per_unit = 1 / temperature */
    double total;         /* weights of all that steps 1 to 6 keep */
};

static double distance(const struct dist *d, float x)
{
    return (d->max - x) * d->per_unit;
}

static double key_weight(const struct dist *d, uint64_t key)
{
    return exp_down(distance(d, d->x[(uint32_t)key]));
}

/* Steps 8 and 9 on the sorted candidates: how many stay, and their weights' sum. */
static size_t truncate(const struct sampler *s, const struct dist *d, size_t n, double *ret_sum)
{
    double sum = 0, bound = s->p.top_p * d->total;
    size_t kept = 0;
    while (kept < n) {
        double w = key_weight(d, s->keys[kept]);
        if (w < s->p.min_p || w == 0) /* the first weighs 1 */
            break;
        sum += w;
        kept++;
        if (s->p.top_p < 1 && sum >= bound)
            break;
    }
    *ret_sum = sum;
    return kept;
}

/* Sorts the candidates of list-based sampling and cuts them. */
static size_t finish_list(struct sampler *s, struct dist *d, size_t n, bool has_total,
                          double *ret_sum)
{
    sort_keys(s->keys, n);
    if (!has_total) {
        d->total = 0;
        for (size_t i = 0; i < n; i++)
            d->total += key_weight(d, s->keys[i]);
    }
    return truncate(s, d, n, ret_sum);
}

static int32_t walk(const struct sampler *s, const struct dist *d, size_t n, double target)
{
    double sum = 0;
    for (size_t i = 0; i < n; i++) {
        sum += key_weight(d, s->keys[i]);
        if (target < sum)
            return (int32_t)(uint32_t)s->keys[i];
    }
    return (int32_t)(uint32_t)s->keys[n - 1];
}

/*
 * A path into the histogram: bucket 3, in it sub-bucket 700, in that … Each level cuts into 1024.
 * Multiplying by powers of two and taking off whole parts is exact, so an element is on exactly one
 * path, and paths are in the order of distance.
 */
struct path {
    int bucket[PATH_LEVELS];
    int n;
};

/* Whether a distance lies on the path; *ret_rest: where in it, times the next level's buckets. */
static bool on_path(double distance, const struct path *p, double *ret_rest)
{
    double r = distance * BUCKETS_PER_UNIT;
    if (!(r < BUCKETS))
        return false;
    for (int i = 0; i < p->n; i++) {
        int b = (int)r;
        if (b != p->bucket[i])
            return false;
        r = (r - b) * SUB_BUCKETS;
    }
    *ret_rest = r;
    return true;
}

/* Whether any of ids [from, end) lies in the path's first bucket. */
static bool meets_path(const struct dist *d, size_t from, size_t end, const struct path *p)
{
    const double low = p->bucket[0], high = low + 1;
    int n = 0;
    for (size_t i = from; i < end; i++) {
        const double r = distance(d, d->x[i]) * BUCKETS_PER_UNIT;
        n += (r >= low) & (r < high);
    }
    return n > 0;
}

static double weight(const struct sampler *s, double distance)
{
    return bucket_weight(s, distance, (int)(distance * BUCKETS_PER_UNIT));
}

/* Whether all of x[n] belong into the histogram. */
static bool is_near(const struct dist *d, const float *x, size_t n)
{
    size_t n_near = 0;
    for (size_t i = 0; i < n; i++)
        n_near += distance(d, x[i]) < (double)BUCKETS / BUCKETS_PER_UNIT;
    return n_near == n;
}

/* Adds x[n] to the whole histogram; n <= CHUNK, and all of them are near. */
static void weigh_near(struct sampler *s, const struct dist *d, const float *x, size_t n)
{
    double by[CHUNK];
    int bucket[CHUNK];
    for (size_t i = 0; i < n; i++) {
        double dist = distance(d, x[i]);
        bucket[i] = (int)(dist * BUCKETS_PER_UNIT);
        by[i] = within_bucket(dist, bucket[i]);
    }
    for (size_t i = 0; i < n; i++) {
        s->all.mass[bucket[i]] += s->unit[bucket[i]] * by[i];
        s->all.count[bucket[i]]++;
    }
}

/* Fills the whole histogram and the total. */
static void weigh(struct sampler *s, struct dist *d)
{
    memset(&s->all, 0, sizeof s->all);
    for (size_t from = 0, n; from < s->n_vocab; from += n) {
        n = chunk_end(from, s->n_vocab) - from;
        const float *x = d->x + from;
        if (is_near(d, x, n)) {
            weigh_near(s, d, x, n);
            continue;
        }
        for (size_t i = 0; i < n; i++)
            if (is_near(d, x + i, 1))
                weigh_near(s, d, x + i, 1);
    }
    d->total = 0;
    for (int b = 0; b < BUCKETS; b++)
        d->total += s->all.mass[b];
}

/* The histogram of what lies on the path. */
static void weigh_path(struct sampler *s, const struct dist *d, const struct path *p)
{
    memset(&s->part, 0, sizeof s->part);
    for (size_t i = 0; i < s->n_vocab; i++) {
        double dist = distance(d, d->x[i]), rest;
        if (!on_path(dist, p, &rest))
            continue;
        s->part.mass[(int)rest] += weight(s, dist);
        s->part.count[(int)rest]++;
    }
}

/* Where in the order: the token at which the running sum passes `sum`, or (is_cut) reaches it. */
struct bound {
    double sum;
    bool is_cut;
};

static bool is_past(double sum, const struct bound *b)
{
    return b->is_cut ? sum >= b->sum : sum > b->sum;
}

/* The bucket in which the sum passes the target, or by rounding the last one with anything in it;
 * adds what lies before it to *sum. */
static int find_bucket(const struct histogram *h, int n, const struct bound *bound, double *sum)
{
    int last = 0;
    double before = *sum;
    for (int b = 0; b < n; b++) {
        if (h->count[b] == 0)
            continue;
        last = b;
        before = *sum;
        if (is_past(*sum + h->mass[b], bound))
            break;
        *sum += h->mass[b];
    }
    *sum = before;
    return last;
}

/* The token at the bound, and the running sum there. */
struct place {
    int32_t id;
    double sum;
};

static int locate(struct sampler *s, const struct dist *d, struct bound bound, struct place *ret,
                  struct err *e)
{
    double sum = 0, rest;
    struct path p = {.n = 1};
    p.bucket[0] = find_bucket(&s->all, BUCKETS, &bound, &sum);
    uint32_t count = s->all.count[p.bucket[0]];
    while (count > SORT_MAX && p.n < PATH_LEVELS) {
        weigh_path(s, d, &p);
        p.bucket[p.n] = find_bucket(&s->part, SUB_BUCKETS, &bound, &sum);
        count = s->part.count[p.bucket[p.n++]];
    }
    size_t n = 0;
    int rc = reserve_keys(s, count, e);
    for (size_t from = 0, end; from < s->n_vocab; from = end) {
        end = chunk_end(from, s->n_vocab);
        for (size_t i = meets_path(d, from, end, &p) ? from : end; i < end && rc == 0; i++)
            if (on_path(distance(d, d->x[i]), &p, &rest))
                rc = add_key(s, &n, d->x[i], i, e);
    }
    if (rc < 0)
        return rc;
    sort_keys(s->keys, n);
    for (size_t i = 0; i < n; i++) {
        ret->id = (int32_t)(uint32_t)s->keys[i];
        sum += weight(s, distance(d, d->x[ret->id]));
        if (is_past(sum, &bound))
            break;
    }
    ret->sum = sum;
    return 0;
}

static int draw_histogram(struct sampler *s, struct dist *d, double u, int32_t *ret, struct err *e)
{
    struct place at = {0};
    weigh(s, d);
    double kept = d->total;
    if (s->p.top_p < 1) {
        int rc = locate(s, d, (struct bound){s->p.top_p * d->total, true}, &at, e);
        if (rc < 0)
            return rc;
        kept = at.sum;
    }
    int rc = locate(s, d, (struct bound){u * kept, false}, &at, e);
    if (rc == 0)
        *ret = at.id;
    return rc;
}

/* The candidates as a list in s->keys: top-k, or what min-p can keep, or all. */
static int gather(struct sampler *s, struct dist *d, bool want_all, size_t *ret_n, struct err *e)
{
    if (s->p.top_k > 0 && (size_t)s->p.top_k < s->n_vocab)
        return gather_top_k(s, d->x, (size_t)s->p.top_k, ret_n, e);
    /* A little lower than the bound; truncate() decides. */
    double floor = want_all || s->p.min_p <= 0
                       ? -INFINITY
                       : d->max + log(s->p.min_p) * s->p.temperature * (1 + 1e-9) - 1e-9;
    return gather_above(s, d->x, floor, ret_n, e);
}

static int draw_list(struct sampler *s, struct dist *d, double u, int32_t *ret, struct err *e)
{
    bool is_top_k = s->p.top_k > 0 && (size_t)s->p.top_k < s->n_vocab;
    bool has_total = !is_top_k && s->p.top_p < 1;
    size_t n;
    double sum;
    if (has_total)
        weigh(s, d);
    int rc = gather(s, d, false, &n, e);
    if (rc < 0)
        return rc;
    n = finish_list(s, d, n, has_total, &sum);
    *ret = walk(s, d, n, u * sum);
    return 0;
}

static int start(struct sampler *s, float *logits, struct dist *ret, size_t *ret_best,
                 struct err *e)
{
    adjust(s, logits);
    int rc = find_best(logits, s->n_vocab, ret_best, e);
    if (rc == 0)
        *ret = (struct dist){.x = logits,
                             .max = logits[*ret_best],
                             .per_unit = fmin(1 / s->p.temperature, PER_UNIT_MAX)};
    return rc;
}

int sampler_draw_u(struct sampler *s, float *logits, double u, int32_t *ret_id, struct err *e)
{
    struct dist d;
    size_t best;
    int32_t id;
    int rc = start(s, logits, &d, &best, e);
    if (rc < 0)
        return rc;
    bool is_list = s->p.min_p > 0 || (s->p.top_k > 0 && (size_t)s->p.top_k < s->n_vocab);
    if (s->p.temperature == 0)
        id = (int32_t)best;
    else
        rc = is_list ? draw_list(s, &d, u, &id, e) : draw_histogram(s, &d, u, &id, e);
    if (rc == 0)
        *ret_id = id;
    return rc;
}

/* splitmix64 of (seed, position): any draw can be made without those before it. */
static double uniform(uint64_t seed, uint64_t position)
{
    uint64_t z = seed;
    for (int i = 0; i < 2; i++) {
        z += 0x9E3779B97F4A7C15ull;
        z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ull;
        z = (z ^ (z >> 27)) * 0x94D049BB133111EBull;
        z ^= z >> 31;
        z += i == 0 ? position * 0xD1342543DE82EF95ull : 0;
    }
    return (double)(z >> 11) * 0x1p-53;
}

int sampler_draw(struct sampler *s, float *logits, int32_t *ret_id, struct err *e)
{
    return sampler_draw_u(s, logits, uniform(s->p.seed, s->n_accepted), ret_id, e);
}

int sampler_probs(struct sampler *s, float *logits, double *ret_probs, struct err *e)
{
    struct dist d;
    size_t best, n;
    double sum;
    int rc = start(s, logits, &d, &best, e);
    if (rc == 0 && s->p.temperature > 0)
        rc = gather(s, &d, true, &n, e);
    if (rc < 0)
        return rc;
    memset(ret_probs, 0, s->n_vocab * sizeof *ret_probs);
    if (s->p.temperature == 0) {
        ret_probs[best] = 1;
        return 0;
    }
    n = finish_list(s, &d, n, false, &sum);
    for (size_t i = 0; i < n; i++)
        ret_probs[(uint32_t)s->keys[i]] = key_weight(&d, s->keys[i]) / sum;
    return 0;
}
