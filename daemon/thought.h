/*
 * What a model thinks aloud before it answers, told apart from the answer while it comes, by its
 * family's marks (engine/chat_think.h):
 *
 *     [<think>] thought </think> answer
 *
 * The opening tag may stand in the prompt already (the template prints it), or is the first that
 * the model writes; anything else is an answer from the beginning. White space around the tags
 * belongs to neither part. What might be the beginning of a tag, and white space that might stand
 * before one, is held back. Without a closing tag all of it is thought.
 */
#ifndef HEARTH_DAEMON_THOUGHT_H
#define HEARTH_DAEMON_THOUGHT_H

#include <stdbool.h>
#include <stddef.h>

#include "base/buf.h"
#include "engine/chat.h"

enum thought_stage {
    THOUGHT_OFF,    /* nothing is told apart */
    THOUGHT_BEGIN,  /* an opening tag may come */
    THOUGHT_OPEN,   /* it thinks */
    THOUGHT_CLOSED, /* behind the closing tag's white space the answer begins */
    THOUGHT_ANSWER
};

struct thought {
    enum thought_stage stage;
    const struct chat_think *marks;
    bool has_begun;       /* something of the thought was given */
    struct buf held;
    struct buf reasoning; /* all of the thought so far */
    struct buf answer;    /* all of the answer so far */
    int n_tokens;         /* of the thought, tags included */
};

/* In stage THOUGHT_OFF. max: of either part, bytes. */
void thought_init(struct thought *t, size_t max);
void thought_done(struct thought *t);
/* Behind a prompt that is_open: it ends in an opening tag. */
void thought_start(struct thought *t, const struct chat_think *marks, bool is_open);
/* The next bytes of the whole text; is_end: there will be no more, what is held is given. What is
 * new is appended to reasoning and answer; errors stick in these. */
void thought_push(struct thought *t, const char *s, size_t n, bool is_end);
/* Whether a prompt that ends so leaves an opening tag open. */
bool thought_is_opened(const struct chat_think *marks, const char *prompt_end, size_t n);
/* Whether an id's spelling is a tag or part of one: a vocabulary may have them as control
 * tokens. */
bool thought_is_tag(const struct chat_think *marks, const char *piece, size_t n);

#endif
