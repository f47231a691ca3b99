/* Shared by chat.c (rendering) and chat_load.c (recognising a template). */
#ifndef HEARTH_ENGINE_CHAT_IMPL_H
#define HEARTH_ENGINE_CHAT_IMPL_H

#include "base/hash.h"
#include "engine/chat.h"

#define CHAT_OPEN "<|im_start|>"
#define CHAT_CLOSE "<|im_end|>"
#define CHAT_AFTER_CLOSE "\n"
#define CHAT_FAMILY "chatml"

struct chat {
    const struct tok *tok;
    int32_t open, close; /* control tokens */
    struct ids head;
    char *head_text;
    size_t n_head_text;
    char *default_system; /* or NULL */
    size_t n_default_system;
    uint8_t render_id[HASH_BYTES];
};

/* The message as the template prints it. */
void chat_text_message(const struct chat_message *m, struct buf *to);

#endif
