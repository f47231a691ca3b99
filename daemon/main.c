/*
 * hearthd: start and stop.
 *
 *   start   umask, configuration, lock of the state directory, sockets, mailboxes; then the history
 *           thread opens the database while the worker thread loads the model. Once the database is
 *           open, the loop runs on the main thread and answers /health
 *   stop    1  systemd is told, listeners off, a timer of last resort is set (1 to 4: loop.c)
 *           2  worker and history are asked to end; the running pass is interrupted
 *           3  running turns end with an error in their stream, what they have is stored
 *           4  waiting requests get a 503, output is flushed for at most a second
 *           5  history thread joined: the database is checkpointed and closed
 *           6  worker thread joined: what waits for the disk cache is written, for at most
 *              LIMIT_DISK_STOP_MS, and the engine is closed
 *           7  sockets closed, our socket file unlinked if it is still ours, the lock released
 *           What takes longer than LIMIT_STOP_MS in all, or a second signal: _exit(1). Nothing that
 *           was committed is lost by it.
 *
 * Exit status: 0 stopped as asked, 78 wrong configuration, 1 anything else.
 */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/paths.h"
#include "daemon/build_id.h"
#include "daemon/config.h"
#include "daemon/history.h"
#include "daemon/limits.h"
#include "daemon/listen.h"
#include "daemon/loop.h"
#include "daemon/notify.h"
#include "daemon/offline.h"
#include "daemon/owner.h"
#include "daemon/served.h"
#include "daemon/worker.h"

/* ---- commands ---- */

/* true: argv[1] was a command, and *ret_status is its exit status. */
static bool run_offline(int argc, char **argv, int *ret_status)
{
    static const struct {
        const char *name;
        int (*run)(int argc, char **argv);
    } commands[] = {
#ifdef HEARTH_OFFLINE
        {"probe", offline_probe},
        {"bench", offline_bench},
        {"perplexity", offline_perplexity},
#endif
        {NULL, NULL},
    };
    for (size_t i = 0; argc > 1 && commands[i].name; i++) {
        if (strcmp(argv[1], commands[i].name) != 0)
            continue;
        *ret_status = commands[i].run(argc - 1, argv + 1);
        return true;
    }
    return false;
}

static int print(struct buf *text)
{
    bool ok = !buf_error(text) && fwrite(text->data, 1, text->len, stdout) == text->len &&
              fflush(stdout) == 0;
    buf_done(text);
    return ok ? 0 : 1;
}

static int print_help(void)
{
    struct buf b;
    buf_init(&b, 64 * 1024);
    config_help(&b);
    return print(&b);
}

static int print_version(void)
{
    struct buf b;
    buf_init(&b, 1024);
    buf_printf(&b, "hearthd %s\nbuild %s\n", HEARTH_VERSION, build_id());
    return print(&b);
}

/* ---- pieces of the start ---- */

static void set_up_process(void)
{
    signal(SIGPIPE, SIG_IGN);
    signal(SIGXFSZ, SIG_IGN); /* a file-size limit is an error of write, not a death */
    struct rlimit files;
    if (getrlimit(RLIMIT_NOFILE, &files) == 0 && files.rlim_cur < files.rlim_max) {
        files.rlim_cur = files.rlim_max;
        setrlimit(RLIMIT_NOFILE, &files);
    }
}

static int take_lock(const struct config *c, int *ret_fd, struct err *e)
{
    int rc = dir_make_private(c->state_dir, e);
    if (rc < 0)
        return rc;
    char *path = path_join(c->state_dir, "lock");
    if (!path)
        return err_set(e, ERR_NOMEM, "out of memory");
    rc = lock_take(path, ret_fd, e);
    free(path);
    return rc == ERR_BUSY ? err_prefix(e, "another hearthd uses %s", c->state_dir) : rc;
}

struct sockets {
    struct listener v[LISTENERS_MAX];
    int n;
};

/* systemd's sockets instead of our own, if there are any; and TCP. */
static int open_sockets(const struct config *c, struct sockets *s, struct err *e)
{
    int rc = listen_activated(s->v, LISTENERS_MAX - 1, &s->n, e);
    if (rc == 0 && s->n == 0) {
        rc = listen_unix(c->socket_path, c->socket_mode, &s->v[0], e);
        s->n = rc == 0;
    }
    if (rc == 0 && c->listen) {
        rc = listen_tcp(c->listen, &s->v[s->n], e);
        s->n += rc == 0;
    }
    return rc;
}

/* systemd's socket has the mode that its unit gave it: whether it is for one user or for many is
 * read off the file. */
static void adopt_socket_mode(struct config *c, const struct sockets *s)
{
    struct stat st;
    const char *path = s->n > 0 && s->v[0].is_activated ? strchr(s->v[0].name, '/') : NULL;
    const char *end = path ? strstr(path, " (from") : NULL;
    char copy[sizeof(s->v[0].name)];
    if (!end)
        return;
    snprintf(copy, sizeof(copy), "%.*s", (int)(end - path), path);
    if (stat(copy, &st) == 0)
        c->socket_mode = (int)(st.st_mode & 0666);
}

static int init_mailboxes(struct daemon *d, struct err *e)
{
    struct mailbox *all[] = {&d->loop, &d->history, &d->worker};
    for (size_t i = 0; i < 3; i++) {
        int rc = mailbox_init(all[i], e);
        if (rc < 0)
            return rc;
    }
    return 0;
}

/* What arrived after the loop had ended. */
static void drop_mail(struct daemon *d)
{
    mailbox_close(&d->loop);
    for (struct mail *m = mailbox_take(&d->loop), *next; m; m = next) {
        next = m->next;
        if (m->kind == MAIL_REPLY)
            reply_free((struct reply *)m);
        else
            free(m);
    }
}

/* The worker has logged the model, its window and the memory; this is the daemon's part. */
static void on_ready(struct daemon *d)
{
    const struct config *c = d->config;
    log_info("ready after %.2f s: parallel %d, queue %d, cache %s",
             (double)(clock_us() - d->t_started_us) / 1e6, c->parallel, c->queue,
             c->use_cache ? "on" : "off");
    char status[256];
    snprintf(status, sizeof(status), "ready: %.200s", d->model_id);
    notify_ready(status);
    history_wake(d);
}

/* A turn may be at the worker, or wait for the history thread. */
static void on_cancel(struct daemon *d)
{
    worker_interrupt(d);
    history_wake(d);
}

/* Passes count by layer, loading by its progress: either moves while the worker lives. */
static uint64_t worker_progress(const struct daemon *d)
{
    return atomic_load(&d->n.worker_ticks) + (uint64_t)atomic_load(&d->load_permille) +
           atomic_load(&d->n.layers);
}

static void log_start(const struct config *c, const struct sockets *s)
{
    log_info("hearthd %s, build %.12s: model %s, state %s, cache %s", HEARTH_VERSION, build_id(),
             c->model, c->state_dir, c->cache_dir);
    for (int i = 0; i < s->n; i++)
        log_info("listening on %s%s", s->v[i].name, s->v[i].is_tcp ? " (with keys)" : "");
}

/* ---- the run ---- */

/* The history thread runs, and opens its database while the worker loads the model. It is joined
 * here, before the worker: tokenizer and templates are its until then. */
static int run_worker(struct daemon *d, struct loop *loop, struct err *e)
{
    int rc = worker_start(d, e);
    const bool has_worker = rc == 0;
    if (rc == 0)
        rc = history_opened(e);
    if (rc < 0) {
        loop_abandon(loop);
        history_join(d);
        if (has_worker)
            worker_join(d);
        return rc;
    }
    rc = loop_run(loop);
    history_join(d);
    worker_join(d);
    return rc < 0 ? err_set(e, rc, "%s", d->load_error[0] ? d->load_error : "the event loop broke")
                  : 0;
}

/* Threads and loop, from their start to their end. */
static int run_threads(struct daemon *d, const struct sockets *s, const struct keys *keys,
                       struct err *e)
{
    struct loop *loop = NULL;
    struct loop_options o = {
        .d = d,
        .limits = net_limits_default,
        .listeners = s->v,
        .n_listeners = s->n,
        .keys = keys,
        .handle_signals = true,
        .n_threads = 2,
        .stop_ms = LIMIT_STOP_MS,
        .on_cancel = on_cancel,
        .on_ready = on_ready,
        .worker_progress = worker_progress,
    };
    int rc = loop_new(&o, &loop, e);
    if (rc < 0)
        return rc;
    rc = served_start(d, e);
    if (rc == 0)
        rc = history_start(d, e);
    if (rc == 0)
        rc = run_worker(d, loop, e);
    drop_mail(d);
    loop_free(loop);
    served_free_all(d);
    return rc;
}

/* `keys` is NULL without --listen. */
static int serve(struct config *c, const struct keys *keys, struct err *e)
{
    static struct daemon d; /* threads point into it */
    struct sockets sockets = {.n = 0};
    int lock = -1;
    d.config = c;
    d.t_started_us = clock_us();

    int rc = take_lock(c, &lock, e);
    if (rc == 0)
        rc = open_sockets(c, &sockets, e);
    if (rc == 0)
        rc = init_mailboxes(&d, e);
    if (rc < 0)
        goto done;
    adopt_socket_mode(c, &sockets);
    struct err cache_error = {0};
    if (dir_make_private(c->cache_dir, &cache_error) < 0)
        log_warn("%s; going on without a cache directory", cache_error.text);
    log_start(c, &sockets);
    notify_loading(0);
    rc = run_threads(&d, &sockets, keys, e);
done:
    for (int i = 0; i < sockets.n; i++)
        listen_done(&sockets.v[i]);
    if (lock >= 0)
        lock_release(lock);
    return rc;
}

int main(int argc, char **argv)
{
    umask(077); /* before anything can make a file */
    int status = 0;
    struct err e = {0};
    log_init(LOG_LEVEL_INFO);
    if (hash_start(&e) < 0) {
        log_error("%s", e.text);
        return 1;
    }
    if (run_offline(argc, argv, &status))
        return status;
    struct config config;
    int rc = config_load(argc, argv, &config, &e);
    if (rc == CONFIG_HELP)
        return print_help();
    if (rc == CONFIG_VERSION)
        return print_version();
    if (rc < 0) {
        log_error("%s", e.text);
        return EXIT_CONFIG;
    }
    struct keys *keys = NULL;
    if (config.listen && keys_read(config.api_key_file, &keys, &e) < 0) {
        log_error("%s", e.text);
        config_done(&config);
        return EXIT_CONFIG;
    }
    log_init((enum log_level)config.log_level);
    thread_set_role(THREAD_LOOP);
    set_up_process();
    rc = serve(&config, keys, &e);
    if (rc < 0)
        log_error("%s", e.text);
    else
        log_info("stopped");
    keys_free(keys);
    config_done(&config);
    return rc < 0 ? 1 : 0;
}
