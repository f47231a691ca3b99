/*
 * The event loop. Mailboxes are eventfds, ordinary read events: no other thread ever calls
 * libevent, so it needs no locks.
 */
#include "daemon/loop.h"

#include <arpa/inet.h>
#include <assert.h>
#include <errno.h>
#include <event2/event.h>
#include <event2/listener.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/sys.h"
#include "daemon/conn.h"
#include "daemon/limits.h"
#include "daemon/notify.h"

#define ACCEPT_PAUSE_MS 100 /* when descriptors have run out */
#define STATUS_MS 1000      /* how often systemd hears of the loading */
#define FLUSH_TICK_MS 20    /* how often the end of the flush is looked for */

struct accepter {
    struct loop *loop;
    const struct listener *listener;
    struct evconnlistener *ev;
};

struct loop {
    struct net net;
    struct loop_options o;
    struct event *mail, *term, *interrupt, *hangup, *pause, *status, *watchdog, *flush;
    struct accepter accepters[LISTENERS_MAX];
    struct watchdog fed;
    struct mail *stop_worker,
        *stop_history; /* made ahead: stopping needs no memory. The receivers free them */
    bool is_stopping, is_flushing, has_failed;
    int n_stopped;
    int most_conns; /* as descriptors allow */
    int64_t t_flush_ms;
};

static struct timeval timeval_of(int64_t us)
{
    return (struct timeval){.tv_sec = us / 1000000, .tv_usec = us % 1000000};
}

static void start_timer(struct event *ev, int ms)
{
    struct timeval tv = timeval_of((int64_t)ms * 1000);
    event_add(ev, &tv);
}

/* ---- accepting ---- */

static void pause_accepting(struct loop *l, bool is_paused)
{
    for (int i = 0; i < l->o.n_listeners; i++) {
        if (!l->accepters[i].ev)
            continue;
        if (is_paused)
            evconnlistener_disable(l->accepters[i].ev);
        else
            evconnlistener_enable(l->accepters[i].ev);
    }
}

static void pause_a_while(struct loop *l)
{
    pause_accepting(l, true);
    start_timer(l->pause, ACCEPT_PAUSE_MS);
}

/* How many connections leave enough descriptors for the model, the database and the mailboxes:
 * clients that come while the model loads must not be what it fails of. */
static int most_connections(void)
{
    struct rlimit files;
    if (getrlimit(RLIMIT_NOFILE, &files) || files.rlim_cur > INT_MAX)
        return INT_MAX;
    int n = (int)files.rlim_cur - LIMIT_OWN_FILES;
    return n > 1 ? n : 1;
}

static void on_accept(struct evconnlistener *ev, evutil_socket_t fd, struct sockaddr *addr, int n,
                      void *arg)
{
    (void)ev;
    (void)n;
    struct accepter *a = arg;
    char peer[INET6_ADDRSTRLEN + 8] = "tcp:";
    if (addr->sa_family == AF_INET)
        inet_ntop(AF_INET, &((struct sockaddr_in *)addr)->sin_addr, peer + 4, sizeof(peer) - 4);
    else if (addr->sa_family == AF_INET6)
        inet_ntop(AF_INET6, &((struct sockaddr_in6 *)addr)->sin6_addr, peer + 4, sizeof(peer) - 4);
    conn_open(&a->loop->net, fd, a->listener, peer);
    if (a->loop->net.n_conns >= a->loop->most_conns)
        pause_a_while(a->loop);
}

/* accept failed: descriptors or memory have run out. The waiting connection stays readable, so
 * trying on at once would spin. */
static void on_accept_error(struct evconnlistener *ev, void *arg)
{
    (void)ev;
    struct accepter *a = arg;
    int why = errno;
    static struct log_limit lim = {.burst = 3};
    if (log_allowed(&lim))
        log_warn("accepting on %s fails (%s); trying again in %d ms", a->listener->name,
                 strerror(why), ACCEPT_PAUSE_MS);
    pause_a_while(a->loop);
}

static void on_pause_over(evutil_socket_t fd, short what, void *arg)
{
    (void)fd;
    (void)what;
    struct loop *l = arg;
    if (!l->is_stopping)
        pause_accepting(l, false);
}

static void stop_accepting(struct loop *l)
{
    for (int i = 0; i < l->o.n_listeners; i++) {
        if (l->accepters[i].ev)
            evconnlistener_free(l->accepters[i].ev);
        l->accepters[i].ev = NULL;
    }
}

/* ---- stopping ---- */

/* Of last resort: history is WAL, nothing that was committed is lost. Only async-signal-safe calls.
 * */
static void end_now(int sig)
{
    static const char late[] = "error: stopping took too long; ending at once\n";
    static const char again[] = "warn: interrupted while stopping; ending at once\n";
    ssize_t n = sig == SIGALRM ? write(STDERR_FILENO, late, sizeof(late) - 1)
                               : write(STDERR_FILENO, again, sizeof(again) - 1);
    (void)n;
    _exit(1);
}

/*
 * A second SIGTERM (or SIGHUP) asks for what is being done, within a bound; only a person's Ctrl-C
 * ends at once. libevent puts the handlers from before it back, which would end us without saving:
 * the signals wait until ours are there.
 */
static void arm_last_resort(struct loop *l)
{
    if (!l->o.handle_signals)
        return;
    sigset_t all, before;
    sigemptyset(&all);
    sigaddset(&all, SIGTERM);
    sigaddset(&all, SIGHUP);
    sigaddset(&all, SIGINT);
    pthread_sigmask(SIG_BLOCK, &all, &before);
    event_del(l->term);
    event_del(l->hangup);
    event_del(l->interrupt);
    struct sigaction act = {.sa_handler = end_now}, ignored = {.sa_handler = SIG_IGN};
    sigemptyset(&act.sa_mask);
    sigemptyset(&ignored.sa_mask);
    sigaction(SIGTERM, &ignored, NULL);
    sigaction(SIGHUP, &ignored, NULL);
    sigaction(SIGINT, &act, NULL);
    sigaction(SIGALRM, &act, NULL);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    alarm((unsigned)((l->o.stop_ms + 999) / 1000));
}

static void end_if_flushed(struct loop *l)
{
    if (!conn_any_pending(&l->net) || clock_ms() >= l->t_flush_ms)
        event_base_loopbreak(l->net.base);
    else
        start_timer(l->flush, FLUSH_TICK_MS);
}

static void on_flush(evutil_socket_t fd, short what, void *arg)
{
    (void)fd;
    (void)what;
    end_if_flushed(arg);
}

/* Both threads are done: no reply will come any more. */
static void begin_flush(struct loop *l)
{
    if (l->is_flushing || l->n_stopped < l->o.n_threads)
        return;
    l->is_flushing = true;
    struct http_error bad;
    if (l->has_failed)
        http_error_set(&bad, 503, "model_failed", NULL, "the model could not be loaded: %s",
                       l->net.d->load_error);
    else
        http_error_set(&bad, 503, "stopping", NULL, "the daemon is stopping");
    conn_fail_all(&l->net, &bad);
    l->t_flush_ms = clock_ms() + l->net.limits.flush_ms;
    end_if_flushed(l);
}

static void send_stop(struct mailbox *to, struct mail **mail)
{
    if (*mail && mailbox_push(to, *mail))
        *mail = NULL;
}

static struct mail *new_stop(void)
{
    struct mail *m = sys.malloc(sizeof(*m));
    if (m)
        *m = (struct mail){.kind = MAIL_STOP};
    return m;
}

static void begin_stop(struct loop *l, const char *why)
{
    if (l->is_stopping)
        return;
    l->is_stopping = true;
    struct daemon *d = l->net.d;
    log_info("stopping: %s", why);
    if (!l->has_failed)
        atomic_store(&d->state, DAEMON_STOPPING);
    notify_stopping();
    arm_last_resort(l);
    stop_accepting(l);
    conn_stop_all(&l->net);
    atomic_store(&d->load_abort, 1);
    if (l->o.n_threads > 0) {
        send_stop(&d->worker, &l->stop_worker);
        send_stop(&d->history, &l->stop_history);
    }
    if (l->o.on_cancel)
        l->o.on_cancel(d);
    begin_flush(l);
}

static void on_signal(evutil_socket_t sig, short what, void *arg)
{
    (void)what;
    begin_stop(arg, sig == SIGINT ? "interrupt" : sig == SIGHUP ? "hangup" : "asked to");
}

/* ---- mail ---- */

static void on_state(struct loop *l)
{
    struct daemon *d = l->net.d;
    int state = atomic_load(&d->state);
    if (state == DAEMON_READY && !l->is_stopping) {
        event_del(l->status);
        if (l->o.on_ready)
            l->o.on_ready(d);
    } else if (state == DAEMON_FAILED && !l->is_stopping) {
        l->has_failed = true;
        notify_failed(d->load_error);
        struct http_error bad;
        http_error_set(&bad, 503, "model_failed", NULL, "the model could not be loaded: %s",
                       d->load_error);
        conn_fail_all(&l->net, &bad);
        begin_stop(l, "the model could not be loaded");
    }
}

static void on_mail(evutil_socket_t fd, short what, void *arg)
{
    (void)fd;
    (void)what;
    struct loop *l = arg;
    struct mail *m = mailbox_take(&l->net.d->loop);
    while (m) {
        struct mail *next = m->next;
        switch (m->kind) {
        case MAIL_REPLY:
            conn_reply(&l->net, (struct reply *)m);
            break;
        case MAIL_READY:
            on_state(l);
            free(m);
            break;
        case MAIL_STOPPED:
            l->n_stopped++;
            free(m);
            break;
        case MAIL_STOP:
            begin_stop(l, "asked to");
            free(m);
            break;
        default:
            assert(!"a mail that the loop doesn't know");
        }
        m = next;
    }
    if (l->is_stopping)
        begin_flush(l);
}

/* ---- systemd ---- */

static void on_status(evutil_socket_t fd, short what, void *arg)
{
    (void)fd;
    (void)what;
    struct loop *l = arg;
    if (atomic_load(&l->net.d->state) != DAEMON_LOADING)
        return;
    notify_loading(atomic_load(&l->net.d->load_permille));
    start_timer(l->status, STATUS_MS);
}

static void on_watchdog(evutil_socket_t fd, short what, void *arg)
{
    (void)fd;
    (void)what;
    struct loop *l = arg;
    struct daemon *d = l->net.d;
    uint64_t worker =
        l->o.worker_progress ? l->o.worker_progress(d) : atomic_load(&d->n.worker_ticks);
    if (watchdog_check(&l->fed, &d->n, worker, atomic_load(&d->n.history_ticks)))
        notify_watchdog();
}

/* ---- life ---- */

/* nohup ignores it for us, so that we outlive a terminal. */
static bool is_ignored(int sig)
{
    struct sigaction now;
    return sigaction(sig, NULL, &now) == 0 && now.sa_handler == SIG_IGN;
}

static int listen_all(struct loop *l, struct err *e)
{
    for (int i = 0; i < l->o.n_listeners; i++) {
        struct accepter *a = &l->accepters[i];
        a->loop = l;
        a->listener = &l->o.listeners[i];
        /* Backlog 0: it listens already. The socket itself stays main's. */
        a->ev = evconnlistener_new(l->net.base, on_accept, a, LEV_OPT_CLOSE_ON_EXEC, 0,
                                   a->listener->fd);
        if (!a->ev)
            return err_set(e, ERR_NOMEM, "listening on %s: out of memory", a->listener->name);
        evconnlistener_set_error_cb(a->ev, on_accept_error);
    }
    return 0;
}

static int make_events(struct loop *l, struct err *e)
{
    struct event_base *base = l->net.base;
    l->mail = event_new(base, l->net.d->loop.fd, EV_READ | EV_PERSIST, on_mail, l);
    l->term = evsignal_new(base, SIGTERM, on_signal, l);
    l->interrupt = evsignal_new(base, SIGINT, on_signal, l);
    l->hangup = evsignal_new(base, SIGHUP, on_signal, l);
    l->most_conns = most_connections();
    l->pause = evtimer_new(base, on_pause_over, l);
    l->status = evtimer_new(base, on_status, l);
    l->watchdog = event_new(base, -1, EV_PERSIST, on_watchdog, l);
    l->flush = evtimer_new(base, on_flush, l);
    l->stop_worker = new_stop();
    l->stop_history = new_stop();
    if (!l->stop_worker || !l->stop_history || !l->mail || !l->term || !l->interrupt ||
        !l->hangup || !l->pause || !l->status || !l->watchdog || !l->flush)
        return err_set(e, ERR_NOMEM, "the event loop: out of memory");
    event_add(l->mail, NULL);
    if (l->o.handle_signals) {
        event_add(l->term, NULL);
        event_add(l->interrupt, NULL);
        if (!is_ignored(SIGHUP))
            event_add(l->hangup, NULL);
    }
    start_timer(l->status, 0);
    uint64_t us = notify_watchdog_us();
    if (us > 0) {
        /* Four times in the interval: one late tick is no death. */
        struct timeval tv = timeval_of((int64_t)(us / 4));
        event_add(l->watchdog, &tv);
    }
    return 0;
}

static void on_libevent_log(int severity, const char *text)
{
    if (severity >= EVENT_LOG_WARN)
        log_warn("libevent: %s", text);
}

int loop_new(const struct loop_options *o, struct loop **ret, struct err *e)
{
    assert(o->n_listeners <= LISTENERS_MAX);
    event_set_log_callback(on_libevent_log);
    struct loop *l = sys.malloc(sizeof(*l));
    if (!l)
        return err_set(e, ERR_NOMEM, "the event loop: out of memory");
    size_t n = (size_t)o->limits.connections + NET_SPARE_SLOTS;
    *l = (struct loop){.o = *o};
    l->net =
        (struct net){.d = o->d, .limits = o->limits, .keys = o->keys, .on_cancel = o->on_cancel};
    sched_init(&l->net.sched, o->d->config->parallel, o->d->config->queue);
    l->net.conns = calloc(n, sizeof(*l->net.conns));
    l->net.base = event_base_new();
    int rc =
        l->net.conns && l->net.base ? 0 : err_set(e, ERR_NOMEM, "the event loop can't be made");
    if (rc == 0)
        rc = make_events(l, e);
    if (rc == 0)
        rc = listen_all(l, e);
    if (rc < 0) {
        loop_free(l);
        return rc;
    }
    *ret = l;
    return 0;
}

int loop_run(struct loop *l)
{
    int rc = event_base_dispatch(l->net.base);
    if (rc < 0)
        log_error("the event loop broke");
    return rc < 0 || l->has_failed ? ERR_IO : 0;
}

void loop_abandon(struct loop *l)
{
    atomic_store(&l->net.d->load_abort, 1);
    send_stop(&l->net.d->worker, &l->stop_worker);
    send_stop(&l->net.d->history, &l->stop_history);
}

void loop_free(struct loop *l)
{
    if (!l)
        return;
    if (l->net.conns)
        conn_free_all(&l->net);
    stop_accepting(l);
    struct event *events[] = {l->mail,  l->term,   l->interrupt, l->hangup,
                              l->pause, l->status, l->watchdog,  l->flush};
    for (size_t i = 0; i < sizeof(events) / sizeof(events[0]); i++)
        if (events[i])
            event_free(events[i]);
    if (l->net.base)
        event_base_free(l->net.base);
    free(l->stop_worker);
    free(l->stop_history);
    free(l->net.conns);
    free(l);
}
