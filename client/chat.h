/*
 * A chat at the terminal: one conversation at a time, by /v1/responses. chat.c is the conversation
 * (send, regenerate, edit, open), cmd_chat.c the person (line, slash commands).
 */
#ifndef HEARTH_CLIENT_CHAT_H
#define HEARTH_CLIENT_CHAT_H

#include "client/api.h"
#include "client/conversation.h"

struct chat {
    struct client *client;
    struct ask_options options;
    char *id;     /* conversation, NULL: made with the first message */
    char *system; /* system text for a new one, NULL: the model's default */
    char *model;  /* that the daemon runs */
    json *last;   /* the newest response object: usage, hearth */
    int64_t n_turns, prompt_tokens, cached_tokens, completion_tokens;
};

/* Asks the daemon for its model and the sampling defaults it recommends. 0 or an exit code. */
int chat_init(struct chat *chat, struct client *c, const struct ask_options *o);
void chat_done(struct chat *chat);

/* Leaves the conversation; the next message begins another. system NULL: as before. */
void chat_new(struct chat *chat, const char *system);
/* Goes on with a stored conversation: prints its end. Says so when another model wrote it. */
int chat_open(struct chat *chat, const char *id);
/* The newest conversation. EXIT_NOT_FOUND when there is none. */
int chat_open_newest(struct chat *chat);

/* Sends text and prints the answer as it comes. EXIT_INTERRUPTED after Ctrl-C: what came is kept,
 * marked interrupted. */
int chat_send(struct chat *chat, const char *text, size_t n);
/* Asks the last question again: the new answer is a branch. */
int chat_regenerate(struct chat *chat);
/* The last question's text, to be edited; NULL when there is none. Caller frees. */
char *chat_last_question(struct chat *chat);
/* Replaces the last question: a branch beside it. */
int chat_edit(struct chat *chat, const char *text, size_t n);

#endif
