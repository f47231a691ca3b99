/*
 * How many prefill rows a pass may take, and what drafted rows cost: pure arithmetic over measured
 * times.
 *
 * While nobody answers, as many rows as fit TARGET_PREFILL_PASS_MS, so that a cancel or a newcomer
 * waits no longer. While somebody does, prefill lives on credit:
 *
 *      pass of answers alone    credit += its time × (1 / TARGET_DECODE_PACE − 1)
 *      pass with prefill rows   credit += what it would have taken without them × the same
 *                               credit −= what it took beyond that
 *
 * so the answers keep TARGET_DECODE_PACE of their pace whatever a row costs. Rows that share the
 * reading of the weights are cheap, so each pass takes what the credit pays for; but when that is
 * less than PACE_ROWS_LEAST rows (deep in a prompt, where a row costs more than a pass of answers),
 * passes of answers alone save up for so many. What a row costs, a + b × depth, only shapes the
 * passes: an estimate that is wrong makes them larger or smaller, and the credit evens it out.
 */
#ifndef HEARTH_DAEMON_PACE_H
#define HEARTH_DAEMON_PACE_H

#include <stdbool.h>
#include <stdint.h>

#include "daemon/lookup.h"

#define PACE_ROWS_MAX 512 /* bounds the engine's scratch */
#define PACE_ROWS_LEAST 4 /* beside answers, unless it is the prompt's end: a tile of the kernels */
#define PACE_ROWS_UNMEASURED 32
#define PACE_ROWS_UNMEASURED_DECODING 4
#define PACE_MIXED_MAX 8 /* then a pass of answers alone, to know what one takes */
#define PACE_DEPTHS 4

struct pace {
    double row_us;       /* of prefill passes; 0: not measured yet */
    uint64_t answers;    /* which turns decode, 0: none */
    double decode_us;    /* a pass of their rows alone … */
    double decode_cpu_us; /* … of processor time … */
    int n_decode;        /* … measured so often; 0: not since the answers are these */
    double credit_us;
    double mixed;        /* what rows cost beside answers, by what they cost in a pass of their own;
                          * 0: not measured yet */
    int n_mixed;         /* passes with prefill rows since the last of answers alone */
    int n_drafted;       /* passes with drafts since the last without */
    /* Of a turn alone, by depth: a pass with so many drafts by one without; 0: not measured yet. By
     * processor time, which other work on the machine doesn't multiply. */
    double drafts[PACE_DEPTHS][1 + LOOKUP_DRAFT_MAX];
    /* Rows by their depth (position): weighted sums of a line's fit. */
    double w, wx, wxx, wy, wxy, depth_max;
};

/* Before a pass. answers: a name for the set of turns that decode, 0: nobody does. Returns how many
 * microseconds the pass's prefill rows may take; 0: none now. */
double pace_begin(struct pace *p, uint64_t answers, bool is_prefilling);
/* Of a sequence with n_pending ids behind `depth`: how many rows `us` pay for. Beside answers 0, or
 * at least PACE_ROWS_LEAST (or n_pending, or what fits TARGET_PREFILL_PASS_MS); else at least 1. */
int pace_rows(const struct pace *p, double us, int depth, int n_pending);
/* What n_rows behind `depth` are expected to take now. */
double pace_rows_us(const struct pace *p, int depth, int n_rows);

/* What a pass was. */
struct pace_pass {
    int64_t us;
    int64_t cpu_us; /* the engine's, of all threads; 0: as us */
    int n_decoding, n_prefill, n_drafts;
    double depth;     /* mean position of all rows */
    int answer_depth; /* with drafts: of the turn that made them */
    double rows_us;   /* the sum of what pace_rows_us said of the prefill rows */
};
void pace_measure(struct pace *p, const struct pace_pass *pass);

/* Of the turn that decodes alone, at `depth`: ret[k] is what a pass with k drafts takes by one with
 * none. false: not known well enough, a pass without drafts is due. */
bool pace_drafts(const struct pace *p, int depth, double ret[1 + LOOKUP_DRAFT_MAX]);

/*
 * What reading the first n positions of a prompt would take, in microseconds. A row costs
 * a + b × depth: projections, and attention over what is before it. The line is fitted to the
 * prefill passes that were measured lately; deeper than any of them, a row is taken to cost what
 * it did there: rather too little is claimed. Before a pass was measured, 0.
 */
double pace_prefix_us(const struct pace *p, int n);

#endif
