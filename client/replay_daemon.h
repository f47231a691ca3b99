/* The daemon that a replay starts, restarts and ends itself. */
#ifndef HEARTH_CLIENT_REPLAY_DAEMON_H
#define HEARTH_CLIENT_REPLAY_DAEMON_H

#include <stdbool.h>
#include <stddef.h>

#include "client/client.h"

struct replay_daemon;

/*
 * Splits as a shell splits words: blanks, '…', "…" and backslashes. Nothing is expanded and no
 * character is special otherwise. 0 and a list that ends with NULL (caller: replay_words_free);
 * ERR_INVAL, ERR_LIMIT, ERR_NOMEM.
 */
int replay_words(const char *text, char ***ret, struct err *e) MUST_USE;
void replay_words_free(char **words);

/*
 * Starts it and waits until it is ready, at most timeout_s. It ends with this process in any case.
 * 0 or an exit code after having said why: somebody answers there already, it can't be run, it
 * ended, it took too long; its last words are shown.
 */
int replay_daemon_start(struct client *c, char **words, int timeout_s, struct replay_daemon **ret);
/* Ends it (with SIGKILL or SIGTERM) and starts it again. Results as above. */
int replay_daemon_restart(struct replay_daemon *d, bool is_kill);
/* Ends it with SIGTERM, and SIGKILL if that does not help, and frees d. NULL is fine. 0, or
 * EXIT_REFUSED after having said that it ended badly. */
int replay_daemon_stop(struct replay_daemon *d);

#endif
