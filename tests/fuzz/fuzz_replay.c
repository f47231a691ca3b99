/* Whatever a line holds: it is refused with words, or its turns cover its messages in order. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "client/replay_read.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static void check(const struct replay_conversation *c)
{
    size_t n_turns = 0, n_bytes = 0, answer;
    for (size_t i = 0; i < c->n_messages; i++)
        n_bytes += strlen(c->messages[i].text);
    for (size_t at = 0, question; (question = replay_question_end(c, at)); at = answer) {
        answer = replay_answer_end(c, question);
        n_turns++;
        if (question <= at || answer < question || answer > c->n_messages)
            abort();
    }
    if (!n_turns || n_turns != c->n_turns || n_bytes != c->n_bytes)
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    struct replay_conversation c;
    struct err e = {0};
    if (!replay_read_line((const char *)data, n, &c, &e)) {
        check(&c);
        replay_conversation_done(&c);
    } else if (!e.code || !e.text[0]) {
        abort();
    }
    return 0;
}
