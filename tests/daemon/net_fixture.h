/*
 * The network half by itself: the real loop in a thread, and a stub in place of the history thread,
 * whose answers the request's body chooses:
 *
 *     "hold"          no answer until net_release
 *     "stream N SIZE" a stream of N data events of SIZE bytes
 *     "open"          begins a stream, sends one event, then holds
 *     anything else   "METHOD PATH?QUERY OWNER BODY" comes back
 */
#ifndef HEARTH_TESTS_DAEMON_NET_FIXTURE_H
#define HEARTH_TESTS_DAEMON_NET_FIXTURE_H

#include <pthread.h>
#include <semaphore.h>

#include "tests/base/testing.h"

#include "base/buf.h"
#include "daemon/config.h"
#include "daemon/listen.h"
#include "daemon/loop.h"

struct net_fixture {
    struct daemon d;
    struct config config;
    struct net_limits limits;
    struct listener listeners[2]; /* Unix, TCP */
    struct keys *keys;
    struct loop *loop;
    pthread_t loop_thread, history_thread;
    int loop_result;
    bool has_joined_loop; /* by the test, which saw it end */
    char dir[64], socket[96];
    int port;
    sem_t canceled; /* posted at each cancelled turn */
    sem_t held;     /* posted when a request begins to be held */
    pthread_mutex_t lock;
    struct request *holds[64];
    bool is_open[64]; /* it is a stream that has begun */
    int n_holds;
};

/* A running loop with these limits; parallel and queue from f->config, which the caller may set
 * before with net_defaults. */
void net_defaults(struct net_fixture *f);
void net_start(struct net_fixture *f);
/* Asks the loop to stop, and joins everything. */
void net_stop(struct net_fixture *f);
/* Answers all that is held. */
void net_release(struct net_fixture *f);
void net_wait_canceled(struct net_fixture *f);
void net_wait_held(struct net_fixture *f);

/* Client side: blocking sockets with a time limit of 20 s. */
int net_connect(struct net_fixture *f);
int net_socket(int family);
void net_connect_fd(struct net_fixture *f, int fd); /* a Unix socket made before */
int net_connect_tcp(struct net_fixture *f);
void net_send(int fd, const char *text);
void net_send_n(int fd, const char *data, size_t n);

struct net_response {
    int status;
    char *head; /* with status line; NUL-terminated */
    char *body; /* chunks joined */
    size_t n_body;
    bool is_cut; /* EOF before its end */
};
/* Reads one response (not after HEAD: is_head). false: EOF before its first byte. */
bool net_read(int fd, bool is_head, struct net_response *ret);
void net_response_done(struct net_response *r);
/* Sends, reads one response, checks the status; returns the body (caller frees). */
char *net_ask(int fd, const char *request, int status);
/* true when the other side has closed. */
bool net_is_eof(int fd);
/* "POST path … body" */
void net_post(int fd, const char *path, const char *body);
/* The value of a metric, asked over its own connection; -1 when it isn't there. */
long long net_metric(struct net_fixture *f, const char *name);

#endif
