/*
 * One connection, from accept to close. Loop thread only.
 *
 *                                  ┌─────── early error: the body is skipped ───────┐
 *     accept ─► IDLE ─first byte─► READING ─head, body─► WAITING ─► STREAMING ─last reply─►
 *                                               (the request is with history)
 *       ─► IDLE …  or  CLOSING ─flushed─► LINGER ─► gone
 *
 *  - Requests are answered one after another; what is sent ahead waits, up to a ceiling.
 *  - EOF, an error or a stalled reader during a turn cancels the turn. An EOF during another
 *    request still gets its answer.
 *  - A connection that closes after its answer is read for a moment longer (LINGER): closing with
 *    unread bytes would reset it and could destroy the answer.
 */
#ifndef HEARTH_DAEMON_CONN_H
#define HEARTH_DAEMON_CONN_H

#include "daemon/net.h"

/* Takes the accepted fd. peer: "uid:1000" or "tcp:127.0.0.1", what is counted for the limit of
 * connections a peer. */
void conn_open(struct net *net, int fd, const struct listener *l, const char *tcp_peer);
/* Finds the connection of a reply and sends it; takes r. */
void conn_reply(struct net *net, struct reply *r);
/* Answers everyone who waits for history with this error (a stream gets it as its last event) and
 * closes them. */
void conn_fail_all(struct net *net, const struct http_error *error);
/* The daemon stops: idle connections close, half-read requests get a 503; those that wait stay. */
void conn_stop_all(struct net *net);
/* Whether some connection still has bytes to send, or waits. */
bool conn_any_pending(const struct net *net);
void conn_free_all(struct net *net);

#endif
