/* Shared by chat.c (segments), chat_window.c (whole windows) and chat_load.c (which of the two). */
#ifndef HEARTH_ENGINE_CHAT_IMPL_H
#define HEARTH_ENGINE_CHAT_IMPL_H

#include "base/hash.h"
#include "engine/chat.h"
#include "engine/jinja.h"

#define CHAT_OPEN "<|im_start|>"
#define CHAT_CLOSE "<|im_end|>"
#define CHAT_AFTER_CLOSE "\n"
#define CHAT_FAMILY "chatml"

struct chat_control {
    const char *s; /* [n] borrowed from the tokenizer */
    size_t n;
    int32_t id;
};

/* What a template takes as it is. */
struct chat_takes {
    bool system, late_system; /* a system message first; one further on */
    bool alternation;         /* nothing but roles in turn */
};

struct chat {
    const struct tok *tok;
    struct tok_str bos, eos; /* what a template's bos_token and eos_token print */
    int64_t now;             /* when it was opened, for renderings that don't say theirs */
    struct jinja *jinja;     /* re-render mode; NULL: segments, and the rest is theirs */
    struct chat_takes takes;
    struct chat_control *controls; /* by first byte */
    size_t first_control[257];
    /* segments */
    int32_t open, close; /* control tokens */
    struct ids head;
    char *head_text;
    size_t n_head_text;
    char *default_system; /* or NULL */
    size_t n_default_system;
    uint8_t render_id[HASH_BYTES];
};

/* How many of an assistant's ids can stand for the beginning of its text, and how many bytes they
 * cover. */
size_t chat_usable_ids(const struct chat *c, const struct chat_message *m, size_t *ret_bytes);
/* chat_render in re-render mode; ret->ids may be NULL. */
int chat_window(const struct chat *c, const struct chat_message *m, size_t n,
                bool add_generation_prompt, struct chat_rendering *ret, struct err *e) MUST_USE;
/* Finds what c->jinja takes; its error if it doesn't print a plain chat. */
int chat_window_open(struct chat *c, struct err *e) MUST_USE;

/* The message as the template prints it. */
void chat_text_message(const struct chat_message *m, struct buf *to);

#endif
