/* How models mark what they think aloud. */
#ifndef HEARTH_ENGINE_CHAT_THINK_H
#define HEARTH_ENGINE_CHAT_THINK_H

#include <stdbool.h>
#include <stddef.h>

/* [open] thought close [then] answer, or [plain] answer. White space around the marks belongs to
 * neither part. */
struct chat_think {
    const char *open, *close;
    const char *then;  /* markup between the two parts; NULL: none */
    const char *plain; /* markup before an answer without a thought; NULL: none */
};

/* The known ones; NULL: there are no more. Static. */
const struct chat_think *chat_think_row(size_t i);
/* Those that a template's source speaks of; NULL: none. */
const struct chat_think *chat_think_of(const char *source);
/* <think>: the templates that know it take it out of earlier answers themselves. */
bool chat_think_is_common(const struct chat_think *k);

/* Whether a text begins with the opening mark. */
bool chat_think_opens(const struct chat_think *k, const char *text, size_t n);

struct chat_split { /* borrowed from the text */
    const char *thought, *answer;
    size_t n_thought, n_answer;
};
/*
 * A whole text in its parts. The opening mark may be missing (it stood in the prompt); without a
 * closing one behind it all is thought. false: there is no mark in it, all is answer.
 */
bool chat_think_split(const struct chat_think *k, const char *text, size_t n,
                      struct chat_split *ret);
/* All of it is thought, but for white space around it; the answer is the end of the text. */
void chat_think_all(const char *text, size_t n, struct chat_split *ret);

#endif
