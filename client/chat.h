/*
 * A chat: one conversation at a time, by /v1/responses. chat.c is the conversation (begin, open,
 * last question), answer.c one answer on its way, cmd_chat.c the person (line, slash commands).
 */
#ifndef HEARTH_CLIENT_CHAT_H
#define HEARTH_CLIENT_CHAT_H

#include "client/api.h"
#include "client/conversation.h"
#include "client/options.h"

struct chat {
    struct client *client;
    struct ask_options options;
    char *id;     /* conversation, NULL: made with the first message */
    char *system; /* system text for a new one, NULL: the model's default */
    char *model;  /* that the daemon runs */
    json *last;   /* the newest response object: usage, hearth */
    json *receipt; /* of the newest turn of this conversation, whatever became of it; or NULL */
    int64_t n_turns, prompt_tokens, cached_tokens, completion_tokens;
};

/* Asks the daemon for its model and the sampling its file recommends. 0 or an exit code. */
int chat_init(struct chat *chat, struct client *c, const struct ask_options *o);
void chat_done(struct chat *chat);

/* Answers come from this model from now on: its name, or the only one that begins so, in any case.
 * EXIT_NOT_FOUND lists what there is. */
int chat_set_model(struct chat *chat, const char *name);
/* Leaves the conversation; the next message begins another. system NULL: as before. */
void chat_new(struct chat *chat, const char *system);
/* Goes on with a stored conversation: prints its end. Says so when another model wrote it. */
int chat_open(struct chat *chat, const char *name);
/* The newest conversation. EXIT_NOT_FOUND when there is none. */
int chat_open_newest(struct chat *chat);
/* Makes the conversation on the daemon, with its system text if there is one. */
int chat_begin(struct chat *chat);
/* Takes back a chat_begin whose first message was refused: a refused request leaves nothing. */
void chat_abandon(struct chat *chat);

/* The last question: text, its id, and the id of the message before it ("root": none). */
struct question {
    char *text, *id, *before;
};
/* 0, EXIT_NOT_FOUND after having said that there is none, or another exit code. */
int chat_last_question(struct chat *chat, struct question *ret);
void question_done(struct question *q);

/*
 * answer.c. Sends text (n bytes; NULL: the stored question `parent` is asked again) and prints the
 * answer as it comes; with --json the finished response object instead. parent NULL: at the
 * conversation's end; "root"; or the message it goes under. EXIT_INTERRUPTED after Ctrl-C: what
 * came is kept by the daemon, marked interrupted.
 */
int chat_send(struct chat *chat, const char *text, size_t n, const char *parent);

#endif
