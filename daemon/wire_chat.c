/*
 * OpenAI's chat completions and completions, stream and whole. Both have one shape; they differ in
 * the object's name and in what a choice holds:
 *
 *                 whole                                   stream
 *   chat          "message": {"role", "content"}          "delta": {"role" | "content"}
 *   completion    "text"                                  "text"
 *
 * Streams are `data:` lines only: a first chunk at once (role, receipt), one a piece of text, one
 * with finish_reason and the whole `hearth` object, one with `usage` and no choices when asked for,
 * then [DONE]. An error after the first byte is a last {"error": …, "hearth": …} without [DONE].
 */
#include "daemon/wire.h"

#include <string.h>

#include "base/sse.h"

/* ---- the `hearth` object: every format's ---- */

double wire_ms(int64_t us)
{
    return (double)us / 1000.0;
}

static double per_second(int64_t n, int64_t us)
{
    return us > 0 && n > 0 ? (double)((int64_t)((double)n * 1e7 / (double)us)) / 10.0 : 0;
}

/* Of a long list its ends, and how long it is. */
void wire_set_changes(json *o, const char *key, const struct turn_changes *list)
{
    json *v = json_set(o, key, json_array());
    const size_t n_all = list->n + list->n_untold, n_end = TURN_CHANGES_END;
    const bool is_long = n_all > 2 * n_end;
    for (size_t i = 0; i < list->n; i++) {
        if (is_long && i == n_end)
            i = list->n - n_end;
        json *change = json_add(v, json_object());
        json_set_str(change, "id", list->v[i].id);
        json_set_int(change, "tokens", list->v[i].tokens);
    }
    if (!is_long)
        return;
    const json *known = json_get(o, "shortened", NULL);
    json *shortened = known ? (json *)known : json_set(o, "shortened", json_object());
    json_set_int(shortened, key, (int64_t)n_all);
}

static json *receipt_of(const struct turn *t)
{
    const struct turn_receipt *r = &t->receipt;
    json *o = json_object();
    json_set_str(o, "strategy",
                 plan_strategy_name(t->params.context ? t->params.context : PLAN_ERROR));
    json_set_int(o, "limit", r->limit);
    json_set_int(o, "used", r->used);
    json_set_int(o, "reserved", r->reserved);
    wire_set_changes(o, "dropped", &r->dropped);
    wire_set_changes(o, "summarised", &r->summarised);
    wire_set_changes(o, "recalled_new", &r->recalled_new);
    wire_set_changes(o, "recalled_kept", &r->recalled_kept);
    wire_set_changes(o, "pinned", &r->pinned);
    json_set_int(o, "before", r->before);
    if (r->n_above > 0)
        json_set_int(o, "above", (int64_t)r->n_above);
    json_set_int(o, "after", r->after);
    json_set_int(o, "prefix_kept", r->prefix_kept);
    json_set_int(o, "prefix_lost", r->prefix_lost);
    if (r->is_live_cut || r->is_ahead_cut)
        json_set_str(o, "cut", r->is_live_cut ? "live" : "ahead");
    if (r->is_recall_partial)
        json_set_bool(o, "recall_partial", true);
    if (r->edits_unread > 0)
        json_set_int(o, "edits_unread", r->edits_unread);
    return o;
}

static json *cache_of(const struct turn *t)
{
    const struct turn_stats *s = &t->stats;
    json *o = json_object();
    json_set_int(o, "tokens", s->n_cached);
    json_set_int(o, "ram", s->n_ram);
    json_set_int(o, "disk", s->n_disk);
    json_set_int(o, "shared", s->n_shared);
    json_set_int(o, "computed", s->n_computed);
    json_set_num(o, "saved_ms", wire_ms(s->saved_us));
    if (!s->miss_reason) {
        json_set_null(o, "miss");
        return o;
    }
    json *miss = json_set(o, "miss", json_object());
    json_set_str(miss, "reason", s->miss_reason);
    if (s->miss_at_message < 0)
        json_set_null(miss, "at_message");
    else
        json_set_int(miss, "at_message", s->miss_at_message);
    if (s->miss_message[0])
        json_set_str(miss, "message", s->miss_message);
    return o;
}

static json *timings_of(const struct turn *t)
{
    const struct turn_stats *s = &t->stats;
    int64_t t_first = s->t_first ? s->t_first : s->t_ended;
    json *o = json_object();
    json_set_num(o, "queue_ms", s->t_started ? wire_ms(s->t_started - s->t_arrived) : 0);
    json_set_num(o, "plan_ms", wire_ms(s->plan_us));
    json_set_num(o, "restore_ms", wire_ms(s->restore_us));
    json_set_num(o, "prefill_ms", wire_ms(s->prefill_us));
    json_set_num(o, "ttft_ms", t_first ? wire_ms(t_first - s->t_arrived) : 0);
    json_set_num(o, "decode_ms", wire_ms(s->decode_us));
    json_set_num(o, "prefill_tps", per_second(s->n_computed, s->prefill_us));
    json_set_int(o, "drafted", s->n_drafted);
    json_set_int(o, "accepted", s->n_accepted);
    json_set_num(o, "decode_tps", per_second((int64_t)t->out.n - 1, s->decode_us));
    return o;
}

/* The messages that the model has read, as it has read them: heads and quotes among the words. */
static json *window_of(const struct turn *t)
{
    const struct turn_window *w = &t->window;
    json *v = json_array();
    for (size_t i = 0; i < w->n; i++) {
        static const char *const roles[] = {"", "system", "user", "assistant"};
        json *m = json_add(v, json_object());
        json_set_str(m, "role", roles[w->v[i].role]);
        json_set_strn(m, "content", w->v[i].text, w->v[i].n_text);
        json_set_int(m, "tokens", (int64_t)(w->starts[i + 1] - w->starts[i]));
    }
    return v;
}

json *wire_hearth(const struct turn *t, bool is_final)
{
    json *o = json_object();
    json_set(o, "receipt", receipt_of(t));
    if (!is_final)
        return o;
    if (t->params.shows_window)
        json_set(o, "window", window_of(t));
    json_set(o, "cache", cache_of(t));
    json_set(o, "timings", timings_of(t));
    if (t->store.has_failed)
        json_set_bool(o, "stored", false);
    return o;
}

void wire_error(const struct turn *t, struct buf *b)
{
    json *o = wire_hearth(t, true);
    http_error_write(&t->error, b);
    if (o && b->len > 0) {
        b->len--; /* its last brace */
        buf_str(b, ",\"hearth\":");
        json_write(o, b);
        buf_str(b, "}");
    }
    json_free(o);
}

/* ---- chat completions and completions ---- */

static bool is_chat(const struct turn *t)
{
    return t->wire == &wire_chat;
}

/* What every chunk and every whole reply begins with. */
static json *head_of(const struct turn *t, const char *object)
{
    json *o = json_object();
    json_set_str(o, "id", t->id);
    json_set_str(o, "object", object);
    json_set_int(o, "created", t->created_at);
    json_set_str(o, "model", t->model);
    return o;
}

static json *usage_of(const struct turn *t)
{
    json *o = json_object();
    json_set_int(o, "prompt_tokens", (int64_t)t->prompt.n);
    json_set_int(o, "completion_tokens", turn_n_completion(t));
    json_set_int(o, "total_tokens", (int64_t)t->prompt.n + turn_n_completion(t));
    json *details = json_set(o, "prompt_tokens_details", json_object());
    json_set_int(details, "cached_tokens", t->stats.n_cached);
    if (t->thought.stage != THOUGHT_OFF) {
        details = json_set(o, "completion_tokens_details", json_object());
        json_set_int(details, "reasoning_tokens", t->thought.n_tokens);
    }
    return o;
}

static void event_write(json *o, struct buf *b)
{
    struct buf text;
    buf_init(&text, WIRE_BODY_BYTES);
    json_write(o, &text);
    if (text.error)
        b->error = b->error ? b->error : text.error;
    else
        sse_write(b, NULL, text.data, text.len);
    buf_done(&text);
    json_free(o);
}

/* A chunk whose only choice is empty but for what the caller adds; *ret_choice may be NULL when
 * memory ran out, which json_* pass through. */
static json *chunk_of(const struct turn *t, json **ret_choice)
{
    json *o = head_of(t, is_chat(t) ? "chat.completion.chunk" : "text_completion");
    json *choices = json_set(o, "choices", json_array());
    json *choice = json_add(choices, json_object());
    json_set_int(choice, "index", 0);
    if (t->params.include_usage)
        json_set_null(o, "usage");
    *ret_choice = choice;
    return o;
}

static void chat_begin(struct turn *t, struct buf *b)
{
    json *choice;
    json *o = chunk_of(t, &choice);
    if (is_chat(t)) {
        json *delta = json_set(choice, "delta", json_object());
        json_set_str(delta, "role", "assistant");
        json_set_str(delta, "content", "");
    } else {
        json_set_str(choice, "text", "");
    }
    json_set_null(choice, "logprobs");
    json_set_null(choice, "finish_reason");
    json_set(o, "hearth", wire_hearth(t, false));
    event_write(o, b);
}

struct body_bytes {
    const char *s;
    size_t n;
};

/* One a token: written by hand, as a tree would cost more than the rest of the step outside the
 * model. */
static void put_delta(struct turn *t, const char *field, const struct body_bytes *text,
                      struct buf *b)
{
    buf_printf(b, "data: {\"id\":\"%s\",\"object\":\"%s\",\"created\":%lld,\"model\":", t->id,
               is_chat(t) ? "chat.completion.chunk" : "text_completion", (long long)t->created_at);
    json_write_str(b, t->model, strlen(t->model));
    buf_str(b, ",\"choices\":[{\"index\":0,");
    buf_str(b, field);
    json_write_str(b, text->s, text->n);
    buf_str(b, is_chat(t) ? "}," : ",");
    buf_str(b, "\"logprobs\":null,\"finish_reason\":null}]");
    buf_str(b, t->params.include_usage ? ",\"usage\":null}\n\n" : "}\n\n");
}

static void chat_delta(struct turn *t, const char *text, size_t n, struct buf *b)
{
    put_delta(
        t, is_chat(t) ? "\"delta\":{\"content\":" : "\"text\":", &(struct body_bytes){text, n}, b);
}

static void chat_thought(struct turn *t, const char *text, size_t n, struct buf *b)
{
    put_delta(t, "\"delta\":{\"reasoning_content\":", &(struct body_bytes){text, n}, b);
}

static void chat_end(struct turn *t, struct buf *b)
{
    json *choice;
    json *o = chunk_of(t, &choice);
    if (is_chat(t))
        json_set(choice, "delta", json_object());
    else
        json_set_str(choice, "text", "");
    json_set_null(choice, "logprobs");
    json_set_str(choice, "finish_reason", turn_finish_reason(t));
    json_set(o, "hearth", wire_hearth(t, true));
    event_write(o, b);
    if (t->params.include_usage) {
        json *last = head_of(t, is_chat(t) ? "chat.completion.chunk" : "text_completion");
        json_set(last, "choices", json_array());
        json_set(last, "usage", usage_of(t));
        event_write(last, b);
    }
    sse_write(b, NULL, "[DONE]", 6);
}

static void chat_fail(struct turn *t, struct buf *b)
{
    struct buf text;
    buf_init(&text, WIRE_BODY_BYTES);
    wire_error(t, &text);
    if (!text.error)
        sse_write(b, NULL, text.data, text.len);
    buf_done(&text);
}

static void chat_whole(struct turn *t, struct buf *b)
{
    json *o = head_of(t, is_chat(t) ? "chat.completion" : "text_completion");
    json *choices = json_set(o, "choices", json_array());
    json *choice = json_add(choices, json_object());
    size_t n;
    const char *text = turn_answer(t, &n);
    json_set_int(choice, "index", 0);
    if (is_chat(t)) {
        json *message = json_set(choice, "message", json_object());
        json_set_str(message, "role", "assistant");
        json_set_strn(message, "content", text, n);
        if (t->thought.reasoning.len > 0)
            json_set_strn(message, "reasoning_content", t->thought.reasoning.data,
                          t->thought.reasoning.len);
        json_set_null(message, "refusal");
    } else {
        json_set_strn(choice, "text", text, n);
    }
    json_set_null(choice, "logprobs");
    json_set_str(choice, "finish_reason", turn_finish_reason(t));
    json_set(o, "usage", usage_of(t));
    json_set(o, "hearth", wire_hearth(t, true));
    json_write(o, b);
    json_free(o);
}

const struct wire wire_chat = {chat_begin, chat_delta, chat_thought,
                               chat_end,   chat_fail,  chat_whole};
const struct wire wire_completion = {chat_begin, chat_delta, NULL, chat_end, chat_fail, chat_whole};
