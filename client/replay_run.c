/*
 * Turns, in turn: N conversations are open, each gives one question, then the next one does. A
 * conversation that is over makes room for the next of the files.
 *
 *      slot 0   A1       A2       D1 …        A, B, C, D: conversations
 *      slot 1      B1       B2       B3 …     one request at a time
 *      slot 2         C1       –     – …
 *
 * The history that is sent is the record's questions with the model's own answers, or the recorded
 * ones (teacher). Time to first token is from before the request to the first text of the answer.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/hash.h"
#include "client/replay.h"
#include "client/term.h"

#define BAR_CELLS 24

/* An open conversation. */
struct slot {
    const struct replay_entry *entry; /* NULL: free */
    size_t at;                        /* its next message */
    size_t turn;                      /* played so far */
    size_t restarts;                  /* when that was */
    json *messages;                   /* what has been sent and answered */
};

/* An answer on its way. */
struct playing {
    struct replay_turn t;
    struct buf answer;
    int64_t begun_us, first_us, last_us; /* first, last: 0 before any text */
};

/* ---- progress ---- */

static void show_progress(const struct replay *r)
{
    char what[160], bar[BAR_CELLS * 3 + 1];
    size_t n_bar = 0;
    double done = (double)r->n_turns / (double)(r->n_planned ? r->n_planned : 1);
    for (int i = 0; i < BAR_CELLS; i++) {
        const char *cell = i < (int)(done * BAR_CELLS) ? "█" : "░";
        memcpy(bar + n_bar, cell, strlen(cell));
        n_bar += strlen(cell);
    }
    bar[n_bar] = 0;
    const struct replay_turn *last = r->n_turns ? &r->turns[r->n_turns - 1] : NULL;
    if (last && last->ttft_us >= 0)
        snprintf(what, sizeof what, "%s %zu of %zu turns, last %.0f ms", bar, r->n_turns,
                 r->n_planned, (double)last->ttft_us / 1e3);
    else
        snprintf(what, sizeof what, "%s %zu of %zu turns", bar, r->n_turns, r->n_planned);
    term_progress(what, done);
}

/* ---- the reply ---- */

/* A count, if it is there. */
static void take_count(int64_t *to, const json *object, const char *key)
{
    const json *j = json_get(object, key, NULL);
    struct err e;
    int64_t n;
    if (j && !json_int(j, key, 0, JSON_INT_MAX, &n, &e))
        *to = n;
}

/*
 * Three accounts of what was cached, the best last: usage's (OpenAI), timings' (llama-server:
 * prompt_n are the tokens it computed), and hearth's, which knows the source.
 */
static void take_accounts(struct replay_turn *t, const json *data)
{
    const json *usage = json_get(data, "usage", NULL), *timings = json_get(data, "timings", NULL),
               *cache = json_get(json_get(data, "hearth", NULL), "cache", NULL);
    take_count(&t->prompt, usage, "prompt_tokens");
    take_count(&t->written, usage, "completion_tokens");
    take_count(&t->cached, json_get(usage, "prompt_tokens_details", NULL), "cached_tokens");
    take_count(&t->cached, timings, "cache_n");
    take_count(&t->computed, timings, "prompt_n");
    take_count(&t->cached, cache, "tokens");
    take_count(&t->ram, cache, "ram");
    take_count(&t->disk, cache, "disk");
    take_count(&t->shared, cache, "shared");
    take_count(&t->computed, cache, "computed");
    if (json_type(json_get(cache, "saved_ms", NULL)) == JSON_NUMBER)
        t->saved_ms = json_double(json_get(cache, "saved_ms", NULL));
}

/* What thinks aloud writes too: reasoning is no part of the answer, but the first token may be. */
static void take_text(struct playing *p, const json *delta)
{
    const char *text = json_str(json_get(delta, "content", NULL)),
               *thought = json_str(json_get(delta, "reasoning_content", NULL));
    bool has_text = (text && *text) || (thought && *thought);
    if (!has_text)
        return;
    p->last_us = clock_us();
    if (!p->first_us)
        p->first_us = p->last_us;
    if (text)
        buf_str(&p->answer, text);
}

static int on_event(void *ctx, const char *event, const json *data)
{
    (void)event;
    struct playing *p = ctx;
    const json *choice = json_first(json_get(data, "choices", NULL));
    const char *finish = json_str(json_get(choice, "finish_reason", NULL));
    take_text(p, json_get(choice, "delta", NULL));
    if (finish)
        snprintf(p->t.finish, sizeof p->t.finish, "%.*s", (int)sizeof p->t.finish - 1, finish);
    take_accounts(&p->t, data);
    return 0;
}

/* ---- a turn ---- */

static json *request_body(const struct replay_options *o, const json *messages)
{
    json *body = json_object();
    json_set_str(body, "model", o->model ? o->model : "default");
    json_set(body, "messages", json_copy(messages));
    json_set_int(body, "max_tokens", o->max_tokens);
    json_set_num(body, "temperature", 0);
    json_set_bool(body, "stream", true);
    json_set_bool(json_set(body, "stream_options", json_object()), "include_usage", true);
    json *hearth = o->has_no_cache || o->context ? json_set(body, "hearth", json_object()) : NULL;
    if (o->has_no_cache)
        json_set_bool(hearth, "cache", false);
    if (o->context)
        json_set_str(hearth, "context", o->context);
    return body;
}

static void add_message(json *messages, enum replay_role role, const char *text)
{
    json *m = json_add(messages, json_object());
    json_set_str(m, "role", replay_role_name(role));
    json_set_str(m, "content", text);
}

/* Messages [from, to) of the record. */
static void add_recorded(struct slot *s, size_t from, size_t to)
{
    const struct replay_message *m = s->entry->recorded.messages;
    for (size_t i = from; i < to; i++)
        add_message(s->messages, m[i].role, m[i].text);
}

/* What follows from the times and the text. */
static void complete(struct playing *p, int64_t ended_us)
{
    struct replay_turn *t = &p->t;
    uint8_t hash[HASH_BYTES];
    if (t->cached == REPLAY_UNKNOWN && t->computed != REPLAY_UNKNOWN && t->prompt >= t->computed)
        t->cached = t->prompt - t->computed;
    if (t->computed == REPLAY_UNKNOWN && t->cached != REPLAY_UNKNOWN && t->prompt >= t->cached)
        t->computed = t->prompt - t->cached;
    t->ttft_us = p->first_us ? p->first_us - p->begun_us : REPLAY_UNKNOWN;
    t->decode_us = p->last_us - p->first_us;
    t->total_us = ended_us - p->begun_us;
    hash_of(p->answer.data, p->answer.len, hash);
    hex_write(hash, 8, t->answer);
}

static void playing_init(struct playing *p, const struct replay *r, const struct slot *s)
{
    *p = (struct playing){.t = {.conversation = (size_t)(s->entry - r->entries) + 1,
                                .turn = s->turn + 1,
                                .restarts = r->n_restarts,
                                .is_restored = s->turn && s->restarts != r->n_restarts,
                                .prompt = REPLAY_UNKNOWN,
                                .cached = REPLAY_UNKNOWN,
                                .ram = REPLAY_UNKNOWN,
                                .disk = REPLAY_UNKNOWN,
                                .shared = REPLAY_UNKNOWN,
                                .computed = REPLAY_UNKNOWN,
                                .written = REPLAY_UNKNOWN,
                                .saved_ms = NAN}};
    buf_init(&p->answer, WIRE_BODY_MAX);
    buf_str(&p->answer, "");
}

/* Sends the slot's messages. *ret_status: of the reply. 0 or an exit code after having said why. */
static int ask(const struct replay *r, const struct slot *s, struct playing *p, int *ret_status)
{
    struct api_stream stream = {.path = "/v1/chat/completions",
                                .body = request_body(&r->options, s->messages),
                                .on_event = on_event,
                                .ctx = p};
    p->begun_us = clock_us();
    int code = api_stream(r->client, &stream);
    int64_t ended_us = clock_us();
    *ret_status = stream.status;
    if (code)
        return code;
    if (!p->t.finish[0])
        return api_fail(r->client, EXIT_REFUSED, "broke_off", "the answer broke off");
    if (buf_error(&p->answer))
        return api_fail(r->client, EXIT_REFUSED, "nomem", "an answer can't be kept: %s",
                        err_name(buf_error(&p->answer)));
    complete(p, ended_us);
    return 0;
}

static void close_slot(struct slot *s)
{
    json_free(s->messages);
    *s = (struct slot){0};
}

/* After an answer: it is kept, and the conversation goes on or is over. */
static void go_on(struct replay *r, struct slot *s, const struct playing *p, size_t answer)
{
    const struct replay_conversation *c = &s->entry->recorded;
    size_t next = replay_answer_end(c, answer);
    r->turns[r->n_turns++] = p->t;
    if (r->options.is_teacher && next > answer)
        add_recorded(s, answer, next);
    else
        add_message(s->messages, REPLAY_ASSISTANT, p->answer.data);
    s->at = next;
    s->turn++;
    s->restarts = r->n_restarts;
    bool is_enough = r->options.turns && s->turn >= (size_t)r->options.turns;
    if (is_enough || !replay_question_end(c, s->at))
        close_slot(s);
}

/* Whether a refusal is of this conversation (too long, say), and not of all. */
static bool is_of_the_request(int status)
{
    return status == 400 || status == 413 || status == 422;
}

/* The planned turns that a refused conversation will not have. */
static size_t turns_of(const struct replay *r, const struct replay_entry *e)
{
    size_t n = e->recorded.n_turns, max = (size_t)r->options.turns;
    return max && n > max ? max : n;
}

static int play_turn(struct replay *r, struct slot *s)
{
    struct playing p;
    int status;
    size_t answer = replay_question_end(&s->entry->recorded, s->at);
    add_recorded(s, s->at, answer);
    playing_init(&p, r, s);
    show_progress(r);
    int code = ask(r, s, &p, &status);
    if (!code) {
        go_on(r, s, &p, answer);
    } else if (code != EXIT_INTERRUPTED) {
        term_progress_end();
        fprintf(stderr, "hearth: that was turn %zu of ", s->turn + 1);
        term_line(stderr, s->entry->where, 80);
        fputs(is_of_the_request(status) ? ", which ends here\n" : "\n", stderr);
    }
    if (code && is_of_the_request(status)) {
        r->n_refused++;
        r->n_planned -= turns_of(r, s->entry) - s->turn;
        close_slot(s);
        code = 0;
    }
    buf_done(&p.answer);
    return code;
}

/* ---- all of them ---- */

static int restart(struct replay *r)
{
    if (r->options.pause_s) {
        term_progress("pausing", -1);
        if (wire_pause(r->client->wire, (int)r->options.pause_s * 1000))
            return EXIT_INTERRUPTED;
    }
    r->n_restarts++;
    return replay_daemon_restart(r->daemon, r->options.is_kill);
}

static bool is_restart_due(const struct replay *r)
{
    size_t every = (size_t)r->options.restart_every;
    return every && r->n_turns && r->n_turns / every > r->n_restarts;
}

static int play_slots(struct replay *r, struct slot *slots, size_t n)
{
    size_t next = 0, n_free = 0;
    int code = 0;
    for (size_t i = 0; !code && n_free < n; i = (i + 1) % n) {
        struct slot *s = &slots[i];
        if (!s->entry && next < r->n_entries) {
            s->entry = &r->entries[next++];
            s->messages = json_array();
        }
        n_free = s->entry ? 0 : n_free + 1;
        if (s->entry && is_restart_due(r))
            code = restart(r);
        if (s->entry && !code)
            code = play_turn(r, s);
    }
    return code;
}

int replay_play(struct replay *r)
{
    size_t n = (size_t)r->options.interleave;
    r->n_planned = 0;
    for (size_t i = 0; i < r->n_entries; i++)
        r->n_planned += turns_of(r, &r->entries[i]);
    struct slot *slots = calloc(n, sizeof *slots);
    r->turns = calloc(r->n_planned ? r->n_planned : 1, sizeof *r->turns);
    int code = slots && r->turns ? play_slots(r, slots, n)
                                 : api_fail(r->client, EXIT_REFUSED, "nomem", "out of memory");
    for (size_t i = 0; slots && i < n; i++)
        close_slot(&slots[i]);
    free(slots);
    term_progress_end();
    return code;
}
