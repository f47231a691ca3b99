/*
 * Chat rendering as a list of segments.
 *
 * A segment starts at a control token and is the text of one message in the model's markup. Its
 * text depends only on its own message, on being first or not, and on the previous role, so that
 * the ids of a window are the segments' ids in a row and every turn is a prefix of the next. The
 * family (ChatML today) is recognised from the model's own template; chat_new then renders
 * synthetic chats both ways and compares text and ids: a template that isn't what it looks like is
 * refused by name.
 *
 * Content never becomes control tokens: in a segment only the markup is encoded with specials; text
 * between two control tokens (markup and content together) is encoded as one run without them.
 *
 * An assistant message may carry the ids it was generated with. Those whose bytes are a beginning
 * of its text are used as they are (what the model wrote, not what its text re-tokenises to) up to
 * the first that isn't, or that is a control token; then the bytes of the text that they don't
 * cover are encoded, then the end of turn.
 *
 * A template that isn't such segments is run over the whole window each turn (re-render mode,
 * chat_window.c): what a turn prints need not begin with what the one before printed. There
 * chat_render is all there is; segments and ends of turns alone are ERR_UNSUPPORTED.
 *
 * BOS: put once, before the first segment, if the model wants one (add_bos_token) or the template
 * prints it.
 */
#ifndef HEARTH_ENGINE_CHAT_H
#define HEARTH_ENGINE_CHAT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/err.h"
#include "base/ids.h"
#include "engine/chat_think.h"
#include "engine/tok.h"

enum chat_role { CHAT_NONE, CHAT_SYSTEM, CHAT_USER, CHAT_ASSISTANT };

struct chat_message {
    enum chat_role role;
    const char *text; /* bytes, any */
    size_t n_text;
    const int32_t *ids; /* assistant only: generated ids whose bytes are a prefix of text, or
                         * NULL */
    size_t n_ids;
};

/* Whether the model is to think before it answers, for templates that ask. */
enum chat_thinking { CHAT_THINKING_UNSET, CHAT_THINKING_OFF, CHAT_THINKING_ON };

struct chat;
struct chat_rendering;

/*
 * `template_text` is the model's own Jinja source (NULL: none). `override` is NULL, a format's name
 * (chat_builtin_name) or the text of a template file. ERR_UNSUPPORTED names the template (its first
 * line) and the option --chat-template.  tok is borrowed for the chat's life.
 */
int chat_new(const struct tok *tok, const char *template_text, const char *override,
             struct chat **ret, struct err *e) MUST_USE;
void chat_free(struct chat *c);
/* The formats that are known by name, "chatml" first; NULL: there are no more. */
const char *chat_builtin_name(size_t i);
const char *chat_family(const struct chat *c); /* a format's name, or "template": the model's own */
/* What a template does beside printing messages. */
struct chat_traits {
    bool thinks;     /* it knows marks of thinking: `think` */
    const struct chat_think *think; /* chat_think.h; NULL: none */
    bool has_switch; /* it asks enable_thinking, or thinking */
    bool tells_time; /* strftime_now */
};
const struct chat_traits *chat_traits(const struct chat *c);
enum chat_mode { CHAT_SEGMENTS, CHAT_RERENDER };
enum chat_mode chat_mode(const struct chat *c);
/*
 * The system text that the template adds when the first message isn't a system message; NULL: none.
 */
const char *chat_default_system(const struct chat *c);

/*
 * Whether this chat with a generation prompt is segments in a row: always in ChatML; where segments
 * were derived, when a user speaks last and the order of roles gives clean edges; never in
 * re-render mode.
 */
bool chat_is_segments(const struct chat *c, const struct chat_message *m, size_t n);
/* How many of its messages are the first segment: 2 where a system text goes into the user message
 * behind it, else 1. */
size_t chat_opening(const struct chat *c, const struct chat_message *m, size_t n);
/* Appends the first segment, with BOS and whatever else opens a window; m has chat_opening's
 * number. ret->starts gets one more than that. */
int chat_open_window(const struct chat *c, const struct chat_message *m,
                     struct chat_rendering *ret, struct err *e) MUST_USE;

/*
 * Appends the ids of the message's segment. prev = CHAT_NONE: it is the first. When first and not a
 * system message, the default system segment (if any) comes before it.
 */
int chat_segment(const struct chat *c, const struct chat_message *m, enum chat_role prev,
                 struct ids *ret, struct err *e) MUST_USE;
/* Appends the ids of the generation prompt (the head of an assistant segment). */
int chat_generation_prompt(const struct chat *c, struct ids *ret, struct err *e) MUST_USE;
/*
 * Appends what closes an assistant segment after its generated tokens: "<|im_end|>\n". had_eog: the
 * end-of-turn token itself was generated (and is in the ids).
 */
int chat_end_of_turn(const struct chat *c, bool had_eog, struct ids *ret, struct err *e) MUST_USE;

/*
 * The whole window: segments in a row, plus the generation prompt. ret_text (may be NULL) is the
 * text as the template would print it. ret_starts (may be NULL) [n + 1]: index into the ids at
 * which each message's own segment starts (behind BOS and the default system segment, which belong
 * to no message), and the end of the last segment (before the generation prompt).
 */
struct chat_rendering {
    struct ids *ids;
    struct buf *text;
    size_t *starts;
    int64_t now; /* what a template is told as the time, in seconds since 1970: a conversation's
                  * beginning, so that it stays; 0: when the chat format was opened */
    enum chat_thinking thinking;
};
int chat_render(const struct chat *c, const struct chat_message *m, size_t n,
                bool add_generation_prompt, struct chat_rendering *ret, struct err *e) MUST_USE;

/* Hash of tokenizer + template + options: stored ids belong to it. */
void chat_render_id(const struct chat *c, uint8_t ret[32]);

#endif
