/*
 * hearth replay: recorded conversations played against a server, one request at a time.
 *
 *      cmd_replay.c (options, files) ─► replay_run.c (turns) ─► replay_report.c (table, JSON, CSV)
 *            └► replay_read.c                └► replay_daemon.c         └► replay_stats.c
 */
#ifndef HEARTH_CLIENT_REPLAY_H
#define HEARTH_CLIENT_REPLAY_H

#include "client/api.h"
#include "client/replay_daemon.h"
#include "client/replay_read.h"
#include "client/replay_stats.h"

/* As the command line says; strings are borrowed from argv. */
struct replay_options {
    int64_t interleave, max_tokens;
    int64_t limit, turns;  /* of conversations, of turns of each; 0: all */
    int64_t restart_every; /* turns; 0: never */
    int64_t pause_s;       /* before each restart */
    bool is_teacher, is_kill, has_no_cache;
    const char *model, *daemon;       /* NULL: "default"; none of our own */
    const char *context;              /* strategy; NULL: the server's */
    const char *json_path, *csv_path; /* "-": stdout; NULL: none */
};

struct replay_entry {
    struct replay_conversation recorded;
    char *where; /* "FILE:LINE" */
};

struct replay {
    struct client *client;
    struct replay_options options;
    struct replay_entry *entries;
    size_t n_entries;
    struct replay_daemon *daemon; /* NULL: not ours */
    struct replay_turn *turns;    /* that were answered; room for all */
    size_t n_turns, n_planned;
    size_t n_restarts, n_refused; /* refused: conversations that a 400 ended */
};

/* replay_run.c: plays everything; turns and counts are filled also when it ends early. 0 or an exit
 * code after having said why. */
int replay_play(struct replay *r);

/* How files of results begin. */
#define REPLAY_JSON_BEGIN "{\"object\":\"hearth.replay\""
#define REPLAY_CSV_BEGIN "conversation,turn,"

/* replay_report.c. is_whole: it was played to its end. All 0, or an exit code after having said
 * why. */
int replay_print_table(const struct replay *r);
/* *ret: caller json_free. */
int replay_json(const struct replay *r, bool is_whole, json **ret);
/* A header and a line for each turn, appended to b. */
void replay_csv(const struct replay *r, struct buf *b);

#endif
