/*
 * How many prefill rows a pass may take: pure arithmetic over measured times.
 *
 * A pass costs  a + b × rows,  a being mostly the reading of the weights. While nobody decodes, as
 * many rows as fit TARGET_PREFILL_PASS_MS (so that a cancel, or a newcomer, waits no longer). While
 * somebody decodes, as many as leave the running answers TARGET_DECODE_PACE of the pace they had
 * without them: rows that share the weights' reading are cheap, but they are not free.
 */
#ifndef HEARTH_DAEMON_PACE_H
#define HEARTH_DAEMON_PACE_H

#include <stdint.h>

#define PACE_ROWS_MAX 512 /* bounds the engine's scratch */
#define PACE_ROWS_UNMEASURED 32
#define PACE_ROWS_UNMEASURED_DECODING 4

struct pace {
    double row_us;    /* b; 0: not measured yet */
    double decode_us; /* a pass of decoding rows alone; 0: not measured yet */
    /* Rows by their depth (position), for pace_prefix_us: weighted sums of a line's fit. */
    double w, wx, wxx, wy, wxy, depth_max;
};

/* At least 1. */
int pace_rows(const struct pace *p, int n_decoding);
/* Tells what a pass took: moving averages. */
void pace_measure(struct pace *p, int64_t us, int n_decoding, int n_prefill);
/* And, of a pass of prefill rows alone, at which mean depth (position) they were. */
void pace_measure_depth(struct pace *p, int64_t us, int n_prefill, double depth);
/*
 * What reading the first n positions of a prompt would take, in microseconds. A row costs
 * a + b × depth: projections, and attention over what is before it. The line is fitted to the
 * prefill passes that were measured lately; deeper than any of them, a row is taken to cost what
 * it did there: rather too little is claimed. Before a pass was measured, 0.
 */
double pace_prefix_us(const struct pace *p, int n);

#endif
