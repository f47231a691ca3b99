/*
 * The history thread's half of a turn: from messages to a prompt that fits, and the user's message
 * stored. Each step returns 0, or a negative code with *ret_error filled (the caller frees the turn
 * and returns the code). The order is the one in DESIGN: a refused request has stored nothing.
 *
 *   chat:        prepare_add … ─ context_resent ─ history_submit
 *   responses:   context_prepare (daemon/context.h) ─ prepare_store ─ history_submit
 *   completions: prompt ids ─ prepare_fit ─ history_submit
 */
#ifndef HEARTH_DAEMON_PREPARE_H
#define HEARTH_DAEMON_PREPARE_H

#include "daemon/history.h"
#include "daemon/turn.h"

/* Appends a message to the window; text is borrowed and must live as long as the turn (its arena).
 */
int prepare_add(struct turn *t, enum chat_role role, const char *text, size_t n_text,
                struct http_error *ret_error) MUST_USE;

/* Gives the window's message i, an assistant's, the ids it was generated with; they are copied. */
int prepare_set_ids(struct turn *t, size_t i, const struct ids *ids,
                    struct http_error *ret_error) MUST_USE;

/* Stateless: looks up the generated ids of each assistant message of the window by the chain over
 * what precedes it, and leaves the chain in t->store for the answer's. Sets store.is_reply. */
int prepare_replies(struct history *h, struct turn *t, struct http_error *ret_error) MUST_USE;

/* The same, with ids for the messages i with wanted[i] alone (NULL: for all); the chain goes over
 * all of them. */
int prepare_replies_of(struct history *h, struct turn *t, const bool *wanted,
                       struct http_error *ret_error) MUST_USE;

/* Refuses text that the model's tokenizer would shorten silently: with a byte that the vocabulary
 * can't spell (SmolLM2's lacks six control characters). `what` names the text in the message. */
int prepare_check_text(const struct history *h, const char *what, const char *text, size_t n,
                       struct http_error *ret_error) MUST_USE;

/* Renders and tokenises the window into t->prompt, with the generation prompt, and sets its starts.
 * An empty window is a 400, and so is text that can't be spelled. */
int prepare_render(struct history *h, struct turn *t, struct http_error *ret_error) MUST_USE;
/* prepare_render, then prepare_fit. */
int prepare_prompt(struct history *h, struct turn *t, struct http_error *ret_error) MUST_USE;
/* Of the rendered window, what the turn before this one had, its answer included: all that stands
 * up to the last answer's end. Tokens. */
int prepare_prefix(const struct history *h, const struct turn *t);
/* A prompt fits when it has 1 … ctx − 1 tokens: else 400 context_length_exceeded with the counts.
 * Clamps max_tokens, writes the receipt. */
int prepare_fit(struct history *h, struct turn *t, struct http_error *ret_error) MUST_USE;

/* Where a turn's messages go: in a row under `parent` (0: the first of the conversation); `parent`
 * and `conversation` of each message are set by prepare_store. */
struct prepare_place {
    int64_t conversation, parent;
    struct memory_new_message *messages;
    size_t n; /* 0: only the answer's row is begun (a regeneration; parent is the user's message) */
};
/* Stores the messages and begins the answer's row, durably. On success t->store is filled (inputs,
 * answer, conversation, is_on). */
int prepare_store(struct history *h, struct turn *t, const struct prepare_place *place,
                  struct http_error *ret_error) MUST_USE;

/* A message's role as memory keeps it. */
enum memory_role prepare_role(enum chat_role role);

#endif
