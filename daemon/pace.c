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
