/*
 * See pace.h.
 */
#include "daemon/pace.h"

#include "daemon/limits.h"

/* A pass of fewer rows is mostly the constant part, and says little about b. */
#define ROWS_TELLING 16

static void average(double *value, double measured, double weight)
{
    *value = *value > 0 ? *value + weight * (measured - *value) : measured;
}

int pace_rows(const struct pace *p, int n_decoding)
{
    double rows;
    if (n_decoding == 0)
        rows = p->row_us > 0 ? TARGET_PREFILL_PASS_MS * 1000.0 / p->row_us : PACE_ROWS_UNMEASURED;
    else if (p->row_us > 0 && p->decode_us > 0)
        rows = p->decode_us * (1 / TARGET_DECODE_PACE - 1) / p->row_us;
    else
        rows = PACE_ROWS_UNMEASURED_DECODING;
    if (rows < 1)
        return 1;
    return rows > PACE_ROWS_MAX ? PACE_ROWS_MAX : (int)rows;
}

void pace_measure(struct pace *p, int64_t us, int n_decoding, int n_prefill)
{
    if (us < 1)
        us = 1;
    if (n_prefill == 0) {
        average(&p->decode_us, (double)us, 0.2);
    } else if (n_decoding == 0) {
        if (n_prefill >= ROWS_TELLING || p->row_us <= 0)
            average(&p->row_us, (double)us / n_prefill, 0.3);
    } else if (p->decode_us > 0 && p->row_us > 0) {
        /* Noise of the decoding part lands on few rows: bounded, and given little weight. */
        double row = ((double)us - p->decode_us) / n_prefill;
        double least = p->row_us / 4, most = p->row_us * 4;
        average(&p->row_us, row < least ? least : row > most ? most : row, 0.05);
    }
}

#define PASS_REMAINS 0.97    /* of a pass's weight after the next one: a machine changes its pace */
#define DEPTH_SPREAD_MIN 64.0 /* standard deviation in positions below which there is no slope */

void pace_measure_depth(struct pace *p, int64_t us, int n_prefill, double depth)
{
    const double x = depth;
    if (n_prefill < 1 || (n_prefill < ROWS_TELLING && p->w > 0))
        return;
    /* So few rows cost nearly what ROWS_TELLING of them do: better than nothing, once. */
    const double n = n_prefill < ROWS_TELLING ? ROWS_TELLING : n_prefill;
    const double y = (us < 1 ? 1 : (double)us) / n;
    p->w = PASS_REMAINS * p->w + n;
    p->wx = PASS_REMAINS * p->wx + n * x;
    p->wxx = PASS_REMAINS * p->wxx + n * x * x;
    p->wy = PASS_REMAINS * p->wy + n * y;
    p->wxy = PASS_REMAINS * p->wxy + n * x * y;
    if (x > p->depth_max)
        p->depth_max = x;
}

double pace_prefix_us(const struct pace *p, int n)
{
    if (p->w <= 0 || n <= 0)
        return 0;
    const double x = p->wx / p->w, y = p->wy / p->w;
    const double variance = p->wxx / p->w - x * x;
    double b = variance >= DEPTH_SPREAD_MIN * DEPTH_SPREAD_MIN
                   ? (p->wxy / p->w - x * y) / variance
                   : 0;
    if (b < 0)
        b = 0; /* noise */
    if (b * x > y)
        b = y / x; /* a row at depth 0 isn't paid for */
    const double a = y - b * x;
    const double n_within = n < p->depth_max ? n : p->depth_max;
    return a * n + b * (n_within * n_within / 2 + (n - n_within) * p->depth_max);
}
