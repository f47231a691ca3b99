/*
 * What a replay measured, for people (a table), for programs (JSON) and for spreadsheets (CSV).
 * What the server didn't tell is "-", null and empty: never 0.
 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "client/replay.h"
#include "client/term.h"

#define TABLE_MAX ((size_t)16 << 20)
#define RESULT_VERSION 1

/* ---- the table ---- */

static const char *count_text(int64_t n, char ret[24])
{
    if (n == REPLAY_UNKNOWN)
        return "-";
    snprintf(ret, 24, "%lld", (long long)n);
    return ret;
}

static void add_count(struct buf *b, int width, int64_t n)
{
    char text[24];
    buf_printf(b, " %*s", width, count_text(n, text));
}

static void add_number(struct buf *b, int width, int digits, double x)
{
    if (isnan(x))
        buf_printf(b, " %*s", width, "-");
    else
        buf_printf(b, " %*.*f", width, digits, x);
}

static void add_row(struct buf *b, const char *name, const struct replay_sum *s)
{
    buf_printf(b, "%-5s %4zu", name, s->n);
    add_count(b, 8, s->prompt);
    add_count(b, 8, s->cached);
    add_number(b, 5, 1, 100 * s->hit_rate);
    add_count(b, 8, s->ram);
    add_count(b, 7, s->disk);
    add_count(b, 7, s->shared);
    add_count(b, 8, s->computed);
    add_number(b, 8, s->ttft_p50_ms < 10 ? 1 : 0, s->ttft_p50_ms);
    add_number(b, 8, s->ttft_p95_ms < 10 ? 1 : 0, s->ttft_p95_ms);
    add_number(b, 6, 1, s->tokens_per_s);
    add_number(b, 7, 1, s->saved_ms / 1e3);
    buf_char(b, '\n');
}

static void add_rows(const struct replay *r, struct buf *b, struct err *e)
{
    size_t last = replay_last_turn(r->turns, r->n_turns);
    struct replay_sum s;
    for (size_t turn = 1; turn <= last + 1; turn++) {
        char name[24] = "all";
        if (turn <= last)
            snprintf(name, sizeof name, "%zu", turn);
        if (replay_sum(r->turns, r->n_turns, turn <= last ? turn : 0, &s, e)) {
            b->error = e->code;
            return;
        }
        if (s.n)
            add_row(b, name, &s);
    }
}

int replay_print_table(const struct replay *r)
{
    struct err e = {0};
    struct buf b;
    if (!r->n_turns)
        return 0;
    buf_init(&b, TABLE_MAX);
    buf_printf(&b, "%-5s %4s %8s %8s %5s %8s %7s %7s %8s %17s %6s %7s\n", "", "", "tokens", "", "",
               "of these", "", "", "", "TTFT, ms", "", "saved");
    buf_printf(&b, "%-5s %4s %8s %8s %5s %8s %7s %7s %8s %8s %8s %6s %7s\n", "turn", "n", "prompt",
               "cached", "%", "ram", "disk", "shared", "computed", "p50", "p95", "tok/s", "s");
    add_rows(r, &b, &e);
    if (r->n_restarts)
        buf_printf(&b, "%zu restart%s of the daemon\n", r->n_restarts,
                   r->n_restarts == 1 ? "" : "s");
    if (r->n_refused)
        buf_printf(&b, "%zu conversation%s refused before the end\n", r->n_refused,
                   r->n_refused == 1 ? " was" : "s were");
    int failed = buf_error(&b);
    if (!failed)
        term_write(stdout, b.data, b.len);
    buf_done(&b);
    if (failed)
        return api_fail(r->client, EXIT_REFUSED, err_name(failed), "the table can't be written: %s",
                        err_name(failed));
    return term_flush() ? 0 : EXIT_REFUSED; /* term_end says why */
}

/* ---- JSON ---- */

static void set_count(json *j, const char *key, int64_t n)
{
    if (n == REPLAY_UNKNOWN)
        json_set_null(j, key);
    else
        json_set_int(j, key, n);
}

static void set_us_as_ms(json *j, const char *key, int64_t us)
{
    json_set_num(j, key, us == REPLAY_UNKNOWN ? NAN : (double)us / 1e3);
}

static json *turn_json(const struct replay_turn *t)
{
    json *j = json_object();
    json_set_int(j, "conversation", (int64_t)t->conversation);
    json_set_int(j, "turn", (int64_t)t->turn);
    json_set_int(j, "restarts", (int64_t)t->restarts);
    json_set_bool(j, "restored", t->is_restored);
    set_count(j, "prompt_tokens", t->prompt);
    set_count(j, "cached_tokens", t->cached);
    set_count(j, "ram_tokens", t->ram);
    set_count(j, "disk_tokens", t->disk);
    set_count(j, "shared_tokens", t->shared);
    set_count(j, "computed_tokens", t->computed);
    set_count(j, "written_tokens", t->written);
    set_us_as_ms(j, "ttft_ms", t->ttft_us);
    set_us_as_ms(j, "decode_ms", t->decode_us);
    set_us_as_ms(j, "total_ms", t->total_us);
    json_set_num(j, "saved_ms", t->saved_ms);
    json_set_str(j, "finish_reason", t->finish);
    json_set_str(j, "answer_hash", t->answer);
    return j;
}

static json *sum_json(const struct replay_sum *s)
{
    json *j = json_object();
    json_set_int(j, "n", (int64_t)s->n);
    set_count(j, "prompt_tokens", s->prompt);
    set_count(j, "cached_tokens", s->cached);
    set_count(j, "ram_tokens", s->ram);
    set_count(j, "disk_tokens", s->disk);
    set_count(j, "shared_tokens", s->shared);
    set_count(j, "computed_tokens", s->computed);
    set_count(j, "written_tokens", s->written);
    json_set_num(j, "hit_rate", s->hit_rate);
    json_set_num(j, "ttft_p50_ms", s->ttft_p50_ms);
    json_set_num(j, "ttft_p95_ms", s->ttft_p95_ms);
    json_set_num(j, "tokens_per_s", s->tokens_per_s);
    json_set_num(j, "saved_ms", s->saved_ms);
    return j;
}

static json *options_json(const struct replay_options *o)
{
    json *j = json_object();
    json_set_int(j, "interleave", o->interleave);
    json_set_int(j, "max_tokens", o->max_tokens);
    json_set_int(j, "restart_every", o->restart_every);
    json_set_int(j, "pause_s", o->pause_s);
    json_set_bool(j, "kill", o->is_kill);
    json_set_bool(j, "teacher", o->is_teacher);
    json_set_bool(j, "cache", !o->has_no_cache);
    if (o->context)
        json_set_str(j, "context", o->context);
    return j;
}

static void add_sums(json *j, const struct replay *r, struct err *e)
{
    struct replay_sum s;
    size_t last = replay_last_turn(r->turns, r->n_turns);
    json *by_turn = json_set(j, "by_turn", json_array());
    for (size_t turn = 1; turn <= last && !e->code; turn++) {
        if (replay_sum(r->turns, r->n_turns, turn, &s, e))
            return;
        json *row = json_add(by_turn, sum_json(&s));
        json_set_int(row, "turn", (int64_t)turn);
    }
    if (!replay_sum(r->turns, r->n_turns, 0, &s, e))
        json_set(j, "total", sum_json(&s));
}

int replay_json(const struct replay *r, bool is_whole, json **ret)
{
    struct err e = {0};
    json *j = json_object();
    json_set_str(j, "object", "hearth.replay");
    json_set_int(j, "version", RESULT_VERSION);
    json_set_bool(j, "whole", is_whole);
    json_set(j, "options", options_json(&r->options));
    json_set_int(j, "restarts", (int64_t)r->n_restarts);
    json_set_int(j, "refused", (int64_t)r->n_refused);
    json *list = json_set(j, "conversations", json_array());
    for (size_t i = 0; i < r->n_entries; i++) {
        const char *name = r->entries[i].recorded.name;
        json *entry = json_add(list, json_object());
        json_set_str(entry, "from", r->entries[i].where);
        if (name)
            json_set_str(entry, "name", name);
    }
    add_sums(j, r, &e);
    list = json_set(j, "turns", json_array());
    for (size_t i = 0; i < r->n_turns; i++)
        json_add(list, turn_json(&r->turns[i]));
    if (!e.code) {
        *ret = j;
        return 0;
    }
    json_free(j);
    return api_fail(r->client, EXIT_REFUSED, err_name(e.code), "%s", e.text);
}

/* ---- CSV ---- */

static void csv_count(struct buf *b, int64_t n)
{
    char text[24];
    buf_printf(b, ",%s", n == REPLAY_UNKNOWN ? "" : count_text(n, text));
}

static void csv_ms(struct buf *b, int64_t us)
{
    if (us == REPLAY_UNKNOWN)
        buf_char(b, ',');
    else
        buf_printf(b, ",%.3f", (double)us / 1e3);
}

/* A server's word: nothing that a spreadsheet would take for more than one. */
static void csv_word(struct buf *b, const char *s)
{
    buf_char(b, ',');
    for (; *s; s++)
        buf_char(b, strchr(",\"\r\n=+-@\t", *s) ? '_' : *s);
}

void replay_csv(const struct replay *r, struct buf *b)
{
    buf_str(b,
            REPLAY_CSV_BEGIN "restarts,restored,prompt_tokens,cached_tokens,ram_tokens,disk_tokens,"
                             "shared_tokens,computed_tokens,written_tokens,ttft_ms,decode_ms,"
                             "total_ms,saved_ms,finish_reason,answer_hash\n");
    for (size_t i = 0; i < r->n_turns; i++) {
        const struct replay_turn *t = &r->turns[i];
        buf_printf(b, "%zu,%zu,%zu,%d", t->conversation, t->turn, t->restarts, t->is_restored);
        const int64_t counts[] = {t->prompt, t->cached,   t->ram,    t->disk,
                                  t->shared, t->computed, t->written};
        for (size_t k = 0; k < sizeof counts / sizeof *counts; k++)
            csv_count(b, counts[k]);
        csv_ms(b, t->ttft_us);
        csv_ms(b, t->decode_us);
        csv_ms(b, t->total_us);
        if (isnan(t->saved_ms))
            buf_char(b, ',');
        else
            buf_printf(b, ",%.3f", t->saved_ms);
        csv_word(b, t->finish);
        buf_printf(b, ",%s\n", t->answer);
    }
}
