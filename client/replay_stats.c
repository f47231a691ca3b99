/* Pure arithmetic; nothing here knows where the numbers come from. */
#include "client/replay_stats.h"

#include <math.h>
#include <stdlib.h>

double replay_percentile(const double *ascending, size_t n, double p)
{
    if (!n)
        return NAN;
    double rank = p / 100 * (double)(n - 1);
    size_t below = (size_t)rank;
    if (below + 1 >= n)
        return ascending[n - 1];
    double part = rank - (double)below;
    return ascending[below] + part * (ascending[below + 1] - ascending[below]);
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void add(int64_t *sum, int64_t value)
{
    if (value != REPLAY_UNKNOWN)
        *sum = *sum == REPLAY_UNKNOWN ? value : *sum + value;
}

/* What is divided in the end. */
struct parts {
    int64_t hit_prompt, hit_cached;     /* of turns that told both */
    int64_t decoded_tokens, decoded_us; /* after the first */
    double *ttft_ms;
    size_t n_ttft;
};

static void add_turn(const struct replay_turn *t, struct replay_sum *s, struct parts *p)
{
    s->n++;
    add(&s->prompt, t->prompt);
    add(&s->cached, t->cached);
    add(&s->ram, t->ram);
    add(&s->disk, t->disk);
    add(&s->shared, t->shared);
    add(&s->computed, t->computed);
    add(&s->written, t->written);
    if (!isnan(t->saved_ms))
        s->saved_ms = isnan(s->saved_ms) ? t->saved_ms : s->saved_ms + t->saved_ms;
    if (t->prompt != REPLAY_UNKNOWN && t->cached != REPLAY_UNKNOWN) {
        p->hit_prompt += t->prompt;
        p->hit_cached += t->cached;
    }
    if (t->written > 1 && t->decode_us > 0) {
        p->decoded_tokens += t->written - 1;
        p->decoded_us += t->decode_us;
    }
    if (t->ttft_us != REPLAY_UNKNOWN)
        p->ttft_ms[p->n_ttft++] = (double)t->ttft_us / 1e3;
}

int replay_sum(const struct replay_turn *turns, size_t n, size_t turn, struct replay_sum *ret,
               struct err *e)
{
    struct parts p = {.ttft_ms = calloc(n ? n : 1, sizeof(double))};
    struct replay_sum s = {.prompt = REPLAY_UNKNOWN,
                           .cached = REPLAY_UNKNOWN,
                           .ram = REPLAY_UNKNOWN,
                           .disk = REPLAY_UNKNOWN,
                           .shared = REPLAY_UNKNOWN,
                           .computed = REPLAY_UNKNOWN,
                           .written = REPLAY_UNKNOWN,
                           .hit_rate = NAN,
                           .tokens_per_s = NAN,
                           .saved_ms = NAN};
    if (!p.ttft_ms)
        return err_set(e, ERR_NOMEM, "no memory for the times of %zu turns", n);
    for (size_t i = 0; i < n; i++)
        if (!turn || turns[i].turn == turn)
            add_turn(&turns[i], &s, &p);
    qsort(p.ttft_ms, p.n_ttft, sizeof *p.ttft_ms, by_value);
    s.ttft_p50_ms = replay_percentile(p.ttft_ms, p.n_ttft, 50);
    s.ttft_p95_ms = replay_percentile(p.ttft_ms, p.n_ttft, 95);
    if (p.hit_prompt)
        s.hit_rate = (double)p.hit_cached / (double)p.hit_prompt;
    if (p.decoded_us)
        s.tokens_per_s = (double)p.decoded_tokens * 1e6 / (double)p.decoded_us;
    free(p.ttft_ms);
    *ret = s;
    return 0;
}

size_t replay_last_turn(const struct replay_turn *turns, size_t n)
{
    size_t last = 0;
    for (size_t i = 0; i < n; i++)
        if (turns[i].turn > last)
            last = turns[i].turn;
    return last;
}
