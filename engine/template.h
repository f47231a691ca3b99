/*
 * The part of Jinja that plain chat templates are written in, for one purpose: chat.c renders a few
 * synthetic chats with the model's own template and compares them with its segments. Whatever is
 * executed and isn't understood is an error that names it and its line; what lies in a branch not
 * taken (tools) may be anything.
 *
 * Understood: text, {{ }}, {% for m in … %}, if / elif / else, set; trim markers, trim_blocks and
 * lstrip_blocks as Hugging Face sets them; strings, numbers, + ~, comparisons, in, and / or / not,
 * x if y else z, [index], [slice], attributes of messages and of loop, the tests defined, none,
 * string, the filters trim and length. Not understood: calls, macros, namespaces, other filters.
 */
#ifndef HEARTH_ENGINE_TEMPLATE_H
#define HEARTH_ENGINE_TEMPLATE_H

#include <stdbool.h>
#include <stddef.h>

#include "base/buf.h"
#include "base/err.h"
#include "engine/chat.h"

#define TEMPLATE_BYTES_MAX ((size_t)1 << 20)

struct template_args {
    const char *source;
    size_t n_source;
    const struct chat_message *messages;
    size_t n_messages;
    bool add_generation_prompt;
    struct tok_str bos, eos; /* what bos_token and eos_token print */
};

/*
 * Appends the rendering. ERR_UNSUPPORTED and ERR_CORRUPT (unbalanced tags) name the line;
 * ERR_LIMIT: more work than a plain template ever takes.
 */
int template_render(const struct template_args *a, struct buf *ret, struct err *e) MUST_USE;

/* "system", "user", "assistant"; "" for CHAT_NONE. */
const char *chat_role_name(enum chat_role role);

#endif
