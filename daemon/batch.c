/*
 * See batch.h.
 *
 * Sharing what is in flight: a run that reads a prefix which an older run of the same owner is
 * reading too waits for that one's blocks, if they would give it a block's worth at least. Older
 * means a smaller number, so that waiting has no cycles, and the oldest never waits.
 *
 * Giving up a pass: somebody leaves, and the rows of the others are thrown away with it. So that
 * clients that come and go don't keep the others where they are, no two passes in a row are given
 * up while somebody in them stays.
 *
 * Background turns run one at a time, and only while no other turn runs or waits. One that runs
 * when somebody comes gives what it has to the tree and goes to the queue's end; it goes on from
 * there later.
 *
 * Fairness: answers come first, and prompts get what they leave (daemon/pace.h). Of several prompts
 * the one with the least left to read goes first, so that a short question doesn't wait for a long
 * document; in one of OLDEST_EVERY passes the oldest does, so that short ones that keep coming
 * don't stop it.
 *
 * Room: a run is admitted when the tree can give it blocks for its whole prompt. Growth can still
 * fail; then the youngest leaves its blocks to the tree and goes to the head of the queue. It comes
 * back only when there is room for all it had, so that two turns don't chase each other out.
 */
#include "daemon/batch.h"

#include <assert.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"

void batch_init(struct batch *b, struct daemon *d, struct engine *engine, struct cache *cache)
{
    *b = (struct batch){.d = d, .engine = engine, .cache = cache};
    b->tail = &b->waiting;
    b->parallel = d->config->parallel;
    if (b->parallel < 1)
        b->parallel = DEFAULT_PARALLEL;
    if (b->parallel > LIMIT_PARALLEL)
        b->parallel = LIMIT_PARALLEL;
}

bool batch_is_idle(const struct batch *b)
{
    return b->n_running == 0 && b->n_waiting == 0;
}

void batch_hand_back(struct daemon *d, struct turn *t)
{
    t->mail.kind = MAIL_TURN_DONE;
    if (mailbox_push(&d->history, &t->mail))
        return;
    log_error("turn %s: the history thread has ended before its turns", t->id);
    turn_free(t);
}

/* Other batches, of other models, count too. */
static void count_queue(struct batch *b)
{
    struct counters *n = &b->d->n;
    const bool is_background = b->n_running == 1 && b->running[0]->t->is_background;
    atomic_fetch_add(&n->running, (uint64_t)(b->n_running - b->n_told_running));
    atomic_fetch_add(&n->queued, (uint64_t)(b->n_waiting - b->n_told_waiting));
    atomic_fetch_add(&n->is_background, is_background - b->is_told_background);
    b->n_told_running = b->n_running;
    b->n_told_waiting = b->n_waiting;
    b->is_told_background = is_background;
}

bool batch_is_background(const struct batch *b)
{
    for (int i = 0; i < b->n_running; i++)
        if (!b->running[i]->t->is_background || turn_is_canceled(b->running[i]->t))
            return false;
    for (const struct run *r = b->waiting; r; r = r->next)
        if (!r->t->is_background || turn_is_canceled(r->t))
            return false;
    return true;
}

/* ---- who is where ---- */

static void wait_push_tail(struct batch *b, struct run *r)
{
    r->next = NULL;
    *b->tail = r;
    b->tail = &r->next;
    b->n_waiting++;
}

static void wait_push_head(struct batch *b, struct run *r)
{
    r->next = b->waiting;
    b->waiting = r;
    if (b->tail == &b->waiting)
        b->tail = &r->next;
    b->n_waiting++;
}

/* Takes the run that *at points to out of the queue. */
static struct run *wait_take(struct batch *b, struct run **at)
{
    struct run *r = *at;
    *at = r->next;
    if (b->tail == &r->next)
        b->tail = at;
    r->next = NULL;
    b->n_waiting--;
    return r;
}

static void running_insert(struct batch *b, struct run *r)
{
    int i = b->n_running++;
    for (; i > 0 && b->running[i - 1]->order > r->order; i--)
        b->running[i] = b->running[i - 1];
    b->running[i] = r;
}

static void running_remove(struct batch *b, const struct run *r)
{
    int i = 0;
    while (b->running[i] != r)
        i++;
    b->n_running--;
    memmove(&b->running[i], &b->running[i + 1], (size_t)(b->n_running - i) * sizeof *b->running);
}

void batch_add(struct batch *b, struct turn *t)
{
    struct run *r = run_new(b->d, b->engine, t);
    if (!r) {
        batch_hand_back(b->d, t);
        return;
    }
    r->order = b->n_arrived++;
    t->run = r;
    wait_push_tail(b, r);
    count_queue(b);
}

/* ---- ending ---- */

/* The run is in no list any more. */
static void run_end(struct batch *b, struct run *r)
{
    struct turn *t = r->t;
    struct turn_stats *s = &t->stats;
    s->t_ended = clock_us();
    if (s->t_first) {
        s->decode_us = s->t_ended - s->t_first;
    } else {
        s->t_started = s->t_started ? s->t_started : s->t_ended;
        s->prefill_us = s->t_ended - s->t_started;
    }
    s->saved_us = (int64_t)pace_prefix_us(&b->pace, s->n_cached);
    run_leave(r);
    run_free(r);
    t->run = NULL;
    b->is_full = false;
    batch_hand_back(b->d, t);
}

static void end_finished(struct batch *b)
{
    for (int i = b->n_running - 1; i >= 0; i--) {
        struct run *r = b->running[i];
        if (r->t->finish == TURN_RUNNING)
            continue;
        running_remove(b, r);
        if (r->t->finish == TURN_FAILED)
            run_abandon(r);
        run_end(b, r);
    }
}

static void end_canceled(struct batch *b)
{
    for (int i = 0; i < b->n_running; i++)
        if (turn_is_canceled(b->running[i]->t))
            b->running[i]->t->finish = TURN_CANCELED;
    end_finished(b);
    struct run **at = &b->waiting;
    while (*at) {
        if (!turn_is_canceled((*at)->t)) {
            at = &(*at)->next;
            continue;
        }
        struct run *r = wait_take(b, at);
        r->t->finish = TURN_CANCELED;
        run_end(b, r);
    }
}

void batch_wake(struct batch *b)
{
    b->is_full = false;
}

void batch_stop(struct batch *b)
{
    end_canceled(b);
    for (int i = 0; i < b->n_running; i++) {
        struct turn *t = b->running[i]->t;
        turn_fail(t, 503, "stopping", "the daemon is stopping; the answer ends here");
        run_leave(b->running[i]); /* what it has computed is sound, unlike that of other failures */
    }
    end_finished(b);
    while (b->waiting) {
        struct run *r = wait_take(b, &b->waiting);
        turn_fail(r->t, 503, "stopping", "the daemon is stopping");
        run_end(b, r);
    }
    count_queue(b);
}

/* ---- admitting and yielding ---- */

/* Who is admitted next: the first that somebody waits for; else, when nothing runs, one of ours.
 * NULL: nobody now. */
static struct run **next_of_queue(struct batch *b)
{
    struct run **at = &b->waiting;
    while (*at && (*at)->t->is_background)
        at = &(*at)->next;
    if (*at)
        return at;
    return b->waiting && b->n_running == 0 ? &b->waiting : NULL;
}

static void admit(struct batch *b)
{
    struct run **at;
    while (b->n_running < b->parallel && !b->is_full && (at = next_of_queue(b))) {
        struct err e;
        struct run *r = *at;
        int rc = run_start(r, b->cache, &e);
        if (rc == ERR_NOMEM && (b->n_running > 0 || cache_is_busy(b->cache))) {
            b->is_full = true; /* until one of them ends, or the disk gives back what it holds */
            return;
        }
        wait_take(b, at);
        if (rc == 0) {
            running_insert(b, r);
            continue;
        }
        turn_fail(r->t, 503, "out_of_memory", "no room for the turn: %s", e.text);
        run_end(b, r);
    }
}

/* Somebody waits or runs beside it: a background run lets go. */
static void stand_back(struct batch *b)
{
    bool has_waiting = false;
    for (const struct run *r = b->waiting; r && !has_waiting; r = r->next)
        has_waiting = !r->t->is_background;
    if (!has_waiting)
        return;
    for (int i = b->n_running - 1; i >= 0; i--) {
        struct run *r = b->running[i];
        if (!r->t->is_background)
            continue;
        running_remove(b, r);
        r->t->stats.n_yields++;
        run_leave(r);
        wait_push_tail(b, r);
    }
}

static void yield(struct batch *b, struct run *r)
{
    running_remove(b, r);
    r->t->stats.n_yields++;
    run_leave(r);
    wait_push_head(b, r);
}

/* Blocks for the rows of the pass, from oldest to youngest; who finds none turns the youngest out.
 */
static void reserve(struct batch *b)
{
    for (int i = 0; i < b->n_running; i++) {
        struct run *r = b->running[i];
        struct err e;
        while (r->n_rows > 0 && cache_reserve(r->lease, r->n_rows, &e)) {
            struct run *youngest = b->running[b->n_running - 1];
            if (b->n_running == 1 && cache_is_busy(b->cache)) {
                r->n_rows = 0; /* the disk holds blocks, for a moment */
                break;
            }
            if (b->n_running == 1) { /* not for lack of blocks: the pool holds one turn's window */
                turn_fail(r->t, 503, "out_of_memory", "no room for the turn: %s", e.text);
                r->n_rows = 0;
                break;
            }
            yield(b, youngest);
            if (youngest == r)
                break;
        }
    }
}

/* ---- planning a pass ---- */

/* Whether r should wait until `older` has computed what both begin with. */
static bool shares_with(const struct run *r, const struct run *older)
{
    if (run_pending(older) <= 1 || !older->t->params.use_cache ||
        memcmp(&r->root, &older->root, sizeof r->root) != 0)
        return false;
    int common = (int)ids_common(r->ids.v, r->ids.n - 1, older->ids.v, older->ids.n);
    /* The older one publishes whole blocks; of the block in which they part, its first positions
     * serve too. */
    int published = (common + KV_BLOCK - 1) / KV_BLOCK * KV_BLOCK;
    if (published > (int)older->ids.n - 1)
        published -= KV_BLOCK;
    int gain = (common < published ? common : published) - run_seq(r)->n_tokens;
    return gain >= KV_BLOCK && run_seq(older)->n_tokens < published;
}

static void look_around(struct batch *b)
{
    for (int i = 0; i < b->n_running; i++) {
        struct run *r = b->running[i];
        r->is_awaiting = run_is_restoring(r);
        if (r->is_awaiting || run_pending(r) <= 1 || !r->t->params.use_cache)
            continue;
        run_find(r);
        for (int k = 0; k < i && !r->is_awaiting; k++)
            r->is_awaiting = shares_with(r, b->running[k]);
        if (!r->is_awaiting)
            r->is_awaiting = run_restore(r);
    }
}

#define OLDEST_EVERY 4 /* passes with prefill rows */

static bool is_decoding(const struct run *r)
{
    return !r->is_awaiting && run_pending(r) == 1;
}

/* Of the prefilling runs that have no rows yet: the oldest, or the one with the least to read. */
static struct run *next_prompt(const struct batch *b, bool is_oldest_first)
{
    struct run *best = NULL;
    for (int i = 0; i < b->n_running; i++) {
        struct run *r = b->running[i];
        if (r->n_rows > 0 || r->is_awaiting)
            continue;
        if (!best || (!is_oldest_first && run_pending(r) < run_pending(best)))
            best = r;
    }
    return best;
}

static void plan_prompts(struct batch *b, double us)
{
    bool is_oldest_first = b->n_prefills % OLDEST_EVERY == OLDEST_EVERY - 1;
    int left = PACE_ROWS_MAX;
    struct run *r;
    while (left > 0 && us > 0 && (r = next_prompt(b, is_oldest_first))) {
        const int depth = run_seq(r)->n_tokens, n_pending = run_pending(r);
        r->n_rows = pace_rows(&b->pace, us, depth, n_pending < left ? n_pending : left);
        if (r->n_rows == 0)
            return; /* the others don't spend what it saves up */
        left -= r->n_rows;
        us -= pace_rows_us(&b->pace, depth, r->n_rows);
        if (r->n_rows < n_pending)
            return; /* what is left isn't worth another's rows */
        is_oldest_first = false;
    }
}

/* Decoding rows first, each turn's one; then prompts. */
static void plan(struct batch *b)
{
    uint64_t answers = 0;
    int n_prompts = 0;
    for (int i = 0; i < b->n_running; i++) {
        struct run *r = b->running[i];
        r->n_rows = is_decoding(r);
        r->n_drafts = 0;
        n_prompts += r->n_rows == 0 && !r->is_awaiting;
        if (r->n_rows > 0)
            answers = (answers ^ (r->order + 1)) * 0x9e3779b97f4a7c15u;
    }
    plan_prompts(b, pace_begin(&b->pace, answers, n_prompts > 0));
}

/* Who answers alone may draft, also while a prompt is read. Beside other answers, rows that may be
 * for nothing cost them. A draft takes no room from anybody. */
static void draft(struct batch *b)
{
    double cost[1 + LOOKUP_DRAFT_MAX];
    struct run *r = NULL;
    struct err e;
    int n_decoding = 0;
    for (int i = 0; i < b->n_running; i++) {
        if (b->running[i]->n_rows == 0 || !is_decoding(b->running[i]))
            continue;
        r = b->running[i];
        n_decoding++;
    }
    if (n_decoding != 1 || r->t->out.n == 0)
        return;
    run_draft(r, pace_drafts(&b->pace, run_seq(r)->n_tokens, cost) ? cost : NULL);
    if (r->n_drafts > 0 && cache_reserve(r->lease, 1 + r->n_drafts, &e))
        r->n_drafts = 0;
}

/* ---- the pass ---- */

/* Of all rows: before the pass, which moves them. */
static double mean_depth(const struct engine_part *parts, int n)
{
    double n_rows = 0, sum = 0;
    for (int i = 0; i < n; i++) {
        n_rows += parts[i].n_ids;
        sum += parts[i].n_ids * (parts[i].seq->n_tokens + (parts[i].n_ids - 1) / 2.0);
    }
    return n_rows > 0 ? sum / n_rows : 0;
}

/* What is planned, as parts, and what it is, for the measure. */
static int fill_parts(struct batch *b, struct engine_part *parts, struct pace_pass *ret)
{
    int n = 0;
    *ret = (struct pace_pass){0};
    for (int i = 0; i < b->n_running; i++) {
        struct run *r = b->running[i];
        if (r->n_rows == 0)
            continue;
        bool is_last = r->n_rows == run_pending(r);
        if (r->n_rows == 1 && is_last) {
            ret->n_decoding++;
            ret->answer_depth = run_seq(r)->n_tokens;
        } else {
            ret->n_prefill += r->n_rows;
            ret->rows_us += pace_rows_us(&b->pace, run_seq(r)->n_tokens, r->n_rows);
        }
        ret->n_drafts += r->n_drafts;
        parts[n++] = (struct engine_part){
            .seq = run_seq(r),
            .ids = r->n_drafts ? r->row_ids : r->ids.v + run_seq(r)->n_tokens,
            .n_ids = r->n_rows + r->n_drafts,
            .n_logits = is_last && !turn_is_warming(r->t) ? 1 + r->n_drafts : 0,
            .logits = r->logits,
        };
    }
    ret->depth = mean_depth(parts, n);
    return n;
}

/* Draws before it publishes: blocks of a turn whose logits are unusable don't enter the tree. */
static void after_pass(struct batch *b)
{
    for (int i = 0; i < b->n_running; i++) {
        struct run *r = b->running[i];
        if (r->n_rows == 0)
            continue;
        if (run_pending(r) + r->n_drafts == 0)
            run_draw(r);
        if (r->t->finish == TURN_FAILED)
            continue;
        run_publish(r, (int64_t)b->pace.row_us);
        run_flush(r);
    }
    end_finished(b);
}

static void fail_pass(struct batch *b, const struct err *e)
{
    log_error("a pass failed: %s", e->text);
    for (int i = 0; i < b->n_running; i++)
        if (b->running[i]->n_rows > 0)
            turn_fail(b->running[i]->t, 500,
                      e->code == ERR_NOMEM ? "out_of_memory" : "engine_error",
                      "the engine failed: %s", e->text);
    end_finished(b);
}

static bool any_stays(const struct batch *b)
{
    for (int i = 0; i < b->n_running; i++)
        if (b->running[i]->n_rows > 0 && !turn_is_canceled(b->running[i]->t))
            return true;
    return false;
}

static void pass(struct batch *b)
{
    struct engine_part parts[LIMIT_PARALLEL];
    struct pace_pass shape;
    struct err e;
    int n = fill_parts(b, parts, &shape);
    const atomic_int *abort_flag = b->must_end ? NULL : &b->d->pass_abort;
    b->must_end = false;
    if (n == 0) {
        b->is_stalled = cache_is_busy(b->cache);
        return;
    }
    int64_t t0 = clock_us(), cpu0 = clock_cpu_us();
    int rc = engine_pass(b->engine, parts, n, abort_flag, &e);
    shape.cpu_us = clock_cpu_us() - cpu0;
    if (rc == ERR_CANCELED) {
        b->must_end = any_stays(b);
        return; /* the next step ends who has gone, and runs the others' rows again */
    }
    if (rc) {
        fail_pass(b, &e);
        return;
    }
    b->n_prefills += shape.n_prefill > 0;
    after_pass(b);
    shape.us = clock_us() - t0;
    pace_measure(&b->pace, &shape);
}

void batch_step(struct batch *b)
{
    b->is_stalled = false;
    atomic_store(&b->d->pass_abort, 0); /* before the flags are read: worker.h */
    end_canceled(b);
    stand_back(b);
    admit(b);
    look_around(b);
    plan(b);
    reserve(b);
    draft(b);
    count_queue(b);
    pass(b);
    end_finished(b);
    count_queue(b);
}
