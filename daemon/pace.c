/*
 * See pace.h.
 */
#include "daemon/pace.h"

#include "daemon/limits.h"

/* A pass of fewer rows is mostly the constant part, and says little about a row. */
#define ROWS_TELLING 16

static double bounded(double x, double least, double most)
{
    return x < least ? least : x > most ? most : x;
}

static void average(double *value, double measured, double weight)
{
    *value = *value > 0 ? *value + weight * (measured - *value) : measured;
}

/* ---- what a row costs by its depth ---- */

#define PASS_REMAINS 0.97    /* of a pass's weight after the next one: a machine changes its pace */
#define DEPTH_SPREAD_MIN 64.0 /* standard deviation in positions below which there is no slope */

static void measure_depth(struct pace *p, int64_t us, int n_prefill, double depth)
{
    const double x = depth;
    if (n_prefill < ROWS_TELLING / 2 && p->w > 0)
        return;
    /* Few rows cost nearly what ROWS_TELLING of them do; very few serve only while there is nothing
     * better. */
    const double n = n_prefill < ROWS_TELLING ? ROWS_TELLING : n_prefill;
    const double y = (double)us / n;
    p->w = PASS_REMAINS * p->w + n;
    p->wx = PASS_REMAINS * p->wx + n * x;
    p->wxx = PASS_REMAINS * p->wxx + n * x * x;
    p->wy = PASS_REMAINS * p->wy + n * y;
    p->wxy = PASS_REMAINS * p->wxy + n * x * y;
    if (x > p->depth_max)
        p->depth_max = x;
}

/* A row takes *ret_a + *ret_b * depth; w > 0. */
static void fit(const struct pace *p, double *ret_a, double *ret_b)
{
    const double x = p->wx / p->w, y = p->wy / p->w;
    const double variance = p->wxx / p->w - x * x;
    double b = variance >= DEPTH_SPREAD_MIN * DEPTH_SPREAD_MIN
                   ? (p->wxy / p->w - x * y) / variance
                   : 0;
    if (b < 0)
        b = 0; /* noise */
    if (b * x > y)
        b = y / x; /* a row at depth 0 isn't paid for */
    *ret_a = y - b * x;
    *ret_b = b;
}

double pace_prefix_us(const struct pace *p, int n)
{
    double a, b;
    if (p->w <= 0 || n <= 0)
        return 0;
    fit(p, &a, &b);
    const double n_within = n < p->depth_max ? n : p->depth_max;
    return a * n + b * (n_within * n_within / 2 + (n - n_within) * p->depth_max);
}

double pace_rows_us(const struct pace *p, int depth, int n_rows)
{
    double a, b;
    if (p->w <= 0)
        return 0;
    fit(p, &a, &b);
    const double us = n_rows * (a + b * (depth + n_rows / 2.0));
    return p->answers && p->mixed > 0 ? us * p->mixed : us;
}

/* ---- how many rows ---- */

static int rows_that_fit(const struct pace *p, double us, int depth)
{
    int most = 0;
    for (int step = PACE_ROWS_MAX; step > 0; step /= 2)
        if (most + step <= PACE_ROWS_MAX && pace_rows_us(p, depth, most + step) <= us)
            most += step;
    return most;
}

int pace_rows(const struct pace *p, double us, int depth, int n_pending)
{
    int n, least = 1;
    if (us <= 0)
        return 0;
    if (p->w <= 0) {
        n = p->answers ? PACE_ROWS_UNMEASURED_DECODING : PACE_ROWS_UNMEASURED;
    } else {
        n = rows_that_fit(p, us, depth);
        if (p->answers) {
            least = rows_that_fit(p, TARGET_PREFILL_PASS_MS * 1000.0, depth);
            least = least < 1 ? 1 : least > PACE_ROWS_LEAST ? PACE_ROWS_LEAST : least;
            least = least > n_pending ? n_pending : least;
            if (n < least)
                return 0;
        }
    }
    n = n < least ? least : n;
    return n > n_pending ? n_pending : n;
}

#define FORGET_DRAFTS 0.05 /* by each change of turns: a cost that was too high is tried again */

static double draft_guess(int depth, int n_drafts);

/* The least depth of a class is that many positions; costs of rows grow with it. */
static const int class_depths[PACE_DEPTHS] = {0, 768, 2048, 4608};

static int depth_class(int depth)
{
    int i = PACE_DEPTHS - 1;
    while (class_depths[i] > depth)
        i--;
    return i;
}

static void change(struct pace *p, uint64_t answers)
{
    p->answers = answers;
    p->n_decode = p->n_mixed = p->n_drafted = 0;
    for (int i = 0; i < PACE_DEPTHS; i++)
        for (int k = 1; k <= LOOKUP_DRAFT_MAX; k++)
            if (p->drafts[i][k] > 0)
                p->drafts[i][k] +=
                    FORGET_DRAFTS * (draft_guess(class_depths[i], k) - p->drafts[i][k]);
}

double pace_begin(struct pace *p, uint64_t answers, bool is_prefilling)
{
    if (answers != p->answers)
        change(p, answers);
    if (!is_prefilling || !answers)
        p->credit_us = 0;
    if (!is_prefilling)
        return 0;
    if (!answers)
        return TARGET_PREFILL_PASS_MS * 1000.0;
    if (p->n_decode == 0 || p->n_mixed >= PACE_MIXED_MAX)
        return 0;
    return p->credit_us > 0 ? p->credit_us : 0;
}

/* ---- drafts ---- */

#define DRAFTED_MAX 31 /* passes with drafts: then one without, to know what one takes */

#define TILE_ROWS 4 /* of the kernels: a fifth row is another tile */
#define TILE_COST 0.25

/* Before it is measured. A few rows share the weights, and at depth they don't share the keys. */
static double draft_guess(int depth, int n_drafts)
{
    return 1 + n_drafts * (0.09 + 0.25 * bounded(depth / 8192.0, 0, 1)) +
           (n_drafts >= TILE_ROWS ? TILE_COST : 0);
}

bool pace_drafts(const struct pace *p, int depth, double ret[1 + LOOKUP_DRAFT_MAX])
{
    const double *cost = p->drafts[depth_class(depth)];
    if (p->n_decode < 2 || p->n_drafted >= DRAFTED_MAX)
        return false;
    ret[0] = 1;
    /* More rows never cost less: what was measured too low is corrected by its neighbours. */
    for (int k = 1; k <= LOOKUP_DRAFT_MAX; k++)
        ret[k] = bounded(cost[k] > 0 ? cost[k] : draft_guess(depth, k), ret[k - 1], 100);
    return true;
}

/* Follows the median: a machine that does something else for a moment makes outliers of ten times
 * the cost, all on one side. */
static void measure_drafts(struct pace *p, const struct pace_pass *pass)
{
    double *cost = &p->drafts[depth_class(pass->answer_depth)][pass->n_drafts];
    const double sample = (double)pass->cpu_us / p->decode_cpu_us;
    const double guess = draft_guess(pass->answer_depth, pass->n_drafts);
    if (*cost <= 0)
        *cost = bounded((guess + sample) / 2, 0.9 * guess, 1.3 * guess);
    else
        *cost += bounded(sample - *cost, -0.1 * *cost, 0.1 * *cost) / 2;
}

/* ---- measuring ---- */

static void measure_prefill(struct pace *p, int64_t us, int n, double depth)
{
    /* A small one that was quicker all the same does tell: else a machine that was busy once would
     * be given small passes for ever. */
    if (n >= ROWS_TELLING || p->row_us <= 0 || (double)us / n < p->row_us)
        average(&p->row_us, (double)us / n, 0.3);
    measure_depth(p, us, n, depth);
}

/* How many passes are averaged. Many, as a mean that is too high lasts longer than one that is too
 * low: it lets more passes be mixed, which don't measure it. */
#define DECODES 16

/* One sample more to a mean of n. */
static void measure_mean(double *mean, int n, int64_t us)
{
    const double most = n > 1 ? 3 * *mean : 1e12;
    const double sample = (double)us < most ? (double)us : most;
    *mean = n == 0 ? sample : *mean + (sample - *mean) / (n + 1);
}

static void measure_decode(struct pace *p, const struct pace_pass *pass)
{
    measure_mean(&p->decode_us, p->n_decode, pass->us);
    measure_mean(&p->decode_cpu_us, p->n_decode, pass->cpu_us);
    if (p->n_decode < DECODES)
        p->n_decode++;
}

#define DEBT_MAX_US 1e6

/* Beside answers: what they would have taken without the prefill rows, and what these took. */
static void measure_mixed(struct pace *p, const struct pace_pass *pass, double alone_us)
{
    const double beyond = (double)pass->us - alone_us;
    if (pass->rows_us > 0) {
        const double before = p->mixed > 0 ? p->mixed : 1;
        average(&p->mixed, bounded(before * beyond / pass->rows_us, before / 2, before * 2), 0.15);
        p->mixed = bounded(p->mixed, 1.0 / 8, 8);
    }
    /* A stall of the machine comes in passes of answers, too, and is paid for; but not for ever. */
    p->credit_us = bounded(p->credit_us - beyond, -DEBT_MAX_US, 1e12);
}

void pace_measure(struct pace *p, const struct pace_pass *measured)
{
    struct pace_pass pass = *measured;
    if (pass.us < 1)
        pass.us = 1;
    if (pass.cpu_us < 1)
        pass.cpu_us = pass.us;
    if (pass.n_decoding == 0) {
        if (pass.n_prefill > 0)
            measure_prefill(p, pass.us, pass.n_prefill, pass.depth);
        return;
    }
    if (pass.n_drafts == 0 && pass.n_prefill == 0)
        measure_decode(p, &pass);
    else if (pass.n_prefill == 0 && p->n_decode > 0)
        measure_drafts(p, &pass);
    double alone_us = p->decode_us;
    if (pass.n_drafts > 0) {
        const double *cost = p->drafts[depth_class(pass.answer_depth)];
        alone_us *= cost[pass.n_drafts] > 0 ? cost[pass.n_drafts]
                                            : draft_guess(pass.answer_depth, pass.n_drafts);
    }
    if (pass.n_prefill > 0)
        measure_mixed(p, &pass, alone_us);
    p->credit_us += alone_us * (1 / TARGET_DECODE_PACE - 1);
    p->n_mixed = pass.n_prefill > 0 ? p->n_mixed + 1 : 0;
    p->n_drafted = pass.n_drafts > 0 ? p->n_drafted + 1 : pass.n_prefill > 0 ? p->n_drafted : 0;
}
