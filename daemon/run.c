/*
 * See run.h. What a turn's numbers mean is decided here: cached is what was found before the first
 * token, computed is the rest of the prompt, or of what was read of it when the turn ends before.
 */
#include "daemon/run.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "daemon/limits.h"
#include "daemon/wire.h"

static int run_make(struct run *r, struct err *e)
{
    struct turn *t = r->t;
    const struct turn_params *p = &t->params;
    size_t n_vocab = (size_t)engine_info(r->engine)->n_vocab;
    int rc = ids_add(&r->ids, t->prompt.v, t->prompt.n);
    if (rc)
        return err_set(e, rc, "out of memory for the prompt");
    r->logits = malloc(n_vocab * sizeof *r->logits);
    if (!r->logits)
        return err_set(e, ERR_NOMEM, "out of memory for logits");
    if ((rc = sampler_new(&p->sample, n_vocab, &r->sampler, e)) ||
        (rc = stop_new(p->stops, p->stop_lengths, p->n_stops, &r->stop, e)))
        return rc;
    if (r->d->config->speculation && !turn_is_warming(t))
        lookup_init(&r->lookup, (int)t->prompt.n + t->max_tokens);
    sampler_see_prompt(r->sampler, t->prompt.v, t->prompt.n);
    return 0;
}

struct run *run_new(struct daemon *d, struct engine *engine, struct turn *t)
{
    struct err e;
    struct run *r = calloc(1, sizeof *r);
    if (!r) {
        turn_fail(t, 500, "out_of_memory", "out of memory");
        return NULL;
    }
    r->d = d;
    r->engine = engine;
    r->t = t;
    ids_init(&r->ids);
    cache_root_of(engine_info(engine)->fingerprint, t->owner, &r->root);
    int rc = run_make(r, &e);
    if (rc == 0)
        return r;
    turn_fail(t, rc == ERR_NOMEM ? 500 : 400, rc == ERR_NOMEM ? "out_of_memory" : "invalid_value",
              "%s", e.text);
    run_free(r);
    return NULL;
}

void run_free(struct run *r)
{
    if (!r)
        return;
    if (r->lease)
        run_abandon(r);
    sampler_free(r->sampler);
    stop_free(r->stop);
    lookup_done(&r->lookup);
    ids_done(&r->ids);
    free(r->logits);
    free(r);
}

struct kv_seq *run_seq(const struct run *r)
{
    return cache_lease_seq(r->lease);
}

int run_pending(const struct run *r)
{
    return (int)r->ids.n - run_seq(r)->n_tokens;
}

int run_start(struct run *r, struct cache *c, struct err *e)
{
    int rc = cache_lease_open(c, &r->root, r->t->who, &r->lease, e);
    if (rc)
        return rc;
    r->n_published = 0;
    r->has_asked_disk = false;
    r->t_restore = 0;
    run_find(r);
    /* One block more than the prompt: a turn that could only read it would yield at its first
     * token. */
    int n_disk = 0;
    if (r->t->params.use_cache)
        n_disk = cache_restorable(r->lease, r->ids.v, (int)r->ids.n - 1);
    rc = cache_reserve_for_disk(r->lease, run_pending(r) + KV_BLOCK, n_disk, e);
    if (rc) {
        if (r->t->stats.n_yields == 0 && !r->t->stats.t_first)
            r->t->stats.n_cached = r->t->stats.n_ram = r->t->stats.n_disk = r->t->stats.n_shared =
                0; /* it will look again */
        cache_lease_close(r->lease, NULL, false);
        r->lease = NULL;
        return rc;
    }
    if (!r->t->stats.t_started)
        r->t->stats.t_started = clock_us();
    return 0;
}

static void count_found(struct run *r, const struct cache_found *found)
{
    struct turn_stats *s = &r->t->stats;
    if (r->t->out.n > 0 || s->n_yields > 0)
        return; /* what it had computed itself, and found again after a yield */
    s->n_cached += found->n_tokens;
    s->n_ram += found->n_ram;
    s->n_disk += found->n_disk;
    s->n_shared += found->n_shared;
}

void run_find(struct run *r)
{
    struct cache_found found;
    struct err e;
    struct turn_stats *s = &r->t->stats;
    if (!r->t->params.use_cache)
        return;
    int64_t t0 = clock_us();
    if (cache_find(r->lease, r->ids.v, (int)r->ids.n - 1, &found, &e)) {
        log_warn("the cache could not be searched: %s", e.text);
        return;
    }
    s->restore_us += clock_us() - t0;
    count_found(r, &found);
}

bool run_restore(struct run *r)
{
    if (r->has_asked_disk || !r->t->params.use_cache)
        return false;
    int64_t t0 = clock_us();
    r->has_asked_disk = true;
    if (!cache_restore(r->lease, r->ids.v, (int)r->ids.n - 1))
        return false;
    r->t_restore = t0;
    return true;
}

bool run_is_restoring(struct run *r)
{
    if (r->t_restore == 0)
        return false;
    if (cache_is_restoring(r->lease))
        return true;
    struct cache_found found = cache_take_restored(r->lease);
    r->t->stats.restore_us += clock_us() - r->t_restore;
    r->t_restore = 0;
    count_found(r, &found);
    return false;
}

/*
 * Names the blocks that hold a stored conversation, for the history's account of who uses what: all
 * that will be in the tree, or (ids NULL) those that are. A run that yielded may end with less than
 * it once had: the longest counts. Without memory for them they only age out.
 */
static void note_blocks(struct run *r, const int32_t *ids)
{
    struct turn *t = r->t;
    if ((!t->store.is_on && !t->is_background) || !t->params.use_cache)
        return;
    size_t n_max = (size_t)run_seq(r)->n_tokens / KV_BLOCK + 1;
    uint8_t *blocks = malloc(n_max * HASH_BYTES);
    size_t n = blocks ? cache_lease_ids(r->lease, ids, blocks, n_max) : 0;
    if (n == 0 || n < t->n_blocks) {
        free(blocks);
        return;
    }
    free(t->blocks);
    t->blocks = blocks;
    t->n_blocks = n;
}

/* Of a turn that may end before its first token: how far it came in its prompt. */
static void note_computed(struct run *r)
{
    struct turn_stats *s = &r->t->stats;
    int n = run_seq(r)->n_tokens < (int)r->t->prompt.n ? run_seq(r)->n_tokens : (int)r->t->prompt.n;
    if (!s->t_first && n - s->n_cached > s->n_computed)
        s->n_computed = n - s->n_cached;
}

void run_leave(struct run *r)
{
    if (!r->lease)
        return;
    note_computed(r);
    bool keep = r->t->params.use_cache;
    note_blocks(r, r->ids.v);
    cache_lease_close(r->lease, keep ? r->ids.v : NULL, keep);
    r->lease = NULL;
}

void run_abandon(struct run *r)
{
    if (!r->lease)
        return;
    note_computed(r);
    note_blocks(r, NULL);
    cache_lease_abandon(r->lease);
    cache_lease_close(r->lease, NULL, false);
    r->lease = NULL;
}

static void send(struct run *r, void (*write)(struct turn *, const char *, size_t, struct buf *),
                 const char *text, size_t n)
{
    struct buf b;
    if (!r->t->params.is_stream || !write)
        return;
    buf_init(&b, WIRE_BODY_BYTES);
    write(r->t, text, n, &b);
    reply_post(r->d, REPLY_STREAM_DATA, r->t->conn, 200, &b);
}

/* Appends text to the answer and to the stream. */
static void emit(struct run *r, const struct buf *text)
{
    struct turn *t = r->t;
    if (text->len == 0)
        return;
    buf_add(&t->text, text->data, text->len);
    if (t->wire && t->thought.stage == THOUGHT_OFF) /* nobody listens to a background turn */
        send(r, t->wire->delta, text->data, text->len);
}

/* What is new of thought and answer. */
static void tell_apart(struct run *r, const struct buf *text, bool is_end)
{
    struct turn *t = r->t;
    struct thought *h = &t->thought;
    const size_t n_thought = h->reasoning.len, n_answer = h->answer.len;
    const bool was_answer = h->stage == THOUGHT_ANSWER;
    if (h->stage == THOUGHT_OFF || !t->wire)
        return;
    thought_push(h, text->len > 0 ? text->data : "", text->len, is_end);
    if (h->reasoning.len > n_thought)
        send(r, t->wire->thought, h->reasoning.data + n_thought, h->reasoning.len - n_thought);
    if (h->answer.len > n_answer)
        send(r, t->wire->delta, h->answer.data + n_answer, h->answer.len - n_answer);
    if (!was_answer && (h->stage == THOUGHT_OPEN || h->stage == THOUGHT_CLOSED))
        h->n_tokens = (int)t->out.n;
}

/* The bytes of an id that is part of the answer. A control token other than the end has none: its
 * spelling isn't text. */
static const char *bytes_of(const struct run *r, int32_t id, size_t *ret_n)
{
    const struct tok *tok = engine_tok(r->engine);
    const char *piece = tok_piece(tok, id, ret_n);
    const bool is_tag =
        r->t->thought.stage != THOUGHT_OFF && piece &&
        thought_is_tag(r->t->thought.marks, piece, *ret_n);
    if (!tok_is_control(tok, id) || is_tag)
        return piece;
    *ret_n = 0;
    return "";
}

/* End-of-generation token, then token limit, then stop string: the first that applies is what is
 * reported. */
static void see(struct run *r, int32_t id)
{
    struct turn *t = r->t;
    struct buf text;
    size_t n;
    bool is_stopped = false;
    buf_init(&text, TURN_TEXT_BYTES);
    if (tok_is_eog(engine_tok(r->engine), id)) {
        t->finish = TURN_EOG;
    } else {
        const char *bytes = bytes_of(r, id, &n);
        is_stopped = stop_push(r->stop, bytes, n, &text);
        if ((int)t->out.n >= t->max_tokens)
            t->finish = TURN_LENGTH;
        else if (is_stopped)
            t->finish = TURN_STOPPED;
    }
    if (t->finish != TURN_RUNNING && !is_stopped)
        stop_flush(r->stop, &text);
    emit(r, &text);
    tell_apart(r, &text, t->finish != TURN_RUNNING);
    if (text.error || t->text.error || t->thought.answer.error || t->thought.reasoning.error)
        turn_fail(t, 500, "out_of_memory", "out of memory for the answer's text");
    buf_done(&text);
}

static void count_first(struct run *r)
{
    struct turn *t = r->t;
    struct turn_stats *s = &t->stats;
    s->t_first = clock_us();
    s->prefill_us = s->t_first - s->t_started;
    s->n_computed = (int)t->prompt.n - s->n_cached;
    if (t->is_background)
        atomic_fetch_add(&r->d->n.background_tokens, (uint64_t)s->n_computed);
}

static void draw_row(struct run *r, float *logits)
{
    struct turn *t = r->t;
    struct err e;
    int32_t id;
    static struct log_limit limit = {.burst = 3};
    assert(run_pending(r) == 0);
    if (t->out.n == 0)
        count_first(r);
    if (turn_is_warming(t)) {
        t->finish = TURN_LENGTH;
        return;
    }
    if (sampler_draw(r->sampler, logits, &id, &e)) {
        if (log_allowed(&limit))
            log_error("turn %s: %s at token %zu", t->id, e.text, t->out.n);
        turn_fail(t, 500, "numeric_error", "the model's output is unusable (%s)", e.text);
        return;
    }
    if (ids_push(&t->out, id) || ids_push(&r->ids, id)) {
        turn_fail(t, 500, "out_of_memory", "out of memory for the answer's tokens");
        return;
    }
    sampler_accept(r->sampler, id);
    atomic_fetch_add(&r->d->n.generated_tokens, 1);
    see(r, id);
}

/* Rows of logits for drafts, when there first is one. */
static bool reserve_rows(struct run *r)
{
    const size_t n_vocab = (size_t)engine_info(r->engine)->n_vocab;
    if (r->has_draft_rows)
        return true;
    float *rows = malloc((1 + LOOKUP_DRAFT_MAX) * n_vocab * sizeof *rows);
    if (!rows)
        return false;
    free(r->logits);
    r->logits = rows;
    r->has_draft_rows = true;
    return true;
}

void run_draft(struct run *r, const double *cost)
{
    const int n_left = r->t->max_tokens - (int)r->t->out.n - 1;
    const int n_max = n_left < LOOKUP_DRAFT_MAX ? n_left : LOOKUP_DRAFT_MAX;
    r->row_ids[0] = r->ids.v[r->ids.n - 1];
    r->n_drafts = lookup_draft(&r->lookup, &r->ids, n_max, cost, r->row_ids + 1);
    if (r->n_drafts > 0 && !reserve_rows(r))
        r->n_drafts = 0;
}

void run_draw(struct run *r)
{
    const size_t n_vocab = (size_t)engine_info(r->engine)->n_vocab;
    const int n_drafts = r->n_drafts;
    int n = 0;
    run_seq(r)->n_tokens -= n_drafts;
    draw_row(r, r->logits);
    while (n < n_drafts && r->t->finish == TURN_RUNNING &&
           r->ids.v[r->ids.n - 1] == r->row_ids[1 + n]) {
        run_seq(r)->n_tokens++;
        n++;
        draw_row(r, r->logits + (size_t)n * n_vocab);
    }
    if (n_drafts == 0)
        return;
    r->t->stats.n_drafted += n_drafts;
    r->t->stats.n_accepted += n;
    atomic_fetch_add(&r->d->n.drafted_tokens, (uint64_t)n_drafts);
    atomic_fetch_add(&r->d->n.accepted_tokens, (uint64_t)n);
    r->n_drafts = 0;
}

void run_publish(struct run *r, int64_t cost_us_per_token)
{
    struct err e;
    int n_full = run_seq(r)->n_tokens / KV_BLOCK;
    if (!r->t->params.use_cache || n_full == r->n_published)
        return;
    /* Out of memory here only means that nobody else finds these blocks. */
    if (cache_publish(r->lease, r->ids.v, cost_us_per_token, &e) == 0)
        r->n_published = n_full;
}

void run_flush(struct run *r)
{
    struct turn *t = r->t;
    int64_t now = clock_us();
    if (!t->store.is_on || t->text.len == r->n_flushed ||
        now - r->t_flushed < FLUSH_ANSWER_MS * 1000)
        return;
    struct turn_flush *f = calloc(1, sizeof *f);
    if (!f)
        return; /* the next one, or the end, stores it */
    f->mail.kind = MAIL_TURN_FLUSH;
    f->turn = t;
    f->n_text = t->text.len;
    f->text = malloc(f->n_text + 1);
    if (!f->text) {
        free(f);
        return;
    }
    memcpy(f->text, t->text.data, f->n_text + 1);
    r->n_flushed = t->text.len;
    r->t_flushed = now;
    if (!mailbox_push(&r->d->history, &f->mail))
        turn_flush_free(f);
}
