/* The probe's questions to the model: logits of a position, and how well it predicts a text. */
#include "daemon/offline_probe.h"

#include <math.h>
#include <stdlib.h>

#include "base/hash.h"
#include "daemon/offline_pass.h"

#define TOP_DEFAULT 20

/* ---- logits ---- */

struct ranked {
    float logit;
    int id;
};

static int by_rank(const void *a, const void *b)
{
    const struct ranked *x = a, *y = b;
    if (x->logit != y->logit)
        return x->logit > y->logit ? -1 : 1;
    return x->id - y->id;
}

static int add_top(json *answer, const float *x, int n_vocab, int n_top, struct err *e)
{
    struct ranked *all = malloc((size_t)n_vocab * sizeof *all);
    json *top = json_array();
    if (!all)
        return err_set(e, ERR_NOMEM, "no memory to rank %d logits", n_vocab);
    for (int i = 0; i < n_vocab; i++)
        all[i] = (struct ranked){x[i], i};
    qsort(all, (size_t)n_vocab, sizeof *all, by_rank);
    for (int i = 0; i < n_top && i < n_vocab; i++)
        probe_add_pair(top, all[i].id, all[i].logit);
    json_set(answer, "top", top);
    free(all);
    return 0;
}

static void add_statistics(json *answer, const float *x, int n)
{
    double lse = offline_log_sum_exp(x, n), entropy = 0, sum = 0, squares = 0;
    for (int i = 0; i < n; i++) {
        entropy -= exp(x[i] - lse) * (x[i] - lse);
        sum += x[i];
    }
    for (int i = 0; i < n; i++)
        squares += (x[i] - sum / n) * (x[i] - sum / n);
    json_set_num(answer, "logsumexp", lse);
    json_set_num(answer, "entropy", entropy);
    json_set_num(answer, "mean", sum / n);
    json_set_num(answer, "std", sqrt(squares / n));
}

static int add_probed(json *answer, const json *question, const float *x, int n_vocab,
                      struct err *e)
{
    const json *asked = json_get(question, "probe", e);
    json *list = json_array();
    int64_t id;
    for (const json *it = json_first(asked); it; it = json_next(it)) {
        int rc = json_int(it, "probe", 0, n_vocab - 1, &id, e);
        if (rc < 0) {
            json_free(list);
            return rc;
        }
        probe_add_pair(list, (double)id, x[id]);
    }
    if (asked)
        json_set(answer, "probe", list);
    else
        json_free(list);
    return 0;
}

static int describe_logits(json *answer, const json *question, const float *x, int n_vocab,
                           struct err *e)
{
    uint8_t hash[HASH_BYTES];
    char hex[2 * HASH_BYTES + 1];
    int n_top = TOP_DEFAULT;
    int rc = probe_take_int(question, "top", n_vocab, &n_top, e);
    if (rc == 0)
        rc = add_top(answer, x, n_vocab, n_top, e);
    if (rc == 0)
        rc = add_probed(answer, question, x, n_vocab, e);
    if (rc < 0)
        return rc;
    add_statistics(answer, x, n_vocab);
    hash_of(x, (size_t)n_vocab * sizeof *x, hash);
    hex_write(hash, sizeof hash, hex);
    json_set_str(answer, "hash", hex);
    return 0;
}

/* The line's kernels and threads, or those the probe was started with. */
static int set_up(struct probe *p, const json *question, struct err *e)
{
    int n_threads = p->n_threads;
    const json *isa = json_get(question, "isa", e);
    if (isa && !json_str(isa))
        return err_set(e, ERR_INVAL, "isa must be a string");
    int rc = probe_take_int(question, "threads", PROBE_THREADS_MAX, &n_threads, e);
    if (rc == 0 && n_threads < 1)
        rc = err_set(e, ERR_INVAL, "threads is %d (1 to %d)", n_threads, PROBE_THREADS_MAX);
    if (rc == 0)
        rc = engine_set_isa(p->engine, isa ? json_str(isa) : p->isa, e);
    if (rc == 0)
        rc = engine_set_threads(p->engine, n_threads, e);
    return rc;
}

static int read_pass(const json *q, struct offline_pass *pass, struct ids *ids, struct err *e)
{
    int rc = probe_take_ids(q, "ids", ids, e);
    pass->chunk = OFFLINE_CHUNK;
    if (rc == 0)
        rc = probe_take_int(q, "chunk", INT32_MAX, &pass->chunk, e);
    if (rc == 0 && pass->chunk < 1)
        rc = err_set(e, ERR_INVAL, "chunk is 0, it must be at least 1");
    if (rc == 0)
        rc = probe_take_int(q, "cached", INT32_MAX, &pass->n_cached, e);
    if (rc == 0)
        rc = probe_take_int(q, "batch", OFFLINE_BATCH_MAX, &pass->n_batch, e);
    pass->ids = ids->v;
    pass->n_ids = (int)ids->n;
    if (pass->n_ids > 0 && pass->chunk > pass->n_ids)
        pass->chunk = pass->n_ids; /* all at once; positions plus chunk stay within an int */
    return rc;
}

int probe_op_logits(struct probe *p, const struct offline_line *l, json *answer, struct err *e)
{
    int n_vocab = engine_info(p->engine)->n_vocab;
    float *logits = malloc((size_t)n_vocab * sizeof *logits);
    struct offline_pass pass = {.engine = p->engine};
    struct ids ids;
    ids_init(&ids);
    int rc = logits ? 0 : err_set(e, ERR_NOMEM, "no memory for %d logits", n_vocab);
    if (rc == 0)
        rc = set_up(p, l->root, e);
    if (rc == 0)
        rc = read_pass(l->root, &pass, &ids, e);
    if (rc == 0)
        rc = offline_last_logits(&pass, logits, e);
    if (rc == 0)
        rc = describe_logits(answer, l->root, logits, n_vocab, e);
    ids_done(&ids);
    free(logits);
    return rc;
}

/* ---- nll ---- */

struct nll {
    const int32_t *ids;
    int n_ids, n_vocab;
    double sum, sum_second;
    int n, n_second;
    json *each, *argmax; /* or NULL */
};

static int on_row(void *ctx, int position, const float *logits, struct err *e)
{
    struct nll *s = ctx;
    (void)e;
    if (s->argmax) {
        int best = 0;
        for (int i = 1; i < s->n_vocab; i++)
            best = logits[i] > logits[best] ? i : best;
        json_add_int(s->argmax, best);
    }
    if (position + 1 == s->n_ids)
        return 0;
    double nll = offline_log_sum_exp(logits, s->n_vocab) - logits[s->ids[position + 1]];
    s->sum += nll;
    s->n++;
    if (position >= s->n_ids / 2) {
        s->sum_second += nll;
        s->n_second++;
    }
    if (s->each)
        json_add_num(s->each, nll);
    return 0;
}

static int score(struct probe *p, const struct ids *ids, int window, struct nll *s, struct err *e)
{
    int n = (int)ids->n < window ? (int)ids->n : window, rc = 0;
    if (n < 2)
        return err_set(e, ERR_INVAL, "ids has %zu tokens and the window %d (2 at least)", ids->n,
                       window);
    for (size_t at = 0; at + (size_t)n <= ids->n && rc == 0; at += (size_t)n) {
        struct offline_pass pass = {
            .engine = p->engine, .ids = ids->v + at, .n_ids = n, .chunk = OFFLINE_CHUNK};
        s->ids = pass.ids;
        s->n_ids = n;
        rc = offline_all_logits(&pass, on_row, s, e);
    }
    return rc;
}

int probe_op_nll(struct probe *p, const struct offline_line *l, json *answer, struct err *e)
{
    int window = 512;
    struct nll s = {.n_vocab = engine_info(p->engine)->n_vocab};
    struct ids ids;
    ids_init(&ids);
    bool each = false;
    int rc = probe_take_bool(l->root, "each", &each, e);
    if (each) {
        s.each = json_array();
        s.argmax = json_array();
    }
    if (rc == 0)
        rc = set_up(p, l->root, e);
    if (rc == 0)
        rc = probe_take_ids(l->root, "ids", &ids, e);
    if (rc == 0)
        rc = probe_take_int(l->root, "window", INT32_MAX, &window, e);
    if (rc == 0)
        rc = score(p, &ids, window, &s, e);
    ids_done(&ids);
    if (rc < 0) {
        json_free(s.each);
        json_free(s.argmax);
        return rc;
    }
    json_set_num(answer, "nats_per_token", s.sum / s.n);
    if (s.n_second > 0)
        json_set_num(answer, "second_half", s.sum_second / s.n_second);
    if (s.each) {
        json_set(answer, "nll", s.each);
        json_set(answer, "argmax", s.argmax);
    }
    return 0;
}
