/*
 * OpenAI's Responses: one object, and a stream of typed events that build it.
 *
 *      response.created · response.in_progress
 *      response.output_item.added · response.content_part.added
 *      response.output_text.delta …
 *      response.output_text.done · response.content_part.done · response.output_item.done
 *      response.completed | response.incomplete | response.failed           with the full output
 *
 * Each has an `event:` line, its `type` and a `sequence_number` that rises by one from 0. No
 * [DONE]. A failure leaves the three `done`s out: what was sent stays sent, and the last event says
 * what it was worth.
 */
#include "daemon/response.h"

#include <stdio.h>
#include <string.h>

#include "base/sse.h"
#include "daemon/items.h"
#include "daemon/wire.h"

static const struct response *api_of(const struct turn *t)
{
    return t->api;
}

/* The stream's stages: what was begun. */
enum { STAGE_NONE, STAGE_THOUGHT, STAGE_MESSAGE };

static bool has_thought(const struct turn *t)
{
    return t->thought.reasoning.len > 0;
}

/* ---- the object ---- */

static const char *status_of(const struct turn *t)
{
    switch (t->finish) {
    case TURN_EOG:
    case TURN_STOPPED:
        return "completed";
    case TURN_LENGTH:
        return "incomplete";
    case TURN_CANCELED:
        return "cancelled";
    case TURN_FAILED:
        return "failed";
    case TURN_RUNNING:
        break;
    }
    return "in_progress";
}

static json *part_json(const char *text, size_t n)
{
    json *o = json_object();
    json_set_str(o, "type", "output_text");
    json_set_strn(o, "text", text, n);
    json_set(o, "annotations", json_array());
    json_set(o, "logprobs", json_array());
    return o;
}

/* With them the two items, given back, are the text that the model wrote. */
static void set_marks(const struct turn *t, json *hearth)
{
    struct chat_split split;
    const struct buf *text = &t->text;
    if (!chat_think_split(t->thought.marks, text->data, text->len, &split))
        chat_think_all(text->data, text->len, &split);
    item_set_marks(hearth, text->data, &split);
}

/* The output message: its content is empty while nothing was said in the stream. */
static json *message_json(const struct turn *t, bool has_content)
{
    json *o = json_object();
    const char *status = t->finish == TURN_RUNNING                            ? "in_progress"
                         : t->finish == TURN_EOG || t->finish == TURN_STOPPED ? "completed"
                                                                              : "incomplete";
    json_set_str(o, "id", api_of(t)->item_id);
    json_set_str(o, "type", "message");
    json_set_str(o, "status", status);
    json_set_str(o, "role", "assistant");
    json *content = json_set(o, "content", json_array());
    size_t n;
    const char *text = turn_answer(t, &n);
    if (has_content)
        json_add(content, part_json(text, n));
    if (has_content && has_thought(t))
        set_marks(t, json_set(o, "hearth", json_object()));
    return o;
}

static json *thought_part_json(const char *text, size_t n)
{
    json *o = json_object();
    json_set_str(o, "type", "reasoning_text");
    json_set_strn(o, "text", text, n);
    return o;
}

static void thought_id(const struct turn *t, char ret[MEMORY_ID_BYTES + 4])
{
    const char *id = strchr(api_of(t)->item_id, '_');
    snprintf(ret, MEMORY_ID_BYTES + 4, "rs%s", id ? id : "_0");
}

/* The item of what was thought: before the message, if there was anything. */
static json *thought_json(const struct turn *t, bool is_done)
{
    char id[MEMORY_ID_BYTES + 4];
    json *o = json_object();
    thought_id(t, id);
    json_set_str(o, "id", id);
    json_set_str(o, "type", "reasoning");
    json_set(o, "summary", json_array());
    json *content = json_set(o, "content", json_array());
    if (is_done)
        json_add(content, thought_part_json(t->thought.reasoning.data, t->thought.reasoning.len));
    json_set_str(o, "status", is_done ? "completed" : "in_progress");
    return o;
}

static json *usage_json(const struct turn *t)
{
    json *o = json_object();
    json_set_int(o, "input_tokens", (int64_t)t->prompt.n);
    json *in = json_set(o, "input_tokens_details", json_object());
    json_set_int(in, "cached_tokens", t->stats.n_cached);
    json_set_int(in, "cache_write_tokens", t->params.use_cache ? t->stats.n_computed : 0);
    json_set_int(o, "output_tokens", turn_n_completion(t));
    json_set_int(json_set(o, "output_tokens_details", json_object()), "reasoning_tokens",
                 t->thought.n_tokens);
    json_set_int(o, "total_tokens", (int64_t)t->prompt.n + turn_n_completion(t));
    return o;
}

static void set_str_or_null(json *o, const char *key, const char *s)
{
    if (s)
        json_set_str(o, key, s);
    else
        json_set_null(o, key);
}

/* Seconds since 1970. Not the clock: the stored object and the one that is sent must be equal. */
static int64_t ended_at(const struct turn *t)
{
    return t->created_at + (t->stats.t_ended - t->stats.t_arrived) / 1000000;
}

/* How it ended: status, error, incomplete_details, usage. */
static void set_end(json *o, const struct turn *t)
{
    json_set_str(o, "status", status_of(t));
    if (t->finish == TURN_FAILED) {
        json *error = json_set(o, "error", json_object());
        /* OpenAI's list of codes is closed, and strictly typed clients know it. */
        json_set_str(error, "code", "server_error");
        json_set_str(error, "message", t->error.message);
    } else {
        json_set_null(o, "error");
    }
    if (t->finish == TURN_LENGTH)
        json_set_str(json_set(o, "incomplete_details", json_object()), "reason",
                     "max_output_tokens");
    else
        json_set_null(o, "incomplete_details");
    if (t->finish == TURN_RUNNING) {
        json_set_null(o, "usage");
        json_set_null(o, "completed_at");
    } else {
        json_set(o, "usage", usage_json(t));
        if (turn_finish_reason(t))
            json_set_int(o, "completed_at", ended_at(t));
        else
            json_set_null(o, "completed_at");
    }
}

/* What the request said, or the default that was taken for it. */
static void set_echo(json *o, const struct turn *t)
{
    const struct response *r = api_of(t);
    json_set_bool(o, "background", false);
    if (r->conversation)
        json_set_str(json_set(o, "conversation", json_object()), "id", r->conversation);
    else
        json_set_null(o, "conversation");
    set_str_or_null(o, "instructions", r->instructions);
    if (t->params.max_tokens > 0)
        json_set_int(o, "max_output_tokens", t->params.max_tokens);
    else
        json_set_null(o, "max_output_tokens");
    json_set(o, "metadata", metadata_json(r->metadata));
    json_set_bool(o, "parallel_tool_calls", true);
    set_str_or_null(o, "previous_response_id", r->previous);
    json *reasoning = json_set(o, "reasoning", json_object());
    if (t->params.thinking == CHAT_THINKING_UNSET)
        json_set_null(reasoning, "effort");
    else
        json_set_str(reasoning, "effort",
                     t->params.thinking == CHAT_THINKING_ON ? "medium" : "none");
    json_set_null(reasoning, "summary");
    json_set_str(o, "service_tier", "default");
    json_set_bool(o, "store", r->is_stored);
    json_set_num(o, "temperature", t->params.sample.temperature);
    json_set_str(json_set(json_set(o, "text", json_object()), "format", json_object()), "type",
                 "text");
    json_set_str(o, "tool_choice", "auto");
    json_set(o, "tools", json_array());
    json_set_int(o, "top_logprobs", 0);
    json_set_num(o, "top_p", t->params.sample.top_p);
    json_set_str(o, "truncation", t->params.context > PLAN_ERROR ? "auto" : "disabled");
}

json *response_json(const struct turn *t, bool has_output)
{
    json *o = json_object();
    json_set_str(o, "id", t->id);
    json_set_str(o, "object", "response");
    json_set_int(o, "created_at", t->created_at);
    set_end(o, t);
    json_set_str(o, "model", t->model);
    json *output = json_set(o, "output", json_array());
    if (has_output && has_thought(t))
        json_add(output, thought_json(t, true));
    if (has_output)
        json_add(output, message_json(t, true));
    set_echo(o, t);
    json_set(o, "hearth", wire_hearth(t, t->finish != TURN_RUNNING));
    return o;
}

/* ---- events ---- */

/* Takes o; `type` goes first, the number last. */
static void event_write(struct turn *t, const char *type, json *o, struct buf *b)
{
    struct buf text;
    buf_init(&text, WIRE_BODY_BYTES);
    json_set_int(o, "sequence_number", t->wire_seq++);
    json_write(o, &text);
    if (text.error)
        b->error = b->error ? b->error : text.error;
    else
        sse_write(b, type, text.data, text.len);
    buf_done(&text);
    json_free(o);
}

static json *event_json(const char *type)
{
    json *o = json_object();
    json_set_str(o, "type", type);
    return o;
}

static void response_event(struct turn *t, const char *type, bool has_output, struct buf *b)
{
    json *o = event_json(type);
    json_set(o, "response", response_json(t, has_output));
    event_write(t, type, o, b);
}

static void item_event(struct turn *t, const char *type, bool has_content, struct buf *b)
{
    json *o = event_json(type);
    json_set_int(o, "output_index", has_thought(t));
    json_set(o, "item", message_json(t, has_content));
    event_write(t, type, o, b);
}

/* An event about the one part of the one message. */
static json *part_event_json(const struct turn *t, const char *type)
{
    json *o = event_json(type);
    json_set_str(o, "item_id", api_of(t)->item_id);
    json_set_int(o, "output_index", has_thought(t));
    json_set_int(o, "content_index", 0);
    return o;
}

static void part_event(struct turn *t, const char *type, const char *text, size_t n, struct buf *b)
{
    json *o = part_event_json(t, type);
    json_set(o, "part", part_json(text, n));
    event_write(t, type, o, b);
}

static json *thought_event_json(const struct turn *t, const char *type)
{
    char id[MEMORY_ID_BYTES + 4];
    json *o = event_json(type);
    thought_id(t, id);
    json_set_str(o, "item_id", id);
    json_set_int(o, "output_index", 0);
    json_set_int(o, "content_index", 0);
    return o;
}

static void thought_item_event(struct turn *t, const char *type, bool is_done, struct buf *b)
{
    json *o = event_json(type);
    json_set_int(o, "output_index", 0);
    json_set(o, "item", thought_json(t, is_done));
    event_write(t, type, o, b);
}

static void thought_part_event(struct turn *t, const char *type, bool is_done, struct buf *b)
{
    json *o = thought_event_json(t, type);
    const struct buf *text = &t->thought.reasoning;
    json_set(o, "part",
             is_done ? thought_part_json(text->data, text->len) : thought_part_json("", 0));
    event_write(t, type, o, b);
}

/* The thought's item is begun with its first words, the message behind it with its own. */
static void begin_thought(struct turn *t, struct buf *b)
{
    t->wire_stage = STAGE_THOUGHT;
    thought_item_event(t, "response.output_item.added", false, b);
    thought_part_event(t, "response.content_part.added", false, b);
}

static void end_thought(struct turn *t, struct buf *b)
{
    static const char done[] = "response.reasoning_text.done";
    json *o = thought_event_json(t, done);
    json_set_strn(o, "text", t->thought.reasoning.data, t->thought.reasoning.len);
    event_write(t, done, o, b);
    thought_part_event(t, "response.content_part.done", true, b);
    thought_item_event(t, "response.output_item.done", true, b);
}

static void begin_message(struct turn *t, struct buf *b)
{
    if (t->wire_stage == STAGE_THOUGHT)
        end_thought(t, b);
    t->wire_stage = STAGE_MESSAGE;
    item_event(t, "response.output_item.added", false, b);
    part_event(t, "response.content_part.added", "", 0, b);
}

static void thought(struct turn *t, const char *text, size_t n, struct buf *b)
{
    static const char type[] = "response.reasoning_text.delta";
    if (t->wire_stage == STAGE_NONE)
        begin_thought(t, b);
    json *o = thought_event_json(t, type);
    json_set_strn(o, "delta", text, n);
    event_write(t, type, o, b);
}

static void begin(struct turn *t, struct buf *b)
{
    response_event(t, "response.created", false, b);
    response_event(t, "response.in_progress", false, b);
    if (t->thought.stage == THOUGHT_OFF)
        begin_message(t, b);
}

/* One a token: written by hand, as a tree would cost more than the rest of the step outside the
 * model. */
static void delta(struct turn *t, const char *text, size_t n, struct buf *b)
{
    if (t->wire_stage != STAGE_MESSAGE)
        begin_message(t, b);
    buf_str(b, "event: response.output_text.delta\ndata: "
               "{\"type\":\"response.output_text.delta\",\"item_id\":\"");
    buf_str(b, api_of(t)->item_id);
    buf_printf(b, "\",\"output_index\":%d,\"content_index\":0,\"delta\":", has_thought(t));
    json_write_str(b, text, n);
    buf_printf(b, ",\"logprobs\":[],\"sequence_number\":%d}\n\n", t->wire_seq++);
}

static void end(struct turn *t, struct buf *b)
{
    static const char done[] = "response.output_text.done";
    size_t n;
    const char *text = turn_answer(t, &n);
    if (t->wire_stage != STAGE_MESSAGE)
        begin_message(t, b);
    json *o = part_event_json(t, done);
    json_set_strn(o, "text", text, n);
    json_set(o, "logprobs", json_array());
    event_write(t, done, o, b);
    part_event(t, "response.content_part.done", text, n, b);
    item_event(t, "response.output_item.done", true, b);
    response_event(t, t->finish == TURN_LENGTH ? "response.incomplete" : "response.completed", true,
                   b);
}

static void fail(struct turn *t, struct buf *b)
{
    response_event(t, "response.failed", true, b);
}

static void whole(struct turn *t, struct buf *b)
{
    json *o = response_json(t, true);
    json_write(o, b);
    json_free(o);
}

const struct wire wire_response = {begin, delta, thought, end, fail, whole};
