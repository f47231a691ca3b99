/* Recorded conversations, of whichever tool, as plain lists of messages. */
#ifndef HEARTH_CLIENT_REPLAY_READ_H
#define HEARTH_CLIENT_REPLAY_READ_H

#include <stdbool.h>
#include <stddef.h>

#include "base/err.h"

enum replay_role { REPLAY_SYSTEM, REPLAY_USER, REPLAY_ASSISTANT };

struct replay_message {
    enum replay_role role;
    bool is_asked; /* a question ends here, though no answer is recorded behind it */
    char *text;    /* NUL-terminated UTF-8 */
};

struct replay_conversation {
    char *name; /* its id or title; NULL: it has none */
    struct replay_message *messages;
    size_t n_messages, n_turns;
    size_t n_bytes; /* of all texts */
};

/*
 * One line (n bytes) as a conversation. 0 and *ret (caller: replay_conversation_done); ERR_INVAL,
 * ERR_UNSUPPORTED, ERR_LIMIT, ERR_NOMEM with what is wrong, and where in the line.
 */
int replay_read_line(const char *text, size_t n, struct replay_conversation *ret,
                     struct err *e) MUST_USE;
void replay_conversation_done(struct replay_conversation *c);

/*
 * A turn is a question and an answer. The question: messages [at, question_end), up to the answer
 * that follows a user's message; several of a user in a row are one. 0 when none is left. Its
 * recorded answer: [question_end, answer_end), empty when there is none.
 */
size_t replay_question_end(const struct replay_conversation *c, size_t at);
size_t replay_answer_end(const struct replay_conversation *c, size_t at);

const char *replay_role_name(enum replay_role r); /* as OpenAI calls it */

#endif
