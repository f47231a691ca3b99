/*
 * Items: messages as the Responses and Conversations APIs write them, in both directions, and the
 * pages that list them.
 *
 *      {"id", "type": "message", "role", "status",
 *       "content": [{"type": "input_text" | "output_text", "text", …}],
 *       "hearth": {"created_at", "status"[, "model", "finish"][, "thinking"]}}
 *
 * An answer that begins with a thought has it as a part of its own before its text, of type
 * "reasoning_text"; hearth.thinking then is {"before", "between"}, what the model wrote around the
 * two: before, thought, between, answer in a row are the stored text, byte for byte. Given so, it
 * is stored so.
 *
 * A response has the thought in an item of its own, {"type": "reasoning", "content": [{"type":
 * "reasoning_text", "text"}]}, before that of its answer. Given back in a row, as clients do that
 * keep the conversation themselves, the two are one message again.
 */
#ifndef HEARTH_DAEMON_ITEMS_H
#define HEARTH_DAEMON_ITEMS_H

#include "base/arena.h"
#include "base/json.h"
#include "daemon/request.h"
#include "engine/chat.h"
#include "memory/memory.h"

#define ITEMS_ARENA_BYTES (256u << 20) /* what one page may hold while it is written */

/* Messages read from a request, in the arena: role, text and status are set. */
struct items {
    struct memory_new_message *v;
    size_t n;
};

/*
 * An array of items, with or without type "message", content as string or parts; at most `max`.
 * `field` names the array in errors ("items"). Answers among them count as complete.
 */
struct items_rule {
    const char *field;
    size_t max;
};
int items_parse(const json *array, const struct items_rule *rule, struct arena *a,
                struct items *ret, struct http_error *ret_error) MUST_USE;
/* One user message: `input` as a string. */
int items_of_text(const char *text, struct arena *a, struct items *ret,
                  struct http_error *ret_error) MUST_USE;

/* hearth.thinking: what stood around the thought and the answer that a text was split into. */
void item_set_marks(json *hearth, const char *text, const struct chat_split *split);
/*
 * The object of one message; of an answer also model and finish. marks: of a thought that a prompt
 * may have opened; NULL: only what opens itself is one. Caller owns; NULL: no memory.
 */
json *item_json(const struct memory_message *m, const struct chat_think *marks);
/* {"object": "list", "data", "first_id", "last_id", "has_more"}; takes data, whose members have
 * ids. */
json *list_json(json *data, bool has_more);

/* after, limit (1 … 100, 20 without) and order ("desc" without) of the query. */
int items_page(const struct request *r, struct arena *a, struct memory_page *ret,
               struct http_error *ret_error) MUST_USE;

/* `metadata`: an object of at most 16 strings, as compact JSON text in the arena; NULL when
 * absent. */
int metadata_parse(const json *o, struct arena *a, const char **ret,
                   struct http_error *ret_error) MUST_USE;
/* Back again, for a reply; {} for what can't be read. */
json *metadata_json(const char *text);

/* 404 and the like for a library error, with the field (static) that named the thing. Returns
 * e->code. */
int items_error(struct http_error *ret, const struct err *e, const char *param);

#endif
