/*
 * A chat rendered by the model's own template (jinja.h), with a mark on each byte that came from a
 * message.
 */
#ifndef HEARTH_ENGINE_TEMPLATE_H
#define HEARTH_ENGINE_TEMPLATE_H

#include <stdbool.h>
#include <stddef.h>

#include "base/buf.h"
#include "base/err.h"
#include "engine/chat.h"
#include "engine/jinja.h"

#define TEMPLATE_BYTES_MAX JINJA_SOURCE_BYTES_MAX
#define TEMPLATE_MARKS 254
#define TEMPLATE_MARK_THOUGHT 255 /* of what an answer began with: no message's share */

struct template_message {
    enum chat_role role;
    struct jinja_str content; /* with its marks: 1 + message % TEMPLATE_MARKS */
    struct jinja_str thought; /* before the answer, marked TEMPLATE_MARK_THOUGHT; n 0: nothing */
};

struct template_args {
    const struct template_message *messages;
    size_t n_messages;
    bool add_generation_prompt;
    struct tok_str bos, eos; /* what bos_token and eos_token print */
    int64_t now;             /* what strftime_now tells, in seconds since 1970 */
    enum chat_thinking thinking;
};

/* Appends the rendering and its marks (may be NULL); what comes up is made in `arena`. Errors are
 * jinja_render's. */
int template_run(const struct jinja *j, const struct template_args *a, struct arena *arena,
                 struct buf *ret, struct buf *ret_marks, struct err *e) MUST_USE;
/* The same for messages without marks, with an arena of its own. */
int template_render(const struct jinja *j, const struct template_args *a,
                    const struct chat_message *m, struct buf *ret, struct err *e) MUST_USE;

/* "system", "user", "assistant"; "" for CHAT_NONE. */
const char *chat_role_name(enum chat_role role);

#endif
