/*
 * hearthd perplexity --model FILE [TEXT]: how well the model, as computed here, predicts a text;
 * and, with --logits, how far its distributions are from stored ones.
 *
 *      text    [ window 0 | window 1 | … | rest ]        each window is read alone, from position 0
 *                 └ stride: with less than a window, each begins among what the one before has
 *                   scored, and only what is new counts
 *
 * A token's loss is −log of the probability it was given. Where the model wants a BOS, the first
 * id of every window is replaced by it. A rest shorter than a window is left out, unless it is all
 * there is. exp(second half) is comparable with other programs that score the second half of each
 * window only.
 *
 * Divergence: KL(stored ‖ ours) in nats, over the stored top ids and one class for all the rest; it
 * is never larger than that over the whole vocabulary.
 */
#include <errno.h>
#include <getopt.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/file.h"
#include "base/hash.h"
#include "base/ids.h"
#include "base/thread.h"
#include "daemon/offline.h"
#include "daemon/offline_json.h"
#include "daemon/offline_memory.h"
#include "daemon/offline_pass.h"

#define TEXT_BYTES_MAX ((size_t)256 << 20)
#define WINDOW_DEFAULT 512
#define THREADS_MAX 1024
#define REST_MIN 1e-4 /* stored probability beyond the top ids below which it is rounding */

struct sums {
    double sum, squares;
    long n;
};

struct perplexity {
    struct engine_options engine;
    const char *text_path, *logits_path;
    int window, stride; /* stride 0: a window */
    bool is_json;

    struct engine *en;
    struct ids ids;
    int32_t *window_ids; /* [window] */
    size_t at, n_scored_to; /* of the window that is read; ids before this index are scored */
    int n_window;
    long n_windows;
    struct sums all, second;

    json *prompts; /* one a line of --logits */
    double kl_sum, kl_max;
    long n_prompts;
};

/* ---- the text ---- */

static void sums_add(struct sums *s, double x)
{
    s->sum += x;
    s->squares += x * x;
    s->n++;
}

static double sums_mean(const struct sums *s)
{
    return s->sum / (double)s->n;
}

/* The standard error of the mean, tokens taken to be independent. */
static double sums_error(const struct sums *s)
{
    const double mean = sums_mean(s), variance = s->squares / (double)s->n - mean * mean;
    return sqrt((variance > 0 ? variance : 0) / (double)s->n);
}

static int on_row(void *ctx, int position, const float *logits, struct err *e)
{
    struct perplexity *p = ctx;
    const size_t target = p->at + (size_t)position + 1;
    if (position + 1 == p->n_window || target < p->n_scored_to)
        return 0;
    const double nll = offline_log_sum_exp(logits, engine_info(p->en)->n_vocab) -
                       (double)logits[p->ids.v[target]];
    if (!isfinite(nll))
        return err_set(e, ERR_CORRUPT, "the model's output at token %zu is unusable", target);
    sums_add(&p->all, nll);
    if (position >= p->n_window / 2)
        sums_add(&p->second, nll);
    return 0;
}

static int read_text(struct perplexity *p, struct err *e)
{
    const struct tok *tok = engine_tok(p->en);
    struct buf text;
    buf_init(&text, TEXT_BYTES_MAX);
    int rc = file_read(p->text_path, &text, e);
    if (rc == 0 && tok_bos(tok) >= 0 && (rc = ids_push(&p->ids, tok_bos(tok))))
        rc = err_set(e, rc, "no memory for the text's tokens");
    if (rc == 0)
        rc = tok_encode(tok, text.data ? text.data : "", text.len, false, &p->ids, e);
    buf_done(&text);
    return rc;
}

static void progress(const struct perplexity *p, long n_windows)
{
    if (isatty(STDERR_FILENO))
        fprintf(stderr, "\rwindow %ld of %ld%s", p->n_windows, n_windows,
                p->n_windows == n_windows ? "\n" : "");
}

static int score_window(struct perplexity *p, struct err *e)
{
    const int32_t bos = tok_bos(engine_tok(p->en));
    memcpy(p->window_ids, p->ids.v + p->at, (size_t)p->n_window * sizeof *p->window_ids);
    if (bos >= 0)
        p->window_ids[0] = bos;
    struct offline_pass pass = {
        .engine = p->en, .ids = p->window_ids, .n_ids = p->n_window, .chunk = OFFLINE_CHUNK};
    return offline_all_logits(&pass, on_row, p, e);
}

static int score_text(struct perplexity *p, struct err *e)
{
    int rc = read_text(p, e);
    if (rc < 0)
        return rc;
    if (p->ids.n < 2)
        return err_set(e, ERR_INVAL, "%s has %zu tokens (2 at least)", p->text_path, p->ids.n);
    p->n_window = p->ids.n < (size_t)p->window ? (int)p->ids.n : p->window;
    p->window_ids = malloc((size_t)p->n_window * sizeof *p->window_ids);
    if (!p->window_ids)
        return err_set(e, ERR_NOMEM, "no memory for a window of %d", p->n_window);
    const size_t stride = p->stride && p->stride < p->n_window ? (size_t)p->stride
                                                               : (size_t)p->n_window;
    const size_t n = (size_t)p->n_window;
    const long n_windows = (long)((p->ids.n - n) / stride) + 1;
    for (p->at = 0; p->at + n <= p->ids.n && rc == 0; p->at += stride) {
        rc = score_window(p, e);
        p->n_scored_to = p->at + n;
        p->n_windows++;
        progress(p, n_windows);
    }
    return rc;
}

/* ---- stored logits ---- */

static int pair_of(const json *pair, int n_vocab, int64_t *ret_id, double *ret, struct err *e)
{
    const json *id = json_first(pair);
    if (json_type(pair) != JSON_ARRAY || json_count(pair) != 2)
        return err_set(e, ERR_INVAL, "top must be a list of [id, logit]");
    int rc = json_int(id, "top", 0, n_vocab - 1, ret_id, e);
    return rc < 0 ? rc : json_num(json_next(id), "top", -1e30, 1e30, ret, e);
}

static int divergence(const json *line, const float *ours, int n_vocab, double *ret, struct err *e)
{
    const json *top = json_get(line, "top", e);
    double stored_sum, p_sum = 0, q_sum = 0, kl = 0, logit = 0;
    int64_t id = 0;
    const double our_sum = offline_log_sum_exp(ours, n_vocab);
    int rc = json_num(json_get(line, "logsumexp", e), "logsumexp", -1e30, 1e30, &stored_sum, e);
    if (rc == 0 && (json_type(top) != JSON_ARRAY || json_count(top) == 0))
        rc = err_set(e, ERR_INVAL, "top must be a list of [id, logit]");
    for (const json *it = json_first(top); it && rc == 0; it = json_next(it)) {
        rc = pair_of(it, n_vocab, &id, &logit, e);
        if (rc < 0)
            break;
        const double log_p = logit - stored_sum, log_q = (double)ours[id] - our_sum;
        kl += exp(log_p) * (log_p - log_q);
        p_sum += exp(log_p);
        q_sum += exp(log_q);
    }
    if (rc == 0 && 1 - p_sum >= REST_MIN)
        kl += (1 - p_sum) * log((1 - p_sum) / fmax(1 - q_sum, 1e-300));
    if (rc == 0 && !isfinite(kl))
        rc = err_set(e, ERR_CORRUPT, "the model's output is unusable");
    if (rc == 0)
        *ret = kl;
    return rc;
}

static int take_ids(const json *line, int n_vocab, struct ids *ret, struct err *e)
{
    const json *list = json_get(line, "ids", e);
    int64_t id = 0;
    int rc = json_type(list) == JSON_ARRAY ? 0 : err_set(e, ERR_INVAL, "ids must be a list of ids");
    for (const json *it = json_first(list); it && rc == 0; it = json_next(it)) {
        rc = json_int(it, "ids", 0, n_vocab - 1, &id, e);
        if (rc == 0 && (rc = ids_push(ret, (int32_t)id)))
            rc = err_set(e, rc, "no memory for the prompt");
    }
    return rc;
}

static int compare(struct perplexity *p, const json *line, float *logits, struct err *e)
{
    const int n_vocab = engine_info(p->en)->n_vocab;
    double kl = 0;
    struct ids ids;
    ids_init(&ids);
    int rc = take_ids(line, n_vocab, &ids, e);
    struct offline_pass pass = {
        .engine = p->en, .ids = ids.v, .n_ids = (int)ids.n, .chunk = OFFLINE_CHUNK};
    if (rc == 0)
        rc = offline_last_logits(&pass, logits, e);
    if (rc == 0)
        rc = divergence(line, logits, n_vocab, &kl, e);
    if (rc == 0) {
        json *prompt = json_add(p->prompts, json_object());
        json_set_int(prompt, "n", (int64_t)ids.n);
        json_set_num(prompt, "kl", kl);
        p->kl_sum += kl;
        p->kl_max = p->n_prompts == 0 || kl > p->kl_max ? kl : p->kl_max;
        p->n_prompts++;
    }
    ids_done(&ids);
    return rc;
}

static int compare_lines(struct perplexity *p, const struct buf *text, float *logits,
                         struct err *e)
{
    const char *at = text->data, *end = text->data + text->len;
    for (long n = 1; at < end; n++) {
        const char *stop = memchr(at, '\n', (size_t)(end - at));
        const size_t len = (size_t)((stop ? stop : end) - at);
        struct offline_line l;
        int rc = len == 0 ? 0 : offline_parse(at, len, &l, e);
        if (rc == 0 && len > 0) {
            rc = compare(p, l.root, logits, e);
            offline_done(&l);
        }
        if (rc < 0)
            return err_prefix(e, "%s, line %ld", p->logits_path, n);
        at += len + 1;
    }
    return p->n_prompts ? 0 : err_set(e, ERR_INVAL, "%s has no line", p->logits_path);
}

static int compare_logits(struct perplexity *p, struct err *e)
{
    const int n_vocab = engine_info(p->en)->n_vocab;
    float *logits = malloc((size_t)n_vocab * sizeof *logits);
    struct buf text;
    buf_init(&text, TEXT_BYTES_MAX);
    p->prompts = json_array();
    int rc = logits ? 0 : err_set(e, ERR_NOMEM, "no memory for %d logits", n_vocab);
    if (rc == 0)
        rc = file_read(p->logits_path, &text, e);
    if (rc == 0)
        rc = compare_lines(p, &text, logits, e);
    buf_done(&text);
    free(logits);
    return rc;
}

/* ---- report ---- */

static void report_sums(json *o, const struct sums *s)
{
    json_set_int(o, "tokens", s->n);
    json_set_num(o, "nats_per_token", sums_mean(s));
    json_set_num(o, "error", sums_error(s));
    json_set_num(o, "perplexity", exp(sums_mean(s)));
}

static json *report_of(struct perplexity *p)
{
    json *o = json_object();
    json_set_str(o, "model", engine_info(p->en)->id);
    json_set_str(o, "quant", engine_info(p->en)->quant);
    json_set_str(o, "kv_type", kv_type_name(p->engine.kv_type));
    if (p->text_path) {
        json *text = json_set(o, "text", json_object());
        json_set_int(text, "window", p->n_window);
        json_set_int(text, "stride", p->stride && p->stride < p->n_window ? p->stride
                                                                          : p->n_window);
        json_set_int(text, "windows", p->n_windows);
        json_set_int(text, "left_out", (int64_t)(p->ids.n - p->n_scored_to));
        report_sums(text, &p->all);
        if (p->second.n > 0)
            report_sums(json_set(text, "second_half", json_object()), &p->second);
    }
    if (p->logits_path) {
        json *logits = json_set(o, "logits", json_object());
        json_set_num(logits, "kl_mean", p->kl_sum / (double)p->n_prompts);
        json_set_num(logits, "kl_max", p->kl_max);
        json_set(logits, "prompts", p->prompts);
        p->prompts = NULL;
    }
    return o;
}

static void print_sums(const char *name, const struct sums *s)
{
    if (s->n > 0)
        printf("%-12s %8ld tokens  %8.4f ± %.4f nats a token  perplexity %.4f\n", name, s->n,
               sums_mean(s), sums_error(s), exp(sums_mean(s)));
}

static int report(struct perplexity *p, struct err *e)
{
    if (p->is_json) {
        struct buf b;
        buf_init(&b, TEXT_BYTES_MAX);
        json *o = report_of(p);
        json_write(o, &b);
        json_free(o);
        if (!buf_error(&b))
            printf("%.*s\n", (int)b.len, b.data);
        const bool is_bad = buf_error(&b) != 0;
        buf_done(&b);
        if (is_bad)
            return err_set(e, ERR_NOMEM, "no memory for the report");
    } else if (p->text_path) {
        print_sums("all", &p->all);
        print_sums("second half", &p->second);
        printf("%ld windows of %d; %zu tokens at the end left out\n", p->n_windows, p->n_window,
               p->ids.n - p->n_scored_to);
    }
    if (!p->is_json && p->logits_path)
        printf("%ld prompts      KL mean %.6f  largest %.6f nats\n", p->n_prompts,
               p->kl_sum / (double)p->n_prompts, p->kl_max);
    return fflush(stdout) == 0 ? 0 : err_set(e, ERR_IO, "stdout: %s", strerror(errno));
}

/* ---- command line ---- */

static int usage(FILE *to, int status)
{
    fprintf(to,
            "usage: hearthd perplexity --model FILE [--window N] [--stride N] [--logits FILE]\n"
            "                          [--threads N] [--isa NAME] [--kv-type f16|q8_0]\n"
            "                          [--format table|json] [TEXT]\n"
            "How well the model predicts TEXT, in windows of N tokens (default %d) each of which\n"
            "begins N tokens (--stride; default: a window) after the one before.\n"
            "--logits: JSON lines of ids, top ([id, logit], …) and logsumexp, as in tests/golden:\n"
            "KL of our distributions from those.\n",
            WINDOW_DEFAULT);
    return status;
}

static bool number(const char *name, const char *text, long max, int *ret)
{
    char *end;
    errno = 0;
    const long v = strtol(text, &end, 10), min = strcmp(name, "window") == 0 ? 2 : 1;
    if (end == text || *end || errno || v < min || v > max) {
        fprintf(stderr, "hearthd perplexity: --%s is \"%s\"; a whole number from %ld to %ld\n",
                name, text, min, max);
        return false;
    }
    *ret = (int)v;
    return true;
}

static bool parse_one(struct perplexity *p, int c)
{
    switch (c) {
    case 'm':
        p->engine.model_path = optarg;
        return true;
    case 'l':
        p->logits_path = optarg;
        return true;
    case 'i':
        p->engine.isa = optarg;
        return true;
    case 'w':
        return number("window", optarg, 1 << 20, &p->window);
    case 's':
        return number("stride", optarg, 1 << 20, &p->stride);
    case 't':
        return number("threads", optarg, THREADS_MAX, &p->engine.n_threads);
    case 'y':
        if (kv_type_find(optarg, &p->engine.kv_type))
            return true;
        fprintf(stderr, "hearthd perplexity: --kv-type is \"%s\" (f16, q8_0)\n", optarg);
        return false;
    case 'f':
        p->is_json = strcmp(optarg, "json") == 0;
        if (p->is_json || strcmp(optarg, "table") == 0)
            return true;
        fprintf(stderr, "hearthd perplexity: --format is \"%s\" (table, json)\n", optarg);
        return false;
    default:
        return false;
    }
}

/* 0, or an exit status + 1. */
static int parse(int argc, char **argv, struct perplexity *p)
{
    static const struct option longs[] = {{"model", required_argument, NULL, 'm'},
                                          {"logits", required_argument, NULL, 'l'},
                                          {"isa", required_argument, NULL, 'i'},
                                          {"window", required_argument, NULL, 'w'},
                                          {"stride", required_argument, NULL, 's'},
                                          {"threads", required_argument, NULL, 't'},
                                          {"kv-type", required_argument, NULL, 'y'},
                                          {"format", required_argument, NULL, 'f'},
                                          {"help", no_argument, NULL, 'h'},
                                          {0}};
    int c;
    optind = 1;
    while ((c = getopt_long(argc, argv, "m:t:h", longs, NULL)) != -1) {
        if (c == 'h')
            return usage(stdout, 0) + 1;
        if (!parse_one(p, c))
            return usage(stderr, 2) + 1;
    }
    if (optind < argc)
        p->text_path = argv[optind++];
    if (optind < argc || !p->engine.model_path || (!p->text_path && !p->logits_path))
        return usage(stderr, 2) + 1;
    return 0;
}

static int run(struct perplexity *p, struct err *e)
{
    struct offline_memory memory = {
        .n_seqs = 1, .n_positions = p->window, .n_logits = OFFLINE_ROWS_AT_ONCE};
    p->engine.pass_rows = OFFLINE_CHUNK;
    p->engine.may_take = offline_may_take;
    p->engine.may_take_ctx = &memory;
    int rc = hash_start(e);
    if (rc == 0)
        rc = engine_open(&p->engine, &p->en, e);
    if (rc == 0 && p->window > engine_info(p->en)->n_ctx_train)
        rc = err_set(e, ERR_INVAL, "--window is %d; the model has %d positions", p->window,
                     engine_info(p->en)->n_ctx_train);
    if (rc == 0 && p->stride > p->window)
        rc = err_set(e, ERR_INVAL, "--stride is %d, more than the window of %d", p->stride,
                     p->window);
    if (rc == 0 && p->text_path)
        rc = score_text(p, e);
    if (rc == 0 && p->logits_path)
        rc = compare_logits(p, e);
    return rc < 0 ? rc : report(p, e);
}

int offline_perplexity(int argc, char **argv)
{
    struct perplexity p = {.window = WINDOW_DEFAULT};
    struct err e = {0};
    int status = parse(argc, argv, &p);
    if (status)
        return status - 1;
    thread_set_role(THREAD_WORKER); /* whose the KV blocks are */
    ids_init(&p.ids);
    const int rc = run(&p, &e);
    if (rc < 0)
        fprintf(stderr, "hearthd perplexity: %s\n", e.text);
    ids_done(&p.ids);
    free(p.window_ids);
    json_free(p.prompts);
    engine_close(p.en);
    return rc < 0;
}
